"""Fits of traces of jobs, samples from them, and their comparison."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import Command
from tests.support.messages import assert_states
from wattkeeper.policies.errors import EnvironmentLacks, InputError, TraceError
from wattkeeper.traces.fits import (
    DAY_S,
    Arrivals,
    Demand,
    Fit,
    Groups,
    Memory,
    Quantiles,
    Users,
    list_shipped,
    load_fit,
    to_json,
)
from wattkeeper.traces.generate.compare_fit import compare, dispersion, ks_distance
from wattkeeper.traces.generate.fit import clock_of, fit_trace, scores, start_of_week_s
from wattkeeper.traces.generate.plot_fit import save_comparison
from wattkeeper.traces.generate.sample import autoregressive, normal_cdf, rate_for_load, sample
from wattkeeper.traces.library.folder import files
from wattkeeper.traces.tables import jobs_table
from wattkeeper.traces.trace import Trace

FLAT = (1.0,) * 24


def column(trace: Trace, name: str) -> np.ndarray:
    return np.asarray(trace.tables["jobs"][name])


def rhythm(size: int, **factors: float) -> tuple[float, ...]:
    rates = np.ones(size)
    for place, factor in factors.items():
        rates[int(place[1:])] = factor
    return tuple((rates / rates.mean()).tolist())


@st.composite
def distributions(draw: st.DrawFn, low: float = 1.0, high: float = 1e6) -> Quantiles:
    inner = draw(st.lists(st.floats(0.01, 0.99), unique=True, max_size=6))
    levels = (0.0, *sorted(inner), 1.0)
    values = draw(st.lists(st.floats(low, high), min_size=len(levels), max_size=len(levels)))
    return Quantiles(levels=levels, values=tuple(sorted(values)))


@st.composite
def fits(draw: st.DrawFn) -> Fit:
    sizes = sorted(draw(st.sets(st.sampled_from([1, 2, 4, 8, 16]), min_size=1)))
    weights = np.array([draw(st.floats(0.05, 1)) for _ in sizes])
    shares = (weights / weights.sum()).tolist()
    hours = np.array(draw(st.lists(st.floats(0.1, 3), min_size=24, max_size=24)))
    days = np.array(draw(st.lists(st.floats(0.1, 3), min_size=7, max_size=7)))
    memory = (Memory(jobs=20.0, weight=0.4), Memory(jobs=2.0, weight=0.3))
    users = Users(shares=(0.5, 0.2), others=3, repeat_soon=0.5, repeat_later=0.0)
    return Fit(
        source="nowhere",
        licence="CC0-1.0",
        jobs=10,
        absent=(),
        whole_seconds=draw(st.booleans()),
        arrivals=Arrivals(
            jobs_per_day=draw(st.floats(1, 1e5)),
            hour_of_day=tuple((hours / hours.mean()).tolist()),
            day_of_week=tuple((days / days.mean()).tolist()),
            first_day="Monday",
            gap_s=draw(st.none() | distributions()),
            memory=draw(st.sampled_from([(), memory])),
        ),
        demands=tuple(
            Demand(gpus=gpus, share=share, duration_s=draw(distributions()))
            for gpus, share in zip(sizes, shares, strict=True)
        ),
        users=draw(st.sampled_from([None, users])),
        groups=draw(st.sampled_from([None, GROUPS])),
    )


GROUPS = Groups(
    share=0.7,
    size=Quantiles(levels=(0.0, 0.5, 1.0), values=(1.0, 4.0, 40.0)),
    distance_jobs=Quantiles(levels=(0.0, 1.0), values=(1.0, 50.0)),
    likeness=0.8,
)


def bursty(**changes: Any) -> Fit:
    fit = Fit(
        source="nowhere",
        licence="CC0-1.0",
        jobs=10,
        absent=(),
        whole_seconds=False,
        arrivals=Arrivals(
            jobs_per_day=2000.0,
            hour_of_day=rhythm(24, h3=0.3, h14=3.0),
            day_of_week=rhythm(7, d5=0.4, d6=0.4),
            first_day="Monday",
            gap_s=Quantiles(levels=(0.0, 0.5, 1.0), values=(0.01, 8.0, 2000.0)),
            memory=(Memory(jobs=4.0, weight=0.3), Memory(jobs=64.0, weight=0.2)),
        ),
        demands=(
            Demand(
                gpus=1,
                share=0.75,
                duration_s=Quantiles(levels=(0.0, 0.5, 1.0), values=(5.0, 600.0, 1e5)),
            ),
            Demand(
                gpus=8,
                share=0.25,
                duration_s=Quantiles(levels=(0.0, 0.5, 1.0), values=(50.0, 9000.0, 1e6)),
            ),
        ),
        users=Users(shares=(0.4, 0.2, 0.1), others=30, repeat_soon=0.5, repeat_later=0.1),
        groups=None,
    )
    return fit.model_copy(update=changes)


@given(fits(), st.integers(1, 400), st.integers(0, 2**40), st.floats(0.01, 100))
def test_any_sample_is_valid_and_the_same_again(
    fit: Fit, jobs: int, seed: int, rate_scale: float
) -> None:
    trace = sample(fit, "one", jobs, seed, rate_scale)
    assert files(trace) == files(sample(fit, "one", jobs, seed, rate_scale))
    table = trace.tables["jobs"]
    assert table.num_rows == jobs
    submit_s, duration_s = column(trace, "submit_time_s"), column(trace, "duration_s")
    assert (np.diff(submit_s) >= 0).all()
    assert submit_s[0] >= 0
    assert (duration_s > 0).all()
    for demand in fit.demands:
        of_it = duration_s[column(trace, "gpus") == demand.gpus]
        low, high = demand.duration_s.values[0], demand.duration_s.values[-1]
        assert ((of_it >= low * (1 - 1e-9) - 0.5) & (of_it <= high * (1 + 1e-9) + 0.5)).all()
    if fit.whole_seconds:
        assert (submit_s % 1 == 0).all()
        assert (duration_s % 1 == 0).all()
    assert table["user"].null_count == (jobs if fit.users is None else 0)


@given(fits())
def test_a_fit_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, fit: Fit
) -> None:
    path = tmp_path_factory.mktemp("fit") / "fit.json"
    path.write_text(to_json(fit))
    assert load_fit(path) == fit
    assert to_json(load_fit(path)) == to_json(fit)


@given(distributions(), st.lists(st.floats(0, 1), min_size=2, max_size=20))
def test_quantiles_never_fall_and_their_mean_is_theirs(
    found: Quantiles, levels: list[float]
) -> None:
    values = found.evaluate(np.array(sorted(levels)))
    assert (np.diff(values) >= -1e-9 * values[:-1]).all()
    grid = found.evaluate((np.arange(200_000) + 0.5) / 200_000)
    assert found.mean == pytest.approx(grid.mean(), rel=1e-3)


@given(fits(), st.floats(0, 6e5), st.lists(st.floats(0, 1e8), min_size=1, max_size=20))
def test_the_clock_has_an_inverse_and_keeps_weeks(
    fit: Fit, offset_s: float, times: list[float]
) -> None:
    clock = clock_of(fit.arrivals, offset_s)
    at = np.array(sorted(times))
    flat = clock.flatten(at)
    assert (np.diff(flat) >= 0).all()
    assert clock.unflatten(flat) == pytest.approx(at, abs=1e-2)
    week = 7 * DAY_S
    assert clock.flatten(at + week) - flat == pytest.approx(np.full(len(at), week))


@pytest.mark.parametrize(
    ("text", "offset_s"),
    [
        ("2017-10-03 06:30:10 UTC", DAY_S + 6.5 * 3600 + 10),
        ("the first submission, 2017-09-04 10:30:41 (no zone)", 10.5 * 3600 + 41),
        ("the first submission", None),
        ("2017-13-40 10:30:41", None),
    ],
)
def test_the_weekday_is_read_from_the_time_origin(text: str, offset_s: float | None) -> None:
    trace = small(submit_time_s=[0.0, 5.0], duration_s=[1.0, 1.0])
    dated = dataclasses.replace(trace, quality={"time_origin": text})
    assert start_of_week_s(dated) == offset_s
    assert (fit_trace(dated).arrivals.first_day == "Monday") == (offset_s is not None)


def test_another_seed_gives_other_jobs() -> None:
    one, other = (sample(bursty(), "one", 100, seed) for seed in (1, 2))
    for name in ("submit_time_s", "duration_s"):
        assert (column(one, name) != column(other, name)).all()


def test_more_jobs_make_a_longer_trace_of_the_same_shape() -> None:
    few, many = (sample(bursty(), "one", jobs) for jobs in (20_000, 80_000))
    found = compare(few, many)
    assert found["ks"]["duration_s"] < 0.02
    assert found["ks"]["inter_arrival_s"] < 0.05
    assert found["sample"]["days"] == pytest.approx(4 * found["trace"]["days"], rel=0.15)
    assert found["sample"]["jobs_per_day"] == pytest.approx(2000, rel=0.1)
    assert found["sample"]["share_by_gpus"]["8"] == pytest.approx(0.25, abs=0.01)


def test_a_rate_scale_compresses_arrivals_alone() -> None:
    slow, fast = (sample(bursty(), "one", 30_000, rate_scale=scale) for scale in (1.0, 5.0))
    assert (column(slow, "duration_s") == column(fast, "duration_s")).all()
    found = compare(slow, fast)
    assert found["sample"]["days"] == pytest.approx(found["trace"]["days"] / 5, rel=0.2)


def test_a_load_is_reached() -> None:
    fit = bursty()
    trace = sample(fit, "one", 100_000, rate_scale=rate_for_load(fit, 0.8, 10_000))
    asked = float((column(trace, "duration_s") * column(trace, "gpus")).sum())
    span_s = column(trace, "submit_time_s")[-1]
    assert asked / span_s / 10_000 == pytest.approx(0.8, rel=0.1)


def test_the_fit_of_a_sample_is_near_the_fit() -> None:
    fit = bursty()
    again = fit_trace(sample(fit, "one", 150_000))
    assert again.jobs == 150_000
    assert again.arrivals.jobs_per_day == pytest.approx(2000, rel=0.08)
    assert again.arrivals.hour_of_day == pytest.approx(fit.arrivals.hour_of_day, abs=0.25)
    assert again.arrivals.day_of_week == pytest.approx(fit.arrivals.day_of_week, abs=0.25)
    assert sum(part.weight for part in again.arrivals.memory) == pytest.approx(0.5, abs=0.15)
    for one, other in zip(fit.demands, again.demands, strict=True):
        assert other.share == pytest.approx(one.share, abs=0.01)
        middle = np.array([0.1, 0.5, 0.9])
        expected_s = one.duration_s.evaluate(middle)
        assert other.duration_s.evaluate(middle) == pytest.approx(expected_s, rel=0.1)
    assert again.users is not None
    assert fit.users is not None
    assert again.users.shares[:3] == pytest.approx(fit.users.shares, abs=0.02)
    assert again.users.repeat_soon == pytest.approx(0.5, abs=0.03)
    assert again.users.repeat_later == pytest.approx(0.1, abs=0.03)
    assert again.groups is None
    assert "groups: the trace names none" in again.absent


def test_groups_are_recovered_by_a_fit() -> None:
    fit = bursty(groups=GROUPS)
    trace = sample(fit, "one", 60_000)
    jobs = trace.tables["jobs"].select(["group_id", "user", "gpus"]).to_pylist()
    seen: dict[str, tuple[object, object]] = {}
    for job in jobs:
        if job["group_id"] is not None:
            both = (job["user"], job["gpus"])
            assert seen.setdefault(job["group_id"], both) == both
    again = fit_trace(trace).groups
    assert again is not None
    assert again.share == pytest.approx(0.7, abs=0.001)
    assert again.likeness == pytest.approx(0.8, abs=0.05)
    assert again.size.mean == pytest.approx(GROUPS.size.mean, rel=0.1)
    middle = again.distance_jobs.evaluate(np.array([0.5]))
    assert middle == pytest.approx(GROUPS.distance_jobs.evaluate(np.array([0.5])), rel=0.3)


def test_bursts_are_recovered_and_exceed_poisson() -> None:
    fit = bursty()
    trace = sample(fit, "one", 50_000)
    found = compare(trace, sample(fit_trace(trace), "two", 50_000, seed=7))
    for side in ("trace", "sample"):
        assert found[side]["dispersion_1h"] > 10
    assert found["sample"]["dispersion_1h"] == pytest.approx(
        found["trace"]["dispersion_1h"], rel=0.4
    )
    poisson = sample(load_fit("philly"), "three", 50_000)
    assert dispersion(column(poisson, "submit_time_s"), 3600.0) == pytest.approx(1, abs=0.1)


def test_each_memory_decays_as_it_says() -> None:
    noise = np.random.Generator(np.random.PCG64(1)).standard_normal(300_000)
    for jobs in (0.5, 1.0, 16.0, 256.0):
        series = autoregressive(noise, jobs)
        plain, decay = [noise[0]], np.exp(-1 / jobs)
        for value in noise[1:1000].tolist():
            plain.append(decay * plain[-1] + np.sqrt(1 - decay**2) * value)
        assert series[:1000] == pytest.approx(np.array(plain), abs=1e-9)
        assert series.std() == pytest.approx(1, abs=0.1)


def test_normal_scores_and_the_distribution_function_agree() -> None:
    z = scores(np.random.Generator(np.random.PCG64(2)).random(10_001))
    ranks = np.sort(normal_cdf(z))
    assert ranks == pytest.approx((np.arange(10_001) + 0.5) / 10_001, abs=2e-5)


def test_the_ks_distance_is_that_of_small_samples() -> None:
    assert ks_distance(np.array([1.0, 2.0]), np.array([1.0, 2.0])) == 0
    assert ks_distance(np.array([1.0, 2.0]), np.array([3.0])) == 1
    assert ks_distance(np.array([1.0, 2.0, 3.0, 4.0]), np.array([2.0, 3.0])) == 0.25


@pytest.mark.parametrize("name", list_shipped())
def test_each_shipped_fit_says_where_its_numbers_come_from(name: str) -> None:
    fit = load_fit(name)
    for part in ("jobs", "arrivals.jobs_per_day", "demands.share", "demands.duration_s"):
        assert fit.facts[part]
    assert fit.absent
    assert sample(fit, "one", 1000).origin == "synthetic"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"jobs": 0}, "jobs: Input should be greater than 0"),
        ({"mystery": 1}, "mystery: Extra inputs are not permitted"),
        ({"demands": []}, "demands: "),
        ({"arrivals": {"jobs_per_day": -1}}, "arrivals.jobs_per_day: "),
    ],
)
def test_a_bad_fit_gives_a_message(tmp_path: Path, change: dict[str, Any], text: str) -> None:
    path = tmp_path / "fit.json"
    path.write_text(json.dumps(json.loads(to_json(bursty())) | change))
    with pytest.raises(TraceError) as error:
        load_fit(path)
    assert str(error.value).startswith(f"{path}: {text}")


def test_quantiles_that_fall_and_shares_that_do_not_add_up_are_refused(tmp_path: Path) -> None:
    good = json.loads(to_json(bursty()))
    path = tmp_path / "fit.json"
    good["demands"][0]["duration_s"]["values"] = [5, 4, 6]
    path.write_text(json.dumps(good))
    with pytest.raises(TraceError, match=r"demands\.0\.duration_s: .*fall"):
        load_fit(path)
    good["demands"][0]["duration_s"]["values"] = [4, 5, 6]
    good["demands"][0]["share"] = 0.5
    path.write_text(json.dumps(good))
    with pytest.raises(TraceError, match=r"demands.* 0\.75"):
        load_fit(path)
    for text in ("no json", "[]", "", "cluster:\n  gpus: 4\n"):
        path.write_text(text)
        with pytest.raises(TraceError) as error:
            load_fit(path)
        assert_states(str(error.value), f"{path}: ", "not a fit", "wattkeeper traces fit")


def small(**columns: list[Any]) -> Trace:
    rows = len(columns["submit_time_s"])
    ids: dict[str, Any] = {"job_id": [str(n) for n in range(rows)], "gpus": [1] * rows}
    table = jobs_table(ids | columns)
    return Trace("small", "jobs", {"jobs": table}, "none", "recorded", "nowhere", "none")


def test_missing_columns_of_a_trace_are_reported() -> None:
    found = fit_trace(
        small(
            submit_time_s=[0.0, 5.0, 9.0],
            duration_s=[None, 0.0, 7.0],
            gpus=[1, 1, 2],
            queue=["a", "b", None],
        )
    )
    for start in ("queue: recorded", "duration_s: 1 jobs have none", "duration_s: 1 jobs took 0"):
        assert any(text.startswith(start) for text in found.absent), found.absent
    assert [demand.gpus for demand in found.demands] == [2]
    assert found.arrivals.hour_of_day == FLAT


@pytest.mark.parametrize(
    ("submit_time_s", "duration_s", "text"),
    [
        ([1.0, 1.0], [1.0, 1.0], "no two jobs"),
        ([1.0], [1.0], "no two jobs"),
        ([1.0, 2.0], [None, 0.0], "no job has a run time above 0"),
    ],
)
def test_a_trace_that_cannot_be_fitted_is_refused(
    submit_time_s: list[float], duration_s: list[float], text: str
) -> None:
    with pytest.raises(TraceError, match=text):
        fit_trace(small(submit_time_s=submit_time_s, duration_s=duration_s))


def test_a_sample_needs_jobs() -> None:
    with pytest.raises(InputError, match="0 jobs; allowed are 1 to"):
        sample(bursty(), "one", 0)


def test_without_matplotlib_only_the_plot_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("matplotlib", "matplotlib.figure", "matplotlib.backends.backend_agg"):
        monkeypatch.setitem(sys.modules, name, None)
    trace = sample(bursty(), "one", 500)
    with pytest.raises(EnvironmentLacks, match=r"comparison\.png is not.*'wattkeeper\[plots\]'"):
        save_comparison(trace, trace, tmp_path / "shown")
    assert [path.name for path in (tmp_path / "shown").iterdir()] == ["comparison.json"]
    assert json.loads((tmp_path / "shown/comparison.json").read_text())["ks"]["duration_s"] == 0


def test_rhythms_are_rates_not_shares() -> None:
    # An hourly job over 9 days and 5 hours: two days come twice, and five hours ten times.
    even = np.arange(0, 9 * DAY_S + 5 * 3600 + 1, 3600.0)
    found = compare(*(small(submit_time_s=even.tolist(), duration_s=[1.0] * len(even)),) * 2)
    for side in ("trace", "sample"):
        assert found[side]["hour_of_day"] == pytest.approx([1.0] * 24, rel=0.15)
        assert found[side]["day_of_week"] == pytest.approx([1.0] * 7, rel=0.05)
    longer = np.arange(0, 20 * DAY_S, 3600.0)
    other = small(submit_time_s=longer.tolist(), duration_s=[1.0] * len(longer))
    one = small(submit_time_s=even.tolist(), duration_s=[1.0] * len(even))
    assert compare(one, other)["ks"]["day_of_week"] < 0.01
    short = small(submit_time_s=[0.0, 3 * DAY_S], duration_s=[1.0, 1.0])
    assert compare(one, short)["ks"]["day_of_week"] is None
    assert compare(one, short)["sample"]["day_of_week"] is None


def test_the_command_generates_fits_and_compares(inside: Command, tmp_path: Path) -> None:
    done = inside("traces", "generate", "jobs", "--name", "made", "--jobs", 3000)
    assert "3000 jobs" in done.stdout
    inside("traces", "fit", "made", "--out", "made.json", "--compare", "shown")
    assert (tmp_path / "shown/comparison.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads((tmp_path / "shown/comparison.json").read_text())
    assert found["ks"]["duration_s"] < 0.05
    inside("traces", "generate", "jobs", "--name", "again", "--fit", "made.json", "--jobs", 50)
    done = inside("traces", "generate", "jobs", "--fit", "nowhere", code=2)
    assert_states(done.stderr, "no fit 'nowhere'", "philly")
    done = inside("traces", "generate", "jobs", "--load", 0.5, code=2)
    assert_states(done.stderr, "--load", "--gpus")
    for option, value, allowed in (
        ("--jobs", "10k", "whole number of jobs >= 1"),
        ("--gpus", "0", "whole number of GPUs >= 1"),
        ("--load", "80%", "number > 0"),
        ("--rate-scale", "nan", "number > 0 without unit"),
        ("--rate-scale", "0", "number > 0 without unit"),
    ):
        done = inside("traces", "generate", "jobs", option, value, code=2)
        assert_states(done.stderr, option, f"found {value!r}", allowed)


@pytest.mark.slow
def test_a_million_jobs() -> None:
    trace = sample(bursty(groups=GROUPS), "one", 1_000_000)
    assert trace.tables["jobs"].num_rows == 1_000_000
