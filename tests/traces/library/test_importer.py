"""Logs of jobs in batches: every format's contract, line numbers, what is skipped, memory."""

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import Command
from tests.support.examples import examples
from tests.support.messages import assert_states
from tests.support.traces import import_trace
from wattkeeper.policies.errors import InputError, Problem, TraceError
from wattkeeper.traces.formats import find_format, registry
from wattkeeper.traces.library import store
from wattkeeper.traces.library.importer import EARLY
from wattkeeper.traces.readers import textfile
from wattkeeper.traces.readers.base import ImportOptions, JobsFormat
from wattkeeper.traces.schema import JOBS

SAMPLES = Path(__file__).parents[2] / "data" / "formats"
FILES = {
    "csv": "csv.csv",
    "slurm": "slurm.txt",
    "philly-csv": "philly-csv.csv",
    "swf": "swf.swf",
    "helios": "helios.csv",
    "acme": "acme.csv",
    "gavel": "gavel.trace",
}
TEXT = pytest.mark.parametrize("name", FILES)
KEPT = {"csv": 3, "slurm": 3, "philly-csv": 3, "swf": 3, "helios": 2, "acme": 2, "gavel": 3}


def sample(name: str) -> Path:
    return SAMPLES / FILES[name]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WATTKEEPER_TRACES", str(tmp_path / "library"))
    return tmp_path / "library"


@pytest.fixture
def put(tmp_path: Path) -> Callable[[str | bytes], Path]:
    def write(content: str | bytes) -> Path:
        path = tmp_path / "log.txt"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def read_faults(form: str, path: Path) -> list[str]:
    with pytest.raises(TraceError) as caught:
        import_trace(form, [path])
    return [str(problem) for problem in caught.value.problems]


@TEXT
def test_a_sample_is_recognised_and_imported(name: str, home: Path) -> None:
    assert find_format("auto", [sample(name)]).name == name
    added = store.add("auto", [sample(name)], "mine")
    trace = store.find("mine")
    assert (trace.format, added.rows) == (name, {"jobs": KEPT[name]})
    assert trace.quality == added.quality
    quality = trace.quality
    assert quality["kept"] + quality["wrong"] + sum(quality["dropped"].values()) == quality["rows"]
    assert quality["time_origin"].startswith("the first submission, ")
    assert quality["time_unit"]
    assert quality["cannot_tell"]
    assert min(trace.tables["jobs"]["submit_time_s"].to_pylist()) == 0
    assert trace.tables["jobs"].schema.equals(JOBS)
    first = (home / "mine" / "jobs.parquet").read_bytes()
    meta = (home / "mine" / "trace.json").read_bytes()
    store.add(name, [sample(name)], "mine", replace=True)
    assert (home / "mine" / "jobs.parquet").read_bytes() == first
    assert (home / "mine" / "trace.json").read_bytes() == meta
    assert sorted(path.name for path in home.iterdir()) == ["mine"]


@pytest.mark.parametrize(
    ("name", "waits"),
    [
        ("slurm", [60, 1, 60]),
        ("helios", [0, 60]),
        ("acme", [10, 12]),
        ("swf", [10, 0, 5]),
        ("csv", [None] * 3),
    ],
)
def test_recorded_starts(name: str, waits: list[float | None]) -> None:
    jobs = import_trace(name, [sample(name)]).tables["jobs"]
    assert pc.subtract(jobs["start_time_s"], jobs["submit_time_s"]).to_pylist() == waits


def test_optional_columns_of_csv(put: Callable[[str | bytes], Path]) -> None:
    head = "submit_time_s,gpus,start_time_s,tries,energy_j,account,qos\n"
    rows = "2024-01-01 00:00:00,1,2024-01-01 00:00:07,2,3.5,a,\n2024-01-01 00:00:05,1,,,,,q\n"
    found = import_trace("csv", [put(head + rows)]).tables["jobs"]
    names = head.strip().split(",")[2:]
    assert found.select(names).to_pylist() == [
        dict(zip(names, values, strict=True))
        for values in ((7, 2, 3.5, "a", None), (None, None, None, None, "q"))
    ]
    faults = read_faults("csv", put(head + rows.replace(",2,3.5", ",0,-1")))
    assert_states(faults[0], "line 2: tries is 0", "energy_j is -1.0", "> 0")


