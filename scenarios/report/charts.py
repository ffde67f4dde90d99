"""The charts of a study: what each shows, from columns made short enough to be drawn."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wattkeeper.scenarios.report.columns import COLUMNS, Run, floats, jobs, optima, regrets, runs
from wattkeeper.scenarios.report.reduce import binned, distribution, pareto, thinned
from wattkeeper.scenarios.shown import ENERGIES, SIZES, TIMES, has_zoo, knows_energy
from wattkeeper.scenarios.study import Study
from wattkeeper.sim.metrics import Jobs

Json = dict[str, Any]
Floats = npt.NDArray[np.float64]

SPANS = (("days", 3 * 86400.0, 86400.0), ("h", 10_800.0, 3600.0), ("min", 180.0, 60.0),
         ("s", 0.0, 1.0))  # fmt: skip
"""Units of a time axis, from which span on, and their size in s."""

WHOLE_SPAN = {"min": "dataMin", "max": "dataMax"}

POINTS = 12_000
"""Of all lines of a panel together."""

MOST = 1000
"""Points of a line."""

CHOICES = 400
"""Recurrences whose choices are drawn."""

GROUPS = 24
"""Workloads whose choices can be looked at."""


class Chart(NamedTuple):
    """A chart of the page.

    Attributes:
        id: In the page.
        title: What it shows.
        caption: What is drawn, in which units, and how it was reduced.
        drawn: What the script draws; see `report.js`.
    """

    id: str
    title: str
    caption: str
    drawn: Json


def charts(study: Study) -> Iterator[Chart]:
    """All charts that the study has something to show for."""
    variants = list(study.summary["variants"])
    yield from _front(study, variants)
    table = study.table("jobs", COLUMNS)
    of_each = list(runs(table))
    known = regrets(study) if study.summary["by"]["workload"] else {}
    ended = [(run, jobs(run, optima(run, known))) for run in of_each]
    yield from _distributions(ended, variants)
    yield from _over_time(study, variants)
    if any((run.recurrence > 1).any() for _, run in ended):
        yield from _learning(ended, variants)
        yield from _choices(of_each, variants)
    if has_zoo(study.summary):
        yield from _zoo(study, variants)


def numbers(values: Iterable[float]) -> list[float | None]:
    """Numbers for JSON: five significant digits, None where there is none."""
    listed = values.tolist() if isinstance(values, np.ndarray) else values
    return [float(f"{one:.5g}") if math.isfinite(one) else None for one in listed]


def length(variants: Sequence[str]) -> int:
    """How many points a line may have, so that all of them together stay few."""
    return max(60, min(MOST, POINTS // len(variants)))


def unit_for(values: Iterable[float], units: Sequence[tuple[str, float]]) -> tuple[str, float]:
    """The unit in which the largest of the values is at least 1."""
    most = max((abs(one) for one in values if math.isfinite(one)), default=0.0)
    return next((unit for unit in units if most >= unit[1]), units[-1])


def span_unit(span_s: float) -> tuple[str, float]:
    """The unit of a time axis of that length."""
    return next((name, size) for name, least, size in SPANS if span_s >= least)


def _front(study: Study, variants: list[str]) -> Iterator[Chart]:
    """Energy against time, a point a variant."""
    if "saved" in study.summary:
        return
    profiled = bool(study.summary["by"]["workload"])
    if profiled and not knows_energy(study.summary):
        return
    time, energy = ("time_s", "energy_j") if profiled else ("jct_s", "cluster_energy_j")
    found = [
        (study.summary["variants"][name]["metrics"][time],
         study.summary["variants"][name]["metrics"][energy]) for name in variants
    ]  # fmt: skip
    points = [Pair(at, *pair) for at, pair in enumerate(found)]
    what = "training time of all jobs" if profiled else "mean job completion time"
    whose = "energy of all jobs" if profiled else "energy of the cluster"
    drawn = scatter(points, (f"{what}", f"{whose}"))
    if drawn is None:
        return
    yield Chart(
        "pareto",
        "Energy against time",
        f"A point a variant: {what} and {whose}, means over seeds, with 95 % intervals where there "
        "are several seeds. The grey line is the Pareto front: no variant on it is beaten in both.",
        drawn,
    )


class Pair(NamedTuple):
    """A point of energy against time: statistics as in `summary.json`."""

    variant: int
    time: Json
    energy: Json
    label: str = ""


def scatter(points: Sequence[Pair], names: tuple[str, str]) -> Json | None:
    """A chart of energy against time with its front; None if no point is known."""
    nan = math.nan

    def means(which: str) -> list[float]:
        found = (getattr(point, which)["mean"] for point in points)
        return [nan if mean is None else mean for mean in found]

    x, y = means("time"), means("energy")
    front = pareto(list(zip(x, y, strict=True)))
    if not front:
        return None
    (x_unit, x_size), (y_unit, y_size) = unit_for(x, TIMES), unit_for(y, ENERGIES)
    dots = []
    for at, point in enumerate(points):
        if not (math.isfinite(x[at]) and math.isfinite(y[at])):
            continue
        dot: Json = {"v": point.variant, "at": numbers([x[at] / x_size, y[at] / y_size])}
        for key, of, size in (("xci", point.time, x_size), ("yci", point.energy, y_size)):
            if of["ci95"]:
                dot[key] = numbers([bound / size for bound in of["ci95"]])
        if point.label:
            dot["label"] = point.label
        dots.append(dot)
    return {
        "panels": [
            {
                "x": {"name": f"{names[0]}, {x_unit}"},
                "y": {"name": f"{names[1]}, {y_unit}"},
                "dots": dots,
                "front": [numbers([x[at] / x_size, y[at] / y_size]) for at in front],
            }
        ]
    }


def _distributions(ended: list[tuple[Run, Jobs]], variants: list[str]) -> Iterator[Chart]:
    of = {
        "jct": ("Job completion", "from submission to end",
                lambda one: one.finish_time_s - one.submit_time_s),
        "delay": ("Queue delay", "wait for GPUs, before the start and while preempted",
                  lambda one: one.queue_delay_s),
    }  # fmt: skip
    for key, (title, meaning, column) in of.items():
        found = {}
        for name in variants:
            values = [column(its) for run, its in ended if run.variant == name]
            joined = np.concatenate(values) if values else np.empty(0)
            found[name] = distribution(joined[np.isfinite(joined)])
        most = max((float(values[-1]) for values, _ in found.values() if len(values)), default=0.0)
        if most <= 0:  # nobody waits
            continue
        unit, size = unit_for([most], TIMES)
        least = min((float(v[v > 0].min()) for v, _ in found.values() if (v > 0).any()))
        least = max(least, min(1.0, most / 10), most / 1e7)
        lines = []
        for at, name in enumerate(variants):
            values, shares = found[name]
            if len(values):
                x, last = np.unique(values.clip(least)[::-1], return_index=True)
                y = shares[::-1][last]
                lines.append({"v": at, "x": numbers(x / size), "y": numbers(y), "step": "end"})
        clipped = f" Shorter ones are drawn at {least:.3g} s." if key == "delay" else ""
        yield Chart(
            key,
            f"{title}: distribution",
            f"{title} ({meaning}), {unit}, on a logarithmic axis: the share of jobs that stay "
            f"below. All jobs of all seeds count; drawn are each half per cent and the tail."
            f"{clipped}",
            {"panels": [{
                "x": {"name": f"{title.lower()}, {unit}", "log": True, "min": "dataMin"},
                "y": {"name": "share of jobs", "percent": True, "min": 0, "max": 1},
                "lines": lines,
            }]},
        )  # fmt: skip


def _over_time(study: Study, variants: list[str]) -> Iterator[Chart]:
    """Power, GPUs in use and waiting jobs, of the first seed."""
    firsts = list(runs(study.table("timeline"), first_seed=True))
    times = {run.variant: floats(run.rows["time_s"]) for run in firsts}
    begin = min((time[0] for time in times.values()), default=0.0)
    end = max((time[-1] for time in times.values()), default=0.0)
    if end <= begin:
        return
    edges = np.linspace(begin, end, length(variants) + 1)
    unit, size = span_unit(end - begin)
    total = gpus_of(study.manifest["scenario"]["cluster"])
    panels = []
    for column, name, divisor in (
        ("power_w", "power", 0.0),
        ("gpus_busy", "GPUs in use", float(total or 0)),
        ("jobs_waiting", "waiting jobs", 1.0),
    ):
        drawn = {run.variant: binned(times[run.variant], floats(run.rows[column]), edges)
                 for run in firsts}  # fmt: skip
        tops = [float(np.nanmax(bins.high)) for bins in drawn.values() if has_value(bins.high)]
        if not tops or (column == "jobs_waiting" and not max(tops)):
            continue
        label = name
        if column == "power_w":
            prefix, divisor = unit_for(tops, (("MW", 1e6), ("kW", 1e3), ("W", 1.0)))
            label = f"{name}, {prefix}"
        percent = column == "gpus_busy" and bool(divisor)
        lines = [
            {"v": variants.index(variant)}
            | {key: numbers(getattr(bins, attribute) / (divisor or 1.0))
               for key, attribute in (("y", "mean"), ("low", "low"), ("high", "high"))}
            for variant, bins in drawn.items()
        ]  # fmt: skip
        axis = {"name": label, "min": 0} | ({"percent": True, "max": 1} if percent else {})
        panels.append({"x": {"name": f"time since the first submission, {unit}"} | WHOLE_SPAN, "y": axis,
                       "lines": lines})  # fmt: skip
    if not panels:
        return
    middles = numbers((edges[:-1] - begin) / size)
    width = (end - begin) / (len(edges) - 1)
    share = f" GPUs in use: share of the {total}." if total else ""
    seeds = study.manifest["seeds"]
    which = f" Of seed {seeds[0]}." if len(seeds) > 1 else ""
    yield Chart(
        "time",
        "Power, GPUs in use and waiting jobs over time",
        f"Means over {len(edges) - 1} bins of {_duration(width)}, weighed by time, so that no "
        f"change between bins is lost; the band goes from the smallest to the largest value in the "
        f"bin. Power is that of the whole facility, idle GPUs included.{share}{which}",
        {"panels": panels, "xs": middles, "zoom": True, "step": "end"},
    )


def has_value(values: Floats) -> bool:
    """Whether any is known."""
    return bool(np.isfinite(values).any())


def gpus_of(cluster: Json) -> int | None:
    """How many GPUs a cluster of a scenario has; None if a trace says it."""
    if isinstance(cluster.get("nodes"), list):
        return sum(int(nodes["count"]) * int(nodes["gpus"]) for nodes in cluster["nodes"])
    found = cluster.get("gpus")
    return found if isinstance(found, int) else None


def _duration(seconds: float) -> str:
    unit, size = unit_for([seconds], (("days", 86400.0), *TIMES))
    return f"{seconds / size:.3g} {unit}"


def _learning(ended: list[tuple[Run, Jobs]], variants: list[str]) -> Iterator[Chart]:
    """Regret summed up over recurrences, or cost where no optimum is known."""
    for what, title, meaning in (
        ("regret", "Regret by recurrence",
         "cost less the expected cost of the best configuration, of jobs with a profile"),
        ("cost", "Cost by recurrence", "cost of jobs (no best configuration is known)"),
    ):  # fmt: skip
        sums: dict[str, list[Floats]] = {name: [] for name in variants}
        for run, its in ended:
            values = getattr(its, what)
            known = np.isfinite(values)
            if known.any():
                per = np.bincount(its.recurrence[known], values[known])[1:]
                sums[run.variant].append(np.cumsum(per))
        if any(sums.values()):
            break
    else:
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
        title,
        f"{title.split()[0]}: {meaning}; summed up over recurrences and over all groups, {unit}. "
        f"A line that goes flat has learnt.{band}{fewer}",
        {
            "panels": [{"x": {"name": "recurrence"} | WHOLE_SPAN, "y": {"name": f"{what}, {unit}"},
                        "lines": lines}],
            "xs": (at + 1).tolist(),
            "zoom": longest > 20,
        },
    )  # fmt: skip


def _choices(of_each: list[Run], variants: list[str]) -> Iterator[Chart]:
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
        if not groups:
            groups = _longest_groups(run, of_group, names)
        for workload, group in groups.items():
            if group not in names:
                continue
            mine = np.flatnonzero(of_group == names.index(group))
            mine = mine[np.argsort(recurrence[mine], kind="stable")]
            kept = mine[thinned(len(mine), min(CHOICES, length(variants)))]
            fewer |= len(kept) < len(mine)
            panels = views.setdefault(workload, [_panel("batch size"), _panel("power limit, W")])
            for panel, column in zip(panels, ("batch_size", "power_limit_w"), strict=True):
                values = floats(run.rows[column])[kept]
                if has_value(values):
                    panel["lines"].append({"v": variants.index(run.variant), "step": "middle",
                                           "x": recurrence[kept].tolist(),
                                           "y": numbers(values)})  # fmt: skip
    views = {
        workload: kept
        for workload, panels in views.items()
        if (kept := [panel for panel in panels if panel["lines"]])
    }
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
    return {
        "x": {"name": "recurrence"} | WHOLE_SPAN,
        "y": {"name": name, "scale": True},
        "lines": [],
    }


def _longest_groups(run: Run, of_group: Any, names: list[str]) -> dict[str, str]:
    """The group with the most rows of each workload."""
    counts = np.bincount(of_group, minlength=len(names))
    first = np.unique(of_group, return_index=True)[1]
    workloads = run.rows["workload"].take(first).to_pylist()
    found: dict[str, str] = {}
    for at in np.argsort(-counts, kind="stable").tolist():
        if workloads[at] is not None and counts[at] > 1:
            found.setdefault(workloads[at], names[at])
    return {workload: found[workload] for workload in sorted(list(found)[:GROUPS])}


def _zoo(study: Study, variants: list[str]) -> Iterator[Chart]:
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
        unit, size = unit_for((float(np.abs(v).max()) for v in found.values() if len(v)), units)
        lines = []
        for run in firsts:
            kept = thinned(len(found[run.variant]), min(500, length(variants)))
            x = (floats(run.rows["time_s"])[kept] - begin) / x_size
            lines.append({"v": variants.index(run.variant), "x": numbers(x),
                          "y": numbers(found[run.variant][kept] / size), "step": "end"})  # fmt: skip
        panels.append({"x": {"name": f"time since the first model, {x_unit}"} | WHOLE_SPAN,
                       "y": {"name": ", ".join(filter(None, (name, unit)))},
                       "lines": lines})  # fmt: skip
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
