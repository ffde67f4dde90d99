"""What the charts are reduced to says the same as what it was reduced from."""

from __future__ import annotations

import hashlib
import math
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import Command
from wattkeeper import scenarios
from wattkeeper.scenarios.charts.columns import (
    aggregate_jobs,
    derive_optima,
    read_attempts,
    read_regrets,
)
from wattkeeper.scenarios.charts.downsample import bin_steps, distribution, spaced_indices

FOLDER = Path(scenarios.__file__).parent / "report"

VALUES = st.floats(-1e6, 1e6)
STEPS = st.lists(st.tuples(st.floats(0.01, 1e4), VALUES), min_size=1, max_size=40)


@given(STEPS, st.integers(1, 30), st.floats(0, 1), st.floats(0.1, 2))
def test_bins_keep_the_integral_and_the_extremes(
    steps: list[tuple[float, float]], bins: int, begin: float, length: float
) -> None:
    time = np.cumsum([0.0, *(width for width, _ in steps)])
    values = np.array([value for _, value in steps] + [0.0])
    edges = np.linspace(begin * time[-1], (begin + length) * time[-1], bins + 1)
    found = bin_steps(time, values, edges)
    inside = edges.clip(time[0], time[-1])
    for at, (low, high) in enumerate(pairwise(inside)):
        held = [
            (min(high, end) - max(low, start), value)
            for start, end, value in zip(time, time[1:], values, strict=False)
            if min(high, end) > max(low, start)
        ]
        if not held:
            assert math.isnan(found.mean[at])
            continue
        assert found.low[at] == min(value for _, value in held)
        assert found.high[at] == max(value for _, value in held)
        mean = sum(width * value for width, value in held) / (high - low)
        room = 1e-9 * (1 + abs(time[-1] / (high - low))) * 1e6
        assert found.mean[at] == pytest.approx(mean, abs=room)


@given(st.lists(VALUES, max_size=600))
def test_distribution_gives_shares_below_values(values: list[float]) -> None:
    found, shares = distribution(np.array(values))
    assert len(found) <= 220
    for value, share in zip(found, shares, strict=True):
        assert sum(one <= value for one in values) >= share * len(values) - 1e-9
        assert sum(one < value for one in values) < share * len(values) + 1e-9
    if values:
        assert found[0] == min(values)
        assert found[-1] == max(values)
        assert shares[-1] == 1


@given(st.integers(0, 5000), st.integers(2, 400))
def test_spaced_indices_keep_both_ends(length: int, most: int) -> None:
    kept = spaced_indices(length, most).tolist()
    assert len(kept) == min(length, most)
    assert kept == sorted(set(kept))
    assert not kept or (kept[0], kept[-1]) == (0, length - 1)


def test_jobs_of_a_page_match_the_metrics() -> None:
    """Regret from the tables alone, and the wait of jobs that lost their GPUs."""
    few = ["workload.recurrences=30", "workload.workloads=[image, language]"]
    done = scenarios.load("quickstart", few, seeds=[1, 2]).run()
    regrets = read_regrets(done)
    by = {(result.variant, result.seed): result.metrics for result in done.results}
    for run in read_attempts(done):
        metrics = by.pop((run.variant, run.seed))
        outcomes = aggregate_jobs(run, derive_optima(run, regrets[run.variant, run.seed]))
        assert outcomes.regret.sum() == pytest.approx(metrics["regret"], rel=1e-9)
        assert outcomes.queue_delay_s.mean() == pytest.approx(metrics["queue_delay_s"])
        jct_s = outcomes.finish_time_s - outcomes.submit_time_s
        assert jct_s.mean() == pytest.approx(metrics["jct_s"])
    assert by == {}, "every run is in the jobs table"


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return sum(a * b for a, b in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("theme", [":root", ':root[data-theme="dark"]'])
def test_colours_have_enough_contrast(theme: str) -> None:
    """At least 4.5 to 1 for text and 3 to 1 for lines, as WCAG 2.2 asks."""
    css = (FOLDER / "report.css").read_text(encoding="utf-8")
    (block,) = re.findall(rf"^{re.escape(theme)} {{(.*?)}}", css, re.MULTILINE | re.DOTALL)
    colours = dict(re.findall(r"--([\w-]+): (#\w{6})", block))

    def contrast(one: str, paper: str) -> float:
        light, dark = sorted((luminance(colours[one]), luminance(colours[paper])), reverse=True)
        return (light + 0.05) / (dark + 0.05)

    for text in ("ink", "soft", "warn", "good"):
        assert contrast(text, "paper") >= 4.5, text
        assert contrast(text, "panel") >= 4.5, text
    assert contrast("warn", "warn-paper") >= 4.5
    for at in range(8):
        assert contrast(f"v{at}", "paper") >= 3, at


def test_vendored_library_has_the_stated_digest() -> None:
    vendored = FOLDER / "vendor"
    library = (vendored / "echarts.common.min.js").read_bytes()
    told = (vendored / "README.md").read_text(encoding="utf-8")
    assert hashlib.sha256(library).hexdigest() in told
    assert b"</script" not in library.lower()
    for licence in ("LICENSE", "NOTICE", "licenses/LICENSE-d3"):
        assert (vendored / licence).is_file()


def test_queue_delay_of_preempted_jobs_follows_from_the_tables(inside: Command) -> None:
    inside(
        "traces",
        "generate",
        "jobs",
        "--jobs",
        "400",
        "--load",
        "0.9",
        "--gpus",
        "64",
        "--name",
        "some",
    )
    settings = [
        "workload.trace=some",
        "workload.unusable=drop",
        "policies.select=dlas-gpu",
        "cluster.gpus=16",
        "cluster.preemption.restore_s=30",
    ]
    done = scenarios.load("scheduler-pool", settings).run()
    metrics = done.results[0].metrics
    assert metrics["preemptions"] > 0
    (its,) = (aggregate_jobs(run, {}) for run in read_attempts(done))
    assert its.queue_delay_s.mean() == pytest.approx(metrics["queue_delay_s"])
    assert its.preemptions.sum() == metrics["preemptions"]
