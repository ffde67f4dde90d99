"""Small simulated worlds, made from streams of steps, in which policies are rehearsed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, cast

import pyarrow as pa

from wattkeeper.policies.forecasts.persistence import PersistenceConfig
from wattkeeper.policies.matching.graph import Graph, Node, Tensor
from wattkeeper.policies.points.replan import ElasticTask
from wattkeeper.policies.profile import Objective
from wattkeeper.policies.registry import PolicyConfig, find_config
from wattkeeper.policies.zoo_views import ChildModel
from wattkeeper.scenarios.contract.scripted import GPU, NEVER, profile, scripted_series
from wattkeeper.scenarios.contract.steps import Step
from wattkeeper.scenarios.inputs.run_inputs import ElasticInputs, RunInputs, SignalInput
from wattkeeper.scenarios.inputs.zoo_models import NO_MODELS, TraceModel, TraceModels
from wattkeeper.scenarios.kinds.simulation import prepare_world
from wattkeeper.scenarios.spec.sections.settings import ZooSection
from wattkeeper.scenarios.spec.sections.workload import TraceWorkload
from wattkeeper.scenarios.spec.variants import DEFAULTS, RunSpec, VariantSpec
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec
from wattkeeper.sim.cluster.losses import ClusterLosses, LossRules
from wattkeeper.sim.elastic.jobs import ElasticJob
from wattkeeper.sim.engine.run_config import PolicySet, RunRules
from wattkeeper.sim.engine.world import World
from wattkeeper.sim.replay.backend import Profiles
from wattkeeper.traces.gpus.model import GpuModel, find_gpu_model
from wattkeeper.traces.node_events import NodeEvent
from wattkeeper.traces.schema import JOBS
from wattkeeper.traces.tables import jobs_table

GROUPS: Final = 3
MAX_ATTEMPTS: Final = 3
DRAIN_S: Final = 1e6
"""So long before a cut nothing is submitted, if the policy keeps a queue: all jobs end."""

SIZES: Final[Mapping[int, tuple[float, ...]]] = {
    16: (3.0, NEVER, 4.0),
    32: (3.0, 2.0, NEVER),
    64: (NEVER, 2.0),
    128: (NEVER,),
}
"""Epochs to the target by batch size."""

PROFILES: Final[Profiles] = {
    ("cnn", gpus, GPU): profile(gpus=gpus, runs=SIZES, max_epochs=5) for gpus in range(1, 5)
}

TASK: Final = ElasticTask(
    "gpt",
    3,
    (0.0, 0.0, 0.0, 0.0, *(5.0 * n**0.9 for n in range(4, 13))),
    64.0,
    2.0,
    tuple(20.0 + n for n in range(13)),
    3.0,
)
"""It holds 3 nodes at least, trains on 4 to 12, and writes a checkpoint in 2 s."""

CAPACITY_GB: Final = 2e-6
"""Room for about five models."""


class Script(NamedTuple):
    """A world, and the time of each step of its stream, s."""

    world: World
    times_s: list[float]


def script_world(
    config: PolicyConfig,
    stream: Sequence[Step],
    seed: int,
    cut: int | None,
    recorded: Mapping[str, float],
) -> Script:
    """The world of a stream, which has not run yet; the simplest policies decide on the rest.

    Args:
        config: Of the policy that is rehearsed.
        stream: What happens.
        seed: Of the random streams.
        cut: Before this step all that was submitted ends if the policy keeps a queue.
        recorded: Attributes of jobs that their log recorded; this value, and up to 10,000 times it.
    """
    drained = cut if config.point == "select" else None
    times_s = _times_of(stream, 12.0 if config.point == "replan" else 4.0, drained)
    if config.point == "replan":
        inputs = _nodes_inputs(stream, times_s)
    else:
        trains_models = config.point == "retain" or config.sets_parent
        inputs = _jobs_inputs(stream, times_s, recorded, config.point == "retain", trains_models)
    series = {name: scripted_series(name) for name in config.signals}
    signals = {name: SignalInput(each, PersistenceConfig()) for name, each in series.items()}
    chosen = {point: find_config(point, kind) for point, kind in DEFAULTS.items()}
    if config.point == "retain":
        chosen["configure"] = find_config("configure", "random-parent")
    variant = VariantSpec(
        name="rehearsal",
        workload=TraceWorkload(kind="trace", trace="rehearsal"),
        policies=PolicySet(**(chosen | {config.point: config})),
        rules=RunRules(Objective(0.5), MAX_ATTEMPTS),
        zoo=ZooSection(capacity_gb=CAPACITY_GB) if inputs.models.known else None,
    )
    spec = RunSpec(variant, seed)
    return Script(prepare_world(spec, inputs._replace(signals=signals)), times_s)


def _times_of(stream: Sequence[Step], end_s: float, drained: int | None) -> list[float]:
    """When each step happens, s: 1 s after a submission, 1 to 7 times `end_s` after an end."""
    now_s, times_s = 0.0, []
    for number, (action, which) in enumerate(stream):
        now_s += DRAIN_S if number == drained else 0.0
        times_s.append(now_s)
        now_s += 1.0 if action == "submit" else end_s * (1 + which % 7)
    return times_s


def _jobs_inputs(
    stream: Sequence[Step],
    times_s: Sequence[float],
    recorded: Mapping[str, float],
    is_store: bool,
    trains_models: bool,
) -> RunInputs:
    """Jobs of some groups on three nodes; each fifth one, or all of a store, without a workload."""
    submitted = [0] * GROUPS
    rows: list[dict[str, Any]] = []
    for (action, which), time_s in zip(stream, times_s, strict=True):
        if action != "submit":
            continue
        group, number = which % GROUPS, len(rows)
        submitted[group] += 1
        bare = is_store or number % 5 == 4
        row = {
            "job_id": f"group-{group}/{submitted[group]}",
            "group_id": f"group-{group}",
            "submit_time_s": time_s,
            "gpus": 1 + (group + submitted[group]) % 4,
            "workload": None if bare else "cnn",
            "user": f"group-{group}",
            "deadline_s": time_s + 400.0,
        }
        row |= {"duration_s": 10.0, "estimate_s": 10.0, "start_time_s": time_s}
        if not bare:
            row |= {name: value * 10 ** (number % 5) for name, value in recorded.items()}
        rows.append(row)
    known = list(MODELS)
    models = {
        row["job_id"]: known[-1 if number % 29 == 28 else number % (len(known) - 1)]
        for number, row in enumerate(rows)
    }
    return RunInputs(
        ClusterSpec.uniform(GPU, 3, 2, 20.0, 250.0),
        PROFILES,
        _table_of(rows),
        models=TraceModels(models, MODELS) if trains_models else NO_MODELS,
        limits={GPU: cast(GpuModel, find_gpu_model(GPU))},
    )


def _table_of(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    columns = {name: [row[name] for row in rows] for name in rows[0]} if rows else {"job_id": []}
    return jobs_table(
        {name: pa.array(values, JOBS.field(name).type) for name, values in columns.items()}
    )


def _nodes_inputs(stream: Sequence[Step], times_s: Sequence[float]) -> RunInputs:
    """An elastic job on nodes that come and go."""
    there = [f"first-{number}" for number in range(TASK.most_nodes // 2)]
    events = [NodeEvent(0.0, "up", name) for name in there]
    for number, ((action, which), time_s) in enumerate(zip(stream, times_s, strict=True)):
        if action == "submit" and len(there) < TASK.most_nodes:
            there.append(f"node-{number}")
            events.append(NodeEvent(time_s, "up", there[-1]))
        elif action == "end" and there:
            events.append(NodeEvent(time_s, "down", there.pop(which % len(there))))
    job = {"job_id": "gpt", "workload": "gpt", "gpus": TASK.start_nodes, "submit_time_s": 0.0}
    cluster = ClusterSpec.uniform(GPU, TASK.most_nodes, 1, 20.0, 250.0)
    until_s = (times_s[-1] if times_s else 0.0) + 200.0
    return RunInputs(
        replace(cluster, losses=ClusterLosses(tuple(events), LossRules())),
        {},
        _table_of([job]),
        elastic=ElasticInputs({0: ElasticJob(TASK)}, 1, until_s),
    )


def _model(number: int, width: int, accuracy: float) -> TraceModel:
    """A model of two linear layers."""
    shapes = ((width, 8), (4, width))
    nodes = tuple(
        Node("linear", (at - 1,), (Tensor("", "weight", shape),)) for at, shape in enumerate(shapes)
    )
    name = f"model-{number}"
    return TraceModel(ChildModel(name, f"task-{number % 2}", Graph(name, nodes)), accuracy)


MODELS: Final[Mapping[str, TraceModel]] = {
    model.child.name: model
    for model in (
        *(
            _model(number, 4 + 4 * (number % 4), accuracy)
            for number, accuracy in enumerate((0.9, 0.8, 0.85, 0.9, 0.2, 0.95))
        ),
        _model(6, 60, 0.9),
    )
}
"""Models of 192 to 768 bytes, and one that is larger than the store."""
