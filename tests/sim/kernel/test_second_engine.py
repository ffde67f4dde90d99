"""A second engine stands on the kernel and the results of any run alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest

from wattkeeper.sim.results.checksums import check_sums

ENGINE = Path(__file__).with_name("rounds.py")
TABLES = {"decisions.parquet", "metrics.parquet", "rounds.parquet"}
FILES = {*TABLES, "manifest.json", "summary.json"}


class Ran(NamedTuple):
    """What a process that ran the engine said, and wrote."""

    said: dict[str, Any]
    folder: Path


def run(folder: Path, hash_seed: str) -> Ran:
    done = subprocess.run(
        [sys.executable, ENGINE, folder],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return Ran(json.loads(done.stdout), folder)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return run(tmp_path_factory.mktemp("rounds") / "one", "1")


def test_it_needs_no_engine_of_clusters(ran: Ran) -> None:
    assert ran.said["rooms"] == ["kernel", "results"]


def test_its_results_are_a_folder_with_digests(ran: Ran) -> None:
    assert {path.name for path in ran.folder.iterdir()} == {*FILES, "SHA256SUMS"}
    check_sums(ran.folder, FILES)
    rounds = pq.read_table(ran.folder / "rounds.parquet").to_pylist()
    assert [row["seed"] for row in rounds[::20]] == [1, 2, 1, 2]
    assert rounds[1]["time_s"] == pytest.approx(rounds[0]["span_s"] + rounds[1]["span_s"])


def test_its_journal_has_each_decision(ran: Ran) -> None:
    rows = pq.read_table(ran.folder / "decisions.parquet").to_pylist()
    assert {row["point"] for row in rows} == {"pick"}
    assert [row["policy"] for row in rows] == ["anybody"] * 40 + ["quickest"] * 40
    assert [row["round"] for row in rows] == [*range(20)] * 4
    assert len({row["saw"] for row in rows}) == 78, "the first rounds see the same clients"
    assert rows[0]["saw"] == rows[40]["saw"]
    assert all(row["chose"].startswith("100 clients from ") for row in rows)


def test_its_summary_compares_policies_over_seeds(ran: Ran) -> None:
    summary = json.loads((ran.folder / "summary.json").read_text())
    assert summary["variants"]["anybody"]["metrics"]["makespan_s"]["n"] == 2
    assert summary["variants"]["quickest"]["versus"]["makespan_s"]["verdict"] == "lower"


def test_another_process_writes_the_same_bytes(ran: Ran, tmp_path: Path) -> None:
    again = run(tmp_path / "two", "2")
    assert again.said == ran.said
    for name in (*FILES, "SHA256SUMS"):
        assert (again.folder / name).read_bytes() == (ran.folder / name).read_bytes()


def test_scenario_files_name_its_policies(ran: Ran) -> None:
    assert ran.said["points"][-1] == "pick"
    assert ran.said["named"] == "quickest"
    assert "'anybody', 'quickest'" in ran.said["refused"]
    names, configs, _ = ran.said["schema"]["properties"]["pick"]["anyOf"]
    assert names["enum"] == ["anybody", "quickest"]
    assert set(configs["discriminator"]["mapping"]) == {"anybody", "quickest"}
