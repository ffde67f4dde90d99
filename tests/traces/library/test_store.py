"""Traces on disk and by name: whole or not at all, the same bytes every time."""

import contextlib
import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import Command
from tests.support.examples import examples
from tests.support.messages import assert_states
from wattkeeper.policies.errors import EnvironmentLacks, InputError, TraceError
from wattkeeper.traces.generate.synthetic import SyntheticProfiles, generate
from wattkeeper.traces.library import folder, store
from wattkeeper.traces.schema import JOBS, is_optional
from wattkeeper.traces.tables import jobs_table, validate
from wattkeeper.traces.trace import Trace


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WATTKEEPER_TRACES", str(tmp_path / "library"))
    return tmp_path / "library"


def jobs(name: str = "jobs", count: int = 3) -> Trace:
    rows = [
        {"job_id": f"é/{n}", "submit_time_s": float(n), "duration_s": 1.5, "gpus": 1}
        | {"gpu_milli": 1000, "workload": "w", "time_scale": 1.0}
        for n in range(count)
    ]
    return Trace(
        name=name,
        kind="jobs",
        tables={"jobs": pa.Table.from_pylist(rows, schema=JOBS)},
        format="none",
        origin="synthetic",
        source="a test",
        licence="CC0-1.0",
        inputs={"a.csv": "00"},
        notes=("one", "zwei ü"),
        parameters={"seed": 1, "list": [1.5, None]},
    )


def read_error(name_or_path: str | Path) -> str:
    with pytest.raises(TraceError) as caught:
        store.find(name_or_path)
    return str(caught.value)


@pytest.mark.parametrize("trace", [jobs(), generate(SyntheticProfiles(), "profiles")])
def test_round_trip(home: Path, trace: Trace) -> None:
    path = store.save(trace)
    assert path == home / trace.name
    for found in (store.find(trace.name), store.find(path), store.find(str(path))):
        assert found == trace
        for name, table in trace.tables.items():
            assert found.tables[name].schema.equals(table.schema, check_metadata=True)
        assert folder.files(found) == folder.files(trace)


def test_files_say_where_they_come_from(home: Path) -> None:
    path = store.save(jobs())
    assert sorted(p.name for p in path.iterdir()) == ["jobs.parquet", "trace.json"]
    schema = pq.read_schema(path / "jobs.parquet")
    assert schema.metadata[b"origin"] == b"synthetic"
    assert schema.field("submit_time_s").metadata[b"unit"] == b"s"


def test_a_table_without_optional_columns_is_written_and_read_as_before(home: Path) -> None:
    trace = jobs()
    path = store.save(trace)
    names = pq.read_schema(path / "jobs.parquet").names
    assert names == [f.name for f in JOBS if b"optional" not in f.metadata]
    started = replace(
        trace,
        tables={
            "jobs": jobs_table(
                {
                    **{name: trace.tables["jobs"][name] for name in names},
                    "start_time_s": [1.0, None, 2.0],
                }
            )
        },
    )
    store.save(started, replace=True)
    assert pq.read_schema(path / "jobs.parquet").names == [*names, "start_time_s"]
    assert store.find("jobs") == started


def test_the_chunks_of_a_table_do_not_change_its_bytes() -> None:
    whole = jobs(count=50)
    table = whole.tables["jobs"]
    chunked = pa.concat_tables([table.slice(0, 7), table.slice(7)])
    assert folder.files(replace(whole, tables={"jobs": chunked})) == folder.files(whole)


def test_an_existing_trace_is_replaced_only_on_demand(home: Path) -> None:
    store.save(jobs())
    with pytest.raises(InputError, match="--replace"):
        store.save(jobs(count=5))
    assert store.find("jobs") == jobs()
    store.save(jobs(count=5), replace=True)
    assert store.find("jobs") == jobs(count=5)
    assert [p.name for p in home.iterdir()] == ["jobs"]


def test_a_folder_that_is_not_a_trace_is_never_replaced(home: Path) -> None:
    (home / "jobs").mkdir(parents=True)
    (home / "jobs" / "thesis.tex").write_text("dear")
    with pytest.raises(InputError, match="no trace"):
        store.save(jobs(), replace=True)
    assert (home / "jobs" / "thesis.tex").read_text() == "dear"


