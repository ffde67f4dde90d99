"""`modelkeeper-asbuilt` against the scores that the authors' own matcher gave."""

from __future__ import annotations

import csv
import gzip
import math
import random
from pathlib import Path

import numpy as np
import pytest

from tests.support.nasbench import nasbench201
from tests.support.random_graphs import build, draw
from wattkeeper.policies.matching.asbuilt import asbuilt
from wattkeeper.policies.matching.graph import Graph
from wattkeeper.traces.models.graphs import read_graphs

Row = dict[str, str]
PAIRS = 16_224
SAMPLE = 150


@pytest.fixture(scope="module")
def graphs(shared: Path) -> dict[str, Graph]:
    return {graph.name: graph for graph in read_graphs(shared / "data/modelkeeper/graphs")}


@pytest.fixture(scope="module")
def scores(shared: Path) -> list[Row]:
    with gzip.open(shared / "reference/modelkeeper/scores.csv.gz", "rt") as file:
        return list(csv.DictReader(file))


def rows(path: Path) -> list[Row]:
    with path.open() as file:
        return list(csv.DictReader(file))


def check(row: Row, parent: Graph, child: Graph) -> None:
    raw, names = asbuilt(parent, child), f"{parent.name} -> {child.name}"
    assert raw == pytest.approx(float(row["score_raw"]), rel=1e-9, abs=0), names
    assert (len(parent), len(child)) == (int(row["parent_nodes"]), int(row["child_nodes"]))


def test_a_sample_of_the_published_scores_is_equal(
    scores: list[Row], graphs: dict[str, Graph]
) -> None:
    assert len(scores) == PAIRS
    for row in random.Random(1).sample(scores, SAMPLE):
        check(row, graphs[row["parent"]], graphs[row["child"]])


@pytest.mark.slow
def test_all_published_scores_are_equal(scores: list[Row], graphs: dict[str, Graph]) -> None:
    own: dict[str, float] = {}
    for row in scores:
        parent, child = graphs[row["parent"]], graphs[row["child"]]
        check(row, parent, child)
        mine = own.setdefault(child.name, asbuilt(child, child))
        # The files print normalised scores with six digits.
        assert float(row["score_over_child_self"]) == pytest.approx(
            float(row["score_raw"]) / mine, rel=1e-5
        )


def test_pairs_with_more_columns_are_equal(shared: Path, graphs: dict[str, Graph]) -> None:
    pairs = rows(shared / "reference/modelkeeper/pairs.csv")
    assert len(pairs) == 294
    for row in pairs:
        parent, child = graphs[row["parent"]], graphs[row["child"]]
        check(row, parent, child)
        own = asbuilt(child, child) / len(child)
        assert float(row["child_self_norm"]) == pytest.approx(own, rel=1e-9)


def test_nasbench_cells_are_equal(shared: Path) -> None:
    pairs = rows(shared / "reference/modelkeeper/nasbench201_pairs.csv")
    assert len(pairs) == 126
    for row in pairs:
        check(row, nasbench201(row["parent_arch"]), nasbench201(row["child_arch"]))


def test_scores_beyond_single_precision_are_finite(graphs: dict[str, Graph]) -> None:
    largest = max(asbuilt(graph, graph) for graph in graphs.values() if len(graph) < 1000)
    assert 1e40 < largest < math.inf


def test_only_equality_of_widths_counts() -> None:
    spec = draw(np.random.default_rng(3), 60)
    wide = spec._replace(stages=tuple((2 * width, blocks) for width, blocks in spec.stages))
    child, wider = build(spec), build(wide)
    assert asbuilt(child, child) > asbuilt(wider, child)
    assert asbuilt(child, child) == asbuilt(wider, wider)
