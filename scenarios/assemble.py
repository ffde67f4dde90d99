"""Puts the parts of a run together: the only place that knows them all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from wattkeeper.policies.errors import (
    InputError,
    PolicyError,
    Problem,
    TraceError,
    WattkeeperError,
)
from wattkeeper.policies.profile import Objective, optimum
from wattkeeper.policies.registry import POINTS, Point, PolicyConfig, policies
from wattkeeper.scenarios.document import Document
from wattkeeper.scenarios.load import Loaded
from wattkeeper.scenarios.schema import ProfileSource, Recurring, Scenario, Synthetic
from wattkeeper.sim.clock import Clock
from wattkeeper.sim.cluster import Cluster, ClusterSpec
from wattkeeper.sim.replay import Occupancy, Profiles, Profiling, Replay, options_of
from wattkeeper.sim.results import RunResult, collect
from wattkeeper.sim.sources import Recurring as RecurringSource
from wattkeeper.sim.sources import Source
from wattkeeper.sim.sources import Trace as TraceSource
from wattkeeper.sim.streams import NamedStreams, PublishedStreams, Streams, checksum
from wattkeeper.sim.world import PolicySet, Rules, World
from wattkeeper.traces import library
from wattkeeper.traces.profiles import load_profiles
from wattkeeper.traces.synthetic import generate
from wattkeeper.traces.trace import Trace

if TYPE_CHECKING:
    import pyarrow as pa

DEFAULTS: dict[Point, str] = {
    "configure": "fixed",
    "tune": "max-power",
    "select": "fifo",
    "place": "first-fit",
}


class Inputs(NamedTuple):
    """What all runs of a scenario read.

    Attributes:
        profiles: Those that the jobs need.
        jobs: The trace's jobs; None where jobs recur by themselves.
        recurrences: How often each workload recurs, where jobs recur by themselves.
        traces: Where all this comes from.
    """

    profiles: Profiles
    jobs: pa.Table | None
    recurrences: Mapping[str, int]
    traces: tuple[Trace, ...]


@dataclass(frozen=True, slots=True)
class RunSpec:
    """One variant with one seed; it can be sent to another process."""

    variant: str
    seed: int
    cluster: ClusterSpec
    policies: PolicySet
    rules: Rules
    occupancy: Occupancy
    profiling: Profiling
    published: bool


@contextmanager
def named_at(document: Document, *path: str) -> Iterator[None]:
    """Inside, input errors say where the scenario named what is wrong."""
    try:
        yield
    except InputError as error:
        here = document.where(path)
        problems = [p if p.where else Problem(p.message, here) for p in error.problems]
        raise type(error)(problems) from None


def read_inputs(loaded: Loaded) -> Inputs:
    """Find and check the traces of a scenario.

    Raises:
        InputError: If they are absent, broken, or do not fit the scenario; the message names the
            place in the scenario or in the trace.
    """
    scenario, document = loaded
    workload = scenario.workload
    with named_at(document, "workload", "profiles"):
        profiles = _profile_trace(workload.profiles)
    if isinstance(workload, Recurring):
        return _recurring_inputs(scenario, workload, document, profiles)
    with named_at(document, "workload", "trace"):
        trace = library.find(workload.trace)
        if trace.kind != "jobs":
            raise InputError(f"trace {trace.name!r} holds {trace.kind}; a trace of jobs is needed")
        _check_jobs(trace, scenario)
    jobs = trace.tables["jobs"]
    needed = jobs.group_by(["workload", "gpus"], use_threads=False).aggregate([]).to_pylist()
    with named_at(document, "cluster", "gpu"):
        known = {
            gpus: load_profiles(profiles, scenario.cluster.gpu, gpus)
            for gpus in sorted({row["gpus"] for row in needed})
        }
        found = {
            (row["workload"], row["gpus"]): known[row["gpus"]].get(row["workload"])
            for row in needed
        }
    return Inputs(found, jobs, {}, (profiles, trace))


def check_policies(loaded: Loaded, inputs: Inputs) -> None:
    """Refuse what a variant's policies can never choose on the profiles that its jobs need.

    Raises:
        PolicyError: The message names the place in the scenario.
    """
    for variant, own in loaded.scenario.variants.items():
        configure = policy_of(loaded.scenario, variant, "configure")
        if configure.sets_power and own.policies.tune is not None:
            what = f"configure: {configure.kind} sets the power limit itself; leave tune out"
            raise located(loaded, variant, PolicyError(what, "tune"))
        for point in POINTS:
            config = policy_of(loaded.scenario, variant, point)
            for profile in inputs.profiles.values():
                try:
                    config.check(options_of(profile))
                except PolicyError as error:
                    raise located(loaded, variant, error) from None


def _recurring_inputs(
    scenario: Scenario, workload: Recurring, document: Document, trace: Trace
) -> Inputs:
    with named_at(document, "cluster", "gpu"):
        known = load_profiles(trace, scenario.cluster.gpu, workload.gpus)
    with named_at(document, "workload", "gpus"):
        if workload.gpus > scenario.cluster.gpus:
            raise InputError(
                f"gpus: each job asks for {workload.gpus}, the cluster has {scenario.cluster.gpus}"
            )
    with named_at(document, "workload", "workloads"):
        names = workload.workloads or known.workloads
        if not names:
            raise InputError(
                f"trace {trace.name!r} has no workload that can be replayed on "
                f"{scenario.cluster.gpu}: "
                + "; ".join(f"{name}: {why}" for name, why in known.absent.items())
            )
        profiles = {(name, workload.gpus): known.get(name) for name in names}
    often = workload.recurrences
    recurrences = {
        name: often if isinstance(often, int) else often.per_configuration * profile.configurations
        for (name, _), profile in profiles.items()
    }
    return Inputs(profiles, None, recurrences, (trace,))


def _profile_trace(source: ProfileSource) -> Trace:
    if isinstance(source, Synthetic):
        return generate(source.synthetic, "synthetic")
    trace = library.find(source)
    if trace.kind != "profiles":
        raise InputError(f"trace {trace.name!r} holds {trace.kind}; profiles are needed")
    return trace


def _check_jobs(trace: Trace, scenario: Scenario) -> None:
    """Refuse jobs that cannot be replayed.

    Raises:
        TraceError: One problem for each row that is wrong.
    """
    recorded = any(occupancy_of(scenario, name) == "recorded" for name in scenario.variants)
    names = ("job_id", "group_id", "workload", "gpus", "duration_s")
    columns = [trace.tables["jobs"][name].to_pylist() for name in names]
    trained: dict[str, str] = {}
    problems = []
    for row, (job, group, workload, gpus, duration_s) in enumerate(zip(*columns, strict=True), 1):
        wrong = []
        if workload is None:
            wrong.append("names no workload; every job needs one")
        elif group is not None and trained.setdefault(group, workload) != workload:
            wrong.append(
                f"trains {workload!r}, others of its group {group!r} train {trained[group]!r}; the "
                "jobs of a group recur, so they train the same"
            )
        if gpus > scenario.cluster.gpus:
            wrong.append(f"asks for {gpus} GPUs, the cluster has {scenario.cluster.gpus}")
        if recorded and not (duration_s or 0) > 0:
            wrong.append(
                f"has duration_s {duration_s}; occupancy: recorded needs a recorded duration > 0 s"
            )
        where = f"{trace.name}/jobs.parquet, row {row}"
        problems += [Problem(f"job {job!r} {text}", where) for text in wrong]
    if problems:
        raise TraceError(problems)


def occupancy_of(scenario: Scenario, variant: str) -> Occupancy:
    """The variant's own occupancy, or the scenario's."""
    return scenario.variants[variant].occupancy or scenario.occupancy


def run_specs(scenario: Scenario) -> list[RunSpec]:
    """All runs of a scenario: variants by seeds."""
    cluster = scenario.cluster
    per_node = cluster.gpus_per_node or cluster.gpus
    spec = ClusterSpec(cluster.gpu, cluster.gpus // per_node, per_node, cluster.idle_power_w)
    return [
        _run_spec(scenario, name, seed, spec)
        for name in scenario.variants
        for seed in scenario.all_seeds
    ]


def _run_spec(scenario: Scenario, name: str, seed: int, cluster: ClusterSpec) -> RunSpec:
    variant = scenario.variants[name]
    objective = variant.objective or scenario.objective
    occupancy = occupancy_of(scenario, name)
    return RunSpec(
        variant=name,
        seed=seed,
        cluster=cluster,
        policies=PolicySet(**{point: policy_of(scenario, name, point) for point in POINTS}),
        rules=Rules(Objective(objective.eta), scenario.max_attempts, occupancy == "recorded"),
        occupancy=occupancy,
        profiling=variant.profiling or scenario.profiling,
        published=scenario.rng == "published",
    )


def policy_of(scenario: Scenario, variant: str, point: Point) -> PolicyConfig:
    """The variant's policy of a decision point, or the scenario's, or the default."""
    for chosen in (scenario.variants[variant].policies, scenario.policies):
        config: PolicyConfig | None = getattr(chosen, point)
        if config is not None:
            return config
    return policies(point)[DEFAULTS[point]].model_validate({})


def execute(spec: RunSpec, inputs: Inputs) -> RunResult:
    """Run one variant with one seed."""
    env = Clock()
    source = _source(inputs)
    streams = _streams(spec, inputs)
    objective = spec.rules.objective
    backend = Replay(env, inputs.profiles, streams, objective, spec.occupancy, spec.profiling)
    cluster = Cluster(spec.cluster)
    world = World(env, cluster, source, backend, spec.policies, spec.rules, streams)
    backend.listener = world
    world.run()
    return collect(
        spec.variant, spec.seed, world.recorder, spec.cluster, _optima(spec, inputs), env.events
    )


def _source(inputs: Inputs) -> Source:
    if inputs.jobs is not None:
        return TraceSource(inputs.jobs)
    (gpus,) = {gpus for _, gpus in inputs.profiles}
    return RecurringSource(inputs.recurrences, gpus)


def _streams(spec: RunSpec, inputs: Inputs) -> Streams:
    """Published: sequential groups take the run's seed, those of a trace the sum of their id."""
    if not spec.published:
        return NamedStreams(spec.seed)
    return PublishedStreams(checksum if inputs.jobs is not None else lambda _: spec.seed)


def _optima(spec: RunSpec, inputs: Inputs) -> dict[tuple[str, int], float]:
    """Smallest expected costs; absent where no configuration ever succeeded."""
    found = {
        key: optimum(profile, spec.rules.objective) for key, profile in inputs.profiles.items()
    }
    return {key: best.cost for key, best in found.items() if best is not None}


def located(loaded: Loaded, variant: str, error: InputError | PolicyError) -> WattkeeperError:
    """The same error with the variant, and where the scenario chose the policy that is to blame."""
    scenario, document = loaded
    point = error.point if isinstance(error, PolicyError) else None
    at: tuple[str, ...] = ("variants", variant)
    if point is not None:
        own = getattr(scenario.variants[variant].policies, point) is not None
        at = (*at, "policies", point) if own else ("policies", point)
    where = document.where_inside(at)
    problems = [Problem(f"variant {variant!r}: {p.message}", where) for p in error.problems]
    return type(error)(problems)
