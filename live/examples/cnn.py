"""A small convolutional network that classifies ten noisy, shifted patterns.

Run it again and again (`python -m wattkeeper.live.examples.cnn`): each run is a recurrence of the
job, and learns from the earlier ones which batch size costs least.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from wattkeeper.live import Session

Batches = Iterable[tuple[Tensor, Tensor]]
CLASSES, SIDE = 10, 16
TRAIN, VALID = 4096, 1024
NOISE = 2.4
TARGET = 0.86


def make_images(seed: int, count: int) -> tuple[Tensor, Tensor]:
    """Images, shape (count, 1, SIDE, SIDE), and their classes; all seeds share the patterns."""
    patterns = torch.randn(CLASSES, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    patterns = nn.functional.avg_pool2d(patterns, 3, stride=1, padding=1) * 3
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    shifts = torch.randint(-2, 3, (count, 2), generator=generator).tolist()
    shifted = [
        patterns[label].roll(shift, (1, 2))
        for label, shift in zip(labels.tolist(), shifts, strict=True)
    ]
    noise = NOISE * torch.randn(count, 1, SIDE, SIDE, generator=generator)
    return torch.stack(shifted) + noise, labels


def make_network() -> nn.Module:
    """Two convolutions and a linear layer."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * (SIDE // 4) ** 2, CLASSES),
    )


def main() -> None:
    """Train to the target with the batch size that the session chooses."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    train, valid = (
        tuple(part.to(device) for part in make_images(seed, count))
        for seed, count in ((1, TRAIN), (2, VALID))
    )
    with Session(
        "cnn",
        batch_sizes=(32, 64, 128, 256, 512),
        default_batch_size=128,
        target=TARGET,
        max_epochs=40,
        eta=0.5 if device == "cuda" else 0.0,  # few CPUs measure their energy
        samples_per_epoch=TRAIN,
    ) as session:
        torch.manual_seed(session.assignment.recurrence)
        model = make_network().to(device)
        optimizer = torch.optim.SGD(model.parameters(), session.learning_rate(0.01), momentum=0.9)
        data = torch.utils.data.TensorDataset(*train)
        session.keep(model=model, optimizer=optimizer)

        def load(batch_size: int) -> Batches:
            return torch.utils.data.DataLoader(data, batch_size, shuffle=True)

        def train_on(batches: Batches) -> Iterator[None]:
            model.train()
            for inputs, labels in batches:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(inputs), labels)
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                yield

        for epoch in session.epochs(
            load(session.batch_size), probe=lambda batch_size: train_on(load(batch_size))
        ):
            for _ in train_on(epoch):
                pass
            model.eval()
            with torch.no_grad():
                correct = model(valid[0]).argmax(1) == valid[1]
            session.report(float(correct.float().mean()))


if __name__ == "__main__":
    main()
