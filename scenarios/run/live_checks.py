"""Whether a scenario can run live at all."""

from __future__ import annotations

from wattkeeper.policies.errors import InputError, PolicyError, Problem, ScenarioError
from wattkeeper.policies.protocols import WHOLE
from wattkeeper.scenarios.inputs.policy_checks import locate_error
from wattkeeper.scenarios.inputs.run_inputs import RunInputs
from wattkeeper.scenarios.spec.loading import LoadedScenario
from wattkeeper.scenarios.spec.schema import ArchitectureSearch, LiveSection
from wattkeeper.scenarios.spec.variants import DEFAULTS, occupancy_of, policy_of


def check_live(loaded: LoadedScenario, inputs: RunInputs, section: LiveSection) -> None:
    """Refuse a scenario that cannot run live, whatever devices there are.

    Raises:
        InputError: If its workload, or the setting of a variant, is for the simulator alone.
        PolicyError: If a policy needs to know the future.
    """
    _check_workload(loaded, inputs, section)
    for variant in loaded.scenario.variants:
        _check_variant(loaded, variant)


def _check_workload(loaded: LoadedScenario, inputs: RunInputs, section: LiveSection) -> None:
    scenario, document = loaded
    here = document.where(("workload",))
    if isinstance(scenario.workload, ArchitectureSearch):
        raise ScenarioError(Problem("kind: a search trains for real as it is; leave out --live",
                                    here))  # fmt: skip
    if inputs.jobs is not None and section.workloads:
        raise ScenarioError(Problem(
            "kind: live.workloads needs a workload of kind recurring; jobs of a trace are "
            "rehearsed", here))  # fmt: skip
    unknown = sorted(set(section.workloads) - set(inputs.recurrences))
    if unknown and inputs.jobs is None:
        raise ScenarioError(Problem(
            f"no workload {unknown[0]!r} recurs; there is {', '.join(inputs.recurrences)}",
            document.where(("live", "workloads", unknown[0]))))  # fmt: skip
    if section.speed is not None and inputs.jobs is None and not inputs.profiles:
        raise ScenarioError(Problem("speed: nothing is rehearsed", document.where(("live",))))
    if inputs.jobs is not None and any(milli != WHOLE for milli in
                                       inputs.jobs["gpu_milli"].unique().to_pylist()):  # fmt: skip
        raise ScenarioError(Problem("trace: it has jobs that share GPUs, which no process does "
                                    "live", here))  # fmt: skip


def _check_variant(loaded: LoadedScenario, variant: str) -> None:
    scenario = loaded.scenario
    if occupancy_of(scenario, variant) == "recorded":
        raise locate_error(loaded, variant, InputError(
            "occupancy: live, a job holds its GPUs for as long as it takes; leave out recorded"
        ))  # fmt: skip
    if (scenario.variants[variant].profiling or scenario.profiling) == "foreknown":
        raise locate_error(loaded, variant, InputError(
            "profiling: live, what it finds is known when it is done; leave out foreknown"
        ))  # fmt: skip
    for point in DEFAULTS:
        config = policy_of(scenario, variant, point)
        if config.needs_foresight:
            raise locate_error(loaded, variant, PolicyError(
                f"{point}: {config.kind} needs to know the future, which a live run does not: "
                "choose another policy, or leave out the variant", point
            ))  # fmt: skip
