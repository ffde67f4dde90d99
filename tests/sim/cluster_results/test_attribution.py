"""Who used what: the share of free GPUs, and sums that are those of the cluster."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.worlds import Setting, chosen, run_world, settings_of_worlds, spec
from wattkeeper.policies.points.job import WHOLE
from wattkeeper.scenarios.contract.scripted import GPU, job
from wattkeeper.sim.cluster.cluster_spec import GpuPower
from wattkeeper.sim.cluster_results.accounting import (
    CARBON,
    COST,
    ENERGY,
    Sleeps,
    Tariff,
    Window,
    seconds,
)
from wattkeeper.sim.cluster_results.attribution import HeldSpans, Owners, share_free_gpus
from wattkeeper.sim.cluster_results.tables import ClusterResult, collect
from wattkeeper.sim.engine.world import World
from wattkeeper.traces.electricity.series import Series

PUBLISHED_GPUS, PUBLISHED_IDLE_W, PUBLISHED_PUE = 16, 40.0, 1.25
BORDERS = ("start", "end")
COLUMNS = {ENERGY: "energy_j", COST: COST, CARBON: CARBON}


def rows_of(path: Path) -> dict[str, list[dict[str, str]]]:
    """The rows of each set."""
    sets = defaultdict(list)
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            sets[row["set"]].append(row)
    return sets


def test_shares_are_those_of_the_reference(shared: Path) -> None:
    folder = shared / "reference/ledger"
    expected = rows_of(folder / "attribution.csv")
    cluster = spec(1, PUBLISHED_GPUS, PUBLISHED_IDLE_W)
    sleeps = Sleeps(*(np.zeros(0) for _ in Sleeps._fields))
    assert len(expected) > 1
    for number, rows in rows_of(folder / "spans.csv").items():
        names = sorted({row["account"] for row in rows})
        begin_s, end_s = (np.array([float(row[f"{key}_s"]) for row in rows]) for key in BORDERS)
        held = HeldSpans(
            np.array([names.index(row["account"]) for row in rows]),
            begin_s,
            end_s,
            np.array([int(row["gpus"]) * WHOLE for row in rows]),
            np.zeros(len(rows), np.int64),
        )
        window = Window(begin_s.min(), end_s.max())
        clocks = {ENERGY: seconds}
        shares = share_free_gpus(held, len(names), cluster, sleeps, window, clocks)[ENERGY]
        drawn_j = (end_s - begin_s) * np.array([float(row["power_w"]) for row in rows])
        own_j = held.sum_by_owner(drawn_j, len(names))
        found = dict(zip(names, zip(own_j, own_j + shares.of_owners, strict=True), strict=True))
        found[""] = 0.0, shares.of_nobody
        for row in expected[number]:
            own, full = found.pop(row["account"])
            assert own == pytest.approx(float(row["own_j"]), rel=1e-9)
            assert PUBLISHED_PUE * full == pytest.approx(float(row["full_j"]), rel=1e-9)
        assert not found


def collected(
    world: World, owners: Owners, tariff: Tariff, window: tuple[float | None, float | None]
) -> ClusterResult:
    return collect(
        "v",
        1,
        world.recorder,
        world.source,
        world.cluster.spec,
        {},
        world.env.events,
        window=window,
        tariff=tariff,
        owners=owners,
    )


def tariffs() -> st.SearchStrategy[Tariff]:
    """Prices that change within jobs and may be negative, and a constant carbon intensity."""
    values = st.lists(st.sampled_from([-0.5, 0.0, 0.2, 3.0]), min_size=1, max_size=6)

    def make(value: list[float]) -> Tariff:
        start_s = 7.0 * np.arange(len(value), dtype=np.float64)
        end_s = float(start_s[-1]) + 1e7
        return Tariff({COST: Series(start_s, end_s, np.array(value), "EUR/kWh"), CARBON: 350.0})

    return values.map(make)


@settings(deadline=None, max_examples=examples(400))
@given(
    setting=settings_of_worlds(),
    draw=st.data(),
    tariff=tariffs(),
    stated=st.sampled_from([(None, None), (None, 30.0), (3.0, 20.0)]),
)
def test_all_owners_and_nobody_add_up_to_the_cluster(
    setting: Setting, draw: st.DataObject, tariff: Tariff, stated: tuple[float | None, float | None]
) -> None:
    codes = draw.draw(st.lists(st.integers(0, 2), min_size=12, max_size=12))
    owner = np.resize(codes, len(setting.jobs))
    world = setting.run()
    result = collected(world, Owners(owner, ["a", "b", "c"]), tariff, stated)
    pue = setting.cluster.pue
    for widened in (0.0, 500.0):
        from_s, until_s = result.account.window
        result = result.charge(Window(from_s, until_s + widened), tariff)
        usage = result.tables["usage"].to_pydict()
        for metric, column in COLUMNS.items():
            parts = usage[column] + usage[f"idle_{column}"]
            size = sum(map(abs, parts))
            assert math.fsum(parts) == pytest.approx(
                result.metrics[metric], rel=1e-9, abs=1e-9 * size
            )
        assert usage["name"][-1] is None
        assert sum(usage["jobs"]) == len(setting.jobs)
        assert min(usage["gpu_s"] + usage["idle_energy_j"]) >= 0.0
    held_s = result.account.gpu_s
    assert math.fsum(usage["gpu_s"]) == pytest.approx(held_s, rel=1e-9, abs=1e-9)
    whole_j = [sum(pair) for pair in zip(usage["energy_j"], usage["idle_energy_j"], strict=True)]
    assert whole_j[:-1] == sorted(whole_j[:-1], reverse=True)
    if stated == (None, None) and setting.occupancy == "simulated":
        jobs = result.tables["jobs"].to_pydict()
        names = {each.job_id: "abc"[owner[n]] for n, each in enumerate(setting.jobs)}
        own_j = dict.fromkeys("abc", 0.0)
        for job_id, energy_j in zip(jobs["job_id"], jobs["energy_j"], strict=True):
            own_j[names[job_id]] += pue * energy_j
        found = dict(zip(usage["name"], usage["energy_j"], strict=True))
        assert own_j == {name: pytest.approx(found[name], rel=1e-7, abs=1e-6) for name in own_j}


def test_nodes_that_sleep_cost_their_sleep_and_what_nobody_holds_is_nobodys() -> None:
    """One of two nodes sleeps from 5 s on, the other from 15 to 20 s, between two jobs."""
    nodes = replace(spec(2, 1), power={GPU: GpuPower(40.0, 250.0, 4.0)}, sleep_after_s=5.0, pue=1.5)
    jobs = [
        job("a", 0.0, duration_s=10.0).replace(workload=None),
        job("b", 20.0, duration_s=30.0).replace(workload=None),
    ]
    world = run_world(jobs, {}, nodes, chosen())
    result = collected(world, Owners(np.array([0, 1]), ["a", "b"]), Tariff({}), (None, None))
    usage = result.tables["usage"].to_pydict()
    shares = dict(zip(usage["name"], usage["idle_energy_j"], strict=True))
    assert shares == {
        "a": pytest.approx(1.5 * (5 * 40 + 5 * 4)),
        "b": pytest.approx(1.5 * 30 * 4),
        None: pytest.approx(1.5 * (5 * 40 + 5 * 4 + 10 * 4)),
    }
