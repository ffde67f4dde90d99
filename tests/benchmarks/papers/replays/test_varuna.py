"""The published replay of Varuna: invariants, constants that cannot be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.papers.replays.inputs import SpotChange
from benchmarks.papers.replays.varuna import VarunaModel, replay_varuna
from tests.support.messages import assert_states
from tests.support.published_replays import RATES, spot_nodes
from wattkeeper.policies.errors import InputError

MODEL = VarunaModel(1024, 83_000, 11_500, {30: 1, 20: 2})


@given(spot_nodes(), st.booleans(), st.booleans())
def test_counts_agree(changes: list[SpotChange], is_free: bool, loses_work: bool) -> None:
    result = replay_varuna(changes, RATES, MODEL, free_checkpoints=is_free, loses_work=loses_work)
    assert result.fatal == result.preemptions <= len(changes)
    assert result.restart_ms is not None
    assert result.restart_ms % (83_000 - 11_500) == 0
    assert result.avg_samples_per_s >= 0
    checkpoints = [span for span in result.spans if span.kind == "checkpoint"]
    assert result.checkpoint_ms == 11_500 * len(checkpoints)
    if is_free:
        assert not checkpoints
    if not loses_work:
        assert result.fallback_loss_ms == 0
        finished = [span for span in result.spans if span.kind == "step"]
        assert result.steps >= len(finished)
    for span in result.spans:
        assert span.begin_ms < span.end_ms


def test_work_lost_costs_samples() -> None:
    changes = [SpotChange(0, "add", f"node{index}") for index in range(30)]
    changes += [SpotChange(400_000 * (1 + i), "remove", f"node{i}") for i in range(9)]
    spared = replay_varuna(changes, RATES, MODEL, loses_work=False)
    lossy = replay_varuna(changes, RATES, MODEL)
    assert lossy.avg_samples_per_s < spared.avg_samples_per_s
    assert lossy.fallback_loss_ms > 0
    assert any(span.kind == "lost step" for span in lossy.spans)


def test_a_restart_shorter_than_its_checkpoint_is_refused() -> None:
    changes = [SpotChange(0, "add", "node1")]
    with pytest.raises(InputError) as raised:
        replay_varuna(changes, RATES, MODEL._replace(restart_ms=10_000))
    assert_states(str(raised.value), 10_000, 11_500)
    with pytest.raises(InputError, match="by nodes"):
        replay_varuna(changes, RATES, MODEL._replace(restart_ms_by_nodes={3: 20_000, 5: 20_000}))
