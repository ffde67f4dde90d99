"""The Python equivalents of librt's types."""

import importlib.util
import math
import sys
from types import ModuleType

import pytest

from wattkeeper.sim.kernel import packed


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module as it is where librt is not installed."""
    for name in ("librt.strings", "librt.vecs"):
        monkeypatch.setitem(sys.modules, name, None)
    spec = importlib.util.spec_from_file_location("plain_native", str(packed.__file__))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.BytesWriter is not packed.BytesWriter
    return module


def test_it_writes_the_same_bytes(plain: ModuleType) -> None:
    contents = []
    for module in (plain, packed):
        writer = module.BytesWriter()
        module.write_f64_le(writer, -1.5e300)
        module.write_i64_le(writer, -(2**62))
        module.write_i32_le(writer, 2**31 - 1)
        writer.append(255)
        writer.write(b"ab")
        assert len(writer) == 23
        contents.append(writer.getvalue())
    assert contents[0] == contents[1]
    assert type(contents[0]) is bytes


def test_it_reads_what_was_written(plain: ModuleType) -> None:
    for module in (plain, packed):
        writer = module.BytesWriter()
        module.write_f64_le(writer, math.inf)
        module.write_i64_le(writer, -(2**62))
        data = writer.getvalue()
        assert module.read_f64_le(data, 0) == math.inf
        assert module.read_i64_le(data, 8) == -(2**62)


def test_arrays_grow_and_change(plain: ModuleType) -> None:
    for module in (plain, packed):
        numbers = module.vec[float]()
        for number in (1.5, 2.5):
            numbers = module.append(numbers, number)
        numbers[0] = -1.0
        assert list(numbers) == [-1.0, 2.5]
