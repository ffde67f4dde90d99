"""Parents in a zoo on disk: what a query reads of its index."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.random_graphs import build, lineage, mutate
from wattkeeper.live.zoo import snapshot as snapshots
from wattkeeper.live.zoo.parents import ParentMatch, choose_parent, parent_policy, rank
from wattkeeper.live.zoo.rows import ZooModel
from wattkeeper.live.zoo.snapshot import ZooSnapshot
from wattkeeper.live.zoo.zoo import Zoo
from wattkeeper.policies.matching.coverage import shares
from wattkeeper.policies.matching.graph import Graph
from wattkeeper.policies.matching.matchers import MATCHERS, find_matcher
from wattkeeper.policies.zoo_views import ChildModel
from wattkeeper.scenarios.contract.scripted import job

MODELS = 24
TASK = "digits"


def fill(zoo: Zoo, graphs: list[Graph]) -> None:
    """Add models with weights of zeros; each graph comes twice, the second time less accurate."""
    for number, graph in enumerate(graphs):
        state = {
            tensor.name: np.zeros(tensor.shape, dtype=np.float32)
            for node in graph.nodes
            for tensor in node.tensors
        }
        for accuracy in (0.9, 0.8):
            zoo.add(graph, state, task=TASK, accuracy=accuracy, name=f"m{number}-{accuracy}")


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the arrays that are read, by layout."""
    counts: Counter[str] = Counter()
    unpack = snapshots.unpack

    def count(layout: type[Any], data: bytes) -> Any:
        counts[layout.__name__] += 1
        return unpack(layout, data)

    monkeypatch.setattr(snapshots, "unpack", count)
    return counts


def summary(matches: list[ParentMatch]) -> list[tuple[int, float]]:
    return [(match.model.model_id, match.score) for match in matches]


@pytest.mark.parametrize("name", MATCHERS)
def test_a_query_reads_all_sketches_and_few_models(
    name: str, tmp_path: Path, read: Counter[str]
) -> None:
    rng = np.random.default_rng(3)
    specs = lineage(rng, MODELS + 1, 20)
    *graphs, late = [build(spec, f"net{number}") for number, spec in enumerate(specs)]
    zoo, child = Zoo(tmp_path / "zoo"), build(mutate(specs[5], rng))
    fill(zoo, graphs)
    about = ChildModel("child", TASK, child)
    matcher, sketches = find_matcher(name), find_matcher(name).sketches.__name__
    ranked = summary(rank(ZooSnapshot(zoo, about), child, name))
    assert summary(rank(ZooSnapshot(zoo, about), child, name, 3)) == ranked[:3]
    fill(zoo, [late])
    read.clear()
    best = summary(rank(ZooSnapshot(zoo, about), child, name, 3))
    known = {graph.digest for graph in graphs}
    assert read[sketches] == len(known), "that of the new model is made"
    assert 0 < read[matcher.layout.__name__] < len(known) / 2
    assert best == summary(rank(ZooSnapshot(zoo, about), child, name))[:3]


def test_the_policy_chooses_what_a_scan_of_all_would(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    specs = lineage(rng, MODELS, 20)
    zoo, child = Zoo(tmp_path / "zoo"), build(mutate(specs[2], rng))
    fill(zoo, [build(spec, f"net{number}") for number, spec in enumerate(specs)])

    def key(model: ZooModel) -> tuple[float, float, float, int]:
        both = shares(zoo.graph(model.model_id), child)
        return both.coverage, both.retained, model.accuracy, -model.model_id

    snapshot = ZooSnapshot(zoo, ChildModel("child", TASK, child))
    parent = choose_parent(parent_policy("modelkeeper"), snapshot, job())
    assert parent == max(zoo.models(), key=key)
