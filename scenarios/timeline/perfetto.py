"""A run as a trace for Perfetto and chrome://tracing: jobs on GPUs, decisions, counters.

Trace Event Format (Google, JSON Object Format): times are in microseconds from the first event, to
the nanosecond.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from gzip import GzipFile
from io import TextIOWrapper
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.errors import InputError
from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.timeline.lanes import GpuHold, Lane, assign_lanes
from wattkeeper.scenarios.timeline.run_tables import read_holds, read_run, to_ns
from wattkeeper.traces.files.atomic import replace_file

MOST_JOBS: Final = 100_000
"""Jobs of one timeline; browsers open no more."""

MOST_SLICES: Final = 2_000_000

CLUSTER: Final = 1
"""Process id of the cluster; 0 has another meaning to viewers."""

COUNTERS: Final = {"power_w": "W", "gpus_busy": "GPUs", "jobs_waiting": "jobs"}
"""Columns of `timeline.parquet` and their units."""

ARGUMENTS: Final = {
    "job": "job_id",
    "group": "group_id",
    "recurrence": "recurrence",
    "attempt": "attempt",
    "workload": "workload",
    "gpus": "gpus",
    "gpu_milli": "gpu_milli",
    "batch_size": "batch_size",
    "power_limit_w": "power_limit_w",
    "clock_mhz": "clock_mhz",
    "attempt_energy_j": "energy_j",
}
"""Arguments of a slice, and their columns of `jobs.parquet`."""

KNOBS: Final = ("power_limit_w", "clock_mhz")
"""Arguments that are the last ones of an attempt."""

JOBS: Final = (
    *ARGUMENTS.values(),
    "gpu_type",
    "start_time_s",
    "finish_time_s",
    "reached_target",
    "early_stopped",
    "retunes",
)

DECISIONS: Final = ("time_s", "point", "policy", "job_id", "attempt", "chose")

WriteEvent = Callable[[str], object]


class EventCounts(NamedTuple):
    """Numbers of jobs, slices and decisions in a trace."""

    jobs: int
    slices: int
    decisions: int


def write_trace(study: Study, variant: str, seed: int, path: Path) -> EventCounts:
    """Write the timeline of a run atomically, compressed if its name ends in ``.gz``.

    Raises:
        InputError: If there is no such run, it is too large for a browser, or its tables are
            inconsistent.
        EnvironmentLacks: If the file cannot be written.
    """
    attempts, decisions, line = (
        read_run(study, name, columns, variant, seed)
        for name, columns in (
            ("jobs", JOBS),
            ("decisions", DECISIONS),
            ("timeline", ("time_s", *COUNTERS)),
        )
    )
    jobs = pc.count_distinct(attempts["job_id"]).as_py()
    if jobs > MOST_JOBS:
        raise InputError(
            f"{variant} with seed {seed} has {jobs:,} jobs, a timeline at most {MOST_JOBS:,}, the "
            "limit of browsers: run the scenario on fewer, or read jobs.parquet and "
            "decisions.parquet"
        )
    if not jobs:
        raise InputError(f"{variant} with seed {seed} has no jobs: there is nothing to show")
    zero_s = min(pc.min(table["time_s"]).as_py() for table in (line, decisions) if len(table))
    try:
        holds = read_holds(study, attempts, decisions, zero_s)
        lanes = assign_lanes(holds)
        if sum(map(len, lanes)) > MOST_SLICES:
            raise InputError(
                f"{variant} with seed {seed} has more than {MOST_SLICES:,} slices, one for each GPU"
                " of a job, which no browser can show: run the scenario on fewer jobs"
            )
        with _open_trace(path, _describe(study, variant, seed, zero_s)) as write_event:
            tids = _name_tracks(write_event, holds, lanes, attempts, decisions)
            slices = _write_slices(write_event, holds, lanes, attempts, zero_s, tids)
            _write_decisions(write_event, decisions, zero_s, tids)
            _write_counters(write_event, line, zero_s)
            return EventCounts(jobs, slices, len(decisions))
    except LookupError as error:
        raise InputError(
            f"jobs and decisions of {variant} with seed {seed} do not fit together ({error} is "
            "in one of them only): run the scenario again"
        ) from None


def _describe(study: Study, variant: str, seed: int, zero_s: float) -> dict[str, Any]:
    manifest = study.manifest
    return {
        "scenario": manifest["scenario"]["name"],
        "variant": variant,
        "seed": seed,
        "backend": manifest.get("backend"),
        "results_digest": manifest.get("results_digest"),
        "time_zero_s": zero_s,
    }


@contextmanager
def _open_trace(path: Path, about: Mapping[str, Any]) -> Iterator[WriteEvent]:
    """Open a trace; yields a function that writes an event, given as JSON without its braces."""
    with (
        replace_file(path) as fresh,
        fresh.open("wb") as file,
        # without name and time, so that equal traces are equal bytes
        GzipFile("", "wb", 6, file, 0) if path.suffix == ".gz" else file as content,
        TextIOWrapper(content, "utf-8", newline="\n") as out,
    ):
        openings = chain(('{"traceEvents":[\n{',), repeat(",\n{"))
        yield lambda members: out.write(f"{next(openings)}{members}}}")
        other = json.dumps(about, ensure_ascii=False)
        out.write(f'\n],\n"displayTimeUnit":"ms",\n"otherData":{other}}}\n')


def _us(ns: int) -> str:
    whole, rest = divmod(ns, 1000)
    return f"{whole}.{rest:03}" if rest else str(whole)


def _name_tracks(
    write_event: WriteEvent,
    holds: list[GpuHold],
    lanes: list[tuple[Lane, ...]],
    attempts: pa.Table,
    decisions: pa.Table,
) -> dict[Lane | str, int]:
    """Name the tracks of nodes, GPUs and decision points.

    Returns:
        The thread id of each lane and decision point, unique over all nodes, since viewers look
        threads up by it.
    """
    gpu_types = dict(
        zip(attempts["job_id"].to_pylist(), attempts["gpu_type"].to_pylist(), strict=True)
    )
    types = {node: gpu_types[hold.job] for hold in holds for node, *_ in hold.slots}
    _name_track(write_event, "process", CLUSTER, CLUSTER, "cluster")
    for node, gpu_type in sorted(types.items()):
        _name_track(write_event, "process", _pid(node), _pid(node), f"node {node} ({gpu_type})")
    points = sorted(pc.unique(decisions["point"]).to_pylist())
    keys: list[Lane | str] = [*points, *sorted({lane for own in lanes for lane in own})]
    tids = {key: tid for tid, key in enumerate(keys, _pid(max(types)) + 1)}
    for key, tid in tids.items():
        if isinstance(key, str):
            _name_track(write_event, "thread", CLUSTER, tid, key)
        else:
            node, gpu, part = key
            shared = f", part {part + 1}" * bool(part)
            _name_track(write_event, "thread", _pid(node), tid, f"GPU {gpu}{shared}")
    return tids


def _pid(node: int) -> int:
    return node + CLUSTER + 1


def _name_track(write_event: WriteEvent, what: str, pid: int, tid: int, name: str) -> None:
    """Name a process or a thread, and order it by its number."""
    start = f'"ph":"M","pid":{pid},"tid":{tid},"name":"{what}_'
    write_event(f'{start}name","args":{{"name":{_json(name)}}}')
    write_event(f'{start}sort_index","args":{{"sort_index":{tid}}}')


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _write_slices(
    write_event: WriteEvent,
    holds: list[GpuHold],
    lanes: list[tuple[Lane, ...]],
    attempts: pa.Table,
    zero_s: float,
    tids: Mapping[Lane | str, int],
) -> int:
    """Write a slice for each attempt and each GPU that it held, between preemptions and pauses."""
    begins, ends = (to_ns(attempts[name], zero_s) for name in ("start_time_s", "finish_time_s"))
    rows = {
        (row[0]["job_id"], row[0]["attempt"]): row
        for row in zip(attempts.to_pylist(), begins, ends, strict=True)
    }
    slices = 0
    for hold, own in zip(holds, lanes, strict=True):
        for number in range(hold.first, hold.last + 1):
            attempt, begin, end = rows[hold.job, number]
            begin = hold.begin if number == hold.first else begin
            end = hold.end if number == hold.last else end
            arguments = _format_arguments(attempt, hold.cut if number == hold.last else "")
            members = (
                f'"ph":"X","ts":{_us(begin)},"dur":{_us(end - begin)},'
                f'"name":{_json(hold.job)},"cat":"job","args":{arguments}'
            )
            for lane in own:
                write_event(f'"pid":{_pid(lane[0])},"tid":{tids[lane]},{members}')
            slices += len(own)
    return slices


def _format_arguments(attempt: Json, cut: str) -> str:
    """The arguments of an attempt's slices, as JSON; `cut`: what ended them before its end."""
    values = {name: attempt[column] for name, column in ARGUMENTS.items()}
    outcome = cut or (
        "done"
        if attempt["reached_target"]
        else "stopped early"
        if attempt["early_stopped"]
        else "failed"
    )
    if attempt["retunes"]:
        values = {f"last_{key}" if key in KNOBS else key: value for key, value in values.items()}
    return _json({name: v for name, v in values.items() if v is not None} | {"outcome": outcome})


