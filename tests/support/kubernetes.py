"""Objects of Kubernetes as ``kubectl get -o json`` writes them, and the jobs that they come to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.support.traces import import_trace
from wattkeeper.traces.trace import Trace

Json = dict[str, Any]


def at(time: str) -> str:
    """A time of 10 January 2026, or a day before it: ``09:00``, or ``12T09:00``."""
    day, _, clock = f"10T{time}".rpartition("T") if "T" not in time else time.partition("T")
    return f"2026-01-{day}T{clock}:00Z"


def pod(
    name: str,
    start: str | None = "09:00",
    end: str | None = "11:00",
    *,
    gpus: int = 1,
    created: str = "08:00",
    uid: str = "",
    namespace: str = "ml",
    labels: Mapping[str, str] = {},
    annotations: Mapping[str, str] = {},
    owner: tuple[str, str, str] | None = None,
    phase: str = "",
    spec: Mapping[str, Any] = {},
    status: Mapping[str, Any] = {},
) -> Json:
    """A pod that ran from `start` to `end`; `owner` is kind, name and uid of its controller."""
    metadata: Json = {
        "name": name,
        "namespace": namespace,
        "uid": uid or f"u-{name}",
        "creationTimestamp": at(created),
        "labels": dict(labels),
        "annotations": dict(annotations),
    }
    if owner:
        kind, owner_name, owner_uid = owner
        reference = {"kind": kind, "name": owner_name, "uid": owner_uid, "controller": True}
        metadata["ownerReferences"] = [{"apiVersion": "v1", **reference}]
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    full: Json = {"containers": [{"name": "c", "resources": resources}], **spec}
    phase = phase or ("Pending" if start is None else "Running" if end is None else "Succeeded")
    state: Json = {"phase": phase}
    if start is not None:
        state["startTime"] = at(start)
    if end is not None:
        ended = {"state": {"terminated": {"finishedAt": at(end), "exitCode": 0}}}
        state["containerStatuses"] = [{"name": "c", **ended}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": full,
        "status": state | dict(status),
    }


def condition(kind: str, time: str, reason: str = "", *, holds: bool = True) -> Json:
    """A condition of a workload, or of a pod."""
    state = {"type": kind, "status": str(holds), "reason": reason or kind}
    return state | {"message": "m", "lastTransitionTime": at(time)}


def workload(
    name: str,
    conditions: Iterable[Json],
    *,
    gpus: int = 8,
    pods: int = 1,
    created: str = "08:00",
    version: str = "v1beta2",
    owner: tuple[str, str, str] | None = None,
    annotations: Mapping[str, str] = {},
    template: Mapping[str, Any] = {},
    spec: Mapping[str, Any] = {},
    status: Mapping[str, Any] = {},
) -> Json:
    """A workload of Kueue, of a Job of its own if no `owner` (kind, name, uid) is given."""
    kind, owner_name, owner_uid = owner or ("Job", name, f"j-{name}")
    reference = {"kind": kind, "name": owner_name, "uid": owner_uid, "controller": True}
    requests = {"requests": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    pod_spec = {"containers": [{"name": "c", "resources": requests}], **template}
    pod_set = {"name": "main", "count": pods, "template": {"spec": pod_spec}}
    return {
        "apiVersion": f"kueue.x-k8s.io/{version}",
        "kind": "Workload",
        "metadata": {
            "name": name,
            "namespace": "ml",
            "uid": f"u-{name}",
            "creationTimestamp": at(created),
            "annotations": dict(annotations),
            "ownerReferences": [reference] if kind else [],
        },
        "spec": {"queueName": "lq", "podSets": [pod_set], **spec},
        "status": {"conditions": list(conditions), **status},
    }


def admitted(start: str, end: str | None = None, reason: str = "Succeeded") -> list[Json]:
    """The conditions of a workload that was admitted, and finished unless `end` is None."""
    states = [condition("QuotaReserved", start), condition("Admitted", start)]
    return states if end is None else [*states, condition("Finished", end, reason)]


def write(path: Path, objects: Iterable[Json]) -> Path:
    """Write one object a line."""
    path.write_text("".join(json.dumps(each) + "\n" for each in objects))
    return path


def import_objects(path: Path, objects: Iterable[Json]) -> Trace:
    """The trace of objects, which are written to a file one a line."""
    return import_trace("kubernetes", [write(path, objects)])


def jobs(trace: Trace) -> dict[str, Json]:
    """The jobs of a trace by their names."""
    return {row.pop("job_id"): row for row in trace.tables["jobs"].to_pylist()}


def hours(trace: Trace) -> dict[str, tuple[int, float | None, float | None, float | None]]:
    """GPUs, submission, start and end of the jobs by their names, in hours of the trace."""
    found = {}
    for name, row in jobs(trace).items():
        start, run = row.get("start_time_s"), row["duration_s"]
        end = None if start is None or run is None else (start + run) / 3600
        first = None if start is None else start / 3600
        found[name] = (row["gpus"], row["submit_time_s"] / 3600, first, end)
    return found
