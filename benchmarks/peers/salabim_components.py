"""salabim: a component a job, and a resource of GPUs that one component at a time asks for.

Without the turnstile later jobs would pass those that do not fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import salabim

from benchmarks.peers.work import Work, answer


def simulate(work: Work) -> Sequence[float]:
    """Start times of all jobs, s."""
    salabim.yieldless(False)
    env = salabim.Environment(trace=False)
    pool = salabim.Resource("pool", capacity=work.gpus, monitor=False)
    turnstile = salabim.Resource("turnstile", monitor=False)
    starts = [0.0] * len(work.submit_s)

    class Job(salabim.Component):
        def process(self, job: int) -> Any:
            yield self.request(turnstile)
            yield self.request((pool, work.demand[job]))
            self.release(turnstile)
            starts[job] = env.now()
            yield self.hold(work.run_s[job])
            self.release()

    class Submission(salabim.Component):
        def process(self) -> Any:
            for job, submit_s in enumerate(work.submit_s):
                yield self.hold(till=submit_s)
                Job(job=job, mode=None)

    Submission()
    env.run()
    return starts


if __name__ == "__main__":
    answer(simulate)
