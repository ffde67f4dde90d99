"""Random jobs of Slurm clusters, and the records that sacct has of them, as text and as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import strategies as st

ORIGIN_S = 1_709_287_200  # 2024-03-01 10:00:00 UTC
DAY_S = 86_400
COLUMNS = (
    "JobID",
    "Cluster",
    "User",
    "Account",
    "QOS",
    "Partition",
    "Submit",
    "Eligible",
    "Start",
    "End",
    "ElapsedRaw",
    "TimelimitRaw",
    "State",
    "AllocTRES",
    "ReqTRES",
    "NNodes",
    "ConsumedEnergyRaw",
)
KINDS = ("plain", "plain", "requeued", "resized", "array", "het")
SLICES = {"a100_1g.5gb": 143, "3g.20gb": 429, "a30_2g.12gb": 500, "a100": 1000, "": 1000}
"""Thousandths of a GPU by type."""


class Truth(NamedTuple):
    """What a job did; times since `ORIGIN_S`."""

    user: str
    arrival_s: int
    start_s: int
    run_s: int
    gpu_milli_s: int
    resized: bool
    tries: int


@dataclass
class Log:
    """Jobs, and for each its records in the order of sacct."""

    jobs: list[Truth] = field(default_factory=list)
    records: list[list[dict[str, Any]]] = field(default_factory=list)


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """Jobs of one or two clusters, some with the number of an earlier one."""
    log = Log()
    clusters = draw(st.sampled_from([("alpha",), ("alpha", "beta")]))
    number, now_s = 100, 0
    used: list[tuple[int, str, str]] = []
    for _ in range(draw(st.integers(1, 8))):
        cluster = draw(st.sampled_from(clusters))
        user, kind = draw(st.sampled_from("ab")), draw(st.sampled_from(KINDS))
        if bool(used) and draw(st.booleans()):
            again, _, kind = draw(st.sampled_from(used))
            if any((again, cluster) == each[:2] for each in used):
                now_s += draw(st.sampled_from([2 * 3600, 40 * DAY_S]))
        else:
            again = number = number + 1
        used.append((again, cluster, kind))
        now_s = _add_job(draw, log, again, cluster, user, kind, now_s)
    order = draw(st.permutations(range(len(log.records))))
    log.records = [log.records[n] for n in order]
    return log


def _add_job(
    draw: st.DrawFn, log: Log, number: int, cluster: str, user: str, kind: str, now_s: int
) -> int:
    spans = st.integers(1, 3 * DAY_S)
    gpu_type = draw(st.sampled_from(sorted(SLICES)))
    common = {
        "Cluster": cluster,
        "User": user,
        "Account": "lab",
        "QOS": "normal",
        "Partition": "gpu",
        "TimelimitRaw": draw(st.integers(1, 40_000)),
        "NNodes": 1,
        "steps": draw(st.booleans()),
    }
    name = {"array": f"{number}_3", "het": f"{number}+0"}.get(kind, str(number))
    submit_s = now_s + draw(st.integers(0, 7200))
    eligible_s = submit_s + draw(st.sampled_from([0, 0, 60, 2 * DAY_S]))
    arrival_s = eligible_s
    tries = draw(st.integers(2, 3)) if kind == "requeued" else 1
    start_s = end_s = 0
    parts: list[tuple[int, int]] = []
    for attempt in range(tries):
        start_s = at_s = eligible_s + draw(st.integers(0, DAY_S))
        parts = []
        sizes = draw(st.lists(st.integers(1, 8), min_size=2, max_size=3))
        for size in sizes if kind == "resized" else sizes[:1]:
            run_s = draw(spans)
            parts.append((size, run_s))
            end_s = at_s + run_s
            state = "COMPLETED" if attempt == tries - 1 else "PREEMPTED"
            if kind == "resized" and len(parts) < len(sizes):
                state = "RESIZING"
            record = {
                **common,
                "JobID": name,
                "Submit": submit_s,
                "Eligible": eligible_s,
                "Start": at_s,
                "End": end_s,
                "ElapsedRaw": run_s,
                "State": state,
                "gpus": size,
                "type": gpu_type,
            }
            log.records.append([record])
            at_s = end_s
            if draw(st.booleans()) and kind == "resized":
                submit_s = eligible_s = end_s  # as newer records of a resized job have it
        submit_s = end_s + draw(st.integers(0, 300))
        eligible_s = submit_s + draw(st.sampled_from([0, 121, DAY_S]))
    if kind == "het":
        log.records[-1].append({**log.records[-1][0], "JobID": f"{number}+1"})
    held = sum(size * run_s for size, run_s in parts) * (2 if kind == "het" else 1)
    run_s = sum(run_s for _, run_s in parts)
    milli_s = held * SLICES[gpu_type]
    log.jobs.append(Truth(user, arrival_s, start_s, run_s, milli_s, len(parts) > 1, tries))
    return end_s


def _resources(record: dict[str, Any]) -> list[tuple[str, str, int]]:
    listed = [("cpu", "", 4), ("gres", "gpu", record["gpus"]), ("node", "", 1)]
    if record["type"]:
        listed.append(("gres", f"gpu:{record['type']}", record["gpus"]))
    return listed


def write_text(log: Log, path: Path, *, dates: bool) -> Path:
    """As ``sacct --parsable2`` writes it, with dates or seconds since 1970."""

    def show(time_s: int) -> str:
        whole_s = ORIGIN_S + time_s
        day = datetime.fromtimestamp(whole_s, UTC).replace(tzinfo=None)
        return day.isoformat() if dates else str(whole_s)

    lines = ["|".join(COLUMNS)]
    for record in (record for records in log.records for record in records):
        times = {name: show(record[name]) for name in ("Submit", "Eligible", "Start", "End")}
        resources = ",".join(
            f"{kind}/{name}={count}" if name else f"{kind}={count}"
            for kind, name, count in _resources(record)
        )
        row: dict[str, Any] = {**record, **times, "AllocTRES": resources, "ReqTRES": resources}
        lines.append("|".join(str(row.get(name, "")) for name in COLUMNS))
        if record["steps"]:
            row |= {"JobID": f"{record['JobID']}.batch", "User": "", "ConsumedEnergyRaw": 5000}
            lines.append("|".join(str(row.get(name, "")) for name in COLUMNS))
    path.write_text("\n".join([*lines, ""]))
    return path


def write_json(log: Log, path: Path, *, indent: int | None) -> Path:
    """As ``sacct --json`` writes it."""
    unset = {"set": False, "infinite": False, "number": 0}
    jobs = []
    for record in (record for records in log.records for record in records):
        number, mark, rest = _split(record["JobID"])
        part = {"set": True, "infinite": False, "number": int(rest or 0)}
        tres = [
            {"type": kind, "name": name, "id": 1, "count": count}
            for kind, name, count in _resources(record)
        ]
        step = {
            "step": {"id": f"{record['JobID']}.batch", "name": "batch"},
            "statistics": {"energy": {"consumed": {**unset, "set": True, "number": 5000}}},
        }
        states = ["PENDING", "RESIZING"] if record["State"] == "RESIZING" else [record["State"]]
        jobs.append(
            {
                "account": record["Account"],
                "allocation_nodes": record["NNodes"],
                "array": {
                    "job_id": number if mark == "_" else 0,
                    "task_id": part if mark == "_" else unset,
                    "task": "",
                },
                "association": {"account": "lab", "cluster": record["Cluster"]},
                "cluster": record["Cluster"],
                "het": {
                    "job_id": number if mark == "+" else 0,
                    "job_offset": part if mark == "+" else unset,
                },
                "job_id": number + (7 if mark else 0),
                "name": 'train [{"é',
                "partition": record["Partition"],
                "qos": record["QOS"],
                "state": {"current": states, "reason": "None"},
                "steps": [step] if record["steps"] else [],
                "time": {
                    "elapsed": record["ElapsedRaw"],
                    "eligible": ORIGIN_S + record["Eligible"],
                    "end": ORIGIN_S + record["End"],
                    "start": ORIGIN_S + record["Start"],
                    "submission": ORIGIN_S + record["Submit"],
                    "suspended": 0,
                    "limit": {"set": True, "infinite": False, "number": record["TimelimitRaw"]},
                },
                "tres": {"allocated": tres, "requested": tres},
                "user": record["User"],
            }
        )
    whole = {"jobs": jobs, "meta": {"slurm": {"version": {"major": "24"}}}, "errors": []}
    path.write_text(json.dumps(whole, indent=indent, ensure_ascii=False))
    return path


def _split(job: str) -> tuple[int, str, str]:
    mark = next((mark for mark in "_+" if mark in job), "")
    number, _, rest = job.partition(mark) if mark else (job, "", "")
    return int(number), mark, rest
