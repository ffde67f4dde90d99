"""The report: the published optimum, the paper's figure 1, and what is odd in recorded data."""

import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tests.conftest import Command
from tests.support.messages import assert_states
from tests.support.traces import import_trace
from wattkeeper.policies.errors import InputError, ProfileMissing
from wattkeeper.policies.profile import Curve, ExpectedCost, Profile
from wattkeeper.traces.describe.potential import Choice, Potential, frontier, potential
from wattkeeper.traces.describe.report import Report, describe, render
from wattkeeper.traces.generate.synthetic import SyntheticProfiles, generate
from wattkeeper.traces.profiles import load_profiles
from wattkeeper.traces.schema import NODES
from wattkeeper.traces.tables import jobs_table
from wattkeeper.traces.trace import Trace

SHARED = Path(__file__).resolve().parents[4] / "shared"
ORACLE = SHARED / "reference" / "zeus" / "oracle_optimum.csv"
recorded = pytest.mark.skipif(not ORACLE.is_file(), reason="the recorded Zeus traces are not here")


@pytest.fixture(scope="module")
def zeus() -> Trace:
    return import_trace("zeus-nsdi23", [SHARED / "data" / "zeus-nsdi23"])


def oracle_row(profile: Profile, found: Potential) -> dict[str, float | None]:
    """The columns of the published table that the potential has."""
    default, both, limit, batch = (choice for choice in found if isinstance(choice, Choice))
    return {
        "max_epochs": profile.max_epochs,
        "target_metric": profile.target,
        "default_bs": default.batch_size,
        "default_pl_w": default.power_limit_w,
        "default_tta_s": default.time_s,
        "default_eta_j": default.energy_j,
        "default_cost_j": default.cost,
        "opt_bs": both.batch_size,
        "opt_pl_w": both.power_limit_w,
        "opt_tta_s": both.time_s,
        "opt_eta_j": both.energy_j,
        "opt_cost_j": both.cost,
        "cost_red_pct": both.cost_saving_pct or 0,
        "eta_red_pct": both.energy_saving_pct or 0,
        "tta_red_pct": both.time_saving_pct or 0,
        "plonly_pl_w": limit.power_limit_w,
        "plonly_eta_red_pct": limit.energy_saving_pct or 0,
        "plonly_cost_red_pct": limit.cost_saving_pct or 0,
        "bsonly_bs": batch.batch_size,
        "bsonly_eta_red_pct": batch.energy_saving_pct or 0,
        "bsonly_cost_red_pct": batch.cost_saving_pct or 0,
        "n_pareto": found.frontier,
        "n_cfg": found.configurations,
    }


@recorded
def test_the_published_optimum(zeus: Trace) -> None:
    with ORACLE.open(newline="") as file:
        published = list(csv.DictReader(file))
    sets = {gpu: load_profiles(zeus, gpu.upper()) for gpu in ("v100", "rtx6000")}
    assert len(published) == 2 * 6 * 5
    for row in published:
        profile = sets[row["gpu"]].get(row["dataset"])
        found = oracle_row(profile, potential(profile, float(row["eta_knob"])))
        expected = {key: float(row[key]) for key in found}
        assert found == pytest.approx(expected, rel=1e-6, abs=1e-6), row
        assert set(row) - set(found) == {"gpu", "dataset", "eta_knob", "opt_p_reach"}


@recorded
def test_figure_1_of_the_paper(zeus: Trace) -> None:
    report = describe(zeus, gpu_type="V100", eta=1)
    savings = {
        knob: [round(row[knob]["energy_saving_pct"], 1) for row in report["potential"]]
        for knob in ("both", "power_limit", "batch_size")
    }
    assert (min(savings["both"]), max(savings["both"])) == (23.8, 74.7)
    assert (min(savings["power_limit"]), max(savings["power_limit"])) == (3.0, 31.4)
    assert report["potential"][0]["power_limit"]["energy_saving_pct"] == pytest.approx(
        31.5, abs=0.06
    )
    assert (min(savings["batch_size"]), max(savings["batch_size"])) == (3.0, 65.0)


