"""The world: jobs wait, are placed, run and end; policies decide, a backend carries out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, NamedTuple, cast

import numpy as np

from wattkeeper.policies.errors import InputError, PolicyError
from wattkeeper.policies.profile import Objective, Profile
from wattkeeper.policies.protocols import (
    Configuration,
    Configure,
    Context,
    Job,
    Knobs,
    Measurement,
    Options,
    Outcome,
    Place,
    Select,
    Start,
    Tune,
)
from wattkeeper.policies.registry import Point, Policy, PolicyConfig
from wattkeeper.sim.backend import Attempt, Backend
from wattkeeper.sim.clock import ARRIVAL, PASS, Clock
from wattkeeper.sim.cluster import Cluster, Placement
from wattkeeper.sim.recorder import AttemptRow, Recorder, whole_units
from wattkeeper.sim.sources import Source
from wattkeeper.sim.streams import Streams


@dataclass(frozen=True, slots=True)
class PolicySet:
    """The configs of a run's policies, one a decision point."""

    configure: PolicyConfig
    select: PolicyConfig
    place: PolicyConfig
    tune: PolicyConfig


class Rules(NamedTuple):
    """What the world itself enforces.

    Attributes:
        objective: What a job costs.
        max_attempts: A job is given up after so many failed attempts.
        start_on_submit: A job that does not start when it is submitted is an error.
    """

    objective: Objective
    max_attempts: int = 20
    start_on_submit: bool = False


class _Context:
    """See `wattkeeper.policies.protocols.Context`; one for each decision point."""

    def __init__(self, world: World, point: Point, config: PolicyConfig) -> None:
        self._world = world
        self._point = point
        self._config = config
        self._streams: dict[str, np.random.Generator] = {}
        self.objective = world.rules.objective

    @property
    def now_s(self) -> float:
        return float(self._world.env.now)

    def rng(self, name: str) -> np.random.Generator:
        if name not in self._streams:
            self._streams[name] = self._world.streams.policy(self._point, name)
        return self._streams[name]

    def foresight(self, start: Start) -> Profile:
        if not self._config.needs_foresight:
            raise PolicyError(
                f"{self._point} policy {self._config.kind!r} declares no foresight", self._point
            )
        return self._world.backend.foresight(start)


