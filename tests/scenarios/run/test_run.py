"""The command, in processes of its own: what it leaves behind, and how it fails."""

from __future__ import annotations

import itertools
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from tests.conftest import ROOT, Command, run_command, small
from wattkeeper.scenarios.cli.main import main
from wattkeeper.scenarios.spec.loading import load, shipped
from wattkeeper.scenarios.spec.schema import SyntheticSource

TABLES = ["decisions.parquet", "jobs.parquet", "metrics.parquet", "timeline.parquet"]
FILES = sorted([*TABLES, "manifest.json", "report.html", "summary.json"])
RESULTS = [name for name in FILES if name != "manifest.json"]
VARIANTS = ["default", "grid-search", "zeus", "oracle"]
SEEDS = [1, 2, 3, 4, 5]

COLUMNS = {
    "jobs": "variant seed job_id group_id recurrence attempt workload gpu_type gpus gpu_milli "
    "node_ids time_scale submit_time_s start_time_s finish_time_s batch_size power_limit_w epochs "
    "energy_j time_s overhead_s cost reached_target early_stopped profiled replayed parent_model "
    "preemptions",
    "decisions": "variant seed time_s point policy job_id attempt saw chose",
    "timeline": "variant seed time_s power_w gpus_busy jobs_waiting",
}
UNITS = {"_s": "s", "_j": "J", "_w": "W"}

GOLDEN = {
    "versions": {"python": "3.11.7", "numpy": "2.4.6", "pyarrow": "26.0.1", "simpy": "4.1.2"},
    "quickstart": "5276c1e50a880535c3d044700b7b48cf5aacf934121d162b5f53c8a95144023b",
}
"""Digests of results by scenario, and what they were made with. A change of them is a change of
results: put the new ones here if it is meant, and say so in the changelog."""

SMALL = small("é:\n    policies:\n      configure: {kind: fixed, batch_size: 64}")

GROUPS = """\
group,start_time,end_time,dataset,runtime_ratio
a,0,100,image,1
a,50,150,image,1.5
b,60,90,language,0.5
"""


class Ran(NamedTuple):
    """A finished run of quickstart with its default seeds."""

    folder: Path
    stdout: str
    stderr: str

    def table(self, name: str) -> pd.DataFrame:
        return pd.read_parquet(self.folder / f"{name}.parquet")

    def json(self, name: str) -> Any:
        return json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    home = tmp_path_factory.mktemp("quickstart")
    done = run_command("run", "quickstart", "--out", "out", traces=home / "library", cwd=home)
    assert sorted(path.name for path in home.iterdir()) == ["out"]
    return Ran(home / "out", done.stdout, done.stderr)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# What a run leaves behind


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
    assert quick.stderr == ""
    lines = quick.stdout.splitlines()
    assert lines[0].startswith("quickstart  How much energy does Zeus save")
    assert re.search(r"synthetic.*not measured", quick.stdout)
    for name in VARIANTS:
        assert re.search(rf"│ {name} +│", quick.stdout), name
    for workload in ("image", "language", "recommendation"):
        assert re.search(rf"│ {workload} +│", quick.stdout), workload
    assert "mean of 5 seeds, against default" in quick.stdout
    assert lines[-1] == "Results: out"
    assert max(map(len, lines)) <= 120
    versus = quick.json("summary")["variants"]["zeus"]["versus"]
    assert f"{100 * (versus['energy_j']['ratio'] - 1):+.1f} %" in quick.stdout
    assert "\x1b" not in quick.stdout


# Statistics, computed again from the tables


