"""A child's initial weights, from a parent in the zoo whose code the user trusts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from wattkeeper.live.zoo_match import Match, rank
from wattkeeper.live.zoo_rows import task_key
from wattkeeper.policies.errors import EnvironmentLacks, InputError, Problem, StoreError
from wattkeeper.policies.zoo.choice import Candidate, eligible
from wattkeeper.scenarios.zoo_inputs import example_inputs, module

if TYPE_CHECKING:
    from torch import Tensor, nn

    from wattkeeper.live.report import TransferReport
    from wattkeeper.live.zoo import Zoo
    from wattkeeper.live.zoo_rows import Model


class Wanted(NamedTuple):
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


class WarmStart(NamedTuple):
    """A child that got weights: from whom, how similar that one is, and what became of each."""

    parent: Model
    score: float
    report: TransferReport


def warm_start(zoo: Zoo, wanted: Wanted, out: Path) -> WarmStart:
    """Fill a child from a parent, count the parent's use, and write the child's weights.

    A parent that is evicted meanwhile is passed over for the next one.

    Raises:
        InputError: If there is no parent that may be taken, or code of the user fails.
        StoreError: If the parent is damaged, or not there.
        EnvironmentLacks: If torch is absent or the file cannot be written.
    """
    import torch

    from wattkeeper import live

    torch.manual_seed(0)  # of what the child keeps: the same command writes the same weights
    child = module(wanted.child)
    graph = live.graph_of(child, example_inputs(wanted.shape, child), wanted.child)
    trusted = {wanted.child.partition(":")[0], *wanted.trust}
    for match in _candidates(zoo, wanted, rank(zoo, graph, wanted.matcher), trusted):
        try:
            state = zoo.load(match.model.model_id)
            zoo.used(match.model.model_id)
        except StoreError:
            if any(model.model_id == match.model.model_id for model in zoo.models()):
                raise
            continue
        parent = _trained(match.model, state)
        report = live.transfer(parent, child, example_inputs(wanted.shape, child, parent))
        _save(child, out)
        return WarmStart(match.model, match.score, report)
    raise InputError("every model that could be the parent was evicted meanwhile; try again")


def _candidates(
    zoo: Zoo, wanted: Wanted, matches: list[Match], trusted: set[str]
) -> Iterator[Match]:
    """The parents that may be taken, the best first; at least one."""
    if wanted.parent is not None:
        named = [match for match in matches if match.model.model_id == wanted.parent]
        if not named:
            raise StoreError(f"model {wanted.parent} is not in the zoo {zoo.path}")
        if refusal := _refusal(named[0].model, trusted):
            raise InputError(refusal)
        yield named[0]
        return
    task = task_key(wanted.task or "", wanted.dataset)
    peers = [
        Candidate(score, model.accuracy, task_key(model.task, model.dataset))
        for model, score, _ in matches
    ]
    allowed = eligible(peers, task, wanted.minimum)
    good = [match for match, may in zip(matches, allowed, strict=True) if may]
    refusals = [_refusal(match.model, trusted) for match in good]
    if not good:
        raise InputError(
            f"none of {len(matches)} models of the zoo may be the parent: for {task}, a score of "
            f"at least {wanted.minimum:g} and no outlier's accuracy are needed; `wattkeeper zoo "
            "match` shows the scores"
        )
    if all(refusals):
        raise InputError(
            [Problem("no parent whose code may be run"), *map(Problem, dict.fromkeys(refusals))]
        )
    yield from (match for match, refusal in zip(good, refusals, strict=True) if not refusal)


def _refusal(model: Model, trusted: set[str]) -> str:
    """Why a model's code is not run; empty if it may be."""
    if not model.source:
        return f"model {model.model_id} ({model.name}) was added without --module, its code"
    home = model.source.partition(":")[0]
    if home not in trusted:
        return f"the code of model {model.model_id} ({model.name}) is in {home}; --trust {home}"
    return ""


def _trained(model: Model, state: Mapping[str, Tensor]) -> nn.Module:
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
    from safetensors.torch import save_file

    state = {name: value.clone().contiguous() for name, value in child.state_dict().items()}
    made = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        save_file(state, made)
        made.replace(out)
    except OSError as error:
        raise EnvironmentLacks(f"cannot write {out}: {error.strerror or error}") from error
    finally:
        made.unlink(missing_ok=True)
