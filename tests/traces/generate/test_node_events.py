"""Losses of nodes that are drawn: how often, together, announced; and events that are read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import Command
from tests.support.messages import assert_states
from wattkeeper.policies.errors import TraceError
from wattkeeper.traces.describe.report import describe
from wattkeeper.traces.formats import find_format
from wattkeeper.traces.generate.degradations import Degradations
from wattkeeper.traces.generate.node_events import DrawnLosses, Notice, Together, draw, generate
from wattkeeper.traces.node_events import (
    NodeEvent,
    add_repairs,
    check_node_events,
    events_table,
    node_events,
)

DAY_S = 86400.0


def drawn(settings: DrawnLosses, nodes: int, days: float, seed: int = 1) -> list[NodeEvent]:
    events = draw(settings, nodes, np.random.default_rng(seed))
    return list(takewhile(lambda event: event.time_s <= days * DAY_S, events))


def lifetimes(events: Sequence[NodeEvent]) -> list[float]:
    """Time from a return to the next loss, s."""
    since: dict[str, float] = {}
    found = []
    for event in events:
        if event.event == "up":
            since[event.node] = event.time_s
        elif event.event == "down" and event.node in since:
            found.append(event.time_s - since.pop(event.node))
    return found


@pytest.mark.parametrize("shape", [1.0, 0.6])
@pytest.mark.parametrize("days", [20.0, 400.0])
def test_the_rate_holds_from_the_start(shape: float, days: float) -> None:
    """Within four standard errors: of a Poisson process, wider where lives vary more."""
    trace = generate(DrawnLosses(rate=20, shape=shape), 2000, days, "x", 3)
    report = describe(trace)
    error = 4 * (1 / shape) / math.sqrt(report["losses"])
    assert report["losses_per_1000_node_days"] == pytest.approx(20, rel=error)


def test_lives_have_the_shape_of_a_weibull_distribution() -> None:
    """ln(-ln(survivors)) rises by the shape over ln(time)."""
    events = drawn(DrawnLosses(rate=5000, shape=0.6), 200, 60)
    lives = np.sort(lifetimes(events))
    share = (np.arange(len(lives)) + 0.5) / len(lives)
    middle = slice(len(lives) // 20, -len(lives) // 20)
    slope = np.polyfit(np.log(lives[middle]), np.log(-np.log(1 - share[middle])), 1)[0]
    assert slope == pytest.approx(0.6, abs=0.03)


def test_failures_of_a_rack_take_so_many_nodes_at_once() -> None:
    settings = DrawnLosses(rate=50, together=Together(share=0.5, nodes=4, rack=8), away_s=60)
    events = [event for event in drawn(settings, 512, 200) if event.event == "down"]
    sizes: dict[float, int] = {}
    for event in events:
        sizes[event.time_s] = sizes.get(event.time_s, 0) + 1
    together = [size for size in sizes.values() if size > 1]
    assert set(together) == {4}
    assert len(together) / len(sizes) == pytest.approx(0.5, abs=0.06)
    racks = {
        time_s: {int(e.node) // 8 for e in events if e.time_s == time_s}
        for time_s in list(sizes)[:200]
    }
    assert all(len(found) == 1 for found in racks.values())


def test_a_share_of_the_losses_is_announced_in_time() -> None:
    settings = DrawnLosses(rate=50, notice=Notice(share=0.3, length_s=120))
    events = drawn(settings, 512, 200)
    noticed = {}
    seen = 0
    for event in events:
        if event.event == "notice":
            noticed[event.node] = event
        elif event.event == "down" and event.node in noticed:
            notice = noticed.pop(event.node)
            assert event.time_s == notice.deadline_s
            assert event.time_s - notice.time_s == pytest.approx(120, abs=1e-6)
            seen += 1
    losses = sum(event.event == "down" for event in events)
    assert seen / losses == pytest.approx(0.3, abs=0.06)


@given(
    rate=st.floats(1, 1e6),
    shape=st.floats(0.2, 1),
    nodes=st.integers(1, 20),
    share=st.floats(0, 1),
    announced=st.floats(0, 1),
    seed=st.integers(0, 100),
)
def test_what_is_drawn_can_happen(
    rate: float, shape: float, nodes: int, share: float, announced: float, seed: int
) -> None:
    settings = DrawnLosses(
        rate=rate,
        shape=shape,
        away_s=100,
        notice=Notice(share=announced, length_s=30),
        together=Together(share=share, nodes=3, rack=4),
        degraded=Degradations(rate=rate, length_s=100),
    )
    events = draw(settings, nodes, np.random.default_rng(seed))
    table = events_table([next(events) for _ in range(200)])
    check_node_events(table, "drawn")
    assert node_events(table) == tuple(node_events(table))


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        (["0,up,a", "1,up,a"], "row 2: node 'a' comes up, but is up"),
        (["0,down,a", "1,down,a"], "row 2: node 'a' goes down, but is down"),
        (["0,down,a", "1,notice,a"], "row 2: node 'a' gives notice, but is down"),
        (["5,up,a", "1,down,a"], "row 2: time_s is 1, before the row above, 5"),
        (["0,gone,a"], "event is 'gone'; allowed is down, up, notice, degraded"),
        (["0,degraded,a"], "row 1: factor is absent; 'degraded' needs one"),
    ],
)
def test_events_that_cannot_be_are_refused(rows: list[str], fault: str, tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text("\n".join(["time_s,event,node", *rows]), encoding="utf-8")
    form = find_format("auto", [path])
    assert form.name == "node-events"
    with pytest.raises(TraceError, match=r"events\.csv") as raised:
        form.read([path])  # type: ignore[union-attr]
    assert fault in str(raised.value)


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        (["0,degraded,a,,,,0.5"], "row 1: factor is 0.5, must be a finite number >= 1"),
        (["0,degraded,a,,,,inf"], "row 1: factor is inf, must be a finite number >= 1"),
        (["0,degraded,a,,,,fast"], "row 1: factor is 'fast'"),
        (["0,degraded,a,,,0,2"], "row 1: repair_s is 0.0, must be a finite number > 0"),
        (["0,degraded,a,,,9,1"], "row 1: repair_s has no effect with factor 1"),
        (["0,down,a,,,,2"], "row 1: factor belongs to degraded, not to 'down'"),
        (["0,notice,a,,9,9,"], "row 1: repair_s belongs to down or degraded, not to 'notice'"),
        (["0,down,a,,9,,"], "row 1: deadline_s belongs to notice, not to 'down'"),
        (["5,notice,a,,4,,"], "row 1: deadline_s is 4, before its notice"),
        (["0,down,a,,,,", "1,degraded,a,,,,2"], "row 2: node 'a' becomes slow, but is down"),
        (["0,down,a,,,9,", "9,down,a,,,,"], "row 2: node 'a' goes down, but is down"),
        (["0,down,a,,,9,", "10,up,a,,,,"], "row 2: node 'a' comes up, but is up"),
        (["0,down,a,x,,,", "1,up,a,y,,,"], "row 2: node 'a' is in rack 'y', but was in 'x' above"),
    ],
)
def test_values_that_cannot_be_are_refused(rows: list[str], fault: str, tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    header = "time_s,event,node,rack,deadline_s,repair_s,factor"
    path.write_text("\n".join([header, *rows]), encoding="utf-8")
    with pytest.raises(TraceError, match=r"events\.csv") as raised:
        find_format("auto", [path]).read([path])  # type: ignore[union-attr]
    assert fault in str(raised.value)


def test_repairs_follow_unless_another_event_comes_first() -> None:
    events = [
        NodeEvent(0.0, "down", "a", repair_s=10.0),
        NodeEvent(1.0, "degraded", "b", repair_s=4.0, factor=2.0),
        NodeEvent(2.0, "degraded", "b", repair_s=6.0, factor=3.0),
        NodeEvent(5.0, "degraded", "c", rack="r", repair_s=3.0, factor=2.0),
        NodeEvent(6.0, "notice", "c"),
        NodeEvent(8.0, "down", "b"),
        NodeEvent(8.0, "down", "d", repair_s=20.0),
        NodeEvent(9.0, "up", "d"),
    ]
    found = [(e.time_s, e.event, e.node) for e in add_repairs(events) if e not in events]
    assert found == [(8.0, "degraded", "c"), (10.0, "up", "a")]
    normal = next(e for e in add_repairs(events) if e.time_s == 8 and e.node == "c")
    assert (normal.factor, normal.rack) == (1.0, "r")


def test_slow_nodes_have_a_stream_of_their_own() -> None:
    plain = DrawnLosses(rate=2000, away_s=1800, notice=Notice(share=0.5, length_s=60))
    both = plain.model_copy(update={"degraded": Degradations(rate=5000, length_s=600)})
    events = drawn(both, 64, 30)
    assert [e for e in events if e.event != "degraded"] == drawn(plain, 64, 30)
    slow = [e for e in events if e.event == "degraded"]
    up_days = describe(generate(both, 64, 30, "x", 1))["node_days"]
    assert len(slow) / up_days == pytest.approx(5, rel=4 / math.sqrt(len(slow)))
    assert all(1.1 <= e.factor <= 2 for e in slow)
    lengths = np.log([e.repair_s for e in slow])
    assert np.median(lengths) == pytest.approx(math.log(600), abs=0.05)
    assert lengths.std() == pytest.approx(1, abs=0.05)
    check_node_events(events_table(events), "drawn")


def test_slow_nodes_are_described(tmp_path: Path) -> None:
    """What follows from the last rows is left out: nothing is known of the time after them."""
    path = tmp_path / "events.csv"
    rows = ["0,degraded,a,x,10,2", "5,degraded,b,y,,4", "20,down,b,y,100,", "40,down,c,y,5,"]
    path.write_text("\n".join(["time_s,event,node,rack,repair_s,factor", *rows]), encoding="utf-8")
    report = describe(find_format("auto", [path]).read([path]))  # type: ignore[union-attr]
    names = ("slowdowns", "mean_factor", "mean_slow_s", "racks", "losses", "returns", "span_s")
    assert [report[name] for name in names] == [2, 3.0, 12.5, 2, 2, 0, 40.0]


def test_counts_become_nodes(tmp_path: Path) -> None:
    path = tmp_path / "capacity.csv"
    path.write_text("0.0,2\n0.5,3\n0.5,1\n1.0,2\n", encoding="utf-8")
    form = find_format("auto", [path])
    trace = form.read([path])  # type: ignore[union-attr]
    found = [(e.time_s, e.event, e.node) for e in node_events(trace.tables["node-events"])]
    assert found == [
        (0.0, "up", "node-1"),
        (0.0, "up", "node-2"),
        (1800.0, "down", "node-2"),
        (3600.0, "up", "node-3"),
    ]
    path.write_text("time_s,east,west\n0,1,1\n60,0,2\n", encoding="utf-8")
    trace = find_format("spot-capacity", [path]).read([path])  # type: ignore[union-attr]
    found = [(e.time_s, e.event, e.node) for e in node_events(trace.tables["node-events"])]
    assert found == [
        (0.0, "up", "east-1"),
        (0.0, "up", "west-1"),
        (60.0, "down", "east-1"),
        (60.0, "up", "west-2"),
    ]


@pytest.mark.parametrize(
    ("name", "nodes", "losses", "most"),
    [("10m.csv", 30, 15, 30), ("scaled/scale_p3-trace.csv", 157, 142, 30)],
)
def test_recorded_spot_nodes(name: str, nodes: int, losses: int, most: int, shared: Path) -> None:
    path = shared / "data/spot" / name
    report = describe(find_format("auto", [path]).read([path]))  # type: ignore[union-attr]
    assert (report["nodes"], report["losses"], report["most_up"]) == (nodes, losses, most)


def test_the_command_says_what_it_allows(inside: Command) -> None:
    for option, value, allowed in (
        ("--rate", "often", "llama3, rsc-1, rsc-2"),
        ("--rate", "0", "a number of losses > 0"),
        ("--shape", "2", "a number from 0.2 to 1"),
        ("--away-s", "nan", "a time in s > 0"),
    ):
        done = inside("traces", "generate", "node-events", option, value, code=2)
        assert_states(done.stderr, option, f"found {value!r}", allowed)
