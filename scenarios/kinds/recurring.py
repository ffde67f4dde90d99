"""Workloads that recur: in the simulator, and live."""

from collections.abc import Iterable, Mapping
from functools import cache, partial
from typing import cast

from typing_extensions import override

from wattkeeper.policies.errors import InputError, ScenarioError
from wattkeeper.policies.profile import Drift, Profile
from wattkeeper.scenarios.inputs.clusters import UsedCluster
from wattkeeper.scenarios.inputs.power_checks import check_starts
from wattkeeper.scenarios.inputs.run_inputs import RunInputs, ScenarioInputs
from wattkeeper.scenarios.inputs.synthetic_models import draw_models
from wattkeeper.scenarios.kinds.kind import Clusters
from wattkeeper.scenarios.kinds.profiles import adjust_profile, longest_run_times
from wattkeeper.scenarios.kinds.replayed import Names, ReplayedKind, fixed_batch_size
from wattkeeper.scenarios.spec.loading import LoadedScenario
from wattkeeper.scenarios.spec.sections.workload import RecurringWorkload
from wattkeeper.scenarios.spec.wording import count
from wattkeeper.scenarios.spec.yaml_document import YamlDocument, locate_errors
from wattkeeper.sim.replay.backend import Profiles
from wattkeeper.traces.profiles import load_profiles
from wattkeeper.traces.trace import Trace

MOST_MODELS = 10_000
"""Of a workload."""
DRIFTS = "change of the epochs over recurrences (workload.drift)"


class Recurring(ReplayedKind):
    """Jobs that recur, each when the one before it finishes, or on time."""

    @override
    def read_jobs(
        self, loaded: LoadedScenario, clusters: Clusters, profiles: Trace | None, trained: Names
    ) -> ScenarioInputs:
        workload = cast("RecurringWorkload", loaded.scenario.workload)
        if trained:
            return _read_live(loaded, workload, profiles, clusters)
        if profiles is None:
            raise ScenarioError(
                "profiles: none, so that there is nothing to simulate: record some (`wattkeeper "
                "record`) and name them here, or run it live (--live)",
                loaded.document.where(("workload",)),
            )
        return _read_replayed(loaded, workload, profiles, clusters)


KIND = Recurring()


def _read_replayed(
    loaded: LoadedScenario, workload: RecurringWorkload, trace: Trace, clusters: Clusters
) -> ScenarioInputs:
    """The profiles of jobs that recur, and how often each workload does.

    Raises:
        InputError: If there is no profile, or no job can ever start; the message names the place
            in the scenario.
    """
    scenario, document = loaded
    load = cache(partial(load_profiles, trace, epochs=workload.epochs))
    reference = next(used for used in clusters if scenario.baseline in used.variants)
    with locate_errors(document, *reference.path, "gpu"):
        known = load(reference.spec.gpu_types[0], workload.gpus)
    with locate_errors(document, "workload", "workloads"):
        names = workload.workloads or known.workloads
        if not names:
            raise InputError(
                f"trace {trace.name!r} has no workload that can be replayed on {known.gpu_type}: "
                + "; ".join(f"{name}: {why}" for name, why in known.absent.items())
            )
        configurations = {name: _adjust(known.get(name), workload).configurations for name in names}
    batch_size = fixed_batch_size(loaded)
    runs: dict[str, RunInputs] = {}
    for used in clusters:
        with locate_errors(document, *used.path, "gpu"):
            for gpu_type in used.spec.gpu_types:
                load(gpu_type, workload.gpus)
        _check_room(workload, document, used)
        with locate_errors(document, "workload", "workloads"):
            profiles = {
                (name, workload.gpus, gpu_type): _adjust(
                    load(gpu_type, workload.gpus).get(name), workload
                )
                for name in names
                for gpu_type in used.spec.gpu_types
            }
        check_starts([(name, workload.gpus) for name in names], profiles, used, document)
        for variant in used.variants:
            often = cast("RecurringWorkload", loaded.variants[variant].workload).recurrences
            recurrences = {
                name: often if isinstance(often, int) else often.per_configuration * number
                for name, number in configurations.items()
            }
            runs[variant] = RunInputs(
                used.spec,
                profiles,
                recurrences=recurrences,
                gpus=workload.gpus,
                every_s=_intervals(workload, recurrences, profiles, batch_size),
                slack=workload.slack,
                batch_size=batch_size,
            )
    inputs, drift = ScenarioInputs(runs, (trace,)), workload.drift
    if drift is not None:
        inputs = inputs._replace(adjusted=(DRIFTS,))
    if drift is not None and drift.after >= max(max(r.recurrences.values()) for r in runs.values()):
        what = f"after: epochs drift after recurrence {drift.after:,}, and none follows"
        raise ScenarioError(what, document.where(("workload", "drift", "after")))
    if workload.models is None:
        return inputs
    most = {name: max(run.recurrences[name] for run in runs.values()) for name in names}
    if max(most.values()) > MOST_MODELS:
        what = f"models: found {max(most.values()):,} recurrences; at most {MOST_MODELS:,} networks"
        raise ScenarioError(what, document.where(("workload", "models")))
    return inputs.update_runs(models=draw_models(most))


