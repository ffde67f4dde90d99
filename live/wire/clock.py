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
        coordinator: The link to it; once it has answered, the time stands still where it does not.

    Attributes:
        waits: Whether the first answer is waited for, as long as any other. The guard of power
            limits, which may outlive the controller, does not wait: its time is 0 until then.
    """

    waits = True

    def __init__(self, coordinator: RemoteCoordinator) -> None:
        super().__init__()
        self._coordinator = coordinator
        self._answered = False

    def _ask(self) -> None:
        if self.waits:
            self._coordinator.sleep_until(0.0)
            self._answered = True
            return
        patience_s, self._coordinator.patience_s = self._coordinator.patience_s, FIRST_PAUSE_S
        with suppress(EnvironmentLacks):
            self._coordinator.sleep_until(0.0)
            self._answered = True
        self._coordinator.patience_s = patience_s

    def now_s(self) -> float:
        """When the controller last answered: what this process does in between takes no time.

        Raises:
            EnvironmentLacks: If it has never answered, and does not while this waits for it.
        """
        if not self._answered:  # it was being started again when this process was
            self._ask()
        return self._coordinator.now_s

    def sleep_until(self, time_s: float) -> None:
        """Sleep until a time of the run, s, or until the training shall stop."""
        if time_s > self.now_s():
            self._coordinator.sleep_until(time_s)

    def sleep_with_limit(self, time_s: float, limit_w: float | None) -> tuple[bool, float | None]:
        """Sleep until a time of the run, s, or until another power limit than this one holds, W.

        Returns:
            Whether the training continues, and the power limit from now on.
        """
        self._coordinator.power_limit_w = limit_w
        goes_on = self._coordinator.sleep_until(time_s)
        return goes_on, self._coordinator.power_limit_w


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
