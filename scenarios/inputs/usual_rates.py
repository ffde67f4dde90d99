"""Prices and carbon intensities that look as if they were in another unit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from wattkeeper.policies.arrays import Floats
from wattkeeper.traces.electricity.charges import Rate
from wattkeeper.traces.electricity.series import Series

if TYPE_CHECKING:
    from wattkeeper.traces.electricity.forms import Quantity


class _Usual(NamedTuple):
    """What is usual of a kWh.

    Attributes:
        least: The lowest usual value.
        most: The highest one.
        units: Units that are taken for one another, each with the factor from it.
    """

    least: float
    most: float
    units: Mapping[str, float]


USUAL: Final[Mapping[str, _Usual]] = {
    "price": _Usual(
        0.01,
        2.0,
        {"if these are cents,": 0.01, "if this is for a MWh,": 0.001, "if not for a MWh,": 1000.0},
    ),
    "carbon": _Usual(1.0, 2000.0, {"if these are kg,": 1000.0, "if this is for a MWh,": 0.001}),
}


def explain_unusual(key: Quantity, rate: Rate | Floats, unit: str) -> str:
    """Asks back where a rate, or most values of a series, are not usual; 0 is. Empty if they are.

    Intensities are judged by the median of those that are not 0: of a series in kg, some may be
    above 1. Prices are too high if their median is, since they rise to many times the usual ones
    for hours, and too low if the highest is, since they can be near 0 most of the time.

    Args:
        key: What it is; of other quantities, all values are usual.
        rate: Per kWh, as a number or over time.
        unit: Its unit.
    """
    if key not in USUAL:
        return ""
    usual = USUAL[key]
    values = np.abs(rate.value if isinstance(rate, Series) else np.atleast_1d(rate))
    if key == "carbon":
        values = values[values > 0]
    if not values.any():
        return ""
    middle, highest = float(np.median(values)), float(values.max())
    if (middle if key == "carbon" else highest) >= usual.least and middle <= usual.most:
        return ""
    is_highest = key == "price" and middle <= usual.most
    found, shown = (highest, "at most ") if is_highest else (middle, "in the middle ")
    shown = shown if len(values) > 1 else ""
    guesses = [
        f"{words} it would be {found * factor:g}"
        for words, factor in usual.units.items()
        if usual.least <= found * factor <= usual.most
    ]
    return (
        f"{key} is {shown}{found:g} {unit}, and usual are {usual.least:g} to {usual.most:g}: is it "
        f"in another unit ({', '.join(guesses) or 'which one?'})? If it is meant, say "
        "`unusual: true`"
    )
