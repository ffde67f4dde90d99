"""Results of MLPerf Training: what they come to, and what is refused."""

from __future__ import annotations

import csv
import json
import tarfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import mean

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import ROOT, Command
from tests.support.messages import assert_states
from tests.support.mlperf import (
    event,
    log,
    readings,
    system,
    write_results,
    write_run,
    write_system,
)
from tests.support.traces import import_trace
from wattkeeper.policies.errors import TraceError
from wattkeeper.traces.formats import find_format
from wattkeeper.traces.formats.mlperf_training.logs import LoggedRun
from wattkeeper.traces.formats.mlperf_training.power import integrate
from wattkeeper.traces.library import store
from wattkeeper.traces.profiles import load_profiles
from wattkeeper.traces.trace import Trace

GPU_OF = {
    "1xSMC-H100-SXM-80GB": ("H100-SXM5-80GB", 8),
    "8xSMC-H100-SXM-80GB": ("H100-SXM5-80GB", 64),
    "SR780aV3-8xB200_SXM_180GB": ("B200-SXM-180GB", 8),
}
Totals = dict[tuple[str, str, int], list[tuple[float, float]]]


@pytest.fixture
def data(shared: Path) -> Path:
    folder = shared / "data" / "mlperf-training"
    if not folder.is_dir():
        pytest.skip("the MLPerf results are not here")
    return folder


