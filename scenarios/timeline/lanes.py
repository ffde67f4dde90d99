"""Intervals in which jobs held GPUs, packed into lanes: one lane for each GPU of a node."""

from collections.abc import Iterator, Sequence
from functools import cache
from heapq import heappop, heappush
from typing import Final, NamedTuple

Slot = tuple[int, int, int]
"""A slot of a placement: node, number of GPUs, and index of a shared GPU or `WHOLE_GPUS`."""

Lane = tuple[int, int, int]
"""Node, GPU on it, and part of the GPU where jobs share it, all from 0."""

WHOLE_GPUS: Final = -1


class GpuHold(NamedTuple):
    """An interval in which a job holds the same GPUs, over one attempt or consecutive retries.

    Attributes:
        job: Id of the job.
        begin: Begin, ns.
        end: End, ns.
        slots: The GPUs.
        first: Number of its first attempt.
        last: Number of its last attempt.
        cut: What ended it before the attempt's end: `preempted`, `paused` or, if nothing, empty.
    """

    job: str
    begin: int
    end: int
    slots: tuple[Slot, ...]
    first: int
    last: int
    cut: str


def find_holds(
    decisions: Iterator[tuple[int, str, str, int, str]],
    ended: dict[str, tuple[int, int]],
    frees_paused: bool,
) -> list[GpuHold]:
    """The holds between starts and preemptions, pauses or ends, in the order of the journal.

    Args:
        decisions: Time (ns), decision point, job, attempt, and choice of each decision.
        ended: End (ns) and number of each job's last attempt.
        frees_paused: Whether a job that `Tune` pauses gives its GPUs up.

    Raises:
        LookupError: If the journal does not belong to these jobs.
    """
    holds: list[GpuHold | None] = []
    running: dict[str, tuple[int, int, int, tuple[Slot, ...]]] = {}
    paused: set[str] = set()
    for time, point, job, attempt, chose in decisions:
        cut = "preempted" if point in ("select", "cap") and chose == "preempt" else ""
        if point == "place":
            running[job] = len(holds), time, attempt, parse_slots(chose)
            holds.append(None)
        elif point == "tune" and frees_paused and not chose.endswith(": nothing"):
            (paused.add if "run=pause" in chose.split() else paused.discard)(job)
        if job in paused and job in running:
            cut = "paused"
        if cut:
            index, begin, first, slots = running.pop(job)
            holds[index] = GpuHold(job, begin, time, slots, first, attempt, cut)
    for job, (index, begin, first, slots) in running.items():
        end, last = ended[job]
        holds[index] = GpuHold(job, begin, end, slots, first, last, "")
    return [hold for hold in holds if hold is not None]


@cache
def parse_slots(chose: str) -> tuple[Slot, ...]:
    """Read a placement as `wattkeeper.sim.cluster_results.columns.format_choice` writes it."""
    slots = []
    for text in chose.split():
        node, _, rest = text.partition(":")
        gpus, _, gpu = rest.partition("/")
        slots.append((int(node), int(gpus), int(gpu) if gpu else WHOLE_GPUS))
    return tuple(slots)


def assign_lanes(holds: Sequence[GpuHold]) -> list[tuple[Lane, ...]]:
    """The lanes of each hold, one for each of its GPUs; holds never overlap on a lane.

    Holds are in the order of the journal. Each takes the lowest free GPUs of its node, so that
    there are never more lanes than GPUs. Jobs that share a GPU take its lowest free parts.
    """
    nodes: dict[int, _Node] = {}
    releases: list[tuple[int, int, Lane, int]] = []
    lanes = []
    for index, hold in enumerate(holds):
        while releases and releases[0][0] <= hold.begin:
            _, _, lane, shared = heappop(releases)
            nodes[lane[0]].release(lane, shared)
        own: list[Lane] = []
        for node, gpus, shared in hold.slots:
            for gpu, part in nodes.setdefault(node, _Node()).take(gpus, shared):
                own.append((node, gpu, part))
                heappush(releases, (hold.end, index, own[-1], shared))
        lanes.append(tuple(own))
    return lanes


class _LowestFree:
    """Allocates the lowest free number from 0."""

    def __init__(self) -> None:
        self._released: list[int] = []
        self._next = 0

    def take(self) -> int:
        if self._released:
            return heappop(self._released)
        self._next += 1
        return self._next - 1

    def release(self, number: int) -> None:
        heappush(self._released, number)

    @property
    def all_free(self) -> bool:
        return len(self._released) == self._next


class _Node:
    """Allocates the GPUs of a node, and the parts of shared ones."""

    def __init__(self) -> None:
        self._gpus = _LowestFree()
        self._shared: dict[int, tuple[int, _LowestFree]] = {}

    def take(self, gpus: int, shared: int) -> list[tuple[int, int]]:
        if shared == WHOLE_GPUS:
            return [(self._gpus.take(), 0) for _ in range(gpus)]
        if shared not in self._shared:
            self._shared[shared] = self._gpus.take(), _LowestFree()
        gpu, parts = self._shared[shared]
        return [(gpu, parts.take())]

    def release(self, lane: Lane, shared: int) -> None:
        _, gpu, part = lane
        if shared == WHOLE_GPUS:
            self._gpus.release(gpu)
            return
        _, parts = self._shared[shared]
        parts.release(part)
        if parts.all_free:
            self._gpus.release(gpu)
            del self._shared[shared]