@TEXT
@pytest.mark.parametrize("change", ["gzip", "bom", "crlf", "no last newline"])
def test_encodings_change_nothing(
    name: str, change: str, put: Callable[[str | bytes], Path]
) -> None:
    data = sample(name).read_bytes()
    changed = {
        "gzip": gzip.compress(data, mtime=0),
        "bom": b"\xef\xbb\xbf" + data,
        "crlf": data.replace(b"\n", b"\r\n"),
        "no last newline": data.rstrip(b"\n"),
    }[change]
    expected = import_trace(name, [sample(name)])
    found = import_trace("auto", [put(changed)])
    assert found.tables == expected.tables
    assert found.quality == expected.quality


@TEXT
def test_a_bad_line_is_named_and_skipped_on_demand(
    name: str, put: Callable[[str | bytes], Path], home: Path
) -> None:
    lines = sample(name).read_bytes().splitlines()
    at = next(n for n, line in enumerate(lines) if n and not line.startswith(b";"))
    bad = [lines[at] + b"|x,y\tz 1", b"", b"\xff" + lines[at], lines[at].replace(b"1", b"\0")]
    path = put(b"\n".join([*lines[:at], *bad, *lines[at:], b""]))
    problems = read_faults(name, path)
    assert [text.partition(": ")[0] for text in problems] == [
        f"{path}, line {at + n}" for n in (1, 3, 4)
    ]
    assert_states(problems[1], "UTF-8", "0xff at byte 1")
    assert_states(problems[2], "UTF-8", "0x00 at byte ")
    rows = len([line for line in lines if line and line[:1] != b";"]) + 3
    rows -= 0 if name in ("swf", "gavel") else 1
    assert_states(problems[-1], f"3 of {rows} rows malformed", "--skip-bad")
    assert not home.exists() or list(home.iterdir()) == []
    added = store.add(name, [path], "mine", skip_bad=True)
    assert added.rows == {"jobs": KEPT[name]}
    assert added.quality["wrong"] == 3
    assert added.quality["wrong_examples"][1].startswith(f"log.txt, line {at + 3}: ")


