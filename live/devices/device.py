"""The methods that all devices have, and ranges of power limits."""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from wattkeeper.policies.errors import DeviceError, InputError


class PowerRange(NamedTuple):
    """The power limits that a device may be given, W.

    Attributes:
        lowest_w: Smallest.
        highest_w: Largest.
        default_w: What its maker chose.
    """

    lowest_w: float
    highest_w: float
    default_w: float

    def check(self, limit_w: float, who: str) -> None:
        """Refuse a limit (W) that is out of range.

        Raises:
            DeviceError: It says what is allowed.
        """
        if not self.lowest_w <= limit_w <= self.highest_w:
            raise DeviceError(
                f"{who}: a power limit of {limit_w:g} W is out of range; allowed: "
                f"{self.lowest_w:g} to {self.highest_w:g} W"
            )


class Device(Protocol):
    """A GPU, or what else of a host counts its energy.

    Every method raises `wattkeeper.policies.errors.DeviceLost` once the device is gone.

    Attributes:
        uuid: Tells it from all others, on all hosts.
        gpu_type: Its type, as profiles call it.
        limits: What it may be limited to; None if it takes no limit.
        has_counter: Whether it counts its energy itself; else power is integrated.
        read_every_s: How often it must be read, s of the host, so that no energy is missed; None if
            a reading at the beginning and one at the end will do.
    """

    uuid: str
    gpu_type: str
    limits: PowerRange | None
    has_counter: bool
    read_every_s: float | None

    def energy_j(self) -> float:
        """Energy since some moment in the past, J.

        Raises:
            NotSupported: If it has no such counter.
        """

    def power_w(self) -> float:
        """What it draws now, W.

        Raises:
            NotSupported: If it cannot say.
        """

    def utilisation(self) -> float:
        """The share of the last moments in which it was busy, 0 to 1.

        Raises:
            NotSupported: If it cannot say.
        """

    def limit_w(self) -> float:
        """The power limit in force, W.

        Raises:
            NotSupported: If it takes no limit.
        """

    def set_limit_w(self, limit_w: float) -> None:
        """Put a power limit (W) in force.

        Raises:
            NotSupported: If it takes no limit.
            NoPermission: If this user may not.
            DeviceError: If the limit is out of range.
        """


class CommonRange(NamedTuple):
    """The power limits that several devices may all be given, W: smallest and largest."""

    lowest_w: float
    highest_w: float

    def check(self, limit_w: float) -> None:
        """Refuse a limit (W) that a user asks for and that is out of range.

        Raises:
            InputError: It says what is allowed.
        """
        if not self.lowest_w <= limit_w <= self.highest_w:
            raise InputError(
                f"found the power limit {limit_w:g} W; allowed: {self.lowest_w:g} to "
                f"{self.highest_w:g} W"
            )


def common_range(devices: Iterable[Device]) -> CommonRange | None:
    """The limits that all devices with a power limit accept; None if no device has one."""
    ranges = [device.limits for device in devices if device.limits is not None]
    if not ranges:
        return None
    return CommonRange(
        max(limits.lowest_w for limits in ranges), min(limits.highest_w for limits in ranges)
    )
