"""The report names operators and shared weights that compute something else than the parent."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.nn.functional as F  # noqa: E402, N812
from torch import Tensor, nn  # noqa: E402

from tests.support.transfers import STREAM, WORDS, fill  # noqa: E402


class Hidden(nn.Module):
    """A hidden layer whose units a function transforms."""

    def __init__(self, width: int, how: Callable[[Any, Tensor], Tensor], read: float = 1) -> None:
        super().__init__()
        self.how = how
        self.first, self.head = nn.Linear(7, width), nn.Linear(int(read * width), 5)
        self.one, self.each = nn.GroupNorm(1, width), nn.GroupNorm(width, width)
        self.places = nn.Embedding(12, width)
        self.register_buffer("ids", torch.arange(12).flip(0))

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.how(self, self.first(x)))
        return outputs


@pytest.mark.parametrize(
    ("before", "after", "read"),
    [
        (lambda m, x: m.one(x.mT).mT, lambda m, x: m.each(x.mT).mT, 1),
        (lambda m, x: F.layer_norm(x, x.shape[1:]), lambda m, x: F.layer_norm(x, x.shape[2:]), 1),
        (lambda m, x: x[..., : x.shape[2] // 2], lambda m, x: x[..., x.shape[2] // 2 :], 0.5),
        (lambda m, x: (9 * x).relu(), lambda m, x: F.relu6((9 * x).relu()), 1),
        (lambda m, x: F.hardtanh(x), lambda m, x: F.hardtanh(x).relu(), 1),
        (lambda m, x: torch.cat([x, x.relu()], 2), lambda m, x: torch.cat([x.relu(), x], 2), 2),
        (lambda m, x: torch.cat([x, x.relu()], 1), lambda m, x: torch.cat([x.relu(), x], 1), 1),
        (lambda m, x: x.add(x.relu(), alpha=2), lambda m, x: x.relu().add(x, alpha=2), 1),
        (lambda m, x: x, lambda m, x: x.bfloat16().float(), 1),
        (lambda m, x: x, lambda m, x: F.dropout(x, 0.5, training=True), 1),
    ],
)
@pytest.mark.parametrize("width", [16, 32])
def test_similar_operators_that_compute_something_else_are_reported(
    before: Any, after: Any, read: float, width: int
) -> None:
    report = fill(Hidden(16, before, read), Hidden(width, after, read), STREAM)
    assert not report.preserved_in_eval


@pytest.mark.parametrize(
    ("how", "width"),
    [
        (lambda m, x: x + m.places(m.ids), 24),
        (lambda m, x: x.float().type_as(x), 24),
        (lambda m, x: x.max(1)[0], 24),
        (lambda m, x: m.each(x.mT).mT, 24),
        (lambda m, x: m.one(x.mT).mT, 32),
        (lambda m, x: F.relu6(F.relu6(x).relu()), 24),
    ],
)
def test_equivalent_operators_preserve_the_function(how: Any, width: int) -> None:
    assert fill(Hidden(16, how), Hidden(width, how), STREAM).preserved_in_train


def test_slice_of_the_same_units_preserves_the_function() -> None:
    def half(m: Any, x: Tensor) -> Tensor:
        return x[..., x.shape[2] // 2 :]

    assert fill(Hidden(16, half, 0.5), Hidden(32, half, 0.5), STREAM).preserved_in_train


class Repeated(nn.Module):
    """One layer that is applied several times."""

    def __init__(self, width: int, times: int) -> None:
        super().__init__()
        self.first, self.layer = nn.Linear(768, width), nn.Linear(width, width)
        self.times = times

    def forward(self, x: Tensor):
        x = self.first(x.flatten(1))
        for _ in range(self.times):
            x = torch.relu(self.layer(x))
        return x.sum(1, keepdim=True)


class Tied(nn.Module):
    """Input and output embeddings share their weights."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding, self.layer = nn.Embedding(50, width), nn.Linear(width, width)

    def forward(self, x: Tensor):
        x = torch.tanh(self.layer(self.embedding(x)))
        return nn.functional.linear(x, self.embedding.weight)


def test_shared_weights_are_filled_once() -> None:
    assert fill(Repeated(16, 3), Repeated(16, 3)).coverage == 1
    assert not fill(Repeated(16, 2), Repeated(16, 4)).preserved_in_eval
    assert fill(Tied(16), Tied(16), WORDS).preserved_in_eval
    assert "shares weights" in fill(Tied(16), Tied(40), WORDS).lost_in_eval[0]
