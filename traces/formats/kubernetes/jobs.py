"""Jobs of Kubernetes: which of its objects are one job, and when and on what it ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from wattkeeper.traces.formats.kubernetes.claims import OTHER, UNTOLD
from wattkeeper.traces.formats.kubernetes.objects import (
    NO_GPU,
    NOT_STARTED,
    KubeObject,
    read_demand,
)
from wattkeeper.traces.readers.gpu_slices import MIXED

NO_CLAIM: Final = "claims devices, and the claims and their templates are not in the log"
NO_COUNT: Final = "claims GPUs whose number the log does not tell"
NO_CLASS: Final = "claims devices of classes that are not known as GPUs"
BY_QUOTA: Final = "has GPUs by its quota: its claims are not in the log"
LEFT_OUT: Final = "has GPUs without those of claims that are not in the log"
SHARED_CLAIM: Final = "shares a claim with another job, and counts with all its GPUs"
RESIZED: Final = (
    "changed its GPUs while it ran: a slice after the other, taken as one run on the most that "
    "it had, with the same GPU time"
)


class KubeJob(NamedTuple):
    """A row of the table of jobs."""

    job_id: str
    user: str | None
    queue: str
    account: str
    qos: str | None
    submit_time_s: float
    start_time_s: float | None
    duration_s: float | None
    estimate_s: float | None
    tries: int
    gpus: int
    gpu_milli: int
    gpu_type: str | None
    status: str | None
    serves: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether it started, and has no end."""
        return self.start_time_s is not None and self.duration_s is None

    def serve(self, begin_s: float, end_s: float) -> KubeJob:
        """The job of a service, which holds its GPUs while the log shows the cluster at work.

        Args:
            begin_s: When the log begins to show jobs that end, s since 1970.
            end_s: Its last time.
        """
        assert self.start_time_s is not None
        start_s = max(self.start_time_s, begin_s)
        return self._replace(
            submit_time_s=start_s, start_time_s=start_s, duration_s=end_s - start_s, serves=1
        )


class Devices(NamedTuple):
    """Devices of claims and templates, by their keys, and claims that several jobs name."""

    by_key: Mapping[str, Counter[str]]
    shared: frozenset[str]


def split_lives(parts: Sequence[KubeObject]) -> list[list[KubeObject]]:
    """The objects of each of the jobs that bore one name, one after the other.

    An object continues a job if it was created before all others had ended, by the same
    controller, or after an eviction that ended the job. Objects of two users are two jobs. Where
    the job's uid is known, it tells.
    """
    if not parts[0].named:
        return [list(parts)]
    split: list[list[KubeObject]] = []
    for life in _split_times(parts):
        users = split_users(life)
        split += (
            [life] if len(users) == 1 else [one for each in users for one in _split_times(each)]
        )
    return split


def split_users(parts: Sequence[KubeObject]) -> list[list[KubeObject]]:
    """The objects of each user if labels name several: those that name none are apart, too."""
    users: dict[str, list[KubeObject]] = {}
    for part in parts:
        users.setdefault(part.labelled, []).append(part)
    is_split = parts[0].named and len(users.keys() - {""}) > 1
    return list(users.values()) if is_split else [list(parts)]


def _split_times(parts: Sequence[KubeObject]) -> list[list[KubeObject]]:
    lives: list[list[KubeObject]] = []
    waiting = [part for part in parts if not part.ran]
    for part in sorted((part for part in _end_replaced(parts) if part.ran), key=_submission):
        if lives and _goes_on(lives[-1], part):
            lives[-1].append(part)
        else:
            lives.append([part])
    return [*lives, waiting] if waiting else lives


def _goes_on(life: list[KubeObject], part: KubeObject) -> bool:
    if part.submit_s < max(_end(each) for each in life):
        return True
    is_cut_off = any(each.disrupted for each in life)
    is_cut_off &= not any(each.status == "Succeeded" for each in life)
    return is_cut_off or any(each.owner == part.owner != "" for each in life)


