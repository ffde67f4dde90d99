"""A pool of processes on this machine that continues when one of them is killed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

from wattkeeper.policies.errors import EnvironmentLacks

T = TypeVar("T")
R = TypeVar("R")

TRIES: Final = 3
"""Times that a task is started whose process is killed."""

LOST: Final = (
    f"its process was killed, {TRIES} times, perhaps for want of memory; try fewer --workers"
)

FAILED_START: Final = (
    "worker processes end before they begin: try fewer --workers; a script of yours starts them "
    "under `if __name__ == '__main__':`"
)


def run_tasks(
    tasks: deque[T],
    call: Callable[[T], R],
    workers: int,
    split: Callable[[T], Sequence[T]] = lambda task: (task,),
    inherited: Collection[int] = (),
) -> Generator[tuple[T, R | EnvironmentLacks], None, None]:
    """Call a function with each task; yield what it returns as soon as it does.

    A process that is killed is replaced, and its task tried again. What the function raises is
    raised here.

    Args:
        tasks: They are taken from the left; more may be added between two results.
        call: The function; it, the tasks and the results can be pickled.
        workers: Processes; with 1, this one does it all.
        split: Gives the parts of a task that are tried again, each for itself.
        inherited: Descriptors of files that the processes inherit.

    Yields:
        A task and its result, or an error where its process was killed `TRIES` times.
    """
    if workers == 1:
        while tasks:
            task = tasks.popleft()
            yield task, call(task)
        return
    pool = _Pool(tasks, call, workers, split, inherited)
    try:
        while pool.assign():
            for worker in pool.wait():
                outcome = pool.receive(worker)
                if outcome is not None:
                    yield outcome
    finally:
        pool.end()


class _Pool(Generic[T, R]):
    """Workers, the tasks that they have, and tasks that are tried again."""

    def __init__(
        self,
        tasks: deque[T],
        call: Callable[[T], R],
        size: int,
        split: Callable[[T], Sequence[T]],
        inherited: Collection[int],
    ) -> None:
        self._tasks = tasks
        self._call = call
        self._size = size
        self._split = split
        self._inherited = inherited
        self._again: deque[tuple[T, int]] = deque()
        self._workers: list[_Worker[T]] = []
        self._failed_starts = 0

    def assign(self) -> bool:
        """Give tasks to idle workers, and start workers for the others; False if all is done."""
        for worker in self._workers:
            if worker.idle and (self._again or self._tasks):
                worker.take(*(self._again.popleft() if self._again else (self._tasks.popleft(), 1)))
        left = len(self._tasks) + len(self._again)
        if not left and not any(worker.has for worker in self._workers):
            return False
        starting = sum(worker.starting for worker in self._workers)
        for _ in range(min(self._size - len(self._workers), left - starting)):
            worker = _Worker[T](self._inherited)
            self._workers.append(worker)
            worker.begin(self._call)
        return True

    def wait(self) -> list[_Worker[T]]:
        """Workers that sent something or were killed, as soon as there are any."""
        from multiprocessing.connection import wait

        pipes = {worker.pipe: worker for worker in self._workers if not worker.idle}
        return [pipes[pipe] for pipe in wait(list(pipes))]  # type: ignore[index]

    def receive(self, worker: _Worker[T]) -> tuple[T, R | EnvironmentLacks] | None:
        """A task and its result; None if the worker started, or its task is tried again.

        Raises:
            EnvironmentLacks: If workers end again and again before they work.
            Exception: What the call raised.
        """
        had, worker.has = worker.has, None
        try:
            succeeded, outcome = worker.pipe.recv()
        except (EOFError, OSError):
            self._workers.remove(worker)
            worker.end()
            return self._retry(had)
        if not succeeded:
            raise outcome
        worker.starting, self._failed_starts = False, 0
        return None if had is None else (had[0], outcome)

    def _retry(self, had: tuple[T, int] | None) -> tuple[T, EnvironmentLacks] | None:
        """Have the task of a killed worker tried again, up to `TRIES` times."""
        if had is None:
            self._failed_starts += 1
            if self._failed_starts == TRIES:
                raise EnvironmentLacks(FAILED_START) from None
            return None
        task, tries = had
        if tries == TRIES:
            return task, EnvironmentLacks(LOST)
        self._again.extend((part, tries + 1) for part in self._split(task))
        return None

    def end(self) -> None:
        """End all workers."""
        for worker in self._workers:
            worker.end()


class _Worker(Generic[T]):
    """A process that calls a function with one task after the other.

    Attributes:
        pipe: Where it reports its start and the outcome of each task.
        starting: Whether it has reported nothing yet.
        has: The task that it works on, and how many times that was started.
    """

    def __init__(self, inherited: Collection[int]) -> None:
        from wattkeeper.scenarios.run.worker import start_worker

        self.starting = True
        self.has: tuple[T, int] | None = None
        self._process, self.pipe, self._parent = start_worker(inherited)

    @property
    def idle(self) -> bool:
        return not self.starting and self.has is None

    def begin(self, call: Callable[[T], Any]) -> None:
        """Send the function."""
        self._send(self._parent)
        self._send(call)

    def take(self, task: T, tries: int) -> None:
        """Start a task."""
        self.has = task, tries
        self._send(task)

    def _send(self, message: object) -> None:
        with suppress(OSError):  # the process is gone: `_Pool.wait` notices it
            self.pipe.send(message)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self.pipe.close()
