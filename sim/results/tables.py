"""Result tables of one run, from what the recorder holds."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.arrays import Floats, Ints
from wattkeeper.policies.profile import UNLIMITED_W
from wattkeeper.policies.protocols import NEW, WHOLE, Placement
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec
from wattkeeper.sim.engine.backend import ZooBackend
from wattkeeper.sim.engine.recorder import (
    ABSENT,
    EARLY,
    PROFILED,
    REACHED,
    REPLAYED,
    Journal,
    NodeRow,
    Recorder,
)
from wattkeeper.sim.engine.sources import KNOWN, Source
from wattkeeper.sim.engine.zoo import FinishedModel
from wattkeeper.sim.results.accounting import (
    NO_TARIFF,
    Account,
    HeldGpus,
    Tariff,
    Window,
    account,
)
from wattkeeper.sim.results.digest import digest_tables
from wattkeeper.sim.results.elastic import elastic_metrics, shape_columns
from wattkeeper.sim.results.metrics import (
    JobOutcomes,
    Optima,
    aggregate_attempts,
    count_late,
    job_metrics,
    zoo_metrics,
)
from wattkeeper.sim.results.node_use import ElasticScope
from wattkeeper.sim.results.schemas import NODES, TABLES
from wattkeeper.sim.results.timeline import Timeline, timeline
from wattkeeper.traces.electricity.charges import charge_intervals
from wattkeeper.traces.schema import is_optional

ZOO_TYPES: dict[str, pa.DataType] = {
    "number": pa.int64(), "time_s": pa.float64(), "parent": pa.string(), "coverage": pa.float64(),
    "saved_s": pa.float64(), "accuracy": pa.float64(), "admitted": pa.bool_(),
    "zoo_models": pa.int64(), "zoo_bytes": pa.int64(),
}  # fmt: skip
"""Arrow types of the fields of `FinishedModel`."""

REPLAYED_FROM = ("duration", "profile")


@dataclass(frozen=True, slots=True)
class RunResult:
    """The results of one variant with one seed.

    Attributes:
        variant: Name of the variant.
        seed: Seed of the run.
        tables: Tables by name, in the schemas of `TABLES`; `models` only where there is a zoo.
        metrics: Metrics of the whole run, by name.
        by: Metrics of its parts, as `by["workload"]["cifar100"]`.
        account: Energy from its first submission to its last end, and what it takes to count it
            over a longer window.
        events: Number of events that the simulator handled.
        digest: SHA-256 of the tables.
    """

    variant: str
    seed: int
    tables: dict[str, pa.Table]
    metrics: dict[str, float]
    by: dict[str, dict[str, dict[str, float]]]
    account: Account
    events: int
    digest: str

    def charge(self, window: Window, tariff: Tariff = NO_TARIFF) -> RunResult:
        """The same results, with the cluster's metrics over a window that contains the own one."""
        widened = self.account.widen(window, tariff)
        metrics = widened.metrics()
        by = {
            key: {
                name: part | metrics if metrics.keys() <= part.keys() else part
                for name, part in parts.items()
            }
            for key, parts in self.by.items()
        }
        return replace(self, account=widened, metrics=self.metrics | metrics, by=by)


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
) -> RunResult:
    """Make tables and metrics from what the recorder holds.

    `recorder` is emptied. `optima`: smallest expected cost (J) by workload, number of GPUs and GPU
    type. `unmeasured`: workloads without measured power; their energy is absent, and so is that of
    the cluster. `window`: begin and end of what the cluster is charged for, s; the first submission
    and the last end where they are None. `tariff`: of the energy of the cluster and of jobs.
    `elastic`: the elastic jobs; None: there are none.
    """
    number = recorder.column("number")
    asked, milli, submit_s = (
        source.column(name, number).to_numpy() for name in ("gpus", "gpu_milli", "submit_time_s")
    )
    gpus = recorder.held_gpus(asked)
    held = held_gpus(recorder, cluster, gpus.astype(np.int64) * milli)
    line = timeline(recorder, cluster, submit_s, held.thousandths)
    charged = account(recorder, cluster, held, charged_window(line, window), tariff)
    if unmeasured:
        charged = charged.without_energy()
        line = line._replace(power_w=np.full(len(line.power_w), np.nan))
    decisions = decision_columns(recorder.journal, source)
    recorder.journal.clear()
    waits = recorder.pauses(), recorder.requeues()
    losses = loss_metrics(recorder, cluster, gpus * milli / WHOLE, charged.window)
    of_elastic = {} if elastic is None else elastic_metrics(recorder, cluster, elastic)
    nodes = node_columns(recorder)
    recorded = recorded_columns(recorder, cluster)
    draws = recorder.draws()
    recorder.clear()  # frees its memory before the tables need as much
    attempts = attempt_columns(recorded, source, unmeasured)
    if recorder.shapes:
        attempts["gpus"] = pa.array(gpus)
    attempts |= charge_attempts(attempts, draws, tariff, cluster.pue)
    metrics, by = _metrics(aggregate_attempts(attempts, number, waits, optima))
    columns = {"jobs": attempts, "decisions": decisions, "timeline": line._asdict()}
    columns["timeline"]["power_w"] = pa.array(line.power_w, mask=np.isnan(line.power_w))
    metrics = metrics | charged.metrics() | losses | of_elastic
    if recorder.follows_nodes:
        columns["nodes"] = nodes
    if elastic is not None:
        columns["shapes"] = shape_columns(recorder.shapes, source)
    if "deadline_s" in attempts:
        metrics["late_jobs"] = count_late(attempts, number)
    if zoo is not None:
        columns["models"] = model_columns(zoo, source)
        metrics |= zoo_metrics(columns["models"])
    tables = {
        name: _table(TABLES[name], variant, seed, columns.pop(name))
        for name in TABLES
        if name in columns
    }
    digest = digest_tables(tables)
    result = RunResult(variant, seed, tables, metrics, by, charged, events, digest)
    pa.default_memory_pool().release_unused()
    return result


