"""What a loss costs where the pace changed since the last checkpoint; attempts without an end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.support.worlds import by_job, chosen, run_world, spec, steady, stub
from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.moments import START_MOMENTS
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.views import Knobs, Running
from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.scenarios.contract.scripted import job
from wattkeeper.sim.cluster.checkpoints import CheckpointRule
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec
from wattkeeper.sim.cluster.losses import LossRules, NodeChange, RunLosses
from wattkeeper.sim.cluster_results.laws import RunLaws, check_laws
from wattkeeper.sim.cluster_results.tables import ClusterResult, collect

KNOWN = by_job(steady(10.0, 10.0))
NO_CHECKPOINTS = LossRules()
LOSS = (NodeChange(50.0, "down", 0), NodeChange(60.0, "up", 0))


def plain(name: str, duration_s: float, submit_s: float = 0.0, gpus: int = 1) -> Job:
    return job(name, submit_s, duration_s=duration_s, gpus=gpus).replace(workload=None)


def limits(*steps: tuple[float, float]) -> PolicyConfig:
    """Sets power limits (W) at given times (s), the first of them at the start."""

    def tune(ctx: Context, running: Running) -> Knobs:
        now_w = [limit_w for time_s, limit_w in steps if time_s <= ctx.now_s][-1]
        later_s = [time_s for time_s, _ in steps if time_s > ctx.now_s]
        return Knobs(now_w, wake_s=later_s[0] if later_s else math.inf)

    config: PolicyConfig = stub(
        "tune", tune=tune, moments=(*START_MOMENTS, "wake"), limits_unprofiled=True
    )
    return config


def run(
    jobs: Sequence[Job],
    changes: Sequence[NodeChange] = LOSS,
    rules: LossRules = NO_CHECKPOINTS,
    cluster: ClusterSpec | None = None,
    **policies: PolicyConfig | str,
) -> ClusterResult:
    """Run jobs while nodes change; the results keep the laws of conservation."""
    nodes = cluster or spec()
    losses = RunLosses(rules, iter(changes))
    world = run_world(jobs, KNOWN, nodes, chosen(**policies), losses=losses)
    result = collect("v", 1, world.recorder, world.source, nodes, {}, world.env.events)
    check_laws(result.tables, result.metrics, RunLaws(nodes))
    return result


def rows(result: ClusterResult) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = result.tables["jobs"].to_pylist()
    return listed


@pytest.mark.parametrize("one", [plain("a", 100.0), job("a")], ids=["recorded", "profiled"])
def test_a_job_that_lost_all_takes_as_long_as_a_new_one_whatever_its_pace_was(one: Job) -> None:
    """The limit falls and rises again before the loss."""
    falls = rows(run([one], tune=limits((0.0, 250.0), (10.0, 100.0), (40.0, 250.0))))
    never = rows(run([one], tune=limits((0.0, 250.0))))
    assert falls[1]["time_s"] == pytest.approx(never[1]["time_s"])
    assert falls[1]["energy_j"] == pytest.approx(never[1]["energy_j"])
    for first, _ in (falls, never):
        assert first["lost_time_s"] == pytest.approx(first["time_s"])
        assert first["lost_energy_j"] == pytest.approx(first["energy_j"])
    assert falls[0]["energy_j"] < never[0]["energy_j"]


@pytest.mark.parametrize("one", [plain("a", 100.0), job("a")], ids=["recorded", "profiled"])
def test_what_was_not_saved_is_lost_at_the_paces_at_which_it_was_trained(one: Job) -> None:
    """Saved at 30 s; then 5 s at the highest limit, and 15 s at the lowest one."""
    rules = LossRules(CheckpointRule(30.0, 0.0))
    steps = ((0.0, 250.0), (35.0, 100.0), (50.0, 250.0))
    first, _ = rows(run([one], rules=rules, tune=limits(*steps)))
    assert first["lost_time_s"] == pytest.approx(20.0)
    high_w, low_w = (power_of(one, limit_w) for limit_w in (250.0, 100.0))
    assert first["lost_energy_j"] == pytest.approx(5 * high_w + 15 * low_w)


def power_of(one: Job, limit_w: float) -> float:
    """What a job draws under a limit, W."""
    (row,) = rows(run([one], (), tune=limits((0.0, limit_w))))
    return float(row["energy_j"] / row["time_s"])


@pytest.mark.parametrize("loss_s", [5.0, 20.0, 30.0, 90.0])
def test_an_epoch_in_which_limits_were_measured_is_trained_again_at_the_chosen_one(
    loss_s: float,
) -> None:
    """What it took at other limits is lost; the whole is that of a job that knew its limit."""
    changes = (NodeChange(loss_s, "down", 0), NodeChange(loss_s + 10, "up", 0))
    first, second = rows(run([job("a")], changes, tune="zeus-jit"))
    assert first["lost_energy_j"] == pytest.approx(first["energy_j"])
    if loss_s > 25:
        limit_w = second["power_limit_w"]
        (known,) = rows(run([job("a")], (), tune=limits((0.0, limit_w))))
        assert second["time_s"] == pytest.approx(known["time_s"])
        assert second["energy_j"] == pytest.approx(known["energy_j"])


def test_decisions_after_a_loss_name_the_attempt_that_runs() -> None:
    result = run([job("a")], tune=limits((0.0, 250.0), (20.0, 100.0), (70.0, 150.0)))
    table = result.tables["decisions"].to_pylist()
    told = [(row["time_s"], row["attempt"]) for row in table if row["point"] == "tune"]
    assert told == [(0.0, 1), (20.0, 1), (70.0, 2)]


def test_a_job_that_is_preempted_and_never_gets_gpus_again_has_its_attempt_and_its_energy() -> None:
    """The long job gives way to a short one, and the node goes down before it is back."""
    jobs = [plain("long", 100.0), plain("short", 10.0, submit_s=20.0)]
    result = run(jobs, (NodeChange(25.0, "down", 0),), select="srtf")
    long, short = sorted(rows(result), key=lambda row: str(row["job_id"]))
    assert (long["start_time_s"], long["finish_time_s"], long["time_s"]) == (0.0, 20.0, 20.0)
    assert (long["preemptions"], long["reached_target"]) == (1, False)
    assert long["energy_j"] == pytest.approx(20 * 250.0)
    assert short["lost_time_s"] == 5.0
    assert result.metrics["unable_jobs"] == 2
    line = result.tables["timeline"]
    assert min(line["power_w"].to_pylist()) >= 0
    assert result.metrics["training_energy_j"] == pytest.approx(25 * 250.0)


def test_signals_end_with_the_last_job_that_can_run() -> None:
    """A job that waits for ever does not keep a policy that follows a signal awake."""
    cluster = spec(2)
    jobs = [plain("a", 10.0, gpus=2), plain("b", 5.0)]
    world = run_world(
        jobs,
        KNOWN,
        cluster,
        chosen(select="fjf", tune=wakes_for_ever()),
        signals=repeating(),
        losses=RunLosses(LossRules(), iter((NodeChange(2.0, "down", 0),))),
    )
    assert world.recorder.unable == [0]
    assert world.env.events < 100


def wakes_for_ever() -> PolicyConfig:
    config: PolicyConfig = stub(
        "tune",
        tune=lambda *_: Knobs(250.0),
        moments=(*START_MOMENTS, "signal"),
        signals=("s",),
        limits_unprofiled=True,
    )
    return config


def repeating() -> dict[str, Any]:
    from wattkeeper.sim.kernel.signals import Signal, SignalSeries
    from wattkeeper.sim.kernel.streams import NamedStreams

    series = SignalSeries("s", np.array([0.0, 1.0]), np.array([1.0, 2.0]), 2.0, period_s=2.0)
    return {"s": Signal(series, None, NamedStreams(1))}


@pytest.mark.parametrize("knobs", [Knobs(250.0, run="pause"), Knobs(250.0, wake_s=5.0)])
def test_a_policy_that_is_asked_once_can_neither_pause_nor_be_woken(knobs: Knobs) -> None:
    with pytest.raises(PolicyError, match="names no moment"):
        run([job("a")], (), tune=stub("tune", tune=lambda *_: knobs))


@pytest.mark.parametrize("one", [plain("a", 100.0), job("a")], ids=["recorded", "profiled"])
@pytest.mark.parametrize("first", [Knobs(100.0, run="pause", wake_s=5.0), Knobs(100.0, wake_s=5.0)])
def test_a_job_that_was_paused_can_be_stopped(one: Job, first: Knobs) -> None:
    """At its start or while it trains; it holds no GPUs in between, which the laws check."""
    answers = {"start": first, 5.0: Knobs(run="pause", wake_s=9.0), 9.0: Knobs(run="stop")}
    if first.run == "pause":
        answers[5.0] = answers[9.0]

    def tune(ctx: Context, running: Running) -> Knobs:
        return answers["start" if running.moment == "start" else ctx.now_s]

    policy = stub("tune", tune=tune, moments=(*START_MOMENTS, "wake"), limits_unprofiled=True)
    (row,) = rows(run([one], (), tune=policy))
    assert row["time_s"] == (0.0 if first.run == "pause" else 5.0)
    assert not row["reached_target"]
