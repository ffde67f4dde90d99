"""The elastic jobs of a world: when they gain and lose nodes, and when shapes are chosen.

All shapes are chosen at the end of a time, after all that happened then: nodes that are lost
together cost one pause. An elastic job asks for its fewest nodes as other jobs ask for GPUs, and
takes whole nodes. It takes free ones while nobody waits, and gives back those beyond its fewest
where a job that waits would fit; neither but at the end of a step, or while it pauses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from typing_extensions import override

from wattkeeper.policies.points.job import Job, Placement
from wattkeeper.policies.points.place import ClusterView
from wattkeeper.policies.points.replan import ElasticTask, ElasticView, ReplanMoment, Reshape
from wattkeeper.sim.attempts.attempt import Attempt, Execution
from wattkeeper.sim.attempts.decided import AttemptTotals
from wattkeeper.sim.attempts.service import JobService
from wattkeeper.sim.elastic.asking import ask_replan, describe_answer, seen_of
from wattkeeper.sim.elastic.carried import CarriedWork
from wattkeeper.sim.elastic.holdings import Holdings
from wattkeeper.sim.elastic.ledger import Fate
from wattkeeper.sim.elastic.sharing import NodeSharing, find_free_nodes
from wattkeeper.sim.elastic.training import ElasticTraining, Owner
from wattkeeper.sim.engine.subscriber import Subscriber
from wattkeeper.sim.kernel.loop import SIGNAL, Callback, schedule_at

if TYPE_CHECKING:
    from wattkeeper.sim.engine.world import ElasticParts

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


class ElasticJobs(Subscriber, JobService, Owner):
    """See the module.

    Args:
        parts: The parts of the world that they work with.
        jobs: The elastic jobs, by `Job.number`.
        gpus_per_node: GPUs of each node of the cluster.
        until_s: When all of them end, s; infinite: when they have trained their samples.
    """

    def __init__(
        self,
        parts: ElasticParts,
        jobs: Mapping[int, ElasticJob],
        gpus_per_node: int,
        until_s: float = math.inf,
    ) -> None:
        self._parts = parts
        self._loop = parts.core.loop
        self._recorder = parts.core.recorder
        self._lifecycle = parts.lifecycle
        self._waiting = parts.core.board.waiting
        self._jobs = jobs
        self._gpus = gpus_per_node
        self._until_s = until_s
        self._running: dict[int, ElasticTraining] = {}
        self._noticed_s: dict[int, float] = {}
        self._holdings = Holdings(parts, gpus_per_node)
        self._sharing = NodeSharing(parts, self._holdings, gpus_per_node)
        parts.core.board.services.update(dict.fromkeys(jobs, self))

    @override
    def begin_run(self) -> None:
        if self._until_s < math.inf:
            schedule_at(self._loop, self._until_s, Callback(self._end_all), SIGNAL)

    @override
    def place(self, job: Job, cluster: ClusterView) -> Placement:
        """The nodes with the lowest numbers that are free."""
        needed = job.gpus // self._gpus
        nodes = find_free_nodes(cluster)[:needed]
        return self._holdings.place(nodes) if len(nodes) == needed else ()

    @override
    def start(self, attempt: Attempt) -> Execution:
        known = self._jobs[attempt.job.number]
        carried = CarriedWork(self._recorder, self._holdings.busy_w)
        return ElasticTraining(self._loop, attempt, known.task, known.samples, self, carried)

    @override
    def form(self, training: ElasticTraining, moment: ReplanMoment) -> None:
        attempt = training.attempt
        self._loop.pass_is_due = True
        if moment != "start":
            given, training.gives = training.gives, 0
            gives = given > 0 and bool(self._waiting)
            nodes = training.nodes[:-given] if gives else training.nodes
            self._holdings.change(training, nodes, training.planned_fate)
            training.moment = moment
            return
        training.moment = moment
        attempt.idle_w = self._holdings.idle_w * len(training.nodes)
        self._running[attempt.job.number] = training
        self._parts.core.booking.hold(attempt)

    @override
    def trains(self, training: ElasticTraining) -> None:
        power_w = self._holdings.busy_w * len(training.nodes)
        self._parts.core.booking.draw(training.attempt, power_w, self._loop.now_s, True)
        self._loop.pass_is_due = True

    @override
    def wants_boundary(self, training: ElasticTraining) -> bool:
        if training.change is not None and training.change.is_interim:
            return True
        if training.gives:
            return bool(self._waiting)
        spare = len(find_free_nodes(self._parts.core.cluster))
        return not self._waiting and self._sharing.could_take(training, spare) > 0

    @override
    def finish(self, training: ElasticTraining) -> None:
        self._end(training, "kept")

    @override
    def notice_node(self, node: int) -> None:
        self._noticed_s.setdefault(node, self._loop.now_s)

    @override
    def lose_node(self, node: int, was_free: bool) -> None:
        self._noticed_s.pop(node, None)
        if not was_free:
            return
        for training in self._running.values():
            if training.phase == "forming":
                training.saved_s = 0.0

    @override
    def lose(self, execution: Execution, node: int) -> tuple[float, float]:
        training = cast(ElasticTraining, execution)
        warned_s = self._loop.now_s - self._noticed_s.get(node, math.inf)
        announced = warned_s >= training.task.checkpoint_s
        nodes = tuple(each for each in training.nodes if each != node)
        fate: Fate = "kept" if self._is_saved(training, announced) else "lost"
        training.saved_s = training.task.checkpoint_s if fate == "kept" else 0.0
        if training.shape is not None and training.shape.survives_on(nodes):
            fate = "carried"
        cost = self._holdings.change(training, nodes, fate, node)
        training.announced = announced and (training.announced or training.phase != "forming")
        training.restart_forming("lost")
        self._loop.pass_is_due = True
        if training.ledger.fruitless > MOST_FRUITLESS and self._until_s == math.inf:
            self._holdings.release(training)
            del self._running[training.attempt.job.number]
            self._parts.core.board.halt(training.attempt.job.number)
            self._lifecycle.give_up(training.attempt)
        return cost

    def _is_saved(self, training: ElasticTraining, announced: bool) -> bool:
        """Whether finished steps were saved since a node announced its loss.

        As in the reference, a pause that a further loss interrupts, even one of the same moment,
        starts anew without the time to save them.
        """
        shape = training.shape
        if shape is None or training.phase not in ("steps", "commit"):
            return False
        return shape.saves_on_notice and announced

    @override
    def preempt(self, execution: Execution) -> None:
        training = cast(ElasticTraining, execution)
        training.attempt.preemptions += 1
        self._holdings.close(training, "kept")
        self._leave(training)

    @override
    def end_run(self) -> None:
        for training in list(self._running.values()):
            self._recorder.unable.append(training.attempt.job.number)
            self._end(training, "open")

    @override
    def begin_pass(self) -> None:
        if self._waiting:
            for training in list(self._running.values()):
                if training.phase == "stopped":
                    self._holdings.close(training, "kept")
                    self._requeue(training)
        givers = self._sharing.choose_givers(self._running) if self._waiting else {}
        for number, gives in givers.items():
            training = self._running[number]
            training.gives += gives
            if not training.can_join:
                training.ask_for_boundary()
                continue
            nodes, training.gives = training.nodes[: -training.gives], 0
            self._holdings.change(training, nodes, training.planned_fate)
            self._take_shape_again(training)

    @override
    def end_pass(self) -> None:
        for training in self._running.values():
            if training.phase == "forming" and training.moment == "start":
                self._reshape(training)
        if not self._waiting:
            self._join_spare()
        for training in list(self._running.values()):
            if training.phase != "forming":
                continue
            if len(training.nodes) < training.task.least_nodes:
                self._requeue(training)
                continue
            self._reshape(training)
        if not self._waiting:
            self._offer_spare()

    def _reshape(self, training: ElasticTraining) -> None:
        """Let a job take the shape that `Replan` chooses."""
        change = self._ask(training, training.moment)
        assert change is not None
        if change.from_storage:
            self._holdings.drop_work(training)
        training.take_shape(change)

    def _join_spare(self) -> None:
        """Let jobs that pause take free nodes, each where it adds most."""
        joining = {
            number: training for number, training in self._running.items() if training.can_join
        }
        taken = self._sharing.share_out(joining)
        for number, nodes in taken.items():
            training = joining[number]
            more = tuple(sorted((*training.nodes, *nodes)))
            self._holdings.change(training, more, training.planned_fate)
            self._take_shape_again(training)

    def _offer_spare(self) -> None:
        """Ask `Replan` whether jobs that train take up free nodes."""
        spare = -1
        for training in self._running.values():
            if training.phase != "steps" or training.is_asked:
                continue
            if spare < 0:
                spare = len(find_free_nodes(self._parts.core.cluster))
            offered = self._sharing.could_take(training, spare)
            if offered == training.declined:
                continue
            training.declined = offered
            if offered and self._ask(training, "gained", offered) is not None:
                training.ask_for_boundary()
                spare -= offered

    def _ask(
        self, training: ElasticTraining, moment: ReplanMoment, spare: int = 0
    ) -> Reshape | None:
        """The answer of `Replan` on a job, which goes to the journal."""
        attempt, journal, now_s = training.attempt, self._recorder.journal, self._loop.now_s
        view = ElasticView(
            attempt.job.job_id,
            training.task,
            moment,
            training.nodes,
            spare,
            training.shape,
            self._parts.rate.mean_s(1, now_s),
            moment == "lost" and training.announced,
            training.slowdown,
        )
        answer = ask_replan(self._parts.replan, view)
        saw, chose = seen_of(view), describe_answer(answer)
        journal.note(now_s, "replan", attempt.job.number, attempt.number, saw, chose)
        return answer

    def _take_shape_again(self, training: ElasticTraining) -> None:
        """Choose the shape of a job anew that pauses, whose nodes are others now."""
        if training.phase == "pause":
            change = self._ask(training, "pause")
            assert change is not None
            training.join(change.shape)
        elif training.phase == "stopped":
            training.restart_forming("start")

    def _requeue(self, training: ElasticTraining) -> None:
        """Let a job give up all its nodes, and wait for others."""
        self._leave(training)
        self._lifecycle.requeue(training)

    def _leave(self, training: ElasticTraining) -> None:
        """Let a job give up all its nodes; its next attempt waits for others."""
        self._holdings.drop_work(training)
        self._holdings.release(training)
        del self._running[training.attempt.job.number]
        training.leave()
        training.attempt = training.attempt.without_gpus(self._loop.now_s)

    def _end(self, training: ElasticTraining, fate: Fate) -> None:
        """End a job with its present attempt."""
        reached = fate == "kept"
        if reached:
            self._recorder.finished_elastic.add(training.attempt.job.number)
        self._holdings.close(training, fate, reached=reached)
        del self._running[training.attempt.job.number]
        training.leave()
        attempt, (time_s, energy_j, cost) = training.attempt, training.used
        totals = AttemptTotals(0, time_s, energy_j, reached)
        most_w = self._holdings.busy_w * attempt.job.gpus_held / self._gpus
        outcome = attempt.outcome(most_w, totals, cost)
        self._parts.core.host.observe(outcome)
        self._lifecycle.end_training(attempt, reached)
        self._lifecycle.follow_up(outcome)

    def _end_all(self, _: object) -> None:
        """End all elastic jobs; what is under way is neither lost nor committed.

        Those that wait are unable to end.
        """
        for training in list(self._running.values()):
            self._end(training, "open")
        for job in list(self._waiting.values()):
            if job.number in self._jobs:
                self._lifecycle.withdraw(job)
