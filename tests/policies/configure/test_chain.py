"""A parent first, then a batch size given the work that it leaves."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policies.configure.test_zoo_configure import CHILD, NO_PROFILE, PARENTS, Models
from tests.support.worlds import stub
from wattkeeper.policies.configure._chain import Chain, chain_of
from wattkeeper.policies.configure.frugal import Frugal, FrugalConfig
from wattkeeper.policies.configure.grid_search import GridSearchConfig
from wattkeeper.policies.configure.lineage import LineageConfig
from wattkeeper.policies.configure.modelkeeper import ModelkeeperParentConfig
from wattkeeper.policies.configure.oracle import OracleConfig
from wattkeeper.policies.configure.zeus import ZeusConfig
from wattkeeper.policies.errors import PolicyFailed
from wattkeeper.policies.points.configure import Configure
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.views import Configuration, Knobs, Options, Outcome, Running, Start
from wattkeeper.policies.profile import Objective, epochs_left, optimum
from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.scenarios.contract.scripted import NEVER, ScriptedContext, job, profile

PARENT = ModelkeeperParentConfig(query_s=8)
HALF = 0.5
"""What `Models` says that each parent leaves."""


def context(seed: int = 1) -> ScriptedContext:
    ctx = ScriptedContext(profile(), seed)
    ctx.zoo = Models(CHILD, PARENTS)
    return ctx


def build(*configs: PolicyConfig) -> Chain:
    chain = chain_of(configs).build()
    assert isinstance(chain, Chain)
    return chain


def options(ctx: ScriptedContext) -> Options:
    return ctx.options()._replace(batch_sizes=(16, 32, 64), limits_w=((100.0, 200.0),) * 3)


def test_the_parent_is_that_of_the_first_and_the_rest_that_of_the_second() -> None:
    ctx = context()
    start = Start(job(), 1, ctx.options(), 0)
    alone = PARENT.build().configure(ctx, start)
    best = OracleConfig().build().configure(ctx, start._replace(work=HALF))
    chosen = build(PARENT, OracleConfig()).configure(ctx, start)
    assert alone.parent is not None
    assert chosen == best._replace(parent=alone.parent, query_s=8)


def test_a_job_without_batch_sizes_has_a_parent_alone() -> None:
    chosen = build(PARENT, ZeusConfig()).configure(context(), Start(job(), 1, NO_PROFILE, 0))
    assert chosen == PARENT.build().configure(context(), Start(job(), 1, NO_PROFILE, 0))


def test_without_a_parent_the_second_decides_as_if_alone() -> None:
    ctx = ScriptedContext(profile())
    start = Start(job(), 1, ctx.options(), 0)
    assert build(PARENT, ZeusConfig()).configure(ctx, start) == ZeusConfig().build().configure(
        ScriptedContext(profile()), start
    )


costs = st.lists(
    st.tuples(st.integers(1, 20), st.booleans(), st.integers(0, 1)), min_size=1, max_size=40
)


def learn(
    policy: Configure, ctx: ScriptedContext, runs: Sequence[tuple[int, bool, int]], work: float
) -> list[Configuration]:
    """What a policy decides while runs come to what they do, with the share that parents leave."""
    chosen = []
    for number, (epochs, reached, limit) in enumerate(runs, start=1):
        new = job(f"group/{number}", group="group", recurrence=number)
        start = Start(new, 1, options(ctx), 0)
        decided = policy.configure(ctx, start)
        chosen.append(decided)
        limit_w = decided.power_limit_w or (100.0, 200.0)[limit]
        whole, cost = 2 * epochs, 100.0 * decided.batch_size * epochs
        policy.observe(
            ctx,
            Outcome(
                start,
                decided.batch_size,
                limit_w,
                round(whole * work),
                cost * work,
                cost * work,
                cost * work,
                reached,
            ),
        )
    return chosen


@pytest.mark.parametrize("size", [ZeusConfig(), GridSearchConfig(), FrugalConfig()])
@given(runs=costs)
def test_what_is_learnt_does_not_depend_on_the_work_that_parents_left(
    size: PolicyConfig, runs: list[tuple[int, bool, int]]
) -> None:
    """Half the epochs, time and energy with a parent teach the same as all of it from scratch."""
    cold, warm = size.build(), build(PARENT, size)
    alone = learn(cold, context(), runs, 1.0)
    chained = learn(warm, context(), runs, HALF)
    assert [each.batch_size for each in chained] == [each.batch_size for each in alone]
    assert warm.state_dict() == {"policies": [{}, cold.state_dict()], "work": {}}
    if size.kind == "zeus":
        bounds = [each.cost_bound * HALF for each in alone]
        assert [each.cost_bound for each in chained] == bounds


def test_whole_epochs_are_left() -> None:
    assert [epochs_left(epochs, HALF) for epochs in (1.0, 3.0, 4.0, NEVER)] == [1, 2, 2, NEVER]


def test_the_work_left_is_kept_while_a_job_is_under_way() -> None:
    ctx, chain = context(), build(PARENT, ZeusConfig())
    start = Start(job("a", group="g"), 1, ctx.options(), 0)
    decided = chain.configure(ctx, start)
    state = json.loads(json.dumps(chain.state_dict()))
    assert state["work"] == {"a": HALF}
    again = build(PARENT, ZeusConfig())
    again.load_state_dict(state)
    done = Outcome(start, decided.batch_size, 200.0, 3, 30.0, 600.0, 600.0, True)
    again.observe(ctx, done)
    assert again.configure(ctx, start).cost_bound == pytest.approx(2 * 600)


def test_frugal_decides_at_tune_with_what_it_learnt_in_the_chain() -> None:
    ctx, chain = context(), build(PARENT, FrugalConfig())
    start = Start(job("a", group="g"), 1, ctx.options(), 0)
    running = Running(start, chain.configure(ctx, start))
    knobs = chain.tuner().tune(ctx, running)
    assert isinstance(knobs, Knobs)
    assert knobs.slice is not None
    assert chain.state_dict()["policies"][1] != {}


def test_the_second_is_told_at_tune_too_what_work_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices are a small part of that work."""
    seen: list[float] = []

    def tune(self: Frugal, ctx: Context, running: Running) -> Knobs:
        seen.append(running.start.work)
        return Knobs(200.0)

    monkeypatch.setattr(Frugal, "tune", tune)
    ctx, chain = context(), build(PARENT, FrugalConfig())
    start = Start(job("a", group="g"), 1, ctx.options(), 0)
    chain.tuner().tune(ctx, Running(start, chain.configure(ctx, start)))
    assert seen == [HALF]


