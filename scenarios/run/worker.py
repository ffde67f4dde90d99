"""A worker process of the pool: it calls a function with one task after the other.

Its standard input is a socket, through which it gets all it needs, and reports. When the process
at the other end is gone it ends at once and in silence, even while it starts; a worker that
`multiprocessing` starts would write a traceback.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from multiprocessing import Pipe, spawn
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Thread, current_thread, main_thread
from typing import Any, Final

from wattkeeper.scenarios.run.garbage import begin_start, end_start
from wattkeeper.scenarios.run.interruptions import INTERRUPTIONS
from wattkeeper.traces.process_setup import configure_process

_PROGRAM: Final = (
    "import sys; sys.path = {path!a}; from wattkeeper.scenarios.run.worker import serve; serve()"
)

_has_function = True
"""Whether this process is no worker, or one that has got its function."""


def start_worker(
    inherited: Collection[int] = (),
) -> tuple[subprocess.Popen[bytes], Connection, dict[str, Any]]:
    """Start a process; it is sent the third value, a function, and then one task after the other.

    `inherited`: descriptors of files that it inherits.

    It reports `(True, None)` once it has the function, and then for each task whether the call
    succeeded, and what it returned or raised.
    """
    if not _has_function:  # a script without `if __name__ == '__main__':`; the pool says so
        os._exit(1)
    parent = spawn.get_preparation_data("worker")
    del parent["authkey"]  # it can be sent by multiprocessing alone
    *python, _, _ = spawn.get_command_line()
    program = _PROGRAM.format(path=parent["sys_path"])
    ours, theirs = Pipe()
    with theirs, _uninterrupted():
        process = subprocess.Popen([*python, program], stdin=theirs.fileno(), pass_fds=inherited)
        return process, ours, parent


def serve() -> None:
    """Be a worker, as long as the process at the other end of the standard input lives."""
    global _has_function
    _has_function = False
    begin_start()
    sys.stdout = sys.stderr  # what policies print is none of the command's output
    pipe = Connection(os.dup(0))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    messages = SimpleQueue[bytes]()
    Thread(target=_receive, args=(pipe, messages), daemon=True).start()
    spawn.prepare(pickle.loads(messages.get()))
    configure_process()
    call = pickle.loads(messages.get())
    _has_function = True
    end_start()
    outcome: tuple[bool, Any] = True, None
    while True:
        _report(pipe, outcome)
        outcome = _try_call(call, pickle.loads(messages.get()))


def _receive(pipe: Connection, messages: SimpleQueue[bytes]) -> None:
    """Put what comes into the queue; end this process when the other one is gone."""
    while True:
        try:
            messages.put(pipe.recv_bytes())
        except (EOFError, OSError):
            os._exit(1)


def _report(pipe: Connection, outcome: tuple[bool, Any]) -> None:
    """Send an outcome; end this process when the other one is gone."""
    try:
        try:
            pipe.send(outcome)
        except (AttributeError, pickle.PicklingError, TypeError):
            pipe.send((False, RuntimeError(f"cannot be sent: {outcome[1]!r}")))
    except OSError:
        os._exit(1)


def _try_call(call: Callable[[Any], Any], task: Any) -> tuple[bool, Any]:
    """Whether a call succeeded, and what it returned or raised."""
    try:
        return True, call(task)
    except BaseException as error:  # signals are blocked: a task itself raised it
        error.add_note(traceback.format_exc())
        return False, error


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Inside, processes start with interruptions blocked; the parent gets one afterwards.

    They inherit the blocked signals. Another thread of the parent may still get one, so the handler
    only notes it.
    """
    if current_thread() is not main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in INTERRUPTIONS}
    handled = [number for number, handler in handlers.items() if callable(handler)]
    noted: list[int] = []
    for number in handled:
        signal.signal(number, lambda number, frame: noted.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTIONS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number in handled:
            signal.signal(number, handlers[number])
    if noted:
        raise KeyboardInterrupt
