"""How far simulated waits reproduce recorded ones, in sentences and tables."""

from collections.abc import Iterator, Sequence
from typing import Final

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.policy_kinds import policy_kind
from wattkeeper.scenarios.analysis.record.waits import SAME_S, WaitPart
from wattkeeper.scenarios.analysis.vocabulary import format_value
from wattkeeper.scenarios.spec.wording import count
from wattkeeper.traces.describe.waits import WaitStatistics, label_part

RECORDED: Final = "recorded"
"""The scheduler that starts each job when it started, and its variant in a study."""
FAR: Final = 1.5
"""Ratio of mean waits above which a run does not reproduce the record."""
FAR_S: Final = 60.0
"""Difference of mean waits above which their ratio counts, s."""

HEADS: Final = (
    "jobs", "number", "recorded mean", "recorded median", "recorded 95 %", "simulated mean",
    "simulated median", "simulated 95 %", "median difference",
)  # fmt: skip
"""Titles of the columns of `rows_by_part`."""


def describe_record(parts: Sequence[WaitPart], baseline: str, scenario: Json) -> Iterator[str]:
    """How far the baseline reproduces the record, and where the record itself was impossible."""
    yield from describe_closeness(parts, baseline)
    replays = [name for name in (baseline, *parts[0]["runs"])
               if policy_kind(scenario, name, "select") == RECORDED]  # fmt: skip
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
    median, mean = (_format(run[key]) for key in ("median_difference_s", "mean_difference_s"))
    yield (
        f"A job's simulated wait differs from its recorded one by {median} (median) and {mean} "
        f"(mean); {100 * run['as_recorded']:.0f} % of jobs start within {SAME_S:g} s of their "
        "recorded start."
    )
    low, high = sorted((recorded["mean_s"], run["mean_s"]))
    if high > FAR * low and high - low > FAR_S:
        more = "longer" if run["mean_s"] > recorded["mean_s"] else "shorter"
        yield (
            f"The simulation does not reproduce the record: mean waits are much {more}. The log "
            "does not say what else held jobs back or let them pass, such as priorities, "
            "reservations, limits of users, or nodes that were down or added."
        )


def rows_by_part(parts: Sequence[WaitPart], variant: str) -> Iterator[tuple[str, ...]]:
    """A row for each part: its jobs, recorded and simulated waits, and their median difference."""
    for part in parts:
        recorded, run = part["recorded"], part["runs"][variant]
        values = [each[key] for each in (recorded, run) for key in ("mean_s", "median_s", "p95_s")]
        label = label_part(part["by"], part["part"])
        yield (label, f"{part['jobs']:,}", *map(_format, [*values, run["median_difference_s"]]))


def _format_waits(waits: WaitStatistics) -> str:
    return (
        f"mean {_format(waits['mean_s'])}, median {_format(waits['median_s'])}, 95th "
        f"percentile {_format(waits['p95_s'])}"
    )


def _format(wait_s: float) -> str:
    return format_value(wait_s, "queue_delay_s")
