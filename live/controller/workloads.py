"""How the workloads of a live run are trained, and what may be chosen for them."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from wattkeeper.live.wire.messages import Assignment, AttemptResult, EpochReport
from wattkeeper.policies.profile import Profile
from wattkeeper.policies.protocols import Measurement, Options
from wattkeeper.sim.attempts.attempt import AttemptTotals, Execution, Tuned, Untuned

if TYPE_CHECKING:
    from wattkeeper.live.controller.launchers.local import Gpu
    from wattkeeper.live.host.wall_clock import WallClock
    from wattkeeper.sim.attempts.attempt import Attempt, Decision, Inheritance
    from wattkeeper.sim.cluster.cluster_spec import ClusterSpec
    from wattkeeper.sim.engine.environment import ScheduledEvent
    from wattkeeper.sim.engine.rng import RandomStreams

REHEARSAL: Final = "WATTKEEPER_REHEARSAL"
"""Environment variable: what a rehearsal shall pretend, as JSON (`rehearsal_of`)."""


class TrainingSpec(NamedTuple):
    """How a workload is trained on a number of GPUs of a type.

    Attributes:
        options: What may be chosen.
        command: What trains it; None: it is rehearsed.
        target: Value of the metric that ends it; None: it does all its epochs.
        higher_is_better: Whether the target is reached from below.
        profile: What a rehearsal goes by.
        force_limits: Whether power limits are put in force; else it runs at the given one.
    """

    options: Options
    command: tuple[str, ...] | None = None
    target: float | None = None
    higher_is_better: bool = True
    profile: Profile | None = None
    force_limits: bool = True


Trainings = Mapping[tuple[str, int, str], TrainingSpec]
"""By workload, number of GPUs and GPU type."""

REHEARSE: Final = (sys.executable, "-m", "wattkeeper.live.controller.emulator")


NOTHING: Final = EpochReport(0, None, 0.0, None)
"""What a training that has not begun came to."""


class Carrier(Protocol):
    """Starts and stops the processes of attempts."""

    def go_on(self, run: LiveAttempt, delay_s: float) -> None:
        """See `wattkeeper.sim.attempts.attempt.Execution`."""

    def pause(self, run: LiveAttempt) -> None:
        """See `wattkeeper.sim.attempts.attempt.Execution`."""


class LiveAttempt(Execution):
    """An attempt that a process carries out.

    Attributes:
        decision: What policies decided of it.
        inheritance: What it takes over from its parent.
        query_s: What is left of the time that the choice of the parent takes.
        training: How its workload is trained.
        needed: Epochs to the target from scratch that its rehearsal pretends; infinite: it never
            gets there.
        id: The process that carries it out, or did; None before the first one.
        begun: Whether that said that it begins.
        paused: Whether the world took its GPUs away.
        over: Whether the world was told of its end, or nothing is left to be done.
        since_s: Since when its power or its idling is not accounted for.
        last: The last epoch it told of, and what it came to.
        heard: The last epoch that its process told of; 0 if it has not.
        kept: What it came to when it was last stopped.
        due: What will start its process; None: nothing waits.
        starts_s: When that is due.
        told: Whether its process was told to stop.
        stopped: The process that stopped before this one.
        answers: By epoch, whether it was told to go on: all its processes are told the same.
        outcome: How it ended while it was paused.
    """

    def __init__(
        self,
        attempt: Attempt,
        decision: Decision,
        inheritance: Inheritance,
        training: TrainingSpec,
        carrier: Carrier,
    ) -> None:
        super().__init__(attempt)
        self.decision = decision
        self.inheritance = inheritance
        self.query_s = inheritance.query_s
        self.training = training
        self._carrier = carrier
        self.needed = math.nan
        self.id: str | None = None
        self.begun = False
        self.paused = True
        self.over = False
        self.since_s = 0.0
        self.last = self.kept = NOTHING
        self.heard = 0
        self.due: ScheduledEvent | None = None
        self.starts_s = 0.0
        self.told = False
        self.stopped: str | None = None
        self.answers: dict[int, bool] = {}
        self.outcome: AttemptResult | None = None

    def go_on(self, delay_s: float) -> None:
        """Start a process, which goes on where the one before it stopped."""
        self._carrier.go_on(self, delay_s)

    def pause(self) -> None:
        """Have its process stop, after it saved its state."""
        self._carrier.pause(self)

    @property
    def power_limit_w(self) -> float | None:
        """The power limit of each GPU, W; None until it is chosen."""
        return self.decision.power_limit_w if isinstance(self.decision, Tuned) else None

    @property
    def name(self) -> str:
        """Names the attempt."""
        return f"{self.attempt.job.job_id}#{self.attempt.number}"

    @property
    def scale(self) -> float:
        """Its run time over the mean of its workload: a rehearsal's, since others are measured."""
        return self.attempt.job.time_scale

    def leave(self) -> None:
        """Its process is over; another one goes on with what was kept."""
        self.last, self.stopped = self.kept, self.id
        self.id, self.begun, self.told, self.heard = None, False, False, 0
        self.answers.clear()

    def assignment(self, eta: float, checkpoint: str, lease_s: float) -> Assignment:
        """What its session is told."""
        attempt, training, decision = self.attempt, self.training, self.decision
        job, options, chosen = attempt.job, training.options, decision.configuration
        rehearsed = training.command is None
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
            epochs_done=self.kept.epoch,
            time_done_s=self.kept.time_s,
            energy_done_j=self.kept.energy_j,
            lease_s=lease_s,
        )

    def totals(self, outcome: AttemptResult, reached: bool) -> AttemptTotals:
        """What the world is told that it came to."""
        time_s, energy_j = outcome.time_s / self.scale, (outcome.energy_j or 0.0) / self.scale
        saved_s = self._saved_s() if reached else 0.0
        return AttemptTotals(outcome.epochs, time_s, energy_j, reached, saved_s)

    def _saved_s(self) -> float:
        """Seconds that the parent saved a rehearsal, which does not take them for real."""
        profile, left = self.training.profile, self.inheritance.epochs_left(self.needed)
        if profile is None or self.power_limit_w is None or not left < self.needed:
            return 0.0
        epoch_s = profile.curves[self.decision.batch_size].epoch(self.power_limit_w)[0]
        return (self.needed - left) * epoch_s * self.scale

    def measured(self, found: list[list[float]]) -> tuple[Measurement, ...]:
        """What profiling found, as profiled; what no meter can tell apart is equal."""
        return tuple(
            Measurement(limit, rounded(time_s / self.scale), rounded(power_w))
            for limit, time_s, power_w in found
        )


