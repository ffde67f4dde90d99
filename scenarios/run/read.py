"""Reads all that a scenario needs, and checks that it fits."""

from wattkeeper.policies.errors import ScenarioError
from wattkeeper.scenarios.inputs.clusters import UsedCluster, used_clusters
from wattkeeper.scenarios.inputs.electricity import with_tariffs
from wattkeeper.scenarios.inputs.power_checks import check_cap
from wattkeeper.scenarios.inputs.rent import check_currencies, with_prices
from wattkeeper.scenarios.inputs.run_inputs import ScenarioInputs, SourceFile
from wattkeeper.scenarios.inputs.signals import with_signals
from wattkeeper.scenarios.kinds.kind import find_kind
from wattkeeper.scenarios.spec.loading import LoadedScenario


def read_inputs(loaded: LoadedScenario, *, live: bool = False) -> ScenarioInputs:
    """Find and check all that a scenario needs: traces, rates and signals.

    Each trace is read once for all variants. With `live`, leave out the profiles of workloads that
    are trained.

    Raises:
        InputError: If they are absent, broken, or do not fit the scenario; the message names the
            place in the scenario or in the trace.
    """
    scenario, document = loaded
    clusters, nodes = used_clusters(loaded)
    check_currencies(loaded, clusters)
    for used in clusters:
        check_cap(used, document)
    kind = find_kind(scenario.workload.kind)
    if live and kind.not_live:
        raise ScenarioError(kind.not_live, document.where(("workload", "kind")))
    for used in clusters:
        _check_keys(used, loaded, kind.rents_nodes, live)
    inputs = kind.read(loaded, clusters, live)
    policies = (
        SourceFile(file.name, "policies", "python", "file", {file.name: file.sha256}, file.sha256)
        for file in document.policy_files or ()
    )
    inputs = inputs._replace(traces=(*inputs.traces, *nodes), files=(*inputs.files, *policies))
    inputs = with_tariffs(loaded, inputs)
    in_real_time = live and (scenario.live is None or scenario.live.speed is None)
    inputs = with_prices(loaded, with_signals(loaded, inputs, live=in_real_time))
    return _drop_clocks(inputs) if live else inputs


def _check_keys(used: UsedCluster, loaded: LoadedScenario, rents_nodes: bool, live: bool) -> None:
    """Refuse keys of a cluster that change nothing for these jobs, or that no live run obeys."""
    spec, workload = used.spec, loaded.scenario.workload
    wrong: dict[str, str] = {}
    if spec.rent is not None and not rents_nodes:
        what = " has no effect: only nodes of elastic jobs are paid for (workload.kind: elastic)"
        wrong["rent"] = what
    if spec.partitions and not workload.is_log:
        wrong["partitions"] = (
            ": only jobs of a trace name a partition, not those of a workload of kind "
            f"{workload.kind}; leave it out"
        )
    if live and spec.cap is not None:
        what = ": a cap that follows a signal is obeyed in simulated runs only; give a number"
        wrong["power_cap_w"] = what
    if live and spec.losses is not None:
        what = ": nodes are lost in simulated runs only; leave it out, or leave out --live"
        wrong["losses"] = what
    for key, what in wrong.items():
        raise ScenarioError(f"{used.label}{key}{what}", used.where(loaded.document, key))


def _drop_clocks(inputs: ScenarioInputs) -> ScenarioInputs:
    """The inputs without locked clocks of profiles: live runs set power limits."""
    runs = {}
    for name, run in inputs.runs.items():
        profiles = {key: profile.drop_clocks() for key, profile in run.profiles.items()}
        runs[name] = run._replace(profiles=profiles)
    return inputs._replace(runs=runs)
