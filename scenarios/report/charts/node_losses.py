"""Chart of nodes over time: how many are up, and how many are lost at each moment."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from wattkeeper.policies.arrays import Floats
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.report.charts.chart import (
    Axis,
    Chart,
    Line,
    choose_time_unit,
    data_axis,
    first_seed_note,
    points_per_line,
    to_numbers,
)
from wattkeeper.scenarios.report.charts.downsample import Bins, bin_steps
from wattkeeper.scenarios.report.charts.node_courses import NodeCourse, read_courses
from wattkeeper.scenarios.report.charts.over_time import format_duration
from wattkeeper.scenarios.report.lost_work import find_losing
from wattkeeper.scenarios.spec.wording import count

LISTED: Final = 3
"""Variants that the name of a line lists."""

DESCRIBED: Final = 8
"""Lines that the caption describes."""


class Drawn(NamedTuple):
    """Lines and marks of all courses over common times.

    Attributes:
        time_s: Times, s, ascending, shape (times,).
        levels: Of each course, number of nodes that are up (or down) from each time on, or in each
            bin; NaN after its end.
        losses: Of each course, nodes that are lost at each time, or in each bin.
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
    x = data_axis(f"time since the first submission, {unit}")
    state = "down" if any(course.nodes is None for course in courses) else "up"
    lost: Axis = {"name": "nodes lost at once", "min": 0}
    if drawn.width_s:
        lost["name"] = f"nodes lost in {format_duration(drawn.width_s)}"
    yield Chart(
        "nodes",
        "Nodes over time",
        _describe(drawn, courses, names, begin_s, state)
        + _name_lossless(variants, losing) + first_seed_note(study.manifest),
        {"panels": [
            {"x": x, "y": {"name": f"nodes {state}"}, "xs": to_numbers(times),
             "lines": [_line(v, levels, drawn) for v, levels in
                       zip(positions, drawn.levels, strict=True)]},
            {"x": x, "y": lost, "xs": to_numbers(np.repeat(times, 3)),
             "lines": [{"v": v, "y": _stems(losses)} for v, losses in
                       zip(positions, drawn.losses, strict=True)]},
        ], "zoom": True},
        merged,
    )  # fmt: skip


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
        (edges[:-1] + edges[1:]) / 2,
        [_bin_levels(course, begin_s, edges) for course in courses],
        [
            np.histogram(_times_of_losses(course, begin_s), edges)[0].astype(np.float64)
            for course in courses
        ],
        float(edges[1] - edges[0]),
    )


def _bin_levels(course: NodeCourse, begin_s: float, edges: Floats) -> Bins:
    inside = course.time_s[course.time_s >= begin_s]
    times = np.unique(np.concatenate([[begin_s], inside, [course.end_s]]))
    return bin_steps(times, course.levels(times), edges)


def _times_of_losses(course: NodeCourse, begin_s: float) -> Floats:
    return course.time_s[(course.is_loss > 0) & (course.time_s >= begin_s)]


def _line(v: int, levels: Bins, drawn: Drawn) -> Line:
    line: Line = {"v": v, "y": to_numbers(levels.mean), "step": "end"}
    if drawn.width_s:
        line |= {"low": to_numbers(levels.low), "high": to_numbers(levels.high), "step": "middle"}
    return line


def _stems(losses: Floats) -> list[float | None]:
    """A stem for each number above 0: its top, its foot, and a gap."""
    stems: list[float | None] = []
    for lost in to_numbers(losses):
        stems += [lost, 0.0, None] if lost else [None, None, None]
    return stems


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
            "number in the bin. Below, a stem for each bin: how many nodes went down in it."
        )
    else:
        text = (
            f"Above: nodes that are {state}, which change where nodes go down and come back. "
            "Below, a stem for each moment: how many nodes went down at once."
        )
    described = list(zip(courses, names, strict=True))[:DESCRIBED]
    return text + "".join(
        f" {name[0].upper()}{name[1:]}: {_count_losses(course, begin_s)}."
        if len(course.variants) > 1
        else f" {name}: {_count_losses(course, begin_s)}."
        for course, name in described
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
