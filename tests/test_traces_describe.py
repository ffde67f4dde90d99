"""The report: the published optimum, the paper's figure 1, and what is odd in recorded data."""

import csv
import io
import json
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

from wattkeeper.policies.errors import InputError, ProfileMissing
from wattkeeper.policies.profile import Curve, Expected, Profile
from wattkeeper.traces.describe import Report, describe, render
from wattkeeper.traces.formats import import_trace
from wattkeeper.traces.potential import Choice, Potential, frontier, potential
from wattkeeper.traces.profiles import load_profiles
from wattkeeper.traces.schema import JOBS
from wattkeeper.traces.synthetic import SyntheticProfiles, generate
from wattkeeper.traces.trace import Trace

SHARED = Path(__file__).resolve().parents[2] / "shared"
ORACLE = SHARED / "reference" / "zeus" / "oracle_optimum.csv"
recorded = pytest.mark.skipif(not ORACLE.is_file(), reason="the recorded Zeus traces are not here")


@pytest.fixture(scope="module")
def zeus() -> Trace:
    return import_trace("zeus-nsdi23", [SHARED / "data" / "zeus-nsdi23"])


def oracle_row(profile: Profile, found: Potential) -> dict[str, float]:
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
    render(report, Console(file=out, width=150))
    return out.getvalue()


@recorded
def test_the_text_of_the_recorded_profiles(zeus: Trace) -> None:
    text = text_of(describe(zeus, gpu_type="A40", eta=1))
    assert "zeus-nsdi23: profiles, recorded, 1609 profiles" in text
    assert "A40: 39 of 453 points draw more than their cap" in text
    assert "72.2 %" in text
    assert "V100" not in text


def test_reports_are_json_and_text() -> None:
    report = describe(generate(SyntheticProfiles(), "syn"))
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert "syn: profiles, synthetic" in text_of(report)
    odd = report["oddities"]
    assert not any(row["rows"] for row in odd["above_cap"] + odd["slower_at_higher_limit"])


def test_wrong_questions() -> None:
    trace = generate(SyntheticProfiles(), "syn")
    for eta in (-0.1, 1.1, float("nan")):
        with pytest.raises(InputError, match="must be in"):
            describe(trace, eta=eta)
    with pytest.raises(ProfileMissing, match=r"on GPU type 'V100'\. There are: 1 x SYN"):
        describe(trace, gpu_type="V100")


def test_a_default_that_never_reaches_saves_nothing_known() -> None:
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
    found = frontier(Expected(1, 1.0, time, energy, 0.0) for time, energy in reversed(points))
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
    table = pa.Table.from_pylist(
        [dict(zip(JOBS.names, row, strict=True)) for row in rows], schema=JOBS
    )
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
    assert "2 jobs (25 %) start while another one of their group runs" in text_of(report)


@recorded
def test_recorded_groups() -> None:
    path = SHARED / "reference" / "zeus" / "overlapping_groups.csv.gz"
    report = describe(import_trace("zeus-groups", [path]))
    assert (report["jobs"], report["groups"]["number"]) == (6316, 72)
    assert report["overlap"]["jobs"] == 3178
    assert "6316 jobs submitted over" in text_of(report)