@recorded
def test_oddities_of_the_recorded_profiles(zeus: Trace) -> None:
    odd = describe(zeus)["oddities"]
    assert {row["gpu_type"]: row["rows"] for row in odd["above_cap"]} == {
        "A40": 39,
        "P100": 0,
        "RTX6000": 0,
        "V100": 8,
    }
    worst = odd["above_cap"][0]["worst"]
    assert (worst["workload"], worst["batch_size"], worst["power_limit_w"]) == (
        "imagenet",
        256,
        100,
    )
    assert worst["above_pct"] == pytest.approx(20.738, abs=1e-3)
    slower = {row["gpu_type"]: (row["rows"], row["of"]) for row in odd["slower_at_higher_limit"]}
    assert slower == {"A40": (69, 400), "P100": (32, 225), "RTX6000": (43, 358), "V100": (43, 408)}
    assert {row["workload"]: row["batch_sizes"] for row in odd["never_reached"]} == {
        "cifar100": [2048, 4096],
        "imagenet": [64],
        "librispeech": [512],
        "movielens-1m": [4, 8, 16],
    }
    only = {(row["gpu_type"], row["workload"]): row for row in odd["one_table_only"]}
    assert only["V100", "imagenet"]["profiles_only"] == [8, 16, 32]
    assert only["V100", "imagenet"]["convergence_only"] == [512, 1024]
    assert len(only["V100", "cifar100-adam"]["profiles_only"]) == 10


@recorded
def test_coverage_of_the_recorded_profiles(zeus: Trace) -> None:
    report = describe(zeus)
    missing = {(r["gpu_type"], r["workload"]): len(r["missing"]) for r in report["coverage"]}
    assert {key: count for key, count in missing.items() if count} == {
        ("RTX6000", "movielens-1m"): 6
    }
    cifar = next(r for r in report["convergence"] if r["workload"] == "cifar100")
    assert cifar["batch_sizes"][0] == {
        "batch_size": 8,
        "runs": 4,
        "reached": 1.0,
        "mean_epochs": 40.5,
    }
    assert cifar["batch_sizes"][-1]["reached"] == 0
    assert len(report["potential"]) == 24


def text_of(report: Report) -> str:
    out = io.StringIO()
    render(report, Console(file=out, width=150, markup=False))
    return out.getvalue()


@recorded
def test_the_text_of_the_recorded_profiles(zeus: Trace) -> None:
    text = text_of(describe(zeus, gpu_type="A40", eta=1))
    assert_states(
        text, "zeus-nsdi23: ", "recorded", "1609 profiles", "A40: 39 of 453 points", "72.2 %"
    )
    assert "V100" not in text


def test_reports_are_json_and_text() -> None:
    report = describe(generate(SyntheticProfiles(), "syn"))
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert_states(text_of(report), "syn: ", "synthetic")
    odd = report["oddities"]
    assert not any(row["rows"] for row in odd["above_cap"] + odd["slower_at_higher_limit"])


def test_wrong_arguments_are_refused() -> None:
    trace = generate(SyntheticProfiles(), "syn")
    for eta in (-0.1, 1.1, float("nan")):
        with pytest.raises(InputError, match=rf"{eta}.*\[0, 1\]"):
            describe(trace, eta=eta)
    with pytest.raises(ProfileMissing, match=r"'V100'.* 1 x SYN"):
        describe(trace, gpu_type="V100")


def test_savings_are_unknown_if_the_default_never_reaches_the_target() -> None:
    curves = {
        8: Curve(8, (100.0, 200.0), (2.0, 1.0), (90.0, 190.0), (3.0,)),
        16: Curve(16, (100.0, 200.0), (2.0, 1.0), (90.0, 190.0), (float("inf"),)),
    }
    found = potential(Profile("w", "G", 1, 1.0, 10, 16, 200.0, curves), 1.0)
    assert found.default is None
    assert found.power_limit is None
    assert found.both == Choice(8, 100.0, 6.0, 540.0, 540.0, None, None, None)
    assert found.configurations == 4


def test_the_frontier() -> None:
    points = [(1.0, 9.0), (2.0, 5.0), (2.0, 7.0), (3.0, 5.0), (4.0, 1.0)]
    found = frontier(ExpectedCost(1, 1.0, time, energy, 0.0) for time, energy in reversed(points))
    assert [(e.time_s, e.energy_j) for e in found] == [(1.0, 9.0), (2.0, 5.0), (4.0, 1.0)]


