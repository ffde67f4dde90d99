"""What rules for the axes of operators' results are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from wattkeeper.live.weight_transfer.dims.dim import Dim, fixed, pin
from wattkeeper.live.weight_transfer.ir import Op

if TYPE_CHECKING:
    from wattkeeper.live.weight_transfer.dims.analysis import DimAnalysis

Axes = tuple[Dim, ...]

Rule: TypeAlias = Callable[["DimAnalysis", Op], Any]
"""Gives the axes of an operator's result, a tuple of them where it has several results, and tells
the spaces what the dimensions of its parameters are."""


def adder(rules: dict[str, Rule]) -> Callable[..., Callable[[Rule], Rule]]:
    """A decorator that enters a rule for operators of some kinds."""

    def of(*kinds: str) -> Callable[[Rule], Rule]:
        def enter(rule: Rule) -> Rule:
            rules.update(dict.fromkeys(kinds, rule))
            return rule

        return enter

    return of


def pin_all(axes: Any) -> None:
    """Pin an axis, or all in a nest of tuples: nobody may change these units."""
    if isinstance(axes, Dim):
        pin(axes)
    else:
        for item in axes:
            pin_all(item)


def all_fixed(shape: Any) -> Any:
    """Axes of no units for a shape, or for each in a nest of shapes."""
    if isinstance(shape, int):
        return fixed(shape)
    return tuple(map(all_fixed, shape))
