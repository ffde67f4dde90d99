"""What happens to the nodes of variants over time, those that meet the same taken together."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from wattkeeper.policies.arrays import Floats, Ints
from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.resolved.overrides import clusters_by_variant
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.traces.arrow import to_floats

STEPS = {"absent": -1, "down": -1, "up": 1}
"""Change of the number of nodes that are up, by event."""


class NodeCourse(NamedTuple):
    """What happens to the nodes of variants, in the order of time.

    Attributes:
        variants: Those that meet the same.
        nodes: Nodes of the cluster; None if a trace defines those of any variant.
        end_s: Last end of a job of any of them, s.
        time_s: Times of the events, s, shape (events,).
        node: Number of the node, shape (events,).
        step: Change of the number of nodes that are up, shape (events,); 0 for a notice.
        is_loss: 1 where a node goes down, shape (events,); not where it is absent at first.
    """

    variants: tuple[str, ...]
    nodes: int | None
    end_s: float
    time_s: Floats
    node: Ints
    step: Ints
    is_loss: Ints

    def agrees(self, other: Self) -> bool:
        """Whether both are the same for as long as both run."""
        until_s = min(self.end_s, other.end_s)
        own, its = (int(np.searchsorted(one.time_s, until_s)) for one in (self, other))
        return self.nodes == other.nodes and all(
            np.array_equal(mine[:own], theirs[:its])
            for mine, theirs in zip(self[3:], other[3:], strict=True)
        )

    def until(self, end_s: float) -> Self:
        """What happens until a time, s."""
        events = int(np.searchsorted(self.time_s, end_s, "right"))
        return self._replace(
            time_s=self.time_s[:events],
            node=self.node[:events],
            step=self.step[:events],
            is_loss=self.is_loss[:events],
        )

    def levels(self, times_s: Floats) -> Floats:
        """Nodes that are up from each of the times on; that are down, if `nodes` is None."""
        after = np.searchsorted(self.time_s, times_s, "right")
        change = np.concatenate([[0], np.cumsum(self.step)])[after].astype(np.float64)
        return -change if self.nodes is None else self.nodes + change


def read_courses(study: Study, losing: Sequence[str]) -> tuple[float, list[NodeCourse]]:
    """The first submission (s), and the courses of the variants whose nodes are lost.

    Of the first seed; in the order of the scenario's variants, without what happens after the last
    end.
    """
    spans = {
        run.variant: to_floats(run.rows["time_s"])[[0, -1]]
        for run in study.runs("timeline", ("time_s",), first_seed=True)
    }
    begin_s = min((float(span[0]) for span in spans.values()), default=0.0)
    clusters = clusters_by_variant(study.manifest["scenario"])
    seed = study.manifest["seeds"][0]
    rows = {
        run.variant: run.rows
        for run in study.runs("nodes", ("time_s", "node", "event"))
        if run.seed == seed
    }
    sizes = {variant: count_nodes(clusters[variant]) for variant in losing}
    is_known = None not in sizes.values()
    courses = []
    for variant in losing:
        if variant not in spans:
            continue
        columns = rows.get(variant, {})
        events = columns["event"].to_pylist() if columns else []
        course = NodeCourse(
            variants=(variant,),
            nodes=sizes[variant] if is_known else None,
            end_s=float(spans[variant][1]),
            time_s=to_floats(columns["time_s"]) if columns else np.empty(0),
            node=np.array(columns["node"] if columns else [], dtype=np.int64),
            step=np.array([STEPS.get(event, 0) for event in events], dtype=np.int64),
            is_loss=np.array([event == "down" for event in events], dtype=np.int64),
        )
        courses.append(course.until(course.end_s))
    return begin_s, _merge(courses)


def _merge(courses: Sequence[NodeCourse]) -> list[NodeCourse]:
    """Take courses together that agree with the longest of them."""
    merged: list[NodeCourse] = []
    for course in sorted(courses, key=lambda each: -each.end_s):
        index = next((k for k, one in enumerate(merged) if one.agrees(course)), None)
        if index is None:
            merged.append(course)
        else:
            longest = merged[index]
            merged[index] = longest._replace(variants=longest.variants + course.variants)
    order = [course.variants[0] for course in courses]
    sorted_names = (
        one._replace(variants=tuple(sorted(one.variants, key=order.index))) for one in merged
    )
    return sorted(sorted_names, key=lambda one: order.index(one.variants[0]))


def count_nodes(cluster: Json) -> int | None:
    """Number of nodes of a scenario's cluster; None if a trace defines it."""
    nodes = cluster.get("nodes")
    if isinstance(nodes, list):
        return sum(int(group["count"]) for group in nodes)
    if nodes is not None or "gpus" not in cluster:
        return None
    gpus = int(cluster["gpus"])
    return gpus // int(cluster.get("gpus_per_node") or gpus)
