"""Checks that the policies of a scenario can work on its jobs."""

from wattkeeper.policies.errors import InputError, PolicyError, Problem, WattkeeperError
from wattkeeper.policies.failures import explain_failures
from wattkeeper.policies.points.moments import START_MOMENTS
from wattkeeper.policies.registry import Point, PolicyConfig, find_config, policies
from wattkeeper.scenarios.inputs.job_filter import COLUMNS, name_job
from wattkeeper.scenarios.inputs.run_inputs import RunInputs, ScenarioInputs
from wattkeeper.scenarios.spec.loading import LoadedScenario
from wattkeeper.scenarios.spec.variants import DEFAULTS, occupancy_of, points_of, policy_of, zoo_of
from wattkeeper.sim.replay.backend import options_of
from wattkeeper.traces.estimates import count_outlived


def check_policies(loaded: LoadedScenario, inputs: ScenarioInputs) -> None:
    """Refuse policies that cannot work on these jobs and the profiles that they need.

    Raises:
        PolicyError: The message names the place in the scenario.
    """
    for variant, own in loaded.scenario.variants.items():
        run = inputs.runs[variant]
        configure = policy_of(loaded.scenario, variant, "configure")
        if configure.sets_power and own.policies.tune is not None:
            what = f"configure: {configure.kind} sets the power limit itself; leave tune out"
            raise locate_error(loaded, variant, PolicyError(what, "tune"))
        if configure.tunes and own.policies.tune is not None:
            what = f"configure: {configure.kind} is the tune policy, too; leave tune out"
            raise locate_error(loaded, variant, PolicyError(what, "tune"))
        if run.search is not None:
            _check_search(loaded, variant, configure)
        if run.elastic is None and own.policies.replan is not None:
            what = (
                "replan: there is no elastic job that it could decide on (workload.kind: elastic)"
            )
            raise locate_error(loaded, variant, PolicyError(what, "replan"))
        _check_zoo(loaded, run, variant, configure)
        _check_touched(loaded, inputs, variant)
        _check_moments(loaded, variant)
        _check_slices(loaded, run, variant)
        _check_queue(loaded, variant, configure)
        _check_energy(loaded, run, variant)
        for point in points_of(loaded.scenario, variant):
            config = policy_of(loaded.scenario, variant, point)
            missing = _explain_missing(config, inputs, run.load)
            if missing:
                what = f"{point}: {config.kind} cannot run: {missing}"
                raise locate_error(loaded, variant, PolicyError(what, point))
            for profile in run.profiles.values():
                try:
                    with explain_failures(config, config.check):
                        config.check(options_of(profile))
                except PolicyError as error:
                    raise locate_error(loaded, variant, error) from None


def _check_touched(loaded: LoadedScenario, inputs: ScenarioInputs, variant: str) -> None:
    """Refuse policies that decide on no job: none has a profile, or clocks, or all are elastic."""
    run = inputs.runs[variant]
    tune = policy_of(loaded.scenario, variant, "tune")
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
        raise locate_error(loaded, variant, PolicyError(what, "tune"))
    if run.jobs is None or run.profiles or run.trained:
        return
    are_elastic = run.elastic is not None and len(run.elastic.jobs) == len(run.jobs)
    place = policy_of(loaded.scenario, variant, "place").kind
    if are_elastic and place != DEFAULTS["place"]:
        what = f"place: {place} would touch no job: elastic jobs take whole nodes, and all jobs are"
        raise locate_error(loaded, variant, PolicyError(what, "place"))
    points: tuple[Point, ...] = ("configure", "tune")
    for point in points:
        config = policy_of(loaded.scenario, variant, point).parts[-1]
        limits = config.limits_unprofiled and not are_elastic
        if config.kind == DEFAULTS[point] or limits or config.sets_parent:
            continue
        what = (
            f"{point}: {config.kind} would touch no job: it decides on jobs with a profile, and no "
            "job has one (workload.profiles, workload.mapping)"
        )
        raise locate_error(loaded, variant, PolicyError(what, point))


def _check_moments(loaded: LoadedScenario, variant: str) -> None:
    """Refuse a `Tune` policy that decides over time where nothing can change then."""
    scenario = loaded.scenario
    tune = policy_of(scenario, variant, "tune")
    if set(tune.moments) <= set(START_MOMENTS) and not tune.slices:
        return
    profiling = scenario.variants[variant].profiling or scenario.profiling
    if occupancy_of(scenario, variant) == "recorded":
        why = "occupancy: recorded leaves nothing to change while a job runs"
    elif profiling == "foreknown":
        why = (
            "profiling: foreknown is for policies that decide at the start alone; say profiling: "
            "measured, for the scenario or the variant"
        )
    else:
        return
    what = f"{tune.point}: {tune.kind} decides while jobs run, but {why}"
    raise locate_error(loaded, variant, PolicyError(what, tune.point))


def _check_slices(loaded: LoadedScenario, inputs: RunInputs, variant: str) -> None:
    """Refuse a policy that asks for slices where nobody knows how long these are."""
    tune = policy_of(loaded.scenario, variant, "tune")
    for profile in inputs.profiles.values():
        if tune.slices and not profile.samples_per_epoch > 0:
            what = (
                f"{tune.point}: {tune.kind} trains slices of some steps, but the profiles do not "
                f"say how many samples an epoch of {profile.workload} has (samples_per_epoch)"
            )
            raise locate_error(loaded, variant, PolicyError(what, tune.point))


