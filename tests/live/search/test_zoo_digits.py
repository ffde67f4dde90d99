"""The scenario `zoo-digits` on a tiny search, through the command."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from tests.conftest import ROOT, Command
from tests.support.messages import assert_states
from tests.support.nvml import Driver, on_gpus
from tests.support.processes import until
from wattkeeper.live.search.training_log import FinishedTraining
from wattkeeper.policies.errors import EnvironmentLacks
from wattkeeper.scenarios.cli.main import main
from wattkeeper.sim.engine.warm_start import WarmStartModel
from wattkeeper.sim.search.architectures import KERNELS, MOST_STAGES, WIDTHS, draw_candidates
from wattkeeper.traces.files.seals import seal_json

pytest.importorskip("torch", reason="torch is not installed: pip install 'wattkeeper[live]'")
pytest.importorskip(
    "sklearn", reason="scikit-learn is not installed: pip install 'wattkeeper[digits]'"
)

MODELS = 3
TINY = (
    "run",
    "zoo-digits",
    "--seeds",
    "7..8",
    "--set",
    f"workload.models={MODELS}",
    "--set",
    "workload.training.most_epochs=2",
    "--set",
    "variants.lineage=null",
    "--set",
    "variants.modelkeeper=null",
)
SECONDS = ["time_s", "graph_s", "query_s", "transfer_s"]


def trainings(folder: Path) -> pd.DataFrame:
    """The log of a run's trainings without their seconds."""
    files = sorted(folder.with_name(f"{folder.name}.trainings").glob("*.jsonl"))
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return pd.DataFrame(rows).drop(columns=[*SECONDS, "seal"])


@pytest.fixture(scope="module")
def full_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that is not interrupted."""
    folder = tmp_path_factory.mktemp("zoo-digits") / "full_run"
    done = CliRunner().invoke(main, [*TINY, "--out", str(folder)])
    assert done.exit_code == 0, done.output
    return folder


def test_every_network_is_trained_with_and_without_a_zoo(full_run: Path) -> None:
    jobs = pd.read_parquet(full_run / "jobs.parquet")
    assert len(jobs) == 2 * 2 * MODELS
    assert jobs["energy_j"].isna().all(), "no meter measured it"
    assert jobs["power_limit_w"].isna().all()
    assert pd.read_parquet(full_run / "timeline.parquet")["power_w"].isna().all()
    assert (jobs["time_s"] > 0).all()
    assert (jobs["epochs"] == 2).all()
    manifest = json.loads((full_run / "manifest.json").read_text())
    assert manifest["backend"] == "live"
    assert manifest["modelled"] == []


def test_parents_are_trained_before_their_children(full_run: Path) -> None:
    models = pd.read_parquet(full_run / "models.parquet")
    parents = models.groupby("variant")["parent_model"].count()
    assert parents["scratch"] == 0
    assert 0 < parents["zoo"] <= 2 * (MODELS - 1)
    ended = models.set_index(["variant", "seed", "job_id"])["time_s"].to_dict()
    warm = models[models["parent_model"].notna()]
    assert warm["coverage"].between(0.01, 1).all()
    for variant, seed, parent, time_s in zip(
        *(warm[name] for name in ("variant", "seed", "parent_model", "time_s")), strict=True
    ):
        assert ended[variant, seed, parent] < time_s
    rows = trainings(full_run)
    assert (rows["work"] == rows["epochs"] * rows["parameters"]).all()
    assert rows["accuracy"].tolist() == models["accuracy"].tolist()
    jobs = pd.read_parquet(full_run / "jobs.parquet")
    assert jobs["parent_model"].equals(models["parent_model"])


@pytest.fixture(scope="module")
def metered_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run on a device that measures energy."""
    folder = tmp_path_factory.mktemp("zoo-digits") / "metered_run"
    device = {"WATTKEEPER_DEVICE": "synthetic:SYN-250W", "WATTKEEPER_STATE": str(folder.parent)}
    asked = [*TINY, "--set", "cluster.gpu=SYN-250W", "--out", str(folder)]
    done = CliRunner(env=device).invoke(main, asked)
    assert done.exit_code == 0, done.output
    return folder


