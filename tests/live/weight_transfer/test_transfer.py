"""Weight transfer preserves the parent's function, and the report says where it does not."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.nn.functional as F  # noqa: E402, N812
from torch import Tensor, nn  # noqa: E402

from tests.support import torch_models as models  # noqa: E402
from tests.support.torch_models import Encoder, FusedAttention, Recurrent, ResNet, VisionTransformer  # noqa: E402
from wattkeeper.live import TransferReport, transfer  # noqa: E402
from wattkeeper.live.search.architectures import Block, Stage  # noqa: E402
from wattkeeper.live.search.layers import build  # noqa: E402
from wattkeeper.policies.errors import InputError  # noqa: E402

LIMIT = 1e-5

torch.manual_seed(0)  # of the models below

IMAGES = torch.randn(8, 3, 16, 16, generator=torch.Generator().manual_seed(3))
WORDS = torch.randint(0, 50, (8, 12), generator=torch.Generator().manual_seed(3))
STREAM = torch.randn(8, 12, 7, generator=torch.Generator().manual_seed(3))


@pytest.fixture(autouse=True)
def _seed_torch() -> None:
    torch.manual_seed(0)


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
    models.trained_like(parent, 1)
    models.trained_like(child, 2)
    report = transfer(parent, child, inputs)
    check_report(report, parent, child, inputs)
    return report


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
        *[(models.vgg(), models.vgg(depths=depths)) for depths in ((3, 2), (2, 4), (5, 5))],
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
@pytest.mark.parametrize("optimiser", [torch.optim.SGD, torch.optim.Adam])
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


@pytest.mark.parametrize("depth", [2, 4])
def test_residual_stream_of_any_width_preserves_the_function(depth: int) -> None:
    report = fill(Encoder(), Encoder(40, 2, depth=depth), WORDS)
    assert report.preserved_in_eval
    assert report.preserved_in_train
    assert report.coverage == 1 or depth > 2


class Stream(nn.Module):
    """A stream of units that a function of the module and its input computes."""

    def __init__(self, width: int, how: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.how, self.width = how, width
        self.first, self.head = nn.Linear(7, width), nn.Linear(width, 5)
        self.norm, self.last = nn.LayerNorm(width), nn.LayerNorm(width)
        self.linear, self.doubled = nn.Linear(width, width), nn.Linear(7, 2 * width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.recurrent = nn.LSTM(7, width, batch_first=True)
        self.tokens, self.factor = nn.Linear(12, 12), nn.Parameter(torch.ones(1) * 2)
        self.turned, self.scale = (
            nn.Parameter(torch.randn(7, width)),
            nn.Parameter(torch.rand(width)),
        )
        self.grouped = nn.Conv1d(8, width, 1, groups=2)
        self.depthwise = nn.Conv1d(width, width, 1, groups=width)
        self.plain = nn.LayerNorm(width, elementwise_affine=False)
        self.unshifted = nn.LayerNorm(width, bias=False)
        self.over_all = nn.LayerNorm((12, width))
        self.register_buffer("mask", torch.rand(width) > 0.5)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.how(self, x))
        return outputs


def attend(m: Any, x: Tensor, read: Any) -> tuple[Tensor, Tensor, Tensor]:
    """A hidden value, and the results and weights of attention over `read` of it."""
    x = m.first(x)
    of = read(x)
    return (x, *m.attention(of, of, of))


LINEAR_STREAMS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "plain": lambda m, x: m.last(m.first(x)),
    "scaled": lambda m, x: m.last(2 * m.first(x) - m.linear(m.norm(m.first(x))) / 3),
    "place": lambda m, x: m.last(m.first(x)[:, 3]),
    "places": lambda m, x: m.last(m.first(x)[:, 2:5]),
    "mean": lambda m, x: m.last(m.first(x).mean(1)),
    "turned": lambda m, x: m.last(m.first(x).mT.mT),
    "gate": lambda m, x: (y := m.last(m.first(x))) * m.linear(y).sigmoid(),
    "unshifted": lambda m, x: m.unshifted(m.first(x)),
    "attention": lambda m, x: m.last(sum(attend(m, x, m.norm)[:2])),
    "weights": lambda m, x: (of := attend(m, x, m.norm))[2].mean() + m.last(of[0] + of[1]),
}

OTHER_STREAMS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "raw": lambda m, x: m.last(m.first(x)) + m.first(x),
    "raw linear": lambda m, x: m.last((y := m.first(x)) + m.linear(y)),
    "raw attention": lambda m, x: m.last(sum(attend(m, x, lambda x: x)[:2])),
    "raw afterwards": lambda m, x: (y := m.first(x)) * 0.1 + m.last(y),
    "result of attention": lambda m, x: (
        (of := attend(m, x, m.norm))[1].relu() + m.last(of[0] + of[1])),
    "tokens": lambda m, x: m.last((y := m.first(x)) + m.tokens(m.norm(y).mT).mT),
    "computed weight": lambda m, x: m.last(F.linear(x, m.turned.T, m.scale)),
    "computed bias": lambda m, x: m.last(F.linear(x, m.first.weight, m.scale * m.factor)),
    "shared scale": lambda m, x: m.last(m.first(x)) * m.last.weight,
    "two roles": lambda m, x: F.layer_norm(m.first(x), (m.width,), m.scale, m.scale),
    "shared bias": lambda m, x: m.last(m.first(x)) * m.first.bias,
    "mask": lambda m, x: m.last(m.first(x) + m.mask),
    "scale": lambda m, x: m.last(m.first(x) * m.scale),
    "relu": lambda m, x: m.last(m.first(x).relu()),
    "lstm": lambda m, x: m.last(m.recurrent(x)[0]),
    "units and places": lambda m, x: m.over_all(m.first(x)),
    "without scale": lambda m, x: m.plain(m.first(x)),
    "shift alone": lambda m, x: F.layer_norm(m.first(x), (m.width,), None, m.scale),
    "products": lambda m, x: (y := m.last(m.first(x))) + (y @ y.mT).softmax(-1) @ y,
    "groups": lambda m, x: m.last(m.grouped(F.pad(x, (0, 1)).mT).mT),
    "depthwise": lambda m, x: m.last(m.depthwise(m.first(x).relu().mT).mT),
    "part": lambda m, x: m.last(m.doubled(x)[..., : m.width]),
    "tied": lambda m, x: m.last(m.first(x)) @ m.first.weight @ m.turned,
}  # fmt: skip


@pytest.mark.parametrize("how", LINEAR_STREAMS)
def test_linear_operators_preserve_mean_units(how: str) -> None:
    report = fill(Stream(16, LINEAR_STREAMS[how]), Stream(40, LINEAR_STREAMS[how]), STREAM)
    assert report.preserved_in_train, report


@pytest.mark.parametrize(
    ("how", "descent"), [("plain", torch.optim.SGD), ("unshifted", torch.optim.Adam)]
)
def test_mean_units_diverge_in_training(how: str, descent: Any) -> None:
    child = Stream(40, LINEAR_STREAMS[how])
    transfer(models.trained_like(Stream(16, LINEAR_STREAMS[how]), 1), child, STREAM)
    left_over = child.first.weight.detach()[32:]
    assert not torch.pdist(left_over).any()
    steps = descent(child.parameters(), lr=0.1)
    for _ in range(10):
        steps.zero_grad()
        F.cross_entropy(child(STREAM).flatten(0, 1), torch.arange(96) % 5).backward()
        steps.step()
    assert float(torch.pdist(left_over).min()) > 1e-7 * float(left_over.norm())


@pytest.mark.parametrize("how", OTHER_STREAMS)
def test_norm_over_uneven_replicas_is_reported(how: str) -> None:
    report = fill(Stream(16, OTHER_STREAMS[how]), Stream(40, OTHER_STREAMS[how]), STREAM)
    assert any("units that stand for" in reason for reason in report.lost_in_eval), report


@pytest.mark.parametrize(
    ("parent", "child", "inputs"),
    [
        (Encoder(norm_first=False), Encoder(40, 2, norm_first=False), WORDS),
        (models.Text1d(), models.Text1d(40), WORDS),
    ],
)
def test_network_with_uneven_norms_has_full_coverage(
    parent: Any, child: Any, inputs: Tensor
) -> None:
    report = fill(parent, child, inputs)
    assert report.coverage == 1
    assert any("units that stand for" in reason for reason in report.lost_in_eval)


class Hidden(nn.Module):
    """A hidden layer whose units a function transforms."""

    def __init__(self, width: int, how: Callable[[Any, Tensor], Tensor], read: float = 1) -> None:
        super().__init__()
        self.how = how
        self.first, self.head = nn.Linear(7, width), nn.Linear(int(read * width), 5)
        self.one, self.each = nn.GroupNorm(1, width), nn.GroupNorm(width, width)
        self.places = nn.Embedding(12, width)
        self.register_buffer("ids", torch.arange(12).flip(0))

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.how(self, self.first(x)))
        return outputs


@pytest.mark.parametrize(
    ("before", "after", "read"),
    [
        (lambda m, x: m.one(x.mT).mT, lambda m, x: m.each(x.mT).mT, 1),
        (lambda m, x: F.layer_norm(x, x.shape[1:]), lambda m, x: F.layer_norm(x, x.shape[2:]), 1),
        (lambda m, x: x[..., : x.shape[2] // 2], lambda m, x: x[..., x.shape[2] // 2 :], 0.5),
        (lambda m, x: (9 * x).relu(), lambda m, x: F.relu6((9 * x).relu()), 1),
        (lambda m, x: F.hardtanh(x), lambda m, x: F.hardtanh(x).relu(), 1),
        (lambda m, x: torch.cat([x, x.relu()], 2), lambda m, x: torch.cat([x.relu(), x], 2), 2),
        (lambda m, x: torch.cat([x, x.relu()], 1), lambda m, x: torch.cat([x.relu(), x], 1), 1),
        (lambda m, x: x.add(x.relu(), alpha=2), lambda m, x: x.relu().add(x, alpha=2), 1),
        (lambda m, x: x, lambda m, x: x.bfloat16().float(), 1),
        (lambda m, x: x, lambda m, x: F.dropout(x, 0.5, training=True), 1),
    ],
)
@pytest.mark.parametrize("width", [16, 32])
def test_similar_operators_that_compute_something_else_are_reported(
    before: Any, after: Any, read: float, width: int
) -> None:
    report = fill(Hidden(16, before, read), Hidden(width, after, read), STREAM)
    assert not report.preserved_in_eval


@pytest.mark.parametrize(
    ("how", "width"),
    [
        (lambda m, x: x + m.places(m.ids), 24),
        (lambda m, x: x.float().type_as(x), 24),
        (lambda m, x: x.max(1)[0], 24),
        (lambda m, x: m.each(x.mT).mT, 24),
        (lambda m, x: m.one(x.mT).mT, 32),
        (lambda m, x: F.relu6(F.relu6(x).relu()), 24),
    ],
)
def test_equivalent_operators_preserve_the_function(how: Any, width: int) -> None:
    assert fill(Hidden(16, how), Hidden(width, how), STREAM).preserved_in_train


def test_slice_of_the_same_units_preserves_the_function() -> None:
    def half(m: Any, x: Tensor) -> Tensor:
        return x[..., x.shape[2] // 2 :]

    assert fill(Hidden(16, half, 0.5), Hidden(32, half, 0.5), STREAM).preserved_in_train


def test_layer_inserted_into_the_stream_is_reported() -> None:
    """The new layer has no origin, so it cannot write the mean of all units."""
    longer = Stream(40, lambda m, x: m.last(m.linear(m.first(x))))
    assert not fill(Stream(16, LINEAR_STREAMS["plain"]), longer, STREAM).preserved_in_eval


def test_inserted_post_norm_blocks_preserve_the_function_up_to_eps() -> None:
    parent, child = Encoder(norm_first=False), Encoder(norm_first=False, depth=4)
    models.trained_like(parent, 1)
    report = transfer(parent, child, WORDS)
    assert "eps" in report.lost_in_eval[0]
    assert error(parent, child, WORDS, train=True) < LIMIT


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
    assert len(lines) == 1 + len(report.tensors) + 3
    assert lines[-1] == "function in train mode: preserved"
    read = TransferReport.model_validate_json(
        report.model_dump_json(exclude={"coverage", "preserved_in_eval", "preserved_in_train"})
    )
    assert read == report


class Repeated(nn.Module):
    """One layer that is applied several times."""

    def __init__(self, width: int, times: int) -> None:
        super().__init__()
        self.first, self.layer = nn.Linear(768, width), nn.Linear(width, width)
        self.times = times

    def forward(self, x: Tensor):
        x = self.first(x.flatten(1))
        for _ in range(self.times):
            x = torch.relu(self.layer(x))
        return x.sum(1, keepdim=True)


class Tied(nn.Module):
    """Input and output embeddings share their weights."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding, self.layer = nn.Embedding(50, width), nn.Linear(width, width)

    def forward(self, x: Tensor):
        x = torch.tanh(self.layer(self.embedding(x)))
        return nn.functional.linear(x, self.embedding.weight)


