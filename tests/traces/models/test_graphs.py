"""Graphs from JSON, in the published form and our own, and what is kept of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.random_graphs import build, draw
from wattkeeper.policies.errors import TraceError
from wattkeeper.policies.matching.graph import SOURCE, Graph
from wattkeeper.policies.matching.matchers import MATCHERS, find_matcher
from wattkeeper.scenarios.zoo import scores
from wattkeeper.scenarios.zoo.scores import read_arrays
from wattkeeper.traces.models.graphs import read_graph, read_graphs


def published() -> dict[str, Any]:
    return {
        "model": "small",
        "num_tensors": 3,
        "opts": ["Conv", "Relu", "Conv", "Add", "Gemm"],
        "dims": [[8, 3, 3, 3], [], [8, 1, 3, 3], [], [10, 8]],
        "parents": [[-1], [0], [1], [2, 1], [3]],
        "layer": ["stem", None, "body", None, "head"],
    }


def write(path: Path, content: object) -> Path:
    path.write_text(json.dumps(content))
    return path


def test_a_published_graph_is_read(tmp_path: Path) -> None:
    graph = read_graph(write(tmp_path / "any.json", published()))
    assert graph.name == "small"
    assert [node.op for node in graph.nodes] == published()["opts"]
    assert [node.inputs for node in graph.nodes] == [(SOURCE,), (0,), (1,), (2, 1), (3,)]
    assert [tensor.name for node in graph.nodes for tensor in node.tensors] == [
        "stem.weight",
        "body.weight",
        "head.weight",
    ]
    assert [node.attributes for node in graph.nodes][2] == (("depthwise", True),)


def test_a_graph_out_of_order_is_sorted(tmp_path: Path) -> None:
    found = published()
    order = [4, 2, 0, 3, 1]
    new = {at: place for place, at in enumerate(order)} | {-1: -1}
    for key in ("opts", "dims", "layer"):
        found[key] = [found[key][at] for at in order]
    found["parents"] = [[new[at] for at in published()["parents"][old]] for old in order]
    sorted_again = read_graph(write(tmp_path / "any.json", found))
    assert sorted_again.digest == read_graph(write(tmp_path / "any.json", published())).digest


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("model", "", r"any\.json: model: .* at least 1 character"),
        ("num_tensors", 2, "num_tensors: is 2; layer names 3 different ones"),
        ("opts", ["Conv"], "dims: has 5 values; opts has 1"),
        ("opts", [], "opts: .* at least 1 item"),
        ("opts", None, "opts: .* valid (list|array)"),
        ("dims", [[8, 3, 3, 3], [], [8, 0, 3, 3], [], [10, 8]], r"dims\[2\]\[1\]: .* not 0"),
        ("dims", [[8, 3.5], [], [8, 1, 3, 3], [], [10, 8]], r"dims\[0\]\[1\]: .* not 3\.5"),
        ("dims", [[], [], [8, 1, 3, 3], [], [10, 8]], r"layer\[0\]: has a name without a shape"),
        ("parents", [[-1], [0], [1], [2, 9], [3]], r"parents\[3\]: names node 9; the last one"),
        ("parents", [[-1], [2], [1], [2], [3]], r"parents\[1\]: is in a circle or after one"),
        ("layer", ["stem", None, None, None, "head"], r"layer\[2\]: .* a shape without a name"),
    ],
)
def test_a_malformed_graph_is_refused(tmp_path: Path, key: str, value: Any, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        read_graph(write(tmp_path / "any.json", published() | {key: value}))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "Invalid JSON"),
        (b'{"model": "a"', "Invalid JSON"),
        (b'{"model": "a"}', "opts: Field required"),
        (b"[\xff]", "is not text in UTF-8"),
        (b"7", "valid dictionary|an object"),
        (b"[]", "at least 1 item"),
        (b'[["relu", [0], [], []]]', r"\[0\]\[1\]: input 0 is not before the node"),
        (b'[["relu", [-1], [["w", "weight", [0], true]], []]]', r"\[0\]\[2\]\[0\]\[2\]\[0\]"),
    ],
)
def test_files_without_graphs_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "any.json"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=rf"any\.json: .*({message})"):
        read_graph(path)


def test_own_graph_files_round_trip(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    for at in range(5):
        graph = build(draw(rng, 50), f"model{at}")
        (tmp_path / f"model{at}.json").write_text(graph.to_json())
        found = read_graphs(tmp_path)[at]
        assert (found.name, found.nodes) == (graph.name, graph.nodes)


def test_a_folder_needs_graphs_and_different_names(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"has no \.json file"):
        read_graphs(tmp_path)
    for name in ("one", "two"):
        write(tmp_path / f"{name}.json", published())
    with pytest.raises(TraceError, match=r"two\.json: model: 'small' is the name of another"):
        read_graphs(tmp_path)
    with pytest.raises(TraceError, match=r"three\.json: no such file"):
        read_graph(tmp_path / "three.json")


@pytest.mark.parametrize("name", MATCHERS)
def test_arrays_come_from_the_cache_and_are_made_again_when_damaged(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, matcher = tmp_path / "zoo", find_matcher(name)
    folder.mkdir()
    graphs: dict[str, Graph] = {}
    for at in range(4):
        spec = draw(np.random.default_rng(at), 40)._replace(classes=10 + at)
        graphs[f"m{at}"] = build(spec, f"m{at}")
        (folder / f"m{at}.json").write_text(graphs[f"m{at}"].to_json())
    write(folder / "small.json", published())
    graphs["small"] = read_graph(folder / "small.json")

    parsed: list[str] = []

    def parse(name: str, data: bytes, where: str) -> Graph:
        parsed.append(name)
        return graphs[name]

    monkeypatch.setattr(scores, "parse_graph", parse)

    def check(made: list[str]) -> None:
        parsed.clear()
        found = read_arrays(folder, matcher, tmp_path / "cache" / "graphs")
        assert parsed == made
        assert found.keys() == graphs.keys()
        for key, arrays in found.items():
            for one, two in zip(arrays, matcher.arrays(graphs[key]), strict=True):
                np.testing.assert_array_equal(one, two)

    check([*graphs])
    check([])
    kept = sorted((tmp_path / "cache").rglob(f"*.{matcher.layout.__name__}"))
    assert len(kept) == len(graphs)
    for file in kept:
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(data)
    check([*graphs])
    check([])
