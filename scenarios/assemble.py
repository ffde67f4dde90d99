"""Puts the parts of a run together: the only place that knows them all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wattkeeper.policies.errors import (
    SHOWN,
    InputError,
    PolicyError,
    Problem,
    TraceError,
    WattkeeperError,
)
from wattkeeper.policies.profile import Objective, Profile, optimum
from wattkeeper.policies.registry import POINTS, Point, PolicyConfig, policies
from wattkeeper.scenarios.document import Document
from wattkeeper.scenarios.load import Loaded
from wattkeeper.scenarios.schema import Cluster as Equal
from wattkeeper.scenarios.schema import (
    MixedCluster,
    ProfileSource,
    Recurring,
    Scenario,
    Synthetic,
    TraceJobs,
)
from wattkeeper.sim.clock import Clock
from wattkeeper.sim.cluster import Cluster, ClusterSpec, GpuPower, NodeGroup
from wattkeeper.sim.replay import Occupancy, Profiles, Profiling, Replay, options_of
from wattkeeper.sim.results import RunResult, collect
from wattkeeper.sim.sources import Recurring as RecurringSource
from wattkeeper.sim.sources import Source
from wattkeeper.sim.sources import Trace as TraceSource
from wattkeeper.sim.streams import NamedStreams, PublishedStreams, Streams, checksum
from wattkeeper.sim.world import PolicySet, Rules, World
from wattkeeper.traces import library
from wattkeeper.traces.mapping import Mapped, map_workloads
from wattkeeper.traces.profiles import ProfileSet, load_profiles
from wattkeeper.traces.synthetic import generate
from wattkeeper.traces.trace import Trace

Unusable = tuple[npt.NDArray[np.bool_], Callable[[int], str]]

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
        cluster: The nodes.
        dropped: Jobs of the trace that are left out, by reason.
        mapping: How jobs got workloads: rows for the manifest.
    """

    profiles: Profiles
    jobs: pa.Table | None
    recurrences: Mapping[str, int]
    traces: tuple[Trace, ...]
    cluster: ClusterSpec
    dropped: Mapping[str, int] = {}
    mapping: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class RunSpec:
    """One variant with one seed; it can be sent to another process."""

    variant: str
    seed: int
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
    profiles = None
    if workload.profiles is not None:
        with named_at(document, "workload", "profiles"):
            profiles = _profile_trace(workload.profiles)
    with named_at(document, "cluster"):
        cluster, nodes = cluster_spec(scenario.cluster)
    if isinstance(workload, Recurring):
        assert profiles is not None
        return _recurring_inputs(scenario, workload, document, profiles, cluster)
    with named_at(document, "workload", "trace"):
        trace = library.find(workload.trace)
        if trace.kind != "jobs":
            raise InputError(f"trace {trace.name!r} holds {trace.kind}; a trace of jobs is needed")
    jobs, mapped = trace.tables["jobs"], None
    if workload.mapping is not None:
        with named_at(document, "workload", "mapping"):
            mapped = _mapped(jobs, workload.mapping.by, profiles, cluster)
            jobs = mapped.jobs
    with named_at(document, "workload", "trace"):
        jobs, dropped = _usable(jobs, trace.name, scenario, workload, cluster)
    with named_at(document, "cluster"):
        found = _needed_profiles(jobs, profiles, cluster)
    sources = tuple(source for source in (profiles, trace, nodes) if source is not None)
    return Inputs(found, jobs, {}, sources, cluster, dropped, mapped.table if mapped else ())


