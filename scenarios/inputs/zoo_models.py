"""The models that the jobs of a trace train."""

from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.matching.graph import Graph
from wattkeeper.policies.zoo_views import ChildModel
from wattkeeper.scenarios.spec.schema import Durations, ZooSection
from wattkeeper.sim.engine.warm_start import shipped
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
    from wattkeeper.traces.models.graphs import parse_graph

    if "models" not in trace.tables:
        return NO_MODELS
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


def zoo_spec(zoo: ZooSection, models: TraceModels) -> ZooSpec:
    """The specification of a simulated zoo."""
    known = {}
    for name, (child, accuracy) in models.known.items():
        from_scratch = zoo.accuracy if accuracy is None else accuracy
        assert from_scratch is not None  # checked before
        known[name] = ModelOfJob(child, from_scratch)
    capacity = None if zoo.capacity_gb is None else round(zoo.capacity_gb * BYTES_PER_GB)
    return ZooSpec(capacity, known, shipped())
