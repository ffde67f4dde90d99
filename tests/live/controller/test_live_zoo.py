"""Live runs with a zoo: on synthetic devices they give the simulator's parents and results."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import run_command
from tests.sim.engine.test_zoo import save_arrivals
from tests.support.live_runs import REHEARSED, Row, decisions, manifest, rows, run, scenario
from wattkeeper.scenarios.run import live_run
from wattkeeper.scenarios.run.read import read_inputs
from wattkeeper.scenarios.spec.loading import load

QUERY_S = 2.0


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a simulated run and a live one: jobs with profiles and jobs without."""
    folder = tmp_path_factory.mktemp("zoo")
    save_arrivals(folder)
    jobs = [f'"Net(depth={at % 5})",{61 * at},{1 + at % 2},{900 - 10 * at}' for at in range(16)]
    (folder / "arrivals.csv").write_text("\n".join(["name,arrival,gpus,duration", *jobs, ""]))
    bring = ("traces", "import", "modelkeeper", "arrivals.csv", "graphs", "--name", "arrivals")
    run_command(*bring, traces=folder / "library", cwd=folder)
    workload = {
        "kind": "trace",
        "trace": "arrivals",
        "profiles": {"synthetic": {}},
        "mapping": {"by": ["gpus"], "duration": "workload"},
    }
    asks = {"configure": {"kind": "modelkeeper", "query_s": QUERY_S}, "select": "srtf"}
    path = scenario(
        folder,
        REHEARSED
        | {
            "cluster": REHEARSED["cluster"] | {"busy_power_w": 200, "gpus_per_node": 2},
            "workload": workload,
            "zoo": {"accuracy": 0.9},
            "variants": {
                "modelkeeper": {"policies": asks},
                "random-parent": {
                    "policies": {"configure": "random-parent", "retain": "lru"},
                    "zoo": {"accuracy": 0.9, "capacity_gb": 1e-5},
                },
            },
            "baseline": "modelkeeper",
        },
    )
    run(path, "--out", "sim", cwd=folder)
    run(path, "--out", "live", "--live", cwd=folder)
    return folder


def test_a_live_run_gives_the_simulators_journal(both: Path) -> None:
    expected, found = decisions(both / "sim"), decisions(both / "live")
    assert {row[0] for row in expected} == {"select", "place", "configure", "tune", "retain"}
    assert found == expected


def test_a_live_run_gives_the_simulators_parents_and_models(both: Path) -> None:
    jobs = same_rows(both, "jobs")
    modelled = manifest(both / "live")["modelled"]
    assert "power of GPUs that run jobs without a profile (busy_power_w)" in modelled
    assert modelled == manifest(both / "sim")["modelled"]
    assert {row["workload"] is None for row in jobs if row["parent_model"]} == {True, False}
    asked_s = {}
    waited_s = []
    for row in rows(both / "sim", "decisions"):
        if row["point"] == "configure":
            asked_s[row["job_id"]] = row["time_s"]
        elif row["chose"] == "preempt":
            waited_s.append(row["time_s"] - asked_s[row["job_id"]])
    assert min(waited_s) < QUERY_S < max(waited_s), "some are preempted while they query"
    models = same_rows(both, "models")
    assert sum(row["saved_gpu_s"] > 0 for row in models) > 10
    assert max(row["zoo_models"] for row in models) == 16


def same_rows(both: Path, table: str) -> list[Row]:
    """The rows of a table of both runs, after comparing them."""
    expected, found = rows(both / "sim", table), rows(both / "live", table)
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        for name, value in theirs.items():
            if name == "replayed":
                assert mine[name] == {"profile": "live", "duration": "duration"}[value]
            else:
                number = isinstance(value, float)
                wanted = pytest.approx(value, rel=1e-6, nan_ok=True) if number else value
                assert mine[name] == wanted, (name, mine, theirs)
    return expected


def test_a_replayed_log_gives_the_same_models(both: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATTKEEPER_TRACES", str(both / "library"))
    loaded = load(str(both / "rehearsed.yaml"), ())
    again = live_run.replay(loaded, read_inputs(loaded, live=True).runs, both / "live.live")
    models = [row for result in again for row in result.tables["models"].to_pylist()]
    assert models == rows(both / "live", "models")
