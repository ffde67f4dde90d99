"""The time zone of a log beside files of prices and intensities."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import yaml

from tests.conftest import Command
from tests.support.messages import assert_states

BERLIN = ZoneInfo("Europe/Berlin")
NODES = "nodes: [{gpu: a100, count: 1, gpus: 1}]\nelectricity: {carbon: %s%s}\n"
CARBON = "{file: carbon.csv, kind: average}"
FIRST = datetime.fromisoformat("2024-10-27T00:30:00+02:00")
"""The clocks are set back two and a half hours later."""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Jobs of an hour that end before the next begins, on both sides of a change of the clocks."""
    hours = [FIRST + timedelta(hours=hour) for hour in (0, 1, 4, 6)]
    for name, text in (("offsets", "%Y-%m-%dT%H:%M:%S%z"), ("local", "%Y-%m-%dT%H:%M:%S")):
        rows = [f"{hour.astimezone(BERLIN):{text}},3600,1" for hour in hours]
        lines = ["submit_time_s,duration_s,gpus", *rows, ""]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines), encoding="utf-8")
    slots = [FIRST + timedelta(minutes=30 * slot) for slot in range(-4, 60)]
    rows = [f"{slot.isoformat()},{100 + 9 * place}" for place, slot in enumerate(slots)]
    (tmp_path / "carbon.csv").write_text("\n".join(["time,carbon (g/kWh)", *rows, ""]))
    (tmp_path / "nodes.yaml").write_text(NODES % (CARBON, ""), encoding="utf-8")
    return tmp_path


def study(log: str) -> tuple[str, ...]:
    return ("study", "csv", f"{log}.csv", "--nodes", "nodes.yaml", "--out", log, "--workers", "1")


def read(folder: Path) -> tuple[float, float, dict[str, Any]]:
    """Second 0, the emissions of the baseline, and the scenario."""
    manifest = json.loads((folder / "results/manifest.json").read_text(encoding="utf-8"))
    summary = json.loads((folder / "results/summary.json").read_text(encoding="utf-8"))
    scenario = yaml.safe_load((folder / "scenario.yaml").read_text(encoding="utf-8"))
    own = scenario["baseline"]
    metrics = summary["variants"][own]["metrics"]
    return manifest["electricity"][own]["origin_s"], metrics["carbon_g"]["mean"], scenario


def test_a_local_log_with_its_zone_emits_what_one_with_offsets_does(
    inside: Command, site: Path
) -> None:
    """Across a change of the clocks, whichever states the zone."""
    inside(*study("offsets"))
    inside(*study("local"), "--zone", "Europe/Berlin")
    found, emitted, scenario = read(site / "offsets")
    assert found == FIRST.timestamp()
    assert read(site / "local")[:2] == (found, emitted)
    assert read(site / "local")[2]["electricity"] == scenario["electricity"]
    assert "zone" not in scenario["electricity"]
    (site / "nodes.yaml").write_text(NODES % (CARBON, ", zone: Europe/Berlin"), encoding="utf-8")
    inside(*study("local"), "--replace")
    assert read(site / "local")[:2] == (found, emitted)


def test_a_zone_beside_offsets_is_refused(inside: Command, site: Path) -> None:
    said = inside(*study("offsets"), "--zone", "America/Los_Angeles", code=2).stderr
    assert_states(said, "--zone: America/Los_Angeles", "offset from UTC", "leave the zone out")
    (site / "nodes.yaml").write_text(NODES % (CARBON, ", zone: Europe/Berlin"), encoding="utf-8")
    said = inside(*study("offsets"), code=2).stderr
    assert_states(said, "nodes.yaml:2:", "electricity.zone: Europe/Berlin", "leave the zone out")
    assert not list(site.glob("offsets/*"))


def test_two_zones_of_a_log_are_refused(inside: Command, site: Path) -> None:
    (site / "nodes.yaml").write_text(NODES % (CARBON, ", zone: America/Los_Angeles"))
    said = inside(*study("local"), "--zone", "Europe/Berlin", code=2).stderr
    assert_states(said, "--zone: Europe/Berlin", "America/Los_Angeles", "nodes.yaml:2:")
    assert not list(site.glob("local/*"))
    (site / "nodes.yaml").write_text(NODES % (CARBON, ", zone: Europe/Berlin"))
    inside(*study("local"), "--zone", "Europe/Berlin")


def test_options_complete_what_the_file_of_nodes_says(inside: Command, site: Path) -> None:
    (site / "nodes.yaml").write_text(
        "nodes: [{gpu: a100, count: 1, gpus: 1}]\nelectricity: {zone: Europe/Berlin}\n"
    )
    said = inside(*study("local"), code=2).stderr
    assert_states(said, "nodes.yaml:2:", "electricity needs price, carbon or both")
    rows = [f"{FIRST + timedelta(hours=hour):%Y-%m-%dT%H:%M:%S%z},0.2" for hour in range(-4, 60)]
    (site / "price.csv").write_text("\n".join(["time,price (EUR/kWh)", *rows, ""]))
    inside(*study("local"), "--price", "price.csv")
    manifest = json.loads((site / "local/results/manifest.json").read_text(encoding="utf-8"))
    assert {each["origin_s"] for each in manifest["electricity"].values()} == {FIRST.timestamp()}
    for stated, fact in (
        ("{price: 0.2, currency: EUR, zone: UTC}", "origin, zone: they are of files"),
        ("{price: 0.2}", "currency: needed with a price"),
        ("{currency: EUR}", "electricity needs price"),
    ):
        (site / "nodes.yaml").write_text(NODES.replace("{carbon: %s%s}", stated))
        said = inside(*study("offsets"), code=2).stderr
        assert_states(said, "nodes.yaml:2:", fact)


def test_a_zone_of_a_scenario_beside_offsets_is_refused(inside: Command, site: Path) -> None:
    inside("traces", "import", "csv", "offsets.csv", "--name", "some")
    (site / "own.yaml").write_text(
        "name: own\ncluster: {gpu: a100, gpus: 1, idle_power_w: 55, busy_power_w: 330}\n"
        "workload: {kind: trace, trace: some}\n"
        f"electricity: {{carbon: {CARBON}, zone: Europe/Berlin}}\n"
        "variants: {fifo: {}}\nbaseline: fifo\n"
    )
    said = inside("run", "own.yaml", "--out", "out", code=2).stderr
    assert_states(said, "own.yaml:4:", "second 0 is 2024-10-26 22:30:00 in UTC", "`zone` out")
    inside("traces", "import", "csv", "local.csv", "--name", "some", "--replace")
    said = inside("run", "own.yaml", "--out", "out", code=2).stderr
    assert_states(said, "own.yaml:4:", "set within the trace 'some'", "traces import --zone")
    inside(
        "traces",
        "import",
        "csv",
        "local.csv",
        "--name",
        "some",
        "--replace",
        "--zone",
        "Europe/Berlin",
    )
    said = inside("run", "own.yaml", "--out", "out", code=2).stderr
    assert_states(said, "`zone` out")
    inside("run", "own.yaml", "--out", "out", "--set", "electricity.zone=null")
