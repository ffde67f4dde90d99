"""Graphs of torch modules and ONNX files."""

import logging
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import Tensor, nn  # noqa: E402
from torch.nn.utils import prune  # noqa: E402

from tests.support.torch_models import Encoder, Recurrent, ResNet, VisionTransformer, families  # noqa: E402
from wattkeeper.live import graph_of, transfer  # noqa: E402
from wattkeeper.live.weight_transfer.program import tracing  # noqa: E402
from wattkeeper.live.weight_transfer.program.capture import NotCapturable, capture  # noqa: E402
from wattkeeper.live.weight_transfer.program.tracing import trace_program  # noqa: E402
from wattkeeper.policies.errors import InputError  # noqa: E402
from wattkeeper.policies.matching.graph import SOURCE, Graph  # noqa: E402

IMAGES = torch.zeros(2, 3, 16, 16)
WORDS = torch.zeros(2, 12, dtype=torch.long)


@pytest.mark.parametrize("index", range(0, 42, 5))
def test_graph_has_every_tensor_of_the_state(index: int) -> None:
    name, model, inputs = families()[index]
    graph = graph_of(model, inputs, name)
    shapes = {
        tensor.name: (tensor.shape, tensor.trained) for n in graph.nodes for tensor in n.tensors
    }
    trained = dict(model.named_parameters())
    assert shapes.keys() == model.state_dict().keys()
    for key, value in model.state_dict().items():
        shape, parameter = shapes[key]
        assert torch.Size(shape).numel() == value.numel()
        assert parameter is (key in trained)
    assert graph.parameters.sum() == sum(value.numel() for value in trained.values())
    assert all(place < at for at, n in enumerate(graph.nodes) for place in n.inputs)
    assert Graph.from_json(name, graph.to_json()).digest == graph.digest


def test_residual_block_joins_at_its_addition() -> None:
    graph = graph_of(ResNet(), IMAGES, "resnet")
    add = next(node for node in graph.nodes if node.op == "add")
    assert [graph.nodes[at].op for at in add.inputs] == ["batch_norm", "relu"]
    assert graph.nodes[0].inputs == (SOURCE,)
    assert dict(graph.nodes[0].attributes)["layout"] == (("weight", 1, 3),)
    assert dict(graph.nodes[-1].attributes)["layout"] == (("weight", 0, 10), ("bias", 0, 10))


def test_layers_of_many_tensors_are_one_node() -> None:
    (attention,) = [n for n in graph_of(Encoder(depth=1), WORDS, "m").nodes if n.op == "attention"]
    roles = [tensor.role for tensor in attention.tensors]
    assert roles == ["in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"]
    (lstm,) = [n for n in graph_of(Recurrent(both=True), WORDS, "m").nodes if n.op == "lstm"]
    assert len(lstm.tensors) == 8
    ops = [n.op for n in graph_of(VisionTransformer(depth=1), IMAGES, "m").nodes]
    assert ops.count("linear") == 7
    assert ops.count("matmul") == 2


def test_depthwise_and_grouped_convolutions_have_different_attributes() -> None:
    convolutions = [nn.Conv2d(8, 8, 3, groups=groups) for groups in (1, 2, 8)]
    keys = [
        dict(graph_of(layer, torch.zeros(2, 8, 5, 5), "c").nodes[0].attributes)
        for layer in convolutions
    ]
    assert [key.get("groups") for key in keys] == [1, 2, None]
    assert keys[2]["depthwise"] is True


class Branching(nn.Module):
    def forward(self, x: Tensor):
        return x if x.sum() > 0 else -x


