"""Losses of nodes drawn at random: how often, how many at once, for how long, and announced or not.

Nodes that become slow (`wattkeeper.traces.generate.degradations`) are drawn from a stream of their
own: losses are the same with them and without.

Each node has a renewal process of its own: the time until it fails next is Weibull distributed over
the time for which it is up, and starts anew when it is back. With a shape below 1, a node that has
been up for long is less likely to fail than one that just came back (Schroeder and Gibson, DSN
2006). At time 0 all nodes have been up for long (the stationary process), so that the rate holds
from the start.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal, NamedTuple

import numpy as np
from pydantic import Field

from wattkeeper.policies.errors import InputError
from wattkeeper.traces.generate.degradations import (
    DAY_S,
    Degradations,
    draw_degradations,
    merge_degradations,
)
from wattkeeper.traces.generate.synthetic_specs import Spec
from wattkeeper.traces.node_events import NodeEvent, events_table
from wattkeeper.traces.trace import Trace

Preset = Literal["llama3", "rsc-1", "rsc-2"]

RATES: Final[dict[Preset, float]] = {"llama3": 419 / 54 / 2048 * 1000, "rsc-1": 6.5, "rsc-2": 2.34}
"""Losses per 1,000 node-days. Llama 3 405B: 419 unexpected interruptions in 54 days on 16,384 GPUs,
nodes of 8 (Llama Team, 2024, table 5); two research clusters (Kokolis et al., HPCA 2025)."""

Share = Annotated[float, Field(ge=0, le=1)]


class Together(Spec):
    """Losses that take several nodes of a rack at once."""

    share: Share
    """Share of the failures that do."""
    nodes: Annotated[int, Field(ge=2, le=10_000)]
    """Nodes that such a failure takes, if so many of the rack are up."""
    rack: Annotated[int, Field(ge=2, le=10_000)]
    """Nodes of a rack."""


class Notice(Spec):
    """Losses that are announced."""

    share: Share
    """Share of the failures that are."""
    length_s: Annotated[float, Field(gt=0, le=1e7)]
    """Time from the notice to the loss, s: 120 on Amazon EC2, 30 on Google Cloud."""


class DrawnLosses(Spec):
    """Losses of nodes, drawn at random."""

    rate: Annotated[float, Field(gt=0, le=1e7)] | Preset
    """Losses per 1,000 days of a node that is up; or the name of a published rate."""
    shape: Annotated[float, Field(ge=0.2, le=1)] = 1.0
    """Shape of the Weibull distribution of the time until a node fails; 1: exponential."""
    away_s: Annotated[float, Field(gt=0, le=1e9)] = 3600.0
    """Time from a loss to the return, s: median of a lognormal distribution."""
    away_sigma: Annotated[float, Field(ge=0, le=5)] = 1.0
    """Standard deviation of its logarithm."""
    together: Together | None = None
    """Losses of several nodes of a rack; none if absent."""
    notice: Notice | None = None
    """Losses that are announced; none if absent."""
    degraded: Degradations | None = None
    """Nodes that become slow for a while; none do if absent."""

    @property
    def per_1000_node_days(self) -> float:
        """The rate as a number."""
        return RATES[self.rate] if isinstance(self.rate, str) else self.rate


FAIL, ANNOUNCE, RETURN = range(3)


class _Due(NamedTuple):
    """What happens to a node next; sorted by time, then by order.

    Attributes:
        time_s: When.
        order: Of those of one time, the first that was drawn comes first.
        kind: `FAIL`, `ANNOUNCE` or `RETURN`.
        node: Which.
        life: How often the node had gone down when it was drawn: it holds for this life alone.
        fails_s: With an announcement: when the failure follows.
        mates: With a failure that was announced: nodes that fail with it.
    """

    time_s: float
    order: int
    kind: int
    node: int
    life: int
    fails_s: float = 0.0
    mates: tuple[int, ...] | None = None


class _Losses:
    """Nodes that fail and come back, in order of time."""

    def __init__(self, settings: DrawnLosses, nodes: int, rng: np.random.Generator) -> None:
        self._settings = settings
        self._rng = rng
        together = settings.together
        taken = 1.0 if together is None else 1 + together.share * (together.nodes - 1)
        mean_s = 1000 * DAY_S / settings.per_1000_node_days * taken
        self._scale_s = mean_s / math.gamma(1 + 1 / settings.shape)
        self._is_up = [True] * nodes
        self._lives = [0] * nodes
        self._due: list[_Due] = []
        self._drawn = 0
        for node in range(nodes):
            self._live(node, 0.0, self._first_s())

    def _first_s(self) -> float:
        """Time until a node fails that has been up for long: what is left of the interval."""
        shape = self._settings.shape
        interval_s = self._scale_s * float(self._rng.gamma(1 + 1 / shape) ** (1 / shape))
        return interval_s * float(self._rng.random())

    def _push(self, kind: int, time_s: float, node: int, *rest: Any) -> None:
        self._drawn += 1
        due = _Due(time_s, self._drawn, kind, node, self._lives[node], *rest)
        heapq.heappush(self._due, due)

    def _live(self, node: int, now_s: float, left_s: float) -> None:
        """Let a node fail after a while, and draw whether that is announced."""
        notice, fails_s = self._settings.notice, now_s + left_s
        if notice is not None and self._rng.random() < notice.share:
            self._push(ANNOUNCE, max(now_s, fails_s - notice.length_s), node, fails_s)
        else:
            self._push(FAIL, fails_s, node)

    def _mates(self, node: int) -> tuple[int, ...]:
        """Draw the nodes of the rack that fail with a node."""
        together = self._settings.together
        if together is None or self._rng.random() >= together.share:
            return ()
        first = node - node % together.rack
        rack = range(first, min(first + together.rack, len(self._is_up)))
        mates = [mate for mate in rack if mate != node and self._is_up[mate]]
        return tuple(self._rng.permutation(mates)[: together.nodes - 1].tolist()) if mates else ()

    def __iter__(self) -> Iterator[NodeEvent]:
        while True:
            due = heapq.heappop(self._due)
            if due.life == self._lives[due.node]:
                yield from self._happen(due)

    def _happen(self, due: _Due) -> Iterator[NodeEvent]:
        now_s, node = due.time_s, due.node
        if due.kind == RETURN:
            self._is_up[node] = True
            yield NodeEvent(now_s, "up", str(node))
            self._live(node, now_s, self._scale_s * float(self._rng.weibull(self._settings.shape)))
            return
        mates = self._mates(node) if due.mates is None else due.mates
        if due.kind == ANNOUNCE:
            for one in (node, *mates):
                yield NodeEvent(now_s, "notice", str(one), deadline_s=due.fails_s)
            self._push(FAIL, due.fails_s, node, 0.0, mates)
            return
        for one in (node, *mates):
            if self._is_up[one]:
                yield self._go_down(one, now_s, "rack" if mates else "node")

    def _go_down(self, node: int, now_s: float, cause: str) -> NodeEvent:
        self._is_up[node] = False
        self._lives[node] += 1
        spread = math.exp(self._settings.away_sigma * float(self._rng.standard_normal()))
        self._push(RETURN, now_s + self._settings.away_s * spread, node)
        return NodeEvent(now_s, "down", str(node), cause)


def draw(settings: DrawnLosses, nodes: int, rng: np.random.Generator) -> Iterator[NodeEvent]:
    """Events of nodes `0` to `nodes` - 1 in order, without an end, and without repairs.

    So that nodes are lost at the stated rate, failures are rarer where they take several nodes;
    where fewer of the rack are up, so few are taken, and the rate is lower by that.
    """
    losses = iter(_Losses(settings, nodes, rng))
    if settings.degraded is None:
        return losses
    slow = draw_degradations(settings.degraded, nodes, rng.spawn(1)[0])
    return merge_degradations(losses, slow)


def generate(settings: DrawnLosses, nodes: int, days: float, name: str, seed: int) -> Trace:
    """A trace of the losses and degradations of so many days.

    Raises:
        InputError: If there are none.
    """
    events = []
    for event in draw(settings, nodes, np.random.default_rng(seed)):
        if event.time_s > days * DAY_S:
            break
        events.append(event)
    if not events:
        raise InputError(f"no node of {nodes} is lost within {days:g} days at this rate and seed")
    return Trace(
        name=name,
        kind="node-events",
        format="synthetic",
        origin="synthetic",
        tables={"node-events": events_table(events)},
        source="drawn by wattkeeper traces generate node-events",
        licence="none: computed",
        parameters={**settings.model_dump(mode="json"), "nodes": nodes, "days": days, "seed": seed},
    )
