"""The published replays through their commands: all published rows, and what is refused."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import pytest

from benchmarks.papers import bamboo, oobleck
from tests.conftest import ROOT, Command
from tests.support.messages import assert_states
from tests.support.published_replays import COLUMNS, TRACES, read_reference, replay, trace_name

PRINTED = {
    "preempt": "preemptions",
    "preemptions": "preemptions",
    "fatal": "fatal",
    "steps": "steps",
    "avg_inst": "avg_instances",
    "instances": "avg_instances",
    "perf": "samples_per_s",
    "cost": "dollars_per_h",
    "value": "value",
    "ondemand_perf": "on_demand_samples_per_s",
    "ondemand_cost": "on_demand_dollars_per_h",
    "ondemand_value": "on_demand_value",
    "interruption_h": "interruption_h",
    "lifetime_h": "lifetime_h",
}
"""Names in the answers by column of Bamboo's own tables."""

COUNTS = {"steps", "fatal", "preemptions", "preempt"}

EVENTS = "time_s,event,node\n0,up,a\n5,down,a\n"


def ask(command: click.Command, *arguments: str | Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(replay(command, *arguments, "--json").stdout)
    return rows


def check_printed(row: Mapping[str, str], found: Mapping[str, Any]) -> None:
    """Compare with figures that are printed to 3 or 4 digits."""
    for column, name in PRINTED.items():
        if column in row:
            digits = len(row[column].partition(".")[2])
            half = 0.5 * 10 ** -(4 if digits == 4 else 3)
            assert found[name] == pytest.approx(float(row[column]), rel=0, abs=half * 1.000001)


@pytest.mark.usefixtures("spot")
def test_all_rows_of_oobleck_s_artifact(shared: Path) -> None:
    rows = read_reference(shared, "throughput_by_trace.csv")
    rates = shared / "data/oobleck/throughput_by_nodes.csv"
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for trace in sorted({row["trace"] for row in rows}):
        recorded = ["--recorded"] if trace.startswith("scaled/") else []
        answers = ask(oobleck.main, trace_name(trace), "--rates", rates, *recorded)
        found |= {(trace, each["system"], each["model"]): each for each in answers}
    assert len(rows) == 52
    for row in rows:
        answer = found[row["trace"], row["system"], row["model"]]
        published = {name: float(row[name]) for name in COLUMNS if row[name]}
        columns = 9 if row["system"] == "oobleck" else 10
        assert len(published) == (columns if answer["fits_memory"] else 1)
        for name, value in published.items():
            own = answer[COLUMNS[name]]
            assert own == (value if name in COUNTS else pytest.approx(value, rel=1e-9)), (row, name)


@pytest.mark.usefixtures("spot")
def test_all_rows_of_bamboo_s_artifact(shared: Path) -> None:
    rows = read_reference(shared, "bamboo_sim.csv")
    assert len(rows) == 5
    for row in rows:
        trace = trace_name(f"{row['trace']}.csv")
        (answer,) = ask(bamboo.main, trace, "--model", row["model"])
        check_printed(row, answer)


@pytest.mark.slow
@pytest.mark.usefixtures("spot")
def test_the_sweep_of_bamboo_s_artifact(shared: Path) -> None:
    rows = read_reference(shared, "bamboo_removal_sweep_BERT_30seeds.csv")
    assert len(rows) == 3
    for row in rows:
        (answer,) = ask(bamboo.main, "--model", "BERT", "--loss-chance", row["prob"])
        check_printed(row, answer)


@pytest.mark.usefixtures("spot")
def test_the_headline_is_a_ratio_to_two_steps(shared: Path) -> None:
    rates = shared / "data/oobleck/throughput_by_nodes.csv"
    ours, varuna = ask(
        oobleck.main,
        trace_name("10m.csv"),
        "--rates",
        rates,
        "--model",
        "GPT-3-6_7b",
        "--system",
        "oobleck",
        "--system",
        "varuna",
    )
    ratio = ours["avg_samples_per_s"] / varuna["avg_samples_per_s"]
    assert ratio == pytest.approx(13.90, abs=0.005)
    assert varuna["steps"] == 2


@pytest.mark.usefixtures("spot")
def test_a_table_names_models_without_memory(shared: Path) -> None:
    rates = shared / "data/oobleck/throughput_by_nodes.csv"
    out = replay(oobleck.main, trace_name("10m.csv"), "--rates", rates).stdout
    assert_states(out, "GPT-2-ours", "varuna-nockpt", "no memory for GPT-3-medium", "accidents")
    assert_states(out, "over varuna", "13.90", "losses: nodes lost before")
    out = replay(
        oobleck.main, trace_name("10m.csv"), "--rates", rates, "--system", "oobleck"
    ).stdout
    assert "over varuna" not in out
    out = replay(bamboo.main, trace_name("g4dn-trace.csv"), "--model", "BERT").stdout
    assert_states(out, "BERT", "on demand", "losses: nodes lost.")


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (("--model", "GPT-4"), ("GPT-4", "BERT-large, GPT-2-ours")),
        (("--system", "gemini"), ("gemini", "oobleck, varuna")),
        (("--system", "oobleck", "--recorded"), ("--recorded", "varuna")),
        (("--rates", "other.csv"), ("no rates of 'bertLarge' by oobleck", "models m")),
        (("--rates", "holes.csv"), ("2 nodes is missing",)),
    ],
)
def test_a_wrong_replay_is_refused(
    arguments: tuple[str, ...], facts: tuple[str, ...], inside: Command, tmp_path: Path
) -> None:
    (tmp_path / "events.csv").write_text(EVENTS)
    inside("traces", "import", "node-events", "events.csv", "--name", "events")
    head = "system,model,num_nodes,samples_per_s\n"
    (tmp_path / "rates.csv").write_text(head + "oobleck,bertLarge,1,1\n")
    (tmp_path / "other.csv").write_text(head + "varuna,m,1,1\n")
    (tmp_path / "holes.csv").write_text(head + "oobleck,bertLarge,1,1\noobleck,bertLarge,3,1\n")
    rates = () if "--rates" in arguments else ("--rates", "rates.csv")
    done = replay(oobleck.main, "events", *rates, *arguments, code=2)
    assert_states(done.stderr, *facts)


