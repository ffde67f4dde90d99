"""A log of objects of Kubernetes: what was read of it, and the jobs that it comes to."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from wattkeeper.traces.formats.kubernetes.claims import read_devices
from wattkeeper.traces.formats.kubernetes.documents import ADVICE
from wattkeeper.traces.formats.kubernetes.jobs import (
    Devices,
    KubeJob,
    count_names,
    find_shared_claims,
    merge_slices,
    split_lives,
    split_users,
    unite,
)
from wattkeeper.traces.formats.kubernetes.objects import KubeObject, read_pod, read_workload
from wattkeeper.traces.readers.json_values import quote, read_text

READERS: Final = {"Pod": read_pod, "Workload": read_workload}
CLAIMS: Final = ("ResourceClaim", "ResourceClaimTemplate")
GROUP: Final = "kueue.x-k8s.io/"
AGAIN: Final = "is another state of an object that stands in the log already"
PART: Final = "is a further pod of a job, counted in its first"
RESCALED: Final = (
    "changed its GPUs from one state in the log to the next, and has those of the last"
)
SERVES: Final = (
    "is a service that still runs: it holds its GPUs until the last time of the log, and its wait "
    "does not count"
)
CLAIM: Final = "is a claim of devices, counted in the jobs that name it"


class Row(NamedTuple):
    """A place in the log: its job, why it is none, or its fault; and doubts about it."""

    line: int
    outcome: KubeJob | str | ValueError
    doubts: Sequence[str] = ()


class ObjectLog:
    """The objects of a log in their last states, and where they stood first."""

    def __init__(self) -> None:
        self._kind = ""
        self._objects: dict[str, KubeObject] = {}
        self._places: dict[str, tuple[int, int]] = {}
        self._devices: dict[str, Counter[str]] = {}

    def add(self, file: int, line: int, record: object) -> str:
        """Add an object; why it is left out, if so.

        Args:
            file: Number of its file.
            line: In the file.
            record: The object; a `ValueError` says why the line holds none.

        Raises:
            ValueError: If it is malformed.
        """
        if isinstance(record, ValueError):
            raise record
        found = record.get("kind") if isinstance(record, dict) else record
        if not isinstance(record, dict) or found not in (*READERS, *CLAIMS):
            raise ValueError(f"kind is {quote(found)}, must be {' or '.join(READERS)}; {ADVICE}")
        if found in CLAIMS:
            key, self._devices[key] = read_devices(record)
            return CLAIM
        if self._kind not in ("", found):
            text = f"kind is {found}, but the log began with a {self._kind}: one kind a trace"
            raise ValueError(text)
        version = read_text(record, "apiVersion")
        if found == "Workload" and version is not None and not version.startswith(GROUP):
            must = f"must be of {GROUP}..., as kubectl get workloads.kueue.x-k8s.io -o json writes"
            raise ValueError(f"apiVersion of a Workload is {quote(version)}, {must}")
        self._kind = str(found)
        part = READERS[self._kind](record)
        if isinstance(part, str):
            return part
        key = _key(part)
        before = self._objects.get(key, part)
        if before.start_s is not None and before.start_s == part.start_s:
            changed = (before.gpus, before.gpu_milli) != (part.gpus, part.gpu_milli)
            part = part._replace(doubt=RESCALED if changed else part.doubt or before.doubt)
        self._objects[key] = part
        if key in self._places:
            return AGAIN
        self._places[key] = (file, line)
        return ""

    def rows(self) -> Iterator[tuple[int, Row]]:
        """Further objects of jobs, then the jobs by their first objects; each with its file."""
        gangs: dict[str, list[KubeObject]] = {}
        for part in self._objects.values():
            gangs.setdefault(part.gang, []).append(part)
        merge_slices(gangs)
        users = (each for parts in gangs.values() for each in split_users(parts))
        devices = Devices(self._devices, find_shared_claims(users))
        lives = [life for parts in gangs.values() for life in split_lives(parts)]
        names = count_names(lives)
        first: list[tuple[tuple[int, int], list[KubeObject]]] = []
        for life in lives:
            place, *others = sorted(self._places[_key(part)] for part in life)
            first.append((place, life))
            yield from ((file, Row(line, PART)) for file, line in others)
        jobs = [
            (place, unite(life, devices, names), _is_service(life))
            for place, life in sorted(first, key=lambda each: each[0])
        ]
        ended = (job for _, (job, _), serves in jobs if not serves)
        begin_s = min(
            (job.submit_time_s for job in ended if isinstance(job, KubeJob)), default=-math.inf
        )
        times_s = (
            time_s
            for part in self._objects.values()
            for time_s in (part.submit_s, part.start_s, part.end_s)
            if time_s is not None
        )
        end_s = max(times_s, default=-math.inf)
        for (file, line), (job, doubts), serves in jobs:
            if serves and isinstance(job, KubeJob) and job.is_open:
                job, doubts = job.serve(begin_s, end_s), [*doubts, SERVES]
            yield file, Row(line, job, doubts)


def _is_service(life: Sequence[KubeObject]) -> bool:
    """Whether objects of a service still run."""
    return any(part.serves and part.ran and part.end_s is None for part in life)


def _key(part: KubeObject) -> str:
    return f"{part.name}/{part.uid}"
