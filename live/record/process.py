"""Process of a recorded script, which is killed when its lease expires."""

import json
import os
import secrets
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from wattkeeper.live.controller import processes
from wattkeeper.live.wire.client import LINK, RUN
from wattkeeper.policies.errors import WattkeeperError
from wattkeeper.policies.json_types import Json
from wattkeeper.traces.files.private import open_private

EXIT_TIMEOUT_S: Final = 60.0
"""Time that an interrupted script has to exit, s."""
POLLS_PER_LEASE: Final = 6
"""How often the file of events is checked: twice as often as sessions touch it."""


class LeaseExpired(WattkeeperError):
    """The process gave no sign of progress for the length of its lease, and was killed."""


def execute(
    command: Sequence[str],
    variables: Mapping[str, str],
    log: Path,
    events: Path,
    lease_s: float,
    lock: int,
) -> int:
    """Run a command to its end, and return its exit code.

    Its session appends to a file of events, and touches the file while its steps progress
    (`wattkeeper.live.session.heartbeat`).

    The variables are added to the environment; `log` is the file of its output, `events` that of
    its session, `lock` the descriptor of a lock that it inherits. `lease_s` is the longest time
    without progress, s, unless the session asks for more.

    Raises:
        LeaseExpired: If it made no progress for that long; it was killed.
    """
    run = f"record.{secrets.token_hex(8)}"
    inherited = {name: value for name, value in os.environ.items() if name != LINK}
    with open(log, "wb", opener=open_private) as output:
        process = subprocess.Popen(
            command,
            env={**inherited, **variables, RUN: run},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=[lock],
        )
    try:
        _wait(process, events, lease_s)
    except LeaseExpired:
        _kill(process, run)
        raise
    except BaseException:
        process.terminate()
        try:
            process.wait(EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            _kill(process, run)
        raise
    return process.wait()


def read_events(events: Path) -> list[Json]:
    """The events that a session has completely written."""
    text = events.read_text(encoding="utf-8") if events.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def _kill(process: subprocess.Popen[bytes], run: str) -> None:
    """Kill a process and its descendants, except the guards that restore power limits."""
    processes.kill(run, process)
    process.wait()


def _wait(process: subprocess.Popen[bytes], events: Path, lease_s: float) -> None:
    """Wait until a process ends.

    Raises:
        LeaseExpired: If it makes no progress.
    """
    process_fd = os.pidfd_open(process.pid)
    try:
        last_touch_ns, progress_s, rows = 0, time.monotonic(), list[Json]()
        while not select.select([process_fd], [], [], lease_s / POLLS_PER_LEASE)[0]:
            touch_ns = events.stat().st_mtime_ns if events.exists() else 0
            if touch_ns != last_touch_ns:
                last_touch_ns, progress_s, rows = touch_ns, time.monotonic(), read_events(events)
                lease_s = max([lease_s, *(row["lease_s"] for row in rows[:1])])
            elif time.monotonic() - progress_s > lease_s:
                raise LeaseExpired(_describe_hang(rows, lease_s))
    finally:
        os.close(process_fd)


def _describe_hang(events: Sequence[Json], lease_s: float) -> str:
    if not events:
        return f"had no Session after {lease_s:g} s"
    if events[-1]["event"] == "ended":
        return f"had not ended {lease_s:g} s after its Session"
    epochs = sum(row["event"] == "epoch" for row in events)
    where = f"after epoch {epochs}" if epochs else "in its first epoch, or before it"
    return f"hung: no progress for {lease_s:g} s {where}"
