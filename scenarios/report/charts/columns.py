"""What the charts are drawn from: the tables of a study, run by run."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.sim.results.digest import one_chunk
from wattkeeper.sim.results.metrics import JobOutcomes, jobs_of

ALWAYS = ("variant", "seed", "attempt", "recurrence", "time_scale", "submit_time_s", "start_time_s",
          "finish_time_s", "energy_j", "time_s", "overhead_s", "cost", "gpus", "reached_target",
          "preemptions")  # fmt: skip
"""Columns of the jobs table that every chart of jobs needs; texts take longest to read."""

NAMES = ("workload", "gpu_type", "replayed")
RECURRING = ("group_id", "batch_size", "power_limit_w")

Optima = dict[tuple[str, int, str], float]
Regrets = dict[tuple[str, int], dict[str, float]]


class RunColumns(NamedTuple):
    """The rows of one run in a table.

    Attributes:
        variant: Its name.
        seed: Its seed.
        rows: Its columns by name, each in one piece.
    """

    variant: str
    seed: int
    rows: dict[str, pa.Array]


def runs(table: pa.Table, first_seed: bool = False) -> Iterator[RunColumns]:
    """Cut a table of all runs, one after the other, into runs.

    Args:
        table: With columns `variant` and `seed`.
        first_seed: Whether to keep only the first run of each variant.
    """
    if not len(table):
        return
    coded = pc.run_end_encode(one_chunk(table["variant"]))
    of_variant = coded.run_ends.to_pylist()
    seeds = table["seed"].to_numpy()
    cuts = {0, *(np.flatnonzero(seeds[1:] != seeds[:-1]) + 1).tolist(), *of_variant}
    seen: set[str] = set()
    for begin, end in pairwise(sorted(cuts)):
        variant = coded.values[bisect_right(of_variant, begin)].as_py()
        if first_seed and variant in seen:
            continue
        seen.add(variant)
        part = table.slice(begin, end - begin)
        rows = {name: one_chunk(part[name]) for name in part.column_names}
        yield RunColumns(variant, int(seeds[begin]), rows)


def attempts(study: Study) -> Iterator[RunColumns]:
    """The rows of the jobs table that charts need, run by run."""
    table = study.table("jobs", ALWAYS)
    more: list[str] = []
    if len(table) and pc.max(table["recurrence"]).as_py() > 1:
        more += RECURRING
    if len(table) and pc.max(table["attempt"]).as_py() > 1:
        more.append("job_id")
    if study.summary["by"]["workload"]:
        more += NAMES
    if more:
        others = study.table("jobs", more)
        for name in more:
            table = table.append_column(name, others[name])
    for run in runs(table):
        absent = pa.nulls(len(run.rows["attempt"]), pa.string())
        yield run._replace(rows=dict.fromkeys(NAMES, absent) | run.rows)


def floats(column: pa.Array) -> Any:
    """The column as numbers, NaN where there is none."""
    return column.cast(pa.float64()).to_numpy(zero_copy_only=False)


def jobs(run: RunColumns, optima: Optima) -> JobOutcomes:
    """What became of each job of a run, as its metrics are made of."""
    rows = run.rows
    first = rows["attempt"].to_numpy() == 1
    if first.all():
        number = np.arange(len(first))
    else:
        number = rows["job_id"].dictionary_encode().indices.to_numpy().astype(np.int64)
    lost = np.flatnonzero(rows["preemptions"].to_numpy())
    start, finish, time, overhead = (
        floats(rows[name])[lost]
        for name in ("start_time_s", "finish_time_s", "time_s", "overhead_s")
    )
    paused = np.maximum(finish - start - time - overhead, 0.0)
    pauses = number[lost], np.zeros(len(lost)), paused
    return jobs_of(rows, number, pauses, optima)


def optima(run: RunColumns, regrets: Mapping[str, float]) -> Optima:
    """The smallest expected cost of each workload, from the cost and the regret of the run.

    Where jobs of a workload differ in GPUs or their type, they have several optima, of which the
    sums cannot tell: it is left out.

    Args:
        run: The run.
        regrets: Of its workloads.
    """
    found: Optima = {}
    if not regrets:
        return found
    rows = run.rows
    coded, types = rows["workload"].dictionary_encode(), rows["gpu_type"].dictionary_encode()
    codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    kinds = types.indices.to_numpy()
    first = rows["attempt"].to_numpy() == 1
    cost, scale, gpus = (floats(rows[name]) for name in ("cost", "time_scale", "gpus"))
    for workload, regret in regrets.items():
        its = codes == coded.dictionary.index(workload).as_py()
        if not its.any() or np.ptp(gpus[its]) or np.ptp(kinds[its]):
            continue
        best = float((cost[its].sum() - regret) / scale[its & first].sum())
        at = int(np.flatnonzero(its)[0])
        found[workload, int(gpus[at]), types.dictionary[int(kinds[at])].as_py()] = best
    return found


def regrets(study: Study) -> Regrets:
    """The regret of each workload by variant and seed; absent where it is not known."""
    table = study.table("metrics")
    kept = pc.and_(pc.equal(table["by"], "workload"), pc.equal(table["metric"], "regret"))
    rows = table.filter(pc.and_(kept, pc.is_valid(table["value"]))).to_pylist()
    found: Regrets = {}
    for row in rows:
        found.setdefault((row["variant"], row["seed"]), {})[row["part"]] = row["value"]
    return found
