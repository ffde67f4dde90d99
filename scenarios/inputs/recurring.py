"""Inputs of workloads that recur: in the simulator, and live."""

from wattkeeper.policies.errors import InputError
from wattkeeper.policies.protocols import WHOLE
from wattkeeper.scenarios.inputs.power_checks import PowerCapCheck
from wattkeeper.scenarios.inputs.run_inputs import RunInputs, ScenarioInputs
from wattkeeper.scenarios.spec.schema import RecurringWorkload, Scenario
from wattkeeper.scenarios.spec.wording import count
from wattkeeper.scenarios.spec.yaml_document import YamlDocument, locate_errors
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec
from wattkeeper.sim.engine.replay import Profiles
from wattkeeper.traces.profiles import load_profiles
from wattkeeper.traces.trace import Trace


def read_recurring(
    workload: RecurringWorkload,
    document: YamlDocument,
    trace: Trace,
    cluster: ClusterSpec,
) -> ScenarioInputs:
    """The profiles of jobs that recur, and how often each workload does.

    Raises:
        InputError: If there is no profile, or no job can ever start; the message names the place
            in the scenario.
    """
    with locate_errors(document, "cluster", "gpu"):
        known = [load_profiles(trace, name, workload.gpus) for name in cluster.gpu_types]
    _check_room(workload, document, cluster)
    with locate_errors(document, "workload", "workloads"):
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
    with locate_errors(document, "cluster", "power_cap_w"):
        cap = PowerCapCheck(cluster, profiles)
        for name in names:
            excess = cap.explain_excess((name, workload.gpus, WHOLE, None))
            if excess:
                raise InputError(
                    f"power_cap_w: workload {name!r} can never start below "
                    f"{cluster.power_cap_w:g} W: {excess}"
                )
    often = workload.recurrences
    recurrences = {
        name: often if isinstance(often, int) else often.per_configuration * profile.configurations
        for (name, _, _), profile in reversed(profiles.items())
    }
    recurrences = {name: recurrences[name] for name in names}
    run = RunInputs(cluster, profiles, recurrences=recurrences, gpus=workload.gpus)
    return ScenarioInputs(run, (trace,))


def read_live(
    scenario: Scenario,
    workload: RecurringWorkload,
    document: YamlDocument,
    trace: Trace | None,
    cluster: ClusterSpec,
) -> ScenarioInputs:
    """The inputs of a live run whose workloads have commands: the profiles of the others.

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
            with locate_errors(document, "workload", "workloads"):
                raise InputError(
                    f"workload {rehearsed[0]!r} has neither a command (live.workloads) nor a "
                    "profile (workload.profiles)"
                )
        part = workload.model_copy(update={"workloads": rehearsed})
        profiles = read_recurring(part, document, trace, cluster).run.profiles
    often = workload.recurrences
    if not isinstance(often, int):
        with locate_errors(document, "workload", "recurrences"):
            raise InputError("per_configuration: say a number; a live run knows no profiles")
    _check_room(workload, document, cluster)
    recurrences = dict.fromkeys(names, often)
    run = RunInputs(
        cluster, profiles, recurrences=recurrences, gpus=workload.gpus, trained=frozenset(trained)
    )
    return ScenarioInputs(run, () if trace is None else (trace,))


def _check_room(workload: RecurringWorkload, document: YamlDocument, cluster: ClusterSpec) -> None:
    """Refuse jobs that are larger than the cluster."""
    with locate_errors(document, "workload", "gpus"):
        if workload.gpus > cluster.most_gpus(None):
            raise InputError(
                f"gpus: each job asks for {count(workload.gpus, 'GPU')}, the cluster has "
                f"{cluster.most_gpus(None)}" + " of one type" * (len(cluster.gpu_types) > 1)
            )
