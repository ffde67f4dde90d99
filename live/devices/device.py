"""What all devices can be asked."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Limits(NamedTuple):
    """The power limits that a device may be given, W.

    Attributes:
        lowest_w: Smallest.
        highest_w: Largest.
        default_w: What its maker chose.
    """

    lowest_w: float
    highest_w: float
    default_w: float


class Device(Protocol):
    """A GPU, or what else of a host counts its energy.

    Every method raises `wattkeeper.policies.errors.Lost` once the device is gone.

    Attributes:
        uuid: Tells it from all others, on all hosts.
        gpu_type: Its type, as profiles call it.
        limits: What it may be limited to; None if it takes no limit.
        has_counter: Whether it counts its energy itself; else power is integrated.
    """

    uuid: str
    gpu_type: str
    limits: Limits | None
    has_counter: bool

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
