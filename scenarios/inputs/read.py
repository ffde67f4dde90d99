"""Reads the traces and profiles of a scenario, and checks that they fit it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wattkeeper.policies.errors import InputError, Problem, ScenarioError
from wattkeeper.policies.profile import Profile
from wattkeeper.policies.protocols import WHOLE
from wattkeeper.scenarios.inputs.clusters import cluster_spec, search_processor
from wattkeeper.scenarios.inputs.job_filter import FilteredJobs, at_odds, check_groups, on_any_type
from wattkeeper.scenarios.inputs.latencies import NO_LATENCIES, latencies_of, with_preemption
from wattkeeper.scenarios.inputs.power_checks import PowerCapCheck, check_busy_power, check_cap
from wattkeeper.scenarios.inputs.zoo_models import (
    NO_MODELS,
    TraceModels,
    read_models,
    timed_by_model,
)
from wattkeeper.scenarios.spec.loading import LoadedScenario
from wattkeeper.scenarios.spec.schema import (
    ArchitectureSearch,
    ProfileSource,
    RecurringWorkload,
    Scenario,
    SyntheticSource,
)
from wattkeeper.scenarios.spec.variants import occupancy_of
from wattkeeper.scenarios.spec.wording import count
from wattkeeper.scenarios.spec.yaml_document import YamlDocument
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec
from wattkeeper.sim.engine.latencies import AllLatencies
from wattkeeper.sim.engine.replay import Profiles
from wattkeeper.traces.generate.synthetic import generate
from wattkeeper.traces.library import store
from wattkeeper.traces.mapping import Mapped, map_workloads
from wattkeeper.traces.profiles import ProfileSet, load_profiles
from wattkeeper.traces.trace import Trace

NO_ROWS: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)


class RunInputs(NamedTuple):
    """What all runs of a scenario read.

    Attributes:
        profiles: Those that the jobs need.
        jobs: The trace's jobs; None where jobs recur by themselves.
        recurrences: How often each workload recurs, where jobs recur by themselves.
        traces: Where all this comes from.
        cluster: The nodes.
        dropped: Jobs of the trace that are left out, by reason.
        ignored: Jobs that run on any GPU type, by the type that they ask for.
        rows: The jobs' rows in the trace, from 0.
        mapping: How jobs got workloads: rows for the manifest.
        models: The models that jobs train.
        timed: How many jobs got a duration from a model.
        search: Networks that are trained for real, instead of jobs that are replayed.
        folder: Where those trainings are kept.
        latencies: What trainings take besides, by the key of their profile.
    """

    profiles: Profiles
    jobs: pa.Table | None
    recurrences: Mapping[str, int]
    traces: tuple[Trace, ...]
    cluster: ClusterSpec
    dropped: Mapping[str, int] = {}
    ignored: Mapping[str, int] = {}
    rows: npt.NDArray[np.int64] = NO_ROWS
    mapping: Sequence[Mapping[str, Any]] = ()
    models: TraceModels = NO_MODELS
    timed: int = 0
    search: ArchitectureSearch | None = None
    folder: Path = Path()
    latencies: AllLatencies = NO_LATENCIES


@contextmanager
def named_at(document: YamlDocument, *path: str) -> Iterator[None]:
    """Inside, input errors say where the scenario named what is wrong."""
    try:
        yield
    except InputError as error:
        here = document.where(path)
        problems = [p if p.where else Problem(p.message, here) for p in error.problems]
        raise type(error)(problems) from None


def read_inputs(loaded: LoadedScenario, *, live: bool = False) -> RunInputs:
    """Find and check the traces of a scenario.

    Args:
        loaded: The scenario.
        live: Leave out the profiles of workloads that are trained.

    Raises:
        InputError: If they are absent, broken, or do not fit the scenario; the message names the
            place in the scenario or in the trace.
    """
    inputs = _read_inputs(loaded, live)
    scenario, document = loaded
    if scenario.latencies is None or live:
        return inputs
    with named_at(document, "latencies"):
        latencies, recorded = latencies_of(scenario.latencies, inputs.traces[0], inputs.profiles)
    cluster = with_preemption(inputs.cluster, scenario.cluster, recorded)
    return inputs._replace(latencies=latencies, cluster=cluster)


def _read_inputs(loaded: LoadedScenario, live: bool) -> RunInputs:
    scenario, document = loaded
    workload = scenario.workload
    if isinstance(workload, ArchitectureSearch):
        with named_at(document, "cluster"):
            cluster, _ = cluster_spec(scenario.cluster)
            search_processor(cluster)
        return RunInputs({}, None, {}, (), cluster, search=workload)
    profiles = None
    if workload.profiles is not None:
        with named_at(document, "workload", "profiles"):
            profiles = _profile_trace(workload.profiles)
    with named_at(document, "cluster"):
        cluster, nodes = cluster_spec(scenario.cluster)
    recorded = any(occupancy_of(scenario, variant) == "recorded" for variant in scenario.variants)
    check_cap(cluster, recorded, document)
    if isinstance(workload, RecurringWorkload):
        if live and scenario.live is not None and scenario.live.workloads:
            return _live_inputs(scenario, workload, document, profiles, cluster)
        if profiles is None:
            raise ScenarioError(Problem(
                "profiles: none, so that there is nothing to simulate: record some (`wattkeeper "
                "record`) and name them here, or run it live (--live)",
                document.where(("workload",)),
            ))  # fmt: skip
        return _recurring_inputs(scenario, workload, document, profiles, cluster)
    with named_at(document, "workload", "trace"):
        trace = store.find(workload.trace)
        if trace.kind != "jobs":
            raise InputError(f"trace {trace.name!r} holds {trace.kind}; a trace of jobs is needed")
    jobs, mapped = trace.tables["jobs"], None
    ignored: Mapping[str, int] = {}
    if workload.gpu_types == "ignore":
        jobs, ignored = on_any_type(jobs)
    if workload.mapping is not None:
        with named_at(document, "workload", "mapping"):
            mapped = _mapped(jobs, workload.mapping.by, profiles, cluster)
            jobs = mapped.jobs
    models = read_models(trace)
    timed = 0
    if workload.durations is not None:
        jobs, timed = timed_by_model(jobs, models, workload.durations)
    check_groups(jobs, trace.name)
    sieve = FilteredJobs(jobs, trace.name, cluster)
    sieve.reject(at_odds(jobs, cluster, recorded))
    with named_at(document, "cluster"):
        found = _needed_profiles(sieve.jobs, profiles, cluster)
    check_busy_power(sieve.jobs, cluster, document)
    if cluster.power_cap_w is not None:
        sieve.reject(PowerCapCheck(cluster, found).reasons(sieve))
    sieve.finish(drop=workload.unusable == "drop")
    sources = tuple(source for source in (profiles, trace, nodes) if source is not None)
    return RunInputs(
        found,
        sieve.jobs,
        {},
        sources,
        cluster,
        sieve.dropped,
        ignored,
        sieve.rows,
        mapped.table if mapped else (),
        models,
        timed,
    )


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


def _recurring_inputs(
    scenario: Scenario,
    workload: RecurringWorkload,
    document: YamlDocument,
    trace: Trace,
    cluster: ClusterSpec,
) -> RunInputs:
    with named_at(document, "cluster", "gpu"):
        known = [load_profiles(trace, name, workload.gpus) for name in cluster.gpu_types]
    _check_room(workload, document, cluster)
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
    with named_at(document, "cluster", "power_cap_w"):
        cap = PowerCapCheck(cluster, profiles)
        for name in names:
            above = cap.above((name, workload.gpus, WHOLE, None))
            if above:
                raise InputError(
                    f"power_cap_w: workload {name!r} can never start below "
                    f"{cluster.power_cap_w:g} W: {above}"
                )
    often = workload.recurrences
    recurrences = {
        name: often if isinstance(often, int) else often.per_configuration * profile.configurations
        for (name, _, _), profile in reversed(profiles.items())
    }
    return RunInputs(profiles, None, {name: recurrences[name] for name in names}, (trace,), cluster)


def _live_inputs(
    scenario: Scenario,
    workload: RecurringWorkload,
    document: YamlDocument,
    trace: Trace | None,
    cluster: ClusterSpec,
) -> RunInputs:
    """What a live run reads where workloads have commands: the profiles of the others.

    Raises:
        InputError: If a workload has neither a command nor a profile.
    """
    assert scenario.live is not None
    trained = scenario.live.workloads
    names = workload.workloads or tuple(trained)
    rehearsed = tuple(name for name in names if name not in trained)
    profiles: Profiles = {}
    if rehearsed:
        if trace is None:
            with named_at(document, "workload", "workloads"):
                raise InputError(
                    f"workload {rehearsed[0]!r} has neither a command (live.workloads) nor a "
                    "profile (workload.profiles)"
                )
        part = workload.model_copy(update={"workloads": rehearsed})
        profiles = _recurring_inputs(scenario, part, document, trace, cluster).profiles
    often = workload.recurrences
    if not isinstance(often, int):
        with named_at(document, "workload", "recurrences"):
            raise InputError("per_configuration: say a number; a live run knows no profiles")
    _check_room(workload, document, cluster)
    sources = () if trace is None else (trace,)
    return RunInputs(profiles, None, dict.fromkeys(names, often), sources, cluster)


def _check_room(workload: RecurringWorkload, document: YamlDocument, cluster: ClusterSpec) -> None:
    """Refuse jobs that are larger than the cluster."""
    with named_at(document, "workload", "gpus"):
        if workload.gpus > cluster.most_gpus(None):
            raise InputError(
                f"gpus: each job asks for {count(workload.gpus, 'GPU')}, the cluster has "
                f"{cluster.most_gpus(None)}" + " of one type" * (len(cluster.gpu_types) > 1)
            )


def _profile_trace(source: ProfileSource) -> Trace:
    if isinstance(source, SyntheticSource):
        return generate(source.synthetic, "synthetic")
    trace = store.find(source)
    if trace.kind != "profiles":
        raise InputError(f"trace {trace.name!r} holds {trace.kind}; profiles are needed")
    return trace
