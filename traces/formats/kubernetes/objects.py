"""Pods and Kueue workloads of Kubernetes: who asked for which GPUs, and when they ran."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from wattkeeper.traces.formats._slices import MIXED, SHARED, to_milli
from wattkeeper.traces.formats.kubernetes.values import (
    Json,
    check_text,
    check_whole,
    quote,
    read_needed_text,
    read_object,
    read_objects,
    read_text,
    read_time,
    read_whole,
)

NO_GPU: Final = "asks for no GPU"
NOT_STARTED: Final = "never started"
GPU: Final = re.compile(r"(nvidia\.com/gpu|amd\.com/gpu|gpu\.intel\.com/(i915|xe))(\.shared)?")
MIG: Final = re.compile(r"nvidia\.com/mig-([1-7])g\.([0-9]+)gb(\.me)?")
TYPES: Final = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "cloud.google.com/gke-accelerator",
)
USERS: Final = ("user", "owner")
GANGS: Final = (
    ("jobset.sigs.k8s.io/jobset-name", "jobset.sigs.k8s.io/jobset-uid"),
    ("training.kubeflow.org/job-name", None),
    ("batch.kubernetes.io/job-name", "batch.kubernetes.io/controller-uid"),
    ("job-name", "controller-uid"),
)
"""Labels with the name of a pod's job, and with its uid."""
LONGEST_RUN: Final = "kueue.x-k8s.io/max-exec-time-seconds"
QUEUE: Final = "kueue.x-k8s.io/queue-name"


class KubeObject(NamedTuple):
    """A pod or a workload that asks for GPUs.

    Attributes:
        uid: Its own.
        job_id: Namespace and name of the job that it is a part of.
        gang: Identifies that job: of one gang are the pods of one job.
        submit_s: Creation, s since 1970, as are `start_s` and `end_s`.
        end_s: None: it still runs, or its end is not recorded.
        gpus: GPUs, or parts of GPUs.
        gpu_milli: Thousandths of each.
        status: Phase or reason; `failed` says whether that is a failure.
        tries: That it records itself.
    """

    uid: str
    job_id: str
    gang: str
    submit_s: float
    start_s: float | None
    end_s: float | None
    gpus: int
    gpu_milli: int
    gpu_type: str | None
    user: str | None
    queue: str
    account: str
    qos: str | None
    estimate_s: float | None
    status: str | None
    failed: bool
    tries: int


def read_pod(record: Json) -> KubeObject | str:
    """Read a pod, or say why it is left out; raises `ValueError` if it is malformed."""
    uid, name, namespace, submit = _read_metadata(record)
    labels = read_object(record, "metadata.labels")
    spec = read_object(record, "spec")
    demand = _read_demand(_pod_demand(spec))
    if isinstance(demand, str):
        return demand
    start = read_time(record, "status.startTime")
    phase = read_text(record, "status.phase")
    end = _read_end(record) if phase in ("Succeeded", "Failed") else None
    _check_order(start, end, "status.startTime", "it ended")
    job, job_uid = _find_job(record, labels, name, uid)
    service = read_text(spec, "serviceAccountName")
    user = next((text for key in USERS if (text := _label(labels, key))), None)
    limit = read_whole(spec, "activeDeadlineSeconds") or _read_longest_run(labels)
    return KubeObject(
        uid, f"{namespace}/{job}", f"{namespace}/{job}/{job_uid}", submit, start, end, *demand,
        _read_type(spec), user or (None if service == "default" else service),
        _label(labels, QUEUE) or namespace, namespace, read_text(spec, "priorityClassName"),
        limit, phase, phase == "Failed", 1,
    )  # fmt: skip


def read_workload(record: Json) -> KubeObject | str:
    """Read a workload of Kueue, or say why it is left out; raises `ValueError` as `read_pod`."""
    uid, name, namespace, submit = _read_metadata(record)
    sets = read_objects(record, "spec.podSets")
    given = read_objects(record, "status.admission.podSetAssignments")
    counts = {read_text(each, "name"): read_whole(each, "count") for each in given}
    demand, types = Counter[str](), set[str]()
    for each in sets:
        spec = read_object(each, "template.spec")
        pods = counts.get(read_text(each, "name"))
        if pods is None:
            pods = read_whole(each, "count")
        for key, count in _pod_demand(spec).items():
            demand[key] += count * (1 if pods is None else pods)
        types.update((_read_type(spec) or "").split("|"))
    parts = _read_demand(demand)
    if isinstance(parts, str):
        return parts
    start, end, status, evictions = _read_conditions(record)
    _check_order(start, end, "its admission", "it finished")
    flavors = {
        text
        for each in given
        for key, value in read_object(each, "flavors").items()
        if _is_gpu(key) and (text := check_text(value, f"flavors.{key}"))
    }
    gpu_type = "|".join(sorted(types - {""}) or sorted(flavors)) or None
    labels = read_object(record, "metadata.labels")
    owner = next((text for key in USERS if (text := _label(labels, key))), None)
    owners = read_objects(record, "metadata.ownerReferences")
    job = read_text(owners[0], "name") if len(owners) == 1 else None
    limit = read_whole(record, "spec.maximumExecutionTimeSeconds") or None
    return KubeObject(
        uid, f"{namespace}/{job or name}", f"{namespace}/{name}/{uid}", submit, start, end,
        *parts, gpu_type, owner, read_text(record, "spec.queueName") or namespace, namespace,
        read_text(record, "spec.priorityClassName"), limit, status, False, 1 + evictions,
    )  # fmt: skip


