"""What of this host live runs can use, and what to do about the rest."""

from __future__ import annotations

import platform
import re
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from typing import Any, Final, Literal, NamedTuple

from wattkeeper.live import devices
from wattkeeper.live.devices import limit_journal
from wattkeeper.live.devices.device import Device
from wattkeeper.live.devices.nvml import VISIBLE, NvmlGpu, visible
from wattkeeper.live.devices.power_limiter import PowerLimiter
from wattkeeper.policies.errors import EnvironmentLacks, NotSupported, WattkeeperError
from wattkeeper.traces.files.user_dirs import STATE, state_folder

State = Literal["good", "note", "fault"]
"""As it should be; a live run does without it; a live run here ends with an error."""

NEEDED: Final = "live"
EXTRAS: Final = {
    NEEDED: "live runs and the zoo",
    "ray": "runs on several hosts",
    "postgres": "a store that several hosts share",
}
REQUIREMENT: Final = re.compile(r"([\w.-]+)[^;]*;.*extra == ['\"](\w+)['\"]")
COLUMNS: Final = 120
PYTORCH: Final = "https://pytorch.org/get-started/locally"


class Finding(NamedTuple):
    """One thing that was looked at.

    Attributes:
        what: The thing.
        state: How it is.
        found: What was found.
        do: What to do about it; empty if it is good, or if `found` says it.
    """

    what: str
    state: State
    found: str
    do: str = ""


class Report(NamedTuple):
    """What was found.

    Attributes:
        findings: In the order in which they are shown.
        devices: What each device says, as JSON values.
    """

    findings: list[Finding]
    devices: list[dict[str, Any]]

    @property
    def can_run_live(self) -> bool:
        """Whether nothing that was found makes a live run fail."""
        return all(finding.state != "fault" for finding in self.findings)


def examine(*, look_only: bool = False) -> Report:
    """Look at this host, and put back the power limits that killed runs left behind.

    Args:
        look_only: Put nothing back, and do not try whether limits may be set.
    """
    there: list[Device] = []
    told: list[dict[str, Any]] = []
    of_devices: list[Finding] = []
    try:
        there = devices.found()
        if not there:
            of_devices.append(_nothing())
        for device in there:  # before torch may compute on them
            told.append(_values(device))
            of_devices += _device(told[-1])
    except WattkeeperError as error:
        of_devices.append(Finding("devices", "fault", str(error)))
    if not look_only:
        of_devices += _limits(there)
    version = f"{metadata.version('wattkeeper')}, Python {platform.python_version()}"
    of_host = [Finding("wattkeeper", "good", version), *_packages(), _torch(), _state()]
    return Report(of_host + of_devices, told)


def _packages() -> Iterator[Finding]:
    """What the extras for live runs ask for."""
    for extra, purpose in EXTRAS.items():
        there, missing = [], []
        for requirement in metadata.requires("wattkeeper") or ():
            match = REQUIREMENT.match(requirement)
            if match is None or match[2] != extra:
                continue
            try:
                there.append(f"{match[1]} {metadata.version(match[1])}")
            except metadata.PackageNotFoundError:
                missing.append(match[1])
        if missing:
            lacks = f"not installed: {', '.join(missing)}, for {purpose}"
            install = f"pip install 'wattkeeper[{extra}]'"
            yield Finding(extra, "fault" if extra == NEEDED else "note", lacks, install)
        elif there:
            yield Finding(extra, "good", ", ".join(there))


def _torch() -> Finding:
    try:
        import torch

        names = [torch.cuda.get_device_name(at) for at in range(torch.cuda.device_count())]
    except Exception as error:  # a broken installation may raise anything
        install = "pip install 'wattkeeper[live]'; a script of yours without torch needs none"
        return Finding("torch", "fault", f"it cannot be used: {error}", install)
    build = torch.version.cuda
    if names:
        return Finding("torch", "good", f"CUDA {build}, {len(names)} x {', '.join(set(names))}")
    try:
        has_gpu = bool(visible())
    except WattkeeperError:
        has_gpu = False
    if not has_gpu:
        return Finding("torch", "good", "no CUDA: it trains on the CPU")
    if build is None:
        do = f"this build is for CPUs; {PYTORCH} names one for CUDA"
    else:
        do = f"it is built for CUDA {build}, which may need a newer driver; {PYTORCH} names others"
    return Finding("torch", "fault", "there is a GPU that torch does not see", do)


