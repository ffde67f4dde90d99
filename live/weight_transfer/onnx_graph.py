"""Graphs of models in ONNX files; operators have their ONNX names."""

from pathlib import Path
from typing import Any, Final

from wattkeeper.policies.errors import EnvironmentLacks, InputError
from wattkeeper.policies.matching.graph import SOURCE, Graph, Node, Tensor

NON_NODES: Final = frozenset(
    {
        *("Cast", "Constant", "ConstantOfShape", "Dropout", "Expand", "Flatten", "Identity"),
        *("Reshape", "Shape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"),
    }
)
"""Operators that only pass on, rearrange or create values: no nodes of a graph."""

ATTRIBUTES: Final = {
    "strides": "stride",
    "dilations": "dilation",
    "group": "groups",
    "transB": "transB",
    "direction": "direction",
}
"""Names in a graph of the attributes that decide whether weights fit."""

BUFFERS: Final = ("input_mean", "input_var")


def graph_of_onnx(path: str | Path, name: str | None = None) -> Graph:
    """The graph of a model in an ONNX file; external weights are not loaded.

    By default, the model has the name of the file.

    Raises:
        EnvironmentLacks: If the package onnx is not installed.
        InputError: If the file is no ONNX model.
    """
    try:
        import onnx
    except ModuleNotFoundError:
        raise EnvironmentLacks(
            "reading ONNX files needs the package onnx: pip install 'wattkeeper[onnx]'"
        ) from None
    path = Path(path)
    try:
        model = onnx.load(str(path), load_external_data=False)
        onnx.checker.check_model(model)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(f"{path} is no ONNX model: {reason}") from None
    return _graph(model.graph, name or path.stem, onnx)


def _graph(graph: Any, name: str, onnx: Any) -> Graph:
    weights = {
        item.name: tuple(item.dims)
        for item in graph.initializer
        if len(item.dims) and onnx.helper.tensor_dtype_to_np_dtype(item.data_type).kind == "f"
    }
    sources: dict[str, tuple[int, ...]] = {}  # by value, the nodes that it comes from
    nodes: list[Node] = []
    for node in graph.node:
        inputs = [index for value in node.input for index in sources.get(value, ())]
        if node.op_type in NON_NODES:
            sources |= dict.fromkeys(node.output, tuple(dict.fromkeys(inputs)))
            # The reader of a cast weight holds that weight.
            held = [weights[value] for value in node.input if value in weights]
            if node.op_type in ("Identity", "Cast") and held:
                weights[node.output[0]] = held[0]
            continue
        sources |= dict.fromkeys(node.output, (len(nodes),))
        tensors = _tensors(node, weights, onnx)
        attributes = _attributes(node, tensors, onnx) if tensors else ()
        nodes.append(Node(node.op_type, tuple(inputs) or (SOURCE,), tensors, attributes))
    return Graph(name, tuple(nodes))


def _tensors(node: Any, weights: dict[str, tuple[int, ...]], onnx: Any) -> tuple[Tensor, ...]:
    roles: list[str] = []
    if onnx.defs.has(node.op_type, domain=node.domain):
        roles = [item.name for item in onnx.defs.get_schema(node.op_type, node.domain).inputs]
    tensors = []
    for index, value in enumerate(node.input):
        if value in weights:
            role = roles[index] if index < len(roles) else f"input{index}"
            trained = not (node.op_type == "BatchNormalization" and role in BUFFERS)
            tensors.append(Tensor(value, role, weights[value], trained))
    return tuple(tensors)


def _attributes(node: Any, tensors: tuple[Tensor, ...], onnx: Any) -> tuple[tuple[str, Any], ...]:
    attributes: dict[str, Any] = {"transB": 0} if node.op_type == "Gemm" else {}
    for item in node.attribute:
        if item.name in ATTRIBUTES:
            value = onnx.helper.get_attribute_value(item)
            if isinstance(value, bytes):
                value = value.decode()
            value = tuple(value) if isinstance(value, list) else value
            attributes[ATTRIBUTES[item.name]] = value
    shape = tensors[0].shape
    if attributes.get("groups", 1) > 1 and len(shape) > 2 and shape[1] == 1:
        attributes = {"depthwise": True} | {k: v for k, v in attributes.items() if k != "groups"}
    return tuple(attributes.items())
