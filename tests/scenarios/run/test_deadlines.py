"""Jobs with deadlines through the command: what they save, and the least possible."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import linprog

from tests.conftest import Command
from tests.support.messages import assert_states
from wattkeeper.scenarios.analysis.times.deadlines import deadline_notes, deadline_rows
from wattkeeper.scenarios.document.study import deadlines_section
from wattkeeper.scenarios.report.html import section
from wattkeeper.scenarios.report.markup import to_html
from wattkeeper.traces.generate.synthetic import SyntheticProfiles, generate
from wattkeeper.traces.profiles import load_profiles

Summary = dict[str, Any]
Points = list[tuple[float, float]]


def _run(command: Command, *sets: str) -> Summary:
    command("run", "carbon-deadlines", "--out", "out", *(x for s in sets for x in ("--set", s)))
    summary: Summary = json.loads(Path("out/summary.json").read_text(encoding="utf-8"))
    return summary


def _compare_year(
    inside: Command, traces: Path, shared: Path, country: str, days: int, slack: float, jobs: int
) -> Summary:
    """The shipped scenario on a recorded year: jobs of ResNet-50 on an A40, 23 epochs a day."""
    file = f"file: {shared}/data/carbon/{country}_2022.parquet, column: carbon_intensity"
    series = f"{{{file}, unit: g/kWh, zone: UTC"
    summary = _run(
        inside,
        "cluster.gpu=A40",
        f"workload.profiles={traces}/zeus-nsdi23",
        "workload.workloads=[imagenet]",
        f"workload.epochs={23 * days}",
        f"workload.slack={slack}",
        f"workload.recurrences={jobs}",
        "policies.configure={kind: fixed, batch_size: 128}",
        f"electricity.carbon={series}, kind: average}}",
        f"signals.day-ahead.series={series}}}",
        "electricity.origin=2022-01-08T00:00:00+00:00",
    )
    compared: Summary = summary["deadlines"]
    return compared


@pytest.mark.parametrize(
    ("country", "days", "slack", "jobs", "least"),
    [
        ("de", 1, 0.25, 8, (0.007, 0.015)),
        *(
            pytest.param(country, days, slack, 40, least, marks=pytest.mark.slow)
            for days in (1, 3)
            for slack, least in ((0.25, (0.007, 0.015)), (1, (0.04, 0.06)))
            for country in ("de", "nl")
        ),
    ],
)
def test_plans_on_forecasts_save_more_than_the_best_static_limit(
    inside: Command,
    zeus_traces: Path,
    shared: Path,
    country: str,
    days: int,
    slack: float,
    jobs: int,
    least: tuple[float, float],
) -> None:
    compared = _compare_year(inside, zeus_traces, shared, country, days, slack, jobs)
    variants = compared["variants"]
    assert compared["jobs"] == compared["bound"]["jobs"] == jobs
    assert [variants[name]["than"] for name in ("history", "day-ahead")] == ["static"] * 2
    assert variants["history"]["more"] >= least[0]
    assert variants["day-ahead"]["more"] >= least[1]
    assert {own["late"] for own in variants.values()} == {0}
    assert max(own["saved"] for own in variants.values()) <= compared["bound"]["saved"]


def test_foresight_reaches_the_least_possible(inside: Command) -> None:
    compared = _run(
        inside,
        "signals.carbon.forecast=perfect",
        "variants.history.policies.tune={kind: deadline, surcharge: 0}",
        "workload.recurrences=8",
    )["deadlines"]
    reached, bound = compared["variants"]["history"]["saved"], compared["bound"]["saved"]
    assert bound - 5e-4 <= reached <= bound + 1e-9
    assert compared["variants"]["day-ahead"]["saved"] < reached


def test_losses_have_no_sign_and_jobs_their_number() -> None:
    variants: dict[str, Any] = {
        "full": {"late": 0, "saved": -1e-12, "together": 0.0},
        "static": {
            "late": 0,
            "allowed": 1.254,
            "saved": 0.1,
            "together": -0.2,
            "than": "full",
            "more": -1e-9,
            "losing": 1.0,
            "worst": 1e-6,
        },
        "plan": {
            "late": 1,
            "saved": -0.2,
            "than": "static",
            "more": -0.3,
            "losing": 1.0,
            "worst": 0.248,
        },
        "other": {
            "late": 0,
            "saved": 0.1,
            "than": "full",
            "more": 0.0,
            "losing": 0.0,
            "worst": 0.0,
        },
    }
    compared: Summary = {
        "deadlines": {
            "of": "carbon",
            "baseline": "full",
            "jobs": 1,
            "left_out": 1,
            "variants": variants,
        }
    }
    assert list(deadline_rows(compared)) == [
        ("full", "0", "-", "0.0 %", "0.0 %", "-", "-", "-", "-"),
        ("static", "0", "1.25", "-20.0 %", "10.0 %", "full", "+0.00", "1 of 1", "0.0"),
        ("plan", "1", "-", "-", "-20.0 %", "static", "-30.00", "1 of 1", "24.8"),
        ("other", "0", "-", "-", "10.0 %", "full", "+0.00", "0 of 1", "-"),
    ]
    notes = " ".join(deadline_notes(compared))
    assert_states(
        notes, "emissions of 1 job (all", "1 job without known emissions above 0 under full"
    )
    assert "1 jobs" not in notes
    variants["day-ahead"] = variants.pop("static")
    variants["plan"]["than"] = "day-ahead"
    page = to_html(section(deadlines_section(compared)))
    assert_states(page, ">day-ahead</td>", "−20.0 %", "−30.00", "loses at most (points)")


def write_queue(folder: Path, trace: str, **selects: str) -> None:
    """A scenario, `queue.yaml`, of schedulers beside `fifo` on days with six clean hours."""
    day = [f"2024-01-01 {hour:02}:00,{100 if 6 <= hour < 12 else 500}" for hour in range(24)]
    (folder / "day.csv").write_text("\n".join(["time,value", *day]))
    variants = [f"  {name}: {{policies: {{select: {select}}}}}" for name, select in selects.items()]
    (folder / "queue.yaml").write_text(
        f"""\
