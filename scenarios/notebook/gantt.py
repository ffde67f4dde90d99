"""The plot of a run's jobs on its GPUs over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow.compute as pc

from wattkeeper.policies.errors import InputError
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.charts.chart import choose_time_unit
from wattkeeper.scenarios.notebook.colours import variant_colours
from wattkeeper.scenarios.notebook.drawing import choose_axes, literal
from wattkeeper.scenarios.timeline.lanes import GpuHold, Lane, assign_lanes
from wattkeeper.scenarios.timeline.run_tables import read_holds, read_run, select_run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_BARS: Final = 100_000
"""Bars of a plot, one for each GPU that a job held; more take minutes."""

MOST_LABELS: Final = 24
"""GPUs, or nodes, that have labels of their own."""

HEIGHT: Final = 0.86
"""Of a bar; lanes have height 1."""

EDGE: Final = 0.3
"""Width of the edges between jobs, points."""

EDGED: Final = 0.004
"""Share of the whole time from which a bar has edges; they would hide a narrower one."""

Box = list[tuple[float, float]]


def draw_gantt(study: Study, variant: str | None, seed: int | None, ax: Axes | None) -> Axes:
    """Draw a bar for each GPU that a job held; see `StudyPlots.gantt`.

    Colours are those of workloads, or tell neighbouring jobs apart where jobs have none.
    """
    axes = choose_axes(ax)
    name, number = select_run(study, variant, seed)
    jobs = read_run(study, "jobs", ("job_id", "attempt", "workload", "finish_time_s"), name, number)
    columns = ("time_s", "point", "job_id", "attempt", "chose")
    decisions = read_run(study, "decisions", columns, name, number)
    if not len(jobs) or not len(decisions):
        raise InputError(f"there is nothing to plot: {name} with seed {number} has no jobs")
    begin_s = pc.min(decisions["time_s"]).as_py()
    try:
        holds = read_holds(study, jobs, decisions, begin_s)
    except LookupError as error:
        raise InputError(
            f"jobs and decisions of {name} with seed {number} do not fit together "
            f"({error} is in one of them only)"
        ) from None
    lanes = assign_lanes(holds)
    bars = sum(map(len, lanes))
    if bars > MOST_BARS:
        raise InputError(
            f"{name} with seed {number} has {bars:,} bars, one for each GPU of a job; a plot has "
            f"at most {MOST_BARS:,}: use `wattkeeper timeline`, or run fewer jobs"
        )
    workloads = dict(zip(jobs["job_id"].to_pylist(), jobs["workload"].to_pylist(), strict=True))
    _draw_bars(axes, holds, lanes, workloads)
    axes.set_title(literal(f"Jobs on GPUs: {name}, seed {number}"))
    return axes


def _draw_bars(
    axes: Axes,
    holds: Sequence[GpuHold],
    lanes: Sequence[Sequence[Lane]],
    workloads: Mapping[str, str | None],
) -> None:
    from matplotlib.collections import PolyCollection

    unit, size = choose_time_unit(max(hold.end for hold in holds) / 1e9)
    rows = {lane: row for row, lane in enumerate(sorted({lane for own in lanes for lane in own}))}
    known = sorted({name for name in workloads.values() if name is not None})
    boxes: dict[tuple[str | None, int], list[Box]] = {}
    colours = variant_colours()[1:]
    for number, (hold, own) in enumerate(zip(holds, lanes, strict=True)):
        workload = workloads[hold.job]
        index = number if workload is None else known.index(workload)
        x = hold.begin / 1e9 / size, hold.end / 1e9 / size
        boxes.setdefault((workload, index % len(colours)), []).extend(
            _box(x, rows[lane]) for lane in own
        )
    widest = max(hold.end for hold in holds) / 1e9 / size
    for (workload, index), own_boxes in boxes.items():
        bars = PolyCollection(own_boxes, label=literal(workload or ""), facecolors=colours[index])
        bars.set_edgecolor("white")
        bars.set_linewidth([EDGE * (box[1][0] - box[0][0] > EDGED * widest) for box in own_boxes])
        axes.add_collection(bars)
    axes.autoscale_view()
    axes.set(
        xlabel=f"time since the first decision, {unit}",
        xlim=(0, None),
        ylim=(len(rows) - 0.5, -0.5),
    )
    _label_lanes(axes, rows)
    if known:
        axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))


def _box(x: tuple[float, float], row: int) -> Box:
    low, high = row - HEIGHT / 2, row + HEIGHT / 2
    return [(x[0], low), (x[1], low), (x[1], high), (x[0], high)]


def _label_lanes(axes: Axes, rows: Mapping[Lane, int]) -> None:
    """Label each GPU, or the first one of each node, or only the axis."""
    nodes: dict[int, int] = {}
    for (node, _, _), row in rows.items():
        nodes.setdefault(node, row)
    if len(rows) <= MOST_LABELS:
        axes.set_yticks([*rows.values()], [f"node {node} GPU {gpu}" for node, gpu, _ in rows])
    elif len(nodes) <= MOST_LABELS:
        axes.set_yticks([*nodes.values()], [f"node {node}" for node in nodes])
    else:
        axes.set(yticks=[], ylabel=f"{len(rows):,} GPUs on {len(nodes):,} nodes")
