"""Differences of nested mappings."""

from collections.abc import Iterator, Mapping

from wattkeeper.policies.json_types import Json


def list_differences(sides: Mapping[str, Json]) -> Iterator[Json]:
    """Entries of two nested mappings that differ: ``path``, and the value of each side."""
    left, right = (dict(_flatten(content)) for content in sides.values())
    for path in sorted(left.keys() | right.keys()):
        values = left.get(path), right.get(path)
        if values[0] != values[1]:
            yield {"path": path} | dict(zip(sides, values, strict=True))


def _flatten(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """The entries of nested mappings by their path."""
    if isinstance(value, dict) and value:
        for key, entry in value.items():
            yield from _flatten(entry, f"{path}.{key}" if path else str(key))
    else:
        yield path, value
