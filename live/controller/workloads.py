"""Workloads of a live run: how they are trained, and the state of their attempts."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from wattkeeper.live.wire.messages import Assignment, AttemptResult, EpochReport
from wattkeeper.policies.planning.hull import SpeedPoint, points_up_to, up_to_limit
from wattkeeper.policies.points.moments import Progress
from wattkeeper.policies.points.views import NO_KNOBS, SETUP_S, Knobs, Measurement, Options, Slice
from wattkeeper.policies.profile import Profile
from wattkeeper.sim.attempts.attempt import (
    NO_SLICES,
    AttemptTotals,
    Execution,
    SliceTotals,
    Tuned,
    Untuned,
)

if TYPE_CHECKING:
    from wattkeeper.live.controller.launchers.launcher import Gpu
    from wattkeeper.live.host.wall_clock import WallClock
    from wattkeeper.sim.attempts.attempt import Attempt, Decision, Inheritance
    from wattkeeper.sim.cluster.cluster_spec import ClusterSpec
    from wattkeeper.sim.kernel.loop import ScheduledEvent
    from wattkeeper.sim.kernel.streams import RandomStreams

REHEARSAL: Final = "WATTKEEPER_REHEARSAL"
"""Environment variable: the plan of a rehearsal, as JSON (`plan_rehearsal`)."""


class TrainingSpec(NamedTuple):
    """How a workload is trained on a number of GPUs of a type.

    Attributes:
        options: Batch sizes and power limits that may be chosen.
        command: Command of the training script; None: it is rehearsed.
        target: Value of the metric that ends it; None: it does all its epochs.
        higher_is_better: Whether the target is reached from below.
        profile: Times and powers of a rehearsal.
        force_limits: Whether power limits are set; else the one in force stays.
    """

    options: Options
    command: tuple[str, ...] | None = None
    target: float | None = None
    higher_is_better: bool = True
    profile: Profile | None = None
    force_limits: bool = True


Trainings = Mapping[tuple[str, int, str], TrainingSpec]
"""By workload, number of GPUs and GPU type."""

NOTHING: Final = EpochReport(0, None, 0.0, None)
"""The state of an attempt before its first epoch."""


class ProcessControl(Protocol):
    """What an attempt asks of the backend."""

    def go_on(self, run: LiveAttempt, delay_s: float) -> None:
        """Start its process, after a delay in s."""

    def pause(self, run: LiveAttempt) -> None:
        """Tell its process to save its state and exit."""

    def stop(self, run: LiveAttempt) -> None:
        """Tell its process to end."""

    def limit(self, run: LiveAttempt) -> None:
        """Tell its process to train at the attempt's power limit."""


