"""Nodes that become slow for a while, drawn at random beside losses."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from heapq import merge
from typing import Annotated, Final, Self

import numpy as np
from pydantic import Field, model_validator

from wattkeeper.traces.generate.synthetic_specs import Spec
from wattkeeper.traces.node_events import NodeEvent

DAY_S: Final = 86400.0

Factor = Annotated[float, Field(ge=1, le=1000)]


class Degradations(Spec):
    """Nodes that become slow for a while."""

    rate: Annotated[float, Field(gt=0, le=1e7)]
    """How often a node becomes slow, per 1,000 days for which it is up."""
    length_s: Annotated[float, Field(gt=0, le=1e9)] = 3600.0
    """Time for which it is slow, s: median of a lognormal distribution."""
    length_sigma: Annotated[float, Field(ge=0, le=5)] = 1.0
    """Standard deviation of its logarithm."""
    factor: tuple[Factor, Factor] = (1.1, 2.0)
    """Least and largest time of an iteration over that at full pace; uniform between them."""

    @model_validator(mode="after")
    def _is_ascending(self) -> Self:
        least, most = self.factor
        if not least <= most or most == 1:
            raise ValueError(f"factor: {least:g} to {most:g} is no range that ends above 1")
        return self


def draw_degradations(
    settings: Degradations, nodes: int, rng: np.random.Generator
) -> Iterator[NodeEvent]:
    """Degradations of nodes `0` to `nodes` - 1 in order, without an end: a Poisson process.

    At the start no node is slow. One that is slow when it becomes slow anew is as slow as then.
    """
    least, most = settings.factor
    gap_s = 1000 * DAY_S / settings.rate / nodes
    now_s = 0.0
    while True:
        now_s += float(rng.exponential(gap_s))
        node = int(rng.integers(nodes))
        factor = float(rng.uniform(least, most))
        length_s = settings.length_s * math.exp(
            settings.length_sigma * float(rng.standard_normal())
        )
        if factor > 1:
            yield NodeEvent(now_s, "degraded", str(node), repair_s=length_s, factor=factor)


def merge_degradations(
    losses: Iterable[NodeEvent], degradations: Iterable[NodeEvent]
) -> Iterator[NodeEvent]:
    """Both in order of time, without degradations of nodes that are down."""
    down = set[str]()
    for event in merge(losses, degradations, key=lambda event: event.time_s):
        if event.event == "down":
            down.add(event.node)
        elif event.event == "up":
            down.discard(event.node)
        if event.event != "degraded" or event.node not in down:
            yield event
