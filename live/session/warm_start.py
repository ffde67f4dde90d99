"""Starts a model from the most similar one of a zoo, and keeps it there when it is trained."""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from wattkeeper.live.session import distributed
from wattkeeper.live.weight_transfer.model_graph import trace
from wattkeeper.live.weight_transfer.program.example_inputs import derive_inputs
from wattkeeper.live.weight_transfer.transfer import transfer
from wattkeeper.live.zoo.matching import ParentRanking
from wattkeeper.live.zoo.zoo import Zoo
from wattkeeper.policies.configure.modelkeeper import ModelkeeperParentConfig
from wattkeeper.policies.errors import InputError, StoreError

if TYPE_CHECKING:
    from wattkeeper.live.weight_transfer.program.tracing import Inputs
    from wattkeeper.live.weight_transfer.report import TransferReport
    from wattkeeper.policies.matching.graph import Graph


class WarmStart(NamedTuple):
    """A model that started from a zoo, or could have.

    Attributes:
        model: The model, which is being trained.
        graph: Its architecture.
        zoo: The zoo.
        parent: Number of the model that it was filled from; None: of none.
        report: What became of its tensors; None: it was not filled.
    """

    model: nn.Module
    graph: Graph
    zoo: Zoo
    parent: int | None
    report: TransferReport | None


def begin(
    path: str | Path,
    task: str,
    model: nn.Module,
    older: Sequence[nn.Module],
    inputs: Inputs | None,
    *,
    fill: bool,
) -> WarmStart:
    """Fill a model in place from the parent that ModelKeeper's rule chooses (NSDI '23, section 4).

    Code is never taken from the zoo: a parent is of the architecture of the model, or of one of
    the older ones.

    Args:
        path: Folder of the zoo; it is made if it is not there.
        task: What the model is trained for; models of other tasks are no parents.
        model: Who is filled.
        older: Modules of other architectures that parents may have; they are left as they are.
        inputs: Positional arguments that all forwards take; by default derived.
        fill: Whether it is filled; else it only may enter the zoo.

    Raises:
        InputError: If a module cannot be traced.
        StoreError: If the folder holds no zoo, or a damaged one.
    """
    known = (model, *older)
    example = derive_inputs(*known) if inputs is None else inputs
    graphs = [trace(one, example, task).graph for one in known]
    zoo = Zoo(path)
    by_digest = {graph.digest: one for graph, one in zip(graphs, known, strict=True)}
    chosen = _chosen(zoo, graphs[0], task, by_digest) if fill else None
    if chosen is None:
        return WarmStart(model, graphs[0], zoo, None, None)
    number, digest = chosen
    source = copy.deepcopy(by_digest[digest])
    source.load_state_dict(zoo.load(number))
    return WarmStart(model, graphs[0], zoo, number, transfer(source, model, example))


def _chosen(zoo: Zoo, child: Graph, task: str, known: Collection[str]) -> tuple[int, str] | None:
    """Number and architecture of the parent; one that is evicted meanwhile is passed over."""
    minimum = ModelkeeperParentConfig().minimum
    while True:
        parents = ParentRanking(zoo, child)
        may = [one for one in parents.sound(task, minimum) if one.digest in known]
        match = parents.best(may, minimum)
        if match is None:
            return None
        try:
            zoo.used(match.model.model_id)
        except StoreError:
            if any(one.model_id == match.model.model_id for one in zoo.models()):
                raise
        else:
            return match.model.model_id, match.model.digest


def share(model: nn.Module) -> None:
    """Give the model of every process of the training the weights of that of rank 0.

    Raises:
        InputError: If it is another model there.
    """
    state = model.state_dict()
    box = [{name: _on_cpu(value) for name, value in state.items()}] if distributed.leads() else [{}]
    torch.distributed.broadcast_object_list(box, src=0)
    if distributed.leads():
        return
    try:
        model.load_state_dict(box[0])
    except RuntimeError as error:
        raise InputError(
            f"the model is not the one that the process of rank 0 has: {error}"
        ) from error


def _on_cpu(value: Any) -> Any:
    return value.cpu() if isinstance(value, torch.Tensor) else value


def keep(warm: WarmStart, task: str, name: str, accuracy: float, parent: int | None) -> str:
    """Offer a trained model to its zoo.

    Args:
        warm: The model.
        task: What it was trained for.
        name: Its name in the zoo.
        accuracy: The larger, the better.
        parent: Number of the model that its training started from; None: from scratch.

    Returns:
        Why it is not kept; empty if it is.

    Raises:
        StoreError: If it holds no finite weights, or the zoo is damaged.
    """
    added = warm.zoo.add(
        warm.graph, warm.model.state_dict(), task=task, accuracy=accuracy, name=name,
        parent=parent,
    )  # fmt: skip
    return added.reason