name: queue
cluster: {{gpu: GPU, gpus: 8, idle_power_w: 0, busy_power_w: 250}}
workload: {{kind: trace, trace: {trace}}}
electricity:
  carbon: {{file: day.csv, unit: g/kWh, kind: average, zone: UTC, repeat: day}}
  origin: "2024-01-01T00:00:00+00:00"
signals: {{carbon: {{forecast: perfect}}}}
baseline: fifo
variants:
  fifo: {{}}
"""
        + "\n".join(variants)
    )


def test_what_jobs_save_together_and_by_job_can_differ_in_sign(
    inside: Command, tmp_path: Path
) -> None:
    """Short jobs that wait for a clean hour take it from a long one."""
    short = [f"s{number},0,3600,1,43200" for number in range(7)]
    rows = ["job_id,submit_s,run_s,gpus,due_s", *short, "long,21700,21600,8,43500"]
    (tmp_path / "jobs.csv").write_text("\n".join(rows))
    write_queue(tmp_path, "jobs", waits="{kind: carbon-aware, estimates: perfect, queue: fifo}")
    names = {"submit_time_s": "submit_s", "duration_s": "run_s", "deadline_s": "due_s"}
    maps = [word for name, own in names.items() for word in ("--map", f"{name}={own}")]
    inside("traces", "import", "csv", "jobs.csv", "--name", "jobs", *maps)
    said = inside("run", "queue.yaml", "--out", "out").stdout
    jobs = pd.read_parquet(tmp_path / "out/jobs.parquet")
    grams = jobs.pivot(index="job_id", columns="variant", values="carbon_g").astype(float)
    by_job = float((1 - grams["waits"] / grams["fifo"]).mean())
    together = float(1 - grams["waits"].sum() / grams["fifo"].sum())
    assert together < -0.01 < 0.5 < by_job
    own = json.loads((tmp_path / "out/summary.json").read_text())["deadlines"]["variants"]["waits"]
    assert (own["saved"], own["together"]) == pytest.approx((by_job, together))
    (row,) = re.findall(r"│ waits +│ +\d+ │ +\d+\.\d+ │ +(\S+) % │ +(\S+) % │ fifo", said)
    assert row == (f"{100 * together:.1f}", f"{100 * by_job:.1f}")
    page = (tmp_path / "out/report.html").read_text()
    assert_states(
        page,
        "saved together",
        "saved, mean of jobs",
        " kg CO2",
        "a short job counts as much as a long one",
    )


def test_padded_limits_leave_slack_by_deadlines_alone(inside: Command, tmp_path: Path) -> None:
    """The slack is that of the run time; a deadline by the limit lets a job wait for hours."""
    begin = pd.Timestamp("2024-01-01 00:00")
    rows = ["submit_time_s,duration_s,gpus,estimate_s,deadline_s"]
    for number in range(8):
        at = begin + pd.Timedelta(days=number // 2)
        due = at + pd.Timedelta(hours=2 + 8)  # the limit, and eight hours
        rows.append(f"{at:%F %T},3600,1,7200,{due:%F %T}")
    (tmp_path / "due.csv").write_text("\n".join(rows))
    (tmp_path / "limits.csv").write_text("\n".join(row.rpartition(",")[0] for row in rows))
    for name in ("due", "limits"):
        inside("traces", "import", "csv", f"{name}.csv", "--name", name)
    write_queue(
        tmp_path,
        "due",
        limits="{kind: carbon-aware, estimates: user}",
        known="{kind: carbon-aware, estimates: perfect}",
    )

    def saved(*sets: str) -> dict[str, float]:
        inside("run", "queue.yaml", "--out", "out", *(x for s in sets for x in ("--set", s)))
        variants = json.loads((tmp_path / "out/summary.json").read_text())["variants"]
        assert {about["metrics"]["late_jobs"]["mean"] for about in variants.values()} == {0}
        return {name: 1 - about["versus"]["carbon_g"]["ratio"] for name, about in variants.items()}

    assert saved() == pytest.approx({"fifo": 0, "limits": 0.8, "known": 0.8})
    of_slack = "workload.trace=limits", "workload.slack=7"
    assert saved(*of_slack) == pytest.approx({"fifo": 0, "limits": 0.8, "known": 0.8})
    for slack in (1, 6):  # of 6: the latest start is at 5 by the limit, at 6 by the run time
        none = saved("workload.trace=limits", f"workload.slack={slack}")
        assert none["limits"] == pytest.approx(0)
    assert none["known"] == pytest.approx(0.8)


def test_deadlines_of_a_table_count_from_the_first_submission(
    inside: Command, tmp_path: Path
) -> None:
    header = "submit_time_s,duration_s,gpus,deadline_s\n"
    day = "2024-01-31"
    dates = f"{day} 10:00,60,1,{day} 10:01:40\n{day} 10:10,60,1,\n"
    for rows in ("5000,60,1,5100\n5600,60,1,\n", dates):
        (tmp_path / "jobs.csv").write_text(header + rows)
        inside("traces", "import", "csv", "jobs.csv", "--name", "jobs", "--replace")
        (path,) = tmp_path.rglob("jobs/jobs.parquet")
        jobs = pd.read_parquet(path)
        assert jobs["deadline_s"].dropna().tolist() == [100]
        assert jobs["submit_time_s"].tolist() == [0, 600]
    (tmp_path / "jobs.csv").write_text(f"{header}5000,60,1,100\n")
    said = inside("traces", "import", "csv", "jobs.csv", "--name", "jobs", "--replace", code=2)
    assert_states(said.stderr, "jobs.csv, line 2", "deadline_s is before submit_time_s")


def _solve(points: Points, slots: pd.DataFrame, work: float) -> float:
    """HiGHS's least emissions (g) of some work, in slots with an intensity and a length."""
    menu = [*((1 / time_s, power_w) for time_s, power_w in points), (0.0, 0.0)]
    speed, power = np.array(menu).T
    cost = np.multiply.outer(slots.rate.to_numpy(), power).ravel() / 3.6e6
    shares = np.kron(np.eye(len(slots)), np.ones(len(menu)))
    matrix = np.vstack([shares, np.tile(speed, len(slots))])
    solved = linprog(cost, A_eq=matrix, b_eq=[*slots.length, work], method="highs")
    return float(solved.fun)


