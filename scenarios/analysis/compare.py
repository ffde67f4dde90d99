"""Comparison of results, each with the first of them, paired by seed."""

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from wattkeeper.policies.errors import InputError
from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis import study
from wattkeeper.scenarios.analysis.manifest import Manifest
from wattkeeper.scenarios.analysis.resolved.differences import list_differences
from wattkeeper.scenarios.analysis.resolved.randomness import may_draw
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.sim.cluster_results.registry import COSTS, METRICS
from wattkeeper.sim.results.folder import is_sweep
from wattkeeper.sim.results.statistics import FEWEST, all_equal, holm, interval, p_value, versus

Values = dict[str, dict[str, dict[int, float | None]]]
Key = TypeVar("Key", str, int)

LEVEL: Final = 0.05
"""Family-wise error rate: chance that a comparison of two equal folders reports any difference."""

FACTS: Final = ("backend", "versions", "dropped_jobs", "dropped_for", "ignored_gpu_types")
"""Entries of a manifest that are compared besides the scenario and the inputs."""


class ComparedResults(NamedTuple):
    """Results of a run or a sweep.

    Attributes:
        name: The folder, or what stands for it.
        points: Studies by the values of the sweep's axes, as JSON; by `{}` where it is no sweep.
        failed: Values of a sweep's points without results.
        is_sweep: Whether they are those of a sweep.
    """

    name: str
    points: Mapping[str, Study]
    failed: list[str]
    is_sweep: bool


def read(folder: Path) -> ComparedResults:
    """Read the folder of a run, or of a sweep.

    Raises:
        InputError: If it is neither, or a file in it is broken.
    """
    if not is_sweep(folder):
        return of_study(study.read(folder))
    return read_points(folder, study.read_sweep(folder))


def of_study(results: Study) -> ComparedResults:
    """A study, to be compared."""
    return ComparedResults(results.origin, {"{}": results}, [], is_sweep=False)


def read_points(folder: Path, sweep: Json) -> ComparedResults:
    """A sweep, to be compared; `sweep` is the content of its `sweep.json`.

    Raises:
        InputError: If results of a point are broken.
    """
    points = {
        _to_key(point["values"]): saved for point, saved in study.finished_points(folder, sweep)
    }
    keys = [_to_key(point["values"]) for point in sweep["points"]]
    failed = [key for key in keys if key not in points]
    return ComparedResults(str(folder), points, failed, is_sweep=True)


def find_live(results: Sequence[ComparedResults]) -> int | None:
    """Index of the live run among two results, if the other one was simulated."""
    if any(side.is_sweep for side in results):
        return None
    backends = [saved.manifest.get("backend") for side in results for saved in side.points.values()]
    return backends.index("live") if sorted(map(str, backends)) == ["live", "sim"] else None


def compare(reference: ComparedResults, others: Sequence[ComparedResults]) -> Json:
    """Compare results with the first ones.

    Returns:
        ``reference``: folder, scenario, backend, results digest.
        ``comparisons``: the result of `compare_with` for each of the others.

    Raises:
        InputError: If a folder has no variant with a seed in common with the first.
    """
    return {
        "reference": _describe(reference),
        "comparisons": [compare_with(reference, other) for other in others],
    }


