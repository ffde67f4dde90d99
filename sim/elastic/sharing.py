"""Who takes free nodes, and who gives some to jobs that wait: by what a node adds to a rate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from wattkeeper.policies.points.job import Key
from wattkeeper.policies.points.place import ClusterView
from wattkeeper.sim.elastic.holdings import Holdings
from wattkeeper.sim.elastic.training import ElasticTraining

if TYPE_CHECKING:
    from wattkeeper.sim.engine.world import ElasticParts

Trainings = Mapping[int, ElasticTraining]
"""Elastic jobs by number."""


def find_free_nodes(cluster: ClusterView) -> list[int]:
    """Nodes that are up and free, ascending."""
    nodes: list[int] = np.flatnonzero(cluster.free == cluster.capacity).tolist()
    return nodes


class NodeSharing:
    """See the module.

    Args:
        parts: The parts of the world that they work with.
        holdings: The nodes that they hold.
        gpus_per_node: GPUs of each node.
    """

    def __init__(self, parts: ElasticParts, holdings: Holdings, gpus_per_node: int) -> None:
        self._cluster, self._parts, self._holdings = parts.core.cluster, parts, holdings
        self._gpus = gpus_per_node

    def could_take(self, training: ElasticTraining, spare: int) -> int:
        """How many of so many spare nodes a job could take."""
        nodes = len(training.nodes)
        most = min(spare, training.task.most_nodes - nodes)
        while most > 0 and not self._allows(training, nodes + most):
            most -= 1
        return max(0, most)

    def _allows(self, training: ElasticTraining, nodes: int, others: int = 0) -> bool:
        """Whether the power cap allows a job so many nodes, where other jobs take some, too."""
        budget = self._parts.core.budget
        if budget.cap_w is None:
            return True
        sized = self._holdings.size(training.attempt.job, nodes)
        promised_w = others * (self._holdings.busy_w - self._holdings.idle_w)
        released_w = budget.more_w(sized.number) - promised_w
        return budget.allows(sized, training.attempt.gpu_type, released_w)

    def share_out(self, joining: Trainings) -> dict[int, list[int]]:
        """The free nodes that jobs take, each where it adds most."""
        taken: dict[int, list[int]] = {}
        for given, node in enumerate(find_free_nodes(self._cluster) if joining else []):
            gains = {
                number: self._gain(training, len(taken.get(number, ())), given)
                for number, training in joining.items()
            }
            best = max(gains, key=gains.__getitem__)
            if gains[best] < 0:
                break
            taken.setdefault(best, []).append(node)
        return taken

    def _gain(self, training: ElasticTraining, taken: int, given: int) -> float:
        """What a further node adds to the rate of a job, relative to it; below 0: it takes none.

        It is to take some already, of those that are given to all jobs.
        """
        rates, nodes = training.task.rates, len(training.nodes) + taken
        if nodes >= training.task.most_nodes:
            return -1.0
        if not self._allows(training, nodes + 1, given - taken):
            return -1.0
        return math.inf if rates[nodes] <= 0 else max(0.0, rates[nodes + 1] / rates[nodes] - 1)

    def choose_givers(self, running: Trainings) -> dict[int, int]:
        """How many more nodes jobs are to give to one that waits, those first that add least."""
        surplus = {
            number: len(training.nodes) - training.task.start_nodes - training.gives
            for number, training in running.items()
        }
        available = sum(max(0, nodes) for nodes in surplus.values())
        if not available:
            return {}
        pending = sum(training.gives for training in running.values())
        gives: dict[int, int] = {}
        for _ in range(self._needed_nodes(available + pending) - pending):
            worth = {
                number: _worth(running[number], gives.get(number, 0))
                for number, nodes in surplus.items()
                if nodes > 0
            }
            number = min(worth, key=worth.__getitem__)
            surplus[number] -= 1
            gives[number] = gives.get(number, 0) + 1
        return gives

    def _needed_nodes(self, most: int) -> int:
        """Nodes that let a job fit: the first one that waits, does not fit, and would with `most`.

        0 if there is no such job.
        """
        room, free = self._parts.core.room, self._cluster.free_gpus
        seen = set[Key]()
        for job in self._parts.core.board.waiting.values():
            if job.key in seen:
                continue
            seen.add(job.key)
            if room.fits(job):
                continue
            needed = max(1, math.ceil((job.gpus - free) / self._gpus))
            if needed <= most:
                return needed
        return 0


def _worth(training: ElasticTraining, given: int) -> float:
    """What the last node of a job adds to its rate, relative to it; without those it gives."""
    rates = training.task.rates
    nodes = len(training.nodes) - training.gives - given
    return 1 - rates[nodes - 1] / rates[nodes] if rates[nodes] > 0 else 0.0
