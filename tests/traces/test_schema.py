"""Canonical tables: what is a valid row, and what a message says of one that is not."""

import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.messages import assert_states
from wattkeeper.policies.errors import SHOWN, InputError, TraceError
from wattkeeper.traces.files.names import derive_name, is_name
from wattkeeper.traces.schema import CONVERGENCE, JOBS, KINDS, PROFILES, WORKLOADS, is_optional
from wattkeeper.traces.tables import drop_optional, validate
from wattkeeper.traces.trace import Trace

OPTIONAL_COLUMNS = [field.name for field in JOBS if is_optional(field)]
SCHEMAS = [schema for tables in KINDS.values() for schema in tables.values()]

positive = st.floats(min_value=1e-300, max_value=1e15)
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
wholes = st.integers(1, 2**31 - 1)

profile_rows = st.fixed_dictionaries(
    {
        "workload": texts,
        "gpu_type": texts,
        "gpus": wholes,
        "batch_size": wholes,
        "power_limit_w": positive,
        "time_per_epoch_s": positive,
        "average_power_w": positive,
        "clock_mhz": st.none() | wholes,
    }
)
profile_tables = st.lists(
    profile_rows, min_size=1, max_size=8, unique_by=lambda r: tuple(r[k] for k in list(r)[:5])
)


def job(**changes: object) -> dict[str, object]:
    row: dict[str, object] = {
        "job_id": "a/1",
        "group_id": "a",
        "user": "u",
        "queue": "q",
        "submit_time_s": 0.0,
        "duration_s": 1.0,
        "estimate_s": 2.0,
        "gpus": 1,
        "gpu_milli": 1000,
        "gpu_type": "A100|V100",
        "workload": "w",
        "time_scale": 1.0,
        "status": "Pass",
        "start_time_s": 0.5,
        "tries": 1,
        "energy_j": 3.0,
        "account": "c",
        "qos": "normal",
    }
    return row | changes


def jobs(*rows: dict[str, object]) -> pa.Table:
    nullable = pa.schema([f.with_nullable(True) for f in JOBS])
    return pa.Table.from_pylist(list(rows), schema=nullable)


def read_faults(table: pa.Table, schema: pa.Schema = JOBS) -> list[str]:
    with pytest.raises(TraceError) as caught:
        validate(table, schema, "x.parquet")
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda s: s.metadata[b"table"].decode())
def test_every_field_states_unit_meaning_and_rule(schema: pa.Schema) -> None:
    for field in schema:
        assert field.metadata[b"doc"]
        assert {b"unit", b"rule"} <= set(field.metadata)
        for suffix, unit in (("_s", b"s"), ("_w", b"W")):
            if field.name.endswith(suffix):
                assert field.metadata[b"unit"] == unit


@given(profile_tables)
def test_valid_rows_pass_unchanged(rows: list[dict[str, object]]) -> None:
    table = pa.Table.from_pylist(rows, schema=PROFILES)
    valid = validate(table.select(list(reversed(table.column_names))), PROFILES, "x")
    assert valid.to_pylist() == [dict.fromkeys(PROFILES.names) | row for row in rows]
    assert valid.schema.equals(PROFILES, check_metadata=True)


def test_optional_columns_may_be_absent_and_take_no_memory() -> None:
    stored = jobs(job(), job(job_id="b")).drop_columns(OPTIONAL_COLUMNS)
    valid = validate(stored, JOBS, "x")
    assert valid.schema.equals(JOBS, check_metadata=True)
    assert [valid[name].to_pylist() for name in OPTIONAL_COLUMNS] == [[None, None]] * len(
        OPTIONAL_COLUMNS
    )
    assert len({valid[name].chunk(0).buffers()[-1].address for name in OPTIONAL_COLUMNS}) == 1
    assert drop_optional(valid, JOBS).schema.names == stored.column_names
    filled = valid.drop_columns(["qos"]).append_column("qos", pa.array([None, "high"]))
    assert drop_optional(filled, JOBS).schema.names == [*stored.column_names, "qos"]
    with pytest.raises(TraceError, match="column status is missing"):
        validate(stored.drop_columns(["status"]), JOBS, "x")


@given(
    profile_tables,
    st.data(),
    st.sampled_from(["power_limit_w", "time_per_epoch_s", "average_power_w"]),
    st.sampled_from([0.0, -1.0, math.nan, math.inf, -math.inf]),
)
def test_each_bad_row_is_named(
    rows: list[dict[str, object]], data: st.DataObject, column: str, bad: float
) -> None:
    wrong = data.draw(st.sets(st.sampled_from(range(len(rows))), min_size=1))
    for row in wrong:
        rows[row] = rows[row] | {column: bad}
    message = read_faults(pa.Table.from_pylist(rows, schema=PROFILES), PROFILES)
    assert [text.split(":")[0] for text in message] == [
        f"x.parquet, row {r + 1}" for r in sorted(wrong)
    ]
    for text in message:
        assert_states(text, f"{column} is {bad!r}", "finite number > 0")


