"""The processor that the networks of a search are trained on, and its energy meter."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from wattkeeper.live import devices
from wattkeeper.live.devices.device import Device
from wattkeeper.live.devices.energy_meter import EnergyMeter, Reading
from wattkeeper.live.devices.nvml import ORDER, NvmlGpu
from wattkeeper.live.devices.rapl import CpuPackage
from wattkeeper.live.wire.clock import run_clock
from wattkeeper.policies.errors import EnvironmentLacks, InputError

CPU: Final = "CPU"

CUDA_ENVIRONMENT: Final = {ORDER: "PCI_BUS_ID", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
"""Settings that CUDA reads at its start: GPUs in the driver's order, deterministic sums."""


class Processor(NamedTuple):
    """The processor that networks are trained on.

    Attributes:
        gpu_type: Name in scenarios and `wattkeeper doctor`; `CPU` if nothing measures it.
        torch_device: Name in torch.
        measured: The devices that measure its energy.
    """

    gpu_type: str
    torch_device: str
    measured: tuple[Device, ...]

    @property
    def power_limit_w(self) -> float | None:
        """The power limit in force, W; None if it has none."""
        limits = [device.limit_w() for device in self.measured if device.limits is not None]
        return min(limits, default=None)


def is_unmeasured(gpu_type: str) -> bool:
    """Whether a type is this machine's CPU without a meter: `CPU`, in upper or lower case."""
    return gpu_type.upper() == CPU


def find_processor(gpu_type: str) -> Processor:
    """Find the processor of a type on this machine.

    It is the first visible GPU of that type; for the type of a CPU, all its packages. With a
    synthetic device, the CPU trains. If CUDA is used, `CUDA_ENVIRONMENT` is set for this process.

    Raises:
        InputError: If there is none; it lists the available types.
        EnvironmentLacks: If there is one that cannot be read, or that torch does not see.
    """
    if is_unmeasured(gpu_type):
        return Processor(CPU, "cpu", ())
    available = devices.find_devices()
    for index, device in enumerate(available):
        if device.gpu_type != gpu_type:
            continue
        if isinstance(device, CpuPackage):
            return Processor(gpu_type, "cpu", tuple(available))
        if not isinstance(device, NvmlGpu):
            return Processor(gpu_type, "cpu", (device,))
        for name, value in CUDA_ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        import torch

        if not torch.cuda.is_available():
            raise EnvironmentLacks(
                "torch does not see the GPU that its driver lists: `wattkeeper doctor` says what "
                "to do"
            )
        return Processor(gpu_type, f"cuda:{index}", (device,))
    allowed = ", ".join([repr(CPU), *sorted({repr(device.gpu_type) for device in available})])
    raise InputError(
        f"gpu: {gpu_type!r} is not on this machine; allowed: {allowed}. `wattkeeper doctor` lists "
        "the devices, and how to use a synthetic one"
    )


@contextmanager
def meter(processor: Processor) -> Iterator[Callable[[], Reading]]:
    """Measure time and energy of the block.

    Yields:
        A function that waits for the processor's queued work and returns time and energy so far.
        Where nothing measures the processor, the time is CPU time.

    Raises:
        DeviceLost: If the device is gone.
    """

    def synchronize() -> None:
        if processor.torch_device != CPU.lower():
            import torch

            torch.cuda.synchronize(processor.torch_device)

    synchronize()
    if not processor.measured:
        began_s = time.process_time()
        yield lambda: Reading(time.process_time() - began_s, None, "absent")
        return
    energy_meter = EnergyMeter(processor.measured, run_clock())

    def read() -> Reading:
        synchronize()
        return energy_meter.read()

    try:
        yield read
    finally:
        energy_meter.close()
