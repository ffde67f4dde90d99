"""Slices of GPUs (NVIDIA's Multi-Instance GPU), by the names of their profiles.

``3g.20gb`` has three of the seven compute slices of a GPU; an A30 has four. Source: NVIDIA's
MIG user guide.
"""

from typing import Final

SLICES: Final = 7
SLICES_A30: Final = 4
MEMORY_A30: Final = 6
"""GB of memory for each compute slice of an A30, the only type with four slices."""
SHARED: Final = "shares GPUs in parts that are not recorded"
MIXED: Final = "asks for whole GPUs and parts, or for different parts"


def to_milli(slices: int, memory_gb: int) -> int:
    """Thousandths of a GPU that a profile of so many compute slices and so much memory has."""
    of = SLICES_A30 if memory_gb == MEMORY_A30 * slices else SLICES
    return round(1000 * min(slices, of) / of)
