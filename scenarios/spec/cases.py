"""Cases of a variant whose power limits are modelled: how far its jobs are bound by compute."""

from wattkeeper.scenarios.spec.case_names import BOUNDS, base_of, case_name
from wattkeeper.scenarios.spec.schema import Scenario
from wattkeeper.scenarios.spec.variants import policy_of


def add_cases(scenario: Scenario) -> Scenario:
    """The scenario with two variants more for each that limits the power of jobs without a profile.

    `NAME` is the middle case then, `NAME (low)` and `NAME (high)` are the others. A variant that
    states its `boundness` has that case alone.
    """
    if not scenario.workload.is_log:
        return scenario
    varied = {
        name
        for name, variant in scenario.variants.items()
        if variant.boundness is None
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


def drop_cases(scenario: Scenario) -> Scenario:
    """The scenario without the variants that `add_cases` added, as in a live run."""
    variants = {
        name: variant
        for name, variant in scenario.variants.items()
        if base_of(name) not in scenario.variants
    }
    return scenario.model_copy(update={"variants": variants})
