"""The charts of a study: what each shows, from columns made short enough to be drawn."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.analysis.vocabulary import TIMES, has_zoo
from wattkeeper.scenarios.report.charts.chart import (
    WHOLE_SPAN,
    Chart,
    has_value,
    length,
    numbers,
    span_unit,
    unit_for,
)
from wattkeeper.scenarios.report.charts.columns import (
    RunColumns,
    attempts,
    floats,
    jobs,
    optima,
    regrets,
    runs,
)
from wattkeeper.scenarios.report.charts.downsample import binned, distribution
from wattkeeper.scenarios.report.charts.learning import choices, regret, zoo
from wattkeeper.scenarios.report.charts.pareto import energy_against_time
from wattkeeper.sim.results.metrics import JobOutcomes


def charts(study: Study) -> Iterator[Chart]:
    """All charts that the study has something to show for."""
    variants = list(study.summary["variants"])
    yield from energy_against_time(study, variants)
    of_each = list(attempts(study))
    known = regrets(study) if study.summary["by"]["workload"] else {}
    ended = [
        (run, jobs(run, optima(run, known.get((run.variant, run.seed), {})))) for run in of_each
    ]
    recurs = any((run.recurrence > 1).any() for _, run in ended)
    if recurs:
        yield from regret(ended, variants)
    else:
        of_each.clear()
    yield from _distributions(ended, variants)
    ended.clear()  # of a million jobs it is large, and so is what comes
    yield from _over_time(study, variants)
    if recurs:
        yield from choices(of_each, variants)
    if has_zoo(study.summary):
        yield from zoo(study, variants)


TIMES_OF_JOBS = {
    "jct": ("Job completion", "from submission to end"),
    "delay": ("Queue delay", "wait for GPUs, before the start and while preempted"),
}


def _distributions(
    ended: list[tuple[RunColumns, JobOutcomes]], variants: list[str]
) -> Iterator[Chart]:
    for key, (title, meaning) in TIMES_OF_JOBS.items():
        found = {}
        for name in variants:
            each = [
                its.queue_delay_s if key == "delay" else its.finish_time_s - its.submit_time_s
                for run, its in ended
                if run.variant == name
            ]
            joined = np.concatenate(each) if each else np.empty(0)
            found[name] = distribution(joined[np.isfinite(joined)])
        most = max((float(values[-1]) for values, _ in found.values() if len(values)), default=0.0)
        if most <= 0:  # nobody waits
            continue
        unit, size = unit_for([most], TIMES)
        least = min(float(v[v > 0].min()) for v, _ in found.values() if (v > 0).any())
        least = min(1.0, most / 10) if key == "delay" else max(least, most / 1e7)
        log = most > 30 * least  # otherwise an axis would have no two powers of ten
        least *= log
        lines = []
        for at, name in enumerate(variants):
            values, shares = found[name]
            if len(values):
                drawn = np.maximum(values, least)
                last = np.append(np.flatnonzero(np.diff(drawn)), len(drawn) - 1)  # of equal ones
                x, y = drawn[[last[0], *last]], np.append(0.0, shares[last])
                lines.append({"v": at, "x": numbers(x / size), "y": numbers(y), "step": "end"})
        short = any(len(values) and values[0] < least for values, _ in found.values())
        clipped = f" Shorter ones are drawn at {least:.3g} s." if short else ""
        yield Chart(
            key,
            f"{title}: distribution",
            f"{title} ({meaning}), {unit}{', on a logarithmic axis' * log}: the share of jobs that "
            f"stay below. All jobs of all seeds count; drawn are each half per cent and the tail."
            f"{clipped}",
            {"panels": [{
                "x": {"name": f"{title.lower()}, {unit}", "log": log} | WHOLE_SPAN,
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
    panels: list[Json] = []
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
        since = {"name": f"time since the first submission, {unit}"} | WHOLE_SPAN
        panels.append({"x": since, "y": axis, "lines": lines})
    if not panels:
        return
    middles = numbers((edges[:-1] - begin) / size)
    width = (end - begin) / (len(edges) - 1)
    drawn_power = panels[0]["y"]["name"].startswith("power")
    pue = study.manifest["scenario"]["cluster"].get("pue", 1)
    of = "cluster" if pue == 1 else f"whole facility (PUE {pue:g})"
    power = f" Power is that of the {of}, idle GPUs included." * drawn_power
    share = f" GPUs in use: share of the {total}." if total else ""
    seeds = study.manifest["seeds"]
    which = f" Of seed {seeds[0]}." if len(seeds) > 1 else ""
    yield Chart(
        "time",
        f"{_and([panel['y']['name'].partition(',')[0] for panel in panels])} over time",
        f"Means over {len(edges) - 1} bins of {_duration(width)}, weighed by time, so that no "
        f"change between bins is lost; the band goes from the smallest to the largest value in the "
        f"bin.{power}{share}{which}",
        {"panels": panels, "xs": middles, "zoom": True, "step": "middle"},
    )


def _and(names: list[str]) -> str:
    """Names as a title."""
    listed = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    return listed[0].upper() + listed[1:]


def gpus_of(cluster: Json) -> int | None:
    """How many GPUs a cluster of a scenario has; None if a trace says it."""
    if isinstance(cluster.get("nodes"), list):
        return sum(int(nodes["count"]) * int(nodes["gpus"]) for nodes in cluster["nodes"])
    found = cluster.get("gpus")
    return found if isinstance(found, int) else None


def _duration(seconds: float) -> str:
    unit, size = unit_for([seconds], (("days", 86400.0), *TIMES))
    return f"{seconds / size:.3g} {unit}"
