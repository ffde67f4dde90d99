"""The law of live runs: on a synthetic device they give the simulator's journal and results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.support.live_runs import REHEARSED, decisions, manifest, rows, run, scenario
from wattkeeper.scenarios.run import live_run
from wattkeeper.scenarios.run.read import read_inputs
from wattkeeper.scenarios.spec.loading import load

VARIANTS: dict[str, dict[str, Any]] = {
    "zeus": {"configure": "zeus", "tune": "zeus-jit"},
    "slices": {"configure": "zeus", "tune": {"kind": "zeus-jit", "profile": "slices"}},
    "frugal": {"configure": "frugal"},
}


@pytest.fixture(
    scope="module",
    params=["zeus", *(pytest.param(name, marks=pytest.mark.slow) for name in ("slices", "frugal"))],
)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the results of a simulated run and of a live one."""
    folder = tmp_path_factory.mktemp("both")
    variants = {"zeus": {"policies": VARIANTS[request.param]}}
    path = scenario(folder, REHEARSED | {"variants": variants})
    run(path, "--out", "sim", cwd=folder)
    run(path, "--out", "live", "--live", cwd=folder)
    return folder


def stops_early(both: Path) -> bool:
    """Whether a run reaches its bound here: one of `zeus` does, and none of `frugal`."""
    return not any("frugal" in row for row in decisions(both / "sim"))


def test_a_live_run_gives_the_simulators_journal(both: Path) -> None:
    expected, found = decisions(both / "sim"), decisions(both / "live")
    assert [row[:-1] for row in found] == [row[:-1] for row in expected]
    bounds = [(a[-1], b[-1]) for a, b in zip(found, expected, strict=True) if a[-1]]
    assert any(bound != "inf" for bound, _ in bounds)
    for mine, theirs in bounds:
        assert float(mine) == pytest.approx(float(theirs), rel=0.01)


def test_a_live_run_gives_the_simulators_energy_and_time(both: Path) -> None:
    expected, found = rows(both / "sim", "jobs"), rows(both / "live", "jobs")
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        for name in ("energy_j", "time_s", "cost", "start_time_s", "finish_time_s"):
            assert mine[name] == pytest.approx(theirs[name], rel=0.01), (name, mine, theirs)
        for name in (
            "job_id",
            "attempt",
            "batch_size",
            "power_limit_w",
            "epochs",
            "node_ids",
            "reached_target",
            "early_stopped",
            "profiled",
        ):
            assert mine[name] == theirs[name], (name, mine, theirs)
        assert mine.get("slices") == theirs.get("slices"), (mine, theirs)
        for name in ("slice_time_s", "slice_energy_j", "discarded_time_s", "discarded_energy_j"):
            # whole steps take a part of a step longer
            assert mine.get(name, 0.0) == pytest.approx(theirs.get(name, 0.0), rel=0.05)
    lines = [pq.read_table(both / name / "timeline.parquet") for name in ("live", "sim")]
    energies = [
        sum(
            a * (t - s)
            for a, s, t in zip(
                line["power_w"].to_pylist(),
                line["time_s"].to_pylist(),
                line["time_s"].to_pylist()[1:],
                strict=False,
            )
        )
        for line in lines
    ]
    assert energies[0] == pytest.approx(energies[1], rel=0.01)


def test_the_manifest_names_the_live_backend(both: Path) -> None:
    about = manifest(both / "live")
    assert about["backend"] == "live"
    assert about["live"]["devices"] == ["synthetic"]
    assert about["live"]["power_limits"] == "set"
    causes = {"reached", "bound"} if stops_early(both) else {"reached"}
    assert set(about["live"]["causes"]) == causes
    assert {row["replayed"] for row in rows(both / "live", "jobs")} == {"live"}


def test_a_replayed_log_gives_identical_decisions(both: Path) -> None:
    loaded = load(str(both / "rehearsed.yaml"), ())
    (again,) = live_run.replay(loaded, read_inputs(loaded, live=True).runs, both / "live.live")
    recorded = pq.read_table(both / "live" / "decisions.parquet")
    assert again.tables["decisions"].cast(recorded.schema).equals(recorded)
    jobs = pq.read_table(both / "live" / "jobs.parquet")
    assert again.tables["jobs"].cast(jobs.schema).equals(jobs)
