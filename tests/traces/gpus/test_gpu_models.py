"""The power model of GPU types: its limits, its names, its facts, and its errors."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.fit_gpu_types import (
    BENT,
    FILE,
    STEP_W,
    cross_validate,
    family_fitter,
    fit_types,
    read_base_w,
    read_sweeps,
)
from wattkeeper.traces.gpus.model import (
    BOUNDNESS,
    GpuFacts,
    GpuModel,
    build_gpu_model,
    curve,
    find_gpu_model,
    gpu_models,
    limit_range,
    normalise_name,
    read_gpu_types,
)

NEAR = 1 + 1e-9
PAGE = FILE.parents[2] / "docs/power-model.md"

facts = st.builds(
    lambda memory, idle_w, minimum_w, default_w, more_w: GpuFacts(
        "GPU",
        (),
        memory,
        idle_w,
        idle_w + minimum_w,
        idle_w + minimum_w + default_w,
        idle_w + minimum_w + default_w + more_w,
        "test",
    ),
    st.sampled_from(["gddr", "hbm"]),
    st.floats(0, 200),
    st.floats(1, 300),
    st.floats(1, 1000),
    st.floats(0, 300),
)
models = st.one_of(
    st.sampled_from([m for m in gpu_models() if m.min_limit_w is not None]),
    st.builds(build_gpu_model, facts),
)
shares = st.floats(0, 1)


@given(models, st.sampled_from(BOUNDNESS), shares, shares, shares)
def test_power_and_speed_fall_with_the_limit_and_stay_in_bounds(
    model: GpuModel, case: str, share: float, more: float, busy: float
) -> None:
    idle_w = model.idle_w or 0.0
    busy_w = idle_w + busy * (model.max_limit_w - idle_w)
    assert model.min_limit_w is not None
    low_w = model.min_limit_w + share * (model.max_limit_w - model.min_limit_w)
    high_w = low_w + more * (model.max_limit_w - low_w)
    gpu = curve(model, case)  # type: ignore[arg-type]
    lower, higher = gpu.power_w(low_w, busy_w), gpu.power_w(high_w, busy_w)
    assert idle_w / NEAR <= lower <= low_w
    assert lower <= higher * NEAR
    assert higher <= busy_w * NEAR
    assert 0 < gpu.speed(low_w, busy_w) <= gpu.speed(high_w, busy_w) * NEAR <= NEAR
    assert gpu.speed(model.default_limit_w, busy_w) == 1
    assert gpu.power_w(model.default_limit_w, busy_w) == min(busy_w, model.default_limit_w)


@given(models, shares, shares)
def test_a_job_that_is_bound_more_is_slowed_more(
    model: GpuModel, limit: float, busy: float
) -> None:
    limit_w, busy_w = limit * model.default_limit_w, busy * model.default_limit_w
    low, middle, high = (curve(model, case).speed(limit_w, busy_w) for case in BOUNDNESS)
    assert low * NEAR >= middle
    assert middle * NEAR >= high


def test_the_examples_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    block = PAGE.read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    exec(block, {})
    _, *cases, stated = capsys.readouterr().out.splitlines()
    assert stated.startswith("LimitRange(")
    assert [line.split()[0] for line in cases] == list(BOUNDNESS)


@given(models, shares, shares)
def test_the_stated_range_holds_all_cases(model: GpuModel, limit: float, busy: float) -> None:
    limit_w, busy_w = limit * model.default_limit_w, busy * model.default_limit_w
    power_w, speed = limit_range(model, limit_w, busy_w)
    error = read_gpu_types().pooled.range_error
    for case in BOUNDNESS:
        case_w, case_speed = curve(model, case).under_limit(limit_w, busy_w)
        assert power_w[0] <= case_w * (1 - error) <= case_w * (1 + error) <= power_w[1]
        assert speed[0] <= case_speed * (1 - error)
        assert case_speed * (1 + error) <= speed[1]


def test_limits_are_whole_watts_up_to_the_default_one() -> None:
    model = find_gpu_model("RTX 3090")
    assert model is not None
    assert model.limits_w[:2] == (190, 191)
    assert model.limits_w[-2:] == (349, 350)


def test_a_limit_above_the_draw_of_a_steady_job_changes_nothing() -> None:
    model = find_gpu_model("A40")
    assert model is not None
    low = curve(model, "low")
    assert (low.speed(150, 149), low.power_w(150, 149)) == (1, 149)
    assert low.speed(150, 151) < 1
    assert low.power_w(150, 151) == 150


@pytest.mark.parametrize(
    ("name", "gpu_type"),
    [
        ("a100", "A100-SXM4"),
        ("A100-SXM4-40GB", "A100-SXM4"),
        ("a100_80gb", "A100-SXM4"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM5"),
        ("Tesla V100-PCIE-32GB", "V100-PCIE"),
        ("NVIDIA GeForce RTX 3090", "RTX3090"),
        ("Quadro RTX 6000", "RTX6000"),
        ("rtx6000", "RTX6000"),
        ("P100", "P100-PCIE"),
        ("NVIDIA A100-PCIE-40GB", "A100-PCIE-40GB"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIE-80GB"),
        ("V100-SXM2-32GB", "V100-SXM2"),
        ("Tesla V100-SXM2-16GB", "V100-SXM2"),
        ("NVIDIA A10G", "A10G"),
        ("nvidia a10", "A10"),
        ("h200", "H200-SXM"),
        ("Tesla T4", "T4"),
        ("AMD Instinct MI300X", "MI300X"),
        ("MI300X", "MI300X"),
        ("a100-sxm4-80gb", "A100-SXM4"),
        ("RTX A6000", "RTXA6000"),
        ("GeForce RTX 4090", "RTX4090"),
        ("L40S", "L40S"),
        ("nvidia_l4", "L4"),
        ("B200", "B200"),
        ("NVIDIA H100 PCIe", None),
        ("a100_pcie", None),
        ("NVIDIA RTX 6000 Ada Generation", None),
        ("MI250X", None),
        ("A4", None),
        ("", None),
    ],
)
def test_a_gpu_type_is_found_by_its_listed_names_alone(name: str, gpu_type: str | None) -> None:
    model = find_gpu_model(name)
    assert (model and model.gpu_type) == gpu_type


def test_shipped_types_have_distinct_names_and_ordered_powers() -> None:
    types = read_gpu_types().types
    names = [name for one in types for name in (normalise_name(one.gpu_type), *one.aliases)]
    assert len(set(names)) == len(names)
    assert [normalise_name(name) for name in names] == names
    assert [model.gpu_type for model in gpu_models()] == [one.gpu_type for one in types]
    for model in gpu_models():
        low_w, high_w = model.busy_range_w
        lowest_w = model.default_limit_w - 1 if model.min_limit_w is None else model.min_limit_w
        assert (model.idle_w or 0) <= model.base_w < lowest_w < model.default_limit_w
        assert bool(model.limits_w) == (model.min_limit_w is not None)
        assert model.default_limit_w <= model.max_limit_w
        assert model.base_w <= high_w
        assert low_w <= model.busy_w <= high_w
        assert model.source
        assert model.fitted_from


def test_the_page_lists_all_types_and_figures() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = [
        f"| `{m.gpu_type}` | {'' if m.idle_w is None else f'{m.idle_w:g} '}| {m.base_w:g} "
        f"| {m.busy_w:g} ({m.busy_range_w[0]:g} to {m.busy_range_w[1]:g}) "
        f"| {'' if m.min_limit_w is None else f'{m.min_limit_w:g} '}"
        f"| {m.default_limit_w:g} | {m.max_limit_w:g} |"
        for m in gpu_models()
    ]
    assert [
        line for line in page.splitlines() if line.startswith("| `") and line.count("|") > 5
    ] == rows
    pooled = read_gpu_types().pooled
    assert f"a = {pooled.shape.steepness:g}, n = {pooled.shape.bend:g}" in page
    for share in (pooled.busy_share, *pooled.base_share.values()):
        assert f"{100 * share:.1f} %" in page
    for value in (*pooled.cases["middle"], pooled.cases["low"].boundness, pooled.range_error):
        assert f"{100 * value:g} %" in page


def test_facts_are_those_of_the_shared_table(shared: Path) -> None:
    table = pd.read_csv(shared / "data/power-limits/gpu_presets.csv")
    checked = 0
    for row in table.itertuples():
        model = find_gpu_model(str(row.gpu))
        if model is None:
            continue
        for column, value in (
            ("min_limit_w", model.min_limit_w),
            ("default_limit_w", model.default_limit_w),
            ("max_limit_w", model.max_limit_w),
        ):
            stated = pd.to_numeric(getattr(row, column), errors="coerce")
            if pd.notna(stated):
                assert value == stated, (row.gpu, column)
                checked += 1
    assert checked >= 30


def test_recorded_power_and_speed_lie_in_the_range_at_four_of_five_limits(shared: Path) -> None:
    sweeps = [sweep for sweep in read_sweeps(shared / "data") if sweep.is_limited]
    rows = []
    for sweep in sweeps:
        model = find_gpu_model(sweep.gpu_type)
        assert model is not None
        model = model._replace(default_limit_w=sweep.top_w)  # an RTX 3090 above its default
        limits = zip(sweep.limit_w[:-1], sweep.power_w, sweep.speed, strict=False)
        for limit_w, power_w, speed in limits:
            of_power, of_speed = limit_range(model, limit_w, sweep.busy_w)
            rows.append(
                {
                    "gpu_type": sweep.gpu_type,
                    "within": of_power[0] <= power_w <= of_power[1]
                    and of_speed[0] <= speed <= of_speed[1],
                }
            )
    table = pd.DataFrame(rows).groupby("gpu_type").mean()
    assert len(table) == 5
    assert (table >= 0.8).all(axis=None)


@pytest.mark.slow
def test_types_that_were_left_out_are_predicted_within_the_stated_errors(shared: Path) -> None:
    data = shared / "data"
    sweeps = read_sweeps(data)
    base_w = read_base_w(data, sweeps)
    table = cross_validate(sweeps, base_w, family_fitter(BENT, base_w))
    assert len(table) == 5
    assert (table["both_within"] >= 0.8).all()
    for name in ("energy", "cost"):
        distance_w = table[f"{name}_modelled_w"] - table[f"{name}_recorded_w"]
        assert (abs(distance_w) <= STEP_W).all()
        assert table[f"{name}_near"].mean() >= 0.75
    assert table["energy_excess"].mean() <= 0.05
    assert table["cost_excess"].mean() <= 0.02


@pytest.mark.slow
def test_the_shipped_figures_are_what_the_script_fits(shared: Path) -> None:
    data = shared / "data"
    sweeps = read_sweeps(data)
    fitted, shipped = fit_types(sweeps, read_base_w(data, sweeps)), json.loads(FILE.read_bytes())
    assert fitted["types"] == shipped["types"]
    for key in ("shape", "base_share", "range_error"):
        assert fitted["pooled"][key] == pytest.approx(shipped["pooled"][key], abs=0.02)
    for case in BOUNDNESS:
        assert fitted["pooled"]["cases"][case] == pytest.approx(
            shipped["pooled"]["cases"][case], abs=0.02
        )
