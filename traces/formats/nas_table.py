"""Tabular benchmarks of architectures: NAS-Bench-201 (Dong and Yang, ICLR '20).

A CSV or Parquet file with the columns ``data_set`` (cifar10, cifar100 or imagenet16-120),
``architecture`` (the operations of the six edges 0-1, 0-2, 1-2, 0-3, 1-3, 2-3 as digits: 0 none, 1
skip, 2 1 x 1 convolution, 3 3 x 3 convolution, 4 average pooling; leading zeros may be missing),
``train_time_s`` (of a training of 200 epochs), ``val_acc_seed1`` (%), ``params_m`` (millions);
optional are ``val_acc_seed2``, ``val_acc_seed3`` (%, empty where there is none) and ``latency_s``.
The space is that of the operations which an edge has in any row; all its architectures are needed,
for each data set. Those of the paper are 15,625.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from wattkeeper.policies.errors import Problem, TraceError
from wattkeeper.traces.files.digests import digest_file
from wattkeeper.traces.files.names import derive_name
from wattkeeper.traces.limits import MOST_BYTES, MOST_FAULTS
from wattkeeper.traces.networks.cells import CLASSES, EDGES, OPERATIONS
from wattkeeper.traces.networks.rows import check_networks
from wattkeeper.traces.readers.base import Format
from wattkeeper.traces.readers.csvfile import read_csv, read_whole
from wattkeeper.traces.readers.textfile import first_line, one_path
from wattkeeper.traces.schema import NETWORKS, RECORDINGS, field, is_optional, table_schema
from wattkeeper.traces.tables import add_optional, row_problems
from wattkeeper.traces.trace import Trace

EPOCHS: Final = 200
SEEDS: Final = 3
PARQUET: Final = b"PAR1"
SOURCE: Final = (
    "NAS-Bench-201: X. Dong and Y. Yang. NAS-Bench-201: Extending the Scope of Reproducible Neural "
    "Architecture Search. ICLR 2020"
)
ROWS: Final = table_schema(
    "benchmark",
    [],
    [
        field("data_set", pa.string(), "", "what was trained on", "not empty"),
        field("architecture", pa.string(), "", "operations of the edges", "not empty"),
        field("train_time_s", pa.float64(), "s", "of a training", "> 0"),
        field("val_acc_seed1", pa.float64(), "%", "validation accuracy", ">= 0"),
        field("val_acc_seed2", pa.float64(), "%", "of another seed", ">= 0", optional=True),
        field("val_acc_seed3", pa.float64(), "%", "of another seed", ">= 0", optional=True),
        field("params_m", pa.float64(), "10^6", "parameters", "> 0"),
        field("latency_s", pa.float64(), "s", "of an inference", "> 0", optional=True),
    ],
)

Row = Mapping[str, Any]


def read(paths: Sequence[Path]) -> Trace:
    """The architectures of a file, and their trainings.

    Raises:
        TraceError: If it is no such file.
    """
    path = one_path(paths, "CSV or Parquet file")
    table, digest = _read_rows(path)
    networks: list[Row] = []
    recordings: list[Row] = []
    first_rows: dict[tuple[str, str], int] = {}
    problems: list[Problem] = []
    for number, row in enumerate(table.to_pylist(), 1):
        name = row["architecture"].zfill(len(EDGES))
        first = first_rows.setdefault((row["data_set"], name), number)
        repeats = [f"repeats row {first}: {name!r}"] * (first != number)
        if wrong := ", ".join([*repeats, *_find_faults(row, name)]):
            problems.append(Problem(wrong, f"{path}, row {number}"))
            if len(problems) == MOST_FAULTS:
                break
            continue
        task = row["data_set"]
        networks.append(
            {
                "task": task,
                "network": name,
                "choices": ",".join(OPERATIONS[int(digit)] for digit in name),
                "parameters": row["params_m"] * 1e6,
                "graph": None,
                "latency_s": row["latency_s"],
            }
        )
        recordings += _recordings(row, task, name)
    if problems:
        raise TraceError(problems)
    parameters = {
        "space": [
            [f"edge/{one}-{other}", [OPERATIONS[int(digit)] for digit in sorted(digits)]]
            for (one, other), digits in zip(EDGES, _digits_of_edges(networks), strict=True)
        ],
        "cells": "nas-bench-201",
    }
    tables = {
        "networks": pa.Table.from_pylist(networks, schema=NETWORKS),
        "recordings": pa.Table.from_pylist(recordings, schema=RECORDINGS),
    }
    check_networks(str(path), tables, parameters)
    return Trace(
        name=derive_name(path.stem),
        kind="networks",
        format="nas-table",
        origin="recorded",
        tables=tables,
        source=SOURCE,
        licence="as the imported file",
        inputs={path.name: digest},
        notes=(
            "Only the ends of trainings were recorded: each takes all of its "
            f"{EPOCHS} epochs, and no test accuracy is known.",
            "No training from a parent was recorded: all of them are modelled.",
        ),
        parameters=parameters,
    )


def _digits_of_edges(networks: Sequence[Row]) -> list[set[str]]:
    """The operations of each edge that there are, as digits."""
    return [{*digits} for digits in zip(*(row["network"] for row in networks), strict=True)]


def _find_faults(row: Row, name: str) -> Iterator[str]:
    if row["data_set"] not in CLASSES:
        yield f"data_set is {row['data_set']!r}, must be {', '.join(CLASSES)}"
    if len(name) > len(EDGES) or not {*name} <= {*map(str, range(len(OPERATIONS)))}:
        most = len(OPERATIONS) - 1
        yield (
            f"architecture is {row['architecture'][:20]!r}, must be up to {len(EDGES)} digits from "
            f"0 to {most}"
        )
    for seed in range(1, SEEDS + 1):
        accuracy = row[f"val_acc_seed{seed}"]
        if accuracy is not None and accuracy > 100:
            yield f"val_acc_seed{seed} is {accuracy:g}, must be at most 100 (%)"


def _recordings(row: Row, task: str, name: str) -> Iterator[Row]:
    for seed in range(1, SEEDS + 1):
        accuracy = row[f"val_acc_seed{seed}"]
        if accuracy is not None:
            yield {
                "task": task,
                "network": name,
                "parent": None,
                "seed": seed,
                "epochs": EPOCHS,
                "time_s": row["train_time_s"],
                "accuracy": accuracy / 100,
                "test_accuracy": None,
                "curve": None,
            }


def _read_rows(path: Path) -> tuple[pa.Table, str]:
    """The rows of a file, and its SHA-256."""
    if not path.is_file() or first_bytes(path) != PARQUET:
        file = read_csv(path, ROWS)
        return file.table, file.sha256
    data = read_whole(path, MOST_BYTES)
    try:
        found = pq.read_table(io.BytesIO(data), use_threads=False)
        there = [want for want in ROWS if not is_optional(want) or want.name in found.column_names]
        columns = [found[want.name].cast(want.type) for want in there]
    except (pa.ArrowException, OSError, KeyError) as error:
        raise TraceError(f"has not the columns of a benchmark: {error}", path) from None
    table = pa.Table.from_arrays(columns, names=[want.name for want in there])
    table = add_optional(table, ROWS).select(ROWS.names)
    if faults := row_problems(table, ROWS, most=MOST_FAULTS):
        listed = list(faults.items())[:MOST_FAULTS]
        raise TraceError([Problem(text, f"{path}, row {row + 1}") for row, text in listed])
    return table, digest_file(path)


def first_bytes(path: Path) -> bytes:
    """The first bytes of a file, as many as tell Parquet."""
    with path.open("rb") as file:
        return file.read(len(PARQUET))


def sniff(path: Path) -> bool:
    """Whether a file has the header of a benchmark."""
    return path.is_file() and first_line(path).split(",")[:3] == ROWS.names[:3]


FORMAT: Final = Format(
    name="nas-table",
    summary="final accuracies of all cells of NAS-Bench-201 (ICLR '20): data_set, architecture, "
    "train_time_s, val_acc_seed1 to 3, params_m, latency_s",
    takes="one CSV file, plain or gzip, or a Parquet file",
    read=read,
    sniff=sniff,
)
