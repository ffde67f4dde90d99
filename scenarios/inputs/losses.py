"""Losses of nodes: read from a trace or drawn, and given to the nodes of a cluster."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import groupby
from pathlib import Path
from typing import cast

from wattkeeper.policies.errors import InputError
from wattkeeper.scenarios.spec.sections.cluster import Checkpoints, Losses
from wattkeeper.sim.cluster.checkpoints import CheckpointRule
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec
from wattkeeper.sim.cluster.losses import (
    ClusterLosses,
    Event,
    Interval,
    LossRules,
    NodeChange,
    RunLosses,
)
from wattkeeper.sim.kernel.streams import RandomStreams
from wattkeeper.traces.generate.node_events import DrawnLosses, draw
from wattkeeper.traces.library import store
from wattkeeper.traces.library.folder import read
from wattkeeper.traces.node_events import NodeEvent, absent_at_first, add_repairs, node_events
from wattkeeper.traces.trace import Trace


def read_losses(stated: Losses, traces: dict[Path, Trace], beside: Path) -> ClusterLosses:
    """The losses that a section describes; `traces` gets the trace that they are from.

    Raises:
        InputError: If there is no such trace, or it holds something else.
    """
    checkpoint = stated.checkpoint
    rules = LossRules(requeues_last=stated.requeue == "last", boot_s=stated.boot_s)
    if checkpoint is not None:
        every = checkpoint.every_s
        interval: Interval | None = every if every in ("young", "daly") else None
        rules = rules._replace(
            checkpoints=_checkpoints(checkpoint),
            interval=interval,
            read_s=checkpoint.read_s,
            heeds_notice=checkpoint.on_notice,
        )
    if isinstance(stated.events, DrawnLosses):
        _check_notice(stated.events.notice is not None, checkpoint)
        return ClusterLosses(stated.events, rules)
    folder = store.locate(stated.events, beside)
    trace = traces.get(folder) or read(folder)
    if trace.kind != "node-events":
        raise InputError(
            f"losses.events: trace {trace.name!r} holds {trace.kind}; node-events are needed"
        )
    traces[folder] = trace
    events = node_events(trace.tables["node-events"])
    if stated.notice_s is not None:
        if any(event.event == "notice" for event in events):
            raise InputError(
                f"losses.notice_s: trace {trace.name!r} has notices of its own; leave it out"
            )
        events = announce(tuple(add_repairs(events)), stated.notice_s)
    _check_notice(any(event.event == "notice" for event in events), checkpoint)
    return ClusterLosses(events, rules)


def announce(events: Sequence[NodeEvent], notice_s: float) -> tuple[NodeEvent, ...]:
    """The events, and a notice before each loss: so long before, s, or when its node comes up."""
    since_s: dict[str, float] = {}
    notices = []
    for event in events:
        if event.event == "up":
            since_s[event.node] = event.time_s
        elif event.event == "down":
            at_s = max(event.time_s - notice_s, since_s.get(event.node, 0.0))
            if at_s < event.time_s:
                notices.append(NodeEvent(at_s, "notice", event.node, deadline_s=event.time_s))
    return tuple(sorted((*events, *notices), key=lambda event: event.time_s))


def _checkpoints(stated: Checkpoints) -> CheckpointRule:
    every_s = stated.every_s if isinstance(stated.every_s, float) else math.inf
    return CheckpointRule(every_s, stated.write_s, stated.blocking)


def _check_notice(is_given: bool, checkpoint: Checkpoints | None) -> None:
    """Refuse checkpoints on notices that never come."""
    if checkpoint is not None and checkpoint.on_notice and not is_given:
        raise InputError(
            "losses.checkpoint.on_notice has no effect: no loss is announced (notice in "
            "losses.events, or rows with event notice)"
        )


def open_losses(cluster: ClusterSpec, streams: RandomStreams) -> RunLosses | None:
    """What happens to the nodes of a cluster in a run; None: nothing.

    Raises:
        InputError: If a trace has more nodes at once than the cluster.
    """
    losses = cluster.losses
    if losses is None:
        return None
    if isinstance(losses.events, DrawnLosses):
        rng = streams.policy("node", "losses")
        drawn = add_repairs(draw(losses.events, cluster.nodes, rng))
        together = losses.events.together
        racks = (-1,) * cluster.nodes
        if together is not None:
            racks = tuple(node // together.rack for node in range(cluster.nodes))
        changes = (_change(event, int(event.node), racks[int(event.node)]) for event in drawn)
        return RunLosses(losses.rules, changes, racks)
    assigned, racks = assign_nodes(add_repairs(losses.events), cluster.nodes)
    return RunLosses(losses.rules, iter(assigned), racks)


def _change(event: NodeEvent, node: int, rack: int) -> NodeChange:
    deadline_s = 0.0 if math.isnan(event.deadline_s) else event.deadline_s
    factor = 1.0 if math.isnan(event.factor) else event.factor
    return NodeChange(
        event.time_s, cast(Event, event.event), node, event.cause, deadline_s, rack, factor
    )


def assign_nodes(
    events: Iterable[NodeEvent], nodes: int
) -> tuple[list[NodeChange], tuple[int, ...]]:
    """Changes of the nodes of a cluster, and their racks at the start, given events of named nodes.

    Nodes that are there from the start get the lowest numbers, in the order of their names with
    numbers in them counted as such. Equal events of one moment that follow each other happen in the
    order of their names. A node that comes gets the lowest number that is free. If any node
    comes so, numbers that stand for none are absent; otherwise they are there and stay. Racks get
    numbers in the order of their names; -1 stands for one that is not known.

    Raises:
        InputError: If more nodes are there at once than the cluster has.
    """
    listed: list[NodeEvent] = []
    for _, alike in groupby(events, key=lambda event: (event.time_s, event.event)):
        listed += sorted(alike, key=lambda event: event.node)
    absent = set(absent_at_first(listed))
    present = sorted({event.node for event in listed} - absent, key=_by_number)
    number_of = {name: number for number, name in enumerate(present)}
    free = list(range(len(present), nodes))
    heapify(free)
    _check_room(len(present), nodes, 0.0)
    rack_of = _number_racks(listed)
    racks = [rack_of[name] for name in present] + [-1] * (nodes - len(present))
    changes = [NodeChange(0.0, "absent", number) for number in free] if absent else []
    came = set[int]()
    for event in listed:
        if event.event == "up" and event.node not in number_of:
            _check_room(len(number_of) + 1, nodes, event.time_s)
            number_of[event.node] = heappop(free)
            if event.time_s == 0:
                came.add(number_of[event.node])
                racks[number_of[event.node]] = rack_of[event.node]
                continue
        number = number_of[event.node]
        changes.append(_change(event, number, rack_of[event.node]))
        if event.event == "down" and event.node in absent:
            heappush(free, number_of.pop(event.node))
    there = [change for change in changes if change.event != "absent" or change.node not in came]
    return there, tuple(racks)


def _number_racks(events: Iterable[NodeEvent]) -> dict[str, int]:
    """The number of the rack of each node by its name; -1 if it is not known."""
    names: dict[str, str] = {}
    for event in events:
        names[event.node] = event.rack or names.get(event.node, "")
    racks = sorted(set(names.values()) - {""}, key=_by_number)
    numbers = {rack: number for number, rack in enumerate(racks)}
    return {node: numbers.get(rack, -1) for node, rack in names.items()}


def _by_number(name: str) -> tuple[object, ...]:
    digits = "".join(character if character.isdigit() else " " for character in name).split()
    return (tuple(map(int, digits)), name)


def _check_room(count: int, nodes: int, time_s: float) -> None:
    if count > nodes:
        raise InputError(
            f"losses.events: {count} nodes are there at {time_s:g} s, the cluster has {nodes}"
        )