def published_totals(data: Path) -> Totals:
    """Time (s) and energy (J) of each run by benchmark, GPU type and number of GPUs."""
    totals: Totals = defaultdict(list)
    with (data / "runs.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            key = (row["benchmark"], *GPU_OF[row["system"]])
            totals[key].append((float(row["time_s"]), float(row["energy_j"])))
    return totals


def run_totals(trace: Trace, key: tuple[str, str, int]) -> list[tuple[float, float]]:
    """Time (s) and energy (J) of each recorded run of a profile."""
    profile = load_profiles(trace, key[1], key[2]).get(key[0])
    (curve,) = profile.curves.values()
    totals = []
    for run, epochs in enumerate(curve.epochs):
        time_s, energy_j = curve.of_run(run).epoch(curve.max_limit_w)
        totals.append((epochs * time_s, epochs * energy_j))
    return totals


def test_every_recorded_run_comes_to_what_is_published(data: Path) -> None:
    trace = import_trace("mlperf-training", [data / "raw.tar.gz"])
    published = published_totals(data)
    assert trace.tables["convergence"].num_rows == sum(map(len, published.values())) == 30
    for key, totals in published.items():
        for own, other in zip(sorted(run_totals(trace, key)), sorted(totals), strict=True):
            assert own == pytest.approx(other, rel=1e-3)
        profile = load_profiles(trace, key[1], key[2]).get(key[0])
        (curve,) = profile.curves.values()
        expected = curve.expected_epochs(profile.max_epochs)
        time_s, energy_j = curve.epoch(curve.max_limit_w)
        assert expected * time_s == pytest.approx(mean(t for t, _ in totals), rel=1e-3)
        assert expected * energy_j == pytest.approx(mean(e for _, e in totals), rel=1e-3)
        assert f"{profile.nodes} {profile.energy_of}" == f"{key[2] // 8} node"


def test_the_shipped_figures_are_those_of_the_raw_files(data: Path) -> None:
    raw = import_trace("mlperf-training", [data / "raw.tar.gz"])
    shipped = store.find("mlperf-h100-b200")
    for key in published_totals(data):
        for own, other in zip(
            sorted(run_totals(shipped, key)), sorted(run_totals(raw, key)), strict=True
        ):
            assert own == pytest.approx(other, rel=1e-6)


def test_the_shipped_profiles_are_those_of_their_table() -> None:
    table = import_trace("profiles", [ROOT / "docs/mlperf-h100-b200.csv"])
    shipped = store.find("mlperf-h100-b200")
    assert shipped.tables == table.tables
    assert (shipped.parameters, shipped.source) == (table.parameters, table.source)


@pytest.mark.slow
def test_a_replay_has_the_mean_and_the_spread_of_the_recorded_runs(
    data: Path, inside: Command, tmp_path: Path
) -> None:
    inside("traces", "import", "mlperf-training", data / "raw.tar.gz")
    published = published_totals(data)
    for key in (("bert", "H100-SXM5-80GB", 8), ("resnet", "H100-SXM5-80GB", 64)):
        workload, gpu_type, gpus = key
        scenario = tmp_path / "replay.yaml"
        scenario.write_text(
            "name: replay\nquestion: What was recorded?\n"
            f"cluster: {{gpu: {gpu_type}, gpus: {gpus}, gpus_per_node: 8, energy_of: node, "
            "idle_power_w: 0}\n"
            "workload: {kind: recurring, profiles: mlperf-training, recurrences: 50000, "
            f"workloads: [{workload}], gpus: {gpus}}}\n"
            "objective: {eta: 1}\nvariants: {default: {}}\nbaseline: default\n"
        )
        inside("run", scenario, "--out", "out", "--seeds", "1")
        jobs = pd.read_parquet(tmp_path / "out" / "jobs.parquet")
        recorded = sorted(published[key])
        assert jobs.energy_j.mean() == pytest.approx(mean(e for _, e in recorded), rel=1e-3)
        assert jobs.time_s.mean() == pytest.approx(mean(t for t, _ in recorded), rel=1e-3)
        for column, values in zip(("time_s", "energy_j"), zip(*recorded, strict=True), strict=True):
            assert jobs[column].min() == pytest.approx(min(values), rel=1e-3)
            assert jobs[column].max() == pytest.approx(max(values), rel=1e-3)
            assert jobs[column].round(3).nunique() == len(set(values))


def test_intervals_of_the_shipped_replay_contain_the_recorded_means(
    inside: Command, tmp_path: Path
) -> None:
    inside("run", "mlperf-h100-b200", "--out", "out")
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    shipped = store.find("mlperf-h100-b200")
    for variant, gpu_type in (("h100", "H100-SXM5-80GB"), ("b200", "B200-SXM-180GB")):
        totals = run_totals(shipped, ("bert", gpu_type, 8))
        metrics = summary["variants"][variant]["metrics"]
        for metric, values in zip(("time_s", "energy_j"), zip(*totals, strict=True), strict=True):
            low, high = (bound / 40 for bound in metrics[metric]["ci95"])
            assert low < mean(values) < high
            assert min(values) < low
            assert high < max(values)


def test_an_archive_is_as_its_folder(tmp_path: Path) -> None:
    root = write_results(tmp_path / "results")
    with tarfile.open(tmp_path / "all.tar.gz", "w:gz") as tape:
        tape.add(root, ".")
    whole, packed, submitter = (
        import_trace("mlperf-training", [path])
        for path in (root, tmp_path / "all.tar.gz", root / "acme")
    )
    for name, table in whole.tables.items():
        assert table.equals(packed.tables[name])
        assert table.equals(submitter.tables[name])
    assert find_format("auto", [root]).name == "mlperf-training"


def test_a_run_is_its_time_its_energy_and_its_evaluations(tmp_path: Path) -> None:
    trace = import_trace("mlperf-training", [write_results(tmp_path)])
    assert run_totals(trace, ("bert", "H100-SXM5-80GB", 8)) == [
        pytest.approx((100.0, 100_000.0)),
        pytest.approx((120.0, 132_000.0)),
    ]
    runs = trace.tables["convergence"].to_pylist()
    assert [(run["epochs"], run["seed"]) for run in runs] == [(3, "1"), (3, "2")]
    points = [p for p in trace.tables["curves"].to_pylist() if p["run"] == 0]
    assert [(point["epoch"], point["value"]) for point in points] == [(1, 0.5), (2, 0.7), (3, 0.73)]
    (workload,) = trace.tables["workloads"].to_pylist()
    assert (workload["metric"], workload["target"]) == ("masked-LM accuracy", 0.72)


def test_nodes_add_up_and_switches_do_not(tmp_path: Path) -> None:
    write_system(tmp_path, system(nodes=2))
    power = {"node_0": readings(1000.0), "node_1": readings(500.0)}
    power["sw_0"] = event("interconnect_power_est", -9999, 7000) + "\n"
    write_run(tmp_path, "result_0", log(), power)
    trace = import_trace("mlperf-training", [tmp_path])
    assert run_totals(trace, ("bert", "H100-SXM5-80GB", 16)) == [pytest.approx((100.0, 150_000.0))]
    assert any("7000 W" in note and "not include" in note for note in trace.notes)


def test_readings_in_dc_are_divided_by_their_efficiency(tmp_path: Path) -> None:
    for kind, energy_j in (("AC", 100_000.0), ("DC", 125_000.0)):
        root = tmp_path / kind
        write_system(root, system())
        stated = event("conversion_eff", -10, 0.8, measurement_type=kind)
        write_run(root, "result_0", log(), {"node_0": f"{stated}\n{readings(1000.0)}"})
        trace = import_trace("mlperf-training", [root])
        totals = run_totals(trace, ("bert", "H100-SXM5-80GB", 8))
        assert totals == [pytest.approx((100.0, energy_j))]
        assert any("conversion_eff" in note for note in trace.notes) == (kind == "DC")


def test_a_run_without_success_did_not_reach_its_target(tmp_path: Path) -> None:
    root = write_results(tmp_path)
    late = log(125.0, (0.1, 0.2, 0.3, 0.4), seed=3, status="aborted")
    write_run(root, "result_2", late, {"node_0": readings(900.0)})
    trace = import_trace("mlperf-training", [root])
    profile = load_profiles(trace, "H100-SXM5-80GB", 8).get("bert")
    assert list(profile.curves[64].epochs) == [3, 3, float("inf")]
    assert profile.max_epochs == 4
    time_s, energy_j = profile.curves[64].epoch(1.0)
    assert (3 * time_s, 3 * energy_j) == pytest.approx((110.0, 116_000.0))


@pytest.mark.parametrize(
    ("power", "reason"),
    [
        ({}, "no power file"),
        ({"node_0": readings(900.0, until_s=50.0)}, "cover less than 95 %"),
        ({"node_0": readings(900.0, every_s=70.0)}, "cover less than 95 %"),
        ({"node_0": readings(0.0)}, "all readings are 0"),
    ],
    ids=["none", "short", "gaps", "zero"],
)
def test_runs_of_unknown_energy_are_left_out_and_counted(
    tmp_path: Path, power: dict[str, str], reason: str
) -> None:
    root = write_results(tmp_path)
    write_run(root, "result_2", log(seed=3), power)
    trace = import_trace("mlperf-training", [root])
    assert trace.tables["convergence"].num_rows == 2
    ((told, count),) = trace.quality["dropped"].items()
    assert (reason in told, count) == (True, 1)


def test_a_system_without_any_power_has_times_alone(tmp_path: Path) -> None:
    write_system(tmp_path, system())
    write_run(tmp_path, "result_0", log(), {})
    trace = import_trace("mlperf-training", [tmp_path])
    assert trace.tables["profiles"]["average_power_w"].to_pylist() == [None]
    assert not load_profiles(trace, "H100-SXM5-80GB", 8).get("bert").measured


def test_a_benchmark_of_unknown_target_counts_as_its_logs_say(tmp_path: Path) -> None:
    write_system(tmp_path, system())
    for number, last in enumerate((3.1, 3.2)):
        text = log(values=(9.0, 5.0, last), seed=number)
        power = {"node_0": readings(1000.0)}
        write_run(tmp_path, f"result_{number}", text, power, benchmark="new_one")
    trace = import_trace("mlperf-training", [tmp_path])
    (workload,) = trace.tables["workloads"].to_pylist()
    assert (workload["target"], workload["higher_is_better"]) == (3.2, False)
    assert any("not known here" in note for note in trace.notes)


def break_line(path: Path, word: str, by: str) -> None:
    path.write_text(path.read_text().replace(word, by, 1))


FAULTS: dict[str, tuple[Callable[[Path], object], tuple[str, ...]]] = {
    "cut": (
        lambda root: break_line(
            root / "acme/results/box/bert/result_0.txt", '"key": "run_stop", ', '"key": "run_stop"'
        ),
        ("result_0.txt, line 12", ":::MLLOG"),
    ),
    "no end": (
        lambda root: write_run(root, "result_0", event("run_start", 0), {}),
        ("result_0.txt", "has no run_stop"),
    ),
    "no log": (
        lambda root: write_run(root, "result_0", "nothing\n", {}),
        ("result_0.txt", ":::MLLOG"),
    ),
    "backwards": (
        lambda root: write_run(root, "result_0", log(-5.0), {}),
        ("result_0.txt, line", "not later than run_start"),
    ),
    "batch": (
        lambda root: write_run(root, "result_0", log(batch_size=0), {}),
        ("result_0.txt, line 3", "global_batch_size is 0"),
    ),
    "power": (
        lambda root: write_run(root, "result_0", log(), {"node_0": readings(-3.0)}),
        ("node_0.txt, line 1", "power_reading is -3.0"),
    ),
    "efficiency": (
        lambda root: write_run(
            root, "result_0", log(), {"node_0": event("conversion_eff", 0, 0.9)}
        ),
        ("node_0.txt, line 1", "measurement_type", "AC or DC"),
    ),
    "no system": (
        lambda root: (root / "acme/systems/box.json").unlink(),
        ("acme/systems/box.json", "missing"),
    ),
    "nodes": (
        lambda root: write_system(root, system(number_of_nodes="many")),
        ("box.json", "number_of_nodes is 'many'", "whole number"),
    ),
    "too many": (lambda root: write_system(root, system(999_999)), ("box.json", "7,999,992 GPUs")),
    "gpu": (
        lambda root: write_system(root, system(model="NVIDIA")),
        ("box.json", "accelerator_model_name"),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_damaged_results_are_one_message_with_their_place(tmp_path: Path, fault: str) -> None:
    root = write_results(tmp_path)
    damage, facts = FAULTS[fault]
    damage(root)
    with pytest.raises(TraceError) as caught:
        import_trace("mlperf-training", [root])
    assert_states(str(caught.value), *facts)


def test_wrong_runs_can_be_left_out(tmp_path: Path, inside: Command) -> None:
    root = write_results(tmp_path / "results")
    path = write_run(root, "result_1", "nothing\n", {})
    refused = inside("traces", "import", "mlperf-training", root, code=2).stderr
    assert_states(refused, str(path), "--skip-bad")
    said = inside("traces", "import", "mlperf-training", root, "--skip-bad").stdout
    assert_states(said, "1 convergence", "1 malformed, skipped", str(path))


def test_two_systems_that_nothing_tells_apart_are_refused(tmp_path: Path) -> None:
    root = write_results(tmp_path)
    write_system(root, system(), "other")
    write_run(root, "result_0", log(), {}, place="acme/results/other")
    with pytest.raises(TraceError) as caught:
        import_trace("mlperf-training", [root])
    assert_states(str(caught.value), "acme/box", "acme/other", "one at a time")


times = st.lists(st.integers(-20_000, 130_000), min_size=2, max_size=30, unique=True).map(sorted)


@given(times, st.floats(0, 1e5), st.floats(0, 1e5))
def test_energy_is_the_integral_of_held_readings(
    at_ms: list[int], low_w: float, high_w: float
) -> None:
    run = LoggedRun(0.0, 100_000.0, True, 1, None, 1, (), 0)
    powers = [low_w if number % 2 else high_w for number in range(len(at_ms))]
    energy_j, share = integrate(list(zip(map(float, at_ms), powers, strict=True)), run)
    covered_s = max(0, min(at_ms[-1], 100_000) - max(at_ms[0], 0)) / 1000
    assert share <= covered_s / 100 + 1e-9
    assert min(low_w, high_w) * covered_s <= energy_j * (1 + 1e-9) + 1e-6
    assert energy_j <= max(low_w, high_w) * covered_s * (1 + 1e-9) + 1e-6
    middle = (at_ms[0] + at_ms[-1]) / 2
    before = [pair for pair in zip(map(float, at_ms), powers, strict=True) if pair[0] <= middle]
    after = [pair for pair in zip(map(float, at_ms), powers, strict=True) if pair[0] > middle]
    first = integrate([*before, (after[0][0], 0.0)], run)[0]
    assert first + integrate(after, run)[0] == pytest.approx(energy_j)
