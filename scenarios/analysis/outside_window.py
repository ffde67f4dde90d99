"""Work that variants do outside of the time that is charged."""

from collections.abc import Iterator
from typing import Final

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.consumption import year_spans
from wattkeeper.scenarios.analysis.manifest import Manifest
from wattkeeper.scenarios.analysis.resolved.overrides import clusters_by_variant
from wattkeeper.scenarios.spec.case_names import base_of
from wattkeeper.traces.electricity.series import DAY_S

LONGEST_IDLE: Final = 0.02
"""Share of the charged time for which clusters may stand idle at the end without a word."""
SMALLEST: Final = 0.002
"""Differences of the share of energy outside the window below it are not told."""


def describe_idle_end(manifest: Manifest, summary: Json) -> Iterator[str]:
    """A line on a variant that ends long after the baseline, if all are charged until then.

    Only where the jobs of a trace run: others are submitted when the ones before them end.
    """
    scenario = manifest["scenario"]
    stated = scenario.get("accounting") or {}
    if scenario["workload"]["kind"] != "trace" or stated.get("until_s") is not None:
        return
    ends = {
        name: about["metrics"]["makespan_s"]["mean"]
        for name, about in summary["variants"].items()
        if base_of(name) is None
    }
    from_s, until_s = manifest["windows"][0]
    last = max(ends, key=ends.__getitem__)
    idle_s = ends[last] - ends[scenario["baseline"]]
    if idle_s > LONGEST_IDLE * (until_s - from_s):
        sleeps = any(own.get("sleep") for own in clusters_by_variant(scenario).values())
        of_year = " Amounts a year are without that time." if year_spans(summary) else ""
        yield (
            f"{last} ends {idle_s / DAY_S:,.1f} days after {scenario['baseline']}, and the window "
            "in which all clusters are charged lasts until then: for so long the others stand idle"
            f"{', and sleeping nodes save more than in use' * sleeps}. Without {last}, or with a "
            f"time of your own (accounting), they do not.{of_year}"
        )


def outside_shares(manifest: Manifest, summary: Json) -> dict[str, float]:
    """Share of the energy of jobs outside the window, by variant, where it is known.

    Empty where all is charged that happens.
    """
    scenario = manifest["scenario"]
    stated = scenario.get("accounting") or {}
    if stated.get("from_s") is None and stated.get("until_s") is None:
        return {}
    return {
        name: share
        for name, cluster in clusters_by_variant(scenario).items()
        if base_of(name) is None
        and (share := _share(summary["variants"][name]["metrics"], cluster["pue"])) is not None
    }


def describe_outside(manifest: Manifest, summary: Json) -> Iterator[str]:
    """A line on the variants that do another share of their work outside the window, if any."""
    scenario = manifest["scenario"]
    shares = outside_shares(manifest, summary)
    base = shares.get(scenario["baseline"])
    if base is None:
        return
    others = [
        f"{100 * share:.1f} % ({name})"
        for name, share in shares.items()
        if abs(share - base) > SMALLEST
    ]
    if others:
        yield (
            f"Energy of jobs outside the time that is charged: {100 * base:.1f} % "
            f"({scenario['baseline']}), {', '.join(others)}. A variant that does more of its work "
            "there saves that much less than the amounts of the cluster show."
        )


def _share(metrics: Json, pue: float) -> float | None:
    """Share of the energy of jobs that is not in the cluster's; None if it is not known."""
    needed = ("energy_j", "training_energy_j", "held_energy_j")
    if any(metrics.get(name, {}).get("mean") is None for name in needed):
        return None
    energy_j, training_j, held_j = (metrics[name]["mean"] for name in needed)
    return 1 - (training_j + held_j) / pue / energy_j if energy_j > 0 else None
