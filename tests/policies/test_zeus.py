"""The policies of Zeus (NSDI '23), part by part, against plain restatements of what they do."""

from __future__ import annotations

import math
import statistics
import zlib
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.worlds import (
    GPU,
    NEVER,
    AttemptRow,
    ScriptedContext,
    attempts,
    by_job,
    chosen,
    curve,
    curves,
    decided,
    decisions,
    job,
    profile,
    profiles,
    run_world,
    spec,
)
from wattkeeper.policies.configure._bandit import GaussianThompson, Rewards
from wattkeeper.policies.configure._exploration import PruningExploration
from wattkeeper.policies.configure.oracle import OracleConfig
from wattkeeper.policies.configure.zeus import Zeus, ZeusConfig
from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.profile import Curve, KnobChoice, Objective, Profile, expectations, optimum
from wattkeeper.policies.protocols import Configuration, Measurement, Outcome, Running, Start
from wattkeeper.policies.tune.zeus_jit import ZeusJitConfig
from wattkeeper.sim.engine.rng import PublishedStreams, checksum
from wattkeeper.sim.engine.sources import RecurringSource

# --- exploration with pruning

SIZES = (8, 16, 32, 64, 128)

Result = tuple[float, bool]
"""Cost, and whether the target was reached."""

Results = Callable[[int, int], Result]
"""By round (1 or 2) and batch size."""


def published_round(sizes: Sequence[int], start: int, results: Callable[[int], Result]) -> dict:
    """A round of the published code; the start is the first of the downward direction.

    Returns:
        The result of each batch size that was visited, in order.
    """
    at = sizes.index(start)
    visited: dict[int, Result] = {}
    for direction in (sizes[at::-1], sizes[at + 1 :]):
        for size in direction:
            visited[size] = results(size)
            if not visited[size][1]:
                break
    return visited


def published(start: int, results: Results) -> tuple[list[int], list[int]]:
    """What the published code visits, and what it is left with."""
    left: Sequence[int] = SIZES
    visits: list[int] = []
    for number in (1, 2):
        seen = published_round(left, start, partial(results, number))
        visits += seen
        good = {size: cost for size, (cost, reached) in seen.items() if reached}
        if not good:
            return visits, []
        start = min(good, key=good.__getitem__)
        left = sorted(good)
    return visits, list(left)


def explore(start: int, results: Results) -> tuple[list[int], list[int]]:
    """The same of ours, up to the failure of a whole round, which the published code refuses."""
    exploration = PruningExploration(SIZES, start)
    visits: list[int] = []
    any_good = {1: False, 2: False}
    while (size := exploration.propose()) is not None:
        visits.append(size)
        assert len(visits) <= 2 * len(SIZES)
        number = visits.count(size)
        cost, reached = results(number, size)
        any_good[number] |= reached
        exploration.report(size, cost, reached)
    return visits, exploration.survivors if all(any_good.values()) else []


Table = dict[tuple[int, int], Result]
some_cost = st.floats(1.0, 1e6) | st.sampled_from([1.0, 2.0])
tables: st.SearchStrategy[Table] = st.fixed_dictionaries(
    {(number, size): st.tuples(some_cost, st.booleans()) for number in (1, 2) for size in SIZES}
)
a_start = st.sampled_from(SIZES)


@settings(max_examples=300)
@given(table=tables, start=a_start)
def test_exploration_whose_starts_reach_the_target(table: Table, start: int) -> None:
    table[1, start] = (table[1, start][0], True)
    seen = published_round(SIZES, start, lambda size: table[1, size])
    second = min((size for size in seen if seen[size][1]), key=lambda size: seen[size][0])
    table[2, second] = (table[2, second][0], True)
    ours = explore(start, lambda number, size: table[number, size])
    assert ours == published(start, lambda number, size: table[number, size])
    assert ours[1]


@settings(max_examples=300)
@given(table=tables, start=a_start)
def test_exploration_of_arbitrary_results(table: Table, start: int) -> None:
    def results(number: int, size: int) -> Result:
        return table[number, size]

    assert explore(start, results) == published(start, results)


