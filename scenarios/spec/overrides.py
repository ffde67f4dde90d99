"""Keys of the scenario that variants override, and the clusters that follow from it."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from wattkeeper.scenarios.spec.sections.cluster import MixedCluster, UniformCluster, own_keys

FORMS: Final = tuple(frozenset(own_keys(form)) for form in (UniformCluster, MixedCluster))
"""The keys that only one form of a cluster has."""

MERGED: Final[Mapping[str, int]] = {
    "cluster": sys.maxsize,
    "electricity": 0,
    "objective": 0,
    "occupancy": 0,
    "policies": 1,
    "profiling": 0,
    "workload": 1,
    "zoo": 1,
}
"""Sections that a variant overrides, and how many levels of their mappings are merged key by key;
what lies deeper is replaced as a whole."""
REMOVING: Final = ("cluster", "zoo")
"""Sections in which `null` in a variant is an override; in others it leaves the scenario's."""


def merge_clusters(data: Any) -> Any:
    """The data of a scenario, with the whole cluster of each variant that overrides keys of it.

    Data of another type than the schema's stays as it is.
    """
    if not isinstance(data, dict) or not isinstance(data.get("variants"), dict):
        return data
    base = data.get("cluster")
    variants = dict(data["variants"])
    for name, variant in variants.items():
        own = variant.get("cluster") if isinstance(variant, dict) else None
        if isinstance(own, dict) and isinstance(base, dict):
            variants[name] = variant | {"cluster": _merge_cluster(base, own)}
    return data | {"variants": variants}


def _merge_cluster(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The base with the keys of the other; without keys of the form that the other leaves."""
    left = _left_keys(own)
    return _merge({key: value for key, value in base.items() if key not in left}, own)


def _left_keys(own: Mapping[str, Any]) -> frozenset[str]:
    """The keys of the form that a variant's cluster leaves for the other one."""
    stated = {key for key, value in own.items() if value is not None}
    return next(
        (FORMS[1 - index] for index, form in enumerate(FORMS) if stated & form), frozenset()
    )


def _merge(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in own.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            inner = merged.get(key)
            merged[key] = _merge(inner if isinstance(inner, dict) else {}, value)
        else:
            merged[key] = value
    return merged


def overriding_variants(data: Mapping[str, Any], path: Sequence[str | int]) -> list[str]:
    """The variants that override all of a value of the scenario, which thus does not reach them.

    Args:
        data: A valid scenario, before its clusters are merged.
        path: Keys that lead to the value; if there is none, no variant overrides it.
    """
    value: Any = data
    for step in path:
        value = dict(enumerate(value)) if isinstance(value, list) else value
        if not isinstance(value, dict) or step not in value:
            return []
        value = value[step]
    section, *inner = path
    if section not in MERGED:
        return []
    return [
        name
        for name, variant in data["variants"].items()
        if _overrides(str(section), variant.get(section), inner, value)
    ]


def _overrides(section: str, own: Any, path: Sequence[str | int], value: Any) -> bool:
    """Whether what a variant states in a section overrides all of a value at a path in it."""
    if own is None:
        return False
    if section == "cluster" and path and path[0] in _left_keys(own):
        return True
    return _covers(own, path, value, MERGED[section], section in REMOVING)


def _covers(
    own: Any, path: Sequence[str | int], value: Any, levels: int, null_removes: bool
) -> bool:
    """Whether `own` stands in place of all of a value at a path below it."""
    if own is None:
        return null_removes
    if not levels or not isinstance(own, dict) or not (path or isinstance(value, dict)):
        return True
    inside = {path[0]: value} if path else value
    return bool(inside) and all(
        key in own and _covers(own[key], path[1:], each, levels - 1, null_removes)
        for key, each in inside.items()
    )
