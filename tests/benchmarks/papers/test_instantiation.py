"""Pipelines of Oobleck's engine through the command: all published ones, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.papers import instantiation
from tests.support.messages import assert_states
from tests.support.published_replays import read_reference, replay

COLUMNS = {"best_by_engine": "engine_iter", "best_balanced": "balanced_iter"}
"""Columns of the time by column of the pipelines."""


def test_published_instantiations(shared: Path) -> None:
    rows = read_reference(shared, "instantiation.csv")
    assert len(rows) == 6
    times = shared / "reference/elastic/template_times.csv"
    for row in rows:
        options = ("--profile", row["profile"], "--nodes", row["nodes"], "--microbatches", row["B"])
        found = json.loads(replay(instantiation.main, times, *options).stdout)
        assert found["options"] == int(row["options"])
        for rule, column in COLUMNS.items():
            assert found[rule]["pipelines"] == json.loads(row[rule])
            assert found[rule]["iteration_s"] == pytest.approx(float(row[column]), rel=1e-6)


def test_all_sets_of_pipelines() -> None:
    assert list(instantiation.pipeline_counts([2, 3], 6)) == [(0, 2), (3, 0)]
    assert list(instantiation.pipeline_counts([2], 3)) == []


def test_an_unknown_profile_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "times.csv"
    path.write_text("profile,num_nodes,num_stages,iteration_time\nm,2,2,5\nm,3,3,5\n")
    options = ("--nodes", "5", "--microbatches", "9")
    done = replay(instantiation.main, path, "--profile", "x", *options, code=2)
    assert_states(done.stderr, "times.csv", "no profile 'x'", "there is m")
    done = replay(instantiation.main, path, "--profile", "m", *options)
    assert json.loads(done.stdout)["options"] == 1
