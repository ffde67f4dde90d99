"""Seals of rows and JSON objects: what is stored passes, what was changed does not."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing, suppress
from random import Random
from typing import Any

import pytest

from wattkeeper.traces.files.seals import seal, seal_json, unseal, unseal_json

NUMBERS = (-0.0, 0.0, 0, 1, 1.0, -7.0, True, 2**53 + 1, 1e15, 1e300, 5e-324, 0.1, -2.5)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("affinity", ["REAL", "INTEGER", "NUMERIC", ""])
def test_a_stored_row_has_the_seal_that_it_was_given(affinity: str, number: float) -> None:
    if affinity == "REAL" and isinstance(number, int):
        number = float(number)  # what a column of reals cannot hold exactly
    row = (number, "text \u00e9\0", None, b"\xff")
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute(f"CREATE TABLE rows (number {affinity}, text TEXT, empty, data BLOB, seal TEXT)")
        db.execute("INSERT INTO rows VALUES (?, ?, ?, ?, ?)", (*row, seal(row)))
        assert unseal(db.execute("SELECT * FROM rows").fetchone(), "1") == row


def test_only_equal_numbers_have_equal_seals() -> None:
    assert seal((1,)) == seal((1.0,)) == seal((True,))
    assert len({seal((number,)) for number in NUMBERS}) == len(set(NUMBERS))
    assert seal(("1",)) != seal((1,))


def test_any_change_of_a_sealed_object_is_noticed() -> None:
    content: dict[str, Any] = {"name": "a\u2028b", "list": [1, 2.5, -0.0, None], "in": {"n": 1e300}}
    text = seal_json(content)
    assert unseal_json(text) == unseal_json(text.encode()) == content
    rng = Random(17)
    for _ in range(2000):
        data = bytearray(text.encode())
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        with suppress(ValueError):  # else it is another text of the same, as 1E300 for 1e300
            assert json.dumps(unseal_json(bytes(data))) == json.dumps(content)


@pytest.mark.parametrize("text", ["", "[]", "1", "{}", '{"a": 1}', "[" * 100_000, b"\xff"])
def test_what_has_no_seal_is_refused(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        unseal_json(text)
