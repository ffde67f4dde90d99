"""Operators that move, gather or reduce elements are treated by what they do to units."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import numpy as np  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from tests.support.examples import examples  # noqa: E402
from tests.support.transfers import error, randomise  # noqa: E402
from wattkeeper.live import transfer  # noqa: E402
from wattkeeper.live.weight_transfer.model_graph import trace  # noqa: E402
from wattkeeper.live.weight_transfer.transfer import grow  # noqa: E402

X = torch.randn(3, 6, 4, generator=torch.Generator().manual_seed(2)).double()

POSITIONS = ("roll positions", "gather positions", "stack", "norm of positions", "masked positions")
UNITS = ("roll units", "gather units", "norm of units", "stack units", "zero pools")


class Moved(nn.Module):
    """Two layers with operators between them."""

    places: Tensor
    mask: Tensor

    def __init__(self, width: int, steps: tuple[str, ...]) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, width), nn.Linear(width, 3)
        self.steps = steps
        self.register_buffer("places", torch.tensor([3, 0, 0, 5, 1, 2]))
        self.register_buffer("mask", torch.tensor([True, False, True, True, False, True]))

    def move(self, x: Tensor, step: str) -> Any:
        if step == "roll positions":
            return x.roll(2, 1)
        if step == "roll units":
            return x.roll(1, -1)
        if step == "gather positions":
            return x[:, self.places]
        if step == "masked positions":
            return x * self.mask[:, None]
        if step == "gather units":
            return x[:, :, self.places % x.shape[-1]].repeat(1, 1, x.shape[-1])[..., : x.shape[-1]]
        if step == "stack":
            return torch.stack((x, -x), 1).amax(1)
        if step == "stack units":
            return torch.stack((x, 2 * x), -1).flatten(-2)[..., : x.shape[-1]]
        if step == "norm of positions":
            return x / torch.linalg.vector_norm(x, dim=1, keepdim=True).expand_as(x)
        if step == "norm of units":
            return nn.functional.normalize(x, dim=-1)
        return nn.functional.avg_pool1d(x.mT, 3, 1, 1).mT - x

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for step in self.steps:
            x = self.move(x, step)
        return self.last(x.tanh())  # type: ignore[no-any-return]


def is_kept(widths: tuple[int, int], steps: tuple[str, ...]) -> bool:
    models = [randomise(Moved(width, steps), np.random.default_rng(width)) for width in widths]
    traced = [trace(model, X, "model") for model in models]
    report = grow(traced[0], traced[1])
    if report.kept == "all":
        assert error(models[0], models[1], X, train=False) < 1e-9, report
    return report.kept == "all"


@pytest.mark.parametrize("step", POSITIONS)
def test_units_may_be_replicated_where_only_positions_move(step: str) -> None:
    assert is_kept((6, 9), (step,))


@given(
    widths=st.tuples(st.integers(2, 8), st.integers(2, 16)),
    steps=st.lists(st.sampled_from(POSITIONS + UNITS), min_size=1, max_size=3).map(tuple),
)
@settings(max_examples=examples(200), deadline=None)
def test_a_claim_is_true(widths: tuple[int, int], steps: tuple[str, ...]) -> None:
    kept = is_kept(widths, steps)
    if widths[0] == widths[1]:
        assert kept


class Task(nn.Module):
    """A body of one kind, and a head of one of two kinds whose layers have equal shapes."""

    def __init__(self, kind: str, depth: int = 3) -> None:
        super().__init__()
        self.body = nn.Sequential(*(nn.Linear(16, 16) for _ in range(depth * 4)))
        self.norm = nn.LayerNorm(16)
        self.dense, self.out = nn.Linear(16, 16), nn.Linear(16, 3 if kind == "pooled" else 9)
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.body:
            x = x + layer(x).tanh()
        x = self.norm(x)
        x = x[:, 0] if self.kind == "pooled" else x
        return self.out(self.dense(x).tanh())  # type: ignore[no-any-return]


@pytest.mark.parametrize("kinds", [("pooled", "each"), ("each", "pooled")])
def test_a_head_of_another_kind_takes_nothing(kinds: tuple[str, str]) -> None:
    parent, child = map(Task, kinds)
    own = child.dense.weight.detach().clone()
    report = transfer(parent, child, torch.randn(2, 5, 16))
    assert report.kept == "all but the head"
    assert report.heads is not None
    assert {"dense", "out"} == {*report.heads.child} == {*report.heads.parent}
    assert torch.equal(child.dense.weight, own)
