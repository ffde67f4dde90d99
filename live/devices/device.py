"""The methods that all devices have, and ranges of power limits."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from wattkeeper.policies.errors import DeviceError, InputError, NotSupported


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
        clocks_mhz: The clocks that its cores may be locked to, MHz, ascending; empty if they cannot
            be locked.
        has_counter: Whether it counts its energy itself; else power is integrated.
        read_every_s: How often it must be read, s of the host, so that no energy is missed; None if
            a reading at the beginning and one at the end will do.
    """

    uuid: str
    gpu_type: str
    limits: PowerRange | None
    clocks_mhz: tuple[int, ...]
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

    def lock_clock_mhz(self, clock_mhz: int) -> None:
        """Lock the clock of its cores, MHz; a power limit or heat may still lower it.

        Raises:
            NotSupported: If it cannot be locked.
            NoPermission: If this user may not.
            DeviceError: If it is none of `clocks_mhz`.
        """

    def unlock_clock(self) -> None:
        """Let the device choose the clock again, whoever locked it.

        Raises:
            NotSupported: If it cannot be locked.
            NoPermission: If this user may not.
        """


def check_clock(clock_mhz: int, clocks_mhz: Sequence[int], who: str) -> None:
    """Refuse a clock (MHz) that a device cannot be locked to.

    Raises:
        NotSupported: If its clock cannot be locked.
        DeviceError: It says what is allowed.
    """
    if not clocks_mhz:
        raise NotSupported(f"{who}: its clock cannot be locked")
    if clock_mhz not in clocks_mhz:
        raise DeviceError(
            f"{who}: a clock of {clock_mhz} MHz is not supported; allowed: "
            f"{describe_clocks(clocks_mhz)}"
        )


def describe_clocks(clocks_mhz: Sequence[int]) -> str:
    """Clocks in words: their number and range."""
    if len(clocks_mhz) == 1:
        return f"{clocks_mhz[0]} MHz"
    return f"{len(clocks_mhz)} clocks from {clocks_mhz[0]} to {clocks_mhz[-1]} MHz"


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
