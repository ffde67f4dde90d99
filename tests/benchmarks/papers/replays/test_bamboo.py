"""The published replay of Bamboo: invariants."""

import pytest
from hypothesis import given

from benchmarks.papers.replays.bamboo import BambooModel, replay_bamboo
from benchmarks.papers.replays.inputs import SpotChange
from tests.support.published_replays import RATES, check_spans, spot_nodes


@given(spot_nodes())
def test_counts_agree(changes: list[SpotChange]) -> None:
    result = replay_bamboo(changes, RATES, BambooModel(1024, 80_000))
    assert result.fatal <= result.preemptions <= len(changes)
    assert result.restart_ms is not None
    assert result.restart_ms >= 30_000 * result.fatal
    assert result.rebalance_ms is not None
    assert result.rebalance_ms % 80_000 == 0
    assert result.redundant_ms == pytest.approx(result.effective_ms / 0.1971 * 0.8029)
    assert sum(span.kind == "step" for span in result.spans) == result.steps
    check_spans(result)


@pytest.mark.parametrize(("second", "fatal"), [("node4", 1), ("node6", 0)])
def test_two_neighbours_lost_at_once_are_fatal(second: str, fatal: int) -> None:
    changes = [SpotChange(index, "add", f"node{index}") for index in range(12)]
    changes += [
        SpotChange(300_000, "remove", "node3"),
        SpotChange(300_001, "remove", second),
        SpotChange(400_000, "remove", "node9"),
    ]
    result = replay_bamboo(changes, RATES, BambooModel(8192, 76_000))
    assert result.preemptions == 2
    assert result.fatal == fatal