def node_columns(recorder: Recorder) -> dict[str, pa.Array]:
    """The columns of `schemas.NODES` without variant and seed, by name."""
    rows = recorder.node_changes
    columns = {name: [getattr(row, name) for row in rows] for name in NodeRow._fields}
    deadline_s = np.array(columns.pop("deadline_s"), dtype=np.float64)
    factor = np.array(columns.pop("factor"), dtype=np.float64)
    arrays = {name: pa.array(values, NODES.field(name).type) for name, values in columns.items()}
    arrays["deadline_s"] = pa.array(deadline_s, mask=np.isnan(deadline_s))
    if not np.isnan(factor).all():
        arrays["factor"] = pa.array(factor, mask=np.isnan(factor))
    return arrays


def loss_metrics(
    recorder: Recorder, cluster: ClusterSpec, gpus: Floats, window: Window
) -> dict[str, float]:
    """Metrics of lost nodes, given the GPUs of each attempt; none where nodes are not lost."""
    if not recorder.follows_nodes:
        return {}
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
        "unable_jobs": float(len(recorder.unable)),
        "lost_gpu_s": math.fsum((lost_s * gpus).data),
        "lost_energy_j": math.fsum(recorder.column("lost_energy_j").data),
        "nodes_up": 1 - down_s / span_s if span_s > 0 else math.nan,
        "slow_gpu_s": math.fsum((recorder.column("slow_s") * gpus).data),
    }


def _within(window: Window, from_s: float, to_s: float) -> float:
    return max(0.0, min(to_s, window.until_s) - max(from_s, window.from_s))


def charge_attempts(
    attempts: Mapping[str, pa.Array],
    draws: tuple[Ints, Floats, Floats, Floats],
    tariff: Tariff,
    pue: float,
) -> dict[str, pa.Array]:
    """What the energy of each attempt costs and emits, times `pue`, by metric.

    It counts as drawn evenly from the attempt's start to its end, pauses included; that of an
    attempt with `draws` (`Recorder.draws`) when it was drawn.
    """
    begin_s, end_s = (attempts[name].to_numpy() for name in ("start_time_s", "finish_time_s"))
    energy_j = attempts["energy_j"].to_numpy(zero_copy_only=False) * pue
    rows, from_s, to_s, drawn_j = draws
    columns = {}
    for name, rate in tariff.rates.items():
        charges = charge_intervals(begin_s, end_s, energy_j, rate, tariff.origin_s)
        if len(rows):
            parts = charge_intervals(from_s, to_s, drawn_j, rate, tariff.origin_s)
            drawn = np.bincount(rows, drawn_j, len(charges))
            weighed = np.bincount(rows, parts, len(charges))
            known = drawn > 0
            charges[known] = weighed[known] / drawn[known] * energy_j[known]
        columns[name] = pa.array(charges, from_pandas=True)
    return columns


