"""What a run leaves behind: its tables, their schemas, and the folder that holds them."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from wattkeeper.policies.errors import InputError
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
    Recorder,
)
from wattkeeper.sim.engine.sources import KNOWN, Source
from wattkeeper.sim.engine.zoo import FinishedModel
from wattkeeper.sim.results.folder import SWEEP
from wattkeeper.sim.results.metrics import (
    COSTS,
    JobOutcomes,
    cluster_metrics,
    job_metrics,
    jobs_of,
    zoo_metrics,
)
from wattkeeper.sim.results.statistics import NOT_COMPARED, over_seeds, versus
from wattkeeper.sim.results.timeline import timeline
from wattkeeper.traces.files.atomic import is_leftover, replacing
from wattkeeper.traces.schema import field

Ints = npt.NDArray[np.int64]

COST = "eta * energy + (1 - eta) * largest power limit * time, of training without overheads"

_KEYS = [
    field("variant", pa.string(), "", "variant of the scenario"),
    field("seed", pa.int64(), "", "seed of the run"),
]

JOBS = pa.schema(
    [
        *_KEYS,
        field("job_id", pa.string(), "", "submitted training run"),
        field("group_id", pa.string(), "", "recurring job that it belongs to"),
        field("recurrence", pa.int32(), "", "its place in the group, from 1"),
        field("attempt", pa.int32(), "", "try of the job, from 1"),
        field("workload", pa.string(), "", "what is trained", null=True),
        field("gpu_type", pa.string(), "", "type of the GPUs"),
        field("gpus", pa.int32(), "", "GPUs held"),
        field("gpu_milli", pa.int32(), "", "thousandths of each of them"),
        field("node_ids", pa.list_(pa.int32()), "", "nodes that hold them"),
        field("time_scale", pa.float64(), "", "its run time over the mean of its workload"),
        field("submit_time_s", pa.float64(), "s", "submission of the job"),
        field("start_time_s", pa.float64(), "s", "start of the attempt"),
        field("finish_time_s", pa.float64(), "s", "end of the attempt"),
        field("batch_size", pa.int64(), "", "global batch size; null: not known", null=True),
        field(
            "power_limit_w",
            pa.float64(),
            "W",
            "power limit of each GPU; null: nobody set one",
            null=True,
        ),
        field("epochs", pa.int64(), "", "epochs done; 0: it never ran", null=True),
        field(
            "energy_j",
            pa.float64(),
            "J",
            "energy of the attempt, with overheads; null: nothing measured it",
            null=True,
        ),
        field("time_s", pa.float64(), "s", "training time of the attempt"),
        field(
            "overhead_s",
            pa.float64(),
            "s",
            "held GPUs without training: waking, restoring, short of power",
        ),
        field(
            "cost",
            pa.float64(),
            "J",
            COST,
        ),
        field("reached_target", pa.bool_(), "", "whether the target was reached"),
        field("early_stopped", pa.bool_(), "", "whether the cost bound ended it"),
        field("profiled", pa.bool_(), "", "whether power limits were profiled in it"),
        field("replayed", pa.string(), "", "from a profile, or for its recorded duration"),
        field("parent_model", pa.string(), "", "model whose weights it started from", null=True),
        field("preemptions", pa.int32(), "", "how often it was preempted"),
    ]
)

DECISIONS = pa.schema(
    [
        *_KEYS,
        field("time_s", pa.float64(), "s", "time of the decision"),
        field("point", pa.string(), "", "decision point"),
        field("policy", pa.string(), "", "name of the policy"),
        field("job_id", pa.string(), "", "job that it is about"),
        field("attempt", pa.int32(), "", "attempt that it is about"),
        field("saw", pa.uint64(), "", "digest of what the policy was shown"),
        field("chose", pa.string(), "", "what it chose"),
    ]
)

TIMELINE = pa.schema(
    [
        *_KEYS,
        field("time_s", pa.float64(), "s", "change point; values hold until the next one"),
        field(
            "power_w",
            pa.float64(),
            "W",
            "power of the facility: jobs and idle GPUs, times pue; null: nothing measured it",
            null=True,
        ),
        field("gpus_busy", pa.float64(), "", "GPUs that jobs hold, parts of them as such"),
        field("jobs_waiting", pa.int64(), "", "submitted or preempted jobs that do not run"),
    ]
)

MODELS = pa.schema(
    [
        *_KEYS,
        field("job_id", pa.string(), "", "job that trained it, and its id in the zoo"),
        field("time_s", pa.float64(), "s", "when it was trained"),
        field("parent_model", pa.string(), "", "model whose weights it started from", null=True),
        field("coverage", pa.float64(), "", "share of its parameters that the parent filled"),
        field("saved_gpu_s", pa.float64(), "s", "GPU seconds of training that the parent saved"),
        field("accuracy", pa.float64(), "", "what it reached"),
        field("admitted", pa.bool_(), "", "whether the zoo took it"),
        field("zoo_models", pa.int64(), "", "models in the zoo after that"),
        field("zoo_bytes", pa.int64(), "B", "what they take"),
    ]
)

ZOO_TYPES: dict[str, pa.DataType] = {
    "number": pa.int64(), "time_s": pa.float64(), "parent": pa.string(), "coverage": pa.float64(),
    "saved_s": pa.float64(), "accuracy": pa.float64(), "admitted": pa.bool_(),
    "zoo_models": pa.int64(), "zoo_bytes": pa.int64(),
}  # fmt: skip
"""Of the fields of `FinishedModel`."""

REPLAYED_FROM = ("duration", "profile")

ROWS = 1 << 17
"""Rows of a row group."""

UNIQUE = ("job_id", "group_id")
"""Texts that a dictionary would only make longer."""

FEW = 256
"""The most texts of a column that is written by index: each row group repeats them."""

TABLES = {"jobs": JOBS, "decisions": DECISIONS, "timeline": TIMELINE, "models": MODELS}
"""The last one only where there is a zoo."""

VALUES = pa.schema(
    [
        *_KEYS,
        field("by", pa.string(), "", "what the run is broken down by; empty: the whole run"),
        field("part", pa.string(), "", "which part of it; empty: the whole run"),
        field("metric", pa.string(), "", "its name"),
        field("value", pa.float64(), "", "its value, in its unit; null: there is none", null=True),
    ]
)
"""Of `metrics.parquet`, which the other tables and the summary follow from."""

FILES = {
    *(f"{name}.parquet" for name in (*TABLES, "metrics")),
    "summary.json",
    "manifest.json",
    "report.html",
    "timeline.json.gz",
}

OF_SWEEPS = {SWEEP, "points"}
"""What results folders of sweeps hold besides."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """One variant with one seed.

    Attributes:
        variant: Its name.
        seed: The seed.
        tables: By name, in the schemas of `TABLES`; `models` only where there is a zoo.
        metrics: Of the whole run, by name.
        by: The same for parts of it: `by["workload"]["cifar100"]`.
        events: How many events the simulator handled.
        digest: SHA-256 of the tables.
    """

    variant: str
    seed: int
    tables: dict[str, pa.Table]
    metrics: dict[str, float]
    by: dict[str, dict[str, dict[str, float]]]
    events: int
    digest: str


def collect(
    variant: str,
    seed: int,
    recorder: Recorder,
    source: Source,
    cluster: ClusterSpec,
    optima: Mapping[tuple[str, int, str], float],
    events: int,
    zoo: ZooBackend | None = None,
    unmeasured: Collection[str] = (),
) -> RunResult:
    """Turn what was recorded into tables and metrics.

    Args:
        variant: Name of the variant.
        seed: Seed of the run.
        recorder: What happened; it is empty afterwards.
        source: What was submitted.
        cluster: Where.
        optima: Smallest expected cost (J) by workload, number of GPUs and GPU type.
        events: How many events the simulator handled.
        zoo: What was trained and stored, if the scenario has a zoo.
        unmeasured: Workloads whose power nobody measured: their energy is absent, and so is that of
            the cluster.
    """
    number = recorder.column("number")
    gpus, milli, submit_s = (
        source.column(name, number).to_numpy() for name in ("gpus", "gpu_milli", "submit_time_s")
    )
    line = timeline(recorder, cluster, submit_s, gpus.astype(np.int64) * milli)
    if unmeasured:
        line = line._replace(power_w=np.full(len(line.power_w), np.nan))
    decisions = decision_columns(recorder.journal, source)
    recorder.journal.clear()
    pauses = recorder.pauses()
    recorded = recorded_columns(recorder, cluster)
    recorder.clear()  # before as much is made again
    attempts = attempt_columns(recorded, source, unmeasured)
    metrics, by = _metrics(jobs_of(attempts, number, pauses, optima))
    columns = {"jobs": attempts, "decisions": decisions, "timeline": line._asdict()}
    columns["timeline"]["power_w"] = pa.array(line.power_w, mask=np.isnan(line.power_w))
    metrics = metrics | cluster_metrics(line, cluster)
    if zoo is not None:
        columns["models"] = model_columns(zoo, source)
        metrics |= zoo_metrics(columns["models"])
    tables = {
        name: _table(TABLES[name], variant, seed, columns.pop(name))
        for name in TABLES
        if name in columns
    }
    found = RunResult(variant, seed, tables, metrics, by, events, digest_tables(tables))
    pa.default_memory_pool().release_unused()
    return found


def model_columns(zoo: ZooBackend, source: Source) -> dict[str, pa.Array]:
    """The columns of `MODELS`, less variant and seed, by name."""
    rows = zip(*zoo.done, strict=True) if zoo.done else ([] for _ in FinishedModel._fields)
    found = {
        name: pa.array(values, ZOO_TYPES[name])
        for name, values in zip(FinishedModel._fields, rows, strict=True)
    }
    numbers = found.pop("number").to_numpy()
    held = pc.multiply(
        source.column("gpus", numbers).cast(pa.float64()),
        pc.divide(source.column("gpu_milli", numbers).cast(pa.float64()), WHOLE),
    )
    return {
        "job_id": source.column("job_id", numbers),
        "parent_model": found.pop("parent"),
        "saved_gpu_s": pc.multiply(found.pop("saved_s"), held),
        **found,
    }


def _metrics(jobs: JobOutcomes) -> tuple[dict[str, float], dict[str, dict[str, dict[str, float]]]]:
    """Metrics of all jobs, and of the parts that they are broken down by."""
    whole = job_metrics(jobs)
    by: dict[str, dict[str, dict[str, float]]] = {}
    for key, (codes, names) in jobs.parts().items():
        parts = {name: jobs.only(codes == code) for code, name in enumerate(names)}
        by[key] = {n: whole if part is jobs else job_metrics(part) for n, part in parts.items()}
    return whole, by


def _table(schema: pa.Schema, variant: str, seed: int, columns: dict[str, Any]) -> pa.Table:
    rows = len(columns["time_s"])
    keys = {"variant": _coded([variant], np.zeros(rows, np.int8)), "seed": np.full(rows, seed)}
    arrays = [_array((keys | columns)[want.name], want.type) for want in schema]
    kept = [want.with_type(array.type) for want, array in zip(schema, arrays, strict=True)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(kept))


def _coded(texts: Sequence[str] | pa.Array, codes: npt.ArrayLike) -> pa.DictionaryArray:
    """Texts of which there are few, by their index; written as texts."""
    return pa.DictionaryArray.from_arrays(pa.array(codes), texts)


def recorded_columns(recorder: Recorder, cluster: ClusterSpec) -> dict[str, pa.Array]:
    """The columns of `JOBS` that tell what happened, and `number`, by name."""
    column = recorder.column
    flags, number, where = column("flags"), column("number"), pa.array(column("where"))
    batch_size, limit_w, epochs = (column(n) for n in ("batch_size", "power_limit_w", "epochs"))
    nodes = [
        [] if isinstance(choice, str) else sorted({slot[0] for slot in choice})
        for choice in recorder.journal.choices
    ]
    types = [cluster.node_type[at[0]] if at else 0 for at in nodes]
    how = ((flags & REPLAYED) > 0).astype(np.int8)
    return {
        "number": pa.array(number),
        "energy_j": pa.array(column("energy_j")),
        "attempt": pa.array(column("attempt")),
        "gpu_type": _coded(cluster.gpu_types, pa.array(types, pa.int16()).take(where)),
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
        "replayed": _coded(REPLAYED_FROM, how),
        "parent_model": _parents(recorder.parents, len(flags)),
        "preemptions": pa.array(column("preemptions")),
    }


def attempt_columns(
    recorded: dict[str, pa.Array], source: Source, unmeasured: Collection[str] = ()
) -> dict[str, pa.Array]:
    """The columns of `JOBS`, less variant and seed, by name; from `recorded_columns`."""
    found = dict(recorded)
    number, energy_j = (found.pop(name).to_numpy() for name in ("number", "energy_j"))
    known = {name: source.column(name, number) for name in KNOWN}
    if unmeasured:
        absent = pc.is_in(known["workload"], value_set=pa.array(sorted(unmeasured), pa.string()))
        energy_j = np.where(absent.to_numpy(zero_copy_only=False), np.nan, energy_j)
    return found | known | {"energy_j": pa.array(energy_j, mask=np.isnan(energy_j))}


def _parents(by_row: Mapping[int, str], rows: int) -> pa.Array:
    if not by_row:
        return pa.nulls(rows, pa.string())
    return pa.array([by_row.get(row) for row in range(rows)], pa.string())


def decision_columns(journal: Journal, source: Source) -> dict[str, pa.Array]:
    """The columns of `DECISIONS`, less variant and seed, by name."""

    def gpus_of(numbers: Ints) -> Ints:
        gpus: Ints = source.column("gpus", numbers).to_numpy()
        return gpus

    columns = journal.decisions(gpus_of)
    chose = pa.array([show(choice) for choice in journal.choices], pa.string())
    maker = columns["maker"]
    points, policies = zip(*journal.makers, strict=True)
    return {
        "time_s": pa.array(columns["time_s"]),
        "point": _coded(points, maker),
        "policy": _coded(policies, maker),
        "job_id": source.column("job_id", columns["number"]),
        "attempt": pa.array(columns["attempt"]),
        "saw": pa.array(columns["saw"]),
        "chose": _coded(chose, columns["chose"]),
    }


def show(choice: Placement | str) -> str:
    """A choice as the journal shows it: `node:gpus`, or `node:gpus/gpu` where GPUs are shared."""
    if isinstance(choice, str):
        return choice
    return " ".join(
        f"{node}:{gpus}" if gpu == NEW else f"{node}:{gpus}/{gpu}" for node, gpus, gpu in choice
    )


def _flat(values: Any) -> pa.Array:
    if not isinstance(values, pa.ChunkedArray):
        return values
    return values.chunk(0) if values.num_chunks == 1 else pa.concat_arrays(values.chunks)


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    made = values if isinstance(values, pa.Array) else pa.array(values)
    return made if made.type == kind or pa.types.is_dictionary(made.type) else made.cast(kind)


def summarise(
    results: Sequence[RunResult], baselines: Mapping[str, str], etas: Mapping[str, float]
) -> dict[str, Any]:
    """Statistics over seeds by variant, against each variant's baseline, and by part.

    Args:
        results: All runs; every variant has the same seeds in the same order.
        baselines: The variant that each variant is compared with.
        etas: Each variant's eta; costs under different ones are not compared.
    """

    def against(variant: str, metrics: Mapping[str, Sequence[float]], all_: Any) -> dict[str, Any]:
        baseline = baselines[variant]
        of_baseline = all_.get(baseline, {})
        other = COSTS if etas[variant] != etas[baseline] else set()
        return {"baseline": baseline} | {
            name: NOT_COMPARED if name in other else versus(seen, of_baseline.get(name, []))
            for name, seen in metrics.items()
        }

    def part(metrics_of: Any) -> dict[str, Any]:
        values: dict[str, dict[str, list[float]]] = {}
        for result in results:
            for metric, value in metrics_of(result).items():
                values.setdefault(result.variant, {}).setdefault(metric, []).append(value)
        return {
            variant: {
                "metrics": {name: over_seeds(seen) for name, seen in metrics.items()},
                "versus": against(variant, metrics, values),
            }
            for variant, metrics in values.items()
        }

    keys = {key: sorted({name for r in results for name in r.by[key]}) for key in results[0].by}
    return {
        "variants": part(lambda result: result.metrics),
        "by": {
            key: {name: part(lambda r, k=key, n=name: r.by[k].get(n, {})) for name in names}
            for key, names in keys.items()
        },
    }


def metric_values(results: Sequence[RunResult]) -> pa.Table:
    """Every metric of every run, and of each part of it, in the schema `VALUES`."""
    rows = [
        (result.variant, result.seed, key, part, metric, value)
        for result in results
        for key, parts in ({"": {"": result.metrics}} | result.by).items()
        for part, metrics in parts.items()
        for metric, value in metrics.items()
    ]
    columns = dict(zip(VALUES.names, zip(*rows, strict=True), strict=True))
    value = np.array(columns.pop("value"))
    return pa.table(columns | {"value": pa.array(value, mask=~np.isfinite(value))}, schema=VALUES)


def digest(results: Sequence[RunResult], summary: Mapping[str, Any]) -> str:
    """SHA-256 of all result tables and the summary, whatever library wrote them."""
    state = sha256()
    for result in results:
        state.update(result.digest.encode())
    state.update(to_json(summary).encode())
    return state.hexdigest()


def digest_tables(tables: Mapping[str, pa.Table]) -> str:
    """SHA-256 of the content of tables, whatever library wrote them."""
    state = sha256()
    for name, table in tables.items():
        state.update(name.encode())
        for column in table.columns:
            for part in _content(_flat(column)):
                state.update(part)
    return state.hexdigest()


def _content(column: pa.Array) -> Iterator[Any]:
    """The values of a column, the same whatever its offset and padding."""
    if column.null_count:
        yield np.packbits(column.is_null().to_numpy(zero_copy_only=False))
    else:
        yield np.zeros((len(column) + 7) // 8, np.uint8)
    if pa.types.is_dictionary(column.type):
        lengths = pc.binary_length(column.dictionary).take(column.indices)
        yield lengths.fill_null(0).to_numpy()
        for begin in range(0, len(column), ROWS):
            yield _letters(column.slice(begin, ROWS).dictionary_decode())
    elif pa.types.is_string(column.type):
        yield pc.binary_length(column).fill_null(0).to_numpy()
        yield _letters(column)
    elif pa.types.is_list(column.type):
        yield pc.list_value_length(column).to_numpy(zero_copy_only=False)
        yield column.flatten().to_numpy()
    else:
        zero = pa.scalar(0).cast(column.type) if column.null_count else None
        filled = column.fill_null(zero) if column.null_count else column
        yield np.ascontiguousarray(filled.to_numpy(zero_copy_only=False))


def _letters(texts: pa.Array) -> Any:
    """All texts in one."""
    inside = (texts.fill_null("") if texts.null_count else texts).cast(pa.binary())
    offsets = np.frombuffer(inside.buffers()[1], dtype=np.int32)
    start, end = (int(offsets[at]) for at in (inside.offset, inside.offset + len(inside)))
    data = inside.buffers()[2]
    return b"" if data is None else data[start:end]


def write(
    folder: Path,
    results: Sequence[RunResult],
    summary: Mapping[str, Any],
    manifest: Mapping[str, Any],
    page: str = "",
) -> None:
    """Write the results folder: beside it first, then renamed; older results there are replaced.

    Args:
        folder: Where.
        results: All runs.
        summary: For `summary.json`.
        manifest: For `manifest.json`.
        page: For `report.html`; none is written if it is empty.

    Raises:
        InputError: If the folder holds anything but results.
    """
    check_folder(folder)
    with replacing(folder.resolve()) as fresh:
        for name, schema in TABLES.items():
            tables = [result.tables[name] for result in results if name in result.tables]
            if not tables:
                continue
            written = _written(schema, tables)
            with pq.ParquetWriter(
                fresh / f"{name}.parquet",
                written,
                compression="zstd",
                use_dictionary=[want.name for want in schema if _repeats(want)],
                store_schema=False,
            ) as file:
                for table in tables:
                    for begin in range(0, len(table), ROWS):
                        file.write_table(table.slice(begin, ROWS).cast(written))
                file.add_key_value_metadata({"ARROW:schema": b64encode(schema.serialize())})
        pq.write_table(metric_values(results), fresh / "metrics.parquet", compression="zstd")
        (fresh / "summary.json").write_text(to_json(summary), encoding="utf-8")
        (fresh / "manifest.json").write_text(to_json(manifest), encoding="utf-8")
        if page:
            (fresh / "report.html").write_text(page, encoding="utf-8", newline="\n")


def _written(schema: pa.Schema, tables: Sequence[pa.Table]) -> pa.Schema:
    """The schema with texts of which there are few by index, as they are in memory.

    Parquet has them by index in any case: so no text is looked up again.
    """
    for at, want in enumerate(schema):
        columns = [table[want.name] for table in tables]
        chunks = [chunk for column in columns for chunk in column.chunks]
        if pa.types.is_dictionary(columns[0].type) and all(
            len(chunk.dictionary) <= FEW for chunk in chunks
        ):
            schema = schema.set(at, want.with_type(columns[0].type))
    return schema


def _repeats(column: pa.Field) -> bool:
    return column in _KEYS or (pa.types.is_string(column.type) and column.name not in UNIQUE)


def check_folder(folder: Path, *, sweep: bool = False) -> None:
    """Refuse a results folder that cannot be made, or would lose something else.

    Args:
        folder: Where results are to be written.
        sweep: Whether they are of a sweep, which takes no run's place, nor does a run take its.

    Raises:
        InputError: If it holds anything but results of that kind, or lies in a file.
    """
    parent = next(parent for parent in folder.resolve().parents if parent.exists())
    if not parent.is_dir():
        raise InputError(f"{parent} is a file: name another folder (--out)")
    if not folder.exists():
        return
    if not folder.is_dir():
        raise InputError(f"{folder} is a file: name another folder (--out)")
    there = {path.name for path in folder.iterdir()}
    strange = sorted(name for name in there - FILES - OF_SWEEPS if not is_leftover(name))
    if strange:
        raise InputError(
            f"{folder} holds {strange[0]!r}, which is no result of wattkeeper: name another "
            "folder (--out)"
        )
    other, kind = ("manifest.json", "run") if sweep else (SWEEP, "sweep")
    if other in there:
        raise InputError(f"{folder} holds the results of a {kind}: name another folder (--out)")


def to_json(content: Mapping[str, Any]) -> str:
    """JSON as result files hold it."""
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
