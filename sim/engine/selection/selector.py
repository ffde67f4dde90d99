"""Asks `Select`, and tells it of jobs that end, pause and resume."""

from __future__ import annotations

from collections.abc import Mapping

from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.select import CapacityView, Select, Selection
from wattkeeper.sim.attempts.validation import check_types_of_selection, check_wake
from wattkeeper.sim.kernel.hosting import BoundPolicy
from wattkeeper.sim.kernel.loop import NEVER


class Selector:
    """The `Select` policy of a run; what it raises names the job.

    Attributes:
        ctx: Its context.
    """

    def __init__(self, select: BoundPolicy) -> None:
        self._bound = select
        self._select: Select = select.policy
        self.ctx = select.ctx
        self._checks_types = select.is_foreign

    def ask(self, capacity: CapacityView, waiting: Mapping[int, Job]) -> Selection:
        """What changes now."""
        try:
            selection = self._select.select(self.ctx, capacity)
            if self._checks_types:
                check_types_of_selection(selection)
        except BaseException as error:
            jobs = list(waiting.values())
            about = f"job {jobs[0].job_id}" if jobs else ""
            if len(jobs) > 1:
                about += f" and {len(jobs) - 1} others that wait"
            raise self.ctx.explain_failure(error, self._select.select, about) from None
        return selection

    def ask_wake(self) -> float:
        """When it wants to be asked again, s."""
        try:
            wake_s = self._select.wake_s(self.ctx)
            if wake_s != NEVER:
                check_wake(wake_s, self.ctx.now_s, "select")
        except BaseException as error:
            raise self.ctx.explain_failure(error, self._select.wake_s, "") from None
        return wake_s

    def end(self, job: Job) -> None:
        """Tell it of a job that ended."""
        self._bound.tell(self._select.on_end, job)

    def pause(self, job: Job) -> None:
        """Tell it of a job that gave up its GPUs, and does not wait."""
        self._bound.tell(self._select.on_pause, job)

    def resume(self, job: Job) -> None:
        """Tell it of a paused job that waits for GPUs."""
        self._bound.tell(self._select.on_resume, job)

    def refuse(self, job: Job) -> None:
        """Tell it of a job that it started, and that has no place."""
        self._bound.tell(self._select.on_refuse, job)
