"""The backend of the simulator: durations, power and epochs come from recorded profiles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.views import Options, Start
from wattkeeper.policies.profile import Objective, Profile
from wattkeeper.sim.attempts.attempt import Attempt, Execution
from wattkeeper.sim.attempts.decided import Decision, Inheritance
from wattkeeper.sim.engine.backend import Backend
from wattkeeper.sim.kernel.loop import EventLoop
from wattkeeper.sim.kernel.streams import RandomStreams
from wattkeeper.sim.replay.counted import train_counted
from wattkeeper.sim.replay.epochs import EpochTimes, PipelineTimes
from wattkeeper.sim.replay.latencies import NO_LATENCIES, AllLatencies
from wattkeeper.sim.replay.recorded import replay_recorded
from wattkeeper.sim.replay.replayed import Replayed
from wattkeeper.sim.replay.slices import Slicing
from wattkeeper.sim.replay.training import PROFILING, ReplayRules, Training, train_as_planned
from wattkeeper.sim.replay.unprofiled import UnprofiledPower

Occupancy = Literal["simulated", "recorded"]
Profiling = Literal["measured", "foreknown"]


Profiles = Mapping[tuple[str, int, str], Profile]
"""By workload, number of GPUs and GPU type."""


class Replay(Backend):
    """Replays recorded runs.

    An attempt runs at a constant rate and power; one that is profiled first spends an epoch at the
    mean rate and power of all limits (Zeus, NSDI '23, section 4.2). It ends at its target, after
    the workload's largest number of epochs, or before the epoch that would cross its cost bound.
    A job without a workload runs for its recorded duration at the modelled power of its GPUs.
    Training that starts from a parent's weights takes a share of that (`Inheritance.work`), in
    whole epochs where there is a profile.

    Args:
        env: The environment of the run.
        profiles: The profiles of the workloads.
        streams: Picks the recorded run that an attempt replays.
        objective: The cost of an epoch.
        unprofiled: Power of jobs without a workload.
        occupancy: `simulated`: a decision changes how long a job holds its GPUs. `recorded`: every
            attempt holds them for the job's recorded duration, as the published Zeus simulator of
            overlapping jobs has it; energy is spread evenly over it.
        profiling: `measured`: what profiling found is known after the epoch that it takes.
            `foreknown`: it is known before, and the published Zeus simulator even stops an attempt
            before its first epoch, at no cost, if the bound leaves no room; it does not count the
            cost of profiling against the bound. Recorded occupancy implies it.
        latencies: Delays of trainings with a profile.
    """

    def __init__(
        self,
        env: EventLoop,
        profiles: Profiles,
        streams: RandomStreams,
        objective: Objective,
        unprofiled: UnprofiledPower,
        occupancy: Occupancy = "simulated",
        profiling: Profiling = "measured",
        latencies: AllLatencies | None = None,
    ) -> None:
        recorded = occupancy == "recorded"
        foreknown = recorded or profiling == "foreknown"
        self._rules = ReplayRules(env, streams, objective, recorded, foreknown)
        self._unprofiled = unprofiled
        self._profiles, self._latencies = profiles, latencies or {}
        self._options = {key: options_of(profile) for key, profile in profiles.items()}
        self._drifted: dict[tuple[str, int, str, int], Profile] = {}

    def options(self, job: Job, gpu_type: str) -> Options:
        """The batch sizes and limits of the workload's profile; without one, modelled limits."""
        if job.workload is None:
            return self._unprofiled.options(job, gpu_type)
        return self._options[job.workload, job.gpus, gpu_type]

    def most_power_w(self, job: Job, gpu_type: str) -> float:
        """The largest mean power of the profile, or the modelled one."""
        if job.workload is None:
            return self._unprofiled.power_w(job, gpu_type)
        profile = self._profiles[job.workload, job.gpus, gpu_type]
        task = profile.pipeline
        return profile.most_power_w if task is None else task.most_power_w

    def foresight(self, start: Start) -> Profile:
        """The workload's profile; without one, what the model of the GPU type says."""
        gpu_type = start.options.gpu_type
        if start.job.workload is None:
            return self._unprofiled.profile(start.job, gpu_type)
        key = start.job.workload, start.options.gpus, gpu_type
        profile = self._profiles[key]
        if profile.drift is None:
            return profile
        step = profile.drift.step(start.job.recurrence)
        if (*key, step) not in self._drifted:
            self._drifted[*key, step] = profile.after_drift(step)
        return self._drifted[*key, step]

    def run(self, attempt: Attempt, inheritance: Inheritance, limit_w: float) -> Execution:
        """Run for the recorded duration."""
        rules = self._rules
        return replay_recorded(
            self, rules.env, attempt, inheritance, self._unprofiled, limit_w, rules.recorded
        )

    def train(self, attempt: Attempt, decision: Decision, inheritance: Inheritance) -> Execution:
        """Replay the training from its profile."""
        job, listener, rules = attempt.job, self.listener, self._rules
        assert job.workload is not None
        key = job.workload, job.gpus, attempt.gpu_type
        profile = self._profiles[key]
        task = profile.pipeline
        curve = profile.curves[decision.batch_size]
        times = EpochTimes(curve) if task is None else PipelineTimes(curve, task)
        slices = listener.wants_slices and task is None
        changes = listener.retunes or slices or task is not None
        profiling = Slicing() if slices else PROFILING
        course = train_counted if changes else train_as_planned
        late = self._latencies.get(key, NO_LATENCIES)
        training = Training(rules, decision, inheritance, profile, late, times, profiling, course)
        return Replayed(listener, rules.env, attempt, inheritance.query_s, training)


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
        fixed_epochs=profile.fixed_epochs,
        pipeline=profile.pipeline,
        clocks_mhz=_clocks(profile) if profile.has_clocks else (),
        samples_per_epoch=profile.samples_per_epoch,
    )


def _clocks(profile: Profile) -> tuple[tuple[int, ...], ...]:
    return tuple(
        tuple(setting.clock_mhz for setting in curve.clocks) for curve in profile.curves.values()
    )
