"""Studies against each other: results folders, each against the first."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

from tests.conftest import Command
from tests.support.messages import assert_states
from tests.support.results import seal
from wattkeeper import scenarios

SMALL = ["workload.recurrences=6", "workload.workloads=[image]"]

Change = Callable[[dict[str, Any]], float | None]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder `a` of a small run with five seeds."""
    folder = tmp_path_factory.mktemp("compared")
    scenarios.load("quickstart", SMALL, seeds=range(1, 6)).run().save(folder / "a")
    return folder


def change_results(source: Path, target: Path, change: Change, **manifest: Any) -> Path:
    """A copy of results with other metrics; a value of True leaves the row out."""
    shutil.copytree(source, target)
    table = pq.read_table(source / "metrics.parquet")
    rows = [row | {"value": change(row)} for row in table.to_pylist()]
    rows = [row for row in rows if row["value"] is not True]
    pq.write_table(pa.Table.from_pylist(rows, table.schema), target / "metrics.parquet")
    about = json.loads((source / "manifest.json").read_text())
    about |= {"results_digest": "another"} | manifest
    (target / "manifest.json").write_text(json.dumps(about))
    return seal(target)


def add_noise(row: dict[str, Any], size: float = 0.01, shift: float = 1.0) -> float | None:
    """A value times something near 1 that depends on the row."""
    value: float | None = row["value"]
    if not value:
        return value
    seed = [row["seed"], *f"{row['variant']} {row['metric']} {row['part']}".encode()]
    return float(value * shift * (1 + size * np.random.default_rng(seed).normal()))


def compare_json(inside: Command, *folders: Path) -> dict[str, Any]:
    found = json.loads(inside("compare", *folders, "--json").stdout)
    comparison: dict[str, Any] = found["comparisons"][0]
    return comparison


def test_identical_results_have_that_verdict(inside: Command, results: Path) -> None:
    found = compare_json(inside, results / "a", results / "a")
    assert found["identical"]
    assert found["verdict"] == "identical"
    assert found["differ"] == 0 < found["compared"]
    assert "The results are identical" in inside("compare", results / "a", results / "a").stdout


def test_noise_has_that_verdict(inside: Command, results: Path, tmp_path: Path) -> None:
    other = change_results(results / "a", tmp_path / "b", add_noise)
    found = compare_json(inside, results / "a", other)
    assert found["verdict"] == "noise"
    assert found["hold"] == 0
    assert found["differ"] > 40
    alone = [row for row in found["rows"] if row["verdict"] in ("lower", "higher")]
    assert len(alone) < 0.15 * found["differ"], "5 % are expected"
    assert "They differ only by noise" in inside("compare", results / "a", other).stdout


def test_a_change_beyond_noise_is_found_among_many(
    inside: Command, results: Path, tmp_path: Path
) -> None:
    """3 % of one metric of one variant, where noise moves each value by 0.1 %."""

    def change(row: dict[str, Any]) -> float | None:
        worse = row["variant"] == "zeus" and row["metric"] == "energy_j"
        return add_noise(row, 0.001, 1.03 if worse else 1.0)

    other = change_results(results / "a", tmp_path / "b", change)
    found = compare_json(inside, results / "a", other)
    assert found["verdict"] == "differ"
    (row,) = [row for row in found["rows"] if row["holds"]]
    assert (row["variant"], row["metric"], row["verdict"]) == ("zeus", "energy_j", "higher")
    assert row["ratio"] == pytest.approx(1.03, abs=0.003)
    assert row["ci95"][0] < row["ratio"] < row["ci95"][1]
    shown = " ".join(inside("compare", results / "a", other).stdout.split())
    assert "most of all energy_j of zeus: +" in shown
    back = " ".join(inside("compare", other, results / "a").stdout.split())
    assert "most of all energy_j of zeus: -" in back


