"""The simulator's core: compiled or plain Python, with the same results."""

from typing import Final

from wattkeeper.sim.recording import recorder

MANY_JOBS: Final = 200_000
"""From which on compiling saves a user more time than reading about it takes."""


def is_compiled() -> bool:
    """Whether the core is compiled here."""
    return not str(recorder.__file__).endswith(".py")


def advise_compiling(jobs: int) -> str:
    """A line for a simulation of many jobs on the plain core; else empty."""
    if jobs <= MANY_JOBS or is_compiled():
        return ""
    return (
        f"{jobs:,} jobs on the core in plain Python: compiled (`make compile` in a checkout, or a "
        "wheel of `make wheels`), a million took a fifth of the CPU time."
    )