def test_shared_weights_are_filled_once() -> None:
    assert fill(Repeated(16, 3), Repeated(16, 3)).coverage == 1
    assert not fill(Repeated(16, 2), Repeated(16, 4)).preserved_in_eval
    assert fill(Tied(16), Tied(16), WORDS).preserved_in_eval
    assert "shares weights" in fill(Tied(16), Tied(40), WORDS).lost_in_eval[0]


def test_zero_norm_of_a_residual_branch_is_not_copied_elsewhere() -> None:
    """Behind a plain layer, the zero norm of an untrained residual block would block gradients."""
    plain, residual, conv = Block(False, 5), Block(True, 3), Block(False, 1)
    small = (Stage(8, (plain,)), Stage(16, (conv,)), Stage(24, (Block(False, 3),)))
    deep = (*small[:2], Stage(24, (Block(False, 3), residual)))
    other = (Stage(8, (plain, residual)), Stage(16, (conv,)))
    images = torch.randn(4, 1, 8, 8)
    first, parent, child, again = (build(stages, 1, 10) for stages in (small, deep, other, deep))
    transfer(first, parent, images)
    assert not parent.get_parameter("3.second.1.weight").any(), "the block begins as the identity"
    transfer(parent, child, images)
    child(images).square().sum().backward()
    assert all(
        weight.grad is not None and weight.grad.any()
        for weight in child.get_submodule("0").parameters()
    )
    assert transfer(parent, again, images).lost_in_eval == ()
    assert not again.get_parameter("3.second.1.weight").any()


