"""The command `wattkeeper bench`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wattkeeper.policies.errors import EnvironmentLacks
from wattkeeper.scenarios.cli import terminal
from wattkeeper.scenarios.cli.completion.names import complete_scenarios
from wattkeeper.scenarios.cli.options import FILE, json_option
from wattkeeper.scenarios.spec.wording import count

if TYPE_CHECKING:
    from wattkeeper.scenarios.bench.baselines import Baselines, Entry
    from wattkeeper.scenarios.bench.examine import EntryResult


@click.command()
@click.argument("scenarios", metavar="[SCENARIO]...", nargs=-1, shell_complete=complete_scenarios)
@click.option("--update", is_flag=True, help="Accept the results as the baseline.")
@json_option
@click.option("--baselines", type=FILE, help="File of baselines [the shipped ones].")
@click.option(
    "--random",
    "drawn",
    type=click.IntRange(1, 1_000_000),
    metavar="N",
    help="Number of random scenarios for `laws` [100].",
)
def bench(
    scenarios: tuple[str, ...],
    update: bool,
    as_json: bool,
    baselines: Path | None,
    drawn: int | None,
) -> None:
    """Compare the results of SCENARIOs, or of all that have a baseline, with accepted ones.

    `growth` as a SCENARIO, or none: also count how the work of schedulers and of the search for
    parents grows. `laws`, or none: also check laws of conservation over random scenarios of all
    kinds, with all policies. Exit code 1: something changed, for better or worse, grows too fast,
    or breaks a law; 3: nothing could be run.
    """
    from wattkeeper.traces.process_setup import configure_process

    configure_process()
    from wattkeeper.scenarios.bench import baselines as bench_file
    from wattkeeper.scenarios.bench import growth as bench_growth
    from wattkeeper.scenarios.bench import laws as bench_laws
    from wattkeeper.scenarios.bench.examine import examine, to_json

    path = baselines or bench_file.SHIPPED
    own = baselines is not None
    grows = not own and (not scenarios or bench_growth.ENTRY in scenarios)
    obeys = not own and (not scenarios or bench_laws.ENTRY in scenarios)
    if drawn is not None and not obeys:
        raise click.UsageError("--random is for `laws`: add that, or leave it out")
    counted = () if own else (bench_growth.ENTRY, bench_laws.ENTRY)
    names = tuple(name for name in scenarios if name not in counted)
    file, entries = bench_file.Baselines(), list[bench_file.Entry]()
    if names or not scenarios:
        file, entries = _select_entries(path, names, update, own)
    outcomes, obeyed = [], None
    with terminal.progress("bench") as progress:
        for index, entry in enumerate(entries):
            progress(index, len(entries) + grows)
            outcomes.append(examine(entry, path.resolve().parent, accept=update))
        if grows:
            progress(len(entries), len(entries) + 1)
        growths = bench_growth.measure_growth() if grows else []
    if obeys:
        with terminal.progress("laws") as progress:
            count_drawn = drawn or bench_laws.SCENARIOS
            obeyed = bench_laws.check_random_scenarios(count_drawn, progress=progress)
    ran = [outcome for outcome in outcomes if outcome.state not in ("skipped", "failed")]
    accepted = _accept(path, file, outcomes) if update and ran else []
    if as_json:
        content = {"baselines": str(path), "accepted": accepted, "ran": len(ran)}
        content["entries"] = [to_json(outcome) for outcome in outcomes]
        content["growth"] = [bench_growth.to_json(growth) for growth in growths]
        content["laws"] = None if obeyed is None else bench_laws.to_json(obeyed)
        terminal.write(json.dumps(content, indent=2))
    else:
        from wattkeeper.scenarios.cli.tables.bench import print_growths, print_outcomes

        if outcomes:
            print_outcomes(terminal.console(), outcomes)
        if growths:
            print_growths(terminal.console(), growths)
        if obeyed is not None:
            terminal.write(bench_laws.describe(obeyed))
        for line in accepted:
            terminal.write(f"Accepted: {line}")
        if outcomes:
            terminal.write(_summarise(outcomes, path, update))
    failed = any(outcome.state == "failed" for outcome in outcomes)
    breaks = obeyed is not None and bool(obeyed.broken)
    if failed or breaks or not all(growth.is_allowed for growth in growths):
        raise click.exceptions.Exit(1)
    if not ran and not growths and obeyed is None:
        raise click.exceptions.Exit(EnvironmentLacks.exit_code)
    if not update and any(outcome.state != "same" for outcome in ran):
        raise click.exceptions.Exit(1)


def _select_entries(
    path: Path, names: Sequence[str], update: bool, own: bool
) -> tuple[Baselines, list[Entry]]:
    """The file and the entries to run, including those that an update adds."""
    from wattkeeper.scenarios.bench import baselines as bench_file

    if not (update and own):
        file = bench_file.read_baselines(path)
        return file, bench_file.select_entries(file, names, path)
    file = bench_file.read_baselines(path) if path.exists() else bench_file.Baselines()
    known = {word for entry in file.entries for word in (entry.name, entry.scenario)}
    fresh = tuple(_new_entry(name, path) for name in dict.fromkeys(names) if name not in known)
    if not (file.entries or fresh):
        raise click.UsageError(f"{path} has no entries: name the scenarios to add")
    file = bench_file.Baselines(entries=(*file.entries, *fresh))
    selected = [name for name in names if name in known] + [entry.name for entry in fresh]
    return file, bench_file.select_entries(file, selected, path)


def _new_entry(name: str, path: Path) -> Entry:
    """An entry without settings; a path is relative to the file of baselines."""
    import os

    from wattkeeper.scenarios.bench.baselines import Entry
    from wattkeeper.scenarios.spec.loading import find_scenario, shipped

    if name in shipped():
        return Entry(name=name, scenario=name)
    file = os.path.relpath(find_scenario(name).resolve(), path.resolve().parent)
    return Entry(name=Path(name).stem, scenario=file)


def _accept(path: Path, file: Baselines, outcomes: Sequence[EntryResult]) -> list[str]:
    """Write results that changed into the file; returns a line for each."""
    from wattkeeper.scenarios.bench import baselines as bench_file

    fresh: dict[str, Entry] = {}
    lines: list[str] = []
    for outcome in outcomes:
        entry, result = outcome.entry, outcome.result
        if outcome.state == "new":
            lines.append(f"{entry.name}: a first baseline, {count(outcome.runs, 'run')}")
        elif outcome.state == "changed":
            lines.append(f"{entry.name}: {count(len(outcome.changes), 'change')}")
        elif outcome.state == "same" and result is not None and entry.expected is not None:
            if result.cpu.keys() <= entry.expected.cpu.keys():
                continue
            lines.append(f"{entry.name}: the speed of another kind of core")
        else:
            continue
        assert result is not None
        if entry.expected is not None and outcome.state == "same":
            result = entry.expected.model_copy(update={"cpu": entry.expected.cpu | result.cpu})
        elif entry.expected is not None:
            result = result.model_copy(update={"cpu": entry.expected.cpu | result.cpu})
        fresh[entry.name] = entry.model_copy(update={"expected": result})
    if fresh:
        entries = tuple(fresh.get(entry.name, entry) for entry in file.entries)
        bench_file.write_baselines(path, file.model_copy(update={"entries": entries}))
    return lines


STATES = {
    "same": "as before",
    "changed": "changed",
    "failed": "failed",
    "new": "without a baseline",
    "skipped": "skipped",
}


def _summarise(outcomes: Sequence[EntryResult], path: Path, update: bool) -> str:
    counts: Counter[str] = Counter(outcome.state for outcome in outcomes)
    text = ", ".join(f"{counts[state]} {word}" for state, word in STATES.items() if counts[state])
    if not update and counts["changed"] + counts["new"]:
        text += "; --update accepts the results"
    return f"{path}: {text}"
