"""Charts of what is learnt over recurrences, and of what a zoo saves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.analysis.vocabulary import ENERGIES, SIZES, TIMES
from wattkeeper.scenarios.report.charts.chart import (
    WHOLE_SPAN,
    Chart,
    has_value,
    length,
    numbers,
    span_unit,
    unit_for,
)
from wattkeeper.scenarios.report.charts.columns import RunColumns, floats, runs
from wattkeeper.scenarios.report.charts.downsample import thinned
from wattkeeper.sim.results.metrics import JobOutcomes

CHOICES = 400
"""Recurrences whose choices are drawn."""

GROUPS = 24
"""Workloads whose choices can be looked at."""

MEANINGS = {
    "regret": "Regret: cost less the expected cost of the best configuration, of profiled jobs",
    "cost": "Cost of jobs; no best configuration is known",
}


def regret(ended: list[tuple[RunColumns, JobOutcomes]], variants: list[str]) -> Iterator[Chart]:
    """Regret summed up over recurrences, or cost where no optimum is known."""
    sums = {name: _sums(ended, name, "regret") for name in variants}
    what = "regret" if any(sums.values()) else "cost"
    if what == "cost":
        sums = {name: _sums(ended, name, "cost") for name in variants}
    if not any(sums.values()):
        return
    longest = max(len(one) for many in sums.values() for one in many)
    at = thinned(longest, min(300, length(variants)))
    spread = {}
    for name, many in sums.items():
        if many:
            padded = np.stack([np.pad(one, (0, longest - len(one)), "edge") for one in many])
            spread[name] = padded[:, at]
    unit, size = unit_for((float(np.abs(one).max()) for one in spread.values()), ENERGIES)
    lines = [
        {"v": variants.index(name), "y": numbers(one.mean(axis=0) / size)}
        | ({"low": numbers(one.min(axis=0) / size), "high": numbers(one.max(axis=0) / size)}
           if len(one) > 1 else {})
        for name, one in spread.items()
    ]  # fmt: skip
    seeds = max(len(one) for one in spread.values())
    band = f" Mean of {seeds} seeds; the band goes from the smallest to the largest." if (
        seeds > 1) else ""  # fmt: skip
    fewer = f" Drawn are {len(at)} of {longest} recurrences." if len(at) < longest else ""
    yield Chart(
        "regret",
        f"{what.capitalize()} by recurrence",
        f"{MEANINGS[what]}; summed up over recurrences and over all groups, {unit}. "
        f"A line that goes flat has learnt.{band}{fewer}",
        {
            "panels": [{"x": {"name": "recurrence"} | WHOLE_SPAN, "y": {"name": f"{what}, {unit}"},
                        "lines": lines}],
            "xs": (at + 1).tolist(),
            "zoom": longest > 20,
        },
    )  # fmt: skip


def _sums(ended: list[tuple[RunColumns, JobOutcomes]], variant: str, what: str) -> list[Floats]:
    """The sum over recurrences up to each one, for each seed of which it is known."""
    found = []
    for run, its in ended:
        values = getattr(its, what)
        known = np.isfinite(values)
        if run.variant == variant and known.any():
            each: Floats = np.bincount(its.recurrence[known], values[known]).astype(np.float64)
            found.append(np.cumsum(each[1:]))
    return found


def choices(of_each: list[RunColumns], variants: list[str]) -> Iterator[Chart]:
    """Batch sizes and power limits by recurrence, of one group of each workload."""
    views: dict[str, list[Json]] = {}
    groups: dict[str, str] = {}
    seen: set[str] = set()
    fewer = False
    for run in of_each:
        if run.variant in seen:
            continue
        seen.add(run.variant)
        recurrence = run.rows["recurrence"].to_numpy()
        coded = run.rows["group_id"].dictionary_encode()
        of_group = coded.indices.to_numpy()
        names = coded.dictionary.to_pylist()
        at = variants.index(run.variant)
        dashes = {"dash": at % 4} if len(variants) <= 8 else {}  # lines often coincide
        if not groups:
            groups = _longest_groups(run, of_group, names)
        for workload, group in groups.items():
            if group not in names:
                continue
            its = np.flatnonzero(of_group == names.index(group))
            mine = its[np.argsort(recurrence[its], kind="stable")]
            kept = mine[thinned(len(mine), min(CHOICES, length(variants)))]
            fewer |= len(kept) < len(mine)
            panels = views.setdefault(workload, [_panel("batch size"), _panel("power limit, W")])
            for panel, column in zip(panels, ("batch_size", "power_limit_w"), strict=True):
                values = floats(run.rows[column])[kept]
                if has_value(values):
                    panel["lines"].append({"v": at, "step": "middle",
                                           "x": recurrence[kept].tolist(),
                                           "y": numbers(values)} | dashes)  # fmt: skip
    for panels in views.values():
        _widen(panels[0])
    filled = {name: [panel for panel in panels if panel["lines"]] for name, panels in views.items()}
    views = {workload: panels for workload, panels in filled.items() if panels}
    if not views:
        return
    several = " Of several groups of a workload, it is the one with the most jobs." * (
        len(set(groups.values())) < len(np.unique(of_group))
    )
    yield Chart(
        "choices",
        "Batch sizes and power limits chosen",
        f"What each attempt ran with, by recurrence, of the first seed; a failed attempt shares "
        f"its recurrence with the next one.{several}"
        + " Evenly spaced attempts are drawn."
        * fewer,
        {"views": views, "zoom": True},
    )


def _panel(name: str) -> Json:
    return {"x": {"name": "recurrence"} | WHOLE_SPAN, "y": {"name": name}, "lines": []}


def _widen(panel: Json) -> None:
    """Give powers of two equal room where values span several of them."""
    values = [value for line in panel["lines"] for value in line["y"] if value is not None]
    if values and min(values) > 0 and max(values) >= 4 * min(values):
        panel["y"] |= {"log": True, "base": 2, "min": min(values), "max": max(values)}


def _longest_groups(run: RunColumns, of_group: Any, names: list[str]) -> dict[str, str]:
    """The group with the most rows of each workload."""
    counts = np.bincount(of_group, minlength=len(names))
    first = np.unique(of_group, return_index=True)[1]
    workloads = run.rows["workload"].take(first).to_pylist()
    found: dict[str, str] = {}
    for at in np.argsort(-counts, kind="stable").tolist():
        if workloads[at] is not None and counts[at] > 1:
            found.setdefault(workloads[at], names[at])
    return {workload: found[workload] for workload in sorted(list(found)[:GROUPS])}


def zoo(study: Study, variants: list[str]) -> Iterator[Chart]:
    """What parents saved, and how full the zoo is, of the first seed."""
    firsts = list(runs(study.table("models"), first_seed=True))
    if not firsts:
        return
    begin = min(float(floats(run.rows["time_s"])[0]) for run in firsts)
    end = max(float(floats(run.rows["time_s"])[-1]) for run in firsts)
    x_unit, x_size = span_unit(end - begin)
    panels = []
    for column, name, units in (
        ("saved_gpu_s", "GPU time saved", TIMES),
        ("zoo_models", "models in the zoo", (("", 1.0),)),
        ("zoo_bytes", "size of the zoo", SIZES),
    ):
        found = {run.variant: floats(run.rows[column]) for run in firsts}
        if column == "saved_gpu_s":
            found = {variant: np.cumsum(values) for variant, values in found.items()}
        if all(np.isnan(values).all() for values in found.values()):
            continue
        unit, size = unit_for((float(np.abs(v).max()) for v in found.values() if len(v)), units)
        lines = []
        for run in firsts:
            kept = thinned(len(found[run.variant]), min(500, length(variants)))
            x = (floats(run.rows["time_s"])[kept] - begin) / x_size
            y = numbers(found[run.variant][kept] / size)
            at = variants.index(run.variant)
            lines.append({"v": at, "x": numbers(x), "y": y, "step": "end"})
        since = {"name": f"time since the first model, {x_unit}"} | WHOLE_SPAN
        named = {"name": ", ".join(filter(None, (name, unit)))}
        panels.append({"x": since, "y": named, "lines": lines})
    seeds = study.manifest["seeds"]
    which = f" Of seed {seeds[0]}." if len(seeds) > 1 else ""
    yield Chart(
        "zoo",
        "Warm starts: time saved, and the zoo",
        "GPU time of training that parents saved, summed up (modelled unless it was trained for "
        "real), the number of models in the zoo, and what they take; after each trained model."
        f"{which}",
        {"panels": panels, "zoom": True},
    )