def _write_decisions(
    write_event: WriteEvent, decisions: pa.Table, zero_s: float, tids: Mapping[Lane | str, int]
) -> None:
    """Write an instant for each decision; those of `select` and preemptions name their choice."""
    times = to_ns(decisions["time_s"], zero_s)
    columns = (decisions[name].to_pylist() for name in DECISIONS[1:])
    for ns, point, policy, job, attempt, chose in zip(times, *columns, strict=True):
        name = chose if point == "select" or chose == "preempt" else point
        write_event(
            f'"pid":{CLUSTER},"tid":{tids[point]},"ph":"i","s":"t","ts":{_us(ns)},'
            f'"name":{_json(name)},"cat":"decision","args":{{"job":{_json(job)},'
            f'"attempt":{attempt},"policy":{_json(policy)},"chose":{_json(chose)}}}'
        )


def _write_counters(write_event: WriteEvent, line: pa.Table, zero_s: float) -> None:
    """Write the timeline where it changes, without columns that were not measured."""
    times = to_ns(line["time_s"], zero_s)
    for name, unit in COUNTERS.items():
        if line[name].null_count:
            continue
        values = line[name].to_numpy()
        changed = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
        for row, value in zip(changed.tolist(), values[changed].tolist(), strict=True):
            write_event(
                f'"pid":{CLUSTER},"tid":{CLUSTER},"ph":"C","ts":{_us(times[row])},'
                f'"name":"{name}","args":{{"{unit}":{value!r}}}'
            )
