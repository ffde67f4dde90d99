"""Graphs of models from JSON: the form in which ModelKeeper's are published, and our own.

A published file is an object: ``model`` (name), ``num_tensors``, and a value a node of ``opts``
(operator), ``dims`` (shape of its weight, empty where it has none), ``parents`` (positions of its
predecessors, ``[-1]`` where it has none) and ``layer`` (name of the layer that holds the weight, or
null). It says nothing of strides or groups; that a convolution is depthwise shows in its shape: one
input an output, where it follows something. A file of our own is what `Graph.to_json` writes.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, FailFast, Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from wattkeeper.policies.errors import Problem, TraceError
from wattkeeper.policies.matching.graph import SOURCE, Graph, Node, Tensor
from wattkeeper.traces.files.names import explain_label
from wattkeeper.traces.limits import MOST_JSON_BYTES
from wattkeeper.traces.readers.csvfile import read_whole

Extent = Annotated[int, Field(ge=1)]
Place = Annotated[int, Field(ge=SOURCE)]
Name = Annotated[str, Field(min_length=1)]

OwnTensor = tuple[str, str, list[Extent], bool]
OwnNode = tuple[Name, list[Place], list[OwnTensor], list[tuple[str, Any]]]

BY_NODE: Final = ("opts", "dims", "parents", "layer")
STRICT: Final = ConfigDict(strict=True)


class Published(BaseModel):
    """A published graph."""

    model_config = STRICT

    model: Name
    num_tensors: Annotated[int, Field(ge=0)]
    opts: Annotated[list[Name], Field(min_length=1), FailFast()]
    dims: Annotated[list[Annotated[list[Extent], FailFast()]], FailFast()]
    parents: Annotated[list[Annotated[list[Place], FailFast()]], FailFast()]
    layer: Annotated[list[str | None], FailFast()]


OWN: Final[TypeAdapter[list[OwnNode]]] = TypeAdapter(
    Annotated[list[OwnNode], Field(min_length=1), FailFast()], config=STRICT
)


def read_graph(path: Path) -> Graph:
    """The graph in a file.

    Raises:
        TraceError: If it cannot be read or is no graph; the message names file and key.
    """
    return parse_graph(path.stem, read_bytes(path), str(path))


def read_graphs(path: Path) -> list[Graph]:
    """The graphs of all ``.json`` files in a folder, by file name, or of one file.

    Raises:
        TraceError: If there is none, one cannot be read, or two models have one name.
    """
    graphs: dict[str, Graph] = {}
    for file in graph_files(path):
        graph = read_graph(file)
        check_new(graph.name, graphs, file)
        graphs[graph.name] = graph
    return [*graphs.values()]


def graph_files(path: Path) -> list[Path]:
    """The ``.json`` files in a folder, by name, or the file itself.

    Raises:
        TraceError: If there is none.
    """
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.suffix == ".json" and file.is_file())
    if not files:
        raise TraceError("has no .json file; a graph a file is needed", path)
    return files


def read_bytes(path: Path) -> bytes:
    """What is in a file.

    Raises:
        TraceError: If it cannot be read, or has more than `MOST_JSON_BYTES`.
    """
    return read_whole(path, MOST_JSON_BYTES)


def check_new(name: str, known: Collection[str], path: Path) -> None:
    """Refuse a second model of one name.

    Raises:
        TraceError: If the name is known.
    """
    if name in known:
        text = f"model: {name!r} is the name of another file's model; names must differ"
        raise TraceError(text, path)


def parse_graph(name: str, data: bytes, where: str) -> Graph:
    """The graph that a file holds.

    The graph has this name, unless the file says another one; `where` is the file, for messages.

    Raises:
        TraceError: If it is no graph.
    """
    try:
        if data.lstrip()[:1] == b"[":
            graph = _own(name, data.decode(), where)
        else:
            graph = _published(Published.model_validate_json(data), where)
    except UnicodeDecodeError as error:
        raise TraceError("is not text in UTF-8; a graph in JSON is needed", where) from error
    except ValidationError as error:
        details = error.errors(include_url=False)
        problems = [_problem(detail["loc"], _format_error(detail), where) for detail in details]
        raise TraceError(problems) from error
    if problem := explain_label(graph.name, "model"):
        raise TraceError(problem, where)
    return graph


def _own(name: str, text: str, where: str) -> Graph:
    problems = [
        _problem((index, 1), f"input {place} is not before the node; nodes come in order", where)
        for index, (_, inputs, _, _) in enumerate(OWN.validate_json(text))
        for place in inputs
        if place >= index
    ]
    if problems:
        raise TraceError(problems)
    return Graph.from_json(name, text)


def _published(published: Published, where: str) -> Graph:
    _check(published, where)
    order = _order(published, where)
    place = {old: new for new, old in enumerate(order)} | {SOURCE: SOURCE}
    nodes = (_node(published, index) for index in order)
    return Graph(
        published.model,
        tuple(node._replace(inputs=tuple(place[old] for old in node.inputs)) for node in nodes),
    )


def _check(graph: Published, where: str) -> None:
    count = len(graph.opts)
    for key in BY_NODE:
        if len(getattr(graph, key)) != count:
            text = f"has {len(getattr(graph, key))} values; opts has {count}: one a node is needed"
            raise TraceError(_problem((key,), text, where))
    problems = []
    for index in range(count):
        for before in graph.parents[index]:
            if before >= count:
                text = f"names node {before}; the last one is {count - 1}"
                problems.append(_problem(("parents", index), text, where))
        if bool(graph.dims[index]) != bool(graph.layer[index]):
            text = "has a name without a shape in dims, or a shape without a name"
            problems.append(_problem(("layer", index), text, where))
    tensors = len({name for name in graph.layer if name})
    if tensors != graph.num_tensors:
        text = f"is {graph.num_tensors}; layer names {tensors} different ones"
        problems.append(_problem(("num_tensors",), text, where))
    if problems:
        raise TraceError(problems)


def _order(graph: Published, where: str) -> list[int]:
    """The nodes in topological order: as written if that is one, else as published.

    That is Kahn's algorithm with a stack: of the ready nodes, the one that became ready
    last; of those that became ready together, the last one.
    """
    count = len(graph.opts)
    if all(before < index for index, places in enumerate(graph.parents) for before in places):
        return list(range(count))
    after: list[list[int]] = [[] for _ in range(count)]
    missing = [0] * count
    for index, places in enumerate(graph.parents):
        for before in {*places} - {SOURCE}:
            after[before].append(index)
            missing[index] += 1
    ready = [index for index in range(count - 1, -1, -1) if not missing[index]]
    order = []
    while ready:
        order.append(index := ready.pop())
        for later in after[index]:
            missing[later] -= 1
            if not missing[later]:
                ready.append(later)
    if len(order) < count:
        circle = min(index for index in range(count) if missing[index])
        text = "is in a circle or after one; a graph without circles is needed"
        raise TraceError(_problem(("parents", circle), text, where))
    return order


def _node(graph: Published, index: int) -> Node:
    op, shape, layer = graph.opts[index], tuple(graph.dims[index]), graph.layer[index]
    inputs = tuple(graph.parents[index]) or (SOURCE,)
    tensors = (Tensor(f"{layer}.weight", "weight", shape),) if shape else ()
    depthwise = op == "Conv" and len(shape) > 2 and shape[1] == 1 and inputs != (SOURCE,)
    return Node(op, inputs, tensors, (("depthwise", True),) if depthwise else ())


def _format_error(error: ErrorDetails) -> str:
    value = error["input"]
    shown = isinstance(value, str | int | float | None) and error["type"] != "json_invalid"
    return f"{error['msg']}, not {value!r}" if shown else error["msg"]


def _problem(place: Sequence[int | str], text: str, where: str) -> Problem:
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return Problem(f"{key.removeprefix('.')}: {text}" if key else text, where)
