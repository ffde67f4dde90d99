"""Laws of conservation hold in results as they are, and a fault of each kind breaks one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.worlds import chosen, run_world, spec
from wattkeeper.scenarios.contract.scripted import job
from wattkeeper.sim.cluster.checkpoints import CheckpointRule
from wattkeeper.sim.cluster.losses import LossRules, NodeChange, RunLosses
from wattkeeper.sim.cluster_results.accounting import Window
from wattkeeper.sim.cluster_results.attribution import Owners
from wattkeeper.sim.cluster_results.laws import LawBroken, RunLaws, check_balance, check_laws
from wattkeeper.sim.cluster_results.tables import ClusterResult, collect

CLUSTER = replace(spec(3, 2), power_cap_w=1200.0)
CHANGES = [NodeChange(20.0, "down", 0), NodeChange(60.0, "up", 0), NodeChange(90.0, "down", 1)]


@pytest.fixture(scope="module")
def result() -> ClusterResult:
    """Preemption, a power cap, losses with checkpoints, and a node that stays down."""
    jobs = [
        job(f"j{n}", 3.0 * n, duration_s=30.0 + 7 * n, gpus=1 + n % 3).replace(workload=None)
        for n in range(9)
    ]
    losses = RunLosses(LossRules(CheckpointRule(10.0, 1.0)), iter(CHANGES))
    world = run_world(jobs, {}, CLUSTER, chosen(select="srtf"), losses=losses)
    owners = Owners(np.arange(9) % 2, ["a", "b"])
    return collect(
        "v", 1, world.recorder, world.source, CLUSTER, {}, world.env.events, owners=owners
    )


def laws(**changed: Any) -> RunLaws:
    cap = CLUSTER.power_cap_w or 0.0
    ids = frozenset(f"j{n}" for n in range(9))
    known = RunLaws(CLUSTER, lambda from_s, _: (np.array([from_s]), np.array([cap])), jobs=ids)
    return known._replace(**changed)


def changed(table: pa.Table, column: str, change: Callable[[Any], Any]) -> pa.Table:
    """The table with other values in a column."""
    index = table.column_names.index(column)
    values = change(table[column].to_pylist())
    return table.set_column(index, table.schema.field(index), pa.array(values, table[column].type))


def first(value: Any) -> Callable[[list[Any]], list[Any]]:
    return lambda values: [value, *values[1:]]


def raised(by: float, row: int = 0) -> Callable[[list[float]], list[float]]:
    return lambda values: [v + by * (n == row) for n, v in enumerate(values)]


def test_results_keep_the_laws(result: ClusterResult) -> None:
    check_laws(result.tables, result.metrics, laws())
    check_balance(result.tables["timeline"], result.account, measured=True)


@pytest.mark.parametrize(
    ("table", "column", "change", "words"),
    [
        ("timeline", "power_w", raised(-1e6, 2), "power_w"),
        ("timeline", "power_w", raised(1.0, 2), "integral"),
        ("timeline", "gpus_busy", raised(-7.0, 1), "gpus_busy"),
        ("timeline", "gpus_busy", raised(7.0, 1), "gpus_busy"),
        ("timeline", "jobs_waiting", raised(-50, 1), "jobs_waiting"),
    ],
)
def test_an_imbalance_is_found(
    result: ClusterResult, table: str, column: str, change: Callable[[Any], Any], words: str
) -> None:
    line = changed(result.tables[table], column, change)
    with pytest.raises(LawBroken, match=words):
        check_balance(line, result.account, measured=True)


def test_a_negative_part_of_energy_is_found(result: ClusterResult) -> None:
    energy = result.account.energy._replace(held=-1.0, idle=result.account.energy.idle + 1)
    account = result.account._replace(energy=energy)
    with pytest.raises(LawBroken, match="held_energy_j is -1"):
        check_balance(result.tables["timeline"], account, measured=True)


def preempted(result: ClusterResult) -> int:
    """The row of an attempt that was neither preempted nor the only one of its job."""
    rows = result.tables["jobs"].to_pylist()
    return next(n for n, row in enumerate(rows) if not row["preemptions"] and row["attempt"] == 2)


@pytest.mark.parametrize(
    ("table", "column", "change", "words"),
    [
        ("jobs", "energy_j", raised(5.0), "all attempts together"),
        ("jobs", "time_s", lambda v: [-1.0, *v[1:]], "jobs.time_s"),
        ("jobs", "start_time_s", lambda v: [s - 1000 for s in v], "before it is submitted"),
        ("jobs", "finish_time_s", lambda v: [s - 1000 for s in v], "ends before it starts"),
        ("jobs", "overhead_s", lambda v: [s + 1 for s in v], "another time than"),
        ("jobs", "lost_time_s", lambda v: [s + 1e6 for s in v], "lost more"),
        ("jobs", "lost_energy_j", lambda v: [s + 1e9 for s in v], "lost more"),
        ("jobs", "attempt", lambda v: [a + 1 for a in v], "not numbered"),
        ("jobs", "node_ids", lambda v: [[0] for _ in v], "a node that is down"),
        ("decisions", "attempt", lambda v: [a + 5 for a in v], "has no row in jobs"),
        ("decisions", "time_s", lambda v: [t + 1e5 for t in v], "which runs from"),
        ("timeline", "power_w", lambda v: [w + 1200 for w in v], "the cap is"),
        ("usage", "idle_energy_j", raised(5.0), "all owners and nobody"),
        ("nodes", "lost_gpu_s", lambda v: [s - 1e6 for s in v], "nodes.lost_gpu_s"),
    ],
)
def test_a_fault_in_a_table_is_found(
    result: ClusterResult, table: str, column: str, change: Callable[[Any], Any], words: str
) -> None:
    tables = result.tables | {table: changed(result.tables[table], column, change)}
    with pytest.raises(LawBroken, match=words):
        check_laws(tables, result.metrics, laws())


def test_attempts_that_overlap_are_found(result: ClusterResult) -> None:
    """The second attempt of a job is moved to the start of its first one."""
    jobs = result.tables["jobs"]
    rows = jobs.to_pylist()
    second = next(n for n, row in enumerate(rows) if row["attempt"] == 2)
    one = next(row for row in rows if row["job_id"] == rows[second]["job_id"])
    moved = changed(
        jobs,
        "start_time_s",
        lambda v: [one["start_time_s"] if n == second else s for n, s in enumerate(v)],
    )
    with pytest.raises(LawBroken, match="before the one before it ends"):
        check_laws(result.tables | {"jobs": moved}, result.metrics, laws())


def test_a_row_that_is_missing_is_found(result: ClusterResult) -> None:
    jobs = result.tables["jobs"]
    rows = jobs.to_pylist()
    last = max(range(len(rows)), key=lambda n: (rows[n]["attempt"], n))
    kept = jobs.filter(pa.array([n != last for n in range(len(rows))]))
    with pytest.raises(LawBroken, match=r"all attempts together|has no row"):
        check_laws(result.tables | {"jobs": kept}, result.metrics, laws())


def test_a_job_that_vanished_is_found(result: ClusterResult) -> None:
    more = laws().jobs | {"j9", "k"}
    with pytest.raises(LawBroken, match=r"job j9 neither ran nor is counted as unable .* 1 others"):
        check_laws(result.tables, result.metrics, laws(jobs=more))
    check_laws(result.tables, result.metrics, laws(jobs=more, unable=frozenset({"j9", "k"})))


def test_a_cap_that_falls_while_power_stays_is_found(result: ClusterResult) -> None:
    falls = laws(cap=lambda from_s, _: (np.array([from_s, from_s + 21.0]), np.array([1e9, 1.0])))
    with pytest.raises(LawBroken, match="the cap is 1 W"):
        check_laws(result.tables, result.metrics, falls)


@pytest.mark.parametrize("window", [Window(10.0, 70.0), Window(21.5, 21.75)])
def test_the_integral_is_that_of_the_window(result: ClusterResult, window: Window) -> None:
    line = result.tables["timeline"]
    times, power_w = (line[name].to_numpy() for name in ("time_s", "power_w"))
    drawn = float((power_w[:-1] * np.diff(window.clip(times))).sum())
    energy = result.account.energy._replace(training=drawn, held=0.0, idle=0.0, asleep=0.0)
    account = result.account._replace(window=window, energy=energy)
    check_balance(line, account, measured=True)
    with pytest.raises(LawBroken, match="integral"):
        check_balance(line, account._replace(energy=energy._replace(held=1.0)), measured=True)


def test_a_negative_metric_is_found(result: ClusterResult) -> None:
    with pytest.raises(LawBroken, match="queue_delay_s is -3"):
        check_laws(result.tables, result.metrics | {"queue_delay_s": -3.0}, laws())