def test_a_failed_write_leaves_what_was_there(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.save(jobs())

    def full(self: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(EnvironmentLacks, match="No space left on device"):
        store.save(jobs(count=5), replace=True)
    assert store.find("jobs") == jobs()
    assert [p.name for p in home.iterdir()] == ["jobs"]


def test_a_trace_hidden_by_a_kill_between_two_renames_comes_back(home: Path) -> None:
    """As it is where a file system cannot exchange two names; it is still not free to replace."""
    path = store.save(jobs())
    hidden = home / ".jobs.0123456789ab.new"
    readers = (store.names, partial(store.find, "jobs"), partial(store.find, path), save_again)
    for reader in readers:
        path.rename(hidden)
        hidden.with_suffix(".old").mkdir()
        reader()
        assert folder.read(path) == jobs()
        assert [each.name for each in home.iterdir()] == ["jobs"]


def save_again() -> None:
    with pytest.raises(InputError, match="exists; replace it"):
        store.save(jobs(count=5))


def test_the_next_import_removes_what_killed_ones_left(home: Path) -> None:
    (home / ".other.0123456789ab.new").mkdir(parents=True)
    (home / ".other.0123456789ab.lock").touch()
    store.save(jobs())
    assert [each.name for each in home.iterdir()] == ["jobs"]


def test_what_was_added_to_a_trace_is_not_lost(home: Path) -> None:
    notes = store.save(jobs()) / "notes.txt"
    notes.write_text("mine")
    with pytest.raises(InputError, match=r"holds 'notes\.txt'"):
        store.save(jobs(), replace=True)
    assert notes.read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_library_is_reported(home: Path) -> None:
    home.mkdir()
    home.chmod(0o500)
    with pytest.raises(EnvironmentLacks, match="Permission denied"):
        store.save(jobs())


def test_a_file_in_place_of_the_folder_is_reported(home: Path) -> None:
    home.write_text("")
    with pytest.raises(EnvironmentLacks, match="cannot write"):
        store.save(jobs())
    with pytest.raises(EnvironmentLacks, match="cannot list"):
        store.names()


def test_names_are_those_of_traces(home: Path) -> None:
    assert store.names() == ()
    store.save(jobs("b"))
    store.save(jobs("a"))
    (home / ".hidden").mkdir()
    (home / "empty").mkdir()
    (home / "file").write_text("")
    assert store.names() == ("a", "b")


@pytest.mark.parametrize("text", ["none", "", "../jobs", "~nobody/x", "a\0b", "x" * 5000, "-"])
def test_an_unknown_trace_lists_what_there_is(home: Path, text: str) -> None:
    store.save(jobs())
    with pytest.raises(InputError, match=r"there is jobs\..*traces import FORMAT PATH"):
        store.find(text)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("0,add,node1\n", "wattkeeper traces import node-events {} --name NAME"),
        ("time_s,event,node\n0,up,a\n", "wattkeeper traces import node-events {} --name NAME"),
        (
            "timestamp,duration,num_gpus,gpu_time,cluster\n",
            "wattkeeper traces import philly-csv {} --name NAME",
        ),
        ("a poem\n", "wattkeeper traces import FORMAT {} --name NAME"),
        ("\0", "wattkeeper traces import FORMAT {} --name NAME"),
    ],
)
def test_a_file_tells_how_to_import_it(text: str, advice: str, home: Path, tmp_path: Path) -> None:
    file = tmp_path / "events.csv"
    file.write_text(text)
    assert_states(read_error(file), f"{file}: ", "is a file", advice.format(file))


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("zeus-nsdi23", "wattkeeper traces fetch zeus-nsdi23"),
        ("zeus-groups", "wattkeeper traces import zeus-groups PATH --name zeus-groups"),
    ],
)
def test_an_absent_trace_of_a_known_name_tells_where_it_comes_from(
    name: str, advice: str, home: Path
) -> None:
    with pytest.raises(InputError) as caught:
        store.find(name)
    assert_states(str(caught.value), f"no trace named {name!r}", advice)


