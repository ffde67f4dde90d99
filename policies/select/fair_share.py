"""Fair shares of users."""

from __future__ import annotations

import math
from collections import deque
from typing import Any, Literal

from pydantic import Field

from wattkeeper.policies.points.job import WHOLE, Job, Key
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.select import CapacityView, Select, Selection
from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.policies.scheduling.queueing import NOTHING


class _User:
    """Usage of a user, and the user's waiting jobs by key, each in order of submission.

    `gpu_s` is the usage as of `since_s`; `gpus` are allocated since then.
    """

    __slots__ = ("gpu_s", "gpus", "since_s", "waiting")

    def __init__(self) -> None:
        self.gpu_s = 0.0
        self.since_s = 0.0
        self.gpus = 0.0
        self.waiting: dict[Key, deque[Job]] = {}


class FairShare(Select):
    """See `FairShareConfig`.

    The state is each user's usage and the time it refers to.
    """

    def __init__(self, config: FairShareConfig) -> None:
        self._half_life_s = config.half_life_s
        self._users: dict[str | None, _User] = {}
        self._asking: dict[Key, dict[str | None, _User]] = {}

    def on_submit(self, ctx: Context, job: Job) -> None:
        """Enqueue the job."""
        user = self._users.get(job.user)
        if user is None:
            user = self._users[job.user] = _User()
        key = job.key
        user.waiting.setdefault(key, deque()).append(job)
        self._asking.setdefault(key, {})[job.user] = user

    def on_end(self, ctx: Context, job: Job) -> None:
        """Account the released GPUs to the user."""
        self._hold(self._users[job.user], -job.gpus_held, ctx.now_s)

    def select(self, ctx: Context, capacity: CapacityView) -> Selection:
        """The first job that fits of the user with the least usage."""
        free, now = capacity.free_gpus, ctx.now_s
        first: dict[str | None, Job] = {}
        for key, users in self._asking.items():
            head = next(iter(users.values())).waiting[key][0]
            if head.gpus > free and head.gpu_milli == WHOLE:
                continue
            if not capacity.fits(head):
                continue
            for name, user in users.items():
                job = user.waiting[key][0]
                if name not in first or _order(job) < _order(first[name]):
                    first[name] = job
        if not first:
            return NOTHING
        job = min(
            first.values(), key=lambda job: (self._usage(self._users[job.user], now), _order(job))
        )
        self._take(job)
        self._hold(self._users[job.user], job.gpus_held, now)
        return Selection((job,))

    def state_dict(self) -> dict[str, Any]:
        """Name, usage and its time of every user, in order of their first submission."""
        return {"users": [[name, user.gpu_s, user.since_s] for name, user in self._users.items()]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        for name, gpu_s, since_s in state["users"]:
            user = self._users.setdefault(name, _User())
            user.gpu_s, user.since_s = gpu_s, since_s

    def _take(self, job: Job) -> None:
        key = job.key
        user = self._users[job.user]
        user.waiting[key].popleft()
        if not user.waiting[key]:
            del user.waiting[key]
            del self._asking[key][job.user]
            if not self._asking[key]:
                del self._asking[key]

    def _usage(self, user: _User, now: float) -> float:
        """Usage by now, GPU-seconds: past usage decays, and so does the usage of running jobs."""
        kept = math.exp2((user.since_s - now) / self._half_life_s)
        return user.gpu_s * kept + user.gpus * (1 - kept) * self._half_life_s / math.log(2)

    def _hold(self, user: _User, gpus: float, now: float) -> None:
        user.gpu_s = self._usage(user, now)
        user.since_s = now
        user.gpus += gpus


class FairShareConfig(PolicyConfig):
    """The user with the least decayed usage first, without preemption.

    Usage is allocated GPU-seconds, running jobs included; it decays by half in each half-life, as
    in Slurm's multifactor priority plugin with equal shares. Of all users with a waiting job that
    fits, the one with the least usage is served: the first of these jobs in order of submission.
    Ties between users are broken by the order of these jobs. Jobs without a user count as those of
    one user. Where partitions have queues of their own, usage is that of the queue.
    """

    kind: Literal["fair-share"] = "fair-share"
    policy = FairShare
    plain = "the user with the least usage first"
    half_life_s: float = Field(604800.0, gt=0)
    """Time after which usage counts half, s; as Slurm's `PriorityDecayHalfLife`, whose default is
    seven days."""


def _order(job: Job) -> tuple[float, int]:
    return job.submit_time_s, job.number
