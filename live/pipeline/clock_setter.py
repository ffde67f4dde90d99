"""Locks the clocks of the devices of one rank."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from wattkeeper.live.devices.device import Device
from wattkeeper.live.devices.power_limiter import Control, PowerLimiter
from wattkeeper.live.session.session import POWER_CONTROL
from wattkeeper.policies.errors import EnvironmentLacks


class ClockSetter:
    """Locks clocks on all devices of a rank while it is entered.

    On leaving, also after an error, they are unlocked; a guard does that if the process is killed.

    Attributes:
        clocks_mhz: The clocks that all of the devices may be locked to, MHz, ascending.
    """

    def __init__(self, devices: Sequence[Device]) -> None:
        common = set.intersection(*(set(device.clocks_mhz) for device in devices))
        self.clocks_mhz = tuple(sorted(common))
        control: Control = "off" if os.environ.get(POWER_CONTROL) == "off" else "auto"
        self._limiter = PowerLimiter(devices, control, clocks=True)
        self._locked_mhz = 0

    def __enter__(self) -> Self:
        """Start to guard the devices.

        Raises:
            EnvironmentLacks: If their clocks cannot be locked; it says why.
        """
        self._limiter.__enter__()
        if not self._limiter.allowed:
            raise EnvironmentLacks(f"plans of clocks cannot be carried out: {self._limiter.why}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._limiter.close()

    def set_mhz(self, clock_mhz: int) -> None:
        """Lock each device to a clock (MHz), unless it is.

        Raises:
            EnvironmentLacks: If they cannot be locked any more.
        """
        if clock_mhz == self._locked_mhz:
            return
        if not self._limiter.lock_mhz(clock_mhz):
            raise EnvironmentLacks(f"clocks cannot be locked any more: {self._limiter.why}")
        self._locked_mhz = clock_mhz
