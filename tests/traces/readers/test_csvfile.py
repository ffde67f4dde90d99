"""The CSV reader: whatever the bytes, a table or a `TraceError` that says where."""

import csv
import gzip
import io
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.messages import assert_states
from wattkeeper.policies.errors import Problem, TraceError
from wattkeeper.traces.readers.csvfile import read_csv
from wattkeeper.traces.schema import field, table_schema

SCHEMA = table_schema(
    "samples",
    ["name", "run"],
    [
        field("name", pa.string(), "", "a name", "not empty"),
        field("run", pa.int32(), "", "a number", "> 0"),
        field("watts", pa.float64(), "W", "power", "> 0"),
        field("epochs", pa.int32(), "epochs", "may be absent", "> 0", null=True),
    ],
)

HEADER = "name,run,watts,epochs"
GOOD = f"{HEADER}\na,1,2.5,3\na,2,1e2,nan\n"

on_one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def read_faults(tmp_path: Path, data: bytes | str) -> list[str]:
    path = tmp_path / "x.csv"
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    with pytest.raises(TraceError) as caught:
        read_csv(path, SCHEMA)
    return [str(problem).removeprefix(str(path)).lstrip(":, ") for problem in caught.value.problems]


def rows(tmp_path: Path, data: bytes | str) -> list[list[object]]:
    path = tmp_path / "x.csv"
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    table = read_csv(path, SCHEMA).table
    assert table.schema.equals(SCHEMA, check_metadata=True)
    return [list(row.values()) for row in table.to_pylist()]


@pytest.mark.parametrize(
    "data",
    [
        GOOD,
        GOOD.rstrip("\n"),
        GOOD.replace("\n", "\r\n"),
        GOOD.replace("\n", "\n\n"),
        "\n\n" + GOOD,
        "\ufeff" + GOOD,
        GOOD.replace("a,", '"a",').replace("1e2", '"1e2"'),
        GOOD.replace(",", " , "),
        GOOD.replace("nan", ""),
        GOOD.replace("3", "3.0").replace("nan", "NaN"),
        gzip.compress(GOOD.encode(), mtime=0),
    ],
)
def test_variants_of_csv_that_give_the_same_table(tmp_path: Path, data: bytes | str) -> None:
    assert rows(tmp_path, data) == [["a", 1, 2.5, 3], ["a", 2, 100.0, None]]


