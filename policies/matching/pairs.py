"""Cached functions of two graphs, and the kernels compiled by numba."""

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from wattkeeper.policies.errors import EnvironmentLacks
from wattkeeper.policies.matching.graph import Graph

T = TypeVar("T")


def cache_by_pair(compute: Callable[[Graph, Graph], T]) -> Callable[[Graph, Graph], T]:
    """Cache a function of parent and child for as long as both graphs live.

    All runs of a process use the same graph objects and thus share the cache.
    """
    values: WeakKeyDictionary[Graph, WeakKeyDictionary[Graph, T]] = WeakKeyDictionary()

    @wraps(compute)
    def cached(parent: Graph, child: Graph) -> T:
        values_of_child = values.setdefault(child, WeakKeyDictionary())
        value = values_of_child.get(parent)
        if value is None:
            value = values_of_child[parent] = compute(parent, child)
        return value

    return cached


def kernel(name: str) -> Any:
    """Import a compiled module of this package.

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
