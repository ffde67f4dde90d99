"""The elastic jobs of a world: which nodes they hold, and when their shapes are chosen.

All shapes are chosen at the end of a time, after all that happened then: nodes that are lost
together cost one pause. An elastic job asks for its fewest nodes as other jobs ask for GPUs, and
takes whole nodes. It takes free ones while nobody waits, and gives back those beyond its fewest
where a job that waits would fit; neither but at the end of a step, or while it pauses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import numpy as np

from wattkeeper.policies.elastic.replanning import (
    ElasticTask,
    ElasticView,
    Replan,
    ReplanMoment,
    Reshape,
)
from wattkeeper.policies.protocols import NEW, ClusterView, Job, Key, Placement
from wattkeeper.sim.attempts.attempt import Attempt, Execution
from wattkeeper.sim.elastic.asking import ask_replan, describe_answer, seen_of
from wattkeeper.sim.elastic.training import ElasticTraining, Fate, Spent
from wattkeeper.sim.engine.event_loop import SIGNAL, Callback, EventLoop, schedule_at
from wattkeeper.sim.engine.recorder import ShapeRow

if TYPE_CHECKING:
    from wattkeeper.sim.engine.world import ElasticParts, World

MOST_FRUITLESS: Final = 10_000
"""After so many losses in a row without a commit, a job without an end is given up."""


class ElasticJob(NamedTuple):
    """An elastic job.

    Attributes:
        task: What it trains.
        samples: Samples after which it ends; infinite: it does not end by itself.
    """

    task: ElasticTask
    samples: float = math.inf


class ElasticJobs:
    """See the module.

    Args:
        world: The world.
        parts: What they share with it.
        jobs: The elastic jobs, by `Job.number`.
        gpus_per_node: GPUs of each node of the cluster.
        until_s: When all of them end, s; infinite: when they have trained their samples.
    """

    def __init__(
        self,
        world: World,
        parts: ElasticParts,
        jobs: Mapping[int, ElasticJob],
        gpus_per_node: int,
        until_s: float = math.inf,
    ) -> None:
        self._world = world
        self._parts = parts
        self._loop: EventLoop = world.env
        self._cluster = world.cluster
        self._recorder = world.recorder
        self._jobs = jobs
        self._gpus = gpus_per_node
        self._until_s = until_s
        self._replan = cast(Replan, parts.replan.policy)
        self._running: dict[int, ElasticTraining] = {}
        self._noticed_s: dict[int, float] = {}
        power = next(iter(self._cluster.spec.power.values()))
        self._idle_w = power.idle_w * gpus_per_node
        self._busy_w = (power.busy_w or 0.0) * gpus_per_node
        self._is_over = False
        self.over = 0
        self._recorder.follow_shapes(until_s)

    def begin(self) -> None:
        """See `wattkeeper.sim.attempts.elasticity.Elasticity`."""
        if self._until_s < math.inf:
            schedule_at(self._loop, self._until_s, Callback(self._end_all), SIGNAL)

    def has(self, job: Job) -> bool:
        """See `wattkeeper.sim.attempts.elasticity.Elasticity`."""
        return job.number in self._jobs

    def place(self, job: Job, cluster: ClusterView) -> Placement:
        """See `wattkeeper.sim.attempts.elasticity.Elasticity`; the lowest numbers that are free."""
        needed = job.gpus // self._gpus
        nodes = np.flatnonzero(cluster.free == cluster.capacity)[:needed].tolist()
        return self._whole(nodes) if len(nodes) == needed else ()

    def _whole(self, nodes: Sequence[int]) -> Placement:
        """The placement on whole nodes."""
        return tuple([(node, self._gpus, NEW) for node in nodes])

    def start(self, attempt: Attempt) -> Execution:
        """See `wattkeeper.sim.attempts.elasticity.Elasticity`."""
        known = self._jobs[attempt.job.number]
        return ElasticTraining(self._loop, attempt, known.task, known.samples, self)

    def form(self, training: ElasticTraining, moment: ReplanMoment) -> None:
        """See `wattkeeper.sim.elastic.training.Owner`."""
        attempt = training.attempt
        self._loop.pass_is_due = True
        if moment != "start":
            given, training.gives = training.gives, 0
            if given and self._parts.waiting:
                self._hold_others(training, training.nodes[:-given], "kept")
            else:
                self._hold_others(training, training.nodes, "kept")
            training.moment = moment
            return
        training.moment = moment
        if self._is_over:
            self.over -= 1
            self._world.end_elastic(attempt, False)
            return
        attempt.idle_w = self._idle_w * len(training.nodes)
        self._running[attempt.job.number] = training
        self._world.holds(attempt)

    def trains(self, training: ElasticTraining) -> None:
        """See `wattkeeper.sim.elastic.training.Owner`."""
        power_w = self._busy_w * len(training.nodes)
        self._world.draws(training.attempt, power_w, self._loop.now_s, True)
        self._loop.pass_is_due = True

    def wants_boundary(self, training: ElasticTraining) -> bool:
        """See `wattkeeper.sim.elastic.training.Owner`."""
        if training.gives:
            return bool(self._parts.waiting)
        return not self._parts.waiting and bool(self._spare_for(training))

    def finish(self, training: ElasticTraining) -> None:
        """See `wattkeeper.sim.elastic.training.Owner`."""
        self._end(training, "kept")

    def notice(self, node: int, now_s: float) -> None:
        """See `wattkeeper.sim.attempts.elasticity.Elasticity`."""
        self._noticed_s.setdefault(node, now_s)

    def down(self, node: int, was_free: bool) -> None:
        """See `wattkeeper.sim.attempts.elasticity.Elasticity`."""
        self._noticed_s.pop(node, None)
        if not was_free:
            return
        for training in self._running.values():
            if training.needs_shape:
                training.saved_s = 0.0

    def lose(self, execution: Execution, node: int) -> tuple[float, float]:
        """See `wattkeeper.sim.attempts.elasticity.Elasticity`."""
        training = cast(ElasticTraining, execution)
        announced = self._is_announced(training, node)
        keeps = self._is_saved(training, announced)
        training.saved_s = training.task.checkpoint_s if keeps else 0.0
        nodes = tuple(each for each in training.nodes if each != node)
        spent = self._hold_others(training, nodes, "kept" if keeps else "lost", node)
        training.announced = announced and (training.announced or not training.needs_shape)
        training.restart_forming("lost")
        self._loop.pass_is_due = True
        if training.fruitless > MOST_FRUITLESS and self._until_s == math.inf:
            self._release(training)
            del self._running[training.attempt.job.number]
            self._world.abandon(training.attempt.job)
        held, lost_s = len(nodes) + 1, spent.lost_s - spent.lost_slow_s
        return lost_s * held * self._gpus, lost_s * self._busy_w * held

    def _is_announced(self, training: ElasticTraining, node: int) -> bool:
        """Whether a node that is lost now said so early enough to write a checkpoint."""
        warned_s = self._loop.now_s - self._noticed_s.get(node, math.inf)
        return warned_s >= training.task.checkpoint_s

    def _is_saved(self, training: ElasticTraining, announced: bool) -> bool:
        """Whether finished steps were saved since a node announced its loss.

        As in the reference, a pause that a further loss interrupts, even one of the same moment,
        starts anew without the time to save them.
        """
        shape = training.shape
        if shape is None or training.phase not in ("steps", "commit"):
            return False
        return shape.saves_on_notice and announced

    def preempt(self, execution: Execution) -> None:
        """See `wattkeeper.sim.attempts.elasticity.Elasticity`."""
        training = cast(ElasticTraining, execution)
        training.attempt.preemptions += 1
        self._close(training, "kept")
        self._world.set_aside(training, self._leave(training))

    def end_stopped(self) -> None:
        """See `wattkeeper.sim.attempts.elasticity.Elasticity`."""
        for training in list(self._running.values()):
            self._recorder.unable.append(training.attempt.job.number)
            self._end(training, "open")

    def make_room(self) -> None:
        """See `wattkeeper.sim.attempts.elasticity.Elasticity`."""
        if self._parts.waiting:
            for training in list(self._running.values()):
                if training.phase == "stopped":
                    self._close(training, "kept")
                    self._world.requeue(training, self._leave(training))
        surplus = {number: len(training.nodes) - training.task.start_nodes - training.gives
                   for number, training in self._running.items()}  # fmt: skip
        if not self._parts.waiting or not any(each > 0 for each in surplus.values()):
            return
        pending = sum(training.gives for training in self._running.values())
        needed = self._needed_nodes(sum(max(0, each) for each in surplus.values()) + pending)
        for _ in range(needed - pending):
            number = min((number for number in surplus if surplus[number] > 0), key=self._worth)
            surplus[number] -= 1
            training = self._running[number]
            training.gives += 1
            if not training.can_join:
                training.ask_for_boundary()
        for training in list(self._running.values()):
            if training.gives and training.can_join:
                nodes = training.nodes[: len(training.nodes) - training.gives]
                training.gives = 0
                self._hold_others(training, nodes, "kept")
                self._take_shape_again(training)

    def _worth(self, number: int) -> float:
        """What the last node of a job adds to its rate, relative to its rate."""
        training = self._running[number]
        nodes = len(training.nodes) - training.gives
        rates = training.task.rates
        return 1 - rates[nodes - 1] / rates[nodes] if rates[nodes] > 0 else 0.0

    def _needed_nodes(self, most: int) -> int:
        """Nodes that let a job fit: the first one that waits, does not fit, and would with `most`.

        0 if there is no such job.
        """
        room, free = self._parts.room, self._cluster.free_gpus
        seen = set[Key]()
        for job in self._parts.waiting.values():
            if job.key in seen:
                continue
            seen.add(job.key)
            if room.fits(job):
                continue
            needed = max(1, math.ceil((job.gpus - free) / self._gpus))
            if needed <= most:
                return needed
        return 0

    def settle(self) -> None:
        """See `wattkeeper.sim.attempts.elasticity.Elasticity`."""
        for training in self._running.values():
            if training.needs_shape and training.moment == "start":
                training.take_shape(self._ask(training, training.moment))
        if not self._parts.waiting:
            self._join_spare()
        for training in list(self._running.values()):
            if not training.needs_shape:
                continue
            if len(training.nodes) < training.task.least_nodes:
                self._world.requeue(training, self._leave(training))
                continue
            training.take_shape(self._ask(training, training.moment))
        if not self._parts.waiting:
            self._offer_spare()

    def _join_spare(self) -> None:
        """Let jobs that pause take free nodes, each where it adds most."""
        joining = {number: training for number, training in self._running.items()
                   if training.can_join}  # fmt: skip
        spare = self._spare_nodes() if joining else []
        taken: dict[int, list[int]] = {}
        for node in spare:
            gains = {number: self._gain(training, len(taken.get(number, ())))
                     for number, training in joining.items()}  # fmt: skip
            best = max(gains, key=gains.__getitem__)
            if gains[best] < 0:
                break
            taken.setdefault(best, []).append(node)
        for number, nodes in taken.items():
            training = joining[number]
            self._hold_others(training, tuple(sorted((*training.nodes, *nodes))), "kept")
            self._take_shape_again(training)

    def _gain(self, training: ElasticTraining, taken: int) -> float:
        """What a further node adds to the rate of a job, relative to it; below 0: it takes none."""
        rates, nodes = training.task.rates, len(training.nodes) + taken
        if nodes >= training.task.most_nodes or not self._allows(training, nodes + 1):
            return -1.0
        return math.inf if rates[nodes] <= 0 else max(0.0, rates[nodes + 1] / rates[nodes] - 1)

    def _offer_spare(self) -> None:
        """Ask `Replan` whether jobs that train take up free nodes."""
        spare = -1
        for training in self._running.values():
            if training.phase != "steps" or training.is_asked:
                continue
            if spare < 0:
                spare = len(self._spare_nodes())
            offered = self._spare_for(training, spare)
            if offered == training.declined:
                continue
            training.declined = offered
            if offered and self._ask_about_spare(training, offered):
                training.ask_for_boundary()
                spare -= offered

    def _spare_for(self, training: ElasticTraining, spare: int | None = None) -> int:
        """How many of the spare nodes a job could take."""
        spare = len(self._spare_nodes()) if spare is None else spare
        nodes = len(training.nodes)
        most = min(spare, training.task.most_nodes - nodes)
        while most > 0 and not self._allows(training, nodes + most):
            most -= 1
        return max(0, most)

    def _spare_nodes(self) -> list[int]:
        """Nodes that are up and free, ascending."""
        cluster = self._cluster
        return [int(node) for node in np.flatnonzero(cluster.free == cluster.capacity)]

    def _allows(self, training: ElasticTraining, nodes: int) -> bool:
        """Whether the power cap allows a job so many nodes."""
        budget = self._parts.budget
        if budget.cap_w is None:
            return True
        sized = self._sized(training.attempt.job, nodes)
        held_w = budget.more_w(sized.number)
        return budget.allows(sized, training.attempt.gpu_type, held_w)

    def _ask_about_spare(self, training: ElasticTraining, spare: int) -> bool:
        return self._answer(training, self._view(training, spare, "gained")) is not None

    def _ask(self, training: ElasticTraining, moment: ReplanMoment) -> Reshape:
        """The answer of `Replan` on the shape of a job."""
        view = self._view(training, 0, moment)
        answer = self._answer(training, view)
        assert answer is not None
        return answer

    def _view(self, training: ElasticTraining, spare: int, moment: ReplanMoment) -> ElasticView:
        mean_s = self._parts.rate.mean_s(1, self._loop.now_s)
        job_id, task, held = training.attempt.job.job_id, training.task, training.nodes
        announced = moment == "lost" and training.announced
        return ElasticView(job_id, task, moment, held, spare, training.shape, mean_s, announced)

    def _answer(self, training: ElasticTraining, view: ElasticView) -> Reshape | None:
        answer = ask_replan(self._replan, self._parts.replan.ctx, view)
        attempt, journal = training.attempt, self._recorder.journal
        saw, chose = seen_of(view), describe_answer(answer)
        journal.note(self._loop.now_s, "replan", attempt.job, attempt.number, saw, chose)
        return answer

    def _take_shape_again(self, training: ElasticTraining) -> None:
        """Choose the shape of a job anew that pauses, whose nodes are others now."""
        if training.phase == "pause":
            training.join(self._ask(training, "pause").shape)
        elif training.phase == "stopped":
            training.restart_forming("start")

    def _hold_others(
        self,
        training: ElasticTraining,
        nodes: tuple[int, ...],
        fate: Fate,
        lost: int | None = None,
    ) -> Spent:
        """End the present attempt, and hold other nodes in the next one; returns what it did."""
        before = set(training.nodes)
        spent = self._close(training, fate, lost)
        self._release(training)
        attempt = training.attempt
        number = attempt.number + (self._loop.now_s > attempt.begun_s)
        training.attempt = self._take(attempt, number, nodes, training, before)
        slowdown = self._cluster.slowdown(training.attempt.placement) if nodes else 1.0
        training.hold(nodes, slowdown)
        self._world.holds(training.attempt)
        return spent

    def _take(
        self,
        attempt: Attempt,
        number: int,
        nodes: tuple[int, ...],
        training: ElasticTraining,
        before: set[int],
    ) -> Attempt:
        """The next attempt of a job, on nodes that it takes."""
        parts, now_s = self._parts, self._loop.now_s
        sized = self._sized(attempt.job, len(nodes))
        placement = self._whole(nodes)
        if parts.nodes.vary:
            others = tuple(slot for slot in placement if slot[0] not in before)
            kept = tuple(slot for slot in placement if slot[0] in before)
            parts.nodes.occupy(kept, now_s)
            training.delay(parts.nodes.occupy(others, now_s))
        if placement:
            self._cluster.take(sized, placement)
            parts.budget.reserve(sized, attempt.gpu_type)
        parts.room.shrink()
        where = self._recorder.journal.index_choice(placement)
        return Attempt(
            attempt.job, number, placement, where, attempt.gpu_type, now_s,
            self._idle_w * len(nodes),
        )  # fmt: skip

    def _sized(self, job: Job, nodes: int) -> Job:
        """A job as it counts in the cluster while it holds so many nodes."""
        return job.replace(gpus=nodes * self._gpus, reserved_w=nodes * self._busy_w)

    def _close(
        self,
        training: ElasticTraining,
        fate: Fate,
        lost: int | None = None,
        reached: bool = False,
    ) -> Spent:
        """Record the present attempt, which ends now, unless it began now."""
        attempt, recorder = training.attempt, self._recorder
        spent = training.end_shape(fate)
        if attempt.begun_s == self._loop.now_s:
            return spent
        nodes = len(training.nodes)
        self._hold_writes(attempt, spent.writes)
        busy_w = self._busy_w * nodes
        time_s, lost_s = spent.steps_s - spent.slow_s, spent.lost_s - spent.lost_slow_s
        if spent.slow_s or spent.write_slow_s:
            attempt.slow_s += spent.slow_s + spent.write_slow_s
            attempt.add_overhead(spent.slow_s, spent.slow_s * busy_w)
        self._world.record_shape(attempt, time_s * busy_w, time_s, busy_w, reached)
        if lost is not None:
            recorder.add_loss(lost, lost_s, lost_s * busy_w)
        recorder.add_shape(self._row(training, spent), nodes * self._gpus)
        return spent

    def _hold_writes(self, attempt: Attempt, writes: Sequence[tuple[float, float]]) -> None:
        """Count writes of checkpoints as times without training."""
        idle_w, power = attempt.idle_w, attempt.power
        for from_s, to_s in writes:
            attempt.add_overhead(to_s - from_s, (to_s - from_s) * idle_w)
            self._recorder.add_power_change(from_s, -power)
            self._recorder.add_power_change(to_s, power)
        attempt.holds += tuple(writes)

    def _row(self, training: ElasticTraining, spent: Spent) -> ShapeRow:
        """The row of `shapes.parquet` of an attempt that ends now."""
        attempt, change = training.attempt, training.change
        batch = training.task.batch
        return ShapeRow(
            number=attempt.job.number,
            attempt=attempt.number,
            time_s=attempt.begun_s,
            until_s=self._loop.now_s,
            moment=training.moment,
            nodes=len(training.nodes),
            samples_per_s=0.0 if training.shape is None else training.shape.rate,
            pause_s=spent.pause_s,
            steps_s=spent.steps_s,
            write_s=math.fsum(to_s - from_s for from_s, to_s in spent.writes),
            lost_s=spent.lost_s,
            samples=spent.committed * batch,
            lost_samples=spent.lost_steps * batch,
            from_storage=change is not None and change.from_storage,
            copied_bytes=math.nan if change is None else change.copied_bytes,
        )

    def _release(self, training: ElasticTraining) -> None:
        """Give back all nodes of a job."""
        parts, attempt = self._parts, training.attempt
        self._cluster.release(attempt.job, attempt.placement)
        if parts.nodes.vary:
            parts.nodes.vacate(attempt.placement, self._loop.now_s)
        parts.budget.release(attempt.job)
        parts.room.grow()

    def _leave(self, training: ElasticTraining) -> int:
        """Let a job give up all its nodes; returns the number of its next attempt."""
        attempt = training.attempt
        self._release(training)
        del self._running[attempt.job.number]
        training.leave()
        return attempt.number + (self._loop.now_s > attempt.begun_s)

    def _end(self, training: ElasticTraining, fate: Fate) -> None:
        """End a job with its present attempt."""
        reached = fate == "kept"
        if reached:
            self._recorder.finished_elastic.add(training.attempt.job.number)
        self._close(training, fate, reached=reached)
        del self._running[training.attempt.job.number]
        training.leave()
        self._world.end_elastic(training.attempt, reached)

    def _end_all(self, _: object) -> None:
        """End all elastic jobs that run; what is under way is neither lost nor committed."""
        self._is_over = True
        for training in list(self._running.values()):
            self._end(training, "open")
        self.over = sum(number in self._jobs for number in self._parts.waiting)
