"""A trace in memory: its tables and their origin."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

import pyarrow as pa

from wattkeeper.policies.errors import Problem, TraceError
from wattkeeper.policies.profile import EnergyOf
from wattkeeper.traces.clock_rows import check_clock_rows
from wattkeeper.traces.files.names import check_name, explain_label
from wattkeeper.traces.networks.rows import check_networks
from wattkeeper.traces.node_events import check_node_events
from wattkeeper.traces.schema import KINDS, OPTIONAL
from wattkeeper.traces.tables import add_optional, check_types, validate

Kind = Literal["jobs", "profiles", "node-events", "networks", "power-log"]
Origin = Literal["recorded", "modelled", "synthetic"]
BOUNDARIES: Final[tuple[EnergyOf, ...]] = get_args(EnergyOf)


@dataclass(frozen=True, slots=True)
class Trace:
    """The tables of a trace and their origin. Tables are validated on construction.

    Attributes:
        name: Letters, digits, ``.``, ``_`` and ``-``; starts with a letter or digit.
        kind: ``jobs``, ``profiles``, ``node-events``, ``networks`` or ``power-log``.
        tables: The tables of that kind by name (`schema.KINDS`).
        format: Import format or generator.
        origin: ``recorded`` as measured, ``modelled`` if recorded data was transformed by
            assumptions, ``synthetic`` if all of it was computed.
        source: Citation.
        licence: SPDX name or what is known.
        inputs: SHA-256 (hex) of each input file by name.
        notes: Remarks for readers: assumptions, omitted columns, anomalies.
        parameters: Arguments of the generator, JSON-ready.
        quality: Counts of the import, JSON-ready; see `wattkeeper.traces.readers.base.Quality`.

    Raises:
        InputError: If the name is not allowed.
        TraceError: If tables are missing, unknown or invalid.
    """

    name: str
    kind: Kind
    tables: Mapping[str, pa.Table]
    format: str
    origin: Origin
    source: str
    licence: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    quality: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_name(self.name)
        needed, known = KINDS[self.kind], KINDS[self.kind] | OPTIONAL[self.kind]
        if not set(needed) <= set(self.tables) <= set(known):
            there, need = ", ".join(sorted(self.tables)), ", ".join(needed)
            text = f"tables are {there or 'none'}; a {self.kind} trace has {need}"
            raise TraceError(text, self.name)
        tables = {
            name: _validate(self.tables[name], schema, f"{self.name}/{name}.parquet")
            for name, schema in known.items()
            if name in self.tables
        }
        if self.kind == "profiles":
            _check_workloads(self.name, tables)
            _check_boundaries(tables["profiles"], f"{self.name}/profiles.parquet")
            check_clock_rows(tables["profiles"], f"{self.name}/profiles.parquet")
        elif self.kind == "node-events":
            check_node_events(tables["node-events"], f"{self.name}/node-events.parquet")
        elif self.kind == "networks":
            check_networks(self.name, tables, self.parameters)
        elif self.kind == "jobs":
            _check_models(self.name, tables)
        object.__setattr__(self, "tables", tables)


def _validate(table: pa.Table, schema: pa.Schema, file: str) -> pa.Table:
    """The checked table; that of runs to the target may have no rows."""
    if table.num_rows or schema.metadata[b"table"] != b"convergence":
        return validate(table, schema, file)
    check_types(table.schema, schema, file)
    return add_optional(table, schema).select(schema.names).cast(schema)


def _check_boundaries(table: pa.Table, file: str) -> None:
    """Refuse power of something unknown, of nodes without their number, and two in one profile."""
    names = ("workload", "gpu_type", "gpus", "energy_of", "nodes")
    known: dict[tuple[str, str, int], tuple[str | None, int | None]] = {}
    for row, values in enumerate(zip(*(table[n].to_pylist() for n in names), strict=True), 1):
        *key, of, nodes = values
        where = f"{file}, row {row}"
        if problem := explain_boundary(of, nodes, key[-1]):
            raise TraceError(problem, where)
        first = known.setdefault(tuple(key), (of, nodes))
        if first != (of, nodes):
            text = f"energy_of and nodes are {of} and {nodes}, and {first[0]} and {first[1]} before"
            raise TraceError(f"{text}: a workload has one of each on a GPU type", where)


def explain_boundary(energy_of: str | None, nodes: int | None, gpus: int) -> str:
    """What is wrong with a boundary of energy; empty if nothing is."""
    if energy_of is not None and energy_of not in BOUNDARIES:
        return f"energy_of is {energy_of!r}, must be one of {', '.join(BOUNDARIES)}"
    if energy_of in ("node", "facility") and nodes is None:
        return f"nodes is absent, must be the number of nodes: energy_of is {energy_of}"
    if nodes is not None and gpus % nodes:
        return f"nodes is {nodes}, must divide the number of GPUs, {gpus}"
    return ""


def _check_models(name: str, tables: Mapping[str, pa.Table]) -> None:
    if "models" not in tables and "trainings" not in tables:
        return
    if "models" not in tables or "trainings" not in tables:
        raise TraceError("models and trainings come together, only one of them is there", name)
    for column in ("model", "task"):
        _check_labels(name, tables, "models", column)
    for column, where in (("job_id", "jobs"), ("model", "models")):
        known = set(tables[where][column].to_pylist())
        unknown = [value for value in tables["trainings"][column].to_pylist() if value not in known]
        if unknown:
            text = f"{column} {unknown[0]!r} has no row in {where}"
            raise TraceError(text, f"{name}/trainings.parquet")


def _check_labels(name: str, tables: Mapping[str, pa.Table], table: str, column: str) -> None:
    for row, value in enumerate(tables[table][column].to_pylist(), 1):
        if problem := explain_label(value, column):
            raise TraceError(problem, f"{name}/{table}.parquet, row {row}")


def _check_workloads(name: str, tables: Mapping[str, pa.Table]) -> None:
    _check_labels(name, tables, "workloads", "workload")
    known = set(tables["workloads"]["workload"].to_pylist())
    problems = []
    for table in ("profiles", "convergence", *(["curves"] if "curves" in tables else [])):
        unknown = set(tables[table]["workload"].to_pylist()) - known
        problems += [
            Problem(f"workload {workload!r} has no row in workloads", f"{name}/{table}.parquet")
            for workload in sorted(unknown)
        ]
    if problems:
        raise TraceError(problems)