def test_the_least_possible_equals_a_linear_program(inside: Command) -> None:
    epochs, every_s, slack = 2000, 774_900, 0.5
    compared = _run(
        inside,
        "workload.recurrences=3",
        f"workload.epochs={epochs}",
        f"workload.slack={slack}",
        "workload.interpolate_w=null",
    )["deadlines"]
    profile = load_profiles(generate(SyntheticProfiles(), "synthetic"), "SYN-250W", 1).get("image")
    curve = profile.curves[profile.default_batch_size]
    points = list(zip(curve.time_per_epoch_s, curve.average_power_w, strict=True))
    week = pd.read_csv(str(files("wattkeeper.scenarios") / "made-up-carbon-week.csv"))[
        "carbon (g/kWh)"
    ]
    run_s, power_w = epochs * curve.time_per_epoch_s[-1], curve.average_power_w[-1]
    saved = []
    for begin_s in (0.0, 1.0 * every_s, 2.0 * every_s):
        due_s, end_s = begin_s + (1 + slack) * run_s, begin_s + run_s
        least = _solve(points, _cut(week, begin_s, due_s), epochs)
        full = _cut(week, begin_s, end_s)
        used = power_w / 3.6e6 * float(np.dot(full.rate, full.length))
        saved.append(1 - least / used)
    assert compared["bound"]["saved"] == pytest.approx(np.mean(saved), rel=1e-6)


