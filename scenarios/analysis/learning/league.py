"""Regret of bandits by pair of workload and GPU type, of a run and of all points of a sweep.

The regret of a recurrence is its cost, failed attempts included, above that of the oracle's in the
same recurrence with the same seed, in expected costs of the best configuration. The oracle's
trainings replay the same recorded runs, so luck is not counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, Final, NamedTuple, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.profile import Objective, Profile, expectations, least_costs
from wattkeeper.scenarios.analysis.resolved.key_words import short_keys
from wattkeeper.scenarios.spec.sections.settings import LeagueSection
from wattkeeper.scenarios.spec.wording import axis_text, count
from wattkeeper.sim.replay.backend import Profiles
from wattkeeper.sim.results.parquet import AnyTable
from wattkeeper.sim.results.run_result import RunResult
from wattkeeper.sim.results.statistics import t_quantile
from wattkeeper.traces.arrow import to_floats

GPU: Final = "cluster.gpu"
LAST: Final = 5
NEAR: Final = 1.02
"""The last recurrences, and how much more than the best configuration a near one may cost."""
HORIZONS: Final = (10, 20, 40, 100)
LEAST: Final = 0.1
"""Regrets below so many runs of the optimum count as that: their ratio would be one of noise."""
CONFIDENCE: Final = 0.95


class VariantOnPair(TypedDict):
    """What a variant did on a pair of workload and GPU type; means over seeds.

    Attributes:
        regret: Of all recurrences, runs of the optimum.
        horizons: Of the first ones, by their number, as text.
        excess: Its cost over that of the scenario's baseline, less 1.
        worse: Whether that is above 0 (95 %, one-sided, over seeds).
        near: Share of the last recurrences whose first attempt had a configuration of which the
            expected cost is within 2 % of the least.
    """

    regret: float
    horizons: dict[str, float]
    excess: float
    worse: bool
    near: float


class Pair(TypedDict):
    """A workload on a GPU type."""

    workload: str
    gpu_type: str
    recurrences: int
    variants: dict[str, VariantOnPair]


class League(TypedDict):
    """All pairs of a scenario's runs; `against` is the variant whose regret counts as 1."""

    against: str
    baseline: str
    pairs: list[Pair]


def compare_bandits(
    results: Sequence[RunResult],
    profiles: Profiles,
    section: LeagueSection,
    baseline: str,
    objective: Objective,
) -> League:
    """Regrets of all variants on each pair."""
    tables = {(result.variant, result.seed): result.tables["jobs"] for result in results}
    pairs: list[Pair] = []
    for (workload, _, gpu_type), profile in profiles.items():
        runs = {key: _select(table, workload) for key, table in tables.items()}
        costs = {key: _costs(table) for key, table in runs.items()}
        seeds = sorted({seed for _, seed in costs})
        variants = list(dict.fromkeys(variant for variant, _ in costs))
        recurrences = len(costs[baseline, seeds[0]])
        least = _by_recurrence(least_costs(profile, objective), recurrences)
        near = _near_configurations(profile, objective, recurrences)
        about: dict[str, VariantOnPair] = {}
        for name in variants:
            regret = np.array([(costs[name, s] - costs[section.oracle, s]) / least for s in seeds])
            mean = regret.mean(axis=0)
            excess = np.array([costs[name, s].sum() / costs[baseline, s].sum() - 1 for s in seeds])
            about[name] = {
                "regret": float(mean.sum()),
                "horizons": {
                    str(horizon): float(mean[:horizon].sum())
                    for horizon in HORIZONS
                    if horizon <= recurrences
                },
                "excess": float(excess.mean()),
                "worse": _is_positive(excess),
                "near": fmean(_share_near(runs[name, s], near) for s in seeds),
            }
        pairs.append(
            {
                "workload": workload,
                "gpu_type": gpu_type,
                "recurrences": recurrences,
                "variants": about,
            }
        )
    return {"against": section.against, "baseline": baseline, "pairs": pairs}


def _select(table: AnyTable, workload: str) -> pa.Table:
    """The attempts of a workload; a clock of 0 MHz is a free one."""
    names = ["recurrence", "attempt", "cost", "batch_size", "power_limit_w"]
    clocked = ["clock_mhz"] * ("clock_mhz" in table.column_names)
    own = table.select(["workload", *names, *clocked])
    own = own.filter(pc.equal(own["workload"], workload))
    clocks = own["clock_mhz"].fill_null(0) if clocked else pa.array(np.zeros(len(own), np.int64))
    return own.select(names).append_column("clock_mhz", clocks)