def test_a_start_that_misses_prunes_the_smaller_ones() -> None:
    """As in the published code, where the start is the first of the downward direction."""
    exploration = PruningExploration([16, 32, 64], 32)
    assert exploration.propose() == 32
    exploration.report(32, 1.0, False)
    assert exploration.propose() == 64


@pytest.mark.parametrize(
    ("missed", "visits", "survivors"),
    [
        ((), [32, 16, 8, 64, 128, 8, 16, 32, 64, 128], [8, 16, 32, 64, 128]),
        ((16,), [32, 16, 64, 128, 32, 64, 128], [32, 64, 128]),
        ((8, 64), [32, 16, 8, 64, 16, 32], [16, 32]),
        ((16, 64), [32, 16, 64, 32], [32]),
    ],
)
def test_order_of_visits(missed: tuple[int, ...], visits: list[int], survivors: list[int]) -> None:
    """The cost of a batch size is the batch size: the second round begins at the smallest."""
    assert explore(32, lambda _, size: (size, size not in missed)) == (visits, survivors)


@settings(max_examples=200)
@given(
    table=tables,
    start=a_start,
    strays=st.lists(st.tuples(st.sampled_from([*SIZES, 7]), st.booleans()), max_size=30),
    questions=st.lists(st.integers(1, 3), min_size=1, max_size=5),
)
def test_unexpected_results_are_ignored(
    table: Table, start: int, strays: list[tuple[int, bool]], questions: list[int]
) -> None:
    calm, disturbed = PruningExploration(SIZES, start), PruningExploration(SIZES, start)
    disturbed.report(start, 0.5, False)  # nothing was proposed yet
    visits: list[int] = []
    while (size := calm.propose()) is not None:
        for _ in range(questions[len(visits) % len(questions)]):
            assert disturbed.propose() == size, "not the same until its result is reported"
        for stray, reached in strays:
            if stray != size:
                disturbed.report(stray, 0.5, reached)
        visits.append(size)
        result = table[visits.count(size), size]
        calm.report(size, *result)
        disturbed.report(size, *result)
        disturbed.report(size, 0.5, not result[1])  # it came before
    assert disturbed.propose() is None
    assert disturbed.survivors == calm.survivors


# --- Gaussian Thompson sampling

rewards_seen = st.lists(st.floats(-1e9, -1e-3), min_size=1, max_size=60)
windows = st.none() | st.integers(1, 12)


def rewards_of(seen: Sequence[float], window: int | None = None) -> Rewards:
    rewards = Rewards(window)
    for reward in seen:
        rewards.add(reward)
    return rewards


@settings(max_examples=300)
@given(seen=rewards_seen, window=windows)
def test_belief_is_mean_and_deviation_of_the_mean(seen: list[float], window: int | None) -> None:
    kept = np.array(seen if window is None else seen[-window:])
    mean, deviation = rewards_of(seen, window).belief()
    close = 1e-12 * float(np.abs(kept).max())
    assert mean == pytest.approx(kept.mean(), rel=1e-12, abs=close)
    assert deviation == pytest.approx(math.sqrt(kept.var() / len(kept)), rel=1e-12, abs=close)


@given(reward=st.floats(-1e12, 0.0), times=st.integers(1, 200), window=windows)
def test_equal_rewards_have_no_deviation(reward: float, times: int, window: int | None) -> None:
    assert rewards_of([reward] * times, window).belief() == (reward, 0.0)


@given(before=rewards_seen, after=rewards_seen)
def test_a_window_forgets(before: list[float], after: list[float]) -> None:
    window = len(after)
    moved = rewards_of([*before, *after], window)
    assert moved.belief() == rewards_of(after, window).belief()
    assert len(moved.state_dict()["last"]) == window


arm_rewards = st.dictionaries(st.sampled_from(SIZES), rewards_seen, min_size=1)


