"""Registry of the parts that a scenario names: policies and forecasts, by room and kind.

A part is one module in `policies/<room>/`: a frozen config class, whose `kind` is the part's name
in a scenario, and the object that it builds. Defining the class registers it. Other distributions
register theirs by an entry point in the group `wattkeeper.policies` that names a module. Those of
policy files are set aside, and added for the scenario that names the files.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NamedTuple, get_args

from pydantic import ConfigDict

from wattkeeper.policies.described import Described
from wattkeeper.policies.errors import Point, PolicyError
from wattkeeper.policies.failures import explain_import

FORECASTS = "forecasts"
ROOMS: tuple[str, ...] = (*get_args(Point), FORECASTS)

_parts: dict[str, dict[str, type[Any]]] = {room: {} for room in ROOMS}


class Part(Described):
    """Base of all configs; the docstring under a field is its description in the schema."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

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
    _load_all()
    return dict(sorted((_parts[room] | (_added.get(room, {}) if added else {})).items()))


@cache
def _load_all() -> None:
    for room in ROOMS:
        package = importlib.import_module(f"wattkeeper.policies.{room}")
        for module in pkgutil.iter_modules(package.__path__):
            if not module.name.startswith("_"):
                importlib.import_module(f"{package.__name__}.{module.name}")
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
