"""A lock has one holder, and ends with its process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from wattkeeper.traces.files.locks import hold_lock, lock

HOLD_AND_FORK = """
import os, sys, time
from pathlib import Path
from wattkeeper.traces.files.locks import lock
release = lock(Path(sys.argv[1]))
if os.fork() == 0:  # it has dropped what it inherited of the lock by now
    print(flush=True)
    sys.stdin.read()
    os._exit(0)
time.sleep(60)
"""


def test_a_lock_has_one_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with hold_lock(path), pytest.raises(BlockingIOError):
        lock(path)
    lock(path)()


def test_a_killed_process_loses_its_lock_though_its_fork_lives(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    command = (sys.executable, "-c", HOLD_AND_FORK, path)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(BlockingIOError):
            lock(path)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        lock(path)()
