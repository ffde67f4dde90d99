"""Power logs: what they hold, and what jobs draw by them."""

from __future__ import annotations

import base64
import gzip
import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import Command
from tests.support.messages import assert_states
from wattkeeper.policies.errors import TraceError
from wattkeeper.traces.formats.power_log import FORMAT
from wattkeeper.traces.power.hosts import expand_hosts
from wattkeeper.traces.power.join import GpuEnergy
from wattkeeper.traces.power.spans import ALONE, GAP, RESET, Readings, find_spans

START = datetime(2024, 1, 31, 10)
HEADER = "timestamp, index, uuid, power.draw [W], utilization.gpu [%]"
SCENARIO = """\
name: sampled
cluster: {gpu: a100, gpus: 2, idle_power_w: 55, busy_power_w: 330}
workload: {kind: trace, trace: jobs}
variants: {today: {}}
baseline: today
"""


def smi(powers: list[str], gpu: int = 0, every_s: float = 10) -> list[str]:
    """Lines of nvidia-smi of one GPU."""
    return [
        f"{START + timedelta(seconds=n * every_s):%Y/%m/%d %H:%M:%S}.000, {gpu}, GPU-{gpu}, {text}"
        ", 97 %"
        for n, text in enumerate(powers)
    ]


def at(seconds: float) -> str:
    return f"{START + timedelta(seconds=seconds):%Y-%m-%d %H:%M:%S}"


def read_text(folder: Path, text: str, name: str = "n1.csv") -> list[dict[str, Any]]:
    path = folder / name
    path.write_text(text)
    rows: list[dict[str, Any]] = FORMAT.read([path]).tables["power-log"].to_pylist()
    return rows


def test_samples_of_jobs_replace_their_power(inside: Command, tmp_path: Path) -> None:
    """Two GPUs of one node, and a node that was not sampled; the page says what was."""
    lines = [*smi(["100.00 W", "200.00 W", "300.00 W"]), *smi(["50.00 W", "[N/A]", "70.00 W"], 1)]
    Path("n1.csv").write_text("\n".join([HEADER, *lines]))
    Path("jobs.csv").write_text(
        "job_id,submit_time_s,start_time_s,duration_s,gpus,nodes,gpu_ids\n"
        f"whole,{at(-60)},{at(0)},30,2,n1.cluster,\n"
        f"first,{at(-60)},{at(40)},10,1,n1,0\n"
        f"part,{at(-60)},{at(5)},10,1,n1,0\n"
        f"half,{at(-60)},{at(20)},20,1,n1,n1:0\n"
        f"which,{at(-60)},{at(5)},10,1,n1,\n"
        f"other,{at(-60)},{at(5)},10,2,n2,\n"
    )
    inside("traces", "import", "auto", "n1.csv", "--name", "power")
    said = inside("traces", "import", "csv", "jobs.csv", "--name", "jobs", "--power", "power")
    assert_states(
        said.stdout,
        "3 of 6 jobs",
        "88.9 % of their GPU time",
        ": 2: no samples",
        ": 1: some of",
        "gpu_ids",
    )
    table = pq.read_table("library/jobs/jobs.parquet").to_pylist()
    jobs = {job["job_id"]: job for job in table}
    assert jobs["whole"]["energy_j"] == pytest.approx(600 * 10 + 50 * 20 + 70 * 10)
    assert jobs["part"]["energy_j"] == pytest.approx(100 * 5 + 200 * 5)
    assert jobs["half"]["energy_j"] == pytest.approx(300 * 20), "its mean stands for the rest"
    shares = {name: job["measured_share"] for name, job in jobs.items()}
    assert shares == {
        "whole": pytest.approx(1),
        "part": pytest.approx(1),
        "half": pytest.approx(0.5),
        **dict.fromkeys(("first", "which", "other")),
    }
    Path("s.yaml").write_text(SCENARIO)
    ran = inside("run", "s.yaml", "--out", "out").stdout
    assert_states(ran, "3 of 6 jobs", "of 3 jobs was sampled over 88.9 % of their GPU hours")
    energy = {
        job["job_id"]: job["energy_j"] for job in pq.read_table("out/jobs.parquet").to_pylist()
    }
    assert energy["part"] == pytest.approx(1500)
    assert energy["which"] == pytest.approx(330 * 10)


