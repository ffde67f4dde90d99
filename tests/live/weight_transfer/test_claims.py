"""Claims of a preserved function are right on architectures of many families."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import Tensor, nn  # noqa: E402

from tests.support.architectures import FAMILIES  # noqa: E402
from tests.support.transfers import IMAGES, WORDS, error, randomise  # noqa: E402
from wattkeeper.live import transfer  # noqa: E402
from wattkeeper.live.weight_transfer.model_graph import trace  # noqa: E402
from wattkeeper.live.weight_transfer.transfer import grow  # noqa: E402

LIMIT = 1e-8
"""Largest relative error of a preserved function in double precision."""


def make(name: str, size: tuple[Any, ...], seed: int) -> nn.Module:
    return randomise(FAMILIES[name].make(*size), np.random.default_rng(seed))


def count_claims(name: str, pairs: Iterable[tuple[Any, ...]]) -> int:
    """Functions that are claimed to be preserved between sizes, each claim checked in eval mode.

    `test_output_that_only_train_mode_has` says why in eval mode alone.
    """
    family, kept = FAMILIES[name], 0
    inputs = WORDS[:2] if family.is_text else IMAGES[:2, :, ::2, ::2].double()
    if name == "vision transformer":
        inputs = IMAGES[:2].double()
    for old, new in pairs:
        parent, child = make(name, old, 1), make(name, new, 2)
        report = grow(trace(parent, inputs, "parent"), trace(child, inputs, "child"))
        if report.preserved_in_eval:
            kept += 1
            assert error(parent, child, inputs, train=False) < LIMIT, f"{old}, {new}\n{report}"
    return kept


@pytest.mark.parametrize("name", FAMILIES)
def test_claims_between_two_sizes_are_true(name: str) -> None:
    first, second = FAMILIES[name].sizes[:2]
    assert count_claims(name, [(first, first), (first, second), (second, first)]) >= 1


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_claims_are_true_without_running_the_models(name: str) -> None:
    family = FAMILIES[name]
    kept = count_claims(name, itertools.product(family.sizes, repeat=2))
    assert kept >= family.kept, "fewer functions are known to be preserved than before"


def test_output_that_only_train_mode_has() -> None:
    """The forward of eval mode is what is traced; running both shows what train mode has."""
    one, two = FAMILIES["inception with output aside"].sizes
    parent, child = (make("inception with output aside", size, 1) for size in (one, two))
    report = transfer(parent, child, IMAGES.double())
    assert report.preserved_in_eval
    assert not report.preserved_in_train
    assert any("other shapes" in reason for reason in report.lost_in_train)


def test_stochastic_depth_and_dropout_do_not_hide_a_preserved_function() -> None:
    parent, child = (make("efficientnet", (8, 1, 0.5), seed) for seed in (1, 2))
    assert transfer(parent, child, IMAGES.double()).preserved_in_train


class Mean(nn.Module):
    """A layer whose forward a number in the module changes, which no tensor shows."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor, self.linear = factor, nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear(x)
        return y * self.factor if self.training else y


@pytest.mark.parametrize("inputs", [torch.zeros(2, 4), torch.zeros(2, 4, device="meta")])
def test_constant_inputs_are_varied_in_the_check(inputs: Tensor) -> None:
    parent, child = Mean(1), Mean(1 + 1e-2)
    nn.init.zeros_(parent.linear.bias)
    before = {name: value.clone() for name, value in parent.state_dict().items()}
    report = transfer(parent, child, inputs)
    assert report.preserved_in_eval
    (reason,) = report.lost_in_train
    assert "outputs differ by 0.01" in reason
    assert all(torch.equal(before[name], value) for name, value in parent.state_dict().items())
    assert child.training


def test_claim_that_cannot_be_checked_is_withdrawn() -> None:
    class Alone(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            if not x.is_meta:
                raise RuntimeError("needs a device that is not here")
            return super().forward(x)

    report = transfer(Alone(4, 3), Alone(4, 3), torch.ones(2, 4))
    assert report.coverage == 1
    (reason,) = report.lost_in_eval
    assert "could not be checked" in reason
    assert "not here" in reason


def test_check_leaves_state_and_random_numbers_alone() -> None:
    parent, child = nn.BatchNorm1d(4), nn.BatchNorm1d(4)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    assert transfer(parent, child, torch.randn(1, 4)).preserved_in_train
    torch.manual_seed(5)
    transfer(parent, child, torch.ones(1, 4))
    assert torch.equal(torch.rand(3), expected)
    assert child.state_dict()["num_batches_tracked"] == 0


def body(kind: str, width: int = 8) -> list[nn.Module]:
    if kind == "mlp":
        return [nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 8), nn.ReLU()]
    layers = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, 8, 3, padding=1)]
    return [*layers, nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]


HEADS: list[list[Any]] = [
    [nn.Linear(8, 3)],
    [nn.Dropout(0.1), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)],
    [nn.LayerNorm(8), nn.Linear(8, 3)],
]


@pytest.mark.parametrize("kind", ["mlp", "convolutions"])
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("is_appended", [True, False])
def test_body_is_filled_whether_it_gets_or_loses_a_head(
    kind: str, head: list[Any], is_appended: bool
) -> None:
    with_head, without = nn.Sequential(*body(kind), *head), nn.Sequential(*body(kind))
    parent, child = (without, with_head) if is_appended else (with_head, without)
    report = transfer(parent, child, torch.randn(2, 4) if kind == "mlp" else IMAGES)
    theirs, mine = parent.state_dict(), child.state_dict()
    assert all(torch.equal(mine[name], theirs[name]) for name in without.state_dict())
    assert not report.preserved_in_eval
