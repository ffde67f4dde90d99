"""Epochs that vary more than recorded, and that change from recurrence to recurrence."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from tests.conftest import Command
from tests.support.messages import assert_states
from wattkeeper.policies.profile import Objective, Profile, optimum
from wattkeeper.scenarios.kinds.profiles import spread
from wattkeeper.traces.generate.synthetic import generate
from wattkeeper.traces.generate.synthetic_specs import SyntheticProfiles
from wattkeeper.traces.profiles import load_profiles

GPU = "SYN-250W"
ETA = 0.5


def scenario(folder: Path, **workload: Any) -> Path:
    content = {
        "name": "changed",
        "cluster": {"gpu": GPU, "gpus": 2, "gpus_per_node": 1, "idle_power_w": 40},
        "workload": {
            "kind": "recurring",
            "profiles": {"synthetic": {}},
            "workloads": ["image", "language"],
            "recurrences": 200,
        }
        | workload,
        "objective": {"eta": ETA},
        "variants": {
            "default": {},
            "oracle": {"policies": {"configure": "oracle"}},
            "zeus": {"policies": {"configure": "zeus", "tune": "zeus-jit"}},
        },
        "baseline": "default",
    }
    path = folder / "changed.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


@pytest.fixture
def profiles() -> dict[str, Profile]:
    return dict(load_profiles(generate(SyntheticProfiles(), "synthetic"), GPU).profiles)


def modelled(folder: Path) -> list[str]:
    names: list[str] = json.loads((folder / "manifest.json").read_text())["modelled"]
    return names


@pytest.mark.parametrize("sd", [0.1, 0.5])
def test_epochs_have_the_stated_deviation(
    inside: Command, tmp_path: Path, profiles: dict[str, Profile], sd: float
) -> None:
    inside("run", scenario(tmp_path, epochs_sd=sd, recurrences=800), "--out", "out")
    jobs = pd.read_parquet(tmp_path / "out" / "jobs.parquet")
    jobs = jobs[jobs["variant"] == "default"]
    for name, rows in jobs.groupby("workload"):
        profile = profiles[str(name)]
        recorded = profile.curves[profile.default_batch_size].epochs
        reached = [epochs for epochs in recorded if epochs <= profile.max_epochs]
        logs = np.log(rows.loc[rows["reached_target"], "epochs"].to_numpy(dtype=float))
        assert logs.mean() == pytest.approx(np.mean(np.log(reached)), abs=4 * sd / math.sqrt(800))
        assert logs.std() == pytest.approx(sd, rel=0.15)
    assert any("workload.epochs_sd" in line for line in modelled(tmp_path / "out"))


def test_runs_that_miss_keep_their_share() -> None:
    drawn = spread((8.0, 12.0, math.inf, 50.0), max_epochs=20, sd=0.2)
    assert len(drawn) == 100
    assert sum(map(math.isinf, drawn)) == 50
    assert np.exp(np.mean(np.log(drawn[:50]))) == pytest.approx(math.sqrt(96), rel=0.02)
    assert all(epochs == int(epochs) for epochs in drawn[:50])
    assert spread((math.inf, 50.0), max_epochs=20, sd=0.2) == (math.inf, 50.0)


def test_epochs_drift_and_the_optimum_follows(
    inside: Command, tmp_path: Path, profiles: dict[str, Profile]
) -> None:
    drift = {"after": 40, "per_octave": -0.7, "over": 4}
    inside("run", scenario(tmp_path, drift=drift), "--out", "out")
    jobs = pd.read_parquet(tmp_path / "out" / "jobs.parquet")
    regrets: dict[str, float] = {}
    for name in ("image", "language"):
        profile = profiles[name]
        for step in range(5):
            curves = {
                size: curve._replace(
                    epochs=tuple(
                        max(
                            1.0,
                            math.floor(
                                epochs * (size / profile.default_batch_size) ** (-0.7 * step / 4)
                                + 0.5
                            ),
                        )
                        if epochs < math.inf
                        else epochs
                        for epochs in curve.epochs
                    )
                )
                for size, curve in profile.curves.items()
            }
            then = profile._replace(curves=curves)
            best = optimum(then, Objective(ETA))
            assert best is not None
            first, last = (
                (40 + step, 40 + step) if 0 < step < 4 else (1, 40) if not step else (44, 200)
            )
            rows = jobs[(jobs["workload"] == name) & jobs["recurrence"].between(first, last)]
            assert (rows.groupby(["variant", "recurrence"])["reached_target"].any()).all()
            chosen = rows[rows["variant"] == "oracle"]
            assert set(chosen["batch_size"]) == {best.batch_size}
            for variant, size in (
                ("default", profile.default_batch_size),
                ("oracle", best.batch_size),
            ):
                ran = rows[(rows["variant"] == variant) & rows["reached_target"]]
                assert set(ran["epochs"]) <= set(curves[size].epochs)
            for name_of, each in rows.groupby("variant"):
                cost = each["cost"].sum() - best.cost * each["recurrence"].nunique()
                regrets[str(name_of)] = regrets.get(str(name_of), 0.0) + cost
    metrics = pd.read_parquet(tmp_path / "out" / "metrics.parquet")
    told = metrics[(metrics["by"] == "") & (metrics["metric"] == "regret")]
    assert dict(zip(told["variant"], told["value"], strict=True)) == pytest.approx(regrets)
    assert abs(regrets["oracle"]) < 0.05 * regrets["default"]
    assert any("workload.drift" in line for line in modelled(tmp_path / "out"))
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Cost by recurrence" in page, "the regret of single recurrences is not in the tables"


def test_submissions_overlap_by_run_times(
    inside: Command, tmp_path: Path, profiles: dict[str, Profile]
) -> None:
    """Each workload has its own interval, and all submissions are in order of time."""
    changes = {"every_runs": 0.4, "recurrences": 12}
    inside("run", scenario(tmp_path, **changes), "--set", "cluster.gpus=12", "--out", "out")
    jobs = pd.read_parquet(tmp_path / "out" / "jobs.parquet")
    jobs = jobs[(jobs["variant"] == "default") & (jobs["attempt"] == 1)]
    assert len(jobs) == 24
    for name, rows in jobs.groupby("workload"):
        profile = profiles[str(name)]
        curve = profile.curves[profile.default_batch_size]
        run_s = curve.expected_epochs(profile.max_epochs) * curve.epoch(curve.max_limit_w)[0]
        submitted = rows.sort_values("recurrence")["submit_time_s"]
        assert submitted.to_list() == pytest.approx([0.4 * run_s * n for n in range(12)])


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        ({"epochs": 5, "epochs_sd": 0.1}, "either epochs or their deviation"),
        ({"epochs": 5, "drift": {"after": 3, "per_octave": 1}}, "does not drift"),
        ({"epochs_sd": 0}, "greater than 0"),
        ({"drift": {"after": 0, "per_octave": 1}}, "greater than or equal to 1"),
        ({"drift": {"per_octave": 1}}, "after"),
        ({"drift": {"after": 200, "per_octave": 1}}, "after recurrence 200, and none follows"),
        ({"every_s": 5, "every_runs": 0.5}, "either every_s or every_runs"),
    ],
)
def test_bad_changes_are_refused(
    inside: Command, tmp_path: Path, workload: dict[str, Any], message: str
) -> None:
    done = inside("validate", scenario(tmp_path, **workload), code=2)
    assert_states(done.stderr, message)


def test_live_trainings_have_their_own_epochs(inside: Command) -> None:
    done = inside(
        "run",
        "live-nightly",
        "--live",
        "--set",
        "workload.epochs_sd=0.1",
        "--set",
        "cluster.gpu=cpu",
        code=2,
    )
    assert_states(done.stderr, "a workload of this live run has a command instead")
