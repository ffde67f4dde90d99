"""Imports of Philly's job log, PAI 2020, openb 2023 and spot 2026: values, faults, damage."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.messages import assert_states
from tests.support.traces import import_trace
from wattkeeper.policies.errors import TraceError, WattkeeperError
from wattkeeper.traces.formats import find_format, philly_json, registry
from wattkeeper.traces.library import folder as folders
from wattkeeper.traces.library.importer import write_jobs
from wattkeeper.traces.readers import json_window
from wattkeeper.traces.readers.base import ImportOptions, JobsFormat
from wattkeeper.traces.trace import Trace

DATA = Path(__file__).parents[2] / "data" / "formats"
PAI = (DATA / "pai_job_table.csv", DATA / "pai_task_table.csv")
SAMPLES = {
    "philly-json": (DATA / "philly_job_log.json",),
    "pai-2020": PAI,
    "openb-2023": (DATA / "openb_pods.csv", DATA / "openb_nodes.csv"),
    "spot-2026": (DATA / "spot_job_info_df.csv", DATA / "spot_node_info_df.csv"),
    "kubernetes": (DATA / "kubernetes_pods.jsonl",),
}


def rows(trace: Trace, *columns: str) -> list[tuple[Any, ...]]:
    found = trace.tables["jobs"].select(list(columns)).to_pydict()
    return list(zip(*found.values(), strict=True))


def read_error(form: str, *paths: Path) -> str:
    with pytest.raises(TraceError) as error:
        import_trace(form, paths)
    return str(error.value)


def import_skipping(form: str, paths: Sequence[Path], folder: Path) -> Trace:
    known = registry()[form]
    assert isinstance(known, JobsFormat)
    write_jobs(known, paths, None, folder, skip_bad=True)
    return folders.read(folder)


def replace_text(tmp_path: Path, path: Path, old: str, new: str) -> Path:
    text = path.read_text()
    assert old in text
    copy = tmp_path / path.name
    copy.write_text(text.replace(old, new))
    return copy


@pytest.mark.parametrize("form", SAMPLES)
def test_files_are_recognised_and_rows_add_up(form: str) -> None:
    paths = SAMPLES[form]
    assert find_format("auto", paths).name == form
    assert all(find_format("auto", [path]).name == form for path in paths)
    trace = import_trace(form, paths)
    quality = trace.quality
    assert quality["rows"] == quality["kept"] + quality["wrong"] + sum(quality["dropped"].values())
    assert quality["kept"] == trace.tables["jobs"].num_rows
    assert quality["cannot_tell"]
    assert folders.files(trace) == folders.files(import_trace(form, paths))


def test_philly_sums_attempts_and_counts_the_gpus_of_the_first() -> None:
    trace = import_trace("philly-json", SAMPLES["philly-json"])
    columns = ("job_id", "user", "queue", "submit_time_s", "duration_s", "gpus", "status")
    assert rows(trace, *columns) == [
        ("application_1_1", "u1", "vc-a", 40.0, 3660.0, 3, "Pass"),
        ("application_1_3", "ü", "vc-b", 0.0, None, 1, "Failed"),
    ]
    assert trace.quality["dropped"] == {
        philly_json.NO_ATTEMPT: 1,
        philly_json.NO_GPU: 1,
        philly_json.NO_SUBMISSION: 1,
    }
    assert "2017-10-02 23:59:50" in trace.quality["time_origin"]


@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_philly_chunks_may_end_anywhere(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = SAMPLES["philly-json"]
    whole = import_trace("philly-json", [path])
    monkeypatch.setattr(json_window, "CHUNK_BYTES", chunk)
    monkeypatch.setattr(philly_json, "BATCH_JOBS", 2)
    assert import_trace("philly-json", [path]).tables["jobs"] == whole.tables["jobs"]
    lines = [
        line
        for batch in philly_json.batches([path], ImportOptions())
        for line in batch.lines.tolist()
    ]
    assert lines == [2, 22, 24, 28, 32]


def test_philly_reads_gzip_with_byte_order_mark(tmp_path: Path) -> None:
    (path,) = SAMPLES["philly-json"]
    packed = tmp_path / "log.json.gz"
    packed.write_bytes(gzip.compress(b"\xef\xbb\xbf" + path.read_bytes()))
    jobs = import_trace("philly-json", [packed]).tables["jobs"]
    assert jobs == import_trace("philly-json", [path]).tables["jobs"]
    packed.write_bytes(packed.read_bytes()[:-40])
    assert_states(read_error("philly-json", packed), packed, "truncated", "gzip")


@pytest.mark.parametrize(
    ("old", "new", "facts"),
    [
        ('"2017-10-03 00:11:00"', '"2017-10-03 00:09:00"', "attempts[0].end_time 2017-10-03 00:09"),
        ('"2017-10-03 00:11:00"', '"2017-13-03 00:11:00"', "end_time is '2017-13-03 00:11:00'"),
        ('"2017-10-03 00:00:30"', "17", "submitted_time is 17, |time YYYY-MM-DD"),
        ('"application_1_1"', '""', "jobid is absent"),
        ('"application_1_1"', '"\\ud800"', "jobid is '\\ud800', |text"),
        ('["gpu0", "gpu1"]', '"gpu0"', "gpus is 'gpu0', |list"),
        ('"user": "u1"\n', '"user": ["u1"]\n', "user is ['u1'], |text"),
    ],
)
def test_philly_names_the_line_of_a_malformed_job(
    tmp_path: Path, old: str, new: str, facts: str
) -> None:
    path = replace_text(tmp_path, SAMPLES["philly-json"][0], old, new)
    message = read_error("philly-json", path)
    assert_states(message, f"{path}, line 2: ", *facts.split("|"))
    trace = import_skipping("philly-json", [path], tmp_path / "out")
    assert trace.quality["wrong"] == 1
    assert rows(trace, "job_id") == [("application_1_3",)]


def test_philly_names_the_line_of_a_later_job(tmp_path: Path) -> None:
    path = replace_text(tmp_path, SAMPLES["philly-json"][0], '["gpu7"]', "7")
    assert_states(read_error("philly-json", path), f"{path}, line 24: gpus is 7, ", "list")


@pytest.mark.parametrize(
    ("content", "facts"),
    [
        ("", "line 1: |no JSON array|found the end of the file"),
        ("{}", "line 1: |no JSON array|found '{'"),
        ("[]", "no jobs"),
        ("[\n{}\n{}]", "line 3: |array|found '{'"),
        ("[\n{},\n{}", "line 3: |array|found the end"),
        ("[\n3]", "line 2: no job |found '3'"),
        ('[\n{"jobid": "x"', "line 2: |job|broken"),
        ("[{}] more", "line 1: |after the end"),
        ('[{"a": ' + "[" * 100_000, "line 1: |job|broken"),
        ('[{"a": ' + "9" * 5_000 + "}]", "line 1: |job|broken"),
    ],
)
def test_philly_damage_is_refused(tmp_path: Path, content: str, facts: str) -> None:
    path = tmp_path / "log.json"
    path.write_text(content)
    assert_states(read_error("philly-json", path), path, *facts.split("|"))


def test_pai_joins_tasks() -> None:
    columns = ("job_id", "user", "submit_time_s", "duration_s", "gpus", "gpu_milli", "gpu_type")
    for paths in (PAI, PAI[::-1]):
        trace = import_trace("pai-2020", paths)
        assert rows(trace, *columns) == [
            ("j-one", "u1", 0.0, 400.0, 1, 1000, "V100"),
            ("j-many", "u1", 10.0, 850.0, 8, 1000, "P100"),
            ("j-share", "u2", 20.0, 70.0, 4, 250, "T4"),
            ("j-running", "u3", 70.0, None, 1, 1000, "MISC"),
        ]
    assert trace.quality["dropped"] == {
        "asks for no GPU": 1,
        "asks for more than one GPU and a fraction for each instance": 1,
        "its tasks ask for different shares of a GPU": 1,
        "its tasks were given different GPU types": 1,
        "no submission time recorded": 1,
    }


def test_pai_takes_header_lines_and_header_files(tmp_path: Path) -> None:
    jobs = import_trace("pai-2020", PAI).tables["jobs"]
    inside, beside = [], []
    for path in PAI:
        header = path.with_suffix(".header").read_text()
        inside.append(tmp_path / f"with_{path.name}")
        inside[-1].write_text(header + path.read_text())
        # The first two columns swapped, and a header file that says so.
        lines = [line.split(",") for line in path.read_text().splitlines()]
        beside.append(tmp_path / path.name)
        swapped = [",".join([line[1], line[0], *line[2:]]) for line in lines]
        beside[-1].write_text("\n".join(swapped))
        names = header.strip().split(",")
        there = beside[-1].with_suffix(".header")
        there.write_text(",".join([names[1], names[0], *names[2:]]))
    assert import_trace("pai-2020", inside).tables["jobs"] == jobs
    headers = [path.with_suffix(".header") for path in beside]
    assert import_trace("pai-2020", beside + headers).tables["jobs"] == jobs
    headers[0].write_text("a,b,c,d,e,f")
    assert_states(read_error("pai-2020", *beside), f"{headers[0]}: ", "a, b")


def test_pai_malformed_tasks_are_named_and_their_jobs_dropped(tmp_path: Path) -> None:
    tasks = replace_text(tmp_path, PAI[1], "29.3,100.0,V100\nj-many", "29.3,lots,V100\nj-many")
    message = read_error("pai-2020", PAI[0], tasks)
    assert_states(message, f"{tasks}, line 1: plan_gpu is 'lots', ", "finite number")
    trace = import_skipping("pai-2020", [PAI[0], tasks], tmp_path / "out")
    assert trace.quality["dropped"]["one of its tasks is malformed"] == 1
    assert trace.quality["wrong"] == 1
    assert rows(trace, "job_id")[0] == ("j-many",)


def test_pai_needs_both_tables(tmp_path: Path) -> None:
    for paths in ((PAI[0],), (PAI[0], PAI[0])):
        assert_states(read_error("pai-2020", *paths), "needed", "pai_job_table.csv (6 columns)")
    packed, absent = tmp_path / "pai_job_table.tar.gz", tmp_path / "absent.csv"
    assert_states(read_error("pai-2020", packed), packed, "unpack")
    assert_states(read_error("pai-2020", absent, PAI[1]), f"{absent}: no such file")


def test_pai_simulator() -> None:
    trace = import_trace("auto", [DATA / "pai_simulator.csv"])
    columns = (
        "job_id",
        "group_id",
        "user",
        "submit_time_s",
        "duration_s",
        "estimate_s",
        "gpus",
        "gpu_milli",
        "gpu_type",
    )
    assert rows(trace, *columns) == [
        ("1", "g1", "u1", 0.0, 400.0, 350.5, 1, 1000, "V100"),
        ("2", None, "u1", 10.0, 0.0, 350.5, 4, 500, "T4"),
        ("3", "g2", "u2", 20.0, 90.0, None, 16, 1000, "V100"),
    ]
    assert sum(trace.quality["dropped"].values()) == 2


def test_openb_pods_and_nodes() -> None:
    trace = import_trace("openb-2023", SAMPLES["openb-2023"])
    columns = (
        "job_id",
        "queue",
        "submit_time_s",
        "duration_s",
        "gpus",
        "gpu_milli",
        "gpu_type",
        "status",
    )
    assert rows(trace, *columns) == [
        ("pod-a", "LS", 0.0, 390.0, 1, 1000, None, "Running"),
        ("pod-b", "BE", 5.0, 200.0, 1, 460, "V100M16|V100M32", "Succeeded"),
        ("pod-d", "Burstable", 20.0, None, 8, 1000, "G2", "Pending"),
    ]
    assert trace.quality["dropped"] == {"asks for no GPU": 1}
    assert trace.tables["nodes"].to_pylist() == [
        {"node_id": "node-0", "gpu_type": "P100", "gpus": 2},
        {"node_id": "node-2", "gpu_type": "G2", "gpus": 8},
    ]
    assert "nodes" not in import_trace("openb-2023", SAMPLES["openb-2023"][:1]).tables


def test_openb_says_what_is_missing_or_wrong(tmp_path: Path) -> None:
    pods, nodes = SAMPLES["openb-2023"]
    message = read_error("openb-2023", DATA / "openb_pods_sizes.csv")
    assert_states(message, "no times", "creation_time, deletion_time, scheduled_time")
    assert_states(read_error("openb-2023", nodes), nodes, "list of pods")
    assert_states(read_error("openb-2023", pods, pods), "one list of pods", "not 2")
    bad = replace_text(tmp_path, pods, "500,900,510", "500,400,490")
    message = read_error("openb-2023", bad)
    assert_states(message, "line 2: deletion_time 400 ", "scheduled_time 490; scheduled_time 490 ")
    bad = replace_text(tmp_path, pods, "pod-b,6000,12288,1,460", "pod-b,6000,12288,1,1460")
    message = read_error("openb-2023", bad)
    assert_states(message, "line 3: gpu_milli is 1460, ", "from 1 to 1000")
    bare = replace_text(tmp_path, nodes, "8,G2", "8,")
    assert_states(read_error("openb-2023", pods, bare), f"{bare}, row 3: model is absent")
    none = replace_text(tmp_path, nodes, "8,G2", "0,")
    none.write_text(none.read_text().replace("2,P100", "0,"))
    assert_states(read_error("openb-2023", pods, none), none, "no node with a GPU")


def test_spot_multiplies_workers() -> None:
    trace = import_trace("spot-2026", SAMPLES["spot-2026"])
    columns = (
        "job_id",
        "user",
        "queue",
        "submit_time_s",
        "duration_s",
        "gpus",
        "gpu_milli",
        "gpu_type",
    )
    assert rows(trace, *columns) == [
        ("101", "13", "HP", 0.0, 2764799.0, 1, 1000, "A10"),
        ("102", "57", "Spot", 30.0, 41060.0, 16, 1000, "A100-SXM4-80GB"),
        ("103", "57", "Spot", 40.0, 7.0, 16, 1000, "A100-SXM4-80GB"),
        ("104", "57", "HP", 50.0, 8.0, 3, 250, "A10"),
    ]
    assert sum(trace.quality["dropped"].values()) == 2
    assert trace.tables["nodes"]["gpus"].to_pylist() == [4, 1]


def test_spot_faults(tmp_path: Path) -> None:
    jobs, nodes = SAMPLES["spot-2026"]
    assert_states(read_error("spot-2026", nodes), nodes, "job_info_df.csv", "needed")
    bad = replace_text(tmp_path, jobs, "15,8,2,40", "15,8,2000000000,40")
    message = read_error("spot-2026", bad)
    assert_states(message, f"{bad}, line 4: gpu_request times worker_num")
    bad = replace_text(tmp_path, jobs, "15,8,2,40", "15,-8,0,")
    message = read_error("spot-2026", bad)
    facts = ("gpu_request is negative", "worker_num is below 1", "submit_time is empty")
    assert_states(message, f"{bad}, line 4: ", *facts)


@pytest.mark.parametrize("form", SAMPLES)
def test_a_missing_file_is_named(form: str, tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    message = read_error(form, *SAMPLES[form][:-1], absent)
    assert_states(message, f"{absent}: ", "such file")


@pytest.mark.parametrize("form", SAMPLES)
@given(data=st.data())
def test_damage_gives_a_message_without_traceback(
    form: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    paths = []
    for path in SAMPLES[form]:
        content = bytearray(path.read_bytes())
        at = data.draw(st.integers(0, len(content)))
        cut = data.draw(st.integers(0, 40))
        content[at : at + cut] = data.draw(st.binary(max_size=6))
        paths.append(folder / path.name)
        paths[-1].write_bytes(content)
    try:
        trace = import_trace(form, paths)
    except WattkeeperError as error:
        message = str(error)
    else:
        message = json.dumps(trace.quality)
        assert trace.tables["jobs"].num_rows
    assert message


def test_real_openb(shared: Path) -> None:
    data = shared / "data" / "openb"
    paths = [data / "openb_pod_list_default.csv", data / "openb_node_list_gpu_node.csv"]
    trace = import_trace("auto", paths)
    assert trace.quality["rows"] == 8152
    assert trace.quality["dropped"] == {"asks for no GPU": 1088}
    assert trace.tables["jobs"]["duration_s"].null_count == 861
    assert sum(trace.tables["nodes"]["gpus"].to_pylist()) == 6212
    assert "has no times" in read_error("openb-2023", data / "openb_pod_list_multigpu50.csv")


def test_real_spot_nodes(shared: Path) -> None:
    nodes = shared / "data" / "spot-2026" / "node_info_df.csv"
    trace = import_trace("spot-2026", [SAMPLES["spot-2026"][0], nodes])
    assert trace.tables["nodes"].num_rows == 4278
    assert sum(trace.tables["nodes"]["gpus"].to_pylist()) == 10412