def test_jobs() -> None:
    rows = [
        ("1", "a", 0.0, 10.0, 1, "w", 1.0),
        ("2", "a", 5.0, 1.0, 2, "w", 1.0),  # while 1 runs
        ("3", "a", 8.0, 1.0, 2, "v", 2.0),  # while 1 runs, though 2 has ended
        ("4", "a", 10.0, 0.0, 1, "w", 1.0),  # as 1 ends
        ("5", "b", 1.0, None, 4, None, 1.0),
        ("6", "b", 1.0, 2.0, 4, "w", 1.0),  # nobody knows
        ("7", None, 2.0, 8.0, 1, "w", 1.0),
        ("8", "c", 4.0, 8.0, 1, "w", 1.0),
    ]
    names = ("job_id", "group_id", "submit_time_s", "duration_s", "gpus", "workload", "time_scale")
    table = jobs_table(dict(zip(names, zip(*rows, strict=True), strict=True)))
    trace = Trace("j", "jobs", {"jobs": table}, "f", "recorded", "s", "l")
    report = describe(trace)
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert (report["jobs"], report["span_s"], report["busy_gpu_s"]) == (8, 10.0, 38.0)
    assert report["gpus"] == {"1": 4, "2": 2, "4": 2}
    assert report["workloads"] == {"": 1, "v": 1, "w": 6}
    assert report["groups"] == {"number": 3, "without": 1, "of_one_job": 1, "largest": 4}
    assert report["overlap"] == {"jobs": 2, "share": 0.25}
    assert (report["durations_s"]["p0"], report["durations_s"]["p100"]) == (0.0, 10.0)
    assert {row["what"]: row["count"] for row in report["oddities"]} == {
        "jobs without a recorded duration": 1,
        "jobs of no duration": 1,
        "jobs without a workload": 1,
        "groups of more than one workload": 1,
        "jobs submitted at the same time as another one of their group": 2,
        "rows not ordered by submission": 1,
    }
    assert_states(text_of(report), "2 jobs (25 %) start while another")


def jobs_trace(columns: dict, nodes: Sequence[tuple[str, int]] = (), **about: Any) -> Trace:
    """A trace of jobs; times and durations in s, one GPU each unless told."""
    n = len(columns["submit_time_s"])
    defaults = {"job_id": [f"j{row}" for row in range(n)], "gpus": [1] * n}
    tables = {"jobs": jobs_table(defaults | columns)}
    if nodes:
        tables["nodes"] = pa.table(
            {
                "node_id": [f"n{at}" for at in range(len(nodes))],
                "gpu_type": [name for name, _ in nodes],
                "gpus": [gpus for _, gpus in nodes],
            },
            schema=NODES,
        )
    return Trace("j", "jobs", tables, "f", "recorded", "s", "l", **about)


def test_counts_of_the_import_are_reported() -> None:
    quality: dict[str, Any] = {
        "rows": 9,
        "kept": 2,
        "wrong": 3,
        "wrong_examples": ["log.csv, line 4: gpus is 'x', must be a number"],
        "dropped": {"asks for no GPU": 3, "never started": 1},
        "time_origin": "2017-10-03 00:00:00 UTC",
        "time_unit": "date and time",
        "cannot_tell": ["Who submitted a job."],
    }
    report = describe(jobs_trace({"submit_time_s": [0.0, 7.0]}, quality=quality))
    assert report["quality"] == quality
    text = text_of(report)
    assert_states(
        text,
        "9 rows read, ",
        "2 kept, ",
        "3 malformed and skipped, ",
        "4 dropped\n",
        "dropped: 3 asks for no GPU\n",
        "dropped: 1 never started\n",
        f"skipped: {quality['wrong_examples'][0]}\n",
        "skipped: 2 more\n",
        "date and time; ",
        "time 0 is 2017-10-03 00:00:00 UTC\n",
        "cannot tell: Who submitted a job.\n",
    )
    bare = describe(jobs_trace({"submit_time_s": [0.0]}))
    assert bare["quality"] == {}
    assert "no record" in text_of(bare)


