"""What happened in a run: the GPUs of each job over time, and the profiles of attempts."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given

from tests.support.worlds import (
    AttemptRow,
    Setting,
    attempts_by_job,
    decisions,
    settings_of_worlds,
    stub,
)
from wattkeeper.policies.points.job import NEW, Job
from wattkeeper.policies.points.views import Configuration
from wattkeeper.policies.profile import Curve, Profile
from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.sim.cluster_results.tables import ClusterResult, collect
from wattkeeper.sim.engine.world import World

any_world = given(setting=settings_of_worlds())


class Span(NamedTuple):
    """From when to when a job held which GPUs: nodes, their number, and which of shared ones."""

    job: Job
    from_s: float
    to_s: float
    slots: tuple[tuple[int, int, int], ...]


def slots_of(chose: str) -> tuple[tuple[int, int, int], ...]:
    """A placement as the journal shows it; `NEW` stands for whole GPUs."""
    slots = []
    for slot in chose.split():
        node, _, rest = slot.partition(":")
        gpus, _, gpu = rest.partition("/")
        slots.append((int(node), int(gpus), int(gpu) if gpu else NEW))
    return tuple(slots)


def spans(setting: Setting, world: World) -> list[Span]:
    """Who held which GPUs when, from the journal: between placing, preempting and ending."""
    ended = {job_id: rows[-1].finish_time_s for job_id, rows in attempts_by_job(world).items()}
    held: dict[str, tuple[float, str]] = {}
    by_id = {job.job_id: job for job in setting.jobs}
    held_spans: list[Span] = []

    def left(job_id: str, to_s: float) -> None:
        from_s, chose = held.pop(job_id)
        held_spans.append(Span(by_id[job_id], from_s, to_s, slots_of(chose)))

    for row in decisions(world):
        if row.point == "place":
            assert row.job_id not in held, "it is placed while it holds GPUs"
            held[row.job_id] = row.time_s, row.chose
        elif row.point == "select" and row.chose == "preempt":
            left(row.job_id, row.time_s)
    for job_id in list(held):
        left(job_id, ended[job_id])
    return held_spans


def profile_of(setting: Setting, row: AttemptRow) -> Profile:
    assert row.workload is not None
    return setting.profiles[row.workload, row.gpus, row.gpu_type]


def curve_of(setting: Setting, row: AttemptRow) -> Curve:
    assert row.batch_size is not None
    return profile_of(setting, row).curves[row.batch_size]


def epochs_of(row: AttemptRow) -> int:
    assert row.epochs is not None
    return row.epochs


def bounded(cost_bound: float, batch_size: int = 32) -> PolicyConfig:
    config: PolicyConfig = stub(
        "configure", configure=lambda ctx, start: Configuration(batch_size, cost_bound=cost_bound)
    )
    return config


def collected(setting: Setting, world: World) -> ClusterResult:
    return collect(
        "v", setting.seed, world.recorder, world.source, setting.cluster, {}, world.env.events
    )
