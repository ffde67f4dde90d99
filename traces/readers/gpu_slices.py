"""Slices of GPUs (NVIDIA's Multi-Instance GPU), by the names of their profiles.

``3g.20gb`` has three of the seven compute slices of a GPU. An A30 and an RTX PRO 6000 have four,
an RTX PRO 5000 and 4500 two. Source: NVIDIA's MIG user guide, supported GPUs and profiles.
"""

import re
from typing import Final

SLICES: Final = 7
OF_TYPES: Final = {
    re.compile(r"(^|[^a-z0-9])a30([^0-9]|$)"): 4,
    re.compile(r"pro[ _-]?6000|6000[ _-]?pro"): 4,
    re.compile(r"pro[ _-]?(5000|4500)|(5000|4500)[ _-]?pro"): 2,
}
"""Compute slices of types of GPU, by what stands in their names; others have `SLICES`."""
OF_PROFILES: Final = {(1, 6): 4, (2, 12): 4, (4, 24): 4, (2, 48): 4, (4, 96): 4}
"""Compute slices of the GPU that has such a profile, by slices and GB of memory.

``2g.48gb`` is taken as half of an RTX PRO 6000. ``1g.24gb`` can be a quarter of that one, half of
an RTX PRO 5000, or a seventh of a GPU with more slices, as which it is taken.
"""
SHARED: Final = "shares GPUs in parts that are not recorded"
MIXED: Final = "asks for whole GPUs and parts, or for different parts"


def to_milli(slices: int, memory_gb: int, gpu_type: str | None = None) -> int:
    """Thousandths of a GPU that a profile of so many compute slices and so much memory has.

    `gpu_type`: name of the type, or of several with ``|`` between; it decides where it is known.
    """
    of_profile = OF_PROFILES.get((slices, memory_gb), SLICES)
    known = {
        next((of for name, of in OF_TYPES.items() if name.search(text)), of_profile)
        for text in (gpu_type or "").lower().split("|")
    }
    of = known.pop() if len(known) == 1 else of_profile
    return round(1000 * min(slices, of) / of)
