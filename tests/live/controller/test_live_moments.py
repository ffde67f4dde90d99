"""Decisions over time in live runs give the simulator's journal, also after kills."""

from __future__ import annotations

import random
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.live_runs import (
    REHEARSED,
    Row,
    command,
    decisions,
    environment,
    kill,
    manifest,
    processes,
    rows,
    run,
    scenario,
)
from tests.support.messages import assert_states

POLICY = '''\
"""Follows the signal `s`: a limit by its number, a pause below 0, the end above 9."""

import math
from typing import ClassVar, Literal

from wattkeeper.policies.points.moments import Moment
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.views import Knobs, Running
from wattkeeper.policies.points.tune import Tune
from wattkeeper.policies.registry import Point, PolicyConfig


class Follow(Tune):
    """See `FollowConfig`."""

    def tune(self, ctx: Context, running: Running) -> Knobs | None:
        """See `FollowConfig`."""
        limits = running.start.options.limits(running.configuration.batch_size)
        if running.moment == "start":
            return Knobs(profile_w=limits[::-1]) if self.profiles(running) else Knobs(limits[-1])
        signal = ctx.signal("s")
        if running.moment == "epoch":
            wake_s = running.knobs.wake_s if running.knobs.wake_s > ctx.now_s else math.inf
            in_force = Knobs(limits[1], wake_s=wake_s)
            return in_force if running.progress.epochs % 4 == 0 else None
        if running.moment in ("wake", "profiled"):
            return Knobs(limits[-2])
        if signal.value > 9:
            return Knobs(run="stop")
        if signal.value < 0:
            return Knobs(run="pause")
        wake_s = signal.since_s + 400.0
        wakes = {"wake_s": wake_s} if wake_s > ctx.now_s else {}
        return Knobs(limits[int(signal.value)], **wakes)

    def profiles(self, running: Running) -> bool:
        """Whether limits are measured first."""
        return running.start.job.recurrence % 2 == 0


class FollowConfig(PolicyConfig):
    """A limit by the number of the signal; a pause below 0; the end above 9."""

    point: ClassVar[Point] = "tune"
    kind: Literal["follow-signal"] = "follow-signal"
    policy = Follow
    moments: ClassVar[tuple[Moment, ...]] = ("start", "profiled", "signal", "wake", "epoch")
    signals: ClassVar[tuple[str, ...]] = ("s",)
'''

NUMBERS = (3, 1, -1, 2, 99, 0, -1, 4, 3, 1)


def install(folder: Path) -> str:
    """Make the policy `follow-signal` a distribution in a folder; returns its place."""
    about = folder / "site" / "follow_signal-1.0.dist-info"
    about.mkdir(parents=True)
    (folder / "site" / "follow_signal.py").write_text(POLICY)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: follow_signal\nVersion: 1.0\n")
    points = "[wattkeeper.policies]\nfollow-signal = follow_signal\n"
    (about / "entry_points.txt").write_text(points)
    return str(folder / "site")


def followed(folder: Path, pauses: str, **workload: Any) -> Path:
    """A scenario whose jobs follow a signal."""
    steps = [[1003.7 * k, number] for k, number in enumerate(NUMBERS * 9)]
    content = REHEARSED | {
        "pauses": pauses,
        "cluster": REHEARSED["cluster"] | {"preemption": {"checkpoint_s": 0, "restore_s": 30}},
        "signals": {"s": {"series": {"steps": steps}}},
        "variants": {"follow": {"policies": {"tune": "follow-signal"}}},
        "baseline": "follow",
    }
    return scenario(folder, content, **workload)


def journal(folder: Path) -> list[tuple[Any, ...]]:
    """What was decided when, in order, with the time in whole seconds."""
    times = [row["time_s"] for row in rows(folder, "decisions")]
    return [(round(time_s), *row) for time_s, row in zip(times, decisions(folder), strict=True)]


def assert_same_jobs(mine: list[Row], theirs: list[Row]) -> None:
    assert len(mine) == len(theirs)
    for own, other in zip(mine, theirs, strict=True):
        for name in ("energy_j", "time_s", "start_time_s", "finish_time_s", "tune_paused_s"):
            assert own[name] == pytest.approx(other[name], rel=0.01), (name, own, other)
        for name in ("job_id", "attempt", "power_limit_w", "epochs", "reached_target", "retunes"):
            assert own[name] == other[name], (name, own, other)


@pytest.mark.parametrize("pauses", ["free", pytest.param("hold", marks=pytest.mark.slow)])
def test_a_live_run_decides_over_time_as_the_simulator_does(pauses: str, tmp_path: Path) -> None:
    site, path = install(tmp_path), followed(tmp_path, pauses)
    run(path, "--out", "sim", cwd=tmp_path, PYTHONPATH=site)
    run(path, "--out", "live", "--live", cwd=tmp_path, PYTHONPATH=site)
    expected = journal(tmp_path / "sim")
    assert journal(tmp_path / "live") == expected
    text = "\n".join(row[5] for row in expected)
    for chose in (
        "signal: power",
        "signal: run=pause",
        "run=stop",
        "wake: power",
        "epoch: power",
        "profile_w=",
    ):
        assert chose in text
    assert_same_jobs(rows(tmp_path / "live", "jobs"), rows(tmp_path / "sim", "jobs"))
    assert not [file for file in tmp_path.glob("live.live/**/*.err") if file.stat().st_size]
    causes = manifest(tmp_path / "live")["live"]
    assert "ended" in causes["causes"]
    assert causes["attempts"] == []


