"""Logs of Slurm as clusters have them: requeues, steps, energy, partitions, windows, no header."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.messages import assert_states
from tests.support.traces import import_trace
from wattkeeper.policies.errors import InputError, TraceError, WattkeeperError
from wattkeeper.traces.formats import slurm
from wattkeeper.traces.library import store
from wattkeeper.traces.library.tries import AGAIN, EARLIER
from wattkeeper.traces.readers import textfile
from wattkeeper.traces.readers.base import ImportOptions
from wattkeeper.traces.trace import Trace

HEAD = (
    "JobID|User|Account|QOS|Partition|Submit|Start|End|ElapsedRaw|Timelimit|State|AllocTRES|"
    "ConsumedEnergyRaw|TRESUsageInTot"
)


def line(job: str, submit: str, start: str, end: str, **changes: Any) -> str:
    """A line of sacct; times are HH:MM of one day."""

    def seconds(text: str) -> int:
        return 3600 * int(text[:2]) + 60 * int(text[3:])

    def date(text: str) -> str:
        return text if text == "Unknown" else f"2024-03-01T{text}:00"

    known = "Unknown" not in (start, end)
    row = {
        "job": job,
        "user": "ann",
        "account": "lab",
        "qos": "normal",
        "partition": "gpu",
        "submit": date(submit),
        "start": date(start),
        "end": date(end),
        "elapsed": seconds(end) - seconds(start) if known else 0,
        "limit": "02:00:00",
        "state": "COMPLETED",
        "tres": "cpu=4,gres/gpu=2,node=1",
        "energy": "",
        "usage": "",
    }
    return "|".join(str(value) for value in (row | changes).values())


def step(job: str, energy: object = "", usage: str = "") -> str:
    """A line of a step."""
    return line(job, "10:00", "10:00", "11:00", user="", tres="cpu=4", energy=energy, usage=usage)


@pytest.fixture
def put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    monkeypatch.setenv("WATTKEEPER_TRACES", str(tmp_path / "library"))

    def write(*lines: str, name: str = "sacct.txt", end: str = "\n") -> Path:
        path = tmp_path / name
        path.write_bytes((end.join(lines) + end).encode())
        return path

    return write


def add(path: Path | list[Path], skip_bad: bool = False, **options: Any) -> Trace:
    paths = path if isinstance(path, list) else [path]
    asked = ImportOptions(**options)
    store.add("slurm", paths, "mine", replace=True, options=asked, skip_bad=skip_bad)
    return store.find("mine")


def column(trace: Trace, name: str) -> Any:
    return trace.tables["jobs"][name].to_pylist()


def read_faults(path: Path, **options: Any) -> str:
    with pytest.raises(WattkeeperError) as caught:
        add(path, **options)
    return str(caught.value)


def test_a_requeued_job_is_one_job_whose_last_try_counts(put: Callable[..., Path]) -> None:
    path = put(
        HEAD,
        line("7", "09:00", "09:10", "10:10", state="NODE_FAIL", energy=5000),
        line("8", "09:30", "09:30", "10:00"),
        line("7", "10:10", "10:40", "12:40", energy=9000, tres="gres/gpu:a100=4"),
        line("7", "12:40", "Unknown", "13:00", state="CANCELLED by 3", tres=""),
    )
    trace = add(path)
    assert column(trace, "job_id") == ["8", "7"]
    assert column(trace, "submit_time_s") == [1800, 0]
    assert column(trace, "start_time_s") == [1800, 6000]
    assert column(trace, "duration_s") == [1800, 7200]
    assert column(trace, "tries") == [1, 2]
    assert column(trace, "energy_j") == [None, 9000]
    assert column(trace, "gpus") == [2, 4]
    assert trace.quality["dropped"] == {EARLIER: 1, "never started": 1}
    assert_states(trace.notes[0], "1 jobs", "last try", "2.0 GPU hours")


def test_a_job_in_the_files_of_two_months_counts_once(put: Callable[..., Path]) -> None:
    running = line("7", "09:00", "09:10", "Unknown", state="RUNNING")
    first = put(HEAD, line("6", "08:00", "08:00", "08:30"), running)
    second = put(HEAD, line("7", "09:00", "09:10", "10:10"), name="april.txt")
    for paths in ([first, second], [second, first]):
        trace = add(paths)
        assert sorted(column(trace, "job_id")) == ["6", "7"]
        assert None not in column(trace, "duration_s")
        assert column(trace, "tries") == [None, None]
        assert trace.quality["dropped"] == {AGAIN: 1}


def test_rows_of_two_users_are_two_jobs(put: Callable[..., Path]) -> None:
    path = put(
        HEAD, line("7", "09:00", "09:10", "10:10"), line("7", "11:00", "11:10", "12:10", user="bob")
    )
    trace = add(path)
    assert column(trace, "job_id") == ["7", "7#2"]
    assert column(trace, "user") == ["ann", "bob"]
    assert column(trace, "start_time_s") == [600, 7800]
    assert_states(trace.notes[0], "1 jobs have a number", "of another user")


@pytest.mark.parametrize("block", [1, 100, 1 << 21])
def test_energy_and_parts_across_blocks(
    put: Callable[..., Path], block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = textfile._blocks
    monkeypatch.setattr(textfile, "_blocks", lambda path, _: real(path, block))
    path = put(
        HEAD,
        line("1", "10:00", "10:00", "11:00", energy=777),
        step("1.batch", 5),
        step("1.0", 6),
        line("2", "10:00", "10:00", "11:00"),
        step("2.batch", 50),
        step("2.0", 30),
        step("2.1", usage="cpu=00:01:00,energy=40,mem=3K"),
        line("3", "10:00", "10:00", "11:00"),
        step("3.batch", 5),
        step("3.extern", "99"),
        step("3.0", 200),
        line("4", "10:00", "10:00", "11:00", energy=0),
        step("4.batch", 18446744073709551614),
        line("5_1", "10:00", "10:00", "11:00", energy="18446744073709551615"),
        step("5_2.0", 9),
        line("6+0", "10:00", "10:20", "11:00", tres="gres/gpu:a100=8", energy=100),
        step("6+0.0", 4),
        line("6+1", "10:00", "10:20", "11:00", tres="gres/gpu:a100=4"),
        step("6+1.0", 300),
        line("6+2", "10:00", "10:20", "11:00", tres="cpu=64"),
        line("7", "10:00", "10:00", "11:00", tres="energy=42,gres/gpu=1"),
        line("8", "10:00", "10:00", "11:00", energy=2**50),
    )
    trace = add(path)
    assert column(trace, "job_id") == ["1", "2", "3", "4", "5_1", "6", "7", "8"]
    assert column(trace, "energy_j") == [777, 70, 99, None, None, 400, 42, None]
    assert column(trace, "gpus") == [2, 2, 2, 2, 2, 12, 1, 2]
    assert column(trace, "gpu_type")[5] == "a100"
    parts = "is a part of a heterogeneous job, counted in its first part"
    assert trace.quality["dropped"] == {"asks for no GPU": 1, "is a step of a job": 12, parts: 1}
    assert list(trace.quality["doubts"].values()) == [1]
    whole = import_trace("slurm", [path])
    assert whole.tables == trace.tables


def test_parts_with_different_types_are_a_doubt(put: Callable[..., Path]) -> None:
    parts = [
        line(f"6+{n}", "10:00", "10:20", "11:00", tres=f"gres/gpu:{kind}=1")
        for n, kind in enumerate(("a100", "h100"))
    ]
    trace = add(put(HEAD, *parts))
    assert (column(trace, "gpus"), column(trace, "gpu_type")) == ([2], ["a100|h100"])
    assert any("several GPU types" in what for what in trace.quality["doubts"])


@pytest.mark.parametrize(
    ("text", "usage"), [("1.5K", ""), ("", "energy=1.5K"), ("1500", "energy=3"), ("0.0015M", "")]
)
def test_energy_with_units(put: Callable[..., Path], text: str, usage: str) -> None:
    trace = add(put(HEAD, line("1", "10:00", "10:00", "11:00", energy=text, usage=usage)))
    assert column(trace, "energy_j") == [1500]


@pytest.mark.parametrize(("text", "usage"), [("-3", ""), ("lots", ""), ("", "cpu=1,energy=x")])
def test_wrong_energy_is_named(put: Callable[..., Path], text: str, usage: str) -> None:
    for lines in (
        [line("1", "10:00", "10:00", "11:00", energy=text, usage=usage)],
        [step("1.0", text, usage)],
    ):
        path = put(HEAD, line("0", "10:00", "10:00", "11:00"), *lines)
        name = "TRESUsageInTot: energy is 'x'" if usage else f"ConsumedEnergyRaw is '{text}'"
        assert_states(read_faults(path), "line 3: ", name, "joules >= 0")


def test_limits_and_types_by_partition(put: Callable[..., Path], tmp_path: Path) -> None:
    path = put(
        HEAD,
        line("1", "10:00", "10:00", "11:00", limit="UNLIMITED"),
        line("2", "10:01", "10:01", "11:00", limit="Partition_Limit", partition="long"),
        line("3", "10:02", "10:02", "11:00", tres="gres/gpu:v100=1"),
        line("4", "10:03", "10:03", "11:00", limit="UNLIMITED", partition="other"),
    )
    sinfo = put(
        "PARTITION|TIMELIMIT|GRES",
        "gpu*|2-00:00:00|gpu:a100:8(S:0-1)",
        "gpu*|2-00:00:00|gpu:h100:4",
        "long|infinite|(null)",
        name="sinfo.txt",
    )
    trace = add(path, partitions=sinfo, default_estimate_s=60.0)
    assert column(trace, "estimate_s") == [172800, 60, 7200, 60]
    assert column(trace, "gpu_type") == ["a100|h100", None, "v100", None]
    assert_states(
        "\n".join(trace.notes),
        "1 jobs without an estimate",
        "1 jobs without a GPU type",
        "sinfo.txt",
        "2 jobs without an estimate have 60 s",
        "1 jobs are in no partition",
        "other",
    )
    assert set(trace.inputs) == {"sacct.txt", "sinfo.txt"}
    assert trace.parameters == {"default_estimate_s": 60.0, "partitions": "sinfo.txt"}
    named = put("partition,limit_s,gpu_type", "gpu,5,A100", name="p.csv")
    trace = add(path, partitions=named)
    assert column(trace, "estimate_s") == [5, None, 7200, None]
    for content, facts in (
        ("name,limit\ngpu,1:00", "needed are partition"),
        ("partition,limit\ngpu,soon", "p.csv, line 2: limit is 'soon'|infinite"),
        ("partition,limit_s\ngpu,-1", "line 2: limit_s is '-1'|> 0"),
        ("partition|gres\ngpu|gpu:a100:x", "line 2: gres: gpu:a100 is 'x'"),
        ("partition,limit_s\ncpu,1", "names no partition of these jobs|cpu|gpu"),
        ("partition,limit_s\ncpu,1,2", "line 2: has 3 values"),
    ):
        (tmp_path / "p.csv").write_text(content)
        assert_states(read_faults(path, partitions=tmp_path / "p.csv"), *facts.split("|"))


def test_a_window_of_submissions(put: Callable[..., Path]) -> None:
    path = put(
        HEAD,
        line("1", "08:00", "08:30", "11:00"),
        line("1", "08:00", "08:30", "11:00"),
        line("2", "09:00", "09:30", "10:00", state="REQUEUED"),
        line("3", "10:00", "10:00", "11:00"),
        line("2", "10:30", "10:40", "11:00"),
        line("4", "12:00", "12:00", "13:00"),
    )
    trace = add(path, since="2024-03-01 09:30", until="2024-03-01T12:00:00")
    assert column(trace, "job_id") == ["3"]
    assert column(trace, "submit_time_s") == [0]
    assert trace.quality["time_origin"].startswith("the first submission, 2024-03-01 10:00:00")
    assert trace.quality["dropped"] == {
        AGAIN: 1,
        EARLIER: 1,
        "submitted at or after 2024-03-01T12:00:00 (--until)": 1,
        "submitted before 2024-03-01 09:30 (--from)": 2,
    }
    assert trace.quality["kept"] == 1
    (note,) = (note for note in trace.notes if "ran after it" in note)
    assert_states(note, "2 jobs", "before 2024-03-01 09:30", "3.7 GPU hours")
    names = ("JobID", "Submit", "Start", "AllocTRES")
    wrong = read_faults(path, since="2024-03-01", columns=names)
    assert_states(wrong, "line 1: has 14 values, must have 4")
    for options, facts in (
        ({"since": "100"}, ["have to be dates"]),
        ({"since": "soon"}, ["--from is 'soon'", "2020-01-31 23:59:59"]),
        ({"since": "2024-03-02", "until": "2024-03-01"}, ["2024-03-02", "before the second"]),
        ({"since": "2024-03-02", "until": "7"}, ["both dates"]),
        ({"since": "2025-01-01"}, ["no GPU job", "4 submitted before 2025-01-01"]),
    ):
        assert_states(read_faults(path, **options), *facts)


def test_seconds_of_slurm_count_from_1970(put: Callable[..., Path]) -> None:
    begin = 1_709_287_200  # 2024-03-01 10:00:00 UTC
    row = line("1", "10:00", "10:01", "11:01")
    for after_s, time in ((0, "10:00"), (60, "10:01"), (3660, "11:01")):
        row = row.replace(f"2024-03-01T{time}:00", str(begin + after_s))
    trace = add(put(HEAD, row))
    assert "2024-03-01 10:00:00 (UTC)" in trace.quality["time_origin"]


def test_files_without_header(put: Callable[..., Path]) -> None:
    rows = [line("1", "10:00", "10:00", "11:00"), line("2", "10:00", "10:00", "11:00")]
    path = put(*rows, end="\r\n")
    message = read_faults(path)
    assert_states(message, "sacct.txt, line 1: is no header", "JobID", "--columns JobID,Submit")
    other = read_faults(put(*(row.replace("|", ";") for row in (HEAD, *rows))))
    assert_states(other, "sacct.txt, line 1", "';'", "'|'", HEAD.replace("|", ";"))
    path = put(*rows, end="\r\n")
    trace = add(path, columns=tuple(HEAD.split("|")))
    expected = import_trace("slurm", [put(HEAD, *rows)])
    assert trace.tables == expected.tables
    assert trace.parameters["columns"] == HEAD.split("|")
    path = put(*rows)
    assert_states(read_faults(path, columns=("JobID", "Submit")), "column Start is missing")
    names = ("JobID", "Submit", "Start", "AllocTRES")
    assert_states(read_faults(path, columns=names), "line 1: has 14 values, must have 4")
    with pytest.raises(InputError, match="logs with a header line, not swf"):
        store.add("swf", [path], "other", options=ImportOptions(columns=names))


@pytest.mark.parametrize("text", ["Ystday 10:33", "25 Apr", "03/01-10:00:00", "10:00:00"])
def test_other_formats_of_dates_name_the_variable(put: Callable[..., Path], text: str) -> None:
    row = line("1", "10:00", "10:00", "11:00").replace("2024-03-01T10:00:00", text)
    assert_states(
        read_faults(put(HEAD, row)),
        f"line 2: Submit is '{text}'",
        "SLURM_TIME_FORMAT",
        "'standard'",
    )


LOG = [
    HEAD,
    line("1", "10:00", "10:00", "11:00", energy=777),
    step("1.batch", 5),
    line("2_1", "10:00", "10:00", "11:00", limit="UNLIMITED", energy="1.5K"),
    line("3+0", "10:00", "10:00", "11:00"),
    line("3+1", "10:00", "10:00", "11:00"),
    line("4", "10:00", "10:05", "11:00", state="PREEMPTED"),
    line("4", "11:00", "11:05", "12:00"),
    step("4.extern", usage="energy=9"),
]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_altered_logs_give_a_trace_or_one_message(
    put: Callable[..., Path], data: st.DataObject
) -> None:
    cells = [text.split("|") for text in LOG]
    odd = st.sampled_from(
        [
            "",
            "0",
            "-1",
            "1e400",
            "energy=",
            "|",
            "\0",
            "é",
            "gres/gpu=9999999999",
            "2024-13-01",
            "4.x",
            "9+9.9",
            "+",
            ".",
            "Unknown",
            "nan",
        ]
    )
    for _ in range(data.draw(st.integers(1, 4))):
        row = data.draw(st.integers(0, len(cells) - 1))
        place = data.draw(st.integers(0, len(cells[row]) - 1))
        cells[row][place] = data.draw(odd | st.text(max_size=4))
    order = data.draw(st.permutations(range(1, len(cells))))
    path = put(*("|".join(cells[n]) for n in (0, *order)))
    try:
        trace = import_trace("slurm", [path])
    except TraceError as error:
        for problem in error.problems:
            assert str(path) in str(problem)
    else:
        assert trace.quality["kept"] == trace.tables["jobs"].num_rows


COMMAS = "JobID,User,Partition,Submit,Start,End,Timelimit,AllocTRES,State"


def test_values_separated_by_commas(put: Callable[..., Path]) -> None:
    """Lists of resources hold commas, and sacct quotes nothing; other programs do."""
    common = "ann,gpu,2024-03-01T10:00:00,2024-03-01T10:00:00,2024-03-01T11:00:00,1-00:00:00"
    path = put(
        COMMAS,
        f"1,{common},billing=4,cpu=4,gres/gpu:a100=2,node=1,COMPLETED",
        f"1.batch,{common},cpu=4,COMPLETED",
        f'2,{common},"cpu=4,gres/gpu:a100=1",COMPLETED',
        f"3,{common},gres/gpu=4,FAILED",
        end="\r\n",
    )
    assert slurm.FORMAT.sniff(path)
    trace = add(path)
    assert column(trace, "gpus") == [2, 1, 4]
    assert column(trace, "gpu_type") == ["a100", "a100", None]
    assert column(trace, "status") == ["COMPLETED", "COMPLETED", "FAILED"]
    assert column(trace, "duration_s") == [3600] * 3
    assert column(trace, "estimate_s") == [86400] * 3
    bare = put(*path.read_text().splitlines()[1:])
    assert column(add(bare, columns=tuple(COMMAS.split(","))), "gpus") == [2, 1, 4]


def test_two_lists_of_resources_need_another_delimiter(put: Callable[..., Path]) -> None:
    head = "JobID,Submit,Start,ReqTRES,AllocTRES"
    path = put(head, "1,5,6,cpu=1,gres/gpu=1", "2,5,6,cpu=1,mem=1G,cpu=1,gres/gpu=1")
    assert_states(read_faults(path), "line 3", "7 values", "lists of resources", "|")
    assert column(add(path, skip_bad=True), "gpus") == [1]
    quoted = put(head, '2,5,6,"cpu=1,mem=1G","cpu=1,gres/gpu=1"')
    assert column(add(quoted), "gpus") == [1]


def test_lines_with_too_few_values_are_malformed(put: Callable[..., Path]) -> None:
    path = put("JobID,Submit,Start,AllocTRES", "1,5,6,gres/gpu=1", "2,5,6")
    assert_states(read_faults(path), "line 3", "has 3 values, must have 4")


def test_a_comma_elsewhere_is_not_taken_for_one_of_the_list(put: Callable[..., Path]) -> None:
    head = "JobID,Submit,Start,AllocTRES,User,JobName"
    path = put(head, "1,5,6,gres/gpu=1,ann,a", "2,5,6,cpu=1,gres/gpu=1,ann,a,b")
    assert_states(read_faults(path), "line 3", "has 8 values, must have 6")
