"""`wattkeeper bench growth` counts work; `test_bench.py` plants what grows too fast."""

from __future__ import annotations

import json

import pytest

from tests.conftest import Command
from wattkeeper.scenarios.bench.growth import Growth


def test_exponents() -> None:
    assert Growth("las", "jobs", (100, 400), (7, 28), 1.1).exponent == pytest.approx(1)
    assert Growth("las", "jobs", (100, 400), (7, 112), 1.1).exponent == pytest.approx(2)
    assert not Growth("las", "jobs", (100, 400), (7, 112), 1.1).is_allowed


def test_the_work_of_all_schedulers_grows_as_it_must(inside: Command) -> None:
    found = json.loads(inside("bench", "growth", "--json").stdout)
    assert found["entries"] == []
    kinds = {growth["what"] for growth in found["growth"]}
    assert kinds >= {
        "fifo",
        "easy-backfill",
        "fair-share",
        "dlas-gpu",
        "srtf",
        "las",
        "gittins",
        "parent, coverage",
        "parent, modelkeeper-asbuilt",
    }
    for growth in found["growth"]:
        if not growth["what"].startswith("parent"):
            assert growth["work"][0] >= growth["sizes"][0], "each job is an event at least"
            assert growth["exponent"] > 0.8
        assert growth["exponent"] <= growth["most"]
