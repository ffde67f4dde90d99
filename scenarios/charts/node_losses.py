"""Chart of nodes over time: how many are up, and how many are lost at each moment."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from wattkeeper.policies.arrays import Floats
from wattkeeper.scenarios.analysis.lost_work import find_losing
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.charts.chart import (
    Axis,
    Chart,
    Line,
    Panel,
    choose_time_unit,
    data_axis,
    first_seed_note,
    points_per_line,
    to_numbers,
)
from wattkeeper.scenarios.charts.downsample import Bins, bin_steps
from wattkeeper.scenarios.charts.node_courses import NodeCourse, read_courses
from wattkeeper.scenarios.charts.over_time import format_duration
from wattkeeper.scenarios.spec.wording import count

LISTED: Final = 3
"""Variants that the name of a line lists."""

DESCRIBED: Final = 8
"""Lines that the caption describes."""


class Drawn(NamedTuple):
    """Lines and marks of all courses over common times.

    Attributes:
        time_s: Moments, or begins of bins, s, ascending, shape (times,).
        levels: Of each course, number of nodes that are up (or down) from each moment on, or in
            each bin; NaN after its end.
        losses: Of each course, nodes that are lost at each moment, or in each bin.
        width_s: Width of the bins, s; 0: all moments are drawn.
    """

    time_s: Floats
    levels: list[Bins]
    losses: list[Floats]
    width_s: float


def draw_nodes(study: Study, variants: list[str]) -> Iterator[Chart]:
    """Nodes that are up, and nodes that are lost, of the first seed."""
    losing = find_losing(study)
    begin_s, courses = read_courses(study, losing) if losing else (0.0, [])
    end_s = max((course.end_s for course in courses), default=0.0)
    if end_s <= begin_s:
        return
    names = [_name_course(course, variants, losing) for course in courses]
    merged = tuple(name for name in names if name not in variants)
    positions = [[*variants, *merged].index(name) for name in names]
    drawn = _reduce(courses, begin_s, end_s, points_per_line(names))
    unit, size = choose_time_unit(end_s - begin_s)
    times = (drawn.time_s - begin_s) / size
    state = "down" if any(course.nodes is None for course in courses) else "up"
    x = data_axis(f"time since the first submission, {unit}")
    panels = [
        _level_panel(drawn, positions, times, x, state),
        _loss_panel(drawn, positions, times, x),
    ]
    caption = _describe(drawn, courses, names, begin_s, state) + _name_lossless(variants, losing)
    yield Chart(
        "nodes",
        "Nodes over time",
        caption + first_seed_note(study.manifest),
        {"panels": panels, "zoom": True, "step": "end"},
        merged,
    )


def _reduce(courses: Sequence[NodeCourse], begin_s: float, end_s: float, most: int) -> Drawn:
    """All moments at which something changes; bins, if they are more than `most`."""
    ends = [course.end_s for course in courses]
    changes = [course.time_s[course.step != 0] for course in courses]
    moments = np.unique(np.concatenate([[begin_s], ends, *changes]))
    moments = moments[moments >= begin_s]
    if len(moments) <= most:
        levels: list[Bins] = []
        losses: list[Floats] = []
        for course in courses:
            level = np.where(moments <= course.end_s, course.levels(moments), np.nan)
            levels.append(Bins(level, level, level))
            lost = _times_of_losses(course, begin_s)
            at = np.searchsorted(moments, lost)
            losses.append(np.bincount(at, minlength=len(moments)).astype(np.float64))
        return Drawn(moments, levels, losses, 0.0)
    edges = np.linspace(begin_s, end_s, most + 1)
    return Drawn(
        edges[:-1],
        [_bin_levels(course, begin_s, edges) for course in courses],
        [_bin_losses(course, begin_s, edges) for course in courses],
        float(edges[1] - edges[0]),
    )


def _bin_levels(course: NodeCourse, begin_s: float, edges: Floats) -> Bins:
    inside = course.time_s[course.time_s >= begin_s]
    times = np.unique(np.concatenate([[begin_s], inside, [course.end_s]]))
    return bin_steps(times, course.levels(times), edges)


def _bin_losses(course: NodeCourse, begin_s: float, edges: Floats) -> Floats:
    counts = np.histogram(_times_of_losses(course, begin_s), edges)[0]
    return np.where(edges[:-1] < course.end_s, counts, np.nan)


def _times_of_losses(course: NodeCourse, begin_s: float) -> Floats:
    return course.time_s[(course.is_loss > 0) & (course.time_s >= begin_s)]


def _level_panel(
    drawn: Drawn, positions: Sequence[int], times: Floats, x: Axis, state: str
) -> Panel:
    """Nodes that are up, or down."""
    lines: list[Line] = []
    for v, levels in zip(positions, drawn.levels, strict=True):
        lines.append({"v": v, "y": to_numbers(levels.mean)})
        if drawn.width_s:
            lines[-1] |= {"low": to_numbers(levels.low), "high": to_numbers(levels.high)}
    return {"x": x, "y": {"name": f"nodes {state}"}, "xs": to_numbers(times), "lines": lines}


def _loss_panel(drawn: Drawn, positions: Sequence[int], times: Floats, x: Axis) -> Panel:
    """Nodes that are lost: a mark for each moment with any, or a line over bins."""
    courses = list(zip(positions, drawn.losses, strict=True))
    y: Axis = {"name": "nodes lost at once", "min": 0}
    lines: list[Line]
    if drawn.width_s:
        y["name"] = f"nodes lost in {format_duration(drawn.width_s)}"
        lines = [{"v": v, "y": to_numbers(losses)} for v, losses in courses]
    else:
        times = np.repeat(times, 2)
        lines = [{"v": v, "y": _separate(losses), "marked": True} for v, losses in courses]
    return {"x": x, "y": y, "xs": to_numbers(times), "lines": lines}


def _separate(losses: Floats) -> list[float | None]:
    """Numbers above 0, each followed by a gap, so that no line joins their marks."""
    return [y for lost in to_numbers(losses) for y in (lost or None, None)]


def _name_course(course: NodeCourse, variants: Sequence[str], losing: Sequence[str]) -> str:
    """The name of a line; one that is no variant's for a line of several."""
    names = course.variants
    if len(names) == 1:
        return names[0]
    text = ", ".join(names[:LISTED]) + f" and {len(names) - LISTED} more" * (len(names) > LISTED)
    if len(names) == len(losing):
        text = "all variants" if len(losing) == len(variants) else "all variants with losses"
    return text + " " * (text in variants)


