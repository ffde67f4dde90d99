"""Weight transfer preserves the parent's function, and the report says where it does not."""

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import Tensor, nn  # noqa: E402

from tests.support import torch_models as models  # noqa: E402
from tests.support.torch_models import Encoder, FusedAttention, Recurrent, ResNet, VisionTransformer  # noqa: E402
from tests.support.transfers import IMAGES, WORDS, error, fill  # noqa: E402
from wattkeeper.live import TransferReport, transfer  # noqa: E402
from wattkeeper.policies.errors import InputError  # noqa: E402

torch.manual_seed(0)  # of the models below


def pairs(model: Any, *sizes: tuple[Any, Any], inputs: Tensor = IMAGES, **more: Any) -> list[Any]:
    """A parent and a child for each pair of sizes, with example inputs."""
    return [(model(*old, **more), model(*new, **more), inputs) for old, new in sizes]


PRESERVED = [
    *pairs(models.vgg, ((), ()), ((), (32,)), ((), (40,))),
    *pairs(models.vgg, ((), (40, (3, 4))), bn=False),
    *pairs(ResNet, ((), (40,)), ((), (40, (3, 2))), ((), (16, (7, 2)))),
    *pairs(ResNet, ((), (40, (2, 7))), expansion=4),
    *pairs(ResNet, ((), (40, (2, 2))), expansion=2, groups=4),
    *pairs(models.MobileNet, ((), (40,))),
    *pairs(models.MobileNetV2, ((), (40, (3, 4)))),
    *pairs(models.DenseNet, ((), (20, (3, 4))), ((), (8, (3, 3)))),
    *pairs(models.SqueezeExcite, ((), (40, 4))),
    *pairs(models.Autoencoder, ((), (20,))),
    *pairs(models.mlp, ((), (80, 8))),
]

PRESERVED_TEXT = [
    *pairs(Recurrent, ((), (40,)), ((16, "GRU"), (40, "GRU")), inputs=WORDS),
    *pairs(Recurrent, ((), (40,)), inputs=WORDS, layers=2, both=True),
    *pairs(Encoder, ((), ()), ((), (32, 4)), ((), (32, 2)), inputs=WORDS),
    *pairs(Encoder, ((), (16, 2, 3)), ((), (48, 6, 8)), inputs=WORDS),
    *pairs(Encoder, ((), (40, 2)), ((), (24, 3, 3)), inputs=WORDS),
    *pairs(Encoder, ((), (32, 4)), inputs=WORDS, norm_first=False),
    *pairs(VisionTransformer, ((), (32, 4)), ((), (32, 2, 4))),
    *pairs(VisionTransformer, ((), (40, 4)), ((), (24, 3, 4))),
    *pairs(VisionTransformer, ((), (32, 4, 4)), ((), (40, 2)), kind=FusedAttention),
    *pairs(models.Text1d, ((), (32,)), inputs=WORDS),
]


@pytest.mark.slow
@pytest.mark.parametrize(("parent", "child", "inputs"), [*PRESERVED, *PRESERVED_TEXT])
def test_function_is_preserved_in_both_modes(parent: Any, child: Any, inputs: Tensor) -> None:
    report = fill(parent, child, inputs)
    assert report.preserved_in_eval
    assert report.preserved_in_train


@pytest.mark.parametrize(
    ("parent", "child"),
    [
        (models.vgg(), models.vgg(depths=(3, 2))),
        *(
            pytest.param(models.vgg(), models.vgg(depths=depths), marks=pytest.mark.slow)
            for depths in ((2, 4), (5, 5))
        ),
        (models.vgg(), models.vgg(40, (4, 3))),
        (models.MobileNet(), models.MobileNet(40, (4, 4))),
    ],
)
def test_inserted_batch_norm_preserves_the_function_in_eval_mode(parent: Any, child: Any) -> None:
    report = fill(parent, child)
    assert report.preserved_in_eval
    assert "inserted batch norm" in report.lost_in_train[0]
    assert {tensor.status for tensor in report.tensors} >= {"inserted"}


def test_identical_architecture_copies_every_tensor() -> None:
    parent, child = ResNet(), ResNet()
    report = fill(parent, child)
    assert report.coverage == 1
    assert {tensor.status for tensor in report.tensors} == {"copied"}
    for name, value in parent.state_dict().items():
        assert torch.equal(value, child.state_dict()[name])


def test_double_width_has_full_coverage() -> None:
    report = fill(ResNet(), ResNet(32))
    assert report.coverage == 1
    assert {tensor.status for tensor in report.tensors if tensor.trained} == {"widened", "copied"}


