"""The world: jobs wait, are placed, run and end; policies decide, a backend carries out."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import NamedTuple

from typing_extensions import override

from wattkeeper.policies.errors import InputError, PolicyError
from wattkeeper.policies.points.job import NEW
from wattkeeper.policies.points.moments import START_MOMENTS
from wattkeeper.policies.points.views import Measurement, Slice
from wattkeeper.sim.attempts.attempt import Attempt
from wattkeeper.sim.attempts.decided import AttemptTotals, Decision, Tuned, Untuned
from wattkeeper.sim.attempts.decisions import DecisionMaker
from wattkeeper.sim.cluster.cluster import Cluster
from wattkeeper.sim.cluster.losses import LossRate, RunLosses
from wattkeeper.sim.engine.backend import Backend, Listener, ZooBackend
from wattkeeper.sim.engine.board import JobBoard
from wattkeeper.sim.engine.booking import Booking
from wattkeeper.sim.engine.core import Core
from wattkeeper.sim.engine.features.node_losses import NodeLosses
from wattkeeper.sim.engine.features.pauses import Pauses
from wattkeeper.sim.engine.features.power_cap import PowerCap
from wattkeeper.sim.engine.features.power_limits import PowerLimits
from wattkeeper.sim.engine.features.retuner import Retuner
from wattkeeper.sim.engine.features.signal_changes import SignalChanges
from wattkeeper.sim.engine.features.stragglers import StragglerEvents, Stragglers
from wattkeeper.sim.engine.features.tune_signals import TuneSignals
from wattkeeper.sim.engine.inheritances import Inheritances
from wattkeeper.sim.engine.lifecycle import Lifecycle
from wattkeeper.sim.engine.node_states import NodeStates, PowerBudget
from wattkeeper.sim.engine.preparation import Preparation
from wattkeeper.sim.engine.retries import Retries
from wattkeeper.sim.engine.run_config import PolicySet, RunRules
from wattkeeper.sim.engine.selection.feasibility import Feasibility
from wattkeeper.sim.engine.selection.queues import SelectByQueue
from wattkeeper.sim.engine.selection.selector import Selector
from wattkeeper.sim.engine.selection_pass import SelectionPass
from wattkeeper.sim.engine.sources import Source
from wattkeeper.sim.engine.submission import Submission
from wattkeeper.sim.engine.subscriber import Moments, Subscriber
from wattkeeper.sim.kernel.environment import SimulationEnvironment
from wattkeeper.sim.kernel.hosting import BoundPolicy, Host
from wattkeeper.sim.kernel.signals import SignalSource
from wattkeeper.sim.kernel.streams import RandomStreams
from wattkeeper.sim.recording.recorder import Recorder
from wattkeeper.sim.recording.row_types import EARLY, PROFILED, REACHED


class ElasticParts(NamedTuple):
    """What elastic jobs need of the world that they are a part of.

    Attributes:
        core: What the parts of the world share.
        lifecycle: Moves jobs from state to state.
        rate: The observed rate of losses.
        replan: The policy of `Replan`, and its context.
    """

    core: Core
    lifecycle: Lifecycle
    rate: LossRate
    replan: BoundPolicy


class RunParts(NamedTuple):
    """What a world is made of.

    Attributes:
        env: The environment.
        cluster: Nodes and GPUs.
        source: Submits the jobs.
        backend: Runs attempts.
        policies: The configs of the policies.
        rules: What the world enforces.
        streams: Random streams.
        zoo: Trained models; None: there is no zoo.
        signals: Signals by name.
        stragglers: By id of the job.
        losses: What happens to nodes; None: nothing does.
        elastic: Makes the part that runs elastic jobs; None: there are none.
    """

    env: SimulationEnvironment
    cluster: Cluster
    source: Source
    backend: Backend
    policies: PolicySet
    rules: RunRules
    streams: RandomStreams
    zoo: ZooBackend | None = None
    signals: Mapping[str, SignalSource] = MappingProxyType({})
    stragglers: Mapping[str, Stragglers] = MappingProxyType({})
    losses: RunLosses | None = None
    elastic: Callable[[ElasticParts], Subscriber] | None = None


class World(Listener):
    """One run: a cluster, a source of jobs, policies, and a backend in an environment.

    At equal times completions come first, then arrivals, then a scheduling pass. A job whose
    attempt fails is tried again at once on the GPUs that it holds; under a power cap it may have to
    wait on them, before jobs that wait in the queue. A preempted job gives its GPUs up at once and
    keeps what it did; its node is busy saving that for a while, so that a job which starts waits
    (`ClusterSpec.checkpoint_s`), and it resumes later on GPUs of the same type. A node that goes
    down ends the attempts on it; their jobs wait anew, and resume from their last checkpoint.

    Its constructor puts its parts together; each owns its state, and features subscribe to the
    moments at which they act (`wattkeeper.sim.engine.subscriber`). It passes on what the backend
    reports.

    Attributes:
        env: The environment; ordinary SimPy processes may run in it (`env.process`).
        cluster: Nodes and GPUs.
        source: The source of jobs.
        zoo: The zoo, if there is one.
        board: The state of every job.
        recorder: The records of the run.
    """

    def __init__(self, parts: RunParts) -> None:
        env, cluster, policies, rules = parts.env, parts.cluster, parts.policies, parts.rules
        backend, spec = parts.backend, parts.cluster.spec
        self.env = env
        self.cluster = cluster
        self.source = parts.source
        self.zoo = parts.zoo
        self.recorder = recorder = Recorder()
        self._backend = backend
        self._max_attempts = rules.max_attempts
        journal = recorder.journal
        subscribers = Moments()
        host = Host(
            backend.capabilities,
            env,
            rules.objective,
            parts.streams,
            journal,
            parts.signals,
            parts.zoo,
            backend.foresight,
        )
        by_queue = SelectByQueue(policies.select, host, cluster) if len(spec.queues) > 1 else None
        select = host.engage(policies.select, by_queue)
        place = host.engage(policies.place)
        configure = host.engage(policies.configure)
        tuning = policies.configure if policies.configure.tunes else policies.tune
        tune = host.engage_tune(configure, tuning)
        if parts.zoo is not None:
            parts.zoo.engage(host)
        sets_parent = parts.zoo is not None and policies.configure.sets_parent
        decisions = DecisionMaker(configure, tune, journal, sets_parent)
        self._decisions = decisions
        board = self.board = JobBoard(env, cluster, journal)
        nodes = NodeStates(cluster, recorder)
        budget = PowerBudget(spec, backend)
        room = Feasibility(cluster, budget, place, board)
        eta = rules.objective.eta
        booking = Booking(env, recorder, backend, eta, subscribers)
        core = self._core = Core(
            env, cluster, nodes, budget, room, board, booking, recorder, host, subscribers
        )
        selector = Selector(select)
        inheritances = Inheritances(parts.zoo, sets_parent, decisions, backend, recorder)
        submission = self._submission = Submission(core, parts.source)
        preparation = self._preparation = Preparation(
            core,
            decisions,
            inheritances,
            backend,
            spec.gpus if policies.configure.sees_queue else 0,
            tuning.limits_unprofiled,
        )
        lifecycle = self._lifecycle = Lifecycle(
            core, selector, submission, preparation, inheritances
        )
        retries = self._retries = Retries(core, lifecycle)
        self._pass = SelectionPass(core, selector, lifecycle, retries, rules.start_on_submit)
        cap, moments = spec.cap, tuning.moments
        limits = PowerLimits(core, cap is not None)
        pauses = Pauses(core, lifecycle, rules.holds_pauses)
        retuner = self._retuner = Retuner(core, decisions, moments, pauses, limits)
        self.retunes = (
            tuning.slices
            or not set(moments) <= set(START_MOMENTS)
            or bool(parts.stragglers)
            or (cap is not None and cap.obey == "limits")
        )
        self.wants_epochs = "epoch" in moments
        self.wants_slices = tuning.slices
        rate = LossRate(spec.nodes)
        if parts.zoo is not None:
            subscribers.add(inheritances)
        if self.retunes:
            subscribers.add(retuner)
        if retuner.wants("signal"):
            subscribers.add(TuneSignals(core, parts.signals, tuning.signals, retuner))
        if parts.stragglers:
            subscribers.add(StragglerEvents(env, parts.streams, parts.stragglers, retuner))
        if spec.power_cap_w is not None:
            subscribers.add(limits)
        if cap is not None:
            signal = SignalChanges(env, board, parts.signals[cap.name])
            subscribers.add(PowerCap(core, cap, signal, retuner, limits, lifecycle))
        if parts.losses is not None:
            subscribers.add(NodeLosses(core, parts.losses, rate, selector, lifecycle, retuner))
        if parts.elastic is not None and policies.replan is not None:
            replan = host.engage(policies.replan)
            subscribers.add(parts.elastic(ElasticParts(core, lifecycle, rate, replan)))
        env.driven = self

    @property
    def questions(self) -> int:
        """Number of jobs that `Select` asked about, whether and without whom they fit."""
        return self._core.room.questions

    def run(self) -> None:
        """Run until nothing is left to happen.

        Raises:
            InputError: If a job cannot run on the cluster.
            PolicyError: If a policy chose what is not allowed, or left a job waiting for ever.
        """
        try:
            self._submission.begin()
            for part in self._core.subscribers.begin_run:
                part.begin_run()
            with _uncollected():
                self.env.run()
            self._end()
        finally:  # garbage collection does not see that attempts refer to this world
            self._core.loop.queue.clear()
            self.board.clear()
            self._retuner.clear()
            self._core.subscribers.clear()

    def _end(self) -> None:
        """End the run: no job may be left that could run."""
        for part in self._core.subscribers.end_run:
            part.end_run()
        board, recorder = self.board, self.recorder
        if board.waiting and self._core.nodes.some_are_down:
            unable = set(recorder.unable)
            recorder.unable += [number for number in board.waiting if number not in unable]
        elif board.waiting or board.stalled:
            raise self._pass.left_waiting()
        if board.suspended:
            job = next(iter(board.suspended.values())).execution.attempt.job
            raise PolicyError(f"job {job.job_id} was paused, and never went on", "tune")
        for paused in board.paused.values():
            execution = paused.execution
            if not execution.attempt.waits_anew:
                self._core.booking.book_broken_off(execution, execution.lose(), paused.since_s)
        self._core.nodes.close()

    def close_node(self, node: int) -> None:
        """Start no further job on a node; those on it continue. Its free GPUs draw idle power.

        Raises:
            InputError: If the node is closed already.
        """
        if node in self.cluster.closed:
            raise InputError(f"node {node} is closed already: reopen it first")
        gpus = self.cluster.close(node)
        if self._core.nodes.vary:
            self._core.nodes.occupy(((node, gpus, NEW),), self._core.loop.now_s)
        self._core.room.shrink()

    def reopen_node(self, node: int) -> None:
        """Let jobs start on a closed node again.

        Raises:
            InputError: If the node is open.
        """
        if node not in self.cluster.closed:
            raise InputError(f"node {node} is open: only a closed one can be reopened")
        gpus = self.cluster.reopen(node)
        if self._core.nodes.vary:
            self._core.nodes.vacate(((node, gpus, NEW),), self._core.loop.now_s)
        self._core.room.grow()
        self.board.ask_for_pass()

    @override
    def arrive(self) -> None:
        self._submission.arrive()

    @override
    def schedule(self) -> None:
        self._pass.run()

    @override
    def signal_arrived(self) -> None:
        if self._retuner.wants("signal"):
            self._retuner.ask_all("signal")
        self.board.ask_for_pass()

    @override
    def holds(self, attempt: Attempt) -> None:
        self._core.booking.hold(attempt)

    @override
    def trains(self, attempt: Attempt) -> None:
        self._retuner.training(attempt)

    @override
    def draws(self, attempt: Attempt, power_w: float, since_s: float, settled: bool) -> None:
        self._core.booking.draw(attempt, power_w, since_s, settled)

    @override
    def measured(self, untuned: Untuned, report: tuple[Measurement, ...]) -> Decision:
        number = untuned.start.job.number
        execution = self.board.running.get(number)
        if execution is not None:  # else it was preempted while its report was under way
            untuned = untuned.of_attempt(execution.attempt.number)  # another one after a loss
        decision = self._decisions.tune(untuned, report)
        if isinstance(decision, Tuned):
            self._retuner.settle(number, decision.knobs, untuned.measured + report)
        return decision

    @override
    def reached(self, attempt: Attempt, report: tuple[Measurement, ...]) -> Slice | None:
        if not self._retuner.wants("reached"):
            return None
        return self._retuner.reached(attempt, report)

    @override
    def allows(self, attempt: Attempt, power_w: float) -> bool:
        return self._core.budget.allows_change(attempt.job, power_w)

    @override
    def epoch_ended(self, attempt: Attempt) -> None:
        self._retuner.epoch_ended(attempt)

    @override
    def ran(
        self, attempt: Attempt, time_s: float, energy_j: float, saved_s: float, limit_w: float
    ) -> None:
        reached = not attempt.is_stopped
        most_w = self._backend.most_power_w(attempt.job, attempt.gpu_type)
        cost = self._core.booking.book_run(attempt, most_w, time_s, energy_j, limit_w)
        if not (self._core.host.observes or self._submission.follows):
            self._lifecycle.end(attempt, reached, saved_s)
            self.board.ask_for_pass()
            return
        totals = AttemptTotals(0, time_s, energy_j, reached)
        outcome = attempt.outcome(most_w, totals, cost, limit_w)
        self._core.host.observe(outcome)
        self._lifecycle.end(attempt, reached, saved_s)
        self._lifecycle.follow_up(outcome)

    @override
    def ended(self, attempt: Attempt, tuned: Tuned, totals: AttemptTotals) -> None:
        reached, stopped = totals.reached, attempt.is_stopped
        early = not (reached or stopped) and totals.epochs < tuned.start.options.max_epochs
        flags = reached * REACHED | early * EARLY | tuned.profiled * PROFILED
        cost = self._core.booking.book_training(attempt, tuned, tuned.power_limit_w, totals, flags)
        outcome = tuned.outcome(totals, cost)
        self._core.host.observe(outcome)
        if reached or stopped or attempt.tries >= self._max_attempts:
            self._lifecycle.end_training(attempt, reached, totals.saved_s, totals.accuracy)
            self._lifecycle.follow_up(outcome)
        else:
            self._retries.retry(attempt)

    @override
    def lost(self, attempt: Attempt, decision: Decision, totals: AttemptTotals) -> None:
        if attempt.number >= self._max_attempts:
            tuned = decision if isinstance(decision, Tuned) else decision.at_present_limit()
            self.ended(attempt, tuned, totals._replace(reached=False))
            return
        limit_w, profiled = math.nan, False
        if isinstance(decision, Tuned):
            limit_w, profiled = decision.power_limit_w, decision.profiled
        self._core.booking.book_training(attempt, decision, limit_w, totals, profiled * PROFILED)
        again = attempt.next_try(self._core.loop.now_s)
        self._lifecycle.begin(self._preparation.repeat(again, decision), 0.0)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Inside, no garbage is collected.

    Attempts leave no cycles, and looking for some among all that waits costs more than running it.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
