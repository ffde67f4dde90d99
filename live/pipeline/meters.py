"""Time and energy of a rank of a pipeline, measured on its devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from wattkeeper.live.devices.device import Device
from wattkeeper.live.devices.energy_meter import EnergyMeter
from wattkeeper.live.devices.synthetic import SyntheticDevice
from wattkeeper.live.host.wall_clock import WallClock
from wattkeeper.live.pipeline.emulation import EmulatedMeter, EmulatedPipeline
from wattkeeper.live.pipeline.exchange import StageExchange
from wattkeeper.live.session.instruments import synchronise
from wattkeeper.policies.errors import EnvironmentLacks, InputError
from wattkeeper.policies.pipeline.graph import PipelineGraph


class RankMeter(Protocol):
    """Counts time and energy of one rank."""

    def now_s(self) -> float:
        """Time of this rank, s."""

    def energy_j(self) -> float:
        """Energy of its devices so far, J."""

    def begin_iteration(self, number: int) -> None:
        """Begin an iteration, counted from 1; 0 in the profiling."""

    def begin(self, index: int) -> None:
        """Begin an instruction, by its number in the graph; what it waits for is there."""

    def end(self, index: int) -> None:
        """End it."""

    def meet(self, time_s: float) -> None:
        """Continue, with all ranks, from a time on, s."""

    def close(self) -> None:
        """Count no more."""


class DeviceMeter:
    """Time of the host and energy of devices; see `RankMeter` for its methods.

    An instruction begins and ends with all that CUDA was given before, which is waited for.

    Args:
        devices: Of this rank.

    Raises:
        EnvironmentLacks: If they do not measure energy.
    """

    def __init__(self, devices: Sequence[Device]) -> None:
        self._wall = WallClock()
        self._meter = EnergyMeter(devices, self._wall)
        if self._meter.how == "absent":
            self._meter.close()
            raise EnvironmentLacks(
                "no device of this rank measures energy, and plans of clocks need it; "
                "`wattkeeper doctor` says why"
            )

    def now_s(self) -> float:
        """Time of the host, s."""
        return self._wall.now_s()

    def energy_j(self) -> float:
        """Energy of the devices, J."""
        return self._meter.read().energy_j or 0.0

    def begin_iteration(self, number: int) -> None:
        """Wait for CUDA."""
        synchronise()

    def begin(self, index: int) -> None:
        """Wait for CUDA."""
        synchronise()

    def end(self, index: int) -> None:
        """Wait for CUDA."""
        synchronise()

    def meet(self, time_s: float) -> None:
        """Nothing: time passes by itself."""

    def close(self) -> None:
        """Count no more."""
        self._meter.close()


def make_meter(
    devices: Sequence[Device],
    emulated: EmulatedPipeline | None,
    exchange: StageExchange,
    graph: PipelineGraph,
) -> RankMeter:
    """The meter of a rank; `emulated`: what instructions take on synthetic devices.

    Raises:
        InputError: If synthetic devices are not emulated, or others are.
        EnvironmentLacks: If the devices measure no energy.
    """
    synthetic = [device for device in devices if isinstance(device, SyntheticDevice)]
    if emulated is None:
        if synthetic:
            raise InputError(
                f"{synthetic[0].uuid} is a synthetic device; say what instructions take on it "
                "(emulate), or leave WATTKEEPER_DEVICE unset"
            )
        return DeviceMeter(devices)
    if not synthetic or len(synthetic) < len(devices):
        raise InputError("only synthetic devices are emulated (WATTKEEPER_DEVICE=synthetic:FILE)")
    return EmulatedMeter(synthetic, emulated, exchange, graph)
