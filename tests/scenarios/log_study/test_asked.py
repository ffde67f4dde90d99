"""Variants of a study that options ask for: hours without jobs, placement, limits of GPUs."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest
import yaml

from tests.conftest import Command
from tests.support.messages import assert_states
from tests.support.slurm_logs import ORIGIN, draw_jobs, first_that_fits, write_sacct

NODES = "nodes: [{gpu: a100, count: 4, gpus: 8}]\n"
STUDY = ("study", "slurm", "sacct.txt", "--nodes", "nodes.yaml", "--out", "study", "--workers", "1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    jobs = draw_jobs(150)
    write_sacct(tmp_path / "sacct.txt", jobs, first_that_fits(jobs))
    (tmp_path / "nodes.yaml").write_text(NODES, encoding="utf-8")
    return tmp_path


def table(folder: Path, name: str, variant: str) -> pd.DataFrame:
    rows = pd.read_parquet(folder / f"study/results/{name}.parquet")
    return rows[rows["variant"] == variant]


def test_each_option_adds_a_variant(inside: Command, folder: Path) -> None:
    limits = "queues: {gpu: 20}\nusers: {u1: 16}\neach_user: 17\n"
    (folder / "limits.yaml").write_text(limits, encoding="utf-8")
    asked = ("--pause", "22:00-06:00", "--place", "spread", "--quota", "limits.yaml")
    inside(*STUDY, *asked)
    scenario = yaml.safe_load((folder / "study/scenario.yaml").read_text(encoding="utf-8"))
    baseline = scenario["baseline"]
    usual, other = (table(folder, "jobs", name) for name in (baseline, "place-spread"))
    assert usual["node_ids"].map(tuple).tolist() != other["node_ids"].map(tuple).tolist()

    line = table(folder, "timeline", "pause-2200-0600")
    spans = zip(pairwise(line["time_s"]), line["gpus_busy"], strict=False)
    busy = [span for span, gpus in spans if gpus > 0]
    assert len(busy) > 50
    for from_s, to_s in busy:
        middle = ORIGIN + timedelta(seconds=(from_s + to_s) / 2)
        assert 6 <= middle.hour < 22, middle
    assert (line["time_s"].diff() > 3600).any(), "a night"
    paused = table(folder, "jobs", "pause-2200-0600")
    assert paused["preemptions"].sum() > 0
    assert {*paused["job_id"]} == {*usual["job_id"]}
    overheads_s = paused["overhead_s"][paused["preemptions"] == 1]
    assert (overheads_s >= 60).all(), "restored, as assumed"

    limited = table(folder, "jobs", "quota").set_index("job_id")
    trace = pd.read_parquet(folder / "study/trace/jobs.parquet").set_index("job_id")
    limited = limited.join(trace[["queue", "user"]])
    for column, name, limit in (("queue", "gpu", 20), ("user", "u1", 16), ("user", "u2", 17)):
        own = limited[limited[column] == name]
        held = [
            own["gpus"][(own["start_time_s"] <= at_s) & (own["finish_time_s"] > at_s)].sum()
            for at_s in own["start_time_s"]
        ]
        assert 0 < max(held) <= limit


def test_hours_are_those_of_the_zone_of_the_log(inside: Command, folder: Path) -> None:
    """The log begins in winter; summer time begins on the 31st of March."""
    inside(*STUDY, "--pause", "22:30-06:00", "--zone", "Europe/Berlin")
    rows = (folder / "study/pause/pause-2230-0600.csv").read_text(encoding="utf-8").splitlines()
    assert {"2024-03-05T21:30Z", "2024-03-06T05:00Z"} <= {row.split(",")[0] for row in rows}
    assert {"2024-07-05T20:30Z", "2024-07-06T04:00Z"} <= {row.split(",")[0] for row in rows}
    line = table(folder, "timeline", "pause-2230-0600")
    at_s = line["time_s"].to_numpy()
    night = timedelta(days=2, hours=23).total_seconds()
    assert line["gpus_busy"].iloc[at_s.searchsorted(night, "right") - 1] == 0


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        (("--pause", "22-6"), ("--pause", "'22-6'", "22:00-06:00")),
        (("--pause", "22:00-22:00"), ("--pause", "'22:00-22:00'")),
        (("--place", "spred"), ("--place", "'spred'", "did you mean 'spread'", "best-fit")),
        (("--place", "first-fit"), ("--place", "first-fit", "leave it out")),
        (("--quota", "gpu"), ("--quota", "'gpu'", "QUEUE=GPUS")),
        (("--quota", "gpu=0"), ("--quota", "'gpu=0'")),
        (("--quota", "gpu=8", "--quota", "gpu=9"), ("--quota", "'gpu=9'", "once a queue")),
        (("--quota", "gqu=16"), ("no queue 'gqu'", "did you mean 'gpu'", "debug")),
        (("--quota", "gpu=32"), ("queue gpu", "32", "limits nothing")),
        (("--quota", "gpu=8"), ("queue gpu", "could never run", "16 GPUs")),
        (("--quota", "none.yaml"), ("none.yaml", "states no limit")),
        (("--quota", "user.yaml"), ("user u1", "could never run")),
        (("--pause", "1", "--place", "x", "--quota", "y"), ("--pause", "--place", "--quota")),
    ],
)
def test_what_is_wrong_or_changes_nothing_is_refused(
    inside: Command, folder: Path, options: tuple[str, ...], facts: tuple[str, ...]
) -> None:
    (folder / "none.yaml").write_text("queues: {}\n", encoding="utf-8")
    (folder / "user.yaml").write_text("users: {u1: 2}\n", encoding="utf-8")
    refused = inside(*STUDY, *options, code=2)
    assert_states(refused.stderr, *facts)
    assert not (folder / "study/results").exists()


def test_hours_of_a_log_without_dates_are_refused(inside: Command, folder: Path) -> None:
    rows = [f"{n},{n * 1000.0},600,1" for n in range(20)]
    text = "\n".join(["job_id,submit_time_s,duration_s,gpus", *rows, ""])
    (folder / "jobs.csv").write_text(text, encoding="utf-8")
    asked = ("study", "csv", "jobs.csv", *STUDY[3:], "--pause", "22:00-06:00")
    assert_states(inside(*asked, code=2).stderr, "--pause", "no dates")
