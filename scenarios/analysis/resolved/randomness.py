"""Whether anything of a scenario is drawn at random, so that seeds can differ."""

from wattkeeper.policies.failures import is_foreign
from wattkeeper.policies.json_types import Json
from wattkeeper.policies.parts import find_part
from wattkeeper.policies.registry import POINTS, Point
from wattkeeper.scenarios.analysis.manifest import Manifest
from wattkeeper.scenarios.analysis.resolved.policy_kinds import policy_kinds


def may_draw(manifest: Manifest, summary: Json) -> bool:
    """Whether another seed may give other figures.

    Profiles hold several recorded runs to pick from, live runs differ by themselves, and policies
    of other distributions may draw.
    """
    scenario = manifest["scenario"]
    drawn = bool(summary["by"]["workload"]) and not _is_planned(scenario)
    if manifest["backend"] != "sim" or drawn or "zoo" in scenario:
        return True
    if any("zoo" in variant for variant in scenario["variants"].values()):
        return True
    return any(
        _policy_draws(scenario, variant, point)
        for variant in scenario["variants"]
        for point in POINTS
    )


def _is_planned(scenario: Json) -> bool:
    """Whether jobs are pipelines whose steps take as long as planned, stragglers included."""
    workload = scenario["workload"]
    return workload["kind"] == "pipeline" and not isinstance(workload.get("stragglers"), dict)


def seeds_agree(summary: Json) -> bool:
    """Whether all of several seeds gave the same figures, for each variant."""
    figures = [
        metric for about in summary["variants"].values() for metric in about["metrics"].values()
    ]
    return not any(figure["std"] for figure in figures)


def _policy_draws(scenario: Json, variant: str, point: Point) -> bool:
    configs = [find_part(point, kind) for kind in policy_kinds(scenario, variant, point)]
    return any(config is None or config.draws or is_foreign(config) for config in configs)