def _read_metadata(record: Json) -> tuple[str, str, str, float]:
    """Uid, name, namespace and creation."""
    uid, name, namespace = (
        read_needed_text(record, f"metadata.{key}") for key in ("uid", "name", "namespace")
    )
    submit = read_time(record, "metadata.creationTimestamp")
    if submit is None:
        raise ValueError("metadata.creationTimestamp is absent; every object has one")
    return uid, name, namespace, submit


def _label(labels: Json, key: str) -> str | None:
    return check_text(labels.get(key), f"metadata.labels.{key}")


def _read_longest_run(labels: Json) -> int | None:
    value = labels.get(LONGEST_RUN)
    return None if value is None else check_whole(value, f"metadata.labels.{LONGEST_RUN}") or None


def _check_order(start: float | None, end: float | None, first: str, then: str) -> None:
    if start is not None and end is not None and end < start:
        raise ValueError(f"{then} {start - end:.15g} s before {first}")


def _read_end(record: Json) -> float | None:
    """When the last container finished, else when a condition last changed, as of evicted pods."""
    paths = {
        "status.containerStatuses": "state.terminated.finishedAt",
        "status.conditions": "lastTransitionTime",
    }
    for entries, path in paths.items():
        times = [read_time(entry, path) for entry in read_objects(record, entries)]
        if known := [time for time in times if time is not None]:
            return max(known)
    return None


def _find_job(record: Json, labels: Json, name: str, uid: str) -> tuple[str, str]:
    """Name and uid of the job that a pod is a part of; the pod itself if there is none."""
    owners = read_objects(record, "metadata.ownerReferences")
    owner = next((each for each in owners if each.get("controller") is True), {})
    owner_uid = read_text(owner, "uid") or ""
    for key, key_uid in GANGS:
        if job := _label(labels, key):
            return job, (key_uid and _label(labels, key_uid)) or owner_uid
    kind = read_text(owner, "kind") or ""
    job = read_text(owner, "name")
    return (job, owner_uid) if job and kind.endswith("Job") else (name, uid)


def _is_gpu(resource: str) -> bool:
    return bool(GPU.fullmatch(resource) or MIG.fullmatch(resource))


def _pod_demand(spec: Json) -> Counter[str]:
    """Resources with GPUs of a pod: the sum of its containers, or more in an init container."""
    total = Counter[str]()
    for container in read_objects(spec, "containers"):
        total.update(_container_demand(container))
    for container in read_objects(spec, "initContainers"):
        total |= _container_demand(container)
    return total


def _container_demand(container: Json) -> Counter[str]:
    wanted = Counter[str]()
    for part in ("resources.requests", "resources.limits"):
        for key, value in read_object(container, part).items():
            if _is_gpu(key):
                wanted[key] = max(wanted[key], check_whole(value, f"{part}.{key}"))
    return wanted


def _read_demand(demand: Counter[str]) -> tuple[int, int] | str:
    """GPUs and thousandths of each, or why the object is left out."""
    counts = Counter[int]()
    for key, count in demand.items():
        if not count:
            continue
        if match := MIG.fullmatch(key):
            counts[to_milli(int(match[1]), int(match[2]))] += count
        elif key.endswith(".shared"):
            return SHARED
        else:
            counts[1000] += count
    if not counts:
        return NO_GPU
    if len(counts) > 1:
        return MIXED
    milli, gpus = counts.popitem()
    if gpus >= 1 << 31:
        raise ValueError(f"asks for {gpus} GPUs, must be fewer than {1 << 31}")
    return gpus, milli


def _read_type(spec: Json) -> str | None:
    """Types of GPU that a pod may run on: of its node selector, else of its required affinity."""
    selector = read_object(spec, "nodeSelector")
    for key in TYPES:
        if text := check_text(selector.get(key), f"nodeSelector.{key}"):
            return text
    path = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    types = set[str]()
    for term in read_objects(spec, path):
        named = [
            check_text(value, "values of matchExpressions")
            for match in read_objects(term, "matchExpressions")
            if match.get("key") in TYPES and match.get("operator") == "In"
            for value in _list(match.get("values"))
        ]
        if not named:  # a term that allows any type
            return None
        types.update(text for text in named if text)
    return "|".join(sorted(types)) or None


def _list(value: object) -> Sequence[object]:
    if not isinstance(value, list):
        raise ValueError(f"values of matchExpressions is {quote(value)}, must be a list")
    return value


def _read_conditions(record: Json) -> tuple[float | None, float | None, str | None, int]:
    """Start, end, status and evictions of a workload."""
    since = dict[str, float | None]()
    status, evictions = None, 0
    for condition in read_objects(record, "status.conditions"):
        kind, path = read_text(condition, "type"), "lastTransitionTime"
        if kind is None:
            raise ValueError("a condition in status.conditions has no type")
        if kind == "Evicted":
            evictions = 1
        if read_text(condition, "status") == "True":
            since[kind] = read_time(condition, path)
            if kind == "Finished":
                status = read_text(condition, "reason")
    start = since.get("Admitted", since.get("QuotaReserved"))
    counted = read_objects(record, "status.schedulingStats.evictions")
    sums = sum(read_whole(each, "count") or 0 for each in counted)
    again = read_whole(record, "status.requeueState.count") or 0
    return start, since.get("Finished"), status, max(evictions, sums, again)
