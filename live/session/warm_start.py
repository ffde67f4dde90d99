"""Starts a model from one of a zoo, and adds it there when it is trained."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from wattkeeper.live.session import distributed
from wattkeeper.live.session.checkpoint import continues
from wattkeeper.live.weight_transfer.model_graph import trace
from wattkeeper.live.weight_transfer.program.example_inputs import derive_inputs
from wattkeeper.live.weight_transfer.transfer import transfer
from wattkeeper.live.zoo.parents import (
    Evaluate,
    check_evaluate,
    choose_parents,
    measure,
    parent_policy,
)
from wattkeeper.live.zoo.rows import ZooModel
from wattkeeper.live.zoo.snapshot import ZooSnapshot, read_zoo
from wattkeeper.live.zoo.tensors import check, tensors_of_state
from wattkeeper.live.zoo.zoo import Zoo
from wattkeeper.policies.errors import InputError, StoreError, WattkeeperError
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.zoo_views import ChildModel

if TYPE_CHECKING:
    from wattkeeper.live.weight_transfer.program.tracing import Inputs
    from wattkeeper.live.weight_transfer.report import TransferReport
    from wattkeeper.live.wire.messages import Assignment
    from wattkeeper.policies.matching.graph import Graph
    from wattkeeper.policies.registry import PolicyConfig

log = logging.getLogger("wattkeeper.session")


class WarmStart(NamedTuple):
    """A model that started from a zoo, or could have.

    Attributes:
        task: Name of the recurring job, whose models are of one task.
        name: Of the model in the zoo.
        model: The model, which is being trained.
        graph: Its architecture.
        zoo: The zoo.
        parent: Number of the model that it was filled from; None: of none.
        report: What became of its tensors; None: it was not filled.
    """

    task: str
    name: str
    model: nn.Module
    graph: Graph
    zoo: Zoo
    parent: int | None = None
    report: TransferReport | None = None

    def check_zoo(self, assignment: Assignment) -> None:
        """Refuse nothing: the model can enter the zoo."""

    def enter_zoo(self, accuracy: float | None, parent: int | None) -> str:
        """Add the trained model to the zoo; the reason of a refusal, or an empty text."""
        if accuracy is None:
            return "no metric was reported in the last epoch: the zoo needs the model's accuracy"
        try:
            refusal = self.zoo.add(
                self.graph,
                self.model.state_dict(),
                task=self.task,
                accuracy=accuracy,
                name=self.name,
                parent=parent,
            ).reason
        except (WattkeeperError, OSError) as lacks:
            refusal = str(lacks)
        if refusal:
            log.warning("the zoo did not take %s: %s", self.name, refusal)
        return refusal


ParentChoice = Callable[[ZooSnapshot], list[ZooModel]]
"""Chooses the parent from the models of a zoo, or several to be tried, or none."""


def take_assigned(name: str | None) -> ParentChoice:
    """Take the parent that the controller chose, by its name; the last one of that name."""

    def choose(snapshot: ZooSnapshot) -> list[ZooModel]:
        named = [model for model in snapshot.stored.values() if model.name == name]
        if name is not None and not named:
            raise StoreError(f"the assigned parent {name!r} is not in the zoo", snapshot.zoo.path)
        return named[-1:]

    return choose


def begin(
    assignment: Assignment,
    task: str,
    model: nn.Module,
    zoo: str | Path,
    older: Sequence[nn.Module],
    inputs: Inputs | None,
    policy: str | PolicyConfig,
    mutated_from: str | None,
    evaluate: Evaluate | None,
) -> WarmStart:
    """Fill a model in place from the parent that is chosen for it, unless the training continues.

    Code is never taken from the zoo: a parent is of the architecture of the model, or of one of
    the older ones.

    Arguments and errors are those of `Session.warm_start`. Models of other tasks are no parents.
    """
    if assignment.zoo is None:
        name = f"{assignment.job_id}.{assignment.attempt}"
        job = Job(name, task, assignment.recurrence, None, 1, 0.0, model=name)
        config = parent_policy(policy)
        check_evaluate(config, evaluate)
        choose: ParentChoice = partial(choose_parents, config, job=job)
    else:
        zoo, name, choose = assignment.zoo, assignment.job_id, take_assigned(assignment.parent)
    modules = (model, *older)
    example = derive_inputs(*modules) if inputs is None else inputs
    graphs = [trace(module, example, task).graph for module in modules]
    begun = WarmStart(task, name, model, graphs[0], Zoo(zoo))
    if continues(assignment):
        return begun
    try:
        check(tensors_of_state(model.state_dict()), begun.graph)
    except StoreError as lacks:
        log.warning("the zoo will not take %s when it is trained: %s", name, lacks)
    by_digest = {graph.digest: module for graph, module in zip(graphs, modules, strict=True)}
    child = ChildModel(name, task, begun.graph, mutated_from)

    def load(snapshot: ZooSnapshot) -> list[tuple[ZooModel, dict[str, torch.Tensor]]]:
        parents = choose(snapshot)
        for parent in parents:
            if parent.digest not in by_digest:
                raise InputError(
                    f"warm_start: the parent {parent.name!r} has another architecture than the "
                    "model; give a module of it (older=[...])"
                )
        return [(parent, begun.zoo.load(parent.model_id)) for parent in parents]

    loaded = read_zoo(
        lambda: ZooSnapshot(begun.zoo, child, lambda row: row.digest in by_digest), load
    )
    if not loaded:
        return begun
    sources = {
        parent: _load_trained(begun.zoo, by_digest[parent.digest], parent, weights)
        for parent, weights in loaded
    }
    if len(sources) == 1:
        [(parent, source)] = sources.items()
        report = transfer(source, model, example)
    else:
        assert evaluate is not None
        parent, report = _try(sources, model, example, evaluate)
    with suppress(StoreError):  # it was evicted meanwhile
        begun.zoo.note_use(parent.model_id)
    return begun._replace(parent=parent.model_id, report=report)


def _load_trained(
    zoo: Zoo, module: nn.Module, model: ZooModel, weights: dict[str, torch.Tensor]
) -> nn.Module:
    trained = copy.deepcopy(module)
    try:
        trained.load_state_dict(weights)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise StoreError(
            f"the weights of {model.name!r} do not fit its module: {reason}", zoo.path
        ) from error
    return trained


def _try(
    sources: Mapping[ZooModel, nn.Module], model: nn.Module, example: Inputs, evaluate: Evaluate
) -> tuple[ZooModel, TransferReport]:
    """Fill a model from the parent with which it has the best metric, the first of equal ones."""
    best = -math.inf
    for parent, source in sources.items():
        filled = copy.deepcopy(model)
        report = transfer(source, filled, example)
        metric = measure(evaluate, filled, parent)
        log.info("with the weights of %s: %g", parent.name, metric)
        if metric > best:
            best, found, weights = metric, (parent, report), filled.state_dict()
    model.load_state_dict(weights)
    return found


def share(model: nn.Module) -> None:
    """Give the model of every process of the training the weights of that of rank 0.

    Raises:
        InputError: If it is another model there.
    """
    box: list[dict[str, Any]] = [{}]
    if distributed.is_leader():
        state = model.state_dict().items()
        box = [{name: v.cpu() if isinstance(v, torch.Tensor) else v for name, v in state}]
    torch.distributed.broadcast_object_list(box, src=0)
    if distributed.is_leader():
        return
    try:
        model.load_state_dict(box[0])
    except RuntimeError as error:
        raise InputError(
            f"the model is not the one that the process of rank 0 has: {error}"
        ) from error
