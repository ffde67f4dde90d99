"""Tables of networks: what is checked, and the one that is shipped."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.messages import assert_states
from tests.support.traces import read_table
from wattkeeper.policies.errors import TraceError
from wattkeeper.policies.matching.relation import relate
from wattkeeper.sim.search.architectures import count_parameters, parse
from wattkeeper.traces.describe.networks import report
from wattkeeper.traces.library import store
from wattkeeper.traces.trace import Trace

Rows = list[dict[str, Any]]
SHIPPED = store.find("digits-space")
PARENTS = 3
"""Of each network."""


def change(table: str, alter: Callable[[Rows], object], **parameters: Any) -> Trace:
    """The shipped table with altered rows and parameters."""
    tables: dict[str, pa.Table] = dict(SHIPPED.tables)
    rows = tables[table].to_pylist()
    alter(rows)
    tables[table] = pa.Table.from_pylist(rows, schema=tables[table].schema)
    more = {**SHIPPED.parameters, **parameters}
    return dataclasses.replace(SHIPPED, tables=tables, parameters=more)


@pytest.mark.parametrize(
    ("table", "row", "values", "facts"),
    [
        ("networks", 4, {"choices": "9,9"}, ("networks.parquet, row 5", "'9,9'", "the space")),
        ("networks", 1, {"choices": "8,1,plain,3,8,1,plain,3"}, ("row 2", "'c3-8-c3-8'")),
        ("networks", 0, {"graph": None}, ("row 1", "no graph")),
        ("networks", 0, {"task": "other"}, ("digits: has 255 of the 256", "other: has 1 of the")),
        ("recordings", 0, {"network": "x"}, ("recordings.parquet, row 1", "'x'")),
        ("recordings", 300, {"parent": "x"}, ("recordings.parquet, row 301", "'x'")),
        ("recordings", 0, {"curve": "1 2"}, ("row 1", "curve", "one more than epochs")),
        ("recordings", 0, {"parent": "c5-8-c5-8"}, ("'c3-8-c3-8' has no training from scratch",)),
    ],
)
def test_incomplete_tables_are_refused(
    table: str, row: int, values: Mapping[str, Any], facts: tuple[str, ...]
) -> None:
    with pytest.raises(TraceError) as caught:
        change(table, lambda rows: rows[row].update(values))
    assert_states(str(caught.value), "digits-space", *facts)


@pytest.mark.parametrize(
    "space",
    [
        None,
        {},
        [],
        [["a", []]],
        [["a", ["1", "1"]]],
        [["a", ["1"]], ["a", ["2"]]],
        [["a", ["1,2"]]],
        [["a", [1]]],
        [["a", [["1"]]]],
        [[f"{name}", ["1", "2"]] for name in range(21)],
    ],
)
def test_a_space_is_names_with_different_choices(space: object) -> None:
    with pytest.raises(TraceError, match=r"parameters\.space"):
        change("networks", list, space=space)


def test_the_shipped_table_says_where_it_is_from() -> None:
    about = SHIPPED.parameters
    assert {"recorded", "cpu", "python", "torch", "numpy", "scikit-learn"} <= set(about)
    assert (SHIPPED.origin, about["gpu_type"]) == ("recorded", "CPU")
    assert any("patience 5" in note for note in SHIPPED.notes)


def test_the_shipped_table_has_all_networks_from_scratch_and_from_three_parents() -> None:
    described = report(SHIPPED)
    assert described["curves"]
    [task] = described["tasks"].values()
    assert (task["networks"], task["from_scratch"]) == (256, 256)
    assert task["from_parents"] == task["pairs"] == 256 * PARENTS
    rows = SHIPPED.tables["recordings"].to_pylist()
    samples = SHIPPED.parameters["validation_samples"]
    for row in rows:
        counts = list(map(int, row["curve"].split()))
        assert row["accuracy"] == max(counts) / samples
        assert row["epochs"] == min(counts.index(max(counts)) + 5, 100)
    pairs = {(row["network"], row["parent"]) for row in rows}
    table = read_table(SHIPPED)
    choices = {network.name: choices for choices, network in table.networks.items()}
    for name, own in choices.items():
        parents = [parent for network, parent in pairs if network == name and parent is not None]
        differing = sorted(
            sum(one != other for one, other in zip(own, choices[parent], strict=True))
            for parent in parents
        )
        assert differing == [0, 1, 1]


def test_the_shipped_graphs_are_those_of_the_networks() -> None:
    table = read_table(SHIPPED)
    for choices, network in table.networks.items():
        graph = table.graph(choices)
        assert graph.parameters.sum() == network.parameters
        assert network.parameters == count_parameters(parse(network.name))
        assert relate(graph, graph).keeps


def test_the_page_says_what_the_parents_of_the_shipped_table_saved() -> None:
    recordings = read_table(SHIPPED).recordings
    sizes = {network.name: network.parameters for network in read_table(SHIPPED).networks.values()}
    kinds: list[list[tuple[str, str]]] = [[] for _ in range(PARENTS)]
    seen: Counter[str] = Counter()
    for network, parent in recordings:  # in the order of recording
        if parent is not None:
            kinds[seen[network]].append((network, parent))
            seen[network] += 1
    page = (Path(__file__).parents[2] / "docs" / "zoo.md").read_text(encoding="utf-8")
    harmed = []
    for pairs in kinds:
        warm = sum(recordings[pair][0].epochs * sizes[pair[0]] for pair in pairs)
        scratch = sum(recordings[name, None][0].epochs * sizes[name] for name, _ in pairs)
        assert f"{100 * (1 - warm / scratch):.1f} %" in page
        harmed.append(
            sum(recordings[p][0].epochs > recordings[p[0], None][0].epochs for p in pairs)
        )
    assert f"({', '.join(map(str, harmed[:-1]))} and {harmed[-1]} of them took more" in page
