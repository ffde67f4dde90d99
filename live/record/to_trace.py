"""Converts a recorded sweep to a trace of profiles."""

import platform
import socket
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import fmean, median
from typing import Final, NamedTuple

import pyarrow as pa

from wattkeeper.live.record.sweep import Recording, RecordingPlan, ScriptRun
from wattkeeper.policies.errors import InputError
from wattkeeper.policies.json_types import Json
from wattkeeper.traces.library import store
from wattkeeper.traces.schema import KINDS, WORKLOADS
from wattkeeper.traces.trace import Trace

FORMAT: Final = "record"
UNKNOWN: Final = "not stated"

Tables = dict[str, list[Json]]

EpochUsage = tuple[float, float | None]
"""Seconds and joules of an epoch; None where nothing measured energy."""


class _ProfileKey(NamedTuple):
    """A workload on a number of GPUs of one type."""

    workload: str
    gpu_type: str
    gpus: int


def find_recorded(name: str) -> Trace | None:
    """The recorded trace of that name; None if there is none.

    Raises:
        InputError: If the trace of that name is no recorded one.
    """
    if name not in store.names():
        return None
    trace = store.find(name)
    if trace.kind != "profiles" or trace.format != FORMAT:
        raise InputError(
            f"trace {name!r} is of format {trace.format}, not a recorded one: choose another name "
            "(--name)"
        )
    return trace


def check_new(trace: Trace | None, begun: Json, replace: bool) -> None:
    """Refuse to replace a workload of a trace without `--replace`.

    Raises:
        InputError: If the trace has the workload on the same GPUs.
    """
    if trace is None or replace:
        return
    key = _key_of(begun)
    if any(_key(row) == key for row in trace.tables["profiles"].to_pylist()):
        raise InputError(
            f"trace {trace.name!r} has {key.workload!r} on {key.gpus} x {key.gpu_type} already: "
            "replace it (--replace) or choose another name (--name)"
        )


def build_trace(
    name: str, plan: RecordingPlan, recording: Recording, before: Trace | None
) -> Trace:
    """The trace of a sweep, with the other workloads of an existing recorded trace.

    Raises:
        InputError: If no batch size fits into memory.
    """
    key = _key_of(recording.full[0].begun)
    tables = _tables(recording)
    if not tables["profiles"]:
        raise InputError(f"{plan.script} does not fit into memory at any batch size")
    recordings = [_describe_recording(plan, recording, key)]
    latencies = [_latencies(recording, key)]
    inputs = {Path(plan.source() or plan.script).name: plan.digest()}
    if before is not None:
        tables = _merge(before, tables, key)
        old = before.parameters
        recordings = [*(r for r in old["recordings"] if _key(r) != key), *recordings]
        latencies = [*(r for r in old["latencies"] if _key(r) != key), *latencies]
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


def _key(row: Json) -> _ProfileKey:
    return _ProfileKey(row["workload"], row["gpu_type"], row["gpus"])


def _key_of(begun: Json) -> _ProfileKey:
    return _ProfileKey(begun["terms"]["job"], begun["gpu_type"], begun["gpus"])


def _tables(recording: Recording) -> Tables:
    begun = recording.full[0].begun
    terms = begun["terms"]
    fitting = [run for run in recording.full if run.fits]
    unfit = {run.begun["batch_size"] for run in recording.full if not run.fits}
    fitting = [run for run in fitting if run.begun["batch_size"] not in unfit]
    convergence = [
        {
            "workload": terms["job"],
            "batch_size": run.begun["batch_size"],
            "run": run.request.recurrence - 1,
            "target": terms["target"],
            "epochs": run.ended["epochs"] if run.ended["cause"] == "reached" else None,
        }
        for run in fitting
    ]
    workload = {key: terms[key] for key in WORKLOADS.names if key in terms}
    names = {"workload": terms["job"], "dataset": UNKNOWN, "network": UNKNOWN, "optimizer": UNKNOWN}
    return {
        "profiles": list(_profiles(fitting, recording.limited)),
        "convergence": convergence,
        "workloads": [names | workload],
    }


def _profiles(full: Sequence[ScriptRun], limited: Sequence[ScriptRun]) -> Iterable[Json]:
    """Rows of profiles, one for each batch size and power limit.

    The extra time and energy of a training's first epoch are spread over its epochs, in the same
    proportion at all limits.
    """
    runs_by_size: dict[int, list[ScriptRun]] = defaultdict(list)
    for run in full:
        runs_by_size[run.begun["batch_size"]].append(run)
    for batch_size, runs in runs_by_size.items():
        mean_s, mean_j = _mean([epoch for run in runs for epoch in _epochs(run)])
        later_s, later_j = _mean_later_epoch(runs)
        first = runs[0].begun
        limit_w = first["power_limit_w"] if first["allowed"] else first["limit_w"]
        yield _profile_row(first, limit_w, mean_s, mean_j)
        for run in limited:
            if run.begun["batch_size"] == batch_size and run.fits:
                time_s, energy_j = _mean_later_epoch([run])
                yield _profile_row(
                    run.begun,
                    run.begun["power_limit_w"],
                    mean_s * time_s / later_s,
                    mean_j * energy_j / later_j if mean_j and later_j and energy_j else None,
                )