def _cut(week: pd.Series[int], begin_s: float, end_s: float) -> pd.DataFrame:
    """Intensity and length (s) of the hours of a window; the week repeats."""
    edges = [begin_s, *np.arange(3600 * (begin_s // 3600 + 1), end_s, 3600), end_s]
    hours = (np.array(edges[:-1]) // 3600).astype(int) % 168
    return pd.DataFrame({"rate": week.to_numpy()[hours].astype(float), "length": np.diff(edges)})


def test_recurrences_are_submitted_on_time(inside: Command) -> None:
    _run(inside, "workload.recurrences=3", "workload.every_s=1000")
    jobs = pd.read_parquet("out/jobs.parquet")
    for _, own in jobs.groupby("variant"):
        assert sorted(own.submit_time_s) == [0, 1000, 2000]
        assert own.finish_time_s.min() > 2000  # they overlap


@pytest.mark.parametrize(
    ("sets", "facts"),
    [
        (
            ("workload.slack=null", "signals={}", "variants={full: {}}"),
            ("bound", "deadline", "workload.slack"),
        ),
        (("workload.epochs=null",), ("bound", "'image'", "workload.epochs")),
        (("electricity=null", "signals={}", "variants={full: {}}"), ("bound: carbon",)),
        (("variants.static.cluster={gpus: 41}",), ("bound", "'static'", "cluster")),
        (("workload.every_s=null",), ("bound", "workload.every_s")),
        (
            ("bound=price", "electricity.price=-0.1", "electricity.currency=EUR"),
            ("bound", "price", "-0.1"),
        ),
        (("bound=speed",), ("bound", "carbon", "price", "energy", "'speed'")),
    ],
)
def test_a_bound_that_cannot_be_computed_is_refused(
    inside: Command, sets: tuple[str, ...], facts: tuple[str, ...]
) -> None:
    arguments = (x for s in sets for x in ("--set", s))
    shown = inside("run", "carbon-deadlines", *arguments, code=2)
    assert_states(shown.stderr, *facts)


def test_jobs_without_a_profile_have_a_bound(inside: Command) -> None:
    """Two jobs of an hour on an A40, whose model says what limits change; in all three cases."""
    Path("jobs.csv").write_text(
        "job_id,submit_time_s,duration_s,gpus\na,0,3600,1\nb,1800,3600,1\n", encoding="utf-8"
    )
    inside("traces", "import", "csv", "jobs.csv", "--name", "two")
    scenario = {
        "name": "two",
        "cluster": {"gpu": "A40", "gpus": 2, "idle_power_w": 0, "busy_power_w": 250},
        "workload": {"kind": "trace", "trace": "two", "slack": 1},
        "electricity": {"carbon": 400},
        "bound": "energy",
        "variants": {"full": {}, "static": {"policies": {"tune": "static-limit"}}},
        "baseline": "full",
    }
    Path("two.yaml").write_text(json.dumps(scenario), encoding="utf-8")
    inside("run", "two.yaml", "--out", "out")
    compared = json.loads(Path("out/summary.json").read_text(encoding="utf-8"))["deadlines"]
    assert compared["of"] == "energy"
    saved = {name: own["saved"] for name, own in compared["variants"].items()}
    assert max(saved.values()) <= compared["bound"]["saved"] + 1e-9
    assert compared["bound"]["saved"] > 0.1
