"""CPU seconds of frontiers of pipeline-parallel jobs; `python benchmarks/pipelines.py PROFILE.csv`.

The file has the columns stage, instruction, frequency, time, energy. Longer pipelines repeat its
stages.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable
from pathlib import Path
from time import process_time

from wattkeeper.policies.pipeline import exact_walk
from wattkeeper.policies.pipeline.exact import exact_frontier
from wattkeeper.policies.pipeline.graph import schedule_graph
from wattkeeper.policies.pipeline.profile import ClockPoint, PipelineProfile, StageClocks
from wattkeeper.policies.pipeline.published import published_frontier
from wattkeeper.policies.pipeline.schedules import PipelineSchedule

BLOCKING_W = 75.5
PLANS = 10


def read_profile(path: Path, stages: int) -> PipelineProfile:
    points: dict[tuple[int, str], list[ClockPoint]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            point = ClockPoint(int(row["frequency"]), float(row["time"]), float(row["energy"]))
            points.setdefault((int(row["stage"]), row["instruction"]), []).append(point)
    recorded = len(points) // 2
    return PipelineProfile(
        tuple(
            StageClocks(
                tuple(points[stage % recorded, "forward"]),
                tuple(points[stage % recorded, "backward"]),
            )
            for stage in range(stages)
        ),
        BLOCKING_W,
    )


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


def main() -> None:
    path = Path(sys.argv[1])
    print("plain Python" if exact_walk.__file__.endswith(".py") else "compiled")
    for stages, microbatches in ((4, 8), (8, 64), (16, 128)):
        schedule = PipelineSchedule("1f1b", stages, microbatches)
        measure_exact(read_profile(path, stages), schedule)
    for stages, microbatches, unit_s in ((4, 8, 1e-3), (8, 64, 5e-3)):
        schedule = PipelineSchedule("1f1b", stages, microbatches)
        measure_published(read_profile(path, stages), schedule, unit_s)


if __name__ == "__main__":
    main()
