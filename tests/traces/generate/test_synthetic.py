"""The synthetic model: its monotone facts, its seed, its specifications."""

import json
from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from wattkeeper.traces.generate.synthetic import (
    GpuSpec,
    SyntheticProfiles,
    WorkloadSpec,
    generate,
    point,
)
from wattkeeper.traces.library import folder
from wattkeeper.traces.profiles import load_profiles

EPS = 1e-9


@st.composite
def gpus(draw: st.DrawFn) -> GpuSpec:
    idle = draw(st.floats(5, 100))
    low = idle + draw(st.floats(1, 200))
    high = low + draw(st.floats(0, 500))
    return GpuSpec(
        name="G",
        idle_power_w=idle,
        peak_power_w=idle + draw(st.floats(1, 700)),
        min_limit_w=low,
        max_limit_w=high,
        limit_step_w=draw(st.floats(1, 100)),
        relative_speed=draw(st.floats(0.1, 10)),
    )


@st.composite
def workloads(draw: st.DrawFn) -> WorkloadSpec:
    sizes = draw(st.lists(st.integers(1, 2**16), min_size=1, max_size=5, unique=True))
    return WorkloadSpec(
        name="w",
        samples_per_epoch=draw(st.integers(1000, 10**7)),
        peak_samples_per_s=draw(st.floats(1, 1e6)),
        half_batch=draw(st.floats(0.1, 1e4)),
        best_batch_size=draw(st.integers(1, 2**16)),
        best_epochs=draw(st.floats(0.5, 100)),
        curvature=draw(st.floats(0, 3)),
        spread=draw(st.floats(0, 2)),
        compute_share=draw(st.floats(0, 1)),
        max_epochs=draw(st.integers(1, 300)),
        default_batch_size=draw(st.sampled_from(sizes)),
        batch_sizes=tuple(sizes),
    )


batch_sizes = st.integers(1, 2**20)


@given(gpus(), workloads(), batch_sizes, batch_sizes)
def test_monotone_facts(gpu: GpuSpec, workload: WorkloadSpec, one: int, two: int) -> None:
    small, large = sorted((one, two))
    for limit in gpu.limits_w:
        at = point(gpu, workload, large, limit)
        assert gpu.idle_power_w < at.power_w <= limit
        assert 0 < at.clock <= 1
        assert at.throughput >= point(gpu, workload, small, limit).throughput * (1 - EPS)
    rising = [point(gpu, workload, small, limit) for limit in gpu.limits_w]
    for low, high in pairwise(rising):
        assert high.throughput >= low.throughput * (1 - EPS)
        assert high.power_w >= low.power_w * (1 - EPS)


@given(gpus())
def test_limits_rise_from_the_least_to_the_largest(gpu: GpuSpec) -> None:
    limits = gpu.limits_w
    assert limits[0] == pytest.approx(gpu.min_limit_w, abs=1e-6)
    assert limits[-1] == gpu.max_limit_w
    assert all(low < high for low, high in pairwise(limits))


@given(gpus(), workloads(), st.integers(0, 2**40), st.integers(1, 4))
def test_the_generated_tables(gpu: GpuSpec, workload: WorkloadSpec, seed: int, runs: int) -> None:
    spec = SyntheticProfiles(gpus=(gpu,), workloads=(workload,), runs=runs, seed=seed)
    trace = generate(spec, "t")
    by_batch = defaultdict(list)
    for row in trace.tables["profiles"].to_pylist():
        assert row["average_power_w"] <= row["power_limit_w"]
        by_batch[row["batch_size"]].append(row)
    for rows in by_batch.values():
        times = [row["time_per_epoch_s"] for row in rows]
        assert times == sorted(times, reverse=True)
    trained = trace.tables["convergence"].to_pylist()
    assert len(trained) == runs * len(workload.batch_sizes)
    assert all(r["epochs"] is None or 1 <= r["epochs"] <= workload.max_epochs for r in trained)
    found = load_profiles(trace, "G")
    assert found.get("w").default_batch_size == workload.default_batch_size
    assert found.origin == "synthetic"


def test_the_defaults_work() -> None:
    trace = generate(SyntheticProfiles(), "syn")
    assert (trace.kind, trace.origin, trace.format) == ("profiles", "synthetic", "synthetic")
    assert any("f ** 3" in note for note in trace.notes)
    assert len(trace.notes) == 6
    for gpu in SyntheticProfiles().gpus:
        assert load_profiles(trace, gpu.name).workloads == ("image", "language", "recommendation")


def test_the_seed_decides() -> None:
    one, same, other = (
        folder.files(generate(SyntheticProfiles(seed=seed), "syn")) for seed in (1, 1, 2)
    )
    assert one == same
    assert one["profiles.parquet"] == other["profiles.parquet"]
    assert one["convergence.parquet"] != other["convergence.parquet"]


def test_a_workload_does_not_shift_the_runs_of_another() -> None:
    spec = SyntheticProfiles()
    alone = generate(spec.model_copy(update={"workloads": spec.workloads[1:2]}), "syn")
    rows = generate(spec, "syn").tables["convergence"].to_pylist()
    assert alone.tables["convergence"].to_pylist() == [
        row for row in rows if row["workload"] == "language"
    ]


def test_epochs_rise_on_both_sides_of_the_best() -> None:
    still = SyntheticProfiles().workloads[0].model_copy(update={"spread": 0.0})
    trace = generate(SyntheticProfiles(workloads=(still,), runs=1), "syn")
    epochs = dict(
        zip(
            *(trace.tables["convergence"][c].to_pylist() for c in ("batch_size", "epochs")),
            strict=True,
        )
    )
    assert epochs[64] == 20
    assert epochs[16] > epochs[32] > epochs[64] < epochs[128] < epochs[256] < epochs[2048]


def test_a_trace_keeps_what_it_was_made_from() -> None:
    spec = SyntheticProfiles(runs=2, seed=7)
    again = SyntheticProfiles.model_validate(dict(generate(spec, "syn").parameters))
    assert again == spec


def test_a_specification_validates_strictly() -> None:
    data = SyntheticProfiles().model_dump(mode="json")
    data["gpus"][0]["idle_power_w"] = 40
    text = json.dumps(data)
    assert SyntheticProfiles.model_validate_json(text, strict=True) == SyntheticProfiles()


def test_every_field_of_the_schema_is_described() -> None:
    schema = SyntheticProfiles.model_json_schema()
    for part in (schema, *schema["$defs"].values()):
        assert all(field["description"] for field in part["properties"].values())


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("gpus", {"idle_power_w": 120}),
        ("gpus", {"peak_power_w": 30}),
        ("gpus", {"max_limit_w": 90}),
        ("gpus", {"limit_step_w": 0.01}),
        ("gpus", {"max_limit_w": float("inf")}),
        ("gpus", {"colour": "red"}),
        ("gpus", {"name": "SYN-400W"}),
        ("workloads", {"default_batch_size": 7}),
        ("workloads", {"batch_sizes": (512, 512)}),
        ("workloads", {"batch_sizes": ()}),
        ("workloads", {"compute_share": 1.5}),
        ("workloads", {"name": ""}),
    ],
)
def test_wrong_specifications(part: str, change: dict[str, object]) -> None:
    data = SyntheticProfiles().model_dump()
    first, *rest = data[part]
    with pytest.raises(ValidationError):
        SyntheticProfiles.model_validate(data | {part: (first | change, *rest)})
