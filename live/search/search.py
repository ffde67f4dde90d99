"""An architecture search that trains in this process, with or without a zoo.

::

    FOLDER/VARIANT-SEED.jsonl   the finished trainings
    FOLDER/VARIANT-SEED.zoo/    the zoo of trained models, where the variant has one

An interrupted search restarts the training that was running, and its results are the same as
without the interruption: a network's result depends only on the seed, its name and its parent.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from wattkeeper.live.search import dataset
from wattkeeper.live.search.training_log import FinishedTraining, append_training, read_trainings
from wattkeeper.live.search.trial import ParentArm, TakenWeights, TriedParents, try_arms
from wattkeeper.policies.errors import StoreError
from wattkeeper.policies.matching.choice import warm_factor
from wattkeeper.policies.matching.matchers import find_matcher
from wattkeeper.policies.matching.relation import retained_share
from wattkeeper.policies.matching.search import ParentSearch
from wattkeeper.policies.zoo_views import ChildModel, TrainedModel
from wattkeeper.sim.search.architectures import FIRST, Architecture, CandidateNetwork, describe
from wattkeeper.sim.search.strategy import NamedTrials, Strategy
from wattkeeper.traces.files.names import file_name
from wattkeeper.traces.files.private import make_private_folder

if TYPE_CHECKING:
    from torch import Tensor, nn

    from wattkeeper.live.search.processor import Processor
    from wattkeeper.live.search.trainer import TrainingRule
    from wattkeeper.live.weight_transfer.model_graph import TracedModule
    from wattkeeper.live.zoo.zoo import Zoo
    from wattkeeper.policies.matching.graph import Graph

TASK: Final = "digits"

NETWORKS: Final = "networks"
"""The name under which networks are drawn."""

RULES: Final = 4
"""Version of the training; raised when the same settings give other results."""


class SearchPlan(NamedTuple):
    """How networks are proposed, and how each is trained.

    Attributes:
        name: The strategy and its settings, as text.
        start: Begins the strategy anew with a seed.
        rule: How each network is trained.
    """

    name: str
    start: Callable[[int], Strategy[Architecture]]
    rule: TrainingRule


def derive_seed(seed: int, name: str) -> int:
    """The seed, of 63 bits, of what is drawn under a name in a search."""
    digest = blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1  # torch takes signed seeds


def path_of_run(folder: Path, variant: str, seed: int, what: str) -> Path:
    """Path of what the run of a variant with a seed leaves in the folder of a search."""
    return folder / f"{file_name(variant)}-{seed}.{what}"


def log_path(folder: Path, variant: str, seed: int) -> Path:
    """Path of the log of a search's finished trainings."""
    return path_of_run(folder, variant, seed, "jsonl")


class _Prepared(NamedTuple):
    """A network about to be trained, and CPU times of its graph and the choice of parents, s.

    The graph is None where nothing is stored.
    """

    graph: Graph | None
    graph_s: float
    query_s: float


