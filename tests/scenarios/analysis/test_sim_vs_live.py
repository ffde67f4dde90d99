"""Predicted against measured: two results folders."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.conftest import Command, run_command, small
from tests.support.results import seal
from wattkeeper.policies.errors import InputError
from wattkeeper.scenarios.analysis.sim_vs_live import METRICS, compare
from wattkeeper.scenarios.analysis.study import read
from wattkeeper.sim.cluster_results.schemas import JOBS


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with results in `sim`."""
    folder = tmp_path_factory.mktemp("compared")
    (folder / "small.yaml").write_text(small())
    run_command("run", "small.yaml", "--out", "sim", traces=folder, cwd=folder)
    return folder


def change_results(sim: Path, live: Path, **columns: Any) -> Path:
    """A copy of results as if a live run had measured something else."""
    shutil.copytree(sim, live)
    table = pq.read_table(live / "jobs.parquet")
    for name, change in columns.items():
        at = table.schema.get_field_index(name)
        if at < 0:
            table = table.append_column(JOBS.field(name), change(table.num_rows))
            continue
        values = change(table[name])
        table = table.set_column(at, pa.field(name, values.type), values)
    pq.write_table(table, live / "jobs.parquet")
    manifest = json.loads((live / "manifest.json").read_text())
    (live / "manifest.json").write_text(json.dumps(manifest | {"backend": "live"}))
    return seal(live)


def keep_rows(sim: Path, folder: Path, rows: pa.Table) -> Path:
    """A copy of results with other rows in its table of jobs."""
    shutil.copytree(sim, folder)
    pq.write_table(rows, folder / "jobs.parquet")
    return seal(folder)


def compare_folders(live: Path, sim: Path) -> dict[str, Any]:
    return compare(read(live), read(sim))


def test_a_run_predicts_itself(results: Path) -> None:
    found = compare_folders(results / "sim", results / "sim")
    assert found["differences"] == found["decisions"]["differ"] == []
    assert len(found["attempts"]) == pq.read_metadata(results / "sim/jobs.parquet").num_rows
    for part in (found["errors"]["all"], *found["errors"]["by_workload"].values()):
        for name in METRICS:
            assert part[name]["n"] > 0
            assert part[name]["mean"] == part[name]["p95_size"] == 0


def test_errors_are_relative_to_what_was_measured(results: Path, tmp_path: Path) -> None:
    live = change_results(
        results / "sim",
        tmp_path / "live",
        time_s=lambda column: pc.multiply(column, 0.8),
        energy_j=lambda column: pc.multiply(column, 2.0),
    )
    errors = compare_folders(live, results / "sim")["errors"]["all"]
    for name, error in (("time_s", 0.25), ("epoch_s", 0.25), ("energy_j", -0.5)):
        assert errors[name]["mean"] == pytest.approx(error)
        assert errors[name]["median_size"] == pytest.approx(abs(error))


def test_unmeasured_energy_is_absent(results: Path, tmp_path: Path) -> None:
    def first_absent(column: pa.ChunkedArray) -> pa.ChunkedArray:
        rows = len(column)
        return pc.if_else(pa.array([row == 0 for row in range(rows)]), math.nan, column)

    def second_absent(column: pa.ChunkedArray) -> pa.Array:
        return pa.array([None, *column.to_pylist()[1:]], pa.float64())

    for name, change in (("nan", first_absent), ("null", second_absent)):
        found = compare_folders(
            change_results(results / "sim", tmp_path / name, energy_j=change), results / "sim"
        )
        assert found["absent"] == {"measured": 1, "predicted": 0}
        rows = len(found["attempts"])
        assert found["errors"]["all"]["energy_j"]["n"] == rows - 1
        assert found["totals"]["energy_j"]["n"] == rows - 1
        assert found["totals"]["time_s"]["n"] == rows
        assert found["attempts"][0]["energy_j"]["measured"] is None
        assert found["attempts"][0]["epoch_j"]["error"] is None


def test_attempts_with_other_decisions_are_listed_without_errors(
    results: Path, tmp_path: Path
) -> None:
    def first_other(column: pa.ChunkedArray) -> pa.Array:
        first, *others = column.to_pylist()
        return pa.array([first * 2, *others], column.type)

    live = change_results(results / "sim", tmp_path / "live", batch_size=first_other)
    found = compare_folders(live, results / "sim")
    (row,) = found["decisions"]["differ"]
    assert row["differ"] == ["batch_size"]
    assert row["batch_size"]["measured"] == 2 * row["batch_size"]["predicted"]
    assert found["errors"]["all"]["time_s"]["n"] == len(found["attempts"]) - 1


