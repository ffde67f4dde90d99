"""Results from Python: what `load(...).run()` gives is what a folder gives back."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from tests.support.results import seal
from wattkeeper import scenarios
from wattkeeper.policies.errors import InputError
from wattkeeper.scenarios.run.run import ScenarioResult
from wattkeeper.sim.cluster_results.schemas import TABLES
from wattkeeper.sim.results.summary import VALUES
from wattkeeper.traces.schema import is_optional


@pytest.fixture(scope="module")
def done() -> ScenarioResult:
    few = ["workload.recurrences=3", "workload.workloads=[image]", "variants.frugal=null"]
    return scenarios.load("quickstart", few, seeds=[1, 2]).run()


@pytest.fixture(scope="module")
def folder(done: ScenarioResult, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("study") / "results"
    done.save(made)
    return made


@pytest.mark.parametrize("name", ["jobs", "decisions", "timeline", "metrics"])
def test_a_study_is_the_same_in_memory_and_in_a_folder(
    name: str, done: ScenarioResult, folder: Path
) -> None:
    saved = scenarios.read(folder)
    frame = getattr(done, name)
    schema = VALUES if name == "metrics" else TABLES[name]
    assert list(frame.columns) == [want.name for want in schema if not is_optional(want)]
    assert len(frame) > 0
    pd.testing.assert_frame_equal(frame, getattr(saved, name))
    assert saved.table(name, ["seed", "variant"]).column_names == ["seed", "variant"]
    assert saved.manifest["results_digest"] == done.manifest["results_digest"]


def test_columns_that_some_variants_have(tmp_path: Path) -> None:
    few = ["workload.recurrences=2", "workload.workloads=[image]"]
    done = scenarios.load("carbon-limits", few).run()
    done.save(tmp_path / "out", with_page=False)
    saved = scenarios.read(tmp_path / "out")
    pd.testing.assert_frame_equal(done.jobs, saved.jobs)
    known = done.jobs["retunes"].notna()
    assert set(done.jobs.loc[known, "variant"]) == {"chase", "deadline"}
    for study in (done, saved):
        table = study.table("jobs", ["clock_mhz", "retunes", "variant"])
        assert table.column_names == ["clock_mhz", "retunes", "variant"]
        assert table["clock_mhz"].null_count == len(done.jobs)
        assert table["retunes"].to_pylist() == study.table("jobs")["retunes"].to_pylist()


def test_metrics_are_those_of_the_summary(done: ScenarioResult) -> None:
    whole = done.metrics.query("by == '' and metric == 'energy_j'")
    means = whole.groupby("variant")["value"].mean()
    assert set(means.index) == set(done.summary["variants"])
    for variant, mean in means.items():
        stated = done.summary["variants"][variant]["metrics"]["energy_j"]["mean"]
        assert stated == pytest.approx(mean, rel=1e-12)
    parts = done.metrics.query("by == 'workload'")["part"].unique()
    assert list(parts) == list(done.summary["by"]["workload"])


def test_settings_and_seeds_in_either_form(done: ScenarioResult) -> None:
    by_path = {"workload.recurrences": 3, "workload.workloads": ["image"], "variants.frugal": None}
    again = scenarios.load("quickstart", by_path, seeds=2).run()
    assert again.manifest["results_digest"] == done.manifest["results_digest"]
    with pytest.raises(InputError, match=r"settings objective.eta: eta: found"):
        scenarios.load("quickstart", {"objective.eta": 7})


def test_absent_tables_and_files_are_named(
    done: ScenarioResult, folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="no zoo"):
        _ = done.models
    with pytest.raises(InputError, match=r"models.parquet: is missing"):
        _ = scenarios.read(folder).models
    with pytest.raises(InputError, match="is no folder"):
        scenarios.read(tmp_path / "none")
    (tmp_path / "manifest.json").write_text(json.dumps({"scenario": {"name": "a"}}))
    with pytest.raises(InputError, match=r"SHA256SUMS: is missing"):
        scenarios.read(tmp_path)
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / "manifest.json").write_text(json.dumps({"scenario": {"name": "a"}}))
    with pytest.raises(InputError, match="no manifest of results"):
        scenarios.read(seal(copy))
    os.truncate(copy / "SHA256SUMS", 1 << 27)
    with pytest.raises(InputError, match=r"SHA256SUMS: has 134,217,728 bytes, more than"):
        scenarios.read(copy)


def test_columns_of_metrics_carry_their_meaning(folder: Path) -> None:
    schema = pq.read_schema(folder / "metrics.parquet")
    assert schema.equals(VALUES, check_metadata=True)
