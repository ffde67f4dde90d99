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
    stop_in_session(log, pids[0])
    for pid in pids:
        kill(pid)
    return 0


def stop_in_session(log: Path, pid: int) -> None:
    """Stop a process while a session of it trains, so that a kill hits one for sure."""
    end_s = time.monotonic() + WAIT_S
    while time.monotonic() < end_s:
        os.kill(pid, signal.SIGSTOP)
        _, status = os.waitpid(pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            raise ChildProcessError("it had failed before it was killed")
        if is_training(log, pid):
            return
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.002)
    raise TimeoutError("no session begins any more")


def is_training(log: Path, pid: int) -> bool:
    """Whether the last session of a process has begun, and no epoch of it has ended."""
    lines = [line.split() for line in log.read_text().splitlines()]
    own = [index for index, words in enumerate(lines) if words[-1] == str(pid)]
    if not own or lines[own[-1]][0] != "begun":
        return False
    return not any(words[:2] == ["epoch", lines[own[-1]][1]] for words in lines[own[-1] :])


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
        raise ChildProcessError("it had failed before it was killed")


if __name__ == "__main__":
    sys.exit(main())
