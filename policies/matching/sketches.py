"""Sketches of models: compact forms from which the scores of many parents are bounded."""

from typing import Any, Final, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from wattkeeper.policies.arrays import Ints
from wattkeeper.policies.matching.asbuilt import chains
from wattkeeper.policies.matching.graph import Graph
from wattkeeper.policies.matching.pairs import kernel
from wattkeeper.policies.matching.prepared import prepare

S = TypeVar("S", bound=tuple[Ints, ...])
D = TypeVar("D", bound=np.generic)

SmallInts = NDArray[np.int32]

INITIAL_ROOM: Final = 64


class CoverageSketch(NamedTuple):
    """The nodes of a model that have trained tensors; what decides what fits, once per shape.

    Attributes:
        kind: Hash of what must be equal for weights to fit, shape (shapes,).
        inputs: Input units, shape (shapes,).
        outputs: Output units, shape (shapes,).
        task_inputs: 1 if the inputs are fixed by the task, else 0, shape (shapes,).
        task_outputs: 1 if the outputs are fixed by the task, else 0, shape (shapes,).
        starts: Where the tensors of each shape begin in the next three, shape (shapes + 1,).
        first: First extents of these tensors, shape (tensors,).
        second: Second extents, shape (tensors,).
        kernel: Elements of their kernels, shape (tensors,).
        often: Number of nodes of each shape, shape (shapes,).
        nodes: Shape of each node in canonical order, shape (nodes,).
    """

    kind: Ints
    inputs: Ints
    outputs: Ints
    task_inputs: Ints
    task_outputs: Ints
    starts: Ints
    first: Ints
    second: Ints
    kernel: Ints
    often: Ints
    nodes: Ints


class AsBuiltSketch(NamedTuple):
    """The kinds of a model's nodes.

    Attributes:
        kind: Distinct operators with their shapes (`Chains.kinds`), shape (kinds,).
        nodes: Largest number of nodes of the kind on one path, shape (kinds,).
    """

    kind: Ints
    nodes: Ints


SKETCHES: Final = (CoverageSketch, AsBuiltSketch)


def sketch_coverage(graph: Graph) -> CoverageSketch:
    """The sketch from which `coverage` is bounded."""
    return graph.arrays(CoverageSketch, _sketch_coverage)


def _sketch_coverage(graph: Graph) -> CoverageSketch:
    model = prepare(graph)
    # Also those whose tensors all are shared with earlier nodes: they have no size, but fill.
    trained = np.array(
        [any(tensor.trained for tensor in node.tensors) for node in graph.nodes], dtype=bool
    )
    sorts, places = np.unique(model.sorts[trained[model.order]], return_inverse=True)
    by_sort = zip(*(column[sorts].tolist() for column in model[2:7]), strict=True)
    tensors = np.stack([model.first, model.second, model.kernel], axis=1).tolist()
    ends = model.starts.tolist()
    shapes: dict[tuple[Any, ...], int] = {}
    shape_of_sort = [
        shapes.setdefault(
            (properties, *map(tuple, tensors[ends[sort] : ends[sort + 1]])), len(shapes)
        )
        for sort, properties in zip(sorts.tolist(), by_sort, strict=True)
    ]
    nodes = np.array(shape_of_sort, dtype=np.int64)[places]
    often = np.bincount(nodes, minlength=len(shapes))
    properties = np.array([shape[0] for shape in shapes], dtype=np.int64).reshape(-1, 5).T
    extents = np.array([each for shape in shapes for each in shape[1:]], dtype=np.int64)
    starts = np.cumsum([0, *(len(shape) - 1 for shape in shapes)])
    columns = (*properties, starts, *extents.reshape(-1, 3).T, often, nodes)
    return CoverageSketch._make(column.copy() for column in columns)


def sketch_asbuilt(graph: Graph) -> AsBuiltSketch:
    """The sketch from which `asbuilt` is bounded."""
    return graph.arrays(AsBuiltSketch, _sketch_asbuilt)


def _sketch_asbuilt(graph: Graph) -> AsBuiltSketch:
    model = chains(graph)
    kinds, slots = np.unique(model.kinds, return_inverse=True)
    nodes = kernel("bounds_kernel").longest_paths(slots, model.starts, model.before, len(kinds))
    return AsBuiltSketch(kinds, nodes)


class SketchTable(Generic[S]):
    """The sketches of many models, in arrays that grow by doubling.

    Their first column, the kinds, is replaced by small numbers in order of first appearance.
    """

    def __init__(self, layout: type[S]) -> None:
        self._numbers: dict[int, int] = {}
        self._columns = [_RaggedColumn() for _ in layout.__annotations__]
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def bytes(self) -> int:
        """Size of the arrays, B."""
        return sum(column.bytes for column in self._columns)

    @property
    def columns(self) -> tuple[tuple[SmallInts, Ints], ...]:
        """By column, the values of all models and where each model's begin.

        The shapes are (values,) and (models + 1,).
        """
        return tuple(column.arrays() for column in self._columns)

    def add(self, sketch: S) -> None:
        """Append a model."""
        numbers = self._numbers
        kinds = [numbers.setdefault(kind, len(numbers)) for kind in sketch[0].tolist()]
        values = (np.array(kinds, dtype=np.int64), *sketch[1:])
        for column, added in zip(self._columns, values, strict=True):
            column.append(added)
        self._count += 1

    def slots(self, kinds: Ints) -> Ints:
        """By number of a kind, its position in `kinds` or -1, shape (numbers,)."""
        slots = np.full(len(self._numbers), -1, dtype=np.int64)
        for slot, kind in enumerate(kinds.tolist()):
            if kind in self._numbers:
                slots[self._numbers[kind]] = slot
        return slots


class _RaggedColumn:
    """Sequences of integers one after the other."""

    def __init__(self) -> None:
        self._values: SmallInts = np.empty(INITIAL_ROOM, dtype=np.int32)
        self._starts: Ints = np.zeros(INITIAL_ROOM, dtype=np.int64)
        self._count = 0

    @property
    def bytes(self) -> int:
        return self._values.nbytes + self._starts.nbytes

    def arrays(self) -> tuple[SmallInts, Ints]:
        starts = self._starts[: self._count + 1]
        return self._values[: starts[-1]], starts

    def append(self, values: Ints) -> None:
        start = int(self._starts[self._count])
        end = start + len(values)
        self._values = _grow(self._values, end)
        self._starts = _grow(self._starts, self._count + 2)
        self._values[start:end] = values
        self._count += 1
        self._starts[self._count] = end


def _grow(array: NDArray[D], length: int) -> NDArray[D]:
    """An array with room for a length, at least doubled if it lacks it."""
    if length <= len(array):
        return array
    grown = np.zeros(max(length, 2 * len(array)), dtype=array.dtype)
    grown[: len(array)] = array
    return grown