def by_seed(quick: Ran) -> dict[str, pd.DataFrame]:
    """Each metric by seed (rows) and variant (columns), computed again from the tables."""
    jobs = quick.table("jobs")
    keys = ["variant", "seed"]
    each = jobs.groupby([*keys, "job_id"], as_index=False).agg(
        energy_j=("energy_j", "sum"),
        time_s=("time_s", "sum"),
        cost=("cost", "sum"),
        submitted=("submit_time_s", "min"),
        started=("start_time_s", "min"),
        ended=("finish_time_s", "max"),
        reached=("reached_target", "any"),
        group=("group_id", "first"),
        recurrence=("recurrence", "first"),
    )
    last = each["recurrence"] > each.groupby([*keys, "group"])["recurrence"].transform("max") - 5
    of_all, of_last, of_reached = (
        part.groupby(keys) for part in (each, each[last], each[each["reached"]])
    )
    each["jct_s"] = each["ended"] - each["submitted"]
    each["queue_s"] = each["started"] - each["submitted"]
    series: dict[str, Any] = {
        "jobs": of_all.size(),
        "attempts": jobs.groupby(keys).size(),
        "gave_up": (~each["reached"]).groupby([each[key] for key in keys]).sum(),
        "energy_j": of_all["energy_j"].sum(),
        "time_s": of_all["time_s"].sum(),
        "cost": of_all["cost"].sum(),
        "last5_energy_j": of_last["energy_j"].mean(),
        "last5_time_s": of_last["time_s"].mean(),
        "last5_cost": of_last["cost"].mean(),
        "energy_to_accuracy_j": of_reached["energy_j"].mean(),
        "time_to_accuracy_s": of_reached["time_s"].mean(),
        "jct_s": each.groupby(keys)["jct_s"].mean(),
        "p95_jct_s": each.groupby(keys)["jct_s"].quantile(0.95),
        "preemptions": jobs.groupby(keys)["preemptions"].sum(),
        "queue_delay_s": each.groupby(keys)["queue_s"].mean(),
        "makespan_s": of_all["ended"].max() - of_all["submitted"].min(),
    }
    line = quick.table("timeline")
    lasts = -line.groupby(keys)["time_s"].diff(-1).fillna(0)
    span = line.groupby(keys)["time_s"].max() - line.groupby(keys)["time_s"].min()
    runs = [line[key] for key in keys]
    series["cluster_energy_j"] = (line["power_w"] * lasts).groupby(runs).sum()
    series["gpu_utilisation"] = (line["gpus_busy"] * lasts).groupby(runs).sum() / (3 * span)
    return {name: values.unstack("variant")[VARIANTS] for name, values in series.items()}


def test_summary_has_its_documented_form(quick: Ran) -> None:
    summary = quick.json("summary")
    assert list(summary) == ["variants", "by"]
    assert list(summary["by"]) == ["workload", "gpu_type", "replayed"]
    assert list(summary["by"]["workload"]) == ["image", "language", "recommendation"]
    assert list(summary["by"]["gpu_type"]) == ["SYN-250W"]
    parts = [summary["variants"], *(p for by in summary["by"].values() for p in by.values())]
    for part in parts:
        assert list(part) == VARIANTS
        for variant in part.values():
            assert list(variant) == ["metrics", "versus"]
            for figures in variant["metrics"].values():
                assert list(figures) == ["mean", "std", "ci95", "n"]
                assert figures["n"] == 5
                low, high = figures["ci95"]
                assert low <= figures["mean"] <= high
                assert figures["std"] >= 0
            versus = dict(variant["versus"])
            assert versus.pop("baseline") == "default"
            assert set(versus) == set(variant["metrics"])
            for figures in versus.values():
                assert list(figures) == ["ratio", "ci95", "effect", "verdict"]


def test_statistics_over_seeds(quick: Ran) -> None:
    variants = quick.json("summary")["variants"]
    again = by_seed(quick)
    assert {*again, "regret"} == set(variants["zeus"]["metrics"])
    for metric, values in again.items():
        assert values.index.tolist() == SEEDS
        for name in VARIANTS:
            figures, versus = variants[name]["metrics"][metric], variants[name]["versus"][metric]
            assert figures["mean"] == pytest.approx(values[name].mean(), rel=1e-9), metric
            scale = abs(figures["mean"]) * 1e-9
            assert figures["std"] == pytest.approx(values[name].std(), rel=1e-6, abs=scale), metric
            if (values["default"] == 0).all():
                assert versus["ratio"] is versus["ci95"] is None
                assert versus["verdict"] == "identical", metric
                continue
            ratio = (values[name] / values["default"]).mean()
            assert versus["ratio"] == pytest.approx(ratio, rel=1e-9), metric
    assert variants["default"]["versus"]["energy_j"] == {
        "ratio": 1.0, "ci95": [1.0, 1.0], "effect": None, "verdict": "identical"
    }  # fmt: skip


def test_intervals_are_those_of_the_bootstrap(quick: Ran) -> None:
    """Against all 5 ** 5 samples with replacement, rather than some of them.

    Widened for that there are few: by sqrt(5 / 4), and t of 4 degrees over the normal quantile.
    """
    widened = (5 / 4) ** 0.5 * 2.7764451 / 1.9599640
    samples = np.array(list(itertools.product(range(5), repeat=5)))
    variants = quick.json("summary")["variants"]
    again = by_seed(quick)
    for metric in ("energy_j", "time_s", "jct_s", "cluster_energy_j"):
        for name in VARIANTS[1:]:
            values = again[metric][name].to_numpy()
            ratios = values / again[metric]["default"].to_numpy()
            for seen, figures in (
                (values, variants[name]["metrics"][metric]),
                (ratios, variants[name]["versus"][metric]),
            ):
                exact = np.quantile(seen[samples].mean(axis=1), (0.025, 0.975))
                exact = seen.mean() + widened * (exact - seen.mean())
                width = exact[1] - exact[0]
                np.testing.assert_allclose(figures["ci95"], exact, rtol=0, atol=0.15 * width)


