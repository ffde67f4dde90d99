"""Types of values that several sections share."""

from typing import Annotated, TypeVar

from pydantic import AfterValidator, Field

from wattkeeper.traces.files.names import explain_label

MAX_POWER_W = 1e6

T = TypeVar("T")


def check_distinct(values: tuple[T, ...]) -> tuple[T, ...]:
    """The values; an error if one stands there twice."""
    if len(set(values)) < len(values):
        raise ValueError("a value stands there twice")
    return values


def _check_label(name: str) -> str:
    if problem := explain_label(name, "name"):
        raise ValueError(problem)
    return name


Label = Annotated[str, AfterValidator(_check_label)]
"""A name that is no name of a file."""

Watts = Annotated[float, Field(ge=0, le=MAX_POWER_W)]
Seconds = Annotated[float, Field(ge=0, le=1e9)]
Currency = Annotated[str, Field(pattern=r"^[A-Za-z]{1,8}$|^[€$£¥]$")]
"""A currency by its code or sign."""
