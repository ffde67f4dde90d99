"""Processes that train one session after the other, and are killed for it.

Run as a script, since it forks, with a JSON object: `processes`; `kills`, or 0; `seed`; `sessions`,
how many each process does if nobody is killed; the rest as in `session_plain`, of which it writes
the log. Unless somebody is killed, it fails if a process does.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import psycopg  # noqa: F401  so that forked processes have it
from session_plain import run  # type: ignore[import-not-found]  # the script beside this one

from wattkeeper.policies.registry import policies

WAIT_S = 120


def fork(arguments: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        run(arguments)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def wait_for(log: Path, lines: int) -> None:
    """Return when so many more lines are there, or fail."""
    end_s = time.monotonic() + WAIT_S
    goal = lines + count(log)
    while count(log) < goal:
        if time.monotonic() > end_s:
            raise TimeoutError("nothing happens any more")
        time.sleep(0.002)


def count(log: Path) -> int:
    return log.read_bytes().count(b"\n") if log.exists() else 0


def main() -> int:
    arguments = json.loads(sys.argv[1])
    kills, rng = arguments.pop("kills"), random.Random(arguments.pop("seed"))
    processes = arguments.pop("processes")
    policies("configure"), policies("tune")
    log = Path(arguments["log"])
    pids = [fork(arguments) for _ in range(processes)]
    if not kills:
        return max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids)
    for _ in range(kills):
        wait_for(log, rng.randrange(1, 12))
        time.sleep(rng.uniform(0, 0.02))
        which = rng.randrange(processes)
        kill(pids[which])
        pids[which] = fork(arguments)
    for pid in pids:
        kill(pid)
    return 0


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
        raise ChildProcessError("it had failed before it was killed")


if __name__ == "__main__":
    sys.exit(main())
