"""The plot of a run's jobs on its GPUs over time."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow.compute as pc

from wattkeeper.policies.errors import InputError
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.charts.chart import choose_time_unit
from wattkeeper.scenarios.charts.downsample import spaced_indices
from wattkeeper.scenarios.notebook.colours import variant_colours
from wattkeeper.scenarios.notebook.frame import Frame, literal
from wattkeeper.scenarios.timeline.lanes import GpuHold, Lane, assign_lanes
from wattkeeper.scenarios.timeline.run_tables import read_holds, read_run, select_run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_BARS: Final = 20_000
"""Bars of a plot, one for each GPU that a job held, some seconds of drawing; of a run with more,
some nodes are drawn."""

MOST_LABELS: Final = 24
"""GPUs, or nodes, that have labels of their own."""

HEIGHT: Final = 0.86
"""Of a bar; lanes have height 1."""

EDGE: Final = 0.3
"""Width of the edges between jobs, points."""

EDGED: Final = 0.004
"""Share of the whole time from which a bar has edges; they would hide a narrower one."""

Box = list[tuple[float, float]]


class _Bars(NamedTuple):
    """The bars that are drawn.

    Attributes:
        holds: Holds of GPUs.
        lanes: The lanes of each that are drawn; those of a hold on other nodes are empty.
        nodes: Number of nodes of the run.
        end: Up to which time they are drawn, ns.
        whole: Whether that is the end of the run.
    """

    holds: Sequence[GpuHold]
    lanes: Sequence[Sequence[Lane]]
    nodes: int
    end: int
    whole: bool = True


def draw_gantt(study: Study, variant: str | None, seed: int | None, frame: Frame) -> Axes:
    """Draw a bar for each GPU that a job held; see `StudyPlots.gantt`.

    Colours are those of workloads, or tell neighbouring jobs apart where jobs have none.
    """
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
    workloads = dict(zip(jobs["job_id"].to_pylist(), jobs["workload"].to_pylist(), strict=True))
    with frame.drawn(f"Jobs on GPUs: {name}, seed {number}") as axes:
        _draw_bars(axes, _sample(holds, assign_lanes(holds)), workloads)
    return axes


def _sample(holds: Sequence[GpuHold], lanes: Sequence[Sequence[Lane]]) -> _Bars:
    """As many evenly spaced nodes as have at most `MOST_BARS` bars, but one at least.

    A single node with more is drawn until they are reached.
    """
    sizes = Counter(node for own in lanes for node, _, _ in own)
    nodes = sorted(sizes)
    drawn = nodes
    while len(drawn) > 1 and sum(map(sizes.__getitem__, drawn)) > MOST_BARS:
        drawn = [nodes[index] for index in spaced_indices(len(nodes), len(drawn) - 1)]
    chosen = frozenset(drawn)
    lanes = [[lane for lane in own if lane[0] in chosen] for own in lanes]
    totals = list(accumulate(map(len, lanes)))
    if totals[-1] <= MOST_BARS:
        return _Bars(holds, lanes, len(nodes), max(hold.end for hold in holds))
    first = bisect_right(totals, MOST_BARS)
    return _Bars(holds[:first], lanes[:first], len(nodes), holds[first].begin, whole=False)


def _draw_bars(axes: Axes, bars: _Bars, workloads: Mapping[str, str | None]) -> None:
    from matplotlib.collections import PolyCollection

    unit, size = choose_time_unit(bars.end / 1e9)
    drawn = sorted({lane for own in bars.lanes for lane in own})
    rows = {lane: row for row, lane in enumerate(drawn)}
    known = sorted({name for name in workloads.values() if name is not None})
    boxes: dict[tuple[str | None, int], list[Box]] = {}
    colours = variant_colours()[1:]
    widest = bars.end / 1e9 / size
    for number, (hold, own) in enumerate(zip(bars.holds, bars.lanes, strict=True)):
        workload = workloads[hold.job]
        index = number if workload is None else known.index(workload)
        x = hold.begin / 1e9 / size, min(hold.end, bars.end) / 1e9 / size
        boxes.setdefault((workload, index % len(colours)), []).extend(
            _box(x, rows[lane]) for lane in own
        )
    for (workload, index), own_boxes in boxes.items():
        polygons = PolyCollection(
            own_boxes, label=literal(workload or ""), facecolors=colours[index]
        )
        polygons.set_edgecolor("white")
        edges = [EDGE * (box[1][0] - box[0][0] > EDGED * widest) for box in own_boxes]
        polygons.set_linewidth(edges)
        axes.add_collection(polygons)
    goes_on = "" if bars.whole else " (the run goes on)"
    axes.set(
        xlabel=f"time since the first decision, {unit}{goes_on}",
        xlim=(0, widest),
        ylim=(len(rows) - 0.5, -0.5),
    )
    _label_lanes(axes, rows, bars.nodes)


def _box(x: tuple[float, float], row: int) -> Box:
    low, high = row - HEIGHT / 2, row + HEIGHT / 2
    return [(x[0], low), (x[1], low), (x[1], high), (x[0], high)]


def _label_lanes(axes: Axes, rows: Mapping[Lane, int], nodes: int) -> None:
    """Label each GPU, or the first one of each node; else, and of a sample of nodes, the axis."""
    first: dict[int, int] = {}
    for (node, _, _), row in rows.items():
        first.setdefault(node, row)
    if len(rows) <= MOST_LABELS:
        axes.set_yticks([*rows.values()], [f"node {node} GPU {gpu}" for node, gpu, _ in rows])
    elif len(first) <= MOST_LABELS:
        axes.set_yticks([*first.values()], [f"node {node}" for node in first])
    else:
        axes.set(yticks=[], ylabel=f"{len(rows):,} GPUs on {len(first):,} nodes")
    if len(first) < nodes:
        axes.set_ylabel(f"a sample: {len(first):,} of {nodes:,} nodes")
