"""Labels and units of metrics, and what is asked of summaries and scenarios."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from wattkeeper.policies.json_types import Json
from wattkeeper.policies.parts import find_part
from wattkeeper.policies.registry import Point
from wattkeeper.scenarios.analysis.consumption import CLUSTER_ENERGY, format_amount
from wattkeeper.scenarios.analysis.resolved.overrides import clusters_by_variant
from wattkeeper.scenarios.analysis.resolved.policy_kinds import policy_kinds
from wattkeeper.sim.cluster_results.registry import METRICS
from wattkeeper.traces.electricity.charges import JOULES_PER_KWH

Unit = tuple[str, float]
"""Name and size of a unit."""

SHARES: Final = ("with_parent", "mean_accuracy")
"""Metrics that are not compared with the baseline's."""

TIMES = (("h", 3600.0), ("min", 60.0), ("s", 1.0))
ENERGIES = (("TJ", 1e12), ("GJ", 1e9), ("MJ", 1e6), ("kJ", 1e3), ("J", 1.0))
SIZES = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0))


class Tradeoff(NamedTuple):
    """Two metrics that policies trade off.

    Attributes:
        time: That of time, or what stands in its place.
        energy: That of energy.
        labels: Their names.
    """

    time: str
    energy: str
    labels: tuple[str, str]


def mean_of(variant: str, metric: str, summary: Json) -> float | None:
    """A metric of a variant, mean over seeds; None where the summary does not have it."""
    value: float | None = summary["variants"][variant]["metrics"].get(metric, {}).get("mean")
    return value


def read_means(summary: Json) -> dict[str, dict[str, Any]]:
    """The metrics of each variant, means over seeds; a value may be None."""
    return {
        name: {metric: figures["mean"] for metric, figures in about["metrics"].items()}
        for name, about in summary["variants"].items()
    }


def label_of(metric: str) -> str:
    """The head of the column of a metric."""
    return METRICS[metric].label or METRICS[metric].noun


def is_gain(metric: str) -> bool:
    """Whether more of a metric is better."""
    return METRICS[metric].better == "more"


def preempts(summary: Json) -> bool:
    """Whether any job was preempted."""
    return any(about["metrics"]["preemptions"]["mean"] for about in summary["variants"].values())


def knows_energy(summary: Json) -> bool:
    """Whether the energy of jobs is known."""
    variants = summary["variants"].values()
    return any(about["metrics"]["energy_j"]["mean"] is not None for about in variants)


def is_profiled(summary: Json) -> bool:
    """Whether jobs are replayed from profiles."""
    return bool(summary["by"]["workload"])


def duration_metric(summary: Json) -> str:
    """The metric that tells whether jobs take longer: of their training, or until their end."""
    return "time_s" if is_profiled(summary) else "jct_s"


def has_zoo(summary: Json) -> bool:
    """Whether there is a zoo."""
    return any("gpu_s_saved" in about["metrics"] for about in summary["variants"].values())


def own_baselines(variants: Json) -> dict[str, str]:
    """What each variant of a summary is compared with, where they have several baselines."""
    baselines = {name: about["versus"]["baseline"] for name, about in variants.items()}
    if len(set(baselines.values())) == 1:
        return {}
    return {name: baseline for name, baseline in baselines.items() if baseline != name}


def oracle_variants(scenario: Json) -> list[str]:
    """The variants of a resolved scenario that choose batch sizes or limits by foresight."""
    points: tuple[Point, ...] = ("configure", "tune")
    return [
        name
        for name in scenario["variants"]
        if any(
            _foresees(point, kind)
            for point in points
            for kind in policy_kinds(scenario, name, point)
        )
    ]


def _foresees(point: Point, kind: str) -> bool:
    config = find_part(point, kind)
    return config is not None and config.needs_foresight is True


def currency_of_rent(scenario: Json) -> str:
    """The currency of rents of a resolved scenario, one for all variants; empty without any."""
    clusters = clusters_by_variant(scenario).values()
    return next((cluster["rent"]["currency"] for cluster in clusters if cluster.get("rent")), "")


def describe_free_preemption(scenario: Json, summary: Json) -> Iterator[str]:
    """That preemption costs no time, if jobs are preempted and it does not."""
    costs = [own["preemption"] for own in clusters_by_variant(scenario).values()]
    free = not any(cost["checkpoint_s"] or cost["restore_s"] for cost in costs)
    if free and preempts(summary):
        yield "Preemption costs no time here (cluster.preemption)."


def metric_units(metric: str) -> Sequence[Unit]:
    """The units in which a metric is shown and their sizes in its SI unit, the largest first."""
    if metric.endswith(("_s", "_s_saved")):
        return TIMES
    if metric.endswith("_bytes"):
        return SIZES
    if metric in CLUSTER_ENERGY:
        return (("kWh", JOULES_PER_KWH),)
    if metric.endswith(("_j", "cost", "regret")):
        return ENERGIES
    return (("", 1.0),)


def choose_unit(values: Iterable[float], units: Sequence[Unit]) -> Unit:
    """The unit in which the largest of the values is at least 1."""
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    return next((unit for unit in units if largest >= unit[1]), units[-1])


def format_value(value: float | None, metric: str) -> str:
    """A value in the unit that suits its size."""
    if value is None:
        return "-"
    match METRICS[metric].style if metric in METRICS else "":
        case "kWh":
            return format_amount(value, metric)
        case "count":
            return f"{value:,.0f}"
        case "share":
            return f"{100 * value:.1f} %"
        case "accuracy":
            return f"{value:.4f}"
        case "rate":
            return f"{four_digits(value)}/s"
        case "thousand":
            return four_digits(1000 * value)
    unit, size = choose_unit([value], metric_units(metric))
    if unit == "J":
        return f"{value:.1f} J"
    digits = 1 if unit in dict(TIMES) else 2
    return f"{value / size:,.{digits}f} {unit}".rstrip()


def four_digits(value: float) -> str:
    """A value with four digits, or with all of them before the point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:#.4g}"