def rounded(value: float) -> float:
    """A number to nine digits: limits that make no difference tie, as they do in a profile."""
    return float(f"{value:.9g}")


def pick(run: LiveAttempt, number: int, streams: RandomStreams) -> None:
    """Choose the recorded run that a rehearsal repeats; its number leaves lost attempts out."""
    profile = run.training.profile
    if run.training.command is None and profile is not None:
        epochs = profile.curves[run.decision.batch_size].epochs
        run.needed = epochs[streams.pick(run.attempt.job, number, len(epochs))]


def synthetic_devices(
    run: LiveAttempt, gpus: Sequence[Gpu], cluster: ClusterSpec, folder: Path, wall: WallClock
) -> str:
    """Make the devices that a rehearsal runs on; what `wattkeeper.live.devices.VARIABLE` says."""
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


def rehearsal_of(run: LiveAttempt) -> str:
    """What its rehearsal shall pretend: epochs to the target, and an epoch by power limit.

    Returns:
        JSON: `epochs`, `points` of power limit (W), seconds an epoch and mean power of all its
        GPUs (W), and what these draw idle, `idle_w`.
    """
    profile = run.training.profile
    assert profile is not None
    curve = profile.curves[run.decision.batch_size]
    times = [time_s * run.scale for time_s in curve.time_per_epoch_s]
    points = list(zip(curve.limits_w, times, curve.average_power_w, strict=True))
    epochs = run.inheritance.epochs_left(run.needed)
    return json.dumps({"epochs": epochs, "points": points, "idle_w": run.attempt.idle_w})
