"""Small torch models of many kinds, with weights and statistics as after training."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn

torch.set_num_threads(1)  # the models are small, and tests run in parallel


def trained_like(model: nn.Module, seed: int = 0) -> nn.Module:
    """Random affine weights and running statistics in every norm, random biases elsewhere."""
    generator = torch.Generator().manual_seed(seed)

    def draw(tensor: Tensor, low: float, high: float) -> None:
        tensor.copy_(torch.rand(tensor.shape, generator=generator) * (high - low) + low)

    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                draw(buffer, -1, 1)
            elif name.endswith("running_var"):
                draw(buffer, 0.5, 2)
            elif name.endswith("num_batches_tracked"):
                buffer.fill_(7)
        for part in model.modules():
            if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d | nn.LayerNorm | nn.GroupNorm):
                if part.weight is not None:
                    draw(part.weight, 0.5, 1.5)
                if part.bias is not None:
                    draw(part.bias, -0.5, 0.5)
            if isinstance(part, nn.MultiheadAttention):
                draw(part.in_proj_bias, -0.5, 0.5)
                draw(part.out_proj.bias, -0.5, 0.5)
    return model


def conv_bn(inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    )


def vgg(width: int = 16, depths: tuple[int, ...] = (2, 2), classes: int = 10, bn: bool = True):
    """Convolutions, batch norm and ReLU in stages with pooling, then a linear head."""
    layers: list[nn.Module] = []
    inputs = 3
    for stage, depth in enumerate(depths):
        for _ in range(depth):
            outputs = width * 2**stage
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1)]
            layers += [nn.BatchNorm2d(outputs)] if bn else []
            layers += [nn.ReLU(inplace=True)]
            inputs = outputs
        layers.append(nn.MaxPool2d(2))
    layers += [nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(inputs * 4, width * 4), nn.ReLU()]
    return nn.Sequential(*layers, nn.Dropout(0.0), nn.Linear(width * 4, classes))


class Block(nn.Module):
    """Basic block, or bottleneck if `expansion` > 1, of a residual network."""

    def __init__(self, inputs: int, width: int, stride: int, expansion: int, groups: int) -> None:
        super().__init__()
        outputs = width * expansion
        if expansion == 1:
            self.body = nn.Sequential(
                conv_bn(inputs, width, stride=stride), nn.ReLU(), conv_bn(width, outputs)
            )
        else:
            self.body = nn.Sequential(
                conv_bn(inputs, width, 1),
                nn.ReLU(),
                conv_bn(width, width, stride=stride, groups=groups),
                nn.ReLU(),
                conv_bn(width, outputs, 1),
            )
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else conv_bn(inputs, outputs, 1, stride)

    def forward(self, x: Tensor):
        return torch.relu(self.body(x) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(
        self,
        width: int = 16,
        depths: tuple[int, ...] = (1, 1),
        expansion: int = 1,
        groups: int = 1,
        classes: int = 10,
    ) -> None:
        super().__init__()
        self.stem = conv_bn(3, width)
        stages, inputs = [], width
        for stage, depth in enumerate(depths):
            for at in range(depth):
                stride = 2 if at == 0 and stage else 1
                stages.append(Block(inputs, width * 2**stage, stride, expansion, groups))
                inputs = width * 2**stage * expansion
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(inputs, classes)

    def forward(self, x: Tensor):
        x = self.stages(torch.relu(self.stem(x)))
        return self.head(x.mean((2, 3)))


class MobileNet(nn.Module):
    """Depthwise-separable convolutions in a chain."""

    def __init__(
        self, width: int = 16, depths: tuple[int, ...] = (1, 1), classes: int = 10
    ) -> None:
        super().__init__()
        layers = [conv_bn(3, width), nn.ReLU6()]
        inputs = width
        for stage, depth in enumerate(depths):
            for at in range(depth):
                outputs = width * 2**stage
                stride = 2 if at == 0 else 1
                layers += [conv_bn(inputs, inputs, 3, stride, inputs), nn.ReLU6()]
                layers += [conv_bn(inputs, outputs, 1), nn.ReLU6()]
                inputs = outputs
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(inputs, classes)

    def forward(self, x: Tensor):
        return self.head(self.features(x).mean((2, 3)))


class Inverted(nn.Module):
    """Block of MobileNetV2."""

    def __init__(self, inputs: int, outputs: int, stride: int, expand: int) -> None:
        super().__init__()
        wide = inputs * expand
        self.body = nn.Sequential(
            conv_bn(inputs, wide, 1),
            nn.ReLU6(),
            conv_bn(wide, wide, 3, stride, wide),
            nn.ReLU6(),
            conv_bn(wide, outputs, 1),
        )
        self.same = stride == 1 and inputs == outputs

    def forward(self, x: Tensor):
        return x + self.body(x) if self.same else self.body(x)


class MobileNetV2(nn.Module):
    def __init__(
        self, width: int = 16, depths: tuple[int, ...] = (2, 2), classes: int = 10
    ) -> None:
        super().__init__()
        blocks, inputs = [], width
        for stage, depth in enumerate(depths):
            for at in range(depth):
                outputs = width * (stage + 1)
                blocks.append(Inverted(inputs, outputs, 2 if at == 0 else 1, 3))
                inputs = outputs
        self.stem = nn.Sequential(conv_bn(3, width), nn.ReLU6())
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inputs, classes)

    def forward(self, x: Tensor):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class DenseLayer(nn.Module):
    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(inputs)
        self.conv = nn.Conv2d(inputs, growth, 3, padding=1, bias=False)

    def forward(self, x: Tensor):
        return torch.cat([x, self.conv(torch.relu(self.norm(x)))], 1)


class DenseNet(nn.Module):
    def __init__(
        self, growth: int = 8, depths: tuple[int, ...] = (2, 2), classes: int = 10
    ) -> None:
        super().__init__()
        inputs = 2 * growth
        layers: list[nn.Module] = [nn.Conv2d(3, inputs, 3, padding=1)]
        for depth in depths:
            for _ in range(depth):
                layers.append(DenseLayer(inputs, growth))
                inputs += growth
            layers += [nn.BatchNorm2d(inputs), nn.ReLU(), nn.Conv2d(inputs, inputs // 2, 1)]
            layers += [nn.AvgPool2d(2)]
            inputs //= 2
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(inputs, classes)

    def forward(self, x: Tensor):
        return self.head(self.features(x).mean((2, 3)))


def mlp(width: int = 32, depth: int = 2, classes: int = 10, inputs: int = 3 * 16 * 16):
    layers: list[nn.Module] = [nn.Flatten()]
    for _ in range(depth):
        layers += [nn.Linear(inputs, width), nn.ReLU()]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, classes))


class Recurrent(nn.Module):
    """Embedding, LSTM or GRU, and a linear head on the last step."""

    def __init__(
        self,
        width: int = 16,
        kind: str = "LSTM",
        layers: int = 1,
        both: bool = False,
        words: int = 50,
        classes: int = 5,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.rnn = getattr(nn, kind)(width, 2 * width, layers, batch_first=True, bidirectional=both)
        self.head = nn.Linear(2 * width * (2 if both else 1), classes)

    def forward(self, x: Tensor):
        return self.head(self.rnn(self.embedding(x))[0][:, -1])


class Encoder(nn.Module):
    """Embedding, torch's own transformer encoder, and a linear head on the mean."""

    def __init__(
        self,
        width: int = 16,
        heads: int = 2,
        depth: int = 2,
        norm_first: bool = True,
        activation: str = "gelu",
        classes: int = 5,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, width)
        self.place = nn.Parameter(torch.randn(1, 12, width))
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, 0.0, activation, batch_first=True, norm_first=norm_first
        )
        self.encoder = nn.TransformerEncoder(
            layer, depth, nn.LayerNorm(width) if norm_first else None, enable_nested_tensor=False
        )
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor):
        return self.head(self.encoder(self.embedding(x) + self.place).mean(1))