def test_a_trace_that_cannot_be_replayed_is_refused(inside: Command, tmp_path: Path) -> None:
    (tmp_path / "events.csv").write_text("time_s,event,node,factor\n0,up,a,\n5,degraded,a,1.5\n")
    inside("traces", "import", "node-events", "events.csv", "--name", "events")
    done = replay(bamboo.main, "events", "--model", "BERT", code=2)
    assert_states(done.stderr, "'a'", "degraded")
    inside("traces", "generate", "profiles", "--name", "profiles")
    done = replay(bamboo.main, "profiles", "--model", "BERT", code=2)
    assert_states(done.stderr, "holds profiles", "node-events")
    done = replay(bamboo.main, "--model", "BERT", code=2)
    assert_states(done.stderr, "TRACE", "--loss-chance")
    done = replay(bamboo.main, "events", "--model", "BERT", "--seeds", "3", code=2)
    assert_states(done.stderr, "--seeds", "--loss-chance")


def test_repairs_count_as_returns(inside: Command, tmp_path: Path) -> None:
    """A node that is down for a stated time comes back, as in scenarios."""
    nodes = [f"n{n:02}" for n in range(14)]
    rows = [f"0,up,{node},\n" for node in nodes]
    stated = "".join(["time_s,event,node,repair_s\n", *rows, "500,down,n00,100\n2000,down,n01,\n"])
    spelt = "".join(
        ["time_s,event,node,repair_s\n", *rows, "500,down,n00,\n600,up,n00,\n", "2000,down,n01,\n"]
    )
    answers = []
    for name, text in (("stated", stated), ("spelt", spelt)):
        (tmp_path / f"{name}.csv").write_text(text)
        inside("traces", "import", "node-events", f"{name}.csv", "--name", name)
        answers.append(ask(bamboo.main, name, "--model", "BERT"))
    assert answers[0] == answers[1]
    assert answers[0][0]["preemptions"] == 2


def test_every_trace_of_the_tables_is_in_the_library(shared: Path) -> None:
    named = {row["trace"] for row in read_reference(shared, "throughput_by_trace.csv")}
    named |= {row["trace"] for row in read_reference(shared, "exact_by_trace.csv")}
    named |= {f"{row['trace']}.csv" for row in read_reference(shared, "bamboo_sim.csv")}
    assert named == set(TRACES)


def test_the_documented_commands_run(shared: Path, spot_traces: Path) -> None:
    page = (ROOT / "benchmarks/papers/README.md").read_text()
    commands = re.findall(r"^\$ \.venv/bin/python -m (benchmarks\.papers\..+)$", page, re.MULTILINE)
    assert len(commands) == 5
    for line in commands:
        words = line.replace("throughput", f"{shared}/data/oobleck/throughput")
        words = words.replace("template", f"{shared}/reference/elastic/template")
        words = re.sub(r"\b(10m|p3-trace)\b", r"spot-\1", words)
        done = subprocess.run(
            [sys.executable, "-m", *words.split()],
            cwd=ROOT,
            env=os.environ | {"WATTKEEPER_TRACES": str(spot_traces), "COLUMNS": "120"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert "accidents" in done.stdout or "best_by_engine" in done.stdout
