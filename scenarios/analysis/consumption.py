"""Energy, money and emissions of the clusters of a study, over its window and a year."""

import math
from collections.abc import Collection, Iterator, Mapping
from statistics import fmean
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.manifest import Manifest
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.sim.cluster_results.accounting import (
    CARBON,
    COST,
    ENERGY,
    YEAR_S,
    YEAR_SPAN,
    year_name,
)
from wattkeeper.sim.results.statistics import interval
from wattkeeper.traces.electricity.charges import JOULES_PER_KWH
from wattkeeper.traces.electricity.series import DAY_S

AMOUNTS: Final = (ENERGY, COST, CARBON)

PARTS: Final = ("training_energy_j", "held_energy_j", "idle_energy_j", "asleep_energy_j")
"""Parts of the energy of a cluster."""

CLUSTER_ENERGY: Final = (ENERGY, *PARTS)
"""Energy of clusters is shown in kWh, as electricity is billed; that of jobs in joules, as in
profiles."""

RATES: Final = (COST, CARBON)
"""What the energy of a cluster costs and emits."""

UNCHANGED: Final = 1e-9
"""Share of the baseline's amount up to which a difference is none."""

LEAST: Final = 1e-6
"""Amounts below this are shown as 0."""

DIGITS: Final = 3
"""Significant digits of an extrapolated amount."""

Amounts = dict[str, dict[int, float]]
"""Values of a metric by variant and seed."""


class Estimate(NamedTuple):
    """A mean over seeds, with the bounds of its 95 % interval; NaN where there is none."""

    mean: float
    low: float = math.nan
    high: float = math.nan

    @property
    def has_range(self) -> bool:
        """Whether the bounds are known and differ."""
        return not math.isnan(self.low) and self.low != self.high


def read_values(study: Study, metrics: Collection[str]) -> dict[str, Amounts]:
    """The known values of metrics of whole runs, by metric, variant and seed."""
    table = study.table("metrics", ("variant", "seed", "by", "metric", "value"))
    values: dict[str, Amounts] = {}
    shown = pc.and_(pc.equal(table["by"], ""), pc.is_in(table["metric"], pa.array([*metrics])))
    for row in table.filter(pc.and_(shown, pc.is_valid(table["value"]))).to_pylist():
        by_variant = values.setdefault(row["metric"], {})
        by_variant.setdefault(row["variant"], {})[row["seed"]] = row["value"]
    return values


def read_amounts(study: Study) -> dict[str, Amounts]:
    """The amounts of each metric that is known of all variants; money only in one currency.

    They are those of a year where `year_spans` are known, else those of the window.
    """
    name_of = year_name if year_spans(study.summary) else str
    values = read_values(study, [name_of(metric) for metric in AMOUNTS])
    variants = study.summary["variants"].keys()
    return {
        metric: values[name_of(metric)]
        for metric in AMOUNTS
        if values.get(name_of(metric), {}).keys() == variants
        and (metric != COST or currency(study.manifest) is not None)
    }


def currency(manifest: Manifest) -> str | None:
    """The currency of all variants; None without prices, or where variants differ in it."""
    stated = {tariff.get("currency") for tariff in manifest.get("electricity", {}).values()}
    return stated.pop() if len(stated) == 1 else None


def known_rates(manifest: Manifest, summary: Json) -> list[str]:
    """Those of `RATES` that are known of all variants; costs only in one currency."""
    metrics = [about["metrics"] for about in summary["variants"].values()]
    return [
        metric
        for metric in RATES
        if all(own.get(metric, {}).get("mean") is not None for own in metrics)
        and (metric != COST or currency(manifest) is not None)
    ]


def year_spans(summary: Json) -> dict[str, float]:
    """The time (s) that a year is extrapolated from, by variant, mean over seeds.

    Empty unless it is known of all runs.
    """
    spans = {}
    for name, about in summary["variants"].items():
        span = about["metrics"].get(YEAR_SPAN)
        if span is None or span["n"] < about["metrics"]["jobs"]["n"]:
            return {}
        spans[name] = span["mean"]
    return spans


