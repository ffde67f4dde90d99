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


class OutlivedEstimates(NamedTuple):
    """How many jobs ran longer than estimated.

    Attributes:
        jobs: Jobs with an estimate and a recorded duration.
        outlived: Those that ran longer than estimated.
    """

    jobs: int
    outlived: int

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
    longer = pc.greater(jobs["duration_s"], jobs["estimate_s"])
    return OutlivedEstimates(len(longer) - longer.null_count, pc.sum(longer).as_py() or 0)
