"""Workloads that are the jobs of a trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple, cast

import pyarrow as pa
from typing_extensions import override

from wattkeeper.policies.errors import InputError, PolicyError, ScenarioError
from wattkeeper.policies.profile import Profile
from wattkeeper.policies.suggestions import did_you_mean
from wattkeeper.scenarios.inputs.clusters import UsedCluster
from wattkeeper.scenarios.inputs.job_filter import (
    FilteredJobs,
    Reason,
    check_groups,
    find_incomplete,
    find_unusable,
    ignore_gpu_types,
)
from wattkeeper.scenarios.inputs.limit_models import limited_types
from wattkeeper.scenarios.inputs.measured_energy import count_measured, refuse_impossible
from wattkeeper.scenarios.inputs.partitions import find_misplaced, narrow_types
from wattkeeper.scenarios.inputs.power_checks import PowerCapCheck, check_busy_power
from wattkeeper.scenarios.inputs.profiled_jobs import count_profiled
from wattkeeper.scenarios.inputs.run_inputs import RunInputs, ScenarioInputs
from wattkeeper.scenarios.inputs.zoo_models import (
    TraceModels,
    assign_trained,
    estimate_durations,
    read_models,
)
from wattkeeper.scenarios.kinds.kind import Clusters
from wattkeeper.scenarios.kinds.profiles import adjust_profile
from wattkeeper.scenarios.kinds.replayed import Names, ReplayedKind, fixed_batch_size
from wattkeeper.scenarios.spec.loading import LoadedScenario, locate_error
from wattkeeper.scenarios.spec.sections.workload import TraceWorkload, WorkloadMapping
from wattkeeper.scenarios.spec.yaml_document import locate_errors
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec
from wattkeeper.sim.replay.backend import Profiles
from wattkeeper.traces.gpus.model import GpuModel
from wattkeeper.traces.library import store
from wattkeeper.traces.profiles import ProfileSet, load_profiles
from wattkeeper.traces.trace import Trace

if TYPE_CHECKING:
    from wattkeeper.traces.mapping import Mapped

LoadProfiles = Callable[[str, int], ProfileSet]
"""Gives the profiles of a GPU type and a number of GPUs."""


class TraceJobs(ReplayedKind):
    """The jobs of a trace, each at its recorded time."""

    @override
    def read_jobs(
        self, loaded: LoadedScenario, clusters: Clusters, profiles: Trace | None, trained: Names
    ) -> ScenarioInputs:
        workload = cast("TraceWorkload", loaded.scenario.workload)
        inputs = read_trace_jobs(loaded, workload, profiles, clusters, trained)
        runs = {
            name: run._replace(load=cast("TraceWorkload", loaded.variants[name].workload).load)
            for name, run in inputs.runs.items()
        }
        return inputs._replace(runs=runs)


KIND = TraceJobs()


def read_trace_jobs(
    loaded: LoadedScenario,
    workload: TraceWorkload,
    profiles: Trace | None,
    clusters: Clusters,
    trained: frozenset[str],
    place: tuple[str, ...] = ("workload",),
) -> ScenarioInputs:
    """The jobs of a trace that all clusters can run, and the profiles that they need.

    Workloads in `trained` need none. `place`: that of the workload in the scenario.

    Raises:
        InputError: If the trace or a profile is absent or wrong, or jobs cannot run; the message
            names the place in the scenario or in the trace.
    """
    with locate_errors(loaded.document, *place, "trace"):
        beside = loaded.document.folder_of((*place, "trace"))
        trace = store.find(workload.trace, beside)
        if trace.kind != "jobs":
            raise InputError(f"trace {trace.name!r} holds {trace.kind}; a trace of jobs is needed")
    load = None
    if profiles is not None:
        load = cache(partial(load_profiles, profiles, epochs=workload.epochs))
    models = read_models(trace)
    prepared = _prepare_jobs(
        loaded, workload, trace.tables["jobs"], models, load, clusters, trained
    )
    check_groups(prepared.jobs, trace.name)
    filtered = FilteredJobs(prepared.jobs, trace.name)
    needed = _filter_jobs(loaded, workload, filtered, load, clusters, trained)
    runnable = filtered.jobs
    if workload.slack is not None and not runnable["deadline_s"].null_count:
        what = f"slack: it changes nothing; all jobs of {trace.name!r} have a deadline (deadline_s)"
        raise ScenarioError(what, loaded.document.where((*place, "slack")))
    recorded_j = trace.tables["jobs"]["energy_j"]
    if len(runnable) < len(recorded_j):
        recorded_j = recorded_j.filter(pa.array(filtered.accepted))
    placed = [narrow_types(runnable, used.spec) for used in clusters]
    by_variant = {
        variant: RunInputs(
            used.spec,
            own,
            own_jobs,
            models=models,
            trained=trained,
            slack=workload.slack,
            batch_size=fixed_batch_size(loaded),
            limits=_limit_models(loaded, variant, own_jobs, used),
        )
        for used, own, own_jobs in zip(clusters, needed, placed, strict=True)
        for variant in used.variants
    }
    return ScenarioInputs(
        by_variant,
        (trace,) if profiles is None else (profiles, trace),
        filtered.dropped,
        filtered.dropped_for,
        prepared.ignored,
        filtered.rows,
        prepared.mapping,
        prepared.timed,
        count_profiled(runnable, trained, workload.mapping.duration if workload.mapping else None),
        count_measured(runnable, recorded_j, clusters),
    )


class _PreparedJobs(NamedTuple):
    """Jobs of a trace as a scenario wants them; the other fields as in `ScenarioInputs`."""

    jobs: pa.Table
    ignored: Mapping[str, int]
    mapping: Sequence[Mapping[str, object]]
    timed: int


def _prepare_jobs(
    loaded: LoadedScenario,
    workload: TraceWorkload,
    jobs: pa.Table,
    models: TraceModels,
    load: LoadProfiles | None,
    clusters: Clusters,
    trained: frozenset[str],
) -> _PreparedJobs:
    """Give jobs the GPU types, workloads and durations that the scenario states."""
    scenario, document = loaded
    ignored: Mapping[str, int] = {}
    mapping: Sequence[Mapping[str, object]] = ()
    timed = 0
    if workload.gpu_types == "ignore":
        jobs, ignored = ignore_gpu_types(jobs)
    if workload.mapping is not None:
        reference = next(used for used in clusters if scenario.baseline in used.variants)
        with locate_errors(document, "workload", "mapping"):
            mapped = _map_jobs(jobs, workload.mapping, load, reference.spec)
            jobs, mapping = mapped.jobs, mapped.table
    if workload.durations is not None:
        jobs, timed = estimate_durations(jobs, models, workload.durations)
    if trained:
        jobs, named = assign_trained(jobs, models, trained)
        for name in sorted(trained - named):
            raise ScenarioError(
                f"no job trains {name!r}{did_you_mean(name, named)}; jobs name the workloads or "
                f"tasks {', '.join(sorted(named)) or '(none)'}",
                document.where(("live", "workloads", name)),
            )
    return _PreparedJobs(refuse_impossible(jobs, clusters), ignored, mapping, timed)


def _filter_jobs(
    loaded: LoadedScenario,
    workload: TraceWorkload,
    filtered: FilteredJobs,
    load: LoadProfiles | None,
    clusters: Clusters,
    trained: frozenset[str],
) -> list[Profiles]:
    """Reject jobs that a cluster cannot run; the profiles that the others need, by cluster."""
    document = loaded.document
    jobs = filtered.all
    incomplete: Sequence[Reason] = ()
    if workload.unusable == "drop":  # what one policy needs, all variants do without
        configs = [
            each for spec in loaded.variants.values() for each in spec.policies.by_point.values()
        ]
        incomplete = find_incomplete(jobs, configs)
    for used in clusters:
        filtered.reject(used, find_unusable(jobs, used.spec, used.recorded))
        filtered.reject(used, find_misplaced(jobs, used.spec))
        filtered.reject(used, incomplete)
    runnable = filtered.jobs
    needed: list[Profiles] = []
    for used in clusters:
        placed = narrow_types(runnable, used.spec)
        with locate_errors(document, *used.path):
            needed.append(_needed_profiles(placed, load, used.spec, trained, workload))
        check_busy_power(placed, used, document)
    for used, own in zip(clusters, needed, strict=True):
        if used.spec.power_cap_w is not None:
            placed = narrow_types(jobs, used.spec)
            filtered.reject(used, PowerCapCheck(used.spec, own).reasons(filtered, placed))
    filtered.finish(drop=workload.unusable == "drop")
    return needed


def _limit_models(
    loaded: LoadedScenario, variant: str, jobs: pa.Table, used: UsedCluster
) -> dict[str, GpuModel]:
    """Models of the GPU types on which a variant limits jobs without a profile."""
    tune = loaded.variants[variant].policies.tune
    if not tune.limits_unprofiled or not jobs["workload"].null_count:
        return {}
    try:
        return dict(limited_types(jobs, used, tune))
    except PolicyError as error:
        raise locate_error(loaded, variant, error) from None


def _map_jobs(
    jobs: pa.Table, mapping: WorkloadMapping, load: LoadProfiles | None, cluster: ClusterSpec
) -> Mapped:
    """Jobs with workloads; time is that of the default configuration, retries included."""
    if load is None:
        raise InputError("mapping needs workload.profiles")
    from wattkeeper.traces.mapping import map_workloads

    if len(cluster.gpu_types) > 1:
        raise InputError(f"mapping needs one GPU type, not {', '.join(cluster.gpu_types)}")
    known = load(cluster.gpu_types[0], 1)
    mean_time_s = {}
    for name in known.workloads:
        profile = known.get(name)
        curve = profile.curves[profile.default_batch_size]
        epochs = curve.expected_epochs(profile.max_epochs)
        mean_time_s[name] = epochs * curve.time_per_epoch_s[-1]
    return map_workloads(jobs, mean_time_s, mapping.by, {1}, keep=mapping.duration == "keep")


def _needed_profiles(
    jobs: pa.Table,
    load: LoadProfiles | None,
    cluster: ClusterSpec,
    trained: frozenset[str],
    workload: TraceWorkload,
) -> Profiles:
    """The profiles of all other workloads of the jobs on all types that they may run on."""
    if jobs["workload"].null_count == len(jobs):
        return {}
    kinds = ["workload", "gpus", "gpu_type"]
    rows = jobs.group_by(kinds, use_threads=False).aggregate([]).to_pylist()
    needed: dict[tuple[str, int, str], Profile] = {}
    for row in sorted(rows, key=lambda row: (row["workload"] or "", row["gpus"])):
        if row["workload"] is None or row["workload"] in trained:
            continue
        if load is None:
            raise InputError(
                "jobs of the trace name workloads: say where their profiles are (workload.profiles)"
            )
        for index in cluster.types_allowed(row["gpu_type"]):
            name = cluster.gpu_types[index]
            profile = load(name, row["gpus"]).get(row["workload"])
            needed[row["workload"], row["gpus"], name] = adjust_profile(profile, workload)
    return needed
