"""Bamboo's own published replay: random nodes, what is refused."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.papers.replays.bamboo_alone import BAMBOO_PROFILES, replay_bamboo_alone
from benchmarks.papers.replays.inputs import SpotChange
from benchmarks.papers.replays.removal_sweep import RandomNodes, replay_random_nodes
from tests.support.messages import assert_states
from tests.support.published_replays import read_changes
from wattkeeper.policies.errors import InputError

BERT = BAMBOO_PROFILES["BERT"]


@pytest.mark.parametrize("model", ["GNMT", "VGG", "AlexNet"])
def test_five_pipelines_are_refused(shared: Path, model: str) -> None:
    changes = read_changes(shared, "p3-trace.csv")
    with pytest.raises(InputError) as raised:
        replay_bamboo_alone(changes, BAMBOO_PROFILES[model])
    assert_states(str(raised.value), "5 pipelines", "1 to 4", "30 nodes")


def test_a_run_without_a_pipeline_has_no_rate() -> None:
    result, spot = replay_bamboo_alone([SpotChange(0, "add", "node1")], BERT)
    assert result.steps == spot.samples_per_s == spot.value == 0
    assert spot.dollars_per_h == pytest.approx(0.91)
    assert result.spans[-1].end_ms == 43_200_000


@settings(max_examples=20)
@given(st.integers(12, 48), st.floats(0, 0.8), st.integers(0, 1000))
def test_random_nodes_stay_within_what_is_wanted(wanted: int, chance: float, seed: int) -> None:
    nodes = RandomNodes(wanted, chance, seed)
    run = replay_random_nodes(BERT, nodes, 50)
    assert run == replay_random_nodes(BERT, nodes, 50)
    assert run.replay.steps == 50
    assert run.replay.fatal <= run.replay.preemptions
    assert 0 < run.replay.avg_instances <= wanted
    assert run.economy.value > 0
    assert run.lifetime_h >= 0
    assert run.interruption_h >= 0
    assert max(span.nodes for span in run.replay.spans) <= wanted


@pytest.mark.parametrize(
    ("nodes", "steps", "fact"),
    [
        (RandomNodes(0, 0.1, 1), 10, "0 nodes"),
        (RandomNodes(48, 1.5, 1), 10, "1.5"),
        (RandomNodes(48, 0.1, 1), 0, "0 steps"),
        (RandomNodes(2, 0.1, 1), 10, "0 of 10 steps"),
    ],
)
def test_settings_that_cannot_be_are_refused(nodes: RandomNodes, steps: int, fact: str) -> None:
    with pytest.raises(InputError) as raised:
        replay_random_nodes(BERT, nodes, steps)
    assert_states(str(raised.value), fact)
