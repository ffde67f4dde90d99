"""The state of an attempt of a live run: what the world wants of it, and what its process does."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from wattkeeper.live.controller.events import Event
from wattkeeper.live.wire.messages import (
    Assignment,
    AttemptResult,
    Begun,
    Cause,
    EpochReport,
    Lost,
    ProfileReport,
)
from wattkeeper.policies.planning.hull import SpeedPoint, points_up_to, up_to_limit
from wattkeeper.policies.points.moments import Progress
from wattkeeper.policies.points.views import NO_KNOBS, Knobs, Measurement, Options, Slice
from wattkeeper.policies.profile import Profile
from wattkeeper.sim.attempts.attempt import Execution
from wattkeeper.sim.attempts.decided import NO_SLICES, AttemptTotals, SliceTotals, Tuned, Untuned
from wattkeeper.traces.files.names import file_name

if TYPE_CHECKING:
    from pathlib import Path

    from wattkeeper.live.controller.events import ExternalEvent
    from wattkeeper.policies.profile import Objective
    from wattkeeper.sim.attempts.attempt import Attempt
    from wattkeeper.sim.attempts.decided import Decision, Inheritance
    from wattkeeper.sim.engine.backend import Listener
    from wattkeeper.sim.kernel.loop import ScheduledEvent


class LiveSettings(NamedTuple):
    """Settings of a live run.

    Attributes:
        objective: Weighs energy and time in the cost.
        folder: Folder of checkpoints, devices and output.
        lease_s: Lease of a session, s of the host.
        environment: Variables that every process gets.
        zoo: Folder of the weights of its zoo's models; None if they have none.
    """

    objective: Objective
    folder: Path
    lease_s: float
    environment: Mapping[str, str]
    zoo: Path | None = None


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

UNTRAINED: Final = {"stopped", "failed"}
"""Causes of an end for which no epoch is needed."""


class Standing(Enum):
    """What the world has an attempt do: it is paused at first, and while it is preempted."""

    PAUSED = "paused"
    RUNNING = "running"
    OVER = "over"


class ProcessPhase(Enum):
    """What a process does: its session has not begun, begins its first epoch, or trains."""

    STARTS = "starts"
    SETS_UP = "sets up"
    TRAINS = "trains"


@dataclass(eq=False)
class TrainingProcess:
    """A process that carries an attempt out.

    Attributes:
        run_id: Its id; None before it is started.
        phase: What it does.
        epoch: The last epoch that it reported; 0 if none.
        stop_sent: Whether it was told to stop.
        replies: By epoch, whether the training continues: all its ranks get the same reply.
    """

    run_id: str | None = None
    phase: ProcessPhase = ProcessPhase.STARTS
    epoch: int = 0
    stop_sent: bool = False
    replies: dict[int, bool] = field(default_factory=dict)

    @property
    def begun(self) -> bool:
        """Whether its session has begun."""
        return self.phase is not ProcessPhase.STARTS

    def begin(self) -> None:
        """Note that its session has begun."""
        assert self.phase is ProcessPhase.STARTS
        self.phase = ProcessPhase.SETS_UP

    def begin_training(self) -> None:
        """Note that it trains."""
        assert self.phase is ProcessPhase.SETS_UP
        self.phase = ProcessPhase.TRAINS


class AttemptControl(Protocol):
    """Carries out what the world decides on an attempt."""

    def go_on(self, run: LiveAttempt, delay_s: float) -> None:
        """Start its process, after a delay in s."""

    def pause(self, run: LiveAttempt) -> None:
        """Tell its process to save its state and exit."""

    def stop(self, run: LiveAttempt) -> None:
        """Tell its process to end."""

    def limit(self, run: LiveAttempt) -> None:
        """Tell its process to train at the attempt's power limit."""


