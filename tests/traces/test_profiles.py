"""From tables to profiles: what is usable, and what a message says of what is not."""

import math
import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.traces import import_trace
from wattkeeper.policies.errors import ProfileMissing, TraceError
from wattkeeper.traces.profiles import load_profiles
from wattkeeper.traces.schema import CONVERGENCE, PROFILES, WORKLOADS
from wattkeeper.traces.trace import Trace

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "zeus-nsdi23"
recorded = pytest.mark.skipif(not DATA.is_dir(), reason="the recorded Zeus traces are not here")


def tables(
    power: list[tuple[str, str, int, int, float]],
    runs: list[tuple[str, int, float, int | None]],
    default: int = 8,
) -> dict[str, pa.Table]:
    """Tables of workloads a and b with target 0.5 and at most 10 epochs."""
    points = [(w, g, n, b, limit, 100 / limit, limit * 0.9, None) for w, g, n, b, limit in power]
    trained = [(w, b, at, target, e) for at, (w, b, target, e) in enumerate(runs)]
    named = [(w, "d", "n", "o", 0.5, True, 10, default, None) for w in "ab"]
    return {
        name: pa.Table.from_pylist(
            [dict(zip(schema.names, row, strict=False)) for row in rows], schema
        )
        for name, schema, rows in (
            ("profiles", PROFILES, points),
            ("convergence", CONVERGENCE, trained),
            ("workloads", WORKLOADS, named),
        )
    }


POWER = [
    ("a", "G", 1, 16, 200.0),
    ("a", "G", 1, 8, 200.0),
    ("a", "G", 1, 8, 100.0),
    ("a", "G", 2, 8, 150.0),
    ("a", "H", 1, 8, 400.0),
    ("b", "G", 1, 8, 250.0),
    ("b", "G", 1, 32, 300.0),
]
RUNS: list[tuple[str, int, float, int | None]] = [
    ("a", 8, 0.5, 4),
    ("a", 8, 0.4, 1),
    ("a", 8, 0.5 + 1e-12, None),
    ("a", 8, 0.5, 3),
    ("a", 64, 0.5, 3),
    ("b", 8, 0.5, 20),
]


def test_the_inner_join_at_the_own_target() -> None:
    found = load_profiles(tables(POWER, RUNS), "G")
    assert found.workloads == ("a", "b")
    profile = found.get("a")
    assert list(profile.curves) == [8]
    curve = profile.curves[8]
    assert curve.limits_w == (100.0, 200.0)
    assert curve.time_per_epoch_s == (1.0, 0.5)
    assert curve.average_power_w == (90.0, 180.0)
    assert curve.epochs == (4.0, math.inf, 3.0)
    assert (profile.target, profile.max_epochs, profile.default_batch_size) == (0.5, 10, 8)


def test_the_largest_limit_is_that_of_all_joined_workloads() -> None:
    found = load_profiles(tables(POWER, RUNS), "G")
    assert {found.get(w).max_power_w for w in "ab"} == {250.0} == {found.max_power_w}


def test_numbers_of_gpus_and_types_are_separate() -> None:
    assert load_profiles(tables(POWER, RUNS), "G", gpus=2).get("a").curves[8].limits_w == (150.0,)
    assert load_profiles(tables(POWER, RUNS), "H").get("a").max_power_w == 400.0
    for kind in (("G", 4), ("X", 1)):
        with pytest.raises(ProfileMissing, match=r"There are: 1 x G, 2 x G, 1 x H"):
            load_profiles(tables(POWER, RUNS), *kind)


def test_the_default_is_at_most_the_largest_batch_size_of_the_type() -> None:
    small = load_profiles(tables(POWER, [*RUNS, ("a", 16, 0.5, 3)], default=1024), "G")
    assert small.get("a").default_batch_size == 16


def test_a_default_that_is_not_usable_is_an_error_when_asked_for() -> None:
    found = load_profiles(tables(POWER, RUNS, default=16), "G")
    assert found.workloads == ()
    with pytest.raises(ProfileMissing, match="default batch size 16 "):
        found.get("a")


def test_absent_workloads_have_a_reason() -> None:
    found = load_profiles(tables(POWER, RUNS), "H")
    assert found.workloads == ("a",)
    with pytest.raises(ProfileMissing) as caught:
        found.get("b")
    assert str(caught.value) == (
        "no profile of workload 'b' on 1 x H: nothing was recorded on 1 x H. There are: a"
    )
    with pytest.raises(ProfileMissing, match="the trace does not know it"):
        found.get("c")


def test_a_trace_of_jobs_has_no_profiles(tmp_path: Path) -> None:
    path = tmp_path / "j.csv"
    path.write_text("group,start_time,end_time,dataset,runtime_ratio\na,0,1,w,1\n")
    trace = import_trace("zeus-groups", [path])
    with pytest.raises(TraceError, match="'profiles' is needed"):
        load_profiles(trace, "V100")


def test_profiles_can_be_pickled() -> None:
    found = load_profiles(tables(POWER, RUNS), "G")
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.fixture(scope="module")
def zeus() -> Trace:
    return import_trace("zeus-nsdi23", [DATA])


@recorded
@pytest.mark.parametrize(
    ("gpu", "watts", "defaults"),
    [
        ("V100", 250, (1024, 256, 192, 1024, 32, 128)),
        ("A40", 300, (1024, 256, 192, 1024, 32, 128)),
        ("RTX6000", 260, (1024, 256, 128, 1024, 32, 128)),
        ("P100", 250, (1024, 128, 72, 1024, 24, 64)),
    ],
)
def test_recorded_defaults(zeus: Trace, gpu: str, watts: float, defaults: tuple[int, ...]) -> None:
    found = load_profiles(zeus, gpu)
    names = ("cifar100", "imagenet", "librispeech", "movielens-1m", "squad", "sentiment140")
    assert found.workloads == names
    assert tuple(found.get(name).default_batch_size for name in names) == defaults
    assert found.max_power_w == watts
    assert found.origin == "recorded"
    with pytest.raises(ProfileMissing, match="cifar100-adam"):
        found.get("cifar100-adam")


@recorded
def test_recorded_runs_are_in_file_order(zeus: Trace) -> None:
    curves = load_profiles(zeus, "V100").get("cifar100").curves
    assert list(curves) == [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096]
    assert list(curves[256].epochs) == [40, 31, 26, 30, 28]
    assert list(curves[4096].epochs) == [566, 456, 498, math.inf, 421]
    assert list(curves[1024].limits_w) == [100, 125, 150, 175, 200, 225, 250]
