"""A child's initial weights, from a parent in the zoo whose code the user trusts."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from wattkeeper.live.zoo.parents import (
    DEFAULT_MATCHER,
    ParentMatch,
    check_evaluate,
    choose_parents,
    match,
    measure,
)
from wattkeeper.live.zoo.rows import task_key
from wattkeeper.live.zoo.snapshot import ZooSnapshot, read_zoo
from wattkeeper.policies.errors import InputError, Problem, StoreError
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.zoo_views import ChildModel
from wattkeeper.scenarios.zoo.inputs import (
    call,
    check_torch,
    example_inputs,
    load_callable,
    load_module,
)
from wattkeeper.traces.files.atomic import replace_file
from wattkeeper.traces.files.names import check_label

if TYPE_CHECKING:
    from torch import Tensor, nn

    from wattkeeper.live.weight_transfer.report import TransferReport
    from wattkeeper.live.zoo.rows import ZooModel
    from wattkeeper.live.zoo.zoo import Zoo
    from wattkeeper.policies.matching.graph import Graph
    from wattkeeper.policies.registry import PolicyConfig


class WarmStartRequest(NamedTuple):
    """A user's request for a warm start.

    Attributes:
        child: The child's code, as `module:callable`.
        shape: Shape of the child's input; None derives it.
        task: Task of the child.
        dataset: Data set of the child.
        mutated_from: Name of the model that it is a mutation of.
        parent: Number of its parent; None leaves it to the policy.
        policy: The `Configure` policy that chooses the parent.
        trust: Modules whose code may be run for a parent, besides the child's own.
        evaluate: The user's code that measures a filled child, as `module:callable`.
    """

    child: str
    shape: str | None
    task: str | None
    dataset: str
    mutated_from: str | None
    parent: int | None
    policy: PolicyConfig
    trust: tuple[str, ...]
    evaluate: str | None = None


class WarmStartResult(NamedTuple):
    """What a child got its weights from.

    Attributes:
        match: The parent.
        report: What became of each tensor.
        tried: The parents that were tried, each with the metric of the child; empty: none was.
    """

    match: ParentMatch
    report: TransferReport
    tried: list[tuple[ZooModel, float]]


class _Candidate(NamedTuple):
    """A parent that may be taken, and its weights."""

    match: ParentMatch
    state: dict[str, Tensor]


def warm_start(zoo: Zoo, request: WarmStartRequest, out: Path) -> WarmStartResult:
    """Fill a child from a parent, count the parent's use, and write the child's weights.

    A parent that is evicted meanwhile is passed over for the next one.

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
    from wattkeeper.live.weight_transfer.transfer import grow_checked

    if not out.parent.is_dir():
        raise InputError(f"cannot write {out}: there is no folder {out.parent}")
    torch.manual_seed(0)  # of what the child keeps: the same command writes the same weights
    evaluate = None if request.evaluate is None else load_callable(request.evaluate)
    check_evaluate(request.policy, evaluate)
    child = load_module(request.child)
    graph = graph_of(child, example_inputs(request.shape, child), request.child)
    model = describe_child(graph, request.task or "", request.dataset, request.mutated_from)
    trusted = {request.child.partition(":")[0], *request.trust}
    candidates = read_zoo(
        lambda: ZooSnapshot(zoo, model, lambda stored: not _explain_refusal(stored, trusted)),
        lambda snapshot: _choose(snapshot, request, model, trusted),
    )
    tried: list[tuple[ZooModel, float]] = []
    for candidate in candidates if len(candidates) > 1 else ():
        metric = _measure(candidate, request, child)
        tried.append((candidate.match.model, metric))
    metrics = [metric for _, metric in tried]
    match, state = candidates[metrics.index(max(metrics)) if tried else 0]
    parent = _load_trained(match.model, state)
    inputs = example_inputs(request.shape, child, parent)
    traced = trace(parent, inputs, match.model.name), trace(child, inputs, request.child)
    report = grow_checked(*traced, inputs, verify=True)
    weights = {name: value.clone().contiguous() for name, value in child.state_dict().items()}
    with replace_file(out) as fresh:
        fresh.write_bytes(save(weights))
    with suppress(StoreError):  # it was evicted meanwhile
        zoo.note_use(match.model.model_id)
    return WarmStartResult(match.as_kept(keeps=report.preserved_in_eval), report, tried)


