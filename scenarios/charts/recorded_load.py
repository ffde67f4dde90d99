"""Chart of the recorded load over time beside that of the simulated schedulers."""

from collections.abc import Iterator, Sequence

import numpy as np

from wattkeeper.policies.arrays import Floats
from wattkeeper.scenarios.analysis.logged.load import BinnedLoad, edges_of
from wattkeeper.scenarios.analysis.resolved.overrides import clusters_by_variant
from wattkeeper.scenarios.analysis.resolved.policy_kinds import list_schedulers
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.charts.chart import (
    RECORD,
    Axis,
    Chart,
    Line,
    Panel,
    choose_time_unit,
    data_axis,
    first_seed_note,
    to_numbers,
)
from wattkeeper.scenarios.charts.downsample import bin_steps
from wattkeeper.scenarios.charts.over_time import COLUMNS, cluster_gpus, format_duration
from wattkeeper.scenarios.spec.wording import count
from wattkeeper.traces.arrow import to_floats


def draw_recorded_load(study: Study, variants: list[str]) -> Iterator[Chart]:
    """GPUs in use and waiting jobs: as recorded, and of the baseline and other schedulers."""
    manifest = study.manifest
    load, waits = manifest.get("recorded_load"), manifest.get("waits")
    if not load or not waits:
        return
    scenario = manifest["scenario"]
    drawn = [name for name in list_schedulers(scenario) if name in waits[0]["runs"]]
    edges = edges_of(load["from_s"], load["until_s"])
    unit, size = choose_time_unit(load["until_s"] - load["from_s"])
    names = ("time_s", "gpus_busy", "jobs_waiting")
    runs = {
        run.variant: run.rows
        for run in study.runs("timeline", names, first_seed=True)
        if run.variant in drawn
    }
    gpus = cluster_gpus(clusters_by_variant(scenario)[scenario["baseline"]])
    x = data_axis(f"time since the first submission, {unit}")
    panels: list[Panel] = []
    for column, recorded in (
        ("gpus_busy", load["gpus_busy"]),
        ("jobs_waiting", load["jobs_waiting"]),
    ):
        y: Axis = {"name": COLUMNS[column], "min": 0}
        scale = 1.0
        if gpus and column == "gpus_busy":
            scale = float(gpus)
            y |= {"percent": True} if max(recorded) > gpus else {"percent": True, "max": 1}
        lines: list[Line] = [{"v": RECORD, "y": to_numbers(np.array(recorded) / scale)}]
        for name, rows in runs.items():
            means = _bin(to_floats(rows["time_s"]), to_floats(rows[column]), edges)
            lines.append({"v": variants.index(name), "y": to_numbers(means / scale)})
        panels.append({"x": x, "y": y, "lines": lines})
    bins = _trim([line for panel in panels for line in panel["lines"]])
    width = format_duration(float(edges[1] - edges[0]))
    share = f" GPUs in use: share of the {gpus} described" if gpus else ""
    if gpus and max(load["gpus_busy"]) > gpus:
        share += "; above 100 %, the cluster had more, or jobs did not hold what the log says"
    yield Chart(
        "record",
        "Recorded load, and simulated",
        f"Grey area: as the log recorded it, from the starts and run times of {_which(load)}, "
        "waiting from submission to start; jobs that the study left out, or that were submitted "
        "before the log begins, are not in it. Lines: the same jobs under the schedulers that were "
        f"simulated ({scenario['baseline']} is the baseline). Time-weighted means over bins of "
        f"{width}.{share}{'.' if share else ''}{first_seed_note(manifest)}",
        {
            "panels": panels,
            "xs": to_numbers((edges[:bins] - edges[0]) / size),
            "zoom": True,
            "step": "end",
        },
    )


def _trim(lines: Sequence[Line]) -> int:
    """Cut lines after the last bin in which one of them is not 0; how many bins are left."""
    last = max(int(np.flatnonzero(np.array(line["y"]))[-1:].sum()) for line in lines)
    for line in lines:
        line["y"] = line["y"][: last + 2]
    return len(lines[0]["y"])


def _bin(time_s: Floats, values: Floats, edges: Floats) -> Floats:
    """Means of a run in all bins: its last value holds for ever."""
    if edges[-1] > time_s[-1]:
        time_s, values = np.append(time_s, edges[-1]), np.append(values, values[-1])
    return bin_steps(time_s, values, edges).mean


def _which(load: BinnedLoad) -> str:
    if load["jobs"] == load["of"]:
        return f"all {count(load['jobs'], 'job')}"
    return f"{load['jobs']:,} of {count(load['of'], 'job')} (others have no recorded start)"
