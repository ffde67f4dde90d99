"""Trains a network to convergence with early stopping."""

import copy
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from wattkeeper.live.devices.energy_meter import Reading
from wattkeeper.live.search.dataset import DatasetSplit, Digits
from wattkeeper.live.search.processor import Processor, meter


class TrainingRule(NamedTuple):
    """How every network is trained, whatever its initial weights.

    Adam (Kingma and Ba, ICLR '15) with early stopping: training ends when the validation accuracy
    has not exceeded its best for `patience` epochs, and the weights of the first best epoch are
    restored. The initial weights count as epoch 0, so weights from a parent can be the result.

    Attributes:
        batch_size: Images a step.
        learning_rate: Base rate; a warm start multiplies it by a factor.
        patience: Epochs without an improvement until the end.
        most_epochs: Maximum number of epochs.
    """

    batch_size: int
    learning_rate: float
    patience: int
    most_epochs: int


class TrainingResult(NamedTuple):
    """Result of a training; the network has the weights of the best epoch.

    Attributes:
        epochs: Number of epochs, including those after the best one.
        best_epoch: The best one; 0 stands for the initial weights.
        validation_accuracy: Of the best epoch.
        test_accuracy: Of the best epoch.
        reading: Total time and energy; CPU time where nothing measures the processor.
        curve: Validation accuracy after each epoch; that of the initial weights is the first.
    """

    epochs: int
    best_epoch: int
    validation_accuracy: float
    test_accuracy: float
    reading: Reading
    curve: tuple[float, ...]


class NetworkTraining:
    """A training of a network that continues when it is asked to, until early stopping ends it.

    The network is trained in place. Afterwards torch is deterministic and uses one thread, and the
    network is on the CPU with the weights of its best epoch.

    Args:
        net: The network.
        digits: The images.
        rule: How it is trained.
        seed: Determines the order of the images.
        lr_factor: Factor of the learning rate, a function of the epoch from 0.
        processor: Trains it.

    Attributes:
        epochs: Number of epochs so far.
        reading: Time and energy so far.
    """

    def __init__(
        self,
        net: nn.Module,
        digits: Digits,
        rule: TrainingRule,
        seed: int,
        lr_factor: Callable[[int], float],
        processor: Processor,
    ) -> None:
        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(True)
        self._net = net.to(processor.torch_device)
        self._digits = digits.to(processor.torch_device)
        self._rule, self._lr_factor, self._processor = rule, lr_factor, processor
        _warm_up(net, self._digits.train, rule)
        self._order = torch.Generator().manual_seed(seed)
        self._optimizer = torch.optim.Adam(net.parameters(), rule.learning_rate)
        self._best_epoch = 0
        self._weights = _copy_weights(net)
        self._curve: list[float] = []
        self._test: float | None = None
        self.epochs = 0
        self.reading: Reading | None = None

    def advance(self, epochs: int) -> float:
        """Train until there are so many epochs, or it is over; the best validation accuracy."""
        with meter(self._processor) as read_meter:
            if not self._curve:
                self._note_accuracy()
            while self.epochs < epochs and not self._is_over:
                self._train_epoch()
            if self._is_over and self._test is None:
                self._net.load_state_dict(self._weights)
                self._test = measure_accuracy(self._net, self._digits.test)
            reading = read_meter()
        self.reading = reading if self.reading is None else _add(self.reading, reading)
        return self._curve[self._best_epoch]

    def finish(self) -> TrainingResult:
        """Train until it is over."""
        best = self.advance(self._rule.most_epochs)
        self._net.cpu()
        assert self._test is not None
        assert self.reading is not None
        return TrainingResult(
            self.epochs, self._best_epoch, best, self._test, self.reading, tuple(self._curve)
        )

    @property
    def _is_over(self) -> bool:
        waited = self.epochs - self._best_epoch
        return self.epochs >= self._rule.most_epochs or waited >= self._rule.patience

    def _train_epoch(self) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] = self._rule.learning_rate * self._lr_factor(self.epochs)
        size = self._rule.batch_size
        _train_epoch(self._net, self._digits.train, self._optimizer, size, self._order)
        self.epochs += 1
        self._note_accuracy()

    def _note_accuracy(self) -> None:
        self._curve.append(measure_accuracy(self._net, self._digits.validation))
        if self._curve[-1] > self._curve[self._best_epoch]:
            self._best_epoch = self.epochs
            self._weights = _copy_weights(self._net)


def _add(one: Reading, other: Reading) -> Reading:
    """Both readings of one processor together."""
    energy_j = None
    if one.energy_j is not None and other.energy_j is not None:
        energy_j = one.energy_j + other.energy_j
    return Reading(one.time_s + other.time_s, energy_j, other.how)


def _warm_up(net: nn.Module, data: DatasetSplit, rule: TrainingRule) -> None:
    """Train a copy for a step, so that no training's time includes loading torch's kernels."""
    copied = copy.deepcopy(net)
    batch = type(data)(*(tensor[: rule.batch_size] for tensor in data))
    optimizer = torch.optim.Adam(copied.parameters())
    _train_epoch(copied, batch, optimizer, rule.batch_size, torch.Generator().manual_seed(0))
    measure_accuracy(copied, batch)


def _copy_weights(net: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in net.state_dict().items()}


def _train_epoch(
    net: nn.Module,
    data: DatasetSplit,
    optimizer: torch.optim.Optimizer,
    batch_size: int,
    order: torch.Generator,
) -> None:
    net.train()
    shuffled = torch.randperm(len(data.labels), generator=order).to(data.labels.device)
    for rows in torch.split(shuffled, batch_size):
        optimizer.zero_grad()
        cross_entropy(net(data.images[rows]), data.labels[rows]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def predict(net: nn.Module, images: torch.Tensor) -> torch.Tensor:
    """Scores of the classes of images, shape (images, classes), in eval mode."""
    net.eval()
    with torch.inference_mode():
        scores: torch.Tensor = net(images)
    return scores


def measure_accuracy(net: nn.Module, data: DatasetSplit) -> float:
    """Share of the images that the network classifies correctly."""
    return share_correct(predict(net, data.images), data.labels)


def share_correct(scores: torch.Tensor, labels: torch.Tensor) -> float:
    """Share of the images whose label has the highest score."""
    return float((scores.argmax(1) == labels).sum()) / len(labels)
