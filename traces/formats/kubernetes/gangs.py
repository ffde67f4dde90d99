"""Which job a pod is a part of: that of its controller, or the group that it is scheduled with.

Sources: the documentation of JobSet, Kubeflow, Kueue (plain pods), scheduler-plugins
(coscheduling), Koordinator, KubeRay, LeaderWorkerSet, SkyPilot, Volcano, KAI and YuniKorn, and
Kubernetes (gang scheduling: ``schedulingGroup``, in 1.35 ``workloadRef``).
"""

from typing import Final, NamedTuple

from wattkeeper.traces.readers.json_values import Json, read_key, read_objects, read_text

LABELS, ANNOTATIONS = "metadata.labels", "metadata.annotations"
CONTROLLERS: Final = (
    ("jobset.sigs.k8s.io/jobset-name", "jobset.sigs.k8s.io/jobset-uid"),
    ("training.kubeflow.org/job-name", None),
)
"""Labels with the name of a pod's job, and with its uid; its controller's uid if there is none."""
GROUPS: Final = (
    (LABELS, "kueue.x-k8s.io/pod-group-name"),
    (LABELS, "scheduling.x-k8s.io/pod-group"),
    (LABELS, "pod-group.scheduling.sigs.k8s.io"),
    (LABELS, "pod-group.scheduling.sigs.k8s.io/name"),
    (ANNOTATIONS, "gang.scheduling.koordinator.sh/name"),
)
"""Groups that users name."""
JOBS: Final = (
    ("batch.kubernetes.io/job-name", "batch.kubernetes.io/controller-uid"),
    ("job-name", "controller-uid"),
    ("volcano.sh/job-name", None),
)
LEADER_WORKER_SET: Final = "leaderworkerset.sigs.k8s.io/"
RAY_ORIGIN: Final = "ray.io/originated-from-"
CLUSTERS: Final = ("skypilot-cluster-name", "skypilot-cluster", "ray-cluster-name")
SCHEDULED: Final = (
    (ANNOTATIONS, "scheduling.k8s.io/group-name"),
    (ANNOTATIONS, "scheduling.volcano.sh/group-name"),
    (ANNOTATIONS, "pod-group-name"),
    (ANNOTATIONS, "yunikorn.apache.org/app-id"),
    (LABELS, "yunikorn.apache.org/app-id"),
    (LABELS, "applicationId"),
)
"""Groups that Volcano, KAI and YuniKorn name."""
SERVING: Final = ("ReplicaSet", "StatefulSet", "DaemonSet", "Deployment", "LeaderWorkerSet")
"""Kinds of controllers whose pods run until somebody stops them."""
SAME_FOR_ALL: Final = "-autogen"
"""End of the application that YuniKorn gives all pods of a namespace that name none."""
PLACEHOLDERS: Final = (
    (ANNOTATIONS, "yunikorn.apache.org/placeholder"),
    (LABELS, "yunikorn.apache.org/placeholder"),
    (LABELS, "placeholder"),
)


class Membership(NamedTuple):
    """What a pod is a part of.

    Attributes:
        job: Name of the job.
        uid: Of the job; None: only its name is known, which later jobs may bear, too.
        owner: Uid of the pod's controller; empty if it has none.
    """

    job: str
    uid: str | None
    owner: str


def find_job(record: Json, metadata: dict[str, Json], name: str, uid: str) -> Membership:
    """The job of a pod; the pod itself if there is none.

    Args:
        record: The pod.
        metadata: Its labels and annotations, by their paths.
        name: Of the pod.
        uid: Of the pod.
    """
    owners = read_objects(record, "metadata.ownerReferences")
    controller = next((each for each in owners if each.get("controller") is True), {})
    owner = read_text(controller, "uid") or ""
    if known := _controlled(metadata, CONTROLLERS, owner):
        return known
    if job := _first(metadata, GROUPS):
        return Membership(job, None, owner)
    if known := _controlled(metadata, JOBS, owner):
        return known
    kind, job = read_text(controller, "kind") or "", read_text(controller, "name")
    if job and kind.endswith("Job"):
        return Membership(job, owner, owner)
    labels = metadata[LABELS]
    is_ray_job = read_key(labels, LABELS, RAY_ORIGIN + "crd") == "RayJob"
    if is_ray_job and (job := read_key(labels, LABELS, RAY_ORIGIN + "cr-name")):
        return Membership(job, None, owner)
    if job := read_key(labels, LABELS, "ray.io/cluster"):
        return Membership(job, owner or None, owner)
    job = _worker_group(labels) or next(
        (text for key in CLUSTERS if (text := read_key(labels, LABELS, key))), None
    )
    job = job or _scheduling_group(record)
    if not job and (job := _first(metadata, SCHEDULED)) and job.endswith(SAME_FOR_ALL):
        job = None
    return Membership(job, None, owner) if job else Membership(name, uid, owner)


def is_serving(record: Json, labels: Json) -> bool:
    """Whether a pod is one of a service: of a Deployment, as those of KServe, or of Ray Serve."""
    owners = read_objects(record, "metadata.ownerReferences")
    kinds = {read_text(each, "kind") for each in owners if each.get("controller") is True}
    is_ray = read_key(labels, LABELS, RAY_ORIGIN + "crd") == "RayService"
    return is_ray or not kinds.isdisjoint(SERVING)


def is_placeholder(metadata: dict[str, Json]) -> bool:
    """Whether a pod only reserves what a pod of a gang will use."""
    return _first(metadata, PLACEHOLDERS) == "true" and _first(metadata, SCHEDULED) is not None


def _first(metadata: dict[str, Json], keys: tuple[tuple[str, str], ...]) -> str | None:
    found = (read_key(metadata[path], path, key) for path, key in keys)
    return next((text for text in found if text), None)


def _controlled(
    metadata: dict[str, Json], keys: tuple[tuple[str, str | None], ...], owner: str
) -> Membership | None:
    labels = metadata[LABELS]
    for key, key_uid in keys:
        if job := read_key(labels, LABELS, key):
            uid = read_key(labels, LABELS, key_uid) if key_uid else None
            return Membership(job, uid or owner or None, owner)
    return None


def _worker_group(labels: Json) -> str | None:
    """A group of a LeaderWorkerSet, named as its leader."""
    keys = ("name", "group-index", "group-key")
    name, index, key = (read_key(labels, LABELS, LEADER_WORKER_SET + each) for each in keys)
    return f"{name}-{index or key}" if name and (index or key) else name


def _scheduling_group(record: Json) -> str | None:
    """The group of Kubernetes' own gang scheduling."""
    if group := read_text(record, "spec.schedulingGroup.podGroupName"):
        return group
    name = read_text(record, "spec.workloadRef.name")
    replica = read_text(record, "spec.workloadRef.podGroupReplicaKey")
    return f"{name}-{replica}" if name and replica else name
