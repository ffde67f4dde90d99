"""Trains a network to convergence, by one rule for all."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from wattkeeper.live.search.processor import metered

if TYPE_CHECKING:
    from wattkeeper.live.devices.energy_meter import Reading
    from wattkeeper.live.search.dataset import DatasetSplit, Digits
    from wattkeeper.live.search.processor import Processor


class TrainingRule(NamedTuple):
    """How every network is trained, whatever its weights are at first.

    Adam (Kingma and Ba, ICLR '15). It ends when the accuracy on the validation images was not above
    its best for `patience` epochs; the weights of the best epoch count, the first of several. The
    weights that it begins with are epoch 0: what was taken over from a parent need not be trained
    to be as good as it is.

    Attributes:
        batch_size: Images a step.
        learning_rate: Of all epochs, but for the factor of a warm start.
        patience: Epochs without an improvement after which it ends.
        most_epochs: It ends after so many at the latest.
    """

    batch_size: int
    learning_rate: float
    patience: int
    most_epochs: int


class TrainingResult(NamedTuple):
    """What a training came to; the network has the weights of the best epoch.

    Attributes:
        epochs: How many were done, those after the best one too.
        best_epoch: Which one counts; 0: the weights that it began with.
        validation_accuracy: Of the best epoch.
        test_accuracy: Of the best epoch.
        used: Time and energy of it all; CPU time where nothing measures the processor.
    """

    epochs: int
    best_epoch: int
    validation_accuracy: float
    test_accuracy: float
    used: Reading


def train(
    net: nn.Module,
    digits: Digits,
    rule: TrainingRule,
    seed: int,
    factor: Callable[[int], float],
    processor: Processor,
) -> TrainingResult:
    """Train a network in place to convergence.

    It leaves torch deterministic and on one thread, and the network on the CPU.

    Args:
        net: The network with its initial weights.
        digits: The data.
        rule: How.
        seed: Of the order of the images.
        factor: What the learning rate is multiplied by in an epoch, from 0.
        processor: What it is trained on.
    """
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    net.to(processor.torch_device)
    digits = digits.to(processor.torch_device)
    _load(net, digits, rule)
    with metered(processor) as used:
        order = torch.Generator().manual_seed(seed)
        descent = torch.optim.Adam(net.parameters(), rule.learning_rate)
        best, best_epoch, epoch = accuracy_of(net, digits.validation), 0, 0
        weights = _weights(net)
        while epoch < rule.most_epochs and epoch - best_epoch < rule.patience:
            for group in descent.param_groups:
                group["lr"] = rule.learning_rate * factor(epoch)
            _epoch(net, digits.train, descent, rule.batch_size, order)
            epoch += 1
            accuracy = accuracy_of(net, digits.validation)
            if accuracy > best:
                best, best_epoch = accuracy, epoch
                weights = _weights(net)
        net.load_state_dict(weights)
        test = accuracy_of(net, digits.test)
        reading = used()
    net.cpu()
    return TrainingResult(epoch, best_epoch, best, test, reading)


def _load(net: nn.Module, digits: Digits, rule: TrainingRule) -> None:
    """Train a copy for a step, so that what is loaded at first is in no training's time."""
    copied = copy.deepcopy(net)
    part = digits.train
    few = part._replace(
        images=part.images[: rule.batch_size], labels=part.labels[: rule.batch_size]
    )
    descent = torch.optim.Adam(copied.parameters())
    _epoch(copied, few, descent, rule.batch_size, torch.Generator().manual_seed(0))
    accuracy_of(copied, few)


def _weights(net: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in net.state_dict().items()}


def _epoch(
    net: nn.Module,
    part: DatasetSplit,
    descent: torch.optim.Optimizer,
    batch_size: int,
    order: torch.Generator,
) -> None:
    net.train()
    shuffled = torch.randperm(len(part.labels), generator=order).to(part.labels.device)
    for rows in torch.split(shuffled, batch_size):
        descent.zero_grad()
        cross_entropy(net(part.images[rows]), part.labels[rows]).backward()  # type: ignore[no-untyped-call]
        descent.step()


def accuracy_of(net: nn.Module, part: DatasetSplit) -> float:
    """Share of the images whose digit the network finds."""
    net.eval()
    with torch.inference_mode():
        found = net(part.images).argmax(1)
    return float((found == part.labels).sum()) / len(part.labels)
