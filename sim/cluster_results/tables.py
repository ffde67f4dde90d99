"""Result tables of one run, from what the recorder holds."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, NamedTuple

import numpy as np
import pyarrow as pa

from wattkeeper.policies.arrays import Bools, Floats, Ints
from wattkeeper.policies.points.job import WHOLE
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec
from wattkeeper.sim.cluster_results.accounting import (
    ENERGY,
    NO_TARIFF,
    SHORTEST_S,
    Account,
    HeldGpus,
    Tariff,
    Window,
    account,
    year_metrics,
)
from wattkeeper.sim.cluster_results.attribution import Owners, attribute, widen_nobody
from wattkeeper.sim.cluster_results.columns import (
    AttemptColumns,
    Placed,
    decision_columns,
    model_columns,
    node_columns,
    read_choices,
    timeline_columns,
)
from wattkeeper.sim.cluster_results.elastic import elastic_metrics, shape_columns
from wattkeeper.sim.cluster_results.laws import check_balance
from wattkeeper.sim.cluster_results.metrics import (
    JobOutcomes,
    Optima,
    aggregate_attempts,
    count_late,
    job_metrics,
    zoo_metrics,
)
from wattkeeper.sim.cluster_results.node_use import ElasticScope
from wattkeeper.sim.cluster_results.schemas import CLUSTER, TABLES
from wattkeeper.sim.cluster_results.timeline import timeline
from wattkeeper.sim.engine.backend import ZooBackend
from wattkeeper.sim.engine.sources import Source
from wattkeeper.sim.kernel.rows import ABSENT
from wattkeeper.sim.recording.recorder import Recorder
from wattkeeper.sim.recording.row_types import PauseRow, SizeRow
from wattkeeper.sim.results.digest import digest_tables
from wattkeeper.sim.results.parquet import AnyTable, ScratchFolder, TableColumns
from wattkeeper.sim.results.run_result import ResultKind, RunResult
from wattkeeper.sim.results.table_keeper import TableKeeper

MOST_ATTEMPTS: Final = 1 << 18
"""Attempts of a run whose tables are in memory in any case."""

TIMES: Final = ("jct_s", "p95_jct_s", "queue_delay_s")
"""Metrics that jobs that serve do not count in: they wait for nothing, and end with the log."""

NO_NUMBERS: Final = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class ClusterResult(RunResult):
    """The results of one run of the cluster engine.

    Attributes:
        account: Energy from its first submission to its last end, and what it takes to count it
            over a longer window.
    """

    kind: ClassVar[ResultKind] = CLUSTER
    account: Account

    @property
    def ended_s(self) -> float:
        """The end of the timeline, s."""
        line = self.tables["timeline"]
        return time_of(line, len(line) - 1)

    def charge(self, window: Window, tariff: Tariff = NO_TARIFF) -> ClusterResult:
        """The same results, with the cluster's metrics over a window that contains the own one."""
        widened = self.account.widen(window, tariff)
        before, metrics = self.account.metrics(), widened.metrics()
        by = {
            key: {
                name: part | metrics if metrics.keys() <= part.keys() else part
                for name, part in parts.items()
            }
            for key, parts in self.by.items()
        }
        tables = self.tables
        if "usage" in tables:
            added = {name: metrics[name] - before[name] for name in (ENERGY, *widened.charges)}
            tables = tables | {"usage": widen_nobody(tables["usage"], added)}
        return replace(self, account=widened, tables=tables, metrics=self.metrics | metrics, by=by)


def charge_alike(
    results: Sequence[ClusterResult], tariffs: Mapping[str, Tariff]
) -> list[ClusterResult]:
    """The results with the metrics of the cluster over one window for all variants of a seed.

    `tariffs`: by variant.
    """
    windows: dict[int, Window] = {}
    for result in results:
        own = result.account.window
        shared = windows.get(result.seed, own)
        windows[result.seed] = Window(
            min(own.from_s, shared.from_s), max(own.until_s, shared.until_s)
        )
    return [result.charge(windows[result.seed], tariffs[result.variant]) for result in results]