def test_device_measures_every_training(full_run: Path, metered_run: Path) -> None:
    """The trainings are the same as without a meter."""
    used = ["energy_j", "energy_from", "power_limit_w", "settings"]
    theirs = trainings(full_run).drop(columns=used)
    pd.testing.assert_frame_equal(trainings(metered_run).drop(columns=used), theirs)
    assert (trainings(metered_run)["energy_from"] == "synthetic").all()
    jobs = pd.read_parquet(metered_run / "jobs.parquet")
    peak_w = jobs["energy_j"] / jobs["time_s"]  # what the device draws when it is busy
    assert peak_w.between(200, 250 * (1 + 1e-9)).all()
    assert peak_w.max() == pytest.approx(peak_w.min())
    assert jobs["energy_j"].tolist() == trainings(metered_run)["energy_j"].tolist()
    assert (jobs["power_limit_w"] == 250).all()
    assert (jobs["replayed"] == "live").all()
    assert jobs["cost"].isna().all()
    manifest = json.loads((metered_run / "manifest.json").read_text())
    assert manifest["live"]["energy"] == ["synthetic"]
    assert manifest["live"]["time"] == "of the clock"
    assert {"torch", "scikit-learn", "numba"} <= manifest["versions"].keys()
    summary = json.loads((metered_run / "summary.json").read_text())
    by = jobs.groupby(["variant", "seed"])["energy_j"].sum()
    saved = summary["saved"]["zoo"]["energy_j"]["mean"]
    assert saved == pytest.approx(np.mean(1 - by["zoo"] / by["scratch"]))
    metrics = summary["variants"]["zoo"]["metrics"]
    assert metrics["energy_j"]["mean"] == pytest.approx(by["zoo"].mean())
    assert metrics["cost"]["mean"] is None
    for folder, *said in (
        (metered_run, "Energy is that of a synthetic device", "energy: of the", "on syn-250w:"),
        (full_run, "energy is unknown", "on cpu:"),
    ):
        page = (folder / "report.html").read_text()
        assert all(words in page for words in said)


