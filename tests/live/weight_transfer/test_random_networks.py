"""What a report promises holds for networks that nobody thought of."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.nn.functional as F  # noqa: E402, N812
from torch import Tensor, nn  # noqa: E402

from wattkeeper.live import transfer  # noqa: E402

PLACES, FED, GIVEN = 6, 5, 3
INPUTS = torch.randn(4, PLACES, FED, generator=torch.Generator().manual_seed(1)).double()
LIMIT = 1e-8

Part = tuple[str, int, int, int]
"""Kind, the places of its two inputs among the values, and the part whose weights it has."""

Made = Callable[[Any, Tensor, Tensor], Tensor]


def attention(width: int) -> nn.Module:
    return nn.MultiheadAttention(width, 2, batch_first=True)


class Table(nn.Module):
    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(*shape))


PARTS: dict[str, tuple[Callable[[int], list[nn.Module]], Made]] = {
    "linear": (lambda w: [nn.Linear(w, w)], lambda m, x, y: m[0](x)),
    "residual": (
        lambda w: [nn.LayerNorm(w), nn.Linear(w, 2 * w), nn.Linear(2 * w, w)],
        lambda m, x, y: x + m[2](m[1](m[0](x)).relu()),
    ),
    "attention": (
        lambda w: [nn.LayerNorm(w), attention(w)],
        lambda m, x, y: x + m[1](z := m[0](x), z, z)[0],
    ),
    "cross": (lambda w: [attention(w)], lambda m, x, y: x + m[0](x, y, y)[0]),
    "layer norm": (lambda w: [nn.LayerNorm(w)], lambda m, x, y: m[0](x)),
    "unshifted": (lambda w: [nn.LayerNorm(w, bias=False)], lambda m, x, y: m[0](x)),
    "plain norm": (
        lambda w: [nn.LayerNorm(w, elementwise_affine=False)],
        lambda m, x, y: m[0](x),
    ),
    "group norm": (lambda w: [nn.GroupNorm(2, w)], lambda m, x, y: m[0](x.mT).mT),
    "batch norm": (lambda w: [nn.BatchNorm1d(w)], lambda m, x, y: m[0](x.mT).mT),
    "over all": (lambda w: [nn.LayerNorm((PLACES, w))], lambda m, x, y: m[0](x)),
    "convolution": (
        lambda w: [nn.Conv1d(w, w, 3, padding=1)],
        lambda m, x, y: m[0](x.mT).mT,
    ),
    "depthwise": (lambda w: [nn.Conv1d(w, w, 1, groups=w)], lambda m, x, y: m[0](x.mT).mT),
    "lstm": (lambda w: [nn.LSTM(w, w, batch_first=True)], lambda m, x, y: m[0](x)[0]),
    "tokens": (lambda w: [nn.Linear(PLACES, PLACES)], lambda m, x, y: m[0](x.mT).mT),
    "table": (lambda w: [Table(PLACES, w)], lambda m, x, y: x + m[0].weight),
    "scale": (lambda w: [Table(w)], lambda m, x, y: x * m[0].weight),
    "turned": (lambda w: [Table(w, w)], lambda m, x, y: x @ m[0].weight.T),
    "joined": (lambda w: [nn.Linear(2 * w, w)], lambda m, x, y: m[0](torch.cat([x, y], -1))),
    "halves": (
        lambda w: [],
        lambda m, x, y: torch.cat([x[..., x.shape[2] // 2 :], y[..., : x.shape[2] // 2]], -1),
    ),
    "rolled": (lambda w: [], lambda m, x, y: torch.cat([x[:, 2:], y[:, :2]], 1)),
    "add": (lambda w: [], lambda m, x, y: x + y),
    "twice": (lambda w: [], lambda m, x, y: torch.add(x, y, alpha=2)),
    "gate": (lambda w: [], lambda m, x, y: x * y.sigmoid()),
    "products": (lambda w: [], lambda m, x, y: (x @ y.mT / 8).softmax(-1) @ y),
    "times": (lambda w: [], lambda m, x, y: x * y),
    "centred": (lambda w: [], lambda m, x, y: x - x.mean(-1, keepdim=True)),
    "pooled": (lambda w: [], lambda m, x, y: x - y.mean(1, keepdim=True)),
    "relu": (lambda w: [], lambda m, x, y: x.relu()),
    "relu6": (lambda w: [], lambda m, x, y: F.relu6(9 * x)),
    "hardtanh": (lambda w: [], lambda m, x, y: F.hardtanh(x)),
    "gelu": (lambda w: [], lambda m, x, y: F.gelu(x)),
    "softmax": (lambda w: [], lambda m, x, y: x.softmax(1)),
    "scaled": (lambda w: [], lambda m, x, y: x / 3),
}


class Network(nn.Module):
    """Parts in a row, each of which takes two earlier values; all are of one width."""

    def __init__(self, width: int, plan: list[Part]) -> None:
        super().__init__()
        self.plan = plan
        self.first, self.head = nn.Linear(FED, width), nn.Linear(width, GIVEN)
        self.parts: Any = nn.ModuleList(nn.ModuleList(PARTS[kind][0](width)) for kind, *_ in plan)

    def forward(self, x: Tensor) -> Tensor:
        values = [self.first(x)]
        for kind, one, other, shared in self.plan:
            made = PARTS[kind][1](self.parts[shared], values[one], values[other])
            values.append(made)
        found: Tensor = self.head(values[-1])
        return found


def drawn(rng: np.random.Generator) -> list[Part]:
    plan: list[Part] = []
    for at in range(int(rng.integers(1, 6))):
        kind = str(rng.choice(list(PARTS)))
        one, other = at - int(rng.random() < 0.2 and at > 0), int(rng.integers(at + 1))
        same = [n for n, (known, *_) in enumerate(plan) if known == kind]
        shared = int(rng.choice(same)) if same and rng.random() < 0.5 else at
        plan.append((kind, one, other, shared))
    return plan


def changed(plan: list[Part], rng: np.random.Generator) -> list[Part]:
    """The plan, some part of which reads its values the other way round, or with one more."""
    new = list(plan)
    at = int(rng.integers(len(plan)))
    kind, one, other, shared = plan[at]
    how = rng.integers(4)
    if how == 0:
        new[at] = (kind, other, one, shared)
    elif how == 1:
        new.append(
            (str(rng.choice(list(PARTS))), len(plan), int(rng.integers(len(plan))), len(plan))
        )
    elif how == 2:
        new.append((kind, len(plan), len(plan), len(plan)))
    return new


def trained(model: nn.Module, rng: np.random.Generator) -> nn.Module:
    """Random values everywhere, so that no weight is neutral by chance."""
    model.double()
    with torch.no_grad():
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            if tensor.is_floating_point():
                draw = torch.from_numpy(rng.normal(size=tensor.shape))
                tensor.copy_(draw.abs() + 0.5 if name.endswith("running_var") else 0.4 * draw)
    return model


@pytest.mark.parametrize(
    "seeds", [range(0, 30), pytest.param(range(30, 1500), marks=pytest.mark.slow)]
)
def test_promises_hold(seeds: range) -> None:
    kept = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        plan = drawn(rng)
        widths = rng.choice([8, 12, 16, 20], 2).tolist()
        parent = trained(Network(min(widths), plan), rng)
        grown = plan if rng.random() < 0.6 else changed(plan, rng)
        child = trained(Network(max(widths), grown), rng)
        report = transfer(parent, child, INPUTS)
        for train, promised in (
            (False, report.preserved_in_eval),
            (True, report.preserved_in_train),
        ):
            if promised:
                kept += 1
                off = _off(parent, child, train)
                assert off < LIMIT, f"seed {seed}, train={train}: {off}\n{plan}\n{grown}\n{report}"
    assert kept > len(seeds) / 4, "it is not that nothing is promised"


def _off(parent: nn.Module, child: nn.Module, train: bool) -> float:
    """Relative L2 of the child's outputs against the parent's."""
    with torch.no_grad():
        mine, theirs = (copy.deepcopy(net).train(train)(INPUTS) for net in (child, parent))
    return float((mine - theirs).norm() / theirs.norm())