def compare_with(reference: ComparedResults, other: ComparedResults) -> Json:
    """Compare two results, metric by metric of whole runs, over their common seeds.

    Returns:
        ``other``: as ``reference`` in `compare`.
        ``identical``: whether all tables are equal, by their digests, at the same points.
        ``differences``: entries of scenarios, inputs, versions or omissions that differ: ``path``
        and both values.
        ``only_reference``, ``only_other``: runs and metrics that the other one lacks.
        ``seeds``: common seeds of all variants.
        ``windows_differ``: whether clusters that run the jobs of a trace are charged over different
        times.
        ``random``: whether anything of either side may be drawn at random.
        ``rows``: a row for each common variant and metric: see `_row`.
        ``compared``, ``differ``, ``hold``: number of rows with two values; of those, with
        different ones; of those, whose verdict holds among all of them (`LEVEL`).
        ``verdict``: ``identical``, ``noise``, ``cannot tell``, ``undecided``, ``one seed`` or
        ``differ``, over all
        rows.
    """
    if reference.is_sweep != other.is_sweep:
        sweep, run = (reference, other) if reference.is_sweep else (other, reference)
        raise InputError(
            f"{sweep.name} is a sweep, {run.name} is none: give two sweeps, or a point of the "
            f"sweep, as {sweep.name}/points/0001"
        )
    rows: list[Json] = []
    differences: dict[str, Json] = {}
    unmatched: list[list[str]] = [[], []]
    seeds: set[int] = set()
    for key in _match(reference.points, other.points, unmatched, str):
        sides = reference.points[key], other.points[key]
        facts = {
            role: _facts(side.manifest)
            for role, side in zip(("reference", "other"), sides, strict=True)
        }
        differences |= {_to_key(row): row for row in list_differences(facts)}
        rows += _compare_point(json.loads(key), sides, unmatched, seeds)
    if not rows:
        raise InputError(
            f"{reference.name} and {other.name} have no variant with a seed in common: run "
            "both with the same seeds (--seeds)\n"
            + "\n".join(f"  {side.name}: {_list_runs(side)}" for side in (reference, other))
        )
    _adjust_verdicts(rows)
    compared = [row for row in rows if row["verdict"] is not None]
    differ = [row for row in compared if row["verdict"] != "identical"]
    digests = [
        {key: saved.manifest.get("results_digest") for key, saved in side.points.items()}
        for side in (reference, other)
    ]
    return {
        "other": _describe(other),
        "identical": None not in digests[0].values() and digests[0] == digests[1],
        "differences": list(differences.values()),
        "only_reference": unmatched[0],
        "only_other": unmatched[1],
        "seeds": sorted(seeds),
        "windows_differ": any(
            _charges_otherwise(*(side.points[key].manifest for side in (reference, other)))
            for key in reference.points.keys() & other.points.keys()
        ),
        "compared": len(compared),
        "differ": len(differ),
        "hold": sum(row["holds"] for row in differ),
        "verdict": _verdict(differ),
        "random": any(
            may_draw(saved.manifest, saved.summary)
            for side in (reference, other)
            for saved in side.points.values()
        ),
        "rows": rows,
    }


def _charges_otherwise(one: Manifest, other: Manifest) -> bool:
    """Whether clusters on which the jobs of a trace run are charged over different times."""
    kinds = {manifest["scenario"]["workload"]["kind"] for manifest in (one, other)}
    return kinds == {"trace"} and _windows(one) != _windows(other)


def _windows(manifest: Manifest) -> list[tuple[float, ...]]:
    return [tuple(window) for window in manifest.get("windows", ())]


def _to_key(values: object) -> str:
    return json.dumps(values, sort_keys=True)


def _describe(results: ComparedResults) -> Json:
    studies = results.points.values()
    return {
        "folder": results.name,
        "scenario": next((saved.manifest["scenario"]["name"] for saved in studies), None),
        "backend": next((saved.manifest.get("backend") for saved in studies), None),
        "results_digest": [saved.manifest.get("results_digest") for saved in studies],
        "failed_points": [json.loads(values) for values in results.failed],
    }


def _list_runs(results: ComparedResults) -> str:
    """Points, variants and seeds, for a message."""
    points = f"{len(results.points)} points; " if results.is_sweep else ""
    first = next(iter(results.points.values()), None)
    if first is None:
        return f"{points}no results"
    variants = ", ".join(first.summary["variants"])
    seeds = ", ".join(map(str, first.manifest.get("seeds", ())))
    return f"{points}variants {variants or 'none'}; seeds {seeds or 'none'}"


def _match(
    left: Collection[Key],
    right: Collection[Key],
    unmatched: list[list[str]],
    label: Callable[[Key], str],
) -> list[Key]:
    """Common keys, in the order of the first; labels of the others are added to `unmatched`."""
    unmatched[0] += [label(key) for key in left if key not in right]
    unmatched[1] += [label(key) for key in right if key not in left]
    return [key for key in left if key in right]


def _compare_point(
    point: Json, sides: tuple[Study, Study], unmatched: list[list[str]], seeds: set[int]
) -> Iterator[Json]:
    """A row for each common variant and metric of two studies; adds to `unmatched` and `seeds`."""
    values = [_values(side) for side in sides]
    etas = [_etas(side) for side in sides]
    prefix = f"{_to_key(point)} " if point else ""
    for variant in _match(values[0], values[1], unmatched, lambda name: f"{prefix}variant {name}"):
        left, right = values[0][variant], values[1][variant]
        own_seeds = [
            list(dict.fromkeys(seed for by_seed in side.values() for seed in by_seed))
            for side in (left, right)
        ]
        unmatched_seeds: list[list[str]] = [[], []]
        shared = _match(own_seeds[0], own_seeds[1], unmatched_seeds, str)
        for labels, only in zip(unmatched, unmatched_seeds, strict=True):
            labels += [f"{prefix}variant {variant}, seeds {', '.join(only)}"] if only else []
        seeds.update(shared)
        other_eta = etas[0].get(variant) != etas[1].get(variant)
        metrics = _match(left, right, unmatched, f"{prefix}variant {variant}, ".__add__)
        for metric in metrics if shared else ():
            pairs = [[side[metric].get(seed) for seed in shared] for side in (left, right)]
            row = _row(*pairs, comparable=not (other_eta and metric in COSTS))
            unit = METRICS[metric].unit if metric in METRICS else None
            place = {"point": point} if point else {}
            yield place | {"variant": variant, "metric": metric, "unit": unit} | row


