"""Inputs of the published replays: events of nodes, and what is refused."""

import math

import pytest

from benchmarks.papers.replays.bamboo import BambooModel, replay_bamboo
from benchmarks.papers.replays.inputs import RateTable, SpotChange, spot_changes
from benchmarks.papers.replays.oobleck import OobleckModel, replay_oobleck
from tests.support.messages import assert_states
from tests.support.published_replays import RATES
from wattkeeper.policies.errors import InputError
from wattkeeper.traces.node_events import NodeEvent

MODEL = OobleckModel(1024, 2_000)
START = SpotChange(0, "add", "node1")


def test_nodes_that_become_slow_are_refused() -> None:
    with pytest.raises(InputError) as raised:
        spot_changes([NodeEvent(0.0, "up", "b"), NodeEvent(1.0, "degraded", "b", factor=1.5)])
    assert_states(str(raised.value), "'b'", "degraded")


def test_events_of_nodes_become_changes_in_whole_ms() -> None:
    events = [
        NodeEvent(0.0, "up", "b"),
        NodeEvent(8.2, "notice", "a", deadline_s=9.0),
        NodeEvent(9.001, "down", "a"),
        NodeEvent(12.3456, "up", "a"),
    ]
    assert spot_changes(events) == (
        (0, "add", "a"),
        (0, "add", "b"),
        (9_001, "remove", "a"),
        (12_346, "add", "a"),
    )


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (SpotChange(-1, "add", "node2"), ("row 2", -1)),
        (SpotChange(5, "remove", "node2"), ("row 2", "'node2'")),
        (SpotChange(5, "add", "node1"), ("row 2", "'node1'")),
        (SpotChange(5, "lose", "node1"), ("row 2", "'lose'", "add, remove")),  # type: ignore[arg-type]
    ],
)
def test_changes_that_cannot_follow_are_refused(
    change: SpotChange, facts: tuple[object, ...]
) -> None:
    with pytest.raises(InputError) as raised:
        replay_oobleck([START, change], RATES, MODEL)
    assert_states(str(raised.value), *facts)


def test_an_empty_trace_is_refused() -> None:
    with pytest.raises(InputError, match="no rows"):
        replay_oobleck([], RATES, MODEL)


@pytest.mark.parametrize(
    ("rates", "facts"),
    [
        ({}, ("none",)),
        ({15: 1.0, 17: 1.0}, ("16 nodes", "missing")),
        ({15: -1.0}, ("15 nodes", -1)),
        ({15: math.nan}, ("15 nodes", "nan")),
        ({0: 1.0, 1: 1.0}, ("0 nodes",)),
    ],
)
def test_rates_that_cannot_be_are_refused(
    rates: dict[int, float], facts: tuple[object, ...]
) -> None:
    with pytest.raises(InputError) as raised:
        RateTable(rates)
    assert_states(str(raised.value), *facts)


def test_constants_that_cannot_be_are_refused() -> None:
    with pytest.raises(InputError, match="-1 ms"):
        replay_oobleck([START], RATES, OobleckModel(1024, -1))
    with pytest.raises(InputError, match="-1 ms"):
        replay_bamboo([START], RATES, BambooModel(1024, -1))
    with pytest.raises(InputError, match="0 samples"):
        replay_oobleck([START], RATES, OobleckModel(0, 2_000))


def test_a_step_shorter_than_the_unit_of_time_is_refused() -> None:
    changes = [SpotChange(0, "add", f"node{index}") for index in range(12)]
    changes.append(SpotChange(100_000, "remove", "node1"))
    with pytest.raises(InputError, match="1 ms"):
        replay_oobleck(changes, RateTable({1: 1e9}), MODEL)
