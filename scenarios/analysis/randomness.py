"""Whether anything of a scenario is drawn at random, so that seeds can differ."""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Final

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.manifest import Manifest

DRAWING: Final = frozenset({"random-parent", "zeus"})
"""Shipped policies that draw at random."""


def may_draw(manifest: Manifest, summary: Json) -> bool:
    """Whether another seed may give other figures.

    Profiles hold several recorded runs to pick from, live runs differ by themselves, and policies
    of other distributions may draw.
    """
    scenario = manifest["scenario"]
    if manifest["backend"] != "sim" or summary["by"]["workload"] or "zoo" in scenario:
        return True
    if any("zoo" in variant for variant in scenario["variants"].values()):
        return True
    if "durations" in scenario["workload"]:
        return True
    return any(_policy_draws(point, kind) for point, kind in _chosen_policies(scenario))


def seeds_agree(summary: Json) -> bool:
    """Whether all of several seeds gave the same figures, for each variant."""
    figures = [
        metric for about in summary["variants"].values() for metric in about["metrics"].values()
    ]
    return not any(figure["std"] for figure in figures)


def _chosen_policies(scenario: Json) -> Iterator[tuple[str, str]]:
    """Decision points and kinds of policies, of the scenario and of its variants."""
    for section in (scenario, *scenario["variants"].values()):
        for point, chosen in (section.get("policies") or {}).items():
            if chosen:
                yield point, chosen["kind"] if isinstance(chosen, dict) else chosen


def _policy_draws(point: str, kind: str) -> bool:
    shipped = find_spec(f"wattkeeper.policies.{point}.{kind.replace('-', '_')}") is not None
    return kind in DRAWING or not shipped
