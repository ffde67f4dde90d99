"""Measures the energy and time of devices between two moments."""

import threading
from collections.abc import Sequence
from typing import NamedTuple

from wattkeeper.live.devices.device import Device
from wattkeeper.live.devices.synthetic import SyntheticDevice
from wattkeeper.live.host.wall_clock import WallClock
from wattkeeper.live.wire.messages import EnergySource
from wattkeeper.policies.errors import DeviceError, DeviceLost, NotSupported


class Reading(NamedTuple):
    """Time and energy since the beginning of a measurement.

    Attributes:
        time_s: Seconds of the run.
        energy_j: Energy of all devices together; None where nothing measures it.
        how: Where the energy is from; `synthetic` or else `integrated` if it is so for one device.
    """

    time_s: float
    energy_j: float | None
    how: EnergySource


class EnergyMeter:
    """Measures devices; a thread reads those that must be read again and again, and only those.

    Args:
        devices: Whose energy is summed; if one of them can tell neither energy nor power, or if
            there is none, energy is absent.
        wall: The clock; that of the devices if they are synthetic.

    Raises:
        DeviceLost: If a device is gone.
    """

    def __init__(self, devices: Sequence[Device], wall: WallClock) -> None:
        self._wall = wall
        self._lock = threading.Lock()
        self._error: DeviceError | None = None
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        is_counted = all(device.has_counter for device in devices)
        self.how: EnergySource = "counter" if is_counted else "integrated"
        if any(isinstance(device, SyntheticDevice) for device in devices):
            self.how = "synthetic"
        self._parts = [_Counter(item) if item.has_counter else _Power(item) for item in devices]
        try:
            self.begin()
        except NotSupported:
            self._parts = []
        if not self._parts:
            self.how = "absent"
        every_s = [s for part in self._parts if (s := part.device.read_every_s) is not None]
        if every_s:
            self._thread = threading.Thread(
                target=self._watch, args=(min(every_s),), name="wattkeeper-meter", daemon=True
            )
            self._thread.start()

    def begin(self) -> None:
        """Count from now on."""
        with self._lock:
            self._begun_s = self._wall.now_s()
            for part in self._parts:
                part.begin(self._begun_s)

    def read(self) -> Reading:
        """Time and energy since `begin`, or since the meter was made.

        Raises:
            DeviceLost: If a device is gone, now or since the last reading.
        """
        with self._lock:
            if self._error is not None:
                raise self._error
            now_s = self._wall.now_s()
            time_s = now_s - self._begun_s
            if self.how == "absent":
                return Reading(time_s, None, "absent")
            energy_j = sum(part.read(now_s) for part in self._parts)
            return Reading(time_s, energy_j, self.how)

    def close(self) -> None:
        """Stop reading."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self, every_s: float) -> None:
        while not self._closed.wait(every_s):
            with self._lock:
                now_s = self._wall.now_s()
                try:
                    for part in self._parts:
                        if part.device.read_every_s is not None:
                            part.read(now_s)
                except DeviceError as error:
                    self._error = error
                    return


class _Counter:
    """A device that counts its energy."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def begin(self, now_s: float) -> None:
        self._begun_j = self._now_j(now_s)

    def read(self, now_s: float) -> float:
        energy_j = self._now_j(now_s) - self._begun_j
        if energy_j < 0:
            raise DeviceLost(
                f"{self.device.uuid}: its energy counter began anew; the driver was loaded again, "
                "or the device was reset"
            )
        return energy_j

    def _now_j(self, now_s: float) -> float:
        if isinstance(self.device, SyntheticDevice):  # to the moment: its clock may run fast
            return self.device.energy_j(now_s)
        return self.device.energy_j()


class _Power:
    """A device whose power is integrated, by trapezoids between readings."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def begin(self, now_s: float) -> None:
        self._energy_j, self._last_s, self._last_w = 0.0, now_s, self.device.power_w()

    def read(self, now_s: float) -> float:
        power_w = self.device.power_w()
        self._energy_j += (power_w + self._last_w) / 2 * (now_s - self._last_s)
        self._last_s, self._last_w = now_s, power_w
        return self._energy_j
