"""Power, busy GPUs and waiting jobs over time, from the recorder."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from wattkeeper.policies.arrays import Floats, Ints
from wattkeeper.policies.protocols import WHOLE
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec
from wattkeeper.sim.engine.recorder import (
    MOST_UNITS,
    UNITS_PER_WATT,
    Recorder,
    power_too_large,
    whole_units,
)


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


def timeline(
    recorder: Recorder, cluster: ClusterSpec, submit_s: Floats, thousandths: Ints
) -> Timeline:
    """The timeline of a run, from the first submission to the last end.

    Sums are of whole units, so that power returns to exactly the idle power in the end.

    The submission of each attempt's job, and the thousandths of GPUs that it holds, have the shape
    (attempts,).

    Raises:
        InputError: If the power exceeds what 64-bit units can hold.
    """
    begun, ended = recorder.column("begun_s"), recorder.column("ended_s")
    first = recorder.column("attempt") == 1
    power, (changed, change) = recorder.column("power"), _power_changes(recorder)
    numbers, paused, resumed = recorder.pauses()
    _, requeued, restarted = recorder.requeues()
    held = dict(zip(recorder.column("number").tolist(), thousandths.tolist(), strict=True)) if (
        len(paused)) else {}  # fmt: skip
    lost = np.array([held[number] for number in numbers.tolist()], dtype=np.int64)
    parts = (begun, ended, paused, resumed, submit_s[first], changed, requeued, restarted)
    times, slots = _slots(parts)
    at_begun, at_ended, at_paused, at_resumed, at_submitted, at_changed = slots[:6]
    at_requeued, at_restarted = slots[6:]

    def total(*steps: tuple[Ints, Ints | int]) -> Ints:
        sums = np.zeros(len(times), dtype=np.int64)
        for at, step in steps:
            np.add.at(sums, at, step)
        return np.cumsum(sums, out=sums)

    drawing = (at_begun, power), (at_ended, -power), (at_changed, change)
    busy = total((at_begun, thousandths), (at_ended, -thousandths),
                 (at_paused, -lost), (at_resumed, lost))  # fmt: skip
    waiting = total((at_submitted, 1), (at_begun[first], -1), (at_paused, 1), (at_resumed, -1),
                    (at_requeued, 1), (at_restarted, -1))  # fmt: skip
    idle = whole_units(cluster.idle_power_w)
    _check_power(idle, times, drawing)
    drawn = total(*drawing)
    power_w = (drawn + idle) / UNITS_PER_WATT * cluster.pue
    span = slice(None)
    if len(ended):
        begin, end = np.searchsorted(times, [submit_s.min(), ended.max()]).tolist()
        span = slice(begin, end + 1)
    return Timeline(times[span], power_w[span], busy[span] / WHOLE, waiting[span])


def _power_changes(recorder: Recorder) -> tuple[Floats, Ints]:
    """Times (s) and amounts of changes of power during attempts, and of nodes that sleep."""
    changed, change = recorder.changes()
    asleep_s, woken_s, awake, asleep = recorder.sleeps()
    if not len(asleep_s):
        return changed, change
    less, wakes = awake - asleep, np.isfinite(woken_s)
    return (
        np.concatenate([changed, asleep_s, woken_s[wakes]]),
        np.concatenate([change, -less, less[wakes]]),
    )


def _slots(parts: Sequence[Floats]) -> tuple[Floats, list[Ints]]:
    """All distinct times, ascending, and the index of each part's times in them."""
    times = np.concatenate(parts)
    order = np.argsort(times)
    times = times[order]
    is_new = np.append(True, times[1:] != times[:-1])[: len(times)]
    slot = np.empty(len(times), dtype=np.int64)
    slot[order] = np.cumsum(is_new) - 1
    return times[is_new], np.split(slot, np.cumsum([len(part) for part in parts])[:-1])


def _check_power(idle: int, times: Floats, drawing: Sequence[tuple[Ints, Ints]]) -> None:
    """Raise if the sum of power in whole units would overflow."""
    changes = sum(float(np.abs(step.astype(float)).sum()) for _, step in drawing)
    if idle + changes <= MOST_UNITS:
        return
    sums = np.zeros(len(times))
    for at, step in drawing:
        np.add.at(sums, at, step.astype(float))
    if idle + np.abs(np.cumsum(sums)).max() > MOST_UNITS:
        raise power_too_large()
