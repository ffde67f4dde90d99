"""The backend of the simulator: durations, power and epochs come from recorded profiles."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Literal, NamedTuple

from wattkeeper.policies.errors import InputError
from wattkeeper.policies.profile import Curve, Objective, Profile
from wattkeeper.policies.protocols import Job, Knobs, Measurement, Options, Start
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec
from wattkeeper.sim.engine.agenda import Due
from wattkeeper.sim.engine.backend import Attempt, Backend, Done
from wattkeeper.sim.engine.clock import Clock
from wattkeeper.sim.engine.latencies import AllLatencies, Latencies
from wattkeeper.sim.engine.rng import RandomStreams

Occupancy = Literal["simulated", "recorded"]
Profiling = Literal["measured", "foreknown"]


Profiles = Mapping[tuple[str, int, str], Profile]
"""By workload, number of GPUs and GPU type."""


class _Phase(Due):
    """A part of an attempt at constant rate and power.

    Attributes:
        replay: Whose it is.
        left_s: Seconds of it that are left, as of its start.
        power_w: What it draws.
        attempt: Whose part it is; set with `since_s`.
        since_s: When it was started.
    """

    attempt: Attempt
    since_s: float

    def __init__(self, replay: Replay, left_s: float, power_w: float) -> None:
        self.replay = replay
        self.left_s = left_s
        self.power_w = power_w


class _Recorded(_Phase):
    """The whole attempt of a job without a workload."""

    def happen(self) -> None:
        """The attempt ends."""
        self.replay.ended_as_recorded(self.attempt, self.power_w)


class _Trained(_Phase):
    """Training from a profile.

    Attributes:
        then: What follows.
    """

    def __init__(self, replay: Replay, left_s: float, power_w: float, then: Done) -> None:
        super().__init__(replay, left_s, power_w)
        self.then = then

    def happen(self) -> None:
        """Go on."""
        self.then(self.attempt)


class _Waiting(_Phase):
    """GPUs are held without training.

    Attributes:
        then: What follows.
        again: What follows instead if it was preempted meanwhile.
    """

    def __init__(
        self, replay: Replay, left_s: float, power_w: float, then: Done, again: Done
    ) -> None:
        super().__init__(replay, left_s, power_w)
        self.then = then
        self.again = again

    def happen(self) -> None:
        """Count it, and go on."""
        self.replay.waited(self.attempt, self)
        self.then(self.attempt)


class _Plan(NamedTuple):
    """How an attempt goes on once its power limit is known."""

    epochs: int
    time_s: float
    energy_j: float
    reached: bool


class Replay(Backend):
    """Replays recorded runs.

    An attempt runs at a constant rate and power; one that is profiled first spends an epoch at the
    mean rate and power of all limits (Zeus, NSDI '23, section 4.2). It ends at its target, after
    the workload's largest number of epochs, or before the epoch that would cross its cost bound.
    A job without a workload runs for its recorded duration at the modelled power of its GPUs.
    Training that starts from a parent's weights takes a share of that (`Attempt.work`), of whole
    epochs where there is a profile.

    Args:
        clock: The clock.
        profiles: What is known of each workload.
        streams: Picks the recorded run that an attempt replays.
        objective: What an epoch costs.
        cluster: What its GPUs draw where nobody measured it.
        occupancy: `simulated`: a decision changes how long a job holds its GPUs. `recorded`: every
            attempt holds them for the job's recorded duration, as the published Zeus simulator of
            overlapping jobs has it; energy is spread evenly over it.
        profiling: `measured`: what profiling found is known after the epoch that it takes.
            `foreknown`: it is known before, and the published Zeus simulator even stops an attempt
            before its first epoch, at no cost, if the bound leaves no room; it does not count the
            cost of profiling against the bound. Recorded occupancy implies it.
        latencies: What trainings with a profile take besides.
    """

    def __init__(
        self,
        clock: Clock,
        profiles: Profiles,
        streams: RandomStreams,
        objective: Objective,
        cluster: ClusterSpec,
        occupancy: Occupancy = "simulated",
        profiling: Profiling = "measured",
        latencies: AllLatencies | None = None,
    ) -> None:
        self.clock = clock
        self._profiles = profiles
        self._streams = streams
        self._objective = objective
        self._cluster = cluster
        self._busy_w = cluster.busy_w
        self._latencies = latencies or {}
        self._recorded = occupancy == "recorded"
        self._foreknown = self._recorded or profiling == "foreknown"
        self._options = {key: options_of(profile) for key, profile in profiles.items()}

    def options(self, job: Job, gpu_type: str) -> Options:
        """The batch sizes and limits of the workload's profile."""
        assert job.workload is not None
        return self._options[job.workload, job.gpus, gpu_type]

    def most_power_w(self, job: Job, gpu_type: str) -> float:
        """The largest mean power of the profile, or the modelled one."""
        if job.workload is None:
            return modelled_w(self._busy_w, job, gpu_type)
        curves = self._profiles[job.workload, job.gpus, gpu_type].curves.values()
        return max(max(curve.average_power_w) for curve in curves)

    def foresight(self, start: Start) -> Profile:
        """The workload's profile."""
        assert start.job.workload is not None
        return self._profiles[start.job.workload, start.options.gpus, start.options.gpu_type]

    def begin(self, attempt: Attempt, knobs: Knobs | None, delay_s: float) -> None:
        """Plan the attempt, or its profiling epoch, or let it run as recorded."""
        if delay_s:
            self._wait(attempt, delay_s, lambda _: self.begin(attempt, knobs, 0.0))
        elif attempt.query_s:
            attempt.querying = True
            self._wait(attempt, attempt.query_s, lambda _: self.begin(attempt, knobs, 0.0))
        elif knobs is None:
            power_w = modelled_w(self._busy_w, attempt.job, attempt.gpu_type)
            duration_s = attempt.job.duration_s
            attempt.saved_s = duration_s * (1 - attempt.work)
            self._play(attempt, _Recorded(self, duration_s * attempt.work, power_w))
        elif self._latencies:
            self._launch(attempt, knobs)
        else:
            self._train(attempt, knobs)

    def pause(self, attempt: Attempt) -> None:
        """Keep what is left of the phase."""
        phase: _Phase = attempt.plan
        if isinstance(phase, _Waiting):
            self._count_idle(attempt, phase)
            if attempt.querying:  # the rest of the query follows when it goes on
                left_s = phase.left_s - (self.clock.now_s - phase.since_s)
                attempt.query_s, attempt.querying = max(0.0, left_s), False
            attempt.plan = phase.again
        else:
            left_s = phase.left_s - (self.clock.now_s - phase.since_s)
            left: _Phase = _Recorded(self, left_s, phase.power_w)
            if isinstance(phase, _Trained):
                left = _Trained(self, left_s, phase.power_w, phase.then)
            attempt.plan = partial(self._play, phase=left)
        phase.cancel()

    def resume(self, attempt: Attempt, delay_s: float) -> None:
        """Go on with the phase; if it only held its GPUs, what follows comes after the delay."""
        then: Done = attempt.plan
        if delay_s:
            self._wait(attempt, delay_s, then)
        else:
            then(attempt)

    def _wait(
        self, attempt: Attempt, delay_s: float, then: Done, again: Done | None = None
    ) -> None:
        idle_w = self._cluster.idle_w(attempt.job, attempt.gpu_type)
        self._play(attempt, _Waiting(self, delay_s, idle_w, then, again or then))

    def _latencies_of(self, attempt: Attempt) -> Latencies:
        job = attempt.job
        assert job.workload is not None
        return self._latencies.get((job.workload, job.gpus, attempt.gpu_type)) or Latencies()

    def _launch(self, attempt: Attempt, knobs: Knobs) -> None:
        """Start training, which takes a while, and so does every limit that is set first."""
        latencies = self._latencies_of(attempt)
        limits = max(1, len(knobs.profile_w))
        delay_s = latencies.start_s + latencies.settle_s * limits
        if not delay_s:
            self._train(attempt, knobs)
            return
        self._wait(
            attempt,
            delay_s,
            lambda _: self._train(attempt, knobs),
            lambda _: self._launch(attempt, knobs),
        )

    def _leave(self, attempt: Attempt, plan: _Plan) -> None:
        """End an attempt, once it has reported and let go of its GPUs."""
        if self._latencies:
            latencies = self._latencies_of(attempt)
            delay_s = latencies.stop_s + latencies.report_s * plan.epochs
            if delay_s:
                self._wait(attempt, delay_s, lambda _: self.listener.ended(attempt, *plan))
                return
        self.listener.ended(attempt, *plan)

    def waited(self, attempt: Attempt, phase: _Phase) -> None:
        """An attempt has held its GPUs without training."""
        self._count_idle(attempt, phase)
        if attempt.querying:
            attempt.query_s, attempt.querying = 0.0, False

    def _play(self, attempt: Attempt, phase: _Phase) -> None:
        attempt.plan = phase
        attempt.idle = isinstance(phase, _Waiting)
        if not attempt.idle:
            attempt.trained = True
        phase.attempt = attempt
        now_s = phase.since_s = self.clock.now_s
        self.listener.draws(attempt, phase.power_w)
        self.clock.enter(now_s + phase.left_s, phase)

    def _count_idle(self, attempt: Attempt, phase: _Phase) -> None:
        spent_s = self.clock.now_s - phase.since_s
        attempt.overhead_s += spent_s
        attempt.overhead_j += spent_s * phase.power_w

    def _train(self, attempt: Attempt, knobs: Knobs) -> None:
        job = attempt.job
        assert attempt.start is not None
        assert attempt.configuration is not None
        curve = self.foresight(attempt.start).curves[attempt.configuration.batch_size]
        target = curve.epochs[self._streams.pick(job, attempt.number, len(curve.epochs))]
        if attempt.work < 1 and not math.isinf(target):
            left = max(1.0, float(math.ceil(target * attempt.work)))
            attempt.saved_epochs, target = target - left, left
        if not knobs.profile_w:
            self._go_on(attempt, curve, target, None)
            return
        report = tuple(Measurement(*point) for point in _points(curve, knobs.profile_w))
        first = _profiling_epoch(report)
        if self._foreknown:
            self.listener.measured(attempt, report)
            self._go_on(attempt, curve, target, first)
            return
        time_s, energy_j = first

        def profiled(_: Attempt) -> None:
            self.listener.measured(attempt, report)
            settle_s = self._latencies_of(attempt).settle_s if self._latencies else 0.0
            if settle_s:
                self._wait(attempt, settle_s, lambda _: self._go_on(attempt, curve, target, first))
            else:
                self._go_on(attempt, curve, target, first)

        self._play(attempt, _Trained(self, time_s * job.time_scale, energy_j / time_s, profiled))

    def ended_as_recorded(self, attempt: Attempt, power_w: float) -> None:
        """An attempt of a job without a workload has run for its recorded duration."""
        duration_s = attempt.job.duration_s * attempt.work
        self.listener.ended(attempt, None, duration_s, power_w * duration_s, True)

    def _go_on(
        self, attempt: Attempt, curve: Curve, target: float, first: tuple[float, float] | None
    ) -> None:
        """Run to the end at the limit that is now known, after the first epoch if it was taken."""
        plan = self._plan(attempt, curve, target, first)
        job = attempt.job
        if attempt.saved_epochs and plan.reached:
            assert attempt.power_limit_w is not None
            epoch_s = curve.epoch(attempt.power_limit_w)[0]
            attempt.saved_s = attempt.saved_epochs * epoch_s * job.time_scale
        if self._recorded:
            hold_s = job.duration_s
            power_w = plan.energy_j * job.time_scale / hold_s
        else:
            done_s, done_j = first if first and not self._foreknown else (0.0, 0.0)
            left_s = plan.time_s - done_s
            hold_s = left_s * job.time_scale
            power_w = (plan.energy_j - done_j) / left_s if left_s > 0 else 0.0
        self._play(attempt, _Trained(self, hold_s, power_w, lambda _: self._leave(attempt, plan)))

    def _plan(
        self, attempt: Attempt, curve: Curve, target: float, first: tuple[float, float] | None
    ) -> _Plan:
        assert attempt.power_limit_w is not None
        assert attempt.start is not None
        assert attempt.configuration is not None
        time_s, energy_j = curve.epoch(attempt.power_limit_w)
        options = attempt.start.options
        most = float(options.max_epochs)
        bound = attempt.configuration.cost_bound
        if not math.isinf(bound):
            highest_w = curve.max_limit_w * options.gpus
            cost = self._objective.cost
            epoch_cost = cost(energy_j, time_s, highest_w)
            if first and not self._foreknown:
                left = bound - cost(first[1], first[0], highest_w)
                most = min(most, 1 + max(0.0, left // epoch_cost))
            else:
                most = min(most, bound // epoch_cost)
        reached = target <= most
        epochs = int(target if reached else most)
        if first and epochs:
            return _Plan(
                epochs,
                first[0] + (epochs - 1) * time_s,
                first[1] + (epochs - 1) * energy_j,
                reached,
            )
        return _Plan(epochs, epochs * time_s, epochs * energy_j, reached)


def _points(curve: Curve, limits_w: tuple[float, ...]) -> list[tuple[float, float, float]]:
    by_limit = dict(
        zip(
            curve.limits_w,
            zip(curve.time_per_epoch_s, curve.average_power_w, strict=True),
            strict=True,
        )
    )
    return [(limit, *by_limit[limit]) for limit in limits_w]


def _profiling_epoch(report: tuple[Measurement, ...]) -> tuple[float, float]:
    """Seconds and joules of an epoch of which every limit has an equal share of the work."""
    time_s = math.fsum(m.time_per_epoch_s for m in report) / len(report)
    energy_j = math.fsum(m.time_per_epoch_s * m.average_power_w for m in report) / len(report)
    return time_s, energy_j


def options_of(profile: Profile) -> Options:
    """What a policy may choose where jobs are replayed from a profile."""
    return Options(
        key=f"{profile.workload}@{profile.gpu_type}x{profile.gpus}",
        gpu_type=profile.gpu_type,
        gpus=profile.gpus,
        batch_sizes=tuple(profile.curves),
        limits_w=tuple(curve.limits_w for curve in profile.curves.values()),
        default_batch_size=profile.default_batch_size,
        max_power_w=profile.max_power_w,
        max_epochs=profile.max_epochs,
    )


def modelled_w(busy_w: Mapping[str, float | None], job: Job, gpu_type: str) -> float:
    """What a job without a workload draws, W: a model, since nobody measured it.

    A part of a GPU draws that part of what the whole one would.

    Raises:
        InputError: If the cluster does not say what a busy GPU draws.
    """
    each_w = busy_w[gpu_type]
    if each_w is None:
        raise InputError(
            f"job {job.job_id} has no workload, so its power comes from a model: say what a "
            f"busy {gpu_type} draws (busy_power_w)"
        )
    return each_w * job.gpus_held