class Attention(nn.Module):
    """Attention with weights of its own for queries, keys and values, multiplied by hand."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor):
        batch, time, width = x.shape
        each = width // self.heads
        q, k, v = (
            part(x).view(batch, time, self.heads, each).transpose(1, 2)
            for part in (self.q, self.k, self.v)
        )
        weights = (q @ k.transpose(-2, -1) / each**0.5).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, time, width))


class FusedAttention(nn.Module):
    """Attention whose queries, keys and values come from one layer, as in vision transformers."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor):
        batch, time, width = x.shape
        qkv = self.qkv(x).reshape(batch, time, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        out = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.out(out.transpose(1, 2).reshape(batch, time, width))


class AttentionBlock(nn.Module):
    def __init__(self, width: int, heads: int, kind: type[nn.Module]) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = kind(width, heads)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor):
        x = x + self.attention(self.norm1(x))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class VisionTransformer(nn.Module):
    def __init__(
        self,
        width: int = 16,
        heads: int = 2,
        depth: int = 2,
        kind: type[nn.Module] = Attention,
        classes: int = 10,
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.place = nn.Parameter(torch.randn(1, 17, width))
        self.blocks = nn.Sequential(*(AttentionBlock(width, heads, kind) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.place
        return self.head(self.norm(self.blocks(x))[:, 0])


class Text1d(nn.Module):
    """Convolutions over tokens."""

    def __init__(self, width: int = 16, depth: int = 2, classes: int = 5) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, width)
        layers: list[nn.Module] = []
        for _ in range(depth):
            layers += [nn.Conv1d(width, width, 3, padding=1), nn.GroupNorm(2, width), nn.ReLU()]
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor):
        return self.head(self.layers(self.embedding(x).transpose(1, 2)).amax(-1))


class Autoencoder(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1), nn.ReLU(), nn.Conv2d(width, 2 * width, 3, 2, 1), nn.ReLU()
        )
        self.up = nn.Sequential(
            nn.ConvTranspose2d(2 * width, width, 2, 2),
            nn.ReLU(),
            nn.ConvTranspose2d(width, 3, 2, 2),
        )

    def forward(self, x: Tensor):
        return self.up(self.down(x))


