"""A search for architectures that trains for real, in this process, with or without a zoo.

::

    FOLDER/VARIANT-SEED.jsonl   the trainings that are over
    FOLDER/VARIANT-SEED.zoo/    what they left, where the variant has a zoo

What was interrupted goes on at the training that was in flight, and ends as if nothing had been: a
network's result depends on the seed, its name and its parent alone.
"""

from __future__ import annotations

import math
import time
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from wattkeeper.live.search import dataset as data
from wattkeeper.live.search.architectures import Arrival, arrivals, build
from wattkeeper.live.search.training_log import TrainingRecord, append, read
from wattkeeper.policies.errors import StoreError
from wattkeeper.policies.matching.choice import warm_factor
from wattkeeper.policies.matching.matchers import find_matcher
from wattkeeper.policies.matching.search import ParentSearch as MatcherSearch
from wattkeeper.policies.zoo_views import ChildModel, TrainedModel

if TYPE_CHECKING:
    from torch import Tensor, nn

    from wattkeeper.live.search.processor import Processor
    from wattkeeper.live.search.trainer import TrainingRule
    from wattkeeper.live.zoo.zoo import Zoo
    from wattkeeper.policies.matching.graph import Graph

TASK: Final = "digits"

RULES: Final = 3
"""Grows when trainings with the same settings end otherwise."""


class SearchPlan(NamedTuple):
    """What a search trains, and how.

    Attributes:
        models: How many networks.
        rule: How each is trained.
    """

    models: int
    rule: TrainingRule


def log_of(folder: Path, variant: str, seed: int) -> Path:
    """Where the trainings of a search that are over are written down."""
    return folder / f"{variant}-{seed}.jsonl"


class _Warm(NamedTuple):
    coverage: float
    matched: int
    of: int


