"""What the networks of a search are trained on, and what measures it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from wattkeeper.live import devices
from wattkeeper.live.devices.energy_meter import EnergyMeter, Reading
from wattkeeper.live.devices.nvml import ORDER, NvmlGpu
from wattkeeper.live.devices.rapl import CpuPackage
from wattkeeper.live.wire.clock import run_clock
from wattkeeper.policies.errors import EnvironmentLacks, InputError

if TYPE_CHECKING:
    from wattkeeper.live.devices.device import Device

CPU: Final = "CPU"

OF_CUDA: Final = {ORDER: "PCI_BUS_ID", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
"""Settings that CUDA reads when it begins: GPUs in its driver's order, sums always in one order."""


class Processor(NamedTuple):
    """What networks are trained on.

    Attributes:
        gpu_type: As the scenario and `wattkeeper doctor` call it; `CPU` if nothing measures it.
        torch_device: As torch calls it.
        measured: What measures it.
    """

    gpu_type: str
    torch_device: str
    measured: tuple[Device, ...]

    @property
    def power_limit_w(self) -> float | None:
        """The power limit in force, W; None if it takes none."""
        limits = [device.limit_w() for device in self.measured if device.limits is not None]
        return min(limits, default=None)


def is_unmeasured(gpu_type: str) -> bool:
    """Whether a scenario means this machine's CPU, without a meter: `CPU`, in any case."""
    return gpu_type.upper() == CPU


def processor_of(gpu_type: str) -> Processor:
    """The processor of a type, on this machine.

    The first GPU of that type that this process sees; for the type of a CPU, all its packages. On a
    synthetic device it is the CPU that trains. `OF_CUDA` is set for this process if CUDA is used.

    Raises:
        InputError: If there is none; it says which there are.
        EnvironmentLacks: If there is one that cannot be asked, or that torch does not see.
    """
    if is_unmeasured(gpu_type):
        return Processor(CPU, "cpu", ())
    there = devices.found()
    for at, device in enumerate(there):
        if device.gpu_type != gpu_type:
            continue
        if isinstance(device, CpuPackage):
            return Processor(gpu_type, "cpu", tuple(there))
        if not isinstance(device, NvmlGpu):
            return Processor(gpu_type, "cpu", (device,))
        for name, value in OF_CUDA.items():
            os.environ.setdefault(name, value)
        _check_cuda()
        return Processor(gpu_type, f"cuda:{at}", (device,))
    types = ", ".join(sorted({repr(device.gpu_type) for device in there}))
    also = f", {types}" if types else ""
    raise InputError(
        f"gpu: {gpu_type!r} is not on this machine; allowed: {CPU!r}{also}. `wattkeeper doctor` "
        "shows what is there, and how to try things without a GPU"
    )


def _check_cuda() -> None:
    import torch

    if not torch.cuda.is_available():
        raise EnvironmentLacks(
            "torch does not see the GPU that its driver shows: `wattkeeper doctor` says what to do"
        )


@contextmanager
def metered(processor: Processor) -> Iterator[Callable[[], Reading]]:
    """Measure what runs inside.

    Yields:
        What says how much was used until now, when all that was begun on the processor is over.
        Where nothing measures it, its time is CPU time.

    Raises:
        Lost: If the device is gone.
    """
    wait = _waiting(processor.torch_device)
    wait()
    if not processor.measured:
        began_s = time.process_time()
        yield lambda: Reading(time.process_time() - began_s, None, "absent")
        return
    meter = EnergyMeter(processor.measured, run_clock())

    def read() -> Reading:
        wait()
        return meter.read()

    try:
        yield read
    finally:
        meter.close()


def _waiting(torch_device: str) -> Callable[[], None]:
    """What waits until a processor has done all that was begun on it."""
    if torch_device == CPU.lower():
        return lambda: None
    import torch

    return partial(torch.cuda.synchronize, torch_device)