def _values(saved: Study) -> Values:
    """Metrics of whole runs, by variant, name and seed."""
    values: Values = {}
    columns = ("by", "variant", "metric", "seed", "value")
    rows = saved.table("metrics", columns).to_pydict()
    for by, variant, metric, seed, value in zip(*rows.values(), strict=True):
        if not by:
            values.setdefault(variant, {}).setdefault(metric, {})[seed] = value
    return values


def _etas(saved: Study) -> dict[str, float | None]:
    """The eta of each variant."""
    scenario = saved.manifest["scenario"]
    default = scenario.get("objective", {}).get("eta")
    return {
        name: (variant or {}).get("objective", {}).get("eta", default)
        for name, variant in scenario.get("variants", {}).items()
    }


def _row(left: Sequence[float | None], right: Sequence[float | None], *, comparable: bool) -> Json:
    """Statistics of a metric's pairs; None where they are not comparable or not defined.

    Returns:
        ``n``: number of pairs. ``reference``, ``other``: means. ``difference``: mean of the
        other less the reference, ``difference_ci95``: its 95 % interval. ``ratio``, ``ci95``,
        ``effect``, ``verdict``: see `wattkeeper.sim.results.statistics.versus`. ``p``: p-value of a
        paired t test.
    """
    values, baseline = (
        np.array([math.nan if value is None else value for value in side], dtype=float)
        for side in (right, left)
    )
    pair = values.tolist(), baseline.tolist()
    statistics = versus(pair[0], pair[1] if comparable else [])
    known = statistics["verdict"] is not None
    reference, other = (
        mean if math.isfinite(mean := float(side.mean())) else None for side in (baseline, values)
    )
    return {
        "n": len(values),
        "reference": reference,
        "other": other,
        "difference": float((values - baseline).mean()) if known else None,
        "difference_ci95": interval((values - baseline).tolist()) if known else None,
        **statistics,
        "p": p_value(*pair) if known and not all_equal(*pair) else None,
    }


def _adjust_verdicts(rows: Sequence[Json]) -> None:
    """Add ``p_holm``, p adjusted for all rows that differ, and ``holds``: its significance.

    Metrics of a run whose differences are proportional, as those of cost and regret, are one
    hypothesis: they count once.
    """
    tested = {_hypothesis(row): row["p"] for row in rows if row["p"] is not None}
    adjusted = dict(zip(tested, holm(list(tested.values())), strict=True))
    for row in rows:
        row["p_holm"] = adjusted.get(_hypothesis(row))
        row["holds"] = is_significant(row) and (row["p_holm"] or 0.0) <= LEVEL


def _hypothesis(row: Mapping[str, Any]) -> tuple[str, ...]:
    if row["p"] is None:
        return ()
    return _to_key(row.get("point", {})), row["variant"], f"{row['p']:.6g}"


def _verdict(differ: Sequence[Mapping[str, Any]]) -> str:
    """The verdict on all rows that differ.

    It is undecided where none holds, but chance explains too few of those significant alone; of
    too few seeds nobody can tell.
    """
    if not differ:
        return "identical"
    if any(row["holds"] for row in differ):
        return "differ"
    if all(row["verdict"] == "one seed" for row in differ):
        return "one seed"
    total = len({_hypothesis(row) for row in differ})
    significant = len({_hypothesis(row) for row in differ if is_significant(row)})
    by_chance = sum(
        math.comb(total, count) * LEVEL**count * (1 - LEVEL) ** (total - count)
        for count in range(significant, total + 1)
    )
    if by_chance < LEVEL:
        return "undecided"
    return "noise" if all(row["n"] >= FEWEST for row in differ) else "cannot tell"


def is_significant(row: Mapping[str, Any]) -> bool:
    """Whether a row is significant by itself, unadjusted for the number of rows."""
    return row["verdict"] in ("lower", "higher")


def _facts(manifest: Manifest) -> Json:
    inputs = {f"{trace['kind']} {trace['trace']}": trace for trace in manifest.get("inputs", ())}
    facts = {name: manifest[name] for name in FACTS if manifest.get(name)}
    return {"scenario": manifest["scenario"]} | facts | {"inputs": inputs}
