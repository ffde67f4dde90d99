"""The processes of this host that belong to a live run, by what stands in their environment.

Whatever an attempt starts inherits its name, whoever its parent is: so nothing is lost when a
controller is killed, and nothing is left when an attempt is.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from wattkeeper.live.devices.power_limiter import GUARD
from wattkeeper.live.host.proc import started
from wattkeeper.live.wire.client import LINK, RUN

PROC = Path("/proc")
KILL_TIMEOUT_S, PAUSE_S = 5.0, 0.005
"""How long it waits for processes that it killed; one that waits for a device may take long."""


def environments() -> Iterator[tuple[int, Mapping[str, str]]]:
    """Process id and environment of the processes of this host that this user may look at."""
    for entry in PROC.iterdir():
        if not entry.name.isdecimal():
            continue
        with contextlib.suppress(OSError):
            text = (entry / "environ").read_bytes().decode(errors="replace")
            if RUN in text and started(int(entry.name)) and not _is_guard(entry):
                pairs = (line.partition("=") for line in text.split("\0"))
                yield int(entry.name), {name: value for name, _, value in pairs}


def guards(run: str) -> list[int]:
    """The processes that put power limits back for a run: they are left to do so, and then end."""
    found = []
    for entry in PROC.iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and _is_guard(entry) and started(int(entry.name)):
                wanted = f"{RUN}={run}".encode()
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def _is_guard(entry: Path) -> bool:
    return GUARD.encode() in (entry / "cmdline").read_bytes().split(b"\0")


def of_controller(token: str) -> dict[str, dict[int, Mapping[str, str]]]:
    """The processes that a controller with a token started: environments by run and process id."""
    found: dict[str, dict[int, Mapping[str, str]]] = {}
    for pid, environment in environments():
        if environment.get(LINK, "").endswith(f"/{token}"):
            found.setdefault(environment[RUN], {})[pid] = environment
    return found


def kill(run: str, first: subprocess.Popen[bytes] | None = None) -> None:
    """End at once all processes of a run, and what they start meanwhile.

    Args:
        run: Its id.
        first: The process that began it, if it is this one's child: it may be too young to be
            found, since Linux shows an environment only a moment after `exec`.
    """
    if first is not None:
        first.kill()
    give_up_s = time.monotonic() + KILL_TIMEOUT_S
    while time.monotonic() < give_up_s:
        found = [pid for pid, environment in environments() if environment.get(RUN) == run]
        if not found:
            return
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(PAUSE_S)
