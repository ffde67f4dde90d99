"""Small models in the manner of published architectures, in sizes that grow from each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tests.support import torch_models as models
from tests.support.torch_models import conv_bn


class Dense(nn.Module):
    """DenseNet with bottlenecks: each layer reads all values of its block before it."""

    def __init__(self, growth: int = 4, depths: tuple[int, ...] = (2, 2), width: int = 8) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.blocks: Any = nn.ModuleList()
        self.transitions = nn.ModuleList()
        for depth in depths:
            block = nn.ModuleList()
            for _ in range(depth):
                bottleneck = [nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, 2 * growth, 1)]
                layer = [nn.BatchNorm2d(2 * growth), nn.ReLU()]
                block.append(
                    nn.Sequential(*bottleneck, *layer, nn.Conv2d(2 * growth, growth, 3, padding=1))
                )
                width += growth
            self.blocks.append(block)
            self.transitions.append(
                nn.Sequential(nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width // 2, 1))
            )
            width //= 2
        self.head = nn.Linear(width, 5)

    def forward(self, x: Tensor):
        x = self.stem(x)
        for block, transition in zip(self.blocks, self.transitions, strict=True):
            values = [x]
            for layer in block:
                values.append(layer(torch.cat(values, 1)))
            x = nn.functional.avg_pool2d(transition(torch.cat(values, 1)), 2)
        return self.head(x.mean((2, 3)))


class Inception(nn.Module):
    """Parallel branches that are concatenated, with an output in the middle in train mode."""

    def __init__(self, width: int = 4, branches: int = 3, aside: bool = False) -> None:
        super().__init__()
        self.stem = conv_bn(3, width)
        self.branches = nn.ModuleList(
            conv_bn(width, width, 2 * number + 1) for number in range(branches)
        )
        self.aside = nn.Linear(width, 5) if aside else None
        self.head = nn.Linear(branches * width, 5)

    def forward(self, x: Tensor):
        x = self.stem(x).relu()
        y = torch.cat([branch(x).relu() for branch in self.branches], 1)
        result = self.head(y.mean((2, 3)))
        if self.training and self.aside is not None:
            return result, self.aside(x.mean((2, 3)))
        return result


class InputsFirst(nn.Module):
    """A layer of GPT-2: its weight has inputs before outputs."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.1 * torch.randn(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor):
        flat = torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight)
        return flat.view(*x.shape[:-1], -1)


class Projected(nn.Module):
    """A residual stream of layers whose weights have inputs first, as in GPT-2."""

    def __init__(self, width: int = 8, depth: int = 1) -> None:
        super().__init__()
        self.words = nn.Embedding(50, width)
        self.layers = nn.ModuleList(
            nn.Sequential(InputsFirst(width, 2 * width), nn.GELU(), InputsFirst(2 * width, width))
            for _ in range(depth)
        )
        self.head = InputsFirst(width, 5)

    def forward(self, x: Tensor):
        x = self.words(x)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)


class UNet(nn.Module):
    """Skip connections by concatenation."""

    def __init__(self, width: int = 4, depth: int = 1) -> None:
        super().__init__()
        self.first, self.deep = conv_bn(3, width), conv_bn(width, 2 * width)
        self.more = nn.ModuleList(conv_bn(2 * width, 2 * width) for _ in range(depth - 1))
        self.up, self.last = nn.ConvTranspose2d(2 * width, width, 2, 2), conv_bn(2 * width, width)
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor):
        skip = self.first(x).relu()
        y = self.deep(nn.functional.max_pool2d(skip, 2)).relu()
        for layer in self.more:
            y = layer(y).relu()
        return self.head(self.last(torch.cat([skip, self.up(y)], 1)).relu())


class Shuffle(nn.Module):
    """ShuffleNetV2: half of the channels pass a unit by, then halves are interleaved."""

    def __init__(self, width: int = 8, depth: int = 2) -> None:
        super().__init__()
        self.stem, half = conv_bn(3, width), width // 2
        self.units = nn.ModuleList(
            nn.Sequential(
                conv_bn(half, half, 1),
                nn.ReLU(),
                conv_bn(half, half, 3, 1, half),
                conv_bn(half, half, 1),
                nn.ReLU(),
            )
            for _ in range(depth)
        )
        self.head = nn.Linear(width, 5)

    def forward(self, x: Tensor):
        x = self.stem(x).relu()
        for unit in self.units:
            one, other = x.chunk(2, 1)
            x = torch.cat([one, unit(other)], 1)
            x = x.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2)
        return self.head(x.mean((2, 3)))


class Efficient(nn.Module):
    """EfficientNet: inverted residuals with gates, `silu` and stochastic depth."""

    def __init__(self, width: int = 8, depth: int = 1, drop: float = 0.0) -> None:
        super().__init__()
        self.drop, wide = drop, 2 * width
        self.stem = conv_bn(3, width)
        self.blocks: Any = nn.ModuleList(
            nn.ModuleList(
                (
                    conv_bn(width, wide, 1),
                    conv_bn(wide, wide, 3, 1, wide),
                    nn.Conv2d(wide, 4, 1),
                    nn.Conv2d(4, wide, 1),
                    conv_bn(wide, width, 1),
                )
            )
            for _ in range(depth)
        )
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(width, 5))

    def forward(self, x: Tensor):
        silu = nn.functional.silu
        x = silu(self.stem(x))
        for up, spatial, squeeze, excite, down in self.blocks:
            y = silu(spatial(silu(up(x))))
            y = y * nn.functional.hardsigmoid(excite(silu(squeeze(y.mean((2, 3), keepdim=True)))))
            y = down(y)
            if self.training and self.drop:
                keep = y.new_empty(len(y), 1, 1, 1).bernoulli_(1 - self.drop)
                y = y * keep.div_(1 - self.drop)
            x = x + y
        return self.head(x.mean((2, 3)))