class World:
    """One run: a cluster, a source of jobs, policies, and a backend on a clock.

    At equal times completions come first, then arrivals, then one scheduling pass. A job whose
    attempt fails is tried again at once on the GPUs that it holds.

    Attributes:
        env: The clock; ordinary SimPy processes may be added to it.
        recorder: What happened.
        rules: What is enforced.
    """

    def __init__(
        self,
        env: Clock,
        cluster: Cluster,
        source: Source,
        backend: Backend,
        policies: PolicySet,
        rules: Rules,
        streams: Streams,
    ) -> None:
        self.env = env
        self.cluster = cluster
        self.source = source
        self.backend = backend
        self.rules = rules
        self.streams = streams
        self.recorder = Recorder()
        self._names = {
            "configure": policies.configure.kind,
            "select": policies.select.kind,
            "place": policies.place.kind,
            "tune": policies.tune.kind,
        }
        self._observers: list[tuple[Callable[[Context, Outcome], None], Context]] = []
        self._configure: Configure
        self._select: Select
        self._place: Place
        self._tune: Tune
        self._configure, self._configure_ctx = self._engage("configure", policies.configure)
        self._select, self._select_ctx = self._engage("select", policies.select)
        self._place, self._place_ctx = self._engage("place", policies.place)
        self._tune, self._tune_ctx = self._engage("tune", policies.tune)
        self._waiting: list[tuple[tuple[float, ...], int, Job]] = []
        self._submitted = 0
        self._in_flight = Counter[str]()
        self._pass_is_due = False
        self._arrivals = source.arrivals()
        self._next_arrival = next(self._arrivals, None)

    def _engage(self, point: Point, config: PolicyConfig) -> tuple[Any, Context]:
        policy, ctx = config.build(), cast("Context", _Context(self, point, config))
        if type(policy).observe is not Policy.observe:
            self._observers.append((policy.observe, ctx))
        return policy, ctx

    def run(self) -> None:
        """Run until nothing is left to happen.

        Raises:
            InputError: If a job cannot run on the cluster.
            PolicyError: If a policy chose what is not allowed, or left a job waiting for ever.
        """
        self._await_arrival()
        self.env.run()
        if self._waiting:
            job = self._waiting[0][2]
            raise PolicyError(
                f"job {job.job_id} was never placed, though {self.cluster.free_gpus} of "
                f"{self.cluster.spec.gpus} GPUs are free and it asks for {job.gpus}",
                "place",
            )

    def _await_arrival(self) -> None:
        if self._next_arrival is not None:
            self.env.call_at(self._next_arrival.submit_time_s, ARRIVAL, self._arrive)

    def _arrive(self) -> None:
        while self._next_arrival is not None and self._next_arrival.submit_time_s <= self.env.now:
            self._submit(self._next_arrival)
            self._next_arrival = next(self._arrivals, None)
        self._await_arrival()

    def _submit(self, job: Job) -> None:
        if job.gpus > self.cluster.spec.gpus:
            raise InputError(
                f"job {job.job_id} asks for {job.gpus} GPUs, the cluster has "
                f"{self.cluster.spec.gpus}: give it more (cluster.gpus)"
            )
        rank = self._select.rank(self._select_ctx, job)
        heappush(self._waiting, (rank, self._submitted, job))
        self._submitted += 1
        self._want_pass()

    def _want_pass(self) -> None:
        if not self._pass_is_due:
            self._pass_is_due = True
            self.env.call_at(self.env.now, PASS, self._pass)

    def _pass(self) -> None:
        """Start jobs from the head of the queue while they fit."""
        self._pass_is_due = False
        while self._waiting:
            rank, _, job = self._waiting[0]
            if job.gpus > self.cluster.free_gpus:
                break
            placement = self._place.place(self._place_ctx, job, self.cluster.view)
            if not placement:
                break
            waiting, free = len(self._waiting), self.cluster.free_gpus
            heappop(self._waiting)
            self.cluster.take(job, placement)
            self._note("select", job.job_id, 1, (rank, waiting, free), "start")
            self._note("place", job.job_id, 1, (job.gpus, free), _show_placement(placement))
            self._in_flight[job.group_id] += 1
            self._try(job, 1, placement)
        if self._waiting and self.rules.start_on_submit:
            job = self._waiting[0][2]
            raise InputError(
                f"occupancy: recorded starts every job when it is submitted, but job {job.job_id} "
                f"finds {self.cluster.free_gpus} of {self.cluster.spec.gpus} GPUs free at "
                f"{self.env.now:g} s and asks for {job.gpus}: give the cluster more (cluster.gpus)"
            )

    def _try(self, job: Job, number: int, placement: Placement) -> None:
        """Begin an attempt on GPUs that the job holds."""
        options = self.backend.options(job, self.cluster.spec.gpu_type)
        in_flight = self._in_flight[job.group_id] - 1
        start = Start(job, number, options, in_flight)
        configuration = self._configure.configure(self._configure_ctx, start)
        batch_size, limit_w, bound = configuration
        self._note(
            "configure",
            job.job_id,
            number,
            (options.key, in_flight),
            f"batch_size={batch_size} power_limit_w={limit_w} cost_bound={bound!r}",
        )
        _check_configuration(start, configuration)
        attempt = Attempt(start, placement, configuration, self.env.now)
        knobs = Knobs(limit_w) if limit_w is not None else self._turn(attempt, ())
        self.backend.begin(attempt, knobs)

    def _turn(self, attempt: Attempt, report: tuple[Measurement, ...]) -> Knobs:
        """Ask `Tune`, and take the power limit that it chose."""
        knobs = self._tune.tune(self._tune_ctx, attempt.running(report))
        start, batch_size = attempt.start, attempt.configuration.batch_size
        limit_w, profile_w = knobs
        self._note(
            "tune",
            start.job.job_id,
            start.attempt,
            (start.options.key, batch_size, report),
            f"profile_w={list(profile_w)}" if profile_w else f"power_limit_w={limit_w}",
        )
        _check_knobs(start, batch_size, knobs, bool(report))
        if limit_w is not None:
            attempt.power_limit_w = limit_w
        return knobs

    def draws(self, attempt: Attempt, power_w: float) -> None:
        """See `wattkeeper.sim.backend.Listener`."""
        power = whole_units(power_w)
        if power != attempt.power:
            self.recorder.power.append((self.env.now, power - attempt.power))
            attempt.power = power

    def measured(self, attempt: Attempt, report: tuple[Measurement, ...]) -> Knobs:
        """See `wattkeeper.sim.backend.Listener`."""
        attempt.profiled = True
        return self._turn(attempt, report)

    def ended(
        self, attempt: Attempt, epochs: int, time_s: float, energy_j: float, reached: bool
    ) -> None:
        """See `wattkeeper.sim.backend.Listener`."""
        start = attempt.start
        job, options = start.job, start.options
        assert attempt.power_limit_w is not None
        self.draws(attempt, 0.0)
        cost = self.rules.objective.cost(energy_j, time_s, options.max_power_w * options.gpus)
        outcome = Outcome(
            start,
            attempt.configuration.batch_size,
            attempt.power_limit_w,
            epochs,
            time_s,
            energy_j,
            cost,
            reached,
        )
        self._record(attempt, outcome)
        for observe, ctx in self._observers:
            observe(ctx, outcome)
        if not reached and start.attempt < self.rules.max_attempts:
            self._try(job, start.attempt + 1, attempt.placement)
            return
        self._in_flight[job.group_id] -= 1
        if not self._in_flight[job.group_id]:
            del self._in_flight[job.group_id]
        self.cluster.release(job, attempt.placement)
        follower = self.source.finished(job, self.env.now)
        if follower is not None:
            self._submit(follower)
        elif self._waiting:
            self._want_pass()

    def _record(self, attempt: Attempt, outcome: Outcome) -> None:
        start = attempt.start
        job, options = start.job, start.options
        scale = job.time_scale
        energy_j, time_s = outcome.energy_j * scale, outcome.time_s * scale
        self.recorder.attempts.append(
            AttemptRow(
                job.job_id,
                job.group_id,
                job.recurrence,
                start.attempt,
                job.workload,
                options.gpu_type,
                job.gpus,
                [node for node, _ in attempt.placement],
                scale,
                job.submit_time_s,
                attempt.begun_s,
                self.env.now,
                outcome.batch_size,
                outcome.power_limit_w,
                outcome.epochs,
                energy_j,
                time_s,
                outcome.cost * scale,
                outcome.reached,
                not outcome.reached and outcome.epochs < options.max_epochs,
                attempt.profiled,
                None,
                0,
            )
        )

    def _note(
        self, point: Point, job_id: str, attempt: int, saw: tuple[object, ...], chose: str
    ) -> None:
        self.recorder.decided(self.env.now, point, self._names[point], job_id, attempt, saw, chose)


