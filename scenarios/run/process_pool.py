"""Work done in several processes of this machine, any of which may be killed."""

from __future__ import annotations

import os
import signal
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.resource_tracker import ensure_running
from pickle import PicklingError
from threading import Thread, current_thread, main_thread
from typing import Any, Final, Generic, TypeVar

from wattkeeper.policies.errors import EnvironmentLacks
from wattkeeper.traces.arrow import configure_arrow

T = TypeVar("T")
R = TypeVar("R")

TRIES: Final = 3
"""How often work is begun whose process is killed."""

LOST: Final = (
    f"its process was killed, {TRIES} times, perhaps for want of memory; try fewer --workers"
)

STILLBORN: Final = (
    "worker processes end before they begin: try fewer --workers; a script of yours starts them "
    "under `if __name__ == '__main__':`"
)


def each(
    tasks: deque[T], call: Callable[[T], R], workers: int
) -> Generator[tuple[T, R | EnvironmentLacks], None, None]:
    """What a function returns for each task, as soon as it does.

    A process that is killed is replaced, and its task tried again; the others notice nothing. What
    the function raises is raised here.

    Args:
        tasks: They are taken from the left; more may be added between two results.
        call: The function; it, the tasks and the results can be pickled.
        workers: Processes; with 1, this one does it all.

    Yields:
        A task and its result, or an error where its process was killed `TRIES` times.
    """
    if workers == 1:
        while tasks:
            task = tasks.popleft()
            yield task, call(task)
        return
    again: deque[tuple[T, int]] = deque()
    pool: list[_Worker[T]] = []
    stillborn = 0
    try:
        while True:
            for worker in pool:
                if worker.idle and (again or tasks):
                    worker.take(*(again.popleft() if again else (tasks.popleft(), 1)))
            if not tasks and not again and not any(worker.has for worker in pool):
                return
            starting = sum(worker.starting for worker in pool)
            for _ in range(min(workers - len(pool), len(tasks) + len(again) - starting)):
                pool.append(_Worker(call))
            for worker in _heard(pool):
                had, worker.has = worker.has, None
                try:
                    fine, outcome = worker.pipe.recv()
                except (EOFError, OSError):
                    pool.remove(worker)
                    worker.end()
                    if had is None:
                        stillborn += 1
                        if stillborn == TRIES:
                            raise EnvironmentLacks(STILLBORN) from None
                    elif had[1] < TRIES:
                        again.append((had[0], had[1] + 1))
                    else:
                        yield had[0], EnvironmentLacks(LOST)
                    continue
                if not fine:
                    raise outcome
                worker.starting, stillborn = False, 0
                if had is not None:
                    yield had[0], outcome
    finally:
        for worker in pool:
            worker.end()


class _Worker(Generic[T]):
    """A process that calls a function with one task after the other.

    Attributes:
        pipe: Where it says that it is there, and what each task came to.
        starting: Whether it has said nothing yet.
        has: The task that it works on, and how often that was begun.
    """

    def __init__(self, call: Callable[[T], Any]) -> None:
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.starting = True
        self.has: tuple[T, int] | None = None
        self._process = context.Process(target=_serve, args=(theirs, call))
        ensure_running()  # which lets interruptions in again, where it starts the tracker
        with _uninterrupted():
            self._process.start()
        theirs.close()  # so that its end is the end of the pipe

    @property
    def idle(self) -> bool:
        return not self.starting and self.has is None

    def take(self, task: T, begun: int) -> None:
        """Begin a task; that the process is gone shows when it is waited for."""
        self.has = task, begun
        with suppress(OSError):
            self.pipe.send(task)

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self._process.close()  # here, not when it is collected, which would swallow an interruption
        self.pipe.close()


def _heard(pool: list[_Worker[T]]) -> list[_Worker[T]]:
    """Workers that said something, or are gone, as soon as there are any; idle ones say nothing."""
    pipes = {worker.pipe: worker for worker in pool if not worker.idle}
    return [pipes[pipe] for pipe in wait(list(pipes))]  # type: ignore[index]


def _serve(pipe: Connection, call: Callable[[Any], Any]) -> None:
    """Work until nobody gives any, and do not outlive the parent."""
    configure_arrow()
    Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, ConnectionError):  # nobody is there any more
        pipe.send((True, None))
        while True:
            outcome = _outcome(call, pipe.recv())
            try:
                pipe.send(outcome)
            except (AttributeError, PicklingError, TypeError):
                pipe.send((False, RuntimeError(f"cannot be sent: {outcome[1]!r}")))


def _outcome(call: Callable[[Any], Any], task: Any) -> tuple[bool, Any]:
    """Whether a call succeeded, and what it returned or raised."""
    try:
        return True, call(task)
    except Exception as error:
        error.add_note(traceback.format_exc())
        return False, error


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Processes that start inside leave an interruption to the parent, which gets it afterwards.

    They inherit the blocked signal. Another thread of the parent may still take it, so its handler
    waits too.
    """
    if current_thread() is not main_thread():
        yield
        return
    taken: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, frame: taken.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        signal.signal(signal.SIGINT, handler)
    if taken:
        raise KeyboardInterrupt