def test_columns_in_any_order_and_further_ones(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("x,epochs,watts,run,name,y\n?,3,2.5,1,a,\n")
    file = read_csv(path, SCHEMA)
    assert file.table.to_pylist() == [{"name": "a", "run": 1, "watts": 2.5, "epochs": 3}]
    assert file.extra == ("x", "y")
    assert len(file.sha256) == 64


@pytest.mark.parametrize(
    ("data", "facts"),
    [
        ("", "is empty|header|rows"),
        (" \n\n", "is empty|header|rows"),
        (HEADER, "header|no rows"),
        (HEADER + "\n", "header|no rows"),
        (
            "name,run,watts\na,1,2\n",
            "header: column epochs |missing|name, run, watts;|name, run, watts, epochs",
        ),
        (
            "name,run,watts,epochs,run\na,1,2,3,4\n",
            "header: column run |2 times|name, run, watts, epochs, run;|name, run, watts, epochs",
        ),
        (GOOD + "a,3\n", "row 3: |2 values|has 4"),
        (GOOD + "a,3,1,1,1\n", "row 3: |5 values|has 4"),
        (GOOD + "\na,x,1,1\n", "row 3: run is 'x'|whole number below 2147483648"),
        (GOOD + "a,1.5,1,1\n", "row 3: run is '1.5'|whole number below 2147483648"),
        (GOOD + "a,1e10,1,1\n", "row 3: run is '1e10'|whole number below 2147483648"),
        (GOOD + "a,,1,1\n", "row 3: run is empty|whole number below 2147483648"),
        (GOOD + "a,0,1,1\n", "row 3: run is 0|whole number > 0"),
        (GOOD + "a,3,nan,1\n", "row 3: watts is nan|finite number > 0"),
        (GOOD + "a,3,inf,1\n", "row 3: watts is inf|finite number > 0"),
        (GOOD + "a,3,1e999,1\n", "row 3: watts is inf|finite number > 0"),
        (GOOD + "a,3,-2,1\n", "row 3: watts is -2.0|finite number > 0"),
        (GOOD + "a,3,0x1,1\n", "row 3: watts is '0x1'|number"),
        (GOOD + "a,3,1,-1\n", "row 3: epochs is -1|whole number > 0"),
        (GOOD + ",3,1,1\n", "row 3: name is ''|text that is not empty"),
        (GOOD + "a,1,1,1\n", "row 3: repeats row 1: |name 'a', run 1|unique"),
        (GOOD + '"a,3,1,1\n', "quotation mark|closed"),
        (GOOD + "a\0,3,1,1\n", "row 3: |UTF-8|0x00 at byte 46"),
        (GOOD.encode() + b"\xff,3,1,1\n", "row 3: |UTF-8|0xff at byte 45"),
        (GOOD.encode("utf-16"), "header: |UTF-8|0xff at byte 1"),
        (bytes(range(256)), "UTF-8|0x00 at byte 1"),
        (gzip.compress(GOOD.encode(), mtime=0)[:-9], "truncated|gzip"),
        (gzip.compress(GOOD.encode(), mtime=0)[:10], "truncated|gzip"),
        (b"\x1f\x8b" + b"x" * 40, "truncated|gzip"),
    ],
)
def test_malformed_files_are_refused(tmp_path: Path, data: bytes | str, facts: str) -> None:
    (text,) = read_faults(tmp_path, data)
    assert_states(text, *facts.split("|"))


def test_malformed_rows_are_reported_at_once(tmp_path: Path) -> None:
    data = f"{HEADER}\na,1,2\nb,x,y,1\n\nc,1,-1,0\nd,1,1,1,1\ne,1,1,1\nf,1,-1,1\n"
    expected = (
        "row 1: |3 values|has 4",
        "row 2: run is 'x', |whole number below 2147483648; |watts is 'y', |number",
        "row 3: watts is -1.0, |finite number > 0, |1e15; |epochs is 0, |whole number > 0",
        "row 4: |5 values|has 4",
        "row 6: watts is -1.0, |finite number > 0, |1e15",
    )
    for text, facts in zip(read_faults(tmp_path, data), expected, strict=True):
        assert_states(text, *facts.split("|"))


def test_paths_that_are_not_files_are_refused(tmp_path: Path) -> None:
    for path, text in (
        (tmp_path, "is a directory"),
        (tmp_path / "none.csv", "no such file"),
        (tmp_path / "x\0y", "cannot be read"),
        (tmp_path / ("x" * 5000), "cannot be read"),
    ):
        with pytest.raises(TraceError, match=text):
            read_csv(path, SCHEMA)


names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1).filter(
    lambda text: text == text.strip()
)
samples = st.lists(
    st.tuples(
        names,
        st.integers(1, 2**31 - 1),
        st.floats(1e-300, 1e15),
        st.none() | st.integers(1, 2**31 - 1),
    ),
    min_size=1,
    unique_by=lambda row: row[:2],
)


@on_one_folder
@given(samples, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.booleans(), st.booleans())
def test_what_the_csv_module_writes_is_read_back(
    tmp_path: Path,
    values: list[tuple[str, int, float, int | None]],
    end: str,
    quoted: bool,
    mark: bool,
    packed: bool,
) -> None:
    text = io.StringIO()
    writer = csv.writer(
        text, lineterminator=end, quoting=csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL
    )
    writer.writerows([HEADER.split(","), *values])
    data = text.getvalue().encode("utf-8-sig" if mark else "utf-8")
    read = rows(tmp_path, gzip.compress(data, mtime=0) if packed else data)
    assert read == [list(row) for row in values]


NASTY = (
    '|a|1|1.5|-1|nan|inf|1e999|1e-999|+5|.5|1_0|0x10|٣|"|"a|"a""b"|"x\ny"|a,b|\n|\r|\0|\u2028|\ufeff|'
    "99999999999999999999"
)
CELLS = st.sampled_from(NASTY.split("|")) | st.text(max_size=4)


@st.composite
def almost_tables(draw: st.DrawFn) -> bytes:
    header = draw(st.permutations(HEADER.split(",")) | st.lists(CELLS, max_size=6))
    lines = draw(st.lists(st.lists(CELLS, min_size=3, max_size=5), max_size=5))
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    text = end.join(",".join(line) for line in [header, *lines])
    return text.encode(draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16"])), "surrogatepass")


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    data = bytearray(GOOD.encode())
    if draw(st.booleans()):
        data = bytearray(gzip.compress(bytes(data), mtime=0))
    for _ in range(draw(st.integers(1, 5))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)


@settings(on_one_folder, max_examples=examples(600))
@given(st.binary(max_size=300) | almost_tables() | damaged())
def test_arbitrary_bytes_raise_only_trace_errors(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(data)
    problems: Sequence[Problem] = ()
    try:
        table = read_csv(path, SCHEMA).table
    except TraceError as error:
        problems = error.problems
    else:
        assert table.num_rows
        assert table.schema.equals(SCHEMA)
    assert all(problem.where.startswith(str(path)) for problem in problems)
