"""Power, busy GPUs and waiting jobs over time, from the recorder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from wattkeeper.policies.arrays import Floats, Ints
from wattkeeper.policies.points.job import WHOLE
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec
from wattkeeper.sim.recording.recorder import (
    MOST_UNITS,
    UNITS_PER_WATT,
    Recorder,
    power_too_large,
    whole_units,
)
from wattkeeper.sim.recording.row_types import PauseRow, PowerChangeRow, SleepRow

POINTS: Final = 1 << 17
"""Changes of a kind that are merged at a time."""


class Timeline(NamedTuple):
    """Change points; each value holds from its time to the next one.

    Attributes:
        time_s: Ascending, without repetition, shape (points,).
        power_w: Power of the facility: jobs and idle GPUs, times power usage effectiveness.
        gpus_busy: GPUs that jobs hold; shared GPUs count in part.
        jobs_waiting: Submitted or preempted jobs that do not run.
    """

    time_s: Floats
    power_w: Floats
    gpus_busy: Floats
    jobs_waiting: Ints


class ChangePoints(NamedTuple):
    """Changes of one kind, in the order of their times, shapes (changes,); 0: of none of them.

    Attributes:
        time_s: When, s.
        sign: 1 or -1: what the others are multiplied by.
        power: Of power, in `UNITS_PER_WATT`.
        busy: Of held GPUs, in thousandths.
        waiting: Of waiting jobs.
    """

    time_s: Floats
    sign: int = 1
    power: Ints | int = 0
    busy: Ints | int = 0
    waiting: Ints | int = 0

    def in_order(self) -> ChangePoints:
        """The same, sorted by time."""
        if (self.time_s[1:] >= self.time_s[:-1]).all():
            return self
        return self._take(np.argsort(self.time_s))

    def until(self, begin: int, time_s: float) -> tuple[ChangePoints, int]:
        """Those from an index to a time, which is included, and the index that follows."""
        end = int(np.searchsorted(self.time_s, time_s, "right"))
        return self._take(slice(begin, end)), end

    def _take(self, rows: Any) -> ChangePoints:
        """Those of some rows."""
        columns: list[Any] = [each if isinstance(each, int) else each[rows] for each in self]
        return ChangePoints(*columns)


def timeline(
    recorder: Recorder,
    cluster: ClusterSpec,
    submit_s: Floats,
    thousandths: Ints,
    points: int = POINTS,
) -> Iterator[Timeline]:
    """The timeline of a run, from the first submission to the last end, in parts.

    Sums are of whole units, so that power returns to exactly the idle power in the end.

    The submission of each attempt's job, and the thousandths of GPUs that it holds, have the shape
    (attempts,). A part is made of at most `points` changes of each kind, but for those at one time.

    Raises:
        InputError: If the power exceeds what 64-bit units can hold.
    """
    begin_s, end_s = -np.inf, np.inf
    if len(submit_s):
        begin_s, end_s = submit_s.min(), recorder.column("ended_s").max()
    steps = [*_list_steps(recorder, submit_s, thousandths)]
    del submit_s
    idle = _idle_units(cluster)
    changes = sum(float(np.abs(each.power).sum(dtype=float)) for each in steps)
    may_exceed = idle + changes > MOST_UNITS
    sums, power = np.zeros(3, np.int64), 0.0
    if not any(len(each.time_s) for each in steps):
        none = np.zeros(1)
        power_w = none + idle / UNITS_PER_WATT * cluster.pue
        yield Timeline(none, power_w, none, none.astype(np.int64))
    for part in _cut(steps, points):
        times, is_last, order = _merge(part)
        power_of, busy, waiting = (
            np.cumsum(np.append(before, _join(part, name)[order]), dtype=np.int64)[1:]
            for before, name in zip(sums, ("power", "busy", "waiting"), strict=True)
        )
        if may_exceed:
            exact = np.cumsum(np.append(power, _join(part, "power")[order].astype(float)))[1:]
            if idle + np.abs(exact[is_last]).max() > MOST_UNITS:
                raise power_too_large()
            power = exact[-1]
        sums = np.array([power_of[-1], busy[-1], waiting[-1]])
        rows = is_last & (times >= begin_s) & (times <= end_s)
        power_w = (power_of[rows] + idle) / UNITS_PER_WATT * cluster.pue
        yield Timeline(times[rows], power_w, busy[rows] / WHOLE, waiting[rows])


def _idle_units(cluster: ClusterSpec) -> int:
    """Power of all idle GPUs: in whole units of each node, as that of nodes that sleep."""
    return sum(
        group.nodes * whole_units(cluster.power[group.gpu_type].idle_w * group.gpus_per_node)
        for group in cluster.groups
    )


def _list_steps(recorder: Recorder, submit_s: Floats, thousandths: Ints) -> Iterator[ChangePoints]:
    """All changes of a run; see `timeline`. One kind after the other, since each takes memory."""
    first = recorder.column("attempt") == 1
    power = recorder.column("power")
    begun_s, begun = recorder.column("begun_s"), first.astype(np.int8)
    yield ChangePoints(begun_s, power=power, busy=thousandths, waiting=-begun).in_order()
    del begun_s, begun
    yield ChangePoints(recorder.column("ended_s"), -1, power, thousandths).in_order()
    yield ChangePoints(submit_s if first.all() else submit_s[first], waiting=1).in_order()
    numbers, paused, resumed = recorder.events(PauseRow)
    if len(paused):
        number = recorder.column("number")
        by_job = np.zeros(int(number.max()) + 1, dtype=thousandths.dtype)
        by_job[number] = thousandths
        lost = by_job[numbers]
        yield ChangePoints(paused, -1, busy=lost, waiting=-1).in_order()
        yield ChangePoints(resumed, busy=lost, waiting=-1).in_order()
    changed, change = _power_changes(recorder)
    yield ChangePoints(changed, power=change).in_order()
    _, requeued, restarted = recorder.requeues()
    yield ChangePoints(requeued, waiting=1).in_order()
    yield ChangePoints(restarted, waiting=-1).in_order()


def _power_changes(recorder: Recorder) -> tuple[Floats, Ints]:
    """Times (s) and amounts of changes of power during attempts, and of nodes that sleep."""
    _, changed, change = recorder.events(PowerChangeRow)
    asleep_s, woken_s, awake, asleep = recorder.events(SleepRow)
    if not len(asleep_s):
        return changed, change
    less, wakes = awake - asleep, np.isfinite(woken_s)
    return (
        np.concatenate([changed, asleep_s, woken_s[wakes]]),
        np.concatenate([change, -less, less[wakes]]),
    )


def _cut(steps: Sequence[ChangePoints], points: int) -> Iterator[list[ChangePoints]]:
    """The changes of consecutive spans of time; all that happen at one time are in one of them."""
    edges = np.unique(np.concatenate([each.time_s[points - 1 :: points] for each in steps]))
    begins = [0] * len(steps)
    for edge_s in (*edges.tolist(), np.inf):
        cut = [each.until(begin, edge_s) for each, begin in zip(steps, begins, strict=True)]
        begins = [end for _, end in cut]
        part = [each for each, _ in cut if len(each.time_s)]
        if part:
            yield part


def _merge(part: Sequence[ChangePoints]) -> tuple[Floats, npt.NDArray[np.bool_], Ints]:
    """Times of all changes, ascending, whether each is the last at its time, and their order."""
    times = np.concatenate([each.time_s for each in part])
    order = np.argsort(times, kind="stable")  # merges what is sorted
    times = times[order]
    return times, np.append(times[1:] != times[:-1], True), order


def _join(part: Sequence[ChangePoints], name: str) -> Ints:
    """A column of all changes."""
    columns = ((each.sign, getattr(each, name), len(each.time_s)) for each in part)
    return np.concatenate([np.broadcast_to(sign * column, rows) for sign, column, rows in columns])
