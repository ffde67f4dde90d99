"""Transfers of weights between small models, and checks of what their reports say."""

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tests.support.torch_models import trained_like
from wattkeeper.live import TransferReport, transfer

LIMIT = 1e-5
"""Largest relative error of a preserved function."""

IMAGES = torch.randn(8, 3, 16, 16, generator=torch.Generator().manual_seed(3))
WORDS = torch.randint(0, 50, (8, 12), generator=torch.Generator().manual_seed(3))
STREAM = torch.randn(8, 12, 7, generator=torch.Generator().manual_seed(3))


def randomise(model: nn.Module, rng: np.random.Generator) -> nn.Module:
    """Draw all values at random in double precision, so that no weight is neutral."""
    model.double()
    with torch.no_grad():
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            if tensor.is_floating_point():
                draw = torch.from_numpy(rng.normal(size=tensor.shape))
                tensor.copy_(draw.abs() + 0.5 if name.endswith("running_var") else 0.4 * draw)
    return model


def error(parent: nn.Module, child: nn.Module, inputs: Tensor, train: bool) -> float:
    """Relative L2 of the child's outputs against the parent's."""
    outputs = []
    for model in (parent, child):
        twin = copy.deepcopy(model).train(train)
        with torch.no_grad():
            outputs.append(twin(inputs))
    if outputs[0].shape != outputs[1].shape:
        return float("inf")
    return float((outputs[1] - outputs[0]).norm() / outputs[0].norm())


def check_report(report: TransferReport, parent: Any, child: Any, inputs: Tensor) -> None:
    """Check that the function is preserved exactly where the report says so."""
    for train, preserved in ((False, report.preserved_in_eval), (True, report.preserved_in_train)):
        relative = error(parent, child, inputs, train)
        assert preserved is (relative <= LIMIT), f"train={train}: {relative}\n{report}"


def fill(parent: nn.Module, child: nn.Module, inputs: Tensor = IMAGES) -> TransferReport:
    trained_like(parent, 1)
    trained_like(child, 2)
    report = transfer(parent, child, inputs)
    check_report(report, parent, child, inputs)
    return report
