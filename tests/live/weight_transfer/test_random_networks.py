"""A report that claims a preserved function is right, for random networks."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.nn.functional as F  # noqa: E402, N812
from torch import Tensor, nn  # noqa: E402

from tests.support.transfers import randomise  # noqa: E402
from wattkeeper.live.weight_transfer.model_graph import trace  # noqa: E402
from wattkeeper.live.weight_transfer.transfer import grow  # noqa: E402

POSITIONS, INPUT_UNITS, OUTPUT_UNITS = 6, 5, 3
INPUTS = torch.randn(4, POSITIONS, INPUT_UNITS, generator=torch.Generator().manual_seed(1)).double()
LIMIT = 1e-8

Part = tuple[str, int, int, int]
"""Kind, the indices of its two inputs among the values, and the part whose weights it uses."""

Forward = Callable[[Any, Tensor, Tensor], Tensor]


def attention(width: int) -> nn.Module:
    return nn.MultiheadAttention(width, 2, batch_first=True)


class Table(nn.Module):
    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(*shape))


PARTS: dict[str, tuple[Callable[[int], list[nn.Module]], Forward]] = {
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
    "plain norm": (lambda w: [nn.LayerNorm(w, elementwise_affine=False)], lambda m, x, y: m[0](x)),
    "group norm": (lambda w: [nn.GroupNorm(2, w)], lambda m, x, y: m[0](x.mT).mT),
    "batch norm": (lambda w: [nn.BatchNorm1d(w)], lambda m, x, y: m[0](x.mT).mT),
    "over all": (lambda w: [nn.LayerNorm((POSITIONS, w))], lambda m, x, y: m[0](x)),
    "convolution": (lambda w: [nn.Conv1d(w, w, 3, padding=1)], lambda m, x, y: m[0](x.mT).mT),
    "depthwise": (lambda w: [nn.Conv1d(w, w, 1, groups=w)], lambda m, x, y: m[0](x.mT).mT),
    "lstm": (lambda w: [nn.LSTM(w, w, batch_first=True)], lambda m, x, y: m[0](x)[0]),
    "tokens": (lambda w: [nn.Linear(POSITIONS, POSITIONS)], lambda m, x, y: m[0](x.mT).mT),
    "table": (lambda w: [Table(POSITIONS, w)], lambda m, x, y: x + m[0].weight),
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
    """A sequence of parts of one width, each with two earlier values as inputs."""

    def __init__(self, width: int, plan: list[Part]) -> None:
        super().__init__()
        self.plan = plan
        self.first, self.head = nn.Linear(INPUT_UNITS, width), nn.Linear(width, OUTPUT_UNITS)
        self.parts: Any = nn.ModuleList(nn.ModuleList(PARTS[kind][0](width)) for kind, *_ in plan)

    def forward(self, x: Tensor) -> Tensor:
        values = [self.first(x)]
        for kind, first, second, shared in self.plan:
            values.append(PARTS[kind][1](self.parts[shared], values[first], values[second]))
        outputs: Tensor = self.head(values[-1])
        return outputs


def draw_plan(rng: np.random.Generator) -> list[Part]:
    plan: list[Part] = []
    for at in range(int(rng.integers(1, 6))):
        kind = str(rng.choice(list(PARTS)))
        first, second = at - int(rng.random() < 0.2 and at > 0), int(rng.integers(at + 1))
        same = [n for n, (known, *_) in enumerate(plan) if known == kind]
        shared = int(rng.choice(same)) if same and rng.random() < 0.5 else at
        plan.append((kind, first, second, shared))
    return plan


def change_plan(plan: list[Part], rng: np.random.Generator) -> list[Part]:
    """The plan with the inputs of a part swapped, or with one more part."""
    new = list(plan)
    at = int(rng.integers(len(plan)))
    kind, first, second, shared = plan[at]
    how = rng.integers(4)
    if how == 0:
        new[at] = (kind, second, first, shared)
    elif how == 1:
        new.append(
            (str(rng.choice(list(PARTS))), len(plan), int(rng.integers(len(plan))), len(plan))
        )
    elif how == 2:
        new.append((kind, len(plan), len(plan), len(plan)))
    return new


@pytest.mark.parametrize(
    "seeds", [range(0, 10), pytest.param(range(10, 1500), marks=pytest.mark.slow)]
)
def test_reported_preservation_holds(seeds: range) -> None:
    preserved = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        plan = draw_plan(rng)
        widths = rng.choice([8, 12, 16, 20], 2).tolist()
        parent = randomise(Network(min(widths), plan), rng)
        child_plan = plan if rng.random() < 0.6 else change_plan(plan, rng)
        child = randomise(Network(max(widths), child_plan), rng)
        report = grow(trace(parent, INPUTS, "parent"), trace(child, INPUTS, "child"))
        for train, claimed in (
            (False, report.preserved_in_eval),
            (True, report.preserved_in_train),
        ):
            if claimed:
                preserved += 1
                error = _relative_error(parent, child, train)
                assert error < LIMIT, (
                    f"seed {seed}, train={train}: {error}\n{plan}\n{child_plan}\n{report}"
                )
    assert preserved > len(seeds) / 4


def _relative_error(parent: nn.Module, child: nn.Module, train: bool) -> float:
    """Relative L2 of the child's outputs against the parent's."""
    with torch.no_grad():
        mine, theirs = (copy.deepcopy(net).train(train)(INPUTS) for net in (child, parent))
    return float((mine - theirs).norm() / theirs.norm())
