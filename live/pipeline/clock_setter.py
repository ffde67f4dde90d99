"""Sets the clock of the devices of one rank."""

from __future__ import annotations

from wattkeeper.live.pipeline.emulation import EmulatedMeter
from wattkeeper.live.pipeline.meters import RankMeter
from wattkeeper.policies.errors import EnvironmentLacks


class ClockSetter:
    """Puts clocks in force on the devices of a rank.

    Args:
        meter: Of the rank.

    Attributes:
        clocks_mhz: The clocks that may be set, MHz, ascending.

    Raises:
        EnvironmentLacks: If the devices are not emulated.
    """

    def __init__(self, meter: RankMeter) -> None:
        if not isinstance(meter, EmulatedMeter):
            raise EnvironmentLacks("clocks can be set on emulated devices only, so far")
        self._meter = meter
        self.clocks_mhz = meter.clocks_mhz

    def set_mhz(self, clock_mhz: int) -> None:
        """Put a clock (MHz) in force on each device."""
        self._meter.clock_mhz = clock_mhz
