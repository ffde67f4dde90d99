"""Writers of bytes of librt, which mypyc compiles to C; in Python where it is not installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from librt.strings import BytesWriter, write_f64_le, write_i32_le, write_i64_le
else:
    try:
        from librt.strings import BytesWriter, write_f64_le, write_i32_le, write_i64_le
    except ModuleNotFoundError:
        from struct import Struct

        class BytesWriter(bytearray):
            """Bytes that grow."""

            def getvalue(self):
                """Return all bytes."""
                return bytes(self)

        def _writer(code):
            pack = Struct(code).pack
            return lambda writer, value: writer.extend(pack(value))

        write_f64_le, write_i32_le, write_i64_le = map(_writer, ("<d", "<i", "<q"))

__all__ = ["BytesWriter", "write_f64_le", "write_i32_le", "write_i64_le"]
