"""A note on many jobs where the core is plain Python."""

import pytest

from tests.conftest import Command
from wattkeeper.scenarios.run import core

QUICK = ("run", "quickstart", "--seeds", "2", "--set", "workload.recurrences=3")
JOBS = 4 * 2 * 3 * 3
"""Variants, seeds, workloads, recurrences."""


def note(jobs: int) -> str:
    return f"{jobs} jobs on the core in plain Python"


@pytest.mark.parametrize(
    ("most", "compiled", "says"), [(JOBS - 1, False, 1), (JOBS, False, 0), (JOBS - 1, True, 0)]
)
def test_runs_of_many_jobs_on_plain_python_say_what_makes_them_faster(
    inside: Command, monkeypatch: pytest.MonkeyPatch, most: int, compiled: bool, says: int
) -> None:
    monkeypatch.setattr(core, "MANY_JOBS", most)
    monkeypatch.setattr(core, "is_compiled", lambda: compiled)
    done = inside(*QUICK)
    assert [note(JOBS) in line for line in done.stderr.splitlines()].count(True) == says
    assert done.stderr.count("`make compile`") == says
    assert "make compile" not in done.stdout


def test_sweeps_count_the_jobs_of_all_points(
    inside: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "MANY_JOBS", JOBS)
    monkeypatch.setattr(core, "is_compiled", lambda: False)
    done = inside(*QUICK, "--sweep", "objective.eta=0,1")
    assert done.stderr.count(note(2 * JOBS)) == 1
