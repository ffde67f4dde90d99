"""Power limits of jobs without a profile: modelled by GPU type, in three cases."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.conftest import Command
from tests.support.messages import assert_states
from wattkeeper.scenarios.inputs.measured_energy import MeasuredEnergy, describe_measured
from wattkeeper.traces.gpus.model import BOUNDNESS, curve, find_gpu_model

SCENARIO = """\
name: capped
cluster: {gpu: a100, gpus: 16, gpus_per_node: 8, idle_power_w: 55, busy_power_w: 330}
workload: {kind: trace, trace: some}
variants:
  today: {}
  capped: {policies: {tune: {kind: fixed-power, power_limit_w: 250}}}
baseline: today
"""
LOG = """\
submit_time_s,duration_s,gpus,energy_j
0,7200,8,
10,5000,16,20000000
900,600,4,
"""


@pytest.fixture
def capped(inside: Command, tmp_path: Path) -> Path:
    (tmp_path / "log.csv").write_text(LOG)
    inside("traces", "import", "csv", "log.csv", "--name", "some")
    path = tmp_path / "capped.yaml"
    path.write_text(SCENARIO)
    return path


def test_each_case_follows_the_model(inside: Command, capped: Path) -> None:
    """Power and time of each job are those of the curve at its own power without a limit."""
    inside("run", capped, "--out", "out")
    jobs = pq.read_table("out/jobs.parquet").to_pylist()
    by_case = {(job["variant"], job["job_id"]): job for job in jobs}
    model = find_gpu_model("a100")
    assert model is not None
    power_w = {"1": 330.0 * 8, "2": 20e6 / 5000, "3": 330.0 * 4}
    gpus = {"1": 8, "2": 16, "3": 4}
    for case in BOUNDNESS:
        limited = curve(model, case)
        variant = "capped" if case == "middle" else f"capped ({case})"
        for job_id, busy_w in power_w.items():
            before, after = by_case["today", job_id], by_case[variant, job_id]
            assert before["power_limit_w"] is None
            assert after["power_limit_w"] == 250
            each_w = busy_w / gpus[job_id]
            time_s = before["time_s"] / limited.speed(250, each_w)
            assert after["time_s"] == pytest.approx(time_s)
            energy_j = limited.power_w(250, each_w) * gpus[job_id] * time_s
            assert after["energy_j"] == pytest.approx(energy_j)
            assert before["energy_j"] == pytest.approx(busy_w * before["time_s"])
    slower = [by_case[name, "1"]["time_s"] for name in ("capped (low)", "capped", "capped (high)")]
    assert slower == sorted(slower)
    assert slower[0] < slower[2]


def test_measured_energy_replaces_the_modelled_power(inside: Command, capped: Path) -> None:
    """Below its power need, a limit changes nothing for a job."""
    inside(
        "run", capped, "--out", "out", "--set", "variants.capped.policies.tune.power_limit_w=330"
    )
    jobs = {
        (job["variant"], job["job_id"]): job
        for job in pq.read_table("out/jobs.parquet").to_pylist()
    }
    assert jobs["today", "2"]["energy_j"] == pytest.approx(20e6)
    assert jobs["capped (low)", "2"]["energy_j"] == pytest.approx(20e6)
    manifest = json.loads(Path("out/manifest.json").read_text())
    (text,) = (text for text in manifest["modelled"] if "busy_power_w" in text)
    assert_states(text, "2 of 3 jobs", "neither a profile nor measured energy")


@pytest.mark.parametrize(
    ("gpu_s", "share"), [(4000.0, "100 %"), (3991.0, "99.8 %"), (1000.0, "25 %")]
)
def test_the_share_of_measured_jobs_is_a_plain_number(gpu_s: float, share: str) -> None:
    measured: MeasuredEnergy = {
        "jobs": 2,
        "gpu_s": gpu_s,
        "all_jobs": 3,
        "all_gpu_s": 4000.0,
        "shared_jobs": 0,
        "refused_jobs": 0,
        "refused_gpu_s": 0.0,
    }
    (line,) = describe_measured(measured)
    assert_states(line, f"2 of 3 jobs ({share} of the GPU hours)")


def test_energy_that_the_gpus_cannot_have_drawn_alone_is_not_used(
    inside: Command, capped: Path, tmp_path: Path
) -> None:
    """A meter of whole nodes: 16 GPUs, then 8 of a node, then the same as 8 GPUs at their limit."""
    rows = ["0,5000,16,20000000", "0,1000,8,8000000", "0,1000,8,3200000"]
    (tmp_path / "node.csv").write_text("\n".join(["submit_time_s,duration_s,gpus,energy_j", *rows]))
    inside("traces", "import", "csv", "node.csv", "--name", "node")
    whole = inside(
        "run",
        capped,
        "--out",
        "out",
        "--set",
        "workload.trace=node",
        "--set",
        "variants.capped.policies.tune={kind: power-fraction, fraction: 1}",
    ).stdout
    assert_states(whole, "Measured energy: 2 of 3 jobs", "Measured energy of 1 job", "not used")
    jobs = {
        (job["variant"], job["job_id"]): job
        for job in pq.read_table("out/jobs.parquet").to_pylist()
    }
    assert jobs["today", "1"]["energy_j"] == pytest.approx(20e6)
    assert jobs["today", "2"]["energy_j"] == pytest.approx(8 * 330 * 1000)
    assert jobs["today", "3"]["energy_j"] == pytest.approx(3.2e6)
    for variant in ("capped (low)", "capped", "capped (high)"):
        for number in "123":
            full, limited = jobs["today", number], jobs[variant, number]
            assert limited["energy_j"] == pytest.approx(full["energy_j"])
            assert limited["time_s"] == pytest.approx(full["time_s"])
    manifest = json.loads(Path("out/manifest.json").read_text())
    assert manifest["measured"]["refused_jobs"] == 1
    assert manifest["measured"]["shared_jobs"] == 0


def test_a_stated_case_is_the_only_one(inside: Command, capped: Path) -> None:
    inside("run", capped, "--out", "out", "--set", "variants.capped.boundness=high")
    summary = json.loads(Path("out/summary.json").read_text())
    assert list(summary["variants"]) == ["today", "capped"]
    modelled = json.loads(Path("out/manifest.json").read_text())["modelled"]
    assert any("fitted from" in text for text in modelled)
    assert "low, middle" not in "".join(modelled)


def test_the_manifest_says_what_is_modelled(inside: Command, capped: Path) -> None:
    inside("run", capped, "--out", "out")
    manifest = json.loads(Path("out/manifest.json").read_text())
    (limited,) = (text for text in manifest["modelled"] if "fitted from" in text)
    assert_states(limited, "A100-SXM4", "low, middle and high")


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        (["cluster.gpu=foo"], ("'foo'", "cluster.gpu_model", "A100-SXM4", "'capped'")),
        (["variants.capped.policies.tune.power_limit_w=900"], ("900 W", "100 to 400 W")),
        (["variants.capped.policies.tune.power_limit_w=250.5"], ("250.5 W", "100 to 400 W")),
        (
            ["variants.capped.policies.tune={kind: power-fraction, fraction: 0.1}"],
            ("40 W", "100 to 400 W"),
        ),
        (["variants.capped.policies.tune=zeus-jit"], ("zeus-jit would touch no job",)),
        (["variants.capped.policies={configure: zeus}"], ("zeus would touch no job",)),
    ],
)
def test_a_limit_without_effect_or_model_is_refused(
    inside: Command, capped: Path, settings: list[str], facts: tuple[str, ...]
) -> None:
    words = [word for setting in settings for word in ("--set", setting)]
    refused = inside("validate", capped, *words, code=2)
    assert_states(refused.stderr, *facts)


def test_a_named_model_is_used(inside: Command, capped: Path) -> None:
    inside("validate", capped, "--set", "cluster.gpu=foo", "--set", "cluster.gpu_model=V100")
