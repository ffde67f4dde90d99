"""Columns that charts are drawn from: the tables of a study, run by run."""

from collections import ChainMap
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.arrays import Floats, Ints
from wattkeeper.scenarios.analysis.run_columns import RunColumns
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.analysis.vocabulary import is_profiled
from wattkeeper.sim.cluster_results.metrics import JobOutcomes, Optima, aggregate_attempts
from wattkeeper.sim.recording.recorder import waits_between_attempts
from wattkeeper.traces.arrow import to_floats

ALWAYS = (
    "attempt",
    "recurrence",
    "time_scale",
    "submit_time_s",
    "start_time_s",
    "finish_time_s",
    "energy_j",
    "time_s",
    "overhead_s",
    "cost",
    "gpus",
    "reached_target",
    "preemptions",
)
"""Columns of the jobs table that every chart of jobs needs; columns of texts are slow to read."""

NAMES = ("workload", "gpu_type", "replayed")
RECURRING = ("group_id", "batch_size", "power_limit_w", "retunes")

Regrets = dict[tuple[str, int], dict[str, float]]


def read_attempts(study: Study) -> Iterator[RunColumns]:
    """The rows of the jobs table that charts need, run by run."""
    runs = list(study.runs("jobs", ALWAYS))
    texts: list[str] = []
    if any(pc.max(run.rows["recurrence"]).as_py() > 1 for run in runs):
        texts += RECURRING
    if any(pc.max(run.rows["attempt"]).as_py() > 1 for run in runs):
        texts.append("job_id")
    if is_profiled(study.summary):
        texts += NAMES
    others = study.runs("jobs", texts) if texts else iter(())
    for run, more in zip_longest(runs, others):
        absent = dict.fromkeys(NAMES, pa.nulls(len(run.rows["attempt"]), pa.string()))
        maps: Any = ({} if more is None else more.rows, run.rows, absent)
        yield run._replace(rows=ChainMap(*maps))


def read_outcomes(study: Study) -> list[tuple[RunColumns, JobOutcomes]]:
    """The attempts of each run, and the outcomes of its jobs."""
    regrets = read_regrets(study) if is_profiled(study.summary) else {}
    return [
        (run, aggregate_jobs(run, derive_optima(run, regrets.get((run.variant, run.seed), {}))))
        for run in read_attempts(study)
    ]


def aggregate_jobs(run: RunColumns, optima: Optima) -> JobOutcomes:
    """The outcomes of a run's jobs, as its metrics are computed from them."""
    rows = run.rows
    attempt = rows["attempt"].to_numpy()
    single = bool((attempt == 1).all())
    preempted = np.flatnonzero(rows["preemptions"].to_numpy())
    waits: list[tuple[Ints, Floats, Floats]] = []
    number = np.arange(len(attempt) if len(preempted) else 0)
    if not single:
        number = rows["job_id"].dictionary_encode().indices.to_numpy().astype(np.int64)
        begun_s, ended_s = (to_floats(rows[name]) for name in ("start_time_s", "finish_time_s"))
        waits.append(waits_between_attempts(number, attempt, begun_s, ended_s))
    if len(preempted):
        start, finish, time, overhead = (
            to_floats(rows[name])[preempted]
            for name in ("start_time_s", "finish_time_s", "time_s", "overhead_s")
        )
        paused = np.maximum(finish - start - time - overhead, 0.0)
        waits.insert(0, (number[preempted], np.zeros(len(preempted)), paused))
    return aggregate_attempts(rows, number, waits, optima)


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
