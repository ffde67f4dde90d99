"""Tables of one run of a study, and which job held which GPUs in it."""

from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.errors import InputError
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.timeline.lanes import GpuHold, find_holds


def select_run(study: Study, variant: str | None, seed: int | None) -> tuple[str, int]:
    """Variant and seed of the first run that has these.

    Raises:
        InputError: If there is none.
    """
    variants, seeds = list(study.summary["variants"]), study.manifest["seeds"]
    for run in product(variants, seeds):
        if variant in (None, run[0]) and seed in (None, run[1]):
            return run
    asked = ["any" if value is None else value for value in (variant, seed)]
    raise InputError(
        f"{study.origin} has no run of variant {asked[0]} with seed {asked[1]}; "
        f"variants: {', '.join(variants)}; seeds: {', '.join(map(str, seeds))}"
    )


def read_run(
    study: Study, name: str, columns: tuple[str, ...], variant: str, seed: int
) -> pa.Table:
    """Columns of a table, of one run."""
    table = study.table(name, ("variant", "seed", *columns))
    rows = table.filter((pc.field("variant") == variant) & (pc.field("seed") == seed))
    return rows.select(columns).combine_chunks()


def read_holds(
    study: Study, attempts: pa.Table, decisions: pa.Table, zero_s: float
) -> list[GpuHold]:
    """The holds of a run, in the order of the journal; times are in ns from `zero_s`.

    Raises:
        LookupError: If the tables do not belong together.
    """
    frees_paused = study.manifest["scenario"].get("pauses") != "hold"
    columns = (decisions[name].to_pylist() for name in ("point", "job_id", "attempt", "chose"))
    ends = to_ns(attempts["finish_time_s"], zero_s)
    names, numbers = attempts["job_id"].to_pylist(), attempts["attempt"].to_pylist()
    ended = dict(zip(names, zip(ends, numbers, strict=True), strict=True))  # the last one stays
    rows = zip(to_ns(decisions["time_s"], zero_s), *columns, strict=True)
    holds = find_holds(rows, ended, frees_paused)
    unknown = ended.keys() - {hold.job for hold in holds}
    if unknown:
        raise LookupError(min(unknown))
    return holds


def to_ns(column: pa.ChunkedArray, zero_s: float) -> list[int]:
    """Times since `zero_s`, ns."""
    times: list[int] = np.rint((column.to_numpy() - zero_s) * 1e9).astype(np.int64).tolist()
    return times
