"""The processes of live runs on this host, by the variables in their environment.

All descendants of a process inherit them: a new controller finds them, and none is left when an
attempt is killed.
"""

import contextlib
import subprocess
import time
from collections.abc import Iterator, Mapping

import psutil

from wattkeeper.live.devices.power_limiter import GUARD
from wattkeeper.live.wire.client import RUN

KILL_TIMEOUT_S, PAUSE_S = 5.0, 0.005
"""How long `kill` waits for processes to end, and between two looks, s."""


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


def kill(run: str, first: subprocess.Popen[bytes] | None = None) -> None:
    """Kill all processes of a run, and those that they start meanwhile.

    Args:
        run: Its id.
        first: Its first process, if that is a child of this one: Linux shows an environment only a
            moment after `exec`.
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
