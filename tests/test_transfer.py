"""Weights go from a parent to a child that computes the same."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import Tensor, nn  # noqa: E402

from tests.torch_models import MobileNet, ResNet, mlp, trained_like, vgg  # noqa: E402
from wattkeeper.live import TransferReport, transfer  # noqa: E402

LIMIT = 1e-5

IMAGES = torch.randn(8, 3, 16, 16, generator=torch.Generator().manual_seed(3))


def error(parent: nn.Module, child: nn.Module, inputs: Tensor, train: bool) -> float:
    """Relative L2 of the child's outputs against the parent's."""
    outputs = []
    for model in (parent, child):
        twin = copy.deepcopy(model).train(train)
        with torch.no_grad():
            outputs.append(twin(inputs))
    return float((outputs[1] - outputs[0]).norm() / outputs[0].norm())


def grown(parent: nn.Module, child: nn.Module, inputs: Tensor) -> TransferReport:
    """Transfer, and hold what the report says against what the models compute."""
    trained_like(parent, 1)
    trained_like(child, 2)
    report = transfer(parent, child, inputs)
    assert report.preserved_in_eval is (error(parent, child, inputs, train=False) <= LIMIT), report
    assert report.preserved_in_train is (error(parent, child, inputs, train=True) <= LIMIT), report
    return report


@pytest.mark.parametrize(
    ("parent", "child"),
    [
        (vgg(), vgg()),
        (vgg(), vgg(32)),
        (vgg(), vgg(40)),
        (vgg(bn=False), vgg(40, bn=False)),
        (ResNet(), ResNet(40)),
        (ResNet(expansion=4), ResNet(40, expansion=4)),
        (ResNet(), ResNet(40, depths=(3, 2))),
        (ResNet(), ResNet(depths=(3, 7))),
        (MobileNet(), MobileNet(40)),
        (mlp(), mlp(80, 8)),
    ],
)
def test_function_is_kept_in_both_modes(parent: nn.Module, child: nn.Module) -> None:
    report = grown(parent, child, IMAGES)
    assert report.preserved_in_eval
    assert report.preserved_in_train


def test_a_model_fills_itself_wholly() -> None:
    report = grown(ResNet(), ResNet(), IMAGES)
    assert report.coverage == 1
    assert {tensor.status for tensor in report.tensors} == {"copied"}
