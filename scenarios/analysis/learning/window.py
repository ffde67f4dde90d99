"""Groups of recurring jobs that are long enough to show what was learnt."""

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.analysis.vocabulary import is_profiled
from wattkeeper.sim.cluster_results.metrics import LAST


class LearningWindow(NamedTuple):
    """Groups whose jobs recur more often than the window of metrics after learning is long.

    Attributes:
        groups: Number of groups.
        longer: Those with more than `LAST` recurrences.
    """

    groups: int
    longer: int

    def describe(self) -> str:
        """The window in words, and how many groups have nothing before it."""
        short = self.groups - self.longer
        text = f"the last {LAST} recurrences"
        return text + f"; {short:,} of {self.groups:,} groups have no more than these" * bool(short)


def read_learning_window(study: Study) -> LearningWindow:
    """The groups of the runs with the first seed, of the variant with the fewest long ones."""
    if not is_profiled(study.summary):
        return LearningWindow(0, 0)
    table = study.table("jobs", ("variant", "seed", "group_id", "recurrence"))
    if not len(table):
        return LearningWindow(0, 0)
    first = table.filter(pc.equal(table["seed"], pa.scalar(study.manifest["seeds"][0], pa.int64())))
    longest = first.group_by(["variant", "group_id"]).aggregate([("recurrence", "max")])
    windows = []
    for variant in study.summary["variants"]:
        own = longest.filter(pc.equal(longest["variant"], variant))["recurrence_max"]
        windows.append(LearningWindow(len(own), pc.sum(pc.greater(own, LAST)).as_py() or 0))
    return min(windows, key=lambda window: window.longer)
