"""SimPy without processes: timeouts with callbacks, a queue and a number of free GPUs."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import cast

from simpy import Environment, Event

from benchmarks.peers.work import Work, answer


def simulate(work: Work) -> Sequence[float]:
    """Start times of all jobs, s."""
    env, waiting, free = Environment(), deque[int](), work.gpus
    starts = [0.0] * len(work.submit_s)

    def begin() -> None:
        nonlocal free
        while waiting and work.demand[waiting[0]] <= free:
            job = waiting.popleft()
            free -= work.demand[job]
            starts[job] = env.now
            event = env.timeout(work.run_s[job], work.demand[job])
            event.callbacks.append(end)

    def end(event: Event) -> None:
        nonlocal free
        free += cast("int", event.value)
        begin()

    def arrive(event: Event) -> None:
        job = cast("int", event.value)
        waiting.append(job)
        submit(job + 1)
        begin()

    def submit(job: int) -> None:
        if job < len(starts):
            env.timeout(work.submit_s[job] - env.now, job).callbacks.append(arrive)

    submit(0)
    env.run()
    return starts


if __name__ == "__main__":
    answer(simulate)
