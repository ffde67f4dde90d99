"""Columns of the tables of a run, from what the recorder holds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.arrays import Ints
from wattkeeper.policies.points.job import NEW, WHOLE, Placement
from wattkeeper.policies.profile import UNLIMITED_W
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec
from wattkeeper.sim.cluster_results.accounting import Tariff
from wattkeeper.sim.cluster_results.schemas import MODELS, NODES
from wattkeeper.sim.cluster_results.timeline import Timeline
from wattkeeper.sim.engine.backend import ZooBackend
from wattkeeper.sim.engine.sources import KNOWN, Source
from wattkeeper.sim.engine.zoo import FinishedModel
from wattkeeper.sim.kernel.rows import ABSENT
from wattkeeper.sim.recording.cluster_journal import ClusterJournal
from wattkeeper.sim.recording.recorder import Recorder
from wattkeeper.sim.recording.row_types import (
    EARLY,
    PROFILED,
    REACHED,
    REPLAYED,
    ClockRow,
    DrawRow,
    LossRow,
    NodeRow,
    RetuneRow,
    SizeRow,
    SliceRow,
    SlowRow,
)
from wattkeeper.sim.results.table_keeper import encode
from wattkeeper.traces.electricity.charges import charge_intervals

REPLAYED_FROM = ("duration", "profile")


OPTIONAL: Final = (RetuneRow, SliceRow, LossRow, SlowRow, ClockRow)
"""Kinds of rows whose columns are there if an attempt of the run has one."""

NULLABLE: Final = ("lost_node", "clock_mhz")
"""Columns of these whose default is null."""


class Placed(NamedTuple):
    """Where the choices of a journal place jobs, by their index; 0 and none: they place none.

    Attributes:
        gpu_type: Index of the GPU type, shape (choices,).
        nodes: The nodes, a list each.
    """

    gpu_type: Ints
    nodes: pa.Array


def read_choices(journal: ClusterJournal, cluster: ClusterSpec) -> Placed:
    """Where choices place jobs."""
    nodes = [
        [] if isinstance(choice, str) else sorted({slot[0] for slot in choice})
        for choice in journal.choices
    ]
    types = cluster.node_type[[of_choice[0] if of_choice else 0 for of_choice in nodes]]
    return Placed(types.astype(np.int16), pa.array(nodes, pa.list_(pa.int32())))


def recorded_columns(
    recorder: Recorder,
    cluster: ClusterSpec,
    placed: Placed | None = None,
    begin: int = 0,
    end: int | None = None,
) -> dict[str, pa.Array]:
    """The columns of `schemas.JOBS` that the recorder has, and `number`, by name.

    Of some attempts, by default of all. `placed`: of `read_choices`, where it is known.
    """
    placed = read_choices(recorder.journal, cluster) if placed is None else placed

    def column(name: str) -> npt.NDArray[Any]:
        return recorder.column(name, begin, end)

    flags, number, where = column("flags"), column("number"), pa.array(column("where"))
    batch_size, limit_w, epochs = (column(n) for n in ("batch_size", "power_limit_w", "epochs"))
    replayed = ((flags & REPLAYED) > 0).astype(np.int8)
    parents = pa.nulls(len(flags), pa.string())
    if recorder.parents:
        rows = range(begin, begin + len(flags))
        parents = pa.array([recorder.parents.get(row) for row in rows], pa.string())
    return {
        "number": pa.array(number),
        "energy_j": pa.array(column("energy_j")),
        "attempt": pa.array(column("attempt")),
        "gpu_type": encode(cluster.gpu_types, pa.array(placed.gpu_type).take(where)),
        "node_ids": placed.nodes.take(where),
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
        "replayed": encode(REPLAYED_FROM, replayed),
        "parent_model": parents,
        "preemptions": pa.array(column("preemptions")),
        **_optional_columns(recorder, column),
    }


def _optional_columns(
    recorder: Recorder, column: Callable[[str], npt.NDArray[Any]]
) -> dict[str, pa.Array]:
    """The columns of attempts that are there if an attempt of the run has a value."""
    there = [kind for kind in OPTIONAL if recorder.has(kind)]
    columns = {name: column(name) for kind in there for name in kind._fields}
    return {
        name: pa.array(values, mask=values == ABSENT if name in NULLABLE else None)
        for name, values in columns.items()
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


class AttemptColumns(NamedTuple):
    """What the columns of `schemas.JOBS` are made from.

    Attributes:
        recorder: Has the attempts.
        source: Has their jobs.
        cluster: The nodes.
        placed: Where choices place jobs.
        unmeasured: Workloads without measured power.
        tariff: What their energy costs.
    """

    recorder: Recorder
    source: Source
    cluster: ClusterSpec
    placed: Placed
    unmeasured: Collection[str]
    tariff: Tariff

    def parts(self, rows: int) -> Iterator[dict[str, pa.Array]]:
        """The columns without variant and seed, by name; see `decision_columns`."""
        recorder, attempts = self.recorder, self.recorder.attempts
        for begin in range(0, max(attempts, 1), rows):
            end = min(begin + rows, attempts)
            recorded = recorded_columns(recorder, self.cluster, self.placed, begin, end)
            columns = attempt_columns(recorded, self.source, self.unmeasured)
            if recorder.shapes:
                asked, sizes = columns["gpus"].to_numpy(), recorder.details(SizeRow)
                columns["gpus"] = pa.array(sizes.replace("held_gpus", asked, begin))
            draws = recorder.details(DrawRow).among(begin, end)
            yield columns | charge_attempts(columns, draws, self.tariff, self.cluster.pue)


def charge_attempts(
    attempts: Mapping[str, pa.Array],
    draws: Mapping[str, npt.NDArray[Any]],
    tariff: Tariff,
    pue: float,
) -> dict[str, pa.Array]:
    """What the energy of each attempt costs and emits, times `pue`, by metric.

    It counts as drawn evenly from the attempt's start to its end, pauses included; that of an
    attempt with `draws`, columns of `DrawRow`, when it was drawn.
    """
    begin_s, end_s = (attempts[name].to_numpy() for name in ("start_time_s", "finish_time_s"))
    energy_j = attempts["energy_j"].to_numpy(zero_copy_only=False) * pue
    rows, from_s, to_s, drawn_j = (draws[n] for n in ("about", "from_s", "to_s", "energy_j"))
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


def decision_columns(
    journal: ClusterJournal, source: Source, rows: int
) -> Iterator[dict[str, pa.Array]]:
    """The columns of `schemas.DECISIONS` without variant and seed, by name.

    In parts of a number of rows, the last one of fewer; at least one part.
    """

    def gpus_of(numbers: Ints) -> Ints:
        gpus: Ints = source.column("gpus", numbers).to_numpy()
        return gpus

    decisions = journal.decisions_on_jobs(gpus_of)
    points, policies = zip(*journal.makers, strict=True)
    texts: pa.Array | None = None
    for columns in regroup(decisions, rows):
        if texts is None:  # reading the decisions may add a choice
            texts = pa.array([format_choice(choice) for choice in journal.choices], pa.string())
        yield {
            "time_s": pa.array(columns["time_s"]),
            "point": encode(points, columns["maker"]),
            "policy": encode(policies, columns["maker"]),
            "job_id": source.column("job_id", columns["subject"]),
            "attempt": pa.array(columns["attempt"]),
            "saw": pa.array(columns["saw"]),
            "chose": encode(texts, columns["chose"]),
        }


def timeline_columns(
    lines: Iterable[Timeline], rows: int, *, measured: bool
) -> Iterator[dict[str, pa.Array]]:
    """The columns of `schemas.TIMELINE` likewise; without power where it was not measured."""
    for columns in regroup((line._asdict() for line in lines), rows):
        power_w = columns["power_w"] if measured else np.full(len(columns["power_w"]), np.nan)
        arrays = {name: pa.array(values) for name, values in columns.items() if name != "power_w"}
        yield arrays | {"power_w": pa.array(power_w, mask=np.isnan(power_w))}


def regroup(
    parts: Iterable[Mapping[str, npt.NDArray[Any]]], rows: int
) -> Iterator[dict[str, npt.NDArray[Any]]]:
    """The same columns in parts of a number of rows, the last one of fewer.

    Args:
        parts: At least one; all columns of a part have one length.
        rows: Rows of a part.
    """
    held: list[Mapping[str, npt.NDArray[Any]]] = []
    count, yielded = 0, False
    for part in parts:
        held.append(part)
        count += len(next(iter(part.values())))
        if count < rows:
            continue
        whole = _join(held)
        begin = 0
        while count - begin >= rows:
            yield {name: column[begin : begin + rows] for name, column in whole.items()}
            begin, yielded = begin + rows, True
        held = [{name: column[begin:] for name, column in whole.items()}]
        count -= begin
    if count or not yielded:
        yield _join(held)


def _join(parts: Sequence[Mapping[str, npt.NDArray[Any]]]) -> dict[str, npt.NDArray[Any]]:
    if len(parts) == 1:
        return dict(parts[0])
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def format_choice(choice: Placement | str) -> str:
    """A choice as the journal has it: `node:gpus`, or `node:gpus/gpu` where GPUs are shared."""
    if isinstance(choice, str):
        return choice
    return " ".join(
        f"{node}:{gpus}" if gpu == NEW else f"{node}:{gpus}/{gpu}" for node, gpus, gpu in choice
    )


def node_columns(recorder: Recorder) -> dict[str, pa.Array]:
    """The columns of `schemas.NODES` without variant and seed, by name."""
    rows = recorder.node_changes
    columns = {
        name: pa.array([row[at] for row in rows], NODES.field(name).type, from_pandas=True)
        for at, name in enumerate(NodeRow._fields)
    }
    if columns["factor"].null_count == len(rows):
        del columns["factor"]
    return columns


def model_columns(zoo: ZooBackend, source: Source) -> dict[str, pa.Array]:
    """The columns of `schemas.MODELS` without variant and seed, by name."""
    rows: Iterable[Any] = (
        zip(*zoo.done, strict=True) if zoo.done else ([] for _ in FinishedModel._fields)
    )
    values = dict(zip(FinishedModel._fields, rows, strict=True))
    numbers = np.array(values.pop("number"), dtype=np.int64)
    gpus, milli = (source.column(name, numbers).to_numpy() for name in ("gpus", "gpu_milli"))
    saved_s = np.array(values.pop("saved_s"), dtype=np.float64)
    values |= {
        "parent_model": values.pop("parent"),
        "saved_gpu_s": saved_s * (gpus * (milli / WHOLE)),
    }
    columns = {name: pa.array(each, MODELS.field(name).type) for name, each in values.items()}
    return columns | {"job_id": source.column("job_id", numbers)}