class SqueezeExcite(nn.Module):
    """A convolutional network whose channels a gate weights."""

    def __init__(self, width: int = 16, depth: int = 2, classes: int = 10) -> None:
        super().__init__()
        self.stem = conv_bn(3, width)
        self.convs = nn.ModuleList(conv_bn(width, width) for _ in range(depth))
        self.gates = nn.ModuleList(
            nn.Sequential(
                nn.Linear(width, width // 4), nn.ReLU(), nn.Linear(width // 4, width), nn.Sigmoid()
            )
            for _ in range(depth)
        )
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor):
        x = torch.relu(self.stem(x))
        for conv, gate in zip(self.convs, self.gates, strict=True):
            y = conv(x)
            x = torch.relu(x + y * gate(y.mean((2, 3)))[:, :, None, None])
        return self.head(x.mean((2, 3)))


@cache
def families() -> list[tuple[str, nn.Module, Tensor]]:
    """42 models of many kinds with example inputs, built once: name, model, inputs."""
    images, words = torch.zeros(2, 3, 16, 16), torch.zeros(2, 12, dtype=torch.long)
    image_models: dict[str, nn.Module] = {
        "vgg": vgg(),
        "vgg-wide": vgg(40),
        "vgg-deep": vgg(depths=(3, 4)),
        "vgg-deep-wide": vgg(32, (4, 4)),
        "vgg-plain": vgg(bn=False),
        "vgg-classes": vgg(classes=7),
        "resnet": ResNet(),
        "resnet-wide": ResNet(40),
        "resnet-deep": ResNet(depths=(3, 4)),
        "resnet-three": ResNet(depths=(2, 2, 2)),
        "resnet-narrow": ResNet(8),
        "bottleneck": ResNet(expansion=4),
        "bottleneck-wide": ResNet(24, (2, 2), expansion=4),
        "resnext": ResNet(16, (2, 2), expansion=2, groups=4),
        "resnext-wide": ResNet(32, (2, 2), expansion=2, groups=4),
        "mobilenet": MobileNet(),
        "mobilenet-wide": MobileNet(40),
        "mobilenet-deep": MobileNet(depths=(2, 3)),
        "mobilenet2": MobileNetV2(),
        "mobilenet2-wide": MobileNetV2(24, (3, 2)),
        "densenet": DenseNet(),
        "densenet-wide": DenseNet(12),
        "densenet-deep": DenseNet(depths=(3, 4)),
        "squeeze-excite": SqueezeExcite(),
        "squeeze-excite-deep": SqueezeExcite(24, 4),
        "vit": VisionTransformer(),
        "vit-wide": VisionTransformer(32, 4),
        "vit-fused": VisionTransformer(kind=FusedAttention),
        "autoencoder": Autoencoder(),
        "autoencoder-wide": Autoencoder(20),
        "mlp": mlp(),
        "mlp-deep": mlp(48, 4),
    }
    text_models: dict[str, nn.Module] = {
        "lstm": Recurrent(),
        "lstm-wide": Recurrent(40),
        "lstm-both": Recurrent(layers=2, both=True),
        "gru": Recurrent(kind="GRU"),
        "gru-wide": Recurrent(24, "GRU"),
        "encoder": Encoder(),
        "encoder-wide": Encoder(32, 4, 3),
        "encoder-post": Encoder(norm_first=False),
        "text1d": Text1d(),
        "text1d-deep": Text1d(32, 3),
    }
    return [
        *((name, model, images) for name, model in image_models.items()),
        *((name, model, words) for name, model in text_models.items()),
    ]
