"""Depth and replicas for the GPUs at hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.messages import assert_states
from wattkeeper.policies.elastic.morphing import CutSection, MorphedShape, MorphingModel, morph
from wattkeeper.policies.errors import InputError

SECTION = CutSection((1.0, 1.5), (2.0, 3.0), 100, 10, 50)
MODEL = MorphingModel((SECTION,) * 4, (1, 2), 260, 100.0)


def test_the_deepest_pipeline_is_not_always_the_fastest() -> None:
    # Two stages of two sections hold 200 + 20 b of 260 bytes: b = 2. One stage holds too much.
    assert morph(MODEL, 5, 17) == MorphedShape(2, 2, 2, 4, 61.0, 1, 16 / 61)
    assert morph(MODEL._replace(memory_bytes=239), 5, 17) == MorphedShape(
        2, 2, 1, 8, (8 + 1) * 8.0 + 1, 1, 16 / 73
    )
    assert morph(MODEL._replace(memory_bytes=219), 5, 17) is None
    assert morph(MODEL, 1, 17) is None
    assert morph(MODEL, 4, 1) is None


def test_of_equal_ones_the_smaller_depth() -> None:
    free = CutSection((0.0,), (0.0,), 0, 0, 0)
    found = morph(MorphingModel((free,) * 6, (1,), 1, 1.0), 6, 12)
    assert found is not None
    assert (found.depth, found.replicas, found.idle_gpus) == (1, 6, 0)


@given(st.integers(2, 12), st.integers(1, 40), st.integers(1, 64), st.integers(100, 1500))
def test_shapes_fit(sections: int, gpus: int, samples: int, memory_bytes: int) -> None:
    model = MorphingModel((SECTION,) * sections, (1, 2), memory_bytes, 100.0)
    found = morph(model, gpus, samples)
    depths = [
        depth
        for depth in range(1, sections)
        if sections % depth == 0
        and depth <= gpus
        and sections // depth * 110 <= memory_bytes
        and samples >= gpus // depth
    ]
    assert (found is None) == (not depths)
    if found is not None:
        assert found.depth in depths
        assert found.depth * found.replicas + found.idle_gpus == gpus
        assert found.idle_gpus < found.depth
        share = samples // found.replicas
        assert (found.microbatches - 1) * found.microbatch_samples < share
        assert share <= found.microbatches * found.microbatch_samples


@pytest.mark.parametrize(
    ("model", "gpus", "samples", "facts"),
    [
        (MODEL, 0, 8, ("0 GPUs",)),
        (MODEL, 4, 0, ("0 samples",)),
        (MODEL._replace(sections=(SECTION,)), 4, 8, ("1 sections",)),
        (MODEL._replace(microbatch_samples=(2, 1)), 4, 8, ("(2, 1)",)),
        (MODEL._replace(bandwidth_bytes_per_s=0.0), 4, 8, ("0.0 B/s",)),
        (MODEL._replace(microbatch_samples=(1,)), 4, 8, ("section 0", "2 times", "1 sizes")),
        (
            MODEL._replace(sections=(SECTION, SECTION._replace(backward_s=(2.0, -1.0)))),
            4,
            8,
            ("backward pass of section 1", "-1.0 s"),
        ),
    ],
)
def test_bad_inputs(model: MorphingModel, gpus: int, samples: int, facts: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as caught:
        morph(model, gpus, samples)
    assert_states(str(caught.value), *facts)
