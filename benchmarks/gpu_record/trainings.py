"""Three trainings of generated or local data: images, sequences, and text.

Each is made for a torch device, and in a small size for a CPU, where only the script is tried.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

CLASSES: Final = 10
SYMBOLS: Final = 64
BYTES: Final = 256


class Data(NamedTuple):
    """Inputs and labels, on the device."""

    inputs: Tensor
    labels: Tensor


class Training(NamedTuple):
    """A training that can be run at several batch sizes.

    Attributes:
        name: Its name in the record.
        metric: What is validated: `accuracy`, or `loss` in nats a byte.
        target: Of the metric.
        batch_sizes: Samples a step.
        learning_rate: Of Adam, at the first batch size; it grows with the root of the others.
        build: Makes the network.
        train: The samples of an epoch.
        validation: Further samples.
    """

    name: str
    metric: str
    target: float
    batch_sizes: tuple[int, ...]
    learning_rate: float
    build: Callable[[], nn.Module]
    train: Data
    validation: Data

    def reached(self, value: float) -> bool:
        """Whether a validated value has reached the target."""
        return value <= self.target if self.metric == "loss" else value >= self.target

    def validate(self, net: nn.Module) -> float:
        """The metric on the validation samples."""
        net.eval()
        with torch.inference_mode():
            parts = [
                self._value(net(inputs), labels) * len(labels)
                for inputs, labels in zip(
                    *(part.split(256) for part in self.validation), strict=True
                )
            ]
        net.train()
        return float(sum(parts)) / len(self.validation.labels)

    def _value(self, scores: Tensor, labels: Tensor) -> Tensor:
        if self.metric == "loss":
            return cross_entropy(scores.flatten(0, -2), labels.flatten())
        return (scores.argmax(-1) == labels).float().mean()

    def steps(self, net: nn.Module, batch_size: int, seed: int) -> Iterator[int]:
        """Train without end; yields the samples of each step."""
        growth = (batch_size / self.batch_sizes[0]) ** 0.5
        optimizer = torch.optim.Adam(net.parameters(), self.learning_rate * growth)
        order = torch.Generator().manual_seed(seed)
        device = self.train.labels.device
        while True:
            shuffled = torch.randperm(len(self.train.labels), generator=order).to(device)
            for rows in shuffled.split(batch_size):
                optimizer.zero_grad()
                scores = net(self.train.inputs[rows])
                labels = self.train.labels[rows]
                cross_entropy(scores.flatten(0, -2), labels.flatten()).backward()
                optimizer.step()
                yield len(rows)


class _Residual(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            _convolve(inputs, width, 3, stride), nn.ReLU(), _convolve(width, width, 3, 1)
        )
        self.shortcut = _convolve(inputs, width, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        rectified: Tensor = (self.branch(x) + self.shortcut(x)).relu()
        return rectified


def _convolve(inputs: int, width: int, kernel: int, stride: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inputs, width, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(width)
    )


class _Transformer(nn.Module):
    """Encodes symbols; tells the class of a sequence, or each next symbol if it is causal."""

    def __init__(
        self, symbols: int, length: int, width: int, layers: int, outputs: int, *, causal: bool
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, width)
        self.positions = nn.Parameter(torch.randn(length, width) * 0.02)
        layer = nn.TransformerEncoderLayer(
            width, width // 32, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, outputs)
        self.causal = causal

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.embedding(x) + self.positions
        mask = None
        if self.causal:
            mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device)
        hidden = self.layers(hidden, mask=mask, is_causal=self.causal)
        scores: Tensor = self.head(hidden if self.causal else hidden.mean(1))
        return scores


def make_trainings(device: str, *, small: bool) -> list[Training]:
    """The three trainings on a torch device; data are generated with fixed seeds."""
    return [_images(device, small), _sequences(device, small), _text(device, small)]


def _images(device: str, small: bool) -> Training:
    side, count, width = (8, 512, 8) if small else (32, 32768, 64)
    generator = torch.Generator().manual_seed(0)
    patterns = torch.randn(CLASSES, 3, side, side, generator=generator)
    patterns = nn.functional.avg_pool2d(patterns, 5, stride=1, padding=2) * 5

    def draw(number: int) -> Data:
        labels = torch.randint(CLASSES, (number,), generator=generator)
        noise = torch.randn(number, 3, side, side, generator=generator)
        shifts = torch.randint(side, (number,), generator=generator)
        columns = (torch.arange(side) + shifts[:, None]) % side
        shifted = patterns[labels].gather(3, columns[:, None, None].expand(-1, 3, side, -1))
        return Data((shifted + 2 * noise).to(device), labels.to(device))

    def build() -> nn.Module:
        stages = [_Residual(3, width, 1)]
        for step in (1, 2, 4):
            stages.append(_Residual(width * step, width * step * 2, 2))
        pool = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width * 8, CLASSES))
        return nn.Sequential(*stages, *pool)

    sizes = (16, 64) if small else (64, 256, 1024, 4096)
    return Training("images", "accuracy", 0.9, sizes, 3e-4, build, draw(count), draw(count // 8))


def _sequences(device: str, small: bool) -> Training:
    """The class of a sequence is the symbol that follows its marker, modulo the classes."""
    length, count, width, layers = (16, 512, 32, 1) if small else (128, 32768, 384, 6)
    generator = torch.Generator().manual_seed(1)

    def draw(number: int) -> Data:
        inputs = torch.randint(1, SYMBOLS, (number, length), generator=generator)
        places = torch.randint(length - 1, (number, 1), generator=generator)
        inputs.scatter_(1, places, 0)
        labels = inputs.gather(1, places + 1).squeeze(1) % CLASSES
        return Data(inputs.to(device), labels.to(device))

    def build() -> nn.Module:
        return _Transformer(SYMBOLS, length, width, layers, CLASSES, causal=False)

    sizes = (16, 64) if small else (64, 256, 1024, 2048)
    return Training(
        "sequences", "accuracy", 0.95, sizes, 3e-4, build, draw(count), draw(count // 8)
    )


def _text(device: str, small: bool) -> Training:
    """A language model of the bytes of Python's standard library."""
    length, most, width, layers = (32, 1 << 15, 32, 1) if small else (256, 1 << 23, 512, 8)
    text = bytearray()
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        text += path.read_bytes()
        if len(text) >= most:
            break
    symbols = torch.frombuffer(text[:most], dtype=torch.uint8).long()
    rows = symbols[: len(symbols) // (length + 1) * (length + 1)].view(-1, length + 1).to(device)
    held = len(rows) // 16

    def build() -> nn.Module:
        return _Transformer(BYTES, length, width, layers, BYTES, causal=True)

    train, validation = (
        Data(part[:, :-1].contiguous(), part[:, 1:].contiguous())
        for part in (rows[:-held], rows[-held:])
    )
    sizes = (4, 16) if small else (16, 32, 64, 128)
    return Training("text", "loss", 2.0, sizes, 3e-4, build, train, validation)