def _costs(table: pa.Table) -> Floats:
    """Cost of each recurrence, J."""
    index, costs = table["recurrence"].to_numpy() - 1, to_floats(table["cost"])
    return np.bincount(index, costs).astype(np.float64)


def _by_recurrence(values: Sequence[float], recurrences: int) -> Floats:
    """The values of the first recurrences, of which the last one holds for the rest."""
    return np.array([*values, *[values[-1]] * recurrences][:recurrences])


Configurations = set[tuple[int, float, int]]
"""Batch size, power limit (W) and locked clock (MHz; 0: free)."""


def _near_configurations(
    profile: Profile, objective: Objective, recurrences: int
) -> dict[int, Configurations]:
    """Configurations near the optimum, by the last recurrences."""
    near = {}
    for recurrence in range(max(1, recurrences - LAST + 1), recurrences + 1):
        then = profile
        if profile.drift is not None:
            then = profile.after_drift(profile.drift.step(recurrence))
        costs = {
            (c.batch_size, c.power_limit_w, c.clock_mhz): c.cost
            for c in expectations(then, objective)
        }
        most = NEAR * min(costs.values())
        near[recurrence] = {key for key, cost in costs.items() if cost <= most}
    return near


def _share_near(table: pa.Table, near: Mapping[int, Configurations]) -> float:
    first = table.filter(pc.equal(table["attempt"], 1))
    names = ("batch_size", "power_limit_w", "clock_mhz")
    chosen = zip(*(first[name].to_pylist() for name in names), strict=True)
    return fmean(
        each in near[number]
        for number, each in zip(first["recurrence"].to_pylist(), chosen, strict=True)
        if number in near
    )


def _is_positive(values: Floats) -> bool:
    """Whether the mean is above 0, with one-sided confidence; of one value, the value is."""
    error = 0.0
    if len(values) > 1:
        quantile = t_quantile(2 * CONFIDENCE - 1, len(values) - 1)
        error = quantile * float(values.std(ddof=1)) / math.sqrt(len(values))
    return bool(values.mean() - error > 0)


def leagues_of_sweep(
    points: Sequence[tuple[Mapping[str, object], Mapping[str, Any]]], axes: Sequence[str]
) -> list[tuple[str, League]]:
    """The league of each point that has one, with the values of the point in words.

    GPU types are no conditions, but further pairs. Absent values, and those of an axis that has one
    value alone, are left out. `points`: values and summary of each.
    """
    keys = short_keys(axes)
    varied = [
        path
        for path in axes
        if path != GPU and len({axis_text(values[path]) for values, _ in points}) > 1
    ]
    return [
        (
            ", ".join(
                _condition(keys[path], values[path]) for path in varied if values[path] is not None
            ),
            summary["league"],
        )
        for values, summary in points
        if "league" in summary
    ]


