"""Registry of the parts that a scenario names: policies and forecasts, by room and kind.

A part is one module in `policies/<room>/`: a frozen config class, whose `kind` is the part's name
in a scenario, and the object that it builds. Defining the class registers it. Other distributions
register theirs by an entry point in the group `wattkeeper.policies` that names a module.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from importlib.metadata import entry_points
from typing import Any, get_args

from pydantic import ConfigDict

from wattkeeper.policies.described import Described
from wattkeeper.policies.errors import Point, PolicyError
from wattkeeper.policies.failures import explain_import

FORECASTS = "forecasts"
ROOMS: tuple[str, ...] = (*get_args(Point), FORECASTS)

_parts: dict[str, dict[str, type[Any]]] = {room: {} for room in ROOMS}


class Part(Described):
    """Base of all configs; the docstring under a field is its description in the schema."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: str
    """The part's name; a subclass narrows it to one `Literal`."""


def register(room: str, plural: str, part: type[Part]) -> None:
    """Register a config class under its kind.

    Raises:
        PolicyError: If another one has this kind; `plural` names them in the message.
    """
    kind = part.model_fields["kind"].default
    known = _parts[room].setdefault(kind, part)
    name, before = (f"{each.__module__}.{each.__qualname__}" for each in (part, known))
    if before != name:
        raise PolicyError(f"two {plural} are called {kind!r}: {before} and {name}")


def parts(room: str) -> dict[str, type[Any]]:
    """The config classes of a room by kind, in alphabetical order."""
    _load_all()
    return dict(sorted(_parts[room].items()))


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
            raise explain_import(entry, error) from None
