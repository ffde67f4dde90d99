"""What a command imports before it simulates, and that nothing collects garbage meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from wattkeeper.policies.parts import FORECASTS
from wattkeeper.policies.registry import POINTS

PROGRAM = """
import atexit, gc, json, sys
from pathlib import Path

collections = 0
def count(phase, info):
    global collections
    collections += phase == "start"
gc.callbacks.append(count)

from wattkeeper.scenarios.run import garbage
begin, end = garbage.begin_start, garbage.end_start
def begin_start():
    global collections
    begin()
    collections = 0
def end_start():
    found = collections
    end()
    Path("start.json").write_text(json.dumps([found, list(sys.modules)]))
garbage.begin_start, garbage.end_start = begin_start, end_start
atexit.register(lambda: Path("end.json").write_text(json.dumps(list(sys.modules))))

sys.argv[0] = "wattkeeper"
from wattkeeper.scenarios.__main__ import start
start()
"""

POLICIES = {
    "configure.fixed",
    "configure.frugal",
    "configure.zeus",
    "configure.oracle",
    "tune.max_power",
    "tune.zeus_jit",
    "select.fifo",
    "place.first_fit",
}

UNNEEDED = {
    "torch",
    "pandas",
    "scipy",
    "numba",
    "onnx",
    "ray",
    "sqlite3",
    "jsonschema",
    "matplotlib",
    "wattkeeper.live.controller",
    "wattkeeper.live.devices",
    "wattkeeper.live.search",
    "wattkeeper.live.session",
    "wattkeeper.live.signals.http",
    "wattkeeper.live.zoo",
    "wattkeeper.policies.elastic.templates",
    "wattkeeper.policies.matching.coverage",
    "wattkeeper.scenarios.elastic",
    "wattkeeper.scenarios.kinds.elastic",
    "wattkeeper.scenarios.kinds.pipeline",
    "wattkeeper.scenarios.notebook.plots",
    "wattkeeper.scenarios.run.live_run",
    "wattkeeper.scenarios.kinds.search",
    "wattkeeper.scenarios.run.worker",
    "wattkeeper.scenarios.sweep",
    "wattkeeper.sim.elastic.jobs",
    "wattkeeper.sim.engine.warm_start",
    "wattkeeper.traces.electricity.readers",
    "wattkeeper.traces.formats",
    "wattkeeper.traces.library.importer",
}
"""Of no use to `quickstart`, from its first to its last moment."""

LATE = {"rich", "wattkeeper.scenarios.report", "wattkeeper.scenarios.cli.tables.document"}
"""Only what results are shown with."""


class Imports:
    """A run of `quickstart` in a process of its own."""

    def __init__(self, folder: Path) -> None:
        arguments = ["run", "quickstart", "--seeds", "1", "--set", "workload.recurrences=2"]
        subprocess.run(
            [sys.executable, "-c", PROGRAM, *arguments],
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        self.collections, at_start = json.loads((folder / "start.json").read_text())
        self.at_start = set(at_start)
        self.at_end = set(json.loads((folder / "end.json").read_text()))


@pytest.fixture(scope="module")
def imports(tmp_path_factory: pytest.TempPathFactory) -> Imports:
    return Imports(tmp_path_factory.mktemp("start"))


def test_a_run_imports_the_policies_of_its_scenario(imports: Imports) -> None:
    rooms = tuple(f"wattkeeper.policies.{room}." for room in (*POINTS, FORECASTS))
    found = {
        name.removeprefix("wattkeeper.policies.")
        for name in imports.at_end
        if name.startswith(rooms) and "._" not in name
    }
    helpers = {"tune.power_fraction"}  # which zeus-jit is built on
    assert found - helpers == POLICIES


def test_a_run_imports_nothing_that_it_has_no_use_for(imports: Imports) -> None:
    assert imports.at_end & UNNEEDED == set()
    assert imports.at_start & LATE == set()
    assert imports.at_end >= LATE


def test_nothing_is_collected_at_the_start(imports: Imports) -> None:
    assert imports.collections == 0
