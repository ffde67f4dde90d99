"""The power limit that `zeus-jit` chooses after profiling."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.worlds import attempts, by_job, chosen, curves, decisions, run_world
from wattkeeper.policies.points.views import Configuration, Measurement, Running, Start
from wattkeeper.policies.profile import ClockSetting, Curve
from wattkeeper.policies.tune.zeus_jit import ZeusJit, ZeusJitConfig
from wattkeeper.scenarios.contract.scripted import ScriptedContext, job, profile
from wattkeeper.sim.engine.sources import RecurringSource

ANY = profile()


def make_running(batch_size: int, measured: tuple[Measurement, ...], group: str = "g") -> Running:
    start = Start(job("a", group=group), 1, ScriptedContext(ANY).options(), 0)
    return Running(start, Configuration(batch_size), measured)


def jit(eta: float, *measured: tuple[float, float, float]) -> float | None:
    report = tuple(Measurement(*point) for point in measured)
    policy: ZeusJit = ZeusJitConfig().build()
    return policy.tune(ScriptedContext(ANY, eta=eta), make_running(32, report)).power_limit_w


def test_a_tie_keeps_the_higher_limit() -> None:
    tied = ((250.0, 5.0, 200.0), (150.0, 10.0, 100.0), (100.0, 10.0, 100.0))
    assert jit(1.0, *tied) == 250.0
    assert jit(1.0, *tied[::-1]) == 250.0
    assert jit(1.0, tied[0], (150.0, 10.0, 99.0), tied[2]) == 150.0
    assert jit(0.0, tied[0], (150.0, 5.0, 1.0)) == 250.0


@pytest.mark.parametrize(("slow_s", "kept"), [(12.8, 100.0), (13.0, 250.0)])
def test_time_is_weighed_by_the_highest_limit_of_the_batch_size(slow_s: float, kept: float) -> None:
    """Neither by the limit itself nor by the GPU type's highest, 300 W here: both keep 250 W."""
    report = (Measurement(250.0, 10.0, 200.0), Measurement(100.0, slow_s, 100.0))
    policy, ctx = ZeusJitConfig().build(), ScriptedContext(ANY._replace(max_power_w=300.0))
    start = Start(job(), 1, ctx.options(), 0)
    assert policy.tune(ctx, Running(start, Configuration(32), report)).power_limit_w == kept


@given(curve=curves(32, 5, reaches=True), eta=st.sampled_from([0.0, 0.3, 0.5, 1.0]), data=st.data())
def test_the_cheapest_epoch_wins(curve: Curve, eta: float, data: st.DataObject) -> None:
    points = list(zip(curve.limits_w, curve.time_per_epoch_s, curve.average_power_w, strict=True))
    best, best_cost = 0.0, math.inf
    for limit_w, time_s, power_w in reversed(points):
        cost = (eta * power_w + (1 - eta) * curve.limits_w[-1]) * time_s
        if cost < best_cost:
            best, best_cost = limit_w, cost
    assert jit(eta, *data.draw(st.permutations(points))) == best


def test_a_choice_is_kept_by_group_and_batch_size() -> None:
    policy, ctx = ZeusJitConfig().build(), ScriptedContext(ANY)
    asked = policy.tune(ctx, make_running(32, ()))
    assert asked.profile_w == (250.0, 150.0, 100.0)
    assert asked.power_limit_w is None
    first = (Measurement(250.0, 10.0, 200.0), Measurement(100.0, 10.0, 100.0))
    assert policy.tune(ctx, make_running(32, first)).power_limit_w == 100.0
    assert policy.tune(ctx, make_running(32, first[:1])).power_limit_w == 100.0, (
        "it is kept for good"
    )
    assert policy.tune(ctx, make_running(32, ())).power_limit_w == 100.0
    assert policy.tune(ctx, make_running(64, ())).profile_w
    assert policy.tune(ctx, make_running(32, (), "other")).profile_w


def test_each_batch_size_of_a_group_is_profiled_once() -> None:
    groups = {"a": 30, "b": 30}
    known = by_job(*(profile(name) for name in groups))
    world = run_world(
        RecurringSource(groups),
        known,
        None,
        chosen(configure="zeus", tune="zeus-jit"),
        profiling="foreknown",
    )
    rows = {(row.job_id, row.attempt): row for row in attempts(world)}
    ran = {(row.group_id, row.batch_size) for row in rows.values()}
    asked = [row for row in decisions(world) if row.chose.startswith("profile_w")]
    profiled = [
        (rows[row.job_id, row.attempt].group_id, rows[row.job_id, row.attempt].batch_size)
        for row in asked
    ]
    assert len(profiled) == len(set(profiled))
    assert set(profiled) == ran
    assert {key for key, row in rows.items() if row.profiled} == {
        (row.job_id, row.attempt) for row in asked
    }
    assert len(ran) > 4


settings_of_clocks = st.lists(
    st.tuples(st.integers(300, 2000), st.floats(0.25, 20.0), st.floats(50.0, 400.0)),
    min_size=1,
    max_size=4,
    unique_by=lambda point: point[0],
)


@given(
    curve=curves(32, 5, reaches=True),
    clocks=settings_of_clocks,
    eta=st.sampled_from([0.0, 0.3, 0.5, 1.0]),
)
def test_clocks_never_cost_more_than_limits_alone_once_they_are_known(
    curve: Curve, clocks: list[tuple[int, float, float]], eta: float
) -> None:
    """The second job of a group: the first one pays for profiling, which takes longer with more."""
    locked = curve._replace(clocks=tuple(ClockSetting(*point) for point in sorted(clocks)))
    costs = []
    for each in (curve, locked):
        known = profile(runs={32: (1.0,)})._replace(
            curves={32: each}, max_epochs=5, max_power_w=curve.max_limit_w
        )
        jobs = [job("a", group="g"), job("b", 1000.0, group="g")]
        world = run_world(jobs, by_job(known), policy_set=chosen(tune="zeus-jit"), eta=eta)
        rows = [row for row in attempts(world) if row.job_id == "b"]
        costs.append(sum(row.cost for row in rows))
        assert not any(row.profiled for row in rows)
    assert costs[1] <= costs[0] * (1 + 1e-12)


def test_a_tie_of_limit_and_clock_keeps_the_limit() -> None:
    limit, clock = Measurement(250.0, 5.0, 200.0), Measurement(250.0, 5.0, 200.0, 1200)
    cheaper = clock._replace(average_power_w=199.0)
    for report, clock_mhz in (
        ((limit, clock), None),
        ((clock, limit), None),
        ((limit, clock, cheaper), 1200),
    ):
        policy: ZeusJit = ZeusJitConfig().build()
        knobs = policy.tune(ScriptedContext(ANY, eta=1.0), make_running(32, report))
        assert (knobs.power_limit_w, knobs.clock_mhz) == (250.0, clock_mhz)
        again: ZeusJit = ZeusJitConfig().build()
        again.load_state_dict(policy.state_dict())
        assert again.tune(ScriptedContext(ANY), make_running(32, ())) == knobs
        assert ("clocks" in policy.state_dict()) == (clock_mhz is not None)