def _name_lossless(variants: Sequence[str], losing: Sequence[str]) -> str:
    """Says which variants lose no nodes, and are not drawn."""
    others = [name for name in variants if name not in losing]
    listed = ", ".join(map(repr, others[:DESCRIBED])) + ", ..." * (len(others) > DESCRIBED)
    return f" No node is lost in {listed}." if others else ""


def _describe(
    drawn: Drawn, courses: Sequence[NodeCourse], names: Sequence[str], begin_s: float, state: str
) -> str:
    """What is drawn, and in figures what happens in each line."""
    if drawn.width_s:
        text = (
            f"Above: time-weighted means over {len(drawn.time_s)} bins of "
            f"{format_duration(drawn.width_s)}; the band goes from the smallest to the largest "
            "number in the bin. Below: how many nodes went down in each bin."
        )
    else:
        text = (
            f"Above: nodes that are {state}, which change where nodes go down and come back. "
            "Below, a mark for each moment with losses: how many nodes went down at once."
        )
    described = list(zip(courses, names, strict=True))[:DESCRIBED]
    return text + "".join(
        f" In {name}: {_count_losses(course, begin_s)}." for course, name in described
    )


def _count_losses(course: NodeCourse, begin_s: float) -> str:
    """Losses, moments, and the fewest nodes that are up, in words."""
    lost = _times_of_losses(course, begin_s)
    at_once = np.unique(lost, return_counts=True)[1]
    inside = course.time_s[course.time_s >= begin_s]
    levels = course.levels(np.append(begin_s, inside))
    if course.nodes is None:
        least = f"at most {levels.max():,.0f} nodes were down"
    else:
        least = f"at least {levels.min():,.0f} of {count(course.nodes, 'node')} were up"
    if not len(lost):
        return f"no node went down; {least}"
    times = "once" if len(lost) == 1 else f"{len(lost):,} times"
    return (
        f"nodes went down {times} at {count(len(at_once), 'moment')}, at most "
        f"{at_once.max():,} at once; {least}"
    )
