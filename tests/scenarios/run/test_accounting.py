"""Energy of all variants is counted over one window."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from tests.conftest import Command
from tests.support.messages import assert_states
from wattkeeper.scenarios.analysis.consumption import format_amount
from wattkeeper.scenarios.report.html import typeset_minus
from wattkeeper.sim.cluster_results.accounting import ENERGY

SLEEPING = """\
name: sleeping
cluster:
  nodes: [{gpu: a100, count: 2, gpus: 8}, {gpu: h100, count: 1, gpus: 8}]
  power: {a100: {idle_w: 55, busy_w: 330}, h100: {idle_w: 75, busy_w: 560}}
  pue: 1.3
  sleep: {after_s: 600, power_w: 12, wake_s: 120}
  preemption: {checkpoint_s: 30, restore_s: 60}
workload: {kind: trace, trace: some, unusable: drop}
policies: {place: best-fit}
variants:
  fifo: {}
  srtf: {policies: {select: srtf}}
baseline: fifo
"""
PARTS = ("training", "held", "idle", "asleep")


@pytest.fixture
def sleeping(inside: Command, tmp_path: Path) -> Path:
    inside(
        "traces",
        "generate",
        "jobs",
        "--jobs",
        "60",
        "--load",
        "0.9",
        "--gpus",
        "24",
        "--name",
        "some",
    )
    path = tmp_path / "sleeping.yaml"
    path.write_text(SLEEPING)
    return path


def figures(folder: Path) -> dict[str, dict[str, float]]:
    """The metrics of each variant of one seed."""
    figures_by_variant: dict[str, dict[str, float]] = {}
    for row in pq.read_table(folder / "metrics.parquet").to_pylist():
        if not row["by"]:
            figures_by_variant.setdefault(row["variant"], {})[row["metric"]] = row["value"]
    return figures_by_variant


def integrated_j(folder: Path, variant: str, from_s: float, until_s: float) -> float:
    """The integral of the timeline's power over a part of it, J."""
    line = pd.read_parquet(folder / "timeline.parquet")
    line = line[line["variant"] == variant]
    times = np.clip(np.append(line["time_s"].to_numpy(), np.inf), from_s, until_s)
    return float((line["power_w"].to_numpy() * np.diff(times)).sum())


def test_variants_that_end_earlier_are_charged_until_the_last_end(
    inside: Command, sleeping: Path, tmp_path: Path
) -> None:
    inside("run", sleeping, "--out", tmp_path / "out")
    rows, line = figures(tmp_path / "out"), pd.read_parquet(tmp_path / "out/timeline.parquet")
    ((from_s, until_s),) = json.loads((tmp_path / "out/manifest.json").read_text())["windows"]
    own = line.groupby("variant", observed=True)["time_s"].agg(["min", "max"])
    assert (from_s, until_s) == (own["min"].min(), own["max"].max())
    assert own["max"].nunique() == 2
    for variant, row in rows.items():
        parts = sum(row[f"{part}_energy_j"] for part in PARTS)
        assert row["cluster_energy_j"] == pytest.approx(parts, rel=1e-12)
        jobs_j = integrated_j(tmp_path / "out", variant, *own.loc[variant])
        # After the last end, all nodes idle for up to 600 s, and sleep then.
        left_s = until_s - own.loc[variant, "max"]
        least_j, most_j = 12 * 24 * 1.3 * left_s, (55 * 16 + 75 * 8) * 1.3 * left_s
        assert jobs_j + least_j <= row["cluster_energy_j"] * (1 + 1e-9)
        assert row["cluster_energy_j"] <= (jobs_j + most_j) * (1 + 1e-9)


def test_a_stated_window_cuts_jobs(inside: Command, sleeping: Path, tmp_path: Path) -> None:
    """Each variant's energy is the integral of its power over the window."""
    inside("run", sleeping, "--out", tmp_path / "whole")
    line = pd.read_parquet(tmp_path / "whole/timeline.parquet")
    shortest_s = line.groupby("variant", observed=True)["time_s"].max().min()
    from_s, until_s = round(0.2 * shortest_s), round(0.7 * shortest_s)
    inside(
        "run",
        sleeping,
        "--out",
        tmp_path / "part",
        "--set",
        f"accounting.from_s={from_s}",
        "--set",
        f"accounting.until_s={until_s}",
    )
    for variant, row in figures(tmp_path / "part").items():
        part_j = integrated_j(tmp_path / "whole", variant, from_s, until_s)
        assert row["cluster_energy_j"] == pytest.approx(part_j, rel=1e-9)
        used = line[line["variant"] == variant]
        times = np.clip(np.append(used["time_s"], np.inf), from_s, until_s)
        gpu_s = float((used["gpus_busy"].to_numpy() * np.diff(times)).sum())
        assert row["gpu_utilisation"] == pytest.approx(gpu_s / (24 * (until_s - from_s)))
    manifest = json.loads((tmp_path / "part/manifest.json").read_text())
    assert manifest["windows"] == [[from_s, until_s]]


@pytest.mark.parametrize(
    ("window", "facts"),
    [
        (("from_s=5", "until_s=5"), ("until_s", "5 s", "from_s")),
        (("from_s=-1",), ("accounting.from_s", "-1")),
        (("from_s=1e9",), ("no job holds GPUs", "1e+09 s")),
    ],
)
def test_a_window_without_jobs_is_refused(
    inside: Command, sleeping: Path, tmp_path: Path, window: tuple[str, ...], facts: tuple[str, ...]
) -> None:
    settings = [word for part in window for word in ("--set", f"accounting.{part}")]
    refused = inside("run", sleeping, "--out", tmp_path / "out", *settings, code=2)
    assert_states(refused.stderr, *facts)
    assert not (tmp_path / "out").exists()


def test_the_page_shows_the_parts_and_their_differences(
    inside: Command, sleeping: Path, tmp_path: Path
) -> None:
    inside("run", sleeping, "--out", tmp_path / "out")
    page = (tmp_path / "out/report.html").read_text()
    section = page[page.index('id="energy"') :].partition("</section>")[0]
    text = re.sub(r"<[^>]+>", " ", section)
    rows = figures(tmp_path / "out")
    for part in (*PARTS, "cluster"):
        own, baseline = (rows[name][f"{part}_energy_j"] for name in ("srtf", "fifo"))
        assert format_amount(own, ENERGY) in text, part
        assert typeset_minus(format_amount(own - baseline, ENERGY, sign="+")) in text, part
    assert "the last end over all variants" in text


@pytest.mark.parametrize(
    ("energy_j", "text"),
    [
        (0.0, "0 kWh"),
        (-0.0, "0 kWh"),
        (-1e-6, "0.00 kWh"),
        (18720.0, "0.0052 kWh"),
        (-1.8e5, "-0.050 kWh"),
        (3.6e7, "10.0 kWh"),
        (9.4e9, "2,611 kWh"),
    ],
)
def test_energy_has_up_to_three_digits(energy_j: float, text: str) -> None:
    assert format_amount(energy_j, ENERGY) == text
