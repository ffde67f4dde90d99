"""NVIDIA GPUs, by NVML through `pynvml` (the distribution nvidia-ml-py).

NVML's own documentation: docs.nvidia.com/deploy/nvml-api. Its milliwatts and millijoules stay here.
"""

import ctypes
import os
from collections.abc import Callable, Sequence
from typing import Any, Final

from wattkeeper.live.devices.device import PowerRange, check_clock
from wattkeeper.live.devices.nvml_errors import LIBRARY, NoDriver, convert_error, no_driver
from wattkeeper.policies.errors import DeviceLost, EnvironmentLacks, InputError, NotSupported

VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
ORDER: Final = "CUDA_DEVICE_ORDER"
SAMPLE_S: Final = 0.2
"""How often power is read where energy is not counted; recent GPUs give its mean over a second."""


class NvmlGpu:
    """A GPU; see `wattkeeper.live.devices.device.Device`.

    Attributes:
        index: Its place in NVML's order, which `nvidia-smi` shows too.
        name: Its index and UUID, for messages.

    Raises:
        NotSupported: If it is in MIG mode.
        DeviceLost: If it is gone.
    """

    def __init__(self, handle: Any) -> None:
        import pynvml

        self._nvml = pynvml
        self._handle = handle
        self.name = "a GPU"
        self.index = int(self._ask(pynvml.nvmlDeviceGetIndex))
        self.name = f"GPU {self.index}"
        self.uuid = str(self._ask(pynvml.nvmlDeviceGetUUID))
        self.name = f"GPU {self.index} ({self.uuid})"
        self.gpu_type = gpu_type(self._ask(pynvml.nvmlDeviceGetName))
        self._refuse_mig()
        try:
            self.energy_j()
            self.has_counter = True
        except NotSupported:
            self.has_counter = False
        self.read_every_s: float | None = None if self.has_counter else SAMPLE_S
        self.limits = self._limits()
        self.clocks_mhz = self._clocks_mhz()

    def energy_j(self) -> float:
        """Energy since the driver was loaded, J; GPUs since Volta count it."""
        return int(self._ask(self._nvml.nvmlDeviceGetTotalEnergyConsumption)) / 1e3

    def power_w(self) -> float:
        """What it draws with its memory, W: now, or averaged over a second, as its type does it."""
        return int(self._ask(self._nvml.nvmlDeviceGetPowerUsage)) / 1e3

    def utilisation(self) -> float:
        """The share of the last moments (up to 1 s) in which some kernel ran, 0 to 1."""
        return int(self._ask(self._nvml.nvmlDeviceGetUtilizationRates).gpu) / 100

    def limit_w(self) -> float:
        """The power limit in force, W."""
        return int(self._ask(self._nvml.nvmlDeviceGetPowerManagementLimit)) / 1e3

    def set_limit_w(self, limit_w: float) -> None:
        """Put a power limit (W) in force; it lasts beyond this process."""
        if self.limits is None:
            raise NotSupported(f"{self.name}: it takes no power limit")
        self.limits.check(limit_w, self.name)
        self._ask(self._nvml.nvmlDeviceSetPowerManagementLimit, round(limit_w * 1e3))

    def lock_clock_mhz(self, clock_mhz: int) -> None:
        """Lock the graphics clock, MHz; it lasts beyond this process, until the next boot."""
        check_clock(clock_mhz, self.clocks_mhz, self.name)
        self._ask(self._nvml.nvmlDeviceSetGpuLockedClocks, clock_mhz, clock_mhz)

    def unlock_clock(self) -> None:
        """Reset the range of the graphics clock, which NVML cannot be asked for before."""
        self._ask(self._nvml.nvmlDeviceResetGpuLockedClocks)

    def others(self) -> tuple[int, ...]:
        """Ids of the other processes that compute on it, as far as the driver shows them."""
        try:
            processes = self._ask(self._nvml.nvmlDeviceGetComputeRunningProcesses)
        except NotSupported:  # an old driver
            return ()
        return tuple(sorted({int(process.pid) for process in processes} - {os.getpid()}))

    def _limits(self) -> PowerRange | None:
        nvml = self._nvml
        try:
            lowest, highest = self._ask(nvml.nvmlDeviceGetPowerManagementLimitConstraints)
            default = self._ask(nvml.nvmlDeviceGetPowerManagementDefaultLimit)
        except NotSupported:
            return None
        return PowerRange(lowest / 1e3, highest / 1e3, default / 1e3)

    def _clocks_mhz(self) -> tuple[int, ...]:
        """The graphics clocks at the highest memory clock; empty where NVML lists none."""
        nvml = self._nvml
        try:
            memory_mhz = max(self._ask(nvml.nvmlDeviceGetSupportedMemoryClocks))
            clocks = self._ask(nvml.nvmlDeviceGetSupportedGraphicsClocks, memory_mhz)
        except (NotSupported, ValueError):
            return ()
        return tuple(sorted({int(clock_mhz) for clock_mhz in clocks}))

    def _refuse_mig(self) -> None:
        try:
            current, _ = self._ask(self._nvml.nvmlDeviceGetMigMode)
        except NotSupported:  # older than Ampere
            return
        if current == self._nvml.NVML_DEVICE_MIG_ENABLE:
            raise NotSupported(
                f"{self.name} is in MIG mode: energy and power limit are the whole GPU's, and no "
                "training in one of its instances can be told from the others. Turn MIG off "
                f"(nvidia-smi -i {self.index} -mig 0, as root), name another GPU in {VISIBLE}, or "
                "train without measuring energy: WATTKEEPER_DEVICE=none"
            )

    def _ask(self, function: Callable[..., Any], *arguments: object) -> Any:
        return _ask(function, self._handle, *arguments, device=self.name)