def count_names(lives: Iterable[Sequence[KubeObject]]) -> Counter[str]:
    """The number of jobs that ran by the name of their first object's job."""
    ran = (life for life in lives if any(part.ran for part in life))
    return Counter(min(life, key=_submission).job_id for life in ran)


def find_shared_claims(gangs: Iterable[Sequence[KubeObject]]) -> frozenset[str]:
    """The claims that pods of several gangs name."""
    named = Counter[str]()
    for parts in gangs:
        claims = (claim for part in parts for claim in part.claims if claim.named)
        named.update({key for claim in claims for key in claim.keys})
    return frozenset(key for key, count in named.items() if count > 1)


def merge_slices(gangs: dict[str, list[KubeObject]]) -> None:
    """Add slices of an elastic workload to the gang of the one that they replace."""
    homes = {part.name: key for key, gang in gangs.items() for part in gang}
    for key in [key for key, gang in gangs.items() if any(part.replaces for part in gang)]:
        found = (homes.get(part.replaces, key) for part in gangs[key])
        home = next((other for other in found if other != key), key)
        if home != key:
            moved = gangs.pop(key)
            place = gangs[home][0].place
            gangs[home] += [part._replace(place=place) for part in moved]
            homes.update({part.name: home for part in moved})


def unite(
    parts: Sequence[KubeObject], devices: Devices, names: Mapping[str, int]
) -> tuple[KubeJob | str, list[str]]:
    """The job of some objects, or why it is left out; and doubts about it.

    Its last try counts: objects that run after a failure and after all others ended are a new
    try. `names` counts the jobs of each name: the uid of the first object tells them apart.
    """
    ordered = sorted(parts, key=_submission)
    ran = [part for part in _end_replaced(ordered) if part.ran]
    if not ran:
        return NOT_STARTED, []
    doubts = [part.doubt for part in ran if part.doubt]
    started = _resolve(ran, devices, doubts)
    if isinstance(started, str):
        return started, []
    if len({part.gpu_milli for part in started}) > 1:
        return MIXED, []
    last, tries = _last_try(started)
    first = ordered[0]
    start, duration = _span(last)
    if len(last) > 1 and any(part.elastic for part in last):
        duration = _resize(last, duration, doubts)
    types = {name for part in last for name in (part.gpu_type or "").split("|") if name}
    worst = next((part for part in last if part.failed), last[-1])
    return KubeJob(
        first.job_id if names[first.job_id] == 1 else f"{first.job_id}/{first.uid}",
        _first(part.labelled for part in ordered) or _first(part.user for part in ordered),
        first.queue,
        first.account,
        _first(part.qos for part in ordered),
        first.submit_s,
        start,
        duration,
        max((part.estimate_s for part in last if part.estimate_s is not None), default=None),
        tries,
        _most_at_once(last),
        last[0].gpu_milli,
        "|".join(sorted(types)) or None,
        worst.status,
    ), doubts


def _first(values: Iterable[str | None]) -> str | None:
    return next((value for value in values if value), None)


def _submission(part: KubeObject) -> tuple[float, str]:
    return part.submit_s, part.uid


def _start(part: KubeObject) -> float:
    return np.inf if part.start_s is None else part.start_s


def _end(part: KubeObject) -> float:
    return np.inf if part.end_s is None else part.end_s


def _end_replaced(parts: Sequence[KubeObject]) -> list[KubeObject]:
    """Objects by their submission; an end that was not recorded is when another took the place."""
    followers: dict[str, KubeObject] = {}
    ended = []
    for part in sorted(parts, key=_submission, reverse=True):
        follower = followers.get(part.place)
        is_slice = follower is not None and (part.elastic or follower.elastic)
        if follower is not None and not (is_slice and follower.start_s is None):
            until = _start(follower) if is_slice else follower.submit_s
            if part.start_s is not None and _end(part) > until:
                lost = part.end_s is None and not is_slice
                end = max(until, part.start_s)
                part = part._replace(end_s=end, failed=part.failed or lost)
        followers[part.place] = part
        ended.append(part)
    return ended[::-1]