def _state() -> Finding:
    try:
        folder = state_folder()
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return Finding("state", "good", str(folder))
    except EnvironmentLacks as error:
        return Finding("state", "fault", str(error))
    except OSError as error:
        do = f"set {STATE} to a folder that this user may write to"
        return Finding("state", "fault", f"{error.filename}: {error.strerror}", do)


def _nothing() -> Finding:
    return Finding(
        "devices",
        "note",
        f"nothing measures energy here\n{devices.absent()}",
        "energy of trainings is absent, and only time can be saved (eta: 0). To try things, "
        f"{devices.VARIABLE}=synthetic:SYN-250W stands in for a GPU",
    )


def _values(device: Device) -> dict[str, Any]:
    """What a device says; None where it does not."""
    limits = device.limits
    return {
        "name": device.name if isinstance(device, NvmlGpu) else device.uuid,
        "is_gpu": isinstance(device, NvmlGpu),
        "uuid": device.uuid,
        "gpu_type": device.gpu_type,
        "has_counter": device.has_counter,
        "limits_w": None if limits is None else limits._asdict(),
        "limit_w": _said(device.limit_w),
        "power_w": _said(device.power_w),
        "utilisation": _said(device.utilisation),
        "others": list(device.others()) if isinstance(device, NvmlGpu) else [],
    }


def _said(ask: Callable[[], float]) -> float | None:
    try:
        return ask()
    except NotSupported:
        return None


def _device(values: dict[str, Any]) -> Iterator[Finding]:
    name, limits, power_w = values["name"], values["limits_w"], values["power_w"]
    says = [values["gpu_type"], "counts its energy" if values["has_counter"] else "no counter"]
    if power_w is not None:
        says.append(f"draws {power_w:g} W")
    if values["utilisation"] is not None:
        says.append(f"{values['utilisation']:.0%} busy")
    if limits is not None:
        says.append(
            f"limit {values['limit_w']:g} W of {limits['lowest_w']:g} to "
            f"{limits['highest_w']:g} W, by default {limits['default_w']:g} W"
        )
    yield Finding(name, "good", ", ".join(says))
    if not values["has_counter"]:
        if power_w is None:
            do = f"no training on it has an energy; use another one ({VISIBLE})"
            yield Finding(name, "note", "it tells neither energy nor power", do)
        else:
            do = "energy is integrated from its power, and the results say so"
            yield Finding(name, "note", "it does not count its energy", do)
    if limits is None and values["is_gpu"]:
        yield Finding(
            name,
            "note",
            "its driver states no power limits, so that nobody knows what it draws at most",
            "limits stay as they are; as a second cannot be weighed with that power, choose eta: 1 "
            "(energy alone) or eta: 0 (time alone)",
        )
    if values["others"]:
        pids = ", ".join(map(str, values["others"]))
        do = f"their energy is counted too: wait for them, or use another one ({VISIBLE})"
        yield Finding(name, "note", f"busy: other processes compute on it ({pids})", do)


def _limits(there: Sequence[Device]) -> Iterator[Finding]:
    """Whether limits may be set, and what was put back."""
    able = [device for device in there if device.limits is not None]
    if able:
        with PowerLimiter(able) as limiter:
            allowed, why, undone = limiter.allowed, limiter.why, limiter.undone
        if allowed:
            yield Finding("limits", "good", "power limits can be set")
        else:
            yield Finding("limits", "note", f"power limits stay as they are: {why}")
    else:
        undone = limit_journal.recover()
    for one in undone:
        what = f"{one.uuid}: a run that was killed left its power limit behind"
        if one.error:
            yield Finding("limits", "fault", f"{what}. It was {one.before_w:g} W; {one.error}")
        else:
            yield Finding("limits", "note", what, f"done: it is {one.before_w:g} W again")


def lines(report: Report) -> Iterator[str]:
    """A report for people."""
    width = max(len(finding.what) for finding in report.findings if len(finding.what) < COLUMNS / 2)
    for finding in report.findings:
        mark = {"good": "ok", "note": "note", "fault": "FAULT"}[finding.state]
        head = f"{mark:5}  {finding.what:{width}}  "
        indent = " " * len(head)
        said = finding.found.splitlines() + [f"-> {finding.do}"] * bool(finding.do)
        for line in said:
            yield from textwrap.wrap(line, COLUMNS, initial_indent=head, subsequent_indent=indent)
            head = indent
    yield ""
    if report.can_run_live:
        yield "Live runs can start here."
    else:
        yield "Live runs cannot start here as they should: see what is marked FAULT."
