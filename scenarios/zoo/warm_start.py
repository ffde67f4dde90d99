"""A child's initial weights, from a parent in the zoo whose code the user trusts."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from wattkeeper.live.zoo.parents import ParentMatch, choose_parent, match
from wattkeeper.live.zoo.rows import task_key
from wattkeeper.live.zoo.snapshot import ZooSnapshot, read_zoo
from wattkeeper.policies.errors import InputError, Problem, StoreError
from wattkeeper.policies.protocols import Job
from wattkeeper.policies.zoo_views import ChildModel
from wattkeeper.scenarios.zoo.inputs import check_torch, example_inputs, module
from wattkeeper.traces.files.atomic import replace_file

if TYPE_CHECKING:
    from torch import Tensor, nn

    from wattkeeper.live.weight_transfer.report import TransferReport
    from wattkeeper.live.zoo.rows import ZooModel
    from wattkeeper.live.zoo.zoo import Zoo
    from wattkeeper.policies.matching.graph import Graph
    from wattkeeper.policies.registry import PolicyConfig


class WarmStartRequest(NamedTuple):
    """What the user asks for.

    Attributes:
        child: The child's code, as `module:callable`.
        shape: Of its input; None derives it.
        task: What it is trained for.
        dataset: What it is trained on.
        mutated_from: Name of the model that it is a mutation of.
        parent: Number of its parent; None leaves it to the policy.
        policy: The `Configure` policy that chooses the parent.
        trust: Modules whose code may be run for a parent, besides the child's own.
    """

    child: str
    shape: str | None
    task: str | None
    dataset: str
    mutated_from: str | None
    parent: int | None
    policy: PolicyConfig
    trust: tuple[str, ...]


class WarmStartResult(NamedTuple):
    """A child that got weights: its parent, how similar that one is, and what became of each."""

    parent: ZooModel
    score: float
    report: TransferReport


def warm_start(zoo: Zoo, wanted: WarmStartRequest, out: Path) -> WarmStartResult:
    """Fill a child from a parent, count the parent's use, and write the child's weights.

    Raises:
        InputError: If no parent may be taken, code of the user fails, or there is no folder to
            write to.
        StoreError: If the parent is damaged, or not there.
        EnvironmentLacks: If torch or numba is absent or the file cannot be written.
    """
    check_torch()
    import torch
    from safetensors.torch import save

    from wattkeeper.live.weight_transfer.model_graph import graph_of, trace
    from wattkeeper.live.weight_transfer.transfer import grow

    if not out.parent.is_dir():
        raise InputError(f"cannot write {out}: there is no folder {out.parent}")
    torch.manual_seed(0)  # of what the child keeps: the same command writes the same weights
    child = module(wanted.child)
    graph = graph_of(child, example_inputs(wanted.shape, child), wanted.child)
    named = describe_child(graph, wanted.task or "", wanted.dataset, wanted.mutated_from)
    trusted = {wanted.child.partition(":")[0], *wanted.trust}
    match, state = read_zoo(
        lambda: ZooSnapshot(zoo, named, lambda model: not _refusal(model, trusted)),
        lambda snapshot: _choose(snapshot, wanted, named, trusted),
    )
    parent = _trained(match.model, state)
    inputs = example_inputs(wanted.shape, child, parent)
    report = grow(trace(parent, inputs, match.model.name), trace(child, inputs, wanted.child))
    weights = {name: value.clone().contiguous() for name, value in child.state_dict().items()}
    with replace_file(out) as fresh:
        fresh.write_bytes(save(weights))
    with suppress(StoreError):  # it was evicted meanwhile
        zoo.note_use(match.model.model_id)
    return WarmStartResult(match.model, match.score, report)


def describe_child(graph: Graph, task: str, dataset: str, mutated_from: str | None) -> ChildModel:
    """A model that the user is about to train, as policies see it."""
    return ChildModel(graph.name, task_key(task, dataset), graph, mutated_from)


def job_of(child: ChildModel) -> Job:
    """The job that trains a model."""
    return Job(child.name, child.task, 1, None, 1, 0.0, model=child.name)


def _choose(
    snapshot: ZooSnapshot, wanted: WarmStartRequest, child: ChildModel, trusted: set[str]
) -> tuple[ParentMatch, dict[str, Tensor]]:
    """The parent and its weights: the one that was named, or the policy's choice.

    Raises:
        InputError: If it may not be taken, or the policy chooses none.
        StoreError: If the one that was named is not there.
    """
    zoo, number = snapshot.zoo, wanted.parent
    if number is None:
        parent = choose_parent(wanted.policy, snapshot, job_of(child))
        if parent is None:
            raise InputError(_explain_none(snapshot, wanted.policy, child, trusted))
    elif number not in snapshot.stored:
        raise zoo.no_such_model(number)
    else:
        parent = snapshot.stored[number]
        if refusal := _refusal(parent, trusted):
            raise InputError(refusal)
    matcher = getattr(wanted.policy, "matcher", "coverage")
    return match(snapshot, parent, child.graph, matcher), zoo.load(parent.model_id)


def _explain_none(
    snapshot: ZooSnapshot, policy: PolicyConfig, child: ChildModel, trusted: set[str]
) -> list[Problem]:
    """Why a policy chooses no parent."""
    zoo = snapshot.zoo
    tasks = [model.task for model in snapshot.models()]
    if child.task not in tasks:
        there = ", ".join(dict.fromkeys(tasks)) or "nothing: it is empty"
        return [Problem(f"no model of {zoo.path} is for {child.task}; there is {there}")]
    if choose_parent(policy, ZooSnapshot(zoo, child), job_of(child)) is not None:
        peers = (snapshot.stored[int(model.model_id)] for model in snapshot.models()
                 if model.task == child.task)  # fmt: skip
        refusals = dict.fromkeys(_refusal(model, trusted) for model in peers)
        return [Problem("no parent whose code may be run"), *map(Problem, filter(None, refusals))]
    return [
        Problem(
            f"{policy.kind} chooses none of {tasks.count(child.task)} models for {child.task} as "
            "the parent; `wattkeeper zoo match` shows their scores"
        )
    ]


def _refusal(model: ZooModel, trusted: set[str]) -> str:
    """Why a model's code is not run; empty if it may be."""
    if not model.source:
        return f"model {model.model_id} ({model.name}) was added without --module, its code"
    home = model.source.partition(":")[0]
    if home not in trusted:
        return f"the code of model {model.model_id} ({model.name}) is in {home}; --trust {home}"
    return ""


def _trained(model: ZooModel, state: Mapping[str, Tensor]) -> nn.Module:
    """The module of a stored model with its weights."""
    parent = module(model.source)
    try:
        parent.load_state_dict(state)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"does not fit the weights of model {model.model_id}: {reason}", model.source
        ) from error
    return parent
