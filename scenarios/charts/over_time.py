"""Charts over time: of power, GPUs in use and waiting jobs, and of a zoo."""

from collections.abc import Collection, Iterator, Mapping

import numpy as np

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.resolved.overrides import clusters_by_variant
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.analysis.vocabulary import SIZES, TIMES, choose_unit
from wattkeeper.scenarios.charts.chart import (
    Axis,
    Chart,
    Line,
    Panel,
    choose_time_unit,
    data_axis,
    first_seed_note,
    has_values,
    label_axis,
    points_per_line,
    to_numbers,
)
from wattkeeper.scenarios.charts.downsample import Bins, bin_steps, spaced_indices
from wattkeeper.traces.arrow import to_floats

POWER_UNITS = (("MW", 1e6), ("kW", 1e3), ("W", 1.0))
COLUMNS = {"power_w": "power", "gpus_busy": "GPUs in use", "jobs_waiting": "waiting jobs"}
"""Columns of the timeline and the names of their panels."""

ZOO_COLUMNS = (
    ("saved_gpu_s", "GPU time saved", TIMES),
    ("zoo_models", "models in the zoo", (("", 1.0),)),
    ("zoo_bytes", "size of the zoo", SIZES),
)
"""Columns of the trained models, the names of their panels, and their units."""


def draw_over_time(
    study: Study, variants: list[str], columns: Collection[str] = tuple(COLUMNS)
) -> Iterator[Chart]:
    """A panel for each of some `COLUMNS` with values, of the first seed."""
    runs = list(study.runs("timeline", ("time_s", *COLUMNS), first_seed=True))
    times = {run.variant: to_floats(run.rows["time_s"]) for run in runs}
    begin = min((time[0] for time in times.values()), default=0.0)
    end = max((time[-1] for time in times.values()), default=0.0)
    if end <= begin:
        return
    edges = np.linspace(begin, end, points_per_line(variants) + 1)
    unit, size = choose_time_unit(end - begin)
    clusters = list(clusters_by_variant(study.manifest["scenario"]).values())
    sizes = {cluster_gpus(cluster) for cluster in clusters}
    gpus = sizes.pop() if len(sizes) == 1 else None
    panels: dict[str, Panel] = {}
    for column in columns:
        bins = {
            variants.index(run.variant): bin_steps(
                times[run.variant], to_floats(run.rows[column]), edges
            )
            for run in runs
        }
        panel = _panel(column, bins, gpus, data_axis(f"time since the first submission, {unit}"))
        if panel is not None:
            panels[column] = panel
    if not panels:
        return
    pues = sorted({cluster.get("pue", 1) for cluster in clusters})
    of_pue = " or ".join(f"{pue:g}" for pue in pues)
    facility = "cluster" if pues == [1] else f"whole facility (PUE {of_pue})"
    power = f" Power is that of the {facility}, idle GPUs included." * ("power_w" in panels)
    share = f" GPUs in use: share of the {gpus}." if gpus else ""
    width = (end - begin) / (len(edges) - 1)
    yield Chart(
        "time",
        f"{_join_title([COLUMNS[column] for column in panels])} over time",
        f"Time-weighted means over {len(edges) - 1} bins of {format_duration(width)}; the band "
        f"goes from the smallest to the largest value in the bin.{power}{share}"
        f"{first_seed_note(study.manifest)}",
        {
            "panels": list(panels.values()),
            "xs": to_numbers((edges[:-1] - begin) / size),
            "zoom": True,
            "step": "middle",
        },
    )


def draw_zoo(study: Study, variants: list[str]) -> Iterator[Chart]:
    """A panel for each of `ZOO_COLUMNS`, after each trained model, of the first seed."""
    runs = list(study.runs("models", first_seed=True))
    if not runs:
        return
    times = {run.variant: to_floats(run.rows["time_s"]) for run in runs}
    begin = min(float(time[0]) for time in times.values())
    time_unit, time_size = choose_time_unit(max(float(t[-1]) for t in times.values()) - begin)
    panels: list[Panel] = []
    for column, name, units in ZOO_COLUMNS:
        values = {run.variant: to_floats(run.rows[column]) for run in runs}
        if column == "saved_gpu_s":
            values = {variant: np.cumsum(saved) for variant, saved in values.items()}
        if all(np.isnan(series).all() for series in values.values()):
            continue
        unit, size = choose_unit(
            (float(np.abs(series).max()) for series in values.values() if len(series)), units
        )
        lines: list[Line] = []
        for variant, series in values.items():
            rows = spaced_indices(len(series), min(500, points_per_line(variants)))
            x = to_numbers((times[variant][rows] - begin) / time_size)
            y = to_numbers(series[rows] / size)
            lines.append({"v": variants.index(variant), "x": x, "y": y, "step": "end"})
        time_axis = data_axis(f"time since the first model, {time_unit}")
        panels.append({"x": time_axis, "y": {"name": label_axis(name, unit)}, "lines": lines})
    yield Chart(
        "zoo",
        "Warm starts: time saved, and the zoo",
        "GPU time of training that parents saved, summed up (modelled unless the training was "
        "real), the number of models in the zoo, and their size; after each trained model."
        f"{first_seed_note(study.manifest)}",
        {"panels": panels, "zoom": True},
    )


def _panel(column: str, by_variant: Mapping[int, Bins], gpus: int | None, x: Axis) -> Panel | None:
    """The panel of a column; None without values, or where no job ever waits."""
    peaks = [float(np.nanmax(bins.high)) for bins in by_variant.values() if has_values(bins.high)]
    if not peaks or (column == "jobs_waiting" and not max(peaks)):
        return None
    y: Axis = {"name": COLUMNS[column], "min": 0}
    size = 1.0
    if column == "power_w":
        unit, size = choose_unit(peaks, POWER_UNITS)
        y["name"] = f"power, {unit}"
    elif column == "gpus_busy" and gpus:
        size = float(gpus)
        y |= {"percent": True, "max": 1}
    lines: list[Line] = [
        {
            "v": v,
            "y": to_numbers(bins.mean / size),
            "low": to_numbers(bins.low / size),
            "high": to_numbers(bins.high / size),
        }
        for v, bins in by_variant.items()
    ]
    return {"x": x, "y": y, "lines": lines}


def _join_title(names: list[str]) -> str:
    """Names joined as a title, as `Power, GPUs in use and waiting jobs`."""
    joined = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    return joined[0].upper() + joined[1:]


def cluster_gpus(cluster: Json) -> int | None:
    """Number of GPUs of a scenario's cluster; None if a trace defines it."""
    if isinstance(cluster.get("nodes"), list):
        return sum(int(nodes["count"]) * int(nodes["gpus"]) for nodes in cluster["nodes"])
    gpus = cluster.get("gpus")
    return gpus if isinstance(gpus, int) else None


def format_duration(seconds: float) -> str:
    """A time in the unit that suits it."""
    unit, size = choose_unit([seconds], (("days", 86400.0), *TIMES))
    return f"{seconds / size:.3g} {unit}"