def _condition(key: str, value: object) -> str:
    """A value of an axis in few words; names, as those of traces, speak for themselves."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        inner = " ".join(f"{name} {axis_text(each)}" for name, each in value.items() if each != {})
        return f"{key} {inner}" if inner else " ".join(value)
    return f"{key} {axis_text(value)}"


class LeagueFigure(NamedTuple):
    """A figure of all variants.

    Attributes:
        title: What it is, on its own.
        head: What it is, in its block.
        cells: The figure by variant.
    """

    title: str
    head: str
    cells: Mapping[str, str]


class LeagueBlock(NamedTuple):
    """The figures of a condition, or those by horizon."""

    title: str
    figures: list[LeagueFigure]


class LeagueTable(NamedTuple):
    """The table of leagues: its variants, figures, and what these mean."""

    names: list[str]
    blocks: list[LeagueBlock]
    note: str


def league_table(leagues: Sequence[tuple[str, League]]) -> LeagueTable:
    """The table of leagues, each with the words for its conditions."""
    against, baseline = leagues[0][1]["against"], leagues[0][1]["baseline"]
    names = list(leagues[0][1]["pairs"][0]["variants"])
    conditions = _by_condition(leagues)
    blocks = [
        _condition_block(condition, pairs, against, baseline)
        for condition, pairs in conditions.items()
    ]
    by_horizon = _horizon_figures(
        [pair for pairs in conditions.values() for pair in pairs], against
    )
    if by_horizon:
        blocks.append(LeagueBlock("the first recurrences alone", by_horizon))
    note = (
        f"Regret: cost of all recurrences above that of the oracle's same recurrences, whose "
        f"trainings replay the same recorded runs; here over that of {against}, as geometric mean "
        f"over pairs of workload and GPU type (regrets below {LEAST} runs of the optimum count as "
        f"that). Pairs that cost more than {baseline}: over all recurrences, at 95 %, one-sided, "
        f"over seeds (of one seed, all that do); by how much at most. Last {LAST}: recurrences "
        f"whose first attempt had a configuration of at most {NEAR} times the least expected cost."
    )
    return LeagueTable(names, blocks, note)


def _condition_block(
    condition: str, pairs: Sequence[Pair], against: str, baseline: str
) -> LeagueBlock:
    names = list(pairs[0]["variants"])
    regrets = {name: f"{_geometric_mean(pairs, name, against):.2f}" for name in names}
    worst = {name: max(_ratio(pair, name, against) for pair in pairs) for name in names}
    more = {name: _more_than_baseline(pairs, name) for name in names}
    near = {name: fmean(pair["variants"][name]["near"] for pair in pairs) for name in names}
    on_pairs = count(len(pairs), "pair")
    return LeagueBlock(
        f"{condition} ({on_pairs})" if condition else on_pairs,
        [
            LeagueFigure(f"{condition or 'regret'} ({on_pairs})", "geometric mean", regrets),
            LeagueFigure(
                "... on the worst pair",
                "on the worst pair",
                {name: f"{ratio:.2f}" for name, ratio in worst.items()},
            ),
            LeagueFigure(
                f"... pairs that cost more than {baseline}", f"pairs above {baseline}", more
            ),
            LeagueFigure(
                f"... last {LAST} within 2 % of the optimum",
                f"last {LAST} within 2 %",
                {name: f"{100 * share:.0f} %" for name, share in near.items()},
            ),
        ],
    )


def _horizon_figures(pairs: Sequence[Pair], against: str) -> list[LeagueFigure]:
    """Regret of the first recurrences, on all pairs that have as many."""
    figures = []
    for horizon in HORIZONS:
        long = [pair for pair in pairs if str(horizon) in pair["variants"][against]["horizons"]]
        if long:
            on_pairs = f"({count(len(long), 'pair')})"
            figures.append(
                LeagueFigure(
                    f"first {horizon} recurrences {on_pairs}",
                    f"{horizon} {on_pairs}",
                    {
                        name: f"{_geometric_mean(long, name, against, horizon):.2f}"
                        for name in long[0]["variants"]
                    },
                )
            )
    return figures


def _by_condition(leagues: Sequence[tuple[str, League]]) -> dict[str, list[Pair]]:
    conditions: dict[str, list[Pair]] = {}
    for condition, league in leagues:
        conditions.setdefault(condition, []).extend(league["pairs"])
    return conditions


def _more_than_baseline(pairs: Sequence[Pair], name: str) -> str:
    """How many pairs cost more than the baseline, and how much more at most."""
    worse = [pair["variants"][name]["excess"] for pair in pairs if pair["variants"][name]["worse"]]
    return f"{len(worse)} ({100 * max(worse):+.1f} %)" if worse else "0"


def rank_variants(leagues: Sequence[tuple[str, League]]) -> list[tuple[str, float, float, float]]:
    """Variants by regret: mean over that of `against`, least and largest mean of a condition."""
    against, conditions = leagues[0][1]["against"], _by_condition(leagues)
    every = [pair for pairs in conditions.values() for pair in pairs]
    rows = []
    for name in every[0]["variants"]:
        means = [_geometric_mean(pairs, name, against) for pairs in conditions.values()]
        rows.append((name, _geometric_mean(every, name, against), min(means), max(means)))
    return sorted(rows, key=lambda row: row[1])


def _ratio(pair: Pair, name: str, against: str, horizon: int | None = None) -> float:
    """Regret of a variant on a pair, over that of another one."""
    about = [pair["variants"][each] for each in (name, against)]
    own, other = (
        each["regret"] if horizon is None else each["horizons"][str(horizon)] for each in about
    )
    return max(own, LEAST) / max(other, LEAST)


def _geometric_mean(
    pairs: Sequence[Pair], name: str, against: str, horizon: int | None = None
) -> float:
    return math.exp(fmean(math.log(_ratio(pair, name, against, horizon)) for pair in pairs))
