"""Expected costs of changes of shape, by what was measured."""

from __future__ import annotations

import pytest

from wattkeeper.live.elastic.costs import PAUSES, MeasuredCosts


@pytest.fixture
def costs() -> MeasuredCosts:
    """Costs on one and two nodes: a step of 2 s, a checkpoint of 1 s."""
    made = MeasuredCosts("small", 1, 2, 8)
    made.add_write(1.0)
    for nodes in (1, 2):
        made.add_step(nodes, 2.0)
        made.add_pause(nodes, 0.5 * nodes, from_storage=False, sends=False)
        made.add_pause(nodes, 4.0 * nodes, from_storage=True, sends=False)
    made.add_pause(2, 3.0, from_storage=False, sends=True)
    return made


@pytest.mark.parametrize(
    ("nodes", "from_storage", "sends", "reconfigure_s", "restart_s"),
    [
        (2, False, False, 1.0, (2.5, 2.5, 3.0)),
        (2, False, True, 3.0, (2.5, 2.5, 5.0)),
        (1, False, True, 0.5, (2.5, 2.5, 5.0)),
        (2, True, True, 3.0, (5.0, 5.0, 9.0)),
    ],
)
def test_pauses_are_expected_by_kind(
    costs: MeasuredCosts,
    nodes: int,
    from_storage: bool,
    sends: bool,
    reconfigure_s: float,
    restart_s: tuple[float, ...],
) -> None:
    """State is sent to nodes that came; one node alone sends it to nobody."""
    task = costs.task(nodes, from_storage, sends)
    assert task.reconfigure_s == reconfigure_s
    assert task.restart_s == restart_s
    assert (task.rates, task.checkpoint_s) == ((0.0, 4.0, 4.0), 1.0)


def test_the_last_pauses_of_a_kind_count(costs: MeasuredCosts) -> None:
    for _ in range(PAUSES):
        costs.add_pause(2, 7.0, from_storage=False, sends=False)
    assert costs.task(2, False, False).reconfigure_s == 7.0
    assert costs.task(2, False, True).reconfigure_s == 3.0
