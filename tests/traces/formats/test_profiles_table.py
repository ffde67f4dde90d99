"""Tables of measurements: what they come to, and what is refused."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import Command
from tests.support.measurements import POINTS, TABLE
from tests.support.messages import assert_states
from tests.support.traces import import_trace
from wattkeeper.policies.errors import TraceError
from wattkeeper.policies.profile import Profile
from wattkeeper.traces.formats import find_format
from wattkeeper.traces.formats.profiles.json_schema import row_schema
from wattkeeper.traces.formats.profiles.rows import ROWS
from wattkeeper.traces.measurements import MeasuredEpochs, MeasuredWorkload, Setting, build_tables
from wattkeeper.traces.profiles import load_profiles
from wattkeeper.traces.trace import Trace

HEAD = TABLE.splitlines()[2]


def table(tmp_path: Path, text: str = TABLE, name: str = "mine.csv") -> Trace:
    path = tmp_path / name
    path.write_text(text)
    return import_trace("profiles", [path])


def profile(trace: Trace, gpu: str = "L4", gpus: int = 1) -> Profile:
    return load_profiles(trace, gpu, gpus).get("net")


def rows() -> list[dict[str, str]]:
    """The rows of the table, without cells that are empty."""
    text = "".join(line for line in TABLE.splitlines(keepends=True) if line[0] != "#")
    return [{k: v for k, v in row.items() if v} for row in csv.DictReader(io.StringIO(text))]


def test_runs_give_means_and_their_own_pace(tmp_path: Path) -> None:
    trace = table(tmp_path)
    known = profile(trace)
    assert (known.default_batch_size, known.max_epochs) == (64, 20)
    small, large = known.curves[64], known.curves[128]
    assert list(small.limits_w) == [50, 72]
    assert list(small.epochs) == [10, 13]
    assert list(large.epochs) == [12, math.inf]
    time_s, energy_j = small.epoch(72)
    assert time_s == pytest.approx(2300 / 23)
    assert energy_j == pytest.approx((1000 * 60 + 1300 * 62) / 23)
    assert small.epoch(50) == pytest.approx((110, 110 * 48))
    assert large.epoch(72) == pytest.approx((90, 90 * 66))
    for run, (whole_s, power_w) in enumerate(((1000, 60), (1300, 62))):
        epochs, own = small.epochs[run], small.of_run(run).epoch(72)
        assert own == pytest.approx((whole_s / epochs, whole_s * power_w / epochs))
    assert known.most_power_w == pytest.approx(66)
    assert trace.parameters["about"] == {"source": "made up", "driver": "550.54"}
    assert (trace.name, trace.source, trace.licence) == ("mine", "made up", "not stated")


def test_parquet_is_as_csv(tmp_path: Path) -> None:
    first = table(tmp_path)
    typed: dict[str, type] = {"gpus": int, "batch_size": int, "time_s": float, "power_w": float}
    typed |= {"target": float, "epochs": int, "power_limit_w": int, "default_batch_size": int}
    columns = {
        name: [typed.get(name, str)(row[name]) if name in row else None for row in rows()]
        for name in HEAD.split(",")
    }
    columns["higher_is_better"] = [True] * len(rows())
    whole = pa.table(columns).replace_schema_metadata({"source": "made up", "driver": "550.54"})
    path = tmp_path / "mine.parquet"
    pq.write_table(whole, path)
    assert find_format("auto", [path]).name == "profiles"
    second = import_trace("profiles", [path])
    for name in first.tables:
        assert first.tables[name].equals(second.tables[name])
    assert first.parameters == second.parameters


def test_steps_are_epochs(tmp_path: Path) -> None:
    text = (
        "workload,gpu_type,gpus,batch_size,per,time_s,energy_j,energy_of,nodes,steps_per_epoch,"
        "metric,target,higher_is_better\n"
        "net,H100,16,512,step,0.25,3000,node,2,400,loss,1.5,no\n"
    )
    trace = table(tmp_path, text)
    assert "convergence" in trace.tables
    assert load_profiles(trace, "H100", 16).profiles == {}
    known = load_profiles(trace, "H100", 16, epochs=7).get("net")
    assert known.curves[512].epoch(1.0) == pytest.approx((100.0, 1_200_000.0))
    assert known.curves[512].epochs == (7.0,)
    assert f"{known.nodes} {known.energy_of}" == "2 node"


def test_evaluations_belong_to_their_run(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text(TABLE)
    points = tmp_path / "points.csv"
    points.write_text(POINTS)
    trace = import_trace("profiles", [tmp_path / "mine.csv", points])
    assert [(p["run"], p["epoch"], p["value"]) for p in trace.tables["curves"].to_pylist()] == [
        (0, 5, 0.5),
        (0, 10, 0.71),
    ]
    for old, new, fact in (
        (",1,5,", ",9,5,", "belongs to 0 runs"),
        (",1,5,", ",1,11,", "epoch is 11, and its run has 10"),
        (",1,5,", ",1,10,", "second time"),
    ):
        points.write_text(POINTS.replace(old, new))
        with pytest.raises(TraceError) as caught:
            import_trace("profiles", [tmp_path / "mine.csv", points])
        assert_states(str(caught.value), "points.csv, row", fact)


WRONG: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "choice": ("64,run,1000", "64,runs,1000", ("row 1", "per is 'runs'", "epoch or step or run")),
    "boundary": ("60,gpu", "60,gpus", ("row 1", "energy_of is 'gpus'", "gpu, node, facility")),
    "nodes": ("60,gpu", "60,node", ("row 1", "nodes is absent")),
    "no boundary": ("60,gpu", "60,", ("row 1", "energy_of is absent")),
    "boundary of nothing": ("60,gpu", ",gpu", ("row 1", "neither energy_j nor power_w")),
    "energy in part": ("60,gpu", ",", ("row 2", "states energy", "row 1")),
    "epochs": ("yes,10,yes", "yes,,yes", ("row 1", "epochs and reached belong together")),
    "reached": ("yes,10,yes", "yes,10,", ("row 1", "epochs and reached belong together")),
    "limit": (",,,50,64", ",,,,64", ("row 3", "power_limit_w is empty", "row 1")),
    "default": ("2,72,64", "2,72,", ("row 2", "default_batch_size is None", "row 1")),
    "target": ("13,yes", "13,yse", ("row 2", "reached is 'yse'")),
    "seed": ("13,yes,2", "13,yes,1", ("row 2", "repeats row 1")),
    "metric": ("62,gpu,accuracy", "62,gpu,loss", ("row 2", "metric is 'loss'", "row 1")),
    "tiny": ("run,1000", "run,1e-300", ("row 1", "time_s is 1e-300", "at least 1e-09")),
    "time": ("run,1000", "run,0", ("row 1", "time_s is 0")),
    "column": ("power_limit_w", "power_limit", ("header", "power_limit", "power_limit_w")),
    "needed": ("batch_size,per", "batch_size,par", ("header", "per is missing")),
    "about": ("# driver", "# drivr", ("line 2", "drivr", "driver")),
    "twice": ("# driver", "# source", ("line 2", "source", "second time")),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_row_is_named(tmp_path: Path, fault: str) -> None:
    old, new, facts = WRONG[fault]
    assert old in TABLE
    with pytest.raises(TraceError) as caught:
        table(tmp_path, TABLE.replace(old, new, 1))
    assert_states(str(caught.value), "mine.csv", *facts)


def test_the_json_schema_accepts_what_is_imported_and_names_every_column() -> None:
    schema = row_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert list(schema["properties"]) == ROWS.names
    kinds: dict[str, Any] = {"integer": int, "number": float}
    for row in rows():
        read = {k: kinds.get(schema["properties"][k].get("type"), str)(v) for k, v in row.items()}
        jsonschema.validate(read, schema)
        for change in (
            {"per": "runs"},
            {"energy_j": 5.0},
            {"energy_of": "node"},
            {"steps_per_epoch": 4},
            {"gpus": 0},
            {"unknown": 1},
            {"clock_mhz": 900},
        ):
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate(read | change, schema)


def test_a_dry_run_checks_and_stores_nothing(inside: Command, tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(TABLE)
    said = inside("traces", "import", "profiles", path, "--dry-run").stdout
    assert_states(said, "4 convergence", "nothing was stored")
    assert json.loads(inside("traces", "list", "--json").stdout) == []
    inside("traces", "import", "profiles", path)
    told = inside("traces", "describe", "mine").stdout
    assert_states(told, "not stated: licence, date", "2 runs, standard deviation 18.4 % in time")


numbers = st.floats(1.0, 1e4)
measured_runs = st.lists(
    st.tuples(st.integers(1, 50), numbers, numbers, st.booleans()), min_size=1, max_size=12
)


@given(measured_runs)
def test_the_mean_of_the_replayed_runs_is_the_measured_mean(
    measured: list[tuple[int, float, float, bool]],
) -> None:
    setting = Setting("net", "G", 1, 8)
    tables = build_tables(
        [
            MeasuredEpochs(setting, time_s, energy_j, "gpu", epochs=epochs, reached=reached)
            for epochs, time_s, energy_j, reached in measured
        ],
        [MeasuredWorkload("net", "loss", 1.0, False, 8)],
    )
    known = load_profiles(tables, "G").profiles["net"]
    curve = known.curves[8]
    for run, (epochs, time_s, energy_j, reached) in enumerate(measured):
        assert curve.epochs[run] == (epochs if reached else math.inf)
        assert curve.of_run(run).epoch(1.0) == pytest.approx((time_s, energy_j))
    if all(reached for *_, reached in measured):
        whole_s = math.fsum(epochs * time_s for epochs, time_s, *_ in measured) / len(measured)
        expected = curve.expected_epochs(known.max_epochs) * curve.epoch(1.0)[0]
        assert expected == pytest.approx(whole_s)