def describe_window(manifest: Manifest) -> str:
    """The length of the window in which clusters are charged, and what it is."""
    lengths = [until_s - from_s for from_s, until_s in manifest["windows"]]
    bounds = dict.fromkeys(f"{length / DAY_S:,.2f}" for length in (min(lengths), max(lengths)))
    stated = manifest["scenario"].get("accounting")
    what = "stated" if stated else "from the first submission to the last end over all variants"
    return f"{' to '.join(bounds)} days ({what})"


def describe_year(manifest: Manifest, summary: Json) -> Iterator[str]:
    """What amounts of a year are extrapolated from, and where that goes too far."""
    spans_s = year_spans(summary)
    if not spans_s:
        return
    lengths = sorted(spans_s.values())
    days = list(dict.fromkeys(f"{length / DAY_S:,.2f}" for length in (lengths[0], lengths[-1])))
    span = " to ".join(days) + " days"
    by = f"times {YEAR_S / lengths[0]:.4g}" if len(days) == 1 else "by 365 days over these"
    stated = manifest["scenario"].get("accounting") or {}
    if stated.get("until_s") is not None:
        yield (
            "Amounts a year are extrapolated: what the cluster uses in the stated time "
            f"(accounting) of {span}, {by}."
        )
        return
    if stated.get("from_s") is not None:
        yield (
            f"Amounts a year are extrapolated from the {span} from the stated begin (accounting) "
            f"to the last submission, {by}: what the cluster uses in that time and, if no job was "
            "submitted before, what its jobs use afterwards."
        )
        return
    yield (
        f"Amounts a year are extrapolated from the {span} in which jobs are submitted: what these "
        f"jobs use, whenever they run, and the GPUs that they leave free in that time, {by}. The "
        "time after the last submission, in which the queue drains, is no part of it."
    )
    window_s = fmean(until_s - from_s for from_s, until_s in manifest["windows"])
    loads = {
        name: about["metrics"]["gpu_utilisation"]["mean"] * window_s / spans_s[name]
        for name, about in summary["variants"].items()
    }
    if over := [f"{load:.2f} ({name})" for name, load in loads.items() if load > 1]:
        yield (
            f"Jobs need more GPU time than the cluster has while they are submitted: "
            f"{', '.join(over)} times as much. Their queue would grow without bound; amounts a "
            "year are of all of them."
        )


def estimate(values: Mapping[int, float], baseline: Mapping[int, float] | None = None) -> Estimate:
    """The mean over seeds of values, or of their differences to the baseline's."""
    seeds = [seed for seed in values if baseline is None or seed in baseline]
    results = np.array([values[seed] - (baseline[seed] if baseline else 0.0) for seed in seeds])
    return Estimate(float(results.mean()), *(interval(results.tolist()) or ()))


def format_amount(
    value: float, metric: str, unit: str | None = None, sign: str = "", digits: int | None = None
) -> str:
    """An amount with its unit.

    Args:
        value: The amount in J, in the currency, or in g.
        metric: Its metric, of `AMOUNTS` or `CLUSTER_ENERGY`.
        unit: The currency.
        sign: `+` for differences.
        digits: Significant digits of an extrapolated amount.
    """
    size, name = 1.0, unit or ""
    if metric in CLUSTER_ENERGY:
        size, name = JOULES_PER_KWH, "kWh"
    elif metric == CARBON:
        size, name = (1e6, "t CO2") if abs(value) >= 1e7 else (1e3, "kg CO2")
    shown = value / size
    if not shown:
        return f"0 {name}"
    if digits is not None:
        if metric == COST and abs(shown) >= 10:
            shown = round(shown)  # no cents
            return f"{float(f'{shown:.{digits}g}'):{sign}z,.0f} {name}"
        shown = float(f"{shown:.{digits}g}")
    return f"{_digits(shown, sign, 2 if metric == COST else 0)} {name}"


def _digits(value: float, sign: str, fewest: int = 0) -> str:
    """Three digits below 100, two below 0.1; amounts that round to 0 have no sign of their own."""
    size = abs(value)
    decimals = 0 if size >= 100 else max(fewest, 1 if size >= 10 else 2)
    if LEAST <= size < 0.1:
        decimals = 1 - math.floor(math.log10(size))
    return f"{value:{sign}z,.{decimals}f}"
