"""A clock that passes only where a test says so."""

from __future__ import annotations

import time
from types import ModuleType

import pytest


class ManualTime:
    """Stands for the module `time` in modules under test.

    Attributes:
        now_s: What it shows, s; it begins where the host's clock is.
    """

    def __init__(self) -> None:
        self.now_s = time.monotonic()

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
