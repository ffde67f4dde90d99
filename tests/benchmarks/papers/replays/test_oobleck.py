"""The published replay of Oobleck: invariants."""

from hypothesis import given

from benchmarks.papers.replays.inputs import SpotChange
from benchmarks.papers.replays.oobleck import OobleckModel, replay_oobleck
from tests.support.published_replays import RATES, check_spans, spot_nodes


@given(spot_nodes())
def test_all_losses_but_those_at_the_end_are_fatal(changes: list[SpotChange]) -> None:
    result = replay_oobleck(changes, RATES, OobleckModel(1024, 2_000))
    end_ms = changes[-1].time_ms
    losses = [change for change in changes if change.what == "remove" and change.time_ms < end_ms]
    assert result.preemptions == result.fatal == len(losses)
    assert result.rebalance_ms is not None
    assert result.rebalance_ms >= 2_000 * result.fatal
    assert result.fallback_loss_ms >= 0
    assert result.avg_samples_per_s >= 0
    steps = [span for span in result.spans if span.kind == "step"]
    assert len(steps) == result.steps
    assert sum(span.end_ms - span.begin_ms for span in steps) <= result.effective_ms
    check_spans(result)


def test_a_second_loss_in_a_pause_stops_the_job() -> None:
    changes = [SpotChange(0, "add", f"node{index}") for index in range(14)]
    changes += [
        SpotChange(600_000, "remove", "node0"),
        SpotChange(601_000, "remove", "node1"),
        SpotChange(900_000, "remove", "node2"),
    ]
    result = replay_oobleck(changes, RATES, OobleckModel(1024, 2_000))
    pauses = [(s.begin_ms, s.end_ms) for s in result.spans if s.kind == "pause"]
    assert pauses == [(45_000, 47_000), (600_000, 602_000), (601_000, 603_000)]
    stopped = [(s.begin_ms, s.end_ms) for s in result.spans if s.kind == "stopped"]
    assert stopped == [(0, 45_000), (603_000, 900_000)]