def cluster_spec(cluster: Equal | MixedCluster) -> tuple[ClusterSpec, Trace | None]:
    """What a scenario says of its cluster, and the trace that its nodes are from, if any.

    Raises:
        InputError: If the trace knows no nodes, or the power of a type is not stated.
    """
    trace = None
    if isinstance(cluster, Equal):
        per_node = cluster.gpus_per_node or cluster.gpus
        groups = [NodeGroup(cluster.gpu, cluster.gpus // per_node, per_node)]
        stated = {cluster.gpu: (cluster.idle_power_w, cluster.busy_power_w)}
    else:
        stated = {name: (power.idle_w, power.busy_w) for name, power in cluster.power.items()}
        if isinstance(cluster.nodes, str):
            trace = library.find(cluster.nodes)
            groups = _node_groups(trace)
        else:
            groups = [NodeGroup(group.gpu, group.count, group.gpus) for group in cluster.nodes]
        absent = sorted({group.gpu_type for group in groups} - set(stated))
        if absent:
            raise InputError(f"power: no entry for {', '.join(absent)}")
    sleep, preemption = cluster.sleep, cluster.preemption
    asleep_w = 0.0 if sleep is None else sleep.power_w
    spec = ClusterSpec(
        groups=tuple(groups),
        power={name: GpuPower(idle_w, busy_w, asleep_w) for name, (idle_w, busy_w) in
               stated.items()},
        pue=cluster.pue,
        power_cap_w=cluster.power_cap_w,
        sleep_after_s=None if sleep is None else sleep.after_s,
        wake_s=0.0 if sleep is None else sleep.wake_s,
        checkpoint_s=preemption.checkpoint_s,
        restore_s=preemption.restore_s,
    )  # fmt: skip
    return spec, trace


def _node_groups(trace: Trace) -> list[NodeGroup]:
    """Neighbouring equal nodes of a trace together."""
    if "nodes" not in trace.tables:
        raise InputError(f"nodes: trace {trace.name!r} knows no nodes")
    table = trace.tables["nodes"]
    kinds = zip(table["gpu_type"].to_pylist(), table["gpus"].to_pylist(), strict=True)
    return [NodeGroup(kind, len(list(same)), gpus) for (kind, gpus), same in groupby(kinds)]


def _mapped(
    jobs: pa.Table, by: tuple[str, ...], profiles: Trace | None, cluster: ClusterSpec
) -> Mapped:
    if profiles is None:
        raise InputError("mapping needs workload.profiles")
    if len(cluster.gpu_types) > 1:
        raise InputError(f"mapping needs one GPU type, not {', '.join(cluster.gpu_types)}")
    known = load_profiles(profiles, cluster.gpu_types[0])
    mean_time_s = {}
    for name in known.workloads:
        profile = known.get(name)
        curve = profile.curves[profile.default_batch_size]
        epochs = curve.expected_epochs(profile.max_epochs)
        mean_time_s[name] = epochs * curve.time_per_epoch_s[-1]
    return map_workloads(jobs, mean_time_s, by, {1})


def _needed_profiles(jobs: pa.Table, trace: Trace | None, cluster: ClusterSpec) -> Profiles:
    """The profiles of all workloads of the jobs on all types that they may run on."""
    kinds = ["workload", "gpus", "gpu_type"]
    rows = jobs.group_by(kinds, use_threads=False).aggregate([]).to_pylist()
    found: dict[tuple[str, int, str], Profile] = {}
    sets: dict[tuple[str, int], ProfileSet] = {}
    for row in sorted(rows, key=lambda row: (row["workload"] or "", row["gpus"])):
        if row["workload"] is None:
            continue
        if trace is None:
            raise InputError("jobs of the trace name workloads: say where their profiles are "
                             "(workload.profiles)")  # fmt: skip
        for at in cluster.types_allowed(row["gpu_type"]):
            key = cluster.gpu_types[at], row["gpus"]
            if key not in sets:
                sets[key] = load_profiles(trace, *key)
            found[row["workload"], row["gpus"], key[0]] = sets[key].get(row["workload"])
    return found


def check_policies(loaded: Loaded, inputs: Inputs) -> None:
    """Refuse policies that cannot work on these jobs and the profiles that they need.

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
            if config.needs_durations and not _all_durations(inputs):
                what = f"{point}: {config.kind} needs the recorded duration of every job"
                raise located(loaded, variant, PolicyError(what, point))
            for profile in inputs.profiles.values():
                try:
                    config.check(options_of(profile))
                except PolicyError as error:
                    raise located(loaded, variant, error) from None


def _all_durations(inputs: Inputs) -> bool:
    return inputs.jobs is not None and not inputs.jobs["duration_s"].null_count


def _recurring_inputs(
    scenario: Scenario,
    workload: Recurring,
    document: Document,
    trace: Trace,
    cluster: ClusterSpec,
) -> Inputs:
    with named_at(document, "cluster", "gpu"):
        known = [load_profiles(trace, name, workload.gpus) for name in cluster.gpu_types]
    with named_at(document, "workload", "gpus"):
        if workload.gpus > cluster.most_gpus(None):
            raise InputError(
                f"gpus: each job asks for {workload.gpus}, the cluster has {cluster.gpus}"
            )
    with named_at(document, "workload", "workloads"):
        names = workload.workloads or known[0].workloads
        if not names:
            raise InputError(
                f"trace {trace.name!r} has no workload that can be replayed on "
                f"{cluster.gpu_types[0]}: "
                + "; ".join(f"{name}: {why}" for name, why in known[0].absent.items())
            )
        profiles = {
            (name, workload.gpus, of_type.gpu_type): of_type.get(name)
            for name in names
            for of_type in known
        }
    often = workload.recurrences
    recurrences = {
        name: often if isinstance(often, int) else often.per_configuration * profile.configurations
        for (name, _, _), profile in reversed(profiles.items())
    }
    return Inputs(profiles, None, {name: recurrences[name] for name in names}, (trace,), cluster)


def _profile_trace(source: ProfileSource) -> Trace:
    if isinstance(source, Synthetic):
        return generate(source.synthetic, "synthetic")
    trace = library.find(source)
    if trace.kind != "profiles":
        raise InputError(f"trace {trace.name!r} holds {trace.kind}; profiles are needed")
    return trace


def _usable(
    jobs: pa.Table, name: str, scenario: Scenario, workload: TraceJobs, cluster: ClusterSpec
) -> tuple[pa.Table, dict[str, int]]:
    """The jobs that can be replayed, and how many others were dropped, by reason.

    Raises:
        TraceError: One problem for each row that is wrong, unless the scenario drops them.
    """
    drop = workload.unusable == "drop"
    recorded = any(occupancy_of(scenario, variant) == "recorded" for variant in scenario.variants)
    dropped: dict[str, int] = {}
    problems: dict[int, list[str]] = {}
    kept = np.ones(jobs.num_rows, dtype=bool)
    for reason, (bad, say) in _unusable(jobs, cluster, recorded).items():
        if bad.any():
            dropped[reason] = int((bad & kept).sum())
            kept &= ~bad
            for row in np.flatnonzero(bad)[: 2 * SHOWN].tolist() if not drop else ():
                problems.setdefault(row, []).append(say(row))
    for row, text in _mixed_groups(jobs).items():
        problems.setdefault(row, []).append(text)
    if problems:
        found = [
            Problem(f"job {jobs['job_id'][row].as_py()!r} {text}", f"{name}/jobs.parquet, row "
                    f"{row + 1}")
            for row in sorted(problems) for text in problems[row]
        ]  # fmt: skip
        if dropped and not drop:
            many = sum(dropped.values())
            what = f"{many} of {jobs.num_rows} jobs cannot be replayed; to leave them out: "
            found.insert(0, Problem(what + "--set workload.unusable=drop", name))
        raise TraceError(found)
    if not kept.any():
        raise TraceError(Problem("no job of it can be replayed", name))
    return (jobs if kept.all() else jobs.filter(pa.array(kept))), dropped


def _unusable(jobs: pa.Table, cluster: ClusterSpec, recorded: bool) -> dict[str, Unusable]:
    """Which rows cannot be replayed, and what to say of one, by reason."""
    duration = jobs["duration_s"].fill_null(-1.0).to_numpy()
    plain = np.asarray(jobs["workload"].is_null())
    gpus = jobs["gpus"].to_numpy()
    types = jobs["gpu_type"].to_pylist() if jobs["gpu_type"].null_count < len(jobs) else None
    if types is None:
        most = np.full(len(gpus), cluster.most_gpus(None))
    else:
        by_type = {kind: cluster.most_gpus(kind) for kind in set(types)}
        most = np.array([by_type[kind] for kind in types])
    return {
        "larger than the cluster": (
            gpus > most,
            lambda row: (
                f"asks for {gpus[row]} GPUs, the cluster has {most[row]}"
                + (f" of type {types[row]}" if types is not None and types[row] else "")
            ),
        ),
        "without a recorded duration": (
            plain & (duration < 0),
            lambda row: "names no workload and has no recorded duration; one of them is needed",
        ),
        "without a duration > 0": (
            ~plain & (duration <= 0) & recorded,
            lambda row: (
                f"has duration_s {jobs['duration_s'][row].as_py()}; occupancy: recorded "
                "needs a recorded duration > 0 s"
            ),
        ),
    }


def _mixed_groups(jobs: pa.Table) -> dict[int, str]:
    """Jobs that train something else than others of their group, by row."""
    if jobs["group_id"].null_count == len(jobs) or jobs["workload"].null_count == len(jobs):
        return {}
    trained: dict[str, str] = {}
    found = {}
    columns = (jobs[name].to_pylist() for name in ("group_id", "workload"))
    for row, (group, workload) in enumerate(zip(*columns, strict=True)):
        if group is None or workload is None:
            continue
        if trained.setdefault(group, workload) != workload:
            found[row] = (
                f"trains {workload!r}, others of its group {group!r} train {trained[group]!r}; the "
                "jobs of a group recur, so they train the same"
            )
    return found


def occupancy_of(scenario: Scenario, variant: str) -> Occupancy:
    """The variant's own occupancy, or the scenario's."""
    return scenario.variants[variant].occupancy or scenario.occupancy


def run_specs(scenario: Scenario) -> list[RunSpec]:
    """All runs of a scenario: variants by seeds."""
    return [
        _run_spec(scenario, name, seed) for name in scenario.variants for seed in scenario.all_seeds
    ]


def _run_spec(scenario: Scenario, name: str, seed: int) -> RunSpec:
    variant = scenario.variants[name]
    objective = variant.objective or scenario.objective
    occupancy = occupancy_of(scenario, name)
    return RunSpec(
        variant=name,
        seed=seed,
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
    hardware = inputs.cluster
    backend = Replay(
        env, inputs.profiles, streams, objective, hardware.power, spec.occupancy, spec.profiling
    )
    cluster = Cluster(hardware)
    world = World(env, cluster, source, backend, spec.policies, spec.rules, streams)
    backend.listener = world
    world.run()
    optima = _optima(spec, inputs)
    return collect(spec.variant, spec.seed, world.recorder, source, hardware, optima, env.events)


def _source(inputs: Inputs) -> Source:
    if inputs.jobs is not None:
        return TraceSource(inputs.jobs)
    (gpus,) = {gpus for _, gpus, _ in inputs.profiles}
    return RecurringSource(inputs.recurrences, gpus)


def _streams(spec: RunSpec, inputs: Inputs) -> Streams:
    """Published: sequential groups take the run's seed, those of a trace the sum of their id."""
    if not spec.published:
        return NamedStreams(spec.seed)
    return PublishedStreams(checksum if inputs.jobs is not None else lambda _: spec.seed)


def _optima(spec: RunSpec, inputs: Inputs) -> dict[tuple[str, int, str], float]:
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
