"""The process of a script that is recorded: it is ended once nothing is heard of it any more."""

from __future__ import annotations

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

EXIT_TIMEOUT_S: Final = 60.0
"""How long a script that was interrupted may take to end."""
LOOKS: Final = 6
"""So often in a lease it is looked whether something was heard: twice as often as sessions tell."""


class LeaseExpired(WattkeeperError):
    """Nothing was heard of the process for a lease; it was ended."""


def execute(
    command: Sequence[str],
    variables: Mapping[str, str],
    log: Path,
    events: Path,
    lease_s: float,
    lock: int,
) -> int:
    """Run a command to its end; its exit code.

    Its session writes to a file of events whenever it did something, and touches it as long as
    its steps come (`wattkeeper.live.session.heartbeat`).

    Args:
        command: What is started.
        variables: Added to the environment.
        log: Where its output goes.
        events: The file of its session.
        lease_s: It is ended if it is silent for longer than this, or than its session asks for.
        lock: A file that it holds open, too.

    Raises:
        Silent: It says when it fell silent.
    """
    run = f"record.{secrets.token_hex(8)}"
    own = {name: value for name, value in os.environ.items() if name != LINK}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env={**own, **variables, RUN: run},
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


def read(events: Path) -> list[Json]:
    """What a session did, as far as it has written it down."""
    text = events.read_text(encoding="utf-8") if events.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def _kill(process: subprocess.Popen[bytes], run: str) -> None:
    """End a process with all that it started, but for the guards of power limits."""
    processes.kill(run, process)
    process.wait()


def _wait(process: subprocess.Popen[bytes], events: Path, lease_s: float) -> None:
    """Return when a process is over.

    Raises:
        Silent: If nothing is heard of it any more.
    """
    whole = os.pidfd_open(process.pid)
    try:
        heard, heard_s, last = 0, time.monotonic(), list[Json]()
        while not select.select([whole], [], [], lease_s / LOOKS)[0]:
            touched = events.stat().st_mtime_ns if events.exists() else 0
            if touched != heard:
                heard, heard_s, last = touched, time.monotonic(), read(events)
                lease_s = max([lease_s, *(row["lease_s"] for row in last[:1])])
            elif time.monotonic() - heard_s > lease_s:
                raise LeaseExpired(_silence(last, lease_s))
    finally:
        os.close(whole)


def _silence(events: Sequence[Json], lease_s: float) -> str:
    if not events:
        return f"had no Session after {lease_s:g} s"
    if events[-1]["event"] == "ended":
        return f"had not ended {lease_s:g} s after its Session"
    done = sum(row["event"] == "epoch" for row in events)
    where = f"after epoch {done}" if done else "in its first epoch, or before that"
    return f"hung: it was silent for {lease_s:g} s {where}"
