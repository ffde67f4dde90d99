"""The contract of all policies: what every config and every policy keeps, whatever it decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.support.worlds import (
    DEFAULTS,
    attempts,
    attempts_by_job,
    by_job,
    chosen,
    decisions,
    run_world,
    spec,
)
from wattkeeper.policies.configure._chain import chain_of
from wattkeeper.policies.points.moments import START_MOMENTS
from wattkeeper.policies.registry import POINTS, Point, PolicyConfig, policies
from wattkeeper.scenarios.contract import suite
from wattkeeper.scenarios.contract.rehearsal import Rehearsal
from wattkeeper.scenarios.contract.scripted import example, job, profile, scripted_signal
from wattkeeper.scenarios.contract.steps import LONG, Step
from wattkeeper.scenarios.contract.worlds import MAX_ATTEMPTS, SIZES

KINDS = [(point, kind) for point in POINTS for kind in policies(point)]
CHAINS = [
    chain_of([parent, size])
    for parent in (
        example(policies("configure")[kind]) for kind in ("modelkeeper", "random-parent")
    )
    for size in map(example, policies("configure").values())
    if not size.sets_parent
]
ALONE = [config for point, kind in KINDS for config in suite.variations(policies(point)[kind])]
# Of each kind one: a choice by similarity with a learner of our own, a drawn one with a bandit.
QUICK_CHAINS = ({"modelkeeper", "frugal"}, {"random-parent", "zeus"})
SOME_CHAINS = [
    pytest.param(
        chain, marks=[pytest.mark.slow] * ({part.kind for part in chain.parts} not in QUICK_CHAINS)
    )
    for chain in CHAINS
]

steps = st.lists(st.tuples(st.sampled_from(["submit", "end"]), st.integers(0, 5)), max_size=60)


def label(config: PolicyConfig) -> str:
    settings = config.model_dump(exclude_defaults=True)
    return " ".join([f"{config.point}/{config.kind}", *(f"{k}={v}" for k, v in settings.items())])


every_kind = pytest.mark.parametrize(("point", "kind"), KINDS)
every_config = pytest.mark.parametrize("config", [*ALONE, *SOME_CHAINS], ids=label)
in_modes = pytest.mark.parametrize(
    ("occupancy", "profiling"),
    [
        ("simulated", "measured"),
        ("recorded", "foreknown"),
        pytest.param("simulated", "foreknown", marks=pytest.mark.slow),
        pytest.param("recorded", "measured", marks=pytest.mark.slow),
    ],
)


# --- configs


def test_every_decision_point_has_a_policy() -> None:
    assert all(policies(point) for point in POINTS)


@every_kind
def test_kind_is_the_name_in_the_registry(point: Point, kind: str) -> None:
    config = policies(point)[kind]
    assert config.point == point
    suite.check_kind(config)
    with pytest.raises(ValidationError):
        config.model_validate({**example(config).model_dump(), "kind": f"not-{kind}"})


@every_kind
def test_config_describes_each_field(point: Point, kind: str) -> None:
    suite.check_descriptions(policies(point)[kind])


@every_config
def test_config_keeps_its_rules(config: PolicyConfig) -> None:
    suite.check_frozen(config)
    suite.check_copies(config)
    suite.check_columns(config)


# --- policies, rehearsed


@every_config
def test_policy_implements_its_protocol(config: PolicyConfig) -> None:
    suite.check_protocol(config)


@every_config
@given(stream=steps, seed=st.integers(0, 99))
def test_decisions_are_allowed_and_deterministic(
    config: PolicyConfig, stream: list[Step], seed: int
) -> None:
    suite.check_determinism(config, stream, seed)


@every_config
@given(data=st.data(), stream=steps, seed=st.integers(0, 99))
def test_a_restored_policy_decides_like_the_original(
    config: PolicyConfig, data: st.DataObject, stream: list[Step], seed: int
) -> None:
    cut = data.draw(st.integers(0, len(stream)), label="cut before step")
    suite.check_restart(config, stream, seed, cut)


@every_config
@pytest.mark.parametrize(
    ("stream", "cuts"),
    [(LONG[:240], [113]), pytest.param(LONG, range(0, len(LONG), 173), marks=pytest.mark.slow)],
    ids=["one", "all"],
)
def test_a_restart_at_any_point_does_not_change_decisions(
    config: PolicyConfig, stream: list[Step], cuts: Sequence[int]
) -> None:
    whole = Rehearsal(config, stream)
    assert whole.calls.total() / len(stream) > 300 / len(LONG)
    for cut in cuts:
        if config.point == "select":
            whole = Rehearsal(config, stream, 1, cut)
        resumed = Rehearsal(config, stream, 1, cut, restart=True)
        assert resumed.decisions == whole.decisions, cut


@every_config
@pytest.mark.parametrize(
    "begun", [40, *(pytest.param(begun, marks=pytest.mark.slow) for begun in (1, 5, 15))]
)
def test_a_state_is_a_copy(config: PolicyConfig, begun: int) -> None:
    suite.check_copied_state(config, begun)


@every_config
def test_outcomes_of_an_unknown_group_change_nothing(config: PolicyConfig) -> None:
    suite.check_strangers(config)


@every_config
def test_what_a_log_recorded_decides_only_if_it_is_declared(config: PolicyConfig) -> None:
    suite.check_recorded(config)


# --- policies, beside each other in a world


@pytest.mark.parametrize(
    "config", [*(config for config in ALONE if config.point in DEFAULTS), *SOME_CHAINS], ids=label
)
@in_modes
def test_policy_in_a_world(config: PolicyConfig, occupancy: str, profiling: str) -> None:
    at_start = occupancy == "recorded" or profiling == "foreknown"
    if at_start and (config.slices or not set(config.moments) <= set(START_MOMENTS)):
        pytest.skip("a policy that decides over time has nothing to decide on there")
    known = by_job(*(profile(runs=SIZES, max_epochs=5, gpus=gpus) for gpus in (1, 3)))
    signals = {name: scripted_signal(name) for name in config.signals}
    jobs = [job(f"{n}", 7.0 * n, group=f"group-{n % 3}", gpus=3 if n % 3 else 1) for n in range(30)]

    def run() -> Any:
        return run_world(
            jobs,
            known,
            spec(nodes=2, gpus_per_node=2),
            chosen(**{config.point: config}),
            occupancy=occupancy,
            profiling=profiling,
            max_attempts=MAX_ATTEMPTS,
            signals=signals,
        )

    world = run()
    ended = attempts_by_job(world)
    assert len(ended) == len(jobs)
    for rows in ended.values():
        assert [row.attempt for row in rows] == list(range(1, len(rows) + 1))
        assert not any(row.reached_target for row in rows[:-1])
        assert rows[-1].reached_target or len(rows) == MAX_ATTEMPTS
    told = decisions(world)
    assert {row.policy for row in told if row.point == config.point} <= {config.kind}
    again = run()
    assert attempts(again) == attempts(world)
    assert decisions(again) == told