def _adjust(profile: Profile, workload: RecurringWorkload) -> Profile:
    """The profile as a workload wants it, with its drift."""
    profile, drift = adjust_profile(profile, workload), workload.drift
    if drift is None:
        return profile
    return profile._replace(drift=Drift(drift.after, drift.per_octave, drift.over))


def _read_live(
    loaded: LoadedScenario, workload: RecurringWorkload, trace: Trace | None, clusters: Clusters
) -> ScenarioInputs:
    """The inputs of a live run whose workloads have commands: the profiles of the others.

    Raises:
        InputError: If a workload has neither a command nor a profile.
    """
    scenario, document = loaded
    assert scenario.live is not None
    if workload.models is not None:
        what = "models: leave it out of a live run with scripts (live.workloads): they train theirs"
        raise ScenarioError(what, document.where(("workload", "models")))
    trained = scenario.live.workloads
    names = workload.workloads or tuple(trained)
    rehearsed = tuple(name for name in names if name not in trained)
    _check_adjustments(workload, bool(rehearsed), document)
    replayed: Mapping[str, RunInputs] = {}
    if rehearsed:
        if trace is None:
            with locate_errors(document, "workload", "workloads"):
                raise InputError(
                    f"workload {rehearsed[0]!r} has neither a command (live.workloads) nor a "
                    "profile (workload.profiles)"
                )
        part = workload.model_copy(update={"workloads": rehearsed})
        replayed = _read_replayed(loaded, part, trace, clusters).runs
    runs: dict[str, RunInputs] = {}
    for used in clusters:
        _check_room(workload, document, used)
        for variant in used.variants:
            often = cast("RecurringWorkload", loaded.variants[variant].workload).recurrences
            if not isinstance(often, int):
                what = "per_configuration: say a number; a live run knows no profiles"
                raise InputError(what, document.where(("workload", "recurrences")))
            runs[variant] = RunInputs(
                used.spec,
                replayed[variant].profiles if variant in replayed else {},
                recurrences=dict.fromkeys(names, often),
                gpus=workload.gpus,
                every_s=_intervals(workload, names, {}, None),
                trained=frozenset(trained),
            )
    return ScenarioInputs(runs, () if trace is None else (trace,))


def _check_adjustments(
    workload: RecurringWorkload, rehearses: bool, document: YamlDocument
) -> None:
    """Refuse keys that need profiles where a workload, or each, has none."""
    keys = () if rehearses else ("epochs", "epochs_sd", "interpolate_w", "drift")
    for key in ("every_runs", "slack", *keys):
        if getattr(workload, key) is not None:
            raise InputError(
                f"{key} needs profiles, and a workload of this live run has a command instead",
                document.where(("workload", key)),
            )


def _intervals(
    workload: RecurringWorkload, names: Iterable[str], profiles: Profiles, batch_size: int | None
) -> Mapping[str, float]:
    """Time from one submission to the next, s; empty where the next waits for the one before."""
    if workload.every_s is not None:
        return dict.fromkeys(names, workload.every_s)
    if workload.every_runs is None:
        return {}
    every_runs, longest_s = workload.every_runs, longest_run_times(profiles, batch_size)
    return {name: every_runs * run_s for (name, _), run_s in longest_s.items()}


def _check_room(workload: RecurringWorkload, document: YamlDocument, used: UsedCluster) -> None:
    """Refuse jobs that are larger than the cluster."""
    cluster = used.spec
    with locate_errors(document, "workload", "gpus"):
        if workload.gpus > cluster.most_gpus(None):
            raise InputError(
                f"{used.label}gpus: each job asks for {count(workload.gpus, 'GPU')}, the cluster "
                f"has {cluster.most_gpus(None)}" + " of one type" * (len(cluster.gpu_types) > 1)
            )
