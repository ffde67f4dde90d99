"""Profiles with locked clocks through the command; the profile is made up, and says so."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import Command
from tests.support.messages import assert_states
from wattkeeper.policies.errors import TraceError
from wattkeeper.traces.describe import profiles as describe
from wattkeeper.traces.library import folder, store
from wattkeeper.traces.schema import CONVERGENCE, PROFILES, WORKLOADS
from wattkeeper.traces.trace import Trace

LIMITS = ((300.0, 100.0, 280.0), (200.0, 115.0, 195.0))
"""Power limit (W), seconds an epoch and mean power (W)."""

LOCKED = ((1400, 101.0, 215.0), (1000, 125.0, 150.0))
"""Clock (MHz), seconds an epoch and mean power (W)."""

SCENARIO = """
name: clocks
workload: {kind: recurring, profiles: made-up, recurrences: 4}
cluster: {gpu: G, gpus: 1, idle_power_w: 40}
objective: {eta: 0.5}
variants:
  limits: {policies: {tune: max-power}}
  jit: {policies: {tune: zeus-jit}}
  fixed: {policies: {tune: {kind: fixed-clock, clock_mhz: 1000}}}
  oracle: {policies: {configure: oracle}}
baseline: limits
seeds: 1
"""


def row(limit_w: float | None, time_s: float, power_w: float, **other: Any) -> dict[str, Any]:
    return {
        "workload": "w",
        "gpu_type": "G",
        "gpus": 1,
        "batch_size": 32,
        "power_limit_w": limit_w,
        "time_per_epoch_s": time_s,
        "average_power_w": power_w,
        "clock_mhz": None,
    } | other


ROWS = [
    *(row(*point) for point in LIMITS),
    *(row(None, *point[1:], clock_mhz=point[0]) for point in LOCKED),
]


def made_up(rows: list[dict[str, Any]], name: str = "made-up") -> Trace:
    workload = ("w", "none", "none", "none", 1.0, True, 10, 32, None)
    convergence = ("w", 32, 1, 1.0, 6)
    tables: Mapping[str, pa.Table] = {
        "profiles": pa.Table.from_pylist(rows, PROFILES),
        "convergence": pa.Table.from_pylist(
            [dict(zip(CONVERGENCE.names, convergence, strict=False))], CONVERGENCE
        ),
        "workloads": pa.Table.from_pylist(
            [dict(zip(WORKLOADS.names, workload, strict=False))], WORKLOADS
        ),
    }
    return Trace(name, "profiles", tables, "test", "synthetic", "made up", "CC0-1.0")


@pytest.fixture
def scenario(tmp_path: Path, inside: Command) -> Path:
    store.save(made_up(ROWS))
    path = tmp_path / "clocks.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    return path


def test_a_league_tells_clocks_from_the_limit_that_they_are_locked_at(
    inside: Command, scenario: Path, tmp_path: Path
) -> None:
    league = 'league={"against": "limits", "oracle": "oracle"}'
    inside("run", scenario, "--out", "out", "--set", league, "--set", "workload.recurrences=8")
    (pair,) = json.loads((tmp_path / "out/summary.json").read_text())["league"]["pairs"]
    near = {name: about["near"] for name, about in pair["variants"].items()}
    assert near == {"limits": 0.0, "jit": 1.0, "fixed": 0.0, "oracle": 1.0}


def test_policies_choose_clocks_where_they_are_cheaper(
    inside: Command, scenario: Path, tmp_path: Path
) -> None:
    inside("run", scenario, "--out", tmp_path / "out")
    table = pd.read_parquet(tmp_path / "out/jobs.parquet")
    jobs = {str(name): rows for name, rows in table.groupby("variant")}
    assert jobs["limits"]["clock_mhz"].isna().all()
    assert (jobs["jit"]["clock_mhz"] == 1400).all()
    assert (jobs["oracle"]["clock_mhz"] == 1400).all()
    assert (jobs["fixed"]["clock_mhz"] == 1000).all()
    assert (table["power_limit_w"] == 300.0).all()
    assert jobs["fixed"]["energy_j"].tolist() == pytest.approx([6 * 125.0 * 150.0] * 4)
    later = jobs["jit"].iloc[1:]
    assert later["time_s"].tolist() == pytest.approx([606.0] * 3)
    assert later["energy_j"].tolist() == pytest.approx([606.0 * 215.0] * 3)
    decisions = pd.read_parquet(tmp_path / "out/decisions.parquet")
    chose = decisions[(decisions["variant"] == "jit") & (decisions["point"] == "tune")]["chose"]
    assert chose.tolist() == [
        "profile_w=[300.0, 200.0] profile_mhz=[1400, 1000]",
        *["power_limit_w=300.0 clock_mhz=1400"] * 4,
    ]
    manifest = json.loads((tmp_path / "out/manifest.json").read_text(encoding="utf-8"))
    assert '"origin": "synthetic"' in json.dumps(manifest)


def test_a_clock_without_a_profile_is_refused_with_its_place(
    inside: Command, scenario: Path
) -> None:
    text = SCENARIO.replace("clock_mhz: 1000", "clock_mhz: 1100")
    scenario.write_text(text, encoding="utf-8")
    done = inside("run", scenario, code=2)
    assert_states(done.stderr, "clocks.yaml:9:", "1100 MHz", "w@Gx1", "1000, 1400 MHz")


def test_profiles_without_clocks_refuse_fixed_clock_as_pipelines_alone_did(
    inside: Command, scenario: Path
) -> None:
    store.save(made_up(ROWS[:2]), replace=True)
    done = inside("run", scenario, code=2)
    assert_states(done.stderr, "clocks.yaml:9:", "would touch no job", "clock_mhz")


def test_stored_profiles_without_clocks_are_what_they_were(tmp_path: Path) -> None:
    folder.write(made_up(ROWS[:2]), tmp_path / "plain")
    table = pq.read_table(tmp_path / "plain/profiles.parquet")
    assert "clock_mhz" not in table.schema.names
    assert table.schema.metadata[b"key"] == b"workload,gpu_type,gpus,batch_size,power_limit_w"
    folder.write(made_up(ROWS, "locked"), tmp_path / "locked")
    again = folder.read(tmp_path / "locked").tables["profiles"]
    assert again["clock_mhz"].to_pylist() == [None, None, 1400, 1000]


@pytest.mark.parametrize(
    ("rows", "facts"),
    [
        ([*ROWS, ROWS[2]], ("row 5", "repeats row 3", "clock_mhz 1400")),
        ([*ROWS, row(300.0, 1.0, 1.0, clock_mhz=1400)], ("row 5", "repeats row 3", "1400")),
        ([*ROWS, row(200.0, 1.0, 1.0, clock_mhz=900)], ("row 5", "200.0", "highest", "300.0")),
        ([*ROWS, row(None, 1.0, 1.0, clock_mhz=0)], ("row 5", "clock_mhz is 0", "> 0")),
        (
            [*ROWS, row(None, 1.0, 1.0, clock_mhz=900, batch_size=64)],
            ("row 5", "clock_mhz is 900", "batch_size 64"),
        ),
    ],
)
def test_wrong_rows_are_named(rows: list[dict[str, Any]], facts: tuple[str, ...]) -> None:
    with pytest.raises(TraceError) as caught:
        made_up(rows)
    assert_states(str(caught.value), "made-up/profiles.parquet", *facts)


def test_a_row_may_state_the_highest_limit() -> None:
    rows = [*ROWS[:2], row(300.0, *LOCKED[0][1:], clock_mhz=1400)]
    assert made_up(rows).tables["profiles"].num_rows == 3


def test_the_report_on_the_trace_lists_clocks() -> None:
    report = describe.report(made_up(ROWS), None, 0.5)
    (coverage,) = report["coverage"]
    assert (coverage["clocks_mhz"], coverage["clock_points"]) == ([1000, 1400], 2)
    (potential,) = report["potential"]
    assert (potential["both"]["clock_mhz"], potential["configurations"]) == (1400, 4)
    plain = describe.report(made_up(ROWS[:2]), None, 0.5)
    assert "clock" not in json.dumps(plain)


def test_published_tables_may_have_clocks(inside: Command, tmp_path: Path) -> None:
    (tmp_path / "summary_train.csv").write_text(
        "dataset,network,batch_size,optimizer,run,target_metric,target_epoch\n"
        "squad,bert,8,adamw,1,84.0,2\n",
        encoding="utf-8",
    )
    head = "dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power,clock_mhz"
    power = tmp_path / "summary_power_v100.csv"
    rows = ["squad,bert,8,adamw,250,10,200,", "squad,bert,8,adamw,,11,150,1200"]
    power.write_text("\n".join([head, *rows, ""]), encoding="utf-8")
    files = (tmp_path / "summary_train.csv", power)
    inside("traces", "import", "zeus-nsdi23", *files, "--name", "own")
    assert store.find("own").tables["profiles"]["clock_mhz"].to_pylist() == [None, 1200]
    power.write_text("\n".join([head, "squad,bert,8,adamw,,11,150,", ""]), encoding="utf-8")
    done = inside("traces", "import", "zeus-nsdi23", *files, "--name", "other", code=2)
    assert_states(done.stderr, "summary_power_v100.csv, row 1", "power_limit is absent")


def test_live_runs_leave_clocks_out(inside: Command, scenario: Path) -> None:
    done = inside("run", scenario, "--live", "--set", "live.speed=1000", code=2)
    assert_states(done.stderr, "clocks.yaml:9:", "would touch no job")