def _show_placement(placement: Placement) -> str:
    return " ".join(f"{node}:{gpus}" for node, gpus in placement)


def _check_configuration(start: Start, configuration: Configuration) -> None:
    options = start.options
    options.check_batch_size(configuration.batch_size, start.job.job_id)
    if not configuration.cost_bound >= 0:
        raise PolicyError(
            f"cost bound {configuration.cost_bound} J was chosen for {start.job.job_id}; it must "
            "be at least 0",
            "configure",
        )
    if configuration.power_limit_w is not None:
        _check_limit(options, configuration.batch_size, configuration.power_limit_w, "configure")


def _check_knobs(start: Start, batch_size: int, knobs: Knobs, reported: bool) -> None:
    if (knobs.power_limit_w is None) == (not knobs.profile_w) or (reported and knobs.profile_w):
        raise PolicyError(
            f"{start.job.job_id}: Tune answers either a power limit or, before profiling, a "
            f"profile; found {knobs}",
            "tune",
        )
    for limit_w in knobs.profile_w or (knobs.power_limit_w,):
        _check_limit(start.options, batch_size, cast("float", limit_w), "tune")


def _check_limit(options: Options, batch_size: int, limit_w: float, point: Point) -> None:
    limits = options.limits(batch_size)
    if limit_w not in limits:
        raise PolicyError(
            f"power limit {limit_w:g} W was chosen for {options.key} at batch size {batch_size}, "
            f"which has no profile of it; there is {', '.join(f'{x:g}' for x in limits)} W",
            point,
        )