@pytest.mark.parametrize(
    ("parent", "child", "inputs", "name", "axis"),
    [
        (models.vgg(), models.vgg(32), IMAGES, "0.weight", 0),
        (models.vgg(), models.vgg(40), IMAGES, "3.weight", 0),
        (ResNet(), ResNet(40), IMAGES, "stages.0.body.0.0.weight", 0),
        (Encoder(), Encoder(32, 4), WORDS, "encoder.layers.0.linear1.weight", 0),
        (Encoder(), Encoder(32, 2), WORDS, "embedding.weight", 1),
        (Recurrent(), Recurrent(32), WORDS, "embedding.weight", 1),
    ],
)
@pytest.mark.parametrize(
    "optimiser", [torch.optim.SGD, pytest.param(torch.optim.Adam, marks=pytest.mark.slow)]
)
def test_replicas_diverge_after_one_step(
    parent: Any, child: Any, inputs: Tensor, name: str, axis: int, optimiser: Any
) -> None:
    fill(parent, child, inputs)
    twin = copy.deepcopy(child).train()
    weight = dict(twin.named_parameters())[name]
    steps = optimiser(twin.parameters(), lr=1e-2)
    loss = nn.functional.cross_entropy(twin(inputs), torch.arange(8) % 5)
    loss.backward()
    steps.step()
    after = weight.detach().movedim(axis, 0).flatten(1)
    step = after - dict(child.named_parameters())[name].detach().movedim(axis, 0).flatten(1)
    units = dict(parent.named_parameters())[name].shape[axis]
    assert len(after) > units
    for unit in range(units, len(after)):  # units are replicated in turn
        moved = float(step[unit].norm())
        assert moved > 0
        assert float((after[unit] - after[unit % units]).norm()) > 0.01 * moved


def test_narrowing_keeps_the_most_important_units() -> None:
    parent, child = models.mlp(32, 1), models.mlp(8, 1)
    with torch.no_grad():
        parent[1].weight[torch.arange(32) % 4 != 0] *= 1e-6
        parent[1].bias[torch.arange(32) % 4 != 0] *= 1e-6
    report = transfer(parent, child, IMAGES)
    assert {tensor.status for tensor in report.tensors} == {"narrowed", "copied"}
    assert torch.equal(child[1].weight, parent[1].weight[::4])
    assert not report.preserved_in_eval
    assert error(parent, child, IMAGES, train=False) < 1e-4


def test_tensors_without_a_source_keep_their_initialisation() -> None:
    parent, child = ResNet(), ResNet(classes=7)
    before = copy.deepcopy(child.state_dict())
    report = transfer(parent, child, IMAGES)
    left = {tensor.name for tensor in report.tensors if tensor.status == "left"}
    assert left == {"head.weight", "head.bias"}
    assert all(torch.equal(before[name], child.state_dict()[name]) for name in left)
    (reason,) = report.lost_in_eval
    assert all(fact in reason for fact in ("head", "new", "linear", "identity"))


def test_modules_without_values_are_refused() -> None:
    def on_meta() -> nn.Module:
        with torch.device("meta"):
            return nn.Linear(3, 4)

    def in_inference_mode() -> nn.Module:
        with torch.inference_mode():
            return nn.Linear(3, 4)

    plain = nn.Linear(3, 4)
    for parent, child, says in (
        (plain, on_meta(), "the child's 'weight' is on the meta device"),
        (on_meta(), plain, "the parent's 'weight' is on the meta device"),
        (nn.LazyLinear(4), plain, "the parent's 'weight' is lazy"),
        (plain, in_inference_mode(), "the child's 'weight' was made in torch.inference_mode"),
    ):
        with pytest.raises(InputError, match=says):
            transfer(parent, child)
    assert transfer(in_inference_mode(), plain).coverage == 1


def test_transfer_is_deterministic() -> None:
    parent, children = ResNet(), [ResNet(40, (2, 1)) for _ in range(2)]
    children[1].load_state_dict(children[0].state_dict())
    reports = [transfer(parent, child, IMAGES) for child in children]
    assert reports[0] == reports[1]
    for name, value in children[0].state_dict().items():
        assert torch.equal(value, children[1].state_dict()[name])


def test_report_prints_as_a_table_and_serialises_to_json() -> None:
    report = transfer(ResNet(), ResNet(32, (2, 1)), IMAGES)
    lines = str(report).splitlines()
    assert lines[0].split() == ["tensor", "shape", "status", "source", "why"]
    assert len(lines) == 1 + len(report.tensors) + 4
    assert lines[-2] == "function in train mode: preserved"
    assert lines[-1].startswith("run in eval mode: the outputs are equal")
    computed = dict.fromkeys(("coverage", "kept", "preserved_in_eval", "preserved_in_train"), True)
    read = TransferReport.model_validate_json(
        report.model_dump_json(exclude={**computed, "verification": {"agrees"}})
    )
    assert read == report


class Rotated(nn.Module):
    """Multiplies by a constant of its own that its state does not have."""

    def __init__(self, base: float) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("bands", base ** torch.arange(4.0), persistent=False)

    def forward(self, x: Any) -> Any:
        return self.layer(x) * self.bands


@pytest.mark.parametrize("base", [0.5, 0.6])
def test_the_state_of_a_child_alone_has_its_function(base: float) -> None:
    """Whoever loads the child's state into a new module has its constants, not the parent's."""
    parent, child, fresh = Rotated(0.5), Rotated(base), Rotated(base)
    x = torch.randn(2, 4)
    report = transfer(parent, child, x)
    fresh.load_state_dict(child.state_dict())
    is_equal = torch.allclose(fresh(x), parent(x))
    assert (report.kept == "all") is is_equal is (base == 0.5)
    assert torch.equal(child(x), fresh(x))
