"""Time and energy of attempts are those of their work; the timeline adds them up."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given

from tests.support.world_views import (
    Span,
    any_world,
    collected,
    curve_of,
    epochs_of,
    profile_of,
    spans,
)
from tests.support.worlds import (
    AttemptRow,
    Setting,
    SquareRoot,
    attempts,
    by_job,
    chosen,
    decisions,
    integral,
    settings_of_worlds,
    spec,
    steady,
    timeline_of,
)
from wattkeeper.policies.points.views import SETUP_S, Slice
from wattkeeper.policies.profile import Curve, Profile
from wattkeeper.scenarios.contract.scripted import job
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec
from wattkeeper.sim.cluster_results.accounting import Window
from wattkeeper.sim.cluster_results.columns import attempt_columns, recorded_columns
from wattkeeper.sim.engine.world import World
from wattkeeper.sim.recording.recorder import UNITS_PER_WATT

SLICE = r"(?:reached: )?slice_w=([\d.]+)(?: slice_batch_size=(\d+))?"

simulated = given(setting=settings_of_worlds(["simulated"]))


recorded = given(setting=settings_of_worlds(["recorded"]))


def held_between(held: list[Span], row: AttemptRow) -> float:
    """How long the job of an attempt held its GPUs during it, s."""
    return math.fsum(
        max(0.0, min(span.to_s, row.finish_time_s) - max(span.from_s, row.start_time_s))
        for span in held
        if span.job.job_id == row.job_id
    )


def slices_trained(world: World) -> dict[tuple[str, int], int]:
    """Number of slices of each attempt."""
    recorded = recorded_columns(world.recorder, world.cluster.spec)
    columns = attempt_columns(recorded, world.source)
    if "slices" not in columns:
        return {}
    names = ("job_id", "attempt", "slices")
    rows = zip(*(columns[name].to_pylist() for name in names), strict=True)
    return {(job_id, attempt): slices for job_id, attempt, slices in rows}


def ended_within(profile: Profile, row: AttemptRow, pieces: list[Slice]) -> bool:
    """Whether the training ended within the last of the slices, which then measured nothing."""
    assert row.batch_size is not None
    size, curve = row.batch_size, profile.curves[row.batch_size]
    parts = [
        piece.epochs(curve.epoch(piece.power_limit_w)[0], profile.samples_per_epoch, size)
        for piece in pieces
    ]
    is_own = all(piece.batch_size is None for piece in pieces)
    return is_own and math.fsum(parts) >= epochs_of(row) * (1 - 1e-12)


def sliced(profile: Profile, row: AttemptRow, pieces: list[Slice]) -> tuple[float, float]:
    """Seconds and joules of an attempt with slices, as profiled."""
    assert row.batch_size is not None
    assert row.power_limit_w is not None
    own = [piece for piece in pieces if piece.batch_size is None]
    epochs, time_s, energy_j = 0.0, 0.0, 0.0
    for piece in own:
        epoch_s, epoch_j = profile.curves[row.batch_size].epoch(piece.power_limit_w)
        part = piece.epochs(epoch_s, profile.samples_per_epoch, row.batch_size)
        part = min(part, epochs_of(row) - epochs)
        epochs, time_s, energy_j = epochs + part, time_s + part * epoch_s, energy_j + part * epoch_j
    epoch_s, epoch_j = profile.curves[row.batch_size].epoch(row.power_limit_w)
    time_s += (epochs_of(row) - epochs) * epoch_s
    energy_j += (epochs_of(row) - epochs) * epoch_j
    for piece in pieces[len(own) :]:
        assert piece.batch_size is not None
        epoch_s, epoch_j = profile.curves[piece.batch_size].epoch(piece.power_limit_w)
        part = piece.epochs(epoch_s, profile.samples_per_epoch, piece.batch_size)
        spent_s = part * epoch_s + SETUP_S
        time_s, energy_j = time_s + spent_s, energy_j + spent_s * epoch_j / epoch_s
    return time_s, energy_j


def planned(setting: Setting, world: World) -> Iterator[tuple[AttemptRow, float, float]]:
    """Each attempt, and the seconds and joules of its work, by the profile or as recorded."""
    profiled = {
        (row.job_id, row.attempt): json.loads(row.chose.removeprefix("profile_w="))
        for row in decisions(world)
        if row.chose.startswith("profile_w=")
    }
    slices = defaultdict[tuple[str, int], list[Slice]](list)
    for decision in decisions(world):
        if asked := re.fullmatch(SLICE, decision.chose):
            piece = Slice(float(asked[1]), int(asked[2]) if asked[2] else None)
            slices[decision.job_id, decision.attempt].append(piece)
    trained = slices_trained(world)
    durations = {job.job_id: job.duration_s for job in setting.jobs}
    for row in attempts(world):
        if row.workload is None:
            busy_w, speed = setting.cluster.power[row.gpu_type].busy_w, 1.0
            assert busy_w is not None
            if row.power_limit_w is not None:
                busy_w, speed = SquareRoot().under_limit(row.power_limit_w, busy_w)
            time_s = durations[row.job_id] / speed
            yield row, time_s, busy_w * row.gpus * row.gpu_milli / 1000 * time_s
            continue
        curve = curve_of(setting, row)
        limits = profiled.get((row.job_id, row.attempt), [])
        assert row.profiled == ((row.job_id, row.attempt) in profiled.keys() | slices.keys())
        assert row.power_limit_w is not None
        pieces = slices.get((row.job_id, row.attempt))
        if pieces is not None:
            done = trained.get((row.job_id, row.attempt), 0)
            refused = setting.cluster.power_cap_w is not None
            if ended_within(profile_of(setting, row), row, pieces):
                assert done == len(pieces) - 1
            else:
                assert done == len(pieces) or (refused and done == len(pieces) - 1)
            time_s, energy_j = sliced(profile_of(setting, row), row, pieces[:done])
            yield row, time_s * row.time_scale, energy_j * row.time_scale
            continue
        epochs = [curve.epoch(row.power_limit_w)] * epochs_of(row)
        if limits and epochs:
            time_s, energy_j = np.mean([curve.epoch(limit) for limit in limits], axis=0).tolist()
            epochs[0] = time_s, energy_j
        time_s = math.fsum(epoch[0] for epoch in epochs) * row.time_scale
        yield row, time_s, math.fsum(epoch[1] for epoch in epochs) * row.time_scale


def idle_w(setting: Setting, row: AttemptRow) -> float:
    """What the GPUs of an attempt draw while it does not train, W."""
    return setting.cluster.power[row.gpu_type].idle_w * row.gpus * row.gpu_milli / 1000


@any_world
def test_time_and_energy_are_those_of_the_work(setting: Setting) -> None:
    """A preempted job does the same work in the end, at the same cost."""
    world = setting.run()
    for row, time_s, energy_j in planned(setting, world):
        assert row.time_s == pytest.approx(time_s, rel=1e-9)
        all_j = energy_j + idle_w(setting, row) * row.overhead_s
        assert row.energy_j == pytest.approx(all_j, rel=1e-9)
        if row.workload is None:
            most_w = setting.cluster.power[row.gpu_type].busy_w or 0.0
            weighed_w = most_w * row.gpus * row.gpu_milli / 1000
        else:
            known = profile_of(setting, row)
            weighed_w = known.max_power_w * known.gpus
            fastest_s = min(curve_of(setting, row).time_per_epoch_s)
            assert row.time_s >= epochs_of(row) * fastest_s * row.time_scale * (1 - 1e-12)
            assert 0 <= epochs_of(row) <= known.max_epochs
        weighed = setting.eta * energy_j + (1 - setting.eta) * weighed_w * time_s
        assert row.cost == pytest.approx(weighed, rel=1e-9)


@any_world
def test_a_run_ends_at_a_recorded_number_of_epochs(setting: Setting) -> None:
    for row in attempts(setting.run()):
        if row.workload is None:
            continue
        curve = curve_of(setting, row)
        if row.reached_target:
            assert row.epochs in curve.epochs
        else:
            assert any(epochs_of(row) < epochs for epochs in curve.epochs)


@simulated
def test_simulated_a_job_holds_its_gpus_while_it_trains(setting: Setting) -> None:
    world = setting.run()
    held = spans(setting, world)
    for row in attempts(world):
        want_s = row.time_s + row.overhead_s
        assert held_between(held, row) == pytest.approx(want_s, rel=1e-9, abs=1e-9)
        if not row.preemptions:
            assert row.finish_time_s - row.start_time_s == pytest.approx(want_s, rel=1e-9, abs=1e-9)


@recorded
def test_recorded_a_job_holds_its_gpus_as_long_as_it_did(setting: Setting) -> None:
    durations = {job.job_id: job.duration_s for job in setting.jobs}
    world = setting.run()
    held = spans(setting, world)
    for row in attempts(world):
        want_s = durations[row.job_id] + row.overhead_s
        assert held_between(held, row) == pytest.approx(want_s, rel=1e-9, abs=1e-9)


@any_world
def test_overheads_are_those_of_waking_saving_and_restoring(setting: Setting) -> None:
    world, cluster = setting.run(), setting.cluster
    for row in attempts(world):
        waits = (row.attempt == 1) + row.preemptions
        start_s = max(
            cluster.checkpoint_s, cluster.wake_s if cluster.sleep_after_s is not None else 0.0
        )
        most_s = waits * start_s + row.preemptions * cluster.restore_s
        if row.attempt > 1 and cluster.power_cap_w is not None:
            most_s = math.inf  # it may wait for power where it draws more than the attempt before
        assert 0 <= row.overhead_s <= most_s + 1e-9
        if not row.preemptions and row.attempt > 1 and cluster.power_cap_w is None:
            assert row.overhead_s == 0


def asleep(setting: Setting, world: World, from_s: float, to_s: float) -> list[float]:
    """How long each node slept, s: it was free for longer than it stays awake.

    It is not free while it wakes or saves what a preempted job reached.
    """
    spec, after_s = setting.cluster, setting.cluster.sleep_after_s
    if after_s is None:
        return [0.0] * spec.nodes
    preempted = {(row.job_id, row.time_s) for row in decisions(world) if row.chose == "preempt"}
    slept_by_node = []
    for node in range(spec.nodes):
        busy = sorted(
            (span.from_s, span.to_s, (span.job.job_id, span.to_s) in preempted)
            for span in spans(setting, world)
            if any(slot[0] == node for slot in span.slots)
        )
        free_s, slept_s = 0.0, []
        for begin_s, end_s, saves in [*busy, (math.inf, math.inf, False)]:
            if free_s + after_s < begin_s:
                asleep_s, woken_s = max(free_s + after_s, from_s), min(begin_s, to_s)
                slept_s.append(max(0.0, woken_s - asleep_s))
                free_s = begin_s + spec.wake_s
            free_s = max(free_s, end_s + spec.checkpoint_s * saves)
        slept_by_node.append(math.fsum(slept_s))
    return slept_by_node


@any_world
def test_energy_is_the_integral_of_power(setting: Setting) -> None:
    """That of the jobs, of unallocated GPUs, less what sleeping nodes save, times pue."""
    world, cluster = setting.run(), setting.cluster
    line = timeline_of(world)
    span_s = line.time_s[-1] - line.time_s[0]
    slept_s = asleep(setting, world, line.time_s[0], line.time_s[-1])
    energies = [row.energy_j for row in attempts(world)]
    held: list[float] = []
    for span in spans(setting, world):
        gpus = span.job.gpus * span.job.gpu_milli / 1000
        kind = cluster.gpu_types[cluster.node_type[span.slots[0][0]]]
        held.append(gpus * (span.to_s - span.from_s))
        energies.append(-cluster.power[kind].idle_w * held[-1])
    for node, slept in enumerate(slept_s):
        power = cluster.power[cluster.gpu_types[cluster.node_type[node]]]
        awake_j, asleep_j = power.idle_w * (span_s - slept), power.sleep_w * slept
        energies.append(float(cluster.capacity[node]) * (awake_j + asleep_j))
    whole_j = cluster.pue * math.fsum(energies)
    assert integral(line, line.power_w) == pytest.approx(whole_j, rel=1e-9, abs=1e-9)
    assert integral(line, line.gpus_busy) == pytest.approx(math.fsum(held), rel=1e-9, abs=1e-9)
    all_j = math.fsum(row.energy_j for row in attempts(world))
    metrics = collected(setting, world).metrics
    assert metrics["cluster_energy_j"] == pytest.approx(
        integral(line, line.power_w), rel=1e-9, abs=1e-9
    )
    assert metrics["energy_j"] == pytest.approx(all_j, rel=1e-12)


@any_world
def test_energy_is_split_by_what_gpus_do(setting: Setting) -> None:
    """Over the run's own window and over longer ones, before and after it."""
    world, cluster = setting.run(), setting.cluster
    rows, line = attempts(world), timeline_of(world)
    held_j = math.fsum(idle_w(setting, row) * row.overhead_s for row in rows)
    jobs_j = math.fsum(row.energy_j for row in rows)
    idle_held_j = math.fsum(
        cluster.power[cluster.gpu_types[cluster.node_type[span.slots[0][0]]]].idle_w
        * span.job.gpus
        * span.job.gpu_milli
        / 1000
        * (span.to_s - span.from_s)
        for span in spans(setting, world)
    )
    first_s, last_s = float(line.time_s[0]), float(line.time_s[-1])
    windows = [Window(first_s, last_s), Window(0.0, last_s), Window(first_s, last_s + 1e4)]
    slept = {window: asleep(setting, world, *window) for window in windows}
    own = collected(setting, world)
    for window in windows:
        metrics = own.charge(window).metrics
        span_s = window.until_s - window.from_s
        powers = [cluster.power[cluster.gpu_types[kind]] for kind in cluster.node_type]
        nodes = list(zip(cluster.capacity.tolist(), powers, slept[window], strict=True))
        asleep_j = math.fsum(gpus * power.sleep_w * s for gpus, power, s in nodes)
        awake_j = math.fsum(gpus * power.idle_w * (span_s - s) for gpus, power, s in nodes)
        parts = {
            "training": jobs_j - held_j,
            "held": held_j,
            "idle": awake_j - idle_held_j,
            "asleep": asleep_j,
        }
        resolution_w = (len(nodes) + len(rows)) / UNITS_PER_WATT
        near = 1e-9 * (jobs_j + awake_j) + resolution_w * (span_s + line.time_s[-1])
        for name, value in parts.items():
            assert metrics[f"{name}_energy_j"] == pytest.approx(value * cluster.pue, abs=near)
        whole_j = cluster.pue * math.fsum(parts.values())
        assert metrics["cluster_energy_j"] == pytest.approx(whole_j, abs=near)
        held_s = float(integral(line, line.gpus_busy))
        utilisation = held_s / (span_s * cluster.gpus) if span_s else 0.0
        assert metrics["gpu_utilisation"] == pytest.approx(utilisation, rel=1e-9)


