"""What an emulated training keeps of an epoch when it is stopped."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from wattkeeper.live.controller.emulator import EmulatedTraining
from wattkeeper.live.devices.device import PowerRange
from wattkeeper.live.devices.synthetic import SyntheticDevice
from wattkeeper.live.session.session import Session
from wattkeeper.live.wire.clock import run_clock

LIMITS_W = (250.0, 200.0)
EPOCH_S = 1e-4


class Stopped(Exception):
    """Raised by the session where the training shall stop."""


class ProfilingSession:
    """A session that measures power limits in the first epoch, and stops at a step."""

    batch_size = 32
    assignment = SimpleNamespace(profile_w=LIMITS_W, slice=None, samples_per_epoch=0)

    def __init__(self, stop_at: int) -> None:
        self.steps_to_reading: int | None = 1
        self._left = stop_at

    def sleep_until(self, time_s: float) -> bool:
        run_clock().sleep_until(time_s)
        return True

    def step(self) -> None:
        self._left -= 1
        if not self._left:
            raise Stopped


@pytest.mark.parametrize(
    ("stop_at", "kept"),
    [(1, (1, 0.0)), (4, (1, 0.0)), (5, (2, 1.0)), (6, (3, 1.0))],
    ids=["while it measures", "as the measuring ends", "second epoch", "third epoch"],
)
def test_an_epoch_that_ended_unreported_is_kept_unless_it_measured(
    tmp_path: Path, stop_at: int, kept: tuple[int, float]
) -> None:
    limits = PowerRange(LIMITS_W[1], LIMITS_W[0], LIMITS_W[0])
    device = SyntheticDevice.create(tmp_path / "gpu", "X", limits, 20.0, run_clock())
    session = ProfilingSession(stop_at)
    points = {32: [(limit_w, EPOCH_S, 100.0) for limit_w in LIMITS_W]}
    training = EmulatedTraining(cast("Session", session), [device], points, 0.0)
    with suppress(Stopped):
        for epoch in range(1, 9):
            training.train_epoch(epoch)
            session.steps_to_reading = None  # the coordinator chose a limit
    assert (training.progress.epoch, training.progress.part) == kept
