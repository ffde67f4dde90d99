"""The state of a policy as JSON, and what of it JSON cannot hold."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

from wattkeeper.scenarios.contract.breach import ContractBreach


def dump_state(state: dict[str, Any]) -> str:
    """A state as JSON.

    Raises:
        ContractBreach: If JSON cannot hold it; the message says what, and where in it.
    """
    try:
        return json.dumps(state, allow_nan=False, sort_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        what = f"holds what JSON cannot: {find_unsuitable(state) or error}"
        raise ContractBreach(what, "state_dict") from None


def find_unsuitable(value: object, path: str = "state_dict()", outer: tuple[int, ...] = ()) -> str:
    """The first part of a state that JSON cannot hold, and where it is; empty if there is none.

    `outer` has the ids of what it is inside of.
    """
    if id(value) in outer:
        return f"{path} holds itself"
    parts: Iterable[tuple[object, object]] = ()
    if isinstance(value, dict):
        for key in value:
            if type(key) is not str:
                return f"{path} has the key {key!r} ({type(key).__name__}); keys are text"
        parts = value.items()
    elif isinstance(value, list | tuple):
        parts = enumerate(value)
    elif isinstance(value, float) and not math.isfinite(value):
        return f"{path} is {value!r}, which is no number of JSON"
    elif value is not None and type(value) not in (bool, int, float, str):
        return f"{path} is a {type(value).__name__}: {value!r:.80}"
    found = (
        find_unsuitable(inner, f"{path}[{key!r}]", (*outer, id(value))) for key, inner in parts
    )
    return next(filter(None, found), "")
