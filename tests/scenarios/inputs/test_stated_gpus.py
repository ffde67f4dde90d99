"""GPUs that a user states: facts or a sweep in place of a type that is known."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import Command
from tests.support.messages import assert_states
from tests.support.slurm_logs import draw_jobs, first_that_fits, write_sacct
from wattkeeper.traces.gpus.model import find_gpu_model, model_sweep
from wattkeeper.traces.gpus.sweep import LimitPoint, SweepCurve

SCENARIO = """\
name: stated
cluster: {gpu: %s, gpus: 16, gpus_per_node: 8, idle_power_w: 95, busy_power_w: 500, gpu_model: %s}
workload: {kind: trace, trace: some}
variants:
  today: {}
  capped: {policies: {tune: {kind: fixed-power, power_limit_w: %s}}}
baseline: today
"""
FACTS = "{memory: hbm, min_limit_w: 200, default_limit_w: 700}"
LOG = "submit_time_s,duration_s,gpus,energy_j\n0,7200,8,\n10,5000,16,20000000\n900,600,4,\n"
SWEEP = "limit_w,power_w,speed\n300,290,0.7\n500,430,0.95\n700,500,1\n"
ROWS = "[{limit_w: 300, power_w: 290, speed: 0.7}, {limit_w: 500, power_w: 430, speed: 0.95}, "
ROWS += "{limit_w: 700, power_w: 500, speed: 1}]"


def write(folder: Path, gpu: str, model: str, limit: str = "400", log: str = LOG) -> Path:
    path = folder / f"{gpu}.yaml"
    path.write_text(SCENARIO % (gpu, model, limit))
    (folder / "log.csv").write_text(log)
    return path


def test_stated_facts_give_what_a_known_type_with_them_gives(
    inside: Command, tmp_path: Path
) -> None:
    for gpu, model in (("h100", "h100"), ("mine", FACTS)):
        path = write(tmp_path, gpu, model)
        inside("traces", "import", "csv", "log.csv", "--name", "some", "--replace")
        inside("run", path, "--out", gpu)
    tables = [pq.read_table(f"{gpu}/jobs.parquet").drop(["gpu_type"]) for gpu in ("h100", "mine")]
    assert tables[0].equals(tables[1])
    for name in ("timeline.parquet", "decisions.parquet"):
        own, known = (Path(gpu, name).read_bytes() for gpu in ("mine", "h100"))
        if name == "timeline.parquet":
            assert own == known
    summaries = [json.loads(Path(gpu, "summary.json").read_text()) for gpu in ("h100", "mine")]
    assert summaries[0]["variants"] == summaries[1]["variants"]


@pytest.mark.parametrize("sweep", [ROWS, "mine.csv"])
def test_a_sweep_says_what_a_limit_changes(inside: Command, tmp_path: Path, sweep: str) -> None:
    """Job 2 draws half of what the recorded load does: a limit acts on it as one twice as high."""
    (tmp_path / "mine.csv").write_text(SWEEP)
    path = write(tmp_path, "mine", f"{{sweep: {sweep}}}", "300")
    inside("traces", "import", "csv", "log.csv", "--name", "some")
    inside("run", path, "--out", "out")
    jobs = pq.read_table("out/jobs.parquet").to_pylist()
    by_id = {(job["variant"], job["job_id"]): job for job in jobs}
    assert {job["variant"] for job in jobs} == {"today", "capped"}, "one case: nothing is modelled"
    assert by_id["capped", "1"]["time_s"] == pytest.approx(7200 / 0.7)
    assert by_id["capped", "1"]["energy_j"] == pytest.approx(7200 / 0.7 * 290 * 8)
    curve = SweepCurve(
        [LimitPoint(300, 290, 0.7), LimitPoint(500, 430, 0.95), LimitPoint(700, 500, 1)]
    )
    power_w, speed = curve.under_limit(300, 250)
    assert 430 / 2 < power_w < 500 / 2
    assert by_id["capped", "2"]["time_s"] == pytest.approx(5000 / speed)
    assert by_id["capped", "2"]["energy_j"] == pytest.approx(5000 / speed * power_w * 16)
    scenario = json.loads(Path("out/manifest.json").read_text())["scenario"]
    assert len(scenario["cluster"]["gpu_model"]["sweep"]) == 3


@pytest.mark.parametrize(
    ("model", "limit", "log", "facts"),
    [
        (f"{{sweep: {ROWS}}}", "299", LOG, ("299 W", "300 to 700 W")),
        (f"{{sweep: {ROWS}}}", "300", f"{LOG}0,100,1,60000\n", ("300 W", "360 to 700 W")),
        (
            f"{{sweep: {ROWS.replace('430', '270').replace('power_w: 500', 'power_w: 290')}}}",
            "600",
            f"{LOG}0,100,1,69000\n",
            ("290 W", "690 W", "without a limit"),
        ),
        ("{sweep: [{limit_w: 300, power_w: 290, speed: 1}]}", "300", LOG, ("sweep", "1", "2")),
        (f"{{sweep: {ROWS.replace('500', '300', 1)}}}", "300", LOG, ("limit_w 300", "twice")),
        (f"{{sweep: {ROWS}, memory: hbm}}", "300", LOG, ("memory", "beside sweep")),
        ("{memory: hbm}", "300", LOG, ("default_limit_w", "missing", "sweep")),
        ("{memory: sram, default_limit_w: 700}", "300", LOG, ("memory", "'sram'", "gddr")),
        (
            "{memory: hbm, default_limit_w: 700, min_limit_w: 800}",
            "300",
            LOG,
            ("min_limit_w, 800 W", "above", "700 W"),
        ),
        (
            "{memory: hbm, default_limit_w: 700}",
            "300",
            LOG,
            ("lowest power limit", "not recorded", "cluster.gpu_model"),
        ),
        ("{memory: hbm, default_limit_w: 400}", "300", LOG, ("busy_power_w", "500 W", "400 W")),
        ("{sweep: absent.csv}", "300", LOG, ("sweep", "absent.csv")),
        ("{sweep: bad.csv}", "300", LOG, ("bad.csv, row 2", "power_w", "-1")),
        ("MI300X", "300", LOG, ("lowest power limit of MI300X is not recorded",)),
        ("a1000", "300", LOG, ("'a1000'", "'a100'", "cluster.gpu_model", "A100-SXM4", "MI300X")),
    ],
)
def test_what_is_not_recorded_is_refused(
    inside: Command, tmp_path: Path, model: str, limit: str, log: str, facts: tuple[str, ...]
) -> None:
    path = write(tmp_path, "mine", model, limit, log)
    (tmp_path / "bad.csv").write_text(SWEEP.replace("430", "-1"))
    inside("traces", "import", "csv", "log.csv", "--name", "some")
    assert_states(inside("validate", path, code=2).stderr, *facts)


def test_a_case_beside_a_sweep_changes_nothing(inside: Command, tmp_path: Path) -> None:
    path = write(tmp_path, "mine", f"{{sweep: {ROWS}}}", "300")
    refused = inside("validate", path, "--set", "variants.capped.boundness=high", code=2)
    assert_states(refused.stderr, "variants.capped.boundness", "changes nothing")


@given(
    st.lists(st.integers(50, 999), min_size=2, max_size=9, unique=True),
    st.data(),
    st.floats(0, 1),
    st.floats(0.05, 1),
)
def test_a_sweep_is_never_left(
    limits_w: list[int], data: st.DataObject, share: float, busy: float
) -> None:
    """Between its points, power and speed are those of neighbours; at a point, those recorded."""
    values = st.floats(1, 900)
    points = [
        LimitPoint(float(limit_w), data.draw(values), data.draw(values))
        for limit_w in sorted(limits_w)
    ]
    model = model_sweep("mine", None, points)
    curve, top = SweepCurve(points), points[-1]
    for point in points[:-1]:
        assert curve.under_limit(point.limit_w) == pytest.approx(
            (point.power_w, point.speed / top.speed)
        )
    limit_w = points[0].limit_w + share * (top.limit_w - points[0].limit_w)
    power_w, speed = curve.under_limit(limit_w, busy * top.power_w)
    recorded_w = [busy * point.power_w for point in points]
    assert min(recorded_w) * (1 - 1e-9) <= power_w <= max(recorded_w) * (1 + 1e-9)
    assert min(p.speed for p in points) / top.speed * (1 - 1e-9) <= speed
    assert curve.under_limit(top.limit_w, busy * top.power_w) == pytest.approx(
        (busy * top.power_w, 1)
    )
    assert model.limits_w[0] >= points[0].limit_w
    with pytest.raises(ValueError, match="below the recorded limits"):
        curve.under_limit(points[0].limit_w * 0.9)


@pytest.mark.parametrize(
    ("nodes", "limits"),
    [
        ("{gpu: a100, count: 4, gpus: 8, model: H100-SXM5}", True),
        (
            "{gpu: a100, count: 4, gpus: 8, idle_w: 95, "
            "model: {memory: hbm, min_limit_w: 200, default_limit_w: 700}}",
            True,
        ),
        ("{gpu: a100, count: 4, gpus: 8, model: MI300X}", False),
        (f"{{gpu: a100, count: 4, gpus: 8, idle_w: 50, model: {{sweep: {ROWS}}}}}", True),
    ],
)
def test_nodes_of_a_study_may_be_stated(
    inside: Command, tmp_path: Path, nodes: str, limits: bool
) -> None:
    jobs = draw_jobs(60)
    write_sacct(tmp_path / "sacct.txt", jobs, first_that_fits(jobs))
    (tmp_path / "nodes.yaml").write_text(f"nodes: [{nodes}]\n")
    said = inside(
        "study", "slurm", "sacct.txt", "--nodes", "nodes.yaml", "--out", "s", "--workers", "1"
    )
    scenario = yaml.safe_load(Path("s/scenario.yaml").read_text())
    assert ("limit-70" in scenario["variants"]) == limits
    comments = Path("s/scenario.yaml").read_text()
    assert ("what the stated sweeps say" in comments.replace("\n  # ", " ")) == ("sweep" in nodes)
    if not limits:
        assert_states(said.stdout, "no lowest power limit of GPU type 'a100'")
    (power,) = scenario["cluster"]["power"].values()
    known = find_gpu_model("H100-SXM5")
    assert known is not None
    if "MI300X" not in nodes and "sweep" not in nodes:
        assert power["busy_w"] == known.busy_w
    if "sweep" in nodes:
        assert power["busy_w"] == 500


def test_the_refusal_of_a_name_says_what_to_state(inside: Command, tmp_path: Path) -> None:
    (tmp_path / "nodes.yaml").write_text("nodes: [{gpu: NVIDIA A1000, count: 1, gpus: 1}]\n")
    (tmp_path / "sacct.txt").write_text("")
    said = inside("study", "slurm", "sacct.txt", "--nodes", "nodes.yaml", "--out", "s", code=2)
    assert_states(
        said.stderr, "'NVIDIA A1000'", "'a100'", "idle_w, busy_w", "model: TYPE", "H200-SXM"
    )


def test_a_study_leaves_out_limits_that_a_sweep_does_not_cover(
    inside: Command, tmp_path: Path
) -> None:
    """A job draws 480 W: what limits do to it is known from 360 W on. One of 9 kW is not used."""
    head = "job_id,submit_time_s,start_time_s,duration_s,gpus,energy_j\n"
    rows = "1,0,0,1000,1,480000\n2,0,0,1000,1,9000000\n3,10,10,2000,1,\n"
    (tmp_path / "log.csv").write_text(head + rows)
    points = ((300, 290, 0.7), (450, 380, 0.95), (500, 400, 1))
    sweep = [dict(zip(("limit_w", "power_w", "speed"), point, strict=True)) for point in points]
    model = json.dumps({"sweep": sweep})
    (tmp_path / "nodes.yaml").write_text(
        f"nodes: [{{gpu: mine, count: 1, gpus: 8, idle_w: 50, model: {model}}}]\n"
    )
    words = ("study", "csv", "log.csv", "--nodes", "nodes.yaml", "--out", "s", "--workers", "1")
    said = inside(*words).stdout
    assert_states(said, "Left out: a power limit of 70 % of 500 W", "none below")
    variants = yaml.safe_load(Path("s/scenario.yaml").read_text())["variants"]
    assert [name for name in variants if name.startswith("limit")] == ["limit-90", "limit-80"]