def _resolve(
    parts: Sequence[KubeObject], devices: Devices, doubts: list[str]
) -> list[KubeObject] | str:
    """The objects with the GPUs that they claim, or why none of them has any."""
    resolved, reasons = list[KubeObject](), list[str]()
    held_until: dict[str, float] = {}
    for part in sorted(parts, key=_start):
        if not part.claims:
            resolved.append(part)
            continue
        demand, is_missing, is_held = Counter(part.demand), False, False
        for claim in part.claims:
            key = next((key for key in claim.keys if key in devices.by_key), None)
            is_missing |= key is None
            if key is None:
                continue
            if claim.named:
                until = held_until.get(key, -np.inf)
                held_until[key] = max(until, _end(part))
                if _start(part) < until:  # by another pod of the job, which counts
                    is_held = True
                    continue
                if key in devices.shared:
                    doubts.append(SHARED_CLAIM)
            for resource, count in devices.by_key[key].items():
                demand[resource] += count * claim.number
        if is_missing:
            demand = Counter(part.demand) + Counter(part.quota)
            doubts.append(BY_QUOTA if part.quota else LEFT_OUT)
        others, untold = demand.pop(OTHER, 0), demand.pop(UNTOLD, 0)
        found = NO_COUNT if untold else read_demand(demand, part.gpu_type)
        if isinstance(found, tuple):
            resolved.append(part._replace(gpus=found[0], gpu_milli=found[1]))
        elif found == NO_GPU and is_held and resolved:
            resolved.append(part._replace(gpus=0, gpu_milli=resolved[-1].gpu_milli))
        else:
            absent = NO_CLAIM if is_missing else NO_CLASS if others else NO_GPU
            reasons.append(absent if found == NO_GPU else found)
    return resolved or reasons[0]


def _last_try(parts: Sequence[KubeObject]) -> tuple[list[KubeObject], int]:
    """The objects of the last try in the order of their starts, and the number of tries."""
    current: list[KubeObject] = []
    tries, until = 0, -np.inf
    for part in sorted(parts, key=lambda part: (_start(part), part.uid)):
        if current and _start(part) >= until and any(each.failed for each in current):
            tries += max(each.tries for each in current)
            current, until = [], -np.inf
        current.append(part)
        until = max(until, _end(part))
    return current, tries + max(each.tries for each in current)


def _span(parts: Sequence[KubeObject]) -> tuple[float | None, float | None]:
    """Start and run time of a try.

    A gang starts when all its pods run: those that were created before one of them ran, if they
    ran at the same time. Others start with the first.
    """
    first = min(_start(part) for part in parts)
    if first == np.inf:
        return None, None
    gang = [part for part in parts if part.submit_s <= first]
    start = max(_start(part) for part in gang)
    if start >= min(_end(part) for part in gang):
        start = first
    end = max(_end(part) for part in parts)
    return start, None if end == np.inf else end - start


def _resize(
    slices: Sequence[KubeObject], duration: float | None, doubts: list[str]
) -> float | None:
    """The run time of slices that follow each other, on the most GPUs that one had."""
    most = max(part.gpus for part in slices)
    if any(part.gpus != most for part in slices):
        doubts.append(RESIZED)
    if duration is None or any(part.start_s is None for part in slices):
        return None
    return sum(part.gpus * (_end(part) - _start(part)) for part in slices) / most


def _most_at_once(parts: Sequence[KubeObject]) -> int:
    """GPUs that were held at the same time; ends come before starts, if they coincide."""
    timed = [part for part in parts if part.start_s is not None]
    changes = [(_start(part), 1, part.gpus) for part in timed]
    changes += [(_end(part), 0 if _end(part) > _start(part) else 2, -part.gpus) for part in timed]
    held, most = 0, 0 if timed else max(part.gpus for part in parts)
    for _, _, change in sorted(changes):
        held += change
        most = max(most, held)
    return most