def test_arrivals_by_the_clock_of_the_source() -> None:
    # From Tuesday, 2017-10-03, 22:30 for two weeks: one an hour, a second one at 09:10 on Sundays.
    hourly = np.arange(0, 14 * 24) * 3600.0
    sunday = 4 * 86400 + 3600 * 10 + 2400.0
    submit = [*hourly.tolist(), 14 * 86400.0, sunday, sunday + 7 * 86400]
    quality = {"time_origin": "the first submission, 2017-10-03 22:30:00 UTC"}
    found = describe(jobs_trace({"submit_time_s": submit}, quality=quality))["arrivals"]
    assert found["clock"] == quality["time_origin"]
    assert found["per_h"] == pytest.approx(339 / 336)
    assert found["by_hour"] == pytest.approx(
        [15 / 14 if hour == 22 else 16 / 14 if hour == 9 else 1 for hour in range(24)]
    )
    assert found["by_weekday"] == pytest.approx([24, 24.5, 24, 24, 24, 24, 25])
    unknown = describe(jobs_trace({"submit_time_s": submit}))["arrivals"]
    assert unknown["clock"] is None
    assert unknown["by_weekday"] == pytest.approx([24.5, 24, 24, 24, 25, 24, 24])
    short = describe(jobs_trace({"submit_time_s": [0.0, 86399.0]}))["arrivals"]
    assert (short["by_hour"], short["by_weekday"]) == (None, None)
    quality = {"time_origin": "2017-99-03 22:30:00"}
    broken = describe(jobs_trace({"submit_time_s": [0.0]}, quality=quality))
    assert broken["arrivals"]["clock"] is None
    assert broken["arrivals"]["per_h"] is None


def test_load_demand_and_a_cluster() -> None:
    trace = jobs_trace(
        {
            "submit_time_s": [0.0, 5.0, 10.0, 20.0],
            "duration_s": [10.0, 10.0, 10.0, None],
            "gpus": [2, 1, 4, 8],
            "gpu_milli": [1000, 500, 1000, 1000],
        }
    )
    report = describe(trace, gpus=3)
    assert report["busy_gpu_s"] == 65.0
    assert report["load"] == {"mean_gpus": 3.25, "peak_gpus": 4.5, "known_share": 0.75}
    assert report["cluster"] == {
        "gpus": 3,
        "too_large": 2,
        "load": pytest.approx(25 / 60),
        "typed": 0,
        "gpu_types": [],
    }
    assert "name GPU types" not in text_of(report)
    assert [(row["gpus"], row["jobs"], row["gpu_s"]) for row in report["demand"]] == [
        (1, 1, 5.0),
        (2, 1, 20.0),
        (4, 1, 40.0),
        (8, 1, 0.0),
    ]
    assert report["fractions"] == {"jobs": 1, "share": 0.25, "gpu_milli": {"500": 1}}
    assert_states(text_of(report), "a cluster of 3 GPUs: ", "2 jobs are larger", "41.7 %")
    assert describe(trace)["cluster"] is None
    with pytest.raises(InputError, match=r"0.*at least 1"):
        describe(trace, gpus=0)


def test_jobs_against_the_nodes() -> None:
    trace = jobs_trace(
        {
            "submit_time_s": [0.0] * 7,
            "gpus": [1, 3, 5, 4, 7, 12, 1],
            "gpu_type": ["A", "A", "A", "A|B", "A|X", None, "X"],
        },
        nodes=[("A", 2), ("A", 2), ("B", 4)],
    )
    report = describe(trace)
    assert report["nodes"] == {
        "nodes": 3,
        "gpus": 8,
        "types": [
            {"gpu_type": "A", "nodes": 2, "gpus": 4, "largest": 2},
            {"gpu_type": "B", "nodes": 1, "gpus": 4, "largest": 4},
        ],
        "too_large": 3,
        "over_a_node": 1,
        "no_such_type": 1,
    }
    assert report["gpu_types"] == {"": 1, "A": 3, "A|B": 1, "A|X": 1, "X": 1}
    text = text_of(report)
    assert_states(
        text, "3 jobs ask for more GPUs than the nodes", "1 jobs ask for GPU types that no node"
    )


def test_types_that_a_cluster_must_list() -> None:
    kinds = ["A|B", "A", None, "[C]"]
    report = describe(jobs_trace({"submit_time_s": [0.0] * 4, "gpu_type": kinds}), gpus=4)
    assert (report["cluster"]["typed"], report["cluster"]["gpu_types"]) == (3, ["A", "B", "[C]"])
    text = " ".join(text_of(report).split())
    assert_states(text, "3 jobs name GPU types", "(A, B, [C])", "workload.gpu_types: ignore")


