"""What trainings take besides training: named parameters of a scenario."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattkeeper.policies.errors import InputError
from wattkeeper.scenarios.kinds.simulation import execute
from wattkeeper.scenarios.run.read import read_inputs
from wattkeeper.scenarios.spec.loading import load
from wattkeeper.sim.cluster_results.tables import ClusterResult
from wattkeeper.traces.generate.synthetic import generate
from wattkeeper.traces.generate.synthetic_specs import SyntheticProfiles
from wattkeeper.traces.library import store
from wattkeeper.traces.tables import jobs_table
from wattkeeper.traces.trace import Trace

IDLE_W = 40.0
SMALL = """\
name: small
cluster: {gpu: SYN-250W, gpus: 2, idle_power_w: 40}
workload: {kind: recurring, profiles: {synthetic: {}}, workloads: [image], recurrences: 3}
variants: {default: {}, zeus: {policies: {configure: zeus, tune: zeus-jit}}}
baseline: default
"""
PREEMPTED = """\
name: preempted
cluster: {gpu: SYN-250W, gpus: 1, idle_power_w: 40, preemption: {restore_s: 3}}
workload: {kind: trace, trace: two, profiles: {synthetic: {}}}
policies: {select: srtf}
variants: {default: {}}
baseline: default
"""
ROW = {
    "workload": "image",
    "gpu_type": "SYN-250W",
    "gpus": 1,
    "start_s": 7.0,
    "stop_s": 2.0,
    "report_s": 0.5,
    "settle_s": None,
    "checkpoint_s": 1.5,
    "restore_s": 4.0,
}


def runs(folder: Path, text: str, **settings: Any) -> list[ClusterResult]:
    path = folder / "scenario.yaml"
    path.write_text(text)
    loaded = load(str(path), [f"{key}={value}" for key, value in settings.items()])
    inputs = read_inputs(loaded).any_run
    return [execute(spec, inputs) for spec in loaded.runs]


def attempts(result: ClusterResult) -> pd.DataFrame:
    frame: pd.DataFrame = result.tables["jobs"].to_pandas()
    return frame


def stated(**seconds: float) -> str:
    return "{" + ", ".join(f"{name}: {value}" for name, value in seconds.items()) + "}"


def test_none_at_all_changes_nothing(tmp_path: Path) -> None:
    zero = runs(tmp_path, SMALL, latencies=stated(start_s=0, stop_s=0, report_s=0, settle_s=0))
    for before, after in zip(runs(tmp_path, SMALL), zero, strict=True):
        assert before.digest == after.digest


@settings(max_examples=20)
@given(st.tuples(*[st.floats(0, 1e3)] * 4))
def test_gpus_are_held_idle_for_them(
    tmp_path_factory: pytest.TempPathFactory, seconds: tuple[float, float, float, float]
) -> None:
    start_s, stop_s, report_s, settle_s = seconds
    folder = tmp_path_factory.mktemp("small")
    latencies = stated(start_s=start_s, stop_s=stop_s, report_s=report_s, settle_s=settle_s)
    plain = runs(folder, SMALL)
    for before, after in zip(plain, runs(folder, SMALL, latencies=latencies), strict=True):
        was, rows = attempts(before), attempts(after)
        limits = 1 + 7 * rows["profiled"]  # SYN-250W has seven limits
        expected_s = start_s + stop_s + report_s * rows["epochs"] + settle_s * limits
        assert rows["overhead_s"].tolist() == pytest.approx(expected_s.tolist())
        held_s = rows["finish_time_s"] - rows["start_time_s"]
        assert held_s.tolist() == pytest.approx((rows["time_s"] + expected_s).tolist())
        same = ["job_id", "batch_size", "power_limit_w", "epochs", "time_s", "cost"]
        assert rows[same].equals(was[same])
        energy_j = was["energy_j"] + IDLE_W * expected_s
        assert rows["energy_j"].tolist() == pytest.approx(energy_j.tolist())
        idle_s = 2 * float(rows["finish_time_s"].max()) - float(held_s.sum())
        all_j = float(energy_j.sum()) + IDLE_W * idle_s
        assert after.metrics["cluster_energy_j"] == pytest.approx(all_j)


def test_a_start_that_is_preempted_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATTKEEPER_TRACES", str(tmp_path / "library"))
    table = jobs_table(
        {
            "job_id": ["long", "short"],
            "submit_time_s": [0.0, 4.0],
            "duration_s": [900.0, 10.0],
            "gpus": [1, 1],
            "workload": ["image", "recommendation"],
        }
    )
    store.save(Trace("two", "jobs", {"jobs": table}, "csv", "synthetic", "a test", "none"))
    (result,) = runs(tmp_path, PREEMPTED, latencies=stated(start_s=10, stop_s=1))
    rows = attempts(result).set_index("job_id")
    assert rows["preemptions"].to_dict() == {"long": 1, "short": 0}
    assert rows.loc["long", "overhead_s"] == pytest.approx(4 + 10 + 1)
    assert rows.loc["short", "overhead_s"] == pytest.approx(10 + 1)
    (trained,) = runs(tmp_path, PREEMPTED, latencies=stated(start_s=2, stop_s=1))
    rows = attempts(trained).set_index("job_id")
    assert rows.loc["long", "overhead_s"] == pytest.approx(2 + 3 + 1)


def test_recorded_ones_come_with_the_profiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATTKEEPER_TRACES", str(tmp_path / "library"))
    trace = generate(SyntheticProfiles(), "taken")
    recorded = dataclasses.replace(trace, parameters={"latencies": [ROW]})
    store.save(recorded)
    text = SMALL.replace("{synthetic: {}}", "taken")
    default, zeus = runs(tmp_path, text, latencies="recorded")
    for rows in (attempts(default), attempts(zeus)):
        expected_s = 7 + 2 + 0.5 * rows["epochs"]
        assert rows["overhead_s"].tolist() == pytest.approx(expected_s.tolist())
    loaded = load(str(tmp_path / "scenario.yaml"), ["latencies=recorded"])
    cluster = read_inputs(loaded).any_run.cluster
    assert (cluster.checkpoint_s, cluster.restore_s) == (1.5, 4.0)
    own = load(str(tmp_path / "scenario.yaml"), ["latencies=recorded", "cluster.preemption={}"])
    assert read_inputs(own).any_run.cluster.restore_s == 0
    with pytest.raises(InputError, match=r"'language' on 1 x SYN-250W"):
        runs(tmp_path, text.replace("[image]", "[image, language]"), latencies="recorded")


@pytest.mark.parametrize(
    ("text", "change", "message"),
    [
        (SMALL, {"latencies": "recorded"}, "no recorded latencies of 'image'"),
        (SMALL, {"latencies": "{start_s: -1}"}, "latencies"),
        (SMALL, {"latencies": "{wake_s: 1}"}, "wake_s"),
        (PREEMPTED, {"latencies": "{}", "occupancy": "recorded"}, "occupancy: simulated"),
        (PREEMPTED.replace(", profiles: {synthetic: {}}", ""), {"latencies": "{}"}, "profiles"),
    ],
)
def test_impossible_settings_are_refused(
    tmp_path: Path, text: str, change: dict[str, str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        runs(tmp_path, text, **change)