def collect(
    variant: str,
    seed: int,
    recorder: Recorder,
    source: Source,
    cluster: ClusterSpec,
    optima: Optima,
    events: int,
    zoo: ZooBackend | None = None,
    unmeasured: Collection[str] = (),
    window: tuple[float | None, float | None] = (None, None),
    tariff: Tariff = NO_TARIFF,
    elastic: ElasticScope | None = None,
    scratch: ScratchFolder | None = None,
    scheduled: bool = False,
    owners: Owners | None = None,
) -> ClusterResult:
    """Make tables and metrics from what the recorder holds.

    `recorder` is emptied. `optima`: smallest expected cost (J) by workload, number of GPUs and GPU
    type. `unmeasured`: workloads without measured power; their energy is absent, and so is that of
    the cluster. `window`: begin and end of what the cluster is charged for, s; the first submission
    and the last end where they are None. `tariff`: of the energy of the cluster and of jobs.
    `elastic`: the elastic jobs; None: there are none. `scratch`: for the tables of a run of more
    than `MOST_ATTEMPTS`; None: they are in memory. `scheduled`: whether jobs are submitted at given
    times, so that amounts of a year follow from these. `owners`: of the jobs;
    None: not known.
    """
    pool, is_large = pa.default_memory_pool(), recorder.attempts > MOST_ATTEMPTS
    if is_large:
        pool.release_unused()
    keeper = TableKeeper(TABLES, variant, seed, scratch if is_large else None)
    rows = keeper.rows
    placed = read_choices(recorder.journal, cluster)
    held = held_gpus(recorder, placed, source)
    submit_s = source.column("submit_time_s", recorder.column("number")).to_numpy()
    year = None
    if scheduled and not unmeasured:
        year = _year_span(recorder, submit_s, window, tariff)
    lines = timeline(recorder, cluster, submit_s, held.thousandths)
    del submit_s  # `lines` has it as long as it needs it
    line = keeper.keep_parts("timeline", timeline_columns(lines, rows, measured=not unmeasured))
    charged = account(recorder, cluster, held, charged_window(line, window), tariff)
    of_year = {}
    if year is not None:
        submitting = account(recorder, cluster, held, year.span, tariff)
        of_year = year_metrics(submitting, charged if year.has_all_jobs else submitting)
    check_balance(line, charged, measured=not unmeasured)
    if owners is not None and not unmeasured and recorder.attempts:
        usage = attribute(recorder, cluster, held, charged.window, tariff, owners)
        keeper.keep("usage", usage)
    if unmeasured:
        charged = charged.without_energy()
    keeper.keep_parts("decisions", decision_columns(recorder.journal, source, rows))
    recorder.journal.clear()
    paused, from_s, to_s = recorder.events(PauseRow)
    waits = (paused, from_s, to_s), recorder.requeues()
    losses = {}
    if recorder.follows_nodes:
        losses = loss_metrics(recorder, cluster, held.thousandths / WHOLE, charged.window)
        keeper.keep("nodes", node_columns(recorder))
    of_elastic = {} if elastic is None else elastic_metrics(recorder, cluster, elastic)
    if losses or of_elastic:
        losses["unable_jobs"] = float(len(recorder.unable))
    attempts = AttemptColumns(recorder, source, cluster, placed, unmeasured, tariff)
    del held
    columns = TableColumns(keeper.keep_parts("jobs", attempts.parts(rows)))
    number = NO_NUMBERS
    if "deadline_s" in columns or source.has_services or _have_several(recorder, waits):
        number = recorder.column("number")
    serves = None
    if source.has_services:
        first = number[recorder.column("attempt") == 1]
        serves = source.column("serves", first).is_valid().to_numpy(zero_copy_only=False)
    recorder.clear()
    if is_large:
        pool.release_unused()
    metrics, by = _metrics(aggregate_attempts(columns, number, waits, optima), serves)
    metrics = metrics | charged.metrics() | of_year | losses | of_elastic
    if elastic is not None:
        keeper.keep("shapes", shape_columns(recorder.shapes, source))
    if "deadline_s" in columns:
        metrics["late_jobs"] = count_late(columns, number)
    if zoo is not None:
        models = model_columns(zoo, source)
        keeper.keep("models", models)
        metrics |= zoo_metrics(models)
    tables = keeper.tables
    digest = digest_tables({name: each for name, each in tables.items() if name != "usage"})
    pool.release_unused()
    return ClusterResult(variant, seed, tables, metrics, by, events, digest, charged)


def _have_several(recorder: Recorder, waits: Sequence[tuple[Ints, Floats, Floats]]) -> bool:
    """Whether any job waited again after its start, or had several attempts."""
    waited = any(len(number) for number, _, _ in waits)
    return waited or bool(recorder.column("attempt").max(initial=1) > 1)


