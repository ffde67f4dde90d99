"""Chase through the command, equal to the replay of the published rule; and deadlines."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pandas as pd
import pytest

from tests.conftest import Command
from tests.support.messages import assert_states
from wattkeeper.live.session.policy_host import config_of
from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.tune.chase import ChaseConfig

ORIGINAL_KWH = 2.77778e-7 * 3.6e6
"""The original's rounded factor from J to kWh, over the exact one."""

SCENARIO = """\
name: chase
cluster: {{gpu: A40, gpus: 1, idle_power_w: 0}}
workload:
  kind: recurring
  profiles: {profiles}
  workloads: [imagenet]
  recurrences: 1
  epochs: 16
  interpolate_w: 5
electricity:
  carbon: {{file: {series}, column: hist, time_column: timestamp, unit: g/kWh, kind: average}}
  origin: 2022-10-21T12:20:00+00:00
signals: {{carbon: {{forecast: chase-svr}}}}
policies: {{configure: {{kind: fixed, batch_size: 128}}}}
variants:
  max: {{}}
  chase: {{policies: {{tune: chase}}}}
baseline: max
"""


@pytest.fixture
def scenario(zeus_traces: Path, shared: Path, tmp_path: Path) -> Path:
    path = tmp_path / "chase.yaml"
    series = shared / "data/carbon/miso_2022-10.csv"
    path.write_text(
        SCENARIO.format(series=series, profiles=zeus_traces / "zeus-nsdi23"), encoding="utf-8"
    )
    return path


def test_chase_equals_its_reference(inside: Command, scenario: Path, shared: Path) -> None:
    inside("run", scenario, "--out", "out")
    jobs = pd.read_parquet("out/jobs.parquet").set_index("variant")
    folder = shared / "reference/chase"
    with (folder / "summary.csv").open(encoding="utf-8") as file:
        expected = {row["mode"]: row for row in csv.DictReader(file)}
    for mode in ("max", "chase"):
        row, wanted = jobs.loc[mode], expected[mode]
        assert row["time_s"] == pytest.approx(float(wanted["time_s"]), abs=0.1)
        assert row["energy_j"] == pytest.approx(float(wanted["energy_J"]), abs=0.1)
        assert row["carbon_g"] * ORIGINAL_KWH == pytest.approx(float(wanted["carbon_g"]), abs=0.001)
    log = pd.read_csv(folder / "log_chase_bs128_eta0.24_5W-pchip.csv")
    decisions = pd.read_parquet("out/decisions.parquet")
    asked = decisions[(decisions["point"] == "tune") & (decisions["variant"] == "chase")]
    limits = asked["chose"].astype(str).str.extract(r"power_limit_w=([\d.]+)")[0].ffill()
    assert limits.astype(float).tolist() == log["power_limit_W"].tolist()
    assert asked["time_s"].tolist() == pytest.approx((1800.0 * log.index).tolist())


def test_deadlines_are_set_by_slack_and_late_jobs_counted(inside: Command, scenario: Path) -> None:
    """At the highest limit a job without slack ends at its deadline, and at a lower one later."""
    for slack, late in ((0.5, False), (0.0, True)):
        inside(
            "run",
            scenario,
            "--out",
            f"out{slack}",
            "--set",
            f"workload.slack={slack}",
            "--set",
            "variants.chase.policies.tune={kind: fixed-power, power_limit_w: 200}",
            "--set",
            "signals={}",
            "--set",
            "policies={}",
        )
        jobs = pd.read_parquet(f"out{slack}/jobs.parquet").set_index("variant")
        allowed_s = jobs["time_s"].to_dict()["max"] * (1 + slack)
        assert jobs["deadline_s"].tolist() == pytest.approx([allowed_s] * 2)
        values = pd.read_parquet(f"out{slack}/metrics.parquet")
        counted = values[(values["metric"] == "late_jobs") & (values["by"] == "")]
        assert counted.set_index("variant")["value"].to_dict() == {"max": 0, "chase": late}


def test_results_say_that_limits_were_interpolated(inside: Command, scenario: Path) -> None:
    inside("run", scenario, "--out", "out", "--set", "workload.epochs=2")
    modelled = json.loads(Path("out/manifest.json").read_text())["modelled"]
    assert_states(" ".join(modelled), "interpolated", "number of epochs, 2")


def test_live_runs_refuse_profiles_that_are_not_measured(inside: Command, scenario: Path) -> None:
    said = inside("run", scenario, "--live", "--out", "out", code=2).stderr
    assert_states(said, "variant 'chase'", "tune policy 'chase'", "foresight", "a live run")


def test_sessions_refuse_decisions_over_time() -> None:
    with pytest.raises(PolicyError) as refused:
        config_of("tune", ChaseConfig(profile="measured"))
    assert_states(str(refused.value), "chase", "signal")


def test_a_series_is_read_beside_its_scenario(inside: Command, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    text = inside("scenarios", "carbon-limits").stdout
    origin = "origin: 2024-01-01T00:00:00+00:00"
    stated = f"{{file: day.csv, kind: average, repeat: day, {origin}}}"
    forecast = "carbon: {forecast: chase-svr}"
    assert forecast in text
    mine = text.replace("{file: made-up-carbon-day.csv, kind: average, repeat: day}", "400")
    mine = mine.replace(f"\n  {origin}", "")
    mine = mine.replace(forecast, f"carbon: {{series: {stated}, forecast: chase-svr}}")
    assert stated in mine
    path = tmp_path / "site/mine.yaml"
    path.write_text(mine, encoding="utf-8")
    said = inside("validate", "site/mine.yaml", code=2).stderr
    assert_states(said, "site/day.csv", "no such file")
    rows = "".join(f"2024-01-01T{hour:02}:00Z,{300 + hour}\n" for hour in range(24))
    (tmp_path / "site/day.csv").write_text(f"time,carbon (g/kWh)\n{rows}", encoding="utf-8")
    inside("validate", "site/mine.yaml")


def test_what_is_assumed_of_signals_is_told(inside: Command, tmp_path: Path) -> None:
    wave = "signals={carbon: {series: {mean: 400, amplitude: 100}, unit: g/kWh, forecast: noisy}}"
    inside("run", "carbon-limits", "--out", "out", "--set", wave)
    manifest = json.loads((tmp_path / "out/manifest.json").read_text(encoding="utf-8"))
    assert_states(
        "; ".join(manifest["modelled"]),
        "signal carbon (made up: a sine)",
        "signal carbon (noisy: assumed errors)",
    )
    page = (tmp_path / "out/report.html").read_text(encoding="utf-8")
    assert_states(page, "(noisy: assumed errors)")
    inside("run", "carbon-limits", "--out", "recorded")
    manifest = json.loads((tmp_path / "recorded/manifest.json").read_text(encoding="utf-8"))
    assert "signal" not in "; ".join(manifest["modelled"])