def test_figures_are_those_of_pairs(inside: Command, results: Path, tmp_path: Path) -> None:
    other = change_results(results / "a", tmp_path / "b", add_noise)
    left, right = (
        scenarios.read(folder).metrics.query("by == ''") for folder in (results / "a", other)
    )
    for row in compare_json(inside, results / "a", other)["rows"]:
        if row["verdict"] in (None, "identical"):
            continue
        baseline, values = (
            side[(side["variant"] == row["variant"]) & (side["metric"] == row["metric"])]
            .sort_values("seed")["value"]
            .to_numpy()
            for side in (left, right)
        )
        assert row["n"] == 5
        assert row["reference"] == pytest.approx(baseline.mean())
        assert row["other"] == pytest.approx(values.mean())
        assert row["difference"] == pytest.approx((values - baseline).mean())
        low, high = row["difference_ci95"]
        assert low < row["difference"] < high
        assert row["effect"] == pytest.approx(
            (values - baseline).mean() / (values - baseline).std(ddof=1)
        )
        if (baseline > 0).all():
            assert row["ratio"] == pytest.approx((values / baseline).mean())
            expected = stats.ttest_1samp(values / baseline, 1).pvalue
            assert row["p"] == pytest.approx(expected, rel=1e-6)
        assert row["p_holm"] >= row["p"]


def test_unmatched_runs_and_metrics_are_named(
    inside: Command, results: Path, tmp_path: Path
) -> None:
    def fewer(row: dict[str, Any]) -> Any:
        gone = (
            row["variant"] == "oracle"
            or row["seed"] == 2
            or (row["variant"] == "zeus" and row["metric"] == "jct_s")
        )
        return True if gone else row["value"]

    other = change_results(results / "a", tmp_path / "b", fewer)
    found = compare_json(inside, results / "a", other)
    assert found["only_reference"] == [
        "variant oracle",
        "variant default, seeds 2",
        "variant zeus, seeds 2",
        "variant zeus, jct_s",
        "variant frugal, seeds 2",
    ]
    assert found["only_other"] == []
    assert found["seeds"] == [1, 3, 4, 5]
    assert found["verdict"] == "identical"
    assert not found["identical"]
    shown = inside("compare", other, results / "a").stdout
    assert "only in the other: variant oracle" in shown
    assert "identical in what both have" in shown


def test_scenarios_inputs_and_versions_that_differ_are_named(
    inside: Command, results: Path, tmp_path: Path
) -> None:
    eta = [*SMALL, "objective.eta=0.9", "variants.zeus.policies.place=best-fit"]
    scenarios.load("quickstart", eta, seeds=range(1, 6)).run().save(tmp_path / "b")
    path = tmp_path / "b/manifest.json"
    manifest = json.loads(path.read_text())
    manifest["versions"]["numpy"] = "1.0"
    manifest["inputs"][0]["content"] = "x"
    path.write_text(json.dumps(manifest))
    seal(tmp_path / "b")
    found = compare_json(inside, results / "a", tmp_path / "b")
    paths = {row["path"]: row["other"] for row in found["differences"]}
    assert paths.pop("versions.numpy") == "1.0"
    assert paths.pop("inputs.profiles synthetic.content") == "x"
    assert paths.pop("scenario.objective.eta") == 0.9
    assert paths == {"scenario.variants.zeus.policies.place.kind": "best-fit"}
    costs = [row for row in found["rows"] if row["metric"] == "cost"]
    assert {row["verdict"] for row in costs} == {None}
    shown = inside("compare", results / "a", tmp_path / "b").stdout
    assert "scenario.objective.eta: 0.5 -> 0.9" in shown
    assert "under another eta: cost" in shown


def test_one_seed_gives_no_verdict_on_noise(inside: Command, results: Path, tmp_path: Path) -> None:
    one = change_results(
        results / "a", tmp_path / "b", lambda row: add_noise(row) if row["seed"] == 1 else True
    )
    found = compare_json(inside, results / "a", one)
    assert found["verdict"] == "one seed"
    verdicts = {row["verdict"] for row in found["rows"]} - {None, "identical"}
    assert verdicts == {"one seed"}
    assert "One seed cannot tell" in inside("compare", results / "a", one).stdout


def test_more_than_two_are_each_compared_with_the_first(
    inside: Command, results: Path, tmp_path: Path
) -> None:
    other = change_results(results / "a", tmp_path / "b", add_noise)
    found = json.loads(inside("compare", results / "a", other, results / "a", "--json").stdout)
    assert [one["verdict"] for one in found["comparisons"]] == ["noise", "identical"]
    live = change_results(results / "a", tmp_path / "c", lambda row: row["value"], backend="live")
    inside("compare", results / "a", live, other)
    assert "Relative error of the prediction" in inside("compare", results / "a", live).stdout


