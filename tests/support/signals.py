"""Processes that get a signal at the n-th call that changes a file system.

What calls `attempt` runs in a process of its own, which `start` starts: the library of
`signals.c` counts the calls, and is loaded before the C library.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import filelock  # noqa: F401  so that forked processes have it
import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCE: Final = Path(__file__).with_suffix(".c")
SIGNALS: Final = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


class Outcome(NamedTuple):
    """How a process ended.

    Attributes:
        code: Its exit code, or minus the signal that ended it.
        calls: How many calls it made, unless a signal ended it.
    """

    code: int
    calls: int


def build(folder: Path) -> Path:
    """Compile the library."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.fail("tests with signals need a C compiler; on Debian or Ubuntu: apt install gcc")
    library = folder / "signals.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True)
    return library


def start(library: Path, module: str, **arguments: Any) -> Any:
    """Call `main` of a module in a process that counts calls; what it returns, as JSON."""
    environment = {**os.environ, "LD_PRELOAD": str(library), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.signals", module, json.dumps(arguments)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def attempt(
    action: Callable[[], object], at: int = 0, number: int = 0, *, exchange: bool = True
) -> Outcome:
    """Do something in a forked process, which gets a signal before its call `at`.

    Args:
        action: What to do. A SystemExit gives the exit code; other exceptions give 1.
        at: From 1; 0 is never.
        number: The signal.
        exchange: Whether the file system can exchange two names in one step.
    """
    library = ctypes.CDLL(None)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        with os.fdopen(reader) as pipe:
            calls = pipe.read()
        return Outcome(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), int(calls or 0))
    code = 1
    try:
        os.close(reader)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
        library.arm(at, number, not exchange)
        with suppress(KeyboardInterrupt):
            try:
                action()
                code = 0
            except KeyboardInterrupt:
                code = 130
            except SystemExit as done:
                code = done.code if isinstance(done.code, int) else int(done.code is not None)
            library.counted.restype = ctypes.c_long
            calls = library.counted()
            library.arm(0, 0, 0)
            os.write(writer, str(calls).encode())
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    print(json.dumps(importlib.import_module(sys.argv[1]).main(**json.loads(sys.argv[2]))))