class SearchRun:
    """One variant with one seed.

    Args:
        folder: Of this search's files.
        variant: Its name.
        seed: Decides the networks, the split of the data, initial weights and orders.
        plan: What is trained.
        processor: What it is trained on.

    Attributes:
        arrivals: The networks by name, in order.
        models: What a policy is shown of the zoo: networks that this search came past, in order.
        stores: Whether networks enter the zoo when they are trained.

    Raises:
        StoreError: If the folder has trainings with other settings, or damaged ones.
    """

    def __init__(
        self, folder: Path, variant: str, seed: int, plan: SearchPlan, processor: Processor
    ) -> None:
        self.variant, self.seed, self.plan, self.processor = variant, seed, plan, processor
        settings = {"models": plan.models, **plan.rule._asdict(), "gpu": processor.gpu_type}
        self.settings = ", ".join(f"{name} {value}" for name, value in settings.items())
        self.settings += f"; rules {RULES}"
        self.arrivals = {each.name: each for each in arrivals(plan.models, self._rng("networks"))}
        folder.mkdir(parents=True, exist_ok=True)
        self._log = log_of(folder, variant, seed)
        self._zoo_folder = folder / f"{variant}-{seed}.zoo"
        self._over = {one.model: one for one in read(self._log)}
        self._graph: tuple[str, Graph, float] | None = None
        self.models: list[TrainedModel] = []
        self.stores = False
        self._asked_s = math.nan
        for one in self._over.values():
            if one.settings != self.settings:
                raise StoreError(
                    f"{self._log} was trained with {one.settings}, now it would be "
                    f"{self.settings}: name another folder (--out)"
                )

    def _number(self, name: str) -> int:
        digest = blake2b(f"{self.seed}/{name}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") >> 1  # torch takes signed seeds

    def _rng(self, name: str) -> np.random.Generator:
        return np.random.default_rng(self._number(name))

    @cached_property
    def _digits(self) -> data.Digits:
        return data.load(self._rng("split"))

    @cached_property
    def zoo(self) -> Zoo:
        """The zoo on disk; it is made when it is first asked for."""
        from wattkeeper.live.zoo.zoo import Zoo

        return Zoo(self._zoo_folder, retain="keep-all")

    def warm_up(self, matcher: str | None) -> None:
        """Load and compile what the first choice needs, so that it does not count.

        Args:
            matcher: What the policy measures similarity with, if it does.
        """
        from wattkeeper.live.weight_transfer.transfer import transfer

        name = next((name for name in self.arrivals if name not in self._over), None)
        if name is None:
            return
        graph, _ = self._graph_of(name)
        transfer(self._net(name), self._net(name), self._inputs)
        if matcher is not None:
            found = find_matcher(matcher)
            arrays = found.arrays(graph)
            MatcherSearch(found, [arrays]).best(arrays)
            found.score_graphs(graph, graph)
        self._graph = None

    @property
    def _inputs(self) -> tuple[Tensor, ...]:
        import torch

        return (torch.zeros(2, data.CHANNELS, data.SIDE, data.SIDE),)

    def child(self, name: str) -> ChildModel:
        """What a policy is shown of a network that is about to be trained."""
        graph, _ = self._graph_of(name)
        self._asked_s = time.process_time()
        return ChildModel(name, TASK, graph, self.arrivals[name].mutated_from)

    def _graph_of(self, name: str) -> tuple[Graph, float]:
        """A network's graph, from the zoo if it is there, and what it cost to make, s."""
        if self._graph is None or self._graph[0] != name:
            stored = self._stored(name)
            if stored is not None:
                self._graph = name, self.zoo.graph(stored), 0.0
            else:
                from wattkeeper.live.weight_transfer.model_graph import graph_of

                began_s = time.process_time()
                graph = graph_of(self._net(name), self._inputs, name)
                self._graph = name, graph, time.process_time() - began_s
        return self._graph[1:]

    def _stored(self, name: str) -> int | None:
        return {model.name: model.model_id for model in self.zoo.models()}.get(name)

    def _net(self, name: str) -> nn.Module:
        import torch

        torch.manual_seed(self._number(f"weights/{name}"))
        return build(self.arrivals[name].architecture, data.CHANNELS, data.CLASSES)

    def train(self, name: str, parent: str | None) -> TrainingRecord:
        """Train a network, or say how that went if it is over already.

        Args:
            name: The network.
            parent: Where its weights come from; None: from scratch.

        Raises:
            StoreError: If it was trained from another parent before, or the zoo is damaged.
        """
        over = self._over.get(name)
        if over is None:
            over = self._train(self.arrivals[name], parent)
            append(self._log, over)
            self._over[name] = over
        elif over.parent != parent:
            found = f"{name} was trained from {over.parent}, now the choice is {parent}"
            raise StoreError(f"{self._log}: {found}; name another folder (--out)")
        return over

    def finish(self, name: str) -> TrainingRecord:
        """How a network's training went; from now on it is shown among the models."""
        over = self._over[name]
        if self.stores:
            graph, _ = self._graph_of(name)
            self.models.append(TrainedModel(name, name, TASK, over.validation_accuracy, graph))
        return over

    def _train(self, arrival: Arrival, parent: str | None) -> TrainingRecord:
        from wattkeeper.live.search.trainer import train

        name, graph_s, query_s = arrival.name, 0.0, 0.0
        if self.stores:
            if not math.isnan(self._asked_s):
                query_s = time.process_time() - self._asked_s
            graph, graph_s = self._graph_of(name)
            left = self._stored(name)
            if left is not None:  # it ended, and was not written down
                self.zoo.remove(left)
        net = self._net(name)
        began_s = time.process_time()
        warm = None if parent is None else self._fill(net, parent)
        transfer_s = time.process_time() - began_s if warm else 0.0

        def factor(epoch: int) -> float:
            return warm_factor(warm.matched, warm.of, epoch) if warm else 1.0

        order = self._number(f"order/{name}")
        power_limit_w = self.processor.power_limit_w
        ran = train(net, self._digits, self.plan.rule, order, factor, self.processor)
        if self.stores:
            self.zoo.add(
                graph, net.state_dict(), task=TASK, accuracy=ran.validation_accuracy, name=name,
                parent=None if parent is None else self._stored(parent),
            )  # fmt: skip
        parameters = sum(tensor.numel() for tensor in net.parameters())
        return TrainingRecord(
            variant=self.variant,
            seed=self.seed,
            model=name,
            mutated_from=arrival.mutated_from,
            mutation=arrival.mutation,
            settings=self.settings,
            parent=parent,
            coverage=warm.coverage if warm else 0.0,
            parameters=parameters,
            epochs=ran.epochs,
            best_epoch=ran.best_epoch,
            work=ran.epochs * parameters,
            validation_accuracy=ran.validation_accuracy,
            accuracy=ran.test_accuracy,
            time_s=ran.used.time_s,
            energy_j=ran.used.energy_j,
            energy_from=ran.used.how,
            power_limit_w=power_limit_w,
            graph_s=graph_s,
            query_s=query_s,
            transfer_s=transfer_s,
        )

    def _fill(self, net: nn.Module, parent: str) -> _Warm:
        """Fill a network from a stored one."""
        from wattkeeper.live.weight_transfer.report import FROM_PARENT
        from wattkeeper.live.weight_transfer.transfer import transfer

        number = self._stored(parent)
        if number is None:
            raise StoreError(f"{parent} is not in the zoo {self.zoo.path}")
        trained = self._net(parent)
        trained.load_state_dict(self.zoo.load(number))
        self.zoo.used(number)
        report = transfer(trained, net, self._inputs)
        filled = [one for one in report.tensors if one.trained and one.status in FROM_PARENT]
        theirs = sum(1 for _ in trained.parameters())
        return _Warm(report.coverage, len({one.source for one in filled}), theirs)
