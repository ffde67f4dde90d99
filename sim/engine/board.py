"""The board of a run: the state of every job, which changes by named transitions alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from wattkeeper.policies.points.job import Job
from wattkeeper.sim.attempts.attempt import Attempt, Execution, Paused
from wattkeeper.sim.cluster.cluster import Cluster
from wattkeeper.sim.kernel.loop import NEVER, Callback, EventLoop, ScheduledEvent, schedule_at

if TYPE_CHECKING:
    from wattkeeper.sim.attempts.service import JobService
    from wattkeeper.sim.recording.cluster_journal import ClusterJournal


MOST_IDLE: Final = 1_000_000
"""So often in a row something may happen on an idle cluster, with no arrival to come."""
WAKES: Final = 1_000_000
SHORTEST_WAKE_S: Final = 1e-3
"""The least time from wake to wake, s, as the mean of so many wakes."""


class JobBoard:
    """The state of every job that was submitted and has not ended.

    A job *waits*, *runs* on GPUs, or is *suspended*: `Tune` paused it and took its GPUs. One that
    waits after it had GPUs is also *paused*: it has an attempt that resumes.

    Attributes:
        waiting: Jobs in the queue by number, in the order in which they began to wait.
        running: Attempts that hold GPUs by number of the job, last started last.
        paused: Of jobs that wait, attempts that resume once they get GPUs again.
        suspended: Attempts of suspended jobs.
        stalled: Of attempts that run, those that wait for power before they train.
        services: What runs a job in place of the backend, by number of the job. Where there are
            any, `Select` is asked even if no job waits.
        alarm: When `Select` wants to be asked, whatever happens before.
    """

    def __init__(self, loop: EventLoop, cluster: Cluster, journal: ClusterJournal) -> None:
        self._loop = loop
        self._cluster = cluster
        self._journal = journal
        self.waiting: dict[int, Job] = {}
        self.running: dict[int, Execution] = {}
        self.paused: dict[int, Paused] = {}
        self.suspended: dict[int, Paused] = {}
        self.stalled: dict[int, Attempt] = {}
        self.services: dict[int, JobService] = {}
        self.alarm = Alarm(loop)
        self._groups: dict[str, int] = {}

    @property
    def free(self) -> int:
        """Unallocated GPUs."""
        return self._cluster.free_gpus

    @property
    def is_idle(self) -> bool:
        """Whether no job runs or is to come."""
        return not self.running and self._loop.next_arrival_s == NEVER

    @property
    def has_work(self) -> bool:
        """Whether any job runs, waits, is suspended or is to come."""
        return not self.is_idle or bool(self.waiting) or bool(self.suspended)

    def submit(self, job: Job) -> None:
        """Let a new job wait."""
        assert job.number not in self.running
        self.waiting[job.number] = job
        self._loop.pass_is_due = True

    def start(self, job: Job) -> Paused | None:
        """Take a waiting job from the queue; returns the attempt that it resumes, if any."""
        del self.waiting[job.number]
        return self.paused.pop(job.number, None) if self.paused else None

    def run(self, execution: Execution) -> None:
        """Let an attempt run: of a job that was taken from the queue, or its next one."""
        number = execution.attempt.job.number
        assert not self.waiting or number not in self.waiting
        self.running[number] = execution

    def stall(self, execution: Execution) -> None:
        """Let the next attempt of a running job wait for power on its GPUs."""
        attempt = execution.attempt
        assert attempt.job.number in self.running
        self.running[attempt.job.number] = execution
        self.stalled[attempt.job.number] = attempt

    def halt(self, number: int) -> None:
        """Take the attempt of a running job off its GPUs; `pause`, `suspend` or nothing follows."""
        del self.running[number]

    def pause(self, execution: Execution, since_s: float) -> None:
        """Let a halted job wait, whose attempt resumes; it gave up its GPUs at a time, s."""
        job = execution.attempt.job
        assert job.number not in self.running
        self.paused[job.number] = Paused(execution, since_s)
        self.waiting[job.number] = job

    def suspend(self, execution: Execution, since_s: float) -> None:
        """Let a halted job be suspended, since a time, s."""
        number = execution.attempt.job.number
        assert number not in self.running
        assert number not in self.waiting
        self.suspended[number] = Paused(execution, since_s)

    def resume(self, number: int) -> None:
        """Let a suspended job wait for GPUs."""
        paused = self.suspended.pop(number)
        self.paused[number] = paused
        self.waiting[number] = paused.execution.attempt.job

    def withdraw(self, number: int) -> Paused | None:
        """End a job that waits; returns the attempt that it would have resumed, if any."""
        del self.waiting[number]
        return self.paused.pop(number, None)

    def end(self, number: int) -> bool:
        """End a job in any state; returns whether it held GPUs."""
        if self.running.pop(number, None) is not None:
            return True
        if self.suspended.pop(number, None) is None:
            self.withdraw(number)
        return False

    def clear(self) -> None:
        """Forget all jobs."""
        self.waiting.clear()
        self.running.clear()
        self.paused.clear()
        self.suspended.clear()
        self.stalled.clear()
        self.services.clear()

    def enter_group(self, job: Job) -> None:
        """Increment the number of jobs of its group that started and have not ended."""
        self._groups[job.group_id] = self._groups.get(job.group_id, 0) + 1

    def others_in_group(self, job: Job) -> int:
        """How many other jobs of its group have started and not ended."""
        return self._groups[job.group_id] - 1

    def leave_group(self, job: Job) -> None:
        """Decrement the number of jobs of its group that started and have not ended."""
        left = self._groups[job.group_id] - 1
        if left:
            self._groups[job.group_id] = left
        else:
            del self._groups[job.group_id]

    def has(self, execution: Execution) -> bool:
        """Whether an attempt is the present one of its job: it runs, is paused or suspended."""
        number = execution.attempt.job.number
        if self.running.get(number) is execution:
            return True
        without_gpus = self.paused.get(number) or self.suspended.get(number)
        return without_gpus is not None and without_gpus.execution is execution

    def on_node(self, node: int) -> list[Execution]:
        """The attempts that hold GPUs of a node."""
        return [
            execution
            for execution in self.running.values()
            if any(slot[0] == node for slot in execution.attempt.placement)
        ]

    def note(self, maker: int, attempt: Attempt, choice: int) -> None:
        """Note a decision about an attempt in the journal, with the queue and the free GPUs."""
        now_s, number = self._loop.now_s, attempt.job.number
        waiting, free = len(self.waiting), self._cluster.free_gpus
        self._journal.add(now_s, maker, number, attempt.number, choice, waiting, free)

    def ask_for_pass(self) -> None:
        """Have `Select` asked at the end of this time, if there is anything to ask about."""
        if self.waiting or self.stalled or self.services:
            self._loop.pass_is_due = True
        elif self.alarm.is_set and not self.running:
            self.alarm.set(NEVER)


class IdleCount:
    """Counts how often in a row something happened while no job ran or was to come."""

    def __init__(self, board: JobBoard) -> None:
        self._board = board
        self._times = 0

    def is_beyond(self) -> bool:
        """Count that it happens now; returns whether it did more often than `MOST_IDLE`."""
        self._times = self._times + 1 if self._board.is_idle else 0
        return self._times > MOST_IDLE


class WakeLimit:
    """Counts how often a policy is woken, and whether time passes meanwhile."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._wakes = 0
        self._since_s = 0.0

    def count(self) -> str:
        """Count that it is woken now; returns why that is too often, in words, or nothing."""
        self._wakes += 1
        if self._wakes < WAKES:
            return ""
        now_s, passed_s = self._loop.now_s, self._loop.now_s - self._since_s
        self._wakes, self._since_s = 0, now_s
        if passed_s >= WAKES * SHORTEST_WAKE_S:
            return ""
        return (
            f"was woken {WAKES:,} times within {passed_s:g} s, at last at {now_s:g} s; allowed is "
            f"a mean of {SHORTEST_WAKE_S:g} s or more from wake to wake"
        )


class Alarm:
    """Calls a function when its time comes.

    Attributes:
        call: The function; set before the time comes.
    """

    call: Callable[[], object]

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._event: ScheduledEvent | None = None

    @property
    def is_set(self) -> bool:
        """Whether its time is to come."""
        return self._event is not None

    def set(self, time_s: float) -> None:
        """Replace its time, s; infinite: it does not ring."""
        if self._event is not None:
            if self._event.time_s == time_s:
                return
            self._event.cancel()
            self._event = None
        if time_s < NEVER:
            self._event = Callback(self._ring)
            schedule_at(self._loop, time_s, self._event)

    def _ring(self, _: object) -> None:
        self._event = None
        self.call()