@dataclass(eq=False)
class ProfileState:
    """What an attempt has measured.

    Attributes:
        reports: Number of its profile reports.
        slices: What its slices took.
        epoch: The epoch in which its power limits were measured; 0 before.
        fastest_s: Seconds an epoch at the highest limit that was measured; NaN before.
        reached: Whether its session said that it reached its target, and asked for slices.
        probe: The slice of another batch size that it trains; None: none.
    """

    reports: int = 0
    slices: SliceTotals = NO_SLICES
    epoch: int = 0
    fastest_s: float = math.nan
    reached: bool = False
    probe: Slice | None = None


@dataclass(eq=False)
class LiveAttempt(Execution):
    """An attempt that a process carries out.

    Attributes:
        decision: The decision of the policies.
        inheritance: What it takes over from its parent.
        training: How its workload is trained.
        control: Carries out what the world decides on it.
        query_s: Remaining time of the choice of the parent, s.
        epochs_needed: Epochs to the target from scratch in its rehearsal; infinite: it never
            reaches the target.
        standing: What the world has it do.
        process: Its process, or that which will be started.
        stopped_run_id: The process that stopped before this one.
        pending_start: The event that will start its process; None if there is none.
        since_s: End of the time whose power or idling is accounted for, s.
        last: The last epoch reported.
        saved: Its state when it was last stopped.
        profile: What it has measured.
        outcome: How it ended while it was paused.
    """

    # `field()` says that there is no default: compiled, the base's attribute would be one.
    attempt: Attempt = field()
    decision: Decision
    inheritance: Inheritance
    training: TrainingSpec
    control: AttemptControl
    query_s: float
    epochs_needed: float = math.nan
    standing: Standing = Standing.PAUSED
    process: TrainingProcess = field(default_factory=TrainingProcess)
    stopped_run_id: str | None = None
    pending_start: ScheduledEvent | None = None
    since_s: float = 0.0
    last: EpochReport = NOTHING
    saved: EpochReport = NOTHING
    profile: ProfileState = field(default_factory=ProfileState)
    outcome: AttemptResult | None = None

    def resume(self) -> None:
        """Note that the world lets it run."""
        assert self.standing is Standing.PAUSED
        self.standing = Standing.RUNNING

    def suspend(self) -> None:
        """Note that the world pauses it, or takes the GPUs from a paused one."""
        assert self.standing is not Standing.OVER
        self.standing = Standing.PAUSED

    def conclude(self) -> None:
        """Note that its end is reported to the world."""
        assert self.standing is not Standing.OVER
        self.standing = Standing.OVER

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
        return self.is_wanted and self.process.begun and isinstance(self.decision, Tuned)

    @property
    def is_wanted(self) -> bool:
        """Whether the world has it run, and `Tune` did not end it."""
        return self.standing is Standing.RUNNING and not self.attempt.is_stopped

    def progress(self) -> Progress:
        """The last epoch that it reported; work is not known before power limits were measured."""
        last, profile, epoch_s = self.last, self.training.profile, self.profile.fastest_s
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
        if self.profile.reached or isinstance(self.decision, Tuned):
            return self.profile.probe
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
    def key(self) -> tuple[str, int]:
        """Its job and number."""
        return self.attempt.job.job_id, self.attempt.number

    @property
    def scale(self) -> float:
        """Run time of its job over the mean of its workload."""
        return self.attempt.job.time_scale

    def may_report(self, event: Event) -> bool:
        """Whether its session may report this now, or might have reported it before."""
        most, begun = self.training.options.max_epochs, self.process.begun
        match event:
            case ProfileReport():
                return begun and self._may_report_profile(event)
            case EpochReport():
                return begun and 1 <= event.epoch <= most
            case AttemptResult():
                trained = event.epochs >= 1 and event.time_s > 0
                return begun and event.epochs <= most and (trained or event.cause in UNTRAINED)
        return True

    def _may_report_profile(self, report: ProfileReport) -> bool:
        """Whether it was asked for what it measured, now or before."""
        if report.report != self.profile.reports:
            return report.report < self.profile.reports
        found = [(point.power_limit_w, point.batch_size) for point in report.measurements]
        decision, probe = self.decision, self.profile.probe
        if report.reached:
            expected = [] if probe is None else [(probe.power_limit_w, probe.batch_size)]
            asked = probe is not None or not self.profile.reached
            without_target = self.training.command is not None and self.training.target is None
            is_done = self.last.is_last or (without_target and self.last.epoch > 0)
            return is_done and asked and found == expected
        if isinstance(decision, Tuned):
            return False
        if decision.slice is not None:
            return found == [(decision.slice.power_limit_w, decision.batch_size)]
        return found == [(limit_w, 0) for limit_w in decision.profile_w]

    def changes_by(self, event: Event) -> bool:
        """Whether an event of its process changes it; a question or a repetition does not."""
        match event:
            case Begun():
                return not self.process.begun
            case ProfileReport():
                return event.report >= self.profile.reports
            case EpochReport():
                return event.epoch > self.process.epoch
        return isinstance(event, AttemptResult | Lost)

    def detach_process(self) -> None:
        """Part from its process, which ended; another one resumes from the saved state."""
        self.last, self.stopped_run_id = self.saved, self.process.run_id
        self.process = TrainingProcess()

    def result_so_far(self, cause: Cause, message: str = "") -> AttemptResult:
        """Its end now, which its process does not report."""
        last = self.last
        return AttemptResult(cause, last.epoch, last.time_s, last.energy_j, message=message)

    def assignment(self, settings: LiveSettings, listener: Listener) -> Assignment:
        """The assignment of its session."""
        attempt, training, decision = self.attempt, self.training, self.decision
        job, options, chosen = attempt.job, training.options, decision.configuration
        rehearsed = training.command is None
        inherits = settings.zoo is not None and job.model is not None
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
            eta=settings.objective.eta,
            max_power_w=options.limits(chosen.batch_size)[-1] * options.gpus,
            target=1.0 if rehearsed else training.target,
            higher_is_better=training.higher_is_better,
            checkpoint=str(settings.folder / "checkpoints" / f"{file_name(self.name)}.state"),
            epochs_done=self.saved.epoch,
            time_done_s=self.saved.time_s,
            energy_done_j=self.saved.energy_j,
            lease_s=settings.lease_s,
            model=job.model,
            zoo=str(settings.zoo) if inherits else None,
            parent=chosen.parent if inherits else None,
            retunes=listener.retunes and training.force_limits,
            slice=self.slice,
            probes=listener.wants_slices,
            samples_per_epoch=options.samples_per_epoch,
            reports=self.profile.reports,
        )

    def totals(self, outcome: AttemptResult, reached: bool) -> AttemptTotals:
        """Its totals as the world counts them: at the mean run time of the workload."""
        time_s, energy_j = outcome.time_s / self.scale, (outcome.energy_j or 0.0) / self.scale
        saved_s = self._saved_s() if reached else 0.0
        accuracy = None if self.training.command is None else self.last.metric
        return AttemptTotals(
            outcome.epochs, time_s, energy_j, reached, saved_s, accuracy, self.profile.slices
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

    def normalise(self, measurements: Iterable[Measurement]) -> tuple[Measurement, ...]:
        """Measurements at the mean run time of the workload.

        Nine digits: power limits without effect tie, as they do in a profile.
        """
        return tuple(
            measured._replace(
                time_per_epoch_s=float(f"{measured.time_per_epoch_s / self.scale:.9g}"),
                average_power_w=float(f"{measured.average_power_w:.9g}"),
                spent_s=measured.spent_s / self.scale,
                spent_j=measured.spent_j / self.scale,
            )
            for measured in measurements
        )


Changes = Mapping[type[Event], Callable[[LiveAttempt, Any], None]]
"""By class of event, what takes one that changes its attempt."""

Answers = Mapping[type[Event], Callable[[LiveAttempt, Any, Any], Mapping[str, Any] | None]]
"""By class of event, what replies to one of an attempt's process, which may repeat what it said.

It takes the attempt, the event and its ticket; without a reply now, that follows.
"""

Notices = Mapping[type[Event], Callable[["LiveAttempt | None", Any, "ExternalEvent"], None]]
"""By class of event, what takes one that changes no attempt; its process may be replaced."""