@settings(max_examples=200)
@given(seen=arm_rewards, seed=st.integers(0, 2**32))
def test_a_draw_consumes_as_many_random_numbers_as_the_published_code(
    seen: dict[int, list[float]], seed: int
) -> None:
    arms = sorted(seen)
    rewards = {arm: rewards_of(seen[arm]) for arm in arms}
    bandit = GaussianThompson(arms, rewards)
    ours, theirs = np.random.default_rng(seed), np.random.default_rng(seed)
    for _ in range(5):
        theirs.choice(np.array(arms), len(arms), replace=False)
        drawn = {arm: theirs.normal(*rewards[arm].belief()) for arm in arms}
        assert bandit.draw(ours) == max(drawn, key=drawn.__getitem__)
        assert ours.bit_generator.state == theirs.bit_generator.state


@given(seen=arm_rewards, more=rewards_seen, learnt=st.sampled_from(SIZES), seed=st.integers(0, 99))
def test_learning_updates_one_arm(
    seen: dict[int, list[float]], more: list[float], learnt: int, seed: int
) -> None:
    """It equals a bandit that is made anew; an arm that was dropped is no arm again."""
    arms = sorted(seen)
    bandit = GaussianThompson(arms, {arm: rewards_of(seen[arm]) for arm in arms})
    bandit.learn(learnt, rewards_of([*seen.get(learnt, []), *more]))
    renewed = {arm: rewards_of([*seen[arm], *(more if arm == learnt else [])]) for arm in arms}
    ours, anew = np.random.default_rng(seed), np.random.default_rng(seed)
    for _ in range(5):
        assert bandit.draw(ours) == GaussianThompson(arms, renewed).draw(anew)


def test_an_arm_wins_as_often_as_it_is_believed_to_be_better() -> None:
    rewards = {16: rewards_of([-80.0, -120.0] * 5), 32: rewards_of([-85.0, -125.0] * 5)}
    bandit, rng = GaussianThompson([16, 32], rewards), np.random.default_rng(2)
    (mean, deviation), (other_mean, other_deviation) = rewards[16].belief(), rewards[32].belief()
    z = (mean - other_mean) / math.hypot(deviation, other_deviation)
    expected = statistics.NormalDist().cdf(z)
    draws = [bandit.draw(rng) for _ in range(4000)]
    assert 0.6 < expected < 0.8
    assert draws.count(16) / len(draws) == pytest.approx(expected, abs=0.04)


# --- zeus: accounts and bounds

ANY = profile()


class Accounts:
    """A `Zeus` and one group, told outcomes of its own making."""

    def __init__(self, config: ZeusConfig) -> None:
        self.ctx = ScriptedContext(ANY)
        self.zeus: Zeus = config.build()

    def attempt(self, job_id: str, number: int, result: Result | None) -> Configuration:
        """Start an attempt and end it; None if it never ran."""
        start = Start(job(job_id, group="g"), number, self.ctx.options(), 0)
        configuration = self.zeus.configure(self.ctx, start)
        cost, reached = result or (0.0, False)
        epochs = 5 if result else 0
        size = configuration.batch_size
        outcome = Outcome(start, size, 250.0, epochs, 1.0, 1.0, cost, reached)
        self.zeus.observe(self.ctx, outcome)
        return configuration

    def rewards(self, batch_size: int) -> tuple[int, float]:
        """How many rewards were seen of a batch size, and their mean."""
        (state,) = self.zeus.state_dict().values()
        kept = dict(state["rewards"])[batch_size]
        return kept["count"], kept["mean"]

    def bound(self) -> float:
        start = Start(job("next", group="g"), 1, self.ctx.options(), 0)
        return self.zeus.configure(self.ctx, start).cost_bound


tries_of_jobs = st.lists(
    st.lists(st.none() | st.tuples(st.floats(1.0, 1e6), st.just(False)), max_size=4).flatmap(
        lambda failed: st.floats(1.0, 1e6).map(lambda cost: [*failed, (cost, True)])
    ),
    min_size=1,
    max_size=8,
)


