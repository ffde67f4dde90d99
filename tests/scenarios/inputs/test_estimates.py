"""Users' estimates whose unit is in doubt: units of an import, and warnings until they fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Command
from tests.support.messages import assert_states
from wattkeeper.traces.library import store

SCENARIO = """\
name: mine
cluster: {gpu: GPU, gpus: 8, idle_power_w: 50, busy_power_w: 250}
workload: {kind: trace, trace: log, gpu_types: ignore, unusable: drop}
variants: {own: {policies: {select: SELECT}}}
baseline: own
"""
WHOLE = ("submit_time_s=submit", "gpus=n", "duration_s=took")


def write(folder: Path, limits: list[object], took: object = 1800) -> None:
    rows = [f"{60 * row},1,{took},{limit}" for row, limit in enumerate(limits)]
    text = "\n".join(["submit,n,took,TIMELIMIT", *rows])
    (folder / "log.csv").write_text(text + "\n", encoding="utf-8")


def load(inside: Command, *maps: str, code: int = 0) -> str:
    words = [word for one in (*WHOLE, *maps) for word in ("--map", one)]
    done = inside("traces", "import", "csv", "log.csv", "--replace", *words, code=code)
    return done.stderr


def column(name: str) -> list[float | None]:
    found: list[float | None] = store.find("log").tables["jobs"][name].to_pylist()
    return found


def test_minutes_that_are_read_as_seconds(inside: Command, tmp_path: Path) -> None:
    write(tmp_path, [60, 60, 7200, ""])
    facts = ("2 of 3 jobs with an estimate (66.7 %)", "seconds", "--map estimate_s=COLUMN:UNIT")
    assert_states(load(inside, "estimate_s=TIMELIMIT"), "Warning: ", *facts)
    assert_states(" ".join(inside("traces", "describe", "log").stdout.split()), *facts)
    (tmp_path / "mine.yaml").write_text(SCENARIO.replace("SELECT", "easy-backfill"))
    for command in ("run", "validate"):
        said = inside(command, "mine.yaml").stderr
        assert_states(said, "Warning: 2 of 3 jobs with an estimate", *facts[1:])
    assert not load(inside, "estimate_s=TIMELIMIT:min")
    assert column("estimate_s") == [3600, 3600, 432000, None]
    assert "ran longer" not in inside("traces", "describe", "log").stdout
    assert not inside("validate", "mine.yaml").stderr


def test_a_sweep_warns_once(inside: Command, tmp_path: Path) -> None:
    write(tmp_path, [60, 60, 7200])
    load(inside, "estimate_s=TIMELIMIT")
    (tmp_path / "mine.yaml").write_text(SCENARIO.replace("SELECT", "easy-backfill"))
    for command in ("run", "validate"):
        said = inside(command, "mine.yaml", "--sweep", "cluster.gpus=8,16,24").stderr
        assert said.count("Warning: 2 of 3 jobs with an estimate") == said.count("Warning") == 1


def test_no_warning_where_nothing_reads_estimates(inside: Command, tmp_path: Path) -> None:
    write(tmp_path, [60, 60])
    load(inside, "estimate_s=TIMELIMIT")
    (tmp_path / "mine.yaml").write_text(SCENARIO.replace("SELECT", "fifo"))
    assert not inside("validate", "mine.yaml").stderr


def test_few_jobs_outlive_their_estimate_in_any_log(inside: Command, tmp_path: Path) -> None:
    write(tmp_path, [1799, 1800, 3600, 3600])
    assert not load(inside, "estimate_s=TIMELIMIT")
    said = inside("traces", "describe", "log").stdout
    assert_states(said, "1 of 4 jobs with an estimate (25.0 %)")
    assert "estimate_s=COLUMN" not in said


def test_a_default_estimate_counts(inside: Command, tmp_path: Path) -> None:
    write(tmp_path, [""])
    maps = [word for one in (*WHOLE, "estimate_s=TIMELIMIT") for word in ("--map", one)]
    said = inside("traces", "import", "csv", "log.csv", *maps, "--default-estimate", "60").stderr
    assert_states(said, "Warning: 1 of 1 jobs with an estimate")


@pytest.mark.parametrize(
    ("unit", "seconds"), [("ms", 0.002), ("s", 2), ("min", 120), ("h", 7200), ("d", 172800)]
)
def test_units(inside: Command, tmp_path: Path, unit: str, seconds: float) -> None:
    write(tmp_path, [2], took=2)
    load(inside, f"estimate_s=TIMELIMIT:{unit}")
    assert column("estimate_s") == [seconds]
    assert column("duration_s") == [2]


def test_units_of_points_in_time(inside: Command, tmp_path: Path) -> None:
    text = "submit_time_s,gpus,begin,took\n1000,1,4000,3\n7000,1,9000,3\n"
    (tmp_path / "log.csv").write_text(text)
    maps = ("submit_time_s=submit_time_s:ms", "start_time_s=begin:ms", "duration_s=took:h")
    inside("traces", "import", "csv", "log.csv", *(word for one in maps for word in ("--map", one)))
    assert column("submit_time_s") == [0, 6]
    assert column("start_time_s") == [3, 8]
    assert column("duration_s") == [10800, 10800]
    (tmp_path / "log.csv").write_text(text.replace("1000,1", "2024-01-01 00:00:00,1"))
    said = inside(
        "traces",
        "import",
        "csv",
        "log.csv",
        "--replace",
        *(word for one in maps for word in ("--map", one)),
        code=2,
    ).stderr
    assert_states(said, "line 2", "submit_time_s is '2024-01-01 00:00:00'", "number of ms")


def test_a_column_whose_name_ends_like_a_unit(inside: Command, tmp_path: Path) -> None:
    write(tmp_path, [2])
    path = tmp_path / "log.csv"
    path.write_text(path.read_text().replace("TIMELIMIT", "limit:min"))
    load(inside, "estimate_s=limit:min")
    assert column("estimate_s") == [2]
    load(inside, "estimate_s=limit:min:min")
    assert column("estimate_s") == [120]


@pytest.mark.parametrize(
    ("mapped", "facts"),
    [
        ("estimate_s=TIMELIMIT:minutes", ["no unit 'minutes'", "ms, s, min, h, d"]),
        ("estimate_s=LIMIT:min", ["column LIMIT is missing"]),
        ("gpu_milli=TIMELIMIT:min", ["gpu_milli is no time"]),
        ("user=TIMELIMIT:h", ["user is no time"]),
    ],
)
def test_units_that_do_not_fit(
    inside: Command, tmp_path: Path, mapped: str, facts: list[str]
) -> None:
    write(tmp_path, [2])
    assert_states(load(inside, mapped, code=2), *facts)


def test_spans(inside: Command, tmp_path: Path) -> None:
    write(tmp_path, ["02:03:04", "1-02:03:04", 90, "100:00:00.5", "UNLIMITED", ""], "00:30:00")
    load(inside, "estimate_s=TIMELIMIT")
    assert column("duration_s") == [1800] * 6
    assert column("estimate_s") == [7384, 93784, 90, 360000.5, None, None]


@pytest.mark.parametrize("span", ["03:04", "1-03:04", "1:60:00", "-1:00:00", "1:00:00:00", "x:y:z"])
def test_texts_that_are_no_spans(inside: Command, tmp_path: Path, span: str) -> None:
    """Without hours it could be minutes and seconds, or hours and minutes."""
    write(tmp_path, [span])
    said = load(inside, "estimate_s=TIMELIMIT", code=2)
    assert_states(said, f"line 2: TIMELIMIT is {span!r}", "seconds", "D-HH:MM:SS")


def test_a_unit_is_of_numbers(inside: Command, tmp_path: Path) -> None:
    write(tmp_path, [5, "02:03:04"])
    said = load(inside, "estimate_s=TIMELIMIT:min", code=2)
    assert_states(said, "line 3: TIMELIMIT is '02:03:04'", "must be a finite number of min")
