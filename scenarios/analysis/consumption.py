"""Energy, money and emissions of the clusters of a study, over its window and a year."""

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.manifest import Manifest
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.sim.results.accounting import CARBON, COST
from wattkeeper.sim.results.statistics import interval
from wattkeeper.traces.electricity.charges import JOULES_PER_KWH
from wattkeeper.traces.electricity.series import DAY_S

ENERGY: Final = "cluster_energy_j"
AMOUNTS: Final = (ENERGY, COST, CARBON)

PARTS: Final = {
    "training_energy_j": "training",
    "held_energy_j": "held without training",
    "idle_energy_j": "idle",
    "asleep_energy_j": "asleep",
}
"""Parts of the energy of a cluster, and their labels."""

CLUSTER_ENERGY: Final = (ENERGY, *PARTS)
"""Energy of clusters is shown in kWh, as electricity is billed; that of jobs in joules, as in
profiles."""

RATES: Final = {COST: "electricity", CARBON: "emissions"}
"""What the energy of a cluster costs and emits, and the labels."""

SAME: Final = 5e-4
"""Share of the baseline's energy up to which a sentence says that it is the same: 0.0 %."""

MINOR: Final = 0.02
"""Share of the baseline's cost or emissions up to which a difference is not worth a sentence where
the energy is the same: the hours at which jobs run differ by chance."""

UNCHANGED: Final = 1e-9
"""Share of the baseline's amount up to which a difference is none."""

LEAST: Final = 1e-6
"""Amounts below this are shown as 0."""

YEAR_S: Final = 365 * DAY_S
SHORTEST_S: Final = 7 * DAY_S
"""Shortest window that is extrapolated to a year: days of the week differ."""

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


def read_amounts(study: Study) -> dict[str, Amounts]:
    """The amounts of each metric that is known of all variants; money only in one currency."""
    table = study.table("metrics", ("variant", "seed", "by", "metric", "value"))
    amounts: dict[str, Amounts] = {}
    shown = pc.and_(pc.equal(table["by"], ""), pc.is_in(table["metric"], pa.array(AMOUNTS)))
    for row in table.filter(pc.and_(shown, pc.is_valid(table["value"]))).to_pylist():
        by_variant = amounts.setdefault(row["metric"], {})
        by_variant.setdefault(row["variant"], {})[row["seed"]] = row["value"]
    variants = study.summary["variants"].keys()
    if currency(study.manifest) is None:
        amounts.pop(COST, None)
    return {metric: amounts[metric] for metric in AMOUNTS
            if metric in amounts and amounts[metric].keys() == variants}  # fmt: skip


def currency(manifest: Manifest) -> str | None:
    """The currency of all variants; None without prices, or where variants differ in it."""
    stated = {tariff.get("currency") for tariff in manifest.get("electricity", {}).values()}
    return stated.pop() if len(stated) == 1 else None


def known_rates(manifest: Manifest, summary: Json) -> dict[str, str]:
    """Those of `RATES` that are known of all variants; costs only in one currency."""
    metrics = [about["metrics"] for about in summary["variants"].values()]
    return {
        metric: label for metric, label in RATES.items()
        if all(own.get(metric, {}).get("mean") is not None for own in metrics)
        and (metric != COST or currency(manifest) is not None)
    }  # fmt: skip


def yearly_factors(manifest: Manifest) -> dict[int, float] | None:
    """365 days over the length of each seed's window; None where one is below `SHORTEST_S`."""
    lengths = [until - begin for begin, until in manifest["windows"]]
    if min(lengths) < SHORTEST_S:
        return None
    return {seed: YEAR_S / length for seed, length in zip(manifest["seeds"], lengths, strict=True)}


def estimate(values: Mapping[int, float], baseline: Mapping[int, float] | None = None,
             factors: Mapping[int, float] | None = None) -> Estimate:  # fmt: skip
    """The mean over seeds of values, or of their differences to the baseline's, times factors."""
    seeds = [seed for seed in values if baseline is None or seed in baseline]
    results = np.array([
        (values[seed] - (baseline[seed] if baseline else 0.0)) * (factors[seed] if factors else 1.0)
        for seed in seeds
    ])  # fmt: skip
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
