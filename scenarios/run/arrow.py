"""How Arrow is used here."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

import pyarrow as pa


class _Hidden(MetaPathFinder):
    """Finds that there is no pandas."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        if name == "pandas":
            raise ImportError("not looked for")


def settle() -> None:
    """Use Arrow in a process that is ours alone.

    Its memory comes from the same heap as numpy's, which lowers the peak of a run. When it makes
    its first array it would import pandas, which nothing here needs: it finds none.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    if "pandas" in sys.modules:
        return
    hidden = _Hidden()
    sys.meta_path.insert(0, hidden)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(hidden)


def with_column(table: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    """The table with other values, of any type, in a column; what its metadata say stays."""
    at = table.schema.get_field_index(name)
    return table.set_column(at, table.schema.field(at).with_type(values.type), values)