@given(profile_tables, st.data())
def test_a_repeated_key_is_named_with_both_rows(
    rows: list[dict[str, object]], data: st.DataObject
) -> None:
    again = data.draw(st.sampled_from(range(len(rows))))
    table = pa.Table.from_pylist([*rows, rows[again]], schema=PROFILES)
    (text,) = read_faults(table, PROFILES)
    assert text.startswith(f"x.parquet, row {len(rows) + 1}: repeats row {again + 1}: ")


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"job_id": None}, "job_id is absent|text that is not empty"),
        ({"job_id": ""}, "job_id is ''|text that is not empty"),
        ({"group_id": ""}, "group_id is ''|text that is not empty"),
        ({"submit_time_s": -1.0}, "submit_time_s is -1.0|finite number >= 0"),
        ({"submit_time_s": None}, "submit_time_s is absent|finite number >= 0"),
        ({"duration_s": math.nan}, "duration_s is nan|finite number >= 0"),
        ({"gpus": 0}, "gpus is 0|whole number > 0"),
        ({"time_scale": 0.0}, "time_scale is 0.0|finite number > 0"),
        ({"gpus": 0, "time_scale": -1.0}, "gpus is 0|whole number > 0; |time_scale is -1.0"),
    ],
)
def test_bad_values(changes: dict[str, object], facts: str) -> None:
    (text,) = read_faults(jobs(job(job_id="b/1"), job(**changes)))
    assert_states(text, *f"x.parquet, row 2: {facts}".split("|"))


def test_nullable_columns_may_be_null() -> None:
    row = job(**{field.name: None for field in JOBS if field.nullable})
    assert validate(jobs(row), JOBS, "x").to_pylist() == [row]


def test_wrong_columns_are_all_named() -> None:
    table = jobs(job()).drop_columns(["gpus"]).append_column("colour", pa.array(["red"]))
    table = table.set_column(0, "job_id", pa.array([1]))
    kind, missing, unknown = read_faults(table)
    assert_states(kind, "x.parquet: column job_id ", "int64", "string")
    assert_states(missing, "x.parquet: column gpus ", "missing", ", ".join(table.column_names))
    assert_states(unknown, "x.parquet: ", "column colour", ", ".join(JOBS.names))


def test_an_empty_table_is_refused() -> None:
    (text,) = read_faults(JOBS.empty_table())
    assert_states(text, "x.parquet: ", "no rows")


def test_many_malformed_rows_are_reported_in_part() -> None:
    rows = [job(job_id=str(n), gpus=0) for n in range(100)]
    with pytest.raises(TraceError) as caught:
        validate(jobs(*rows), JOBS, "x")
    assert len(caught.value.problems) == 100
    assert str(caught.value).endswith("(and 99 more alike, the last one at x, row 100)")
    various = [job(job_id=str(n), gpus=-n) for n in range(100)]
    with pytest.raises(TraceError) as caught:
        validate(jobs(*various), JOBS, "x")
    assert str(caught.value).endswith(f"... and {100 - SHOWN} more")


def test_a_trace_needs_its_tables_and_known_workloads() -> None:
    about = {"format": "f", "origin": "recorded", "source": "s", "licence": "l"}
    with pytest.raises(TraceError, match=r"none.*jobs trace"):
        Trace("t", "jobs", {}, **about)  # type: ignore[arg-type]
    workload = dict(zip(WORKLOADS.names, ["w", "d", "n", "o", 1.0, True, 9, 8], strict=False))
    tables = {
        "profiles": pa.table(
            [["other"], ["G"], [1], [8], [9.0], [1.0], [1.0], *[[None]] * 3], schema=PROFILES
        ),
        "convergence": pa.table([["w"], [8], [1], [1.0], *[[None]] * 6], schema=CONVERGENCE),
        "workloads": pa.Table.from_pylist([workload], schema=WORKLOADS),
    }
    with pytest.raises(TraceError, match=r"'other'.*no row in workloads"):
        Trace("t", "profiles", tables, **about)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a\\b", "-x", ".x", "a b", "é", "a\n", "a\0", "x" * 101]
)
def test_unsafe_names_are_refused(name: str) -> None:
    assert not is_name(name)
    with pytest.raises(InputError, match="allowed are"):
        Trace(name, "jobs", {"jobs": jobs(job())}, "f", "recorded", "s", "l")


@given(st.text())
def test_any_text_gives_an_allowed_name(text: str) -> None:
    assert is_name(derive_name(text))
    if is_name(text):
        assert derive_name(text) == text
