"""Checks of this host for live runs: packages, state folder, devices, power limits."""

import platform
import re
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from typing import Any, Final, Literal, NamedTuple

from wattkeeper.live import devices
from wattkeeper.live.devices import limit_journal
from wattkeeper.live.devices.device import Device, describe_clocks
from wattkeeper.live.devices.nvml import VISIBLE, NvmlGpu, visible_gpus
from wattkeeper.live.devices.power_limiter import PowerLimiter
from wattkeeper.policies.errors import NotSupported, WattkeeperError
from wattkeeper.traces.files.private import make_private_folder
from wattkeeper.traces.files.user_dirs import STATE, state_folder

State = Literal["good", "note", "fault"]
"""Usable; a live run works without it; a live run here ends with an error."""

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
    """The result of one check.

    Attributes:
        what: The checked thing.
        state: Its state.
        found: What the check found.
        do: Advice; empty if the state is good, or if `found` has it.
    """

    what: str
    state: State
    found: str
    do: str = ""


class Report(NamedTuple):
    """All findings.

    Attributes:
        findings: Findings in the order of display.
        devices: Readings of each device, as JSON values.
    """

    findings: list[Finding]
    devices: list[dict[str, Any]]

    @property
    def can_run_live(self) -> bool:
        """Whether no finding is a fault."""
        return all(finding.state != "fault" for finding in self.findings)


def examine_host(*, look_only: bool = False) -> Report:
    """Check this host, and restore power limits and clocks that killed runs left behind.

    Args:
        look_only: Restore nothing, and do not test whether limits and clocks may be set.
    """
    present: list[Device] = []
    readings: list[dict[str, Any]] = []
    device_findings: list[Finding] = []
    try:
        present = devices.find_devices()
        if not present:
            message = f"no device here measures energy\n{devices.explain_absence()}"
            advice = (
                "energy of trainings is absent, and only time can be saved (eta: 0). To try "
                f"things, {devices.VARIABLE}=synthetic:SYN-250W stands in for a GPU"
            )
            device_findings.append(Finding("devices", "note", message, advice))
        for device in present:  # before torch may compute on them
            readings.append(_read_device(device))
            device_findings += _describe_device(readings[-1])
    except WattkeeperError as error:
        device_findings.append(Finding("devices", "fault", str(error)))
    if not look_only:
        device_findings += _check_limits(present)
    version = f"{metadata.version('wattkeeper')}, Python {platform.python_version()}"
    host_findings = [
        Finding("wattkeeper", "good", version),
        *_check_packages(),
        _check_torch(),
        _check_state(),
    ]
    return Report(host_findings + device_findings, readings)


def _check_packages() -> Iterator[Finding]:
    """The packages of the extras for live runs."""
    for extra, purpose in EXTRAS.items():
        installed, missing = [], []
        for requirement in metadata.requires("wattkeeper") or ():
            match = REQUIREMENT.match(requirement)
            if match is None or match[2] != extra:
                continue
            try:
                installed.append(f"{match[1]} {metadata.version(match[1])}")
            except metadata.PackageNotFoundError:
                missing.append(match[1])
        if missing:
            lacks = f"not installed: {', '.join(missing)}, for {purpose}"
            install = f"pip install 'wattkeeper[{extra}]'"
            yield Finding(extra, "fault" if extra == NEEDED else "note", lacks, install)
        elif installed:
            yield Finding(extra, "good", ", ".join(installed))


def _check_torch() -> Finding:
    try:
        import torch

        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    except Exception as error:  # a broken installation may raise anything
        install = "pip install 'wattkeeper[live]'; a script of yours without torch needs none"
        return Finding("torch", "fault", f"it cannot be used: {error}", install)
    build = torch.version.cuda
    if names:
        return Finding("torch", "good", f"CUDA {build}, {len(names)} x {', '.join(set(names))}")
    try:
        has_gpu = bool(visible_gpus())
    except WattkeeperError:
        has_gpu = False
    if not has_gpu:
        return Finding("torch", "good", "no CUDA: it trains on the CPU")
    if build is None:
        do = f"this build is for CPUs; {PYTORCH} names one for CUDA"
    else:
        do = f"it is built for CUDA {build}, which may need a newer driver; {PYTORCH} names others"
    return Finding("torch", "fault", "there is a GPU that torch does not see", do)


def _check_state() -> Finding:
    try:
        folder = state_folder()
        make_private_folder(folder)
        with tempfile.TemporaryFile(dir=folder):
            return Finding("state", "good", str(folder))
    except WattkeeperError as error:
        return Finding("state", "fault", str(error))
    except OSError as error:
        do = f"set {STATE} to a folder that this user may write to"
        return Finding("state", "fault", f"{error.filename}: {error.strerror}", do)


