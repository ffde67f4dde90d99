"""A recorded sweep as a trace of profiles."""

from __future__ import annotations

import platform
import socket
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

import pyarrow as pa

from wattkeeper.live.record.sweep import RecordedRun, Recording, RecordingPlan
from wattkeeper.policies.errors import InputError
from wattkeeper.policies.json_types import Json
from wattkeeper.traces.library import store
from wattkeeper.traces.schema import KINDS, WORKLOADS
from wattkeeper.traces.trace import Trace

FORMAT: Final = "record"
UNKNOWN: Final = "not stated"

Tables = dict[str, list[Json]]


def existing(name: str) -> Trace | None:
    """The recorded trace of that name; None if there is none.

    Raises:
        InputError: If the trace of that name was not recorded here.
    """
    if name not in store.names():
        return None
    trace = store.find(name)
    if trace.kind != "profiles" or trace.format != FORMAT:
        raise InputError(
            f"trace {name!r} is of format {trace.format}, not one that was recorded: name another "
            "one (--name)"
        )
    return trace


def check_new(trace: Trace | None, begun: Mapping[str, Any], replace: bool) -> None:
    """Refuse to replace what a trace holds of a workload, unless that is meant.

    Raises:
        InputError: If it holds the workload on the same GPUs.
    """
    if trace is None or replace:
        return
    mine = (begun["terms"]["job"], begun["gpu_type"], begun["gpus"])
    if any(_key(row) == mine for row in trace.tables["profiles"].to_pylist()):
        raise InputError(
            f"trace {trace.name!r} has {mine[0]!r} on {mine[2]} x {mine[1]} already: replace it "
            "(--replace) or name another one (--name)"
        )


def trace_of(name: str, sweep: RecordingPlan, found: Recording, before: Trace | None) -> Trace:
    """The trace of a sweep, with the other workloads of one that was recorded before.

    Raises:
        InputError: If no batch size fits the memory.
    """
    begun = found.full[0].begun
    mine = (begun["terms"]["job"], begun["gpu_type"], begun["gpus"])
    tables = _tables(found)
    if not tables["profiles"]:
        raise InputError(f"{sweep.script} does not fit the memory at any batch size")
    recordings = [_recording(sweep, found, mine)]
    latencies = [_latencies(found, mine)]
    inputs = {Path(sweep.source() or sweep.script).name: sweep.digest()}
    if before is not None:
        tables = _merged(before, tables, mine)
        held = before.parameters
        recordings = [*(r for r in held["recordings"] if _key(r) != mine), *recordings]
        latencies = [*(r for r in held["latencies"] if _key(r) != mine), *latencies]
        inputs = dict(before.inputs) | inputs
    return Trace(
        name=name,
        kind="profiles",
        tables={n: pa.Table.from_pylist(rows, KINDS["profiles"][n]) for n, rows in tables.items()},
        format=FORMAT,
        origin="recorded",
        source="recorded by wattkeeper on " + ", ".join(sorted({r["host"] for r in recordings})),
        licence=UNKNOWN,
        inputs=inputs,
        notes=tuple(note for row in recordings for note in row["notes"]),
        parameters={"recordings": recordings, "latencies": latencies},
    )


def _key(row: Mapping[str, Any]) -> tuple[str, str, int]:
    return row["workload"], row["gpu_type"], row["gpus"]


def _tables(found: Recording) -> Tables:
    begun = found.full[0].begun
    terms = begun["terms"]
    fitting = [run for run in found.full if run.fits]
    unfit = {run.begun["batch_size"] for run in found.full if not run.fits}
    fitting = [run for run in fitting if run.begun["batch_size"] not in unfit]
    convergence = [
        {
            "workload": terms["job"],
            "batch_size": run.begun["batch_size"],
            "run": run.wanted.recurrence - 1,
            "target": terms["target"],
            "epochs": run.ended["epochs"] if run.ended["cause"] == "reached" else None,
        }
        for run in fitting
    ]
    workload = {key: terms[key] for key in WORKLOADS.names if key in terms}
    names = {"workload": terms["job"], "dataset": UNKNOWN, "network": UNKNOWN,
             "optimizer": UNKNOWN}  # fmt: skip
    return {
        "profiles": list(_profiles(fitting, found.limited)),
        "convergence": convergence,
        "workloads": [names | workload],
    }


def _profiles(full: Sequence[RecordedRun], limited: Sequence[RecordedRun]) -> Iterable[Json]:
    """A point for each batch size and limit.

    What the first epoch of a training takes beyond the others is spread over its epochs, in the
    same proportion at all limits.
    """
    whole: dict[int, list[RecordedRun]] = defaultdict(list)
    for run in full:
        whole[run.begun["batch_size"]].append(run)
    for batch_size, runs in whole.items():
        mean_s, mean_j = _mean(runs)
        later_s, later_j = _later(runs)
        first = runs[0].begun
        limit_w = first["power_limit_w"] if first["allowed"] else first["limit_w"]
        yield _point(first, limit_w, mean_s, mean_j)
        for run in limited:
            if run.begun["batch_size"] == batch_size and run.fits:
                time_s, energy_j = _later([run])
                known = mean_j and later_j and energy_j
                yield _point(
                    run.begun,
                    run.begun["power_limit_w"],
                    mean_s * time_s / later_s,
                    mean_j * energy_j / later_j if known else None,  # type: ignore[operator]
                )


