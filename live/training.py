"""Trains a network to convergence on the CPU, by one rule for all."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import nn
from torch.nn.functional import cross_entropy

if TYPE_CHECKING:
    from wattkeeper.live.digits import Digits, Part


class Rule(NamedTuple):
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


class Trained(NamedTuple):
    """What a training came to; the network has the weights of the best epoch.

    Attributes:
        epochs: How many were done, those after the best one too.
        best_epoch: Which one counts; 0: the weights that it began with.
        validation_accuracy: Of the best epoch.
        test_accuracy: Of the best epoch.
        time_s: CPU time of it all, s.
    """

    epochs: int
    best_epoch: int
    validation_accuracy: float
    test_accuracy: float
    time_s: float


def train(
    net: nn.Module, digits: Digits, rule: Rule, seed: int, factor: Callable[[int], float]
) -> Trained:
    """Train a network in place to convergence.

    It leaves torch deterministic and on one thread.

    Args:
        net: The network with its initial weights.
        digits: The data.
        rule: How.
        seed: Of the order of the images.
        factor: What the learning rate is multiplied by in an epoch, from 0.
    """
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    began_s = time.process_time()
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
    return Trained(epoch, best_epoch, best, test, time.process_time() - began_s)


def _weights(net: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in net.state_dict().items()}


def _epoch(
    net: nn.Module,
    part: Part,
    descent: torch.optim.Optimizer,
    batch_size: int,
    order: torch.Generator,
) -> None:
    net.train()
    shuffled = torch.randperm(len(part.labels), generator=order)
    for rows in torch.split(shuffled, batch_size):
        descent.zero_grad()
        cross_entropy(net(part.images[rows]), part.labels[rows]).backward()  # type: ignore[no-untyped-call]
        descent.step()


def accuracy_of(net: nn.Module, part: Part) -> float:
    """Share of the images whose digit the network finds."""
    net.eval()
    with torch.inference_mode():
        found = net(part.images).argmax(1)
    return float((found == part.labels).sum()) / len(part.labels)
