"""The chart of a zoo: GPU time saved, number of models, and size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.analysis.vocabulary import SIZES, TIMES
from wattkeeper.scenarios.report.charts.chart import (
    Chart,
    Line,
    Panel,
    choose_time_unit,
    choose_unit,
    data_axis,
    first_seed_note,
    label_axis,
    points_per_line,
    to_numbers,
)
from wattkeeper.scenarios.report.charts.columns import split_runs, to_floats
from wattkeeper.scenarios.report.charts.downsample import spaced_indices

COLUMNS = (
    ("saved_gpu_s", "GPU time saved", TIMES),
    ("zoo_models", "models in the zoo", (("", 1.0),)),
    ("zoo_bytes", "size of the zoo", SIZES),
)


def draw_zoo(study: Study, variants: list[str]) -> Iterator[Chart]:
    """A panel for each of `COLUMNS`, after each trained model, of the first seed."""
    runs = list(split_runs(study.table("models"), first_seed=True))
    if not runs:
        return
    times = {run.variant: to_floats(run.rows["time_s"]) for run in runs}
    begin = min(float(time[0]) for time in times.values())
    time_unit, time_size = choose_time_unit(max(float(t[-1]) for t in times.values()) - begin)
    panels: list[Panel] = []
    for column, name, units in COLUMNS:
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
