"""simulus: a process a job, and a store of free GPUs that one process at a time asks.

Without the turnstile later jobs would pass those that do not fit.
"""

from __future__ import annotations

from collections.abc import Sequence

import simulus

from benchmarks.peers.work import Work, answer


def simulate(work: Work) -> Sequence[float]:
    """Start times of all jobs, s."""
    sim = simulus.simulator()
    pool = sim.store(capacity=work.gpus, initlevel=work.gpus)
    turnstile = sim.resource()
    starts = [0.0] * len(work.submit_s)

    def run(job: int) -> None:
        turnstile.acquire()
        pool.get(work.demand[job])
        turnstile.release()
        starts[job] = sim.now
        sim.sleep(work.run_s[job])
        pool.put(work.demand[job])

    def submit() -> None:
        for job, submit_s in enumerate(work.submit_s):
            sim.sleep(until=submit_s)
            sim.process(run, job)

    sim.process(submit)
    sim.run()
    return starts


if __name__ == "__main__":
    answer(simulate)
