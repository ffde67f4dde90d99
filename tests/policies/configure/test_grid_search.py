"""Grid search over batch sizes and power limits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.support.worlds import (
    AttemptRow,
    attempts,
    by_job,
    chosen,
    decided,
    profiles,
    run_world,
    spec,
)
from wattkeeper.policies.profile import Profile
from wattkeeper.scenarios.contract.scripted import NEVER, job, profile
from wattkeeper.sim.engine.sources import RecurringSource


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