@pytest.mark.parametrize(
    ("settings", "asked", "says"),
    [
        ({}, ["--set", "cluster.gpu=H100"], "gpu: 'H100' is not on this machine; allowed: 'CPU'"),
        (
            {"WATTKEEPER_DEVICE": "synthetic:SYN-250W"},
            ["--set", "cluster.gpu=H100"],
            "allowed: 'CPU', 'SYN-250W'",
        ),
        (
            {"WATTKEEPER_DEVICE": "synthetic:SYN-250W"},
            ["--set", "cluster.gpu=SYN-250W", "--workers", "2"],
            "leave out --workers",
        ),
    ],
)
def test_missing_processors_are_refused(
    settings: dict[str, str], asked: list[str], says: str, tmp_path: Path
) -> None:
    settings = {"WATTKEEPER_DEVICE": "none", "WATTKEEPER_STATE": str(tmp_path)} | settings
    done = CliRunner(env=settings).invoke(main, [*TINY, *asked, "--out", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert says in " ".join(done.output.split())
    assert not (tmp_path / "out").exists()


@on_gpus(2)
def test_first_gpu_of_a_type_is_used(driver: Driver) -> None:
    """Where torch sees it."""
    import torch

    from wattkeeper.live.search.processor import find_processor

    driver.gpu.name = b"NVIDIA H100 80GB HBM3"
    if torch.cuda.is_available():
        assert find_processor("A100-SXM4-40GB").torch_device == "cuda:1"
        return
    with pytest.raises(EnvironmentLacks, match="torch does not see the GPU"):
        find_processor("A100-SXM4-40GB")


def test_trainings_of_another_processor_are_not_reused(metered_run: Path) -> None:
    """Those of the CPU are not reused for a measured device, nor the other way."""
    done = CliRunner().invoke(main, [*TINY, "--out", str(metered_run)])
    assert done.exit_code == 2
    assert "gpu SYN-250W; rules" in done.output


def test_first_network_is_trained_alike_in_both_variants(full_run: Path) -> None:
    """It has no parent."""
    rows = trainings(full_run).query("mutated_from.isna()").drop(columns="variant")
    assert len(rows) == 4
    assert len(rows.drop_duplicates()) == 2, "one result a seed"


def test_savings_are_computed_from_the_trainings(full_run: Path) -> None:
    summary = json.loads((full_run / "summary.json").read_text())
    saved: dict[str, Any] = summary["saved"]["zoo"]
    rows = trainings(full_run)
    by = rows.groupby(["variant", "seed"])
    work, accuracy = by["work"].sum(), by["accuracy"].mean()
    assert saved["work"]["mean"] == pytest.approx(np.mean(1 - work["zoo"] / work["scratch"]))
    points = 100 * (accuracy["zoo"] - accuracy["scratch"])
    assert saved["accuracy_points"]["mean"] == pytest.approx(points.mean())
    low, high = saved["accuracy_points"]["ci95"]
    half = 12.706204736 * points.std() / 2**0.5  # Student's t, one degree of freedom
    assert high - low == pytest.approx(2 * half)
    assert summary["variants"]["zoo"]["metrics"]["energy_j"]["mean"] is None


@pytest.mark.slow
def test_killed_run_resumes_with_the_same_results(full_run: Path, tmp_path: Path) -> None:
    """The process is killed by SIGKILL."""
    out = tmp_path / "killed"
    asked = [*TINY, "--seeds", "7..7", "--out", str(out)]
    process = subprocess.Popen([sys.executable, "-m", "wattkeeper.scenarios", *asked], cwd=tmp_path)
    until(lambda: process.poll() is not None or count(out) > MODELS)
    process.kill()
    assert process.wait() == -signal.SIGKILL, "it was still running"
    assert not out.exists()
    done = CliRunner().invoke(main, asked)
    assert done.exit_code == 0, done.output
    theirs = trainings(full_run).query("seed == 7").reset_index(drop=True)
    pd.testing.assert_frame_equal(trainings(out), theirs)
    columns = ["variant", "seed", "job_id", "parent_model", "coverage", "accuracy"]
    ours, theirs = (pd.read_parquet(each / "models.parquet")[columns] for each in (out, full_run))
    pd.testing.assert_frame_equal(ours, theirs.query("seed == 7").reset_index(drop=True))


def count(out: Path) -> int:
    files = out.with_name(f"{out.name}.trainings").glob("*.jsonl")
    return sum(len(file.read_text().splitlines()) for file in files)


def test_finished_run_is_not_trained_again(full_run: Path, inside: Command) -> None:
    before = (full_run / "jobs.parquet").read_bytes()
    inside(*TINY, "--out", full_run)
    assert (full_run / "jobs.parquet").read_bytes() == before, "the seconds too"


@pytest.mark.parametrize("name", ["scratch-7.jsonl", "zoo-7.jsonl"])
def test_changed_trainings_are_refused(
    full_run: Path, tmp_path: Path, inside: Command, name: str
) -> None:
    log = tmp_path / "out.trainings" / name
    others = sorted(full_run.with_name(f"{full_run.name}.trainings").glob("*.jsonl"))
    shutil.copytree(others[0].parent, log.parent)
    content = log.read_text(encoding="utf-8")
    first, _, rest = content.partition("\n")
    record = json.loads(first)
    changed = [
        first[:-9],
        "",
        "{}",
        "[" * 100_000,
        "\ufffd",
        first.replace('"epochs": ', '"epochs": 1'),
        json.dumps({**record, "accuracy": 0.99}),
        json.dumps({**record, "parent": "x"}),
    ]
    for line in changed:
        log.write_text(f"{line}\n{rest}", encoding="utf-8")
        done = inside(*TINY, "--out", tmp_path / "out", code=2)
        assert_states(done.stderr, f"{name}:1: damaged", "remove the line")
    for other in others:
        log.write_bytes(other.read_bytes())
        done = inside(*TINY, "--out", tmp_path / "out", code=2 if other.name != name else 0)
        if done.returncode:
            assert_states(done.stderr, name, "has a training of", "seed")


@pytest.mark.parametrize(
    ("setting", "facts"),
    [
        (
            "workload.training.patience=3",
            "scratch-7.jsonl |patience 5, most_epochs 2, gpu CPU; rules 4, |"
            "patience 3, most_epochs 2, gpu CPU; rules 4: ",
        ),
        ("zoo.capacity_gb=1", "search|capacity_gb"),
        ("variants.zoo.policies.configure=zeus", "zeus |batch size"),
        ("policies.tune=zeus-jit", "zeus-jit |power limits"),
        ("policies.retain=lru", "search|keeps all"),
    ],
)
def test_unsupported_settings_are_refused(full_run: Path, setting: str, facts: str) -> None:
    done = CliRunner().invoke(main, [*TINY, "--set", setting, "--out", str(full_run)])
    assert done.exit_code == 2, done.output
    assert_states(done.output, *facts.split("|"))


def test_each_network_is_traced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For its graph and as a child, and as the parent of others; the first also to warm up."""
    from wattkeeper.live.weight_transfer.program.tracing import trace_program

    traced = Counter[str]()

    def count(module: Any, inputs: Any, name: str) -> Any:
        traced[name] += 1
        return trace_program(module, inputs, name)

    monkeypatch.setattr("wattkeeper.live.weight_transfer.model_graph.trace_program", count)
    done = CliRunner().invoke(main, [*TINY, "--seeds", "7..7", "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    rows = trainings(tmp_path / "out").query("variant == 'zoo'")
    assert rows["parent"].notna().any()
    first, *later = rows["model"]
    assert [traced[name] for name in later] == [1] * (MODELS - 1)
    assert traced == {first: 1, "": 1, "parent": 1, "child": 1, **dict.fromkeys(later, 1)}


def test_candidates_are_distinct_mutations_of_earlier_ones() -> None:
    candidates = draw_candidates(80, np.random.default_rng(5))
    assert len({each.architecture for each in candidates}) == 80
    earlier: set[str] = set()
    for each in candidates:
        assert each.mutated_from in earlier or not earlier
        earlier.add(each.name)
        assert 1 <= len(each.architecture) <= MOST_STAGES
        for stage in each.architecture:
            assert stage.width in WIDTHS
            assert all(block.kernel in KERNELS for block in stage.blocks)
    assert any(
        block.residual
        for each in candidates
        for stage in each.architecture
        for block in stage.blocks
    )
    assert draw_candidates(80, np.random.default_rng(5)) == candidates


def test_model_of_warm_starts_is_fitted_to_trainings(tmp_path: Path) -> None:
    """Trainings that save exactly 0.6 * coverage ** 2 yield these parameters for every split."""
    folder = tmp_path / "made.trainings"
    folder.mkdir()
    same = {
        "mutated_from": None,
        "settings": "",
        "best_epoch": 1,
        "parameters": 1,
        "validation_accuracy": 1.0,
        "time_s": 1.0,
        "graph_s": 0.0,
        "query_s": 0.0,
        "transfer_s": 0.0,
    }
    for seed in (1, 2, 3, 4):
        for variant in ("scratch", "zoo"):
            rows = []
            for n in range(11):
                warm = variant == "zoo" and n > 0
                coverage = n / 10 if warm else 0.0
                work = 1000 * (5 + seed) * (10 - n // 2)
                rows.append(
                    {
                        "variant": variant,
                        "seed": seed,
                        "model": f"{n:03d}",
                        **same,
                        "parent": "000" if warm else None,
                        "coverage": coverage,
                        "epochs": 1,
                        "work": round(work * (1 - 0.6 * coverage**2)),
                        "accuracy": 0.9 + 0.01 * coverage,
                    }
                )
            records = [FinishedTraining.model_validate(row) for row in rows]
            text = "".join(seal_json(each.model_dump(mode="json")) + "\n" for each in records)
            (folder / f"{variant}-{seed}.jsonl").write_text(text, encoding="utf-8")
    script, out = ROOT / "benchmarks/calibrate_zoo.py", tmp_path / "fitted.json"
    subprocess.run([sys.executable, script, tmp_path / "made", out], check=True)
    found = WarmStartModel.model_validate_json(out.read_text())
    assert not found.placeholder
    assert found.saved.scale == pytest.approx(0.6, rel=1e-3)
    assert found.saved.exponent == 2
    assert found.accuracy.shift == pytest.approx(0.01)
    alone, threes = found.error["held_out_seeds"], found.error["held_out_threes"]
    assert [one["seeds"] for one in alone] == [[1], [2], [3], [4]]
    assert [(one["seeds"], one["fitted_to"]) for one in threes] == [
        ([1, 2, 3], [4]),
        ([4], [1, 2, 3]),
    ]
    assert all(abs(one["relative_error"]) < 1e-3 for one in (*alone, *threes))


def test_training_without_improvement_restores_the_initial_weights() -> None:
    """The initial weights are epoch 0."""
    import torch

    from wattkeeper.live.search.dataset import CHANNELS, CLASSES, load
    from wattkeeper.live.search.layers import build
    from wattkeeper.live.search.processor import find_processor
    from wattkeeper.live.search.trainer import NetworkTraining, TrainingRule

    cpu = find_processor("CPU")
    candidate = draw_candidates(1, np.random.default_rng(0))[0]
    digits = load(np.random.default_rng(0))
    torch.manual_seed(0)
    net = build(candidate.architecture, CHANNELS, CLASSES)
    rule = TrainingRule(64, 0.001, 5, 3)
    before = NetworkTraining(net, digits, rule, 0, lambda _: 1.0, cpu).finish()
    assert before.best_epoch == 3
    weights = {name: value.clone() for name, value in net.state_dict().items()}
    rule = TrainingRule(64, 10.0, 2, 9)
    after = NetworkTraining(net, digits, rule, 1, lambda _: 1.0, cpu).finish()
    assert (after.epochs, after.best_epoch) == (2, 0)
    assert after.validation_accuracy == before.validation_accuracy
    assert all(value.equal(weights[name]) for name, value in net.state_dict().items())
