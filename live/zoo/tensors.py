"""Tensors as bytes: read from safetensors files or states of models, and checked; never unpickled.

Nothing here needs torch, but for the tensors that it gives to torch.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from wattkeeper.policies.errors import EnvironmentLacks, Problem, StoreError
from wattkeeper.policies.matching.graph import Graph
from wattkeeper.traces.files.regular import open_file

if TYPE_CHECKING:
    import torch

DTYPES: Final = {
    "F64": ("float64", "<f8"),
    "F32": ("float32", "<f4"),
    "F16": ("float16", "<f2"),
    "BF16": ("bfloat16", "<u2"),  # numpy has none
    "I64": ("int64", "<i8"),
    "I32": ("int32", "<i4"),
    "I16": ("int16", "<i2"),
    "I8": ("int8", "<i1"),
    "U8": ("uint8", "<u1"),
    "BOOL": ("bool", "<u1"),
}
"""What may be stored, as safetensors calls it: torch's name, and how numpy sees the bytes."""

NAMES: Final = {name: dtype for dtype, (name, _) in DTYPES.items()}
ALLOWED: Final = f"allowed: {', '.join(NAMES)}"
BFLOAT16_EXPONENT: Final = 0x7F80
STATISTICS: Final = ("running_mean", "running_var")
"""Roles of buffers that training changes."""

PICKLES: Final = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
"""First bytes of the files of torch.save and of pickle."""

CONVERT: Final = (
    "it looks like a file of torch.save, which may run any code when it is read; wattkeeper never "
    'does that. Convert it where you trust it: python -c "import torch, safetensors.torch as s; '
    "s.save_file(torch.load('model.pt', weights_only=True), 'model.safetensors')\""
)


class RawTensor:
    """A tensor as little-endian bytes, row after row.

    Attributes:
        dtype: One of `DTYPES`.
        shape: Its shape.
        data: Its bytes.
    """

    def __init__(self, dtype: str, shape: tuple[int, ...], data: bytes | bytearray) -> None:
        self.dtype, self.shape, self.data = dtype, shape, data

    @cached_property
    def digest(self) -> str:
        """Hash of type, shape and bytes, as 64 hexadecimal digits."""
        state = blake2b(f"{self.dtype} {list(self.shape)}\n".encode(), digest_size=32)
        state.update(self.data)
        return state.hexdigest()

    def count_not_finite(self) -> tuple[int, int]:
        """Number of its elements that are NaN, and of those that are infinite."""
        values = np.frombuffer(self.data, DTYPES[self.dtype][1])
        if self.dtype == "BF16":
            special = (values & BFLOAT16_EXPONENT) == BFLOAT16_EXPONENT
            infinite = np.count_nonzero(special & ((values & 0x7F) == 0))
            return int(np.count_nonzero(special) - infinite), int(infinite)
        if not self.dtype.startswith("F") or np.isfinite(values).all():
            return 0, 0
        return int(np.isnan(values).sum()), int(np.isinf(values).sum())

    def to_torch(self) -> torch.Tensor:
        """The tensor."""
        import torch

        dtype: torch.dtype = getattr(torch, DTYPES[self.dtype][0])
        if not self.data:
            return torch.empty(self.shape, dtype=dtype)
        return torch.frombuffer(bytearray(self.data), dtype=dtype).reshape(self.shape)

    @cached_property
    def header(self) -> bytes:
        """Header of a safetensors file with this tensor alone."""
        about = {"dtype": self.dtype, "shape": self.shape, "data_offsets": [0, len(self.data)]}
        header = json.dumps({"tensor": about}, separators=(",", ":")).encode()
        header += b" " * (-len(header) % 8)  # data is aligned, as safetensors recommends
        return len(header).to_bytes(8, "little") + header

    @property
    def file_bytes(self) -> int:
        """Size of that file, B."""
        return len(self.header) + len(self.data)


Tensors = Mapping[str, RawTensor]


def read_safetensors(path: Path) -> dict[str, RawTensor]:
    """The tensors of a safetensors file by name.

    Raises:
        StoreError: If it cannot be read, is of another format, or its header is wrong.
        EnvironmentLacks: If safetensors is not installed.
    """
    try:
        with open_file(path) as file:
            content = file.read()
    except OSError as error:
        raise StoreError(f"cannot be read: {error.strerror or error}", path) from None
    return parse_safetensors(content, str(path))


def parse_safetensors(content: bytes, where: str) -> dict[str, RawTensor]:
    """The tensors of a safetensors file's bytes; see `read_safetensors`."""
    try:
        import safetensors
    except ImportError:
        raise EnvironmentLacks(
            "reading models needs safetensors; install it: pip install 'wattkeeper[live]'"
        ) from None
    try:
        entries = safetensors.deserialize(content)  # type: ignore[no-untyped-call]
    except safetensors.SafetensorError as error:
        if content.startswith(PICKLES):  # so may a sound file, whose length stands there
            raise StoreError(f"no safetensors file: {CONVERT}", where) from None
        reason = str(error).removeprefix("Error while deserializing: ")
        size = f"{len(content)} bytes" if content else "empty"
        raise StoreError(
            f"no sound safetensors file ({size}): {reason}. It may be cut off or damaged; "
            "write it again with safetensors.torch.save_file",
            where,
        ) from None
    _refuse_duplicates(content, where)
    problems = [
        Problem(f"tensor {name!r} has the type {about['dtype']}; {ALLOWED}", where)
        for name, about in entries
        if about["dtype"] not in DTYPES
    ]
    if problems:
        raise StoreError(problems)
    return {name: RawTensor(a["dtype"], tuple(a["shape"]), a["data"]) for name, a in entries}


