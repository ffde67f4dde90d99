"""The backend of the simulator: durations, power and epochs come from recorded profiles."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

from wattkeeper.policies.profile import Curve, Objective, Profile
from wattkeeper.policies.protocols import Job, Knobs, Measurement, Options, Start
from wattkeeper.sim.backend import Attempt, Listener
from wattkeeper.sim.clock import COMPLETION, Clock
from wattkeeper.sim.streams import Streams

Occupancy = Literal["simulated", "recorded"]
Profiling = Literal["measured", "foreknown"]


Profiles = Mapping[tuple[str, int], Profile]
"""By workload and number of GPUs."""


class _Plan(NamedTuple):
    """How an attempt goes on once its power limit is known."""

    epochs: int
    time_s: float
    energy_j: float
    reached: bool


class Replay:
    """Replays recorded runs.

    An attempt runs at a constant rate and power; one that is profiled first spends an epoch at the
    mean rate and power of all limits (Zeus, NSDI '23, section 4.2). It ends at its target, after
    the workload's largest number of epochs, or before the epoch that would cross its cost bound.

    Args:
        env: The clock.
        profiles: What is known of each workload.
        streams: Picks the recorded run that an attempt replays.
        objective: What an epoch costs.
        occupancy: `simulated`: a decision changes how long a job holds its GPUs. `recorded`: every
            attempt holds them for the job's recorded duration, as the published Zeus simulator of
            overlapping jobs has it; energy is spread evenly over it.
        profiling: `measured`: what profiling found is known after the epoch that it takes.
            `foreknown`: it is known before, and the published Zeus simulator even stops an attempt
            before its first epoch, at no cost, if the bound leaves no room; it does not count the
            cost of profiling against the bound. Recorded occupancy implies it.
    """

    def __init__(
        self,
        env: Clock,
        profiles: Profiles,
        streams: Streams,
        objective: Objective,
        occupancy: Occupancy = "simulated",
        profiling: Profiling = "measured",
    ) -> None:
        self.env = env
        self.listener: Listener
        self._profiles = profiles
        self._streams = streams
        self._objective = objective
        self._recorded = occupancy == "recorded"
        self._foreknown = self._recorded or profiling == "foreknown"
        self._options = {key: options_of(profile) for key, profile in profiles.items()}

    def options(self, job: Job, gpu_type: str) -> Options:
        """The batch sizes and limits of the workload's profile."""
        return self._options[job.workload, job.gpus]

    def foresight(self, start: Start) -> Profile:
        """The workload's profile."""
        return self._profiles[start.job.workload, start.job.gpus]

    def begin(self, attempt: Attempt, knobs: Knobs) -> None:
        """Plan the attempt, or its profiling epoch."""
        start = attempt.start
        profile = self.foresight(start)
        curve = profile.curves[attempt.configuration.batch_size]
        target = curve.epochs[self._streams.pick(start.job, start.attempt, len(curve.epochs))]
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
        self.listener.draws(attempt, energy_j / time_s)

        def profiled() -> None:
            self.listener.measured(attempt, report)
            self._go_on(attempt, curve, target, first)

        self.env.call_at(self.env.now + time_s * start.job.time_scale, COMPLETION, profiled)

    def _go_on(
        self, attempt: Attempt, curve: Curve, target: float, first: tuple[float, float] | None
    ) -> None:
        """Run to the end at the limit that is now known, after the first epoch if it was taken."""
        plan = self._plan(attempt, curve, target, first)
        job = attempt.start.job
        if self._recorded:
            hold_s = job.duration_s
            power_w = plan.energy_j * job.time_scale / hold_s
        else:
            done_s, done_j = first if first and not self._foreknown else (0.0, 0.0)
            left_s = plan.time_s - done_s
            hold_s = left_s * job.time_scale
            power_w = (plan.energy_j - done_j) / left_s if left_s > 0 else 0.0
        self.listener.draws(attempt, power_w)
        end_s = self.env.now + hold_s
        self.env.call_at(end_s, COMPLETION, lambda: self.listener.ended(attempt, *plan))

    def _plan(
        self, attempt: Attempt, curve: Curve, target: float, first: tuple[float, float] | None
    ) -> _Plan:
        assert attempt.power_limit_w is not None
        time_s, energy_j = curve.epoch(attempt.power_limit_w)
        options = attempt.start.options
        most: float = options.max_epochs
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
    time_s = sum(m.time_per_epoch_s for m in report) / len(report)
    energy_j = sum(m.time_per_epoch_s * m.average_power_w for m in report) / len(report)
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
