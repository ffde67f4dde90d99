"""Locked clocks of jobs that are replayed from profiles with clocks, which are made up here."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sim.engine.test_moments import slots, tuned
from tests.sim.engine.test_power_cap_signal import capped, check_cap, signal
from tests.support.examples import examples
from tests.support.messages import assert_states
from tests.support.worlds import (
    attempts,
    by_job,
    chosen,
    decisions,
    integral,
    run_world,
    spec,
    steady,
    stub,
    timeline_of,
)
from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.planning.hull import points_up_to
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.views import Configuration, Knobs, Running
from wattkeeper.policies.profile import ClockSetting, Objective, Profile, optimum
from wattkeeper.policies.tune.fixed_clock import FixedClockConfig
from wattkeeper.scenarios.contract.scripted import LIMITS_W, job, profile
from wattkeeper.sim.cluster_results.columns import recorded_columns
from wattkeeper.sim.engine.world import World
from wattkeeper.sim.replay.backend import options_of

CLOCKS = (ClockSetting(900, 2.6, 80.0), ClockSetting(1200, 2.1, 120.0))
"""At 1200 MHz a job is almost as fast as without a limit, and draws less than at 150 W."""


def add_clocks(known: Profile, clocks: tuple[ClockSetting, ...] = CLOCKS) -> Profile:
    """A profile with the same clocks at each batch size."""
    curves = {size: curve._replace(clocks=clocks) for size, curve in known.curves.items()}
    return known._replace(curves=curves)


KNOWN = by_job(add_clocks(steady(5.0, 2.0)))
CURVE = next(iter(KNOWN.values())).curves[32]


def clock_of(world: World) -> int | None:
    """The last clock of the only attempt, MHz."""
    (clock_mhz,) = recorded_columns(world.recorder, world.cluster.spec)["clock_mhz"].to_pylist()
    assert clock_mhz is None or isinstance(clock_mhz, int)
    return clock_mhz


def answering(answer: Callable[[Context, Running], Knobs]) -> Any:
    """Policies whose `Tune` answers so at the start."""
    return chosen(tune=stub("tune", tune=answer))


class TestStart:
    def test_time_and_energy_are_those_of_the_clock(self) -> None:
        world = run_world([job(scale=2.0)], KNOWN, policy_set=chosen(tune=fixed(1200)))
        (row,) = attempts(world)
        assert row.time_s == pytest.approx(2 * 5 * 2.1)
        assert row.energy_j == pytest.approx(2 * 5 * 2.1 * 120.0)
        assert (row.power_limit_w, clock_of(world)) == (250.0, 1200)

    def test_the_lowest_clock(self) -> None:
        world = run_world([job()], KNOWN, policy_set=chosen(tune=fixed("lowest")))
        assert clock_of(world) == 900
        assert decisions(world)[-1].chose == "power_limit_w=250.0 clock_mhz=900"

    def test_without_clocks_there_is_no_column(self) -> None:
        world = run_world([job()], KNOWN)
        assert "clock_mhz" not in recorded_columns(world.recorder, world.cluster.spec)

    @pytest.mark.parametrize(
        ("knobs", "facts"),
        [
            (Knobs(250.0, clock_mhz=1000), ("1000 MHz", "cnn@V100x1", "32", "900, 1200 MHz")),
            (Knobs(150.0, clock_mhz=900), ("900 MHz", "at 150 W", "highest power limit, 250 W")),
            (Knobs(profile_mhz=(900, 7)), ("7 MHz", "900, 1200 MHz")),
            (Knobs(250.0, plan=((900,),)), ("plan", "not pipeline-parallel")),
            (Knobs(250.0, profile_mhz=(900,)), ("either a power limit or", "profile")),
        ],
    )
    def test_what_has_no_data_is_refused(self, knobs: Knobs, facts: tuple[str, ...]) -> None:
        with pytest.raises(PolicyError) as caught:
            run_world([job()], KNOWN, policy_set=answering(lambda *_: knobs))
        assert_states(str(caught.value), *facts)

    def test_profiles_without_clocks_refuse_them(self) -> None:
        plain = by_job(steady(5.0, 2.0))
        policies = answering(lambda *_: Knobs(250.0, clock_mhz=900))
        with pytest.raises(PolicyError, match="power limits alone"):
            run_world([job()], plain, policy_set=policies)

    def test_the_fixed_clock_must_be_profiled_at_every_batch_size(self) -> None:
        known = add_clocks(profile())
        with pytest.raises(PolicyError, match="1000 MHz has no profile"):
            fixed(1000).check(options_of(known))
        fixed(900).check(options_of(known))
        curves = dict(known.curves) | {16: known.curves[16]._replace(clocks=())}
        with pytest.raises(PolicyError, match="there is none"):
            fixed(900).check(options_of(known._replace(curves=curves)))

    def test_the_oracle_chooses_clocks(self) -> None:
        objective = Objective(0.5)
        best = optimum(KNOWN["cnn", 1, "V100"], objective)
        assert best is not None
        assert (best.power_limit_w, best.clock_mhz) == (250.0, 1200)
        world = run_world([job()], KNOWN, policy_set=chosen(configure="oracle"))
        (row,) = attempts(world)
        assert (row.power_limit_w, clock_of(world)) == (250.0, 1200)
        assert row.cost == pytest.approx(best.cost)

    def test_a_configuration_with_a_clock_states_the_highest_limit(self) -> None:
        configure = stub("configure", configure=lambda *_: Configuration(32, clock_mhz=900))
        with pytest.raises(PolicyError, match=r"900 MHz.*without a power limit"):
            run_world([job()], KNOWN, policy_set=chosen(configure=configure))

    @pytest.mark.parametrize("clock_mhz", [7, -1])
    def test_a_configuration_with_another_clock_is_refused(self, clock_mhz: int) -> None:
        chosen_ = Configuration(32, 250.0, clock_mhz=clock_mhz)
        configure = stub("configure", configure=lambda *_: chosen_)
        with pytest.raises(PolicyError, match=f"clocks of {clock_mhz} MHz.*900, 1200 MHz"):
            run_world([job()], KNOWN, policy_set=chosen(configure=configure))


def fixed(clock_mhz: Any) -> FixedClockConfig:
    return FixedClockConfig(clock_mhz=clock_mhz)


class TestProfiling:
    def test_the_first_epoch_shares_its_work_among_limits_and_clocks(self) -> None:
        world = run_world([job()], KNOWN, policy_set=chosen(tune="zeus-jit"), eta=0.5)
        (row,) = attempts(world)
        points = [
            *zip(CURVE.time_per_epoch_s, CURVE.average_power_w, strict=True),
            *(setting[1:] for setting in CLOCKS),
        ]
        first_s = sum(time_s for time_s, _ in points) / 5
        first_j = sum(time_s * power_w for time_s, power_w in points) / 5
        assert row.time_s == pytest.approx(first_s + 4 * 2.1)
        assert row.energy_j == pytest.approx(first_j + 4 * 2.1 * 120.0)
        assert (row.profiled, clock_of(world)) == (True, 1200)
        chose = [row.chose for row in decisions(world) if row.point == "tune"]
        assert chose == [
            "profile_w=[250.0, 150.0, 100.0] profile_mhz=[1200, 900]",
            "power_limit_w=250.0 clock_mhz=1200",
        ]

    def test_a_limit_alone_can_still_win(self) -> None:
        slow = tuple(setting._replace(average_power_w=300.0) for setting in CLOCKS)
        known = by_job(add_clocks(steady(5.0, 2.0), slow))
        world = run_world([job()], known, policy_set=chosen(tune="zeus-jit"))
        assert "clock_mhz" not in recorded_columns(world.recorder, world.cluster.spec)


class TestRetune:
    def test_a_clock_holds_from_the_moment_on_and_a_limit_releases_it(self) -> None:
        def follow(ctx: Context, running: Running) -> Knobs:
            value = ctx.signal("s").value
            return Knobs(clock_mhz=1200) if value == 1200 else Knobs(value)

        world = run_world(
            [job()],
            KNOWN,
            policy_set=tuned(follow, "signal"),
            signals=slots(250.0, 250.0, 1200.0, 1200.0, 150.0),
        )
        (row,) = attempts(world)
        slow_s, slow_j = CURVE.epoch(150.0)
        left = 5 - 2 / 2.0 - 2 / 2.1
        assert row.time_s == pytest.approx(4.0 + left * slow_s)
        assert row.energy_j == pytest.approx(2 * 180.0 + 2 * 120.0 + left * slow_j)
        assert row.power_limit_w == 150.0
        line = timeline_of(world)
        assert integral(line, line.power_w) == pytest.approx(row.energy_j)

    def test_a_clock_sets_the_highest_limit(self) -> None:
        seen = []

        def lock(ctx: Context, running: Running) -> Knobs | None:
            seen.append(running.knobs[:3])
            return (
                Knobs((150.0, None, 150.0)[len(seen) - 1])
                if len(seen) != 2
                else Knobs(clock_mhz=900)
            )

        run_world(
            [job()], KNOWN, policy_set=tuned(lock, "signal"), signals=slots(1.0, 2.0, 3.0, 4.0)
        )
        assert seen == [(250.0, (), None), (150.0, (), None), (250.0, (), 900)]


points = st.tuples(st.floats(0.5, 5.0), st.floats(60.0, 300.0))


class TestCap:
    def test_points_below_a_clock(self) -> None:
        assert [(p.power_limit_w, p.clock_mhz) for p in points_up_to(CURVE, 250.0, 1200)] == [
            (100.0, 0),
            (250.0, 900),
            (150.0, 0),
            (250.0, 1200),
        ]
        assert [(p.power_limit_w, p.clock_mhz) for p in points_up_to(CURVE, None)] == [
            (100.0, 0),
            (250.0, 900),
            (150.0, 0),
            (250.0, 1200),
            (250.0, 0),
        ]

    def test_the_journal_has_the_pace_that_stays_where_none_up_to_the_choice_is_allowed(
        self,
    ) -> None:
        known = by_job(add_clocks(steady(5.0, 2.0), (ClockSetting(600, 3.0, 70.0),)))

        def follow(ctx: Context, running: Running) -> Knobs:
            return Knobs(ctx.signal("s").value)

        world = run_world(
            [job()],
            known,
            capped(spec(1, 1), obey="limits"),
            tuned(follow, "signal"),
            signals=slots(250.0, 100.0, length_s=4.0) | {"cap": signal("cap", 3.0, [500, 75, 500])},
        )
        low_w = CURVE.epoch(100.0)[1] / CURVE.epoch(100.0)[0]
        in_force = "power_limit_w=250.0 clock_mhz=600 share_w=70.0"
        assert [(r.time_s, r.chose) for r in decisions(world) if r.point == "cap"] == [
            (3.0, in_force),
            (4.0, in_force),
            (6.0, f"power_limit_w=100.0 share_w={low_w}"),
        ]

    @settings(max_examples=examples(60))
    @given(
        clocks=st.lists(points, min_size=1, max_size=4),
        values=st.lists(st.floats(120.0, 700.0), min_size=1, max_size=12),
        share=st.sampled_from(["marginal", "proportional", "common"]),
        order=st.lists(st.integers(0, 20), min_size=1, max_size=12),
    )
    def test_no_instant_is_above_the_cap(
        self, clocks: list[tuple[float, float]], values: list[float], share: Any, order: list[int]
    ) -> None:
        locked = tuple(ClockSetting(600 + 100 * n, *point) for n, point in enumerate(clocks))
        known = by_job(add_clocks(steady(5.0, 2.0), locked))
        paces = [Knobs(limit_w) for limit_w in LIMITS_W]
        paces += [Knobs(250.0, clock_mhz=setting.clock_mhz) for setting in locked]

        turns = cycle(order)

        def answer(ctx: Context, running: Running) -> Knobs:
            return paces[next(turns) % len(paces)]

        caps = [1000.0, *values, 1000.0]
        world = run_world(
            [job(str(n), n * 0.7) for n in range(3)],
            known,
            capped(spec(1, 2), obey="limits", share=share),
            tuned(answer, "signal", "epoch"),
            signals=slots(*range(20), length_s=1.3) | {"cap": signal("cap", 1.0, caps)},
        )
        check_cap(world, 1.0, caps)
        line, rows = timeline_of(world), attempts(world)
        jobs_j = sum(row.energy_j for row in rows)
        busy_s = sum(row.time_s + row.overhead_s for row in rows)
        idle_j = 20.0 * (2 * float(line.time_s[-1]) - busy_s)
        assert integral(line, line.power_w) == pytest.approx(jobs_j + idle_j, rel=1e-6)
