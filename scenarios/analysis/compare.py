"""Studies against each other: results folders, each against the first of them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.errors import InputError
from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis import study
from wattkeeper.scenarios.analysis.manifest import Manifest
from wattkeeper.scenarios.analysis.sim_vs_live import flat
from wattkeeper.scenarios.analysis.study import StoredStudy
from wattkeeper.sim.results.folder import is_sweep
from wattkeeper.sim.results.metrics import COSTS, METRICS
from wattkeeper.sim.results.statistics import holm, interval, p_value, same, versus

Values = dict[str, dict[str, dict[int, float | None]]]

LEVEL: Final = 0.05
"""How often at most any difference may be told that is only noise, of a folder against another."""

FACTS: Final = ("backend", "versions", "dropped_jobs", "ignored_gpu_types")
"""Of a manifest, what is compared besides the scenario and the inputs."""


class ComparedFolder(NamedTuple):
    """A folder with a study, or with those of a sweep.

    Attributes:
        folder: Where it is.
        points: A study by the values of a sweep's axes, as JSON; by `{}` where it is no sweep.
        failed: Points of a sweep that have no results, by their values.
    """

    folder: Path
    points: dict[str, StoredStudy]
    failed: list[str]

    @property
    def is_sweep(self) -> bool:
        """Whether it was written by a sweep."""
        return is_sweep(self.folder)


def read(folder: Path) -> ComparedFolder:
    """Read the folder of a run, or of a sweep.

    Raises:
        InputError: If it is neither, or a file in it is broken.
    """
    if not is_sweep(folder):
        return ComparedFolder(folder, {"{}": study.read(folder)}, [])
    sweep = study.read_sweep(folder)
    done = {_text(point["values"]): saved for point, saved in study.finished(folder, sweep)}
    every = [_text(point["values"]) for point in sweep["points"]]
    return ComparedFolder(folder, done, [values for values in every if values not in done])


def compare(reference: ComparedFolder, others: Sequence[ComparedFolder]) -> Json:
    """Compare studies with the first one.

    Returns:
        ``reference``: folder, scenario, backend, results digest.
        ``comparisons``: one for each of the others, as `compare_with` gives it.

    Raises:
        InputError: If a folder has no variant with a seed in common with the first.
    """
    return {
        "reference": _about(reference),
        "comparisons": [compare_with(reference, other) for other in others],
    }


def compare_with(reference: ComparedFolder, other: ComparedFolder) -> Json:
    """Compare a study with another, metric by metric of whole runs, over the seeds of both.

    Returns:
        ``other``: as ``reference`` in `compare`.
        ``identical``: whether all tables of both are the same, by their digests, and of sweeps at
        the same points.
        ``differences``: where scenarios, inputs, versions or what was left out differ: ``path``
        and both values.
        ``only_reference``, ``only_other``: runs and metrics that the other one lacks.
        ``seeds``: those of all variants that both have.
        ``rows``: for each variant and metric that both have: see `_row`.
        ``compared``, ``differ``, ``hold``: how many rows there are with two values; of those, with
        different ones; of those, whose verdict holds among all of them (`LEVEL`).
        ``verdict``: ``identical``, ``noise``, ``undecided``, ``one seed`` or ``differ``, of all
        together.
    """
    if reference.is_sweep != other.is_sweep:
        one, two = (reference, other) if reference.is_sweep else (other, reference)
        raise InputError(
            f"{one.folder} is a sweep, {two.folder} is none: give two sweeps, or a point of the "
            f"sweep, as {one.folder}/points/0001"
        )
    rows: list[Json] = []
    differences: dict[str, Json] = {}
    alone: list[list[str]] = [[], []]
    seeds: set[int] = set()
    for values in _both(reference.points, other.points, alone, str):
        sides = reference.points[values], other.points[values]
        differences |= {_text(row): row for row in _differences(*sides)}
        rows += _compared(json.loads(values), sides, alone, seeds)
    if not rows:
        raise InputError(
            f"{reference.folder} and {other.folder} have no variant with a seed in common: run "
            "both with the same seeds (--seeds)\n"
            + "\n".join(f"  {one.folder}: {_runs(one)}" for one in (reference, other))
        )
    _judge_together(rows)
    known = [row for row in rows if row["verdict"] is not None]
    differ = [row for row in known if row["verdict"] != "identical"]
    digests = [{at: one.manifest.get("results_digest") for at, one in side.points.items()}
               for side in (reference, other)]  # fmt: skip
    return {
        "other": _about(other),
        "identical": None not in digests[0].values() and digests[0] == digests[1],
        "differences": list(differences.values()),
        "only_reference": alone[0],
        "only_other": alone[1],
        "seeds": sorted(seeds),
        "compared": len(known),
        "differ": len(differ),
        "hold": sum(row["holds"] for row in differ),
        "verdict": _verdict(differ),
        "rows": rows,
    }


def _text(values: object) -> str:
    return json.dumps(values, sort_keys=True)


def _about(results: ComparedFolder) -> Json:
    studies = results.points.values()
    return {
        "folder": str(results.folder),
        "scenario": next((one.manifest["scenario"]["name"] for one in studies), None),
        "backend": next((one.manifest.get("backend") for one in studies), None),
        "results_digest": [one.manifest.get("results_digest") for one in studies],
        "failed_points": [json.loads(values) for values in results.failed],
    }


def _runs(results: ComparedFolder) -> str:
    """Points, and variants and seeds of the first one, for a message."""
    points = f"{len(results.points)} points; " if results.is_sweep else ""
    first = next(iter(results.points.values()), None)
    if first is None:
        return f"{points}no results"
    variants = ", ".join(first.summary["variants"])
    seeds = ", ".join(map(str, first.manifest.get("seeds", ())))
    return f"{points}variants {variants or 'none'}; seeds {seeds or 'none'}"


def _both(left: Any, right: Any, alone: list[list[str]], label: Any) -> list[Any]:
    """Keys of both, in the order of the first; those of one are named in `alone`."""
    alone[0] += [label(key) for key in left if key not in right]
    alone[1] += [label(key) for key in right if key not in left]
    return [key for key in left if key in right]


def _compared(
    point: Json, sides: tuple[StoredStudy, StoredStudy], alone: list[list[str]], seeds: set[int]
) -> Iterator[Json]:
    """A row for each variant and metric that two studies have; what is left out is named."""
    values = [_values(side) for side in sides]
    etas = [_etas(side) for side in sides]
    at = f"{_text(point)} " if point else ""
    for variant in _both(values[0], values[1], alone, lambda name: f"{at}variant {name}"):
        left, right = values[0][variant], values[1][variant]
        known = [list(dict.fromkeys(seed for by_seed in side.values() for seed in by_seed))
                 for side in (left, right)]  # fmt: skip
        lone: list[list[str]] = [[], []]
        shared = _both(known[0], known[1], lone, str)
        for names, found in zip(alone, lone, strict=True):
            names += [f"{at}variant {variant}, seeds {', '.join(found)}"] if found else []
        seeds.update(shared)
        other_eta = etas[0].get(variant) != etas[1].get(variant)
        metrics = _both(left, right, alone, lambda name, v=variant: f"{at}variant {v}, {name}")
        for metric in metrics if shared else ():
            pairs = [[side[metric].get(seed) for seed in shared] for side in (left, right)]
            row = _row(*pairs, comparable=not (other_eta and metric in COSTS))
            named = {"point": point} if point else {}
            yield named | {"variant": variant, "metric": metric, "unit": _unit(metric)} | row


def _unit(metric: str) -> str | None:
    return METRICS[metric].unit if metric in METRICS else None


def _values(saved: StoredStudy) -> Values:
    """Metrics of whole runs, by variant, name and seed."""
    found: Values = {}
    columns = ("by", "variant", "metric", "seed", "value")
    rows = saved.table("metrics", columns).to_pydict()
    for by, variant, metric, seed, value in zip(*rows.values(), strict=True):
        if not by:
            found.setdefault(variant, {}).setdefault(metric, {})[seed] = value
    return found


def _etas(saved: StoredStudy) -> dict[str, float | None]:
    """Under which eta the cost of each variant is."""
    scenario = saved.manifest["scenario"]
    own = scenario.get("objective", {}).get("eta")
    return {
        name: (variant or {}).get("objective", {}).get("eta", own)
        for name, variant in scenario.get("variants", {}).items()
    }


def _row(left: Sequence[float | None], right: Sequence[float | None], *, comparable: bool) -> Json:
    """What pairs of one metric say; None where they are not compared, or a figure does not exist.

    Returns:
        ``n``: number of pairs. ``reference``, ``other``: means. ``difference``, and its 95 %
        interval ``difference_ci95``: of the other less the reference. ``ratio``, ``ci95``,
        ``effect``, ``verdict``: see
        `wattkeeper.sim.results.statistics.versus`. ``p``: of a paired t test.
    """
    values, baseline = (np.array([math.nan if one is None else one for one in side], dtype=float)
                        for side in (right, left))  # fmt: skip
    judged = versus(values.tolist(), baseline.tolist() if comparable else [])
    known = judged["verdict"] is not None
    return {
        "n": len(values),
        "reference": _mean(baseline),
        "other": _mean(values),
        "difference": float((values - baseline).mean()) if known else None,
        "difference_ci95": interval(values - baseline) if known else None,
        **judged,
        "p": p_value(values, baseline) if known and not same(values, baseline) else None,
    }


def _mean(values: Floats) -> float | None:
    mean = float(values.mean())
    return mean if math.isfinite(mean) else None


def _judge_together(rows: Sequence[Json]) -> None:
    """Add ``p_holm``, p adjusted for all rows that differ, and ``holds``: whether it is low.

    Metrics of a run whose differences are in proportion, as those of cost and regret, ask the same
    question: they count once.
    """
    tested = {_question(row): row["p"] for row in rows if row["p"] is not None}
    adjusted = dict(zip(tested, holm(list(tested.values())), strict=True))
    for row in rows:
        row["p_holm"] = adjusted.get(_question(row))
        row["holds"] = stands_alone(row) and (row["p_holm"] or 0.0) <= LEVEL


def _question(row: Mapping[str, Any]) -> tuple[str, ...]:
    if row["p"] is None:
        return ()
    return _text(row.get("point", {})), row["variant"], f"{row['p']:.6g}"


def _verdict(differ: Sequence[Mapping[str, Any]]) -> str:
    """Of rows that differ.

    It is undecided where none holds, but more stand out alone than luck would have among so many.
    """
    if not differ:
        return "identical"
    if any(row["holds"] for row in differ):
        return "differ"
    if all(row["verdict"] == "one seed" for row in differ):
        return "one seed"
    asked = {_question(row) for row in differ}
    alone = {_question(row) for row in differ if stands_alone(row)}
    by_luck = sum(
        math.comb(len(asked), count) * LEVEL**count * (1 - LEVEL) ** (len(asked) - count)
        for count in range(len(alone), len(asked) + 1)
    )
    return "undecided" if by_luck < LEVEL else "noise"


def stands_alone(row: Mapping[str, Any]) -> bool:
    """Whether a row that is looked at by itself is more than noise."""
    return row["verdict"] in ("lower", "higher")


def _differences(left: StoredStudy, right: StoredStudy) -> Iterator[Json]:
    """Where what was run, on what, and with what are not the same."""
    sides = [dict(flat(_facts(one.manifest))) for one in (left, right)]
    for path in sorted(sides[0].keys() | sides[1].keys()):
        values = [side.get(path) for side in sides]
        if values[0] != values[1]:
            yield {"path": path, "reference": values[0], "other": values[1]}


def _facts(manifest: Manifest) -> Json:
    inputs = {f"{one['kind']} {one['trace']}": one for one in manifest.get("inputs", ())}
    facts = {name: manifest[name] for name in FACTS if manifest.get(name)}
    return {"scenario": manifest["scenario"]} | facts | {"inputs": inputs}
