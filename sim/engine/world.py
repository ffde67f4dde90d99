"""The world: jobs wait, are placed, run and end; policies decide, a backend carries out."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

from wattkeeper.policies.errors import InputError, PolicyError
from wattkeeper.policies.points.job import NEW, Job, Placement
from wattkeeper.policies.points.moments import FIRST
from wattkeeper.policies.points.policy import Context, EmptyZoo, Policy
from wattkeeper.policies.points.select import Select, Selection
from wattkeeper.policies.points.views import (
    NO_KNOBS,
    Configuration,
    Knobs,
    Measurement,
    Options,
    Slice,
    Start,
)
from wattkeeper.policies.profile import cost as cost_of
from wattkeeper.policies.registry import Point, PolicyConfig, build_policy
from wattkeeper.sim.attempts.attempt import (
    Attempt,
    AttemptTotals,
    Decided,
    Decision,
    Execution,
    LostWork,
    Paused,
    Tuned,
    Untuned,
)
from wattkeeper.sim.attempts.decisions import DecisionMaker, format_pace
from wattkeeper.sim.attempts.elasticity import Elasticity
from wattkeeper.sim.attempts.validation import check_types_of_selection, check_wake
from wattkeeper.sim.cluster.cluster import Cluster
from wattkeeper.sim.cluster.losses import LossRate, LossRules, NodeChange, RunLosses
from wattkeeper.sim.engine.backend import Backend, Listener, ZooBackend
from wattkeeper.sim.engine.feasibility import Feasibility
from wattkeeper.sim.engine.inheritances import Inheritances
from wattkeeper.sim.engine.node_states import NodeChanges, NodeStates, PowerBudget
from wattkeeper.sim.engine.power_cap import PowerCap, Retries, pace_at
from wattkeeper.sim.engine.queues import SelectByQueue
from wattkeeper.sim.engine.retuner import Retuner
from wattkeeper.sim.engine.run_config import PolicySet, RunRules
from wattkeeper.sim.engine.sources import Source
from wattkeeper.sim.engine.stragglers import StragglerEvents, Stragglers
from wattkeeper.sim.kernel.context import Engaged, PolicyContext, SignalSource
from wattkeeper.sim.kernel.environment import SimulationEnvironment
from wattkeeper.sim.kernel.loop import (
    NEVER,
    SIGNAL,
    UP,
    Callback,
    EventLoop,
    ScheduledEvent,
    schedule_at,
)
from wattkeeper.sim.kernel.streams import RandomStreams
from wattkeeper.sim.recording.recorder import Recorder, whole_units
from wattkeeper.sim.recording.row_types import (
    EARLY,
    PROFILED,
    REACHED,
    REPLAYED,
    ClockRow,
    DelayRow,
    DrawRow,
    HoldRow,
    LossRow,
    NodeRow,
    RetuneRow,
    SliceRow,
    SlowRow,
    TrainingRow,
)

MOST_IDLE_WAKES: Final = 1_000_000
"""So often policies are asked on an idle cluster, with no arrival to come, before a run ends."""
MOST_LOSSES: Final = 10_000
"""After so many lost attempts a job is given up."""
WAKES: Final = 1_000_000
SHORTEST_WAKE_S: Final = 1e-3
"""The least time from wake to wake, s, as the mean of so many wakes."""


class ElasticParts(NamedTuple):
    """What the elastic jobs of a world share with it.

    Attributes:
        nodes: When nodes are ready.
        budget: The free power.
        room: The cache of what fits.
        rate: The observed rate of losses.
        waiting: Jobs that wait, by number.
        replan: The policy of `Replan`, and its context.
    """

    nodes: NodeStates
    budget: PowerBudget
    room: Feasibility
    rate: LossRate
    waiting: Mapping[int, Job]
    replan: Engaged


class World(Listener):
    """One run: a cluster, a source of jobs, policies, and a backend in an environment.

    At equal times completions come first, then arrivals, then a scheduling pass. A job whose
    attempt fails is tried again at once on the GPUs that it holds; under a power cap it may have to
    wait on them, before jobs that wait in the queue. A preempted job gives its GPUs up at once and
    keeps what it did; its node is busy saving that for a while, so that a job which starts waits
    (`ClusterSpec.checkpoint_s`), and it resumes later on GPUs of the same type. A node that goes
    down ends the attempts on it; their jobs wait anew, and go on from their last checkpoint.

    Attributes:
        env: The environment; ordinary SimPy processes may run in it (`env.process`).
        recorder: The records of the run.
        rules: The rules of the run.
    """

    def __init__(
        self,
        env: SimulationEnvironment,
        cluster: Cluster,
        source: Source,
        backend: Backend,
        policies: PolicySet,
        rules: RunRules,
        streams: RandomStreams,
        zoo: ZooBackend | None = None,
        signals: Mapping[str, SignalSource] | None = None,
        stragglers: Mapping[str, Stragglers] | None = None,
        losses: RunLosses | None = None,
        elastic: Callable[[World, ElasticParts], Elasticity] | None = None,
    ) -> None:
        self.env = env
        self._loop: EventLoop = env  # the same: compiled code knows its attributes
        self.cluster = cluster
        self.source = source
        self.backend = backend
        self.rules = rules
        self._eta = rules.objective.eta
        self.streams = streams
        self.zoo = zoo
        self._signals = signals or {}
        self.recorder = Recorder()
        self._journal = self.recorder.journal
        select = self._engage("select", policies.select)
        if len(cluster.spec.queues) > 1:
            select = Engaged(SelectByQueue(policies.select, select, cluster), select.ctx)
        place = self._engage("place", policies.place)
        configure = self._engage("configure", policies.configure)
        tunes = policies.configure.tunes
        tuning = policies.configure if tunes else policies.tune
        tune = self._engage("tune", tuning, configure.policy.tuner() if tunes else None)
        sets_parent = zoo is not None and policies.configure.sets_parent
        self._sees_queue = policies.configure.sees_queue
        self._all_gpus = cluster.spec.gpus
        self._decisions = DecisionMaker(
            configure, tune, self._journal, (select, place), sets_parent
        )
        self._inheritances = Inheritances(zoo, sets_parent, self._decisions, backend, self.recorder)
        self._by_select = self._journal.maker_of("select")
        self._select: Select = select.policy
        self._select_ctx = select.ctx
        self._checks_select = select.is_foreign
        self._waiting: dict[int, Job] = {}
        self._running: dict[int, Execution] = {}
        self._paused: dict[int, Paused] = {}
        self._idle_w = {name: power.idle_w for name, power in cluster.spec.power.items()}
        self._in_flight: dict[str, int] = {}
        self._wake: tuple[float, ScheduledEvent] | None = None
        self._idle_wakes = 0
        self._wakes = 0
        self._wakes_since_s = 0.0
        self._preempts = self._journal.index_choice("preempt")
        self._limits_unprofiled = tuning.limits_unprofiled
        self._followed = tuning.signals
        self._unfollowed: list[str] = []
        self._suspended: dict[int, Paused] = {}
        self._retuner: Retuner | None = None
        moments = tuning.moments
        cap = cluster.spec.cap
        self._shares_cap = cap is not None and cap.obey == "limits"
        wants_more = bool(set(moments) - set(FIRST)) or tuning.slices
        if stragglers or self._shares_cap or wants_more:
            self._retuner = Retuner(
                env, self._decisions, moments, self._pause, self._go_on, self._stop, self._allowed
            )
        self._stragglers: StragglerEvents | None = None
        if stragglers and self._retuner is not None:
            self._stragglers = StragglerEvents(env, streams, stragglers, self._straggle)
        self.retunes = self._retuner is not None
        self.wants_epochs = "epoch" in moments
        self.wants_slices = tuning.slices
        self._nodes = NodeStates(cluster, self.recorder)
        self._budget = PowerBudget(cluster.spec, backend)
        self._capped = cluster.spec.power_cap_w is not None
        self._cap: PowerCap | None = None
        self._is_cap_unshared = False
        self._idle_caps = 0
        self._by_cap = -1
        if cap is not None:
            self._journal.add_maker("cap", cap.obey)
            self._by_cap = self._journal.maker_of("cap")
            self._cap = PowerCap(
                cap, self._budget, self._running, self._retuner, self._evict, self._note_pace
            )
            self._budget.set_cap(self._signals[cap.name].view(env).value)
        self._loss_rules = LossRules()
        self._loss_rate = LossRate(cluster.spec.nodes)
        self._node_changes: NodeChanges | None = None
        self._by_node = -1
        self._boots: dict[int, Callback] = {}
        self._idle_changes = 0
        if losses is not None:
            self._loss_rules, changes, racks = losses
            if racks:
                cluster.set_racks(racks)
            self.recorder.follows_nodes = True
            self._node_changes = NodeChanges(env, changes, self._change_node, self._wants_nodes)
            self._journal.add_maker("node", "events")
            self._by_node = self._journal.maker_of("node")
        self._room = Feasibility(cluster, self._budget, place, self._running, self._paused)
        self._retries = Retries(self._budget, self._room, self._decide)
        self._elastic: Elasticity | None = None
        if elastic is not None and policies.replan is not None:
            replan = self._engage("replan", policies.replan)
            parts = ElasticParts(
                self._nodes, self._budget, self._room, self._loss_rate, self._waiting, replan
            )
            self._elastic = elastic(self, parts)
            self._room.elastic = self._elastic
        self._arrivals = source.arrivals()
        self._batch: list[Job] = []
        self._arrived = 0
        env.driven = self

    def _engage(self, point: Point, config: PolicyConfig, policy: Policy | None = None) -> Engaged:
        self._journal.add_maker(point, config.kind)
        ctx = PolicyContext(
            point,
            config,
            self.env,
            self.rules.objective,
            EmptyZoo() if self.zoo is None else self.zoo,
            self.streams.policy,
            self.backend.foresight,
            self._signals,
        )
        return Engaged(build_policy(config) if policy is None else policy, ctx)

    @property
    def questions(self) -> int:
        """Number of jobs that `Select` asked about, whether and without whom they fit."""
        return self._room.questions

    def run(self) -> None:
        """Run until nothing is left to happen.

        Raises:
            InputError: If a job cannot run on the cluster.
            PolicyError: If a policy chose what is not allowed, or left a job waiting for ever.
        """
        try:
            self._run()
        finally:
            self._let_go()

    def _run(self) -> None:
        self._loop.next_arrival_s = self._next_arrival_s()
        if self._retuner is not None and self._retuner.wants("signal"):
            for name in self._followed:
                self._follow(name)
        if self.cluster.spec.cap is not None:
            self._follow_cap(self.cluster.spec.cap.name)
        if self._node_changes is not None:
            self._node_changes.go_on()
        if self._elastic is not None:
            self._elastic.begin()
        with _uncollected():
            self.env.run()
        if self._elastic is not None:
            self._elastic.end_stopped()
        if self._waits() and self._nodes.some_are_down:
            known = set(self.recorder.unable)
            self.recorder.unable += [number for number in self._waiting if number not in known]
        elif self._waits() or self._retries.stalled:
            raise self._left_waiting()
        if self._suspended:
            job = next(iter(self._suspended.values())).execution.attempt.job
            raise PolicyError(f"job {job.job_id} was paused, and never went on", "tune")
        self._record_unfinished()
        self._nodes.close()

    def _record_unfinished(self) -> None:
        """Record the attempts of jobs that were preempted and never got GPUs again."""
        for paused in self._paused.values():
            attempt = paused.execution.attempt
            if not attempt.waits_anew:
                self._record_broken_off(paused.execution, paused.execution.lose(), paused.since_s)

    def _let_go(self) -> None:
        """Let go of all attempts: garbage collection does not see that they refer to this world."""
        self._loop.queue.clear()
        self._running.clear()
        self._paused.clear()
        self._suspended.clear()

    def _is_idle(self) -> bool:
        """Whether no job runs or is to come."""
        return not self._running and self._loop.next_arrival_s == NEVER

    def _has_work(self) -> bool:
        """Whether any job runs, waits or is to come."""
        return not self._is_idle() or self._waits() or bool(self._suspended)

    def _waits(self) -> bool:
        """Whether any job waits that may still run."""
        return bool(self._waiting)

    def _wants_nodes(self) -> bool:
        """Whether changes of nodes matter to any job; not if none ran through very many of them."""
        self._idle_changes = self._idle_changes + 1 if self._is_idle() else 0
        return self._has_work() and self._idle_changes <= MOST_IDLE_WAKES

    def _follow(self, name: str) -> None:
        """Schedule the next value of a signal, while any attempt can be asked about it."""
        if self._is_idle() and not self._suspended:
            self._unfollowed.append(name)  # until an attempt begins, if any does
        else:
            self._schedule_change(name, self._signal_changed)

    def _schedule_change(self, name: str, changed: Callable[[str], None]) -> None:
        """Call a method with the name of a signal when that has its next value."""
        change_s = self._signals[name].next_change_s(self._loop.now_s)
        if change_s != NEVER:
            schedule_at(self._loop, change_s, Callback(changed, name), SIGNAL)

    def _signal_changed(self, name: str) -> None:
        retuner = self._retuner
        assert retuner is not None
        retuner.ask_all("signal")
        self._follow(name)

    def signal_arrived(self) -> None:
        """See `wattkeeper.sim.engine.backend.Listener`."""
        if self._retuner is not None and self._retuner.wants("signal"):
            self._retuner.ask_all("signal")
        self._ask_for_pass()

    def _follow_cap(self, name: str) -> None:
        """Schedule the next power cap, while it may matter."""
        self._idle_caps = self._idle_caps + 1 if self._is_idle() else 0
        if self._has_work() and self._idle_caps <= MOST_IDLE_WAKES:
            self._schedule_change(name, self._cap_changed)

    def _cap_changed(self, name: str) -> None:
        assert self._cap is not None
        self._cap.change(self._signals[name].view(self.env).value)
        self._room.shrink()
        self._room.grow()
        self._ask_for_pass()
        self._follow_cap(name)

    def _left_waiting(self, more: str = "") -> PolicyError:
        stalled = (attempt.job for attempt in self._retries.stalled.values())
        job = next(iter((*self._waiting.values(), *stalled)))
        cap_w = self._budget.cap_w
        return PolicyError(
            f"job {job.job_id} was never placed, though {self.cluster.free_gpus} of "
            f"{self.cluster.spec.gpus} GPUs are free and it asks for {job.gpus}"
            + (f" under a power cap of {cap_w:g} W" if cap_w else "")
            + more,
            "place",
        )

    def arrive(self) -> None:
        """See `wattkeeper.sim.kernel.loop.Driven`."""
        now_s = self._loop.now_s
        next_s = self._loop.next_arrival_s
        while next_s <= now_s:
            self._arrived += 1
            self._submit(self._batch[self._arrived - 1])
            next_s = self._next_arrival_s()
        self._loop.next_arrival_s = next_s

    def _next_arrival_s(self) -> float:
        while self._arrived == len(self._batch):
            batch = next(self._arrivals, None)
            if batch is None:
                return math.inf
            self._batch, self._arrived = batch, 0
        return self._batch[self._arrived].submit_time_s

    def _submit(self, job: Job) -> None:
        if job.gpus > self._room.gpus:
            raise InputError(
                f"job {job.job_id} asks for {job.gpus} GPUs, the cluster has {self._room.gpus}: "
                "give it more (cluster.gpus)"
            )
        self._waiting[job.number] = job
        self._decisions.submitted(job)
        self._loop.pass_is_due = True

    def schedule(self) -> None:
        """Preempt and start what `Select` chooses, until it chooses nothing."""
        select, ctx, room = self._select, self._select_ctx, self._room
        if self._is_cap_unshared and self._cap is not None:
            self._cap.share()
            self._is_cap_unshared = False
        room.begin_pass()
        if self._retries.stalled:
            self._retries.go_on()
        if self._elastic is not None:
            self._elastic.make_room()
        selection = self._ask_select()
        while selection.start or selection.preempt:
            for job in selection.preempt:
                self._preempt(job)
            for job in selection.start:
                if room.drop_withdrawn(job):
                    self._tell_select(select.on_end, job)
                    continue
                if self._waiting.get(job.number) is not job:
                    raise PolicyError(f"job {job.job_id} was started, but does not wait", "select")
                placement = room.where(job)
                if placement:
                    self._start(job, placement)
                else:
                    room.refuse(job)
                    try:
                        select.on_refuse(ctx, job)
                    except BaseException as error:
                        about = f"job {job.job_id}"
                        raise ctx.explain_failure(error, select.on_refuse, about) from None
            if not self._waiting:
                break
            selection = self._ask_select()
        if self._retries.stalled:
            self._retries.go_on()
        room.end_pass()
        if self._elastic is not None:
            self._elastic.settle()
        wake_s = self._ask_wake()
        if room.is_timed:
            wake_s = min(wake_s, room.wake_s())
        if wake_s != NEVER or self._wake is not None:
            self._wake_at(wake_s if self._waiting or self._running else NEVER)
        if self._waiting and self.rules.start_on_submit:
            job = next(iter(self._waiting.values()))
            raise InputError(
                f"occupancy: recorded starts every job when it is submitted, but job {job.job_id} "
                f"finds {self.cluster.free_gpus} of {self.cluster.spec.gpus} GPUs free at "
                f"{self._loop.now_s:g} s and asks for {job.gpus}: give the cluster more "
                "(cluster.gpus)"
            )

    def _ask_select(self) -> Selection:
        try:
            selection = self._select.select(self._select_ctx, self._room)
            if self._checks_select:
                check_types_of_selection(selection)
        except BaseException as error:
            method, jobs = self._select.select, list(self._waiting.values())
            about = f"job {jobs[0].job_id}" if jobs else ""
            if len(jobs) > 1:
                about += f" and {len(jobs) - 1} others that wait"
            raise self._select_ctx.explain_failure(error, method, about) from None
        return selection

    def _ask_wake(self) -> float:
        """When `Select` wants to be asked again, s."""
        try:
            wake_s = self._select.wake_s(self._select_ctx)
            if wake_s != NEVER:
                check_wake(wake_s, self._loop.now_s, "select")
        except BaseException as error:
            method = self._select.wake_s
            raise self._select_ctx.explain_failure(error, method, "") from None
        return wake_s

    def _wake_at(self, time_s: float) -> None:
        if self._wake is not None:
            if self._wake[0] == time_s:
                return
            self._wake[1].cancel()
            self._wake = None
        if time_s < NEVER:
            self._wake = time_s, Callback(self._woken)
            schedule_at(self._loop, *self._wake)

    def _woken(self, _: object) -> None:
        self._wake = None
        self._loop.pass_is_due = True
        self._wakes += 1
        if self._wakes == WAKES:
            self._check_wakes()
        if self._running or self._loop.next_arrival_s < NEVER:
            self._idle_wakes = 0
            return
        self._idle_wakes += 1
        if self._idle_wakes > MOST_IDLE_WAKES:
            raise self._left_waiting(f", and its policies were asked {MOST_IDLE_WAKES:,} times")

    def _check_wakes(self) -> None:
        """Refuse to be woken without an end while time hardly passes."""
        passed_s = self._loop.now_s - self._wakes_since_s
        if passed_s < WAKES * SHORTEST_WAKE_S:
            ctx = self._select_ctx
            if self._room.is_timed and self._room.wake_s() < self._ask_wake():
                ctx = self._room.ctx
            raise PolicyError(
                f"{ctx.policy} was woken {WAKES:,} times within {passed_s:g} s, at last at "
                f"{self._loop.now_s:g} s; allowed is a mean of {SHORTEST_WAKE_S:g} s or more from "
                "wake to wake",
                ctx.point,
            )
        self._wakes, self._wakes_since_s = 0, self._loop.now_s

    def _start(self, job: Job, placement: Placement) -> None:
        """Start a waiting job, or resume a preempted one."""
        del self._waiting[job.number]
        now_s, cluster = self._loop.now_s, self.cluster
        free, waiting = cluster.free_gpus, len(self._waiting) + 1
        delay_s = self._nodes.occupy(placement, now_s) if self._nodes.vary else 0.0
        placement = cluster.take(job, placement)
        gpu_type = cluster.gpu_type(placement)
        where = self._journal.index_placement(placement)
        paused = self._paused.pop(job.number, None) if self._paused else None
        number = 1 if paused is None else paused.execution.attempt.number
        self._journal.add(now_s, self._by_select, job.number, number, where, waiting, free)
        self._budget.reserve(job, gpu_type)
        self._room.shrink()
        if paused is not None:
            self._resume(paused, placement, where, delay_s)
            return
        if job.workload is not None:
            self._in_flight[job.group_id] = self._in_flight.get(job.group_id, 0) + 1
        idle_w = self._idle_w[gpu_type] * job.gpus_held
        self._decide(Attempt(job, 1, placement, where, gpu_type, now_s, idle_w), delay_s)

    def _decide(self, attempt: Attempt, delay_s: float) -> None:
        """Ask the policies about an attempt that holds its GPUs, and begin it after a delay (s)."""
        job = attempt.job
        options: Options | None = None
        if self._elastic is not None and self._elastic.has(job):
            execution = self._elastic.start(attempt)
        elif job.workload is None:
            knobs = NO_KNOBS
            if self._limits_unprofiled:
                options = self.backend.options(job, attempt.gpu_type)
                start = Start(job, attempt.number, options, 0)
                knobs = self._decisions.choose_limit(start)
            limit_w = math.nan if knobs.power_limit_w is None else knobs.power_limit_w
            inheritance = self._inheritances.ask(attempt)
            execution = self.backend.run(attempt, inheritance, limit_w)
            if self._retuner is not None and options is not None:
                batch = Configuration(options.default_batch_size)
                self._retuner.begin(execution, start, batch, knobs)
        else:
            options = self.backend.options(job, attempt.gpu_type)
            in_flight = self._in_flight[job.group_id] - 1
            waiting = len(self._waiting) / self._all_gpus if self._sees_queue else 0.0
            start = Start(job, attempt.number, options, in_flight, 1.0, waiting)
            decision = self._decisions.decide(start)
            inheritance = self._inheritances.take(job, decision.configuration)
            execution = self.backend.train(attempt, decision, inheritance)
            self._follow_attempt(execution, decision)
        self._begin(execution, delay_s)

    def _follow_attempt(self, execution: Execution, decision: Decision) -> None:
        """Ask `Tune` about an attempt that is about to begin at the moments to come."""
        if self._retuner is not None:
            knobs = decision.knobs if isinstance(decision, Tuned) else NO_KNOBS
            self._retuner.begin(execution, decision.start, decision.configuration, knobs)
        if self._stragglers is not None:
            self._stragglers.begin(decision.start.job)

    def _begin(self, execution: Execution, delay_s: float) -> None:
        attempt = execution.attempt
        if self._node_changes is not None:
            nodes = len(attempt.placement)
            rule = self._loss_rules.checkpoints_of(nodes, self._loss_rate, self._loop.now_s)
            execution.write_checkpoints(rule)
            self._keep_pace(execution)
        self._running[attempt.job.number] = execution
        if self._retuner is None:
            execution.go_on(delay_s)
            return
        unfollowed, self._unfollowed = self._unfollowed, []
        for name in unfollowed:
            self._schedule_change(name, self._signal_changed)
        if attempt.draws is None:
            attempt.draws = []
        if not self._retuner.is_paused(attempt.job.number):
            execution.go_on(delay_s)
        elif self.rules.holds_pauses:
            self._hold_paused(attempt)
        else:
            self._suspend(execution)

    def _pause(self, execution: Execution) -> None:
        """Pause an attempt for `Tune`, with its GPUs or without them."""
        number = execution.attempt.job.number
        if number in self._running:  # else it waits for GPUs already, and pauses when it has them
            execution.pause()
            if self.rules.holds_pauses:
                self._hold_paused(execution.attempt)
            else:
                self._suspend(execution)

    def _hold_paused(self, attempt: Attempt) -> None:
        """Let a paused attempt hold its GPUs."""
        attempt.tune_paused_since_s = self._loop.now_s
        self.holds(attempt)

    def _suspend(self, execution: Execution) -> None:
        """Take the GPUs from a paused attempt."""
        attempt, now_s = execution.attempt, self._loop.now_s
        job = attempt.job
        del self._running[job.number]
        attempt.tune_paused_since_s = now_s
        self._vacate(attempt)
        self._suspended[job.number] = Paused(execution, now_s)
        self._tell_select(self._select.on_pause, job)
        self._ask_for_pass()

    def _go_on(self, execution: Execution) -> None:
        """Let an attempt that `Tune` paused go on, once it has GPUs."""
        attempt = execution.attempt
        number = attempt.job.number
        attempt.end_pause(self._loop.now_s)
        if number in self._running:
            restore_s = self.cluster.spec.restore_s if attempt.has_trained else 0.0
            execution.go_on(restore_s)
        elif number in self._suspended:
            self._paused[number] = self._suspended.pop(number)
            self._waiting[number] = job = self._pin(attempt)
            self._tell_select(self._select.on_resume, job)
            self._loop.pass_is_due = True

    def _stop(self, execution: Execution) -> None:
        """End an attempt for `Tune`; it is not tried again."""
        attempt = execution.attempt
        number = attempt.job.number
        attempt.is_stopped = True
        attempt.end_pause(self._loop.now_s)
        suspended = self._suspended.get(number)
        if suspended is not None:
            self.recorder.add_pause(number, suspended.since_s, self._loop.now_s)
        if number not in self._running:
            self._waiting.pop(number, None)
            self._paused.pop(number, None)
        execution.stop()

    def _allowed(self, execution: Execution, chosen: Knobs) -> Knobs:
        """The fastest pace up to the chosen one that the power cap allows; none: that in force."""
        attempt, retuner = execution.attempt, self._retuner
        job = attempt.job
        if retuner is None or not self._budget.counts(job.number):
            return chosen  # without GPUs: it counts with the most that it may draw when it has some
        points = list(execution.points(chosen))
        allowed = [point for point in points if self._budget.allows_change(job, point.power_w)]
        if allowed:
            pace, power_w = pace_at(allowed[-1]), allowed[-1].power_w
            if power_w - attempt.idle_w > self._budget.more_w(job.number):
                self._budget.settle(job, power_w)  # a paused attempt draws it later
                self._room.shrink()
        else:
            pace, power_w = retuner.in_force(job.number), self._budget.total_w(job.number)
        if self._cap is not None and allowed[-1:] != points[-1:]:
            self._note_pace(execution, pace, power_w)
        return pace

    def _note_pace(self, execution: Execution, pace: Knobs, share_w: float) -> None:
        """Note in the journal a pace that the power cap sets, with which a job may draw a share."""
        assert self._retuner is not None
        attempt = execution.attempt
        saw = self._budget.cap_w, format_pace(self._retuner.chosen(attempt.job.number))
        chose = f"{format_pace(pace)} share_w={share_w}"
        self._journal.note(self._loop.now_s, "cap", attempt.job.number, attempt.number, saw, chose)

    def _tell_select(self, method: Callable[[Context, Job], None], job: Job) -> None:
        try:
            method(self._select_ctx, job)
        except BaseException as error:
            about = f"job {job.job_id}"
            raise self._select_ctx.explain_failure(error, method, about) from None

    def _resume(self, paused: Paused, placement: Placement, where: int, delay_s: float) -> None:
        """Resume a preempted attempt on the GPUs that it now holds."""
        attempt, cluster = paused.execution.attempt, self.cluster
        if cluster.gpu_type(placement) != attempt.gpu_type:
            raise PolicyError(
                f"job {attempt.job.job_id} goes on on {attempt.gpu_type}, placed on {placement}",
                "place",
            )
        attempt.placement, attempt.where = placement, where
        if attempt.waits_anew:
            self._go_on_after_loss(paused, delay_s)
            return
        self.recorder.add_pause(attempt.job.number, paused.since_s, self._loop.now_s)
        restore_s = cluster.spec.restore_s if attempt.has_trained else 0.0
        self._begin(paused.execution, delay_s + restore_s)

    def _change_node(self, change: NodeChange) -> None:
        """Let a node go down, come back, have another pace, or announce that it will go down."""
        jobs, lost_gpu_s, lost_j = 0, 0.0, 0.0
        node, now_s = change.node, self._loop.now_s
        if change.event == "notice":
            self.cluster.announce(node, max(now_s, change.deadline_s))
            if self._elastic is not None:
                self._elastic.notice(node, now_s)
            if self._loss_rules.heeds_notice:
                for execution in self._on_node(node):
                    execution.write_checkpoint()
        elif change.event == "degraded":
            self.cluster.slow_down(node, change.factor)
            jobs = sum([self._keep_pace(execution) for execution in self._on_node(node)])
        elif change.event == "up":
            self.cluster.renew(node, change.rack)
            self._nodes.come_up(node, now_s)
            self._boots[node] = boot = Callback(self._reopen, node)
            schedule_at(self._loop, now_s + self._loss_rules.boot_s, boot, UP)
        else:
            holders = self._on_node(node)
            for execution in holders:
                gpu_s, energy_j = self._lose(execution, node)
                lost_gpu_s += gpu_s
                lost_j += energy_j
            jobs = len(holders)
            pending = self._boots.pop(node, None)
            if pending is not None:
                pending.cancel()
                self.recorder.booting_losses += 1
            else:
                self.cluster.close(node)
            if self._elastic is not None:
                self._elastic.down(node, pending is None and not holders)
            self._nodes.go_down(node, now_s)
            self._room.shrink()
        if change.event in ("notice", "degraded"):
            self._room.grow()
            self._ask_for_pass()
        else:
            self._loss_rate.change(now_s, change.event)
        deadline_s = change.deadline_s if change.event == "notice" else math.nan
        factor = change.factor if change.event == "degraded" else math.nan
        self.recorder.node_changes.append(
            NodeRow(
                change.time_s,
                node,
                change.event,
                change.cause,
                deadline_s,
                jobs,
                lost_gpu_s,
                lost_j,
                factor,
            )
        )

    def _keep_pace(self, execution: Execution) -> bool:
        """Let an attempt keep the pace of its slowest node; returns whether its pace changes."""
        attempt = execution.attempt
        factor = self.cluster.slowdown(attempt.placement)
        if self._stragglers is not None:
            factor = max(factor, self._stragglers.factor_of(attempt.job))
        if factor == execution.slowdown:
            return False
        number, choice = attempt.job.number, self._journal.index_choice(f"slowdown={factor}")
        waiting, free = len(self._waiting), self.cluster.free_gpus
        now_s = self._loop.now_s
        self._journal.add(now_s, self._by_node, number, attempt.number, choice, waiting, free)
        if self._retuner is not None and self._retuner.find(number) is not None:
            self._retuner.slow_down(number, factor)
        else:
            execution.slow_down(factor)
        return True

    def _straggle(self, number: int, factor: float) -> None:
        """Let a job keep the pace of a straggler elsewhere, if its own nodes are no slower."""
        assert self._retuner is not None
        tuning = self._retuner.find(number)
        assert tuning is not None
        slowest = self.cluster.slowdown(tuning.execution.attempt.placement)
        self._retuner.slow_down(number, max(factor, slowest))

    def _on_node(self, node: int) -> list[Execution]:
        """The attempts that hold GPUs of a node."""
        return [
            execution
            for execution in self._running.values()
            if any(slot[0] == node for slot in execution.attempt.placement)
        ]

    def _reopen(self, node: int) -> None:
        """Let jobs start on a node that came back."""
        del self._boots[node]
        self.cluster.reopen(node)
        self._room.grow()
        self._ask_for_pass()

    def _lose(self, execution: Execution, node: int) -> tuple[float, float]:
        """End an attempt whose node went down; its job waits anew.

        Returns:
            GPU time of training (s) and energy (J) since its last checkpoint.
        """
        if self._elastic is not None and self._elastic.has(execution.attempt.job):
            return self._elastic.lose(execution, node)
        attempt, now_s = execution.attempt, self._loop.now_s
        number = attempt.job.number
        waiting, free = len(self._waiting), self.cluster.free_gpus
        choice = self._journal.index_choice("lost")
        self._journal.add(now_s, self._by_node, number, attempt.number, choice, waiting, free)
        lost = execution.lose()
        attempt.count_idle(now_s)
        tuning = None if self._retuner is None else self._retuner.find(number)
        self._record_broken_off(execution, lost, now_s)
        self.recorder.add_detail(LossRow(node, lost.lost_time_s, lost.lost_energy_j))
        self._release(attempt)
        job = attempt.job
        del self._running[number]
        lost_gpu_s = lost.lost_time_s * job.gpus_held
        if attempt.losses == MOST_LOSSES:
            start = execution.begun_with()
            if start is not None:
                self._decisions.lose(start)
            self._give_up(job)
            return lost_gpu_s, lost.lost_energy_j
        self._tell_select(self._select.on_pause, job)
        if self._loss_rules.requeues_last:
            job = job.replace(submit_time_s=now_s)
        execution.attempt = attempt.after_loss(job, lost, now_s)
        job = self._pin(execution.attempt)
        if tuning is not None and self._retuner is not None:
            self._retuner.follow_again(tuning, execution.attempt.number)
        self._paused[number] = Paused(execution, now_s)
        self._waiting[number] = job
        self._tell_select(self._select.on_resume, job)
        self._loop.pass_is_due = True
        return lost_gpu_s, lost.lost_energy_j

    def _give_up(self, job: Job) -> None:
        """End a job that lost nodes again and again."""
        self.recorder.unable.append(job.number)
        if job.workload is not None:
            self._land(job)
        self._tell_select(self._select.on_end, job)
        self._follow_up(job)

    def _follow_up(self, ended: Job) -> bool:
        """Submit the job that follows one that ended; returns whether there is any."""
        follower = self.source.follow_up(ended, self._loop.now_s)
        if follower is not None:
            self._submit(follower)
        return follower is not None

    def _record_broken_off(self, execution: Execution, lost: LostWork, ended_s: float) -> None:
        """Record an attempt that ended without an end of its training, at a time, s."""
        attempt = execution.attempt
        most_w = self.backend.most_power_w(attempt.job, attempt.gpu_type)
        cost = cost_of(self._eta, lost.energy_j, lost.time_s, most_w)
        self._record(attempt, lost.energy_j, lost.time_s, cost, ended_s)
        batch_size, limit_w = execution.configured()
        replayed = REPLAYED if attempt.job.workload is not None else 0
        self.recorder.add_detail(TrainingRow(attempt.number, batch_size, limit_w, flags=replayed))

    def _go_on_after_loss(self, paused: Paused, delay_s: float) -> None:
        """Start the attempt that follows a lost one, from what was saved."""
        attempt, now_s = paused.execution.attempt, self._loop.now_s
        attempt.waits_anew = False
        attempt.begun_s = now_s
        read_s = self._loss_rules.read_s if attempt.kept_time_s > 0 else 0.0
        if self._stragglers is not None:
            self._stragglers.begin(attempt.job)
        self._begin(paused.execution, delay_s + read_s)

    def record_shape(
        self, attempt: Attempt, energy_j: float, time_s: float, most_w: float, reached: bool
    ) -> None:
        """Record an attempt of an elastic job that ends now, with its training time and energy.

        `most_w`: the most that its GPUs draw, W.
        """
        cost = cost_of(self._eta, energy_j, time_s, most_w)
        self._record(attempt, energy_j, time_s, cost, self._loop.now_s)
        self.recorder.add_detail(TrainingRow(attempt.number, flags=reached * REACHED))

    def set_aside(self, execution: Execution, number: int) -> None:
        """Let an elastic job without GPUs be ready to go on; `number`: of its next attempt."""
        before, now_s = execution.attempt, self._loop.now_s
        execution.attempt = attempt = Attempt(
            before.job,
            number,
            before.placement,
            before.where,
            before.gpu_type,
            now_s,
            before.idle_w,
        )
        attempt.waits_anew = True
        self._paused[attempt.job.number] = Paused(execution, now_s)

    def requeue(self, execution: Execution, number: int) -> None:
        """Take an elastic job without GPUs back into the queue, likewise."""
        job = execution.attempt.job
        del self._running[job.number]
        self.set_aside(execution, number)
        self._tell_select(self._select.on_pause, job)
        self._waiting[job.number] = job
        self._tell_select(self._select.on_resume, job)
        self._loop.pass_is_due = True

    def end_elastic(self, attempt: Attempt, reached: bool) -> None:
        """End an elastic job with its last attempt, whose GPUs become free."""
        self._land(attempt.job)
        self._end(attempt, 0.0, reached)

    def withdraw(self, job: Job) -> None:
        """End a job that waits; it never got GPUs, or gave back those that it had."""
        del self._waiting[job.number]
        if self._paused.pop(job.number, None) is not None and job.workload is not None:
            self._land(job)
        self.recorder.unable.append(job.number)
        self._room.withdraw(job)
        self._ask_for_pass()
        self._follow_up(job)

    def abandon(self, job: Job) -> None:
        """End an elastic job without GPUs that lost nodes again and again."""
        del self._running[job.number]
        self._give_up(job)

    def _preempt(self, job: Job) -> None:
        execution = self._running.pop(job.number, None)
        if execution is None or execution.attempt.job is not job:
            raise PolicyError(f"job {job.job_id} was preempted, but does not run", "select")
        self._note_preemption(execution.attempt, self._by_select)
        self._put_back(execution)
        self._waiting[job.number] = job

    def _evict(self, execution: Execution) -> None:
        """Preempt an attempt for the power cap."""
        attempt = execution.attempt
        number = attempt.job.number
        self._note_preemption(attempt, self._by_cap)
        if self._retuner is not None and self._retuner.is_paused(number):
            since_s = attempt.tune_paused_since_s
            self._suspend(execution)
            attempt.tune_paused_since_s = since_s
            return
        del self._running[number]
        self._put_back(execution)
        self._tell_select(self._select.on_pause, attempt.job)
        self._waiting[number] = job = self._pin(attempt)
        self._tell_select(self._select.on_resume, job)
        self._loop.pass_is_due = True

    def _pin(self, attempt: Attempt) -> Job:
        """Let the job of an attempt ask for the GPU type that it goes on on; returns the job."""
        if len(self.cluster.gpu_types) > 1 and attempt.job.gpu_type != attempt.gpu_type:
            attempt.job = attempt.job.replace(gpu_type=attempt.gpu_type)
        return attempt.job

    def _note_preemption(self, attempt: Attempt, maker: int) -> None:
        """Note who preempts an attempt in the journal."""
        now_s, number = self._loop.now_s, attempt.job.number
        waiting, free = len(self._waiting), self.cluster.free_gpus
        self._journal.add(now_s, maker, number, attempt.number, self._preempts, waiting, free)

    def _put_back(self, execution: Execution) -> None:
        """Take the GPUs from an attempt that is preempted, and runs no more."""
        attempt = execution.attempt
        if self._elastic is not None and self._elastic.has(attempt.job):
            self._elastic.preempt(execution)
            return
        execution.pause()
        self._vacate(attempt)
        attempt.preemptions += 1
        self._paused[attempt.job.number] = Paused(execution, self._loop.now_s)

    def _vacate(self, attempt: Attempt) -> None:
        """Take the GPUs from an attempt that was paused, whose nodes save its state."""
        now_s = self._loop.now_s
        attempt.count_idle(now_s)
        self._set_power(attempt, 0, now_s)
        if attempt.draws is not None:
            attempt.draws.append((now_s, 0.0))
        self._nodes.save_checkpoint(attempt.placement, now_s)
        self._release(attempt)

    def _release(self, attempt: Attempt) -> None:
        """Release the GPUs and power of an attempt."""
        job = attempt.job
        self.cluster.release(job, attempt.placement)
        if self._nodes.vary:
            self._nodes.vacate(attempt.placement, self._loop.now_s)
        self._budget.release(job)
        self._room.give_back()
        if self._shares_cap:
            self._share_cap_again()

    def _share_cap_again(self) -> None:
        """Share the power cap out anew at the end of this time."""
        self._is_cap_unshared = True
        self._loop.pass_is_due = True

    def close_node(self, node: int) -> None:
        """Start no further job on a node; those on it continue. Its free GPUs draw idle power.

        Raises:
            InputError: If the node is closed already.
        """
        if node in self.cluster.closed:
            raise InputError(f"node {node} is closed already: reopen it first")
        gpus = self.cluster.close(node)
        if self._nodes.vary:
            self._nodes.occupy(((node, gpus, NEW),), self._loop.now_s)
        self._room.shrink()

    def reopen_node(self, node: int) -> None:
        """Let jobs start on a closed node again.

        Raises:
            InputError: If the node is open.
        """
        if node not in self.cluster.closed:
            raise InputError(f"node {node} is open: only a closed one can be reopened")
        gpus = self.cluster.reopen(node)
        if self._nodes.vary:
            self._nodes.vacate(((node, gpus, NEW),), self._loop.now_s)
        self._room.grow()
        self._ask_for_pass()

    def holds(self, attempt: Attempt) -> None:
        """See `wattkeeper.sim.engine.backend.Listener`."""
        now_s = self._loop.now_s
        attempt.hold(now_s)
        if attempt.draws is not None:
            attempt.draws.append((now_s, attempt.idle_w))
        if attempt.power:
            self._set_power(attempt, 0, now_s)

    def trains(self, attempt: Attempt) -> None:
        """See `wattkeeper.sim.engine.backend.Listener`."""
        if self._retuner is not None:
            self._retuner.training(attempt)

    def draws(self, attempt: Attempt, power_w: float, since_s: float, settled: bool) -> None:
        """See `wattkeeper.sim.engine.backend.Listener`."""
        attempt.train(since_s)
        power = whole_units(power_w - attempt.idle_w)
        if attempt.begun_s == self._loop.now_s and not (attempt.power or attempt.preemptions):
            attempt.first_power = attempt.power = power
        elif power != attempt.power:
            self._set_power(attempt, power, since_s)
        if self._retuner is not None:
            if attempt.draws is not None:
                attempt.draws.append((since_s, power_w))
            if settled:
                self._retuner.training(attempt)
        if settled and self._capped:
            self._budget.settle(attempt.job, max(power_w, attempt.reserved_w))
            self._room.grow()
            if self._shares_cap:
                self._share_cap_again()
            self._ask_for_pass()

    def _set_power(self, attempt: Attempt, power: int, since_s: float) -> None:
        self.recorder.add_power_change(since_s, power - attempt.power)
        attempt.power = power

    def _ask_for_pass(self) -> None:
        """Have `Select` asked at the end of this time, if any job waits or is elastic."""
        if self._waiting or self._retries.stalled or self._elastic is not None:
            self._loop.pass_is_due = True
        elif self._wake is not None and not self._running:
            self._wake_at(NEVER)

    def measured(self, untuned: Untuned, report: tuple[Measurement, ...]) -> Decision:
        """See `wattkeeper.sim.engine.backend.Listener`."""
        number = untuned.start.job.number
        execution = self._running.get(number)
        if execution is not None:  # else it was preempted while its report was under way
            untuned = untuned.of_attempt(execution.attempt.number)  # another one after a loss
        decision = self._decisions.tune(untuned, report)
        if self._retuner is not None and isinstance(decision, Tuned):
            measured = untuned.measured + report
            self._retuner.settle(number, decision.knobs, measured)
        return decision

    def reached(self, attempt: Attempt, report: tuple[Measurement, ...]) -> Slice | None:
        """See `wattkeeper.sim.engine.backend.Listener`."""
        if self._retuner is None or not self._retuner.wants("reached"):
            return None
        return self._retuner.reached(attempt, report)

    def allows(self, attempt: Attempt, power_w: float) -> bool:
        """See `wattkeeper.sim.engine.backend.Listener`."""
        return not self._capped or self._budget.allows_change(attempt.job, power_w)

    def epoch_ended(self, attempt: Attempt) -> None:
        """See `wattkeeper.sim.engine.backend.Listener`."""
        if self._retuner is not None:
            self._retuner.epoch_ended(attempt)

    def ran(
        self, attempt: Attempt, time_s: float, energy_j: float, saved_s: float, limit_w: float
    ) -> None:
        """See `wattkeeper.sim.engine.backend.Listener`."""
        most_w = self.backend.most_power_w(attempt.job, attempt.gpu_type)
        if attempt.losses:
            time_s = max(0.0, time_s - attempt.kept_time_s)
            energy_j = max(0.0, energy_j - attempt.kept_energy_j)
        cost = cost_of(self._eta, energy_j, time_s, most_w)
        self._record(attempt, energy_j, time_s, cost, self._loop.now_s)
        reached = not attempt.is_stopped
        if not math.isnan(limit_w) or not reached or attempt.losses:
            flags = reached * REACHED
            row = TrainingRow(attempt.number, power_limit_w=limit_w, flags=flags)
            self.recorder.add_detail(row)
        self._end(attempt, saved_s, reached)

    def ended(self, attempt: Attempt, tuned: Tuned, totals: AttemptTotals) -> None:
        """See `wattkeeper.sim.engine.backend.Listener`."""
        job, reached = attempt.job, totals.reached
        stopped = attempt.is_stopped
        early = not (reached or stopped) and totals.epochs < tuned.start.options.max_epochs
        flags = reached * REACHED | early * EARLY | tuned.profiled * PROFILED
        cost = self._record_training(attempt, tuned, tuned.power_limit_w, totals, flags)
        self._decisions.observe(tuned.outcome(totals, cost))
        if not (reached or stopped) and attempt.tries < self.rules.max_attempts:
            self._retry(attempt)
            return
        self._land(job)
        self._end(attempt, totals.saved_s, reached, totals.accuracy)

    def lost(self, attempt: Attempt, decision: Decision, totals: AttemptTotals) -> None:
        """See `wattkeeper.sim.engine.backend.Listener`."""
        if attempt.number >= self.rules.max_attempts:
            tuned = decision if isinstance(decision, Tuned) else decision.at_present_limit()
            self.ended(attempt, tuned, totals._replace(reached=False))
            return
        limit_w, profiled = math.nan, False
        if isinstance(decision, Tuned):
            limit_w, profiled = decision.power_limit_w, decision.profiled
        tuning = None if self._retuner is None else self._retuner.find(attempt.job.number)
        self._record_training(attempt, decision, limit_w, totals, profiled * PROFILED)
        again = attempt.next_try(self._loop.now_s)
        inheritance = self._inheritances.repeat(attempt.job)
        repeated = self._decisions.repeat(decision)
        execution = self.backend.train(again, repeated, inheritance)
        self._follow_attempt(execution, repeated)
        if tuning is not None and self._retuner is not None and isinstance(repeated, Tuned):
            self._retuner.go_on_with(attempt.job.number, tuning)
        self._begin(execution, 0.0)

    def _land(self, job: Job) -> None:
        """Count a job of its group in flight no more."""
        left = self._in_flight[job.group_id] - 1
        if left:
            self._in_flight[job.group_id] = left
        else:
            del self._in_flight[job.group_id]

    def _retry(self, failed: Attempt) -> None:
        """Try a job again on the GPUs that it holds, once its power is allowed."""
        attempt = failed.next_try(self._loop.now_s)
        if self._capped:
            self._running[attempt.job.number] = self._retries.add(attempt)
            self._budget.release(attempt.job)
            self._room.grow()
            self._loop.pass_is_due = True
        else:
            self._decide(attempt, 0.0)

    def _end(
        self, attempt: Attempt, saved_s: float, reached: bool, accuracy: float | None = None
    ) -> None:
        """End a job with its last attempt."""
        job, now_s = attempt.job, self._loop.now_s
        self._inheritances.end(attempt, now_s, saved_s, reached, accuracy)
        if self._running.pop(job.number, None) is not None:
            self._release(attempt)
            self._tell_select(self._select.on_end, job)
        else:  # stopped while it was paused
            del self._suspended[job.number]
        if not self._follow_up(job):
            self._ask_for_pass()

    def _record_training(
        self, attempt: Attempt, decided: Decided, limit_w: float, totals: AttemptTotals, flags: int
    ) -> float:
        """Record an attempt of a job with a workload; returns its cost as profiled, J."""
        scale, time_s, energy_j = attempt.job.time_scale, totals.time_s, totals.energy_j
        most_w = decided.max_power_w
        cost = cost_of(self._eta, energy_j, time_s, most_w)
        if attempt.losses:
            own_s = max(0.0, time_s * scale - attempt.kept_time_s)  # but for rounding
            own_j = max(0.0, energy_j * scale - attempt.kept_energy_j)
            cost_own = cost_of(self._eta, own_j, own_s, most_w)
            self._record(attempt, own_j, own_s, cost_own, self._loop.now_s)
        else:
            now_s = self._loop.now_s
            self._record(attempt, energy_j * scale, time_s * scale, cost * scale, now_s)
        size, epochs, flags = decided.batch_size, totals.epochs, flags | REPLAYED
        self.recorder.add_detail(TrainingRow(attempt.number, size, limit_w, epochs, flags))
        if totals.slices.slices:
            self.recorder.add_detail(SliceRow.scaled(totals.slices, scale))
        if isinstance(decided, Tuned) and decided.clock_mhz and not decided.start.options.pipeline:
            self.recorder.add_detail(ClockRow(decided.clock_mhz))
        return cost

    def _record(
        self, attempt: Attempt, energy_j: float, time_s: float, cost: float, ended_s: float
    ) -> None:
        attempt.count_idle(ended_s)
        if attempt.power != attempt.first_power:
            self._set_power(attempt, attempt.first_power, ended_s)
        self.recorder.add_attempt(
            attempt.job.number,
            attempt.begun_s,
            ended_s,
            energy_j + attempt.overhead_j,
            time_s,
            cost,
            attempt.where,
            attempt.first_power,
        )
        if attempt.overhead_s or attempt.preemptions:
            self.recorder.add_detail(DelayRow(attempt.overhead_s, attempt.preemptions))
            if attempt.slow_s:
                self.recorder.add_detail(SlowRow(attempt.slow_s))
            idle = whole_units(attempt.idle_w)
            for from_s, to_s in attempt.holds:
                self.recorder.add_event(HoldRow(from_s, to_s, idle))
        if self._retuner is not None:
            if self._stragglers is not None:
                self._stragglers.end(attempt.job)
            retunes = self._retuner.end(attempt.job.number)
            self.recorder.add_detail(RetuneRow(retunes, attempt.tune_paused_s))
            for draw in DrawRow.spans(attempt.draws or [], ended_s):
                self.recorder.add_detail(draw)
        self._inheritances.record(attempt.job)


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
