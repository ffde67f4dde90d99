"""Work done in several processes of this machine, any of which may be killed."""

from __future__ import annotations

import os
import signal
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from pickle import PicklingError
from threading import Thread, current_thread, main_thread
from typing import Any, Final, Generic, TypeVar

from wattkeeper.policies.errors import EnvironmentLacks
from wattkeeper.scenarios.arrow import settle

T = TypeVar("T")
R = TypeVar("R")

TRIES: Final = 3
"""How often work is begun whose process is killed."""

LOST: Final = (
    f"its process was killed, {TRIES} times, perhaps for want of memory; try fewer --workers"
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
    try:
        while True:
            while (tasks or again) and (worker := _free(pool, call, workers)) is not None:
                worker.take(*(again.popleft() if again else (tasks.popleft(), 1)))
            busy = {worker.pipe: worker for worker in pool if worker.busy}
            if not busy:
                return
            for pipe in wait(list(busy)):
                worker = busy[pipe]  # type: ignore[index]
                task, tried = worker.gives_back()
                try:
                    fine, outcome = worker.pipe.recv()
                except (EOFError, OSError):
                    pool.remove(worker)
                    worker.end()
                    if tried < TRIES:
                        again.append((task, tried + 1))
                    else:
                        yield task, EnvironmentLacks(LOST)
                    continue
                if not fine:
                    raise outcome
                yield task, outcome
    finally:
        for worker in pool:
            worker.end()


class _Worker(Generic[T]):
    """A process that calls a function with one task after the other."""

    def __init__(self, call: Callable[[T], Any]) -> None:
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, call))
        self._has: tuple[T, int] | None = None
        with _uninterrupted():
            self._process.start()
        theirs.close()  # so that its end is the end of the pipe

    @property
    def busy(self) -> bool:
        return self._has is not None

    def take(self, task: T, tried: int) -> None:
        """Begin a task; a process that is gone shows when its result is waited for."""
        self._has = task, tried
        try:
            self.pipe.send(task)
        except OSError:
            self._process.join()

    def gives_back(self) -> tuple[T, int]:
        """What it was given, and how often that was tried."""
        assert self._has is not None
        had, self._has = self._has, None
        return had

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self.pipe.close()


def _free(pool: list[_Worker[T]], call: Callable[[T], Any], workers: int) -> _Worker[T] | None:
    """A worker that has nothing to do, a new one if there may be; None if all are busy."""
    worker = next((worker for worker in pool if not worker.busy), None)
    if worker is None and len(pool) < workers:
        worker = _Worker(call)
        pool.append(worker)
    return worker


def _serve(pipe: Connection, call: Callable[[Any], Any]) -> None:
    """Work until nobody gives any, and do not outlive the parent."""
    settle()
    Thread(target=_end_with_parent, daemon=True).start()
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        outcome: tuple[bool, Any]
        try:
            outcome = True, call(task)
        except Exception as error:
            error.add_note(traceback.format_exc())
            outcome = False, error
        try:
            pipe.send(outcome)
        except (AttributeError, PicklingError, TypeError):
            pipe.send((False, RuntimeError(f"cannot be sent: {outcome[1]!r}")))


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
