"""Speed of runs: CPU time relative to a loop of fixed work, measured alternately.

A shared machine may slow down for seconds, and the loop with the run. So each run is compared with
the loops right before and after it, and the median of several ratios is taken.
"""

import time
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from statistics import median
from typing import Final, NamedTuple

from wattkeeper.scenarios.bench.baselines import Core
from wattkeeper.scenarios.run.core import is_compiled

EVENTS: Final = 100_000
WAITING: Final = 1000

LAPS: Final = 5
MOST_LAPS: Final = 15
ENOUGH_S: Final = 4.0
"""CPU time of all laps after which a run is not repeated, unless it seems slow."""

SLOWER: Final = 1.5
"""Ratio over the baseline's ratio from which on a run is a regression."""


class Speed(NamedTuple):
    """A measured speed.

    Attributes:
        ratio: CPU time of a run over that of the loop, median of the laps.
        lowest: Lowest ratio of the laps.
        highest: Highest ratio of the laps.
        laps: Number of laps.
    """

    ratio: float
    lowest: float
    highest: float
    laps: int


def core() -> Core:
    """The kind of core here."""
    return "compiled" if is_compiled() else "interpreted"


def measure(run: Callable[[], object], expected: float | None, accept: bool) -> Speed:
    """Time a run; it must have run before, so that imports and compilation do not count.

    Args:
        run: The run.
        expected: The baseline's ratio; a run that seems slower gets more laps.
        accept: Whether the result becomes the baseline, which takes more laps.
    """
    loops, runs = [_cpu_s(loop)], []
    while True:
        runs.append(_cpu_s(run))
        loops.append(_cpu_s(loop))
        ratios = [
            ran / (before + after) * 2
            for ran, before, after in zip(runs, loops, loops[1:], strict=False)
        ]
        ratio = median(ratios)
        wanted = LAPS if sum(runs) < ENOUGH_S else 1
        doubtful = expected is not None and ratio > SLOWER * expected
        if len(ratios) >= (MOST_LAPS if doubtful else 2 * wanted - 1 if accept else wanted):
            return Speed(ratio, min(ratios), max(ratios), len(ratios))


def _cpu_s(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def loop() -> float:
    """Fixed work similar to a simulator's: a heap of events, and a counter for each node."""
    waiting = [(float(number * 7919 % 1000), number) for number in range(WAITING)]
    heapify(waiting)
    counts: dict[int, int] = {}
    total = 0.0
    for _ in range(EVENTS):
        now, number = heappop(waiting)
        counts[number % 97] = counts.get(number % 97, 0) + 1
        total += now
        heappush(waiting, (now + number * 2654435761 % 1009 + 1.0, number + 1))
    return total
