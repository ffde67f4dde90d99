"""Rows of profiles that were measured with clocks locked, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.errors import Problem, TraceError
from wattkeeper.traces.limits import MOST_FAULTS

KEY: Final = ("workload", "gpu_type", "gpus", "batch_size")
"""Columns that tell the curves of a table of profiles apart."""


def check_clock_rows(
    table: pa.Table,
    file: object,
    key: Sequence[str] = KEY,
    limit: str = "power_limit_w",
    needs_limits: bool = False,
) -> None:
    """Refuse rows with a clock that do not fit those without one.

    Such a row was measured at the highest power limit: it states that one or none. Its batch size
    has rows of free clocks, too.

    Args:
        table: Rows with `clock_mhz` (MHz; null: free).
        file: Where they come from.
        key: Columns that are equal in all rows of a curve.
        limit: Name of the column of power limits, W.
        needs_limits: Whether rows without a clock must have a limit.

    Raises:
        TraceError: The message names file and row.
    """
    faults = _find_faults(table, key, limit, needs_limits)
    if faults:
        raise TraceError([Problem(text, f"{file}, row {row + 1}") for row, text in faults.items()])


def _find_faults(
    table: pa.Table, key: Sequence[str], limit: str, needs_limits: bool
) -> dict[int, str]:
    """Faults by 0-based row, ascending."""
    clocks = table["clock_mhz"].to_pylist()
    limits = table[limit].to_pylist()
    absent = f"{limit} is absent, must be a finite number > 0 without clock_mhz"
    if needs_limits and table[limit].null_count:
        faults = {
            row: absent
            for row, (limit_w, clock_mhz) in enumerate(zip(limits, clocks, strict=True))
            if limit_w is None and clock_mhz is None
        }
        if faults:
            return dict(islice(faults.items(), MOST_FAULTS))
    if table["clock_mhz"].null_count == table.num_rows:
        return {}
    curves = list(zip(*(table[name].to_pylist() for name in key), strict=True))
    highest = _highest_limits(table.filter(pc.is_null(table["clock_mhz"])), key, limit)
    faults = {}
    first: dict[tuple[object, ...], int] = {}
    for row, (curve, clock_mhz, limit_w) in enumerate(zip(curves, clocks, limits, strict=True)):
        if clock_mhz is None:
            continue
        first_row = first.setdefault((curve, clock_mhz), row)
        if curve not in highest:
            what = ", ".join(f"{name} {value!r}" for name, value in zip(key, curve, strict=True))
            faults[row] = f"clock_mhz is {clock_mhz}, and no row of {what} leaves it empty"
        elif limit_w is not None and limit_w != highest[curve]:
            faults[row] = (
                f"{limit} is {limit_w!r} with clock_mhz {clock_mhz}, must be absent or the highest "
                f"one of its batch size ({highest[curve]!r})"
            )
        elif first_row != row:
            faults[row] = f"repeats row {first_row + 1}: clock_mhz {clock_mhz}; must be unique"
        if len(faults) == MOST_FAULTS:
            break
    return faults


def _highest_limits(
    free: pa.Table, key: Sequence[str], limit: str
) -> Mapping[tuple[object, ...], float | None]:
    """The highest limit of each curve, W; None where its GPUs take none."""
    most = free.group_by(list(key), use_threads=False).aggregate([(limit, "max")])
    curves = zip(*(most[name].to_pylist() for name in key), strict=True)
    return dict(zip(curves, most[f"{limit}_max"].to_pylist(), strict=True))
