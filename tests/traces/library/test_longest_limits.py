"""Time limits of jobs that have none, from the others of their log."""

from __future__ import annotations

from tests.support.messages import assert_states
from wattkeeper.traces.library.longest_limits import fill_limits
from wattkeeper.traces.tables import jobs_table
from wattkeeper.traces.trace import Trace

HOUR_S = 3600.0


def trace_of(*rows: tuple[str | None, float | None, float | None]) -> Trace:
    """Jobs by queue, duration (h) and limit (h)."""
    queues, *hours = zip(*rows, strict=True)
    durations, limits = ([h and h * HOUR_S for h in column] for column in hours)
    table = jobs_table(
        {
            "job_id": [str(n) for n in range(len(rows))],
            "submit_time_s": [0.0] * len(rows),
            "gpus": [1] * len(rows),
            "queue": queues,
            "duration_s": durations,
            "estimate_s": limits,
        }
    )
    return Trace("j", "jobs", {"jobs": table}, "f", "recorded", "s", "l", notes=("first",))


def test_each_partition_has_its_longest_limit() -> None:
    filled = fill_limits(
        trace_of(
            ("a", 1, 2),
            ("a", 1, 4),
            ("a", 1, None),
            ("a", None, None),  # it still runs
            ("b", 30, 24),  # it outlived its limit, which it keeps
            ("b", 1, None),
            ("c", 1, None),  # no limit in its partition
            (None, 1, None),
            ("d", 1, 1),
            ("d", 1, None),
            ("d", 3.2, None),  # longer than any limit of its partition
        )
    )
    limits_s = filled.tables["jobs"]["estimate_s"].to_pylist()
    assert [each / HOUR_S for each in limits_s] == [2, 4, 4, 4, 24, 24, 24, 24, 1, 4, 4]
    first, note = filled.notes
    assert first == "first"
    assert_states(
        note,
        "7 of 11 jobs have no time limit",
        "the longest of their partition in the log: a 4 h (2 jobs), b 24 h (1 job);",
        "the longest in the log, where none of their partition has one: ",
        "c 24 h (1 job)",
        "no partition 24 h (1 job)",
        "recorded run time of such jobs of their partition, in whole hours",
        "d 4 h (2 jobs)",
    )


def test_nothing_is_filled_where_nothing_is_known_or_missing() -> None:
    for limit_h in (None, 2.0):
        trace = trace_of(("a", 1, limit_h), (None, 1, limit_h))
        assert fill_limits(trace) is trace


def test_a_note_names_few_of_many_partitions() -> None:
    rows = [(f"q{n:02}", 1.0, limit) for n in range(30) for limit in (2.0, None)]
    assert_states(fill_limits(trace_of(*rows)).notes[-1], "q09 2 h", "and 20 other partitions")
