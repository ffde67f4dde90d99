"""A store and devices of their own for the sessions of a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.clocks import ManualTime
from tests.support.sessions import DRAWN
from wattkeeper.live.devices.device import PowerRange
from wattkeeper.live.devices.synthetic import SyntheticDevice
from wattkeeper.live.host import wall_clock
from wattkeeper.live.host.wall_clock import WallClock

IDLE_W = 30.0


@pytest.fixture(autouse=True)
def _state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WATTKEEPER_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("WATTKEEPER_DEVICE", "none")
    monkeypatch.delenv("WATTKEEPER_STORE", raising=False)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualTime:
    """The clock of this process's sessions and devices: trainings take no time but its sleeps.

    It is far ahead of that of other processes, which guard limits: what these change on a device
    does not lie in its future, however long they take.
    """
    return ManualTime(ahead_s=1e6).govern(monkeypatch, wall_clock)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SyntheticDevice:
    """A GPU that draws what `DRAWN` says, whatever runs."""
    limits = PowerRange(100.0, 200.0, 200.0)
    made = SyntheticDevice.create(tmp_path / "gpu", "SYN", limits, IDLE_W, WallClock())
    made.draw(DRAWN)
    monkeypatch.setenv("WATTKEEPER_DEVICE", f"synthetic:{tmp_path}/gpu")
    return made
