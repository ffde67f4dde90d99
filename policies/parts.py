"""Registry of the parts that a scenario names: policies and forecasts, by room and kind.

A part is one module in `policies/<room>/`: a frozen config class, whose `kind` is the part's name
in a scenario, and the object that it builds. Defining the class registers it. The module is named
as the kind with `_` for `-`, so that a part is found without importing the others. Other
distributions register theirs by an entry point in the group `wattkeeper.policies` that names a
module; these are imported when a kind is asked for that is not shipped. Those of policy files are
set aside, and added for the scenario that names the files.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any, NamedTuple

from pydantic import ConfigDict

from wattkeeper.policies.described import Described
from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.failures import explain_import

FORECASTS = "forecasts"

_parts: defaultdict[str, dict[str, type[Any]]] = defaultdict(dict)
"""Registered config classes by room and kind."""


class Part(Described):
    """Base of all configs; the docstring under a field is its description in the schema."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: str
    """The part's name; a subclass narrows it to one `Literal`."""


class AsidePart(NamedTuple):
    """A config class that is not registered, and its room."""

    room: str
    part: type[Part]


_aside: dict[str, list[AsidePart]] = {}
"""Config classes by module, of modules whose classes are not registered."""

_added: dict[str, dict[str, type[Any]]] = {}
"""Config classes by room and kind that are added to the registered ones."""


def register(room: str, plural: str, part: type[Part]) -> None:
    """Register a config class under its kind, unless those of its module are set aside.

    Raises:
        PolicyError: If another one has this kind; `plural` names them in the message.
    """
    if part.__module__ in _aside:
        _aside[part.__module__].append(AsidePart(room, part))
        return
    kind = part.model_fields["kind"].default
    if part.__module__ != _module_of(room, kind):
        _import_shipped(room, kind)
    known = _parts[room].setdefault(kind, part)
    name, before = (f"{each.__module__}.{each.__qualname__}" for each in (part, known))
    if before != name:
        raise PolicyError(f"two {plural} are called {kind!r}: {before} and {name}")


def set_aside(module: str) -> list[AsidePart]:
    """The list in which the config classes of a module are put instead of being registered."""
    return _aside.setdefault(module, [])


def add_parts(added: Iterable[AsidePart]) -> None:
    """Add config classes to the registered ones, in place of those that were added before."""
    _added.clear()
    for room, part in added:
        _added.setdefault(room, {})[part.model_fields["kind"].default] = part


def parts(room: str, *, added: bool = True) -> dict[str, type[Any]]:
    """The config classes of a room by kind, in alphabetical order, with the added ones or not."""
    for kind in sorted(_kinds(room)):
        _import_shipped(room, kind)
    _import_foreign()
    return dict(sorted((_parts[room] | (_added.get(room, {}) if added else {})).items()))


def find_part(room: str, kind: str) -> type[Any] | None:
    """The config class of a room with this kind, also an added one; None: there is none."""
    if (added := _added.get(room, {}).get(kind)) is not None:
        return added
    _import_shipped(room, kind)
    if kind not in _parts[room]:
        _import_foreign()
    return _parts[room].get(kind)


def foreign_modules() -> list[str]:
    """The modules of other distributions that define registered parts, sorted."""
    _import_foreign()
    found = {part.__module__ for room in _parts.values() for part in room.values()}
    return sorted(name for name in found if not name.startswith("wattkeeper."))


def _module_of(room: str, kind: str) -> str:
    """The module of a shipped part."""
    return f"wattkeeper.policies.{room}.{kind.replace('-', '_')}"


def _import_shipped(room: str, kind: str) -> None:
    """Import the module of a shipped part; do nothing if there is none of this kind."""
    if kind in _kinds(room):
        importlib.import_module(_module_of(room, kind))


@cache
def _kinds(room: str) -> frozenset[str]:
    """The kinds of the shipped parts of a room; none of a room of another distribution."""
    package = find_spec(f"wattkeeper.policies.{room}")
    if package is None:
        return frozenset()
    names = (module.name for module in pkgutil.iter_modules(package.submodule_search_locations))
    return frozenset(name.replace("_", "-") for name in names if not name.startswith("_"))


@cache
def _import_foreign() -> None:
    for entry in entry_points(group="wattkeeper.policies"):
        try:
            entry.load()
        except BaseException as error:
            raise explain_import(_describe(entry), error, "correct or uninstall it") from None


def _describe(entry: EntryPoint) -> str:
    name = f"the entry point {entry.name!r} ({entry.value}) in the group {entry.group}"
    if entry.dist is None:
        return name
    return f"{name} of the distribution {entry.dist.name} {entry.dist.version}"
