"""Nodes that are lost, come back and become slow: which, and what a loss costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from wattkeeper.policies.planning.checkpoint_intervals import daly_interval_s, young_interval_s
from wattkeeper.sim.cluster.checkpoints import NO_CHECKPOINTS, CheckpointRule

if TYPE_CHECKING:
    from wattkeeper.traces.generate.node_events import DrawnLosses
    from wattkeeper.traces.node_events import NodeEvent

Interval = Literal["young", "daly"]
Event = Literal["absent", "down", "up", "notice", "degraded"]

EXPECTED: Final = 6.5 / 1000 / 86400
"""Losses a second of a node that is up, before any is observed: the rate of a research cluster
(Kokolis et al., HPCA 2025)."""


class NodeChange(NamedTuple):
    """Something that happens to a node.

    Attributes:
        time_s: When, s since the start of the run.
        event: What: it goes down, is back, announces that it will go down, or has another pace;
            `absent`: it is not there at first.
        node: Its number in the cluster.
        cause: Why; empty if not known.
        deadline_s: With `notice`: when it is expected to go down, s.
        rack: Number of its rack; -1 if not known.
        factor: With `degraded`: time of an iteration over that at full pace.
    """

    time_s: float
    event: Event
    node: int
    cause: str = ""
    deadline_s: float = 0.0
    rack: int = -1
    factor: float = 1.0


class LossRate:
    """The rate of losses that was observed, with one expected loss as its prior.

    Args:
        nodes: Number of nodes, which are up at first.
    """

    def __init__(self, nodes: int) -> None:
        self._up = nodes
        self._since_s = 0.0
        self._up_s = 0.0
        self._losses = 0

    def change(self, now_s: float, event: str) -> None:
        """Count an event of a node: `down`, `absent` or `up`."""
        self._up_s += self._up * (now_s - self._since_s)
        self._since_s = now_s
        self._losses += event == "down"
        self._up += 1 if event == "up" else -1

    def mean_s(self, nodes: int, now_s: float) -> float:
        """Mean time between losses of any of so many nodes, s."""
        up_s = self._up_s + self._up * (now_s - self._since_s)
        return (up_s + 1 / EXPECTED) / (self._losses + 1) / nodes


class LossRules(NamedTuple):
    """What a lost node costs.

    Attributes:
        checkpoints: Of jobs.
        interval: How their interval follows from the observed rate of losses; None: it is stated.
        read_s: Time to read one when a job resumes, s.
        requeues_last: Whether a job that lost a node waits behind those that wait already; else
            as it did before.
        boot_s: Time from a node's return until jobs start there, s; its GPUs idle.
        heeds_notice: Whether jobs write a checkpoint when a node of theirs announces its loss.
    """

    checkpoints: CheckpointRule = NO_CHECKPOINTS
    interval: Interval | None = None
    read_s: float = 0.0
    requeues_last: bool = False
    boot_s: float = 0.0
    heeds_notice: bool = False

    def checkpoints_of(self, nodes: int, rate: LossRate, now_s: float) -> CheckpointRule:
        """The checkpoints of a job on so many nodes that starts or resumes now."""
        rule = self.checkpoints
        if self.interval is None:
            return rule
        choose = young_interval_s if self.interval == "young" else daly_interval_s
        every_s = choose(rule.write_s, rate.mean_s(nodes, now_s))
        return rule._replace(every_s=max(every_s, 0.0 if rule.blocking else rule.write_s))


class RunLosses(NamedTuple):
    """What happens to the nodes of a cluster in a run.

    Attributes:
        rules: What losses cost.
        changes: In order of time; they may be without an end.
        racks: Number of each node's rack at the start, -1 if not known; empty: none is.
    """

    rules: LossRules
    changes: Iterator[NodeChange]
    racks: tuple[int, ...] = ()


class ClusterLosses(NamedTuple):
    """Losses of the nodes of a cluster.

    Attributes:
        events: Those of a trace, or how they are drawn.
        rules: What they cost.
    """

    events: tuple[NodeEvent, ...] | DrawnLosses
    rules: LossRules
