"""What is computed of two graphs, the work of numba's compiled code, is computed once."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any
from weakref import WeakKeyDictionary

from wattkeeper.policies.errors import EnvironmentLacks
from wattkeeper.policies.matching.graph import Graph

OfPair = Callable[[Graph, Graph], float]


def cache_by_pair(compute: OfPair) -> OfPair:
    """Remember what a function gives for a parent and a child for as long as both live.

    So the runs of a process, which have the same models, share it.
    """
    values: WeakKeyDictionary[Graph, WeakKeyDictionary[Graph, float]] = WeakKeyDictionary()

    @wraps(compute)
    def cached(parent: Graph, child: Graph) -> float:
        values_of_child = values.setdefault(child, WeakKeyDictionary())
        value = values_of_child.get(parent)
        if value is None:
            value = values_of_child[parent] = compute(parent, child)
        return value

    return cached


def kernel(name: str) -> Any:
    """A compiled module of this package.

    Raises:
        EnvironmentLacks: If numba is not installed.
    """
    try:
        return import_module(f"wattkeeper.policies.matching.{name}")
    except ModuleNotFoundError as error:
        if error.name != "numba":
            raise
        raise EnvironmentLacks(
            "comparing models needs numba: pip install 'wattkeeper[zoo]'"
        ) from None
