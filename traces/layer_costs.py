"""Measured costs of layers, from which planners make pipelines, as CSV files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from wattkeeper.policies.elastic.morphing import CutSection
from wattkeeper.policies.elastic.stages import LayerCost
from wattkeeper.policies.errors import InputError
from wattkeeper.traces.readers.csvfile import read_csv
from wattkeeper.traces.schema import field, table_schema

_real, _whole = pa.float64(), pa.int32()
_profile = field("profile", pa.string(), "", "which model was measured", "not empty", optional=True)

LAYERS: Final = table_schema(
    "costs of layers",
    [],
    [
        _profile,
        field("layer", _whole, "", "number of the layer, from 0", ">= 0"),
        field("fb_s", _real, "s", "forward and backward pass of a micro-batch on one GPU", ">= 0"),
        *(
            field(
                f"extra_{gpus}gpus_s",
                _real,
                "s",
                f"all-reduces of both passes if {gpus} GPUs of a node share the layer",
                ">= 0",
                optional=True,
            )
            for gpus in (2, 4, 8)
        ),
        field("state_bytes", _real, "B", "weights and optimizer state", ">= 0", optional=True),
    ],
)

SECTIONS: Final = table_schema(
    "costs of sections",
    [],
    [
        _profile,
        field(
            "section", _whole, "", "number of the section between two cut-points, from 0", ">= 0"
        ),
        field("microbatch", _whole, "", "samples of a micro-batch", "> 0"),
        field("forward_s", _real, "s", "forward pass of a micro-batch", "> 0"),
        field("backward_s", _real, "s", "backward pass of a micro-batch", ">= 0"),
        field("state_bytes", _real, "B", "weights, gradients and optimizer state", ">= 0"),
        field("sample_bytes", _real, "B", "what one sample of a micro-batch takes besides", ">= 0"),
        field("gradient_bytes", _real, "B", "what replicas add up after each step", ">= 0"),
    ],
)


class LayerProfile(NamedTuple):
    """The costs of the layers of a model.

    Attributes:
        name: Of the file.
        layers: In order.
        layer_bytes: Weights and optimizer state of each; empty: not known.
        sha256: Of the file, hex.
        table: The rows of the profile, with the columns of `LAYERS`.
    """

    name: str
    layers: tuple[LayerCost, ...]
    layer_bytes: tuple[int, ...]
    sha256: str
    table: pa.Table


def read_layers(path: Path, profile: str = "") -> LayerProfile:
    """The costs of the layers of a profile.

    Raises:
        TraceError: If the file is broken.
        InputError: If it has no such profile, or a layer is missing or stands there twice.
    """
    file = read_csv(path, LAYERS)
    rows = _rows_of(file.table, profile, path)
    _check_numbers([row["layer"] for row in rows], "layer", path)
    rows.sort(key=lambda row: row["layer"])
    layers = []
    for row in rows:
        extras = [row[f"extra_{gpus}gpus_s"] for gpus in (2, 4, 8)]
        known = extras[: extras.index(None)] if None in extras else extras
        layers.append(LayerCost(row["fb_s"], tuple(known)))
    sizes = [row["state_bytes"] for row in rows]
    layer_bytes = () if None in sizes else tuple(map(int, sizes))
    table = pa.Table.from_pylist(rows, file.table.schema)
    return LayerProfile(path.name, tuple(layers), layer_bytes, file.sha256, table)


def read_sections(path: Path, profile: str = "") -> tuple[tuple[CutSection, ...], tuple[int, ...]]:
    """The costs of the sections of a profile, in order, and the measured sizes of micro-batches.

    Raises:
        TraceError: If the file is broken.
        InputError: If it has no such profile, a section is missing, or one was not measured with
            each size, or has another size of its own with another micro-batch.
    """
    rows = _rows_of(read_csv(path, SECTIONS).table, profile, path)
    sizes = sorted({row["microbatch"] for row in rows})
    by_size = {
        size: sorted((row for row in rows if row["microbatch"] == size), key=lambda r: r["section"])
        for size in sizes
    }
    for size in sizes:
        numbers = [row["section"] for row in by_size[size]]
        _check_numbers(numbers, f"micro-batch of {size}: section", path)
        if len(numbers) != len(by_size[sizes[0]]):
            raise InputError(
                f"has {len(numbers)} sections with micro-batches of {size}, and "
                f"{len(by_size[sizes[0]])} with those of {sizes[0]}; each is measured with each "
                "size",
                path,
            )
    sections = []
    for measured in zip(*by_size.values(), strict=True):
        sums = {tuple(row[name] for name in SECTIONS.names[-3:]) for row in measured}
        if len(sums) > 1:
            raise InputError(
                f"section {measured[0]['section']} has other bytes with another micro-batch; "
                "allowed are the same in all its rows",
                path,
            )
        forward_s, backward_s = (
            tuple(row[name] for row in measured) for name in ("forward_s", "backward_s")
        )
        sections.append(CutSection(forward_s, backward_s, *map(int, sums.pop())))
    return tuple(sections), tuple(sizes)


def _rows_of(table: pa.Table, profile: str, path: Path) -> list[dict[str, Any]]:
    """The rows of a profile; of the only one if none is named."""
    rows: list[dict[str, Any]] = table.to_pylist()
    names = sorted({row["profile"] or "" for row in rows})
    if not profile and len(names) == 1:
        return rows
    found = [row for row in rows if profile and row["profile"] == profile]
    if not found:
        there = ", ".join(names)
        wanted = f"has no profile {profile!r}" if profile else "has several profiles: name one"
        raise InputError(f"{wanted}; there is {there or 'none with a name'}", path)
    return found


def _check_numbers(numbers: list[int], what: str, path: Path) -> None:
    """Refuse numbers that are not 0, 1, 2, ... in any order."""
    for wanted, number in enumerate(sorted(numbers)):
        if number != wanted:
            fault = "stands there twice" if number < wanted else f"follows {wanted - 1}"
            raise InputError(f"{what} {number} {fault}; allowed is each from 0 on, once", path)
