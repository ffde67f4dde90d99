"""The command `wattkeeper`, and `python -m wattkeeper.scenarios`."""

import atexit
import os
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import NoReturn

from wattkeeper.scenarios.run.garbage import begin_start
from wattkeeper.scenarios.run.interruptions import INTERRUPTIONS

INTERRUPTED = 130

_is_over = False


def start() -> NoReturn:
    """Run the command, and exit without freeing every object: a twentieth of a short command.

    A process with other threads, or whose output cannot be flushed, exits as any other does.
    """
    code = run()
    if threading.active_count() == 1 and not isinstance(code, str):
        atexit._run_exitfuncs()
        with suppress(OSError, ValueError):
            for stream in filter(None, (sys.stdout, sys.stderr)):
                stream.flush()
            os._exit(code or 0)
    sys.exit(code)


def run() -> str | int | None:
    """Run the command; returns its exit code. An interruption counts from the first import on."""
    global _is_over
    begin_start()
    try:
        _handle_interruptions()
        from wattkeeper.scenarios.cli.main import main

        main(prog_name="wattkeeper")
    except KeyboardInterrupt:
        _is_over = True
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except SystemExit as end:
        return end.code
    finally:
        _is_over = True
    return None


def _handle_interruptions() -> None:
    """Let SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt, except those that are ignored.

    Once the command is over, its exit code counts: an interruption that comes while Python itself
    ends would otherwise end the process by its signal, or in a traceback.
    """
    atexit.register(_ignore_interruptions)  # the first one registered is the last one called
    for number in INTERRUPTIONS:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _interrupt)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    if _is_over:  # Python waits for threads or processes
        os._exit(INTERRUPTED)
    raise KeyboardInterrupt


def _ignore_interruptions() -> None:
    for number in INTERRUPTIONS:
        signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":  # a profiler may wait for its end
    sys.exit(run())