@given(
    jobs=tries_of_jobs, beta=st.floats(0.5, 8.0), overlapping=st.booleans(), given_up=st.booleans()
)
def test_bound_is_beta_times_the_cheapest(
    jobs: list[list[Result | None]], beta: float, overlapping: bool, given_up: bool
) -> None:
    """The cheapest recurrence with all its attempts; overlapping: the cheapest attempt alone."""
    accounts = Accounts(ZeusConfig(beta=beta, overlapping=overlapping))
    assert accounts.bound() == math.inf
    jobs = [[(100.0, True)], *jobs]  # what never ran had a bound
    if given_up:
        jobs.insert(1, [(1.0, False), (1.0, False)])
    cheapest = math.inf
    for number, tries in enumerate(jobs):
        paid = 0.0
        for attempt, result in enumerate(tries, 1):
            configuration = accounts.attempt(f"job-{number}", attempt, result)
            assert configuration.cost_bound == beta * cheapest
            assert configuration.power_limit_w is None
            cost, reached = result or (0.0, False)
            paid = cost if overlapping else paid + cost
            if reached:
                cheapest = min(cheapest, paid)
    assert accounts.bound() == beta * cheapest


def test_never_ran_counts_as_a_hundred_bounds() -> None:
    accounts = Accounts(ZeusConfig(beta=3.0))
    assert accounts.attempt("a", 1, (10.0, True)).batch_size == 32
    refused = accounts.attempt("b", 1, None).batch_size
    assert refused == 16
    assert accounts.rewards(refused) == (1, -100 * 3.0 * 10.0)
    after = accounts.attempt("b", 2, (7.0, True)).batch_size
    assert after == 64, "the rest of the direction was not dropped"
    assert accounts.bound() == 3.0 * 7.0, "it was counted in the recurrence"


def test_never_ran_counts_as_free_where_jobs_overlap() -> None:
    accounts = Accounts(ZeusConfig(beta=3.0, overlapping=True))
    accounts.attempt("a", 1, (10.0, True))
    refused = accounts.attempt("b", 1, None).batch_size
    assert accounts.rewards(refused) == (1, 0.0)
    assert accounts.attempt("b", 2, (7.0, True)).batch_size == 64
    assert accounts.bound() == 3.0 * 7.0


def test_failed_attempts_are_rewards_too() -> None:
    accounts = Accounts(ZeusConfig())
    accounts.attempt("a", 1, (10.0, True))
    missed = accounts.attempt("b", 1, (15.0, False)).batch_size
    assert accounts.rewards(missed) == (1, -15.0)


def test_zeus_uses_the_best_so_far_while_the_group_runs() -> None:
    accounts = Accounts(ZeusConfig())

    def beside() -> int:
        start = Start(job("beside", group="g"), 1, accounts.ctx.options(), 1)
        return accounts.zeus.configure(accounts.ctx, start).batch_size

    assert beside() == 32, "nothing is known yet"
    accounts.attempt("a", 1, (10.0, True))
    accounts.attempt("b", 1, (9.0, True))
    assert beside() == 16
    accounts.attempt("c", 1, (9.0, True))
    assert beside() == 16, "a tie does not move it"


def test_each_group_draws_from_its_own_stream() -> None:
    """The stream is named after the group, and only a bandit draws."""
    ctx = ScriptedContext(profile(runs={16: (4.0,), 32: (4.0,)}))
    zeus = ZeusConfig().build()
    asked: list[str] = []
    streams = ctx.rng

    def rng(name: str) -> np.random.Generator:
        asked.append(name)
        return streams(name)

    ctx.rng = rng  # type: ignore[method-assign]
    for group in ("a", "b"):
        before = [ctx._names.policy("test", x).bit_generator.state for x in "ab"]
        for number in range(8):
            start = Start(job(f"{group}/{number}", group=group), 1, ctx.options(), 0)
            size = zeus.configure(ctx, start).batch_size
            if number == 3:
                assert streams(group).bit_generator.state == before["ab".index(group)]
            zeus.observe(ctx, Outcome(start, size, 250.0, 4, 1.0, 1.0, 9.0 + number, True))
        assert set(asked) == {group}
        assert streams(group).bit_generator.state != before["ab".index(group)]
        asked.clear()


