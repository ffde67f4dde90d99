"""JSON with an indent of two spaces: the same text as the module `json` writes, in less time."""

from __future__ import annotations

import json
import math
from json.encoder import encode_basestring
from typing import Any, Final

_PLAIN: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False)


def indent_json(value: Any, line: str = "\n") -> str:
    """The text of a value whose lines begin with the second argument.

    Raises:
        ValueError: If a number is not finite.
        TypeError: If it holds what JSON does not have.
    """
    kind = type(value)
    if kind is float and math.isfinite(value):
        return repr(value)
    if kind is str:
        return encode_basestring(value)
    if kind is int:
        return repr(value)
    if value is None:
        return "null"
    inner = f"{line}  "
    if isinstance(value, dict) and value:
        rows = [f"{_key(key)}: {indent_json(inside, inner)}" for key, inside in value.items()]
        return f"{{{inner}{f',{inner}'.join(rows)}{line}}}"
    if isinstance(value, list | tuple) and value:
        rows = [indent_json(inside, inner) for inside in value]
        return f"[{inner}{f',{inner}'.join(rows)}{line}]"
    return _PLAIN.encode(value)


def _key(key: Any) -> str:
    """The text of a key, which `json` makes a text of."""
    if type(key) is str:
        return encode_basestring(key)
    return _PLAIN.encode({key: 0}).removeprefix("{").removesuffix(": 0}")