@dataclass(eq=False)
class LiveAttempt(Execution):
    """An attempt that a process carries out.

    Attributes:
        decision: The decision of the policies.
        inheritance: What it takes over from its parent.
        training: How its workload is trained.
        control: Starts, stops and changes its process.
        query_s: Remaining time of the choice of the parent, s.
        epochs_needed: Epochs to the target from scratch in its rehearsal; infinite: it never
            reaches the target.
        run_id: Its process, or the last one; None before the first one.
        begun: Whether the session of that process has begun.
        is_set_up: Whether what that process did before its training is accounted for.
        paused: Whether it is preempted.
        over: Whether its end is reported to the world.
        since_s: End of the time whose power or idling is accounted for, s.
        last: The last epoch reported.
        process_epoch: The last epoch that its current process reported; 0 if none.
        saved: Its state when it was last stopped.
        pending_start: The event that will start its process; None if there is none.
        stop_sent: Whether its process was told to stop.
        stopped_run_id: The process that stopped before this one.
        replies: By epoch, whether the training continues: all its processes get the same reply.
        outcome: How it ended while it was paused.
        profiled_epoch: The epoch in which its power limits were measured; 0 before.
        fastest_s: Seconds an epoch at the highest limit that was measured; NaN before.
        is_stopping: Whether `Tune` ended it, and its process has not ended yet.
        reports: Number of its profile reports.
        slices: What its slices took.
        reached: Whether its session said that it reached its target, and asked for slices.
        probe: The slice of another batch size that it trains; None: none.
    """

    # `field()` says that there is no default: compiled, the base's attribute would be one.
    attempt: Attempt = field()
    decision: Decision
    inheritance: Inheritance
    training: TrainingSpec
    control: ProcessControl
    query_s: float
    epochs_needed: float = math.nan
    run_id: str | None = None
    begun: bool = False
    is_set_up: bool = False
    paused: bool = True
    over: bool = False
    since_s: float = 0.0
    last: EpochReport = NOTHING
    saved: EpochReport = NOTHING
    process_epoch: int = 0
    pending_start: ScheduledEvent | None = None
    stop_sent: bool = False
    stopped_run_id: str | None = None
    replies: dict[int, bool] = field(default_factory=dict)
    outcome: AttemptResult | None = None
    profiled_epoch: int = 0
    fastest_s: float = math.nan
    is_stopping: bool = False
    reports: int = 0
    slices: SliceTotals = NO_SLICES
    reached: bool = False
    probe: Slice | None = None

    def go_on(self, delay_s: float) -> None:
        """Start a process, which resumes from the saved state."""
        self.control.go_on(self, delay_s)

    def pause(self) -> None:
        """Tell its process to save its state and exit."""
        self.control.pause(self)

    def stop(self) -> None:
        """Tell its process to end; the attempt ends when that has."""
        self.control.stop(self)

    def retune(self, knobs: Knobs) -> None:
        """Change its power limit; its process is told if it trains."""
        if knobs.power_limit_w is not None and isinstance(self.decision, Tuned):
            self.decision = self.decision.at_limit(knobs.power_limit_w)
            self.control.limit(self)

    @property
    def is_training(self) -> bool:
        """Whether it trains at a limit that was chosen."""
        trains = self.begun and not (self.paused or self.over or self.is_stopping)
        return trains and isinstance(self.decision, Tuned)

    def progress(self) -> Progress:
        """The last epoch that it reported; work is not known before power limits were measured."""
        last, profile, epoch_s = self.last, self.training.profile, self.fastest_s
        if profile is not None:
            curve = profile.curves[self.decision.batch_size]
            epoch_s = curve.epoch(curve.max_limit_w)[0] * self.scale
        work_s = last.time_s if math.isnan(epoch_s) else last.epoch * epoch_s
        return Progress(float(last.epoch), work_s, last.time_s, last.energy_j or 0.0)

    def points(self, chosen: Knobs = NO_KNOBS) -> Sequence[SpeedPoint]:
        """What it does by limit: of its profile, else the most power and speed that they allow."""
        options, profile = self.training.options, self.training.profile
        if profile is not None:
            curve = profile.curves[self.decision.batch_size]
            return points_up_to(curve, chosen.power_limit_w, chosen.clock_mhz or 0)
        limits_w = options.limits(self.decision.batch_size)
        points = [
            SpeedPoint(limit_w / limits_w[-1], limit_w * options.gpus, limit_w)
            for limit_w in limits_w
        ]
        return up_to_limit(points, chosen.power_limit_w)

    @property
    def slice(self) -> Slice | None:
        """The slice that it trains; None: none."""
        if self.reached or isinstance(self.decision, Tuned):
            return self.probe
        return self.decision.slice

    @property
    def power_limit_w(self) -> float | None:
        """The power limit of each GPU, W; None until it is chosen."""
        return self.decision.power_limit_w if isinstance(self.decision, Tuned) else None

    @property
    def name(self) -> str:
        """Name of the attempt."""
        return f"{self.attempt.job.job_id}#{self.attempt.number}"

    @property
    def scale(self) -> float:
        """Run time of its job over the mean of its workload."""
        return self.attempt.job.time_scale

    def may_report(self, kind: str, payload: Mapping[str, Any]) -> bool:
        """Whether its session may report this now, or might have reported it before."""
        most = self.training.options.max_epochs
        if kind == "profiled":
            return self.begun and self._may_report_profile(payload)
        if kind == "epoch":
            return self.begun and 1 <= payload["epoch"] <= most
        if kind == "ended":
            trained = payload["epochs"] >= 1 and payload["time_s"] > 0
            whole = trained or payload["cause"] in {"stopped", "failed"}
            return self.begun and payload["epochs"] <= most and whole
        return True

    def _may_report_profile(self, payload: Mapping[str, Any]) -> bool:
        """Whether it was asked for what it measured, now or before."""
        if payload["report"] != self.reports:
            return bool(payload["report"] < self.reports)
        found = [(point[0], point[4]) for point in payload["measurements"]]
        decision, probe = self.decision, self.probe
        if payload["reached"]:
            expected = [] if probe is None else [(probe.power_limit_w, probe.batch_size)]
            asked = probe is not None or not self.reached
            without_target = self.training.command is not None and self.training.target is None
            is_done = self.last.is_last or (without_target and self.last.epoch > 0)
            return is_done and asked and found == expected
        if isinstance(decision, Tuned):
            return False
        if decision.slice is not None:
            return found == [(decision.slice.power_limit_w, decision.batch_size)]
        return found == [(limit_w, 0) for limit_w in decision.profile_w]

    def detach_process(self) -> None:
        """Part from its process, which ended; another one resumes from the saved state."""
        self.last, self.stopped_run_id = self.saved, self.run_id
        self.run_id, self.begun, self.stop_sent, self.process_epoch = None, False, False, 0
        self.replies.clear()

    def assignment(
        self,
        eta: float,
        checkpoint: str,
        lease_s: float,
        zoo: Path | None,
        retunes: bool,
        probes: bool,
    ) -> Assignment:
        """The assignment of its session.

        `zoo` is the folder of the weights of parents; `retunes`: whether its knobs may change;
        `probes`: whether slices of other batch sizes may follow its target.
        """
        attempt, training, decision = self.attempt, self.training, self.decision
        job, options, chosen = attempt.job, training.options, decision.configuration
        rehearsed = training.command is None
        inherits = zoo is not None and job.model is not None
        return Assignment(
            job_id=job.job_id,
            recurrence=job.recurrence,
            attempt=attempt.number,
            batch_size=chosen.batch_size,
            default_batch_size=options.default_batch_size,
            max_epochs=options.max_epochs,
            power_limit_w=self.power_limit_w if training.force_limits else None,
            profile_w=decision.profile_w if isinstance(decision, Untuned) else (),
            cost_bound=chosen.cost_bound * self.scale,
            eta=eta,
            max_power_w=options.limits(chosen.batch_size)[-1] * options.gpus,
            target=1.0 if rehearsed else training.target,
            higher_is_better=training.higher_is_better,
            checkpoint=checkpoint,
            epochs_done=self.saved.epoch,
            time_done_s=self.saved.time_s,
            energy_done_j=self.saved.energy_j,
            lease_s=lease_s,
            model=job.model,
            zoo=str(zoo) if inherits else None,
            parent=chosen.parent if inherits else None,
            retunes=retunes and training.force_limits,
            slice=self.slice,
            probes=probes,
            samples_per_epoch=options.samples_per_epoch,
            reports=self.reports,
        )

    def totals(self, outcome: AttemptResult, reached: bool) -> AttemptTotals:
        """Its totals as the world counts them: at the mean run time of the workload."""
        time_s, energy_j = outcome.time_s / self.scale, (outcome.energy_j or 0.0) / self.scale
        saved_s = self._saved_s() if reached else 0.0
        accuracy = None if self.training.command is None else self.last.metric
        return AttemptTotals(
            outcome.epochs, time_s, energy_j, reached, saved_s, accuracy, self.slices
        )

    def _saved_s(self) -> float:
        """Time that the parent saved, s; NaN for a script, whose time from scratch is unknown."""
        if self.training.command is not None:
            return 0.0 if self.decision.configuration.parent is None else math.nan
        profile, left = self.training.profile, self.inheritance.epochs_left(self.epochs_needed)
        if profile is None or self.power_limit_w is None or not left < self.epochs_needed:
            return 0.0
        epoch_s = profile.curves[self.decision.batch_size].epoch(self.power_limit_w)[0]
        return (self.epochs_needed - left) * epoch_s * self.scale

    def normalise(self, points: Iterable[Sequence[Any]]) -> tuple[Measurement, ...]:
        """Measurements at the mean run time of the workload.

        Nine digits: power limits without effect tie, as they do in a profile.
        """
        return tuple(
            found._replace(
                time_per_epoch_s=float(f"{found.time_per_epoch_s / self.scale:.9g}"),
                average_power_w=float(f"{found.average_power_w:.9g}"),
                spent_s=found.spent_s / self.scale,
                spent_j=found.spent_j / self.scale,
            )
            for found in (Measurement(*point) for point in points)
        )