def sequential(
    runs: dict[int, tuple[float, ...]] | None = None, beta: float = 2.0, seed: int = 1
) -> list[AttemptRow]:
    """The attempts of 40 recurrences under Zeus."""
    known = profile(runs=runs) if runs else profile()
    policy_set = chosen(configure=ZeusConfig(beta=beta), tune="zeus-jit")
    source = RecurringSource({"cnn": 40})
    return attempts(run_world(source, by_job(known), None, policy_set, seed=seed))


def test_zeus_explores_then_exploits_the_survivors() -> None:
    rows = sequential({16: (4.0,), 32: (4.0,), 64: (4.0,), 128: (NEVER,)})
    sizes = [row.batch_size or 0 for row in rows]
    assert sizes[:4] == [32, 16, 64, 128]
    assert [row.attempt for row in rows[:5]] == [1, 1, 1, 1, 2], "128 misses, and is tried again"
    assert sorted(sizes[4:7]) == [16, 32, 64]
    assert set(sizes[7:]) <= {16, 32, 64}


def test_no_attempt_costs_more_than_the_bound_and_an_epoch() -> None:
    known, beta = profile(), 1.2
    rows = sequential(beta=beta)
    cheapest, paid = math.inf, 0.0
    stopped = 0
    for row in rows:
        assert row.batch_size is not None
        assert row.power_limit_w is not None
        assert known.max_power_w == known.curves[row.batch_size].max_limit_w
        epoch_s, epoch_j = known.curves[row.batch_size].epoch(row.power_limit_w)
        epoch_cost = Objective(0.5).cost(epoch_j, epoch_s, known.max_power_w)
        if not row.profiled:
            assert row.cost <= beta * cheapest * (1 + 1e-12)
            if row.early_stopped:
                stopped += 1
                assert row.cost + epoch_cost > beta * cheapest
        paid = row.cost if row.attempt == 1 else paid + row.cost
        if row.reached_target:
            cheapest = min(cheapest, paid)
    assert stopped


# --- zeus-jit


def make_running(batch_size: int, measured: tuple[Measurement, ...], group: str = "g") -> Running:
    start = Start(job("a", group=group), 1, ScriptedContext(ANY).options(), 0)
    return Running(start, Configuration(batch_size), measured)


def jit(eta: float, *measured: tuple[float, float, float]) -> float | None:
    report = tuple(Measurement(*point) for point in measured)
    policy = ZeusJitConfig().build()
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


# --- grid search


def grid_search(recurrences: int, known: Profile, **settings: object) -> list[AttemptRow]:
    world = run_world(
        RecurringSource({"cnn": recurrences}),
        by_job(known),
        None,
        chosen(configure="grid-search"),
        **settings,
    )
    assert not decided(world, "tune")
    return attempts(world)


def test_grid_search_visits_outwards_from_the_highest_limit() -> None:
    known = profile(runs={16: (4.0,), 32: (4.0,), 64: (4.0,), 128: (4.0,)})
    rows = grid_search(20, known)
    grid = [(size, limit) for size in (32, 16, 64, 128) for limit in (250.0, 150.0, 100.0)]
    assert [(row.batch_size, row.power_limit_w) for row in rows[:12]] == grid
    best = min(rows[:12], key=lambda row: row.cost)
    assert {(row.batch_size, row.power_limit_w) for row in rows[12:]} == {
        (best.batch_size, best.power_limit_w)
    }


def test_grid_search_drops_a_batch_size_that_fails_and_retries_with_the_best() -> None:
    known = profile(runs={16: (NEVER,), 32: (4.0,), 64: (4.0,)}, limits_w=(150.0, 250.0))
    rows = grid_search(5, known)
    tried = [(row.recurrence, row.attempt, row.batch_size, row.power_limit_w) for row in rows]
    best = min(rows[:2], key=lambda row: row.cost).power_limit_w
    assert tried[:6] == [
        (1, 1, 32, 250.0),
        (2, 1, 32, 150.0),
        (3, 1, 16, 250.0),
        (3, 2, 32, best),
        (4, 1, 64, 250.0),
        (5, 1, 64, 150.0),
    ]
    assert len(tried) == 6


