"""Slices: short trainings that measure power limits and batch sizes, through the command."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from tests.conftest import Command
from tests.support.messages import assert_states
from wattkeeper.policies.profile import Profile
from wattkeeper.traces.generate.synthetic import generate
from wattkeeper.traces.generate.synthetic_specs import SyntheticProfiles
from wattkeeper.traces.library import store
from wattkeeper.traces.profiles import load_profiles

GPU = "SYN-250W"
SETUP_S = 2.0


def scenario(folder: Path, **changes: Any) -> Path:
    """Recurring jobs under two policies that ask for slices."""
    content = {
        "name": "slices",
        "cluster": {"gpu": GPU, "gpus": 2, "gpus_per_node": 1, "idle_power_w": 40},
        "workload": {"kind": "recurring", "profiles": {"synthetic": {}}, "recurrences": 12},
        "variants": {
            "epoch": {"policies": {"configure": "fixed", "tune": "zeus-jit"}},
            "slices": {
                "policies": {
                    "configure": "fixed",
                    "tune": {"kind": "zeus-jit", "profile": "slices"},
                }
            },
            "frugal": {"policies": {"configure": "frugal"}},
        },
        "baseline": "epoch",
    }
    path = folder / "slices.yaml"
    path.write_text(yaml.safe_dump(content | changes), encoding="utf-8")
    return path


@pytest.fixture
def profiles() -> dict[str, Profile]:
    return dict(load_profiles(generate(SyntheticProfiles(), "synthetic"), GPU).profiles)


def read(folder: Path, name: str, variant: str) -> pd.DataFrame:
    table = pd.read_parquet(folder / f"{name}.parquet")
    return table[table["variant"] == variant].reset_index(drop=True)


def rows_of(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def share(profile: Profile, batch_size: int, limit_w: float) -> float:
    """The part of an epoch that a slice trains: 5 steps to warm up, then 20 and 2 s at least."""
    epoch_s = profile.curves[batch_size].epoch(limit_w)[0]
    steps = profile.samples_per_epoch / batch_size
    return min(1.0, (5 + max(20, 2.0 / (epoch_s / steps))) / steps)


def test_limits_are_measured_in_slices_of_the_first_epoch(
    inside: Command, tmp_path: Path, profiles: dict[str, Profile]
) -> None:
    inside("run", scenario(tmp_path), "--out", "out")
    epoch, slices = (
        read(tmp_path / "out", "jobs", name).sort_values("job_id", ignore_index=True)
        for name in ("epoch", "slices")
    )
    last = ["job_id", "power_limit_w", "batch_size"]
    recurred = epoch["recurrence"] > 1
    pd.testing.assert_frame_equal(epoch.loc[recurred, last], slices.loc[recurred, last])
    first = slices[slices["recurrence"] == 1]
    assert set(first["workload"]) == set(profiles)
    for row in rows_of(first):
        profile = profiles[row["workload"]]
        curve = profile.curves[row["batch_size"]]
        limits_w = curve.limits_w
        parts = [share(profile, row["batch_size"], limit_w) for limit_w in limits_w]
        spent_s = math.fsum(
            part * curve.epoch(limit_w)[0] for part, limit_w in zip(parts, limits_w, strict=True)
        )
        assert row["slices"] == len(limits_w)
        assert row["slice_time_s"] == pytest.approx(spent_s)
        rest_s = (row["epochs"] - sum(parts)) * curve.epoch(row["power_limit_w"])[0]
        assert row["time_s"] == pytest.approx(spent_s + rest_s), "slices are part of the training"
        assert row["discarded_time_s"] == 0
    chose = read(tmp_path / "out", "decisions", "slices")["chose"]
    assert chose.str.startswith("slice_w=").sum() == first["slices"].sum()


def test_other_batch_sizes_are_measured_after_the_target(
    inside: Command, tmp_path: Path, profiles: dict[str, Profile]
) -> None:
    inside("run", scenario(tmp_path), "--out", "out")
    jobs = read(tmp_path / "out", "jobs", "frugal")
    discarding = jobs[jobs["discarded_time_s"] > 0]
    assert {"image", "language"} <= set(discarding["workload"]), "the others are too short"
    assert discarding["reached_target"].all()
    assert (discarding["discarded_energy_j"] < 0.04 * discarding["energy_j"]).all()
    assert (jobs["discarded_time_s"] <= jobs["slice_time_s"]).all()
    assert (jobs["slice_energy_j"] <= (1 + 1e-12) * jobs["energy_j"]).all()
    decisions = read(tmp_path / "out", "decisions", "frugal")
    chose = decisions["chose"]
    size, limit_w = (
        chose.str.extract(r"^reached: slice_w=([\d.]+) slice_batch_size=(\d+)$")[column]
        for column in (1, 0)
    )
    asked = decisions[size.notna()].assign(size=size, limit_w=limit_w)
    for job, rows in asked.groupby("job_id"):
        ran = jobs[(jobs["job_id"] == job) & jobs["reached_target"]].iloc[0]
        profile = profiles[ran["workload"]]
        spent_s = 0.0
        for row in rows_of(rows):
            batch_size, at_w = int(row["size"]), float(row["limit_w"])
            epoch_s = profile.curves[batch_size].epoch(at_w)[0]
            spent_s += share(profile, batch_size, at_w) * epoch_s + SETUP_S
        assert ran["discarded_time_s"] == pytest.approx(spent_s)


@pytest.mark.parametrize("variant", ["slices", "frugal"])
def test_energy_is_the_integral_of_power(inside: Command, tmp_path: Path, variant: str) -> None:
    inside("run", scenario(tmp_path), "--out", "out")
    line = read(tmp_path / "out", "timeline", variant)
    jobs = read(tmp_path / "out", "jobs", variant)
    spans_s = np.diff(line["time_s"])
    cluster_j = float((line["power_w"].to_numpy()[:-1] * spans_s).sum())
    idle_s = 2 * spans_s.sum() - jobs["time_s"].sum()
    assert cluster_j == pytest.approx(jobs["energy_j"].sum() + 40 * idle_s, rel=1e-9)


def test_preemptions_conserve_slices(inside: Command, tmp_path: Path) -> None:
    one = {"gpu": GPU, "gpus": 1, "gpus_per_node": 1, "idle_power_w": 40}
    path = scenario(tmp_path, cluster=one, policies={"select": "las"})
    inside("run", path, "--out", "whole", "--set", "policies.select=fifo")
    inside("run", path, "--out", "cut")
    whole, cut = (read(tmp_path / folder, "jobs", "slices") for folder in ("whole", "cut"))
    whole, cut = (jobs.sort_values("job_id", ignore_index=True) for jobs in (whole, cut))
    assert cut["preemptions"].sum() > whole["preemptions"].sum() == 0
    columns = ["job_id", "epochs", "power_limit_w", "slices"]
    pd.testing.assert_frame_equal(whole[columns], cut[columns])
    for column in ("time_s", "energy_j", "slice_time_s", "slice_energy_j"):
        np.testing.assert_allclose(whole[column], cut[column], rtol=1e-9)


ONE_GPU: dict[str, Any] = {
    "cluster": {"gpu": GPU, "gpus": 1, "gpus_per_node": 1, "idle_power_w": 40},
    "workload": {
        "kind": "recurring",
        "profiles": {"synthetic": {}},
        "workloads": ["image"],
        "recurrences": 2,
        "every_s": 100_000,
    },
    "variants": {"frugal": {"policies": {"configure": "frugal"}}},
    "baseline": "frugal",
}


def second_probe_s(inside: Command, folder: Path, **changes: Any) -> tuple[Path, float]:
    """The scenario, and a time, s, within the second slice of another batch size of its first job.

    The first job runs in `whole`, alone.
    """
    path = scenario(folder, **ONE_GPU | changes)
    inside("run", path, "--out", "whole")
    decisions = read(folder / "whole", "decisions", "frugal")
    asked_s = decisions.loc[decisions["chose"].str.contains("slice_batch_size"), "time_s"]
    return path, float(asked_s.iloc[1]) + 1.0


def test_a_slice_of_another_batch_size_that_is_preempted_is_the_last_one(
    inside: Command, tmp_path: Path
) -> None:
    select = {"select": {"kind": "las", "quantum_gpu_s": 1.0}}
    path, at_s = second_probe_s(inside, tmp_path, policies=select)
    restore = "cluster.preemption.restore_s=7"
    inside("run", path, "--out", "cut", "--set", f"workload.every_s={at_s}", "--set", restore)
    whole, cut = (read(tmp_path / name, "jobs", "frugal").iloc[0] for name in ("whole", "cut"))
    second = read(tmp_path / "cut", "jobs", "frugal").iloc[1]
    assert (whole["preemptions"], cut["preemptions"]) == (0, 1)
    assert cut["reached_target"]
    assert cut["slices"] == whole["slices"] - 1
    assert 0 < cut["discarded_time_s"] < whole["discarded_time_s"]
    assert cut["time_s"] == pytest.approx(at_s), "what was trained of it counts"
    assert cut["energy_j"] < whole["energy_j"]
    assert cut["overhead_s"] == 0
    decisions = read(tmp_path / "cut", "decisions", "frugal")
    own = decisions[decisions["job_id"] == cut["job_id"]]
    assert own["chose"].str.startswith("reached:").sum() == 2
    resumed_s = own.loc[(own["point"] == "place") & (own["time_s"] > at_s), "time_s"]
    assert [cut["finish_time_s"]] == resumed_s.tolist(), "it ends as soon as it has its GPU"
    assert second["preemptions"] == 1


@pytest.mark.parametrize("checkpoint", [None, {"every_s": 0.3, "write_s": 0.1}])
def test_a_slice_of_another_batch_size_that_is_lost_is_the_last_one(
    inside: Command, tmp_path: Path, checkpoint: dict[str, float] | None
) -> None:
    cluster = ONE_GPU["cluster"] | {"losses": {"events": "once", "checkpoint": checkpoint}}
    head = "time_s,event,node\n"
    (tmp_path / "once.csv").write_text(f"{head}1e7,down,n0\n")
    inside("traces", "import", "node-events", "once.csv")
    path, at_s = second_probe_s(inside, tmp_path, cluster=cluster)
    (tmp_path / "twice.csv").write_text(f"{head}{at_s},down,n0\n{at_s + 50},up,n0\n")
    inside("traces", "import", "node-events", "twice.csv")
    inside("run", path, "--out", "cut", "--set", "cluster.losses.events=twice")
    whole, cut = (read(tmp_path / name, "jobs", "frugal") for name in ("whole", "cut"))
    lost, again, _ = rows_of(cut.sort_values("start_time_s"))
    assert not lost["reached_target"]
    assert 0 < lost["lost_time_s"] <= 1.0, "the slice before this one was reported"
    assert again["reached_target"]
    assert again["slices"] == whole["slices"].iloc[0] - 1
    assert again["time_s"] == pytest.approx(0.0, abs=1e-6)
    assert again["energy_j"] == pytest.approx(0.0, abs=1e-4)
    assert lost["time_s"] - lost["lost_time_s"] < whole["time_s"].iloc[0]


@pytest.mark.parametrize(
    ("setting", "facts"),
    [
        ("profiling=foreknown", ["frugal", "foreknown"]),
        ("variants.frugal.policies.tune=max-power", ["frugal", "tune policy, too"]),
    ],
)
def test_slices_that_cannot_be_trained_are_refused(
    inside: Command, tmp_path: Path, setting: str, facts: list[str]
) -> None:
    said = inside("validate", scenario(tmp_path), "--set", setting, code=2).stderr
    assert_states(said, *facts)


def test_profiles_without_samples_are_refused(inside: Command, tmp_path: Path) -> None:
    trace = generate(SyntheticProfiles(), "made")
    workloads = trace.tables["workloads"].drop_columns(["samples_per_epoch"])
    store.save(replace(trace, tables=dict(trace.tables) | {"workloads": workloads}))
    path = scenario(tmp_path, workload={"kind": "recurring", "profiles": "made", "recurrences": 2})
    said = inside("validate", path, code=2).stderr
    assert_states(said, "frugal", "samples_per_epoch", "image")


def test_other_batch_sizes_need_not_be_measured(inside: Command, tmp_path: Path) -> None:
    own = {"policies": {"configure": {"kind": "frugal", "measure": "own"}}}
    variants = {"frugal": {"policies": {"configure": "frugal"}}, "own": own}
    inside("run", scenario(tmp_path, variants=variants, baseline="frugal"), "--out", "out")
    every, only = (read(tmp_path / "out", "jobs", name) for name in ("frugal", "own"))
    assert every["discarded_time_s"].sum() > 0
    assert only["discarded_time_s"].sum() == 0
    assert only["slices"].sum() > 0
