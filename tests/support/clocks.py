"""A clock that passes only where a test says so."""

from __future__ import annotations

import time
from types import ModuleType
from typing import Final

import pytest

AHEAD_S: Final = 1e6


class ManualTime:
    """Stands for the module `time` in modules under test.

    Attributes:
        now_s: What it shows, s. It begins far ahead of the host's clock, which other processes of a
            test see: what they change on a synthetic device does not lie in its future, however
            long they take.
    """

    def __init__(self) -> None:
        self.now_s = time.monotonic() + AHEAD_S

    def monotonic(self) -> float:
        """The time that it shows, s."""
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += seconds

    def govern(self, monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> ManualTime:
        """Give modules this clock until the end of the test."""
        for module in modules:
            monkeypatch.setattr(module, "time", self)
        return self
