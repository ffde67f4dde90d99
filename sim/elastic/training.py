"""The life of an elastic job: it forms, pauses, trains in steps, commits, and forms anew."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, Protocol

from typing_extensions import override

from wattkeeper.policies.points.moments import Progress
from wattkeeper.policies.points.replan import ElasticTask, ReplanMoment, Reshape, Shape
from wattkeeper.sim.attempts.attempt import Attempt, Execution
from wattkeeper.sim.attempts.pace import NODE, Pace, own_pace, peers_pace
from wattkeeper.sim.elastic.carried import CarriedWork
from wattkeeper.sim.elastic.cycle import Cycle
from wattkeeper.sim.elastic.ledger import Fate, Spent, StepLedger
from wattkeeper.sim.elastic.span import TrainingSpan
from wattkeeper.sim.kernel.loop import Callback, EventLoop, ScheduledEvent, schedule_at

if TYPE_CHECKING:
    from wattkeeper.sim.cluster.checkpoints import CheckpointRule

Phase = Literal["waiting", "forming", "pause", "stopped", "steps", "commit"]
"""`waiting`: it has no nodes. `forming`: it has some, and its shape is chosen at the end of this
time. `pause`: nothing is trained until the shape is taken. `stopped`: its nodes are too few to
train, until others come. `steps`: it trains. `commit`: it writes a checkpoint before a planned
change."""


NO_STEPS: Final = Cycle(1.0, 1, 0.0)
"""The cycle of a training that has not trained yet."""


class Owner(Protocol):
    """What an elastic job reports to."""

    def form(self, training: ElasticTraining, moment: ReplanMoment) -> None:
        """Called when its shape is to be chosen at the end of this time, and why."""

    def trains(self, training: ElasticTraining) -> None:
        """Called when it begins to train."""

    def wants_boundary(self, training: ElasticTraining) -> bool:
        """Whether it still is to form anew, at the end of a step."""

    def finish(self, training: ElasticTraining) -> None:
        """Called when it has trained all its samples."""


def steps_of(samples: float, batch: float) -> float:
    """Steps that train so many samples; one more for a rest, unless rounding left it."""
    steps = samples / batch
    return steps if math.isinf(steps) else math.ceil(steps - 4 * math.ulp(steps))


class ElasticTraining(Execution):
    """An elastic job, over all its attempts; each shape is an attempt of its own.

    Args:
        loop: The event loop of the run.
        attempt: Its first attempt.
        task: What it trains.
        samples: Samples after which it ends; infinite: it does not end by itself.
        owner: Is told what happens to it.
        carried: Work of earlier shapes that it goes on with: none at first.

    Attributes:
        task: What it trains.
        carried: Work of earlier shapes that it goes on with.
        nodes: The nodes that it holds, ascending.
        phase: What it does.
        moment: Why its shape is chosen, or was last chosen.
        announced: Whether the loss that it forms after was announced early enough.
        gives: Nodes that it gives to others at its next boundary.
        is_asked: Whether it commits what it did, to form anew.
        saved_s: Time to write what was kept when a loss was announced, a part of the next pause, s.
        ledger: Its steps.
        change: Its shape, as `Replan` last answered; None: it has none.
        declined: Spare nodes that `Replan` declined last.
        used: Time (s), energy (J) and cost (J) of training in its attempts that ended.
    """

    def __init__(
        self,
        loop: EventLoop,
        attempt: Attempt,
        task: ElasticTask,
        samples: float,
        owner: Owner,
        carried: CarriedWork,
    ) -> None:
        super().__init__(attempt)
        self._loop = loop
        self.task = task
        self._owner = owner
        self.carried = carried
        self.ledger = StepLedger(steps_of(samples, task.batch))
        self.nodes: tuple[int, ...] = ()
        self.phase: Phase = "waiting"
        self.moment: ReplanMoment = "start"
        self.announced = False
        self.gives = 0
        self.is_asked = False
        self.saved_s = 0.0
        self.change: Reshape | None = None
        self.declined = 0
        self.used = (0.0, 0.0, 0.0)
        self._since_s = 0.0
        self._until_s = 0.0
        self._span = TrainingSpan(NO_STEPS, self.ledger, 0.0, 1.0)
        self._event: ScheduledEvent | None = None

    @override
    def go_on(self, delay_s: float) -> None:
        """Form on the nodes that it was given, which are ready after a delay, s."""
        self.nodes = tuple(sorted(slot[0] for slot in self.attempt.placement))
        self._until_s = self._loop.now_s + delay_s
        self.phase = "forming"
        self._owner.form(self, "start")

    @override
    def pause(self) -> None:
        """Not used: an elastic job that is preempted ends its attempt (`ElasticJobs.preempt`)."""
        raise NotImplementedError

    def hold(self, nodes: tuple[int, ...], slowdown: float) -> None:
        """Hold other nodes, while it does not train, and keep the pace of the slowest of them."""
        self.nodes = nodes
        self.slow(NODE, Pace(slowdown))

    @override
    def change_pace(self, peers: Pace, own: Pace) -> None:
        if peers.power * own.power != 1:
            raise NotImplementedError("elastic jobs draw the same power at any pace")
        if self.phase in ("steps", "commit"):
            self._span.change_pace(self._loop.now_s, self._full_slowdown)
            self._await_next()

    @property
    def _full_slowdown(self) -> float:
        """Time of a step over that at full pace, by all causes."""
        return peers_pace(self.causes).slowdown * own_pace(self.causes).slowdown

    @override
    def write_checkpoints(self, rule: CheckpointRule) -> None:
        """Nothing: `Replan` says when it commits."""

    @override
    def progress(self) -> Progress:
        """Its committed steps, as epochs."""
        return Progress(float(self.ledger.committed))

    @property
    def shape(self) -> Shape | None:
        """Its shape, where it has one."""
        return None if self.change is None else self.change.shape

    @property
    def can_join(self) -> bool:
        """Whether nodes that come now join it without a pause of their own."""
        return self.phase in ("forming", "pause", "stopped")

    def delay(self, delay_s: float) -> None:
        """Begin to train only once a node that joined is ready, which takes so long, s."""
        self._until_s = max(self._until_s, self._loop.now_s + delay_s)
        if self.phase == "pause":
            self._await_next()

    def take_shape(self, change: Reshape) -> None:
        """Take a shape after a pause."""
        now_s = self._loop.now_s
        self.change = change
        self.is_asked, self.gives, self.declined = change.is_interim, 0, 0
        self.phase, self._since_s = "pause", now_s
        self._until_s = max(self._until_s, now_s) + change.pause_s + self.saved_s
        self.saved_s = 0.0
        self._await_next()

    def join(self, shape: Shape) -> None:
        """Train with a shape on more nodes once the present pause ends."""
        assert self.change is not None
        self.change = self.change._replace(shape=shape)

    def _await_next(self) -> None:
        """Schedule what ends the present pause, span of steps or commit."""
        self._cancel()
        time_s, happens = self._next()
        if time_s < math.inf:
            self._event = Callback(happens)
            schedule_at(self._loop, time_s, self._event)

    def _next(self) -> tuple[float, Callable[[object], None]]:
        """The time at which that happens (s; infinite: never), and what."""
        if self.phase == "pause":
            return self._until_s, self._train
        if self.phase == "commit":
            return self._span.commit_end_s(self.task.checkpoint_s), self._reach_boundary
        finish_s = self._span.finish_s()
        if self.is_asked and (end_s := self._span.step_end_s(self._loop.now_s)) < finish_s:
            return end_s, self._end_step
        return finish_s, lambda _: self._owner.finish(self)

    def _train(self, _: object) -> None:
        """Begin to train in steps."""
        assert self.shape is not None
        now_s, shape = self._loop.now_s, self.shape
        self._count_phase()
        if not shape.rate:
            self.phase = "stopped"
            self._loop.pass_is_due = True
            return
        cycle = Cycle(self.task.batch / shape.rate, shape.commit_steps, shape.write_s)
        self._span = TrainingSpan(cycle, self.ledger, now_s, self._full_slowdown)
        self.phase = "steps"
        self._owner.trains(self)
        self._await_next()

    def ask_for_boundary(self) -> None:
        """Form anew once what was done is committed."""
        self.is_asked = True
        if self.phase == "steps":
            self._await_next()

    def _end_step(self, _: object) -> None:
        """Commit what is not committed at the end of a step, then form anew."""
        if not self._owner.wants_boundary(self):
            self.is_asked, self.gives, self.declined = False, 0, 0
            self._await_next()
            return
        shape, steps = self.shape, self._span.steps_at(self._loop.now_s)[1]
        assert shape is not None
        is_due = 0 < shape.commit_steps <= steps
        if not steps or (shape.is_redundant and not self.gives and not is_due):
            self._reach_boundary()
            return
        self._count_phase()
        self.phase = "commit"
        self._span.begin_commit(self._loop.now_s, self._full_slowdown)
        self._await_next()

    def _reach_boundary(self, _: object = None) -> None:
        """Form anew, after a commit or without one."""
        assert self.shape is not None
        self._count_phase()
        if self.phase == "commit" or not self.shape.is_redundant:
            self.ledger.commit()
        if self.shape.is_redundant:
            self.ledger.share = self.ledger.part_s = 0.0
        self.phase = "forming"
        self._until_s = self._loop.now_s
        self._owner.form(self, "boundary")

    def _count_phase(self) -> None:
        """Enter the phase that ends now in the ledger."""
        since_s, self._since_s = self._since_s, self._loop.now_s
        if self.phase == "pause":
            self.ledger.spent.pause_s += self._since_s - since_s
        elif self.phase == "commit":
            self._span.count_commit(since_s, self._since_s)
        elif self.phase == "steps":
            self._span.count_steps(since_s, self._since_s)

    def end_shape(self, fate: Fate) -> Spent:
        """End the present attempt now; returns what it did. The end of a pause stays as it is."""
        self._count_phase()
        if self.phase != "pause":
            self._cancel()
        return self.ledger.close_shape(fate, self._span.took_s)

    @property
    def planned_fate(self) -> Fate:
        """What becomes of its steps in a planned change of its nodes."""
        return "carried" if self.shape is not None and self.shape.is_redundant else "kept"

    def restart_forming(self, moment: ReplanMoment) -> None:
        """Have its shape chosen, after a loss of nodes or since some came that it stood for."""
        self._cancel()
        self.phase, self.moment = "forming", moment
        self.is_asked, self.gives = False, 0
        self._until_s = self._loop.now_s
        self.ledger.fruitless += moment == "lost"

    def leave(self) -> None:
        """Hold no nodes any more."""
        self._cancel()
        self.phase, self.change, self.nodes = "waiting", None, ()
        self.is_asked, self.gives, self.saved_s = False, 0, 0.0

    def _cancel(self) -> None:
        if self._event is not None:
            self._event.cancel()
            self._event = None
