"""Prices and carbon intensities that look as if they were in another unit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

from tests.conftest import Command
from tests.support.carbon import read_year
from tests.support.messages import assert_states
from wattkeeper.scenarios.inputs.usual_rates import USUAL, explain_unusual
from wattkeeper.traces.electricity.forms import Quantity

SHARED = Path(__file__).resolve().parents[4] / "shared"
recorded = pytest.mark.skipif(
    not (SHARED / "data/carbon").is_dir(), reason="the recorded carbon intensities are not here"
)
LOG = "submit_time_s,duration_s,gpus\n2024-03-01 00:00+00:00,600,1\n2024-03-01 00:10+00:00,600,1\n"
SCENARIO = """\
name: rated
cluster: {gpu: a100, gpus: 8, idle_power_w: 55, busy_power_w: 330}
workload: {kind: trace, trace: some}
electricity: %s
variants: {fifo: {}}
baseline: fifo
"""
NODES = "nodes: [{gpu: a100, count: 1, gpus: 8}]\nelectricity: %s\n"


@pytest.mark.parametrize(
    ("key", "values", "facts"),
    [
        ("price", [20], ("price is 20 ", "0.01 to 2", "cents, it would be 0.2", "0.02")),
        ("price", [85], ("cents, it would be 0.85", "MWh, it would be 0.085")),
        ("price", [-20], ("price is 20 ",)),
        ("price", [0.00021], ("price is 0.00021 ", "if not for a MWh, it would be 0.21")),
        ("price", [1e9], ("which one?",)),
        ("price", [0.0001, -0.0003], ("at most 0.0003",)),
        ("price", [30, 50, -90], ("in the middle 50", "0.05")),
        ("carbon", [0.35], ("carbon is 0.35 ", "1 to 2000", "kg, it would be 350")),
        ("carbon", [350_000], ("MWh, it would be 350",)),
        ("carbon", [0.1, 0.9], ("in the middle 0.5", "kg, it would be 500")),
        ("carbon", [0, 0, 0.3, 0.5, 1.05], ("in the middle 0.5 ", "kg, it would be 500")),
        ("carbon", [0.9] * 99 + [40.0], ("in the middle 0.9 ",)),
        ("carbon", [0, 0, 0, 350_000, 350_000], ("in the middle 350000 ", "MWh, it would be 350")),
    ],
)
def test_what_is_not_usual_is_asked_back(
    key: Quantity, values: list[float], facts: tuple[str, ...]
) -> None:
    said = explain_unusual(key, np.array(values, dtype=float), "EUR/kWh")
    assert_states(said, *facts, "`unusual: true`")


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("price", [0.0]),
        ("price", [0.2]),
        ("price", [0.01]),
        ("price", [2]),
        ("price", [-0.05]),
        ("price", [0.05, -0.5, 0.0001]),
        ("price", [0.03] * 99 + [9.0]),  # hours of scarcity
        ("carbon", [0.0]),
        ("carbon", [1.0]),
        ("carbon", [2000]),
        ("carbon", [0.2, 30]),
        ("carbon", [0.0, 0.0]),
        ("carbon", [0.0] * 9 + [24.0]),
        ("carbon", [0.4, 1.0, 3.0]),
        ("value", [1e9]),
    ],
)
def test_what_is_usual_is_not(key: Quantity, values: list[float]) -> None:
    assert not explain_unusual(key, np.array(values, dtype=float), "EUR/kWh")


@recorded
@pytest.mark.parametrize("country", ["de", "nl"])
def test_recorded_intensities_are_usual_in_their_unit_alone(country: str) -> None:
    values = read_year(SHARED, country)
    assert not explain_unusual("carbon", values, "g/kWh")
    assert explain_unusual("carbon", values / 1000, "g/kWh")
    assert explain_unusual("carbon", values * 1000, "g/kWh")


@pytest.fixture
def site(inside: Command, tmp_path: Path) -> Path:
    (tmp_path / "log.csv").write_text(LOG)
    inside("traces", "import", "csv", "log.csv", "--name", "some")
    rows = [f"2024-03-01T{hour:02}:00Z,{40 + hour}" for hour in range(24)]
    (tmp_path / "prices.csv").write_text("\n".join(["time,price", *rows, ""]))
    return tmp_path


FILE = "{file: prices.csv, unit: EUR/kWh}"


@pytest.mark.parametrize(
    ("rates", "facts"),
    [
        ("{price: 20, currency: EUR}", ("electricity.price: price is 20 EUR/kWh", "cents")),
        ("{carbon: 0.35}", ("electricity.carbon: carbon is 0.35 g/kWh", "kg")),
        (f"{{price: {FILE}}}", ("electricity.price: price is in the middle 51.5 EUR/kWh", "MWh")),
        ("{price: 20, currency: EUR, carbon: 0.35}", ("electricity.price", "electricity.carbon")),
    ],
)
def test_scenarios_and_nodes_are_asked_back(
    inside: Command, site: Path, rates: str, facts: tuple[str, ...]
) -> None:
    """With exit code 2 and before anything is written, until it is said that they are meant."""
    (site / "rated.yaml").write_text(SCENARIO % rates)
    said = inside("run", "rated.yaml", "--out", "out", code=2).stderr
    assert_states(said, "rated.yaml:4:", *facts)
    assert not (site / "out").exists()
    (site / "nodes.yaml").write_text(NODES % rates)
    study = ("study", "csv", "log.csv", "--nodes", "nodes.yaml", "--out", "study", "--workers", "1")
    assert_states(inside(*study, code=2).stderr, "nodes.yaml:2:", *facts)
    assert not (site / "study").exists()
    (site / "rated.yaml").write_text(SCENARIO % rates.replace("{", "{unusual: true, ", 1))
    inside("validate", "rated.yaml")


def test_options_of_a_study_are_asked_back(inside: Command, site: Path) -> None:
    (site / "nodes.yaml").write_text((NODES % "x").partition("electricity")[0])
    study = ("study", "csv", "log.csv", "--nodes", "nodes.yaml", "--out", "study", "--workers", "1")
    said = inside(*study, "--price", "20", "--currency", "EUR", "--carbon", "0.35", code=2).stderr
    assert_states(
        said,
        "--price: price is 20 EUR/kWh",
        "--carbon: carbon is 0.35 g/kWh",
        "file of nodes: `electricity: {carbon: ..., unusual: true}`",
    )
    assert not (site / "study").exists()
    (site / "nodes.yaml").write_text(NODES % "{price: 20, currency: JPY, unusual: true}")
    inside(*study)
    written = yaml.safe_load((site / "study/scenario.yaml").read_text(encoding="utf-8"))
    assert written["electricity"] == {"price": 20, "currency": "JPY", "unusual": True}


def test_files_of_signals_are_asked_back(inside: Command, site: Path) -> None:
    """Those that policies read instead of `electricity`."""
    (site / "carbon.csv").write_text((site / "prices.csv").read_text().replace("price", "value"))
    file = "{file: carbon.csv, unit: t/MWh, kind: average}"
    signal = f"signals: {{carbon: {{series: {file}, forecast: history}}}}\n"
    policy = "{policies: {select: {kind: carbon-aware, estimates: perfect}}}"
    text = (SCENARIO % "{carbon: 300}").replace("fifo: {}", f"fifo: {policy}")
    text = text.replace("some}", "some, slack: 1}")
    (site / "rated.yaml").write_text(text + signal)
    said = inside("validate", "rated.yaml", code=2).stderr
    assert_states(said, "carbon is in the middle 51500 g/kWh", "MWh, it would be 51.5")
    meant = signal.replace("forecast", "unusual: true, forecast")
    (site / "rated.yaml").write_text(text + meant)
    inside("validate", "rated.yaml")


def test_the_words_of_the_scenario_are_those_of_the_check() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/electricity.md").read_text("utf-8")
    for usual in USUAL.values():
        assert f"{usual.least:g} to {usual.most:,.0f}" in page