def test_grid_search_uses_the_best_while_the_group_runs() -> None:
    """Without one, it tries the same configuration as the other does."""
    known = profile(runs={32: (4.0,), 64: (4.0,)})
    jobs = [job(f"{n}", 1000.0 * (n // 2), group="g") for n in range(8)]
    policy_set = chosen(configure="grid-search")
    world = run_world(jobs, by_job(known), spec(nodes=2), policy_set, eta=1.0)
    rows = attempts(world)
    ran = {row.job_id: (row.batch_size, row.power_limit_w) for row in rows}
    grid = [(32, 250.0), (32, 150.0), (32, 100.0), (64, 250.0)]
    assert [ran[f"{n}"] for n in range(0, 8, 2)] == grid
    costs = {(row.batch_size, row.power_limit_w): row.cost for row in rows}
    best = [min(grid[: n or 1], key=costs.__getitem__) for n in range(4)]
    assert [ran[f"{n}"] for n in range(1, 8, 2)] == best
    assert len(set(best)) == 3


def test_grid_search_without_any_success_ends_with_the_default() -> None:
    known = profile(runs={16: (NEVER,), 32: (NEVER,)}, limits_w=(150.0, 250.0))
    rows = grid_search(2, known, max_attempts=3)
    assert [(row.batch_size, row.power_limit_w) for row in rows[:4]] == [
        (32, 250.0),
        (16, 250.0),
        (32, 250.0),
        (32, 250.0),
    ]


@given(known=profiles(), seed=st.integers(0, 999))
def test_grid_search_of_any_profile(known: Profile, seed: int) -> None:
    sizes = sorted(
        known.curves,
        key=lambda b: (b > known.default_batch_size, abs(b - known.default_batch_size)),
    )
    to_try = [(b, limit) for b in sizes for limit in known.curves[b].limits_w[::-1]]
    best: AttemptRow | None = None
    for row in grid_search(30, known, seed=seed, max_attempts=3):
        ran = (row.batch_size, row.power_limit_w)
        trying = bool(to_try) and (row.attempt == 1 or best is None)
        if trying:
            assert ran == to_try.pop(0)
        elif best is not None:
            assert ran == (best.batch_size, best.power_limit_w)
        else:
            default = known.default_batch_size
            assert ran == (default, known.curves[default].max_limit_w)
        if trying and not row.reached_target:
            to_try = [point for point in to_try if point[0] != row.batch_size]
        if row.reached_target and (best is None or row.cost < best.cost):
            best = row


# --- oracle

every_turn = pytest.mark.parametrize("knobs", ["both", "batch-size", "power-limit"])


def brute_force(known: Profile, eta: float, knobs: KnobChoice) -> dict[tuple[int, float], float]:
    """Expected cost by configuration.

    A failed run costs `max_epochs` and starts anew: the expected number of epochs is the mean over
    all runs of their epochs, or of `max_epochs` and the expected number again; solved for it.
    """
    found = {}
    for size, at in known.curves.items():
        reached = [epochs for epochs in at.epochs if epochs <= known.max_epochs]
        failed = len(at.epochs) - len(reached)
        if not reached or (knobs == "power-limit" and size != known.default_batch_size):
            continue
        epochs = (sum(reached) + failed * known.max_epochs) / len(reached)
        points = list(zip(at.limits_w, at.time_per_epoch_s, at.average_power_w, strict=True))
        for limit_w, time_s, power_w in points[-1:] if knobs == "batch-size" else points:
            weighed = eta * power_w + (1 - eta) * known.max_power_w
            found[size, limit_w] = epochs * time_s * weighed
    return found


@every_turn
@settings(max_examples=100)
@given(known=profiles(), eta=st.floats(0.0, 1.0))
def test_the_oracle_is_brute_force(known: Profile, eta: float, knobs: KnobChoice) -> None:
    best = optimum(known, Objective(eta), knobs)
    costs = brute_force(known, eta, knobs)
    assert best is not None
    assert best.cost == pytest.approx(min(costs.values()), rel=1e-9)
    assert costs[best.batch_size, best.power_limit_w] == pytest.approx(best.cost, rel=1e-9)
    weighed = eta * best.energy_j + (1 - eta) * known.max_power_w * best.time_s
    assert weighed == pytest.approx(best.cost, rel=1e-9)
    every = {(x.batch_size, x.power_limit_w): x.cost for x in expectations(known, Objective(eta))}
    assert every == pytest.approx(brute_force(known, eta, "both"), rel=1e-9)


def test_a_tie_goes_to_the_smaller_one() -> None:
    flat = (10.0, 10.0)
    same = {b: Curve(b, (150.0, 250.0), flat, (100.0, 100.0), (3.0,)) for b in (16, 32)}
    best = optimum(Profile("cnn", GPU, 1, 0.9, 5, 32, 250.0, same), Objective(0.5))
    assert best is not None
    assert (best.batch_size, best.power_limit_w) == (16, 150.0)


@every_turn
def test_the_oracle_turns_its_knobs(knobs: KnobChoice) -> None:
    known = profile()
    world = run_world(
        RecurringSource({"cnn": 10}),
        by_job(known),
        None,
        chosen(configure=OracleConfig(knobs=knobs)),
    )
    costs = brute_force(known, 0.5, knobs)
    ran = {(row.batch_size, row.power_limit_w) for row in attempts(world)}
    assert ran == {min(costs, key=costs.__getitem__)}
    if knobs == "power-limit":
        assert {size for size, _ in ran} == {32}
    if knobs == "batch-size":
        assert {limit for _, limit in ran} == {250.0}


def test_the_oracle_finds_nothing_if_no_run_ever_succeeds() -> None:
    known = profile(runs={32: (NEVER,), 64: (NEVER,)})
    assert optimum(known, Objective(0.5)) is None
    with pytest.raises(PolicyError, match="cnn@V100x1"):
        run_world([job()], by_job(known), None, chosen(configure="oracle"))


def test_the_oracle_says_where_it_fails() -> None:
    known = profile(runs={32: (NEVER,)})
    with pytest.raises(PolicyError) as caught:
        run_world([job()], by_job(known), None, chosen(configure="oracle"))
    assert caught.value.point == "configure"


def test_a_run_past_the_last_epoch_does_not_count() -> None:
    assert curve(32, (3.0, 8.0)).expected_epochs(5) == 3.0 + 5
    assert curve(32, (3.0, 5.0)).expected_epochs(5) == 4.0
    assert curve(32, (8.0, NEVER)).expected_epochs(5) == math.inf


# --- the published generators


def test_picks_equal_those_of_the_published_code() -> None:
    """In value and in what they consume, for every number of recorded runs."""
    for choices in range(1, 101):
        streams, theirs = PublishedStreams(lambda _: 7), np.random.default_rng(7)
        for _ in range(5):
            expected = theirs.choice(choices, size=1, replace=False)[0]
            assert streams.pick(job(), 1, choices) == expected
        after = [int(theirs.choice(1000, size=1, replace=False)[0]) for _ in range(20)]
        assert [streams.pick(job(), 1, 1000) for _ in range(20)] == after, choices


@given(numbers=st.lists(st.integers(1, 100), max_size=60), seed=st.integers(0, 2**32))
def test_picks_of_mixed_numbers_equal_the_published_ones(numbers: list[int], seed: int) -> None:
    streams, theirs = PublishedStreams(lambda _: seed), np.random.default_rng(seed)
    ours = [streams.pick(job(), 1, choices) for choices in numbers]
    assert ours == [int(theirs.choice(n, size=1, replace=False)[0]) for n in numbers]


def test_published_groups_have_two_generators_of_one_seed() -> None:
    streams = PublishedStreams(checksum)
    picks = [streams.pick(job(group="g"), 1, 50) for _ in range(10)]
    streams.pick(job(group="h"), 1, 50)
    picks += [streams.pick(job(group="g"), 1, 50) for _ in range(10)]
    seed = zlib.adler32(b"g")
    assert picks == np.random.default_rng(seed).integers(50, size=20).tolist()
    bandit = streams.policy("configure", "g")
    assert bandit.bit_generator.state == np.random.default_rng(seed).bit_generator.state
