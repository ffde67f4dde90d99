"""Doubts about the unit of users' estimates that policies decide by."""

from wattkeeper.scenarios.inputs.run_inputs import ScenarioInputs
from wattkeeper.scenarios.spec.loading import LoadedScenario
from wattkeeper.scenarios.spec.variants import points_of, policy_of
from wattkeeper.traces.estimates import count_outlived


def warn_estimates(loaded: LoadedScenario, inputs: ScenarioInputs) -> str:
    """A warning if a policy reads estimates, and many jobs ran longer than theirs; else empty."""
    scenario, jobs = loaded.scenario, inputs.any_run.jobs
    reads_estimates = any(
        "estimate_s" in policy_of(scenario, name, point).needed_columns
        for name in scenario.variants
        for point in points_of(scenario, name)
    )
    return count_outlived(jobs).warn() if jobs is not None and reads_estimates else ""
