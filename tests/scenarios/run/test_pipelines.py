"""Pipeline-parallel jobs through the command, against the published outputs of Perseus."""

from __future__ import annotations

from csv import DictReader
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from tests.conftest import Command
from tests.support.messages import assert_states
from wattkeeper.scenarios.spec.loading import load

SCENARIO = """\
name: pipes
cluster: {{gpu: A40, gpus: 16, gpus_per_node: 4, idle_power_w: 20}}
workload:
  kind: pipeline
  profile: {profile}
  microbatches: 8
  iterations: 100
  blocking_power_w: 75.5
  {more}
objective: {{eta: 1}}
variants:
  highest: {{}}
  lowest: {{policies: {{tune: {{kind: fixed-clock, clock_mhz: lowest}}}}}}
  perseus: {{policies: {{tune: {{kind: perseus, unit_time_s: {unit_s}}}}}}}
  exact: {{policies: {{tune: pipeline-exact}}}}
baseline: highest
"""
MADE_UP = "{synthetic: {}}"


def rows_of(shared: Path, name: str) -> list[dict[str, str]]:
    path = shared / "reference/perseus" / name
    with path.open(encoding="utf-8", newline="") as file:
        return list(DictReader(file))


def run(
    inside: Command,
    *options: str,
    profile: str | Path = MADE_UP,
    more: str = "",
    unit_s: float = 5e-3,
) -> dict[tuple[str, str], dict[str, Any]]:
    """The jobs by variant and name."""
    Path("pipes.yaml").write_text(SCENARIO.format(profile=profile, more=more, unit_s=unit_s))
    inside("run", "pipes.yaml", "--out", "out", *options)
    rows = pq.read_table("out/jobs.parquet").to_pylist()
    return {(row["variant"], row["job_id"]): row for row in rows}


def test_the_published_energies(inside: Command, shared: Path) -> None:
    """Of all clocks highest, all lowest, and the fastest plan of Perseus (u = 5 ms)."""
    jobs = "jobs: [{name: m4, microbatches: 4}, {name: m8}]"
    profile = shared / "data/perseus/bert_a40_pp4_inst_profile.csv"
    ran = run(inside, profile=profile, more=jobs)
    columns = {"highest": "maxfreq", "lowest": "min_energy", "perseus": "perseus_fast"}
    rows = rows_of(shared, "summary.csv")
    assert len(rows) == 2
    for row in rows:
        for variant, column in columns.items():
            job = ran[variant, f"m{row['microbatches']}"]
            assert job["epochs"] == 100
            assert job["time_s"] / 100 == pytest.approx(float(row[f"{column}_time"]), abs=1e-4)
            assert job["energy_j"] / 100 == pytest.approx(float(row[f"{column}_J"]), abs=0.01)
        exact, published = (ran[name, f"m{row['microbatches']}"] for name in ("exact", "perseus"))
        assert exact["energy_j"] < 0.999 * published["energy_j"]
        assert exact["time_s"] / 100 <= float(row["maxfreq_time"]) + 1e-4


@pytest.mark.slow
def test_the_published_stragglers(inside: Command, shared: Path) -> None:
    """Iterations that wait for a straggler, at the highest clocks and by Perseus (u = 1 ms)."""
    rows = rows_of(shared, "straggler_m8_u1ms.csv")
    factors = [row["straggler_slowdown"] for row in rows]
    names = [f"x{factor}" for factor in factors]
    changes = ", ".join(
        f"{{at_s: 0, job: {name}, factor: {factor}}}"
        for name, factor in zip(names, factors, strict=True)
    )
    jobs = ", ".join(f"{{name: {name}}}" for name in names)
    more = f"jobs: [{jobs}]\n  stragglers: [{changes}]"
    profile = shared / "data/perseus/bert_a40_pp4_inst_profile.csv"
    ran = run(inside, profile=profile, more=more, unit_s=1e-3)
    for name, row in zip(names, rows, strict=True):
        for variant, column in (("perseus", "perseus_J"), ("highest", "maxfreq_J")):
            job = ran[variant, name]
            assert job["time_s"] / 100 == pytest.approx(float(row["iteration_time_s"]), abs=2e-4)
            # Without a straggler, nothing waits for T0: 0.03 J less than in the table.
            assert job["energy_j"] / 100 == pytest.approx(float(row[column]), abs=0.04)
        assert ran["exact", name]["energy_j"] < ran["perseus", name]["energy_j"]


