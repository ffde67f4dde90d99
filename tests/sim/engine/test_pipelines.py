"""Pipeline-parallel jobs in a world: plans of clocks, and stragglers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.messages import assert_states
from tests.support.pipelines import made_up_profile
from tests.support.worlds import (
    attempts,
    by_job,
    chosen,
    decided,
    decisions,
    integral,
    run_world,
    spec,
    steady,
    stub,
    timeline_of,
)
from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.pipeline.exact import exact_frontier
from wattkeeper.policies.pipeline.profile import ClockPlan
from wattkeeper.policies.pipeline.published import published_frontier
from wattkeeper.policies.pipeline.schedules import PipelineSchedule
from wattkeeper.policies.pipeline.task import PipelineTask
from wattkeeper.policies.points.moments import START_MOMENTS, Moment
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.views import Knobs, Running
from wattkeeper.policies.registry import policies
from wattkeeper.policies.tune.perseus import PerseusConfig
from wattkeeper.policies.tune.pipeline_exact import PipelineExactConfig
from wattkeeper.scenarios.contract.scripted import GPU, example, job
from wattkeeper.sim.engine.stragglers import DrawnStragglers, Slowdown
from wattkeeper.traces.pipelines import replayed_profile

TASK = PipelineTask(made_up_profile(3, seed=5), PipelineSchedule("1f1b", 3, 4))
ITERATIONS = 20
KNOWN = by_job(replayed_profile("p", GPU, 3, TASK, ITERATIONS))
FASTEST = TASK.fastest
LOWEST, HIGHEST = TASK.clocks_mhz[0], TASK.clocks_mhz[-1]
SLOW = TASK.execute(None, LOWEST)
ROOM = spec(1, 3)


def pipeline(job_id: str = "a", submit_s: float = 0.0) -> Any:
    return job(job_id, submit_s, workload="p", gpus=3)


def answering(
    answer: Callable[[Context, Running], Knobs | None], *moments: Moment, first: Knobs | None = None
) -> Any:
    """Policies whose `Tune` starts at the highest clocks, or with `first`, and answers so later."""

    def tune(ctx: Context, running: Running) -> Knobs | None:
        return (first or Knobs(1.0)) if running.moment == "start" else answer(ctx, running)

    return chosen(tune=stub("tune", tune=tune, moments=(*START_MOMENTS, *moments)))


class TestPlans:
    def test_without_clocks_all_run_at_the_highest(self) -> None:
        (row,) = attempts(run_world([pipeline()], KNOWN, ROOM))
        assert row.time_s == pytest.approx(ITERATIONS * FASTEST.time_s)
        assert row.energy_j == pytest.approx(ITERATIONS * FASTEST.energy_j)
        assert (row.epochs, row.batch_size, row.reached_target) == (ITERATIONS, 4, True)

    @pytest.mark.parametrize(
        "knobs", [Knobs(1.0, clock_mhz=LOWEST), Knobs(1.0, plan=TASK.plan_at(LOWEST))]
    )
    def test_clocks_at_the_start(self, knobs: Knobs) -> None:
        policy_set = answering(lambda *_: None, first=knobs)
        world = run_world([pipeline()], KNOWN, ROOM, policy_set)
        (row,) = attempts(world)
        assert row.time_s == pytest.approx(ITERATIONS * SLOW.time_s)
        assert row.energy_j == pytest.approx(ITERATIONS * SLOW.energy_j)
        ((_, _, chose),) = decided(world, "tune")
        assert chose.partition("=")[0] in ("clock_mhz", "plan")

    @pytest.mark.parametrize(
        ("policy_set", "chose"),
        [
            (chosen(tune="max-power"), ["go"]),
            (chosen(tune="zeus-jit"), ["profile_w=[]", "go"]),
            (chosen(configure="oracle"), []),
        ],
    )
    def test_the_journal_names_no_power_limit(self, policy_set: Any, chose: list[str]) -> None:
        """A pipeline has none: `UNLIMITED_W` stands for that in knobs alone."""
        world = run_world([pipeline()], KNOWN, ROOM, policy_set)
        assert [text for _, _, text in decided(world, "tune")] == chose
        ((_, _, configured),) = decided(world, "configure")
        assert configured.split()[0] == "batch_size=4"
        assert "=1.0" not in configured

    def test_clocks_that_change_hold_from_the_moment_on(self) -> None:
        plan = TASK.plan_at(LOWEST)

        def slow_then_fast(ctx: Context, running: Running) -> Knobs | None:
            at = round(running.progress.epochs)
            return {5: Knobs(plan=plan), 12: Knobs(clock_mhz=HIGHEST)}.get(at)

        world = run_world([pipeline()], KNOWN, ROOM, answering(slow_then_fast, "epoch"))
        (row,) = attempts(world)
        assert row.time_s == pytest.approx(13 * FASTEST.time_s + 7 * SLOW.time_s)
        assert row.energy_j == pytest.approx(13 * FASTEST.energy_j + 7 * SLOW.energy_j)
        chose = [text for _, _, text in decided(world, "tune")]
        assert f"epoch: plan={'|'.join(','.join(map(str, clocks)) for clocks in plan)}" in chose
        assert f"epoch: clock_mhz={HIGHEST}" in chose

    @pytest.mark.parametrize(
        ("knobs", "facts"),
        [
            (Knobs(clock_mhz=1), ("1 MHz", str(LOWEST), str(HIGHEST))),
            (Knobs(plan=((LOWEST,),)), ("[1]", "[8, 8, 8]")),
            (Knobs(clock_mhz=LOWEST, plan=TASK.plan_at(LOWEST)), ("plan", str(LOWEST), "one")),
        ],
    )
    def test_clocks_that_were_not_measured_are_refused(
        self, knobs: Knobs, facts: Sequence[str]
    ) -> None:
        with pytest.raises(PolicyError) as error:
            run_world([pipeline()], KNOWN, ROOM, answering(lambda *_: knobs, "epoch"))
        assert_states(str(error.value), "a", *facts)

    def test_ordinary_jobs_have_no_clocks(self) -> None:
        with pytest.raises(PolicyError, match="cnn"):
            run_world(
                [job()],
                by_job(steady()),
                None,
                chosen(tune=stub("tune", tune=lambda *_: Knobs(250.0, clock_mhz=1200))),
            )


def paced(factor: float, plan: ClockPlan | None = None) -> tuple[float, float]:
    """Time and energy of an iteration under a straggler."""
    iteration = TASK.execute(plan)
    time_s = max(iteration.time_s, factor * FASTEST.time_s)
    return time_s, iteration.held(time_s, TASK.waiting_w)


class TestStragglers:
    def test_iterations_wait_for_a_straggler_at_blocking_power(self) -> None:
        between = (Slowdown(4 * FASTEST.time_s, 1.5), Slowdown(10 * FASTEST.time_s, 1.0))
        world = run_world([pipeline()], KNOWN, ROOM, stragglers={"a": between})
        (row,) = attempts(world)
        slow_s, slow_j = paced(1.5)
        slow = 6 * FASTEST.time_s / slow_s
        fast = ITERATIONS - slow
        assert row.time_s == pytest.approx(fast * FASTEST.time_s + slow * slow_s)
        assert row.energy_j == pytest.approx(fast * FASTEST.energy_j + slow * slow_j)
        assert slow_j == pytest.approx(FASTEST.energy_j + 3 * 70 * 0.5 * FASTEST.time_s)

    def test_a_policy_is_asked_when_a_straggler_comes_and_goes(self) -> None:
        seen: list[tuple[float, Moment, float]] = []

        def look(ctx: Context, running: Running) -> None:
            seen.append((ctx.now_s, running.moment, running.slowdown))

        stragglers = {"a": (Slowdown(1.0, 1.2), Slowdown(3.0, 1.0), Slowdown(1e9, 2.0))}
        world = run_world(
            [pipeline(), pipeline("b")],
            KNOWN,
            spec(2, 3),
            answering(look, "straggler"),
            stragglers=stragglers,
        )
        assert seen == [(1.0, "straggler", 1.2), (3.0, "straggler", 1.0)]
        assert world.env.now < 1e6

    def test_a_straggler_from_before_the_start_holds(self) -> None:
        slowdowns: list[float] = []
        world = run_world(
            [pipeline("b"), pipeline("a")],
            KNOWN,
            ROOM,
            answering(lambda _, running: slowdowns.append(running.slowdown), "straggler"),
            stragglers={"a": (Slowdown(0.5, 3.0), Slowdown(1.0, 1.25))},
        )
        row = attempts(world)[-1]
        assert row.time_s == pytest.approx(ITERATIONS * paced(1.25)[0])
        assert slowdowns == [1.25]

    def test_drawn_stragglers_depend_on_seed_and_job_alone(self) -> None:
        stragglers = dict.fromkeys("ab", DrawnStragglers(5.0, 5.0, 0.5))

        def run(seed: int, *submit_s: float) -> dict[str, float]:
            jobs = [pipeline(name, at) for name, at in zip("ab", submit_s, strict=True)]
            world = run_world(jobs, KNOWN, spec(2, 3), seed=seed, stragglers=stragglers)
            return {row.job_id: row.time_s for row in attempts(world)}

        one = run(1, 0.0, 0.0)
        assert one == run(1, 0.0, 0.0)
        assert one["a"] != one["b"]
        assert one["a"] == pytest.approx(run(1, 0.0, 7.0)["a"])
        assert one != run(2, 0.0, 0.0)
        assert min(one.values()) > ITERATIONS * FASTEST.time_s

    @given(
        changes=st.lists(st.tuples(st.floats(0.01, 5), st.floats(1, 3)), max_size=12),
        plans=st.lists(st.sampled_from(TASK.clocks_mhz), min_size=1, max_size=5),
    )
    def test_work_is_conserved_and_energy_is_the_integral_of_power(
        self, changes: list[tuple[float, float]], plans: list[int]
    ) -> None:
        at_s, stragglers = 0.0, []
        for gap_s, factor in changes:
            at_s += gap_s
            stragglers.append(Slowdown(at_s, factor))
        asked = iter(range(1000))
        world = run_world(
            [pipeline()],
            KNOWN,
            ROOM,
            answering(lambda *_: Knobs(clock_mhz=plans[next(asked) % len(plans)]), "straggler"),
            stragglers={"a": tuple(stragglers)},
        )
        (row,) = attempts(world)
        line = timeline_of(world)
        assert integral(line, line.power_w) == pytest.approx(row.energy_j)
        assert (row.epochs, row.reached_target) == (ITERATIONS, True)
        # The iterations of all pieces add up.
        clock, factor, since_s, done = None, 1.0, 0.0, 0.0
        count = 0
        for change in (*stragglers, None):
            plan = None if clock is None else TASK.plan_at(clock)
            iteration_s = TASK.execute(plan).time_s
            if factor > 1:
                iteration_s = max(iteration_s, factor * FASTEST.time_s)
            end_s = row.finish_time_s if change is None else min(change.time_s, row.finish_time_s)
            done += (end_s - since_s) / iteration_s
            since_s = end_s
            if change is not None and change.time_s < row.finish_time_s:
                clock, factor = plans[count % len(plans)], change.factor
                count += 1
        assert done == pytest.approx(ITERATIONS)


class TestPerseus:
    def test_it_moves_along_its_frontier(self) -> None:
        config = PerseusConfig(unit_time_s=0.005)
        frontier = published_frontier(TASK.profile, TASK.graph, 0.005)
        for factor in (1.0, 1.1, 1.4):
            world = run_world(
                [pipeline()],
                KNOWN,
                ROOM,
                chosen(tune=config),
                stragglers={"a": (Slowdown(0.0, factor),)},
            )
            (row,) = attempts(world)
            step = frontier.steps[frontier.step_for(factor * FASTEST.time_s)]
            time_s = max(step.time_s, factor * FASTEST.time_s) if factor > 1 else step.time_s
            assert row.time_s == pytest.approx(ITERATIONS * time_s)
            energy_j = step.energy_j + frontier.waiting_w * (time_s - step.time_s)
            assert row.energy_j == pytest.approx(ITERATIONS * energy_j)

    def test_it_goes_back_when_the_straggler_is_gone(self) -> None:
        world = run_world(
            [pipeline()],
            KNOWN,
            ROOM,
            chosen(tune=PerseusConfig(unit_time_s=0.005)),
            stragglers={"a": (Slowdown(5.0, 1.3), Slowdown(9.0, 1.0))},
        )
        first, slow, again = [each.chose for each in decisions(world) if each.point == "tune"]
        assert again == f"straggler: {first}"
        assert slow.startswith("straggler: plan=")
        assert slow != again

    @pytest.mark.parametrize("factor", [1.0, 1.02, 1.1, 1.2, 1.5, 3.0])
    def test_exact_plans_need_no_more_and_are_no_slower(self, factor: float) -> None:
        rows = [
            attempts(
                run_world(
                    [pipeline()],
                    KNOWN,
                    ROOM,
                    chosen(tune=config),
                    stragglers={"a": (Slowdown(0.0, factor),)},
                )
            )[0]
            for config in (PipelineExactConfig(), PerseusConfig(unit_time_s=0.005))
        ]
        exact, published = rows
        allowed_s = ITERATIONS * factor * FASTEST.time_s * (1 + 1e-6)
        assert exact.time_s <= allowed_s
        if published.time_s <= allowed_s:  # its fastest plan is slower than the highest clocks
            assert exact.energy_j <= published.energy_j
        if factor > 1:
            bound_j = exact_frontier(TASK.profile, TASK.graph).bound_j(factor * FASTEST.time_s)
            assert bound_j * (1 - 1e-9) <= exact.energy_j / ITERATIONS <= 1.007 * bound_j

    def test_extra_time_saves_energy_up_to_the_cheapest_plan(self) -> None:
        energies, times = [], []
        for extra_time in (0.0, 0.03, 0.06, 10.0):
            config = PipelineExactConfig(extra_time=extra_time)
            (row,) = attempts(run_world([pipeline()], KNOWN, ROOM, chosen(tune=config)))
            energies.append(row.energy_j)
            times.append(row.time_s)
            assert row.time_s <= ITERATIONS * (1 + extra_time) * FASTEST.time_s * (1 + 1e-6)
        assert energies == sorted(energies, reverse=True)
        assert times[-1] <= ITERATIONS * exact_frontier(
            TASK.profile, TASK.graph
        ).cheapest.time_s * (1 + 1e-6)

    def test_it_leaves_ordinary_jobs_alone(self) -> None:
        plain = run_world([job()], by_job(steady()))
        tuned = run_world([job()], by_job(steady()), None, chosen(tune=PerseusConfig()))
        assert attempts(plain)[0].time_s == attempts(tuned)[0].time_s

    def test_fixed_clock(self) -> None:
        config = example(policies("tune")["fixed-clock"]).model_copy(update={"clock_mhz": LOWEST})
        (row,) = attempts(run_world([pipeline()], KNOWN, ROOM, chosen(tune=config)))
        assert row.energy_j == pytest.approx(ITERATIONS * SLOW.energy_j)
