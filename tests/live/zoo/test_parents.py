"""Parents in a zoo on disk: what a query reads of its index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wattkeeper.live.zoo.parents import ParentMatch, choose_parents, parent_policy, rank
from wattkeeper.live.zoo.rows import ZooModel
from wattkeeper.live.zoo.snapshot import ZooSnapshot
from wattkeeper.live.zoo.zoo import Zoo
from wattkeeper.policies.matching.benefit import FITTED
from wattkeeper.policies.matching.graph import Graph, Node, Tensor
from wattkeeper.policies.matching.matchers import MATCHERS, find_matcher
from wattkeeper.policies.matching.packing import unpack
from wattkeeper.policies.matching.relation import relate
from wattkeeper.policies.zoo_views import ChildModel
from wattkeeper.scenarios.contract.scripted import job

TASK = "digits"


def chain(op: str, depth: int, width: int = 8) -> Graph:
    """Layers of one kind, one after the other, with a head."""
    shapes = [*[(width, width)] * depth, (4, width)]
    return Graph(
        f"{op}-{depth}-{width}",
        tuple(
            Node(op, (place - 1,), (Tensor(f"{place}.weight", "weight", shape),))
            for place, shape in enumerate(shapes)
        ),
    )


GRAPHS = [chain(op, depth) for op in ("linear", "conv", "mix", "scan") for depth in (1, 2, 3)]
CHILD, WIDE = chain("conv", 2), chain("conv", 2, 12)


def fill(zoo: Zoo, graphs: Sequence[Graph]) -> None:
    """Add models with weights of zeros; each graph comes twice, the second time more accurate."""
    for graph in graphs:
        state = {
            tensor.name: np.zeros(tensor.shape, dtype=np.float32)
            for node in graph.nodes
            for tensor in node.tensors
        }
        for accuracy in (0.9, 0.91):
            zoo.add(graph, state, task=TASK, accuracy=accuracy)


def look(zoo: Zoo, child: Graph = CHILD) -> ZooSnapshot:
    return ZooSnapshot(zoo, ChildModel("child", TASK, child))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the arrays that are read, by layout."""
    counts: Counter[str] = Counter()

    def count(layout: type[Any], data: bytes) -> Any:
        counts[layout.__name__] += 1
        return unpack(layout, data)

    monkeypatch.setattr("wattkeeper.live.zoo.snapshot.unpack", count)
    return counts


def summary(matches: list[ParentMatch]) -> list[tuple[int, float]]:
    return [(match.model.model_id, match.score) for match in matches]


@pytest.mark.parametrize("name", MATCHERS)
def test_a_query_reads_all_sketches_and_few_models(
    name: str, tmp_path: Path, read: Counter[str]
) -> None:
    zoo, matcher = Zoo(tmp_path / "zoo"), find_matcher(name)
    fill(zoo, GRAPHS[1:])
    ranked = summary(rank(look(zoo), CHILD, name))
    assert summary(rank(look(zoo), CHILD, name, 3)) == ranked[:3]
    fill(zoo, GRAPHS[:1])
    read.clear()
    best = summary(rank(look(zoo), CHILD, name, 3))
    assert read[matcher.sketches.__name__] == len(GRAPHS) - 1, "that of the new model is made"
    assert 0 < read[matcher.layout.__name__] < len(GRAPHS) / 2
    assert best == summary(rank(look(zoo), CHILD, name))[:3]


def test_the_policy_chooses_what_a_scan_of_all_would(tmp_path: Path) -> None:
    zoo = Zoo(tmp_path / "zoo")
    fill(zoo, GRAPHS)

    def key(model: ZooModel) -> tuple[float, float, float, int]:
        both = relate(zoo.graph(model.model_id), WIDE)
        return both.coverage, both.retained, model.accuracy, -model.model_id

    by_coverage = parent_policy("modelkeeper", {"matcher": "coverage"})
    [parent] = choose_parents(by_coverage, look(zoo, WIDE), job())
    assert [parent] == choose_parents(parent_policy("relative"), look(zoo, WIDE), job())
    assert parent == max(zoo.models(), key=key)


def test_an_inaccurate_model_is_expected_to_save_less(tmp_path: Path) -> None:
    """In the ranking as in the choice; against the best of its own task."""
    zoo = Zoo(tmp_path / "zoo")
    state = {
        tensor.name: np.zeros(tensor.shape, dtype=np.float32)
        for node in CHILD.nodes
        for tensor in node.tensors
    }
    for accuracy, task in ((0.5, TASK), (1.0, TASK), (0.5, "letters")):
        zoo.add(CHILD, state, task=task, accuracy=accuracy)
    snapshot = look(zoo)
    for count in (None, 3):
        poor, best, letters = sorted(
            rank(snapshot, CHILD, "saving", count), key=lambda match: match.model.model_id
        )
        assert best.saving == letters.saving == best.score
        assert poor.saving == poor.score == pytest.approx(best.saving - FITTED.accuracy / 2)
        ordered = [match.model.model_id for match in rank(snapshot, CHILD, "saving", count)]
        assert ordered == [2, 3, 1]
