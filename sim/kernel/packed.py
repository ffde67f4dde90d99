"""Bytes and arrays of numbers of librt, which mypyc compiles to C; without it in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    from librt.strings import BytesWriter as BytesWriter
    from librt.strings import read_f64_le as read_f64_le
    from librt.strings import read_i64_le as read_i64_le
    from librt.strings import write_f64_le as write_f64_le
    from librt.strings import write_i32_le as write_i32_le
    from librt.strings import write_i64_le as write_i64_le
    from librt.vecs import append as append
    from librt.vecs import vec as vec
except ModuleNotFoundError:
    if not TYPE_CHECKING:
        from struct import Struct

        class BytesWriter(bytearray):
            """Bytes that grow."""

            write = bytearray.extend

            def getvalue(self):
                """Return all bytes."""
                return bytes(self)

        class vec(list):  # noqa: N801, its name there
            """An array of numbers."""

        def append(numbers, value):
            """The same array, with one more number."""
            numbers.append(value)
            return numbers

        def _writer(code):
            pack = Struct(code).pack
            return lambda writer, value: writer.extend(pack(value))

        def _reader(code):
            unpack = Struct(code).unpack_from
            return lambda data, index: unpack(data, index)[0]

        write_f64_le, write_i32_le, write_i64_le = map(_writer, ("<d", "<i", "<q"))
        read_f64_le, read_i64_le = map(_reader, ("<d", "<q"))
