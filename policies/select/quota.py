"""Limits of the GPUs that jobs of a queue or of a user hold at one time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from heapq import heappop, heappush
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field
from typing_extensions import override

from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.select import CapacityView, Select, Selection
from wattkeeper.policies.registry import PolicyConfig, find_config
from wattkeeper.policies.scheduling.estimates import Estimates

Owner = tuple[str, str]
"""`queue` or `user`, and its name."""

Line = dict[float, list[tuple[float, int, Job]]]
"""Waiting jobs of the same owners by their GPUs: heaps by submission, then number."""

ROUNDING: Final = 1e-9
"""GPUs by which sums of fractions may exceed a limit."""


class Quota(Select):
    """See `QuotaConfig`.

    Jobs with the same limited owners wait in a line. Only lines are looked at that got a job, or
    whose owners gave GPUs back.
    """

    def __init__(self, config: QuotaConfig) -> None:
        self._config = config
        self._queue: Select = config.queue_config.build()
        self._held: dict[Owner, float] = {}
        self._lines: dict[tuple[Owner, ...], Line] = {}
        self._lines_of: dict[Owner, dict[tuple[Owner, ...], None]] = {}
        self._changed: dict[tuple[Owner, ...], None] = {}
        self._begun: set[int] = set()

    @override
    def on_submit(self, ctx: Context, job: Job) -> None:
        owners = tuple(self._owners(job))
        for owner in owners:
            limit = self._limit(owner)
            if job.gpus_held > limit + ROUNDING:
                raise PolicyError(
                    f"job {job.job_id} asks for {job.gpus_held:g} GPUs, and jobs of "
                    f"{' '.join(owner)} may hold {limit:g}: it could never run",
                    "select",
                )
        if owners:
            self._wait(job, owners)
        else:
            self._queue.on_submit(ctx, job)

    @override
    def on_end(self, ctx: Context, job: Job) -> None:
        self._give_back(job)
        self._queue.on_end(ctx, job)

    @override
    def on_pause(self, ctx: Context, job: Job) -> None:
        self._give_back(job)
        self._queue.on_pause(ctx, job)

    @override
    def on_resume(self, ctx: Context, job: Job) -> None:
        if owners := tuple(self._owners(job)):
            self._begun.add(job.number)
            self._wait(job, owners)
        else:
            self._queue.on_resume(ctx, job)

    @override
    def on_refuse(self, ctx: Context, job: Job) -> None:
        self._queue.on_refuse(ctx, job)

    @override
    def select(self, ctx: Context, capacity: CapacityView) -> Selection:
        if self._changed:
            self._admit(ctx)
        return self._queue.select(ctx, capacity)

    @override
    def wake_s(self, ctx: Context) -> float:
        return self._queue.wake_s(ctx)

    @override
    def state_dict(self) -> dict[str, Any]:
        return self._queue.state_dict()

    @override
    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._queue.load_state_dict(state)

    def _wait(self, job: Job, owners: tuple[Owner, ...]) -> None:
        """Put a job into the line of its owners."""
        line = self._lines.setdefault(owners, {})
        heappush(line.setdefault(job.gpus_held, []), (job.submit_time_s, job.number, job))
        for owner in owners:
            self._lines_of.setdefault(owner, {})[owners] = None
        self._changed[owners] = None

    def _give_back(self, job: Job) -> None:
        """Count the GPUs of an admitted job no more."""
        for owner in self._owners(job):
            self._held[owner] -= job.gpus_held
            self._changed.update(self._lines_of.get(owner, {}))

    def _owners(self, job: Job) -> Iterator[Owner]:
        """Whose limits hold for a job."""
        config = self._config
        if job.queue in config.queues:
            yield "queue", job.queue
        if job.user is not None and (job.user in config.users or config.each_user is not None):
            yield "user", job.user

    def _limit(self, owner: Owner) -> float:
        config, (kind, name) = self._config, owner
        if kind == "queue":
            return config.queues[name]
        return config.users.get(name, config.each_user or math.inf)

    def _room(self, owners: tuple[Owner, ...]) -> float:
        """GPUs that these owners may still hold."""
        return ROUNDING + min(self._limit(each) - self._held.get(each, 0.0) for each in owners)

    def _admit(self, ctx: Context) -> None:
        """Hand the jobs that the limits allow to the queue, in order of submission."""
        while True:
            best: tuple[float, int, Job] | None = None
            owners: tuple[Owner, ...] = ()
            for each in self._changed:
                room = self._room(each)
                heads = (
                    heap[0] for gpus, heap in self._lines.get(each, {}).items() if gpus <= room
                )
                head = min(heads, default=None)
                if head is not None and (best is None or head < best):
                    best, owners = head, each
            if best is None:
                break
            job = best[2]
            self._take(job, owners)
            if job.number in self._begun:
                self._begun.remove(job.number)
                self._queue.on_resume(ctx, job)
            else:
                self._queue.on_submit(ctx, job)
        self._changed.clear()

    def _take(self, job: Job, owners: tuple[Owner, ...]) -> None:
        """Take a job out of its line, and count its GPUs."""
        line = self._lines[owners]
        heappop(line[job.gpus_held])
        if not line[job.gpus_held]:
            del line[job.gpus_held]
        if not line:
            del self._lines[owners]
        for owner in owners:
            self._held[owner] = self._held.get(owner, 0.0) + job.gpus_held
            if not line:
                del self._lines_of[owner][owners]


Limit = Annotated[int, Field(gt=0)]


class QuotaConfig(PolicyConfig):
    """Jobs of a queue or user hold at most so many GPUs; another policy orders those admitted.

    As Slurm's `GrpTRES=gres/gpu=N` of a partition's QOS (`queues`) and `MaxTRESPerUser` (`users`,
    `each_user`): a job is admitted if its GPUs, and those of all admitted jobs of its queue and of
    its user that have not ended, are within the limits. Jobs are admitted in order of submission; a
    smaller job passes those that do not fit into a limit. An admitted job counts while it waits for
    GPUs, too, so that where the cluster is full, a limit binds earlier than in Slurm, which counts
    running jobs alone. A job above a limit is refused. Where partitions have queues of their own,
    limits of users are of each queue.
    """

    kind: Literal["quota"] = "quota"
    policy = Quota
    names_queues: ClassVar[bool] = True
    queues: dict[str, Limit] = Field(default_factory=dict)
    """Most GPUs of all jobs of a queue (partition), by its name."""
    users: dict[str, Limit] = Field(default_factory=dict)
    """Most GPUs of all jobs of a user, by name."""
    each_user: Limit | None = None
    """Most GPUs of all jobs of each user that `users` does not name; no limit if absent."""
    queue: Literal["fifo", "fjf", "easy-backfill", "sjf"] = "fjf"
    """Order of admitted jobs: that of the policy of this name."""
    estimates: Estimates = "user"
    """Expected run times of `easy-backfill`."""

    @property
    def queue_config(self) -> PolicyConfig:
        """The config of the queue."""
        settings = {"estimates": self.estimates} if self.queue == "easy-backfill" else {}
        return find_config("select", self.queue, settings)

    @property
    def needed_columns(self) -> Mapping[str, str]:
        """The column of the expected run time, where the queue reads it."""
        return self.queue_config.needed_columns