def test_regret_is_cost_less_what_the_best_would_cost(quick: Ran) -> None:
    """The best configuration's expected cost is the same for all; the oracle is near it."""
    variants = quick.json("summary")["variants"]
    best = [
        v["metrics"]["cost"]["mean"] - v["metrics"]["regret"]["mean"] for v in variants.values()
    ]
    assert best == pytest.approx([best[0]] * 4, rel=1e-9)
    assert abs(variants["oracle"]["metrics"]["regret"]["mean"]) < 0.01 * best[0]
    for name in ("default", "grid-search", "zeus"):
        assert variants[name]["metrics"]["regret"]["mean"] > 0.01 * best[0]


def test_parts_sum_to_the_whole(quick: Ran) -> None:
    summary = quick.json("summary")
    for name in VARIANTS:
        whole = summary["variants"][name]["metrics"]
        for metric in ("jobs", "attempts", "gave_up", "energy_j", "time_s", "cost", "regret"):
            for by in ("workload", "gpu_type"):
                parts = [p[name]["metrics"][metric]["mean"] for p in summary["by"][by].values()]
                assert sum(parts) == pytest.approx(whole[metric]["mean"], rel=1e-9), metric


def test_by_workload(quick: Ran) -> None:
    jobs = quick.table("jobs")
    by = quick.json("summary")["by"]["workload"]
    energy = jobs.groupby(["workload", "variant", "seed"])["energy_j"].sum()
    for workload, part in by.items():
        values = energy[workload].unstack("variant")
        for name in VARIANTS:
            figures = part[name]["metrics"]["energy_j"]
            assert figures["mean"] == pytest.approx(values[name].mean(), rel=1e-9)
            ratio = (values[name] / values["default"]).mean()
            assert part[name]["versus"]["energy_j"]["ratio"] == pytest.approx(ratio, rel=1e-9)


def test_the_timeline_accounts_for_all_energy(quick: Ran) -> None:
    """Energy of the cluster is that of the jobs and of idle GPUs, 40 W each."""
    line, jobs = quick.table("timeline"), quick.table("jobs")
    again = by_seed(quick)
    for variant, seed in itertools.product(VARIANTS, SEEDS):
        part = line[(line["variant"] == variant) & (line["seed"] == seed)]
        assert part["time_s"].is_monotonic_increasing
        assert part["time_s"].is_unique
        assert part["gpus_busy"].between(0, 3).all()
        assert (part["jobs_waiting"] >= 0).all()
        assert part["gpus_busy"].iloc[-1] == part["jobs_waiting"].iloc[-1] == 0
        assert part["power_w"].iloc[-1] == pytest.approx(120, rel=1e-12)
        own = jobs[(jobs["variant"] == variant) & (jobs["seed"] == seed)]
        held = (own["finish_time_s"] - own["start_time_s"]).sum()
        span = part["time_s"].iloc[-1] - part["time_s"].iloc[0]
        total = own["energy_j"].sum() + 40 * (3 * span - held)
        assert again["cluster_energy_j"].loc[seed, variant] == pytest.approx(total, rel=1e-9)
        used = again["gpu_utilisation"].loc[seed, variant]
        assert used == pytest.approx(held / (3 * span), rel=1e-9)


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


# Same scenario and seed, same bytes


def test_golden_digests(quick: Ran) -> None:
    profiles = {n: getattr(load(n).scenario.workload, "profiles", None) for n in shipped()}
    synthetic = [name for name, found in profiles.items() if isinstance(found, SyntheticSource)]
    assert synthetic == [name for name in GOLDEN if name != "versions"]
    manifest = quick.json("manifest")
    versions = {key: manifest["versions"][key] for key in GOLDEN["versions"]}
    assert manifest["results_digest"] == GOLDEN["quickstart"], f"made with {versions}"


