"""Blocks of the networks in `wattkeeper.live.search.architectures`."""

from __future__ import annotations

from torch import Tensor, nn


class Residual(nn.Module):
    """Two convolutions with a shortcut around them (He et al., CVPR '16)."""

    def __init__(self, inputs: int, width: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.first = _convolution(inputs, width, kernel, stride)
        self.second = _convolution(width, width, kernel, 1)
        same_shape = inputs == width and stride == 1
        self.shortcut = nn.Identity() if same_shape else _convolution(inputs, width, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """The rectified sum of branch and shortcut."""
        branch: Tensor = self.second(self.first(x).relu())
        shortcut: Tensor = self.shortcut(x)
        return (branch + shortcut).relu()


def make_block(residual: bool, inputs: int, width: int, kernel: int, stride: int) -> nn.Module:
    """A residual pair of convolutions or a single one, with odd kernels and `width` outputs."""
    if residual:
        return Residual(inputs, width, kernel, stride)
    return nn.Sequential(_convolution(inputs, width, kernel, stride), nn.ReLU())


def _convolution(inputs: int, width: int, kernel: int, stride: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inputs, width, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(width)
    )
