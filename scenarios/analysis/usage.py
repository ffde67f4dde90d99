"""Who used what: energy, money and CO2 of a variant by user, account or queue."""

from collections.abc import Sequence
from math import fsum
from typing import Final, NamedTuple

import pyarrow.compute as pc

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.spec.wording import count
from wattkeeper.sim.cluster_results.accounting import CARBON, COST
from wattkeeper.sim.cluster_results.attribution import IDLE, UNKNOWN

LARGEST: Final = 10
"""Owners of jobs that have a row of their own."""
HOUR_S: Final = 3600.0


class UsageRow(NamedTuple):
    """What an owner of jobs used, mean over the seeds; energy is that of the facility.

    Attributes:
        name: Of the user, account or queue, or what the row stands for.
        jobs: Number of jobs that ran.
        gpu_h: GPU time that they held, h.
        own_j: Energy of their GPUs, J.
        idle_j: Their share of the energy of free GPUs, J.
        cost: Money for both; None: no price is stated.
        carbon_g: Emissions of both, g; None: no carbon intensity is stated.
    """

    name: str
    jobs: float
    gpu_h: float
    own_j: float
    idle_j: float
    cost: float | None
    carbon_g: float | None

    @property
    def energy_j(self) -> float:
        """Energy of their GPUs and their share of that of free GPUs, J."""
        return self.own_j + self.idle_j


def usage_rows(study: Study, variant: str, largest: int = LARGEST) -> list[UsageRow]:
    """Who used what under a variant: the largest users first, the others summed in one row.

    The last row is what free GPUs drew while nobody held any. All rows add up to the energy of the
    cluster, its cost and its emissions.

    Args:
        study: The study.
        variant: Name of the variant.
        largest: Number of owners that have a row of their own.

    Returns:
        Nothing where jobs name no owners, or the energy of the variant is unknown.
    """
    owner = study.manifest.get("usage")
    if owner is None:
        return []
    table = study.table("usage")
    table = table.filter(pc.equal(table["variant"], variant))
    seeds = len(pc.unique(table["seed"]))
    amounts = [name for name in table.column_names if name not in ("variant", "seed", "name")]
    grouped = table.group_by("name", use_threads=False)
    sums = grouped.aggregate([(name, "sum") for name in amounts]).to_pylist()
    named = [each for each in sums if each["name"] is not None]
    named.sort(key=lambda each: -(each["energy_j_sum"] + each[f"{IDLE}energy_j_sum"]))
    rows = [
        _row(f"no {owner}" if each["name"] == UNKNOWN else each["name"], [each], seeds)
        for each in named[:largest]
    ]
    if rest := named[largest:]:
        rows.append(_row(count(len(rest), f"other {owner}"), rest, seeds))
    rows += [_row("nobody", [each], seeds) for each in sums if each["name"] is None]
    return rows


def _row(name: str, sums: Sequence[Json], seeds: int) -> UsageRow:
    """The row of some owners, given sums over the seeds."""

    def mean(*columns: str) -> float:
        values = [each[f"{column}_sum"] for each in sums for column in columns]
        return fsum(values) / seeds

    def of_rate(metric: str) -> float | None:
        return mean(metric, IDLE + metric) if f"{metric}_sum" in sums[0] else None

    return UsageRow(
        name,
        mean("jobs"),
        mean("gpu_s") / HOUR_S,
        mean("energy_j"),
        mean(f"{IDLE}energy_j"),
        of_rate(COST),
        of_rate(CARBON),
    )