@pytest.mark.parametrize(("workers", "hashes"), [("2", "0"), ("1", "12345")])
def test_same_bytes(
    quick: Ran,
    inside: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    workers: str,
    hashes: str,
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", hashes)
    done = inside("run", "quickstart", "--workers", workers, "--out", "out")
    assert done.stdout == quick.stdout
    again, first = content(tmp_path / "out"), content(quick.folder)
    for name in RESULTS:
        assert again[name] == first[name], name
    manifests = [json.loads(files["manifest.json"]) for files in (again, first)]
    assert all(manifest.pop("wall_s") > 0 for manifest in manifests)
    assert manifests[0] == manifests[1]


CLUSTER = ("run", "million-jobs", "--set", "workload.trace=some", "--set", "cluster.gpus=64")


def test_plain_python_gives_the_same_bytes_as_the_compiled_core(
    inside: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A world that a C compiler had no part in: the packages without their built modules."""
    inside("traces", "generate", "jobs", "--name", "some", "--jobs", "3000")
    runs = (("quickstart", ("run", "quickstart")), ("cluster", CLUSTER))
    for name, arguments in runs:
        inside(*arguments, "--out", f"here/{name}")
    plain = tmp_path / "plain"
    for floor in ("policies", "traces", "sim", "live", "scenarios"):
        built = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(ROOT / floor, plain / "wattkeeper" / floor, ignore=built)
    monkeypatch.setenv("PYTHONPATH", str(plain))
    where = "import wattkeeper.sim.engine.world as world; print(world.__file__)"
    loaded = subprocess.run(
        [sys.executable, "-c", where], capture_output=True, text=True, check=True
    ).stdout
    assert loaded.strip() == str(plain / "wattkeeper/sim/engine/world.py")
    for name, arguments in runs:
        inside(*arguments, "--out", f"there/{name}")
        here, there = (content(tmp_path / side / name) for side in ("here", "there"))
        for file in RESULTS:
            assert here[file] == there[file], (name, file)


def test_a_run_does_not_depend_on_the_others(quick: Ran, inside: Command, tmp_path: Path) -> None:
    """Seeds and variants that run beside it change nothing in a run."""
    inside("run", "quickstart", "--seeds", "3..3", "--set", "variants.oracle={}", "--out", "out")
    ours, theirs = pd.read_parquet(tmp_path / "out/jobs.parquet"), quick.table("jobs")
    for name in VARIANTS[:3]:
        mine = ours[ours["variant"] == name].reset_index(drop=True)
        other = theirs[(theirs["variant"] == name) & (theirs["seed"] == 3)].reset_index(drop=True)
        pd.testing.assert_frame_equal(mine, other, check_exact=True)


def digest(folder: Path) -> str:
    return str(json.loads((folder / "manifest.json").read_text())["results_digest"])


def seeds_of(folder: Path) -> tuple[list[int], list[int]]:
    manifest = json.loads((folder / "manifest.json").read_text())
    return manifest["seeds"], pd.read_parquet(folder / "jobs.parquet")["seed"].unique().tolist()


def test_seeds(quick: Ran, inside: Command, tmp_path: Path) -> None:
    for text, seeds in (("3", [1, 2, 3]), ("2..4", [2, 3, 4]), ("1", [1]), ("2..2", [2])):
        inside("run", "quickstart", "--seeds", text, "--out", text)
        assert seeds_of(tmp_path / text) == (seeds, seeds)
    digests = {digest(quick.folder), *(digest(tmp_path / x) for x in ("3", "2..4", "1", "2..2"))}
    assert len(digests) == 5
    one = json.loads((tmp_path / "1/summary.json").read_text())["variants"]["zeus"]
    assert one["metrics"]["energy_j"]["n"] == 1
    assert one["metrics"]["energy_j"]["std"] is one["metrics"]["energy_j"]["ci95"] is None
    assert one["versus"]["energy_j"]["ci95"] is None
    ours, theirs = pd.read_parquet(tmp_path / "3/jobs.parquet"), quick.table("jobs")
    theirs = theirs[theirs["seed"] <= 3].reset_index(drop=True)
    pd.testing.assert_frame_equal(ours, theirs, check_exact=True)


@pytest.mark.parametrize("text", ["0", "-1", "x", "", "3..1", "1..", "..3", "1.5", "1,2", "9" * 20])
def test_bad_seeds(text: str, tmp_path: Path) -> None:
    arguments = ["run", "quickstart", "--out", str(tmp_path / "out"), "--seeds", text]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2
    assert f"found {text!r}; allowed: N (1 to N) or A..B" in done.stderr
    assert not (tmp_path / "out").exists()


def test_bad_arguments_through_the_command(command: Command, tmp_path: Path) -> None:
    assert (
        "Invalid value for --seeds" in command("run", "quickstart", "--seeds", "0", code=2).stderr
    )
    assert "--workers" in command("run", "quickstart", "--workers", "0", code=2).stderr
    assert "Missing argument 'SCENARIO'" in command("run", code=2).stderr
    assert "quickstart, scheduler-pool" in command("run", "nope", code=2).stderr
    assert names(tmp_path) == []


# Output


def test_json_is_the_summary(inside: Command, tmp_path: Path) -> None:
    done = inside("run", "quickstart", "--seeds", "2", "--json", "--out", "deep/er/out")
    assert done.stdout == (tmp_path / "deep/er/out/summary.json").read_text(encoding="utf-8")
    assert done.stderr == ""
    assert names(tmp_path / "deep/er/out") == FILES


def test_a_scenario_of_ones_own(inside: Command, tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SMALL, encoding="utf-8")
    done = inside("run", "small.yaml", "--json")
    assert names(tmp_path / "results") == ["small"]
    summary = (tmp_path / "results/small/summary.json").read_text(encoding="utf-8")
    assert json.loads(done.stdout) == json.loads(summary)
    assert list(json.loads(summary)["variants"]) == ["default", "é"]
    assert done.stdout == summary


def test_an_output_folder_with_other_things(inside: Command, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("dear")
    done = inside("run", "quickstart", "--out", "other", code=2)
    assert re.match(r"other .*no .*wattkeeper", done.stderr)
    assert "--out" in done.stderr
    assert content(other) == {"thesis.tex": b"dear"}
    done = inside("run", "quickstart", "--out", "other/thesis.tex", code=2)
    assert "thesis.tex" in done.stderr
    assert content(other) == {"thesis.tex": b"dear"}
    assert names(tmp_path) == ["other"]


def test_a_manifest_of_something_else_is_not_replaced(inside: Command, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "manifest.json").write_text('{"name": "a web site"}')
    (site / "index.html").write_text("hello")
    before = content(site)
    done = inside("run", "quickstart", "--seeds", "1", "--out", "site", code=2)
    assert content(site) == before
    assert "site" in done.stderr


def test_what_was_added_to_older_results_is_not_lost(inside: Command, tmp_path: Path) -> None:
    inside("run", "quickstart", "--seeds", "1", "--out", "out")
    (tmp_path / "out/notes.txt").write_text("what I found")
    done = inside("run", "quickstart", "--seeds", "1", "--out", "out", code=2)
    assert "out" in done.stderr
    assert (tmp_path / "out/notes.txt").read_text() == "what I found"


def test_older_results_are_replaced(inside: Command, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    inside("run", "quickstart", "--seeds", "2", "--out", "out")
    (tmp_path / "out/.report.html.0123456789ab.new").touch()  # as a killed command leaves it
    inside("run", "quickstart", "--seeds", "1", "--out", "out")
    assert seeds_of(tmp_path / "out") == ([1], [1])
    assert names(tmp_path / "out") == FILES
    assert names(tmp_path) == ["out"]


def test_a_failing_run_keeps_older_results(inside: Command, tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SMALL, encoding="utf-8")
    inside("run", "small.yaml", "--out", "out")
    before = content(tmp_path / "out")
    inside("run", "small.yaml", "--out", "out", "--set", "variants.é.policies.tune=zeus", code=2)
    batch = "variants.é.policies.configure.batch_size=777"
    inside("run", "small.yaml", "--out", "out", "--set", batch, code=2)
    assert content(tmp_path / "out") == before
    assert names(tmp_path) == ["out", "small.yaml"]


def test_an_output_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    arguments = ("run", "quickstart", "--seeds", "1", "--out", "file/deep")
    done = run_command_any(*arguments, cwd=tmp_path, codes={2, 3})
    assert "file" in done.stderr
    assert "Traceback" not in done.stderr
    assert content(tmp_path) == {"file": b"kept"}


def run_command_any(
    *arguments: str, cwd: Path, codes: set[int]
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "wattkeeper.scenarios", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
    )
    assert done.returncode in codes, done.stdout + done.stderr
    return done


def test_results_in_the_working_directory(tmp_path: Path) -> None:
    """It is empty, so it may hold results; or it is refused before anything runs."""
    done = run_command_any(
        "run", "quickstart", "--seeds", "1", "--out", ".", cwd=tmp_path, codes={0, 2}
    )
    assert names(tmp_path) == (FILES if done.returncode == 0 else [])


# Failing and interrupted runs


def test_a_batch_size_without_profile(inside: Command, tmp_path: Path) -> None:
    text = SMALL.replace("batch_size: 64", "batch_size: 777")
    (tmp_path / "small.yaml").write_text(text, encoding="utf-8")
    done = inside("run", "small.yaml", code=2)
    assert re.match(r"small\.yaml:12:\d+: variant 'é': batch size 777 ", done.stderr)
    assert "there is 16, 32, 64, 128, 256, 512, 1024, 2048" in done.stderr
    assert done.stdout == ""
    assert names(tmp_path) == ["small.yaml"]
    same = inside("run", "small.yaml", "--workers", "2", code=2)
    assert same.stderr == done.stderr
    settings = ("policies.configure.kind=fixed", "policies.configure.batch_size=777")
    arguments = [word for setting in settings for word in ("--set", setting)]
    done = inside("run", "quickstart", *arguments, code=2)
    assert re.match(r"--set policies\.configure\.\w+=\w+: variant 'default': .*777", done.stderr)
    assert names(tmp_path) == ["small.yaml"]


def test_a_power_limit_without_profile(inside: Command, tmp_path: Path) -> None:
    limit = "policies.tune={kind: fixed-power, power_limit_w: 111}"
    done = inside("run", "quickstart", "--set", limit, code=2)
    assert "power limit 111 W" in done.stderr
    assert "there is 100, 125, 150, 175, 200, 225, 250 W" in done.stderr
    assert names(tmp_path) == []


@pytest.mark.parametrize("setting", ["cluster.idle_power_w=1e300", "seeds=[99999999999999999999]"])
def test_numbers_too_large_to_run(inside: Command, tmp_path: Path, setting: str) -> None:
    done = inside("run", "quickstart", "--set", setting, "--out", "out", code=2)
    assert setting in done.stderr
    assert names(tmp_path) == []


LONG_RUN = (sys.executable, "-m", "wattkeeper.scenarios", "run", "quickstart", "--seeds", "5000")


@contextmanager
def running(cwd: Path, workers: str, shown: bytes) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A long run in a process group of its own, on a terminal, once it shows a pattern."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*LONG_RUN, "--workers", workers, "--out", "out"],
        cwd=cwd,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env={**os.environ, "COLUMNS": "120", "TERM": "xterm"},
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    os.close(theirs)
    try:
        read_until(ours, shown)
        yield process, ours
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its workers, if they are still there
        os.close(ours)


def read_until(terminal: int, pattern: bytes | None) -> bytes:
    """What a terminal shows, up to a pattern, or to its end when no process holds it any more."""
    shown = b""
    while True:
        ready, _, _ = select.select([terminal], [], [], LIVENESS_S)
        assert ready, f"still there and silent, after {shown[-500:]!r}"
        try:
            part = os.read(terminal, 65536)
        except OSError:  # all of its processes have ended
            part = b""
        shown += part
        if not part or (pattern is not None and re.search(pattern, shown)):
            assert pattern is None or part, shown.decode(errors="replace")
            return shown


LIVENESS_S = 20.0
"""How long a process may show nothing before a test gives it up."""

STARTED = rb"0/20000"
UNDER_WAY = rb"\b[1-9]\d*/20000"


@pytest.mark.parametrize("workers", ["1", "2"])
def test_interrupted(tmp_path: Path, workers: str) -> None:
    with running(tmp_path, workers, UNDER_WAY) as (process, terminal):
        os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does: to all of them
        rest = read_until(terminal, None).decode()
        assert process.wait() == 130
    assert "interrupted" in rest
    assert "Traceback" not in rest
    assert names(tmp_path) == []


def test_interrupted_while_workers_start(tmp_path: Path) -> None:
    with running(tmp_path, "2", STARTED) as (process, terminal):
        os.killpg(process.pid, signal.SIGINT)
        rest = read_until(terminal, None).decode()
        assert process.wait() == 130
    assert "interrupted" in rest
    assert "Traceback" not in rest
    assert names(tmp_path) == []


def test_terminated_with_its_workers(tmp_path: Path) -> None:
    """A service manager or a batch system signals the command alone."""
    with running(tmp_path, "2", UNDER_WAY) as (process, terminal):
        process.terminate()
        assert process.wait() != 0
        read_until(terminal, None)
    assert names(tmp_path) == []


# Other commands


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, inner in group.commands.items():
        if isinstance(inner, click.Group):
            yield from commands(inner, (*path, name))
        else:
            yield (*path, name)


@pytest.mark.parametrize("path", list(commands(main)), ids=" ".join)
def test_help(path: tuple[str, ...]) -> None:
    short, long = (CliRunner().invoke(main, [*path, flag]) for flag in ("-h", "--help"))
    assert short.exit_code == long.exit_code == 0
    assert short.stdout == long.stdout
    assert short.stdout.startswith(f"Usage: {' '.join(('main', *path))} ")
    assert short.stderr == ""
    found: click.Command = main
    for name in path:
        assert isinstance(found, click.Group)
        found = found.commands[name]
    assert found.help
    for parameter in found.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{parameter.name} is not explained"


def test_help_of_all_through_the_command(command: Command) -> None:
    done = command("-h")
    assert all(f"\n  {name} " in done.stdout for name in main.commands)
    assert re.fullmatch(r"wattkeeper, version \d+\.\d+\.\d+\n", command("--version").stdout)


def test_scenarios(inside: Command) -> None:
    lines = inside("scenarios").stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(shipped())
    questions = json.loads(inside("scenarios", "--json").stdout)
    assert list(questions) == list(shipped())
    assert all(
        line.endswith(question) for line, question in zip(lines, questions.values(), strict=True)
    )


def test_validate_shipped(inside: Command) -> None:
    done = inside("validate", "quickstart")
    assert done.stdout.endswith("quickstart.yaml: good; 4 variants, 20 runs\n")
    done = inside("validate", "zeus-eta", code=2)
    assert re.search(r"zeus-eta\.yaml:\d+:\d+: no trace named 'zeus-nsdi23'", done.stderr)
    assert "wattkeeper traces import" in done.stderr


def test_an_unknown_trace_tells_how_to_import(inside: Command, tmp_path: Path) -> None:
    done = inside("run", "zeus-nsdi23", code=2)
    assert re.match(
        r"\S+zeus-nsdi23\.yaml:\d+:\d+: no trace named 'zeus-nsdi23': in the library \(.*\) there "
        r"is nothing yet\. Import one with `wattkeeper traces import FORMAT PATH",
        done.stderr,
    )
    assert names(tmp_path) == []


@pytest.fixture
def groups(tmp_path: Path) -> Path:
    path = tmp_path / "groups.csv"
    path.write_text(GROUPS)
    return path


def library(tmp_path: Path) -> dict[str, bytes]:
    root = tmp_path / "library"
    files = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def test_traces_through_the_command(command: Command, groups: Path, tmp_path: Path) -> None:
    assert "No traces in" in command("traces", "list").stdout
    assert json.loads(command("traces", "list", "--json").stdout) == []
    assert "3 jobs" in command("traces", "import", "zeus-groups", "groups.csv").stdout
    before = library(tmp_path)
    assert sorted(before) == ["groups/jobs.parquet", "groups/trace.json"]
    done = command("traces", "import", "zeus-groups", "groups.csv", code=2)
    assert "exists; replace it (--replace) or choose another name" in done.stderr
    assert library(tmp_path) == before
    groups.write_text(GROUPS + "b,70,95,language,1\n")
    command("traces", "import", "zeus-groups", "groups.csv", "--replace")
    command("traces", "import", "zeus-groups", "groups.csv", "--name", "other")
    assert library(tmp_path)["groups/jobs.parquet"] != before["groups/jobs.parquet"]
    done = command("traces", "generate", "profiles", "--seed", "7")
    assert done.stdout.splitlines()[-1].startswith("synthetic (profiles, synthetic): ")
    lines = command("traces", "list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["name", "groups", "other", "synthetic"]
    rows = json.loads(command("traces", "list", "--json").stdout)
    assert [(row["name"], row["kind"]) for row in rows] == [
        ("groups", "jobs"),
        ("other", "jobs"),
        ("synthetic", "profiles"),
    ]
    assert "groups" in command("traces", "describe", "groups").stdout
    assert json.loads(command("traces", "describe", "groups", "--json").stdout)
    done = command("traces", "describe", "nope", code=2)
    assert "no trace named 'nope'" in done.stderr
    assert "groups, other, synthetic" in done.stderr


def test_jobs_of_a_trace_run(inside: Command, groups: Path, tmp_path: Path) -> None:
    inside("traces", "import", "zeus-groups", "groups.csv")
    jobs = "workload={kind: trace, trace: groups, profiles: {synthetic: {}}}"
    inside("run", "quickstart", "--seeds", "1", "--set", jobs, "--out", "out")
    ran = pd.read_parquet(tmp_path / "out/jobs.parquet")
    default = ran[ran["variant"] == "default"].sort_values("submit_time_s")
    assert default["submit_time_s"].tolist() == [0.0, 50.0, 60.0]
    assert default["time_scale"].tolist() == [1.0, 1.5, 0.5]
    assert default["workload"].tolist() == ["image", "image", "language"]
    done = inside("run", "quickstart", "--set", jobs.replace("groups", "none"), code=2)
    assert "no trace named 'none'" in done.stderr
    assert "groups" in done.stderr
    wrong = "workload.profiles=groups"
    done = inside("run", "quickstart", "--set", wrong, code=2)
    assert done.stderr.startswith(f"--set {wrong}: trace 'groups' holds jobs; profiles are needed")


def test_a_truncated_trace_does_not_run(inside: Command, groups: Path, tmp_path: Path) -> None:
    inside("traces", "generate", "profiles")
    table = tmp_path / "library/synthetic/profiles.parquet"
    table.write_bytes(table.read_bytes()[:1000])
    done = inside("run", "quickstart", "--set", "workload.profiles=synthetic", code=2)
    assert "library/synthetic/profiles.parquet: is truncated or was changed" in done.stderr
    assert names(tmp_path) == ["groups.csv", "library"]
    assert "broken" in inside("traces", "list", "--json").stdout
    inside("traces", "generate", "profiles", "--replace")
    assert "good" in inside("validate", "quickstart", "--set", "workload.profiles=synthetic").stdout


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ("group,start_time\na,1\n", "groups.csv, header: ", "column end_time is missing"),
        ("", "groups.csv: ", "is empty"),
        (GROUPS.splitlines()[0], "groups.csv: ", "no rows"),
        (GROUPS.replace("50", "x"), "groups.csv, row 2: ", "start_time is 'x', must be a number"),
        (GROUPS.replace("90", "9"), "groups.csv, row 3: ", "end_time 9.0 is before start_time"),
        (GROUPS + "a,1\n", "groups.csv, row 4: ", "has 2 values, the header has 5"),
    ],
    ids=["missing column", "empty", "no rows", "no number", "ends before", "short row"],
)
def test_a_bad_csv_file(groups: Path, tmp_path: Path, text: str, where: str, words: str) -> None:
    groups.write_text(text)
    env = {"WATTKEEPER_TRACES": str(tmp_path / "library")}
    done = CliRunner().invoke(main, ["traces", "import", "zeus-groups", str(groups)], env=env)
    assert done.exit_code == 2
    assert done.stdout == ""
    line = done.stderr.splitlines()[0]
    assert line.startswith(str(groups.parent / where))
    assert words in line
    assert library(tmp_path) == {}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["import", "zeus-groups", "missing.csv"], "missing.csv: no such file"),
        (["import", "zeus-nsdi23", "missing"], "missing: "),
        (["import", "nope", "groups.csv"], "unknown trace format 'nope'; there are\n  acme"),
        (["import", "zeus-groups"], "Missing argument 'PATH...'"),
        (["import", "zeus-groups", "groups.csv", "--name", "../x"], "trace name '../x': allowed"),
        (["generate", "nope"], "No such command 'nope'"),
        (["generate", "profiles", "--name", "a b"], "trace name 'a b': allowed"),
        (["generate", "profiles", "--seed", "-1"], "--seed"),
        (["describe", "nope"], "there is nothing yet"),
        (["describe", "nope", "--eta", "2"], "--eta"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_arguments_of_traces(
    groups: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    env = {"WATTKEEPER_TRACES": str(tmp_path / "library")}
    done = CliRunner().invoke(main, ["traces", *arguments], env=env)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert words in done.stderr
    assert library(tmp_path) == {}


def test_a_missing_path_is_called_missing(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["traces", "import", "zeus-nsdi23", str(tmp_path / "none")])
    assert done.exit_code == 2
    assert re.search(r"none: (no such|does not exist|is missing)", done.stderr), done.stderr


# The shipped scenarios that replay recorded traces


def test_zeus_overlap(zeus: Command, tmp_path: Path) -> None:
    done = zeus("run", "zeus-overlap", "--set", "workload.trace=groups", "--out", "out")
    assert "groups (modelled)" in done.stdout
    assert "zeus-nsdi23 (recorded)" in done.stdout
    assert "not measured" not in done.stdout
    summary = json.loads((tmp_path / "out/summary.json").read_text())["variants"]
    baselines = {name: variant["versus"]["baseline"] for name, variant in summary.items()}
    assert baselines == {
        "default": "default",
        "zeus": "default",
        "default-simulated": "default-simulated",
        "zeus-simulated": "default-simulated",
    }
    jobs = pd.read_parquet(tmp_path / "out/jobs.parquet")
    energy = jobs.groupby("variant")["energy_j"].sum()
    for name, baseline in baselines.items():
        ratio = summary[name]["versus"]["energy_j"]["ratio"]
        assert ratio == pytest.approx(energy[name] / energy[baseline], rel=1e-9)
    recorded = jobs[jobs["variant"] == "default"]
    assert (recorded["start_time_s"] == recorded["submit_time_s"]).all()
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert {trace["trace"]: bool(trace["sha256"]) for trace in manifest["inputs"]} == {
        "zeus-nsdi23": True,
        "groups": True,
    }


def test_costs_under_different_etas_are_not_compared(zeus: Command, tmp_path: Path) -> None:
    done = zeus("run", "zeus-eta", "--out", "out")
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    parts = [summary["variants"], *summary["by"]["workload"].values()]
    none = {"ratio": None, "ci95": None, "effect": None, "verdict": None}
    assert len(parts) == 7
    for part in parts:
        assert len(part) == 6
        for name, variant in part.items():
            same = name in ("default", "eta-0.50")
            for metric in ("cost", "regret", "last5_cost"):
                compared = variant["versus"][metric] != none
                assert compared == same, f"{name} {metric}"
            assert variant["versus"]["energy_j"]["ratio"] > 0
            assert variant["versus"]["time_s"]["ratio"] > 0
    eta = next(line for line in done.stdout.splitlines() if line.startswith("│ eta-0.25 "))
    cells = [cell.strip() for cell in eta.split("│")[1:-1]]
    assert "%" in cells[1]
    assert "%" in cells[2]
    assert "%" not in cells[3], "the cost is shown against one under another eta"
