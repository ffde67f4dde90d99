"""Tabular benchmarks of architectures: rows, files, and graphs of cells."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import itertools
from pathlib import Path

import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import SHARED
from tests.support.examples import examples
from tests.support.messages import assert_states
from tests.support.traces import import_trace, read_table
from wattkeeper.policies.errors import TraceError
from wattkeeper.traces.networks.cells import OPERATIONS, nas_bench_201
from wattkeeper.traces.trace import Trace

BENCHMARK = SHARED / "data" / "nasbench201" / "final.csv.gz"
HEAD = "data_set,architecture,train_time_s,val_acc_seed1,val_acc_seed2,params_m,latency_s"
ROWS = (
    "cifar10,0,740.394,9.712,9.712,0.073306,0.01",
    "cifar10,1,677.953,9.8,,0.073306,0.01",
    "cifar10,300000,994.87,80,81.5,0.101306,0.01",
    "cifar10,300001,1135.07,90,92,0.316346,0.01",
)
"""Two operations of the first edge, and two of the last one."""


def benchmark(tmp_path: Path, *rows: str, head: str = HEAD) -> Trace:
    path = tmp_path / "cells.csv"
    path.write_text("\n".join([head, *(rows or ROWS)]) + "\n")
    return import_trace("nas-table", [path])


def test_rows_become_networks_and_recordings(tmp_path: Path) -> None:
    trace = benchmark(tmp_path)
    assert (trace.kind, trace.origin, trace.parameters["cells"]) == (
        "networks",
        "recorded",
        "nas-bench-201",
    )
    table = read_table(trace)
    assert table.space["edge/0-1"] == ["none", "conv3x3"]
    assert table.space["edge/0-2"] == ["none"]
    assert table.space["edge/2-3"] == ["none", "skip"]
    names = {choices: network.name for choices, network in table.networks.items()}
    assert set(names.values()) == {"000000", "000001", "300000", "300001"}
    assert [each.accuracy for each in table.recordings["300000", None]] == [0.80, 0.815]
    [only] = table.recordings["000001", None]
    assert (only.epochs, only.time_s) == (200, 677.953)
    assert only.final_accuracy == pytest.approx(0.098)


def test_parquet_and_gzip_are_read_as_the_text(tmp_path: Path) -> None:
    trace = benchmark(tmp_path)
    text = (tmp_path / "cells.csv").read_bytes()
    (tmp_path / "packed.csv.gz").write_bytes(gzip.compress(text))
    plain = pacsv.read_csv(io.BytesIO(text))
    pq.write_table(plain, tmp_path / "cells.parquet")
    for name in ("packed.csv.gz", "cells.parquet"):
        assert import_trace("nas-table", [tmp_path / name]).tables == trace.tables
    pq.write_table(plain.drop_columns(["params_m"]), tmp_path / "lacks.parquet")
    with pytest.raises(TraceError, match=r"lacks\.parquet: .*params_m"):
        import_trace("nas-table", [tmp_path / "lacks.parquet"])


@pytest.mark.parametrize(
    ("row", "facts"),
    [
        ("mnist,3,1,50,50,0.1,0.01", ("row 5", "'mnist'", "cifar10", "cifar100")),
        ("cifar10,5,1,50,50,0.1,0.01", ("row 5", "'5'", "digits from 0 to 4")),
        ("cifar10,1000000,1,50,50,0.1,0.01", ("row 5", "up to 6 digits")),
        ("cifar10,2,1,150,50,0.1,0.01", ("row 5", "val_acc_seed1 is 150", "at most 100")),
        ("cifar10,2,0,50,50,0.1,0.01", ("row 5", "train_time_s is 0.0", "> 0")),
        ("cifar10,2,1,,50,0.1,0.01", ("row 5", "val_acc_seed1")),
        ("cifar10,300000,1,50,50,0.1,0.01", ("row 5", "'300000'", "row 3")),
        ("cifar10,2,1,50,50,0.1,0.01", ("5 of the 6 networks", "lacks")),
        ("cifar100,0,1,50,50,0.1,0.01", ("cifar100", "1 of the 4 networks")),
    ],
)
def test_bad_rows_are_named(row: str, facts: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(TraceError) as caught:
        benchmark(tmp_path, *ROWS, row)
    assert_states(str(caught.value), "cells.csv", *facts)


CELL = st.one_of(st.sampled_from(["", "nan", "-1", "1e400", "x", "é", "0" * 30, '"']), st.text())


@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(row=st.integers(0, len(ROWS)), column=st.integers(0, 6), cell=CELL)
def test_any_cell_is_read_or_refused(row: int, column: int, cell: str, tmp_path: Path) -> None:
    lines = [line.split(",") for line in (HEAD, *ROWS)]
    lines[row][column] = cell
    path = tmp_path / "cells.csv"
    path.write_bytes("\n".join(",".join(line) for line in lines).encode("utf-8", "surrogatepass"))
    with contextlib.suppress(TraceError):
        trace = import_trace("nas-table", [path])
        assert len(read_table(trace).networks) == 4


@pytest.mark.skipif(not BENCHMARK.is_file(), reason="the table of NAS-Bench-201 is not here")
def test_graphs_of_cells_have_the_recorded_parameters() -> None:
    with gzip.open(BENCHMARK, "rt") as file:
        rows = [row for row in csv.DictReader(file) if row["data_set"] == "cifar100"]
    assert len(rows) == 5**6
    equal = 0
    for row in (rows := rows[::25]):
        choices = [OPERATIONS[int(digit)] for digit in row["architecture"].zfill(6)]
        graph = nas_bench_201(choices, row["data_set"])
        recorded = float(row["params_m"]) * 1e6
        equal += abs(int(graph.parameters.sum()) - recorded) <= 1e-5 * recorded  # six digits
    assert equal >= 0.98 * len(rows)  # 300 rows of 31,250 lack a convolution or two


@pytest.mark.skipif(not BENCHMARK.is_file(), reason="the table of NAS-Bench-201 is not here")
def test_edges_are_in_the_order_of_the_definition() -> None:
    """Cells in which the input reaches the output by convolutions are better than chance."""
    paths = {(3,), (0, 4), (1, 5), (0, 2, 5)}
    with gzip.open(BENCHMARK, "rt") as file:
        rows = [row for row in csv.DictReader(file) if row["data_set"] == "cifar10"]
    accuracy = {row["architecture"].zfill(6): float(row["val_acc_seed1"]) for row in rows}
    for edges in itertools.chain.from_iterable(itertools.combinations(range(6), n) for n in (1, 2)):
        name = "".join("3" if edge in edges else "0" for edge in range(6))
        connects = any({*path} <= {*edges} for path in paths)
        assert (accuracy[name] > 50) == connects, name
