"""Alignment and coverage: what of a parent fills what of a child."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.support.random_graphs import BLOCKS, Builder, Spec, build, draw, mutate
from wattkeeper.policies.matching.alignment import align
from wattkeeper.policies.matching.fitting import kind
from wattkeeper.policies.matching.graph import SOURCE, Graph, Node, Tensor
from wattkeeper.policies.matching.prepared import canonical_order
from wattkeeper.policies.matching.relation import coverage

seeds = st.integers(0, 2**32 - 1)
families = st.sampled_from(list(BLOCKS))


def spec_of(seed: int) -> Spec:
    return draw(np.random.default_rng(seed), 80)


def scale(spec: Spec, factor: float) -> Spec:
    return spec._replace(stages=tuple((int(width * factor), n) for width, n in spec.stages))


def deepen(spec: Spec, more: int) -> Spec:
    return spec._replace(stages=tuple((width, n + more) for width, n in spec.stages))


def shuffle(graph: Graph, rng: np.random.Generator) -> Graph:
    """The same graph in another topological order, the arguments of its sums swapped at will."""
    waiting = {at: {*node.inputs} - {SOURCE} for at, node in enumerate(graph.nodes)}
    place: dict[int, int] = {SOURCE: SOURCE}
    nodes: list[Node] = []
    while waiting:
        ready = [at for at, before in waiting.items() if before <= place.keys()]
        at = int(rng.choice(ready))
        del waiting[at]
        node = graph.nodes[at]
        inputs = [place[before] for before in node.inputs]
        if node.op == "add":
            rng.shuffle(inputs)
        place[at] = len(nodes)
        nodes.append(node._replace(inputs=tuple(inputs)))
    return Graph(graph.name, tuple(nodes))


@given(seeds)
def test_a_model_fills_itself_completely(seed: int) -> None:
    graph = build(spec_of(seed))
    assert coverage(graph, graph) == 1
    assert (align(graph, graph) == np.arange(len(graph))).all()


@given(seeds, st.sampled_from([2, 3, 1.5]))
def test_another_width_of_the_same_net_fits_node_by_node(seed: int, factor: float) -> None:
    spec = spec_of(seed)
    narrow, wide = build(spec), build(scale(spec, factor))
    for parent, child in ((narrow, wide), (wide, narrow)):
        assert coverage(parent, child) == 1
        assert (align(parent, child) == np.arange(len(child))).all()


@given(seeds, seeds)
def test_an_alignment_is_monotone_and_matches_what_fits(one: int, two: int) -> None:
    rng = np.random.default_rng(two)
    spec = spec_of(one)
    parent, child = build(spec), build(mutate(mutate(spec, rng), rng))
    places = align(parent, child)
    assert places.shape == (len(child),)
    matched = np.flatnonzero(places >= 0)
    assert len(matched) > 0
    for at in matched:
        assert kind(parent.nodes[places[at]]) == kind(child.nodes[at])
    above = {at: place for place, at in enumerate(canonical_order(parent))}
    rising = [above[places[at]] for at in canonical_order(child) if places[at] >= 0]
    assert rising == sorted(set(rising))
    filled = child.parameters[matched].sum() / child.parameters.sum()
    assert coverage(parent, child) == filled


@given(seeds, seeds)
def test_the_order_of_branches_does_not_matter(seed: int, other: int) -> None:
    graph = build(spec_of(seed))
    mixed = shuffle(graph, np.random.default_rng(other))
    assert coverage(graph, mixed) == coverage(mixed, graph) == 1


@given(families, st.integers(1, 6))
def test_a_deeper_child_takes_the_parents_blocks_first(family: str, more: int) -> None:
    spec = Spec(family, ((16, 3),))
    parent, child = build(spec), build(deepen(spec, more))
    places = align(parent, child)
    for at, node in enumerate(child.nodes[:-1]):
        if node.tensors:
            assert places[at] == (at if at < len(parent) - 2 else -1)
    assert coverage(child, parent) == 1


def test_a_deeper_and_wider_child_keeps_every_node_of_the_parent() -> None:
    spec = Spec("basic", ((16, 2), (32, 2)))
    parent, child = build(spec), build(deepen(scale(spec, 2), 2))
    kept = align(parent, child)
    weighted = [at for at, node in enumerate(parent.nodes) if node.tensors]
    assert set(weighted) <= set(kept.tolist())
    # Only blocks that can be the identity are left: the first one of a stage is always matched.
    left = [child.nodes[at] for at in np.flatnonzero(kept < 0) if child.nodes[at].tensors]
    assert left
    assert all(len({*node.tensors[0].shape[:2]}) == 1 for node in left)


def test_classes_and_channels_are_fixed_by_the_task() -> None:
    spec = Spec("plain", ((16, 3),))
    parent = build(spec)
    head = build(spec._replace(classes=100))
    assert align(parent, head)[-1] == -1
    assert align(parent, head)[0] == 0
    stem = build(spec._replace(channels=1))
    assert align(parent, stem)[0] == -1
    assert align(parent, stem)[-1] == len(stem) - 1


def test_strides_must_be_equal_and_kernels_share_a_centre() -> None:
    def net(kernel: int, stride: int) -> Graph:
        to = Builder()
        at = to.conv(SOURCE, 3, 8, 3)
        at = to.conv(at, 8, 8, kernel, stride)
        to.add("linear", at, tensors=to.weights((10, 8)))
        return Graph("", tuple(to.nodes))

    assert align(net(3, 1), net(3, 1)).tolist() == [0, 1, 2]
    assert align(net(3, 1), net(3, 2)).tolist() == [0, -1, 2]
    assert align(net(3, 1), net(5, 1)).tolist() == [0, 1, 2]
    assert align(net(3, 1), net(4, 1)).tolist() == [0, -1, 2]


def test_equal_shapes_are_preferred() -> None:
    def net(*widths: int) -> Graph:
        to = Builder()
        at = to.conv(SOURCE, 3, widths[0], 3)
        for inputs, outputs in pairwise(widths):
            at = to.conv(at, inputs, outputs, 3)
        to.add("linear", at, tensors=to.weights((10, widths[-1])))
        return Graph("", tuple(to.nodes))

    assert align(net(64, 64, 128, 128), net(64, 128)).tolist() == [0, 2, 4]
    assert align(net(64, 128), net(64, 64, 128, 128)).tolist() == [0, -1, 1, -1, 2]


def test_a_shared_tensor_counts_once() -> None:
    weight = Tensor("shared", "weight", (8, 8))
    first = Node("linear", (SOURCE,), (Tensor("first", "weight", (8, 4)),))
    twice = [Node("linear", (at,), (weight,)) for at in range(2)]
    head = Node("linear", (2,), (Tensor("head", "weight", (2, 8)),))
    child = Graph("", (first, *twice, head))
    parent = Graph("", (first, head._replace(inputs=(0,))))
    assert coverage(child, child) == 1
    assert coverage(parent, child) == (32 + 16) / (32 + 64 + 16)


def test_a_scalar_fits_a_scalar() -> None:
    scale = Node("mul", (SOURCE,), (Tensor("scale", "weight", ()),))
    assert coverage(Graph("", (scale,)), Graph("", (scale,))) == 1


def test_coverage_without_trained_elements_is_zero() -> None:
    graph = Graph("", (Node("relu", (SOURCE,)),))
    assert coverage(graph, graph) == 0
    assert coverage(Graph("", ()), build(Spec("plain", ((8, 1),)))) == 0
