"""CPU seconds of frontiers of pipeline-parallel jobs, and what their plans save beside stragglers.

    python -m benchmarks.pipelines PROFILE.csv

The file has the columns stage, instruction, frequency, time, energy. Longer pipelines repeat its
stages. What is saved is in per cent of an iteration at the highest clocks that waits as long.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from time import process_time

from tests.support.pipelines import repeat_stages
from wattkeeper.policies.pipeline import exact_walk
from wattkeeper.policies.pipeline.exact import exact_frontier
from wattkeeper.policies.pipeline.graph import schedule_graph
from wattkeeper.policies.pipeline.profile import PipelineProfile
from wattkeeper.policies.pipeline.published import published_frontier
from wattkeeper.policies.pipeline.schedules import PipelineSchedule
from wattkeeper.policies.pipeline.task import PipelineTask
from wattkeeper.traces.pipelines import read_pipeline

BLOCKING_W = 75.5
PLANS = 10
PARALLEL = 40
FACTORS = (1.0, 1.05, 1.15, 1.3)
UNIT_S = 5e-3


def measure(name: str, work: Callable[[], int]) -> None:
    start = process_time()
    count = work()
    print(f"{name:36} {process_time() - start:8.3f} s CPU  {count}", flush=True)


def measure_exact(profile: PipelineProfile, schedule: PipelineSchedule) -> None:
    """The frontier with its graph, then plans across it."""
    name = f"{schedule.stages} x {schedule.microbatches}"
    measure(
        f"exact {name}: vertices",
        lambda: len(exact_frontier(profile, schedule_graph(schedule)).vertices),
    )
    frontier = exact_frontier(profile, schedule_graph(schedule))
    slow_s, fast_s = frontier.vertices[0].time_s, frontier.fastest_s
    times_s = [fast_s + (slow_s - fast_s) * index / PLANS for index in range(PLANS)]
    measure(f"exact {name}: plans", lambda: len([frontier.plan(time_s) for time_s in times_s]))


def measure_published(profile: PipelineProfile, schedule: PipelineSchedule, unit_s: float) -> None:
    """The frontier with its graph and fits."""
    name = f"{schedule.stages} x {schedule.microbatches}, {unit_s} s"
    measure(
        f"published {name}: steps",
        lambda: len(published_frontier(profile, schedule_graph(schedule), unit_s).steps),
    )


def print_savings(profile: PipelineProfile, microbatches: int) -> None:
    """What the plans of `perseus` and of `pipeline-exact` save beside stragglers."""
    schedule = PipelineSchedule("1f1b", len(profile.stages), microbatches)
    task = PipelineTask(profile, schedule)
    published = published_frontier(profile, task.graph, UNIT_S)
    exact = exact_frontier(profile, task.graph)
    for factor in FACTORS:
        time_s = factor * task.fastest.time_s
        # Without a straggler, nothing holds an iteration back.
        plans = published.plan(published.step_for(time_s)), exact.plan(time_s)
        spent = []
        for iteration in (task.fastest, *map(task.execute, plans)):
            waits = factor > 1 and iteration.time_s < time_s
            spent.append(iteration.held(time_s, task.waiting_w) if waits else iteration.energy_j)
        saved = (f"{100 * (1 - energy_j / spent[0]):5.1f} %" for energy_j in spent[1:])
        print(f"{microbatches} microbatches, straggler {factor:4}: {' / '.join(saved)}")


def print_gaps(profile: PipelineProfile) -> None:
    """How far plans lie above the bound where equal stages lie in parallel, at random times."""
    rng = random.Random(1)
    gaps, above, steps = [], 0, 0
    for _ in range(PARALLEL):
        stages = rng.choices(profile.stages, k=rng.choice([4, 6, 8]))
        own = profile._replace(stages=tuple(stages))
        task = PipelineTask(own, PipelineSchedule("1f1b", len(stages), rng.choice([6, 8, 12])))
        exact = exact_frontier(own, task.graph)
        published = published_frontier(own, task.graph, 2 * UNIT_S)
        for _ in range(PLANS):
            time_s = rng.uniform(exact.fastest_s, exact.vertices[0].time_s)
            energy_j = task.execute(exact.plan(time_s)).held(time_s, task.waiting_w)
            gaps.append(energy_j / exact.bound_j(time_s) - 1)
            step = rng.choice(published.steps)
            energy_j = task.execute(exact.plan(step.time_s)).held(step.time_s, task.waiting_w)
            above += energy_j > step.energy_j + 1e-4
            steps += 1
    print(
        f"{PARALLEL} pipelines of equal stages in parallel, above the bound: mean "
        f"{100 * sum(gaps) / len(gaps):.3f} %, largest {100 * max(gaps):.3f} %; above the "
        f"published plan: {above} of {steps}"
    )


def main() -> None:
    profile = PipelineProfile(read_pipeline(Path(sys.argv[1])).stages, BLOCKING_W)
    print("plain Python" if exact_walk.__file__.endswith(".py") else "compiled")
    for stages, microbatches in ((4, 8), (8, 64), (16, 128)):
        schedule = PipelineSchedule("1f1b", stages, microbatches)
        measure_exact(repeat_stages(profile, stages), schedule)
    for stages, microbatches, unit_s in ((4, 8, 1e-3), (8, 64, 5e-3)):
        schedule = PipelineSchedule("1f1b", stages, microbatches)
        measure_published(repeat_stages(profile, stages), schedule, unit_s)
    for microbatches in (4, 8):
        print_savings(profile, microbatches)
    print_gaps(profile)


if __name__ == "__main__":
    main()
