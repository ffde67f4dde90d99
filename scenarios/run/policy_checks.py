"""Checks that the policies of a scenario can work on its jobs."""

from wattkeeper.policies.errors import InputError, PolicyError
from wattkeeper.policies.failures import explain_failures
from wattkeeper.policies.points.moments import START_MOMENTS
from wattkeeper.policies.registry import Point, PolicyConfig
from wattkeeper.scenarios.inputs.job_filter import COLUMNS, name_job
from wattkeeper.scenarios.inputs.run_inputs import RunInputs, ScenarioInputs
from wattkeeper.scenarios.kinds.kind import WorkloadKind, find_kind
from wattkeeper.scenarios.spec.loading import LoadedScenario, locate_error
from wattkeeper.scenarios.spec.sections.policies import Policies
from wattkeeper.scenarios.spec.variants import DEFAULTS, VariantSpec
from wattkeeper.sim.replay.backend import options_of
from wattkeeper.traces.estimates import count_outlived


def check_policies(loaded: LoadedScenario, inputs: ScenarioInputs) -> None:
    """Refuse policies that cannot work on these jobs and the profiles that they need.

    Raises:
        PolicyError: The message names the place in the scenario.
    """
    scenario = loaded.scenario
    kind = find_kind(scenario.workload.kind)
    for name, variant in loaded.variants.items():
        run, own = inputs.runs[name], scenario.variants[name].policies
        try:
            _check_stated(variant, own, scenario.policies)
            _check_trial(variant, kind)
            kind.check_policies(variant, run)
            _check_touched(variant, run)
            _check_moments(variant)
            _check_slices(variant, run)
            _check_queue(variant)
            _check_types(variant, run)
            _check_energy(variant, run)
            _check_each(variant, run, inputs)
        except (InputError, PolicyError) as error:
            raise locate_error(loaded, name, error) from None


def _check_stated(variant: VariantSpec, own: Policies, stated: Policies) -> None:
    """Refuse a second `Tune` policy, and those on elastic jobs and a zoo where there are none."""
    configure = variant.policies.configure
    if configure.sets_power and own.tune is not None:
        what = f"configure: {configure.kind} sets the power limit itself; leave tune out"
        raise PolicyError(what, "tune")
    if configure.tunes and own.tune is not None:
        what = f"configure: {configure.kind} is the tune policy, too; leave tune out"
        raise PolicyError(what, "tune")
    if variant.policies.replan is None and own.replan is not None:
        what = "replan: there is no elastic job that it could decide on (workload.kind: elastic)"
        raise PolicyError(what, "replan")
    if variant.zoo is not None:
        return
    parent = configure.parts[0].kind
    if configure.sets_parent and parent != "none":
        what = f"configure: {parent} chooses parents, but there is no zoo: say `zoo: {{}}`"
        raise PolicyError(what, "configure")
    if own.retain is not None or stated.retain is not None:
        what = "retain: there is no zoo that it could decide on: say `zoo: {}`"
        raise PolicyError(what, "retain")


def _check_trial(variant: VariantSpec, kind: WorkloadKind) -> None:
    """Refuse trials of parents where nothing is trained that could try them."""
    configure = variant.policies.configure
    if configure.trial != "none" and not kind.tries_parents:
        what = (
            f"configure: {configure.parts[0].kind} has parents tried, which only a search that "
            "trains for real (zoo-digits) or a stand-alone session can; leave trials out"
        )
        raise PolicyError(what, "configure")


def _check_touched(variant: VariantSpec, run: RunInputs) -> None:
    """Refuse policies that decide on no job: none has a profile, or clocks, or all are elastic."""
    tune = variant.policies.tune
    touched = any(
        each.pipeline is not None or (tune.sets_clocks == "single" and each.has_clocks)
        for each in run.profiles.values()
    )
    if tune.sets_clocks != "none" and not touched:
        others = " or profiles with clock_mhz" if tune.sets_clocks == "single" else ""
        what = (
            f"tune: {tune.kind} would touch no job: it chooses clocks of pipeline-parallel jobs "
            f"(workload.kind: pipeline){others}"
        )
        raise PolicyError(what, "tune")
    if run.jobs is None or run.profiles or run.trained:
        return
    are_elastic = run.elastic is not None and len(run.elastic.jobs) == len(run.jobs)
    place = variant.policies.place.kind
    if are_elastic and place != DEFAULTS["place"]:
        what = f"place: {place} would touch no job: elastic jobs take whole nodes, and all jobs are"
        raise PolicyError(what, "place")
    points: tuple[Point, ...] = ("configure", "tune")
    for point in points:
        config = variant.policies.by_point[point].parts[-1]
        limits = config.limits_unprofiled and not are_elastic
        if config.kind == DEFAULTS[point] or limits or config.sets_parent:
            continue
        what = (
            f"{point}: {config.kind} would touch no job: it decides on jobs with a profile, and no "
            "job has one (workload.profiles, workload.mapping)"
        )
        raise PolicyError(what, point)