class Storing(nn.Module):
    """Stores a value of its forward pass, which torch.export refuses."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4)

    def forward(self, x: Tensor):
        self.seen = [self.layer(x)]
        return torch.relu(self.seen[0])


def test_untraceable_models_are_refused_with_a_reason(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match=r"model 'b' cannot be traced with inputs of shape \[2\]"):
        graph_of(Branching(), torch.zeros(2), "b")
    with pytest.raises(InputError, match=r"of shape \[2, 7\].*pass example inputs"):
        graph_of(ResNet(), torch.zeros(2, 7), "r")
    loud = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert not loud, "torch's own log says nothing beside the error"
    assert capfd.readouterr() == ("", ""), "nor is anything printed"
    with pytest.raises(InputError, match="found list as example inputs; allowed: tensors"):
        graph_of(ResNet(), [[0.0]], "r")  # type: ignore[list-item]
    assert [n.op for n in graph_of(Storing(), torch.zeros(2, 3), "r").nodes] == ["linear", "relu"]


def test_pruned_modules_are_traced() -> None:
    pruned = nn.Linear(3, 4)
    prune.l1_unstructured(pruned, "weight", 0.5)
    names = {tensor.name for n in graph_of(pruned, torch.zeros(2, 3), "p").nodes for tensor in n[2]}
    assert names == {"weight_orig", "weight_mask", "bias"}


def test_derived_inputs_have_the_type_that_the_first_layer_takes() -> None:
    halves = [nn.Linear(3, units).bfloat16() for units in (4, 4)]
    assert transfer(halves[0], halves[1]).coverage == 1


def test_example_inputs_are_required_where_they_cannot_be_derived() -> None:
    assert transfer(ResNet(), ResNet()).coverage == 1
    with pytest.raises(InputError, match="pass example_inputs"):
        transfer(nn.Sequential(nn.ReLU()), nn.Sequential(nn.ReLU()))


def test_onnx_file_is_read_as_a_graph(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    from wattkeeper.live.weight_transfer.onnx_graph import graph_of_onnx

    helper, real = onnx.helper, onnx.TensorProto.FLOAT
    shapes = {"w": (4, 3, 3, 3), "b": (4,), "s": (4,), "t": (4,), "m": (4,), "v": (4,), "f": (5, 4)}
    model = helper.make_model(
        helper.make_graph(
            [
                helper.make_node("Conv", ["x", "w", "b"], ["y"], strides=[2, 2], pads=[1] * 4),
                helper.make_node("BatchNormalization", ["y", "s", "t", "m", "v"], ["z"]),
                helper.make_node("GlobalAveragePool", ["z"], ["p"]),
                helper.make_node("Flatten", ["p"], ["q"]),
                helper.make_node("Gemm", ["q", "f"], ["o"], transB=1),
            ],
            "net",
            [helper.make_tensor_value_info("x", real, [1, 3, 8, 8])],
            [helper.make_tensor_value_info("o", real, [1, 5])],
            [
                helper.make_tensor(name, real, shape, [0.0] * int(torch.Size(shape).numel()))
                for name, shape in shapes.items()
            ],
        )
    )
    onnx.save(model, str(tmp_path / "net.onnx"))
    graph = graph_of_onnx(tmp_path / "net.onnx")
    assert [n.op for n in graph.nodes] == [
        "Conv",
        "BatchNormalization",
        "GlobalAveragePool",
        "Gemm",
    ]
    assert [n.inputs for n in graph.nodes] == [(SOURCE,), (0,), (1,), (2,)]
    assert {t.name: t.shape for n in graph.nodes for t in n.tensors} == shapes
    assert dict(graph.nodes[0].attributes)["stride"] == (2, 2)
    assert graph.parameters.tolist() == [112, 8, 0, 20]

    (tmp_path / "bad.onnx").write_bytes(b"no model")
    with pytest.raises(InputError, match=r"bad\.onnx is no ONNX model"):
        graph_of_onnx(tmp_path / "bad.onnx")
    with pytest.raises(InputError, match=r"none\.onnx cannot be read"):
        graph_of_onnx(tmp_path / "none.onnx")


@pytest.mark.parametrize("index", range(0, 42, 6))
def test_captured_and_exported_programs_are_equal(
    index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operators that a run dispatches are those that `torch.export` finds."""
    name, model, inputs = families()[index]
    with monkeypatch.context() as patch:
        patch.setattr(torch.export, "export", refuse)
        captured = trace_program(model, inputs, name)
    monkeypatch.setattr(tracing, "capture", refuse)
    exported = trace_program(model, inputs, name)
    assert [vars(op) for op in captured.ops] == [vars(op) for op in exported.ops]
    assert captured.outputs == exported.outputs


def refuse(*args: object, **settings: object) -> None:
    raise NotCapturable("as asked")


class WithConstant(nn.Module):
    """Adds a tensor that is neither a parameter nor a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.shift = torch.ones(4)

    def forward(self, x: Tensor) -> Tensor:
        shifted: Tensor = self.layer(x) + self.shift
        return shifted


class Result:
    """A container that torch does not look into."""

    def __init__(self, value: Tensor) -> None:
        self.value = value


class WithResult(WithConstant):
    """Returns its tensor in a container."""

    def forward(self, x: Tensor) -> Result:  # type: ignore[override]
        return Result(self.layer(x))


@pytest.mark.parametrize("model", [WithConstant(), WithResult()])
def test_what_cannot_be_captured_is_left_to_export(model: nn.Module) -> None:
    inputs = (torch.zeros(2, 4, device="meta"),)
    with pytest.raises(NotCapturable):
        capture(tracing.copy_to_meta(model), inputs)
    if isinstance(model, WithResult):
        with pytest.raises(InputError, match="cannot be traced"):
            graph_of(model, torch.zeros(2, 4), "m")
    else:
        assert [n.op for n in graph_of(model, torch.zeros(2, 4), "m").nodes] == ["linear", "add"]


def test_attention_is_fused_again_after_a_recording() -> None:
    before = torch.backends.mha.get_fastpath_enabled()
    graph_of(Encoder(depth=1), WORDS, "m")
    assert torch.backends.mha.get_fastpath_enabled() is before
