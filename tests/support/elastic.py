"""Worlds with elastic jobs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.support.worlds import chosen, run_world, spec
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.replan import ElasticTask
from wattkeeper.policies.registry import PolicyConfig, find_config
from wattkeeper.scenarios.contract.scripted import job
from wattkeeper.sim.cluster.losses import LossRules, NodeChange, RunLosses
from wattkeeper.sim.elastic.jobs import ElasticJob, ElasticJobs
from wattkeeper.sim.engine.world import World
from wattkeeper.sim.recording.row_types import ShapeRow

IDLE_W, BUSY_W = 20.0, 250.0

SCENARIO = """
name: elastic
question: Which way to be resilient keeps most?
cluster:
  gpu: A100
  gpus: 48
  gpus_per_node: 8
  idle_power_w: 60
  busy_power_w: 350
  losses: {events: {rate: 3000, away_s: 1800}, boot_s: 60}
workload:
  kind: elastic
  rates: {gpt: {3: 5.4, 4: 7.0, 5: 8.5, 6: 10.0}}
  jobs:
    - {name: gpt, model: gpt, batch: 256, least_nodes: 3, most_nodes: 6, checkpoint_s: 30,
       restart_s: 200, reconfigure_s: 10}
  until_s: 86400
variants:
  varuna: {policies: {replan: varuna}}
  oobleck: {policies: {replan: {kind: oobleck, join: pays}}}
baseline: varuna
"""
"""A day of an elastic job that may take all nodes of its cluster."""


def task(
    name: str = "e",
    least: int = 2,
    most: int = 4,
    rate: float = 1.0,
    batch: float = 10.0,
    checkpoint_s: float = 3.0,
    restart_s: float = 10.0,
    reconfigure_s: float = 2.0,
) -> ElasticTask:
    """A task whose rate is proportional to its nodes: `rate` samples a second on each."""
    rates = tuple(rate * nodes if nodes >= least else 0.0 for nodes in range(most + 1))
    return ElasticTask(
        name, least, rates, batch, checkpoint_s, (restart_s,) * (most + 1), reconfigure_s
    )


def elastic_job(name: str, number: int, task: ElasticTask, submit_s: float, gpus: int) -> Job:
    """The job that waits for the fewest nodes of a task."""
    asked = task.start_nodes * gpus
    new = job(name, submit_s, gpus=asked).replace(workload=name, number=number)
    return new.replace(reserved_w=asked * BUSY_W)


def run_elastic(
    tasks: Sequence[ElasticTask],
    changes: Iterable[NodeChange] = (),
    *,
    replan: str | PolicyConfig = "oobleck",
    settings: Mapping[str, Any] | None = None,
    nodes: int = 4,
    gpus: int = 1,
    samples: float = math.inf,
    until_s: float = math.inf,
    others: Sequence[Job] = (),
    rules: LossRules | None = None,
    submit_s: float = 0.0,
    **parts: Any,
) -> World:
    """Run elastic jobs, numbered first, and others on a cluster of equal nodes."""
    config = find_config("replan", replan, settings)
    known = {number: ElasticJob(each, samples) for number, each in enumerate(tasks)}
    jobs = [
        elastic_job(each.name, number, each, submit_s, gpus) for number, each in enumerate(tasks)
    ]
    jobs += [other.replace(number=len(tasks) + n) for n, other in enumerate(others)]
    policies = parts.pop("policy_set", chosen())
    policies = type(policies)(
        **{
            name: getattr(policies, name)
            for name in type(policies).__dataclass_fields__
            if name != "replan"
        },
        replan=config,
    )
    cluster = parts.pop("cluster", spec(nodes, gpus, IDLE_W))
    return run_world(
        jobs,
        parts.pop("profiles", {}),
        cluster,
        policies,
        losses=RunLosses(rules or LossRules(), iter(changes)),
        elastic=lambda its: ElasticJobs(its, known, gpus, until_s),
        **parts,
    )


def shapes(world: World, number: int = 0) -> list[ShapeRow]:
    """The shapes of a job, in order."""
    return [row for row in world.recorder.shapes if row.number == number]
