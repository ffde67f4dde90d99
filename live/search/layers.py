"""The torch modules of the networks in `wattkeeper.sim.search.architectures`."""

from torch import Tensor, nn

from wattkeeper.sim.search.architectures import Architecture


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


def build(architecture: Architecture, channels: int, classes: int) -> nn.Module:
    """The network for images of some channels, with torch's default initialisation."""
    layers: list[nn.Module] = []
    inputs = channels
    for stage_index, stage in enumerate(architecture):
        for block_index, (residual, kernel) in enumerate(stage.blocks):
            stride = 2 if stage_index and not block_index else 1
            if residual:
                layers.append(Residual(inputs, stage.width, kernel, stride))
            else:
                convolution = _convolution(inputs, stage.width, kernel, stride)
                layers.append(nn.Sequential(convolution, nn.ReLU()))
            inputs = stage.width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


def _convolution(inputs: int, width: int, kernel: int, stride: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inputs, width, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(width)
    )