def _read_device(device: Device) -> dict[str, Any]:
    """Readings of a device; None where it has none."""
    limits = device.limits
    return {
        "name": device.name if isinstance(device, NvmlGpu) else device.uuid,
        "is_gpu": isinstance(device, NvmlGpu),
        "uuid": device.uuid,
        "gpu_type": device.gpu_type,
        "has_counter": device.has_counter,
        "limits_w": None if limits is None else limits._asdict(),
        "limit_w": _read(device.limit_w),
        "clocks_mhz": list(device.clocks_mhz),
        "power_w": _read(device.power_w),
        "utilisation": _read(device.utilisation),
        "others": list(device.others()) if isinstance(device, NvmlGpu) else [],
    }


def _read(ask: Callable[[], float]) -> float | None:
    try:
        return ask()
    except NotSupported:
        return None


def _describe_device(values: dict[str, Any]) -> Iterator[Finding]:
    name, limits, power_w = values["name"], values["limits_w"], values["power_w"]
    facts = [values["gpu_type"], "counts its energy" if values["has_counter"] else "no counter"]
    if power_w is not None:
        facts.append(f"draws {power_w:g} W")
    if values["utilisation"] is not None:
        facts.append(f"{values['utilisation']:.0%} busy")
    if limits is not None:
        facts.append(
            f"limit {values['limit_w']:g} W of {limits['lowest_w']:g} to "
            f"{limits['highest_w']:g} W, by default {limits['default_w']:g} W"
        )
    if values["clocks_mhz"]:
        facts.append(describe_clocks(values["clocks_mhz"]))
    yield Finding(name, "good", ", ".join(facts))
    if not values["has_counter"]:
        if power_w is None:
            do = f"no training on it has an energy; use another one ({VISIBLE})"
            yield Finding(name, "note", "it reports neither energy nor power", do)
        else:
            do = "energy is integrated from its power, and the results say so"
            yield Finding(name, "note", "it does not count its energy", do)
    if limits is None and values["is_gpu"]:
        yield Finding(
            name,
            "note",
            "its driver states no power limits, so its largest power is unknown",
            "limits stay as they are; as a second cannot be weighed with that power, choose eta: 1 "
            "(energy alone) or eta: 0 (time alone)",
        )
    if values["others"]:
        pids = ", ".join(map(str, values["others"]))
        do = f"their energy is counted too: wait for them, or use another one ({VISIBLE})"
        yield Finding(name, "note", f"busy: other processes compute on it ({pids})", do)


def _check_limits(present: Sequence[Device]) -> Iterator[Finding]:
    """Whether limits and clocks may be set, and what was restored."""
    undone = limit_journal.recover()
    limited = [device for device in present if device.limits is not None]
    clocked = [device for device in present if device.clocks_mhz]
    for what, can_do, able in (
        ("limits", "power limits can be set", limited),
        ("clocks", "clocks can be locked", clocked),
    ):
        if not able:
            continue
        with PowerLimiter(able, clocks=what == "clocks") as limiter:
            if limiter.allowed:
                yield Finding(what, "good", can_do)
            else:
                name = can_do.partition(" can ")[0]
                yield Finding(what, "note", f"{name} stay as they are: {limiter.why}")
    for record, error in undone:
        limit = "" if record.before_w is None else f"{record.before_w:g} W"
        knobs = " and ".join(["power limit"] * bool(limit) + ["locked clock"] * record.clocks)
        what = f"{record.uuid}: a run that was killed left its {knobs} behind"
        if error:
            was = f"It was {limit}; " if limit else ""
            yield Finding("limits", "fault", f"{what}. {was}{error}")
        else:
            done = [f"it is {limit} again"] * bool(limit) + ["it is unlocked"] * record.clocks
            yield Finding("limits", "note", what, f"done: {', and '.join(done)}")


def format_report(report: Report) -> Iterator[str]:
    """The report as lines of text."""
    width = max(len(finding.what) for finding in report.findings if len(finding.what) < COLUMNS / 2)
    for finding in report.findings:
        mark = {"good": "ok", "note": "note", "fault": "FAULT"}[finding.state]
        head = f"{mark:5}  {finding.what:{width}}  "
        indent = " " * len(head)
        text = finding.found.splitlines() + [f"-> {finding.do}"] * bool(finding.do)
        for line in text:
            yield from textwrap.wrap(line, COLUMNS, initial_indent=head, subsequent_indent=indent)
            head = indent
    yield ""
    if report.can_run_live:
        yield "Live runs can start here."
    else:
        yield "Live runs cannot start here as they should: see what is marked FAULT."