def test_the_list(inside: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATTKEEPER_TRACES", str(tmp_path / "library"))
    store.save(jobs("short"))
    store.save(generate(SyntheticProfiles(), "a-longer-name"))
    wrong = store.save(jobs("wrong"))
    (wrong / "jobs.parquet").unlink()
    header, *rows, broken = inside("traces", "list", code=2).stdout.splitlines()
    assert header.split() == ["name", "kind", "origin", "format", "rows", "most", "GPUs", "span"]
    for row in rows[::2]:
        assert row[header.index("kind") :].startswith(("jobs", "profiles", "broken"))
    assert rows[1].split() == ["short", "jobs", "synthetic", "none", "3", "1", "0.0", "d"]
    assert len(rows[1]) == len(header)
    assert broken.startswith("broken: ")
    assert_states(broken, "jobs.parquet: ", "missing")
    listed = inside("traces", "list", "--json", code=2).stdout
    found = {row["name"]: row for row in json.loads(listed)}
    assert found["short"] | {"format": "none"} == found["short"]
    assert (found["short"]["span_s"], found["short"]["tables"]) == (2.0, {"jobs": 3})
    assert found["a-longer-name"]["span_s"] is None


def test_broken_folders(home: Path, tmp_path: Path) -> None:
    path = store.save(jobs())
    meta, table = path / "trace.json", path / "jobs.parquet"
    text, data = meta.read_text(), table.read_bytes()
    assert_states(read_error(table), f"{table}: ", "a file", "folder")
    assert_states(read_error(tmp_path), "trace.json: ", "missing")
    for half in (data[:-1], data[: len(data) // 2], b""):
        table.write_bytes(half)
        assert_states(read_error("jobs"), f"{table}: ", "truncated")
    table.unlink()
    assert_states(read_error("jobs"), f"{table}: ", "missing")
    table.mkdir()
    assert_states(read_error("jobs"), f"{table}: ", "cannot be read")
    table.rmdir()
    table.write_bytes(data)
    for wrong in (text[:-9], "", "[]", "\0", text.replace('"version": 2', '"version": 3')):
        meta.write_text(wrong)
        assert read_error("jobs").startswith(f"{meta}: ")
    fields = json.loads(text)
    for key, value in (("kind", "x"), ("origin", None), ("tables", {}), ("name", "../x")):
        meta.write_text(json.dumps(fields | {key: value}))
        assert read_error("jobs")
    meta.write_text(json.dumps(fields | {"tables": fields["tables"] | {"../../x": {}}}))
    assert read_error("jobs")


def test_an_invalid_parquet_file_is_reported(home: Path) -> None:
    path = store.save(jobs())
    write_sealed(path, b"PAR1 this is no Parquet file PAR1")
    assert_states(read_error("jobs"), "jobs.parquet: ", "no valid Parquet file")
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"job_id": [1]}), sink)
    write_sealed(path, sink.getvalue().to_pybytes())
    assert_states(read_error("jobs"), "jobs.parquet: ", "column job_id", "int64", "string")


def write_sealed(path: Path, data: bytes) -> None:
    """Put a table there whose digest fits."""
    (path / "jobs.parquet").write_bytes(data)
    meta = json.loads((path / "trace.json").read_text())
    meta["tables"]["jobs"]["sha256"] = hashlib.sha256(data).hexdigest()
    meta.pop("digest", None)  # as earlier versions wrote it
    (path / "trace.json").write_text(json.dumps(meta))


@settings(
    max_examples=examples(100),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_damage_raises_only_known_errors(home: Path, data: st.DataObject) -> None:
    path = store.save(jobs(), replace=True)
    file = data.draw(st.sampled_from(["jobs.parquet", "trace.json"]))
    content = bytearray((path / file).read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    if data.draw(st.booleans()):
        del content[at:]
    (path / file).write_bytes(content)
    with contextlib.suppress(TraceError):
        store.find("jobs")
    (path / "trace.json").write_bytes(folder.files(jobs())["trace.json"])


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import sys, wattkeeper.traces, wattkeeper.traces.formats; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"pyarrow", "numpy", "pandas", "pydantic", "rich"} & set(done.stdout.split())


def test_a_trace_without_optional_columns_is_read(tmp_path: Path) -> None:
    """As written before there were these columns."""
    jobs = validate(jobs_table({"job_id": ["a"], "submit_time_s": [0.0], "gpus": [1]}), JOBS, "x")
    old = [want.name for want in JOBS if not is_optional(want)]
    trace = Trace("old", "jobs", {"jobs": jobs}, "csv", "recorded", "s", "l")
    folder.write(trace, tmp_path / "old")
    path, meta = tmp_path / "old/jobs.parquet", tmp_path / "old/trace.json"
    pq.write_table(pq.read_table(path).select(old), path)
    state = json.loads(meta.read_text())
    state["tables"]["jobs"]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    del state["digest"]
    meta.write_text(json.dumps(state))
    assert pq.read_schema(path).names == old
    assert folder.read(tmp_path / "old").tables["jobs"].equals(jobs)
