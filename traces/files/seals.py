"""Seals: digests that are stored with a row of SQLite or a JSON object, and found changed later."""

import json
import sqlite3
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from wattkeeper.policies.json_types import Json


def seal(row: Sequence[object]) -> str:
    """Digest of a row, to be stored in it; the same for the row as SQLite gives it back."""
    text = repr(tuple(map(_normalise, row)))
    return blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()


def _normalise(value: object) -> object:
    """One form of equal numbers: SQLite stores -0.0 as 0.0, and 1 as 1.0 in a column of reals."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else float(value)
    return int(value) if isinstance(value, int) else value


def unseal(row: Sequence[Any], what: str) -> Sequence[Any]:
    """A row without its last value, the seal.

    Raises:
        sqlite3.DatabaseError: If it was changed.
    """
    if seal(row[:-1]) != row[-1]:
        raise sqlite3.DatabaseError(f"the row of {what} is not as it was written")
    return row[:-1]


def seal_json(content: Json) -> str:
    """A JSON object as one line of text, with a seal."""
    return json.dumps({**content, "seal": seal([json.dumps(content)])})


def unseal_json(text: str | bytes) -> Json:
    """The object of `seal_json`.

    Raises:
        ValueError: If the text is no JSON object, or was changed.
    """
    try:
        content = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(content, dict):
        raise ValueError(f"found {type(content).__name__}, not an object")
    if content.pop("seal", None) != seal([json.dumps(content)]):
        raise ValueError("it is not as it was written")
    return content
