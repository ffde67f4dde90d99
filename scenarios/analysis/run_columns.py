"""Columns of a study's tables, run by run."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.traces.arrow import one_chunk


class RunColumns(NamedTuple):
    """The rows of one run in a table.

    Attributes:
        variant: Its name.
        seed: Its seed.
        rows: Its columns by name, each in one piece; of large runs, each is read anew.
    """

    variant: str
    seed: int
    rows: Mapping[str, pa.Array]


def split_runs(table: pa.Table, first_seed: bool = False) -> Iterator[RunColumns]:
    """Split a table of consecutive runs.

    Args:
        table: With columns `variant` and `seed`.
        first_seed: Whether to keep only the first run of each variant.
    """
    if not len(table):
        return
    variants = pc.run_end_encode(one_chunk(table["variant"]))
    variant_ends = variants.run_ends.to_pylist()
    seeds = table["seed"].to_numpy()
    cuts = {0, *(np.flatnonzero(seeds[1:] != seeds[:-1]) + 1).tolist(), *variant_ends}
    seen: set[str] = set()
    for begin, end in pairwise(sorted(cuts)):
        variant = variants.values[bisect_right(variant_ends, begin)].as_py()
        if first_seed and variant in seen:
            continue
        seen.add(variant)
        part = table.slice(begin, end - begin)
        rows = {name: one_chunk(part[name]) for name in part.column_names}
        yield RunColumns(variant, int(seeds[begin]), rows)