@pytest.mark.slow
def test_a_controller_that_is_killed_decides_on_as_if_it_was_not(tmp_path: Path) -> None:
    site, path = install(tmp_path), followed(tmp_path, "free", recurrences=4)
    run(path, "--out", "sim", cwd=tmp_path, PYTHONPATH=site)
    rng, killed, code = random.Random(19), 0, None
    while code != 0:
        assert code in {None, -9}, "a controller failed by itself"
        controller = subprocess.Popen(
            command("run", path, "--live", "--out", "live"),
            cwd=tmp_path,
            env=environment(tmp_path, PYTHONPATH=site),
            stdout=subprocess.DEVNULL,
        )
        while (code := controller.poll()) is None:
            time.sleep(rng.uniform(0.01, 0.3))
            if killed < 8 and not all(processes(tmp_path).values()):
                killed += kill(controller.pid)
                controller.wait()
    assert killed >= 4
    assert journal(tmp_path / "live") == journal(tmp_path / "sim")
    assert_same_jobs(rows(tmp_path / "live", "jobs"), rows(tmp_path / "sim", "jobs"))


SCRIPT = """\
import time

from wattkeeper.live import Session


class Counter:
    steps = 0

    def state_dict(self):
        return {"steps": self.steps}

    def load_state_dict(self, state):
        self.steps = state["steps"]


counter = Counter()
with Session("counts", batch_sizes=(32,), default_batch_size=32, max_epochs=1) as session:
    session.keep(counter=counter)
    for epoch in session.epochs(range(4)):
        for _ in epoch:
            time.sleep(0.02)
            counter.steps += 1
            print(counter.steps, session.power_limit_w, flush=True)
"""


@pytest.mark.slow
def test_a_script_trains_on_with_the_knobs_that_a_signal_sets(tmp_path: Path) -> None:
    site = install(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    training = {
        "command": ["python", "train.py"],
        "batch_sizes": [32],
        "default_batch_size": 32,
        "max_epochs": 100,
    }
    steps = [[0, 3], [4, 0], [6, -1], [8, 3]]
    content = {
        "name": "script",
        "cluster": {"gpu": "SYN-250W", "gpus": 1, "gpus_per_node": 1, "idle_power_w": 40},
        "workload": {"kind": "recurring", "recurrences": 1},
        "signals": {"s": {"series": {"steps": steps}}},
        "live": {"workloads": {"counts": training}},
        "variants": {"follow": {"policies": {"tune": "follow-signal"}}},
        "baseline": "follow",
    }
    path = scenario(tmp_path, content)
    run(
        path,
        "--live",
        "--out",
        "live",
        cwd=tmp_path,
        PYTHONPATH=site,
        WATTKEEPER_DEVICE="synthetic:SYN-250W",
    )
    (row,) = rows(tmp_path / "live", "jobs")
    assert (row["epochs"], row["attempt"], row["reached_target"]) == (100, 1, True)
    assert row["tune_paused_s"] == pytest.approx(2.0, abs=1.0)
    chose = [row[4] for row in decisions(tmp_path / "live") if row[0] == "tune"]
    assert "signal: run=pause" in chose
    assert "signal: power_limit_w=100.0" in "\n".join(chose)
    outputs = sorted(tmp_path.glob("live.live/**/*.out"), key=lambda file: file.stat().st_mtime)
    lines = [line.split() for file in outputs for line in file.read_text().splitlines()]
    assert len(outputs) == 2
    assert [int(step) for step, _ in lines] == list(range(1, len(lines) + 1))
    assert 400 <= len(lines) < 404  # the epoch of the pause is begun anew
    limits_w = [float(limit_w) for _, limit_w in lines]
    assert limits_w[0] == 250.0
    assert 100.0 in limits_w
    assert not [file for file in tmp_path.glob("live.live/**/*.err") if file.stat().st_size]


def test_where_limits_stay_decisions_are_the_same(tmp_path: Path) -> None:
    site, path = install(tmp_path), followed(tmp_path, "free", recurrences=2)
    run(
        path,
        "--out",
        "live",
        "--live",
        "--set",
        "live.power_control='off'",
        cwd=tmp_path,
        PYTHONPATH=site,
    )
    attempts = rows(tmp_path / "live", "jobs")
    assert {row["attempt"] for row in attempts} == {1}
    assert sum(row["retunes"] for row in attempts) > 1


def test_moments_that_no_live_run_has_are_refused(tmp_path: Path) -> None:
    site, path = install(tmp_path), followed(tmp_path, "free")
    policy = tmp_path / "site" / "follow_signal.py"
    policy.write_text(policy.read_text().replace('"wake", "epoch")', '"wake", "cap")'))
    done = run(path, "--live", "--out", "live", cwd=tmp_path, code=2, PYTHONPATH=site)
    assert_states(
        done.stderr, "variant 'follow'", "follow-signal", "the moment cap", "epoch, signal, wake"
    )
