"""Traces of jobs and jobs of several GPUs, through the command where it can be seen there."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from tests.conftest import Command
from tests.support.messages import assert_states
from tests.support.traces import import_trace
from wattkeeper.policies.errors import EnvironmentLacks, InputError
from wattkeeper.policies.profile import Curve, Objective, Profile, expectations
from wattkeeper.scenarios.run.run import run
from wattkeeper.scenarios.spec.loading import load
from wattkeeper.sim.kernel.environment import SimulationEnvironment
from wattkeeper.sim.kernel.loop import Callback
from wattkeeper.traces.files.atomic import replace_file, replace_folder
from wattkeeper.traces.library import store

HEADER = "group,start_time,end_time,dataset,runtime_ratio\n"
SCENARIO = """\
name: jobs
cluster: {gpu: SYN-250W, gpus: 4, idle_power_w: 40}
workload: {kind: trace, trace: jobs, profiles: {synthetic: {}}}
variants: {zeus: {policies: {configure: {kind: zeus, overlapping: true}, tune: zeus-jit}}}
baseline: zeus
"""


@pytest.fixture
def jobs(inside: Command, tmp_path: Path) -> Command:
    """A scenario file over a trace `jobs` that is made of the given rows."""
    (tmp_path / "jobs.yaml").write_text(SCENARIO, encoding="utf-8")

    def run_rows(rows: str, *arguments: str, code: int = 0):
        (tmp_path / "groups.csv").write_text(HEADER + rows, encoding="utf-8")
        inside("traces", "import", "zeus-groups", "groups.csv", "--name", "jobs", "--replace")
        return inside("run", "jobs.yaml", "--out", "out", *arguments, code=code)

    return run_rows


def test_recorded_ends_come_at_the_recorded_time(jobs: Command, tmp_path: Path) -> None:
    """A job that ends at the very time of an arrival is over by then."""
    rows = "g,4.5,20.75,image,1\nh,15,16,image,1\ng,20.75,40,image,1\ng,40,41,image,1\n"
    jobs(rows, "--set", "occupancy=recorded")
    ran = pd.read_parquet(tmp_path / "out/jobs.parquet").sort_values("job_id")
    mine = ran[ran["group_id"] == "g"]
    assert mine["finish_time_s"].tolist() == [20.75, 40.0, 41.0]
    assert mine["start_time_s"].tolist() == [4.5, 20.75, 40.0]
    assert mine["batch_size"].nunique() == 3, "each explores, for none runs beside another"


def test_a_group_trains_one_workload(jobs: Command, tmp_path: Path) -> None:
    done = jobs("g,1,2,image,1\nh,1,2,language,1\ng,3,4,language,1\n", code=2)
    assert_states(done.stderr, "row 3: ", "'g/2'", "'language'", "group 'g'", "image")
    assert not (tmp_path / "out").exists()


def test_a_job_without_a_recorded_duration(jobs: Command) -> None:
    done = jobs("g,1,1,image,1\n", "--set", "occupancy=recorded", code=2)
    assert_states(done.stderr, "1 has no", "duration > 0 s", "occupancy: recorded", "row 1", "g/1")


def test_a_cluster_too_small_for_recorded_times(jobs: Command) -> None:
    settings = ("--set", "occupancy=recorded", "--set", "cluster.gpus=1")
    done = jobs("g,1,9,image,1\nh,2,9,image,1\n", *settings, code=2)
    assert_states(done.stderr, "jobs.yaml:", "h/1", "0 of 1 GPUs", "2 s")


def test_tune_beside_a_policy_that_sets_the_limit(inside: Command) -> None:
    done = inside(
        "validate", "quickstart", "--set", "variants.oracle.policies.tune=zeus-jit", code=2
    )
    assert_states(done.stderr, "variant 'oracle'", "tune", "configure", "power limit")


def test_time_of_several_gpus_costs_as_many() -> None:
    """Twice the GPUs in half the time at the same power each cost the same."""
    one = Curve(32, (250.0,), (100.0,), (200.0,), (5.0,))
    two = Curve(32, (250.0,), (50.0,), (400.0,), (5.0,))
    profiles = (
        Profile("cnn", "V100", gpus, 0.9, 9, 32, 250.0, {32: curve})
        for gpus, curve in ((1, one), (2, two))
    )
    costs = [next(expectations(profile, Objective(0.3))).cost for profile in profiles]
    assert costs[0] == pytest.approx(costs[1])


def test_a_failed_write_keeps_the_old_files(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    with replace_folder(folder) as fresh:
        (fresh / "kept").touch()

    def fill_up() -> None:
        with replace_folder(folder) as fresh:
            (fresh / "new").touch()
            raise OSError(28, "No space left on device")

    with pytest.raises(EnvironmentLacks):
        fill_up()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert [path.name for path in folder.iterdir()] == ["kept"]

    def half() -> None:
        with replace_file(folder / "kept") as fresh:
            fresh.write_text("half of it")
            raise OSError(28, "No space left on device")

    with pytest.raises(EnvironmentLacks, match=r"kept: No space left on device"):
        half()
    assert [path.name for path in folder.iterdir()] == ["kept"]
    assert (folder / "kept").read_text() == ""


def test_profiling_counts_against_the_bound_where_it_is_measured() -> None:
    """No attempt that stopped early cost more than its bound, but for its one epoch."""
    settings = ["variants.zeus.policies.configure.beta=1", "seeds=2"]
    done = run(load("quickstart", settings))
    for result in done.results:
        if result.variant != "zeus":
            continue
        decisions = result.tables["decisions"].to_pandas()
        chosen = decisions[decisions["point"] == "configure"].set_index(["job_id", "attempt"])
        bounds = chosen["chose"].str.extract(r"cost_bound=(.*)")[0].astype(float)
        rows = result.tables["jobs"].to_pandas().set_index(["job_id", "attempt"])
        stopped = rows[rows["early_stopped"] & (rows["epochs"] > 1)]
        assert len(stopped) > 0
        assert (stopped["cost"] <= bounds.loc[stopped.index] * (1 + 1e-12)).all()


def test_import_keeps_the_library_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATTKEEPER_TRACES", str(tmp_path / "library"))
    good = tmp_path / "groups.csv"
    good.write_text(HEADER + "g,1,2,image,1\n", encoding="utf-8")
    store.save(import_trace("zeus-groups", [good], "jobs"))
    with pytest.raises(InputError, match="--replace"):
        store.save(import_trace("zeus-groups", [good], "jobs"))
    assert isinstance(store.find("jobs").tables["jobs"], pa.Table)
    assert [path.name for path in (tmp_path / "library").iterdir()] == ["jobs"]


def test_arrivals_come_at_their_own_time() -> None:
    """`now + (time - now)` is not always `time`; what is due at 0.9 comes then."""
    env, called = SimulationEnvironment(), []
    assert 0.2 + (0.9 - 0.2) != 0.9

    def note(_: object) -> None:
        called.append((env.now, env.now))

    env.schedule_at(0.2, Callback(lambda _: env.schedule_at(0.9, Callback(note))))
    env.schedule_at(0.9, Callback(note))
    env.run()
    assert called == [(0.9, 0.9)] * 2


def test_a_part_that_the_baseline_has_no_jobs_of(inside: Command, tmp_path: Path) -> None:
    """The baseline leaves one type of GPUs alone; the other variant uses both."""
    rows = "".join(f"j{n},0,60,1\n" for n in range(4))
    (tmp_path / "jobs.csv").write_text(f"job_id,submit_time_s,duration_s,gpus\n{rows}")
    inside("traces", "import", "csv", "jobs.csv", "--name", "jobs")
    (tmp_path / "two.yaml").write_text(
        "name: two\n"
        "cluster:\n"
        "  nodes: [{gpu: a, count: 1, gpus: 4}, {gpu: b, count: 2, gpus: 1}]\n"
        "  power: {a: {idle_w: 50, busy_w: 300}, b: {idle_w: 60, busy_w: 500}}\n"
        "workload: {kind: trace, trace: jobs}\n"
        "variants: {one: {policies: {place: first-fit}}, both: {policies: {place: best-fit}}}\n"
        "baseline: one\n"
    )
    inside("run", "two.yaml")
    summary = json.loads((tmp_path / "results/two/summary.json").read_text())
    of_type = summary["by"]["gpu_type"]["b"]
    assert set(of_type) == {"both"}
    assert set(of_type["both"]["versus"]["jobs"].values()) == {None}
