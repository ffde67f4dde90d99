"""Seals of rows in SQLite files, which does not notice values that were changed."""

import sqlite3
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any


def seal(row: Sequence[object]) -> str:
    """Digest of a row, to be stored in it."""
    return blake2b(repr(tuple(row)).encode("utf-8", "replace"), digest_size=16).hexdigest()


def unseal(row: Sequence[Any], what: str) -> Sequence[Any]:
    """A row without its last value, the seal.

    Raises:
        sqlite3.DatabaseError: If it was changed.
    """
    if seal(row[:-1]) != row[-1]:
        raise sqlite3.DatabaseError(f"the row of {what} is not as it was written")
    return row[:-1]
