"""The models that the jobs of a trace train."""

import math
from collections.abc import Collection, Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.matching.graph import Graph
from wattkeeper.policies.zoo_views import ChildModel
from wattkeeper.scenarios.spec.sections.settings import ZooSection
from wattkeeper.scenarios.spec.sections.workload import Durations
from wattkeeper.sim.engine.zoo import ModelOfJob, ZooSpec
from wattkeeper.traces.arrow import replace_column
from wattkeeper.traces.trace import Trace

BYTES_PER_GB = 10**9


class TraceModel(NamedTuple):
    """A model, and its accuracy from scratch if the trace has it."""

    child: ChildModel
    accuracy: float | None


class TraceModels(NamedTuple):
    """The models of a trace.

    Attributes:
        of_job: The model that a job trains, by the job's id.
        known: The models by name.
    """

    of_job: Mapping[str, str]
    known: Mapping[str, TraceModel]


NO_MODELS = TraceModels({}, {})


def read_models(trace: Trace) -> TraceModels:
    """The models of a trace; none if it has no such tables.

    Raises:
        TraceError: If a graph cannot be read.
    """
    if "models" not in trace.tables:
        return NO_MODELS
    from wattkeeper.traces.models.graphs import parse_graph

    graphs: dict[str, Graph] = {}
    known = {}
    for row in trace.tables["models"].to_pylist():
        name, text = row["model"], row["graph"]
        if text not in graphs:
            where = f"{trace.name}/models.parquet, {name}"
            graphs[text] = parse_graph(name, text.encode(), where)
        child = ChildModel(name, row["task"], graphs[text], row["mutated_from"])
        known[name] = TraceModel(child, row["accuracy"])
    trains = trace.tables["trainings"]
    pairs = zip(trains["job_id"].to_pylist(), trains["model"].to_pylist(), strict=True)
    return TraceModels(dict(pairs), known)


def estimate_durations(
    jobs: pa.Table, models: TraceModels, durations: Durations
) -> tuple[pa.Table, int]:
    """Estimate the duration of jobs that train a model and have none recorded.

    Returns:
        The jobs, and how many got one.
    """
    seconds = {
        name: durations.base_s
        + durations.s_per_million_parameters * int(model.child.graph.parameters.sum()) / 1e6
        for name, model in models.known.items()
    }
    of_job = models.of_job
    ids = jobs["job_id"].to_pylist()
    estimates = [seconds[of_job[job_id]] if job_id in of_job else None for job_id in ids]
    recorded = jobs["duration_s"]
    filled = pc.coalesce(recorded, pa.chunked_array([pa.array(estimates, pa.float64())]))
    count = int(recorded.null_count - filled.null_count)
    return replace_column(jobs, "duration_s", filled), count


def assign_trained(
    jobs: pa.Table, models: TraceModels, trained: Collection[str]
) -> tuple[pa.Table, frozenset[str]]:
    """Give jobs whose workloads scripts train what these need.

    A job that names no workload has that of its model's task, if it is one of `trained`. Jobs of
    `trained` have the time scale 1: they take what they take.

    Returns:
        The jobs, and all names that `trained` may have.
    """
    tasks = {job_id: models.known[name].child.task for job_id, name in models.of_job.items()}
    names = [
        tasks.get(job_id) if workload is None and tasks.get(job_id) in trained else workload
        for job_id, workload in zip(
            jobs["job_id"].to_pylist(), jobs["workload"].to_pylist(), strict=True
        )
    ]
    workloads = pa.array(names, pa.string())
    scripted = pc.is_in(workloads, value_set=pa.array(sorted(trained), pa.string()))
    scales = pc.if_else(scripted, 1.0, jobs["time_scale"])
    jobs = replace_column(replace_column(jobs, "workload", workloads), "time_scale", scales)
    return jobs, frozenset(filter(None, {*names, *tasks.values()}))


def zoo_spec(zoo: ZooSection, models: TraceModels) -> ZooSpec:
    """The specification of a simulated zoo."""
    from wattkeeper.sim.engine.warm_start import shipped

    known = {}
    for name, (child, accuracy) in models.known.items():
        from_scratch = zoo.accuracy if accuracy is None else accuracy
        known[name] = ModelOfJob(child, math.nan if from_scratch is None else from_scratch)
    return ZooSpec(capacity_bytes(zoo), known, shipped())


def capacity_bytes(zoo: ZooSection) -> int | None:
    """The stated capacity of a zoo; None if it has no bound."""
    return None if zoo.capacity_gb is None else round(zoo.capacity_gb * BYTES_PER_GB)
