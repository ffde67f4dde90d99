"""Chart of the nodes that elastic jobs hold over time, and of the samples that they commit."""

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from wattkeeper.policies.arrays import Floats
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.analysis.vocabulary import choose_unit
from wattkeeper.scenarios.charts.chart import (
    Chart,
    Line,
    Panel,
    choose_time_unit,
    data_axis,
    first_seed_note,
    label_axis,
    points_per_line,
    to_numbers,
)
from wattkeeper.scenarios.charts.downsample import bin_steps, spaced_indices
from wattkeeper.traces.arrow import to_floats

COLUMNS: Final = ("time_s", "until_s", "moment", "nodes", "samples")

COUNTS: Final = (("billions", 1e9), ("millions", 1e6), ("thousands", 1e3), ("", 1.0))

Rows = Mapping[str, pa.Array]


def draw_elastic_nodes(study: Study, variants: list[str]) -> Iterator[Chart]:
    """Nodes that elastic jobs hold, and samples that they committed, of the first seed."""
    runs = {
        variants.index(run.variant): run.rows
        for run in study.runs("shapes", COLUMNS, first_seed=True)
    }
    ends = [to_floats(rows[name]) for rows in runs.values() for name in ("time_s", "until_s")]
    if not ends:
        return
    begin_s, end_s = float(np.concatenate(ends).min()), float(np.concatenate(ends).max())
    unit, size = choose_time_unit(end_s - begin_s)
    most = points_per_line(variants)
    is_binned = max(len(rows["time_s"]) for rows in runs.values()) > most // 2
    edges_s = np.linspace(begin_s, end_s, most + 1)

    def x(times_s: Floats) -> list[float | None]:
        return to_numbers((times_s - begin_s) / size)

    held: list[Line] = []
    for v, rows in runs.items():
        times_s, nodes = _held_nodes(rows)
        if is_binned:
            bins = bin_steps(times_s, nodes, edges_s)
            held.append(
                {
                    "v": v,
                    "x": x(edges_s[:-1]),
                    "y": to_numbers(bins.mean),
                    "low": to_numbers(bins.low),
                    "high": to_numbers(bins.high),
                    "step": "end",
                }
            )
            continue
        held.append({"v": v, "x": x(times_s), "y": to_numbers(nodes), "step": "end"})
        lost_s = _times_of_losses(rows)
        marks = nodes[np.searchsorted(times_s, lost_s)]
        if len(lost_s):
            held.append(
                {"v": v, "x": x(np.repeat(lost_s, 2)), "y": _separate(marks), "marked": True}
            )
    sums = {v: _committed(rows, begin_s, most) for v, rows in runs.items()}
    of_samples, samples = choose_unit((float(total[-1]) for _, total in sums.values()), COUNTS)
    committed: list[Line] = [
        {"v": v, "x": x(times_s), "y": to_numbers(total / samples)}
        for v, (times_s, total) in sums.items()
    ]
    axis = data_axis(f"time since the first pause, {unit}")
    panels: list[Panel] = [
        {"x": axis, "y": {"name": "nodes that elastic jobs hold"}, "lines": held},
        {
            "x": axis,
            "y": {"name": label_axis("committed samples", of_samples), "min": 0},
            "lines": committed,
        },
    ]
    marked = (
        f"time-weighted means over {most} bins, and the fewest and the most in each"
        if is_binned
        else "with a mark where a job goes on after a loss"
    )
    yield Chart(
        "elastic-nodes",
        "Nodes of elastic jobs over time",
        f"Above: nodes that all elastic jobs hold, {marked}. Below: samples that were committed "
        f"by the end of each shape; no loss undoes them.{first_seed_note(study.manifest)}",
        {"panels": panels, "zoom": True},
    )


def _held_nodes(rows: Rows) -> tuple[Floats, Floats]:
    """Times at which the number of nodes that jobs hold changes, s, and the number from then on.

    At the end, it is the one until then.
    """
    nodes = to_floats(rows["nodes"])
    at_s = np.concatenate([to_floats(rows["time_s"]), to_floats(rows["until_s"])])
    times_s, index = np.unique(at_s, return_inverse=True)
    held: Floats = np.cumsum(np.bincount(index, np.concatenate([nodes, -nodes])), dtype=np.float64)
    held[-1] = held[-2]
    return times_s, held


def _times_of_losses(rows: Rows) -> Floats:
    """When shapes were chosen after a loss, s."""
    is_lost = np.array([moment == "lost" for moment in rows["moment"].to_pylist()], dtype=np.bool_)
    return np.unique(to_floats(rows["time_s"])[is_lost])


def _separate(values: Floats) -> list[float | None]:
    """Numbers, each followed by a gap, so that no line joins their marks."""
    return [y for value in to_numbers(values) for y in (value, None)]


def _committed(rows: Rows, begin_s: float, most: int) -> tuple[Floats, Floats]:
    """Ends of shapes, s, and samples that all jobs committed by then; at most so many points."""
    ends_s, index = np.unique(to_floats(rows["until_s"]), return_inverse=True)
    total = np.cumsum(np.bincount(index, to_floats(rows["samples"])))
    times_s, sums = np.append(begin_s, ends_s), np.append(0.0, total)
    drawn = spaced_indices(len(times_s), most)
    return times_s[drawn], sums[drawn]
