"""Charts of what policies learn over the recurrences of jobs."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from wattkeeper.policies.arrays import Floats, Ints
from wattkeeper.scenarios.analysis.run_columns import RunColumns
from wattkeeper.scenarios.analysis.vocabulary import ENERGIES, choose_unit
from wattkeeper.scenarios.charts.chart import (
    Axis,
    Chart,
    Line,
    Panel,
    data_axis,
    has_values,
    points_per_line,
    to_numbers,
)
from wattkeeper.scenarios.charts.downsample import spaced_indices
from wattkeeper.scenarios.spec.wording import count
from wattkeeper.sim.cluster_results.metrics import JobOutcomes
from wattkeeper.traces.arrow import to_floats

CHOICES = 400
"""Recurrences whose choices are drawn, at most."""

GROUPS = 24
"""Workloads whose choices the reader can select, at most."""

MEANINGS = {
    "regret": "Regret: cost of profiled jobs less the least expected cost of each, in the best "
    "configuration of its profile",
    "cost": "Cost of jobs; no best configuration is known",
}


def draw_regret(
    outcomes: list[tuple[RunColumns, JobOutcomes]], variants: list[str]
) -> Iterator[Chart]:
    """Cumulative regret over recurrences, or cumulative cost where no optimum is known."""
    metric = "regret"
    sums = {name: _cumulative_sums(outcomes, name, metric) for name in variants}
    if not any(sums.values()):
        metric = "cost"
        sums = {name: _cumulative_sums(outcomes, name, metric) for name in variants}
    if not any(sums.values()):
        return
    longest = max(len(one_seed) for seeds in sums.values() for one_seed in seeds)
    drawn = spaced_indices(longest, min(300, points_per_line(variants)))
    by_variant = {
        variants.index(name): _stack_sums(seeds, longest)[:, drawn]
        for name, seeds in sums.items()
        if seeds
    }
    unit, size = choose_unit((float(np.nanmax(np.abs(y))) for y in by_variant.values()), ENERGIES)
    lines: list[Line] = []
    for v, y in by_variant.items():
        lines.append({"v": v, "y": to_numbers(y.mean(axis=0) / size)})
        if len(y) > 1:
            lines[-1]["low"] = to_numbers(y.min(axis=0) / size)
            lines[-1]["high"] = to_numbers(y.max(axis=0) / size)
    seeds_drawn = max(map(len, by_variant.values()))
    flat = _explain_flat(outcomes, metric)
    band = (
        f" Mean of {seeds_drawn} seeds; the band goes from the smallest to the largest."
        if (seeds_drawn > 1)
        else ""
    )
    reduced = f" Drawn are {len(drawn)} of {longest} recurrences." if len(drawn) < longest else ""
    yield Chart(
        "regret",
        f"{metric.capitalize()} by recurrence",
        f"{MEANINGS[metric]}; summed up over recurrences and over all groups, {unit}."
        f"{flat}{band}{reduced}",
        {
            "panels": [
                {"x": data_axis("recurrence"), "y": {"name": f"{metric}, {unit}"}, "lines": lines}
            ],
            "xs": (drawn + 1).tolist(),
            "zoom": longest > 20,
        },
    )


def _stack_sums(seeds: list[Floats], longest: int) -> Floats:
    """Sums of all seeds, shape (seeds, longest); NaN after the last recurrence of any seed."""
    last = max(map(len, seeds))
    held = [np.pad(one_seed, (0, last - len(one_seed)), "edge") for one_seed in seeds]
    return np.pad(np.stack(held), ((0, 0), (0, longest - last)), constant_values=np.nan)


def _explain_flat(outcomes: list[tuple[RunColumns, JobOutcomes]], metric: str) -> str:
    """What a line that no longer rises means, given how often groups recur."""
    lengths = np.concatenate(
        [np.bincount(jobs.group)[np.unique(jobs.group)] for _, jobs in outcomes]
    )
    best = " A flat line: jobs run in the best configuration" * (metric == "regret")
    if lengths.min() == lengths.max():
        return best and f"{best}."
    ends = (
        f"groups have {lengths.min():,} to {lengths.max():,} recurrences, and one that has ended "
        "adds nothing"
    )
    return f"{best}, or have ended: {ends}." if best else f" {ends[0].upper()}{ends[1:]}."


def _cumulative_sums(
    outcomes: list[tuple[RunColumns, JobOutcomes]], variant: str, metric: str
) -> list[Floats]:
    """The sum up to each recurrence, for each seed in which the metric is known."""
    sums = []
    for run, jobs in outcomes:
        values = getattr(jobs, metric)
        known = np.isfinite(values)
        if run.variant == variant and known.any():
            by_recurrence = np.bincount(jobs.recurrence[known], values[known]).astype(np.float64)
            sums.append(np.cumsum(by_recurrence[1:]))
    return sums


def draw_choices(attempts: list[RunColumns], variants: list[str]) -> Iterator[Chart]:
    """Batch sizes and power limits by recurrence, of one group of each workload."""
    first_seed = {run.variant: run for run in reversed(attempts)}
    views: dict[str, list[Panel]] = {}
    groups: dict[str, str] = {}
    group_count, reduced, left_out = 0, False, 0
    for variant in dict.fromkeys(run.variant for run in attempts):
        run, v = first_seed[variant], variants.index(variant)
        encoded = run.rows["group_id"].dictionary_encode()
        codes, names = encoded.indices.to_numpy(), encoded.dictionary.to_pylist()
        group_count = len(np.unique(codes))
        groups = groups or _longest_groups(run, codes, names)
        recurrence = run.rows["recurrence"].to_numpy()
        for workload, group in groups.items():
            if group not in names:
                continue
            rows = np.flatnonzero(codes == names.index(group))
            rows = rows[np.argsort(recurrence[rows], kind="stable")]
            drawn = rows[spaced_indices(len(rows), min(CHOICES, points_per_line(variants)))]
            reduced |= len(drawn) < len(rows)
            panels = views.setdefault(workload, [_panel("batch size"), _panel("power limit, W")])
            batch_sizes, limits_w, retuned = _read_choices(run, drawn)
            left_out += retuned
            for panel, values in zip(panels, (batch_sizes, limits_w), strict=True):
                if has_values(values):
                    line: Line = {
                        "v": v,
                        "step": "middle",
                        "x": recurrence[drawn].tolist(),
                        "y": to_numbers(values),
                    }
                    if len(variants) <= 8:  # lines often coincide
                        line["dash"] = v % 4
                    panel["lines"].append(line)
    for panels in views.values():
        _scale_powers_of_two(panels[0]["y"], panels[0]["lines"])
    shown = {name: [panel for panel in panels if panel["lines"]] for name, panels in views.items()}
    shown = {workload: panels for workload, panels in shown.items() if panels}
    if not shown:
        return
    largest = " Of several groups of a workload, it is the one with the most jobs." * (
        len(set(groups.values())) < group_count
    )
    retuned_note = (
        f" Left out are power limits of {count(left_out, 'attempt')} whose knobs changed after the "
        "start."
    )
    yield Chart(
        "choices",
        "Batch sizes and power limits chosen",
        "What each attempt ran with, by recurrence, of the first seed; a failed attempt and its "
        f"retry share a recurrence.{largest}{' Evenly spaced attempts are drawn.' * reduced}"
        f"{retuned_note * bool(left_out)}",
        {"views": shown, "zoom": True},
    )


def _read_choices(run: RunColumns, drawn: Ints) -> tuple[Floats, Floats, int]:
    """Batch sizes and power limits of attempts, and how many limits are absent.

    The table has the last limit of an attempt: where knobs changed, it did not run at that.
    """
    names = ("batch_size", "power_limit_w", "retunes")
    batch_sizes, limits_w, retunes = (to_floats(run.rows[name])[drawn] for name in names)
    retuned = (retunes > 0) & np.isfinite(limits_w)
    return batch_sizes, np.where(retuned, np.nan, limits_w), int(retuned.sum())


def _panel(name: str) -> Panel:
    return {"x": data_axis("recurrence"), "y": {"name": name}, "lines": []}


def _scale_powers_of_two(axis: Axis, lines: list[Line]) -> None:
    """Make the axis logarithmic to base 2 where values span at least a factor of 4."""
    values = [value for line in lines for value in line["y"] if value is not None]
    if values and min(values) > 0 and max(values) >= 4 * min(values):
        axis |= {"log": True, "base": 2, "min": min(values), "max": max(values)}


def _longest_groups(run: RunColumns, codes: Any, names: list[str]) -> dict[str, str]:
    """The group with the most rows of each workload, by workload."""
    counts = np.bincount(codes, minlength=len(names))
    first = np.unique(codes, return_index=True)[1]
    workloads = run.rows["workload"].take(first).to_pylist()
    groups: dict[str, str] = {}
    for code in np.argsort(-counts, kind="stable").tolist():
        if workloads[code] is not None and counts[code] > 1:
            groups.setdefault(workloads[code], names[code])
    return {workload: groups[workload] for workload in sorted(list(groups)[:GROUPS])}
