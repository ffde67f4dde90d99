"""Tables name what each variant is compared with, where variants have several baselines."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.conftest import Command

FEW = ("--set", "workload.recurrences=3", "--set", "workload.workloads=[image, recommendation]")
MARKED = ("static (against full)", "history (against static)", "day-ahead (against static)")


def section(page: str, name: str) -> str:
    """A section of a page, by its id."""
    found = re.search(rf'<section id="{name}">.*?</section>', page, re.DOTALL)
    assert found, name
    return found[0]


def baselines(table: str) -> dict[str, str]:
    """What each variant of a table is compared with, as its row says."""
    rows = re.findall(
        r'data-variant="\d+">.*?</svg>([^<]+)</span>(?:<small>([^<]+)</small>)?', table
    )
    return dict(rows)


def test_tables_of_a_run(inside: Command) -> None:
    shown = inside("run", "carbon-deadlines", *FEW, "--out", "out").stdout
    assert "each variant against its baseline" in shown
    page = Path("out/report.html").read_text(encoding="utf-8")
    for name in ("variants", "amounts", "energy", "parts"):
        compared = baselines(section(page, name))
        assert compared.get("full", "baseline") == "baseline"
        assert compared["static"] == "against full"
        assert compared["history"] == compared["day-ahead"] == "against static"


def test_tables_of_a_sweep(inside: Command) -> None:
    arguments = ("carbon-deadlines", *FEW, "--sweep", "objective.eta=0.3,0.7", "--out", "out")
    shown = inside("run", *arguments).stdout
    assert re.sub(r"\s+", "", shown).count("(against") >= 6
    page = Path("out/report.html").read_text(encoding="utf-8")
    assert section(page, "points").count("against static") == 4
    assert "cost against its baseline" in page


def test_who_pays_with_time(inside: Command) -> None:
    rows = "".join(f"{n},{600 * n},3600,1\n" for n in range(6))
    Path("jobs.csv").write_text(f"job_id,submit_time_s,duration_s,gpus\n{rows}", encoding="utf-8")
    inside("traces", "import", "csv", "jobs.csv", "--name", "few")
    scenario = {
        "name": "few",
        "cluster": {"gpu": "A40", "gpus": 1, "idle_power_w": 0, "busy_power_w": 250},
        "workload": {"kind": "trace", "trace": "few"},
        "variants": {
            "fifo": {},
            "sjf": {"policies": {"select": "sjf"}},
            "las": {"policies": {"select": "las"}, "baseline": "sjf"},
        },
        "baseline": "fifo",
    }
    Path("few.yaml").write_text(json.dumps(scenario), encoding="utf-8")
    inside("run", "few.yaml", "--out", "out")
    times = section(Path("out/report.html").read_text(encoding="utf-8"), "times")
    assert "Who pays with time, against their baselines" in times
    assert baselines(times) == {"fifo": "baseline", "sjf": "against fifo", "las": "against sjf"}


@pytest.mark.parametrize("baseline", ["full", "static"])
def test_one_baseline_for_all_is_named_once(inside: Command, baseline: str) -> None:
    same = [f"variants.{name}.baseline={baseline}" for name in ("history", "day-ahead")]
    shown = inside(
        "run",
        "carbon-deadlines",
        *FEW,
        "--set",
        f"baseline={baseline}",
        "--out",
        "out",
        *(x for setting in same for x in ("--set", setting)),
    ).stdout
    assert f"All jobs, against {baseline}" in shown
    assert "(against " not in shown
    assert "against " not in section(Path("out/report.html").read_text(encoding="utf-8"), "energy")