def _check_queue(loaded: LoadedScenario, variant: str, configure: PolicyConfig) -> None:
    """Refuse a weight of waiting where time has none."""
    objective = loaded.scenario.variants[variant].objective or loaded.scenario.objective
    if configure.sees_queue and objective.eta == 1:
        what = (
            f"configure: {configure.kind} weighs the waiting of others, which changes nothing "
            "where time has no weight (objective.eta 1)"
        )
        raise locate_error(loaded, variant, PolicyError(what, "configure"))


def _check_search(loaded: LoadedScenario, variant: str, configure: PolicyConfig) -> None:
    """Refuse policies that choose knobs which the trainings of a search do not have."""
    tune = policy_of(loaded.scenario, variant, "tune").kind
    if tune != DEFAULTS["tune"]:
        what = f"tune: {tune} chooses power limits, which a search does not set; leave tune out"
        raise locate_error(loaded, variant, PolicyError(what, "tune"))
    default = find_config("configure", DEFAULTS["configure"])
    chosen = configure.parts[-1]
    if not chosen.sets_parent and chosen != default:
        parents = (kind for kind, config in policies("configure").items() if config.sets_parent)
        what = (
            f"configure: {chosen.kind} chooses a batch size, but all networks of a search are "
            f"trained by one rule (workload.training); allowed: {', '.join(parents)}"
        )
        raise locate_error(loaded, variant, PolicyError(what, "configure"))


def _check_energy(loaded: LoadedScenario, inputs: RunInputs, variant: str) -> None:
    """Refuse a cost that counts energy where power was not measured."""
    objective = loaded.scenario.variants[variant].objective or loaded.scenario.objective
    for (workload, _, gpu_type), profile in inputs.profiles.items():
        if not profile.measured and inputs.cluster.power_cap_w is not None:
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
        raise locate_error(loaded, variant, InputError(what))


def _check_zoo(
    loaded: LoadedScenario, inputs: RunInputs, variant: str, configure: PolicyConfig
) -> None:
    """Refuse a zoo whose models are not known, and policies that need a zoo where there is none."""
    zoo = zoo_of(loaded.scenario, variant)
    if zoo is None:
        parent = configure.parts[0].kind
        if configure.sets_parent and parent != "none":
            what = f"configure: {parent} chooses parents, but there is no zoo: say `zoo: {{}}`"
            raise locate_error(loaded, variant, PolicyError(what, "configure"))
        if any(
            chosen.policies.retain is not None
            for chosen in (loaded.scenario, loaded.scenario.variants[variant])
        ):
            what = "retain: there is no zoo that it could decide on: say `zoo: {}`"
            raise locate_error(loaded, variant, PolicyError(what, "retain"))
        return
    if inputs.search is not None:
        bounded = zoo.capacity_gb is not None
        if bounded or policy_of(loaded.scenario, variant, "retain").kind != "keep-all":
            what = "zoo: a search keeps all that it trained; leave out capacity_gb and retain"
            raise locate_error(loaded, variant, InputError(what))
        return
    if not inputs.models.known:
        raise locate_error(
            loaded,
            variant,
            InputError(
                "zoo: the trace does not say which models its jobs train; import it with a format "
                "that does (modelkeeper)"
            ),
        )
    origins = [row.child.mutated_from for row in inputs.models.known.values()]
    if configure.parts[0].kind == "lineage" and not any(origins):
        raise locate_error(
            loaded,
            variant,
            PolicyError(
                "configure: lineage cannot run: the trace does not say of any model what it was "
                "mutated from (column mutated_from)",
                "configure",
            ),
        )
    absent = [name for name, row in inputs.models.known.items() if row.accuracy is None]
    if absent and zoo.accuracy is None and not inputs.trained:
        raise locate_error(
            loaded,
            variant,
            InputError(
                f"zoo: the trace has no accuracy of {len(absent)} models (first: {absent[0]}); say "
                "what they reach from scratch (zoo.accuracy)"
            ),
        )


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


def locate_error(
    loaded: LoadedScenario, variant: str, error: InputError | PolicyError
) -> WattkeeperError:
    """The same error with the variant, and the place of the policy that it is about."""
    scenario, document = loaded
    point = error.point if isinstance(error, PolicyError) else None
    path: tuple[str, ...] = ("variants", variant)
    if point is not None:
        own = getattr(scenario.variants[variant].policies, point) is not None
        path = (*path, "policies", point) if own else ("policies", point)
    where = document.where_inside(path)
    problems = [
        Problem(f"variant {variant!r}: {f'{p.where}: ' * bool(p.where)}{p.message}", where)
        for p in error.problems
    ]
    located = type(error)(problems)
    for note in getattr(error, "__notes__", ()):
        located.add_note(note)
    return located


def warn_estimates(loaded: LoadedScenario, inputs: ScenarioInputs) -> str:
    """A warning if a policy reads estimates, and many jobs ran longer than theirs; else empty."""
    scenario, jobs = loaded.scenario, inputs.any_run.jobs
    reads_estimates = any(
        "estimate_s" in policy_of(scenario, name, point).needed_columns
        for name in scenario.variants
        for point in points_of(scenario, name)
    )
    return count_outlived(jobs).warn() if jobs is not None and reads_estimates else ""
