"""How far simulated waits reproduce recorded ones, in sentences and tables."""

from collections.abc import Iterator, Sequence
from typing import Final

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.logged.waits import SAME_S, WaitPart
from wattkeeper.scenarios.analysis.policy_kinds import (
    RECORDED,
    knows_run_times,
    list_schedulers,
    policy_kind,
)
from wattkeeper.scenarios.analysis.vocabulary import format_value
from wattkeeper.scenarios.spec.wording import count
from wattkeeper.traces.describe.waits import WaitStatistics, label_part

FAR: Final = 1.5
"""Ratio of mean waits above which a run does not reproduce the record."""
FAR_S: Final = 60.0
"""Difference of mean waits above which their ratio counts, s."""

HEADS: Final = (
    "jobs",
    "number",
    "recorded mean",
    "recorded median",
    "recorded 95 %",
    "simulated mean",
    "simulated median",
    "simulated 95 %",
    "median difference",
)
"""Titles of the columns of `rows_by_part`."""


CLOSENESS_HEADS: Final = (
    "scheduler",
    "mean wait",
    "median wait",
    "95 %",
    "median difference",
    "mean difference",
    "as recorded",
)
"""Titles of the columns of `rows_by_scheduler`."""
WAITS_NOTE: Final = (
    "Wait: from submission to start. Differences: of a job's simulated wait from its recorded one. "
    f"As recorded: share of jobs that start within {SAME_S:g} s of their recorded start."
)


def describe_waits(parts: Sequence[WaitPart], baseline: str, scenario: Json) -> Iterator[str]:
    """How far the baseline reproduces the record, and where the record itself was impossible."""
    yield from describe_closeness(parts, baseline)
    replays = [
        name
        for name in (baseline, *parts[0]["runs"])
        if policy_kind(scenario, name, "select") == RECORDED
    ]
    late = 0
    if replays:
        run = parts[0]["runs"][replays[0]]
        late = round((1 - run["as_recorded"]) * parts[0]["jobs"])
    if late:
        delay = _format(run["mean_difference_s"] * parts[0]["jobs"] / late)
        yield (
            f"Not all of the record fits the described nodes: {count(late, 'job')} had no place "
            "there at the recorded start, and started "
            f"{delay} later on average (variant {replays[0]})."
        )


def describe_closeness(parts: Sequence[WaitPart], variant: str) -> Iterator[str]:
    """How far a variant reproduces the recorded waits, in sentences."""
    whole = parts[0]
    recorded, run = whole["recorded"], whole["runs"][variant]
    yield (
        f"Recorded waits of {count(whole['jobs'], 'job')}: {_format_waits(recorded)}. Simulated "
        f"({variant}): {_format_waits(run)}."
    )
    if is_far(whole, variant):
        more = "longer" if run["mean_s"] > recorded["mean_s"] else "shorter"
        yield f"The simulation does not reproduce the record: mean waits are much {more}."
        yield (
            "The log does not say what else held jobs back or let them pass, such as priorities, "
            "reservations, limits of users, or nodes that were down or added."
        )


def is_far(part: WaitPart, variant: str) -> bool:
    """Whether a variant's mean wait is far from the recorded one."""
    low, high = sorted((part["recorded"]["mean_s"], part["runs"][variant]["mean_s"]))
    return high > FAR * low and high - low > FAR_S


def rows_by_scheduler(parts: Sequence[WaitPart], scenario: Json) -> Iterator[tuple[str, ...]]:
    """A row for the record, and one for each scheduler: its waits, and how close they come."""
    whole = parts[0]
    yield "the record", *_format_statistics(whole["recorded"]), "", "", ""
    for name in list_schedulers(scenario):
        if name in whole["runs"]:
            run = whole["runs"][name]
            label = f"{name}, the baseline" if name == scenario["baseline"] else name
            if knows_run_times(scenario, name):
                label += " (knows run times in advance)"
            differences = run["median_difference_s"], run["mean_difference_s"]
            share = f"{100 * run['as_recorded']:.0f} %"
            yield label, *_format_statistics(run), *map(_format, differences), share


def rows_by_part(parts: Sequence[WaitPart], variant: str) -> Iterator[tuple[str, ...]]:
    """A row for each part: its jobs, recorded and simulated waits, and their median difference."""
    for part in parts:
        recorded, run = part["recorded"], part["runs"][variant]
        waits = (*_format_statistics(recorded), *_format_statistics(run))
        label = label_part(part["by"], part["part"])
        yield label, f"{part['jobs']:,}", *waits, _format(run["median_difference_s"])


def _format_statistics(waits: WaitStatistics) -> Iterator[str]:
    return map(_format, (waits["mean_s"], waits["median_s"], waits["p95_s"]))


def _format_waits(waits: WaitStatistics) -> str:
    return (
        f"mean {_format(waits['mean_s'])}, median {_format(waits['median_s'])}, 95th "
        f"percentile {_format(waits['p95_s'])}"
    )


def _format(wait_s: float) -> str:
    return format_value(wait_s, "queue_delay_s")