def charged_window(line: Timeline, stated: tuple[float | None, float | None]) -> Window:
    """The stated window; where it states no border, that of the timeline."""
    from_s, until_s = stated
    first_s, last_s = float(line.time_s[0]), float(line.time_s[-1])
    if from_s is None:
        from_s = first_s if until_s is None else min(first_s, until_s)
    return Window(from_s, max(last_s, from_s) if until_s is None else until_s)


def held_gpus(recorder: Recorder, cluster: ClusterSpec, thousandths: Ints) -> HeldGpus:
    """What attempts hold, given the thousandths of GPUs of each, shape (attempts,)."""
    return HeldGpus(thousandths, _types_of_choices(recorder, cluster)[recorder.column("where")])


def _nodes_of_choices(recorder: Recorder) -> list[list[int]]:
    """The nodes of each choice that is a placement, by its index in the journal."""
    return [
        [] if isinstance(choice, str) else sorted({slot[0] for slot in choice})
        for choice in recorder.journal.choices
    ]


def _types_of_choices(recorder: Recorder, cluster: ClusterSpec) -> Ints:
    """The GPU type of each choice that is a placement, likewise."""
    first = [nodes[0] if nodes else 0 for nodes in _nodes_of_choices(recorder)]
    types: Ints = cluster.node_type[first]
    return types


def model_columns(zoo: ZooBackend, source: Source) -> dict[str, pa.Array]:
    """The columns of `schemas.MODELS` without variant and seed, by name."""
    rows = zip(*zoo.done, strict=True) if zoo.done else ([] for _ in FinishedModel._fields)
    columns = {
        name: pa.array(values, ZOO_TYPES[name])
        for name, values in zip(FinishedModel._fields, rows, strict=True)
    }
    numbers = columns.pop("number").to_numpy()
    held = pc.multiply(
        source.column("gpus", numbers).cast(pa.float64()),
        pc.divide(source.column("gpu_milli", numbers).cast(pa.float64()), WHOLE),
    )
    return {
        "job_id": source.column("job_id", numbers),
        "parent_model": columns.pop("parent"),
        "saved_gpu_s": pc.multiply(columns.pop("saved_s"), held),
        **columns,
    }


def _metrics(jobs: JobOutcomes) -> tuple[dict[str, float], dict[str, dict[str, dict[str, float]]]]:
    """Metrics of all jobs, and of the parts of each breakdown."""
    whole = job_metrics(jobs)
    by: dict[str, dict[str, dict[str, float]]] = {}
    for key, names in jobs.names.items():
        codes = getattr(jobs, key)
        parts = {name: jobs.select(codes == code) for code, name in enumerate(names)}
        by[key] = {n: whole if part is jobs else job_metrics(part) for n, part in parts.items()}
    return whole, by