def test_slurm_says_where_jobs_ran(inside: Command, tmp_path: Path) -> None:
    """Nodes from NodeList, GPUs from the payload of jobstats."""
    for node in ("g01", "g02"):
        lines = [line for gpu in (0, 1) for line in smi([f"{100 * (gpu + 1)}.00 W"] * 6, gpu)]
        Path(f"{node}.csv").write_text("\n".join([HEADER, *lines]))
    payload = {"nodes": {"g02": {"gpu_utilization": {"1": 98.6}}}, "gpus": 1}
    packed = base64.b64encode(gzip.compress(json.dumps(payload).encode())).decode()
    head = "JobID|Submit|Start|End|ElapsedRaw|AllocTRES|State|NodeList|AdminComment"
    span = f"{at(-9).replace(' ', 'T')}|{at(0).replace(' ', 'T')}|{at(20).replace(' ', 'T')}|20"
    rows = [
        f"1|{span}|gres/gpu=4|COMPLETED|g[01-02]|",
        f"2|{span}|gres/gpu=1|COMPLETED|g02|JS1:{packed}",
        f"3|{span}|gres/gpu=1|COMPLETED|g02|JS1:Short",
        f"4|{span}|gres/gpu=1|COMPLETED|g02|JS1:{packed[:30]}",
    ]
    Path("sacct.txt").write_text("\n".join([head, *rows]))
    inside("traces", "import", "power-log", "g01.csv", "g02.csv", "--name", "power")
    inside("traces", "import", "slurm", "sacct.txt", "--name", "jobs", "--power", "power")
    jobs = pq.read_table("library/jobs/jobs.parquet").to_pylist()
    energies = [job["energy_j"] for job in jobs]
    assert energies[:2] == pytest.approx([2 * 300 * 20, 200 * 20])
    assert energies[2:] == [None, None]
    zoned = inside(
        "traces",
        "import",
        "slurm",
        "sacct.txt",
        "--name",
        "zoned",
        "--power",
        "power",
        "--zone",
        "UTC",
    )
    assert_states(zoned.stdout, "2 of 4 jobs")


def test_counters_of_energy_are_in_millijoules_and_may_begin_anew(tmp_path: Path) -> None:
    def line(mj: int, ms: int, name: str = "TOTAL_ENERGY_CONSUMPTION") -> str:
        labels = 'gpu="0",UUID="GPU-1",modelName="A, {B}",Hostname="n7.cluster"'
        return f"DCGM_FI_DEV_{name}{{{labels}}} {mj} {1706695200000 + ms}"

    text = [
        "# HELP DCGM_FI_DEV_POWER_USAGE Power draw (in W).",
        line(999, 0, "POWER_USAGE"),
        line(1_000_000, 0),
        'DCGM_FI_DEV_SM_CLOCK{gpu="0"} 139',
        line(3_000_000, 10_000),
        line(100_000, 20_000),
        line(600_000, 30_000),
        line(9_000_000, 900_000),
        line(9_223_372_036_854_775_794, 910_000),
    ]
    path = tmp_path / "scrape.prom"
    path.write_text("\n".join(text))
    trace = FORMAT.read([path])
    rows = trace.tables["power-log"].to_pylist()
    assert [(row["power_w"], row["end_s"] - row["start_s"]) for row in rows] == [
        (200, 10),
        (50, 10),
    ]
    assert trace.quality["dropped"][RESET] == 1
    assert trace.quality["dropped"][GAP] == 1
    assert rows[0]["node"] == "n7.cluster"
    csv = "time,Hostname,gpu,DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION\n" + "".join(
        f"{1706695200 + 10 * n},n7.cluster,0,{mj}\n"
        for n, mj in enumerate((1_000_000, 3_000_000, 100_000, 600_000))
    )
    assert read_text(tmp_path, csv, "dcgm.csv") == rows


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("", ("n1.csv", "empty")),
        ("2024/01/31 10:00:00.000, 0, 72.02 W\n" * 2, ("n1.csv, line 1", "timestamp or time")),
        ("timestamp, index\n", ("n1.csv, line 1", "power.draw", "nvidia-smi --query-gpu")),
        ("timestamp, power.draw [W]\n", ("n1.csv, line 1", "index or gpu", "uuid")),
        (
            f"{HEADER}\n"
            + "\n".join([*smi(["1 W", "abc"]), "2024/13/01 10:00:00, 0, x, 1 W, 1 %"]),
            ("n1.csv, line 3", "'abc'", "number of W", "line 4", "2024-13-01", "2 of 3 lines"),
        ),
        (f"{HEADER}\n" + "\n".join(smi(["72020 W", "1 W"])), ("line 2", "'72020 W'", "20,000")),
        (f"{HEADER}\n" + "\n".join(smi(["-1 W", "1 W"])), ("line 2", "'-1 W'")),
        (f"{HEADER}\n" + "\n".join(smi(["[N/A]"] * 3)), ("no two readings", "3 has no power")),
        (f"{HEADER}\n" + "\n".join(smi(["1 W"])), ("no two readings", f"1 {ALONE}")),
        (f"{HEADER}\n1, 0, x, 1 W\n", ("line 2", "4 values", "5")),
        ('DCGM_FI_DEV_POWER_USAGE{gpu="0"} 72.5\n', ("line 1", "no time", "/federate")),
        ('DCGM_FI_DEV_POWER_USAGE{device="x"} 72.5 1\n', ("line 1", "gpu or UUID")),
    ],
)
def test_what_is_wrong_is_said_with_its_line(
    tmp_path: Path, text: str, facts: tuple[str, ...]
) -> None:
    with pytest.raises(TraceError) as caught:
        read_text(tmp_path, text)
    assert_states(str(caught.value), *facts)


