"""Columns that charts are drawn from: the tables of a study, run by run."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.sim.engine.recorder import waits_between_attempts
from wattkeeper.sim.results.metrics import JobOutcomes, Optima, aggregate_attempts
from wattkeeper.sim.results.parquet import one_chunk
from wattkeeper.traces.arrow import to_floats

ALWAYS = ("variant", "seed", "attempt", "recurrence", "time_scale", "submit_time_s", "start_time_s",
          "finish_time_s", "energy_j", "time_s", "overhead_s", "cost", "gpus", "reached_target",
          "preemptions")  # fmt: skip
"""Columns of the jobs table that every chart of jobs needs; columns of texts are slow to read."""

NAMES = ("workload", "gpu_type", "replayed")
RECURRING = ("group_id", "batch_size", "power_limit_w", "retunes")

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


def read_attempts(study: Study) -> Iterator[RunColumns]:
    """The rows of the jobs table that charts need, run by run."""
    table = study.table("jobs", ALWAYS)
    texts: list[str] = []
    if len(table) and pc.max(table["recurrence"]).as_py() > 1:
        texts += RECURRING
    if len(table) and pc.max(table["attempt"]).as_py() > 1:
        texts.append("job_id")
    if study.summary["by"]["workload"]:
        texts += NAMES
    if texts:
        others = study.table("jobs", texts)
        for name in texts:
            table = table.append_column(name, others[name])
    for run in split_runs(table):
        absent = pa.nulls(len(run.rows["attempt"]), pa.string())
        yield run._replace(rows=dict.fromkeys(NAMES, absent) | run.rows)


def read_outcomes(study: Study) -> list[tuple[RunColumns, JobOutcomes]]:
    """The attempts of each run, and the outcomes of its jobs."""
    regrets = read_regrets(study) if study.summary["by"]["workload"] else {}
    return [
        (run, aggregate_jobs(run, derive_optima(run, regrets.get((run.variant, run.seed), {}))))
        for run in read_attempts(study)
    ]


def aggregate_jobs(run: RunColumns, optima: Optima) -> JobOutcomes:
    """The outcomes of a run's jobs, as its metrics are computed from them."""
    rows = run.rows
    first = rows["attempt"].to_numpy() == 1
    if first.all():
        number = np.arange(len(first))
    else:
        number = rows["job_id"].dictionary_encode().indices.to_numpy().astype(np.int64)
    preempted = np.flatnonzero(rows["preemptions"].to_numpy())
    start, finish, time, overhead = (
        to_floats(rows[name])[preempted]
        for name in ("start_time_s", "finish_time_s", "time_s", "overhead_s")
    )
    paused = np.maximum(finish - start - time - overhead, 0.0)
    pauses = number[preempted], np.zeros(len(preempted)), paused
    begun_s, ended_s = (to_floats(rows[name]) for name in ("start_time_s", "finish_time_s"))
    waits = waits_between_attempts(number, rows["attempt"].to_numpy(), begun_s, ended_s)
    return aggregate_attempts(rows, number, (pauses, waits), optima)


def derive_optima(run: RunColumns, regrets: Mapping[str, float]) -> Optima:
    """The smallest expected cost of each workload, from the cost and the regret of the run.

    A workload whose jobs differ in GPUs or their type has several optima, which its summed regret
    does not determine; it is left out.
    """
    optima: dict[tuple[str, int, str], tuple[float]] = {}
    if not regrets:
        return optima
    rows = run.rows
    coded, types = rows["workload"].dictionary_encode(), rows["gpu_type"].dictionary_encode()
    codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    gpu_types = types.indices.to_numpy()
    first = rows["attempt"].to_numpy() == 1
    cost, scale, gpus = (to_floats(rows[name]) for name in ("cost", "time_scale", "gpus"))
    for workload, regret in regrets.items():
        rows_of = codes == coded.dictionary.index(workload).as_py()
        if not rows_of.any() or np.ptp(gpus[rows_of]) or np.ptp(gpu_types[rows_of]):
            continue
        best = float((cost[rows_of].sum() - regret) / scale[rows_of & first].sum())
        row = int(np.flatnonzero(rows_of)[0])
        gpu_type = types.dictionary[int(gpu_types[row])].as_py()
        optima[workload, int(gpus[row]), gpu_type] = (best,)
    return optima


def read_regrets(study: Study) -> Regrets:
    """The regret of each workload by variant and seed; absent where it is not known.

    With drift, the sum says nothing of single recurrences: it is left out.
    """
    if study.manifest["scenario"]["workload"].get("drift"):
        return {}
    table = study.table("metrics")
    selected = pc.and_(pc.equal(table["by"], "workload"), pc.equal(table["metric"], "regret"))
    rows = table.filter(pc.and_(selected, pc.is_valid(table["value"]))).to_pylist()
    regrets: Regrets = {}
    for row in rows:
        regrets.setdefault((row["variant"], row["seed"]), {})[row["part"]] = row["value"]
    return regrets
