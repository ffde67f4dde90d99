"""The life of an elastic job: it forms, pauses, trains in steps, commits, and forms anew."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, Protocol

from typing_extensions import override

from wattkeeper.policies.points.moments import Progress
from wattkeeper.policies.points.replan import ElasticTask, ReplanMoment, Reshape, Shape
from wattkeeper.sim.attempts.attempt import Attempt, Execution
from wattkeeper.sim.attempts.pace import NODE, Pace
from wattkeeper.sim.elastic.carried import CarriedWork
from wattkeeper.sim.elastic.cycle import Cycle
from wattkeeper.sim.elastic.pace import PaceClock
from wattkeeper.sim.elastic.spent import Fate, Spent
from wattkeeper.sim.kernel.loop import Callback, EventLoop, ScheduledEvent, schedule_at

if TYPE_CHECKING:
    from wattkeeper.sim.cluster.checkpoints import CheckpointRule

Phase = Literal["waiting", "forming", "pause", "stopped", "steps", "commit"]
"""`waiting`: it has no nodes. `forming`: it has some, and its shape is chosen at the end of this
time. `pause`: nothing is trained until the shape is taken. `stopped`: its nodes are too few to
train, until others come. `steps`: it trains. `commit`: it writes a checkpoint before a planned
change."""


MOST_WRITES: Final = 10_000
"""So many writes of checkpoints of an attempt are told apart: each of them takes memory."""


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
        nodes: The nodes that it holds, ascending.
        phase: What it does.
        shape: Its shape, where it has one.
        moment: Why its shape is chosen, or was last chosen.
        announced: Whether the loss that it forms after was announced early enough.
        gives: Nodes that it gives to others at its next boundary.
        is_asked: Whether it commits what it did, to form anew.
        saved_s: Time to write what was kept when a loss was announced, a part of the next pause, s.
        carried: Work of earlier shapes that it goes on with.
        fruitless: Losses in a row without a commit.
        change: The last answer of `Replan`.
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
        self._wanted = steps_of(samples, task.batch)
        self._owner = owner
        self.carried = carried
        self.nodes: tuple[int, ...] = ()
        self.phase: Phase = "waiting"
        self.shape: Shape | None = None
        self.moment: ReplanMoment = "start"
        self.announced = False
        self.gives = 0
        self.is_asked = False
        self.saved_s = 0.0
        self.fruitless = 0
        self.change: Reshape | None = None
        self.declined = 0
        self.used = (0.0, 0.0, 0.0)
        self._since_s = 0.0
        self._until_s = 0.0
        self._cycle = Cycle(math.inf, 1, 0.0)
        self._spent = Spent()
        self._committed = 0
        self._uncommitted = self._before = 0
        self._share = 0.0
        self._slowdown = 1.0
        self._clock = self._steps_clock = PaceClock(0.0, 1.0)
        self._begun_s = self._steps_end_s = 0.0
        self._own_steps_s = self._own_part_s = 0.0
        self._event: ScheduledEvent | None = None

    def use(self, time_s: float, energy_j: float, cost: float) -> None:
        """Count what an attempt that ended used."""
        before_s, before_j, before = self.used
        self.used = before_s + time_s, before_j + energy_j, before + cost

    def go_on(self, delay_s: float) -> None:
        """Form on the nodes that it was given, which are ready after a delay, s."""
        self.nodes = tuple(sorted(slot[0] for slot in self.attempt.placement))
        self._until_s = self._loop.now_s + delay_s
        self.phase = "forming"
        self._owner.form(self, "start")

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
        self._slowdown = peers.slowdown * own.slowdown
        if self.phase not in ("steps", "commit"):
            return
        self._clock.change(self._loop.now_s, self._slowdown)
        if self.phase == "commit":
            self._await_commit()
        elif self.is_asked:
            self.ask_for_boundary()
        else:
            self._await_finish()

    def write_checkpoints(self, rule: CheckpointRule) -> None:
        """Nothing: `Replan` says when it commits."""

    def progress(self) -> Progress:
        """See `wattkeeper.sim.attempts.attempt.Execution`; an epoch is a step."""
        return Progress(float(self._committed))

    @property
    def needs_shape(self) -> bool:
        """Whether its shape is to be chosen."""
        return self.phase == "forming"

    @property
    def can_join(self) -> bool:
        """Whether nodes that come now join it without a pause of their own."""
        return self.phase in ("forming", "pause", "stopped")

    def delay(self, delay_s: float) -> None:
        """Begin to train only once a node that joined is ready, which takes so long, s."""
        self._until_s = max(self._until_s, self._loop.now_s + delay_s)
        if self.phase == "pause":
            self._await_end_of_pause()

    def take_shape(self, change: Reshape) -> None:
        """Take a shape after a pause."""
        now_s = self._loop.now_s
        self.shape, self.change = change.shape, change
        self.is_asked, self.gives, self.declined = change.is_interim, 0, 0
        self.phase, self._since_s = "pause", now_s
        self._until_s = max(self._until_s, now_s) + change.pause_s + self.saved_s
        self.saved_s = 0.0
        self._await_end_of_pause()

    def join(self, shape: Shape) -> None:
        """Train with a shape on more nodes once the present pause ends."""
        self.shape = shape

    def _await_end_of_pause(self) -> None:
        self._schedule(self._until_s, self._train)

    def _train(self, _: object = None) -> None:
        """Begin to train in steps."""
        assert self.shape is not None
        now_s, shape = self._loop.now_s, self.shape
        self._count_phase()
        if not shape.rate:
            self.phase = "stopped"
            self._loop.pass_is_due = True
            return
        step_s = self.task.batch / shape.rate
        self._cycle = Cycle(step_s, shape.commit_steps, shape.write_s)
        self._before = self._uncommitted - self._cycle.most_of(self._uncommitted)
        self._begun_s = (self._uncommitted - self._before + self._share) * step_s
        self.phase, self._since_s = "steps", now_s
        self._clock = self._steps_clock = PaceClock(now_s, self._slowdown, self._begun_s)
        self._owner.trains(self)
        if self.is_asked:
            self.ask_for_boundary()
        else:
            self._await_finish()

    def _finish_s(self) -> float:
        """When it has trained all its samples in the present shape, s."""
        if math.isinf(self._wanted):
            return math.inf
        left = int(self._wanted) - self._committed - self._before
        return self._clock.time_s(self._cycle.time_of_s(left))

    def _await_finish(self) -> None:
        finish_s = self._finish_s()
        if finish_s < math.inf:
            self._schedule(finish_s, self._finished)

    def _finished(self, _: object) -> None:
        self._owner.finish(self)

    def ask_for_boundary(self) -> None:
        """Form anew once what was done is committed."""
        self.is_asked = True
        if self.phase == "steps":
            done_s = self._clock.done_s(self._loop.now_s)
            end_s = self._clock.time_s(self._cycle.step_end_s(done_s))
            if end_s < self._finish_s():
                self._schedule(end_s, self._end_step)
            else:
                self._await_finish()

    def go_on_as_before(self) -> None:
        """Withdraw the wish to form anew."""
        self.is_asked, self.gives, self.declined = False, 0, 0
        if self.phase == "steps":
            self._cancel()
            self._await_finish()

    def _end_step(self, _: object) -> None:
        """Commit what is not committed at the end of a step, then form anew."""
        if not self._owner.wants_boundary(self):
            self.go_on_as_before()
            return
        steps = self._steps_at(self._clock.done_s(self._loop.now_s))[1]
        if not steps or self._carries(steps):
            self._reach_boundary()
            return
        self._count_phase()
        self.phase, self._since_s = "commit", self._loop.now_s
        self._clock = PaceClock(self._loop.now_s, self._slowdown)
        self._await_commit()

    def _steps_at(self, done_s: float) -> tuple[int, int]:
        """Steps that the present shape committed once so much is done, and those not committed."""
        state = self._cycle.at(done_s)
        if state.committed:
            return state.committed + self._before, state.uncommitted
        return 0, state.uncommitted + self._before

    def _carries(self, steps: int) -> bool:
        """Whether so many steps need no commit before a planned change of shape."""
        shape = self.shape
        assert shape is not None
        is_due = 0 < shape.commit_steps <= steps
        return shape.is_redundant and not self.gives and not is_due

    def _await_commit(self) -> None:
        self._schedule(self._clock.time_s(self.task.checkpoint_s), self._reach_boundary)

    def _reach_boundary(self, _: object = None) -> None:
        assert self.shape is not None
        self._count_phase()
        if self.phase == "commit" or not self.shape.is_redundant:
            self._commit(self._uncommitted)
            self._uncommitted, self._own_steps_s = 0, 0.0
        if self.shape.is_redundant:
            self._share = self._own_part_s = 0.0
        self.phase = "forming"
        self._until_s = self._loop.now_s
        self._owner.form(self, "boundary")

    def _commit(self, steps: int) -> None:
        if steps:
            self._committed += steps
            self._spent = self._spent._replace(committed=self._spent.committed + steps)
            self.fruitless = 0

    def _count_phase(self) -> None:
        """Count the phase that ends now; finished steps that are not committed stay apart."""
        now_s, spent = self._loop.now_s, self._spent
        span_s = now_s - self._since_s
        if self.phase == "pause":
            self._spent = spent._replace(pause_s=spent.pause_s + span_s)
        elif self.phase == "commit":
            slow_s = spent.write_slow_s + span_s - self._clock.done_s(now_s)
            writes = (*spent.writes, (self._since_s, now_s))
            self._spent = spent._replace(writes=writes, write_slow_s=slow_s)
        elif self.phase == "steps":
            self._count_steps(span_s)
        self._since_s = now_s

    def _count_steps(self, span_s: float) -> None:
        """Count steps and writes of a span that ends now, s."""
        spent, clock, cycle, now_s = self._spent, self._clock, self._cycle, self._loop.now_s
        done_s = clock.done_s(now_s)
        state = cycle.at(done_s)
        spans = cycle.write_spans(done_s, MOST_WRITES)
        # By rounding, the end of the last one may lie after now.
        writes = [
            (min(clock.time_s(begin_s), now_s), min(clock.time_s(end_s), now_s))
            for begin_s, end_s in spans
        ]
        written_s = math.fsum(end_s - begin_s for begin_s, end_s in writes)
        at_full_pace_s = math.fsum(end_s - begin_s for begin_s, end_s in spans)
        write_slow_s = slow_s = 0.0
        if clock.is_slow:
            write_slow_s = max(0.0, written_s - at_full_pace_s)
            slow_s = max(0.0, span_s - (done_s - self._begun_s) - write_slow_s)
        self._spent = spent._replace(
            steps_s=spent.steps_s + span_s - written_s,
            slow_s=spent.slow_s + slow_s,
            writes=(*spent.writes, *writes),
            write_slow_s=spent.write_slow_s + write_slow_s,
            finished=spent.finished or cycle.steps_in(done_s) > cycle.steps_in(self._begun_s),
        )
        committed, self._uncommitted = self._steps_at(done_s)
        self._commit(committed)
        self._share = state.part_s / cycle.step_s
        self._own_steps_s, self._own_part_s = state.uncommitted * cycle.step_s, state.part_s
        if self._begun_s:
            own_s = done_s - self._begun_s - at_full_pace_s
            self._own_part_s = min(self._own_part_s, own_s)
            self._own_steps_s = min(self._own_steps_s, own_s - self._own_part_s)
        self._steps_end_s = done_s - state.writing_s

    def end_shape(self, fate: Fate) -> Spent:
        """End the present attempt now; returns what it did. The end of a pause stays as it is."""
        self._count_phase()
        if self.phase != "pause":
            self._cancel()
        steps_s, part_s, steps = self._own_steps_s, self._own_part_s, self._uncommitted
        if fate == "kept":
            self._commit(steps)
        lost_s = {"lost": part_s + steps_s, "kept": part_s}.get(fate, 0.0)
        took_s = self._span_s(lost_s)
        spent = self._spent._replace(
            lost_s=took_s, lost_slow_s=took_s - lost_s, lost_steps=steps if fate == "lost" else 0
        )
        if fate == "carried":
            part_took_s, took_s = self._span_s(part_s), self._span_s(part_s + steps_s)
            spent = spent._replace(
                carried_s=took_s - part_took_s,
                part_s=part_took_s,
                carried_slow_s=took_s - part_s - steps_s,
            )
        else:
            self.drop_work()
        if fate == "open":
            spent = spent._replace(open_s=self._span_s(part_s + steps_s))
        self._spent, self._own_steps_s, self._own_part_s = Spent(), 0.0, 0.0
        return spent

    def _span_s(self, done_s: float) -> float:
        """How long the last steps took, whose time at full pace that is, s."""
        return self._steps_clock.span_s(self._steps_end_s, done_s)

    def drop_work(self) -> int:
        """Go on without what is not committed; returns how many finished steps that is."""
        steps, self._uncommitted, self._share = self._uncommitted, 0, 0.0
        return steps

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
        self.fruitless += moment == "lost"

    def leave(self) -> None:
        """Hold no nodes any more."""
        self._cancel()
        self.phase, self.shape, self.nodes = "waiting", None, ()
        self.is_asked, self.gives, self.saved_s = False, 0, 0.0

    def _schedule(self, time_s: float, call: Callable[[object], object]) -> None:
        self._cancel()
        self._event = Callback(call)
        schedule_at(self._loop, time_s, self._event)

    def _cancel(self) -> None:
        if self._event is not None:
            self._event.cancel()
            self._event = None
