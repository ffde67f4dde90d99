"""Starts a model from one of a zoo, and adds it there when it is trained."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from wattkeeper.live.session import distributed
from wattkeeper.live.weight_transfer.model_graph import trace
from wattkeeper.live.weight_transfer.program.example_inputs import derive_inputs
from wattkeeper.live.weight_transfer.transfer import transfer
from wattkeeper.live.zoo.parents import choose_parent, parent_policy
from wattkeeper.live.zoo.rows import ZooModel
from wattkeeper.live.zoo.snapshot import ZooSnapshot, read_zoo
from wattkeeper.live.zoo.zoo import Zoo
from wattkeeper.policies.errors import InputError, StoreError
from wattkeeper.policies.zoo_views import ChildModel

if TYPE_CHECKING:
    from wattkeeper.live.weight_transfer.program.tracing import Inputs
    from wattkeeper.live.weight_transfer.report import TransferReport
    from wattkeeper.policies.matching.graph import Graph
    from wattkeeper.policies.points.job import Job
    from wattkeeper.policies.registry import PolicyConfig


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


ParentChoice = Callable[[ZooSnapshot], ZooModel | None]
"""Chooses the parent from the models of a zoo; None: there is none."""


def ask_policy(policy: str | PolicyConfig, job: Job) -> ParentChoice:
    """Let a policy choose the parent of a job's model.

    Raises:
        InputError: If it chooses no parents.
    """
    return partial(choose_parent, parent_policy(policy), job=job)


def take_assigned(name: str | None) -> ParentChoice:
    """Take the parent that the controller chose, by its name; the last one of that name."""

    def choose(snapshot: ZooSnapshot) -> ZooModel | None:
        named = [model for model in snapshot.stored.values() if model.name == name]
        if name is not None and not named:
            raise StoreError(f"the assigned parent {name!r} is not in the zoo", snapshot.zoo.path)
        return named[-1] if named else None

    return choose


def begin(
    path: str | Path,
    job: Job,
    model: nn.Module,
    older: Sequence[nn.Module],
    inputs: Inputs | None,
    choose: ParentChoice,
    mutated_from: str | None,
    *,
    fill: bool,
) -> WarmStart:
    """Fill a model in place from the parent that is chosen for it.

    Code is never taken from the zoo: a parent is of the architecture of the model, or of one of
    the older ones.

    Arguments and errors are those of `Session.warm_start`. The group of `job` is the task; models
    of other tasks are no parents. Without `fill`, the model only may enter the zoo.
    """
    modules = (model, *older)
    example = derive_inputs(*modules) if inputs is None else inputs
    graphs = [trace(module, example, job.group_id).graph for module in modules]
    zoo, graph = Zoo(path), graphs[0]
    if not fill:
        return WarmStart(model, graph, zoo, None, None)
    by_digest = {graph.digest: module for graph, module in zip(graphs, modules, strict=True)}
    child = ChildModel(job.job_id, job.group_id, graph, mutated_from)

    def load(snapshot: ZooSnapshot) -> tuple[ZooModel, dict[str, torch.Tensor]] | None:
        parent = choose(snapshot)
        if parent is None:
            return None
        if parent.digest not in by_digest:
            raise InputError(
                f"warm_start: the parent {parent.name!r} has another architecture than the model; "
                "give a module of it (older=[...])"
            )
        weights = zoo.load(parent.model_id)
        zoo.note_use(parent.model_id)
        return parent, weights

    chosen = read_zoo(lambda: ZooSnapshot(zoo, child, lambda row: row.digest in by_digest), load)
    if chosen is None:
        return WarmStart(model, graph, zoo, None, None)
    parent, weights = chosen
    source = copy.deepcopy(by_digest[parent.digest])
    source.load_state_dict(weights)
    return WarmStart(model, graph, zoo, parent.model_id, transfer(source, model, example))


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
