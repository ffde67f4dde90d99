"""The command `wattkeeper bench`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wattkeeper.policies.errors import EnvironmentLacks
from wattkeeper.scenarios.cli import terminal
from wattkeeper.scenarios.spec.wording import count

if TYPE_CHECKING:
    from wattkeeper.scenarios.bench.baselines import Baselines, Entry
    from wattkeeper.scenarios.bench.examine import EntryResult


@click.command()
@click.argument("scenarios", metavar="[SCENARIO]...", nargs=-1)
@click.option("--update", is_flag=True, help="Accept what comes out as the baseline.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.option("--baselines", type=click.Path(path_type=Path, dir_okay=False),
              help="File of baselines [those that come with wattkeeper].")  # fmt: skip
def bench(scenarios: tuple[str, ...], update: bool, as_json: bool, baselines: Path | None) -> None:
    """Hold SCENARIOs, or all that have a baseline, against what came out of them before.

    Exit code 1: something is not as it was, better or worse; 3: nothing could be run.
    """
    from wattkeeper.traces.arrow import configure_arrow

    configure_arrow()
    from wattkeeper.scenarios.bench import baselines as bench_file
    from wattkeeper.scenarios.bench.examine import examine, to_json

    path = baselines or bench_file.SHIPPED
    file, entries = _entries(path, scenarios, update, own=baselines is not None)
    outcomes = []
    with terminal.progress("bench") as progress:
        for at, entry in enumerate(entries):
            progress(at, len(entries))
            outcomes.append(examine(entry, path.resolve().parent, accept=update))
    ran = [outcome for outcome in outcomes if outcome.state not in ("skipped", "failed")]
    accepted = _accept(path, file, outcomes) if update and ran else []
    if as_json:
        said = {"baselines": str(path), "accepted": accepted, "ran": len(ran)}
        said["entries"] = [to_json(outcome) for outcome in outcomes]
        click.echo(json.dumps(said, indent=2))
    else:
        from wattkeeper.scenarios.cli.tables.bench import show

        show(terminal.console(), outcomes)
        for line in accepted:
            click.echo(f"Accepted: {line}")
        click.echo(_verdict(outcomes, path, update))
    if any(outcome.state == "failed" for outcome in outcomes):
        raise click.exceptions.Exit(1)
    if not ran:
        raise click.exceptions.Exit(EnvironmentLacks.exit_code)
    if not update and any(outcome.state != "same" for outcome in ran):
        raise click.exceptions.Exit(1)


def _entries(
    path: Path, names: Sequence[str], update: bool, own: bool
) -> tuple[Baselines, list[Entry]]:
    """The file, and the entries to run; those that an update adds among them."""
    from wattkeeper.scenarios.bench import baselines as bench_file

    if not (update and own):
        file = bench_file.read(path)
        return file, bench_file.chosen(file, names, path)
    file = bench_file.read(path) if path.exists() else bench_file.Baselines()
    known = {word for entry in file.entries for word in (entry.name, entry.scenario)}
    fresh = tuple(_entry(name, path) for name in dict.fromkeys(names) if name not in known)
    if not (file.entries or fresh):
        raise click.UsageError(f"{path} has no entries: name the scenarios to add")
    file = bench_file.Baselines(entries=(*file.entries, *fresh))
    asked = [name for name in names if name in known] + [entry.name for entry in fresh]
    return file, bench_file.chosen(file, asked, path)


def _entry(name: str, path: Path) -> Entry:
    """A scenario without settings; a file is named as seen from the file of baselines."""
    import os

    from wattkeeper.scenarios.bench.baselines import Entry
    from wattkeeper.scenarios.spec.loading import find, shipped

    if name in shipped():
        return Entry(name=name, scenario=name)
    found = os.path.relpath(find(name).resolve(), path.resolve().parent)
    return Entry(name=Path(name).stem, scenario=found)


def _accept(path: Path, file: Baselines, outcomes: Sequence[EntryResult]) -> list[str]:
    """Write what came out where it is not as before; lines that say what that is."""
    from wattkeeper.scenarios.bench import baselines as bench_file

    fresh: dict[str, Entry] = {}
    lines: list[str] = []
    for outcome in outcomes:
        entry, found = outcome.entry, outcome.found
        if outcome.state == "new":
            lines.append(f"{entry.name}: a first baseline, {count(outcome.runs, 'run')}")
        elif outcome.state == "changed":
            lines.append(f"{entry.name}: {count(len(outcome.changes), 'change')}")
        elif outcome.state == "same" and found is not None and entry.expected is not None:
            if found.cpu.keys() <= entry.expected.cpu.keys():
                continue
            lines.append(f"{entry.name}: the speed of another kind of core")
        else:
            continue
        assert found is not None
        if entry.expected is not None and outcome.state == "same":
            found = entry.expected.model_copy(update={"cpu": entry.expected.cpu | found.cpu})
        elif entry.expected is not None:
            found = found.model_copy(update={"cpu": entry.expected.cpu | found.cpu})
        fresh[entry.name] = entry.model_copy(update={"expected": found})
    if fresh:
        entries = tuple(fresh.get(entry.name, entry) for entry in file.entries)
        bench_file.write(path, file.model_copy(update={"entries": entries}))
    return lines


def _verdict(outcomes: Sequence[EntryResult], path: Path, update: bool) -> str:
    count = {
        state: sum(outcome.state == state for outcome in outcomes)
        for state in ("same", "changed", "failed", "new", "skipped")
    }
    said = ", ".join(
        f"{number} {word}"
        for word, number in (
            ("as before", count["same"]),
            ("changed", count["changed"]),
            ("failed", count["failed"]),
            ("without a baseline", count["new"]),
            ("skipped", count["skipped"]),
        )
        if number
    )
    if not update and count["changed"] + count["new"]:
        said += "; --update accepts what came out"
    return f"{path}: {said}"