def test_drawn_stragglers_are_the_same_for_all_variants(inside: Command) -> None:
    more = "stragglers: {mean_gap_s: 20, mean_length_s: 10, mean_excess: 0.5}"
    ran = run(inside, "--seeds", "2", more=more)
    digest = (Path("out") / "jobs.parquet").read_bytes()
    highest, perseus = (ran[variant, "pipeline"] for variant in ("highest", "perseus"))
    assert perseus["energy_j"] < 0.97 * highest["energy_j"]
    assert perseus["time_s"] == pytest.approx(highest["time_s"], rel=0.02)
    assert perseus["retunes"] > 3
    assert run(inside, "--seeds", "2", more=more) == ran
    assert (Path("out") / "jobs.parquet").read_bytes() == digest


@pytest.mark.parametrize(
    ("more", "gpus"),
    [
        ("schedule: gpipe", 4),
        ("schedule: {kind: gpipe, backwards: first-first}", 4),
        ("schedule: {kind: interleaved, chunks: 2}", 2),
        ("gpus_per_stage: 3", 12),
    ],
)
def test_schedules(inside: Command, more: str, gpus: int) -> None:
    ran = run(inside, more=more)
    highest, perseus = (ran[variant, "pipeline"] for variant in ("highest", "perseus"))
    assert highest["gpus"] == gpus
    assert perseus["energy_j"] < highest["energy_j"]
    # Its fastest plan may be slower by the unit in which it counts time.
    assert perseus["time_s"] <= highest["time_s"] * 1.01


GOOD_ROWS = (
    "stage,instruction,frequency,time,energy\n0,forward,1410,0.05,10\n0,backward,1410,0.1,20\n"
)


@pytest.mark.parametrize(
    ("rows", "facts"),
    [
        (GOOD_ROWS + "1,sideways,1410,0.1,20\n", ("row 3", "'sideways'", "forward", "backward")),
        (GOOD_ROWS + "1,forward,1410,-0.1,20\n", ("row 3", "time", "> 0")),
        (GOOD_ROWS + "1,forward,fast,0.1,20\n", ("row 3", "frequency", "fast")),
        (GOOD_ROWS + "0,forward,1410,0.1,20\n", ("row 3", "row 1")),
        (GOOD_ROWS + "1,forward,1410,0.1,20\n", ("stage 1", "backward")),
        (GOOD_ROWS.replace("energy", "joules"), ("energy",)),
    ],
)
def test_broken_points(inside: Command, rows: str, facts: tuple[str, ...]) -> None:
    Path("points.csv").write_text(rows)
    text = SCENARIO.format(profile="points.csv", more="", unit_s=0.005)
    Path("pipes.yaml").write_text(text)
    done = inside("run", "pipes.yaml", "--out", "out", code=2)
    assert_states(done.stderr, "points.csv", *facts)


@pytest.mark.parametrize(
    ("more", "facts"),
    [
        ("schedule: zigzag", ("9:", "schedule", "zigzag", "1f1b")),
        ("schedule: {kind: interleaved, chunks: 3}", ("9:", "chunks", "3", "4 stages")),
        ("schedule: {kind: 1f1b, chunks: 2}", ("9:", "chunks", "interleaved")),
        ("stragglers: [{at_s: 1, job: a, factor: 2}]", ("'a'", "pipeline")),
        ("stragglers: [{at_s: 1, job: pipeline, factor: 0.5}]", ("9:", "factor", "1")),
        ("jobs: [{name: a}, {name: a}]", ("'a'", "twice")),
        ("gpus_per_stage: 5", ("20 GPUs", "16")),
    ],
)
def test_refused_keys(inside: Command, more: str, facts: tuple[str, ...]) -> None:
    Path("pipes.yaml").write_text(SCENARIO.format(profile=MADE_UP, more=more, unit_s=0.005))
    done = inside("run", "pipes.yaml", "--out", "out", code=2)
    assert_states(done.stderr, "pipes.yaml", *facts)


def test_clocks_need_a_pipeline(inside: Command) -> None:
    setting = "variants.default.policies.tune=perseus"
    done = inside("run", "quickstart", "--set", setting, "--out", "out", code=2)
    assert_states(done.stderr, "perseus", "workload.kind: pipeline")


