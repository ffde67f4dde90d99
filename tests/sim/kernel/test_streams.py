"""Random streams: named, derived from the seed, the same for all variants."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.support.world_views import epochs_of
from tests.support.worlds import attempts, by_job, chosen, run_world, steady, stub
from wattkeeper.policies.configure.fixed import FixedConfig
from wattkeeper.policies.points.views import Configuration, Knobs, Start
from wattkeeper.scenarios.contract.scripted import job, profile
from wattkeeper.sim.engine.sources import RecurringSource
from wattkeeper.sim.kernel.streams import NamedStreams


def test_variants_have_the_same_random_draws() -> None:
    """Each recorded run is told by its epochs, so that an attempt says which one it replayed."""
    runs = tuple(float(n) for n in range(11, 21))
    known = by_job(profile(runs=dict.fromkeys((16, 32, 64), runs), max_epochs=20))

    def draws(**policies: Any) -> dict[tuple[int, int], int]:
        world = run_world(RecurringSource({"cnn": 40}), known, None, chosen(**policies))
        rows = attempts(world)
        return {(row.recurrence, row.attempt): epochs_of(row) for row in rows if row.reached_target}

    default = draws()
    assert len(set(default.values())) > 5
    assert draws(configure=FixedConfig(batch_size=64)) == default
    assert draws(configure="grid-search") == default
    zeus = draws(configure="zeus", tune="zeus-jit")
    shared = [key for key in zeus if key in default]
    assert len(shared) > 20
    assert all(zeus[key] == default[key] for key in shared)


def test_a_pick_depends_on_its_name_and_the_seed_alone() -> None:
    streams = NamedStreams(1)

    def pick(group: str = "g", recurrence: int = 1, tries: int = 1, seed: int = 1) -> int:
        named = streams if seed == 1 else NamedStreams(seed)
        return named.pick(job("x", group=group, recurrence=recurrence), tries, 10**9)

    first = pick()
    others = [pick("h"), pick(recurrence=2), pick(tries=2), pick(seed=2), pick("g/1")]
    assert len({first, *others}) == 6
    assert pick() == first, "it depends on what was picked before"
    assert NamedStreams(1).pick(job("other", group="g", workload="w", gpus=3), 1, 10**9) == first


@pytest.mark.parametrize("choices", [1, 2, 7, 20])
def test_picks_are_uniform(choices: int) -> None:
    streams, times = NamedStreams(3), 4000
    picks = [
        streams.pick(job("x", group=f"g{n % 8}", recurrence=n // 16), 1 + n // 8 % 2, choices)
        for n in range(times)
    ]
    counts = np.bincount(picks, minlength=choices)
    assert len(counts) == choices
    expected = times / choices
    free = choices - 1
    assert ((counts - expected) ** 2 / expected).sum() <= free + 4 * math.sqrt(2 * free)
    if choices > 1:
        again = float(np.mean(np.array(picks[1:]) == np.array(picks[:-1])))
        assert again == pytest.approx(1 / choices, abs=0.05)


def test_policy_streams_differ_by_name_and_point() -> None:
    def draws(seed: int, point: str, name: str) -> tuple[float, ...]:
        return tuple(NamedStreams(seed).policy(point, name).random(4).tolist())

    names = [(seed, point, x) for seed in (1, 2) for point in ("configure", "tune") for x in "ab"]
    assert len({draws(*name) for name in names}) == len(names)
    assert draws(1, "tune", "a") == draws(1, "tune", "a")


def test_a_context_gives_the_same_stream_for_the_same_name() -> None:
    drawn: dict[str, list[float]] = {"configure": [], "tune": []}

    def configure(ctx: Any, start: Start) -> Configuration:
        drawn["configure"].append(ctx.rng("x").random())
        return Configuration(32)

    def tune(ctx: Any, running: Any) -> Knobs:
        drawn["tune"].append(ctx.rng("x").random())
        return Knobs(250.0)

    policy_set = chosen(
        configure=stub("configure", configure=configure), tune=stub("tune", tune=tune)
    )
    run_world([job("a"), job("b")], by_job(steady()), None, policy_set, seed=5)
    for point, values in drawn.items():
        assert values == NamedStreams(5).policy(point, "x").random(2).tolist()
    assert drawn["configure"] != drawn["tune"]
