"""Elastic jobs, and those that share the cluster with them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final, cast

import numpy as np
import pyarrow as pa
from typing_extensions import override

from wattkeeper.policies.elastic.pipeline_plan import PipelinePlan
from wattkeeper.policies.elastic.templates import most_nodes, plan_templates, template_sizes
from wattkeeper.policies.errors import InputError, PolicyError, ScenarioError
from wattkeeper.policies.points.replan import ElasticTask
from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.scenarios.inputs.clusters import UsedCluster
from wattkeeper.scenarios.inputs.run_inputs import (
    ElasticInputs,
    RunInputs,
    ScenarioInputs,
    SourceFile,
)
from wattkeeper.scenarios.kinds.kind import SIMULATED_ONLY, Clusters, WorkloadKind
from wattkeeper.scenarios.kinds.trace import read_trace_jobs
from wattkeeper.scenarios.spec.loading import LoadedScenario, locate_error
from wattkeeper.scenarios.spec.sections.cluster import Preemption
from wattkeeper.scenarios.spec.sections.elastic import (
    ByNodes,
    ElasticJobSection,
    ElasticWorkload,
    PlannedPipelines,
)
from wattkeeper.scenarios.spec.sections.workload import TraceWorkload
from wattkeeper.scenarios.spec.wording import count
from wattkeeper.scenarios.spec.yaml_document import YamlDocument, locate_errors
from wattkeeper.sim.elastic.jobs import ElasticJob
from wattkeeper.traces.layer_costs import LayerProfile, read_layers
from wattkeeper.traces.node_rates import RATES, NodeRates, read_node_rates
from wattkeeper.traces.tables import jobs_table

PLANNED: Final = "oobleck"
"""The training system whose rates follow from pipelines."""


class Elastic(WorkloadKind):
    """Jobs that continue when they gain or lose nodes."""

    not_live: ClassVar[str] = SIMULATED_ONLY.format(kind="elastic")
    rents_nodes: ClassVar[bool] = True

    @override
    def read(self, loaded: LoadedScenario, clusters: Clusters, live: bool) -> ScenarioInputs:
        workload = cast("ElasticWorkload", loaded.scenario.workload)
        document = loaded.document
        beside = document.folder_of(("workload", "rates"))
        with locate_errors(document, "workload", "rates"):
            rates = _rates(workload, beside)
        _check_use(loaded, workload, rates)
        others: ScenarioInputs | None = None
        if workload.others is not None:
            trace = TraceWorkload(kind="trace", **workload.others.model_dump())
            others = read_trace_jobs(
                loaded, trace, None, clusters, frozenset(), ("workload", "others")
            )
        runs: dict[str, RunInputs] = {}
        profiles: dict[str, LayerProfile] = {}
        for used in clusters:
            per_node = _check_cluster(used, workload, loaded)
            plans = _plans(loaded, workload, per_node, profiles)
            for variant in used.variants:
                replan = _replan_of(loaded, variant)
                tasks = []
                for index, job in enumerate(workload.jobs):
                    place = ("workload", "jobs", str(index))
                    with locate_errors(document, *place):
                        plan = plans.get(index)
                        try:
                            found = {
                                system: _rates_by(system, job, rates, plan)
                                for system in replan.systems
                            }
                        except InputError as error:
                            raise locate_error(
                                loaded, variant, PolicyError(str(error), "replan")
                            ) from None
                        tasks.append(_task(job, found, workload, plan, replan.fewest_nodes))
                        _check_size(tasks[-1], used, loaded, place)
                jobs = _jobs_table(workload, tasks, per_node)
                if others is not None:
                    jobs = pa.concat_tables([jobs, others.any_run.jobs])
                until_s = math.inf if workload.until_s is None else workload.until_s
                elastic = {
                    number: ElasticJob(task, math.inf if job.samples is None else job.samples)
                    for number, (task, job) in enumerate(zip(tasks, workload.jobs, strict=True))
                }
                runs[variant] = RunInputs(
                    used.spec, {}, jobs, elastic=ElasticInputs(elastic, per_node, until_s)
                )
        rows = np.arange(len(workload.jobs))
        files = [SourceFile.of_csv(rates, "rates by number of nodes")] * isinstance(
            workload.rates, str
        )
        inputs = others or ScenarioInputs(runs)
        return inputs._replace(
            runs=runs,
            rows=np.concatenate([rows, inputs.rows]),
            files=(
                *files,
                *(SourceFile.of_csv(each, "costs of layers") for each in profiles.values()),
            ),
        )


KIND = Elastic()


def _replan_of(loaded: LoadedScenario, variant: str) -> PolicyConfig:
    replan = loaded.variants[variant].policies.replan
    assert replan is not None  # jobs take other shapes
    return replan


def _check_use(loaded: LoadedScenario, workload: ElasticWorkload, rates: NodeRates) -> None:
    """Refuse pipelines that no variant uses, and rates that none does."""
    scenario, document = loaded
    systems = [
        system for variant in scenario.variants for system in _replan_of(loaded, variant).systems
    ]
    for index, job in enumerate(workload.jobs):
        place = ("workload", "jobs", str(index), "pipelines")
        if job.pipelines is not None and PLANNED not in systems:
            raise ScenarioError(
                "pipelines have no effect: no variant has replan: oobleck", document.where(place)
            )
        if job.pipelines is not None and (PLANNED, job.model) in rates.rates:
            raise ScenarioError(
                f"pipelines: {rates.name} has rates of {job.model!r} by {PLANNED}; state either",
                document.where(place),
            )
    planned = all(job.pipelines is not None for job in workload.jobs)
    if planned and set(systems) == {PLANNED} and workload.rates is not None:
        raise ScenarioError(
            "rates have no effect: all jobs have pipelines, and all variants replan: oobleck",
            document.where(("workload", "rates")),
        )


def _plans(
    loaded: LoadedScenario,
    workload: ElasticWorkload,
    per_node: int,
    profiles: dict[str, LayerProfile],
) -> dict[int, PipelinePlan]:
    """The plans of jobs with pipelines, by index; `profiles` gets what they are made from."""
    plans = {}
    for index, job in enumerate(workload.jobs):
        if job.pipelines is not None:
            place = ("workload", "jobs", str(index), "pipelines")
            with locate_errors(loaded.document, *place):
                beside = loaded.document.folder_of((*place, "layers"))
                plans[index], profile = plan_job(job, job.pipelines, per_node, beside)
            profiles[f"{job.pipelines.layers} {job.pipelines.profile}"] = profile
    return plans


def _rates_by(
    system: str, job: ElasticJobSection, rates: NodeRates, plan: PipelinePlan | None
) -> Mapping[int, float]:
    """The rates of a job by a training system: planned ones of Oobleck where it has pipelines.

    Raises:
        InputError: If there are none.
    """
    if plan is not None and system == PLANNED:
        return plan.rates(range(job.least_nodes, job.most_nodes + 1), job.batch)
    if not rates.rates:
        raise InputError(f"there are no rates of {job.model!r} by {system} (workload.rates)")
    return rates.of(system, job.model)


def _rates(workload: ElasticWorkload, beside: Path) -> NodeRates:
    if not isinstance(workload.rates, str):
        stated = workload.rates or {}
        by_model = {("", model): rates for model, rates in stated.items()}
        return NodeRates("rates", by_model, "", RATES.empty_table())
    return read_node_rates(beside / workload.rates)


def _task(
    job: ElasticJobSection,
    rates: Mapping[str, Mapping[int, float]],
    workload: ElasticWorkload,
    plan: PipelinePlan | None,
    fewest: int,
) -> ElasticTask:
    """What a job trains, at the rates of the first of some systems.

    Raises:
        InputError: If rates are missing, or none between the fewest and the most nodes is positive.
    """
    by_system = {
        system: _rates_of_job(job, known, workload, fewest) for system, known in rates.items()
    }
    restart_s = tuple(_restart_s(job.restart_s, nodes) for nodes in range(job.most_nodes + 1))
    return ElasticTask(
        job.name,
        job.least_nodes,
        next(iter(by_system.values())),
        job.batch,
        job.checkpoint_s,
        restart_s,
        job.reconfigure_s,
        by_system if len(by_system) > 1 else {},
        plan,
    )


def _rates_of_job(
    job: ElasticJobSection, rates: Mapping[int, float], workload: ElasticWorkload, fewest: int
) -> tuple[float, ...]:
    """The rates of a job by number of nodes; 0 below the fewest on which its policy can train it.

    Raises:
        InputError: As `_task`.
    """
    if fewest > job.most_nodes:
        raise InputError(
            f"most_nodes: {job.name} takes {job.most_nodes} nodes at most; policies.replan trains "
            f"it on {fewest} or more"
        )
    listed = sorted(rates)
    absent = [nodes for nodes in range(job.least_nodes, job.most_nodes + 1) if nodes not in rates]
    if workload.beyond_rates == "nearest":
        absent = [nodes for nodes in absent if listed[0] < nodes < listed[-1]]
    if absent:
        raise InputError(
            f"rates of {job.model} on {count(len(absent), 'number')} of nodes are missing (first: "
            f"{absent[0]}); there are those on {listed[0]} to {listed[-1]}"
            + " (beyond_rates: nearest takes these beyond)"
            * (workload.beyond_rates == "refuse")
        )
    found = [0.0] * (job.most_nodes + 1)
    for nodes in range(max(fewest, job.least_nodes), job.most_nodes + 1):
        found[nodes] = rates[min(max(nodes, listed[0]), listed[-1])]
    if not any(found):
        raise InputError(f"{job.model} cannot train on any number of nodes: all its rates are 0")
    return tuple(found)


def _restart_s(stated: ByNodes, nodes: int) -> float:
    if not isinstance(stated, dict):
        return stated
    return stated[max((each for each in stated if each <= nodes), default=min(stated))]


def _jobs_table(workload: ElasticWorkload, tasks: Sequence[ElasticTask], per_node: int) -> pa.Table:
    return jobs_table(
        {
            "job_id": [job.name for job in workload.jobs],
            "submit_time_s": [job.submit_s for job in workload.jobs],
            "gpus": [task.start_nodes * per_node for task in tasks],
            "workload": [job.model for job in workload.jobs],
        }
    )


def _check_cluster(used: UsedCluster, workload: ElasticWorkload, loaded: LoadedScenario) -> int:
    """Refuse clusters whose nodes differ; returns the GPUs of each node."""
    spec, document = used.spec, loaded.document
    sizes = sorted({(group.gpu_type, group.gpus_per_node) for group in spec.groups})
    if len(sizes) > 1:
        listed = ", ".join(f"{gpus} {gpu_type}" for gpu_type, gpus in sizes)
        raise InputError(
            f"{used.label}elastic jobs take whole nodes that are alike; the cluster has nodes of "
            f"{listed}",
            used.where(document),
        )
    power = next(iter(spec.power.values()))
    if power.busy_w is None:
        raise InputError(
            f"{used.label}busy_power_w: elastic jobs draw it in training; it is not stated",
            used.where(document),
        )
    if workload.others is None:
        _check_alone(used, document)
    return sizes[0][1]


def _check_alone(used: UsedCluster, document: YamlDocument) -> None:
    """Refuse settings of a cluster that change nothing for elastic jobs, which run alone."""
    losses, why = used.stated.losses, {}
    if losses is not None and losses.checkpoint is not None:
        why["losses.checkpoint"] = "elastic jobs write checkpoints as replan says"
    if losses is not None and losses.requeue != "first":
        why["losses.requeue"] = "an elastic job keeps its place in the queue"
    if used.stated.preemption != Preemption():
        why["preemption"] = "an elastic job restarts as replan says"
    for key, reason in why.items():
        raise ScenarioError(
            f"{used.label}{key} has no effect: {reason}, and there are no others",
            used.where(document, *key.split(".")),
        )


def _check_size(
    task: ElasticTask, used: UsedCluster, loaded: LoadedScenario, place: tuple[str, ...]
) -> None:
    nodes = used.spec.nodes
    if task.start_nodes > nodes:
        raise ScenarioError(
            f"{used.label}{task.name} trains on {count(task.start_nodes, 'node')} at least, the "
            f"cluster has {nodes}",
            loaded.document.where(place),
        )


def plan_job(
    job: ElasticJobSection, stated: PlannedPipelines, gpus_per_node: int, beside: Path
) -> tuple[PipelinePlan, LayerProfile]:
    """The templates of a job, and the costs that they are planned from.

    Args:
        job: The job.
        stated: Its pipelines.
        gpus_per_node: GPUs of each node.
        beside: The folder that the path of the file is relative to.

    Raises:
        InputError: If the file cannot be read or has no such profile, or the job has too few nodes
            or layers for these pipelines.
    """
    profile = read_layers(beside / stated.layers, stated.profile)
    most = most_nodes(len(profile.layers), gpus_per_node)
    sizes = template_sizes(stated.least_nodes, job.most_nodes, stated.losses, most)
    templates = plan_templates(profile.layers, gpus_per_node, sizes)
    microbatches = round(job.batch / stated.microbatch)
    return PipelinePlan(templates, microbatches, profile.layer_bytes), profile
