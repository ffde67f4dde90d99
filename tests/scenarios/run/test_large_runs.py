"""Runs whose rows and tables lie in files while they go on: the same results, and no litter."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.conftest import Command, small
from tests.support.runs import content, names
from wattkeeper.scenarios.run.run import run
from wattkeeper.scenarios.spec.loading import load
from wattkeeper.sim.cluster_results import tables
from wattkeeper.sim.kernel import spool
from wattkeeper.sim.results import parquet, table_keeper
from wattkeeper.sim.results.parquet import StoredTable
from wattkeeper.traces.files.atomic import is_leftover

GROUP = 100
"""Rows of a row group in these tests."""

PREEMPTING = """\
name: preempting
cluster: {gpu: GPU, gpus: 64, gpus_per_node: 8, idle_power_w: 50, busy_power_w: 250,
          losses: {events: {rate: 300, away_s: 3600}}}
workload: {kind: trace, trace: some}
policies: {select: srtf, place: best-fit}
variants: {srtf: {}, las: {policies: {select: las}}}
baseline: srtf
"""


@pytest.fixture(autouse=True)
def short_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (parquet, table_keeper):
        monkeypatch.setattr(module, "ROW_GROUP", GROUP)


def generate(inside: Command, jobs: int) -> None:
    """Generate the trace `some`, for more than 64 GPUs."""
    inside(
        "traces",
        "generate",
        "jobs",
        "--name",
        "some",
        "--jobs",
        str(jobs),
        "--load",
        "1.2",
        "--gpus",
        "64",
    )


def make_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have all runs count as large ones."""
    monkeypatch.setattr(tables, "MOST_ATTEMPTS", 0)
    monkeypatch.setattr(spool, "MOST_HELD_BYTES", 0)


def test_one_run_gives_the_same_files(
    inside: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate(inside, 700)
    arguments = (
        "run",
        "million-jobs",
        "--set",
        "workload.trace=some",
        "--set",
        "cluster.gpus=64",
        "--out",
    )
    inside(*arguments, "in-memory")
    make_large(monkeypatch)
    inside(*arguments, "in-files")
    assert pq.read_metadata(tmp_path / "in-files/jobs.parquet").num_row_groups == 7
    kept, streamed = content(tmp_path / "in-memory"), content(tmp_path / "in-files")
    for name in kept.keys() - {"manifest.json", "SHA256SUMS"}:
        assert streamed[name] == kept[name], name
    assert names(tmp_path) == ["in-files", "in-memory", "library"]


@pytest.mark.parametrize("text", [PREEMPTING, small("zeus: {policies: {configure: zeus}}")])
def test_several_runs_give_the_same_tables(
    inside: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    generate(inside, 150)
    (tmp_path / "several.yaml").write_text(text, encoding="utf-8")
    inside("run", "several.yaml", "--out", "in-memory")
    make_large(monkeypatch)
    inside("run", "several.yaml", "--out", "in-files")
    kept, streamed = tmp_path / "in-memory", tmp_path / "in-files"
    assert names(kept) == names(streamed)
    for path in kept.glob("*.parquet"):
        assert pq.read_table(streamed / path.name).equals(pq.read_table(path)), path.name
    for name in ("summary.json", "report.html"):
        assert (streamed / name).read_bytes() == (kept / name).read_bytes(), name


@pytest.fixture
def streamed(inside: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoredTable:
    """The jobs of a large run, whose worker would send them so."""
    generate(inside, 450)
    make_large(monkeypatch)
    loaded = load("million-jobs", ("workload.trace=some", "cluster.gpus=64"))
    (result,) = run(loaded, scratch=tmp_path).results
    jobs = pickle.loads(pickle.dumps(result)).tables["jobs"]
    assert isinstance(jobs, StoredTable)
    return jobs


def test_a_stored_table_is_read_by_columns_and_by_rows(streamed: StoredTable) -> None:
    whole = pq.read_table(streamed.path)
    assert (len(streamed), streamed.column_names) == (450, whole.column_names)
    assert streamed["finish_time_s"].equals(whole["finish_time_s"])
    assert streamed.select(["job_id", "cost"]).equals(whole.select(["job_id", "cost"]))
    part = streamed.slice(GROUP - 1, GROUP + 2)
    assert part["job_id"].to_pylist() == whole["job_id"].to_pylist()[GROUP - 1 : 2 * GROUP + 1]


def test_no_more_rows_are_held_than_those_of_a_row_group(
    inside: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted: rows of each part of a table, and bytes that the recorder holds."""
    lengths: list[int] = []
    spools: list[spool.Spool] = []
    make_table, make_spool = table_keeper._table, spool.Spool.__init__

    def count(*arguments: Any) -> Any:
        table = make_table(*arguments)
        lengths.append(len(table))
        return table

    def keep(self: spool.Spool) -> None:
        make_spool(self)
        spools.append(self)

    generate(inside, 950)
    make_large(monkeypatch)
    monkeypatch.setattr(spool, "MOST_HELD_BYTES", 1000)
    monkeypatch.setattr(table_keeper, "_table", count)
    monkeypatch.setattr(spool.Spool, "__init__", keep)
    loaded = load("million-jobs", ("workload.trace=some", "cluster.gpus=64"))
    (result,) = run(loaded, scratch=tmp_path).results
    assert sum(lengths) == sum(len(table) for table in result.tables.values()) > 40 * GROUP
    assert max(lengths) == GROUP
    (rows,) = spools
    assert rows.held_bytes <= 1000 < 950 * 60 < rows.filed_bytes


KILLED = """
import os, signal, sys
from wattkeeper.sim.kernel import spool
from wattkeeper.sim.cluster_results import tables
from wattkeeper.sim.results import parquet, table_keeper
tables.MOST_ATTEMPTS = spool.MOST_HELD_BYTES = 0
table_keeper.ROW_GROUP = parquet.ROW_GROUP = 100
make, left = table_keeper._table, [int(sys.argv.pop(1))]

def make_or_die(*arguments):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return make(*arguments)

table_keeper._table = make_or_die
from wattkeeper.scenarios.cli.main import main
main()
"""


def test_a_killed_run_leaves_nothing_whole_and_the_next_one_cleans(
    inside: Command, tmp_path: Path
) -> None:
    generate(inside, 450)
    arguments = (
        "run",
        "million-jobs",
        "--set",
        "workload.trace=some",
        "--set",
        "cluster.gpus=64",
        "--out",
        "out",
    )
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, "15", *arguments],
        cwd=tmp_path,
        capture_output=True,
        env=dict(os.environ),
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    left = [name for name in names(tmp_path) if name != "library"]
    assert len(left) == 2
    assert all(map(is_leftover, left))
    assert [*tmp_path.glob(".out.*.new/*/*.parquet")]
    inside(*arguments)
    assert names(tmp_path) == ["library", "out"]
