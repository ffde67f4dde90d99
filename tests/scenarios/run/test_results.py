"""What a run leaves behind: files, tables, and a manifest that runs again."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.conftest import Command
from tests.support.messages import drop_signs_of_life
from tests.support.runs import FILES, SEEDS, VARIANTS, Ran, content, names

COLUMNS = {
    "jobs": "variant seed job_id group_id recurrence attempt workload gpu_type gpus gpu_milli "
    "node_ids time_scale submit_time_s start_time_s finish_time_s batch_size power_limit_w epochs "
    "energy_j time_s overhead_s cost reached_target early_stopped profiled replayed parent_model "
    "preemptions",
    "decisions": "variant seed time_s point policy job_id attempt saw chose",
    "timeline": "variant seed time_s power_w gpus_busy jobs_waiting",
}
UNITS = {"_s": "s", "_j": "J", "_w": "W"}


def test_files(quick: Ran) -> None:
    assert names(quick.folder) == FILES


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_are_documented(quick: Ran, name: str) -> None:
    schema = pq.read_schema(quick.folder / f"{name}.parquet")
    assert schema.names == COLUMNS[name].split()
    for field in schema:
        assert field.metadata is not None, field.name
        assert set(field.metadata) >= {b"unit", b"doc"}, field.name
        assert field.metadata[b"doc"], field.name
        if field.name[-2:] in UNITS:
            assert field.metadata[b"unit"].decode() == UNITS[field.name[-2:]], field.name
    types = {field.name: str(field.type) for field in schema}
    assert types["variant"] == "string"
    assert types["seed"] == "int64"
    assert all(types[field] == "double" for field in types if field[-2:] in UNITS)


def test_rows_are_by_variant_and_seed(quick: Ran) -> None:
    for name in COLUMNS:
        table = quick.table(name)
        runs = table[["variant", "seed"]].drop_duplicates().to_numpy().tolist()
        assert runs == [[variant, seed] for variant in VARIANTS for seed in SEEDS]


def test_the_jobs(quick: Ran) -> None:
    jobs = quick.table("jobs")
    assert (jobs.groupby(["variant", "seed"])["job_id"].nunique() == 180).all()
    assert (jobs["submit_time_s"] <= jobs["start_time_s"]).all()
    assert (jobs["start_time_s"] < jobs["finish_time_s"]).all()
    assert (jobs["gpu_type"] == "SYN-250W").all()
    assert set(jobs["workload"]) == {"image", "language", "recommendation"}
    assert set(jobs["gpus"]) == {1}
    assert (jobs["node_ids"].map(len) == 1).all()
    assert set(jobs["power_limit_w"]) <= {100.0, 125.0, 150.0, 175.0, 200.0, 225.0, 250.0}
    assert not jobs.duplicated(["variant", "seed", "job_id", "attempt"]).any()
    cost = 0.5 * jobs["energy_j"] + 0.5 * 250 * jobs["time_s"]
    np.testing.assert_allclose(jobs["cost"], cost, rtol=1e-12)
    default = jobs[jobs["variant"] == "default"]
    assert set(default["power_limit_w"]) == {250.0}
    assert not (jobs["early_stopped"] & jobs["reached_target"]).any()
    assert jobs[jobs["profiled"]]["variant"].unique().tolist() == ["zeus"]


def test_decisions_name_policies(quick: Ran) -> None:
    decisions = quick.table("decisions")
    rows = decisions[["variant", "point", "policy"]].drop_duplicates().to_numpy().tolist()
    chosen: dict[tuple[str, str], list[str]] = {}
    for variant, point, policy in rows:
        chosen.setdefault((variant, point), []).append(policy)
    assert chosen["default", "configure"] == ["fixed"]
    assert chosen["zeus", "configure"] == ["zeus"]
    assert chosen["zeus", "tune"] == ["zeus-jit"]
    assert chosen["oracle", "configure"] == ["oracle"]
    assert {point for _, point in chosen} == {"configure", "tune", "select", "place"}
    assert decisions["saw"].dtype == np.uint64
    assert decisions["saw"].nunique() > 0.5 * len(decisions)
    attempts = quick.table("jobs").groupby("variant").size()
    configured = decisions[decisions["point"] == "configure"].groupby("variant").size()
    assert configured.to_dict() == attempts.to_dict()
    assert all(
        part["time_s"].is_monotonic_increasing for _, part in decisions.groupby(["variant", "seed"])
    )


def test_the_table(quick: Ran) -> None:
    assert not drop_signs_of_life(quick.stderr)
    lines = quick.stdout.splitlines()
    assert lines[0].startswith("quickstart: What do learned batch sizes and power limits save")
    assert re.search(r"synthetic.*not measured", quick.stdout)
    for name in VARIANTS:
        assert re.search(rf"│ {name}[^│]*│", quick.stdout), name
    for workload in ("image", "language", "recommendation"):
        assert re.search(rf"│ {workload} +│", quick.stdout), workload
    assert "mean of 5 seeds, against default" in quick.stdout
    assert lines[-2:] == ["Results: out", "Page: out/report.html"]
    assert max(map(len, lines)) <= 120
    versus = quick.json("summary")["variants"]["zeus"]["versus"]
    assert f"{100 * (versus['energy_j']['ratio'] - 1):+.1f} %" in quick.stdout
    assert "\x1b" not in quick.stdout


def test_manifest(quick: Ran) -> None:
    manifest, jobs = quick.json("manifest"), quick.table("jobs")
    assert manifest["seeds"] == SEEDS
    assert manifest["backend"] == "sim"
    assert manifest["scenario"]["name"] == "quickstart"
    assert list(manifest["scenario"]["variants"]) == VARIANTS
    assert manifest["scenario"]["max_attempts"] == 20, "values that were not written are resolved"
    assert manifest["modelled"] == ["idle power of GPUs"]
    assert [(t["trace"], t["origin"]) for t in manifest["inputs"]] == [("synthetic", "synthetic")]
    assert re.fullmatch("[0-9a-f]{64}", manifest["scenario_digest"])
    assert re.fullmatch("[0-9a-f]{64}", manifest["results_digest"])
    assert manifest["jobs"] == 4 * 5 * 180
    assert manifest["attempts"] == len(jobs)
    assert manifest["events"] >= len(jobs)
    ends = quick.table("timeline").groupby(["variant", "seed"])["time_s"].max()
    assert manifest["simulated_s"] == pytest.approx(ends.sum(), rel=1e-12)
    assert set(manifest["versions"]) >= {"python", "wattkeeper", "numpy", "pyarrow", "simpy"}
    assert set(manifest["host"]) == {"name", "platform"}
    assert manifest["wall_s"] > 0


def test_the_resolved_scenario_runs_again(quick: Ran, inside: Command, tmp_path: Path) -> None:
    """The manifest's scenario is a scenario file, and gives the same results."""
    scenario = quick.json("manifest")["scenario"]
    (tmp_path / "again.yaml").write_text(json.dumps(scenario), encoding="utf-8")
    inside("run", "again.yaml", "--out", "again")
    assert content(tmp_path / "again")["jobs.parquet"] == content(quick.folder)["jobs.parquet"]
    manifest = json.loads((tmp_path / "again/manifest.json").read_text())
    assert manifest["results_digest"] == quick.json("manifest")["results_digest"]
    assert manifest["scenario_digest"] == quick.json("manifest")["scenario_digest"]