def _point(
    begun: Mapping[str, Any], limit_w: float | None, time_s: float, energy_j: float | None
) -> Json:
    return {
        "workload": begun["terms"]["job"],
        "gpu_type": begun["gpu_type"],
        "gpus": begun["gpus"],
        "batch_size": begun["batch_size"],
        "power_limit_w": limit_w,
        "time_per_epoch_s": time_s,
        "average_power_w": None if energy_j is None else energy_j / time_s,
    }


def _epochs(run: RecordedRun) -> list[tuple[float, float | None]]:
    """Seconds of each epoch, without reporting the one before it, and joules."""
    before_s, before_j = run.wanted.time_done_s, run.wanted.energy_done_j or 0.0
    found = []
    for row in run.epochs:
        energy_j = None if row["energy_j"] is None else row["energy_j"] - before_j
        found.append((row["time_s"] - before_s - row["report_s"], energy_j))
        before_s, before_j = row["time_s"], row["energy_j"] or 0.0
    return found


def _mean(runs: Sequence[RecordedRun]) -> tuple[float, float | None]:
    """Mean seconds and joules of an epoch."""
    return _averaged([epoch for run in runs for epoch in _epochs(run)])


def _later(runs: Sequence[RecordedRun]) -> tuple[float, float | None]:
    """The same without the first epochs, where there are others."""
    later = [epoch for run in runs for epoch in _epochs(run)[1:]]
    return _averaged(later) if later else _mean(runs)


def _averaged(epochs: Sequence[tuple[float, float | None]]) -> tuple[float, float | None]:
    energies = [energy_j for _, energy_j in epochs if energy_j is not None]
    whole = len(energies) == len(epochs)
    return fmean(time_s for time_s, _ in epochs), fmean(energies) if whole else None


def _latencies(found: Recording, mine: tuple[str, str, int]) -> Json:
    """Medians over the runs, s; None where nothing could be measured."""
    stopped, *going_on = found.stopped
    ran = [run for run in (*found.full, *found.limited) if run.fits]
    kept = bool(going_on) and stopped.ended["cause"] == "stopped"
    return dict(zip(("workload", "gpu_type", "gpus"), mine, strict=True)) | {
        "start_s": median(_started_s(run) for run in ran),
        "stop_s": median(run.exited_s - run.epochs[-1]["at_s"] for run in ran),
        "report_s": median(run.ended["report_s"] for run in ran),
        "settle_s": found.settle_s,
        "checkpoint_s": stopped.exited_s - stopped.epochs[-1]["at_s"] if kept else None,
        "restore_s": _started_s(going_on[0]) if going_on else None,
    }


def _started_s(run: RecordedRun) -> float:
    """From the start of its process to its first step."""
    first = run.epochs[0]
    return float(first["at_s"] - (first["time_s"] - run.wanted.time_done_s) - run.spawned_s)


def _recording(sweep: RecordingPlan, found: Recording, mine: tuple[str, str, int]) -> Json:
    """Where and how it was recorded, and every run."""
    first = found.full[0].begun
    runs = [*found.full, *found.limited]
    return dict(zip(("workload", "gpu_type", "gpus"), mine, strict=True)) | {
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": first["versions"] | {"wattkeeper": version("wattkeeper")},
        "energy": first["how"],
        "power_limits": "set" if first["allowed"] else f"not set: {first['why']}",
        "script": sweep.script,
        "arguments": list(sweep.arguments),
        "notes": list(_notes(found, mine[0])),
        "runs": [
            {
                "batch_size": run.begun["batch_size"],
                "power_limit_w": run.begun["power_limit_w"],
                "recurrence": run.wanted.recurrence,
                "cause": run.ended["cause"],
                "epoch_s": [time_s for time_s, _ in _epochs(run)],
                "epoch_j": [energy_j for _, energy_j in _epochs(run)],
            }
            for run in runs
        ],
    }


def _notes(found: Recording, workload: str) -> Iterable[str]:
    first = found.full[0].begun
    if first["how"] == "absent":
        yield f"{workload}: nothing measured energy, so its power is absent"
    elif first["how"] == "integrated":
        yield f"{workload}: energy is the integral of power that was read again and again"
    elif first["how"] == "synthetic":
        yield f"{workload}: nobody measured power and energy: they are a synthetic device's"
    if not first["allowed"]:
        yield f"{workload}: power limits were left as they are: {first['why']}"
    if len(found.stopped) < 2:
        yield f"{workload}: its script keeps no state (Session.keep): a stop starts it over"
    for size in sorted({run.begun["batch_size"] for run in found.full if not run.fits}):
        yield f"{workload}: batch size {size} does not fit the memory"


def _merged(before: Trace, tables: Tables, mine: tuple[str, str, int]) -> Tables:
    """Rows of a trace, those of one workload on the same GPUs replaced.

    How many epochs a batch size needs does not depend on the GPU: runs of the same batch size are
    replaced whatever they were recorded on, others stay if their target is the same.
    """
    old: Tables = {name: table.to_pylist() for name, table in before.tables.items()}
    new = {row["batch_size"] for row in tables["convergence"]}
    target = tables["workloads"][0]["target"]

    def stays(row: Json) -> bool:
        return row["workload"] != mine[0] or (
            row["target"] == target and row["batch_size"] not in new
        )

    return {
        "profiles": [row for row in old["profiles"] if _key(row) != mine] + tables["profiles"],
        "convergence": [r for r in old["convergence"] if stays(r)] + tables["convergence"],
        "workloads": [r for r in old["workloads"] if r["workload"] != mine[0]]
        + tables["workloads"],
    }
