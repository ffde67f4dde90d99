"""The world: jobs wait, are placed, run and end; policies decide, a backend carries out."""

from __future__ import annotations

import gc
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from wattkeeper.policies.errors import InputError, PolicyError
from wattkeeper.policies.profile import cost as cost_of
from wattkeeper.policies.protocols import (
    Configuration,
    EmptyZoo,
    Job,
    Knobs,
    Measurement,
    Options,
    Outcome,
    Placement,
    Select,
    Start,
)
from wattkeeper.policies.registry import Point, PolicyConfig, build_policy
from wattkeeper.sim.cluster.cluster import Cluster
from wattkeeper.sim.engine.agenda import Callback, Due
from wattkeeper.sim.engine.attempt import Decision, Tuned, Untuned
from wattkeeper.sim.engine.backend import Attempt, Backend, Listener, ZooBackend
from wattkeeper.sim.engine.clock import Clock
from wattkeeper.sim.engine.decisions import DecisionMaker, Engaged, PolicyContext
from wattkeeper.sim.engine.feasibility import Feasibility
from wattkeeper.sim.engine.node_states import NodeStates, PowerBudget
from wattkeeper.sim.engine.recorder import (
    EARLY,
    PROFILED,
    REACHED,
    REPLAYED,
    Recorder,
    whole_units,
)
from wattkeeper.sim.engine.rng import RandomStreams
from wattkeeper.sim.engine.run_config import PolicySet, RunRules
from wattkeeper.sim.engine.sources import Source
from wattkeeper.sim.engine.validation import (
    check_wake,
)


