"""The recorded load over time: change points, means, and what is not counted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.traces.describe.recorded_load import mean_values, read_load
from wattkeeper.traces.tables import jobs_table

JOBS = st.lists(
    st.tuples(st.integers(0, 100), st.integers(0, 50), st.integers(0, 50), st.integers(1, 8)),
    min_size=1,
    max_size=20,
)


def test_change_points() -> None:
    table = jobs_table(
        {
            "job_id": list("abcde"),
            "submit_time_s": [0.0, 0.0, 5.0, 6.0, 7.0],
            "start_time_s": [0.0, 10.0, 20.0, None, 8.0],
            "duration_s": [10.0, 10.0, 0.0, 5.0, None],
            "gpus": [2, 1, 4, 8, 8],
            "gpu_milli": [1000, 500, 1000, 1000, 1000],
        }
    )
    load = read_load(table)
    assert load.jobs == 3, "one has no start, one no duration"
    assert load.time_s.tolist() == [0, 5, 10, 20]
    assert load.gpus_busy.tolist() == [2, 2, 0.5, 0]
    assert load.jobs_waiting.tolist() == [1, 2, 1, 0]
    means = mean_values(load.time_s, load.gpus_busy, [-10, 0, 20, 30])
    assert means.tolist() == [0, 1.25, 0]
    empty = read_load(table.slice(3))
    assert (empty.jobs, len(empty.time_s)) == (0, 0)


@given(JOBS)
def test_integrals_are_gpu_time_and_waits(rows: list[tuple[int, int, int, int]]) -> None:
    submit, wait, duration, gpus = (np.array(column) for column in zip(*rows, strict=True))
    table = jobs_table(
        {
            "job_id": [str(n) for n in range(len(rows))],
            "submit_time_s": submit.astype(float),
            "start_time_s": (submit + wait).astype(float),
            "duration_s": duration.astype(float),
            "gpus": gpus,
        }
    )
    load = read_load(table)
    assert load.gpus_busy[-1] == load.jobs_waiting[-1] == 0
    edges = np.linspace(-1.0, 201.0, 8)
    for values, whole in (
        (load.gpus_busy, float((gpus * duration).sum())),
        (load.jobs_waiting, float(wait.sum())),
    ):
        assert (values >= 0).all()
        means = mean_values(load.time_s, values, edges)
        assert float((means * np.diff(edges)).sum()) == pytest.approx(whole)
