"""The first sentence of a study: what it names, what it passes over, and what it is against."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Command
from tests.support.messages import assert_states
from wattkeeper import scenarios
from wattkeeper.scenarios.document.blocks import Paragraph, plain
from wattkeeper.scenarios.document.search import describe_savings
from wattkeeper.scenarios.document.study import describe_study

CLUSTER = {"gpu": "A100", "gpus": 8, "gpus_per_node": 4, "idle_power_w": 60, "busy_power_w": 300}
SLEEP = {"sleep": {"after_s": 300, "power_w": 0, "wake_s": 10}}


@pytest.fixture
def log(inside: Command) -> Command:
    """The command, with a log of 24 jobs that wait for one another."""
    rows = [f"{1000 * (n // 3)},{(900, 5400, 300)[n % 3]},{(4, 8, 2)[n % 3]}" for n in range(24)]
    Path("log.csv").write_text("\n".join(["submit_time_s,duration_s,gpus", *rows]))
    inside("traces", "import", "csv", "log.csv", "--name", "log")
    return inside


def answer(command: Command, variants: dict[str, Any], **more: Any) -> list[str]:
    """The sentences of the answer to a scenario with these variants."""
    scenario = {
        "name": "asked",
        "cluster": CLUSTER,
        "workload": {"kind": "trace", "trace": "log"},
        "variants": variants,
        "baseline": next(iter(variants)),
    }
    Path("asked.yaml").write_text(json.dumps(scenario | more), encoding="utf-8")
    command("run", "asked.yaml", "--out", "out")
    shown = describe_study(scenarios.read("out"), with_charts=False).sections[0].blocks
    roles = ("lead", "answer")
    return [plain(b.text) for b in shown if isinstance(b, Paragraph) and b.role in roles]


def select(kind: str, **options: Any) -> dict[str, Any]:
    return {"policies": {"select": {"kind": kind, **options}}}


def test_recorded_run_times_are_foresight_wherever_they_are_read(log: Command) -> None:
    variants = {
        "fifo": select("fifo"),
        "filled": select("easy-backfill", estimates="perfect"),
        "limited": select("quota", queue="sjf", each_user=7),
        "first": select("fjf"),
    }
    lead, *others = answer(log, variants)
    assert lead.startswith("Scheduling the first job that fits (first) ends jobs ")
    told = " ".join(others)
    assert "which knows run times in advance, ends jobs" in told
    assert not any(each.startswith(("filled ends", "limited ends")) for each in others)


def test_what_the_baseline_knows_is_no_foresight(log: Command) -> None:
    lead, *_ = answer(
        log,
        {"full": {}, "sleeping": {"cluster": SLEEP}},
        policies={"select": {"kind": "sjf"}},
        electricity={"price": 0.2, "currency": "EUR"},
    )
    assert_states(lead, "Letting idle nodes sleep (sleeping) saves ", " EUR")


def test_a_price_of_nothing_decides_nothing(log: Command) -> None:
    lead, *_ = answer(
        log,
        {"full": {}, "sleeping": {"cluster": SLEEP}},
        electricity={"price": 0, "currency": "EUR", "carbon": 300},
    )
    assert_states(lead, "Letting idle nodes sleep (sleeping) saves ", "kg CO2")


def test_savings_against_a_baseline_of_ones_own_say_so(log: Command) -> None:
    variants = {
        "full": {},
        "sleeping": {"cluster": SLEEP},
        "both": {"cluster": SLEEP, **select("fjf"), "baseline": "sleeping"},
    }
    lead, *others = answer(log, variants, electricity={"price": 0.2, "currency": "EUR"})
    assert lead.startswith("Letting idle nodes sleep (sleeping) saves ")
    (both,) = (each for each in others if "both" in each)
    assert "against sleeping" in both


def test_a_variant_alone_is_told_about_once(log: Command) -> None:
    (only,) = answer(log, {"fifo": {}})
    assert_states(only, "The baseline fifo (in order of submission): ", "mean time of a job")


def test_no_effect_is_said_once(log: Command) -> None:
    lead, *others = answer(log, {"fifo": select("fifo"), "again": select("fifo")})
    assert lead == "No variant changes the job completion time."
    assert not any("again" in each for each in others)


def test_few_seeds_leave_open_what_many_tell() -> None:
    few = ["workload.recurrences=6", "variants.frugal=null", "variants.oracle=null"]
    study = scenarios.load("quickstart", few, seeds=2).run()
    verdicts = {
        each["verdict"]
        for each in study.summary["variants"]["zeus"]["versus"].values()
        if isinstance(each, dict)
    }
    assert "noise" not in verdicts
    many = scenarios.load("quickstart", few, seeds=5).run()
    verdicts = {
        each["verdict"]
        for each in many.summary["variants"]["zeus"]["versus"].values()
        if isinstance(each, dict)
    }
    assert "cannot tell" not in verdicts


def test_a_search_that_takes_more_says_more() -> None:
    saved = {"mean": 0.231, "ci95": [0.2, 0.26], "n": 5}
    more = {"mean": -0.2, "ci95": [-0.3, -0.1], "n": 5}
    unclear = {"mean": -0.05, "ci95": [-0.2, 0.1], "n": 5}
    about = {
        "work": saved,
        "epochs": unclear,
        "time_s": more,
        "time_with_overhead_s": more,
        "accuracy_points": {"mean": -0.12, "ci95": None, "n": 1},
    }
    (line,) = describe_savings({"saved": {"zoo": about}, "variants": {"scratch": {}, "zoo": {}}})
    assert line.role == "lead"
    assert plain(line.text) == (
        "zoo saves 23.1 % of work [20.0, 26.0]; takes 20.0 % more training time [10.0, 30.0] and "
        "20.0 % more time with overhead [10.0, 30.0]; leaves open with 5 seeds: epochs (-5.0 % "
        "[-20.0, 10.0]); final accuracy -0.12 points."
    )