def loss_metrics(
    recorder: Recorder, cluster: ClusterSpec, gpus: Floats, window: Window
) -> dict[str, float]:
    """Metrics of lost nodes, given the GPUs of each attempt."""
    lost_s = recorder.column("lost_time_s")
    down: dict[int, float] = {}
    down_s = 0.0
    for row in recorder.node_changes:
        if row.event in ("absent", "down"):
            down[row.node] = row.time_s
        elif row.event == "up":
            down_s += _within(window, down.pop(row.node), row.time_s)
    down_s += math.fsum(_within(window, since_s, math.inf) for since_s in down.values())
    span_s = (window.until_s - window.from_s) * cluster.nodes
    losses = sum(row.event == "down" for row in recorder.node_changes)
    return {
        "node_losses": float(losses),
        "ready_node_losses": float(losses - recorder.booting_losses),
        "lost_attempts": float((recorder.column("lost_node") != ABSENT).sum()),
        "lost_gpu_s": math.fsum((lost_s * gpus).data),
        "lost_energy_j": math.fsum(recorder.column("lost_energy_j").data),
        "nodes_up": 1 - down_s / span_s if span_s > 0 else math.nan,
        "slow_gpu_s": math.fsum((recorder.column("slow_s") * gpus).data),
    }


def _within(window: Window, from_s: float, to_s: float) -> float:
    return max(0.0, min(to_s, window.until_s) - max(from_s, window.from_s))


class _YearSpan(NamedTuple):
    """What a year is extrapolated from.

    Attributes:
        span: The time in which jobs are submitted, or the stated one.
        has_all_jobs: Whether all that the jobs use is of a year, also what they use after the span.
    """

    span: Window
    has_all_jobs: bool


def _year_span(
    recorder: Recorder, submit_s: Floats, stated: tuple[float | None, float | None], tariff: Tariff
) -> _YearSpan | None:
    """What a year is extrapolated from; None if that is too short, or the tariff not known for it.

    Without a stated end, it has one mean time between submissions more than from the first to the
    last, so that each submission stands for as much of it. `submit_s`: of each attempt.
    """
    jobs = int((recorder.column("attempt") == 1).sum())
    first_s = float(submit_s.min(initial=math.inf))
    last_s = float(submit_s.max(initial=first_s))
    from_s, until_s = stated
    begin_s = first_s if from_s is None else from_s
    end_s = until_s
    if end_s is None:
        end_s = first_s + (last_s - first_s) * jobs / (jobs - 1) if jobs > 1 else first_s
    is_long = end_s - begin_s >= SHORTEST_S  # without jobs it is no number
    if not is_long or not tariff.is_known_until(end_s):
        return None
    return _YearSpan(Window(begin_s, end_s), until_s is None and begin_s <= first_s)


def charged_window(line: AnyTable, stated: tuple[float | None, float | None]) -> Window:
    """The stated window; where it states no border, that of the timeline."""
    from_s, until_s = stated
    first_s, last_s = time_of(line, 0), time_of(line, len(line) - 1)
    if from_s is None:
        from_s = first_s if until_s is None else min(first_s, until_s)
    return Window(from_s, max(last_s, from_s) if until_s is None else until_s)


def time_of(line: AnyTable, row: int) -> float:
    """The time of a row of a timeline, s."""
    time_s: float = line.slice(row, 1)["time_s"][0].as_py()
    return time_s


def held_gpus(recorder: Recorder, placed: Placed, source: Source) -> HeldGpus:
    """What attempts hold."""
    number = recorder.column("number")
    gpus = recorder.details(SizeRow).replace("held_gpus", source.column("gpus", number).to_numpy())
    thousandths = gpus.astype(np.int64) * source.column("gpu_milli", number).to_numpy()
    if thousandths.max(initial=0) <= np.iinfo(np.int32).max:
        thousandths = thousandths.astype(np.int32)
    return HeldGpus(thousandths, placed.gpu_type[recorder.column("where")])


def _metrics(
    jobs: JobOutcomes, serves: Bools | None
) -> tuple[dict[str, float], dict[str, dict[str, dict[str, float]]]]:
    """Metrics of all jobs, and of the parts of each breakdown; `serves`: which of them serve."""
    whole = _count_waits(jobs, serves)
    by: dict[str, dict[str, dict[str, float]]] = {}
    for key, names in jobs.names.items():
        codes = getattr(jobs, key)
        by[key] = {}
        for code, name in enumerate(names):
            part = jobs.select(codes == code)
            own = None if serves is None else serves[codes == code]
            by[key][name] = whole if part is jobs else _count_waits(part, own)
    return whole, by


def _count_waits(jobs: JobOutcomes, serves: Bools | None) -> dict[str, float]:
    """Metrics of jobs; their times are those of the jobs that do not serve."""
    metrics = job_metrics(jobs)
    if serves is None or not serves.any():
        return metrics
    others = job_metrics(jobs.select(~serves))
    return metrics | {name: others[name] for name in TIMES}
