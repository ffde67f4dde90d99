"""Jobs on GPUs without a world, on which policies of all decision points of jobs are rehearsed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from wattkeeper.policies.points.job import Job, Placement
from wattkeeper.policies.points.moments import Progress
from wattkeeper.policies.points.select import CapacityView, Selection
from wattkeeper.policies.points.views import Configuration, Measurement, Outcome, Running, Start
from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.scenarios.contract.answers import (
    check_configuration,
    check_knobs,
    check_placement,
    check_selection,
    is_plain,
    measure,
)
from wattkeeper.scenarios.contract.breach import require
from wattkeeper.scenarios.contract.scripted import GPU, ScriptedContext, job
from wattkeeper.scenarios.contract.steps import Ask, Step
from wattkeeper.sim.cluster.cluster import Cluster
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec

GROUPS: Final = 3
NODES: Final = 3
GPUS_PER_NODE: Final = 2
MAX_ATTEMPTS: Final = 3
MOST_SLICES: Final = 50
"""Of one attempt."""
MOST_SELECTIONS: Final = 1_000
"""At one time."""


class Flight:
    """An attempt that runs."""

    def __init__(self, start: Start, placement: Placement) -> None:
        self.start, self.placement = start, placement
        self.configuration = Configuration(32)
        self.limit_w = 0.0
        self.measured: tuple[Measurement, ...] = ()


class ScriptedCapacity(CapacityView):
    """A cluster without places: what `Select` is shown of it."""

    def __init__(self, running: Mapping[int, Flight]) -> None:
        self._running = running

    @property
    def gpus(self) -> int:
        """GPUs of all nodes."""
        return NODES * GPUS_PER_NODE

    @property
    def free_gpus(self) -> int:
        """GPUs that no flight holds."""
        return self.gpus - sum(flight.start.job.gpus for flight in self._running.values())

    @property
    def growths(self) -> int:
        """It grows only when jobs give GPUs back."""
        return 0

    def fits(self, job: Job, without: Collection[Job] = ()) -> bool:
        """Whether there are as many; who is preempted must run."""
        numbers = {other.number for other in without}
        known = numbers <= self._running.keys() and len(numbers) == len(without)
        require(known, "asks whether a job fits without others that do not run", "select")
        return job.gpus <= self.free_gpus + sum(other.gpus for other in without)


class ScriptedJobs:
    """Jobs of some groups, and their attempts.

    Args:
        config: Of the policy.
        ctx: Its context.
        ask: Calls its methods.
        recorded: Attributes of jobs that their log recorded; this value, and up to 10,000 times it.
        state: The policy's state as JSON.
    """

    def __init__(
        self,
        config: PolicyConfig,
        ctx: ScriptedContext,
        ask: Ask,
        recorded: Mapping[str, float],
        state: Callable[[], str],
    ) -> None:
        self._config, self._ctx, self._ask, self._state = config, ctx, ask, state
        self._recorded = recorded
        self._selects, self._places = config.point == "select", config.point == "place"
        self._cluster = Cluster(ClusterSpec.uniform(GPU, NODES, GPUS_PER_NODE, 20.0, 250.0))
        self._flights: list[Flight] = []
        self._waiting: dict[int, tuple[Job, int]] = {}
        self._submitted = [0] * GROUPS

    def step(self, step: Step) -> None:
        """A job is submitted, or an attempt ends."""
        action, number = step
        if action == "submit":
            self._submit(number % GROUPS)
        elif self._flights:
            self._end(number % len(self._flights))
        self._settle()

    def drain(self) -> None:
        """Let all jobs start and end if the policy keeps a queue."""
        while self._selects and (self._flights or self._waiting):
            self._ctx.now_s += 1.0
            self._end(0)
            self._settle()

    def _submit(self, group: int) -> None:
        self._submitted[group] += 1
        recurrence = self._submitted[group]
        name = f"group-{group}"
        new = job(f"{name}/{recurrence}", self._ctx.now_s, group=name, recurrence=recurrence)
        number = sum(self._submitted) - 1
        gpus = 1 + (group + recurrence) % 4
        known = {name: value * 10 ** (number % 5) for name, value in self._recorded.items()}
        new = new.replace(gpus=gpus, number=number, user=name, **known)
        self._ask("on_submit", new)
        if self._selects:
            self._waiting[number] = new, 1
            return
        placement = self._place(new)
        if placement or not self._places:
            self._start(new, 1, placement)

    def _settle(self) -> None:
        """What the world does at the end of a time: starts and preempts until nothing changes."""
        if self._selects:
            self._select()
        if self._selects or self._places:
            wake_s = self._ask("wake_s")
            later = is_plain(wake_s) and wake_s > self._ctx.now_s
            what = "answered {!r} at {:g} s; needed: a later time"
            require(later, what, "wake_s", wake_s, self._ctx.now_s)
        if self._selects:
            what = "starts none of the jobs, although nothing runs: they would wait for ever"
            require(bool(self._flights) or not self._waiting, what, "select")

    def _select(self) -> None:
        for _ in range(MOST_SELECTIONS):
            running = {flight.start.job.number: flight for flight in self._flights}
            capacity = ScriptedCapacity(running)
            chosen: Selection = self._ask("select", capacity)
            check_selection(chosen, self._waiting.keys(), running.keys())
            if not (chosen.start or chosen.preempt):
                return
            for victim in chosen.preempt:
                flight = running.pop(victim.number)
                self._flights.remove(flight)
                self._waiting[victim.number] = victim, flight.start.attempt
            for new in chosen.start:
                what = "starts {}, which does not fit"
                require(capacity.fits(new), what, "select", new.job_id)
                _, attempt = self._waiting.pop(new.number)
                self._start(new, attempt, ())
        what = "starts and preempts {:,} times at one time, and has not come to an end"
        require(False, what, "select", MOST_SELECTIONS)

    def _place(self, new: Job) -> Placement:
        if not self._places:
            return ()
        before = self._state()
        placement: Placement = self._ask("place", new, self._cluster)
        check_placement(new, self._cluster, placement)
        what = "changes the state, although it is also asked hypothetically"
        require(self._state() == before, what, "place")
        if placement:
            self._cluster.take(new, placement)
        return placement

    def _start(self, new: Job, attempt: int, placement: Placement) -> None:
        in_flight = sum(flight.start.job.group_id == new.group_id for flight in self._flights)
        flight = Flight(Start(new, attempt, self._ctx.options(), in_flight), placement)
        if self._config.point == "configure":
            flight.configuration = self._ask("configure", flight.start)
            check_configuration(flight.start.options, flight.configuration)
        limits = flight.start.options.limits(flight.configuration.batch_size)
        flight.limit_w = flight.configuration.power_limit_w or limits[-1]
        if self._config.point == "tune" or self._config.tunes:
            flight.limit_w = self._tune(flight, limits)
        self._flights.append(flight)

    def _tune(self, flight: Flight, limits: tuple[float, ...]) -> float:
        knobs = self._ask("tune", Running(flight.start, flight.configuration))
        check_knobs(limits, knobs, reported=False)
        curve = self._ctx.known.curves[flight.configuration.batch_size]
        while knobs.slice is not None:
            self._check_slice(flight)
            flight.measured += (measure(self._ctx.known, curve.batch_size, knobs.slice),)
            knobs = self._ask(
                "tune", Running(flight.start, flight.configuration, flight.measured, "profiled")
            )
            check_knobs(limits, knobs, reported=True)
        if knobs.profile_w:
            times = zip(curve.time_per_epoch_s, curve.average_power_w, strict=True)
            points = dict(zip(curve.limits_w, times, strict=True))
            report = tuple(Measurement(limit, *points[limit]) for limit in knobs.profile_w)
            knobs = self._ask("tune", Running(flight.start, flight.configuration, report))
            check_knobs(limits, knobs, reported=True)
        require(knobs.power_limit_w is not None, "never answers with a power limit", "tune")
        return float(knobs.power_limit_w or 0.0)

    def _check_slice(self, flight: Flight) -> None:
        require(self._config.slices, "asks for a slice, but its config has no `slices`", "tune")
        few = len(flight.measured) < MOST_SLICES
        require(few, "asks for more than {} slices of one attempt", "tune", MOST_SLICES)

    def _end(self, index: int) -> None:
        flight = self._flights.pop(index)
        outcome = self._ctx.outcome(flight.start, flight.configuration, flight.limit_w)
        if outcome.reached and "reached" in self._config.moments:
            self._measure_others(flight, outcome)
        self._ask("observe", outcome)
        if not outcome.reached and flight.start.attempt < MAX_ATTEMPTS:
            self._start(flight.start.job, flight.start.attempt + 1, flight.placement)
        elif self._selects:
            self._ask("on_end", flight.start.job)
        elif flight.placement:
            self._cluster.release(flight.start.job, flight.placement)

    def _measure_others(self, flight: Flight, outcome: Outcome) -> None:
        """Train slices of other batch sizes, as long as the policy asks for some."""
        done = Progress(float(outcome.epochs), outcome.time_s, outcome.time_s, outcome.energy_j)
        options = flight.start.options
        while True:
            knobs = self._ask(
                "tune",
                Running(flight.start, flight.configuration, flight.measured, "reached", done),
            )
            if knobs is None or knobs.slice is None:
                require(knobs is None, "answered {!r}; needed: a slice, or None", "tune", knobs)
                return
            size, limit_w = knobs.slice.batch_size, knobs.slice.power_limit_w
            known = size in options.batch_sizes and limit_w in options.limits(size)
            require(known, "asks for {!r}, which is no option", "tune", knobs.slice)
            self._check_slice(flight)
            flight.measured += (measure(self._ctx.known, size, knobs.slice),)
