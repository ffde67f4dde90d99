"""The decision point `Select`: which jobs run now."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Collection

from mypy_extensions import mypyc_attr

from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.policy import Context, Policy


@mypyc_attr(allow_interpreted_subclasses=True)
class CapacityView:
    """Read-only view of the cluster's free capacity for `Select`."""

    @property
    @abstractmethod
    def gpus(self) -> int:
        """GPUs of all nodes."""
        raise NotImplementedError

    @property
    @abstractmethod
    def free_gpus(self) -> int:
        """Unallocated GPUs, shared ones not included."""
        raise NotImplementedError

    @abstractmethod
    def fits(self, job: Job, without: Collection[Job] = ()) -> bool:
        """Whether `Place` finds a place for a job now, if the jobs of `without` were preempted.

        The answer is the same for all jobs of one demand and workload, unless `Place` has a
        `wake_s`. What was started and refused does not fit until the time advances or something is
        given back.
        """
        raise NotImplementedError

    @property
    @abstractmethod
    def growths(self) -> int:
        """Number that changes when more may fit for another reason than that a job gave GPUs back.

        Policies are told of each job that gives its GPUs back, or preempt it themselves. As long as
        neither that nor this number changes, what did not fit does not fit.
        """
        raise NotImplementedError


class Selection:
    """A scheduling decision: running jobs to preempt, then waiting jobs to start, in order."""

    def __init__(self, start: tuple[Job, ...] = (), preempt: tuple[Job, ...] = ()) -> None:
        self.start = start
        self.preempt = preempt

    def __repr__(self) -> str:
        return f"Selection({self.start!r}, {self.preempt!r})"


@mypyc_attr(allow_interpreted_subclasses=True)
class Select(Policy):
    """Which waiting jobs start now, and which running jobs are preempted for them?

    The policy maintains the queue itself: it is told of every job that begins to wait (`on_submit`)
    and of every job that ends (`on_end`). A job that it preempts waits again without such a call.
    Its state holds what it learnt, not the queue: after a restore, all jobs are submitted again.
    Where partitions have queues of their own, each has a policy, which knows its queue alone.
    """

    @abstractmethod
    def select(self, ctx: Context, capacity: CapacityView) -> Selection:
        """Decide what changes now; asked again until nothing changes or no job waits."""
        raise NotImplementedError

    def on_end(self, ctx: Context, job: Job) -> None:
        """Called when a running job has ended."""

    def on_pause(self, ctx: Context, job: Job) -> None:
        """Called when `Tune` paused a running job, which gave up its GPUs; by default as an end."""
        self.on_end(ctx, job)

    def on_resume(self, ctx: Context, job: Job) -> None:
        """Called when a paused job waits for GPUs to resume; by default as a submission."""
        self.on_submit(ctx, job)

    def on_refuse(self, ctx: Context, job: Job) -> None:
        """Called when a started job cannot be placed; it waits on.

        The job must not be started again before it fits. Never called for a policy that starts one
        job at a time, and only if it fits.

        Raises:
            PolicyError: Unless the policy overrides this method.
        """
        raise PolicyError(f"job {job.job_id} was started, but does not fit anywhere", "select")

    def wake_s(self, ctx: Context) -> float:
        """When to ask again if nothing happens before, s; infinite for never."""
        return math.inf
