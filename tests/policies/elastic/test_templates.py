"""Pipeline templates are those of a search through all candidates."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.messages import assert_states
from wattkeeper.policies.elastic.stages import LayerCost
from wattkeeper.policies.elastic.templates import PipelineTemplate, plan_templates, template_sizes
from wattkeeper.policies.errors import InputError

Found = tuple[float, tuple[float, ...], tuple[tuple[int, int, int], ...]]
"""Time, times of stages, and first layer, end and GPUs of each."""

LAYERS = st.lists(
    st.builds(
        LayerCost,
        st.integers(0, 40).map(float),
        st.tuples(st.integers(0, 9).map(float), st.integers(0, 9).map(float)),
    ),
    min_size=1,
    max_size=8,
)


def time_by_text(times_s: tuple[float, ...]) -> float:
    """The time of an iteration, as the text defines it for two stages or more."""
    number = max(range(len(times_s)), key=lambda index: (times_s[index], index))
    factor = 2 * len(times_s) + number + 1
    return sum(times_s) + factor * times_s[number] + sum(times_s[number:])


def search_all(layers: list[LayerCost], gpus_per_node: int) -> Callable[[int], float]:
    """The search of the text, through all candidates in their order."""

    @cache
    def best(stages: int, first: int, end: int, nodes: int, gpus: int) -> Found | None:
        if stages > end - first or (nodes > 1 and nodes > stages):
            return None
        if nodes == 1 and (gpus < stages or (stages == 1 and gpus.bit_count() > 1)):
            return None
        if stages == 1:
            time_s = sum(layer.shared_s(gpus) for layer in layers[first:end])
            return 4 * time_s, (time_s,), ((first, end, gpus),)
        found: Found | None = None
        for middle in range(first + 1, end):
            for part in range(1, nodes if nodes > 1 else gpus):
                sizes = ((part, gpus), (nodes - part, gpus))
                if nodes == 1:
                    sizes = ((1, part), (1, gpus - part))
                for own in range(1, stages):
                    left = best(own, first, middle, *sizes[0])
                    right = best(stages - own, middle, end, *sizes[1])
                    if left and right:
                        times_s = left[1] + right[1]
                        time_s = time_by_text(times_s)
                        if found is None or time_s < found[0]:
                            found = (time_s, times_s, left[2] + right[2])
        return found

    def least(nodes: int) -> float:
        found = [
            best(stages, 0, len(layers), nodes, gpus_per_node)
            for stages in range(nodes, len(layers) + 1)
        ]
        return min(each[0] for each in found if each)

    return least


def check_template(template: PipelineTemplate, layers: list[LayerCost]) -> None:
    """Each layer is in one stage, no stage on two nodes, and all GPUs are used."""
    stages = template.stages
    assert (stages[0].first, stages[-1].end) == (0, len(layers))
    assert all(left.end == right.first for left, right in pairwise(stages))
    assert all(stage.first < stage.end and stage.gpus.bit_count() == 1 for stage in stages)
    assert sum(stage.gpus for stage in stages) == template.nodes * template.gpus_per_node
    for stage in stages:
        own = layers[stage.first : stage.end]
        assert stage.time_s == pytest.approx(sum(layer.shared_s(stage.gpus) for layer in own))
    nodes = template.layers_by_node
    assert len(nodes) == template.nodes
    assert [layer for node in nodes for layer in node] == list(range(len(layers)))
    if len(stages) > 1:
        expected_s = time_by_text(tuple(stage.time_s for stage in stages))
        assert template.iteration_s == pytest.approx(expected_s, rel=1e-12)


@given(LAYERS, st.integers(1, 4), st.data())
def test_the_search_finds_what_all_candidates_give(
    layers: list[LayerCost], gpus: int, data: st.DataObject
) -> None:
    # Whole numbers times 4, so that no time is rounded and equal ones are equal.
    layers = [
        LayerCost(4 * layer.time_s, tuple(4 * extra for extra in layer.extra_s)) for layer in layers
    ]
    most = len(layers) // gpus.bit_count()
    if not most:
        with pytest.raises(InputError):
            plan_templates(layers, gpus, [1])
        return
    sizes = data.draw(st.lists(st.integers(1, min(most, 4)), min_size=1, unique=True))
    least_s = search_all(layers, gpus)
    for template in plan_templates(layers, gpus, sizes):
        check_template(template, layers)
        assert template.iteration_s == least_s(template.nodes)


def test_sizes_leave_one_pipeline_more_than_losses() -> None:
    assert list(template_sizes(3, 13, 2, 24)) == [3, 4, 5, 6, 7]
    assert list(template_sizes(4, 12, 2, 24)) == [4]
    with pytest.raises(InputError) as caught:
        template_sizes(4, 11, 2, 24)
    assert_states(str(caught.value), 11, 12, "3 pipelines of 4 nodes")
    with pytest.raises(InputError):
        template_sizes(0, 11, 2, 24)


def test_sizes_are_those_that_the_layers_split_over() -> None:
    assert list(template_sizes(3, 13, 2, 5)) == [3, 4, 5]
    with pytest.raises(InputError) as caught:
        template_sizes(3, 13, 2, 2)
    assert_states(str(caught.value), "3 nodes", "2 at most")


@pytest.mark.parametrize(
    ("layers", "gpus", "sizes", "facts"),
    [
        ([], 1, [1], ("no layers",)),
        ([LayerCost(1.0)], 0, [1], ("0 GPUs",)),
        ([LayerCost(1.0)] * 3, 1, [4], ("4 nodes", "3 layers", "1 to 3")),
        ([LayerCost(1.0)] * 3, 1, [0], ("0 nodes", "1 to 3")),
        ([LayerCost(1.0, (0.1,))] * 3, 4, [1], ("layer 0", "2, 4 GPUs")),
        ([LayerCost(1.0), LayerCost(-1.0)], 1, [1], ("layer 1", "-1.0 s")),
        ([LayerCost(1.0), LayerCost(float("nan"))], 1, [1], ("layer 1", "nan s")),
    ],
)
def test_bad_inputs(
    layers: list[LayerCost], gpus: int, sizes: list[int], facts: tuple[str, ...]
) -> None:
    with pytest.raises(InputError) as caught:
        plan_templates(layers, gpus, sizes)
    assert_states(str(caught.value), *facts)
