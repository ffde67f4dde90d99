"""Traces of Gavel with seven, nine and ten values a line: values, durations, faults."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.messages import assert_states
from tests.support.traces import import_trace
from wattkeeper.policies.errors import TraceError
from wattkeeper.traces.formats import find_format
from wattkeeper.traces.formats.gavel import FORMS
from wattkeeper.traces.library.importer import write_jobs
from wattkeeper.traces.readers.base import JobsFormat

JOBS: tuple[dict[str, str], ...] = (
    {"job_type": "LM (batch size 10)", "total_steps": "2388099", "scale_factor": "1"}
    | {"arrival_time": "11.000000", "num_steps_arg": "--steps", "needs_data_dir": "1"},
    {"job_type": "A3C", "total_steps": "1934260", "scale_factor": "4"}
    | {"arrival_time": "343918.000000", "num_steps_arg": "--max-steps", "needs_data_dir": "0"},
    {"job_type": "A3C", "total_steps": "5", "scale_factor": "0"}
    | {"arrival_time": "343919.000000", "num_steps_arg": "--max-steps", "needs_data_dir": "0"},
)
OTHERS = {"command": "cd %s/x && python3 main.py", "working_directory": "lm"}
OTHERS |= {"priority_weight": "1", "SLO": "-1.000000"}
SPEEDS = {"v100": {"('LM (batch size 10)', 1)": {"null": 81.65163491883021}}}


def write(path: Path, values: int, jobs: tuple[dict[str, str], ...] = JOBS) -> Path:
    lines = ["\t".join((OTHERS | job)[name] for name in FORMS[values]) for job in jobs]
    path.write_text("\n".join(lines) + "\n")
    return path


def columns(*paths: Path) -> dict[str, list[Any]]:
    names = ["job_id", "workload", "submit_time_s", "gpus", "duration_s"]
    found: dict[str, list[Any]] = (
        import_trace("auto", paths).tables["jobs"].select(names).to_pydict()
    )
    return found


@pytest.mark.parametrize("values", [7, 9, 10])
def test_each_form_gives_the_same_jobs(tmp_path: Path, values: int) -> None:
    path = write(tmp_path / "a.trace", values)
    assert find_format("auto", [path]).name == "gavel"
    assert columns(path) == {
        "job_id": ["1", "2"],
        "workload": ["LM (batch size 10)", "A3C"],
        "submit_time_s": [0.0, 343907.0],
        "gpus": [1, 4],
        "duration_s": [None, None],
    }
    assert import_trace("auto", [path]).quality["dropped"] == {"asks for no GPU": 1}
    speeds = tmp_path / "speeds.json"
    speeds.write_text(json.dumps(SPEEDS))
    durations = columns(path, speeds)["duration_s"]
    assert durations == [pytest.approx(29247.41, abs=0.01), None]


def test_published_throughputs_give_the_durations_of_seven_values(
    shared: Path, tmp_path: Path
) -> None:
    speeds = shared / "data/gavel/simulation_throughputs.json"
    durations = columns(write(tmp_path / "a.trace", 7), speeds)["duration_s"]
    assert durations == [pytest.approx(29247.41, abs=0.01), None]


@pytest.mark.parametrize("values", [1, 5, 6, 8, 11, 12])
def test_other_forms_are_refused_by_line_and_what_is_allowed(tmp_path: Path, values: int) -> None:
    path = tmp_path / "a.trace"
    path.write_text("\n" + "\t".join(["1"] * values) + "\n")
    with pytest.raises(TraceError) as caught:
        import_trace("gavel", [path])
    assert_states(str(caught.value), f"{path}, line 2", f"{values} values", "7, 9 or 10", "tabs")


def test_forms_are_not_mixed_and_a_damaged_first_line_does_not_choose_one(tmp_path: Path) -> None:
    path = write(tmp_path / "a.trace", 7)
    good = path.read_text()
    path.write_text(good + write(tmp_path / "b.trace", 9).read_text())
    with pytest.raises(TraceError) as caught:
        import_trace("gavel", [path])
    assert_states(str(caught.value), "line 4", "has 9 values", "must have 7")
    path.write_text("LM\tcut\n" + good)
    form = find_format("gavel", [path])
    assert isinstance(form, JobsFormat)
    fields = write_jobs(form, [path], None, tmp_path / "out", skip_bad=True).fields
    assert (fields["quality"]["kept"], fields["quality"]["wrong"]) == (2, 1)


@pytest.mark.parametrize(("name", "value"), [("scale_factor", "1.5"), ("arrival_time", "soon")])
def test_the_last_two_of_seven_values_are_arrival_and_gpus(
    tmp_path: Path, name: str, value: str
) -> None:
    path = write(tmp_path / "a.trace", 7, (JOBS[0], JOBS[1] | {name: value}))
    with pytest.raises(TraceError) as caught:
        import_trace("gavel", [path])
    assert_states(str(caught.value), f"{path}, line 2", f"{name} is '{value}'")