def _refuse_duplicates(content: bytes, where: str) -> None:
    """Refuse a header that says a name twice; of those, safetensors would take either."""
    names: Counter[str] = Counter()

    def count(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names.clear()  # the outermost object comes last
        names.update(name for name, _ in pairs)
        return dict(pairs)

    length = int.from_bytes(content[:8], "little")
    json.loads(content[8 : 8 + length], object_pairs_hook=count)
    twice = [name for name, times in names.items() if times > 1]
    if twice:
        message = "its header describes tensor {!r} more than once"
        raise StoreError([Problem(message.format(name), where) for name in twice])


def tensors_of_state(state: Mapping[str, Any]) -> dict[str, RawTensor]:
    """The tensors of a model's state, torch's or numpy's; on whatever device they are.

    Raises:
        StoreError: If one is no dense tensor of a type that may be stored, with all of those.
    """
    tensors, problems = {}, []
    for name, value in state.items():
        if isinstance(value, RawTensor):
            tensors[name] = value
            continue
        try:
            tensors[name] = _raw(value)
        except ValueError as error:
            problems.append(Problem(f"tensor {name!r} {error}"))
    if problems:
        raise StoreError(problems)
    return tensors


def _raw(value: Any) -> RawTensor:
    dtype = NAMES.get(str(getattr(value, "dtype", "")).removeprefix("torch."))
    if not hasattr(value, "dtype"):
        raise ValueError(f"is of the type {type(value).__name__}; allowed: tensors")
    if dtype is None:
        raise ValueError(f"has the type {value.dtype}; {ALLOWED}")
    if not isinstance(value, np.ndarray):
        import torch

        if value.layout != torch.strided or value.is_meta:
            raise ValueError("is sparse or holds no values; allowed: dense tensors with values")
        value = value.detach().cpu().contiguous()
        as_bytes = value.reshape(-1).view(torch.uint8).numpy()
        return RawTensor(dtype, tuple(value.shape), as_bytes.tobytes())
    little = np.asarray(value, dtype=value.dtype.newbyteorder("<"))
    return RawTensor(dtype, value.shape, little.tobytes())


def check(tensors: Tensors, graph: Graph, where: str = "") -> None:
    """Refuse tensors that are not finite, or not those of the graph.

    Raises:
        StoreError: With all that is wrong.
    """
    problems = [*_not_finite(tensors), *mismatches(tensors, graph)]
    if not tensors:
        problems = ["it holds no tensors"]
    if problems:
        raise StoreError([Problem(text, where) for text in problems])


def _not_finite(tensors: Tensors) -> Iterator[str]:
    for name, tensor in tensors.items():
        nans, infinite = tensor.count_not_finite()
        if nans or infinite:
            count = int(np.prod(tensor.shape, dtype=np.int64))
            yield (
                f"tensor {name!r} holds {nans} NaN and {infinite} infinite of {count} values; a "
                "model whose training diverged is not stored"
            )


def mismatches(tensors: Tensors, graph: Graph) -> Iterator[str]:
    """Differences between tensors and graph, one message each.

    A graph has no counters, as batch norm's `num_batches_tracked`, and a tensor that several
    layers share under one of its names. It may leave out leading or trailing extents of 1, or add
    leading ones. Buffers other than statistics may be missing: a module may make them anew and not
    save them.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    made: set[str] = set()
    nameless = 0
    for node in graph.nodes:
        for tensor in node.tensors:
            nameless += not tensor.name
            if not tensor.trained and tensor.role not in STATISTICS:
                made.add(tensor.name)
            known = shapes.setdefault(tensor.name, tensor.shape)
            if tensor.name and known != tensor.shape:
                both = f"{list(known)} and {list(tensor.shape)}"
                yield f"the graph gives tensor {tensor.name!r} two shapes, {both}"
    if nameless:
        yield (
            f"the graph has {nameless} tensors without a name, so that weights cannot be held "
            "against it; make the graph from the model"
        )
        return
    for name, shape in shapes.items():
        if name not in tensors:
            if name not in made:
                yield f"tensor {name!r} of the graph, shape {list(shape)}, is missing"
        elif not _is_same_shape(tensors[name].shape, shape):
            stored = list(tensors[name].shape)
            yield f"tensor {name!r} has the shape {stored}; in the graph it is {list(shape)}"
    others = {
        name: raw
        for name, raw in tensors.items()
        if name not in shapes and (raw.shape or not raw.dtype.startswith("I"))
    }
    contents = {tensors[name].digest for name in shapes if others and name in tensors}
    for name, raw in others.items():
        if raw.digest not in contents:
            yield f"tensor {name!r} is unknown to the graph"


def _is_same_shape(stored: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether a graph may state a tensor's shape so."""
    is_cut = stored[: len(shape)] == shape and set(stored[len(shape) :]) <= {1}
    return is_cut or _strip_leading_ones(stored) == _strip_leading_ones(shape)


def _strip_leading_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    leading = next((n for n, extent in enumerate(shape) if extent != 1), len(shape))
    return shape[leading:]
