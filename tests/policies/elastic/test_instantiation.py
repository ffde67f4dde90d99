"""Pipelines of a cluster and their micro-batches are the best of all."""

from __future__ import annotations

from itertools import product
from statistics import pvariance

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.messages import assert_states
from wattkeeper.policies.elastic.instantiation import instantiate, instantiate_counts
from wattkeeper.policies.elastic.microbatches import share_microbatches
from wattkeeper.policies.elastic.stages import TemplateStage
from wattkeeper.policies.elastic.templates import PipelineTemplate
from wattkeeper.policies.errors import InputError

TIMES = st.floats(0.5, 20.0)


def template_of(nodes: int, stages: int, iteration_s: float) -> PipelineTemplate:
    return PipelineTemplate(nodes, 1, (TemplateStage(0, 1, 1, 1.0),) * stages, iteration_s)


def all_shares(counts: list[int], microbatches: int) -> list[tuple[int, ...]]:
    ranges = [range(1, microbatches // count + 1) for count in counts]
    return [
        share for share in product(*ranges) if sum(map(int.__mul__, counts, share)) == microbatches
    ]


def variance_s2(times_s: list[float], share: tuple[int, ...]) -> float:
    return pvariance([time_s * number for time_s, number in zip(times_s, share, strict=True)])


@given(st.lists(st.tuples(st.integers(1, 4), TIMES), min_size=1, max_size=4), st.integers(1, 24))
def test_shares_have_the_least_variance_of_all(
    sizes: list[tuple[int, float]], microbatches: int
) -> None:
    counts, times_s = [count for count, _ in sizes], [time_s for _, time_s in sizes]
    share = share_microbatches(counts, times_s, microbatches)
    shares = all_shares(counts, microbatches)
    assert (share is None) == (not shares)
    if share is not None:
        assert share.microbatches in shares
        least_s2 = min(variance_s2(times_s, other) for other in shares)
        found_s2 = variance_s2(times_s, share.microbatches)
        assert found_s2 == pytest.approx(least_s2, rel=1e-9, abs=1e-9)
        assert share.variance_s2 == pytest.approx(found_s2, rel=1e-9, abs=1e-9)


def test_of_equal_shares_the_first_in_lexical_order() -> None:
    share = share_microbatches([1, 1], [1.0, 1.0], 21)
    assert share is not None
    assert share.microbatches == (10, 11)


@given(
    st.lists(st.tuples(st.integers(1, 5), TIMES), min_size=1, max_size=4, unique_by=lambda x: x[0]),
    st.integers(1, 12),
    st.integers(1, 20),
)
def test_instantiations_are_the_best_of_all(
    sizes: list[tuple[int, float]], nodes: int, microbatches: int
) -> None:
    templates = sorted(template_of(size, size, time_s) for size, time_s in sizes)
    found = instantiate(templates, nodes, microbatches)
    options = [
        option
        for counts in product(*(range(nodes // template.nodes + 1) for template in templates))
        if sum(n * each.nodes for n, each in zip(counts, templates, strict=True)) == nodes
        and (option := instantiate_counts(templates, counts, microbatches))
    ]
    assert (found is None) == (not options)
    if found is not None:
        assert found in options
        assert found.balanced_s == min(option.balanced_s for option in options)
        assert sum(group.nodes * group.pipelines for group in found.groups) == nodes
        assert sum(group.pipelines * group.microbatches for group in found.groups) == microbatches


def test_many_nodes_and_sizes() -> None:
    templates = [template_of(size, size, 15 + (7 * size % 5) / 4) for size in range(2, 29)]
    found = instantiate(templates, 30, 4096)
    assert found is not None
    assert sum(group.pipelines * group.microbatches for group in found.groups) == 4096


@pytest.mark.parametrize(
    ("templates", "nodes", "microbatches", "facts"),
    [
        ([], 3, 8, ("none",)),
        ([template_of(2, 2, 1.0)] * 2, 3, 8, ("2, 2",)),
        ([template_of(2, 2, 0.0)], 3, 8, ("2 nodes", "0.0 s")),
        ([template_of(2, 2, 1.0)], 0, 8, ("0 nodes",)),
        ([template_of(2, 2, 1.0)], 3, 0, ("0 micro-batches",)),
    ],
)
def test_bad_inputs(
    templates: list[PipelineTemplate], nodes: int, microbatches: int, facts: tuple[str, ...]
) -> None:
    with pytest.raises(InputError) as caught:
        instantiate(templates, nodes, microbatches)
    assert_states(str(caught.value), *facts)
