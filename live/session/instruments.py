"""The devices of a session: their power limit, and the time and energy of its training."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress

from wattkeeper.live.devices import find_devices
from wattkeeper.live.devices.device import Device
from wattkeeper.live.devices.energy_meter import EnergyMeter, Reading
from wattkeeper.live.devices.power_limiter import Control, PowerLimiter, permitted_control
from wattkeeper.live.session.distributed import is_leader
from wattkeeper.live.wire import clock
from wattkeeper.policies.errors import DeviceError


class Instruments:
    """What a session measures with, and limits power with; of several processes, only rank 0 does.

    Args:
        control: Whether power limits may be set.

    Attributes:
        devices: Those of this process, once they are opened.
        power_limit_w: The limit in force, W; None if not known.
        limiter: Sets power limits, where they may be set.
        meter: Measures time and energy.
        before_s: Time of training before it was stopped and resumed, s.
        before_j: Energy of that, J.
    """

    limiter: PowerLimiter
    meter: EnergyMeter

    def __init__(self, control: Control) -> None:
        self.devices: Sequence[Device] = ()
        self.power_limit_w: float | None = None
        self.before_s = self.before_j = 0.0
        self._control = control

    def open(self, stack: ExitStack) -> None:
        """Find the devices; `stack` restores their limits and closes the meter.

        Raises:
            EnvironmentLacks: If a device cannot be asked.
            InputError: If the environment names wrong devices.
        """
        leads = is_leader()
        self.devices = find_devices() if leads else ()
        with suppress(DeviceError):
            self.power_limit_w = min((device.limit_w() for device in self.devices), default=None)
        control = permitted_control(self._control) if leads else "off"
        self.limiter = stack.enter_context(PowerLimiter(self.devices, control))
        self.meter = EnergyMeter(self.devices, clock.run_clock())
        stack.callback(self.meter.close)

    @property
    def gpu_type(self) -> str:
        """Type of the devices; `cpu` if there are none."""
        return "+".join(sorted({device.gpu_type for device in self.devices})) or "cpu"

    def limit(self, limit_w: float) -> None:
        """Put a limit (W) in force, where limits may be set."""
        if self.limiter.allowed:
            self.limiter.set_w(limit_w)
            self.power_limit_w = limit_w

    def read(self) -> Reading:
        """Time and energy now, after waiting for the GPU."""
        synchronise()
        return self.meter.read()

    def spent(self) -> tuple[float, float | None]:
        """Time (s) and energy (J) of the training so far; None where nothing measures it."""
        reading = self.meter.read()
        energy_j = None if reading.energy_j is None else self.before_j + reading.energy_j
        return self.before_s + reading.time_s, energy_j


def synchronise() -> None:
    """Wait until the GPU is idle, if torch uses one."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