def _check_moments(variant: VariantSpec) -> None:
    """Refuse a `Tune` policy that decides over time where nothing can change then."""
    tune = variant.policies.tune
    if set(tune.moments) <= set(START_MOMENTS) and not tune.slices:
        return
    if variant.occupancy == "recorded":
        why = "occupancy: recorded leaves nothing to change while a job runs"
    elif variant.profiling == "foreknown":
        why = (
            "profiling: foreknown is for policies that decide at the start alone; say profiling: "
            "measured, for the scenario or the variant"
        )
    else:
        return
    what = f"{tune.point}: {tune.kind} decides while jobs run, but {why}"
    raise PolicyError(what, tune.point)


def _check_slices(variant: VariantSpec, run: RunInputs) -> None:
    """Refuse a policy that asks for slices where nobody knows how long these are."""
    tune = variant.policies.tune
    for profile in run.profiles.values():
        if tune.slices and not profile.samples_per_epoch > 0:
            what = (
                f"{tune.point}: {tune.kind} trains slices of some steps, but the profiles do not "
                f"say how many samples an epoch of {profile.workload} has (samples_per_epoch)"
            )
            raise PolicyError(what, tune.point)


def _check_queue(variant: VariantSpec) -> None:
    """Refuse a weight of waiting where time has none."""
    configure = variant.policies.configure
    if configure.sees_queue and variant.rules.objective.eta == 1:
        what = (
            f"configure: {configure.kind} weighs the waiting of others, which changes nothing "
            "where time has no weight (objective.eta 1)"
        )
        raise PolicyError(what, "configure")


def _check_types(variant: VariantSpec, run: RunInputs) -> None:
    """Refuse a choice between GPU types where a cluster or a profile has one, or none is known."""
    place = variant.policies.place
    if not place.chooses_types:
        return
    widths = {(workload, gpus): 0 for workload, gpus, _ in run.profiles}
    for workload, gpus, gpu_type in run.profiles:
        widths[workload, gpus] += gpu_type in run.cluster.gpu_types
    if max(widths.values(), default=0) < 2:
        what = (
            f"place: {place.kind} chooses between GPU types, but no workload has a profile on two "
            "types of the cluster"
        )
        raise PolicyError(what, "place")
    unknown = sorted({each.workload for each in run.profiles.values() if not each.measured})
    if unknown:
        names = ", ".join(unknown)
        what = f"place: {place.kind} compares energies, and those of {names} are unknown"
        raise PolicyError(what, "place")


def _check_energy(variant: VariantSpec, run: RunInputs) -> None:
    """Refuse a cost that counts energy where power was not measured."""
    objective = variant.rules.objective
    for (workload, _, gpu_type), profile in run.profiles.items():
        if not profile.measured and run.cluster.power_cap_w is not None:
            what = f"nothing measured the power of {workload} on {gpu_type}: leave power_cap_w out"
        elif not profile.measured and objective.eta > 0:
            what = (
                f"eta {objective.eta:g} counts energy, but nothing measured the power of "
                f"{workload} on {gpu_type}: say objective: {{eta: 0}}, which counts time alone"
            )
        elif not profile.limited and 0 < objective.eta < 1:
            what = (
                f"eta {objective.eta:g} weighs time by the largest power limit, but {gpu_type} "
                f"takes none ({workload}): say objective: {{eta: 0}} or {{eta: 1}}"
            )
        else:
            continue
        raise InputError(what)


def _check_each(variant: VariantSpec, run: RunInputs, inputs: ScenarioInputs) -> None:
    """Refuse policies that lack a column of the jobs, or refuse the options of a profile."""
    for point, config in variant.policies.by_point.items():
        missing = _explain_missing(config, inputs, run.load)
        if missing:
            raise PolicyError(f"{point}: {config.kind} cannot run: {missing}", point)
        for profile in run.profiles.values():
            with explain_failures(config, config.check):
                config.check(options_of(profile))


def _explain_missing(config: PolicyConfig, inputs: ScenarioInputs, load: float) -> str:
    """Explains which column that a policy needs is not filled; empty if all are."""
    for column, advice in config.needed_columns.items():
        label = COLUMNS.get(column, column)
        jobs = inputs.any_run.jobs
        if jobs is None:
            return f"it needs the {label} of every job, and jobs that recur have none"
        if column == "start_time_s" and load != 1:
            return f"with load: {load:g} jobs arrive at other times than they started at"
        absent = jobs[column].is_null()
        count = jobs[column].null_count
        if count:
            row = absent.index(True).as_py()
            job = name_job(jobs["job_id"][row].as_py(), int(inputs.rows[row]))
            return f"{count} of {len(absent)} jobs have no {label} (first: {job}); {advice}"
    return ""


def warn_estimates(loaded: LoadedScenario, inputs: ScenarioInputs) -> str:
    """A warning if a policy reads estimates, and many jobs ran longer than theirs; else empty."""
    jobs = inputs.any_run.jobs
    reads_estimates = any(
        "estimate_s" in config.needed_columns
        for variant in loaded.variants.values()
        for config in variant.policies.by_point.values()
    )
    return count_outlived(jobs).warn() if jobs is not None and reads_estimates else ""
