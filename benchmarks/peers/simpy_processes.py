"""SimPy as its documentation shows it: a process a job, and a container of GPUs."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from simpy import Container, Environment, Event

from benchmarks.peers.work import Work, answer


def simulate(work: Work) -> Sequence[float]:
    """Start times of all jobs, s."""
    env = Environment()
    pool = Container(env, work.gpus, work.gpus)
    starts = [0.0] * len(work.submit_s)

    def run(job: int) -> Generator[Event, None, None]:
        yield pool.get(work.demand[job])
        starts[job] = env.now
        yield env.timeout(work.run_s[job])
        yield pool.put(work.demand[job])

    def submit() -> Generator[Event, None, None]:
        for job, submit_s in enumerate(work.submit_s):
            yield env.timeout(submit_s - env.now)
            env.process(run(job))

    env.process(submit())
    env.run()
    return starts


if __name__ == "__main__":
    answer(simulate)
