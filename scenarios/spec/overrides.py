"""Clusters of variants: keys that override those of the scenario's cluster."""

from collections.abc import Mapping
from typing import Any, Final

from wattkeeper.scenarios.spec.sections.cluster import MixedCluster, UniformCluster, own_keys

FORMS: Final = tuple(frozenset(own_keys(form)) for form in (UniformCluster, MixedCluster))
"""The keys that only one form of a cluster has."""


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
    stated = {key for key, value in own.items() if value is not None}
    left = next(
        (FORMS[1 - index] for index, form in enumerate(FORMS) if stated & form), frozenset()
    )
    return _merge({key: value for key, value in base.items() if key not in left}, own)


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
