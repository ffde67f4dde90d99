"""Users' estimates of run times, held against recorded durations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

MOST_OUTLIVED: Final = 0.25
"""Share of jobs that ran longer than estimated above which estimates may be in another unit."""
ADVICE: Final = (
    "Estimates are read as seconds; format csv reads other units with "
    "--map estimate_s=COLUMN:UNIT (ms, s, min, h or d)"
)
LEAST_USED: Final = 1 / 60
"""Share of its estimate that no job exceeds if seconds were read as minutes."""
FEWEST_JOBS: Final = 5
"""Jobs that tell; of fewer, all may have been short."""


class OutlivedEstimates(NamedTuple):
    """How many jobs ran longer than estimated.

    Attributes:
        jobs: Jobs with an estimate and a recorded duration.
        outlived: Those that ran longer than estimated.
        most_used: Largest run time over estimate.
    """

    jobs: int
    outlived: int
    most_used: float = 0.0

    def join(self, other: OutlivedEstimates) -> OutlivedEstimates:
        """The counts of both together."""
        jobs, outlived = self.jobs + other.jobs, self.outlived + other.outlived
        return OutlivedEstimates(jobs, outlived, max(self.most_used, other.most_used))

    def describe(self) -> str:
        """The numbers and the share of jobs, in words."""
        share = 100 * self.outlived / self.jobs
        return (
            f"{self.outlived:,} of {self.jobs:,} jobs with an estimate ({share:.1f} %) ran longer "
            "than that"
        )

    def doubt(self) -> str:
        """What to do where so many jobs ran longer that the unit is in doubt; else empty."""
        return ADVICE if self.outlived > MOST_OUTLIVED * self.jobs else ""

    def warn(self) -> str:
        """A warning where the unit is in doubt; else empty."""
        if self.jobs >= FEWEST_JOBS and 0 < self.most_used <= LEAST_USED:
            return (
                f"Warning: none of {self.jobs:,} jobs used more than a sixtieth of its estimate "
                f"({100 * self.most_used:.2g} %): seconds that were read as minutes, or ms as s?"
            )
        doubt = self.doubt()
        return f"Warning: {self.describe()}. {doubt}." if doubt else ""


def count_outlived(jobs: pa.Table) -> OutlivedEstimates:
    """Count the jobs that ran longer than estimated.

    Args:
        jobs: With the columns ``estimate_s`` and ``duration_s``; there are none without them.
    """
    import pyarrow.compute as pc

    if not {"estimate_s", "duration_s"} <= set(jobs.column_names):
        return OutlivedEstimates(0, 0)
    used = pc.divide(jobs["duration_s"], jobs["estimate_s"])
    outlived = pc.sum(pc.greater(jobs["duration_s"], jobs["estimate_s"])).as_py() or 0
    return OutlivedEstimates(len(used) - used.null_count, outlived, pc.max(used).as_py() or 0.0)