def choose_recorded_run(run: LiveAttempt, tries: int, streams: RandomStreams) -> None:
    """Choose the recorded run of a rehearsal; lost attempts do not count in its number."""
    profile = run.training.profile
    if run.training.command is None and profile is not None:
        size, job = run.decision.batch_size, run.attempt.job
        recorded = streams.pick(job, tries, len(profile.curves[size].epochs))
        run.epochs_needed = profile.run_epochs(size, recorded, job.recurrence)


def make_synthetic_devices(
    run: LiveAttempt, gpus: Sequence[Gpu], cluster: ClusterSpec, folder: Path, wall: WallClock
) -> str:
    """Make the devices of a rehearsal; the value of `wattkeeper.live.devices.VARIABLE`."""
    from wattkeeper.live.devices.device import PowerRange
    from wattkeeper.live.devices.synthetic import PREFIX, SyntheticDevice

    profile, gpu_type = run.training.profile, run.attempt.gpu_type
    assert profile is not None
    all_w = [limit for curve in profile.curves.values() for limit in curve.limits_w]
    limits = PowerRange(min(all_w), max(all_w), max(all_w))
    paths = [folder / f"{node}-{gpu}" for node, gpu in gpus]
    for path in paths:
        SyntheticDevice.create(path, gpu_type, limits, cluster.power[gpu_type].idle_w, wall)
    return PREFIX + ",".join(str(path.absolute()) for path in paths)


def plan_rehearsal(run: LiveAttempt) -> str:
    """Epochs to the target of a rehearsal, and time and power of an epoch.

    Returns:
        JSON: `epochs`; by batch size, `points` of power limit (W), seconds an epoch and mean power
        of all its GPUs (W); and `setup_s`, what it takes to set another batch size up, s.
    """
    profile = run.training.profile
    assert profile is not None
    points = {}
    for size, curve in profile.curves.items():
        times = [time_s * run.scale for time_s in curve.time_per_epoch_s]
        points[size] = list(zip(curve.limits_w, times, curve.average_power_w, strict=True))
    epochs = run.inheritance.epochs_left(run.epochs_needed)
    return json.dumps({"epochs": epochs, "points": points, "setup_s": SETUP_S * run.scale})
