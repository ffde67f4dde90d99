"""Clocks: what knows the time of a run, as policies and signals read it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol


class Clock(Protocol):
    """What knows the time of a run."""

    @property
    def now_s(self) -> float:
        """Time since the run began, s."""


class FixedTime(NamedTuple):
    """One time, s, at which all that is asked is asked."""

    now_s: float


class ElapsedTime(NamedTuple):
    """The time since a run began at `begun_s`, by a clock that is read in s."""

    read_s: Callable[[], float]
    begun_s: float = 0.0

    @property
    def now_s(self) -> float:
        """Time since the run began, s."""
        return self.read_s() - self.begun_s
