"""A clock that passes only where a test says so."""

from __future__ import annotations

import time
from types import ModuleType

import pytest


class ManualTime:
    """Stands for the module `time` in modules under test.

    Args:
        ahead_s: How far ahead of the host's clock it begins, s.

    Attributes:
        now_s: What it shows, s.
    """

    def __init__(self, ahead_s: float = 0.0) -> None:
        self.now_s = time.monotonic() + ahead_s

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
