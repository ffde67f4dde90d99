"""Pods and Kueue workloads of Kubernetes: who asked for which GPUs, and when they ran.

One module: what the readers of pods and of workloads share refers to each other throughout.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from wattkeeper.traces.formats.kubernetes.claims import (
    CLASS_PREFIX,
    GPU_RESOURCE,
    OTHER,
    PART_RESOURCE,
    Claim,
    device_resource,
    read_claims,
)
from wattkeeper.traces.formats.kubernetes.gangs import (
    ANNOTATIONS,
    LABELS,
    SERVING,
    find_job,
    is_placeholder,
    is_serving,
)
from wattkeeper.traces.readers.gpu_slices import MIXED, SHARED, to_milli
from wattkeeper.traces.readers.json_values import (
    Json,
    check_text,
    check_whole,
    quote,
    read_key,
    read_needed_text,
    read_object,
    read_objects,
    read_text,
    read_time,
    read_whole,
)

NO_GPU: Final = "asks for no GPU"
NOT_STARTED: Final = "never started"
PLACEHOLDER: Final = "only reserves GPUs for a pod of a gang"
VARIANT: Final = "is a variant of another workload, which counts"
GPU: Final = re.compile(r"(nvidia\.com/gpu|amd\.com/gpu|gpu\.intel\.com/(i915|xe))(\.shared)?")
MIG: Final = re.compile(r"nvidia\.com/mig-([1-7])g\.([0-9]+)gb([.-][a-z]+)*")
QUOTA: Final = re.compile(r"(.*[^a-z])?gpus?([^a-z].*)?")
"""Name of a quota of GPUs that claims are counted by; not where it is one of `PARTS`."""
PARTS: Final = re.compile(r"mig|shar|vgpu|slice|mem|core")
FRACTION: Final = re.compile(r"0?\.[0-9]{1,9}|1(\.0{1,9})?")
TYPES: Final = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "cloud.google.com/gke-accelerator",
)
USERS: Final = ("user", "owner", "skypilot-user", "yunikorn.apache.org/username")
LONGEST_RUN: Final = "kueue.x-k8s.io/max-exec-time-seconds"
QUEUE: Final = "kueue.x-k8s.io/queue-name"


PRIORITY: Final = "kueue.x-k8s.io/priority-class"
REPLACED: Final = "WorkloadSliceReplaced"
OUT_OF_SYNC: Final = "OutOfSync"
SLICES: Final = (
    "kueue.x-k8s.io/workload-slice-replacement-for",
    "kueue.x-k8s.io/workload-slice-name",
)
"""Annotations of a slice of an elastic workload: the one that it replaces, the first one."""
ELASTIC: Final = "kueue.x-k8s.io/elastic-job"
DISRUPTIONS: Final = ("DisruptionTarget", "TerminationTarget")
READY_START: Final = (
    "starts when its pods were ready, since Kueue cleared its admission as it finished"
)
NO_START: Final = "has neither start nor run time, since Kueue cleared its admission as it finished"


class KubeObject(NamedTuple):
    """A pod or a workload that asks for GPUs: a field for each key that any converter reads.

    Attributes:
        uid: Its own.
        name: Its own, with its namespace.
        job_id: Namespace and name of the job that it is a part of.
        gang: Identifies that job: of one gang are the pods of one job.
        named: Whether only the name of the job is known, which later jobs may bear, too.
        owner: Uid of its controller; empty if it has none.
        place: What only one object of the gang takes at a time: the name of a pod, or the gang.
        submit_s: Creation, s since 1970, as are `start_s` and `end_s`.
        start_s: None: it did not start, or it `ran` and its start is not recorded.
        end_s: None: it still runs, or its end is not recorded.
        gpus: GPUs, or parts of GPUs, without those of `claims`.
        gpu_milli: Thousandths of each.
        status: Phase or reason; `failed` says whether that is a failure.
        disrupted: Whether it was evicted, preempted or lost its node.
        labelled: The user that its labels name; empty if they name none.
        tries: That it records itself.
        elastic: Whether it is a slice of an elastic workload.
        replaces: Name of a workload, with its namespace, of which it is another slice; or empty.
        doubt: What of it is not recorded; empty if nothing is.
        claims: Devices that it claims; its GPUs are known only with them if there are any.
        demand: With claims: its resources without them.
        quota: With claims: GPUs by the quota that it was admitted with.
        serves: Whether what controls it serves, and so has no end of its own.
    """

    uid: str
    name: str
    job_id: str
    gang: str
    named: bool
    owner: str
    place: str
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
    ran: bool
    disrupted: bool = False
    labelled: str = ""
    elastic: bool = False
    replaces: str = ""
    doubt: str = ""
    claims: tuple[Claim, ...] = ()
    demand: Mapping[str, int] = {}
    quota: Mapping[str, int] = {}
    serves: bool = False


def read_pod(record: Json) -> KubeObject | str:
    """Read a pod, or say why it is left out; raises `ValueError` if it is malformed."""
    uid, name, namespace, submit = _read_metadata(record)
    metadata = {path: read_object(record, path) for path in (LABELS, ANNOTATIONS)}
    spec, labels = read_object(record, "spec"), metadata[LABELS]
    claims = read_claims(spec, read_object(record, "status"), namespace, 1)
    wanted, gpu_type = _pod_demand(spec), _read_type(spec)
    demand = (0, 0) if claims else read_demand(wanted, gpu_type)
    if demand == NO_GPU:
        demand = _read_fraction(metadata[ANNOTATIONS])
    if isinstance(demand, str):
        return demand
    if is_placeholder(metadata):
        return PLACEHOLDER
    start = read_time(record, "status.startTime")
    phase = read_text(record, "status.phase")
    end = _read_end(record) if phase in ("Succeeded", "Failed") else None
    _check_order(start, end, "status.startTime", "it ended")
    part_of = find_job(record, metadata, name, uid)
    job = f"{namespace}/{part_of.job}"
    service = read_text(spec, "serviceAccountName")
    user = _read_user(labels)
    limit = read_whole(spec, "activeDeadlineSeconds") or _read_longest_run(labels)
    return KubeObject(
        uid,
        f"{namespace}/{name}",
        job,
        f"{job}/{part_of.uid or ''}",
        part_of.uid is None,
        part_of.owner,
        name,
        submit,
        start,
        end,
        *demand,
        gpu_type,
        user or (None if service == "default" else service),
        read_key(labels, LABELS, QUEUE) or namespace,
        namespace,
        read_text(spec, "priorityClassName") or read_key(labels, LABELS, PRIORITY),
        limit,
        phase,
        phase == "Failed",
        1,
        start is not None,
        disrupted=phase == "Failed" and _is_disrupted(record),
        labelled=user or "",
        claims=tuple(claims),
        demand=wanted if claims else {},
        serves=is_serving(record, labels),
    )


def read_workload(record: Json) -> KubeObject | str:
    """Read a workload of Kueue, or say why it is left out; raises `ValueError` as `read_pod`."""
    uid, name, namespace, submit = _read_metadata(record)
    owners = read_objects(record, "metadata.ownerReferences")
    owner = owners[0] if len(owners) == 1 else {}
    kind = read_text(owner, "kind")
    if kind == "Workload":
        return VARIANT
    given = read_objects(record, "status.admission.podSetAssignments")
    counts = {read_text(each, "name"): read_whole(each, "count") for each in given}
    demand, types, claims = Counter[str](), set[str](), list[Claim]()
    for each in read_objects(record, "spec.podSets"):
        spec = read_object(each, "template.spec")
        pods = counts.get(read_text(each, "name"))
        if pods is None:
            pods = read_whole(each, "count")
        pods = 1 if pods is None else pods
        for key, count in _pod_demand(spec).items():
            demand[key] += count * pods
        claims += read_claims(spec, {}, namespace, pods)
        types.update((_read_type(spec) or "").split("|"))
    quota = _read_quota(given, demand) if claims else Counter[str]()
    flavors = {
        text
        for each in given
        for key, value in read_object(each, "flavors").items()
        if (_is_gpu(key) or (claims and QUOTA.fullmatch(key)))
        and (text := check_text(value, f"flavors.{key}"))
    }
    gpu_type = "|".join(sorted(types - {""}) or sorted(flavors)) or None
    parts = (0, 0) if claims else read_demand(demand, gpu_type)
    if isinstance(parts, str):
        return parts
    run = _read_conditions(record)
    _check_order(run.start_s, run.end_s, "its admission", "it finished")
    metadata = {path: read_object(record, path) for path in (LABELS, ANNOTATIONS)}
    job, owner_uid = read_text(owner, "name"), read_text(owner, "uid") or ""
    alone = kind == "LeaderWorkerSet" or not (job and owner_uid)  # a workload for each group
    other, first = (read_key(metadata[ANNOTATIONS], ANNOTATIONS, key) for key in SLICES)
    slice_of = other or first or ""
    replaces = slice_of if "/" in slice_of else f"{namespace}/{slice_of}" if slice_of else ""
    elastic = bool(slice_of) or run.status == REPLACED
    elastic |= read_key(metadata[ANNOTATIONS], ANNOTATIONS, ELASTIC) == "true"
    limit = read_whole(record, "spec.maximumExecutionTimeSeconds") or None
    gang = f"{name}/{uid}" if alone else f"{kind}/{job}/{owner_uid}"
    return KubeObject(
        uid,
        f"{namespace}/{name}",
        f"{namespace}/{job or name}",
        f"{namespace}/{gang}",
        False,
        owner_uid,
        "",
        submit,
        run.start_s,
        run.end_s,
        *parts,
        gpu_type,
        _read_user(metadata[LABELS]),
        read_text(record, "spec.queueName") or namespace,
        namespace,
        read_text(record, "spec.priorityClassName")
        or read_text(record, "spec.priorityClassRef.name"),
        limit,
        run.status,
        run.status == OUT_OF_SYNC,
        1 + run.evictions,
        run.ran,
        elastic=elastic,
        replaces=replaces,
        doubt=run.doubt,
        claims=tuple(claims),
        demand=demand if claims else {},
        quota=quota,
        serves=kind in SERVING,
    )


def _read_metadata(record: Json) -> tuple[str, str, str, float]:
    """Uid, name, namespace and creation."""
    uid, name, namespace = (
        read_needed_text(record, f"metadata.{key}") for key in ("uid", "name", "namespace")
    )
    submit = read_time(record, "metadata.creationTimestamp")
    if submit is None:
        raise ValueError("metadata.creationTimestamp is absent; every object has one")
    return uid, name, namespace, submit


def _read_user(labels: Json) -> str | None:
    return next((text for key in USERS if (text := read_key(labels, LABELS, key))), None)


def _is_disrupted(record: Json) -> bool:
    """Whether a failed pod ended by no fault and no limit of its own."""
    conditions = read_objects(record, "status.conditions")
    targets = [each for each in conditions if read_text(each, "type") in DISRUPTIONS]
    if any(read_text(each, "status") == "True" for each in targets):
        return True
    return read_text(record, "status.reason") not in (None, "DeadlineExceeded")


def _read_quota(given: list[Json], demand: Counter[str]) -> Counter[str]:
    """GPUs by quotas that containers do not ask for: Kueue counts claims by them."""
    quota = Counter[str]()
    for each in given:
        for key, value in read_object(each, "resourceUsage").items():
            if key in demand or not (_is_gpu(key) or QUOTA.fullmatch(key)):
                continue
            if PARTS.search(key) and not _is_gpu(key):
                quota[PART_RESOURCE] += 1
            else:
                resource = key if _is_gpu(key) else GPU_RESOURCE
                quota[resource] += check_whole(value, f"resourceUsage.{key}")
    return quota


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


def _is_gpu(resource: str) -> bool:
    return bool(GPU.fullmatch(resource) or MIG.fullmatch(resource))


def _pod_demand(spec: Json) -> Counter[str]:
    """Resources with GPUs of a pod: of its containers and sidecars, or more in an init container.

    Sidecars are init containers that are started again; they hold theirs from their start to the
    end, and so beside the init containers after them.
    """
    sidecars, first = Counter[str](), Counter[str]()
    for container in read_objects(spec, "initContainers"):
        demand = _container_demand(container)
        if read_text(container, "restartPolicy") == "Always":
            sidecars.update(demand)
            first |= sidecars
        else:
            first |= sidecars + demand
    for container in read_objects(spec, "containers"):
        sidecars.update(_container_demand(container))
    return sidecars | first


def _container_demand(container: Json) -> Counter[str]:
    wanted = Counter[str]()
    for part in ("resources.requests", "resources.limits"):
        for key, value in read_object(container, part).items():
            resource = key
            if key.startswith(CLASS_PREFIX):
                resource = device_resource(key.removeprefix(CLASS_PREFIX))
            if resource != OTHER and _is_gpu(resource):
                wanted[resource] = max(wanted[resource], check_whole(value, f"{part}.{key}"))
    return wanted


def read_demand(demand: Counter[str], gpu_type: str | None) -> tuple[int, int] | str:
    """GPUs of a type and thousandths of each, or why the object is left out."""
    counts = Counter[int]()
    for key, count in demand.items():
        if not count:
            continue
        if match := MIG.fullmatch(key):
            counts[to_milli(int(match[1]), int(match[2]), gpu_type)] += count
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


def _read_fraction(annotations: Json) -> tuple[int, int] | str:
    """GPUs and thousandths of each that KAI shares out, or why the pod is left out."""
    names = ("gpu-fraction", "gpu-fraction-num-devices", "gpu-memory")
    fraction, devices, memory = (read_key(annotations, ANNOTATIONS, name) for name in names)
    if fraction is None:
        return SHARED if memory else NO_GPU
    milli = round(1000 * float(fraction)) if FRACTION.fullmatch(fraction) else 0
    if not milli:
        text = f"{ANNOTATIONS}.{names[0]} is {quote(fraction)}, must be a number from 0.001 to 1"
        raise ValueError(text)
    count = 1 if devices is None else check_whole(devices, f"{ANNOTATIONS}.{names[1]}")
    return (count, milli) if count else NO_GPU


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


class _Run(NamedTuple):
    """When a workload ran.

    Attributes:
        start_s: Of its last admission; None: there is none, or it is not recorded.
        end_s: None: it did not finish.
        status: Reason of its finish.
        evictions: Their number.
        ran: Whether it started.
        doubt: What is not recorded.
    """

    start_s: float | None
    end_s: float | None
    status: str | None
    evictions: int
    ran: bool
    doubt: str


def _read_conditions(record: Json) -> _Run:
    """When a workload ran, by its conditions.

    Kueue 0.15.0 to 0.15.2 set the admission of workloads that finished to false, and so cleared
    its time.
    """
    since, cleared = dict[str, float | None](), dict[str, float | None]()
    status, evictions = None, 0
    for condition in read_objects(record, "status.conditions"):
        kind, path = read_text(condition, "type"), "lastTransitionTime"
        if kind is None:
            raise ValueError("a condition in status.conditions has no type")
        if kind == "Evicted":
            evictions = 1
        holds = read_text(condition, "status") == "True"
        (since if holds else cleared)[kind] = read_time(condition, path)
        if holds and kind == "Finished":
            status = read_text(condition, "reason")
    counted = read_objects(record, "status.schedulingStats.evictions")
    sums = sum(read_whole(each, "count") or 0 for each in counted)
    again = read_whole(record, "status.requeueState.count") or 0
    start, end = since.get("Admitted", since.get("QuotaReserved")), since.get("Finished")
    ran, doubt = start is not None, ""
    if start is None and end is not None:
        start = since.get("PodsReady")
        ran = start is not None or (cleared.get("Admitted") or -1) >= end
        doubt = "" if not ran else NO_START if start is None else READY_START
    return _Run(start, end, status, max(evictions, sums, again), ran, doubt)