@TEXT
def test_files_that_are_not_logs_are_refused(
    name: str, put: Callable[[str | bytes], Path], tmp_path: Path
) -> None:
    data = sample(name).read_bytes()
    packed = gzip.compress(data * 500)
    for content in (
        b"",
        b"\n\n",
        bytes(range(256)) * 50,
        data.splitlines()[0][:5],
        packed[: len(packed) // 2],
        b"\x1f\x8b" + b"x" * 40,
        data.decode().encode("utf-16"),
    ):
        assert all(str(tmp_path) in text for text in read_faults(name, put(content)))
    for path in (tmp_path, tmp_path / "none", tmp_path / "x\0y"):
        assert read_faults(name, path)


@settings(
    max_examples=examples(150),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_damage_raises_only_trace_errors(tmp_path: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(FILES)))
    content = bytearray(sample(name).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content)))
        content[at : at + data.draw(st.integers(0, 3))] = data.draw(
            st.sampled_from([b"", b",", b"\n", b'"', b"-", b"9e9", b"nan", b"\xff", b"|", b"\r"])
        )
    path = tmp_path / "log.txt"
    path.write_bytes(content)
    problems: Sequence[Problem] = ()
    try:
        import_trace(name, [path])
    except TraceError as error:
        problems = error.problems
    assert all(str(path) in str(problem) for problem in problems)


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
@TEXT
def test_the_size_of_a_batch_changes_nothing(
    name: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = import_trace(name, [sample(name)])
    real = textfile._blocks
    monkeypatch.setattr(textfile, "_blocks", lambda path, block_bytes: real(path, size))
    found = import_trace(name, [sample(name)])
    assert found.tables == expected.tables
    assert found.quality == expected.quality


def test_ambiguous_and_unknown_files(tmp_path: Path, put: Callable[[str | bytes], Path]) -> None:
    with pytest.raises(TraceError, match=r"no format .*: acme, "):
        import_trace("auto", [put("a,b\n1,2\n")])
    header = "timestamp,duration,num_gpus,gpu_time,cluster,submit_time_s,gpus\n"
    with pytest.raises(TraceError, match="csv or philly-csv"):
        import_trace("auto", [put(header)])
    with pytest.raises(InputError, match=r"auto .*paths"):
        import_trace("auto", [])


def test_columns_by_mapping(put: Callable[[str | bytes], Path], home: Path) -> None:
    path = put("when,n,kind\n2024-01-05T00:00:00+01:00,4,A100\n2024-01-04 23:30:00Z,1,\n")
    mapping = {"submit_time_s": "when", "gpus": "n", "gpu_type": "kind"}
    added = store.add("csv", [path], "mine", options=ImportOptions(mapping))
    rows = store.find("mine").tables["jobs"].to_pylist()
    assert [row["job_id"] for row in rows] == ["1", "2"]
    assert [row["submit_time_s"] for row in rows] == [0, 1800]
    assert [row["gpu_type"] for row in rows] == ["A100", None]
    assert "2024-01-04 23:00:00" in added.quality["time_origin"]
    for wrong, facts in (
        ({"colour": "when"}, "'colour'|allowed: job_id, "),
        ({"submit_time_s": "then", "gpus": "n"}, "column then |missing|when, n, kind"),
        ({"gpus": "n"}, "column submit_time_s |missing|--map submit_time_s=COLUMN"),
    ):
        with pytest.raises(InputError) as caught:
            store.add("csv", [path], "other", options=ImportOptions(wrong))
        assert_states(str(caught.value), *facts.split("|"))
    with pytest.raises(InputError, match=r"csv.*swf"):
        store.add("swf", [sample("swf")], "other", options=ImportOptions(mapping))


def test_values_that_break_the_rules(put: Callable[[str | bytes], Path]) -> None:
    head = "job_id,submit_time_s,gpus,duration_s\n"
    for line, facts in (
        ("b,x,1,1", "submit_time_s is 'x'|seconds|a time as"),
        ("b,,1,1", "submit_time_s is empty|seconds|a time as"),
        ("b,0,1.5,1", "gpus is '1.5'|whole number|2147483648"),
        ("b,0,-1,1", "gpus is -1|whole number > 0"),
        ("b,0,1,-2", "duration_s is -2.0|finite number >= 0"),
        ("b,0,1,inf", "duration_s is 'inf'|finite number|seconds"),
        ("b,2024-13-01,1,1", "submit_time_s is '2024-13-01'|seconds|a time as"),
        (",0,1,1", "job_id is absent"),
        ('"b,0,1,1', "quotation mark|not closed"),
        ("b,0,1", "3 values|must have 4"),
    ):
        problems = read_faults("csv", put(head + "\n" + line + "\n"))
        assert_states(problems[0], ", line 3: ", *facts.split("|"))


def test_repeated_ids_are_found_across_batches_and_files(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = sample("slurm").read_text().splitlines()
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("\n".join(lines[:2]) + "\n")
    (tmp_path / "b.txt").write_text(
        lines[0] + "\n" + lines[1].replace("101", "7") + "\n" + lines[1].replace("ann", "bob")
    )
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    added = store.add("slurm", paths, "mine")
    assert added.quality["wrong"] == 0
    assert store.find("mine").tables["jobs"]["job_id"].to_pylist() == ["101", "7", "101#2"]
    assert set(store.find("mine").inputs) == {"a.txt", "b.txt"}


def test_many_malformed_lines_are_cut(put: Callable[[str | bytes], Path], home: Path) -> None:
    path = put("submit_time_s,gpus\n0,1\n" + "".join(f"x{n},1\n" for n in range(50)))
    problems = read_faults("csv", path)
    assert len(problems) == 20
    assert_states(problems[-1], "50 of 51 rows malformed", "first 20", "--skip-bad")
    added = store.add("csv", [path], "mine", skip_bad=True)
    assert added.quality["wrong"] == 50
    assert len(added.quality["wrong_examples"]) == 20
    assert store.list_left_out(added.quality)[-1].endswith("... and 30 more")


def test_equal_faults_are_one_line(put: Callable[[str | bytes], Path], home: Path) -> None:
    path = put("submit_time_s,gpus\n0,1\n" + "x,1\n" * 49 + "y,1\n")
    first, last = read_faults("csv", path)
    assert_states(first, "line 3: submit_time_s is 'x'", "and 48 more rows")
    assert_states(last, "line 52: submit_time_s is 'y'", "50 of 51 rows malformed")
    assert "above" not in last
    added = store.add("csv", [path], "mine", skip_bad=True)
    assert (added.quality["wrong"], added.quality["wrong_shown"]) == (50, 50)
    assert len(store.list_left_out(added.quality)) == 3


def test_malformed_jobs_on_one_line_are_counted_each(put: Callable[[str | bytes], Path]) -> None:
    path = put("[" + ", ".join(['{"jobid": 1}'] * 60 + ["{}"]) + "]")
    assert_states(read_faults("philly-json", path)[-1], "61 of 61 rows malformed")


def test_a_log_without_gpu_jobs(put: Callable[[str | bytes], Path]) -> None:
    (text,) = read_faults("csv", put("submit_time_s,gpus\n0,0\n"))
    assert_states(text, "no GPU job", "of 1 rows 1 asks for no GPU")
    (text,) = read_faults("csv", put("submit_time_s,gpus\n"))
    assert text.endswith("has no rows")


def test_slurm_resources(put: Callable[[str | bytes], Path]) -> None:
    head = "JobID|Submit|Start|Elapsed|TimelimitRaw|State|ReqGRES|NNodes\n"
    line = "{}|2024-01-01T00:00:00|2024-01-01T00:00:01|{}|{}|COMPLETED|{}|{}\n"
    rows = [
        (1, "1-02:03:04", 90, "gpu:2", 3),
        (2, "00:10.500", "Partition_Limit", "gres:gpu:v100:4", 1),
        (3, "10:00:00", "", "craynetwork:1,gpu:a100:1,gpu:h100:1", 1),
    ]
    jobs = import_trace("slurm", [put(head + "".join(line.format(*row) for row in rows))]).tables[
        "jobs"
    ]
    assert jobs["gpus"].to_pylist() == [6, 4, 2]
    assert jobs["gpu_type"].to_pylist() == [None, "v100", "a100|h100"]
    assert jobs["duration_s"].to_pylist() == [93784, 10.5, 36000]
    assert jobs["estimate_s"].to_pylist() == [5400, None, None]
    (text,) = read_faults("slurm", put(head + line.format(1, "soon", 1, "gpu:1", 1)))
    assert_states(text, "line 2: Elapsed is 'soon'", "time span", "1-02:03:04")
    spans = ["03:04", "02:03:04", "1-02:03:04", "1-02:03", "00:00.5"]
    lines = [line.format(n, span, 1, "gpu:1", 1) for n, span in enumerate(spans)]
    jobs = import_trace("slurm", [put(head + "".join(lines))]).tables["jobs"]
    assert jobs["duration_s"].to_pylist() == [184, 7384, 93784, 86523, 0.5]
    assert "no column tells of GPUs" in read_faults("slurm", put("JobID|Submit|Start\n1|2|3\n"))[0]


@pytest.mark.parametrize(
    ("column", "text", "gpus", "kind"),
    [
        ("AllocTRES", "cpu=4,gres/gpu:a100=2,gres/gpu=2,gres/gpumem=4G", 2, "a100"),
        ("AllocTRES", "cpu=4,gres/gpu:1g.5gb=3", 3, None),
        ("AllocTRES", "gres/gpu=two", "gres/gpu is 'two'", None),
        ("AllocTRES", "cpu=1,gres/gpu=4K,node=1", "gres/gpu is '4K'", None),
        ("AllocTRES", "gres/gpu:a100=-2", "gres/gpu:a100 is '-2'", None),
        ("AllocTRES", "gres/gpu=", "gres/gpu is empty", None),
        ("AllocGRES", "gpu:a100:2(S:0,1),craynetwork:1", 2, "a100"),
        ("AllocGRES", "gpu:a100_1g.5gb:2", 2, "a100"),
        ("AllocGRES", "gpu", 1, None),
        ("AllocGRES", "gpu:4K", "gpu is '4K'", None),
        ("AllocGRES", "gpu:a100:x", "gpu:a100 is 'x'", None),
    ],
)
def test_slurm_counts_of_gpus(
    put: Callable[[str | bytes], Path], column: str, text: str, gpus: int | str, kind: str | None
) -> None:
    line = "{}|2024-01-01T00:00:00|2024-01-01T00:00:01|60|{}\n"
    none = "gres/gpu=0" if column.endswith("TRES") else "gpu:0"
    path = put(
        f"JobID|Submit|Start|ElapsedRaw|{column}\n" + line.format(1, text) + line.format(2, none)
    )
    if isinstance(gpus, str):
        (problem,) = read_faults("slurm", path)
        expected = f"line 2: {column}: {gpus}, must be a whole number > 0, or 0 for none"
        assert expected in problem
        return
    trace = import_trace("slurm", [path])
    assert trace.tables["jobs"].select(["gpus", "gpu_type"]).to_pylist() == [
        {"gpus": gpus, "gpu_type": kind}
    ]
    assert trace.quality["dropped"] == {"asks for no GPU": 1}


def test_slurm_times_out_of_order_are_doubts(put: Callable[[str | bytes], Path]) -> None:
    day = "2024-01-01T00:00:"
    rows = [
        f"1|{day}05|{day}04|{day}09|gres/gpu=1|{{}}",
        f"2|{day}05|{day}06|{day}02|gres/gpu=1|{{}}",
        f"3|{day}05|{day}06|{day}09|gres/gpu=1|{{}}",
    ]
    text = "JobID|Submit|Start|End|AllocTRES|{}\n" + "\n".join(rows)
    known = import_trace("slurm", [put(text.format("ElapsedRaw", 5, 6, 3))])
    assert known.tables["jobs"]["duration_s"].to_pylist() == [5, 6, 3]
    assert known.quality["doubts"] == {EARLY: 1, "End before Start": 1}
    unknown = import_trace("slurm", [put(text.format("Comment", *"abc"))])
    assert unknown.tables["jobs"]["duration_s"].to_pylist() == [5, None, 3]
    what = "End before Start, so without a duration"
    assert unknown.quality["doubts"] == {EARLY: 1, what: 1}


@pytest.mark.parametrize("size", [1, 64, 10_000])
def test_the_less_frequent_kind_of_times_is_reported(
    put: Callable[[str | bytes], Path], size: int, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    real = textfile._blocks
    monkeypatch.setattr(textfile, "_blocks", lambda path, block_bytes: real(path, size))
    numbers = [f"{n},{60 * n},1" for n in range(30)]
    path = put(
        "\n".join(["job_id,t,gpus", "d,2024-01-01 00:00:00,0.5", *numbers, "3,7,1", "x,y,1"])
    )
    mapping = {"submit_time_s": "t"}
    with pytest.raises(TraceError) as caught:
        store.add("csv", [path], "mine", options=ImportOptions(mapping))
    found = [str(problem).removeprefix(f"{path}, ") for problem in caught.value.problems]
    assert_states(
        found[0],
        "line 2: t is '2024-01-01 00:00:00', ",
        "numbers of seconds",
        "one kind",
        "; gpus is '0.5', ",
        "whole number below 2147483648",
    )
    assert [text.partition(":")[0] for text in found] == ["line 2", "line 33", "line 34"]
    assert_states(found[1], "job_id '3' ", "log.txt, line 6")
    assert store.add("csv", [path], "mine", options=ImportOptions(mapping), skip_bad=True).rows == {
        "jobs": 30
    }
    dates = [f"d{n},2024-01-01 00:00:{n}0,1" for n in range(4)]
    path = put("\n".join(["job_id,submit_time_s,gpus", "a,5,1", *dates]))
    (text,) = read_faults("csv", path)
    assert_states(text, "line 2: submit_time_s is '5', ", "dates", "one kind")


def test_messages_name_the_columns_of_the_file(put: Callable[[str | bytes], Path]) -> None:
    path = put("id,t,long,n\na,0,-1,1\nb,0,10 min,-2\na,0,1,1\n")
    mapping = {"job_id": "id", "submit_time_s": "t", "duration_s": "long", "gpus": "n"}
    with pytest.raises(TraceError) as caught:
        store.add("csv", [path], "mine", options=ImportOptions(mapping))
    first, second = (problem.message for problem in caught.value.problems[:2])
    assert_states(first, "long is -1.0, ", "finite number >= 0, ", "1e15")
    assert_states(second, "long is '10 min', ", "finite number", "seconds")


def test_auto_reports_files_that_are_not_text(put: Callable[[str | bytes], Path]) -> None:
    for content, facts in (
        (b"\xb0\xff\n", "UTF-8|0xb0 at byte 1"),
        (b"PK\0\n", "UTF-8|0x00 at byte 3"),
        (b"", "empty"),
        (b" \n\n", "empty"),
    ):
        for form in ("auto", "csv", "slurm"):
            (found,) = read_faults(form, put(content))
            assert_states(found, *facts.split("|"))


def test_times_in_milliseconds_are_a_doubt(put: Callable[[str | bytes], Path]) -> None:
    path = put("submit_time_s,gpus\n1704067200000,1\n1704067260000,1\n")
    ((doubt, count),) = import_trace("csv", [path]).quality["doubts"].items()
    assert_states(doubt, "after the year 2100", "seconds since 1970", "milliseconds")
    assert count == 2
    path = put("submit_time_s,gpus\n1704067200,1\n1704067260,1\n")
    assert import_trace("csv", [path]).quality["doubts"] == {}


def test_gavel_durations_come_from_throughputs(tmp_path: Path) -> None:
    trace = import_trace("gavel", [sample("gavel"), SAMPLES / "gavel.json"])
    assert trace.tables["jobs"]["duration_s"].to_pylist() == [50.0, None, None]
    assert set(trace.inputs) == {"gavel.trace", "gavel.json"}
    assert trace.origin == "modelled"
    older = tmp_path / "older.trace"
    lines = [line.split("\t") for line in sample("gavel").read_text().splitlines()]
    older.write_text("".join("\t".join(line[:2] + line[3:]) + "\n" for line in lines))
    assert import_trace("auto", [older]).tables["jobs"]["gpus"].to_pylist() == [1, 2, 1]
    for text in ("", "[]", "{}", '{"v100": {"x": 1}}', '{"v100": {"(\'a\', 1)": {"null": "x"}}}'):
        (tmp_path / "t.json").write_text(text)
        with pytest.raises(TraceError, match=r"t\.json"):
            import_trace("gavel", [sample("gavel"), tmp_path / "t.json"])


def test_philly(shared: Path) -> None:
    trace = import_trace("auto", [shared / "data/philly/philly.csv"])
    jobs = trace.tables["jobs"]
    assert (trace.format, jobs.num_rows, trace.quality["rows"]) == ("philly-csv", 82247, 82247)
    assert float(np.asarray(jobs["submit_time_s"]).max()) / 86400 == pytest.approx(109, abs=1)


def test_the_command(inside: Command, tmp_path: Path) -> None:
    done = inside("traces", "import", "auto", sample("slurm"), "--name", "mine")
    assert_states(done.stdout, " 3 jobs\n", " 2 dropped: is a step of a job\n")
    path = tmp_path / "bad.csv"
    path.write_text("when,n\n0,1\nx,1\n")
    maps = ("--map", "submit_time_s=when", "--map", "gpus=n")
    done = inside("traces", "import", "csv", path, *maps, code=2)
    assert_states(done.stderr, "bad.csv, line 3: when is 'x', ", "number of seconds")
    done = inside("traces", "import", "csv", path, *maps, "--skip-bad")
    assert_states(done.stdout, " 1 malformed", "bad.csv, line 3: when is 'x'")
    meta = json.loads((tmp_path / "library/bad/trace.json").read_text())
    assert (meta["version"], meta["quality"]["wrong"]) == (2, 1)
    inside("traces", "import", "csv", path, *maps, "--skip-bad", code=2)
    done = inside("traces", "import", "csv", path, "--map", "gpus", code=2)
    assert "allowed: CANONICAL=COLUMN" in done.stderr
    path.write_text("submit_time_s,gpus\n" + "0,1\n" * 9 + "x,1\n")
    done = inside("traces", "import", "csv", path, "--name", "few", "--skip-bad")
    assert "Warning" not in done.stderr
    path.write_text("submit_time_s,gpus\n" + "0,1\n" * 8 + "x,1\n" * 2)
    done = inside("traces", "import", "csv", path, "--name", "many", "--skip-bad")
    assert_states(done.stderr, "Warning: ", "2 of 10 rows (20.0 %)", "malformed", "left out")


# Not ru_maxrss: that one also counts what the process was before it became this program.
PEAK = """
import re, sys
from pathlib import Path
from wattkeeper.traces.library import store
store.add("helios", [Path(sys.argv[1])], sys.argv[2])
print(re.search(r"VmHWM:\\s+([0-9]+) kB", Path("/proc/self/status").read_text())[1])
"""


def peak_bytes(path: Path, home: Path, name: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(path), name],
        env={**os.environ, "WATTKEEPER_TRACES": str(home)},
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout) * 1024


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="only Linux tells the peak")
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    header, *rest = sample("helios").read_text().splitlines(keepends=True)
    line = rest[0].partition(",")[2]
    sizes = []
    for name, jobs in (("small", 60_000), ("large", 600_000)):
        path = tmp_path / f"{name}.csv"
        path.write_text(header + "".join(f"{n},{line}" for n in range(jobs)))
        sizes.append((path.stat().st_size, peak_bytes(path, tmp_path / "library", name)))
    (small, before), (large, after) = sizes
    assert large > 55e6
    assert after - before < 0.5 * (large - small), (sizes, after - before)


def test_every_job_log_has_a_way_to_be_recognised() -> None:
    known = [form for form in registry().values() if isinstance(form, JobsFormat)]
    assert {form.name for form in known} >= set(FILES)
    for form in known:
        assert form.source
        assert form.licence
        assert form.time_unit
        assert form.cannot_tell
        assert form.sniff(Path("nowhere")) is False


def test_options_serve_other_formats(put: Callable[[str | bytes], Path], home: Path) -> None:
    partitions = home.parent / "clusters.csv"
    partitions.write_text("queue,limit,gpu_type\nvc1,1-00:00:00,V100\n")
    asked = ImportOptions(
        partitions=partitions, default_estimate_s=9.0, since="2020-06-09 18:41:01"
    )
    store.add("helios", [sample("helios")], "h", options=asked)
    jobs = store.find("h").tables["jobs"]
    assert jobs["gpu_type"].to_pylist() == ["V100", None]
    assert jobs["estimate_s"].to_pylist() == [86400, 9]
    lines = sample("helios").read_text().splitlines()
    bare = put("\n".join(lines[1:]))
    store.add("helios", [bare], "bare", options=ImportOptions(columns=tuple(lines[0].split(","))))
    assert (
        store.find("bare").tables["jobs"]
        == import_trace("helios", [sample("helios")]).tables["jobs"]
    )
    assert_states(read_faults("helios", bare)[0], "line 1: is no header", "--columns job_id")
    semicolons = put("at;takes;gpus\n5;1,5;1\n")
    assert_states(read_faults("csv", semicolons)[0], "line 1", "';'", "','", "at;takes;gpus")
    asked = ImportOptions(columns=("submit_time_s", "x", "gpus"), since="10", until="20")
    store.add("csv", [put("5,a,1\n10,b,2\n19,c,3\n20,d,4\n")], "c", options=asked)
    jobs = store.find("c").tables["jobs"]
    assert jobs["job_id"].to_pylist() == ["2", "3"]
    assert jobs["submit_time_s"].to_pylist() == [0, 9]
