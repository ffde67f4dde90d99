"""Converts errors of NVML to errors with their meaning and advice."""

from typing import Any, Final

from wattkeeper.policies.errors import (
    DeviceError,
    DeviceLost,
    EnvironmentLacks,
    NoPermission,
    NotSupported,
)

LIBRARY: Final = "libnvidia-ml.so.1"

NO_PERMISSION: Final = 4
DRIVER_NOT_LOADED: Final = 9
LIBRARY_NOT_FOUND: Final = 12
BLOCKED: Final = 17
"""As `pynvml.NVML_ERROR_...`; BLOCKED is its OPERATING_SYSTEM."""


class NoDriver(EnvironmentLacks):
    """No driver of NVIDIA's runs here: nothing is broken, there is just no GPU to use."""


def no_driver() -> str:
    """The message where NVML's library is missing."""
    return (
        f"no driver of NVIDIA's runs here ({LIBRARY} is not to be found). If this host has such a "
        "GPU, install the driver; in a container, start it with the GPU (docker run --gpus all)"
    )


def convert_error(error: Any, device: str = "") -> EnvironmentLacks:
    """The error to raise for one of NVML, with its meaning and advice.

    Args:
        error: A `pynvml.NVMLError`.
        device: Its device; empty if it is about the driver, or the way to a device.
    """
    code = error.value
    if code == LIBRARY_NOT_FOUND:
        return NoDriver(no_driver())
    if code == DRIVER_NOT_LOADED:
        return NoDriver(
            "NVIDIA's libraries are here, but no driver is loaded. Load it (modprobe nvidia, as "
            "root); in a container, start it with the GPU (docker run --gpus all)"
        )
    if code == NO_PERMISSION and not device:
        code = BLOCKED
    kind, text = _TEXTS.get(code, (DeviceError, ""))
    if not text:
        text = (
            f"NVML answers with error {code} ({error}). `nvidia-smi` may say more; if it fails "
            "too, restart the driver or the host"
        )
    return kind(f"{device or 'the driver of NVIDIA'}: {text}")


_TEXTS: Final[dict[int, tuple[type[EnvironmentLacks], str]]] = {
    3: (NotSupported, "this GPU, or its driver, does not do that"),
    13: (NotSupported, "its driver is too old for that; update the driver"),
    NO_PERMISSION: (
        NoPermission,
        "this user may not do that. Setting power limits and clocks takes root, or the capability "
        "CAP_SYS_ADMIN in a container; else the run goes on with what is set",
    ),
    2: (DeviceError, "the driver refuses the value as out of range"),
    15: (
        DeviceLost,
        "the GPU is lost: it has fallen off the bus. Look at `dmesg` for Xid errors; reset it or "
        "restart the host",
    ),
    16: (DeviceLost, "the GPU needs a reset (nvidia-smi -r, as root, when nothing uses it)"),
    28: (DeviceLost, "the GPU is not there any more"),
    1: (DeviceLost, "the driver was unloaded; load it again"),
    18: (
        EnvironmentLacks,
        "the driver was updated, and the old one is still loaded: restart the host, or reload the "
        "driver when nothing uses it",
    ),
    BLOCKED: (
        NoPermission,
        "the system refuses access to the GPU: this user needs /dev/nvidiactl and /dev/nvidia*, "
        "or the container must be started with them",
    ),
    14: (DeviceError, "its inforom is corrupted, so that nothing of it can be trusted"),
}
"""By NVML's code."""
