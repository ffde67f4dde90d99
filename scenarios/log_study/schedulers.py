"""The schedulers of a study."""

from typing import Final

REAL: Final = ("easy-backfill", "fifo", "fjf")
"""Schedulers that a site can run, in the order of preference where they are equally close to the
record, or where no starts are recorded; one of them is the baseline, unless another is named."""
SCHEDULERS: Final = ("fifo", "fjf", "easy-backfill", "sjf")
"""Simulated schedulers, in the order of the variants."""