def test_both_are_told_of_an_attempt_that_is_lost() -> None:
    ctx, chain = context(), build(PARENT, FrugalConfig())
    start = Start(job("a", group="g"), 1, ctx.options(), 0)
    chain.configure(ctx, start)
    chain.on_loss(ctx, start)
    state = chain.state_dict()
    assert state["work"] == {}
    assert state["policies"][1]["g"]["under_way"] == []


def test_the_config_is_what_its_parts_are() -> None:
    zeus, frugal = chain_of([PARENT, ZeusConfig()]), chain_of([PARENT, FrugalConfig()])
    oracle = chain_of([PARENT, OracleConfig()])
    flags = ("sets_parent", "sets_power", "needs_foresight", "draws", "tunes", "slices")
    found = {
        each.kind: [name for name in flags if getattr(each, name)]
        for each in (zeus, frugal, oracle)
    }
    assert found == {
        "modelkeeper+zeus": ["sets_parent", "draws"],
        "modelkeeper+frugal": ["sets_parent", "tunes", "slices"],
        "modelkeeper+oracle": ["sets_parent", "sets_power", "needs_foresight"],
    }
    assert frugal.moments == FrugalConfig().moments
    assert [part.kind for part in zeus.parts] == ["modelkeeper", "zeus"]
    assert ZeusConfig().parts == (ZeusConfig(),)


def test_a_list_of_one_is_that_policy() -> None:
    assert chain_of([ZeusConfig()]) == ZeusConfig()


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ((), "found an empty list"),
        ((ZeusConfig(), PARENT), "found zeus before modelkeeper"),
        ((PARENT, LineageConfig()), "found 2 that choose parents, modelkeeper and lineage"),
        ((ZeusConfig(), FrugalConfig()), "found 2 that choose batch sizes, zeus and frugal"),
        ((PARENT, ZeusConfig(), FrugalConfig()), "found 2 that choose batch sizes"),
    ],
)
def test_policies_that_cannot_follow_each_other(
    configs: tuple[PolicyConfig, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        chain_of(configs)


def test_whole_epochs_can_move_the_optimum() -> None:
    """3 epochs of 10 J beat 4 of 8 J; half of them, rounded up, are 2 epochs of either."""
    known = profile(runs={32: (3.0,), 64: (4.0,)})
    curves = {
        size: curve._replace(
            time_per_epoch_s=(price,) * len(curve.limits_w),
            average_power_w=(1.0,) * len(curve.limits_w),
        )
        for (size, curve), price in zip(known.curves.items(), (10.0, 8.0), strict=True)
    }
    known = known._replace(curves=curves)
    best = [optimum(known, Objective(1.0), work=work) for work in (1.0, HALF)]
    assert [each and (each.batch_size, each.cost) for each in best] == [(32, 30), (64, 16)]


def test_a_policy_of_another_distribution_is_named_in_the_message() -> None:
    answers = stub("configure", configure=lambda *_: None)
    chain = build(PARENT, answers)
    message = f"'{answers.kind}' failed for job a: .* gave an answer of a wrong type"
    with pytest.raises(PolicyFailed, match=message):
        chain.configure(context(), Start(job(), 1, context().options(), 0))
