"""Cases of a variant whose power limits are modelled: how far its jobs are bound by compute."""

from wattkeeper.policies.errors import ScenarioError
from wattkeeper.scenarios.spec.case_names import BOUNDS, base_of, case_name
from wattkeeper.scenarios.spec.schema import Scenario
from wattkeeper.scenarios.spec.sections.cluster import UniformCluster
from wattkeeper.scenarios.spec.sections.gpu import StatedGpu
from wattkeeper.scenarios.spec.variants import policy_of


def add_cases(scenario: Scenario) -> Scenario:
    """The scenario with two variants more for each that limits the power of jobs without a profile.

    `NAME` is the middle case then, `NAME (low)` and `NAME (high)` are the others. A variant that
    states its `boundness` has that case alone, as has one whose limits change what sweeps say.

    Raises:
        ScenarioError: If a variant states a `boundness` that changes nothing.
    """
    if not scenario.workload.is_log:
        return scenario
    swept = {name for name in scenario.variants if _has_sweeps(scenario, name)}
    for name in sorted(swept):
        if scenario.variants[name].boundness is not None:
            raise ScenarioError(
                f"variants.{name}.boundness: it changes nothing, for sweeps say what limits change"
            )
    varied = {
        name
        for name, variant in scenario.variants.items()
        if variant.boundness is None
        and name not in swept
        and policy_of(scenario, name, "tune").limits_unprofiled
        and not any(case_name(name, case) in scenario.variants for case in BOUNDS)
    }
    if not varied:
        return scenario
    variants = {}
    for name, variant in scenario.variants.items():
        variants[name] = variant
        for case in BOUNDS if name in varied else ():
            baseline = variant.baseline or scenario.baseline
            if baseline in varied:
                baseline = case_name(baseline, case)
            changes = {"boundness": case, "baseline": baseline}
            variants[case_name(name, case)] = variant.model_copy(update=changes)
    return scenario.model_copy(update={"variants": variants})


def _has_sweeps(scenario: Scenario, variant: str) -> bool:
    """Whether sweeps say what limits change on all GPUs of a variant."""
    cluster = scenario.variants[variant].cluster or scenario.cluster
    if isinstance(cluster, UniformCluster):
        models = [cluster.gpu_model]
    else:
        models = [power.model for power in cluster.power.values()]
    return all(isinstance(model, StatedGpu) and model.sweep is not None for model in models)


def drop_cases(scenario: Scenario) -> Scenario:
    """The scenario without the variants that `add_cases` added, as in a live run."""
    variants = {
        name: variant
        for name, variant in scenario.variants.items()
        if base_of(name) not in scenario.variants
    }
    return scenario.model_copy(update={"variants": variants})
