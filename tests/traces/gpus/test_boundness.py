"""How far a load is bound by the clock: measured from its limits, and where none acts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.fit_gpu_types import read_sweeps
from wattkeeper.traces.gpus.boundness import measure_boundness
from wattkeeper.traces.gpus.curve import LimitCurve
from wattkeeper.traces.gpus.model import (
    BOUNDNESS,
    GpuModel,
    curve,
    find_gpu_model,
    gpu_models,
    read_gpu_types,
)

LIMITED = [model for model in gpu_models() if model.limits_w]
DECODING = {260: (259.5, 48.26), 280: (280.5, 49.36), 300: (300.4, 50.16), 450: (393.6, 51.96)}
"""W and tokens/s by limit, of a language model on an RTX 4090 (club-3090, docs/HARDWARE.md)."""


def steady(model: GpuModel, boundness: float) -> LimitCurve:
    clock = read_gpu_types().pooled.shape.clock
    return LimitCurve(model.base_w, model.busy_w, model.default_limit_w, boundness, 0.0, clock)


@given(st.sampled_from(LIMITED), st.floats(0, 1), st.floats(0.3, 0.99))
def test_it_is_found_again_from_two_limits(model: GpuModel, bound: float, share: float) -> None:
    load = steady(model, bound)
    limit_w = model.base_w + share * (model.busy_w - model.base_w)
    limits_w = [limit_w, model.default_limit_w]
    points = [load.under_limit(each) for each in limits_w]
    powers_w, times_s = [power_w for power_w, _ in points], [1 / speed for _, speed in points]
    assert measure_boundness(model, limits_w, powers_w, times_s) == pytest.approx(bound, abs=1e-6)


@given(st.sampled_from(LIMITED), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_a_limit_above_the_draw_changes_nothing(
    model: GpuModel, bound: float, busy: float, more: float
) -> None:
    """Of a steady load at all; and of one with peaks where the limit is above these, too."""
    busy_w = model.base_w + busy * (model.default_limit_w - model.base_w)
    limit_w = busy_w + more * (model.max_limit_w - busy_w)
    assert steady(model, bound).under_limit(limit_w, busy_w) == (busy_w, 1)
    limits_w = [limit_w, model.max_limit_w]
    assert measure_boundness(model, limits_w, [busy_w, busy_w], [1.1, 1]) is None
    for case in BOUNDNESS:
        load = curve(model, case)
        assert isinstance(load, LimitCurve)
        if limit_w >= max(load.peak_w, busy_w):
            assert load.under_limit(limit_w, busy_w) == (busy_w, 1)


def test_the_statements_of_the_page_on_a_decoding_load() -> None:
    model = find_gpu_model("RTX 4090")
    assert model is not None
    limits_w = [260, 450]
    powers_w, speeds = zip(*(DECODING[limit_w] for limit_w in limits_w), strict=True)
    bound = measure_boundness(model, limits_w, powers_w, [1 / speed for speed in speeds])
    assert bound is not None
    assert bound == pytest.approx(0.185, abs=5e-4)
    busy_w = powers_w[-1]

    def best(load: object, fixed_w: float) -> float:
        assert isinstance(load, LimitCurve)
        return min(
            model.limits_w,
            key=lambda w: (load.power_w(w, busy_w) + fixed_w) / load.speed(w, busy_w),
        )

    top_w = model.default_limit_w
    middle = curve(model, "middle")
    assert (best(middle, 0), best(middle, top_w)) == (259, 336)
    assert best(steady(model, bound), top_w) == 257
    costs = {w: (power_w + top_w) / speed for w, (power_w, speed) in DECODING.items()}
    assert min(costs, key=costs.__getitem__) == 260


def test_two_limits_predict_the_others_as_well_as_the_page_says(shared: Path) -> None:
    errors: dict[str, list[tuple[float, float]]] = {}
    for sweep in read_sweeps(shared / "data"):
        model = find_gpu_model(sweep.gpu_type)
        assert model is not None
        acting = [n for n in range(len(sweep.limit_w) - 1) if sweep.limit_w[n] < sweep.busy_w]
        middle = curve(model, "middle")
        for one in acting if len(acting) > 1 else ():
            pair = [one, -1]
            columns = (sweep.limit_w[pair], sweep.power_w[pair], sweep.time[pair])
            bound = measure_boundness(model, *(column.tolist() for column in columns))
            assert bound is not None
            load = steady(model._replace(default_limit_w=sweep.top_w), bound)
            others = [(float(sweep.limit_w[n]), sweep.speed[n]) for n in acting if n != one]
            own, known = (
                float(np.mean([abs(each.speed(w, sweep.busy_w) - v) for w, v in others]))
                for each in (load, middle)
            )
            errors.setdefault(sweep.gpu_type, []).append((own, known))
    own, known = np.mean([np.mean(each, axis=0) for each in errors.values()], axis=0)
    assert len(errors) == 5
    assert own == pytest.approx(0.040, abs=0.002)
    assert known == pytest.approx(0.045, abs=0.002)
