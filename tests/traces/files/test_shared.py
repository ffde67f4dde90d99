"""Values in files that processes share."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.traces.files.shared import read_shared, write_shared

sizes = st.lists(st.integers(0, 200), max_size=4)


@given(sizes, st.text(max_size=100))
def test_a_value_comes_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[int], text: str
) -> None:
    path = tmp_path_factory.mktemp("shared") / "below" / "value"
    table = pa.table({"number": list(range(sum(rows))), "text": [text] * sum(rows)})
    value: list[Any] = [
        text,
        {"table": table},
        *(np.arange(size, dtype=np.float32) for size in rows),
    ]
    write_shared(path, value)
    again = read_shared(path)
    assert again[:2] == value[:2]
    assert [array.tolist() for array in again[2:]] == [array.tolist() for array in value[2:]]


def test_arrays_and_tables_lie_in_the_file(tmp_path: Path) -> None:
    """They stay when it is removed, and nobody can change them."""
    numbers = np.arange(100_000)
    write_shared(tmp_path / "value", (numbers, pa.table({"number": numbers})))
    before = pa.total_allocated_bytes()
    again, table = read_shared(tmp_path / "value")
    (tmp_path / "value").unlink()
    assert pa.total_allocated_bytes() == before
    view: object = again
    while isinstance(view, np.ndarray):
        view = view.base
    assert isinstance(view, memoryview)
    assert isinstance(view.obj, mmap.mmap)
    assert again.ctypes.data % 64 == 0
    assert not again.flags.writeable
    assert table["number"].to_numpy().sum() == again.sum() == numbers.sum()


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_shared(tmp_path / "value")
