"""The processes of this host that belong to a live run, by what stands in their environment.

Whatever an attempt starts inherits its name, whoever its parent is: so nothing is lost when a
controller is killed, and nothing is left when an attempt is.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator, Mapping

import psutil

from wattkeeper.live.devices.power_limiter import GUARD
from wattkeeper.live.wire.client import LINK, RUN

KILL_TIMEOUT_S, PAUSE_S = 5.0, 0.005
"""How long it waits for processes that it killed; one that waits for a device may take long."""


def environments() -> Iterator[tuple[int, Mapping[str, str]]]:
    """Process id and environment of each process of a live run, guards of power limits excepted."""
    for process, environment, is_guard in _processes():
        if not is_guard:
            yield process.pid, environment


def guards(run: str) -> list[int]:
    """The processes that restore power limits after a run; they end by themselves."""
    return [
        process.pid
        for process, environment, is_guard in _processes()
        if is_guard and environment[RUN] == run
    ]


def _processes() -> Iterator[tuple[psutil.Process, Mapping[str, str], bool]]:
    """The processes of live runs that this user may inspect; with each, whether it is a guard."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            environment = process.environ()
            if RUN in environment and process.status() != psutil.STATUS_ZOMBIE:
                yield process, environment, GUARD in process.cmdline()


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
        running = [
            process
            for process, environment, is_guard in _processes()
            if environment[RUN] == run and not is_guard
        ]
        if not running:
            return
        for process in running:
            with contextlib.suppress(psutil.Error):
                process.kill()
        time.sleep(PAUSE_S)
