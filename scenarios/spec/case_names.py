"""Names of the cases of a variant whose power limits are modelled."""

from collections.abc import Container
from typing import Final

from wattkeeper.traces.gpus.model import Boundness

BOUNDS: Final[tuple[Boundness, ...]] = ("low", "high")
"""The cases besides the middle one, which has the name of the variant."""


def case_name(variant: str, case: Boundness) -> str:
    """The name of a case of a variant."""
    return f"{variant} ({case})"


def split_case(name: str) -> tuple[str, Boundness] | None:
    """The variant of which a name is a case, and the case; None if it is no case's name."""
    for case in BOUNDS:
        if name.endswith(suffix := f" ({case})"):
            return name.removesuffix(suffix), case
    return None


def name_as_written(variant: str, written: Container[str]) -> str:
    """The name under which a variant is written in a scenario: its own, or that of its base."""
    return variant if variant in written else base_of(variant) or variant


def base_of(name: str) -> str | None:
    """The variant of which a name is a case; None if it is no case's name."""
    parts = split_case(name)
    return None if parts is None else parts[0]
