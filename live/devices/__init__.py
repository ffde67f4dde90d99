"""Devices that measure energy and take power limits: GPUs, CPU packages, a synthetic GPU."""

import os
from pathlib import Path
from typing import Final

from wattkeeper.live.devices import nvml, rapl, synthetic
from wattkeeper.live.devices.device import Device
from wattkeeper.live.devices.nvml_errors import NoDriver
from wattkeeper.live.wire.clock import run_clock
from wattkeeper.policies.errors import InputError, NoPermission

VARIABLE: Final = "WATTKEEPER_DEVICE"
NONE: Final = "none"


def find_devices() -> list[Device]:
    """The devices of this process; empty if none measures energy (see `explain_absence`).

    `WATTKEEPER_DEVICE` decides if it is set: `none`, or `synthetic:` and a GPU type or files of
    synthetic devices with commas between. Else: the GPUs of `CUDA_VISIBLE_DEVICES`; where CUDA has
    none, the CPU packages.

    Raises:
        EnvironmentLacks: If there is a GPU and it cannot be asked: its driver is broken, this user
            may not, it is in MIG mode or lost.
        InputError: If `WATTKEEPER_DEVICE` or `CUDA_VISIBLE_DEVICES` does not say what is meant.
    """
    if wanted := os.environ.get(VARIABLE, ""):
        return _find_named(wanted)
    return _search_host()[0]


def explain_absence() -> str:
    """Why `find_devices` finds none, and what to do; empty if it finds one."""
    if os.environ.get(VARIABLE) == NONE:
        return f"{VARIABLE} is {NONE}: nothing is measured"
    return "" if find_devices() else _search_host()[1]


def find_device(uuid: str) -> Device:
    """The device with a UUID that takes power limits.

    Raises:
        DeviceLost: If it is gone.
        EnvironmentLacks: If it cannot be asked.
    """
    if uuid.startswith(synthetic.PREFIX):
        return synthetic.SyntheticDevice(Path(uuid.removeprefix(synthetic.PREFIX)))
    return nvml.find_gpu(uuid)


def _search_host() -> tuple[list[Device], str]:
    """The devices of this host; if there are none, also why."""
    try:
        if gpus := nvml.visible_gpus():
            return [*gpus], ""
        shown = os.environ.get(nvml.VISIBLE)
        gpu = "none" if shown is None else f"{nvml.VISIBLE}={shown} shows none"
    except NoDriver as error:
        gpu = str(error)
    try:
        if packages := rapl.packages():
            return [*packages], ""
        cpu = f"{rapl.ROOT} has no RAPL package, as in most virtual machines and containers"
    except NoPermission as error:  # as on most hosts
        cpu = str(error)
    return [], f"GPU: {gpu}\nCPU: {cpu}"


def _find_named(wanted: str) -> list[Device]:
    if wanted == NONE:
        return []
    prefix = synthetic.PREFIX
    names = wanted.removeprefix(prefix)
    if not names or names == wanted:
        raise InputError(
            f"{VARIABLE} is {wanted!r}; allowed: {NONE}, {prefix}GPU_TYPE, or {prefix}FILE with a "
            "/ in it; or leave it unset"
        )
    return [
        synthetic.SyntheticDevice(Path(name))
        if "/" in name
        else synthetic.open_by_type(name, run_clock())
        for name in names.split(",")
    ]