def sweep(folder: Path, states: dict[float, Path | None]) -> Path:
    """A sweep's folder with these results, by eta; None: it failed."""
    points = []
    for at, (eta, results) in enumerate(states.items(), 1):
        state = "done" if results else "failed"
        points.append({"id": f"{at:04}", "values": {"objective.eta": eta}, "state": state})
        if results:
            shutil.copytree(results, folder / f"points/{at:04}")
    folder.mkdir(exist_ok=True)
    about = {"scenario": "quickstart", "question": "", "baseline": "default", "axes": {}}
    (folder / "sweep.json").write_text(json.dumps(about | {"points": points}))
    return seal(folder)


def test_points_of_sweeps_are_matched_by_their_values(
    inside: Command, results: Path, tmp_path: Path
) -> None:
    other = change_results(results / "a", tmp_path / "b", lambda row: add_noise(row, 0.001, 1.1))
    one = sweep(tmp_path / "one", {0.1: results / "a", 0.2: results / "a", 0.3: None})
    two = sweep(tmp_path / "two", {0.2: other, 0.1: results / "a", 0.4: other})
    found = compare_json(inside, one, two)
    assert found["verdict"] == "differ"
    assert {row["point"]["objective.eta"] for row in found["rows"] if row["holds"]} == {0.2}
    assert {row["point"]["objective.eta"] for row in found["rows"]} == {0.1, 0.2}
    assert found["only_other"] == ['{"objective.eta": 0.4}']
    shown = " ".join(inside("compare", one, two).stdout.split())
    assert "1 point without results" in shown
    assert "(eta = 0.2)" in shown
    assert compare_json(inside, one, one)["identical"]
    message = inside("compare", one, results / "a", code=2).stderr
    assert_states(message, "one", "sweep", results / "a")
    (one / "sweep.json").write_text("{}")
    assert_states(inside("compare", one, two, code=2).stderr, one / "sweep.json", "no sweep.json")


def test_sweeps_over_other_points_are_not_identical(
    inside: Command, results: Path, tmp_path: Path
) -> None:
    one = sweep(tmp_path / "one", {0.1: results / "a", 0.2: results / "a"})
    two = sweep(tmp_path / "two", {0.1: results / "a", 0.3: results / "a"})
    turned = sweep(tmp_path / "turned", {0.2: results / "a", 0.1: results / "a"})
    found = compare_json(inside, one, two)
    assert not found["identical"]
    assert found["verdict"] == "identical", "in what both have"
    assert found["only_other"] == ['{"objective.eta": 0.3}']
    said = " ".join(inside("compare", one, two).stdout.split())
    assert "identical in what both have" in said
    assert compare_json(inside, one, turned)["identical"]


def test_incomparable_folders_are_refused(inside: Command, results: Path, tmp_path: Path) -> None:
    message = inside("compare", results / "a", "nowhere", code=2).stderr
    assert_states(message, "nowhere: ", "no folder")
    assert_states(inside("compare", results / "a", code=2).stderr, "two results folders")
    other = change_results(results / "a", tmp_path / "b", lambda row: row["value"])
    (other / "metrics.parquet").unlink()
    message = inside("compare", results / "a", other, code=2).stderr
    assert_states(message, other / "metrics.parquet", "missing")
    scenarios.load("quickstart", SMALL, seeds=[7]).run().save(tmp_path / "c")
    message = inside("compare", results / "a", tmp_path / "c", code=2).stderr
    assert_states(message, "in common", "seeds 7")


def test_a_page_of_the_comparison(inside: Command, results: Path, tmp_path: Path) -> None:
    noisy = change_results(results / "a", tmp_path / "b<i>", add_noise)
    better = change_results(
        results / "a", tmp_path / "c", lambda row: add_noise(row, size=1e-4, shift=0.9)
    )
    page = tmp_path / "page.html"
    folders = (results / "a", noisy, better)
    done = inside("compare", *folders, "--html", page)
    assert_states(done.stderr, f"Page: {page}")
    text = page.read_text(encoding="utf-8")
    content = json.loads(inside("compare", *folders, "--json").stdout)
    assert "b&lt;i&gt;" in text
    assert "b<i>" not in text
    assert_states(text, "They differ: ", "by more than noise", "Main metrics", "lower")
    assert "://" not in text.partition("<script")[0]
    for row in content["comparisons"][1]["rows"]:
        if row["metric"] == "energy_j" and row["ratio"] is not None:
            assert f"−{100 - 100 * row['ratio']:.1f} %" in text
    inside("compare", *folders, "--html", tmp_path / "again.html")
    assert (tmp_path / "again.html").read_bytes() == page.read_bytes()
