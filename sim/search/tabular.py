"""A search whose networks were trained before: their recordings are replayed.

From a parent of which a recording is there, a training takes the epochs, and reaches the
accuracies, that were recorded. From any other it is modelled: it takes the share of the epochs from
scratch that `wattkeeper.policies.matching.benefit` does not expect to be saved, and reaches the
accuracies from scratch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import NamedTuple

from wattkeeper.policies.matching.benefit import expected_saving, saving_by_accuracy
from wattkeeper.policies.matching.graph import Graph
from wattkeeper.policies.matching.relation import relate
from wattkeeper.policies.profile import UNLIMITED_W, Curve, Profile
from wattkeeper.policies.zoo_views import ChildModel, TrainedModel
from wattkeeper.sim.engine.zoo import ModelOfJob
from wattkeeper.sim.search.strategy import Choices, NamedTrials, Strategy
from wattkeeper.traces.models.network_table import NetworkTable, RecordedTraining

BATCH_SIZE = 1
"""Stands for that of the recordings: nobody chooses another one."""


class ReplayedTraining(NamedTuple):
    """A training of a search.

    Attributes:
        has_parent: Whether it began with the weights of a parent.
        epochs: Until it ended.
        accuracy: On the validation set, which the strategy and the zoo see.
        final_accuracy: On the test set; on the validation set where no test was recorded.
        work: Epochs times parameters.
        work_from_scratch: The same without a parent.
        modelled: Whether it is modelled, instead of recorded.
    """

    has_parent: bool
    epochs: int
    accuracy: float
    final_accuracy: float
    work: float
    work_from_scratch: float
    modelled: bool


class TabularSearch:
    """The search of one run; also what its zoo asks for the worth of parents.

    Args:
        table: The networks and their recordings.
        strategy: Proposes the networks.
        seed: Which recordings are replayed, from 0; of fewer, this one modulo their number.

    Attributes:
        task: What the networks are trained for.
        known: The networks that were proposed so far, as the zoo knows them, by name.
        trained: Those that were trained, in the order in which they ended.
    """

    def __init__(self, table: NetworkTable, strategy: Strategy[Choices], seed: int) -> None:
        self._table, self._seed = table, seed
        self._trials = NamedTrials(strategy, lambda choices: table.networks[choices].name)
        self.task = table.task
        self._choices: dict[str, Choices] = {}
        self.known: dict[str, ModelOfJob] = {}
        self.trained: dict[str, ReplayedTraining] = {}
        self.graph: Callable[[Choices], Graph] = lru_cache(maxsize=None)(table.graph)
        self._best = max(self._from_scratch(name).accuracy for name in self._names())

    def _names(self) -> list[str]:
        return [network.name for network in self._table.networks.values()]

    def propose(self) -> str | None:
        """See `wattkeeper.sim.search.source.NetworkSearch`."""
        found = self._trials.propose()
        if found is None:
            return None
        name, choices, origin = found
        self._choices[name] = choices
        child = ChildModel(name, self._table.task, self.graph(choices), origin)
        self.known[name] = ModelOfJob(child, self._from_scratch(self.workload(name)).accuracy)
        return name

    def report(self, name: str, reached: bool) -> None:
        """See `wattkeeper.sim.search.source.NetworkSearch`."""
        if reached and name not in self.trained:  # nobody asked for a parent
            self.trained[name] = self.training(name, None)
        self._trials.report(name, self.trained[name].accuracy if reached else None)

    def workload(self, name: str) -> str:
        """The network, whose profile is replayed."""
        return self._table.networks[self._choices[name]].name

    def work(self, child: ChildModel, parent: TrainedModel, coverage: float) -> float:
        """See `wattkeeper.sim.engine.zoo.Benefit`."""
        from_scratch = self._from_scratch(self.workload(child.name))
        return self.training(child.name, parent).epochs / from_scratch.epochs

    def accuracy_of(
        self,
        model: ModelOfJob,
        parent: TrainedModel | None,
        coverage: float,
        draw: Callable[[], float],
    ) -> float:
        """See `wattkeeper.sim.engine.zoo.Benefit`; the training ends now."""
        name = model.child.name
        self.trained[name] = self.training(name, parent)
        return self.trained[name].accuracy

    def find_recorded(self, name: str, parent: str | None) -> RecordedTraining | None:
        """The recording of a proposed network from a parent, or from scratch; None: there is none.

        Both are named as the search names them.
        """
        pair = self.workload(name), None if parent is None else self.workload(parent)
        found = self._table.recordings.get(pair)
        return None if found is None else found[self._seed % len(found)]

    def training(self, name: str, parent: TrainedModel | None) -> ReplayedTraining:
        """The training of a proposed network from a parent, or from scratch."""
        from_scratch = self._from_scratch(self.workload(name))
        found = self.find_recorded(name, None if parent is None else parent.name)
        recorded = found or from_scratch
        epochs = recorded.epochs
        if parent is not None and found is None:
            saved = expected_saving(relate(parent.graph, self.known[name].child.graph))
            saved = max(0.0, saved + saving_by_accuracy(parent.accuracy, self._best))
            epochs = max(1, math.ceil(epochs * (1 - saved)))
        parameters = self._table.networks[self._choices[name]].parameters
        return ReplayedTraining(
            parent is not None,
            epochs,
            recorded.accuracy,
            recorded.final_accuracy,
            epochs * parameters,
            from_scratch.epochs * parameters,
            modelled=found is None,
        )

    def find_best(self, budget: float) -> float:
        """The best validation accuracy that so much work has found; NaN if none ended by then.

        The work counts in that of a mean training from scratch of the space's networks.
        """
        left, best = budget * self._mean_work, math.nan
        for training in self.trained.values():
            left -= training.work
            if left < 0:
                break
            if not best >= training.accuracy:
                best = training.accuracy
        return best

    @cached_property
    def _mean_work(self) -> float:
        """Work of a training from scratch, mean over the networks of the space."""
        networks = self._table.networks.values()
        works = [self._from_scratch(each.name).epochs * each.parameters for each in networks]
        return math.fsum(works) / len(works)

    def _from_scratch(self, network: str) -> RecordedTraining:
        found = self._table.recordings[network, None]
        return found[self._seed % len(found)]

    def profiles(self, gpu_type: str) -> dict[tuple[str, int, str], Profile]:
        """The profiles of all networks on a type of GPU; their power was not measured.

        Each epoch takes the mean time of one from scratch.
        """
        found = {}
        for name in self._names():
            from_scratch = self._from_scratch(name)
            epochs, epoch_s = from_scratch.epochs, from_scratch.time_s / from_scratch.epochs
            curve = Curve(BATCH_SIZE, (UNLIMITED_W,), (epoch_s,), (0.0,), (float(epochs),))
            found[name, 1, gpu_type] = Profile(
                name,
                gpu_type,
                1,
                from_scratch.accuracy,
                self._table.most_epochs,
                BATCH_SIZE,
                UNLIMITED_W,
                {BATCH_SIZE: curve},
                measured=False,
            )
        return found