def describe_child(graph: Graph, task: str, dataset: str, mutated_from: str | None) -> ChildModel:
    """A model that the user is about to train, as policies see it.

    Raises:
        InputError: If a name is not allowed.
    """
    names = {"task": task, "data set": dataset, "model name": mutated_from}
    for what, name in names.items():
        check_label(name or "-", what)
    return ChildModel(graph.name, task_key(task, dataset), graph, mutated_from)


def job_of(child: ChildModel) -> Job:
    """The job that trains a model."""
    return Job(child.name, child.task, 1, None, 1, 0.0, model=child.name)


def _choose(
    snapshot: ZooSnapshot, request: WarmStartRequest, child: ChildModel, trusted: set[str]
) -> list[_Candidate]:
    """The parent that was named, or the policy's choice: one, or several to be tried.

    Raises:
        InputError: If it may not be taken, or the policy chooses none.
        StoreError: If the one that was named is not there.
    """
    zoo, number = snapshot.zoo, request.parent
    if number is None:
        parents = choose_parents(request.policy, snapshot, job_of(child))
        if not parents:
            raise InputError(_explain_none(snapshot, request.policy, child, trusted))
    elif number not in snapshot.stored:
        raise zoo.no_such_model(number)
    else:
        parents = [snapshot.stored[number]]
        if refusal := _explain_refusal(parents[0], trusted):
            raise InputError(refusal)
    matcher = getattr(request.policy, "matcher", DEFAULT_MATCHER)
    return [
        _Candidate(match(snapshot, parent, child.graph, matcher), zoo.load(parent.model_id))
        for parent in parents
    ]


def _measure(candidate: _Candidate, request: WarmStartRequest, child: nn.Module) -> float:
    """The metric of a copy of a child that is filled from a parent.

    Raises:
        InputError: If code of the user fails, or gives no finite number.
    """
    from wattkeeper.live.weight_transfer.model_graph import trace
    from wattkeeper.live.weight_transfer.transfer import grow

    model, filled, text = candidate.match.model, copy.deepcopy(child), str(request.evaluate)
    parent = _load_trained(model, candidate.state)
    inputs = example_inputs(request.shape, child, parent)
    grow(trace(parent, inputs, model.name), trace(filled, inputs, request.child))
    evaluate = load_callable(text)
    return measure(lambda net: call(evaluate, text, net), filled, model)


def _explain_none(
    snapshot: ZooSnapshot, policy: PolicyConfig, child: ChildModel, trusted: set[str]
) -> list[Problem]:
    """Why a policy chooses no parent."""
    zoo = snapshot.zoo
    tasks = [model.task for model in snapshot.models()]
    if child.task not in tasks:
        known = ", ".join(dict.fromkeys(tasks)) or "nothing: it is empty"
        return [Problem(f"no model of {zoo.path} is for {child.task}; there is {known}")]
    if choose_parents(policy, ZooSnapshot(zoo, child), job_of(child)):
        peers = (
            snapshot.stored[int(model.model_id)]
            for model in snapshot.models()
            if model.task == child.task
        )
        refusals = dict.fromkeys(_explain_refusal(model, trusted) for model in peers)
        return [Problem("no parent whose code may be run"), *map(Problem, filter(None, refusals))]
    minimum = getattr(policy, "minimum", None)
    least = "" if minimum is None else f"; its minimum is {minimum:g}"
    return [
        Problem(
            f"{policy.kind} chooses none of {tasks.count(child.task)} models for {child.task} as "
            f"the parent{least}; `wattkeeper zoo match` shows their scores"
        )
    ]


def _explain_refusal(model: ZooModel, trusted: set[str]) -> str:
    """Why a model's code is not run; empty if it may be."""
    if not model.source:
        return f"model {model.model_id} ({model.name}) was added without --module, its code"
    home = model.source.partition(":")[0]
    if home not in trusted:
        return f"the code of model {model.model_id} ({model.name}) is in {home}; --trust {home}"
    return ""


def _load_trained(model: ZooModel, state: Mapping[str, Tensor]) -> nn.Module:
    """The module of a stored model with its weights."""
    parent = load_module(model.source)
    try:
        parent.load_state_dict(state)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"does not fit the weights of model {model.model_id}: {reason}", model.source
        ) from error
    return parent