class SearchRun:
    """The search of one variant with one seed, whose files are in a folder.

    The seed determines the networks, the split of the data, initial weights and batch orders.

    Attributes:
        candidates: The networks that were proposed so far by name, in order.
        models: The zoo as policies see it: the networks that finished so far, in order.
        stores: Whether trained networks enter the zoo.
        observers: Called with the name and the weights of each network that was trained, before it
            is logged.

    Raises:
        StoreError: If the folder has trainings with other settings, or damaged ones.
    """

    def __init__(
        self, folder: Path, variant: str, seed: int, plan: SearchPlan, processor: Processor
    ) -> None:
        self.variant, self.seed, self.plan, self.processor = variant, seed, plan, processor
        settings = {"search": plan.name, **plan.rule._asdict(), "gpu": processor.gpu_type}
        self.settings = ", ".join(f"{name} {value}" for name, value in settings.items())
        self.settings += f"; rules {RULES}"
        self.candidates: dict[str, CandidateNetwork] = {}
        self._trials = NamedTrials(plan.start(self._derive_seed(NETWORKS)), describe)
        folder.parent.mkdir(parents=True, exist_ok=True)
        make_private_folder(folder)
        self._log = log_path(folder, variant, seed)
        self._zoo_folder = path_of_run(folder, variant, seed, "zoo")
        self.outputs_folder = path_of_run(folder, variant, seed, "outputs")
        self._finished = {record.model: record for record in read_trainings(self._log)}
        self._graph: tuple[str, Graph, float] | None = None
        self._programs: dict[str, TracedModule] = {}
        self._tried: dict[str, tuple[_Prepared, TriedParents]] = {}
        self.models: list[TrainedModel] = []
        self.stores = False
        self.observers: list[Callable[[str, nn.Module], None]] = []
        self._query_start_s = math.nan
        for record in self._finished.values():
            if (record.variant, record.seed) != (variant, seed):
                raise StoreError(
                    f"{self._log} has a training of {record.variant}, seed {record.seed}: remove "
                    "the file to train again, or name another folder (--out)"
                )
            if record.settings != self.settings:
                raise StoreError(
                    f"{self._log} was trained with {record.settings}, now it would be "
                    f"{self.settings}: name another folder (--out)"
                )

    def _derive_seed(self, name: str) -> int:
        return derive_seed(self.seed, name)

    def _rng(self, name: str) -> np.random.Generator:
        return np.random.default_rng(self._derive_seed(name))

    @cached_property
    def digits(self) -> dataset.Digits:
        """The images that networks are trained and tested on."""
        return dataset.load(self._rng("split"))

    @cached_property
    def zoo(self) -> Zoo:
        """The zoo on disk, created on first use."""
        from wattkeeper.live.zoo.zoo import Zoo

        return Zoo(self._zoo_folder, retain="keep-all")

    def propose(self) -> str | None:
        """Name of the next network; None if the search is over or waits for a `report`."""
        found = self._trials.propose()
        if found is None:
            return None
        self.candidates[found.name] = CandidateNetwork(*found)
        return found.name

    def report(self, name: str, reached: bool) -> None:
        """Tell the strategy the validation accuracy of a network that ended."""
        self._trials.report(name, self._finished[name].validation_accuracy)

    def workload(self, name: str) -> str:
        """What all networks train."""
        return TASK

    def warm_up(self, matcher: str | None) -> None:
        """Import and compile what the first transfer needs, so that it is in no measured time."""
        from wattkeeper.live.search.layers import build
        from wattkeeper.live.weight_transfer.model_graph import trace
        from wattkeeper.live.weight_transfer.transfer import transfer

        net = build(FIRST, dataset.CHANNELS, dataset.CLASSES)
        graph = trace(net, self._inputs, "").graph
        transfer(net, build(FIRST, dataset.CHANNELS, dataset.CLASSES), self._inputs)
        if matcher is not None:
            graph_matcher = find_matcher(matcher)
            ParentSearch(graph_matcher, [graph_matcher.sketch(graph)]).best(
                graph,
                lambda _: graph_matcher.score_graphs(graph, graph),
                retained=lambda _: retained_share(graph, graph),
            )

    @property
    def _inputs(self) -> tuple[Tensor, ...]:
        import torch

        return (torch.zeros(2, dataset.CHANNELS, dataset.SIDE, dataset.SIDE),)

    def child(self, name: str) -> ChildModel:
        """A network that is about to be trained, as policies see it."""
        graph, _ = self._trace(name)
        self._query_start_s = time.process_time()
        return ChildModel(name, TASK, graph, self.candidates[name].mutated_from)

    def _trace(self, name: str) -> tuple[Graph, float]:
        """A network's graph, from the zoo if it is stored, and the CPU time of tracing it, s."""
        if self._graph is None or self._graph[0] != name:
            stored = self._find_stored(name)
            if stored is not None:
                self._graph = name, self.zoo.graph(stored), 0.0
            else:
                began_s = time.process_time()
                graph = self._trace_program(name).graph
                self._graph = name, graph, time.process_time() - began_s
        return self._graph[1:]

    def _trace_program(self, name: str) -> TracedModule:
        """A network's program and graph, traced once; its module has no weights."""
        from wattkeeper.live.weight_transfer.model_graph import trace

        if name not in self._programs:
            traced = trace(self._build(name), self._inputs, name)
            traced.module.to("meta")
            self._programs[name] = traced
        return self._programs[name]

    def _find_stored(self, name: str) -> int | None:
        return {model.name: model.model_id for model in self.zoo.models()}.get(name)

    def _stored(self, name: str) -> int:
        model_id = self._find_stored(name)
        if model_id is None:
            raise StoreError(f"{name} is not in the zoo {self.zoo.path}")
        return model_id

    def _build(self, name: str) -> nn.Module:
        import torch

        from wattkeeper.live.search.layers import build

        torch.manual_seed(self._derive_seed(f"weights/{name}"))
        return build(self.candidates[name].architecture, dataset.CHANNELS, dataset.CLASSES)

    def try_parents(self, name: str, parents: Sequence[str], epochs: int) -> str:
        """The best of several parents of a network, whose training `train` goes on with.

        `epochs`: of each parent before the first halving. The parent is that of the record if the
        network was trained before.

        Raises:
            StoreError: If it was trained after another trial before, or the zoo is damaged.
        """
        record = self._finished.get(name)
        if record is None:
            prepared = self._prepare(name)
            arms = [self._begin(name, parent) for parent in parents]
            tried = try_arms(arms, epochs, self.digits)
            self._tried[name] = prepared, tried
            return str(tried.best.parent)
        asked = tuple(parents), epochs
        trial = record.trial
        if record.parent is None or trial is None or (trial.parents, trial.rung) != asked:
            raise StoreError(
                f"{self._log}: {name} was trained without this trial of parents; name another "
                "folder (--out)"
            )
        return record.parent

    def train(self, name: str, parent: str | None) -> FinishedTraining:
        """Train a network, or return its record if it was trained before.

        Without a parent it starts from scratch.

        Raises:
            StoreError: If it was trained from another parent before, or the zoo is damaged.
        """
        record = self._finished.get(name)
        if record is None:
            record = self._train(self.candidates[name], parent)
            append_training(self._log, record)
            self._finished[name] = record
        elif record.parent != parent:
            raise StoreError(
                f"{self._log}: {name} was trained from {record.parent}, now the choice is "
                f"{parent}; name another folder (--out)"
            )
        return record

    def finish(self, name: str) -> FinishedTraining:
        """The record of a trained network, which policies see from now on."""
        record = self._finished[name]
        if self.stores:
            graph, _ = self._trace(name)
            self.models.append(TrainedModel(name, name, TASK, record.validation_accuracy, graph))
        return record

    def _prepare(self, name: str) -> _Prepared:
        query_s = 0.0
        if not self.stores:
            return _Prepared(None, 0.0, query_s)
        if not math.isnan(self._query_start_s):
            query_s = time.process_time() - self._query_start_s
        graph, graph_s = self._trace(name)
        stored = self._find_stored(name)
        if stored is not None:  # by a training that was interrupted before it was logged
            self.zoo.remove(stored)
        return _Prepared(graph, graph_s, query_s)

    def _begin(self, name: str, parent: str | None) -> ParentArm:
        """A network with the weights of a parent, whose training has not begun."""
        from wattkeeper.live.search.trainer import NetworkTraining

        net = self._build(name)
        began_s = time.process_time()
        warm = None if parent is None else self._fill(name, net, parent)
        transfer_s = time.process_time() - began_s if warm else 0.0

        def lr_factor(epoch: int) -> float:
            return warm_factor(warm.matched, warm.parent_tensors, epoch) if warm else 1.0

        order_seed = self._derive_seed(f"order/{name}")
        rule, processor = self.plan.rule, self.processor
        training = NetworkTraining(net, self.digits, rule, order_seed, lr_factor, processor)
        return ParentArm(parent, warm, net, training, transfer_s)

    def _train(self, candidate: CandidateNetwork, parent: str | None) -> FinishedTraining:
        name = candidate.name
        if name in self._tried:
            prepared, tried = self._tried.pop(name)
        else:
            prepared, arm = self._prepare(name), self._begin(name, parent)
            tried = TriedParents(arm, None, arm.transfer_s)
        net, warm = tried.best.net, tried.best.warm
        power_limit_w = self.processor.power_limit_w
        result = tried.best.training.finish()
        if parent is not None:
            self.zoo.note_use(self._stored(parent))
        if prepared.graph is not None:
            self.zoo.add(
                prepared.graph,
                net.state_dict(),
                task=TASK,
                accuracy=result.validation_accuracy,
                name=name,
                parent=None if parent is None else self._stored(parent),
            )
        for observe in self.observers:
            observe(name, net)
        parameters = sum(tensor.numel() for tensor in net.parameters())
        return FinishedTraining(
            variant=self.variant,
            seed=self.seed,
            model=name,
            mutated_from=candidate.mutated_from,
            settings=self.settings,
            parent=parent,
            coverage=warm.coverage if warm else 0.0,
            parameters=parameters,
            epochs=result.epochs,
            best_epoch=result.best_epoch,
            work=result.epochs * parameters,
            validation_accuracy=result.validation_accuracy,
            accuracy=result.test_accuracy,
            time_s=result.reading.time_s,
            energy_j=result.reading.energy_j,
            energy_from=result.reading.how,
            power_limit_w=power_limit_w,
            graph_s=prepared.graph_s,
            query_s=prepared.query_s,
            transfer_s=tried.transfer_s,
            trial=tried.record,
        )

    def _fill(self, name: str, net: nn.Module, parent: str) -> TakenWeights:
        """Transfer the weights of a stored network to the module of another one."""
        from wattkeeper.live.weight_transfer.report import FROM_PARENT
        from wattkeeper.live.weight_transfer.transfer import grow

        trained = self._build(parent)
        trained.load_state_dict(self.zoo.load(self._stored(parent)))
        report = grow(
            replace(self._trace_program(parent), module=trained),
            replace(self._trace_program(name), module=net),
        )
        filled = [item for item in report.tensors if item.trained and item.status in FROM_PARENT]
        sources = {item.source for item in filled}
        return TakenWeights(report.coverage, len(sources), len(list(trained.parameters())))
