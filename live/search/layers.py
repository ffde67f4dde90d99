"""Blocks of the networks in `wattkeeper.live.search.architectures`."""

from __future__ import annotations

from torch import Tensor, nn


class Residual(nn.Module):
    """Two convolutions with a shortcut around them (He et al., CVPR '16)."""

    def __init__(self, before: int, width: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.first = _convolution(before, width, kernel, stride)
        self.second = _convolution(width, width, kernel, 1)
        self.shortcut = (
            nn.Identity()
            if before == width and stride == 1
            else _convolution(before, width, 1, stride)
        )

    def forward(self, x: Tensor) -> Tensor:
        """The sum of both ways."""
        inside = self.second(self.first(x).relu())
        added: Tensor = inside + self.shortcut(x)
        return added.relu()


def block(residual: bool, before: int, width: int, kernel: int, stride: int) -> nn.Module:
    """A residual pair of convolutions, or a single one.

    Args:
        residual: Which of them.
        before: Channels that come in.
        width: Channels that go out.
        kernel: Extent of the kernels, odd.
        stride: Of the first convolution.
    """
    if residual:
        return Residual(before, width, kernel, stride)
    return nn.Sequential(_convolution(before, width, kernel, stride), nn.ReLU())


def _convolution(before: int, width: int, kernel: int, stride: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(before, width, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(width)
    )
