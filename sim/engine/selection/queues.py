"""Several queues of one cluster, each with a `Select` policy and nodes of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection

from typing_extensions import override

from wattkeeper.policies.errors import InputError, PolicyError
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.select import CapacityView, Select, Selection
from wattkeeper.policies.points.views import Outcome
from wattkeeper.policies.registry import PolicyConfig, build_policy
from wattkeeper.policies.scheduling.queueing import NOTHING
from wattkeeper.sim.cluster.cluster import Cluster
from wattkeeper.sim.engine.selection.selector import Selector
from wattkeeper.sim.kernel.hosting import BoundPolicy, Host
from wattkeeper.sim.kernel.loop import NEVER


class QueueCapacity(CapacityView):
    """The free capacity of the nodes of one queue.

    Args:
        cluster: The cluster.
        types: Indices of the GPU types of the queue.

    Attributes:
        room: What fits in the cluster; set before it is asked.
        power_given: How often another queue gave power back that is shared under a cap.
    """

    room: CapacityView

    def __init__(self, cluster: Cluster, types: tuple[int, ...]) -> None:
        spec = cluster.spec
        self._free_by_type = cluster.free_by_type
        self._types = types
        self.power_given = 0
        self._gpus: int = sum([spec.most_gpus(spec.gpu_types[index]) for index in types])

    @property
    @override
    def gpus(self) -> int:
        return self._gpus

    @property
    @override
    def free_gpus(self) -> int:
        free = 0
        for index in self._types:
            free += self._free_by_type[index]
        return free

    @property
    @override
    def growths(self) -> int:
        return self.room.growths + self.power_given

    @override
    def fits(self, job: Job, without: Collection[Job] = ()) -> bool:
        return self.room.fits(job, without)


class _Queue:
    """A policy, the jobs that it knows, and when it is to be asked.

    Attributes:
        capacity: Of its nodes.
        waiting: Jobs that wait, by number, in order of their begin.
        running: Number of jobs that run.
        has_news: Whether it was told of a job since it was asked.
        wake_s: When it wants to be asked, s.
    """

    def __init__(self, bound: BoundPolicy, capacity: QueueCapacity) -> None:
        self.policy: Select = bound.policy
        self._bound = bound
        self._selector = Selector(bound)
        self.capacity = capacity
        self.waiting: dict[int, Job] = {}
        self.running = 0
        self.has_news = False
        self.wake_s = NEVER

    def ask(self) -> Selection:
        """Ask the policy what changes now."""
        self.has_news = False
        selection = self._selector.ask(self.capacity, self.waiting)
        for job in selection.preempt:
            self.running -= 1
            self.waiting[job.number] = job
        for job in selection.start:
            if self.waiting.pop(job.number, None) is None:
                raise PolicyError(f"job {job.job_id} was started, but does not wait", "select")
            self.running += 1
        return selection

    def ask_wake(self) -> None:
        """Ask the policy when it wants to be asked again."""
        wake_s = self._selector.ask_wake()
        self.wake_s = wake_s if self.waiting or self.running else NEVER

    def wait(self, method: Callable[[Context, Job], None], job: Job) -> None:
        """Tell the policy of a job that begins to wait."""
        self.waiting[job.number] = job
        self._tell(method, job)

    def leave(self, method: Callable[[Context, Job], None], job: Job) -> None:
        """Tell the policy of a job that runs no more."""
        self.running -= 1
        self._tell(method, job)
        if not (self.waiting or self.running):
            self.wake_s = NEVER

    def _tell(self, method: Callable[[Context, Job], None], job: Job) -> None:
        self.has_news = True
        self._bound.tell(method, job)

    def observe(self, outcome: Outcome) -> None:
        """Let the policy learn from an attempt that ended."""
        self._bound.tell(self.policy.observe, outcome)


class SelectByQueue(Select):
    """Asks a policy of its own for each queue, which knows nothing of the others.

    A queue decides at the times at which it would if it were alone: in a pass, its policy is asked
    if it heard of a job, wants to be woken, or more may fit. So what happens in another queue does
    not change its schedule, unless they share a power cap.

    Args:
        config: The config of the policies.
        host: Gives each its context.
        cluster: The cluster, which has several queues.
    """

    def __init__(self, config: PolicyConfig, host: Host, cluster: Cluster) -> None:
        self._cluster = cluster
        self._shares_power = cluster.spec.power_cap_w is not None
        self._queues: list[_Queue] = []
        for types in cluster.spec.queues:
            suffix = f" of queue {'|'.join(types)}"
            own = host.bind(config, build_policy(config), "select", suffix)
            indices = tuple([cluster.gpu_types.index(name) for name in types])
            self._queues.append(_Queue(own, QueueCapacity(cluster, indices)))
        self._of_types: dict[str | None, _Queue] = {}
        self._asked: list[_Queue] = []
        self._left: list[_Queue] = []
        self._in_pass = False
        self._growths = 0
        self._wake_s: float = NEVER

    def on_submit(self, ctx: Context, job: Job) -> None:
        """Tell the queue of the job."""
        queue = self._queue_of(job)
        queue.wait(queue.policy.on_submit, job)

    def on_resume(self, ctx: Context, job: Job) -> None:
        """Tell the queue of the job."""
        queue = self._queue_of(job)
        queue.wait(queue.policy.on_resume, job)

    def on_end(self, ctx: Context, job: Job) -> None:
        """Tell the queue of the job."""
        queue = self._queue_of(job)
        queue.leave(queue.policy.on_end, job)
        self._give_power(queue)

    def on_pause(self, ctx: Context, job: Job) -> None:
        """Tell the queue of the job."""
        queue = self._queue_of(job)
        queue.leave(queue.policy.on_pause, job)
        self._give_power(queue)

    def on_refuse(self, ctx: Context, job: Job) -> None:
        """Tell the queue of the job."""
        queue = self._queue_of(job)
        queue.running -= 1
        queue.wait(queue.policy.on_refuse, job)

    def observe(self, ctx: Context, outcome: Outcome) -> None:
        """Tell the queue of the job."""
        self._queue_of(outcome.start.job).observe(outcome)

    def select(self, ctx: Context, capacity: CapacityView) -> Selection:
        """The choice of the first queue that changes anything."""
        if not self._in_pass:
            self._begin_pass(ctx.now_s, capacity)
        left = self._left
        while left:
            queue = left[-1]
            if queue.waiting or queue not in self._asked:
                if queue not in self._asked:
                    self._asked.append(queue)
                selection = queue.ask()
                if selection.preempt:
                    self._give_power(queue)
                    self._left = [
                        other
                        for other in self._queues
                        if other.has_news and other.waiting and other not in left
                    ]
                    self._left += left
                if selection.start or selection.preempt:
                    return selection
            left.pop()
        return NOTHING

    def wake_s(self, ctx: Context) -> float:
        """When the first queue wants to be asked; it ends the pass."""
        for queue in self._asked:
            queue.ask_wake()
        self._asked.clear()
        self._left.clear()
        self._in_pass = False
        self._wake_s = min([queue.wake_s for queue in self._queues])
        return self._wake_s

    def _give_power(self, giver: _Queue) -> None:
        """Let all others know that a queue gave power back, where that is capped."""
        if self._shares_power:
            for queue in self._queues:
                if queue is not giver:
                    queue.capacity.power_given += 1
                    queue.has_news = True

    def _begin_pass(self, now_s: float, capacity: CapacityView) -> None:
        """Find the queues that are to be asked; those that nothing waits in are asked first."""
        self._in_pass = True
        has_grown = capacity.growths != self._growths
        self._growths = capacity.growths
        is_known = has_grown or now_s >= self._wake_s
        for queue in self._queues:
            is_known = is_known or queue.has_news
        idle: list[_Queue] = []
        for queue in reversed(self._queues):
            is_due = queue.has_news or has_grown or not is_known
            queue.capacity.room = capacity
            queue.has_news = False
            if queue.waiting and (is_due or queue.wake_s <= now_s):
                self._left.append(queue)
            elif queue.wake_s <= now_s:
                idle.append(queue)
        self._left += idle

    def _queue_of(self, job: Job) -> _Queue:
        queue = self._of_types.get(job.gpu_type)
        if queue is None:
            types = self._cluster.types_for(job)
            names = {self._cluster.gpu_types[index] for index in types}
            queues = self._cluster.spec.queues
            found = [number for number, each in enumerate(queues) if names & set(each)]
            if len(found) != 1:
                raise InputError(
                    f"job {job.job_id} may run on GPU types of {len(found)} queues; it must be one"
                )
            queue = self._of_types[job.gpu_type] = self._queues[found[0]]
        return queue
