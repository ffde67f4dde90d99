"""Jobs of a log that may be from before its site counted GPUs."""

from collections import Counter, defaultdict
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.arrays import Floats, Ints
from wattkeeper.traces.readers.base import WithoutGpus

HOUR_S: Final = 3600.0
UNCOUNTED: Final = (
    "asks for no GPU, before the first job of its partition that does: from before GPUs were "
    "counted (AccountingStorageTRES)?"
)


class Uncounted(NamedTuple):
    """Such jobs: their number, and file and line of the first."""

    rows: int
    place: tuple[int, int]


def _join(cluster: pa.Array, queue: pa.Array) -> pa.Array:
    """One text for each partition of a cluster."""
    return pc.binary_join_element_wise(
        cluster, queue, "\0", null_handling="replace", null_replacement="\0"
    )


class UncountedGpus:
    """Tells by partition of each cluster which jobs without GPU ran before any with GPUs.

    Memory holds a count for each partition and hour of submission. Jobs whose partition or cluster
    is not recorded are a partition of their own.
    """

    def __init__(self) -> None:
        self._first_s: dict[str, float] = {}
        self._jobs = Counter[str]()
        self._without: defaultdict[str, dict[int, Uncounted]] = defaultdict(dict)

    def add(
        self,
        cluster: pa.Array,
        queue: pa.Array,
        submit_s: Floats,
        without: WithoutGpus,
        file: int,
        lines: Ints,
    ) -> None:
        """Count the jobs of a batch: those with GPUs, and the others with their lines."""
        places = _join(cluster, queue)
        for name in pc.unique(places).to_pylist():
            times = submit_s[np.asarray(pc.equal(places, name))]
            self._jobs[name] += len(times)
            self._first_s[name] = min(self._first_s.get(name, np.inf), float(times.min()))
        places = _join(without.cluster, without.queue)
        for name in pc.unique(places).to_pylist():
            rows = np.flatnonzero(np.asarray(pc.equal(places, name)))
            hours = np.floor(without.submit_time_s[rows] / HOUR_S).astype(np.int64)
            counts = self._without[name]
            for hour, first, number in zip(
                *(
                    each.tolist()
                    for each in np.unique(hours, return_index=True, return_counts=True)
                ),
                strict=True,
            ):
                place = (file, int(lines[rows[first]]))
                before = counts.get(hour, Uncounted(0, place))
                counts[hour] = Uncounted(before.rows + number, min(before.place, place))

    def find(self) -> Uncounted | None:
        """The jobs before the first with GPUs, of partitions where most later ones have some."""
        found = []
        for name, first_s in self._first_s.items():
            hour = int(first_s // HOUR_S)
            early = [each for at, each in self._without[name].items() if at < hour]
            late = sum(each.rows for at, each in self._without[name].items() if at >= hour)
            if late <= self._jobs[name]:
                found += early
        if not found:
            return None
        return Uncounted(sum(each.rows for each in found), min(each.place for each in found))
