"""Laws of conservation, checked over scenarios drawn at random."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from wattkeeper.policies.errors import WattkeeperError
from wattkeeper.scenarios.bench.random_scenarios import RandomScenario, draw_scenario
from wattkeeper.scenarios.kinds.simulation import execute
from wattkeeper.scenarios.run.policy_checks import check_policies
from wattkeeper.scenarios.run.read import read_inputs
from wattkeeper.scenarios.spec.loading import load
from wattkeeper.scenarios.spec.wording import count
from wattkeeper.traces.library import folder
from wattkeeper.traces.library.folder import keep_traces

ENTRY: Final = "laws"
"""Its name among the entries of `wattkeeper bench`."""

SCENARIOS: Final = 100
"""Number of scenarios, unless another is asked for."""


class CannotRun(Exception):
    """A drawn scenario is refused before it runs."""


class LawResults(NamedTuple):
    """What came of scenarios drawn at random.

    Attributes:
        scenarios: Number of scenarios that ran, by kind.
        runs: Number of their runs.
        refused: Number of scenarios that were refused, by message: they cannot run as drawn.
        broken: Faults, by seed of the scenario.
    """

    scenarios: Counter[str]
    runs: int
    refused: Counter[str]
    broken: dict[int, str]


def check_random_scenarios(
    number: int = SCENARIOS,
    first: int = 1,
    progress: Callable[[int, int], None] = lambda done, all_: None,
) -> LawResults:
    """Run scenarios that are drawn with consecutive seeds, and check the laws of all their runs.

    Args:
        number: Number of scenarios.
        first: Seed of the first one.
        progress: Called with the number of those that are done, and of all.
    """
    results = LawResults(Counter(), 0, Counter(), {})
    with tempfile.TemporaryDirectory(prefix="wattkeeper-laws-") as scratch, keep_traces():
        for done, seed in enumerate(range(first, first + number)):
            progress(done, number)
            drawn = draw_scenario(seed)
            try:
                runs = run_checked(drawn, Path(scratch) / str(seed))
            except CannotRun as error:
                results.refused[str(error)[:100]] += 1
                continue
            except WattkeeperError as error:
                results.broken[seed] = "\n".join([str(error), *getattr(error, "__notes__", ())])
            except Exception as error:
                results.broken[seed] = f"{type(error).__name__}: {error}"
            else:
                results = results._replace(runs=results.runs + runs)
            results.scenarios[drawn.kind] += 1
    return results


def run_checked(drawn: RandomScenario, scratch: Path) -> int:
    """Run all variants of a drawn scenario, and check their laws; returns the number of runs.

    Args:
        drawn: The scenario.
        scratch: A folder to make, for its file and traces.

    Raises:
        CannotRun: If the scenario is refused before it runs.
        LawBroken: If the results of a run break a law.
    """
    scratch.mkdir(parents=True)
    for name, trace in drawn.traces.items():
        folder.write(trace, scratch / name)
    document = json.loads(json.dumps(drawn.document))
    _name_traces(document, scratch)
    path = scratch / "scenario.yaml"
    path.write_text(json.dumps(document), encoding="utf-8")
    try:
        loaded = load(str(path))
        inputs = read_inputs(loaded).update_runs(checked=True)
        check_policies(loaded, inputs)
    except WattkeeperError as error:
        raise CannotRun(error.problems[0].message) from error
    specs = loaded.runs
    for spec in specs:
        execute(spec, inputs.runs[spec.variant.name])
    return len(specs)


def _name_traces(document: dict[str, Any], scratch: Path) -> None:
    """Name traces by their paths."""
    workload, losses = document["workload"], document["cluster"].get("losses")
    for section in (workload, workload.get("others")):
        if section and "trace" in section:
            section["trace"] = str(scratch / section["trace"])
    if losses and isinstance(losses["events"], str):
        losses["events"] = str(scratch / losses["events"])


def describe(results: LawResults) -> str:
    """The results in lines of text."""
    kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(results.scenarios.items()))
    kept = results.scenarios.total() - len(results.broken)
    lines = [
        f"Laws of conservation: {count(results.runs, 'run')} of "
        f"{count(kept, 'random scenario')} (of {kinds}) keep them; "
        f"{count(results.refused.total(), 'scenario')} could not run as drawn."
    ]
    lines += [
        f"Random scenario {seed} breaks a law:\n{what}" for seed, what in results.broken.items()
    ]
    return "\n".join(lines)


def to_json(results: LawResults) -> dict[str, Any]:
    """The results for `--json`."""
    return results._asdict()