def test_malformed_lines_are_left_out_on_demand(inside: Command, tmp_path: Path) -> None:
    again = [HEADER, *smi(["1 W", "abc", "3 W"]), HEADER, *smi(["9 W"], 7)]
    Path("n1.csv").write_text("\n".join(again))
    said = inside("traces", "import", "power-log", "n1.csv", "--skip-bad")
    assert_states(said.stdout, "2 power-log", "1 malformed", "n1.csv, line 3")


def test_clocks_must_agree(inside: Command, tmp_path: Path) -> None:
    Path("n1.csv").write_text("\n".join([HEADER, *smi(["1 W"] * 3)]))
    Path("jobs.csv").write_text("submit_time_s,start_time_s,duration_s,gpus,nodes\n0,0,10,1,n1\n")
    inside("traces", "import", "power-log", "n1.csv", "--name", "power")
    for name, facts in (
        ("power", ("power log", "local dates", "without a date", "--zone")),
        ("absent", ("absent",)),
    ):
        words = ("traces", "import", "csv", "jobs.csv", "--name", "j", "--power", name)
        assert_states(inside(*words, code=2).stderr, *facts)
    assert not Path("library/j").exists()


@given(
    st.lists(st.tuples(st.integers(1, 50), st.floats(0, 700)), min_size=2, max_size=30),
    st.floats(-100, 1000),
    st.floats(0, 1500),
)
def test_energy_of_a_joined_log_is_the_integral_of_its_samples(
    samples: list[tuple[int, float]], start_s: float, length_s: float
) -> None:
    times_s = np.cumsum([gap for gap, _ in samples]).astype(float)
    powers_w = np.array([power_w for _, power_w in samples])
    names = pa.array(["x"] * len(samples))
    absent = np.full(len(samples), np.nan)
    table = find_spans(Readings(names, names, times_s, powers_w, absent)).table
    begin, end, power_w = (np.asarray(table[name]) for name in ("start_s", "end_s", "power_w"))
    assert (begin[1:] >= end[:-1]).all()
    energy_j, known_s = GpuEnergy.of(begin, end, power_w).between(
        np.array([start_s]), np.array([start_s + length_s])
    )
    inside_s = np.clip(np.minimum(end, start_s + length_s) - np.maximum(begin, start_s), 0, None)
    assert energy_j[0] == pytest.approx((inside_s * power_w).sum(), abs=1e-6)
    assert known_s[0] == pytest.approx(inside_s.sum(), abs=1e-9)


@settings(max_examples=200)
@given(st.data())
def test_any_damaged_log_is_a_trace_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    scrape = 'DCGM_FI_DEV_POWER_USAGE{gpu="0",Hostname="n"} 72.5 1706695200000\n'
    text = data.draw(
        st.sampled_from(["\n".join([HEADER, *smi(["1 W", "[N/A]", "3 W", "4.5 W"])]), scrape * 3])
    )
    damaged = bytearray(text.encode())
    for _ in range(data.draw(st.integers(0, 5))):
        place = data.draw(st.integers(0, len(damaged) - 1))
        damaged[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
    path = tmp_path_factory.mktemp("fuzz") / "log.csv"
    path.write_bytes(bytes(damaged))
    for read in (FORMAT.read, FORMAT.read_good):
        assert read is not None
        said, trace = "log.csv", None
        try:
            trace = read([path])
        except TraceError as error:
            said = str(error)
        assert "log.csv" in said
        if trace is not None:
            table = trace.tables["power-log"]
            assert (np.asarray(table["end_s"]) > np.asarray(table["start_s"])).all()


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("gpu[01-03,7],login", ("gpu01", "gpu02", "gpu03", "gpu7", "login")),
        ("r[1-2]n[8-9]", ("r1n8", "r1n9", "r2n8", "r2n9")),
        ("None assigned", ()),
        ("n1", ("n1",)),
    ],
)
def test_lists_of_hosts(text: str, hosts: tuple[str, ...]) -> None:
    assert expand_hosts(text) == hosts


@pytest.mark.parametrize("text", ["n[1-", "n]1[", "n[a-b]", "n[1-99999999]", "n[1-999]m[1-999]"])
def test_what_is_no_list_of_hosts(text: str) -> None:
    with pytest.raises(ValueError, match=r"list|range|more than"):
        expand_hosts(text)
