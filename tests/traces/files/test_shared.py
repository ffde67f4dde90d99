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

from wattkeeper.policies.errors import EnvironmentLacks
from wattkeeper.traces.files.shared import SharedFile, read_shared

sizes = st.lists(st.integers(0, 200), max_size=4)


@given(sizes, st.text(max_size=100))
def test_a_value_comes_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[int], text: str
) -> None:
    folder = tmp_path_factory.mktemp("shared")
    table = pa.table({"number": list(range(sum(rows))), "text": [text] * sum(rows)})
    value: list[Any] = [
        text,
        {"table": table},
        *(np.arange(size, dtype=np.float32) for size in rows),
    ]
    with SharedFile(folder) as file:
        places = [file.write(value), file.write([text])]
        again = read_shared(places[0])
        assert read_shared(places[1]) == [text]
    assert not list(folder.iterdir())
    assert again[:2] == value[:2]
    assert [array.tolist() for array in again[2:]] == [array.tolist() for array in value[2:]]


def test_arrays_and_tables_lie_in_the_file(tmp_path: Path) -> None:
    """They stay when it is closed, and nobody can change them."""
    numbers = np.arange(100_000)
    with SharedFile(tmp_path) as file:
        place = file.write((numbers, pa.table({"number": numbers})))
        before = pa.total_allocated_bytes()
        again, table = read_shared(place)
    assert pa.total_allocated_bytes() == before
    view: object = again
    while isinstance(view, np.ndarray):
        view = view.base
    assert isinstance(view, memoryview)
    assert isinstance(view.obj, mmap.mmap)
    assert again.ctypes.data % 64 == 0
    assert not again.flags.writeable
    assert table["number"].to_numpy().sum() == again.sum() == numbers.sum()


def test_a_folder_that_refuses_is_named(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentLacks, match="gone"):
        SharedFile(tmp_path / "gone")