def gpus(visible: str | None = None, order: str | None = None) -> list[NvmlGpu]:
    """The GPUs that CUDA shows this process, in CUDA's order.

    Args:
        visible: `CUDA_VISIBLE_DEVICES`: indices, or UUIDs or their beginnings; None: all of them.
            What stands behind the first that does not exist is left out, as CUDA does.
        order: `CUDA_DEVICE_ORDER`.

    Raises:
        NoDriver: If no driver runs here.
        EnvironmentLacks: If a driver runs and cannot be asked.
        DeviceError: If a GPU cannot be used: in MIG mode, or lost.
        InputError: If `visible` does not say which GPUs are meant.
    """
    handles = _handles()
    if visible is None:
        return [NvmlGpu(handle) for handle in handles]
    words = [word.strip() for word in visible.split(",")]
    if mig := [word for word in words if word.startswith("MIG-")]:
        raise NotSupported(
            f"{VISIBLE} names {mig[0]}, an instance of a GPU in MIG mode, whose energy is not "
            "counted separately. Name a whole GPU, or train without measuring energy: "
            "WATTKEEPER_DEVICE=none"
        )
    import pynvml

    uuids = [str(_ask(pynvml.nvmlDeviceGetUUID, handle)) for handle in handles]
    chosen: list[int] = []
    for word in words:
        index = _find_index(word, uuids)
        if index is None:
            break
        if index in chosen:  # CUDA then shows none at all
            raise InputError(f"{VISIBLE} is {visible!r}, which names {uuids[index]} twice")
        chosen.append(index)
    if order != "PCI_BUS_ID" and any(word.isdecimal() for word in words[: len(chosen)]):
        _refuse_ambiguous(handles, visible)
    return [NvmlGpu(handles[index]) for index in chosen]


def visible_gpus() -> list[NvmlGpu]:
    """The GPUs that CUDA shows this process, as its environment says; errors as of `gpus`."""
    return gpus(os.environ.get(VISIBLE), os.environ.get(ORDER))


def find_gpu(uuid: str) -> NvmlGpu:
    """The GPU with a UUID.

    Raises:
        DeviceLost: If it is gone.
        EnvironmentLacks: If no driver can be asked.
    """
    _start()
    import pynvml

    try:
        return NvmlGpu(pynvml.nvmlDeviceGetHandleByUUID(uuid))
    except pynvml.NVMLError_NotFound:
        raise DeviceLost(
            f"no GPU has the UUID {uuid}: it was taken out, or has fallen off"
        ) from None
    except pynvml.NVMLError as error:
        raise convert_error(error) from None


def gpu_type(name: str) -> str:
    """NVML's name of a GPU type without the maker's: of `NVIDIA A100-SXM4-40GB`, A100-...

    The rest stays as it is, since forms of one chip differ in their limits and speed.
    """
    for maker in ("NVIDIA ", "Tesla "):
        name = name.removeprefix(maker)
    return name


def _find_index(word: str, uuids: Sequence[str]) -> int | None:
    """The index of the GPU that an entry of `CUDA_VISIBLE_DEVICES` names; None if none has it."""
    if word.isdecimal():
        return int(word) if int(word) < len(uuids) else None
    if not word.startswith("GPU-"):
        return None
    indices = [i for i, uuid in enumerate(uuids) if uuid.lower().startswith(word.lower())]
    return indices[0] if len(indices) == 1 else None


def _refuse_ambiguous(handles: Sequence[Any], visible: str) -> None:
    """Refuse indices of GPUs of several types: CUDA puts the fastest first, NVML sorts by bus."""
    import pynvml

    types = sorted({gpu_type(_ask(pynvml.nvmlDeviceGetName, handle)) for handle in handles})
    if len(types) > 1:
        raise InputError(
            f"{VISIBLE}={visible} counts GPUs of several types ({', '.join(types)}), whose order "
            f"differs between CUDA and its driver. Set {ORDER}=PCI_BUS_ID, or name UUIDs "
            "(nvidia-smi -L shows them)"
        )


def _handles() -> list[Any]:
    _start()
    import pynvml

    count = _ask(pynvml.nvmlDeviceGetCount)
    return [_ask(pynvml.nvmlDeviceGetHandleByIndex, index) for index in range(count)]


def _start() -> None:
    """Initialise NVML, which counts how often; it is never shut down before the process ends."""
    try:
        import pynvml
    except ModuleNotFoundError:
        try:
            ctypes.CDLL(LIBRARY)
        except OSError:
            raise NoDriver(no_driver()) from None
        raise EnvironmentLacks(
            "a driver of NVIDIA's is there, and nothing to ask it with: "
            "pip install 'wattkeeper[live]'"
        ) from None
    _ask(pynvml.nvmlInit)


def _ask(function: Callable[..., Any], *arguments: object, device: str = "") -> Any:
    import pynvml

    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        raise convert_error(error, device) from None
