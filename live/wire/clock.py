"""The clock of the run that this process belongs to."""

import os
from contextlib import suppress
from functools import cache

from wattkeeper.live.host.wall_clock import STILL, WallClock
from wattkeeper.live.wire.client import (
    FIRST_PAUSE_S,
    RemoteCoordinator,
    coordinator_from_environment,
)
from wattkeeper.policies.errors import EnvironmentLacks


class RemoteWallClock(WallClock):
    """The time that the controller keeps.

    Args:
        coordinator: The link to it; if it stops answering, the time stands still.
    """

    def __init__(self, coordinator: RemoteCoordinator) -> None:
        super().__init__()
        self._coordinator = coordinator
        self._answered = False
        self._ask_once()

    def _ask_once(self) -> None:
        """Ask for the time, but do not wait: the guard of power limits outlives its controller."""
        patience_s, self._coordinator.patience_s = self._coordinator.patience_s, FIRST_PAUSE_S
        with suppress(EnvironmentLacks):
            self._coordinator.sleep_until(0.0)
            self._answered = True
        self._coordinator.patience_s = patience_s

    def now_s(self) -> float:
        """When the controller last answered: what this process does in between takes no time."""
        if not self._answered:  # it was being started again when this process was
            self._ask_once()
        return self._coordinator.now_s

    def sleep_until(self, time_s: float) -> None:
        """Sleep until a time of the run, s, or until the training shall stop."""
        if time_s > self._coordinator.now_s:
            self._coordinator.sleep_until(time_s)


def run_clock() -> WallClock:
    """The clock of the run that started this process; the host's own if none did.

    Raises:
        InputError: If the environment describes no clock (`WallClock.from_environment`).
    """
    return _controllers_clock() if os.environ.get(STILL) else WallClock.from_environment()


@cache
def _controllers_clock() -> RemoteWallClock:
    """One for the whole process."""
    return RemoteWallClock(coordinator_from_environment())