class Scaled(nn.Module):
    """Blocks whose branch is scaled by a parameter, on its left (ConvNeXt of torchvision)."""

    def __init__(self, width: int = 8, depth: int = 1) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 2, 2)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(width, width, 3, padding=1, groups=width),
                nn.BatchNorm2d(width),
                nn.Conv2d(width, 2 * width, 1),
                nn.GELU(),
                nn.Conv2d(2 * width, width, 1),
            )
            for _ in range(depth)
        )
        self.scales = nn.ParameterList(
            nn.Parameter(torch.full((width, 1, 1), 0.1)) for _ in range(depth)
        )
        self.head = nn.Linear(width, 4)

    def forward(self, x: Tensor):
        x = self.stem(x)
        for scale, block in zip(self.scales, self.blocks, strict=True):
            x = scale * block(x) + x
        return self.head(x.mean((2, 3)))


class Separable(nn.Module):
    """Xception: separable convolutions in residual blocks with convolved shortcuts."""

    def __init__(self, width: int = 8, depth: int = 1) -> None:
        super().__init__()
        self.stem = conv_bn(3, width)
        self.blocks: Any = nn.ModuleList()
        for _ in range(depth):
            body = nn.Sequential(
                nn.ReLU(), conv_bn(width, width, 3, 1, width), conv_bn(width, 2 * width, 1)
            )
            self.blocks.append(nn.ModuleList((body, conv_bn(width, 2 * width, 1))))
            width *= 2
        self.head = nn.Linear(width, 5)

    def forward(self, x: Tensor):
        x = self.stem(x)
        for body, shortcut in self.blocks:
            x = body(x) + shortcut(x)
        return self.head(x.relu().mean((2, 3)))


class Language(nn.Module):
    """A causal transformer whose head is the table of words; `tokens` are put before the text."""

    def __init__(self, width: int = 8, heads: int = 2, depth: int = 1, tokens: int = 0) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50, width), nn.Parameter(torch.randn(12, width))
        self.tokens = nn.Parameter(torch.randn(1, tokens, width)) if tokens else None
        self.blocks = nn.Sequential(
            *(models.AttentionBlock(width, heads, models.FusedAttention) for _ in range(depth))
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 50, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x: Tensor):
        y = self.words(x) + self.places
        if self.tokens is not None:
            y = torch.cat([self.tokens.expand(len(y), -1, -1), y], 1)
        return self.head(self.norm(self.blocks(y))[:, -12:])


class Family(NamedTuple):
    """Models of one kind, from small to large, and of how many ordered pairs the function stays.

    `kept` is what was seen; fewer claims mean that the rules became too shy.
    """

    make: Callable[..., nn.Module]
    sizes: tuple[tuple[Any, ...], ...]
    kept: int
    is_text: bool = False


FAMILIES: dict[str, Family] = {
    "densenet": Family(Dense, ((4, (2, 2)), (4, (3, 2)), (4, (2, 4)), (8, (2, 2), 16)), 7),
    "inception": Family(Inception, ((4,), (8,), (4, 4), (6, 3)), 8),
    "inception with output aside": Family(Inception, ((4, 3, False), (4, 3, True)), 4),
    "unet": Family(UNet, ((4,), (8,), (4, 2), (6,)), 8),
    "shufflenet": Family(Shuffle, ((8,), (16,), (8, 3)), 4),
    "efficientnet": Family(Efficient, ((8,), (16,), (8, 3), (12, 1, 0.2), (8, 2, 0.2)), 11),
    "convnext": Family(Scaled, ((8,), (16,), (8, 3), (16, 2)), 6),
    "xception": Family(Separable, ((8,), (16,), (8, 2)), 5),
    "resnet": Family(models.ResNet, ((8,), (16,), (12,), (8, (2, 1)), (16, (2, 3))), 13),
    "vgg": Family(models.vgg, ((8,), (16,), (8, (2, 3))), 5),
    "mobilenet": Family(models.MobileNetV2, ((8, (1, 1)), (16, (1, 1)), (8, (2, 1))), 5),
    "vision transformer": Family(
        models.VisionTransformer, ((8,), (16,), (16, 4), (8, 4), (8, 2, 3)), 9
    ),
    "language": Family(
        Language, ((8,), (16,), (16, 4), (8, 2, 2), (8, 2, 1, 1), (8, 2, 1, 2)), 7, is_text=True
    ),
    "inputs first": Family(Projected, ((8,), (16,), (12,), (8, 2), (16, 3)), 12, is_text=True),
    "recurrent": Family(models.Recurrent, ((8,), (12,), (8, "LSTM", 2)), 4, is_text=True),
    "encoder": Family(models.Encoder, ((8,), (16,), (16, 4), (8, 2, 3), (12,)), 10, is_text=True),
}