def _profile_row(begun: Json, limit_w: float | None, time_s: float, energy_j: float | None) -> Json:
    return {
        "workload": begun["terms"]["job"],
        "gpu_type": begun["gpu_type"],
        "gpus": begun["gpus"],
        "batch_size": begun["batch_size"],
        "power_limit_w": limit_w,
        "time_per_epoch_s": time_s,
        "average_power_w": None if energy_j is None else energy_j / time_s,
    }


def _epochs(run: ScriptRun) -> list[EpochUsage]:
    """Usage of each epoch; the time to report the epoch before is left out."""
    before_s, before_j = run.request.time_done_s, run.request.energy_done_j or 0.0
    epochs = []
    for row in run.epochs:
        energy_j = None if row["energy_j"] is None else row["energy_j"] - before_j
        epochs.append((row["time_s"] - before_s - row["report_s"], energy_j))
        before_s, before_j = row["time_s"], row["energy_j"] or 0.0
    return epochs


def _mean_later_epoch(runs: Sequence[ScriptRun]) -> EpochUsage:
    """The mean without first epochs, where there are others."""
    later = [epoch for run in runs for epoch in _epochs(run)[1:]]
    return _mean(later or [epoch for run in runs for epoch in _epochs(run)])


def _mean(epochs: Sequence[EpochUsage]) -> EpochUsage:
    energies = [energy_j for _, energy_j in epochs if energy_j is not None]
    is_measured = len(energies) == len(epochs)
    return fmean(time_s for time_s, _ in epochs), fmean(energies) if is_measured else None


def _latencies(recording: Recording, key: _ProfileKey) -> Json:
    """Median latencies of the runs, s; None where nothing could be measured."""
    stopped, *resumed = recording.stopped
    fitting = [run for run in (*recording.full, *recording.limited) if run.fits]
    is_saved = bool(resumed) and stopped.ended["cause"] == "stopped"
    return key._asdict() | {
        "start_s": median(_startup_s(run) for run in fitting),
        "stop_s": median(run.exited_s - run.epochs[-1]["at_s"] for run in fitting),
        "report_s": median(run.ended["report_s"] for run in fitting),
        "settle_s": recording.settle_s,
        "checkpoint_s": stopped.exited_s - stopped.epochs[-1]["at_s"] if is_saved else None,
        "restore_s": _startup_s(resumed[0]) if resumed else None,
    }


def _startup_s(run: ScriptRun) -> float:
    """Time from the start of its process to its first step, s."""
    first = run.epochs[0]
    return float(first["at_s"] - (first["time_s"] - run.request.time_done_s) - run.spawned_s)


def _describe_recording(plan: RecordingPlan, recording: Recording, key: _ProfileKey) -> Json:
    """The host, versions and measurement of a recording, and all its runs."""
    first = recording.full[0].begun
    runs = [*recording.full, *recording.limited]
    return key._asdict() | {
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": first["versions"] | {"wattkeeper": version("wattkeeper")},
        "energy": first["how"],
        "power_limits": "set" if first["allowed"] else f"not set: {first['why']}",
        "script": plan.script,
        "arguments": list(plan.arguments),
        "notes": list(_notes(recording, key.workload)),
        "runs": [
            {
                "batch_size": run.begun["batch_size"],
                "power_limit_w": run.begun["power_limit_w"],
                "recurrence": run.request.recurrence,
                "cause": run.ended["cause"],
                "epoch_s": [time_s for time_s, _ in _epochs(run)],
                "epoch_j": [energy_j for _, energy_j in _epochs(run)],
            }
            for run in runs
        ],
    }


def _notes(recording: Recording, workload: str) -> Iterable[str]:
    first = recording.full[0].begun
    if first["how"] == "absent":
        yield f"{workload}: nothing measured energy, so its power is absent"
    elif first["how"] == "integrated":
        yield f"{workload}: energy is the integral of sampled power"
    elif first["how"] == "synthetic":
        yield f"{workload}: power and energy are those of a synthetic device, not measured"
    if not first["allowed"]:
        yield f"{workload}: power limits were not changed: {first['why']}"
    if len(recording.stopped) < 2:
        yield f"{workload}: its script keeps no state (Session.keep): stopped runs start again"
    for size in sorted({run.begun["batch_size"] for run in recording.full if not run.fits}):
        yield f"{workload}: batch size {size} does not fit into memory"


def _merge(before: Trace, tables: Tables, key: _ProfileKey) -> Tables:
    """Rows of a trace, with those of one workload on the same GPUs replaced.

    The number of epochs does not depend on the GPU: runs of the same batch size are replaced
    whatever GPUs they were recorded on; others stay if their target is the same.
    """
    old: Tables = {name: table.to_pylist() for name, table in before.tables.items()}
    new = {row["batch_size"] for row in tables["convergence"]}
    target = tables["workloads"][0]["target"]

    def is_valid(row: Json) -> bool:
        return row["workload"] != key.workload or (
            row["target"] == target and row["batch_size"] not in new
        )

    return {
        "profiles": [row for row in old["profiles"] if _key(row) != key] + tables["profiles"],
        "convergence": [r for r in old["convergence"] if is_valid(r)] + tables["convergence"],
        "workloads": [r for r in old["workloads"] if r["workload"] != key.workload]
        + tables["workloads"],
    }
