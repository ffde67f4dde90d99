"""Energy that Slurm measured of its jobs.

It stands in ``ConsumedEnergyRaw`` (J), ``ConsumedEnergy`` (J, with a unit prefix), or as
``energy=`` in ``TRESUsageInTot`` and ``AllocTRES``; 0 and Slurm's codes for "no value" stand for
absent. The value of a job's own line counts. Where it has none, that of its steps: of ``extern``,
which lasts as long as the job on all of its nodes; else the larger of the batch step's (its first
node) and the sum over its numbered steps. Meters count whole nodes, so that steps that run at once
on a node each count all of it. Sources: sacct(1), acct_gather.conf(5); the sum over steps of
slurmctld, which takes ``extern`` alone where there is one.
"""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.arrays import Floats, Ints
from wattkeeper.traces.readers.columns import Wrong, add_fault, strip_cells
from wattkeeper.traces.readers.csvfile import quote

PLAIN: Final = ("ConsumedEnergyRaw", "ConsumedEnergy")
LISTS: Final = ("TRESUsageInTot", "AllocTRES")
UNITS: Final = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
NUMBER: Final = r"^(?P<number>[0-9]{1,20}(?:\.[0-9]{1,9})?)(?P<unit>[KMGTPE]?)$"
LISTED: Final = r"(?:^|,)energy=(?P<text>[^,]*)"
NO_VALUES: Final = (0.0, 4294967294.0, 4294967295.0)
"""No energy, and 32-bit NO_VAL and INFINITE of earlier versions of Slurm."""
ENDLESS: Final = 1.8e19
"""NO_VAL64 and INFINITE64, 2^64 - 2 and 2^64 - 1, are above."""


def find_energy_column(names: list[str]) -> str:
    """The first column of energy that a log has, for messages; empty if none."""
    return next((name for name in (*PLAIN, *LISTS) if name in names), "")


def parse_energy(table: pa.Table, wrong: Wrong) -> Floats:
    """Joules on each line, NaN where none are measured."""
    joules = np.full(table.num_rows, np.nan)
    for name in (*PLAIN, *LISTS):
        if name in table.column_names:
            cells = strip_cells(table, name)
            if name in LISTS:
                cells = pc.struct_field(pc.extract_regex(cells, LISTED), "text").fill_null("")
            read = _parse_cells(cells, name, wrong)
            joules = np.where(np.isnan(joules), read, joules)
    return joules


def _parse_cells(cells: pa.Array, name: str, wrong: Wrong) -> Floats:
    parts = pc.extract_regex(cells, NUMBER)
    numbers = pc.struct_field(parts, "number").cast(pa.float64()).fill_null(np.nan)
    joules: Floats = np.array(numbers, dtype=float)
    units = pc.struct_field(parts, "unit").fill_null("").dictionary_encode()
    factors = np.array([UNITS[unit] for unit in units.dictionary.to_pylist()] or [1.0])
    bad = np.isnan(joules) & ~np.asarray(pc.is_in(cells, pa.array(["", "N/A", "Unknown"])))
    for row in np.flatnonzero(bad).tolist():
        must = "must be a number of joules >= 0, with K, M, G, T or P or without"
        what = name if name in PLAIN else f"{name}: energy"
        add_fault(wrong, row, f"{what} is {quote(cells[row].as_py())}, {must}")
    joules = joules * factors[np.asarray(units.indices)]
    joules[np.isin(joules, NO_VALUES) | (joules > ENDLESS)] = np.nan
    return joules


def sum_steps(steps: pa.Array, joules: Floats, owner: Ints, jobs: int) -> Floats:
    """Energy of each job by its steps, NaN where none of them has any.

    Args:
        steps: Names of steps, such as ``0``, ``batch`` and ``extern``.
        joules: Of each step, NaN where it is not measured.
        owner: Index of the job of each step.
        jobs: Number of jobs.
    """
    extern, first_node = (
        np.asarray(pc.is_in(steps, pa.array(names)))
        for names in (["extern"], ["batch", "interactive"])
    )
    known = ~np.isnan(joules)
    whole, batch = np.zeros(jobs), np.zeros(jobs)
    for target, rows in ((whole, extern & known), (batch, first_node & known)):
        np.maximum.at(target, owner[rows], joules[rows])
    rows = known & ~extern & ~first_node
    numbered = np.bincount(owner[rows], weights=joules[rows], minlength=jobs)
    total: Floats = np.where(whole > 0, whole, np.maximum(batch, numbered))
    return np.where(total > 0, total, np.nan)
