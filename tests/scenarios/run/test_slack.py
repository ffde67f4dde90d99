"""Deadlines by slack: relative to the time at the batch size that jobs run at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.conftest import Command
from tests.support.messages import assert_states
from wattkeeper.scenarios.kinds.profiles import longest_run_times
from wattkeeper.traces.generate.synthetic import SyntheticProfiles, generate
from wattkeeper.traces.profiles import load_profiles

SLACK = 0.25


def run_sets(command: Command, *sets: str) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Jobs, and the comparison by variant, of the shipped scenario with a few jobs."""
    sets = ("workload.recurrences=2", f"workload.slack={SLACK}", *sets)
    command("run", "carbon-deadlines", "--out", "out", *(x for s in sets for x in ("--set", s)))
    summary = json.loads(Path("out/summary.json").read_text(encoding="utf-8"))
    return pd.read_parquet("out/jobs.parquet"), summary["deadlines"]["variants"]


def allowed_s(jobs: pd.DataFrame, variant: str) -> float:
    """Time from submission to deadline, s, the same for all jobs."""
    own = jobs[jobs["variant"] == variant]
    values = own["deadline_s"] - own["submit_time_s"]
    assert values.max() == pytest.approx(values.min())
    return float(values.max())


def time_s(jobs: pd.DataFrame, variant: str) -> float:
    """Time that each job trains, s."""
    (value,) = set(jobs[jobs["variant"] == variant]["time_s"])
    return float(value)


@pytest.mark.parametrize("batch_size", [128, 1024])
def test_slack_is_relative_to_the_batch_size_that_is_fixed(
    inside: Command, batch_size: int
) -> None:
    jobs, compared = run_sets(
        inside, f"policies.configure={{kind: fixed, batch_size: {batch_size}}}"
    )
    assert set(jobs["batch_size"]) == {batch_size}
    full_s = time_s(jobs, "full")
    assert allowed_s(jobs, "full") == pytest.approx((1 + SLACK) * full_s)
    assert compared["full"]["allowed"] == pytest.approx(1 + SLACK)
    at_default, _ = run_sets(inside)
    assert time_s(at_default, "full") != pytest.approx(full_s, rel=0.02)


def test_variants_of_several_batch_sizes_have_the_deadlines_of_the_baseline(
    inside: Command,
) -> None:
    sets = (
        "policies.configure={kind: fixed, batch_size: 128}",
        "variants.other={policies: {configure: {kind: fixed, batch_size: 256}}}",
        "variants.bandit={policies: {configure: grid-search}}",
    )
    jobs, compared = run_sets(inside, *sets)
    due_s = allowed_s(jobs, "full")
    assert due_s == pytest.approx((1 + SLACK) * time_s(jobs, "full"))
    assert [allowed_s(jobs, name) for name in compared] == pytest.approx([due_s] * len(compared))
    assert compared["other"]["allowed"] == pytest.approx(due_s / time_s(jobs, "other"))
    assert compared["other"]["allowed"] != pytest.approx(1 + SLACK, abs=0.01)
    page = Path("out/report.html").read_text(encoding="utf-8")
    assert_states(page, "deadline / run time", f"<b>{compared['other']['allowed']:.2f}</b>")


def test_slack_is_relative_to_the_default_where_the_baseline_fixes_no_batch_size(
    inside: Command,
) -> None:
    default, _ = run_sets(inside)
    assert allowed_s(default, "full") == pytest.approx((1 + SLACK) * time_s(default, "full"))
    chosen, _ = run_sets(
        inside,
        "variants.full={policies: {configure: grid-search}}",
        "variants.static.policies.configure={kind: fixed, batch_size: 128}",
    )
    assert allowed_s(chosen, "full") == pytest.approx(allowed_s(default, "full"))


def test_intervals_by_run_times_follow_the_fixed_batch_size(inside: Command) -> None:
    jobs, _ = run_sets(
        inside,
        "policies.configure={kind: fixed, batch_size: 128}",
        "workload.every_s=null",
        "workload.every_runs=2",
        "bound=null",
    )
    own = jobs[jobs["variant"] == "full"].sort_values("recurrence")
    assert own["submit_time_s"].diff().iloc[-1] == pytest.approx(2 * time_s(jobs, "full"))


def test_a_fixed_batch_size_without_a_profile_is_refused(inside: Command) -> None:
    for more in ((), ("--set", "workload.every_s=null", "--set", "workload.every_runs=2")):
        said = inside(
            "run",
            "carbon-deadlines",
            *more,
            "--set",
            "policies.configure={kind: fixed, batch_size: 100}",
            code=2,
        )
        assert_states(said.stderr, "100", "128, 256, 512")


def test_slack_that_changes_nothing_is_refused(inside: Command, tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(
        "job_id,submit_time_s,duration_s,gpus,deadline_s\na,0,60,1,90\nb,10,60,1,200\n"
    )
    inside("traces", "import", "csv", "jobs.csv", "--name", "due")
    scenario = (
        "name: due\ncluster: {gpu: A40, gpus: 2, idle_power_w: 0, busy_power_w: 250}\n"
        "workload: {kind: trace, trace: due, slack: 1}\n"
        "variants: {full: {}}\nbaseline: full\n"
    )
    (tmp_path / "due.yaml").write_text(scenario)
    said = inside("run", "due.yaml", code=2)
    assert_states(said.stderr, "due.yaml:3", "slack", "deadline")
    inside("run", "due.yaml", "--set", "workload.slack=null", "--out", "out")


def test_slack_of_a_job_is_that_of_its_number_of_gpus() -> None:
    """A workload that was recorded on one GPU and on two has two run times."""
    profile = load_profiles(generate(SyntheticProfiles(), "synthetic"), "SYN-250W", 1).get("image")
    curves = {
        size: curve._replace(time_per_epoch_s=tuple(t / 2 for t in curve.time_per_epoch_s))
        for size, curve in profile.curves.items()
    }
    two = profile._replace(curves=curves)
    longest_s = longest_run_times({("image", 1, "A"): profile, ("image", 2, "A"): two}, None)
    assert longest_s["image", 1] == pytest.approx(2 * longest_s["image", 2])


def test_slack_of_a_live_run_with_commands_is_refused(inside: Command) -> None:
    said = inside("run", "live-smoke", "--live", "--set", "workload.slack=1", code=2)
    assert_states(said.stderr, "slack", "command")
