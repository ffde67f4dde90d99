"""Kernels of other sizes, and layers and stages that are inserted into convolutional networks."""

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import Tensor, nn  # noqa: E402

from tests.support.transfers import error, fill  # noqa: E402
from wattkeeper.live import transfer  # noqa: E402
from wattkeeper.live.search.layers import build  # noqa: E402
from wattkeeper.sim.search.architectures import Block, Stage  # noqa: E402

torch.manual_seed(0)  # of the layers below


def plain(kernel: int = 3) -> Block:
    return Block(False, kernel)


def residual(kernel: int = 3) -> Block:
    return Block(True, kernel)


TWO_STAGES = (Stage(8, (plain(),)), Stage(16, (plain(), residual())))
DIGITS = torch.rand(64, 1, 8, 8, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize(
    "last",
    [
        Stage(16, (plain(),)),
        Stage(24, (plain(5), plain())),
        Stage(24, (residual(),)),
        Stage(40, (residual(5), residual(), plain())),
    ],
)
def test_new_stage_before_global_pooling_averages_positions(last: Stage) -> None:
    parent, child = build(TWO_STAGES, 1, 10), build((*TWO_STAGES, last), 1, 10)
    assert fill(parent, child, DIGITS).preserved_in_eval


@pytest.mark.parametrize(
    "child",
    [
        (Stage(8, (plain(5),)), Stage(24, (plain(), residual()))),
        (Stage(8, (plain(),)), Stage(16, (plain(5), residual(5)))),
        (Stage(8, (plain(3),)), Stage(16, (plain(7), plain(), residual()))),
    ],
)
def test_larger_kernel_is_padded_with_zeros(child: Any) -> None:
    parent, larger = build(TWO_STAGES, 1, 10), build(child, 1, 10)
    report = fill(parent, larger, DIGITS)
    assert report.coverage > 0.5
    assert report.preserved_in_eval
    assert any("kernel with zeros" in tensor.why for tensor in report.tensors)


def with_head(*layers: nn.Module) -> nn.Module:
    """Layers with global pooling and a linear classifier behind them."""
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))


@pytest.mark.parametrize(
    ("before", "after", "side"),
    [
        (nn.Conv2d(1, 4, 3, 4, "valid"), nn.Conv2d(1, 4, 5, 4, "valid"), 17),
        (nn.Conv2d(1, 4, 3, 4, 1), nn.Conv2d(1, 4, 5, 4, 1), 16),
        (
            nn.Sequential(nn.Conv2d(1, 4, 1), nn.MaxPool2d(3, 4, 0)),
            nn.Sequential(nn.Conv2d(1, 4, 1), nn.MaxPool2d(3, 4, 1)),
            15,
        ),
    ],
)
def test_shifted_kernel_is_reported(before: nn.Module, after: nn.Module, side: int) -> None:
    assert not fill(
        with_head(before), with_head(after), torch.randn(8, 1, side, side)
    ).preserved_in_eval


def test_smaller_kernel_keeps_the_centre() -> None:
    parent = build(TWO_STAGES, 1, 10)
    smaller = build((TWO_STAGES[0], Stage(16, (plain(1), residual()))), 1, 10)
    report = fill(parent, smaller, DIGITS)
    assert not report.preserved_in_eval
    middle = parent.state_dict()["1.0.0.weight"][:, :, 1:2, 1:2]
    assert torch.equal(smaller.state_dict()["1.0.0.weight"], middle)
    (tensor,) = (item for item in report.tensors if item.name == "1.0.0.weight")
    assert tensor.status == "narrowed"
    assert "centre of the kernel" in tensor.why


class PositionTable(nn.Module):
    """Adds a table of positions to its input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(1, 12, width))
        self.into, self.out = nn.Linear(4, width), nn.Linear(width, 5)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.out(self.into(x) + self.table)
        return outputs


@pytest.mark.parametrize("width", [32, 33])
def test_table_of_positions_is_not_padded_as_a_kernel(width: int) -> None:
    assert fill(PositionTable(16), PositionTable(width), torch.randn(8, 12, 4)).preserved_in_eval


@pytest.mark.parametrize(
    ("last", "images"), [(Stage(24, (plain(1),)), DIGITS), (Stage(24, (plain(),)), DIGITS[..., 2:])]
)
def test_new_stage_that_skips_positions_keeps_its_initialisation(
    last: Stage, images: Tensor
) -> None:
    parent, child = build(TWO_STAGES, 1, 10), build((*TWO_STAGES, last), 1, 10)
    before = child.state_dict()["3.0.0.weight"].clone()
    report = fill(parent, child, images)
    assert not report.preserved_in_eval
    assert torch.equal(child.state_dict()["3.0.0.weight"], before)


@pytest.mark.parametrize(
    ("child", "limit"),
    [
        ((Stage(8, (plain(), plain())), TWO_STAGES[1]), 0.1),
        ((TWO_STAGES[0], Stage(16, (plain(), plain(), residual()))), 0.1),
        ((TWO_STAGES[0], Stage(16, (plain(), residual(), plain()))), 0.3),
        ((*TWO_STAGES, Stage(24, (plain(),))), 0.3),
    ],
)
def test_inserted_batch_norm_estimates_its_input_statistics(child: Any, limit: float) -> None:
    parent, larger = build(TWO_STAGES, 1, 10), build(child, 1, 10)
    fill(parent, larger, DIGITS)
    assert error(parent, larger, DIGITS, train=True) <= limit


def test_zero_norm_of_a_residual_branch_is_not_copied_elsewhere() -> None:
    """Behind a plain layer, the zero norm of an untrained residual block would block gradients."""
    plain, residual, conv = Block(False, 5), Block(True, 3), Block(False, 1)
    small = (Stage(8, (plain,)), Stage(16, (conv,)), Stage(24, (Block(False, 3),)))
    deep = (*small[:2], Stage(24, (Block(False, 3), residual)))
    other = (Stage(8, (plain, residual)), Stage(16, (conv,)))
    images = torch.randn(4, 1, 8, 8)
    first, parent, child, again = (build(stages, 1, 10) for stages in (small, deep, other, deep))
    transfer(first, parent, images)
    assert not parent.get_parameter("3.second.1.weight").any(), "the block begins as the identity"
    transfer(parent, child, images)
    child(images).square().sum().backward()
    assert all(
        weight.grad is not None and weight.grad.any()
        for weight in child.get_submodule("0").parameters()
    )
    assert transfer(parent, again, images).lost_in_eval == ()
    assert not again.get_parameter("3.second.1.weight").any()
