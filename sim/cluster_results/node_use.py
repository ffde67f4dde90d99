"""Energy and rent of the nodes of elastic jobs, by what they do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from wattkeeper.policies.arrays import Floats
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec
from wattkeeper.sim.cluster_results.accounting import Clock
from wattkeeper.sim.elastic.cycle import ROUNDING
from wattkeeper.sim.kernel.signals import SignalSeries
from wattkeeper.sim.recording.recorder import Recorder
from wattkeeper.sim.recording.row_types import ShapeRow, SleepRow

if TYPE_CHECKING:
    from wattkeeper.sim.elastic.jobs import ElasticJob

HOUR_S: Final = 3600.0

UPS: Final = {"absent": -1.0, "down": -1.0, "up": 1.0}
"""Change of the number of nodes that are up, by event."""


class NodePrices(NamedTuple):
    """What nodes cost, in money an hour.

    Attributes:
        node_hour: Of a node that is up.
        on_demand: Of one that is never lost; None: not known.
    """

    node_hour: SignalSeries
    on_demand: SignalSeries | None = None


class ElasticScope(NamedTuple):
    """What the results of elastic jobs are computed from, beside what they did.

    Attributes:
        jobs: The elastic jobs, by `Job.number`.
        until_s: When they end that do not end by themselves, s; infinite: all do.
        alone: Whether no other jobs share the cluster: nodes that are free wait for them.
        prices: What their nodes cost; None: not known.
    """

    jobs: Mapping[int, ElasticJob]
    until_s: float
    alone: bool = True
    prices: NodePrices | None = None


class JobSpan(NamedTuple):
    """The time of an elastic job, from its first pause to its end.

    Attributes:
        number: `Job.number`.
        begin_s: Its first pause, s.
        end_s: Its end, s.
    """

    number: int
    begin_s: float
    end_s: float


class NodeParts(NamedTuple):
    """A quantity of the nodes of elastic jobs by what they do: J, or money.

    Attributes:
        useful: Steps that were committed, without their redundant computation.
        redundant: Redundant computation in these steps.
        lost: Steps that were lost, whatever they computed.
        open: Steps that are neither committed nor lost at the end of the run, likewise.
        pause: Pauses.
        checkpoint: Writes of checkpoints.
        waiting: Nodes that are too few to train on, that boot, or that no job takes.
    """

    useful: float
    redundant: float
    lost: float
    open: float
    pause: float
    checkpoint: float
    waiting: float


class FreeNodes(NamedTuple):
    """Nodes that elastic jobs could hold and that nobody holds, over time, shapes (spans,).

    Attributes:
        from_s: Begin of each span, s.
        to_s: Its end, s.
        nodes: How many there are; they are up.
        asleep: How many of them sleep.
    """

    from_s: Floats
    to_s: Floats
    nodes: Floats
    asleep: Floats


def find_free(
    recorder: Recorder, scope: ElasticScope, nodes: int, spans: Sequence[JobSpan]
) -> FreeNodes:
    """The nodes that wait for elastic jobs.

    They are no more than all jobs lack to their most nodes, and only where no others could take
    them. Nodes that sleep are the last that count.

    Args:
        recorder: What happened.
        scope: The jobs.
        nodes: Nodes of the cluster.
        spans: When jobs lasted; outside, nodes do not wait for them.
    """
    none = np.zeros(0)
    if not scope.alone or not spans:
        return FreeNodes(none, none, none, none)
    ups = [(row.time_s, UPS[row.event]) for row in recorder.node_changes if row.event in UPS]
    held, asked, off = [], [], []
    for row in recorder.shapes:
        held += [(row.time_s, float(row.nodes)), (row.until_s, -float(row.nodes))]
    for span in spans:
        most = float(scope.jobs[span.number].task.most_nodes)
        asked += [(span.begin_s, most), (span.end_s, -most)]
    for from_s, to_s in zip(*recorder.events(SleepRow)[:2], strict=True):
        off += [(float(from_s), 1.0), (float(to_s), -1.0)]
    every = (time_s for changes in (ups, held, asked, off) for time_s, _ in changes)
    times = np.unique([time_s for time_s in every if math.isfinite(time_s)])
    up, held_nodes = nodes + _levels(ups, times), _levels(held, times)
    asleep = _levels(off, times) - (nodes - up)  # nodes that are down are off, too
    free = up - held_nodes
    counted = np.maximum(0.0, np.minimum(free, _levels(asked, times) - held_nodes))
    counted_asleep = np.maximum(0.0, asleep - (free - counted))
    return FreeNodes(times[:-1], times[1:], counted[:-1], counted_asleep[:-1])


def _levels(changes: Sequence[tuple[float, float]], times: Floats) -> Floats:
    """The sum of all changes up to each time, itself included."""
    at, by = np.array(sorted(changes)).reshape(-1, 2).T
    sums = np.concatenate([[0.0], np.cumsum(by)])
    return np.asarray(sums[np.searchsorted(at, times, side="right")])


def node_seconds(rows: Sequence[ShapeRow]) -> Floats:
    """Time of nodes in each part, s, shape (parts, shapes)."""
    nodes, begin_s, end_s, steps_s, lost_s, open_s, pause_s, write_s = (
        np.array([getattr(row, name) for row in rows], dtype=np.float64)
        for name in (
            "nodes",
            "time_s",
            "until_s",
            "steps_s",
            "lost_s",
            "open_s",
            "pause_s",
            "write_s",
        )
    )
    rest_s = rest_of(end_s - begin_s, steps_s, pause_s, write_s)
    redundant_s = redundant_time_s(rows)
    useful_s = rest_of(steps_s, lost_s, open_s, redundant_s)
    parts_s = np.array([useful_s, redundant_s, lost_s, open_s, pause_s, write_s, rest_s])
    return np.asarray(nodes * parts_s)


def redundant_time_s(rows: Sequence[ShapeRow]) -> Floats:
    """Time of redundant computation in steps that were committed, s, shape (shapes,)."""
    return np.array(
        [row.redundant_share * float(rest_of(row.steps_s, row.lost_s, row.open_s)) for row in rows]
    )


def rest_of(span_s: Floats | float, *parts_s: Floats | float) -> Floats:
    """What parts of a time leave of it, s; what is left by rounding is none."""
    rest_s = np.asarray(span_s)
    for part_s in parts_s:
        rest_s = rest_s - part_s
    return np.where(rest_s > ROUNDING * np.asarray(span_s), rest_s, 0.0)


def energy_of_nodes(rows: Sequence[ShapeRow], free: FreeNodes, cluster: ClusterSpec) -> NodeParts:
    """Energy by part, J: busy power in steps, otherwise idle power, or that of sleep."""
    power, gpus = next(iter(cluster.power.values())), float(cluster.capacity[0])
    idle_w, busy_w, asleep_w = (
        gpus * each for each in (power.idle_w, power.busy_w or 0.0, power.sleep_w)
    )
    weights = np.array([busy_w, busy_w, busy_w, busy_w, idle_w, idle_w, idle_w])
    parts = weights[:, None] * node_seconds(rows)
    free_w = free.nodes * idle_w - free.asleep * (idle_w - asleep_w)
    return _sum_parts(parts, (free.to_s - free.from_s) * free_w)


def rent_of_nodes(rows: Sequence[ShapeRow], free: FreeNodes, price: SignalSeries) -> NodeParts:
    """Rent by part, in money; that of a shape by the shares of its time."""
    clock = rent_clock(price)
    begin_s, end_s = (
        np.array([getattr(row, name) for row in rows], dtype=np.float64)
        for name in ("time_s", "until_s")
    )
    mean = (clock(end_s) - clock(begin_s)) / (end_s - begin_s)
    paid_for_free = free.nodes * (clock(free.to_s) - clock(free.from_s))
    return _sum_parts(mean * node_seconds(rows), paid_for_free)


def _sum_parts(parts: Floats, free: Floats) -> NodeParts:
    """The sums over shapes, shape (parts, shapes), where free nodes wait."""
    sums = NodeParts(*(math.fsum(part.data) for part in parts))
    return sums._replace(waiting=math.fsum([sums.waiting, *free.tolist()]))


def on_demand_rent(
    samples: Mapping[int, float], scope: ElasticScope, spans: Sequence[JobSpan], price: SignalSeries
) -> float:
    """What the same samples cost on nodes that are never lost, in money.

    Each job trains without interruption from its first pause on, on as many nodes as give the
    highest rate, the fewest of these.

    Args:
        samples: Samples that each job committed.
        scope: The jobs.
        spans: When they lasted.
        price: Of such a node.
    """
    clock, rent = rent_clock(price), []
    for span in spans:
        task = scope.jobs[span.number].task
        tables = (task.rates, *task.rates_by_system.values())
        rate, fewest = max((rate, -n) for table in tables for n, rate in enumerate(table))
        end_s = min(span.end_s, span.begin_s + samples[span.number] / rate)
        begin, end = clock(np.array([span.begin_s, end_s])).tolist()
        rent.append(-fewest * (end - begin))
    return math.fsum(rent)


def rent_clock(price: SignalSeries) -> Clock:
    """What one node has cost until each time, in money."""
    return lambda times_s: price.integral(times_s) / HOUR_S