def test_attempts_with_another_clock_differ(results: Path, tmp_path: Path) -> None:
    live = change_results(
        results / "sim",
        tmp_path / "live",
        clock_mhz=lambda rows: pa.array([1200] + [None] * (rows - 1), pa.int32()),
    )
    found = compare_folders(live, results / "sim")
    (row,) = found["decisions"]["differ"]
    assert row["differ"] == ["clock_mhz"]
    assert found["errors"]["all"]["time_s"]["n"] == len(found["attempts"]) - 1


def test_attempts_whose_knobs_changed_have_no_error(
    results: Path, inside: Command, tmp_path: Path
) -> None:
    """Their limit is the last one: they did not run at it."""
    sim = results / "sim"
    limits = read(sim).table("jobs")["power_limit_w"].to_pylist()
    live = change_results(
        sim,
        tmp_path / "live",
        power_limit_w=lambda column: pa.array([limits[0] + 1, *limits[1:]]),
        retunes=lambda rows: pa.array([2, 1] + [0] * (rows - 2), pa.int32()),
    )
    found = compare_folders(live, sim)
    assert found["decisions"]["differ"] == []
    assert found["decisions"]["retuned"] == 2
    assert found["errors"]["all"]["time_s"]["n"] == len(found["attempts"]) - 2
    assert found["totals"]["time_s"]["n"] == len(found["attempts"])
    shown = inside("compare", live, sim).stdout
    assert "Knobs of 2 attempts changed after the start" in shown


def test_attempts_of_only_one_run_are_named(results: Path, tmp_path: Path) -> None:
    sim = results / "sim"
    jobs = read(sim).table("jobs")
    fewer = keep_rows(sim, tmp_path / "fewer", jobs.slice(0, jobs.num_rows - 2))
    found = compare_folders(fewer, sim)
    assert len(found["only_predicted"]) == 2
    assert found["only_measured"] == []
    assert found["only_predicted"][0].keys() >= {"variant", "seed", "job_id", "recurrence"}


def test_runs_with_nothing_in_common_are_refused(results: Path, tmp_path: Path) -> None:
    sim = results / "sim"
    jobs = read(sim).table("jobs")
    default, zeus = (
        keep_rows(sim, tmp_path / variant, jobs.filter(pc.field("variant") == variant))
        for variant in ("default", "zeus")
    )
    with pytest.raises(InputError, match=r"no attempt.*in common[\s\S]*variants zeus; seeds 1"):
        compare_folders(default, zeus)


def test_command_prints_differences(results: Path, inside: Command, tmp_path: Path) -> None:
    other = tmp_path / "other"
    run_command(
        "run", "small.yaml", "--out", other, "--set", "objective.eta=1", traces=results, cwd=results
    )
    live = change_results(other, tmp_path / "live")
    shown = inside("compare", live, results / "sim").stdout
    assert "objective.eta: 1.0, 0.5" in shown
    assert "Decisions that differ" in shown
    assert inside("compare", results / "sim", live).stdout == shown
    report = json.loads(inside("compare", live, results / "sim", "--json").stdout)
    assert report["differences"] == [{"path": "objective.eta", "measured": 1.0, "predicted": 0.5}]


def test_error_of_rounding_has_no_sign(results: Path, inside: Command, tmp_path: Path) -> None:
    slower = change_results(
        results / "sim", tmp_path / "live", time_s=lambda c: pc.multiply(c, 1 + 1e-12)
    )
    done = inside("compare", str(slower), str(results / "sim"))
    assert "+0.0 %" in done.stdout
    assert "-0.0 %" not in done.stdout


def test_folders_without_results_are_refused(
    results: Path, inside: Command, tmp_path: Path
) -> None:
    sim = results / "sim"
    assert "is no folder" in inside("compare", sim, "nowhere", code=2).stderr
    with pytest.raises(InputError, match=r"has no manifest.json; give a folder"):
        read(tmp_path)
    for name, content, text in (
        ("manifest.json", "{", "is truncated or was changed"),
        ("manifest.json", "[]", "is truncated or was changed"),
        ("jobs.parquet", "PAR1", "is truncated or was changed"),
        ("jobs.parquet", None, "is missing"),
    ):
        shutil.rmtree(tmp_path / "broken", ignore_errors=True)
        shutil.copytree(sim, tmp_path / "broken")
        path = tmp_path / "broken" / name
        if content is None:
            path.unlink()
        else:
            path.write_text(content)
        with pytest.raises(InputError, match=text):
            compare_folders(tmp_path / "broken", sim)
