"""Models whose state and graph name their tensors differently enter a zoo, too."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'wattkeeper[live]'")

import torch
from torch import Tensor, nn

from wattkeeper.live import Zoo, graph_of
from wattkeeper.policies.errors import StoreError


class Windowed(nn.Module):
    """Attention with an index that is made anew (Swin), and a scale of its result (ConvNeXt)."""

    index: Tensor
    scale: Tensor

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.q, self.k = nn.Linear(width, width), nn.Linear(width, width)
        self.table = nn.Parameter(torch.randn(7))
        self.gamma = nn.Parameter(torch.ones(width))
        index = torch.arange(4)[:, None] - torch.arange(4)[None] + 3
        self.register_buffer("index", index, persistent=False)
        self.register_buffer("scale", torch.full((4,), 0.5), persistent=False)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        weights = self.q(x) @ self.k(x).transpose(1, 2) + self.table[self.index]
        result: Tensor = self.norm(x + self.gamma * (weights.softmax(-1) * self.scale @ x))
        return result


INPUTS = torch.randn(2, 4, 8)


def test_constants_and_scales_enter_a_zoo(tmp_path: Path) -> None:
    model, zoo = Windowed(), Zoo(tmp_path / "zoo")
    added = zoo.add(graph_of(model, INPUTS, "w"), model.state_dict(), task="t", accuracy=0.9)
    assert added.model_id is not None
    again = Windowed()
    again.load_state_dict(zoo.load(added.model_id))
    assert torch.equal(again.eval()(INPUTS), model.eval()(INPUTS))
    assert not list(zoo.check())


@pytest.mark.parametrize("name", ["norm.running_var", "gamma", "q.weight"])
def test_what_training_changes_must_be_there(name: str, tmp_path: Path) -> None:
    model = Windowed()
    state = {key: value for key, value in model.state_dict().items() if key != name}
    with pytest.raises(StoreError, match=f"'{name}' of the graph.* is missing"):
        Zoo(tmp_path / "zoo").add(graph_of(model, INPUTS, "w"), state, task="t", accuracy=0.9)


@pytest.mark.parametrize("shape", [(8, 1), (9,), (8, 2)])
def test_transposed_tensors_are_refused(shape: tuple[int, ...], tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 1))
    state = model.state_dict() | {"0.weight": torch.ones(shape)}
    with pytest.raises(StoreError, match=r"'0.weight' has the shape"):
        Zoo(tmp_path / "zoo").add(
            graph_of(model, torch.zeros(2, 8), "w"), state, task="t", accuracy=0.9
        )


def test_other_shapes_are_refused(tmp_path: Path) -> None:
    model = Windowed()
    state = model.state_dict() | {"gamma": torch.ones(9)}
    with pytest.raises(StoreError, match=r"'gamma' has the shape \[9\]"):
        Zoo(tmp_path / "zoo").add(graph_of(model, INPUTS, "w"), state, task="t", accuracy=0.9)
