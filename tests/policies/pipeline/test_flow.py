"""Flows with lower bounds, against linear programs."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from wattkeeper.policies.pipeline.flow import UNBOUNDED, FlowNetwork

NODES = 6
ARCS = st.tuples(
    st.integers(0, NODES - 1), st.integers(0, NODES - 1), st.integers(0, 4), st.integers(0, 6)
).filter(lambda arc: arc[0] != arc[1])
NETWORKS = st.lists(ARCS, min_size=4, max_size=16)


def largest_flow(arcs: list[tuple[int, int, int, int]]) -> float | None:
    """The largest flow from the first node to the last one; None if there is none."""
    balance = np.zeros((NODES, len(arcs) + 1))
    for arc, (tail, head, _, _) in enumerate(arcs):
        balance[head, arc] += 1
        balance[tail, arc] -= 1
    balance[0, -1], balance[-1, -1] = 1, -1
    bounds = [(low, low + more) for _, _, low, more in arcs]
    goal = np.append(np.zeros(len(arcs)), -1)
    solved = linprog(goal, A_eq=balance, b_eq=np.zeros(NODES), bounds=[*bounds, (0, None)])
    return -solved.fun if solved.status == 0 else None


@given(first=NETWORKS, second=st.lists(ARCS, min_size=16, max_size=16))
def test_flows_and_cuts(
    first: list[tuple[int, int, int, int]], second: list[tuple[int, int, int, int]]
) -> None:
    back = len(first)
    tail, head = [arc[0] for arc in first], [arc[1] for arc in first]
    network = FlowNetwork(NODES, [*tail, NODES - 1], [*head, 0])
    # The flow of the first bounds is kept where the second ones begin.
    for changed in (first, second):
        arcs = [(*arc[:2], *other[2:]) for arc, other in zip(first, changed, strict=False)]
        for arc, (_, _, low, more) in enumerate(arcs):
            network.low[arc], network.high[arc] = low, low + more
        network.low[back], network.high[back] = 0, UNBOUNDED
        expected = largest_flow(arcs)
        assert network.make_feasible() == (expected is not None)
        if expected is None:
            network = FlowNetwork(NODES, [*tail, NODES - 1], [*head, 0])
            continue
        network.low[back] = network.high[back] = network.flow[back]
        network.refresh(back)
        network.maximise(0, NODES - 1)
        flows = network.flow[:back]
        net = np.zeros(NODES, dtype=int)
        for flow, (start, end, low, more) in zip(flows, arcs, strict=True):
            assert low <= flow <= low + more
            net[start] -= flow
            net[end] += flow
        assert not net[1:-1].any()
        assert net[-1] == -net[0] == round(expected)
        cut = 0
        for start, end, low, more in arcs:
            if network.reached[start] and not network.reached[end]:
                cut += low + more
            elif network.reached[end] and not network.reached[start]:
                cut -= low
        assert cut == net[-1]
        network.flow[back] = int(net[-1])