def _table(schema: pa.Schema, variant: str, seed: int, columns: dict[str, Any]) -> pa.Table:
    rows = len(columns["time_s"])
    keys = {"variant": _encode([variant], np.zeros(rows, np.int8)), "seed": np.full(rows, seed)}
    filled = keys | columns
    fields = [want for want in schema if want.name in filled or not is_optional(want)]
    arrays = [_array(filled[want.name], want.type) for want in fields]
    fields = [want.with_type(array.type) for want, array in zip(fields, arrays, strict=True)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _encode(texts: Sequence[str] | pa.Array, codes: npt.ArrayLike) -> pa.DictionaryArray:
    """A column of few distinct texts, stored by index."""
    return pa.DictionaryArray.from_arrays(pa.array(codes), texts)


def recorded_columns(recorder: Recorder, cluster: ClusterSpec) -> dict[str, pa.Array]:
    """The columns of `schemas.JOBS` that the recorder has, and `number`, by name."""
    column = recorder.column
    flags, number, where = column("flags"), column("number"), pa.array(column("where"))
    batch_size, limit_w, epochs = (column(n) for n in ("batch_size", "power_limit_w", "epochs"))
    nodes, types = _nodes_of_choices(recorder), _types_of_choices(recorder, cluster)
    replayed = ((flags & REPLAYED) > 0).astype(np.int8)
    retunes = {name: pa.array(column(name)) for name in ("retunes", "tune_paused_s")}
    sliced = ("slices", "slice_time_s", "slice_energy_j", "discarded_time_s", "discarded_energy_j")
    slices = {name: pa.array(column(name)) for name in sliced} if recorder.has_slices else {}
    losses: dict[str, pa.Array] = {}
    if recorder.has_losses:
        node = column("lost_node")
        losses = {name: pa.array(column(name)) for name in ("lost_time_s", "lost_energy_j")}
        losses["lost_node"] = pa.array(node, mask=node == ABSENT)
    if recorder.has_slow:
        losses["slow_s"] = pa.array(column("slow_s"))
    clocks: dict[str, pa.Array] = {}
    if recorder.has_clocks:
        clock_mhz = column("clock_mhz")
        clocks["clock_mhz"] = pa.array(clock_mhz, mask=clock_mhz == 0)
    parents = pa.nulls(len(flags), pa.string())
    if recorder.parents:
        parents = pa.array([recorder.parents.get(row) for row in range(len(flags))], pa.string())
    return {
        "number": pa.array(number),
        "energy_j": pa.array(column("energy_j")),
        "attempt": pa.array(column("attempt")),
        "gpu_type": _encode(cluster.gpu_types, pa.array(types, pa.int16()).take(where)),
        "node_ids": pa.array(nodes, pa.list_(pa.int32())).take(where),
        "start_time_s": pa.array(column("begun_s")),
        "finish_time_s": pa.array(column("ended_s")),
        "batch_size": pa.array(batch_size, mask=batch_size == ABSENT),
        "power_limit_w": pa.array(limit_w, mask=np.isnan(limit_w) | (limit_w == UNLIMITED_W)),
        "epochs": pa.array(epochs, mask=epochs == ABSENT),
        "time_s": pa.array(column("time_s")),
        "overhead_s": pa.array(column("overhead_s")),
        "cost": pa.array(column("cost")),
        "reached_target": pa.array((flags & REACHED) > 0),
        "early_stopped": pa.array((flags & EARLY) > 0),
        "profiled": pa.array((flags & PROFILED) > 0),
        "replayed": _encode(REPLAYED_FROM, replayed),
        "parent_model": parents,
        "preemptions": pa.array(column("preemptions")),
        **(retunes if recorder.has_retunes else {}),
        **slices,
        **clocks,
        **losses,
    }


def attempt_columns(
    recorded: dict[str, pa.Array], source: Source, unmeasured: Collection[str] = ()
) -> dict[str, pa.Array]:
    """The columns of `schemas.JOBS` without variant and seed, by name, from `recorded_columns`."""
    columns = dict(recorded)
    number, energy_j = (columns.pop(name).to_numpy() for name in ("number", "energy_j"))
    names = (*KNOWN, "deadline_s") if source.has_deadlines else KNOWN
    known = {name: source.column(name, number) for name in names}
    if unmeasured:
        absent = pc.is_in(known["workload"], value_set=pa.array(sorted(unmeasured), pa.string()))
        energy_j = np.where(absent.to_numpy(zero_copy_only=False), np.nan, energy_j)
    return columns | known | {"energy_j": pa.array(energy_j, mask=np.isnan(energy_j))}


def decision_columns(journal: Journal, source: Source) -> dict[str, pa.Array]:
    """The columns of `schemas.DECISIONS` without variant and seed, by name."""

    def gpus_of(numbers: Ints) -> Ints:
        gpus: Ints = source.column("gpus", numbers).to_numpy()
        return gpus

    columns = journal.decisions(gpus_of)
    chose = pa.array([format_choice(choice) for choice in journal.choices], pa.string())
    maker = columns["maker"]
    points, policies = zip(*journal.makers, strict=True)
    return {
        "time_s": pa.array(columns["time_s"]),
        "point": _encode(points, maker),
        "policy": _encode(policies, maker),
        "job_id": source.column("job_id", columns["number"]),
        "attempt": pa.array(columns["attempt"]),
        "saw": pa.array(columns["saw"]),
        "chose": _encode(chose, columns["chose"]),
    }


def format_choice(choice: Placement | str) -> str:
    """A choice as the journal has it: `node:gpus`, or `node:gpus/gpu` where GPUs are shared."""
    if isinstance(choice, str):
        return choice
    return " ".join(
        f"{node}:{gpus}" if gpu == NEW else f"{node}:{gpus}/{gpu}" for node, gpus, gpu in choice
    )


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    array = values if isinstance(values, pa.Array) else pa.array(values)
    return array if array.type == kind or pa.types.is_dictionary(array.type) else array.cast(kind)
