"""Jobs that profiles are mapped to keep their time, and what profiles stand for is said."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.conftest import Command
from tests.support.messages import assert_states
from wattkeeper.policies.profile import Profile
from wattkeeper.scenarios.run.read import read_inputs
from wattkeeper.scenarios.run.run import run
from wattkeeper.scenarios.spec.loading import load

SCENARIO = """\
name: mapped
cluster: {gpu: SYN-250W, gpus: 4000, gpus_per_node: 8, idle_power_w: 30, busy_power_w: 250}
workload: {kind: trace, trace: jobs, profiles: {synthetic: {}}, mapping: {by: [user]}}
variants:
  default: {}
  zeus: {policies: {tune: zeus-jit}}
baseline: default
"""
SINGLE = 3000


@pytest.fixture
def path(inside: Command, tmp_path: Path) -> Path:
    """A scenario of 3,000 jobs on one GPU, and 100 on four."""
    rng = np.random.default_rng(1)
    users = rng.integers(0, 30, SINGLE + 100)
    seconds = np.round(rng.lognormal(4 + users / 6, 0.5), 1)
    rows = "".join(
        f"j{n},{n},{seconds[n]},{1 if n < SINGLE else 4},u{users[n]}\n" for n in range(len(users))
    )
    (tmp_path / "jobs.csv").write_text("job_id,submit_time_s,duration_s,gpus,user\n" + rows)
    inside("traces", "import", "csv", "jobs.csv", "--name=jobs", "--map=user=user")
    path = tmp_path / "mapped.yaml"
    path.write_text(SCENARIO)
    return path


def epochs_mean_and_variance(profile: Profile) -> tuple[float, float]:
    """Of all epochs of a job in the default configuration, failed attempts included."""
    curve = profile.curves[profile.default_batch_size]
    reached = np.array([epochs for epochs in curve.epochs if epochs <= profile.max_epochs])
    share = len(reached) / len(curve.epochs)
    failed = (1 - share) / share
    mean = reached.mean() + failed * profile.max_epochs
    return mean, reached.var() + failed / share * profile.max_epochs**2


def test_mapped_jobs_keep_their_gpu_hours(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job's time is its recorded one but for the epochs that were drawn for it.

    The expectation is over the recorded runs of its workload, failed ones and their retries
    included; so the sum over all jobs has the standard error that these epochs give it.
    """
    monkeypatch.chdir(path.parent)
    monkeypatch.setenv("WATTKEEPER_TRACES", str(path.parent / "library"))
    loaded = load(str(path))
    inputs = read_inputs(loaded).runs["default"]
    assert inputs.jobs is not None
    recorded = inputs.jobs.to_pandas().set_index("job_id")
    simulated = run(loaded).jobs
    simulated = simulated[simulated["variant"] == "default"]
    by_job = simulated.groupby("job_id")[["epochs", "time_s"]].sum().loc[recorded.index]
    known = {
        name: epochs_mean_and_variance(profile) for (name, *_), profile in inputs.profiles.items()
    }
    mapped = recorded["workload"].notna()
    assert mapped.sum() == SINGLE
    assert (by_job["time_s"] == recorded["duration_s"])[~mapped].all()
    mean, variance = (
        recorded["workload"][mapped].map(lambda name, i=i: known[name][i]) for i in (0, 1)
    )
    seconds = recorded["duration_s"][mapped]
    drawn = by_job["epochs"][mapped] / mean
    assert np.allclose(by_job["time_s"][mapped], seconds * drawn, rtol=1e-9)
    error = np.sqrt((seconds**2 * variance / mean**2).sum())
    assert error < 0.02 * seconds.sum(), "so that the next line can fail"
    assert abs(by_job["time_s"][mapped].sum() - seconds.sum()) < 4 * error


def test_what_profiles_stand_for_is_said_first(path: Path, inside: Command, tmp_path: Path) -> None:
    shown = inside("validate", "mapped.yaml").stdout.splitlines()[0]
    shares = ("Profiles stand for 96.8 % of the jobs (3,000 of 3,100)", "recorded GPU hours")
    assert_states(shown, *shares)
    head = " ".join(inside("run", "mapped.yaml").stdout.split()[:260])
    assert_states(
        head, *shares, "modelled energy of jobs (default)", "keep their recorded duration"
    )
    folder = tmp_path / "results/mapped"
    about = json.loads((folder / "manifest.json").read_text())["profiled"]
    jobs = pd.read_parquet(folder / "jobs.parquet")
    jobs = jobs[jobs["variant"] == "default"]
    replayed = jobs["replayed"] == "profile"
    assert about["energy_share"] == pytest.approx(
        jobs["energy_j"][replayed].sum() / jobs["energy_j"].sum()
    )
    assert about["simulated_gpu_s"] == pytest.approx(jobs["time_s"][replayed].sum())
    assert about["simulated_gpu_s"] == pytest.approx(about["gpu_s"], rel=0.05)
    page = (folder / "report.html").read_text()
    assert page.index("Profiles stand for 96.8 %") < page.index('class="basis"')


def test_times_of_workloads_are_taken_where_asked_for(path: Path, inside: Command) -> None:
    setting = "--set=workload.mapping.duration=workload"
    done = inside("run", path.name, setting)
    manifest = json.loads((path.parent / "results/mapped/manifest.json").read_text())
    about = manifest["profiled"]
    assert abs(about["simulated_gpu_s"] / about["gpu_s"] - 1) > 0.5
    assert_states(
        " ".join(done.stdout.split()),
        "take the profile's time, not their own",
        f"{about['gpu_s'] / 3600:,.0f}"[:3],
        "workload.mapping.duration",
    )
    done = inside("validate", path.name, "--set=workload.mapping.duration=own", code=2)
    assert_states(done.stderr, "duration: ", "'own'", "'keep' or 'workload'")
