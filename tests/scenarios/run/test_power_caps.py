"""A power cap that follows a signal through the command, as its page shows it."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from tests.conftest import ROOT, Command
from tests.support.messages import assert_states

PAGE = (ROOT / "docs/power-caps.md").read_text(encoding="utf-8")
(SCENARIO,) = re.findall(r"^```yaml\n(name: .*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
FIGURES = PAGE.partition("## What sharing brings")[2]
CAPS_W = ((0.0, 1000.0), (600.0, 460.0), (9000.0, 700.0))
"""Start and value of each slot of the page's signal."""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    """The scenario of the page."""
    path = tmp_path / "shares.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    return path


def hours(variant: pd.DataFrame) -> tuple[float, float]:
    """When jobs end, h: the mean, and the last one."""
    end_s = variant["finish_time_s"]
    return end_s.mean() / 3600, end_s.max() / 3600


def test_shares_by_marginal_gain_are_faster(
    inside: Command, scenario: Path, tmp_path: Path
) -> None:
    inside("run", scenario, "--out", tmp_path / "out")
    jobs = pd.read_parquet(tmp_path / "out/jobs.parquet")
    assert jobs["reached_target"].all()
    ends = {str(name): hours(rows) for name, rows in jobs.groupby("variant")}
    energy_mj = jobs.groupby("variant")["energy_j"].sum() / 1e6
    for name, (mean_h, last_h) in ends.items():
        row = next(line for line in FIGURES.splitlines() if re.match(rf"\| .*`{name}`", line))
        assert_states(row, f"{mean_h:.1f} h", f"{last_h:.2f} h", f"{energy_mj[name]:.2f} MJ")
    assert ends["marginal"] < ends["common"] == ends["proportional"] < ends["preempt"]
    retunes = jobs.groupby("variant")["retunes"].sum()
    assert (retunes[["marginal", "common", "proportional"]] > 0).all()
    preemptions = jobs.groupby("variant")["preemptions"].sum()
    assert preemptions.to_dict() == {"common": 0, "marginal": 0, "preempt": 3, "proportional": 0}
    timeline = pd.read_parquet(tmp_path / "out/timeline.parquet")
    for _, line in timeline.groupby("variant"):
        for since_s, cap_w in CAPS_W:
            begins, ends_s = line["time_s"], line["time_s"].shift(-1, fill_value=float("inf"))
            until_s = min((start_s for start_s, _ in CAPS_W if start_s > since_s), default=1e9)
            in_force = (begins < until_s) & (ends_s > since_s)
            assert line.loc[in_force, "power_w"].max() <= cap_w
    decisions = pd.read_parquet(tmp_path / "out/decisions.parquet")
    by_cap = decisions[decisions["point"] == "cap"]
    of_policy = {name: rows["policy"].unique().tolist() for name, rows in by_cap.groupby("variant")}
    assert of_policy == {name: ["preempt" if name == "preempt" else "limits"] for name in ends}
    shared = by_cap[by_cap["policy"] == "limits"]
    assert len(shared) == retunes.sum()
    parts = shared["chose"].str.extract(r"^power_limit_w=([\d.]+) share_w=([\d.]+)$").astype(float)
    fallen = shared.assign(share_w=parts[1])[shared["time_s"] == 600]
    unused = CAPS_W[1][1] - fallen.groupby("variant")["share_w"].sum()
    assert unused.to_dict() == {"common": 60.0, "marginal": 10.0, "proportional": 60.0}
    assert_states(FIGURES, "60 W unused", "`marginal` leaves 10 W")


@pytest.mark.parametrize(
    ("setting", "facts"),
    [
        ("signals={}", ("power_cap_w", "'cap'", "signals.cap")),
        ("signals.cap.series.steps=[[0, 100]]", ("power_cap_w", "'cap'", "100 W", "160 W")),
        ("cluster.power_cap_w.obey=shed", ("obey", "preempt", "limits", "shed")),
        ("signals.other={series: 1}", ("'other'",)),
        ("signals.cap.unit=EUR", ("power_cap_w", "'cap'", "EUR", "W, kW, MW")),
        (
            "signals.cap.series.steps=[[0, 200], [600, 300]]",
            (
                "power_cap_w",
                "'cap'",
                "300 W",
                "600 s",
                "'dense'",
                "1 GPU at up to",
                "idle at 120 W",
            ),
        ),
        ("signals.cap.series.steps=[[-9, 300], [0, 200]]", ("200 W", "'dense'")),
    ],
)
def test_what_cannot_be_obeyed_is_refused(
    inside: Command, scenario: Path, setting: str, facts: tuple[str, ...]
) -> None:
    done = inside("validate", scenario, "--set", setting, code=2)
    assert_states(done.stderr, *facts)


@pytest.mark.parametrize(("unit", "factor"), [("kW", 1e-3), ("MW", 1e-6)])
def test_a_cap_may_be_in_other_units_of_power(
    inside: Command, scenario: Path, tmp_path: Path, unit: str, factor: float
) -> None:
    steps = [[time_s, cap_w * factor] for time_s, cap_w in CAPS_W]
    inside("run", scenario, "--out", tmp_path / "w")
    inside(
        "run",
        scenario,
        "--out",
        tmp_path / "other",
        "--set",
        f"signals.cap.unit={unit}",
        "--set",
        f"signals.cap.series.steps={steps}",
    )
    ours, others = (pd.read_parquet(tmp_path / name / "jobs.parquet") for name in ("w", "other"))
    pd.testing.assert_frame_equal(ours, others)


def test_a_cap_before_the_run_does_not_count(inside: Command, scenario: Path) -> None:
    inside("validate", scenario, "--set", "signals.cap.series.steps=[[-9, 10], [0, 1000]]")


def test_live_runs_refuse_a_cap_that_changes(inside: Command, scenario: Path) -> None:
    done = inside("run", scenario, "--live", code=2)
    assert_states(done.stderr, "power_cap_w", "simulated runs", "a number")