def plain(kernel: int = 3) -> Block:
    return Block(False, kernel)


def residual(kernel: int = 3) -> Block:
    return Block(True, kernel)


TWO_STAGES = (Stage(8, (plain(),)), Stage(16, (plain(), residual())))
DIGITS = torch.rand(64, 1, 8, 8, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize(
    "last",
    [
        Stage(16, (plain(),)),
        Stage(24, (plain(5), plain())),
        Stage(24, (residual(),)),
        Stage(40, (residual(5), residual(), plain())),
    ],
)
def test_new_stage_before_global_pooling_averages_positions(last: Stage) -> None:
    parent, child = build(TWO_STAGES, 1, 10), build((*TWO_STAGES, last), 1, 10)
    assert fill(parent, child, DIGITS).preserved_in_eval


@pytest.mark.parametrize(
    "child",
    [
        (Stage(8, (plain(5),)), Stage(24, (plain(), residual()))),
        (Stage(8, (plain(),)), Stage(16, (plain(5), residual(5)))),
        (Stage(8, (plain(3),)), Stage(16, (plain(7), plain(), residual()))),
    ],
)
def test_larger_kernel_is_padded_with_zeros(child: Any) -> None:
    parent, larger = build(TWO_STAGES, 1, 10), build(child, 1, 10)
    report = fill(parent, larger, DIGITS)
    assert report.coverage > 0.5
    assert report.preserved_in_eval
    assert any("kernel with zeros" in tensor.why for tensor in report.tensors)


class PositionTable(nn.Module):
    """Adds a table of positions to its input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(1, 12, width))
        self.into, self.out = nn.Linear(4, width), nn.Linear(width, 5)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.out(self.into(x) + self.table)
        return outputs


@pytest.mark.parametrize("width", [32, 33])
def test_table_of_positions_is_not_padded_as_a_kernel(width: int) -> None:
    assert fill(PositionTable(16), PositionTable(width), torch.randn(8, 12, 4)).preserved_in_eval


def with_head(*layers: nn.Module) -> nn.Module:
    """Layers with global pooling and a linear classifier behind them."""
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))


@pytest.mark.parametrize(
    ("before", "after", "side"),
    [
        (nn.Conv2d(1, 4, 3, 4, "valid"), nn.Conv2d(1, 4, 5, 4, "valid"), 17),
        (nn.Conv2d(1, 4, 3, 4, 1), nn.Conv2d(1, 4, 5, 4, 1), 16),
        (nn.Sequential(nn.Conv2d(1, 4, 1), nn.MaxPool2d(3, 4, 0)),
         nn.Sequential(nn.Conv2d(1, 4, 1), nn.MaxPool2d(3, 4, 1)), 15),
    ],
)  # fmt: skip
def test_shifted_kernel_is_reported(before: nn.Module, after: nn.Module, side: int) -> None:
    assert not fill(
        with_head(before), with_head(after), torch.randn(8, 1, side, side)
    ).preserved_in_eval


def test_smaller_kernel_keeps_the_centre() -> None:
    parent = build(TWO_STAGES, 1, 10)
    smaller = build((TWO_STAGES[0], Stage(16, (plain(1), residual()))), 1, 10)
    report = fill(parent, smaller, DIGITS)
    assert not report.preserved_in_eval
    middle = parent.state_dict()["1.0.0.weight"][:, :, 1:2, 1:2]
    assert torch.equal(smaller.state_dict()["1.0.0.weight"], middle)
    (tensor,) = (item for item in report.tensors if item.name == "1.0.0.weight")
    assert tensor.status == "narrowed"
    assert "centre of the kernel" in tensor.why


@pytest.mark.parametrize(
    ("last", "images"), [(Stage(24, (plain(1),)), DIGITS), (Stage(24, (plain(),)), DIGITS[..., 2:])]
)
def test_new_stage_that_skips_positions_keeps_its_initialisation(
    last: Stage, images: Tensor
) -> None:
    parent, child = build(TWO_STAGES, 1, 10), build((*TWO_STAGES, last), 1, 10)
    before = child.state_dict()["3.0.0.weight"].clone()
    report = fill(parent, child, images)
    assert not report.preserved_in_eval
    assert torch.equal(child.state_dict()["3.0.0.weight"], before)


@pytest.mark.parametrize(
    ("child", "limit"),
    [
        ((Stage(8, (plain(), plain())), TWO_STAGES[1]), 0.1),
        ((TWO_STAGES[0], Stage(16, (plain(), plain(), residual()))), 0.1),
        ((TWO_STAGES[0], Stage(16, (plain(), residual(), plain()))), 0.3),
        ((*TWO_STAGES, Stage(24, (plain(),))), 0.3),
    ],
)
def test_inserted_batch_norm_estimates_its_input_statistics(child: Any, limit: float) -> None:
    parent, larger = build(TWO_STAGES, 1, 10), build(child, 1, 10)
    fill(parent, larger, DIGITS)
    assert error(parent, larger, DIGITS, train=True) <= limit
