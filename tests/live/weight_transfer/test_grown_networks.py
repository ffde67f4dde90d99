"""A report that claims a preserved function is right, also for concatenations that grew."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import Tensor, nn  # noqa: E402

from tests.support import grown_networks as grown  # noqa: E402
from tests.support.examples import examples  # noqa: E402
from tests.support.transfers import randomise  # noqa: E402
from wattkeeper.live import TransferReport  # noqa: E402
from wattkeeper.live.weight_transfer.model_graph import trace  # noqa: E402
from wattkeeper.live.weight_transfer.transfer import grow  # noqa: E402

LIMIT = 1e-7
"""Largest relative error of a preserved function in double precision."""


def differ(parent: nn.Module, child: nn.Module, train: bool) -> float:
    """Relative L2 of the outputs, the largest of several; infinite for other shapes."""
    results: list[tuple[Tensor, ...]] = []
    for model in (parent, child):
        with torch.no_grad():
            outputs = copy.deepcopy(model).train(train)(grown.IMAGES)
        results.append(outputs if isinstance(outputs, tuple) else (outputs,))
    if [x.shape for x in results[0]] != [x.shape for x in results[1]]:
        return float("inf")
    return max(float((x - y).norm() / x.norm()) for x, y in zip(*results, strict=True))


def grow_pair(seed: int) -> tuple[Any, Any, TransferReport] | None:
    """A random network and one that grew from it, filled but not checked by running both."""
    rng = np.random.default_rng(seed)
    plan = grown.draw_plan(rng)
    larger = plan if rng.random() < 0.3 else grown.grow_plan(plan, rng)
    head = str(rng.choice(grown.HEADS))
    factor = 1.0 if head == "bare" or rng.random() < 0.5 else float(rng.choice([1.5, 2]))
    try:
        parent, child = grown.Network(plan, 1, head), grown.Network(larger, factor, head)
    except ValueError:  # channels that groups do not divide
        return None
    randomise(parent, rng)
    randomise(child, rng)
    report = grow(trace(parent, grown.IMAGES, "parent"), trace(child, grown.IMAGES, "child"))
    return parent, child, report


@given(seed=st.integers(0, 2**32))
@settings(max_examples=examples(400), deadline=None)
def test_no_false_claim_without_running_the_models(seed: int) -> None:
    pair = grow_pair(seed)
    if pair is None:
        return
    parent, child, report = pair
    for train, claimed in ((False, report.preserved_in_eval), (True, report.preserved_in_train)):
        if claimed:
            error = differ(parent, child, train)
            assert error < LIMIT, f"train={train}: {error}\n{parent.plan}\n{child.plan}\n{report}"


def test_most_preserved_functions_are_claimed() -> None:
    pairs = [pair for seed in range(40) if (pair := grow_pair(seed))]
    kept = [report for parent, child, report in pairs if differ(parent, child, train=False) < LIMIT]
    claimed = [report for report in kept if report.preserved_in_eval]
    assert len(kept) > 10
    assert len(claimed) >= 0.9 * len(kept)
