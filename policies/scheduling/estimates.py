"""Expected run times of jobs."""

from collections.abc import Mapping
from typing import Literal

Estimates = Literal["user", "perfect"]
"""Of a job: the user's estimate (`estimate_s`), or the exact run time (`duration_s`)."""


def needed_columns(estimates: Estimates) -> Mapping[str, str]:
    """The column of the expected run time, with advice for jobs that lack it."""
    if estimates == "perfect":
        return {"duration_s": "choose a policy that does not need it"}
    advice = (
        "import the log with --partitions or --default-estimate, leave them out "
        "(workload.unusable=drop), or set `estimates: perfect` beside `kind`"
    )
    return {"estimate_s": advice}
