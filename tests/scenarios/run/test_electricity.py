"""Prices and carbon intensities of a scenario: what its variants and jobs cost and emit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from tests.conftest import Command
from tests.support.charges import cost_of_steps
from tests.support.messages import assert_states
from wattkeeper.traces.electricity.forms import SeriesOptions
from wattkeeper.traces.electricity.readers import read_series

SCENARIO = """\
name: billed
cluster: {gpu: a100, gpus: 16, gpus_per_node: 8, idle_power_w: 55, busy_power_w: 330, pue: 1.5}
workload: {kind: trace, trace: some}
electricity: %s
variants:
  fifo: {}
  sjf: {policies: {select: sjf}}
baseline: fifo
"""
LOG = """\
submit_time_s,duration_s,gpus
2024-03-30 22:00:00%(zone)s,7200,8
2024-03-30 22:10:00%(zone)s,5000,16
2024-03-30 22:20:00%(zone)s,600,4
"""
PRICES = "time,price\n" + "".join(
    f"2024-03-{30 + hour // 24} {hour % 24:02}:00,{(37 * hour) % 90 - 20}\n" for hour in range(48)
)
TIMED = "{price: {file: prices.csv, unit: EUR/MWh, zone: UTC}, carbon: 400, zone: UTC}"


@pytest.fixture
def billed(inside: Command, tmp_path: Path) -> Path:
    (tmp_path / "log.csv").write_text(LOG % {"zone": "+00:00"})
    (tmp_path / "prices.csv").write_text(PRICES)
    inside("traces", "import", "csv", "log.csv", "--name", "some")
    return tmp_path / "billed.yaml"


def metrics(folder: Path) -> dict[str, dict[str, float]]:
    figures: dict[str, dict[str, float]] = {}
    for row in pq.read_table(folder / "metrics.parquet").to_pylist():
        if not row["by"]:
            figures.setdefault(row["variant"], {})[row["metric"]] = row["value"]
    return figures


def test_a_constant_price_and_intensity(inside: Command, billed: Path) -> None:
    billed.write_text(SCENARIO % "{price: 0.3, currency: EUR, carbon: 400}")
    inside("run", billed, "--out", "out")
    for row in metrics(Path("out")).values():
        kwh = row["cluster_energy_j"] / 3.6e6
        assert row["electricity_cost"] == pytest.approx(0.3 * kwh)
        assert row["carbon_g"] == pytest.approx(400 * kwh)
    jobs = pd.read_parquet("out/jobs.parquet")
    assert jobs["electricity_cost"].to_numpy() == pytest.approx(
        jobs["energy_j"].to_numpy() * 1.5 * 0.3 / 3.6e6
    )
    manifest = json.loads(Path("out/manifest.json").read_text())
    assert manifest["electricity"]["sjf"]["price"] == "0.3 EUR/kWh"


def test_a_price_over_time(inside: Command, billed: Path) -> None:
    """The facility pays the price of each hour for its power in that hour; so do jobs."""
    billed.write_text(SCENARIO % TIMED)
    inside("run", billed, "--out", "out")
    series = read_series(Path("prices.csv"), "price", SeriesOptions(unit="EUR/MWh", zone="UTC"))
    origin_s = pd.Timestamp("2024-03-30 22:00", tz="UTC").timestamp()
    manifest = json.loads(Path("out/manifest.json").read_text())
    assert manifest["electricity"]["fifo"]["origin_s"] == origin_s
    ((from_s, until_s),) = manifest["windows"]
    line, jobs = (
        pd.read_parquet("out/timeline.parquet"),
        pq.read_table("out/jobs.parquet").to_pylist(),
    )
    for variant, row in metrics(Path("out")).items():
        own = line[line["variant"] == variant]
        cost = cost_of_steps(
            own["time_s"].to_numpy(), own["power_w"].to_numpy(), series, from_s, until_s, origin_s
        )
        assert row["electricity_cost"] == pytest.approx(cost, rel=1e-9)
        for job in jobs:
            if job["variant"] != variant:
                continue
            times = np.linspace(job["start_time_s"], job["finish_time_s"], 20_001)[:-1]
            paid = series.at(times, origin_s).mean() * job["energy_j"] * 1.5 / 3.6e6
            assert job["electricity_cost"] == pytest.approx(paid, rel=2e-3, abs=1e-4)
    assert len({row["electricity_cost"] for row in metrics(Path("out")).values()}) == 2


def test_without_electricity_nothing_is_charged(inside: Command, billed: Path) -> None:
    billed.write_text((SCENARIO % "null").replace("electricity: null\n", ""))
    inside("run", billed, "--out", "out")
    assert "electricity_cost" not in next(iter(metrics(Path("out")).values()))
    assert "carbon_g" not in pq.read_schema("out/jobs.parquet").names
    inside("report", "out")
    inside("compare", "out", "out")


def test_a_variant_has_its_own_price(inside: Command, billed: Path) -> None:
    text = SCENARIO % "{price: 0.3, currency: EUR}"
    billed.write_text(text.replace("fifo: {}", "fifo: {electricity: {price: 0.6, currency: EUR}}"))
    inside("run", billed, "--out", "out")
    rows = metrics(Path("out"))
    per_kwh = {
        name: 3.6e6 * row["electricity_cost"] / row["cluster_energy_j"]
        for name, row in rows.items()
    }
    assert per_kwh == {"fifo": pytest.approx(0.6), "sjf": pytest.approx(0.3)}


def test_paths_are_relative_to_the_file_that_states_them(
    inside: Command, billed: Path, tmp_path: Path
) -> None:
    apart = tmp_path / "apart"
    apart.mkdir()
    (apart / "prices.csv").write_text(PRICES)
    inside("traces", "import", "csv", "log.csv", "--name", "other")
    (tmp_path / "library/other").rename(apart / "jobs")
    text = (SCENARIO % TIMED).replace("trace: some", "trace: ./jobs")
    (apart / "billed.yaml").write_text(text)
    (tmp_path / "prices.csv").unlink()
    inside("run", "apart/billed.yaml", "--out", "inside")
    (apart / "prices.csv").rename(tmp_path / "costs.csv")
    said = inside("validate", "apart/billed.yaml", code=2).stderr
    assert_states(said, "apart/prices.csv", "no such file")
    price = "electricity.price.file=costs.csv"
    inside("run", "apart/billed.yaml", "--set", price, "--out", "outside")
    assert metrics(Path("inside")) == metrics(Path("outside"))
    said = inside(
        "validate", "apart/billed.yaml", "--set", price, "--set", "workload.trace=./jobs", code=2
    ).stderr
    assert_states(said, "--set workload.trace=./jobs", "'./jobs'")


@pytest.mark.parametrize(
    ("electricity", "facts"),
    [
        ("{}", ("electricity", "price, carbon or both")),
        ("{price: 0.3}", ("currency", "needed")),
        ("{carbon: 400, currency: EUR}", ("currency", "no price")),
        ("{carbon: -1}", ("carbon", "-1")),
        ("{price: 0.3, currency: EUR, zone: UTC}", ("origin, zone",)),
        ("{price: {file: absent.csv}}", ("absent.csv",)),
        ("{price: {file: prices.csv}}", ("prices.csv", "unit")),
        ("{price: {file: prices.csv, unit: EUR/MWh}}", ("prices.csv", "zone")),
        ("{price: {file: prices.csv, unit: EUR/MWh, zone: UTC}, currency: USD}", ("USD", "EUR")),
        (
            "{price: {file: prices.csv, unit: EUR/MWh, zone: UTC}, origin: 2024-01-31}",
            ("origin", "2024-01-31", "datetime"),
        ),
        (
            "{price: {file: prices.csv, unit: EUR/MWh, zone: UTC}, "
            "origin: '2025-01-31T00:00:00+00:00'}",
            ("covers", "prices.csv"),
        ),
        (
            "{price: {file: prices.csv, unit: EUR/MWh, zone: UTC}, zone: Mars/Utopia}",
            ("Mars/Utopia", "time zone"),
        ),
    ],
)
def test_what_is_not_known_is_asked_for(
    inside: Command, billed: Path, electricity: str, facts: tuple[str, ...]
) -> None:
    billed.write_text(SCENARIO % electricity)
    refused = inside("run", billed, "--out", "out", code=2)
    assert_states(refused.stderr, *facts)
    assert not Path("out").exists()


def test_faults_of_all_files_are_told_at_once(inside: Command, billed: Path) -> None:
    """With the key that led to each."""
    Path("carbon.csv").write_text("time,value\n2024-01-01,300\n2024-01-02,300\n")
    billed.write_text(SCENARIO % "{price: {file: prices.csv}, carbon: {file: carbon.csv}}")
    lines = inside("run", billed, "--out", "out", code=2).stderr.splitlines()
    facts = (
        ("price", "`unit`"),
        ("price", "`zone`"),
        ("carbon", "`unit`"),
        ("carbon", "`kind`"),
        ("carbon", "`zone`"),
    )
    for line, (key, fact) in zip(lines, facts, strict=True):
        assert_states(line, billed.name, f"electricity.{key}: ", f"{key}", ".csv", fact)


def test_a_trace_without_zone_needs_one(inside: Command, billed: Path) -> None:
    Path("log.csv").write_text(LOG % {"zone": ""})
    inside("traces", "import", "csv", "log.csv", "--name", "some", "--replace")
    billed.write_text(SCENARIO % TIMED.replace("400, zone: UTC", "400, zone: Europe/Berlin"))
    inside("run", billed, "--out", "out")
    manifest = json.loads(Path("out/manifest.json").read_text())
    begin = pd.Timestamp("2024-03-30 22:00", tz="Europe/Berlin").timestamp()
    assert manifest["electricity"]["fifo"]["origin_s"] == begin


def test_a_series_needs_to_last_until_the_last_job_ends(inside: Command, tmp_path: Path) -> None:
    """What it does not cover of the time that a year is extrapolated from is no error."""
    (tmp_path / "log.csv").write_text(
        "submit_time_s,duration_s,gpus\n"
        + "".join(f"2024-03-{day:02} 00:00:00Z,7200,8\n" for day in (1, 8, 15))
    )
    inside("traces", "import", "csv", "log.csv", "--name", "some")

    def metrics(days: int) -> dict[str, float]:
        hours = pd.date_range("2024-03-01", periods=24 * days, freq="h")
        pd.DataFrame({"time": hours.astype(str), "price": 50}).to_csv("prices.csv", index=False)
        (tmp_path / "some.yaml").write_text(SCENARIO % TIMED)
        inside("run", "some.yaml", "--out", f"out{days}")
        (_, own), *_ = json.loads(Path(f"out{days}/summary.json").read_text())["variants"].items()
        return {name: value["mean"] for name, value in own["metrics"].items()}

    short, long = metrics(16), metrics(30)
    assert "year_span_s" not in short
    assert long["year_span_s"] == 21 * 86_400
    assert short["electricity_cost"] == pytest.approx(long["electricity_cost"])
