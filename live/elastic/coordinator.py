"""Carries an elastic training through losses and returns of its nodes."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, cast

from wattkeeper.live.elastic.costs import MeasuredCosts, StepSplit
from wattkeeper.live.elastic.groups import GroupStore, Origin, SavedState, origin_of
from wattkeeper.live.elastic.orders import SaveState
from wattkeeper.live.elastic.progress import TrainingProgress
from wattkeeper.live.elastic.records import NodeLoss, ReplanDecision
from wattkeeper.live.elastic.workers import LostWorker, Workers, are_done
from wattkeeper.policies.errors import EnvironmentLacks, PolicyError
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.replan import ElasticView, ReplanMoment, Reshape, Shape
from wattkeeper.policies.points.views import Outcome, Start
from wattkeeper.policies.profile import Objective
from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.sim.attempts.decided import without_choices
from wattkeeper.sim.elastic.asking import ask_replan, describe_answer, seen_of
from wattkeeper.sim.kernel.clock import ElapsedTime
from wattkeeper.sim.kernel.hosting import Capabilities, Host
from wattkeeper.sim.kernel.streams import NamedStreams

log = logging.getLogger("wattkeeper.live")

MOST_FRUITLESS: Final = 100
"""After so many broken groups in a row without a commit, a training is given up."""


ELASTIC: Final = Capabilities("an elastic training on this host")
"""What such a training offers to policies."""


class ReplanAsker:
    """Asks the `Replan` policy of a live training, at the moments of a simulated one.

    Args:
        job: Name of the training.
        config: Config of the policy.
        now_s: Time since the training began, s.

    Attributes:
        decisions: What was decided.

    Raises:
        PolicyError: If the policy reads what a live training does not have.
    """

    def __init__(self, job: str, config: PolicyConfig, now_s: Callable[[], float]) -> None:
        self._job = Job(job, job, 1, None, 1, 0.0)
        self._host = Host(ELASTIC, ElapsedTime(now_s), Objective(1.0), NamedStreams(0))
        self._replan = self._host.engage(config)
        self._host.submitted(self._job)
        self.decisions: list[ReplanDecision] = []

    def ask(self, view: ElasticView) -> Reshape | None:
        """The answer of the policy; None only about nodes that it does not take up.

        Raises:
            PolicyError: If it is none for the nodes.
        """
        answer = ask_replan(self._replan, view)
        saw, chose = repr(seen_of(view)), describe_answer(answer)
        self.decisions.append(ReplanDecision(self._replan.ctx.now_s, saw, chose))
        return answer

    def end(self, steps_s: float) -> None:
        """Let the policy learn that the training is done, after a time in steps; see `Outcome`."""
        start = Start(self._job, 1, without_choices(self._job, "", math.nan), 0)
        self._host.observe(Outcome(start, 0, math.nan, 0, steps_s, math.nan, math.nan, True))


class ElasticCoordinator:
    """See the module.

    It forms a group of workers, lets it train step by step, and forms another one when a worker of
    it ended, or when the policy takes up workers that came. As in a simulation, workers that come
    until a group is formed join it, and others only if the policy wants them.

    Args:
        workers: The workers.
        store: Where they find each other.
        costs: What changes of shape take, by what was measured so far.
        asker: Asks the policy.
        split: A step.
        progress: What is trained.
        least_nodes: The fewest nodes to train on.
        most_nodes: The most nodes.

    Attributes:
        lost: The nodes that the training lost.
    """

    def __init__(
        self,
        workers: Workers,
        store: GroupStore,
        costs: MeasuredCosts,
        asker: ReplanAsker,
        split: StepSplit,
        progress: TrainingProgress,
        least_nodes: int,
        most_nodes: int,
    ) -> None:
        self._workers, self._store, self._costs = workers, store, costs
        self._asker, self._split, self._progress = asker, split, progress
        self._least, self._most = least_nodes, most_nodes
        self._held: list[int] = []
        self._moment: ReplanMoment = "start"
        self._since_s = 0.0
        self._announced = False
        self._from_storage = False
        self._shape: Shape | None = None
        self._declined = 0
        self._written_s = 0.0
        self.lost: list[NodeLoss] = []

    def run(self) -> None:
        """Train to the end.

        Raises:
            PolicyError: If the policy fails.
            InputError: If the code of the training fails.
            EnvironmentLacks: If no group lives long enough to commit a step.
        """
        is_over = False
        while not is_over:
            self._assemble()
            if self._pause():
                is_over = self._train()

    def _assemble(self) -> None:
        """Take all workers that are ready; wait while they are too few.

        Raises:
            EnvironmentLacks: If they always will be.
        """
        self._held = sorted([*self._held, *self._spare()])
        while len(self._held) < self._least:
            if self._workers.may_come() < self._least:
                raise EnvironmentLacks(
                    f"the training needs {self._least} nodes; after "
                    f"{self._progress.ledger.steps} steps there are {len(self._held)}, "
                    "and no others come back"
                )
            self._moment, self._shape = "start", None
            self._workers.watch()
            self._take_lost()
            self._held = sorted([*self._held, *self._spare()])
            self._since_s = self._workers.now_s()

    def _spare(self) -> list[int]:
        """Workers that could join: those that are ready, as long as there is room."""
        others = [node for node in self._workers.ready() if node not in self._held]
        return others[: self._most - len(self._held)]

    def _pause(self) -> bool:
        """Form a group in the shape that the policy chooses; whether it came about."""
        change = self._ask_shape()
        progress, workers = self._progress, self._workers
        progress.open_shape(self._since_s, self._moment, change)
        expected_s, self._written_s = change.pause_s, 0.0
        while True:
            self._shape = change.shape
            origin = self._form(change)
            if origin is None:
                self._break_off()
                return False
            joined = self._spare()
            if not joined:
                break
            self._held = sorted([*self._held, *joined])
            change = change._replace(shape=self._choose("pause", self._held).shape)
            progress.close_shape(now_s := workers.now_s())
            progress.open_shape(now_s, self._moment, change)
            expected_s = math.nan
        progress.switch("steps", workers.now_s())
        progress.shape.predicted_pause_s = expected_s
        self._declined = 0
        if not math.isnan(expected_s) and (origin.is_held or origin.storage is not None):
            pause_s = progress.ledger.spent.pause_s - self._written_s
            from_storage = origin.storage is not None
            self._costs.add_pause(len(self._held), pause_s, from_storage, bool(origin.receivers))
        return True

    def _ask_shape(self) -> Reshape:
        """The shape to take; at the start as in a simulation: first on the fewest nodes."""
        if self._moment == "pause":  # a group broke, and its workers have their state
            return Reshape(self._choose("pause", self._held).shape, math.nan)
        if self._moment != "start" or len(self._held) == self._least:
            return self._choose(self._moment, self._held)
        change = self._choose("start", self._held[: self._least])
        self._shape = change.shape
        return change._replace(shape=self._choose("pause", self._held).shape)

    def _choose(self, moment: ReplanMoment, held: list[int]) -> Reshape:
        """The answer of the policy on some nodes.

        Raises:
            PolicyError: If it is nothing that workers of one model each can carry out.
        """
        change = self._ask(moment, held)
        assert change is not None
        self._from_storage = change.from_storage
        if change.shape.pipelines or not change.shape.rate:
            raise PolicyError(
                f"each worker of {self._progress.job} holds the whole model, and they train on any "
                f"number of nodes from {self._least} on; the policy chose {change.shape}",
                "replan",
            )
        return change

    def _ask(self, moment: ReplanMoment, held: list[int], spare: int = 0) -> Reshape | None:
        sends = spare > 0 or len(set(self._workers.steps_of(held).values())) > 1
        task = self._costs.task(len(held) + spare, self._from_storage, sends)
        mean_s = self._workers.rate.mean_s(1, self._workers.now_s())
        announced = moment == "lost" and self._announced
        return self._asker.ask(
            ElasticView(task.name, task, moment, tuple(held), spare, self._shape, mean_s, announced)
        )

    def _form(self, change: Reshape) -> Origin | None:
        """Let the held workers form a group and take a state over; None if one of them ended."""
        progress, workers = self._progress, self._workers
        states = workers.steps_of(self._held)
        if len(states) < len(self._held):
            return None
        latest = max(states.values())
        if change.from_storage and progress.saved.steps < min(progress.ledger.committed, latest):
            holder = min(node for node, steps in states.items() if steps == latest)
            begun_s = workers.now_s()
            if not self._write(holder, SavedState(latest, progress.path_of(latest))):
                return None
            self._written_s += workers.now_s() - begun_s
        origin = origin_of(states, progress.saved, change.from_storage)
        orders = self._store.orders(self._held, origin)
        replies = workers.command(orders)
        if not are_done(orders, replies):
            return None
        progress.resume(origin, sum(reply.sent_bytes for reply in replies.values()))
        return origin

    def _train(self) -> bool:
        """Train until a worker ended or the shape is to change; whether the training is over."""
        progress, workers, ledger = self._progress, self._workers, self._progress.ledger
        while ledger.steps < ledger.wanted:
            if self._takes_up():
                if ledger.uncommitted and not self._save():
                    return self._break_off()
                self._moment, self._since_s = "boundary", workers.now_s()
                progress.close_shape(self._since_s)
                return False
            if not (self._step() and self._commit()):
                return self._break_off()
        if not self._save(progress.final_path):
            return self._break_off()
        progress.close_shape(workers.now_s())
        return True

    def _takes_up(self) -> bool:
        """Ask the policy about workers that came, unless it declined as many before."""
        offered = len(self._spare())
        if offered == self._declined:
            return False
        self._declined = offered
        return offered > 0 and self._ask("gained", self._held, offered) is not None

    def _step(self) -> bool:
        """Train a step; whether all workers lived on."""
        workers, nodes = self._workers, len(self._held)
        orders = self._split.orders(self._held)
        begun_s = workers.now_s()
        replies = workers.command(orders)
        losses = [reply.loss for reply in replies.values() if reply.kind == "done"]
        is_done = len(losses) == nodes
        if is_done:
            self._costs.add_step(nodes, workers.now_s() - begun_s)
        if is_done or (losses and self._keeps_steps()):
            self._progress.finish_step(losses[0])
        return is_done

    def _keeps_steps(self) -> bool:
        """Whether finished steps outlive a broken group: a worker has their state."""
        shape = cast(Shape, self._shape)
        commits_in_memory = shape.commit_steps == 1 and not shape.write_s
        return commits_in_memory or not any(each.node in self._held for each in self._workers.lost)

    def _commit(self) -> bool:
        """Commit finished steps if it is time to; whether all workers lived on."""
        shape, uncommitted = cast(Shape, self._shape), self._progress.ledger.uncommitted
        is_due = bool(shape.commit_steps) and uncommitted >= shape.commit_steps
        if is_due and not shape.write_s:
            self._progress.commit(self._workers.now_s())
            return True
        if not is_due and shape.saves_on_notice:
            running = self._workers.running
            is_due = any(running[node].noticed_s < math.inf for node in self._held)
        return not is_due or self._save()

    def _save(self, path: Path | None = None) -> bool:
        """Commit all finished steps with a checkpoint; whether all workers lived on."""
        progress, workers = self._progress, self._workers
        progress.switch("write", workers.now_s())
        steps = progress.ledger.steps
        saved = SavedState(steps, path or progress.path_of(steps))
        if not self._write(self._held[0], saved):
            return False
        progress.switch("steps", workers.now_s())
        progress.commit(workers.now_s())
        return not any(each.node in self._held for each in workers.lost)

    def _write(self, node: int, saved: SavedState) -> bool:
        """Let the worker of a node write a checkpoint; whether it is written."""
        assert saved.path is not None
        begun_s = self._workers.now_s()
        if not self._workers.carry_out({node: SaveState(saved.path)}):
            return False
        self._costs.add_write(self._workers.now_s() - begun_s)
        self._progress.keep(saved)
        return True

    def _break_off(self) -> Literal[False]:
        """End a shape whose group is broken, with what was not committed; the training goes on.

        Where all workers live, a connection failed: all that they finished is kept.

        Raises:
            EnvironmentLacks: If groups broke too often in a row.
        """
        progress, ledger, keeps_steps = self._progress, self._progress.ledger, self._keeps_steps()
        lost = self._take_lost()
        time_s = lost[0].time_s if lost else self._workers.now_s()
        if keeps_steps:
            progress.commit(max(time_s, progress.since_s))
        self._moment = "lost" if lost else "pause"
        if not lost:
            log.warning(
                "the group of nodes %s broke after %d steps, though its workers live: %s",
                ", ".join(map(str, self._held)),
                ledger.steps,
                self._workers.why_broken,
            )
        self._since_s = max(time_s, progress.since_s)
        steps = ledger.uncommitted
        progress.close_shape(self._since_s, "lost")
        checkpoint_s = self._costs.checkpoint_s
        for number, each in enumerate(lost):
            announced = each.warned_s >= checkpoint_s
            self.lost.append(NodeLoss(each.time_s, each.node, announced, 0 if number else steps))
        self._announced = bool(lost) and all(each.warned_s >= checkpoint_s for each in lost)
        ledger.fruitless += 1
        if ledger.fruitless > MOST_FRUITLESS:
            raise EnvironmentLacks(
                f"{ledger.fruitless} groups of workers in a row broke before they committed a "
                f"step, {ledger.steps} of {ledger.wanted} are trained: state shorter intervals of "
                "checkpoints, or look at what the workers printed"
            )
        return False

    def _take_lost(self) -> list[LostWorker]:
        """Let go of workers that ended; returns those that were held."""
        lost = [each for each in self._workers.lost if each.node in self._held]
        self._workers.lost.clear()
        gone = {each.node for each in lost}
        self._held = [node for node in self._held if node not in gone]
        return lost
