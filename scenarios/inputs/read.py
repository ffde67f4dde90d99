"""Reads the traces and profiles of a scenario, and checks that they fit it."""

from collections.abc import Mapping

import pyarrow as pa

from wattkeeper.policies.errors import InputError, ScenarioError
from wattkeeper.policies.profile import Profile
from wattkeeper.scenarios.inputs.clusters import cluster_spec, search_processor
from wattkeeper.scenarios.inputs.job_filter import (
    FilteredJobs,
    check_groups,
    find_unusable,
    ignore_gpu_types,
)
from wattkeeper.scenarios.inputs.latencies import latencies_of, with_preemption
from wattkeeper.scenarios.inputs.power_checks import PowerCapCheck, check_busy_power, check_cap
from wattkeeper.scenarios.inputs.recurring import read_live, read_recurring
from wattkeeper.scenarios.inputs.run_inputs import RunInputs, ScenarioInputs
from wattkeeper.scenarios.inputs.zoo_models import (
    assign_trained,
    estimate_durations,
    read_models,
)
from wattkeeper.scenarios.spec.loading import LoadedScenario
from wattkeeper.scenarios.spec.schema import (
    ArchitectureSearch,
    ProfileSource,
    SyntheticSource,
    TraceWorkload,
)
from wattkeeper.scenarios.spec.variants import occupancy_of
from wattkeeper.scenarios.spec.yaml_document import YamlDocument, locate_errors
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec
from wattkeeper.sim.engine.replay import Profiles
from wattkeeper.traces.generate.synthetic import generate
from wattkeeper.traces.library import store
from wattkeeper.traces.mapping import Mapped, map_workloads
from wattkeeper.traces.profiles import ProfileSet, load_profiles
from wattkeeper.traces.trace import Trace


def read_inputs(loaded: LoadedScenario, *, live: bool = False) -> ScenarioInputs:
    """Find and check the traces of a scenario.

    With `live`, leave out the profiles of workloads that are trained.

    Raises:
        InputError: If they are absent, broken, or do not fit the scenario; the message names the
            place in the scenario or in the trace.
    """
    scenario, document = loaded
    workload = scenario.workload
    if isinstance(workload, ArchitectureSearch):
        with locate_errors(document, "cluster"):
            cluster, _ = cluster_spec(scenario.cluster)
            search_processor(cluster)
        return ScenarioInputs(RunInputs(cluster, {}, search=workload))
    profiles = None
    if workload.profiles is not None:
        with locate_errors(document, "workload", "profiles"):
            profiles = _profile_trace(workload.profiles)
    with locate_errors(document, "cluster"):
        cluster, nodes = cluster_spec(scenario.cluster)
    recorded = any(occupancy_of(scenario, variant) == "recorded" for variant in scenario.variants)
    check_cap(cluster, recorded, document)
    if isinstance(workload, TraceWorkload):
        trained = scenario.live.workloads if live and scenario.live is not None else {}
        inputs = _read_jobs(
            workload, document, profiles, cluster, nodes, recorded, frozenset(trained)
        )
    elif live and scenario.live is not None and scenario.live.workloads:
        return read_live(scenario, workload, document, profiles, cluster)
    elif profiles is None:
        raise ScenarioError(
            "profiles: none, so that there is nothing to simulate: record some (`wattkeeper "
            "record`) and name them here, or run it live (--live)",
            document.where(("workload",)),
        )
    else:
        inputs = read_recurring(workload, document, profiles, cluster)
    if scenario.latencies is None or live:
        return inputs
    with locate_errors(document, "latencies"):
        assert profiles is not None  # checked by the schema
        latencies, recorded_rows = latencies_of(scenario.latencies, profiles, inputs.run.profiles)
    cluster = with_preemption(cluster, scenario.cluster, recorded_rows)
    return inputs._replace(run=inputs.run._replace(latencies=latencies, cluster=cluster))


def _read_jobs(
    workload: TraceWorkload,
    document: YamlDocument,
    profiles: Trace | None,
    cluster: ClusterSpec,
    nodes: Trace | None,
    recorded: bool,
    trained: frozenset[str],
) -> ScenarioInputs:
    """The jobs of a trace that the cluster can run, and the profiles that they need.

    Workloads in `trained` need none.
    """
    with locate_errors(document, "workload", "trace"):
        trace = store.find(workload.trace)
        if trace.kind != "jobs":
            raise InputError(f"trace {trace.name!r} holds {trace.kind}; a trace of jobs is needed")
    jobs, mapped = trace.tables["jobs"], None
    ignored: Mapping[str, int] = {}
    if workload.gpu_types == "ignore":
        jobs, ignored = ignore_gpu_types(jobs)
    if workload.mapping is not None:
        with locate_errors(document, "workload", "mapping"):
            mapped = _map_jobs(jobs, workload.mapping.by, profiles, cluster)
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
    filtered = FilteredJobs(jobs, trace.name, cluster)
    filtered.reject(find_unusable(jobs, cluster, recorded))
    with locate_errors(document, "cluster"):
        needed = _needed_profiles(filtered.jobs, profiles, cluster, trained)
    check_busy_power(filtered.jobs, cluster, document)
    if cluster.power_cap_w is not None:
        filtered.reject(PowerCapCheck(cluster, needed).reasons(filtered))
    filtered.finish(drop=workload.unusable == "drop")
    return ScenarioInputs(
        RunInputs(cluster, needed, filtered.jobs, models=models, trained=trained),
        tuple(source for source in (profiles, trace, nodes) if source is not None),
        filtered.dropped,
        ignored,
        filtered.rows,
        mapped.table if mapped else (),
        timed,
    )


def _map_jobs(
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


def _needed_profiles(
    jobs: pa.Table, trace: Trace | None, cluster: ClusterSpec, trained: frozenset[str]
) -> Profiles:
    """The profiles of all other workloads of the jobs on all types that they may run on."""
    kinds = ["workload", "gpus", "gpu_type"]
    rows = jobs.group_by(kinds, use_threads=False).aggregate([]).to_pylist()
    needed: dict[tuple[str, int, str], Profile] = {}
    sets: dict[tuple[str, int], ProfileSet] = {}
    for row in sorted(rows, key=lambda row: (row["workload"] or "", row["gpus"])):
        if row["workload"] is None or row["workload"] in trained:
            continue
        if trace is None:
            raise InputError("jobs of the trace name workloads: say where their profiles are "
                             "(workload.profiles)")  # fmt: skip
        for index in cluster.types_allowed(row["gpu_type"]):
            key = cluster.gpu_types[index], row["gpus"]
            if key not in sets:
                sets[key] = load_profiles(trace, *key)
            needed[row["workload"], row["gpus"], key[0]] = sets[key].get(row["workload"])
    return needed


def _profile_trace(source: ProfileSource) -> Trace:
    if isinstance(source, SyntheticSource):
        return generate(source.synthetic, "synthetic")
    trace = store.find(source)
    if trace.kind != "profiles":
        raise InputError(f"trace {trace.name!r} holds {trace.kind}; profiles are needed")
    return trace
