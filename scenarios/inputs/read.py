"""Reads the traces and profiles of a scenario, and checks that they fit it."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial

import pyarrow as pa

from wattkeeper.policies.errors import InputError, PolicyError, ScenarioError
from wattkeeper.policies.profile import Profile
from wattkeeper.scenarios.inputs.clusters import (
    UsedCluster,
    search_processor,
    used_clusters,
)
from wattkeeper.scenarios.inputs.electricity import read_tariffs
from wattkeeper.scenarios.inputs.job_filter import (
    FilteredJobs,
    check_groups,
    find_incomplete,
    find_unusable,
    ignore_gpu_types,
)
from wattkeeper.scenarios.inputs.latencies import latencies_of, with_preemption
from wattkeeper.scenarios.inputs.limit_models import limited_types
from wattkeeper.scenarios.inputs.measured_power import measured_power
from wattkeeper.scenarios.inputs.policy_checks import locate_error
from wattkeeper.scenarios.inputs.power_checks import PowerCapCheck, check_busy_power, check_cap
from wattkeeper.scenarios.inputs.profiled_jobs import count_profiled
from wattkeeper.scenarios.inputs.recurring import read_live, read_recurring
from wattkeeper.scenarios.inputs.run_inputs import RunInputs, ScenarioInputs
from wattkeeper.scenarios.inputs.zoo_models import (
    assign_trained,
    estimate_durations,
    read_models,
)
from wattkeeper.scenarios.spec.loading import LoadedScenario
from wattkeeper.scenarios.spec.sections.workload import (
    ArchitectureSearch,
    ProfileSource,
    SyntheticSource,
    TraceWorkload,
    WorkloadMapping,
)
from wattkeeper.scenarios.spec.variants import DEFAULTS, load_of, policy_of
from wattkeeper.scenarios.spec.yaml_document import locate_errors
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec
from wattkeeper.sim.engine.replay import Profiles
from wattkeeper.traces.generate.synthetic import generate
from wattkeeper.traces.gpus.model import GpuModel
from wattkeeper.traces.library import store
from wattkeeper.traces.mapping import Mapped, map_workloads
from wattkeeper.traces.profiles import ProfileSet, load_profiles
from wattkeeper.traces.trace import Trace

LoadProfiles = Callable[[str, int], ProfileSet]
"""Gives the profiles of a GPU type and a number of GPUs."""


def read_inputs(loaded: LoadedScenario, *, live: bool = False) -> ScenarioInputs:
    """Find and check all that a scenario needs: traces, each read once for all variants, and rates.

    With `live`, leave out the profiles of workloads that are trained.

    Raises:
        InputError: If they are absent, broken, or do not fit the scenario; the message names the
            place in the scenario or in the trace.
    """
    inputs = _read_traces(loaded, live=live)
    tariffs = read_tariffs(loaded, inputs.traces)
    runs = {name: run._replace(tariff=tariffs[name]) for name, run in inputs.runs.items()
            if name in tariffs}  # fmt: skip
    return inputs._replace(runs=dict(inputs.runs) | runs)


def _read_traces(loaded: LoadedScenario, *, live: bool) -> ScenarioInputs:
    """The traces of a scenario; see `read_inputs`."""
    scenario, document = loaded
    workload = scenario.workload
    profiles = None
    if not isinstance(workload, ArchitectureSearch) and workload.profiles is not None:
        with locate_errors(document, "workload", "profiles"):
            profiles = _profile_trace(workload.profiles)
    clusters, nodes = used_clusters(loaded)
    if isinstance(workload, ArchitectureSearch):
        cluster = clusters[0].spec
        with locate_errors(document, "cluster"):
            search_processor(cluster)
        search = RunInputs(cluster, {}, search=workload)
        return ScenarioInputs(dict.fromkeys(scenario.variants, search))
    for used in clusters:
        check_cap(used, document)
    trained = scenario.live.workloads if live and scenario.live is not None else {}
    if isinstance(workload, TraceWorkload):
        inputs = _read_jobs(loaded, workload, profiles, clusters, frozenset(trained))
        inputs = inputs._replace(traces=(*inputs.traces, *nodes))
    elif trained:
        return read_live(loaded, workload, profiles, clusters)
    elif profiles is None:
        raise ScenarioError(
            "profiles: none, so that there is nothing to simulate: record some (`wattkeeper "
            "record`) and name them here, or run it live (--live)",
            document.where(("workload",)),
        )
    else:
        inputs = read_recurring(loaded, workload, profiles, clusters)
    if scenario.latencies is None or live:
        return inputs
    assert profiles is not None  # checked by the schema
    runs = dict(inputs.runs)
    for used in clusters:
        for variant in used.variants:
            with locate_errors(document, "latencies"):
                latencies, recorded_rows = latencies_of(
                    scenario.latencies, profiles, runs[variant].profiles
                )
            cluster = with_preemption(used.spec, used.stated, recorded_rows)
            runs[variant] = runs[variant]._replace(latencies=latencies, cluster=cluster)
    return inputs._replace(runs=runs)


def _read_jobs(
    loaded: LoadedScenario,
    workload: TraceWorkload,
    profiles: Trace | None,
    clusters: Sequence[UsedCluster],
    trained: frozenset[str],
) -> ScenarioInputs:
    """The jobs of a trace that all clusters can run, and the profiles that they need.

    Workloads in `trained` need none.
    """
    scenario, document = loaded
    with locate_errors(document, "workload", "trace"):
        trace = store.find(workload.trace)
        if trace.kind != "jobs":
            raise InputError(f"trace {trace.name!r} holds {trace.kind}; a trace of jobs is needed")
    load = None if profiles is None else cache(partial(load_profiles, profiles))
    jobs, mapped = trace.tables["jobs"], None
    ignored: Mapping[str, int] = {}
    if workload.gpu_types == "ignore":
        jobs, ignored = ignore_gpu_types(jobs)
    if workload.mapping is not None:
        reference = next(used for used in clusters if scenario.baseline in used.variants)
        with locate_errors(document, "workload", "mapping"):
            mapped = _map_jobs(jobs, workload.mapping, load, reference.spec)
            jobs = mapped.jobs
    models = read_models(trace)
    timed = 0
    if workload.durations is not None:
        jobs, timed = estimate_durations(jobs, models, workload.durations)
    if trained:
        jobs, named = assign_trained(jobs, models, trained)
        for name in sorted(trained - named):
            raise ScenarioError(
                f"no job trains {name!r}; jobs name the workloads or tasks "
                f"{', '.join(sorted(named)) or '(none)'}",
                document.where(("live", "workloads", name)),
            )
    check_groups(jobs, trace.name)
    filtered = FilteredJobs(jobs, trace.name)
    for used in clusters:
        filtered.reject(used, find_unusable(jobs, used.spec, used.recorded))
        if workload.unusable == "drop":
            configs = [policy_of(scenario, name, point) for name in used.variants
                       for point in DEFAULTS]  # fmt: skip
            filtered.reject(used, find_incomplete(jobs, configs))
    runnable = filtered.jobs
    needed: list[Profiles] = []
    for used in clusters:
        with locate_errors(document, *used.path):
            needed.append(_needed_profiles(runnable, load, used.spec, trained))
        check_busy_power(runnable, used, document)
    measured_w = measured_power(jobs)
    for used, own in zip(clusters, needed, strict=True):
        if used.spec.power_cap_w is not None:
            filtered.reject(used, PowerCapCheck(used, own, measured_w).reasons(filtered))
    filtered.finish(drop=workload.unusable == "drop")
    runnable = filtered.jobs
    by_variant = {
        variant: RunInputs(
            used.spec,
            own,
            runnable,
            load_of(scenario, variant),
            models=models,
            trained=trained,
            limits=_limit_models(loaded, variant, runnable, used),
        )
        for used, own in zip(clusters, needed, strict=True)
        for variant in used.variants
    }
    return ScenarioInputs(
        by_variant,
        (trace,) if profiles is None else (profiles, trace),
        filtered.dropped,
        filtered.dropped_for,
        ignored,
        filtered.rows,
        mapped.table if mapped else (),
        timed,
        count_profiled(runnable, trained, workload.mapping.duration if workload.mapping else None),
    )


def _limit_models(
    loaded: LoadedScenario, variant: str, jobs: pa.Table, used: UsedCluster
) -> dict[str, GpuModel]:
    """Models of the GPU types on which a variant limits jobs without a profile."""
    tune = policy_of(loaded.scenario, variant, "tune")
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
    jobs: pa.Table, load: LoadProfiles | None, cluster: ClusterSpec, trained: frozenset[str]
) -> Profiles:
    """The profiles of all other workloads of the jobs on all types that they may run on."""
    kinds = ["workload", "gpus", "gpu_type"]
    rows = jobs.group_by(kinds, use_threads=False).aggregate([]).to_pylist()
    needed: dict[tuple[str, int, str], Profile] = {}
    for row in sorted(rows, key=lambda row: (row["workload"] or "", row["gpus"])):
        if row["workload"] is None or row["workload"] in trained:
            continue
        if load is None:
            raise InputError("jobs of the trace name workloads: say where their profiles are "
                             "(workload.profiles)")  # fmt: skip
        for index in cluster.types_allowed(row["gpu_type"]):
            name = cluster.gpu_types[index]
            profile = load(name, row["gpus"]).get(row["workload"])
            needed[row["workload"], row["gpus"], name] = profile
    return needed


def _profile_trace(source: ProfileSource) -> Trace:
    if isinstance(source, SyntheticSource):
        return generate(source.synthetic, "synthetic")
    trace = store.find(source)
    if trace.kind != "profiles":
        raise InputError(f"trace {trace.name!r} holds {trace.kind}; profiles are needed")
    return trace
