"""Reads all that a scenario needs, and checks that it fits."""

from pathlib import Path

from wattkeeper.policies.errors import InputError, ScenarioError
from wattkeeper.scenarios.inputs.clusters import search_processor, used_clusters
from wattkeeper.scenarios.inputs.electricity import read_tariffs
from wattkeeper.scenarios.inputs.latencies import latencies_of, with_preemption
from wattkeeper.scenarios.inputs.power_checks import check_cap, check_idle_power
from wattkeeper.scenarios.inputs.run_inputs import RunInputs, ScenarioInputs
from wattkeeper.scenarios.inputs.signals import read_signals
from wattkeeper.scenarios.inputs.workloads.recurring import read_live, read_recurring
from wattkeeper.scenarios.inputs.workloads.rent import check_rents, with_prices
from wattkeeper.scenarios.spec.loading import LoadedScenario
from wattkeeper.scenarios.spec.sections.elastic import ElasticWorkload
from wattkeeper.scenarios.spec.sections.pipeline import PipelineWorkload
from wattkeeper.scenarios.spec.sections.workload import (
    ArchitectureSearch,
    ProfileSource,
    ReplayedWorkload,
    SyntheticSource,
    TraceWorkload,
)
from wattkeeper.scenarios.spec.yaml_document import locate_errors
from wattkeeper.traces.library import store
from wattkeeper.traces.trace import Trace


def read_inputs(loaded: LoadedScenario, *, live: bool = False) -> ScenarioInputs:
    """Find and check all that a scenario needs: traces, rates and signals.

    Each trace is read once for all variants. With `live`, leave out the profiles of workloads that
    are trained.

    Raises:
        InputError: If they are absent, broken, or do not fit the scenario; the message names the
            place in the scenario or in the trace.
    """
    inputs = _read_traces(loaded, live=live)
    tariffs = read_tariffs(loaded, inputs.traces)
    runs = {
        name: run._replace(tariff=tariffs[name])
        for name, run in inputs.runs.items()
        if name in tariffs
    }
    inputs = inputs._replace(runs=dict(inputs.runs) | runs)
    section = loaded.scenario.live
    in_real_time = live and (section is None or section.speed is None)
    signals = read_signals(loaded, inputs, live=in_real_time)
    followed = {
        name: run._replace(signals=signals[name])
        for name, run in inputs.runs.items()
        if signals[name]
    }
    files = loaded.document.policy_files or ()
    inputs = inputs._replace(runs=dict(inputs.runs) | followed, policy_files=files)
    inputs = with_prices(loaded, inputs)
    return _drop_clocks(inputs) if live else inputs


def _drop_clocks(inputs: ScenarioInputs) -> ScenarioInputs:
    """The inputs without locked clocks of profiles: live runs set power limits."""
    runs = {}
    for name, run in inputs.runs.items():
        profiles = {key: profile.drop_clocks() for key, profile in run.profiles.items()}
        runs[name] = run._replace(profiles=profiles)
    return inputs._replace(runs=runs)


def _read_traces(loaded: LoadedScenario, *, live: bool) -> ScenarioInputs:
    """The traces of a scenario; see `read_inputs`."""
    scenario, document = loaded
    workload = scenario.workload
    profiles = None
    if isinstance(workload, ReplayedWorkload) and workload.profiles is not None:
        with locate_errors(document, "workload", "profiles"):
            beside = document.folder_of(("workload", "profiles"))
            profiles = _profile_trace(workload.profiles, beside)
    clusters, nodes = used_clusters(loaded)
    check_rents(loaded, clusters)
    if isinstance(workload, ArchitectureSearch):
        cluster = clusters[0].spec
        with locate_errors(document, "cluster"):
            search_processor(cluster)
        search = RunInputs(cluster, {}, search=workload)
        return ScenarioInputs(dict.fromkeys(scenario.variants, search))
    if live and isinstance(workload, ElasticWorkload | PipelineWorkload):
        raise ScenarioError(
            f"workload.kind: a scenario of kind {workload.kind} is simulated only; leave out "
            f"--live, or train under its policies as docs/live-{workload.kind}.md shows",
            document.where(("workload", "kind")),
        )
    for used in clusters:
        check_cap(used, document)
        if used.spec.partitions and not isinstance(workload, TraceWorkload):
            raise InputError(
                f"{used.label}partitions: only jobs of a trace name a partition, not those of a "
                f"workload of kind {workload.kind}; leave it out",
                used.where(document, "partitions"),
            )
        if live and used.spec.cap is not None:
            raise InputError(
                f"{used.label}power_cap_w: a cap that follows a signal is obeyed in simulated runs "
                "only; give a number",
                used.where(document, "power_cap_w"),
            )
        if live and used.spec.losses is not None:
            raise InputError(
                f"{used.label}losses: nodes are lost in simulated runs only; leave it out, or "
                "leave out --live",
                used.where(document, "losses"),
            )
    if isinstance(workload, ElasticWorkload):
        from wattkeeper.scenarios.inputs.workloads.elastic import read_elastic

        inputs = read_elastic(loaded, workload, clusters)
        return inputs._replace(traces=(*inputs.traces, *nodes))
    if isinstance(workload, PipelineWorkload):
        from wattkeeper.scenarios.inputs.workloads.pipelines import read_pipelines

        inputs = read_pipelines(loaded, workload, clusters)
        return inputs._replace(traces=tuple(nodes))
    trained = scenario.live.workloads if live and scenario.live is not None else {}
    if isinstance(workload, TraceWorkload):
        from wattkeeper.scenarios.inputs.workloads.trace_jobs import read_jobs

        inputs = read_jobs(loaded, workload, profiles, clusters, frozenset(trained))
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
    for used in clusters:
        check_idle_power(used, inputs.runs[used.variants[0]].profiles, document)
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


def _profile_trace(source: ProfileSource, beside: Path) -> Trace:
    if isinstance(source, SyntheticSource):
        from wattkeeper.traces.generate.synthetic import generate

        return generate(source.synthetic, "synthetic")
    trace = store.find(source, beside)
    if trace.kind != "profiles":
        raise InputError(f"trace {trace.name!r} holds {trace.kind}; profiles are needed")
    return trace