def idle_of_nodes(cluster: ClusterSpec) -> float:
    """Idle power of all GPUs, W, in whole units of each node."""
    units = [
        round(cluster.power[group.gpu_type].idle_w * group.gpus_per_node * UNITS_PER_WATT)
        for group in cluster.groups
        for _ in range(group.nodes)
    ]
    return sum(units) / UNITS_PER_WATT


@any_world
def test_timeline_stays_within_the_cluster_and_ends_idle(setting: Setting) -> None:
    world, cluster = setting.run(), setting.cluster
    line = timeline_of(world)
    assert (np.diff(line.time_s) > 0).all()
    assert line.time_s[0] == setting.jobs[0].submit_time_s
    assert line.time_s[-1] == max(row.finish_time_s for row in attempts(world))
    assert line.gpus_busy.min() >= 0
    assert line.gpus_busy.max() <= cluster.gpus
    assert line.jobs_waiting.min() >= 0
    assert line.jobs_waiting.max() <= len(setting.jobs)
    assert line.gpus_busy[-1] == line.jobs_waiting[-1] == 0
    waited_s = math.fsum(line.jobs_waiting[:-1] * np.diff(line.time_s))
    mean_s = collected(setting, world).metrics["queue_delay_s"]
    assert waited_s == pytest.approx(mean_s * len(setting.jobs), rel=1e-9, abs=1e-6)
    idle_w = idle_of_nodes(cluster) * cluster.pue
    if cluster.sleep_after_s is None:
        assert line.power_w[-1] == idle_w
    else:
        assert line.power_w[-1] <= idle_w


def uneven() -> Setting:
    """An attempt whose power, before and after its profile, is no whole number of its units."""
    powers_w = (160.6635775767, 172.9496560984)
    assert not any((power_w * UNITS_PER_WATT).is_integer() for power_w in powers_w)
    curve = Curve(32, (150.0, 250.0), (3.2, 2.0), powers_w, (2.0,))
    return Setting(
        jobs=(job(),),
        profiles=by_job(steady()._replace(curves={32: curve})),
        cluster=spec(idle_power_w=0.0),
        policy_set=chosen(tune="zeus-jit"),
        eta=0.5,
        max_attempts=1,
        occupancy="simulated",
        profiling="measured",
        seed=1,
    )


@example(setting=uneven())
@any_world
def test_timeline_returns_to_exactly_the_idle_power(setting: Setting) -> None:
    cluster = replace(setting.cluster, sleep_after_s=None)
    line = timeline_of(setting._replace(cluster=cluster).run())
    assert line.power_w[-1] == idle_of_nodes(cluster) * cluster.pue
    assert line.power_w.min() >= 0
