"""Limits of every input, by the command in a process of its own whose memory is measured."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import small
from tests.support.messages import assert_states
from tests.support.warm import forker
from wattkeeper.policies.errors import LONGEST_MESSAGE, SHOWN, Problem, TraceError, cut_message
from wattkeeper.traces.limits import (
    LONGEST_LINE_BYTES,
    MOST_BYTES,
    MOST_CELLS,
    MOST_COLUMNS,
    MOST_DETAILS_BYTES,
    MOST_JSON_BYTES,
    MOST_RATIO,
    UNLIMITED_BYTES,
)

MOST_MEMORY = 2 << 30
ADDRESS_SPACE = 6 << 30
"""Stops a reader without a limit before the host has no memory left."""
MOST_CPU_S = 90
"""Stops a reader that would go on for hours."""
LIMITS = {resource.RLIMIT_AS: ADDRESS_SPACE, resource.RLIMIT_CPU: MOST_CPU_S}

GROUPS = "group,start_time,end_time,dataset,runtime_ratio\n"
JOBS = "job_id,submit_time_s,gpus,duration_s\n"
SACCT = "JobID|Submit|Start|End|ElapsedRaw|AllocTRES\n"
ARRIVALS = "name,arrival\n"
LOGS = {
    "csv": JOBS,
    "slurm": SACCT,
    "swf": "; MaxNodes: 128\n",
    "philly-json": "[",
    "gavel": "",
    "zeus-groups": GROUPS,
    "kubernetes": "",
}
SOON = ("swf", "philly-json", "zeus-groups")
"""Formats whose readers see within seconds that a file unpacks to gigabytes."""
DEEP = b"[" * 2_000_000

Refuse = Callable[..., str]


@pytest.fixture
def refuse(tmp_path: Path) -> Refuse:
    """The message of a command that is refused, in little memory and without a traceback."""

    def run(*arguments: str | Path, code: int = 2) -> str:
        environment = {**os.environ, "WATTKEEPER_TRACES": str(tmp_path / "library")}
        done = forker().run([*map(str, arguments)], tmp_path, environment, LIMITS)
        text = done.stdout + done.stderr
        assert "Traceback" not in text, text[-2000:]
        assert done.code == code, text[:2000]
        assert done.peak_bytes < MOST_MEMORY
        assert len(text) <= (SHOWN + 2) * 2 * LONGEST_MESSAGE
        return text

    return run


def write(path: Path, data: bytes | str) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def bomb(path: Path, start: str, repeated: bytes) -> Path:
    """A gzip file of some MB that holds many GB: a start, and a text over and over again."""
    part = gzip.compress(repeated * (UNLIMITED_BYTES // 4 // len(repeated)), mtime=0)
    return write(path, gzip.compress(start.encode()) + part * (4_000_000 // len(part)))


@pytest.mark.parametrize(
    ("form", "repeated"),
    [
        *(
            pytest.param(form, b"a,1,1,1\n", marks=[pytest.mark.slow] * (form not in SOON))
            for form in LOGS
        ),
        *((form, b"\n") for form in ("csv", "zeus-groups", "philly-json")),
        *((form, b" ") for form in ("csv", "philly-json")),
    ],
)
def test_a_file_that_unpacks_to_gigabytes_is_refused(
    refuse: Refuse, tmp_path: Path, form: str, repeated: bytes
) -> None:
    path = bomb(tmp_path / "log.gz", LOGS[form], repeated)
    text = refuse("traces", "import", form, path, "--skip-bad")
    limits = (f"{MOST_RATIO} times", f"{LONGEST_LINE_BYTES:,} bytes", f"{MOST_BYTES:,} bytes")
    expected = (
        "found ';'",
        "found 'a'",
        "has no rows to skip",
        "starts here",
        "7, 9 or 10",
        *limits,
    )
    assert any(part in text for part in expected), text


@pytest.mark.parametrize(
    ("form", "start", "delimiter"),
    [
        ("csv", JOBS.strip(), ","),
        ("zeus-groups", GROUPS.strip(), ","),
        ("slurm", SACCT.strip(), "|"),
        ("gavel", "", "\t"),
    ],
)
def test_a_header_of_a_million_columns_is_refused(
    refuse: Refuse, tmp_path: Path, form: str, start: str, delimiter: str
) -> None:
    many = delimiter.join(f"c{number % 7}" for number in range(200_000))
    path = write(tmp_path / "log.txt", f"{start}{delimiter}{many}\n")
    text = refuse("traces", "import", form, path)
    limit = f"up to {MOST_COLUMNS:,} are read"
    assert ("values, must have" if form == "gavel" else limit) in text


def test_a_column_more_than_the_limit_is_refused_and_the_limit_is_read(tmp_path: Path) -> None:
    from wattkeeper.traces.formats.zeus_groups import read

    more = [f"c{number}" for number in range(MOST_COLUMNS - 5)]
    row = ",".join(["g", "0", "5", "d", "1", *more])
    path = write(tmp_path / "x.csv", f"{GROUPS.strip()},{','.join(more)}\n{row}\n")
    assert read([path]).tables["jobs"].num_rows == 1
    write(path, f"{GROUPS.strip()},{','.join(more)},one\n{row},1\n")
    with pytest.raises(TraceError) as caught:
        read([path])
    assert_states(str(caught.value), path, f"{MOST_COLUMNS + 1:,}", f"{MOST_COLUMNS:,}")


@pytest.mark.parametrize("form", ["csv", "zeus-groups", "slurm", "swf", "gavel"])
def test_a_line_without_an_end_is_refused(refuse: Refuse, tmp_path: Path, form: str) -> None:
    path = write(tmp_path / "log.txt", b"x" * (LONGEST_LINE_BYTES * 8))
    text = refuse("traces", "import", form, path)
    by_line = form in ("swf", "gavel")
    assert_states(text, path, f"{LONGEST_LINE_BYTES:,} bytes" if by_line else ".txt")


def test_a_header_over_many_lines_is_refused(refuse: Refuse, tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", b'"' + b'a\n","' * 500_000 + b'"\n')
    assert_states(refuse("traces", "import", "zeus-groups", path), path, "header")


@pytest.mark.parametrize("what", ["deep", "large"])
def test_json_is_refused_where_it_is_deep_or_large(
    refuse: Refuse, tmp_path: Path, what: str
) -> None:
    data = DEEP if what == "deep" else b"[" + b"[]," * (MOST_JSON_BYTES // 3) + b"[]]"
    path = write(tmp_path / "x.json", data)
    arrivals = write(tmp_path / "arrivals.csv", ARRIVALS + "x,0\n")
    trace = write(tmp_path / "log.trace", "x\n")
    folder = tmp_path / "folder"
    folder.mkdir()
    write(folder / "trace.json", data)
    refuse("traces", "import", "philly-json", path)
    graph = refuse("traces", "import", "modelkeeper", arrivals, path)
    speeds = refuse("traces", "import", "gavel", trace, path)
    fit = refuse("traces", "generate", "jobs", "--fit", path, "--jobs", "1")
    kept = refuse("traces", "describe", folder)
    if what == "large":
        assert_states(graph, path, f"{MOST_JSON_BYTES:,} bytes")
        assert_states(speeds, path, f"{MOST_JSON_BYTES:,} bytes")
        assert_states(fit, path, f"{MOST_DETAILS_BYTES:,} bytes")
        assert_states(kept, folder / "trace.json", f"{MOST_DETAILS_BYTES:,} bytes")


def test_a_graph_with_a_million_wrong_values_is_refused(refuse: Refuse, tmp_path: Path) -> None:
    numbers = "[" + "1," * 3_000_000 + "1]"
    graph = f'{{"model": "m", "num_tensors": 0, "opts": {numbers}, "dims": [], "parents": [], '
    path = write(tmp_path / "m.json", graph + '"layer": []}')
    arrivals = write(tmp_path / "arrivals.csv", ARRIVALS + "m,0\n")
    refuse("traces", "import", "modelkeeper", arrivals, path)


@pytest.mark.parametrize(
    ("header", "row", "form"),
    [
        (GROUPS, "x\n", "zeus-groups"),
        (JOBS, "x\n", "csv"),
        *(
            pytest.param(header, row, form, marks=pytest.mark.slow)
            for header, row, form in (
                (GROUPS, "g,1,0,d,1\n", "zeus-groups"),
                (GROUPS, "g,x,0,d,1\n", "zeus-groups"),
                (GROUPS, ",,,,\n", "zeus-groups"),
                (JOBS, "a,1,x,1\n", "csv"),
                (JOBS, "a,1,1,1\n", "csv"),
            )
        ),
    ],
)
def test_a_million_malformed_rows_are_refused(
    refuse: Refuse, tmp_path: Path, header: str, row: str, form: str
) -> None:
    path = write(tmp_path / "x.csv", header + row * 1_500_000)
    text = refuse("traces", "import", form, path)
    assert "more alike" in text or "--skip-bad" in text


def test_many_cells_are_refused(refuse: Refuse, tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", GROUPS + "," * (MOST_CELLS + 5))
    assert_states(refuse("traces", "import", "zeus-groups", path), path, f"{MOST_CELLS:,}")


def test_different_data_sets_by_the_million_are_refused(refuse: Refuse, tmp_path: Path) -> None:
    header = "dataset,network,batch_size,optimizer,run,target_metric,target_epoch\n"
    rows = "".join(f"d{number},n,1,o,1,1,1\n" for number in range(300_000))
    train = write(tmp_path / "summary_train.csv", header + rows)
    header = "dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power\n"
    power = write(tmp_path / "summary_power_v100.csv", header + "d1,n,1,o,1,1,1\n")
    assert "no published target" in refuse("traces", "import", "zeus-nsdi23", train, power)


def test_brackets_in_accounting_take_linear_time(refuse: Refuse, tmp_path: Path) -> None:
    when = "2024-01-01T00:00:00|2024-01-01T00:00:00|2024-01-01T01:00:00|60|"
    brackets = "(" * (LONGEST_LINE_BYTES - 200)
    path = write(tmp_path / "log.txt", f"{SACCT}1|{when}{brackets}\n")
    assert_states(refuse("traces", "import", "slurm", path), path, "no GPU job")


@pytest.mark.slow
def test_jobs_of_some_megabytes_each_pass_in_small_batches(refuse: Refuse, tmp_path: Path) -> None:
    job = b'{"jobid": 1, "x": [' + b"[]," * 1_000_000 + b"[]]},"
    path = write(tmp_path / "log", b"[" + job * 60 + b"{}]")
    assert_states(refuse("traces", "import", "philly-json", path), path, "61 of 61 rows malformed")


def trace_folder(folder: Path, table: pa.Table) -> Path:
    folder.mkdir()
    pq.write_table(table, folder / "jobs.parquet", compression="zstd")
    digest = hashlib.sha256((folder / "jobs.parquet").read_bytes()).hexdigest()
    meta = {
        "version": 2,
        "name": "x",
        "kind": "jobs",
        "format": "csv",
        "origin": "recorded",
        "source": "x",
        "licence": "x",
        "inputs": {},
        "notes": [],
        "parameters": {},
        "quality": {},
        "tables": {"jobs": {"rows": table.num_rows, "sha256": digest}},
    }
    write(folder / "trace.json", json.dumps(meta))
    return folder


@pytest.mark.parametrize("what", ["text", "numbers", "columns"])
def test_a_table_that_unpacks_to_gigabytes_is_refused(
    refuse: Refuse, tmp_path: Path, what: str
) -> None:
    from wattkeeper.traces.tables import jobs_table

    rows = 30_000_000 if what == "numbers" else 20_000
    if what == "text":
        ids = [str(number) for number in range(rows)]
        plain = jobs_table({"job_id": ids, "submit_time_s": [0.0] * rows, "gpus": [1] * rows})
        long = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), ["x" * 900_000])
        index = plain.schema.get_field_index("user")
        table = plain.set_column(index, "user", long)
        schema = pa.schema([plain.schema.field(n) for n in plain.schema.names])
        folder = trace_folder(tmp_path / "t", table)
        # Read back as text: the dictionary is only how the file stores it.
        stored = pq.ParquetFile(folder / "jobs.parquet").schema_arrow.field("user").type
        assert stored != schema.field("user").type or pa.types.is_string(stored)
    elif what == "numbers":
        folder = trace_folder(tmp_path / "t", pa.table({"gpus": pa.repeat(pa.scalar(1), rows)}))
    else:
        folder = trace_folder(tmp_path / "t", pa.table({f"c{n}": [1] for n in range(20_000)}))
    assert_states(refuse("traces", "describe", folder), folder / "jobs.parquet")


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        (
            "a: &a [x, x, x, x, x, x, x, x, x]\n"
            + "".join(
                f"{c}: &{c} [{', '.join([f'*{p}'] * 9)}]\n"
                for p, c in zip("abcdefgh", "bcdefghi", strict=True)
            ),
            "more than 100000 values",
        ),
        ("a: " + "[" * 5000, "nested more than 32 deep"),
        ("a: " + "{a: " * 5000, "nested more than 32 deep"),
        ("- " * 5000, "nested more than 32 deep"),
        ("a: " + "9" * 500_000, "a"),
        pytest.param("a: " + "1:" * 300_000 + "1", "a", marks=pytest.mark.slow),
        ("a: !!python/object:os.system x", "not allowed"),
        ("x" * 900_000, "a scenario is a mapping"),
        pytest.param("name: " + "x" * 900_000, "name", marks=pytest.mark.slow),
        pytest.param(
            small() + "".join(f"k{number}: 1\n" for number in range(40_000)),
            "unknown key",
            marks=pytest.mark.slow,
        ),
        ("a: b\n" * 20_000, "stands here twice"),
    ],
    ids=[
        "aliases",
        "lists",
        "mappings",
        "dashes",
        "digits",
        "sixties",
        "tag",
        "text",
        "name",
        "keys",
        "twice",
    ],
)
def test_hostile_scenarios_are_refused(
    refuse: Refuse, tmp_path: Path, text: str, facts: str
) -> None:
    path = write(tmp_path / "s.yaml", text)
    assert_states(refuse("validate", path), path, facts)


@pytest.mark.parametrize(
    "setting",
    [
        "name=" + "x" * 100_000,
        "x" * 100_000,
        "seeds=" + "[" * 50_000,
        "seeds=[&a [1], *a, *a]",
        "seeds=" + "9" * 100_000,
        "variants." + "x" * 100_000 + ".policies.configure=zeus",
        "a." * 50_000 + "b=1",
    ],
    ids=["value", "form", "deep", "alias", "digits", "name", "path"],
)
def test_hostile_settings_are_refused(refuse: Refuse, tmp_path: Path, setting: str) -> None:
    path = write(tmp_path / "s.yaml", small())
    assert_states(refuse("validate", path, "--set", setting), "--set ")


@pytest.mark.parametrize(
    ("arguments", "code"), [(("validate",), 2), (("traces", "describe"), 2), (("report",), 3)]
)
def test_long_arguments_are_cut_in_messages(
    refuse: Refuse, arguments: tuple[str, ...], code: int
) -> None:
    assert len(refuse(*arguments, "x" * 100_000, code=code)) < 3 * LONGEST_MESSAGE


def test_long_messages_keep_their_start_and_end() -> None:
    problem = Problem("a" * 10_000 + "; allowed is b", "/folder/" + "c" * 10_000 + ".yaml:7:3")
    text = str(problem)
    assert len(text) <= 2 * LONGEST_MESSAGE
    assert text.startswith("/folder/ccc")
    assert_states(text, ".yaml:7:3: aaa")
    assert text.endswith("; allowed is b")
    assert str(Problem("a" * LONGEST_MESSAGE, "b")) == "b: " + "a" * LONGEST_MESSAGE


@pytest.mark.parametrize("longest", [100, 400, LONGEST_MESSAGE])
@pytest.mark.parametrize("size", [101, 10_000, 2_000_000])
def test_a_cut_text_keeps_its_start_and_end(size: int, longest: int) -> None:
    text = "start " + "x" * (size - 10) + " end"
    cut = cut_message(text, longest)
    assert len(cut) <= longest or cut == text
    assert cut.startswith("start ")
    assert cut.endswith(" end")


@pytest.mark.slow
def test_a_compressed_log_of_a_million_jobs_is_read(tmp_path: Path) -> None:
    rows = "".join(f"{number},{number}.5,1,{number % 977}\n" for number in range(1_000_000))
    path = write(tmp_path / "jobs.csv.gz", gzip.compress((JOBS + rows).encode(), 9))
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    subprocess.run(
        [sys.executable, "-m", "wattkeeper.scenarios", "traces", "import", "csv", str(path)],
        check=True,
        capture_output=True,
        cwd=tmp_path,
        env={**os.environ, "WATTKEEPER_TRACES": str(tmp_path / "library")},
    )
    assert max(before, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) << 10 < MOST_MEMORY
