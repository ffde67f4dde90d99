"""A live training asks `Replan` at the moments of a simulated one, about the same nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.elastic import run_elastic, task
from wattkeeper.policies.points.replan import ElasticView, Reshape
from wattkeeper.sim.cluster.losses import NodeChange
from wattkeeper.sim.elastic import asking
from wattkeeper.sim.elastic import jobs as simulated

pytest.importorskip("torch")

from tests.support.elastic_training import BATCH, MICROBATCH, check, fragile, train
from wattkeeper.live.elastic import coordinator as live

pytestmark = pytest.mark.slow

CHANGES = (
    NodeChange(1.5, "down", 1),
    NodeChange(3.0, "up", 1),
    NodeChange(4.5, "down", 0),
    NodeChange(6.0, "up", 0),
    NodeChange(6.5, "notice", 2, deadline_s=8.0),
    NodeChange(8.0, "down", 2),
    NodeChange(9.5, "up", 2),
)
STEPS, PAUSE_S = 1100, 0.005

Seen = tuple[str, tuple[int, ...], int, bool, bool]


def watch(monkeypatch: pytest.MonkeyPatch, module: Any) -> list[Seen]:
    """What a module asks the policy from now on, with what does not depend on measured times."""
    seen: list[Seen] = []

    def ask(bound: Any, view: ElasticView) -> Reshape | None:
        is_first = view.shape is None
        seen.append((view.moment, view.held, view.spare, is_first, view.announced))
        return asking.ask_replan(bound, view)

    monkeypatch.setattr(module, "ask_replan", ask)
    return seen


@pytest.mark.parametrize("replan", ["oobleck", "in-memory", "varuna", "on-notice"])
def test_the_same_is_asked(replan: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = watch(monkeypatch, live)
    make = fragile(tmp_path, PAUSE_S)
    results = train(tmp_path, STEPS, make=make, replan=replan, changes=CHANGES)
    check(tmp_path, results, STEPS)
    assert results.shapes[-1].until_s > CHANGES[-1].time_s + 0.5
    expected = watch(monkeypatch, simulated)
    step_s = PAUSE_S * BATCH / MICROBATCH
    known = task(
        least=1,
        most=3,
        rate=BATCH / step_s,
        batch=BATCH,
        checkpoint_s=0.01,
        restart_s=0.1,
        reconfigure_s=0.05,
    )
    run_elastic([known], CHANGES, replan=replan, nodes=3, until_s=10.5)
    assert asked == expected
