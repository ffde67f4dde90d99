"""The policy `zeus` (NSDI '23): its accounts, its bounds and its runs."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.support.worlds import AttemptRow, attempts, by_job, chosen, run_world
from wattkeeper.policies.configure.zeus import Zeus, ZeusConfig
from wattkeeper.policies.points.views import Configuration, Outcome, Start
from wattkeeper.policies.profile import Objective
from wattkeeper.scenarios.contract.scripted import NEVER, ScriptedContext, job, profile
from wattkeeper.sim.engine.sources import RecurringSource

ANY = profile()

Result = tuple[float, bool]
"""Cost, and whether the target was reached."""


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
    asked: list[str] = []

    class Asked(ScriptedContext):
        def rng(self, name: str) -> np.random.Generator:
            asked.append(name)
            return super().rng(name)

    ctx = Asked(profile(runs={16: (4.0,), 32: (4.0,)}))
    streams = partial(ScriptedContext.rng, ctx)
    zeus = ZeusConfig().build()
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
