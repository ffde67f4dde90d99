"""What a rehearsal repeats: a recorded run, on devices that draw what its profile says."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from wattkeeper.policies.points.views import SETUP_S

if TYPE_CHECKING:
    from wattkeeper.live.controller.attempt import LiveAttempt
    from wattkeeper.live.controller.launchers.launcher import Gpu
    from wattkeeper.live.host.wall_clock import WallClock
    from wattkeeper.sim.cluster.cluster_spec import ClusterSpec
    from wattkeeper.sim.kernel.streams import RandomStreams

REHEARSAL: Final = "WATTKEEPER_REHEARSAL"
"""Environment variable: the plan of a rehearsal, as JSON (`plan_rehearsal`)."""


class RecordedRuns:
    """Chooses the recorded run of each attempt that is rehearsed, from random streams.

    The retry of a lost attempt repeats its run; later ones are chosen as if none was lost.
    """

    def __init__(self, streams: RandomStreams) -> None:
        self._streams = streams
        self._epochs_needed: dict[str, float] = {}
        self._lost_before = Counter[str]()

    def choose(self, run: LiveAttempt) -> None:
        """Choose the recorded run of an attempt, if it is rehearsed."""
        job, profile = run.attempt.job, run.training.profile
        lost = self._epochs_needed.pop(job.job_id, None)
        if lost is not None:
            run.epochs_needed = lost
        elif run.training.command is None and profile is not None:
            size, tries = (
                run.decision.batch_size,
                run.attempt.number - self._lost_before[job.job_id],
            )
            recorded = self._streams.pick(job, tries, len(profile.curves[size].epochs))
            run.epochs_needed = profile.run_epochs(size, recorded, job.recurrence)

    def note_loss(self, run: LiveAttempt) -> None:
        """Note that an attempt is lost."""
        job_id = run.attempt.job.job_id
        self._epochs_needed[job_id] = run.epochs_needed
        self._lost_before[job_id] += 1


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
