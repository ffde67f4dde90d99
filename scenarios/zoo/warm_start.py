"""A child's initial weights, from a parent in the zoo whose code the user trusts."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from wattkeeper.live.zoo.matching import ParentMatch, ParentRanking
from wattkeeper.live.zoo.rows import task_key
from wattkeeper.policies.errors import InputError, Problem, StoreError
from wattkeeper.scenarios.zoo.inputs import check_torch, example_inputs, module
from wattkeeper.traces.files.atomic import replacing_file

if TYPE_CHECKING:
    from torch import Tensor, nn

    from wattkeeper.live.weight_transfer.report import TransferReport
    from wattkeeper.live.zoo.rows import ZooModel
    from wattkeeper.live.zoo.zoo import Zoo


class WarmStartRequest(NamedTuple):
    """What the user asks for.

    Attributes:
        child: The child's code, as `module:callable`.
        shape: Of its input; None derives it.
        task: What it is trained for.
        dataset: What it is trained on.
        parent: Number of its parent; None takes the best one of its task.
        matcher: What scores parents.
        minimum: The least score of a parent that was not named.
        trust: Modules whose code may be run for a parent, besides the child's own.
    """

    child: str
    shape: str | None
    task: str | None
    dataset: str
    parent: int | None
    matcher: str
    minimum: float
    trust: tuple[str, ...]


class WarmStartResult(NamedTuple):
    """A child that got weights: from whom, how similar that one is, and what became of each."""

    parent: ZooModel
    score: float
    report: TransferReport


def warm_start(zoo: Zoo, wanted: WarmStartRequest, out: Path) -> WarmStartResult:
    """Fill a child from a parent, count the parent's use, and write the child's weights.

    A parent that is evicted meanwhile is passed over for the next one.

    Raises:
        InputError: If there is no parent that may be taken, code of the user fails, or there is no
            folder to write to.
        StoreError: If the parent is damaged, or not there.
        EnvironmentLacks: If torch or numba is absent or the file cannot be written.
    """
    check_torch()
    import torch

    from wattkeeper.live.weight_transfer.model_graph import graph_of, trace
    from wattkeeper.live.weight_transfer.transfer import grow

    if not out.parent.is_dir():
        raise InputError(f"cannot write {out}: there is no folder {out.parent}")
    torch.manual_seed(0)  # of what the child keeps: the same command writes the same weights
    child = module(wanted.child)
    graph = graph_of(child, example_inputs(wanted.shape, child), wanted.child)
    parents = ParentRanking(zoo, graph, wanted.matcher)
    while True:
        match = _chosen(zoo, parents, wanted)
        try:
            state = zoo.load(match.model.model_id)
            break
        except StoreError:
            still_there = any(model.model_id == match.model.model_id for model in zoo.models())
            if still_there or wanted.parent is not None:
                raise
            parents = ParentRanking(zoo, graph, wanted.matcher)
    parent = _trained(match.model, state)
    inputs = example_inputs(wanted.shape, child, parent)
    report = grow(trace(parent, inputs, match.model.name), trace(child, inputs, wanted.child))
    _save(child, out)
    with suppress(StoreError):  # it was evicted meanwhile
        zoo.used(match.model.model_id)
    return WarmStartResult(match.model, match.score, report)


def _chosen(zoo: Zoo, parents: ParentRanking, wanted: WarmStartRequest) -> ParentMatch:
    """The parent that was named, or the best one whose code may be run.

    Raises:
        InputError: If there is none that may be taken.
        StoreError: If the one that was named is not there.
    """
    trusted = {wanted.child.partition(":")[0], *wanted.trust}
    if wanted.parent is not None:
        named = [model for model in parents.models if model.model_id == wanted.parent]
        if not named:
            raise zoo.absent(wanted.parent)
        if refusal := _refusal(named[0], trusted):
            raise InputError(refusal)
        return parents.score(named[0])
    task = task_key(wanted.task or "", wanted.dataset)
    may = parents.sound(task, wanted.minimum)
    runnable = [model for model in may if not _refusal(model, trusted)]
    match = parents.best(runnable, wanted.minimum)
    if match is not None:
        return match
    keys = [task_key(model.task, model.dataset) for model in parents.models]
    if task not in keys:
        there = ", ".join(dict.fromkeys(keys)) or "nothing: it is empty"
        raise InputError(f"no model of {zoo.path} is for {task}; there is {there}")
    if parents.best(may, wanted.minimum) is not None:
        refusals = dict.fromkeys(_refusal(model, trusted) for model in may)
        raise InputError(
            [Problem("no parent whose code may be run"), *map(Problem, filter(None, refusals))]
        )
    raise InputError(
        f"none of {keys.count(task)} models for {task} may be the parent: a score of at least "
        f"{wanted.minimum:g} times the child's own and no outlier's accuracy are needed; "
        "`wattkeeper zoo match` shows the scores"
    )


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
            Problem(f"does not fit the weights of model {model.model_id}: {reason}", model.source)
        ) from error
    return parent


def _save(child: nn.Module, out: Path) -> None:
    """Write the state of a module; the file appears whole or not at all."""
    from safetensors.torch import save

    state = {name: value.clone().contiguous() for name, value in child.state_dict().items()}
    with replacing_file(out) as made:
        made.write_bytes(save(state))