def test_numbers_are_plain() -> None:
    columns = {
        "submit_time_s": [0.0, 1e9],
        "duration_s": [0.5, 8_640_000.0],
        "estimate_s": [6e4, 8.64e6],
    }
    text = text_of(describe(jobs_trace(columns)))
    table = text.split("Durations")[1].split("Missing")[0]
    rows = [line.strip("│").split("│") for line in table.splitlines() if line.startswith("│")]
    cells = {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows}
    assert cells["min"] == ["0.500", "", "< 0.001"]
    assert cells["max"] == ["8,640,000", "100.0 d", "1"]
    assert "p0" not in cells
    assert "e-" not in text
    assert "s; licence: l" in text


def test_milliseconds_are_doubted(tmp_path: Path) -> None:
    path = tmp_path / "ms.csv"
    head = "submit_time_s,duration_s,gpus\n"
    path.write_text(head + "1704067200000,3600000,1\n1704067260000,7200000,1\n")
    text = text_of(describe(import_trace("csv", [path])))
    long, late = (line for line in text.splitlines() if "milliseconds" in line)
    assert_states(late, "2 jobs: ", "after the year 2100", "seconds since 1970")
    assert_states(long, "2 jobs: ", "30 days")
    path.write_text(head + "1704067200000,36,1\n1704067260000,7200000,1\n")
    assert "30 days" not in text_of(describe(import_trace("csv", [path])))


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_closed_pipe_is_quiet(inside: Command, tmp_path: Path, form: list[str]) -> None:
    (tmp_path / "one.csv").write_text("submit_time_s,gpus\n0,1\n")
    inside("traces", "import", "csv", "one.csv")
    reader, writer = os.pipe()
    os.close(reader)
    module = [sys.executable, "-m", "wattkeeper.scenarios"]
    arguments = ["traces", "describe", str(tmp_path / "library/one"), *form]
    done = subprocess.run([*module, *arguments], stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (3, b"")


def test_users_estimates_and_repeated_submissions() -> None:
    trace = jobs_trace(
        {
            "submit_time_s": [1.0, 1.0, 1.0, 2.0, 3.0],
            "duration_s": [5.0, 5.0, 6.0, None, 40.0],
            "estimate_s": [5.0, 5.0, 3.0, 1.0, None],
            "user": ["u", "u", "v", "u", None],
            "queue": ["q", "q", "q", "[r]", None],
            "status": ["Pass", "Pass", "Killed", "Pass", "Pass"],
        }
    )
    report = describe(trace)
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert report["users"] == {
        "number": 2,
        "jobs_top_one": 0.75,
        "jobs_top_ten": 1.0,
        "gpu_s_top_one": 0.625,
        "gpu_s_top_ten": 1.0,
    }
    assert report["queues"] == {"": 1, "[r]": 1, "q": 3}
    assert report["statuses"] == {"Killed": 1, "Pass": 4}
    assert report["missing"]["user"] == {"jobs": 1, "share": 0.2}
    assert report["missing"]["group_id"] == {"jobs": 5, "share": 1.0}
    assert report["estimates"] | {"ratio": None} == {
        "jobs": 3,
        "outlived": 1,
        "share": pytest.approx(1 / 3),
        "ratio": None,
    }
    assert report["estimates"]["ratio"]["p100"] == 2.0
    assert report["together"] == {"jobs": 3, "share": 0.6, "largest": 3, "repeated": 1}
    text = text_of(report)
    assert_states(text, "1 of 3 jobs with an estimate (33.3 %)")
    facts, doubts = text.split("Doubts")
    together = "3 jobs (60.0 %) submitted at the same time"
    assert together in facts
    assert together not in doubts
    assert "[r]" in text


times = st.floats(0, 50).map(lambda value: round(value, 1))


@given(st.lists(st.tuples(st.sampled_from(["a", "b", None]), times, st.none() | times), min_size=1))
def test_overlaps_are_those_found_one_by_one(rows: list[tuple]) -> None:
    groups, submits, durations = zip(*rows, strict=True)
    trace = jobs_trace({"group_id": groups, "submit_time_s": submits, "duration_s": durations})
    order = sorted(range(len(rows)), key=lambda row: submits[row])
    found = sum(
        any(
            groups[early] == groups[late] is not None
            and submits[late] < submits[early] + (durations[early] or 0)
            for early in order[:at]
        )
        for at, late in enumerate(order)
    )
    report = describe(trace, gpus=4)
    assert report["overlap"]["jobs"] == found
    json.dumps(report, allow_nan=False)
    moments = [sum(s <= at < s + (d or 0) for _, s, d in rows) for at in (row[1] for row in rows)]
    assert report["load"]["peak_gpus"] == max(moments)
    assert all(len(line) <= 150 for line in text_of(report).splitlines())


def test_many_demands_are_shown_by_powers_of_two() -> None:
    gpus = [*range(1, 15), 100]
    report = describe(jobs_trace({"submit_time_s": [0.0] * 15, "gpus": gpus}))
    rows = [
        [cell.strip() for cell in line.strip("│").split("│")]
        for line in text_of(report).split("GPUs of a job")[1].split("Durations")[0].splitlines()
        if line.startswith("│")
    ]
    assert [row[:2] for row in rows] == [
        ["1", "1"],
        ["2", "1"],
        ["3 to 4", "2"],
        ["5 to 8", "4"],
        ["9 to 16", "6"],
        ["65 to 128", "1"],
    ]


@recorded
def test_recorded_groups() -> None:
    path = SHARED / "reference" / "zeus" / "overlapping_groups.csv.gz"
    report = describe(import_trace("zeus-groups", [path]))
    assert (report["jobs"], report["groups"]["number"]) == (6316, 72)
    assert report["overlap"]["jobs"] == 3178
    assert "6316 jobs" in text_of(report)


def test_recorded_waits_and_load() -> None:
    trace = jobs_trace(
        {
            "submit_time_s": [0.0, 0.0, 100.0, 200.0, 400.0],
            "start_time_s": [0.0, 300.0, 100.0, 7400.0, None],
            "duration_s": [300.0, 100.0, None, 60.0, 60.0],
            "gpus": [4, 1, 2, 16, 1],
            "queue": ["a", "b", "a", "a", "a"],
        }
    )
    report = describe(trace, gpus=8)
    found = report["recorded"]
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert (found["jobs"], found["of"]) == (4, 5)
    assert [(row["by"], row["part"], row["jobs"]) for row in found["waits"]] == [
        ("", "", 4),
        ("size", "1 GPU", 1),
        ("size", "2 to 4 GPUs", 2),
        ("size", "9 to 64 GPUs", 1),
        ("queue", "a", 3),
        ("queue", "b", 1),
    ]
    waits = [0.0, 300.0, 0.0, 7200.0]
    assert found["waits"][0] == {
        "by": "",
        "part": "",
        "jobs": 4,
        "mean_s": 1875.0,
        "median_s": 150.0,
        "p95_s": float(np.percentile(waits, 95)),
    }
    # Jobs with start and duration, from 0 to 400 s: 4 GPUs for 300 s, then one for 100 s; one job
    # waits for 300 s, another one from 200 s on.
    assert found["load"] == {
        "jobs": 3,
        "mean_gpus": 3.25,
        "peak_gpus": 16.0,
        "mean_waiting": 1.25,
        "peak_waiting": 2,
        "mean_share": 3.25 / 8,
        "peak_share": 2.0,
        "above": 0.0,
    }
    text = text_of(report)
    assert_states(
        text,
        "4 of 5 jobs have a recorded start",
        "GPUs in use: 3.2 (40.6 % of 8) on average",
        "16 (200.0 % of 8) at most",
        "jobs waiting: 1.2 on average, 2 at most",
        "31.2 min",
        "2.0 h",
        "queue b",
    )
    smaller = describe(trace, gpus=3)
    assert smaller["recorded"]["load"]["above"] == 0.75
    assert "more than 3 for 75.0 % of the time" in text_of(smaller)
    assert describe(trace)["recorded"]["load"]["mean_share"] is None
    assert "% of 8" not in text_of(describe(trace))
    once = jobs_trace({"submit_time_s": [5.0], "start_time_s": [6.0], "duration_s": [2.0]})
    assert describe(once)["recorded"]["load"]["mean_gpus"] is None
    assert "GPUs in use: 1 at most" in text_of(describe(once))
    bare = describe(jobs_trace({"submit_time_s": [0.0]}))
    assert bare["recorded"] is None
    assert "Recorded" not in text_of(bare)
    startless = jobs_trace({"submit_time_s": [0.0], "start_time_s": [1.0], "duration_s": [None]})
    assert describe(startless)["recorded"]["load"] is None
