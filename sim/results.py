"""What a run leaves behind: its tables, their schemas, and the folder that holds them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from wattkeeper.policies.errors import InputError
from wattkeeper.sim.cluster import ClusterSpec
from wattkeeper.sim.metrics import (
    COSTS,
    NOT_COMPARED,
    job_metrics,
    jobs_of,
    over_seeds,
    run_metrics,
    versus,
)
from wattkeeper.sim.recorder import AttemptRow, DecisionRow, Recorder
from wattkeeper.sim.timeline import timeline
from wattkeeper.traces.replacing import replacing
from wattkeeper.traces.schema import field

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
        field("workload", pa.string(), "", "what is trained"),
        field("gpu_type", pa.string(), "", "type of the GPUs"),
        field("gpus", pa.int32(), "", "GPUs held"),
        field("node_ids", pa.list_(pa.int32()), "", "nodes that hold them"),
        field("time_scale", pa.float64(), "", "its run time over the mean of its workload"),
        field("submit_time_s", pa.float64(), "s", "submission of the job"),
        field("start_time_s", pa.float64(), "s", "start of the attempt"),
        field("finish_time_s", pa.float64(), "s", "end of the attempt"),
        field("batch_size", pa.int64(), "", "global batch size"),
        field("power_limit_w", pa.float64(), "W", "power limit of each GPU"),
        field("epochs", pa.int64(), "", "epochs done; 0: it never ran"),
        field("energy_j", pa.float64(), "J", "energy of the attempt"),
        field("time_s", pa.float64(), "s", "training time of the attempt"),
        field("cost", pa.float64(), "J", "eta * energy + (1 - eta) * largest power limit * time"),
        field("reached_target", pa.bool_(), "", "whether the target was reached"),
        field("early_stopped", pa.bool_(), "", "whether the cost bound ended it"),
        field("profiled", pa.bool_(), "", "whether power limits were profiled in it"),
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
        field("saw", pa.string(), "", "digest of what the policy was shown (BLAKE2b, 64 bits)"),
        field("chose", pa.string(), "", "what it chose"),
    ]
)

TIMELINE = pa.schema(
    [
        *_KEYS,
        field("time_s", pa.float64(), "s", "change point; values hold until the next one"),
        field("power_w", pa.float64(), "W", "power of jobs and idle GPUs"),
        field("gpus_busy", pa.int64(), "", "GPUs that jobs hold"),
        field("jobs_waiting", pa.int64(), "", "jobs that wait for GPUs"),
    ]
)

TABLES = {"jobs": JOBS, "decisions": DECISIONS, "timeline": TIMELINE}
FILES = {*(f"{name}.parquet" for name in TABLES), "summary.json", "manifest.json"}


@dataclass(frozen=True, slots=True)
class RunResult:
    """One variant with one seed.

    Attributes:
        variant: Its name.
        seed: The seed.
        tables: By name, in the schemas of `TABLES`.
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
    cluster: ClusterSpec,
    optima: Mapping[tuple[str, int], float],
    events: int,
) -> RunResult:
    """Turn what was recorded into tables and metrics.

    Args:
        variant: Name of the variant.
        seed: Seed of the run.
        recorder: What happened.
        cluster: Where.
        optima: Smallest expected cost (J) by workload and number of GPUs.
        events: How many events the simulator handled.
    """
    line = timeline(recorder, cluster)
    columns = {
        "jobs": _columns(AttemptRow._fields, recorder.attempts),
        "decisions": _columns(DecisionRow._fields, recorder.decisions),
        "timeline": line._asdict(),
    }
    tables = {}
    for name, schema in TABLES.items():
        rows = len(columns[name]["time_s"])
        keys = {"variant": [variant] * rows, "seed": np.full(rows, seed)}
        tables[name] = pa.table({**keys, **columns[name]}, schema=schema)
    jobs = jobs_of(columns["jobs"], optima)
    by = {
        key: {name: job_metrics(jobs.only(parts == name)) for name in np.unique(parts).tolist()}
        for key, parts in (("workload", jobs.workload), ("gpu_type", jobs.gpu_type))
    }
    metrics = run_metrics(jobs, line, cluster)
    return RunResult(variant, seed, tables, metrics, by, events, digest_tables(tables))


def _columns(fields: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    return dict(zip(fields, zip(*rows, strict=True), strict=True))


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
        compared = COSTS if etas[variant] != etas[baseline] else set()
        return {"baseline": baseline} | {
            name: NOT_COMPARED if name in compared else versus(seen, all_[baseline][name])
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
        for column in table.combine_chunks().columns:
            state.update(_content(column.chunk(0) if column.num_chunks else column))
    return state.hexdigest()


def _content(column: Any) -> bytes:
    if pa.types.is_string(column.type):
        encoded = column.dictionary_encode()
        words = json.dumps(encoded.dictionary.to_pylist()).encode()
        return words + bytes(encoded.indices.fill_null(-1).to_numpy().tobytes())
    if pa.types.is_list(column.type):
        return json.dumps(column.to_pylist()).encode()
    return bytes(column.to_numpy(zero_copy_only=False).tobytes())


def write(
    folder: Path,
    results: Sequence[RunResult],
    summary: Mapping[str, Any],
    manifest: Mapping[str, Any],
) -> None:
    """Write the results folder: beside it first, then renamed; older results there are replaced.

    Raises:
        InputError: If the folder holds anything but results.
    """
    check_folder(folder)
    with replacing(folder.resolve()) as fresh:
        for name, schema in TABLES.items():
            table = pa.concat_tables([result.tables[name] for result in results])
            pq.write_table(table.cast(schema), fresh / f"{name}.parquet", compression="zstd")
        (fresh / "summary.json").write_text(to_json(summary), encoding="utf-8")
        (fresh / "manifest.json").write_text(to_json(manifest), encoding="utf-8")


def check_folder(folder: Path) -> None:
    """Refuse a results folder that cannot be made, or would lose something else.

    Raises:
        InputError: If it holds anything but results, or lies in a file.
    """
    parent = next(parent for parent in folder.resolve().parents if parent.exists())
    if not parent.is_dir():
        raise InputError(f"{parent} is a file: name another folder (--out)")
    if not folder.exists():
        return
    if not folder.is_dir():
        raise InputError(f"{folder} is a file: name another folder (--out)")
    strange = sorted({path.name for path in folder.iterdir()} - FILES)
    if strange:
        raise InputError(
            f"{folder} holds {strange[0]!r}, which is no result of wattkeeper: name another "
            "folder (--out)"
        )


def to_json(content: Mapping[str, Any]) -> str:
    """JSON as result files hold it."""
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