def test_a_clock_that_was_not_measured(inside: Command) -> None:
    text = SCENARIO.format(profile=MADE_UP, more="", unit_s=0.005)
    Path("pipes.yaml").write_text(text.replace("clock_mhz: lowest", "clock_mhz: 1000"))
    done = inside("run", "pipes.yaml", "--out", "out", code=2)
    assert_states(done.stderr, "pipes.yaml:13:", "1000 MHz", "810", "1410")


def test_it_is_not_run_live(inside: Command) -> None:
    Path("pipes.yaml").write_text(SCENARIO.format(profile=MADE_UP, more="", unit_s=0.005))
    assert load("pipes.yaml").scenario.workload.kind == "pipeline"
    done = inside("run", "pipes.yaml", "--live", "--out", "out", code=2)
    assert_states(done.stderr, "pipes.yaml:4:", "kind pipeline", "--live", "live-pipeline.md")


CAPPED = """\
name: capped
cluster:
  gpu: A40
  gpus: 28
  gpus_per_node: 4
  idle_power_w: 20
  power_cap_w: {{signal: cap, obey: limits}}
workload:
  kind: pipeline
  profile: {profile}
  blocking_power_w: 75.5
  microbatches: 8
  iterations: 100
  jobs:
    - {{name: a, microbatches: 2, iterations: 1600}}
    - {{name: b, iterations: 700}}
    - {{name: c, microbatches: 32, iterations: 200}}
    - {{name: d, profile: {longer}, iterations: 550}}
    - {{name: e, profile: {longer}, microbatches: 32, iterations: 200}}
signals:
  cap: {{series: {{steps: [[0, 9000], [60, {cap_w}]]}}, unit: W}}
objective: {{eta: 1}}
variants:
  free: {{cluster: {{power_cap_w: null}}}}
  marginal: {{}}
  proportional: {{cluster: {{power_cap_w: {{signal: cap, obey: limits, share: proportional}}}}}}
  common: {{cluster: {{power_cap_w: {{signal: cap, obey: limits, share: common}}}}}}
baseline: free
"""


@pytest.mark.slow
def test_pipelines_share_a_cap_by_marginal_gain(inside: Command, shared: Path) -> None:
    """Five recorded jobs at 80 % of what they draw; weighted by GPUs, speeds fall least."""
    profile = shared / "data/perseus/bert_a40_pp4_inst_profile.csv"
    head, *rows = profile.read_text(encoding="utf-8").splitlines()
    repeated = [f"{int(stage) + 4},{rest}" for stage, _, rest in (r.partition(",") for r in rows)]
    Path("longer.csv").write_text("\n".join([head, *rows, *repeated]) + "\n", encoding="utf-8")
    text = CAPPED.format(profile=profile, longer="longer.csv", cap_w=2870)
    Path("capped.yaml").write_text(text, encoding="utf-8")
    inside("run", "capped.yaml", "--out", "out")
    jobs = pd.read_parquet("out/jobs.parquet")
    assert jobs.reached_target.all()
    line = pd.read_parquet("out/timeline.parquet")
    most_w = {name: own[own.time_s >= 60].power_w.max() for name, own in line.groupby("variant")}
    assert most_w["free"] > 2870 >= max(most_w[name] for name in SHARES)
    free_s = jobs[jobs.variant == "free"].set_index("job_id").time_s
    speeds = {}
    for name in SHARES:
        own = jobs[jobs.variant == name].set_index("job_id")
        speeds[name] = float(np.average(free_s[own.index] / own.time_s, weights=own.gpus))
    assert speeds["marginal"] > speeds["proportional"] > speeds["common"]
    assert (jobs.groupby("variant").retunes.sum()[list(SHARES)] > 0).all()


SHARES = ("marginal", "proportional", "common")


def test_a_cap_that_no_pipeline_can_keep_is_refused(inside: Command) -> None:
    text = SCENARIO.format(profile=MADE_UP, more="", unit_s=0.1)
    Path("pipes.yaml").write_text(text, encoding="utf-8")
    shown = inside("run", "pipes.yaml", "--set", "cluster.power_cap_w=700", code=2).stderr
    assert_states(shown, "power_cap_w", "'pipeline'", "700 W", "4 GPUs")