class World(Listener):
    """One run: a cluster, a source of jobs, policies, and a backend on a clock.

    At equal times completions come first, then arrivals, then a scheduling pass. A job whose
    attempt fails is tried again at once on the GPUs that it holds; under a power cap it may have to
    wait on them, before jobs that wait in the queue. A preempted job gives its GPUs up at once and
    keeps what it did; its node is busy saving that for a while, so that whoever starts there waits
    (`ClusterSpec.checkpoint_s`), and it goes on later on GPUs of the same type.

    Attributes:
        clock: The clock; ordinary SimPy processes may be added to its `simpy`.
        recorder: What happened.
        rules: What is enforced.
    """

    def __init__(
        self,
        clock: Clock,
        cluster: Cluster,
        source: Source,
        backend: Backend,
        policies: PolicySet,
        rules: RunRules,
        streams: RandomStreams,
        zoo: ZooBackend | None = None,
    ) -> None:
        self.clock = clock
        self.cluster = cluster
        self.source = source
        self.backend = backend
        self.rules = rules
        self._eta = rules.objective.eta
        self.streams = streams
        self.zoo = zoo
        self.recorder = Recorder()
        self._journal = self.recorder.journal
        self._by_select = 0  # its place among the makers of the journal
        select, place = (
            self._engage("select", policies.select),
            self._engage("place", policies.place),
        )
        configure = self._engage("configure", policies.configure)
        tune = self._engage("tune", policies.tune)
        self._asks_for_parents = zoo is not None and policies.configure.sets_parent
        self._makers = DecisionMaker(
            configure, tune, self._journal, (select, place), self._asks_for_parents
        )
        self._select: Select = select.policy
        self._select_ctx = select.ctx
        if zoo is not None:
            self._journal.add_maker("retain", zoo.policy)
        self._waiting: dict[int, Job] = {}
        self._running: dict[int, Attempt] = {}
        self._paused: dict[int, Attempt] = {}
        self._stalled: dict[int, Attempt] = {}
        self._idle_w = {name: power.idle_w for name, power in cluster.spec.power.items()}
        self._in_flight = Counter[str]()
        self._wake: tuple[float, Due] | None = None
        self._preempts = self._journal.choice("preempt")
        self._nodes = NodeStates(cluster, self.recorder)
        self._budget = PowerBudget(cluster.spec)
        self._capped = cluster.spec.power_cap_w is not None
        self.room = Feasibility(cluster, self._budget, backend, place.policy, place.ctx,
                         self._running, self._paused)  # fmt: skip
        self._arrivals = source.arrivals()
        self._batch: list[Job] = []
        self._arrived = 0
        clock.driven = self

    def _engage(self, point: Point, config: PolicyConfig) -> Engaged:
        self._journal.add_maker(point, config.kind)
        ctx = PolicyContext(
            point, config, self.clock, self.rules.objective,
            EmptyZoo() if self.zoo is None else self.zoo,
            self.streams.policy, self.backend.foresight,
        )  # fmt: skip
        return Engaged(build_policy(config), ctx)

    def run(self) -> None:
        """Run until nothing is left to happen.

        Raises:
            InputError: If a job cannot run on the cluster.
            PolicyError: If a policy chose what is not allowed, or left a job waiting for ever.
        """
        self.clock.next_arrival_s = self._next_arrival_s()
        with _uncollected():
            self.clock.play()
        left = [*self._waiting.values(), *(attempt.job for attempt in self._stalled.values())]
        if left:
            job = left[0]
            raise PolicyError(
                f"job {job.job_id} was never placed, though {self.cluster.free_gpus} of "
                f"{self.cluster.spec.gpus} GPUs are free and it asks for {job.gpus}"
                + (f" under a power cap of {self._budget.cap_w:g} W" if self._budget.cap_w else ""),
                "place",
            )
        self._nodes.close()

    def arrive(self) -> None:
        """See `wattkeeper.sim.engine.clock.Driven`."""
        now_s = self.clock.now_s
        next_s = self.clock.next_arrival_s
        while next_s <= now_s:
            self._arrived += 1
            self._submit(self._batch[self._arrived - 1])
            next_s = self._next_arrival_s()
        self.clock.next_arrival_s = next_s

    def _next_arrival_s(self) -> float:
        while self._arrived == len(self._batch):
            batch = next(self._arrivals, None)
            if batch is None:
                return math.inf
            self._batch, self._arrived = batch, 0
        return self._batch[self._arrived].submit_time_s

    def _submit(self, job: Job) -> None:
        if job.gpus > self.room.gpus:
            raise InputError(
                f"job {job.job_id} asks for {job.gpus} GPUs, the cluster has {self.room.gpus}: "
                "give it more (cluster.gpus)"
            )
        self._waiting[job.number] = job
        self._makers.submitted(job)
        self.clock.pass_is_due = True

    def schedule(self) -> None:
        """Preempt and start what `Select` chooses, until it chooses nothing."""
        if self._stalled:
            self._go_on()
        select, ctx, room = self._select, self._select_ctx, self.room
        selection = select.select(ctx, room)
        while selection.start or selection.preempt:
            for job in selection.preempt:
                self._preempt(job)
            for job in selection.start:
                placement = room.where(job)
                if placement:
                    self._start(job, placement)
                else:
                    select.on_refuse(ctx, job)
            if not self._waiting:
                break
            selection = select.select(ctx, room)
        if self._stalled:
            self._go_on()
        wake_s = select.wake_s(ctx)
        if wake_s != math.inf or self._wake is not None:
            self._wake_at(wake_s)
        if self._waiting and self.rules.start_on_submit:
            job = next(iter(self._waiting.values()))
            raise InputError(
                f"occupancy: recorded starts every job when it is submitted, but job {job.job_id} "
                f"finds {self.cluster.free_gpus} of {self.cluster.spec.gpus} GPUs free at "
                f"{self.clock.now_s:g} s and asks for {job.gpus}: give the cluster more "
                "(cluster.gpus)"
            )

    def _wake_at(self, time_s: float) -> None:
        check_wake(time_s, self.clock.now_s)
        if self._wake is not None:
            if self._wake[0] == time_s:
                return
            self._wake[1].cancel()
            self._wake = None
        if time_s < math.inf:
            self._wake = time_s, Callback(self._woken)
            self.clock.enter(*self._wake)

    def _woken(self, _: object) -> None:
        self._wake = None
        self.clock.pass_is_due = True

    def _start(self, job: Job, placement: Placement) -> None:
        """Start a waiting job, or go on with a preempted one."""
        if job.number not in self._waiting:
            raise PolicyError(f"job {job.job_id} was started, but does not wait", "select")
        del self._waiting[job.number]
        now_s, cluster = self.clock.now_s, self.cluster
        free, waiting = cluster.free_gpus, len(self._waiting) + 1
        delay_s = self._nodes.took(placement, now_s) if self._nodes.matter else 0.0
        placement = cluster.take(job, placement)
        self.room.shrank()
        where = self._journal.placed(placement)
        gpu_type = cluster.gpu_type(placement)
        attempt = self._paused.pop(job.number, None) if self._paused else None
        if attempt is not None and gpu_type != attempt.gpu_type:
            raise PolicyError(
                f"job {job.job_id} goes on on {attempt.gpu_type}, placed on {placement}", "place"
            )
        number = 1 if attempt is None else attempt.number
        self._journal.add(now_s, self._by_select, job.number, number, where, waiting, free)
        if attempt is None:
            if job.workload is not None:
                self._in_flight[job.group_id] += 1
            attempt = Attempt(job, 1, placement, where, gpu_type, now_s)
            self._running[job.number] = attempt
            self._reserve(attempt)
            self._decide(attempt, delay_s)
            return
        assert attempt.preempted_s is not None
        self.recorder.paused(job.number, attempt.preempted_s, now_s)
        attempt.placement, attempt.where, attempt.preempted_s = placement, where, None
        self._running[job.number] = attempt
        self._reserve(attempt)
        if attempt.trained:
            delay_s += cluster.spec.restore_s
        if attempt.plan is None:
            self._decide(attempt, delay_s)
        else:
            self.backend.resume(attempt, delay_s)

    def _preempt(self, job: Job) -> None:
        attempt = self._running.pop(job.number, None)
        if attempt is None:
            raise PolicyError(f"job {job.job_id} was preempted, but does not run", "select")
        now_s, free = self.clock.now_s, self.cluster.free_gpus
        waiting = len(self._waiting)
        self._journal.add(
            now_s, self._by_select, job.number, attempt.number, self._preempts, waiting, free
        )
        if self._stalled.pop(job.number, None) is None:
            self.backend.pause(attempt)
        else:
            self._stalled_until(attempt, now_s)
        self._draw(attempt, 0)
        self._nodes.checkpoints(attempt.placement, now_s)
        self._rests(attempt)
        attempt.preempted_s = now_s
        attempt.preemptions += 1
        self._paused[job.number] = attempt
        self._waiting[job.number] = job

    def _rests(self, attempt: Attempt) -> None:
        """Take an attempt's GPUs back."""
        job = attempt.job
        self.cluster.release(job, attempt.placement)
        if self._nodes.matter:
            self._nodes.left(attempt.placement, self.clock.now_s)
        if self._capped:
            self._budget.free(job)
        self.room.grew()

    def _reserve(self, attempt: Attempt) -> None:
        if self._capped:
            job, gpu_type = attempt.job, attempt.gpu_type
            self._budget.reserve(job, gpu_type, self.backend.most_power_w(job, gpu_type))
            self.room.shrank()

    def _retry(self, failed: Attempt) -> None:
        """Try a job again on the GPUs that it holds, once its power is allowed."""
        job = failed.job
        attempt = Attempt(job, failed.number + 1, failed.placement, failed.where, failed.gpu_type,
                          self.clock.now_s)  # fmt: skip
        self._running[job.number] = attempt
        if self._capped:
            self._budget.free(job)
            self._stalled[job.number] = attempt
            self.room.grew()
            self.clock.pass_is_due = True
        else:
            self._decide(attempt, 0.0)

    def _go_on(self) -> None:
        """Let retries go on, first come first, whose power is allowed now."""
        for number, attempt in list(self._stalled.items()):
            job, gpu_type = attempt.job, attempt.gpu_type
            if self._budget.allows(job, gpu_type, self.backend.most_power_w(job, gpu_type)):
                del self._stalled[number]
                self._stalled_until(attempt, self.clock.now_s)
                self._reserve(attempt)
                self._decide(attempt, 0.0)

    def _stalled_until(self, attempt: Attempt, now_s: float) -> None:
        attempt.overhead_s += now_s - attempt.begun_s
        attempt.overhead_j += (now_s - attempt.begun_s) * self._idle_power_w(attempt)

    def _decide(self, attempt: Attempt, delay_s: float) -> None:
        """Configure an attempt on GPUs that its job holds, and begin it after a delay."""
        job, number = attempt.job, attempt.number
        if job.workload is None:
            if self._asks_for_parents and job.model is not None:
                self._ask_for_parent(attempt)
            self.backend.begin(attempt, None, delay_s)
            return
        options = self.backend.options(job, attempt.gpu_type)
        in_flight = self._in_flight[job.group_id] - 1
        decision = self._makers.decide(Start(job, number, options, in_flight))
        self._inherit(attempt, decision.configuration)
        self._begin(attempt, decision, delay_s)

    def _begin(self, attempt: Attempt, decision: Decision, delay_s: float) -> None:
        attempt.decision = decision
        attempt.start, attempt.configuration = decision.start, decision.configuration
        if isinstance(decision, Tuned):
            attempt.power_limit_w, attempt.profiled = decision.power_limit_w, decision.profiled
            knobs = Knobs(decision.power_limit_w)
        else:
            knobs = Knobs(None, decision.profile_w)
        self.backend.begin(attempt, knobs, delay_s)

    def _ask_for_parent(self, attempt: Attempt) -> None:
        """Configure an attempt of a job without a workload: there is only its parent to choose."""
        job, gpu_type = attempt.job, attempt.gpu_type
        most_w = self.backend.most_power_w(job, gpu_type) / job.gpus_held
        options = Options(f"{gpu_type}x{job.gpus}", gpu_type, job.gpus, (), (), 0, most_w, 0)
        start = Start(job, attempt.number, options, 0)
        self._inherit(attempt, self._makers.choose_parent(start))

    def _inherit(self, attempt: Attempt, configuration: Configuration) -> None:
        """Let an attempt start from the weights of the model that was chosen."""
        parent, query_s = configuration.parent, configuration.query_s
        attempt.query_s = query_s
        if parent is None:
            return
        if self.zoo is None:
            raise PolicyError(
                f"{attempt.job.job_id} shall start from {parent}, but there is no zoo", "configure"
            )
        attempt.parent = parent
        attempt.work = self.zoo.work(attempt.job, parent)

    def _store(self, attempt: Attempt) -> None:
        """Let `Retain` decide on the model that was trained."""
        assert self.zoo is not None
        decision = self.zoo.finished(attempt.job, self.clock.now_s, attempt.parent, attempt.saved_s)
        kept = "admit" if decision.admit else f"refuse: {decision.reason}"
        gone = f" evict={','.join(decision.evict)}" if decision.evict else ""
        saw = (self.zoo.size_bytes, len(self.zoo.models()))
        self._journal.note(
            self.clock.now_s, "retain", attempt.job, attempt.number, saw, kept + gone
        )

    def draws(self, attempt: Attempt, power_w: float, since_s: float | None = None) -> None:
        """See `wattkeeper.sim.engine.backend.Listener`."""
        job = attempt.job
        power = whole_units(power_w - self._idle_power_w(attempt))
        if attempt.begun_s == self.clock.now_s and not (attempt.power or attempt.preemptions):
            attempt.first_power = attempt.power = power
        elif power != attempt.power:
            self._draw(attempt, power, since_s)
        if attempt.power_limit_w is not None and not attempt.idle:
            self._settle(job, power_w)

    def _idle_power_w(self, attempt: Attempt) -> float:
        """What its GPUs would draw if nobody held them, W."""
        return self._idle_w[attempt.gpu_type] * attempt.job.gpus_held

    def _draw(self, attempt: Attempt, power: int, since_s: float | None = None) -> None:
        at_s = self.clock.now_s if since_s is None else since_s
        self.recorder.drew(at_s, power - attempt.power)
        attempt.power = power

    def _settle(self, job: Job, power_w: float) -> None:
        """What a job draws is known: under a power cap others may fit now."""
        if self._capped:
            self._budget.settle(job, power_w)
            self.room.grew()
            if self._waiting or self._stalled:
                self.clock.pass_is_due = True

    def measured(self, attempt: Attempt, report: tuple[Measurement, ...]) -> Knobs:
        """See `wattkeeper.sim.engine.backend.Listener`."""
        decision = attempt.decision
        assert isinstance(decision, Untuned)
        tuned = attempt.decision = self._makers.tune(decision, report)
        attempt.profiled, attempt.power_limit_w = True, tuned.power_limit_w
        return Knobs(tuned.power_limit_w)

    def ended(
        self, attempt: Attempt, epochs: int | None, time_s: float, energy_j: float, reached: bool
    ) -> None:
        """See `wattkeeper.sim.engine.backend.Listener`."""
        job, start = attempt.job, attempt.start
        attempt.plan = None
        if start is None:
            most_w = self.backend.most_power_w(job, attempt.gpu_type)
            cost = cost_of(self._eta, energy_j, time_s, most_w)
            self._record(attempt, energy_j, time_s, cost)
        else:
            options = start.options
            cost = cost_of(self._eta, energy_j, time_s, options.max_power_w * options.gpus)
            assert attempt.configuration is not None
            assert attempt.power_limit_w is not None
            assert epochs is not None
            batch_size = attempt.configuration.batch_size
            early = not reached and epochs < options.max_epochs
            limit_w = attempt.power_limit_w
            flags = reached * REACHED | early * EARLY
            self._record_training(attempt, epochs, time_s, energy_j, cost, flags)
            outcome = Outcome(start, batch_size, limit_w, epochs, time_s, energy_j, cost, reached)
            self._makers.observe(outcome)
            if not reached and start.attempt < self.rules.max_attempts:
                self._retry(attempt)
                return
            self._in_flight[job.group_id] -= 1
            if not self._in_flight[job.group_id]:
                del self._in_flight[job.group_id]
        if self.zoo is not None and job.model is not None and reached:
            self._store(attempt)
        del self._running[job.number]
        self._rests(attempt)
        self._select.on_end(self._select_ctx, job)
        follower = self.source.finished(job, self.clock.now_s)
        if follower is not None:
            self._submit(follower)
        elif self._waiting or self._stalled:
            self.clock.pass_is_due = True

    def lost(self, attempt: Attempt, epochs: int, time_s: float, energy_j: float) -> None:
        """See `wattkeeper.sim.engine.backend.Listener`."""
        job, start, configuration = attempt.job, attempt.start, attempt.configuration
        assert start is not None
        assert configuration is not None
        if attempt.number >= self.rules.max_attempts:
            if attempt.power_limit_w is None:
                attempt.power_limit_w = start.options.limits(configuration.batch_size)[-1]
            self.ended(attempt, epochs, time_s, energy_j, False)
            return
        options = start.options
        cost = cost_of(self._eta, energy_j, time_s, options.max_power_w * options.gpus)
        self._record_training(attempt, epochs, time_s, energy_j, cost, 0)
        again = Attempt(job, attempt.number + 1, attempt.placement, attempt.where,
                        attempt.gpu_type, self.clock.now_s)  # fmt: skip
        again.parent, again.work = attempt.parent, attempt.work
        self._running[job.number] = again
        assert attempt.decision is not None
        self._begin(again, self._makers.repeat(attempt.decision), 0.0)

    def _record_training(
        self,
        attempt: Attempt,
        epochs: int,
        time_s: float,
        energy_j: float,
        cost: float,
        flags: int,
    ) -> None:
        assert attempt.configuration is not None
        scale, limit_w = attempt.job.time_scale, attempt.power_limit_w
        self._record(attempt, energy_j * scale, time_s * scale, cost * scale)
        self.recorder.trained(
            attempt.number,
            attempt.configuration.batch_size,
            math.nan if limit_w is None else limit_w,
            epochs,
            flags | REPLAYED | attempt.profiled * PROFILED,
        )

    def _record(self, attempt: Attempt, energy_j: float, time_s: float, cost: float) -> None:
        overhead_s, preemptions = attempt.overhead_s, attempt.preemptions
        if attempt.power != attempt.first_power:
            self._draw(attempt, attempt.first_power)
        self.recorder.ended(
            attempt.job.number,
            attempt.begun_s,
            self.clock.now_s,
            energy_j + attempt.overhead_j,
            time_s,
            cost,
            attempt.where,
            attempt.first_power,
        )
        if overhead_s or preemptions:
            self.recorder.delayed(overhead_s, preemptions)
        if attempt.parent is not None:
            self.recorder.inherited(attempt.parent)


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
