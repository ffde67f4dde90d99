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


def train(
    net: nn.Module,
    digits: Digits,
    rule: TrainingRule,
    seed: int,
    lr_factor: Callable[[int], float],
    processor: Processor,
) -> TrainingResult:
    """Train a network in place to convergence.

    Afterwards torch is deterministic and uses one thread, and the network is on the CPU. The seed
    determines the order of the images; `lr_factor` is a function of the epoch, from 0.
    """
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    net.to(processor.torch_device)
    digits = digits.to(processor.torch_device)
    _warm_up(net, digits.train, rule)
    with meter(processor) as read_meter:
        order = torch.Generator().manual_seed(seed)
        optimizer = torch.optim.Adam(net.parameters(), rule.learning_rate)
        best, best_epoch, epoch = measure_accuracy(net, digits.validation), 0, 0
        weights, curve = _copy_weights(net), [best]
        while epoch < rule.most_epochs and epoch - best_epoch < rule.patience:
            for group in optimizer.param_groups:
                group["lr"] = rule.learning_rate * lr_factor(epoch)
            _train_epoch(net, digits.train, optimizer, rule.batch_size, order)
            epoch += 1
            accuracy = measure_accuracy(net, digits.validation)
            curve.append(accuracy)
            if accuracy > best:
                best, best_epoch = accuracy, epoch
                weights = _copy_weights(net)
        net.load_state_dict(weights)
        test = measure_accuracy(net, digits.test)
        reading = read_meter()
    net.cpu()
    return TrainingResult(epoch, best_epoch, best, test, reading, tuple(curve))


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
