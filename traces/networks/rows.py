"""Checks of the tables of a trace of kind ``networks``; see `traces.models.network_table`."""

from __future__ import annotations

import itertools
import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

import pyarrow as pa
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from wattkeeper.policies.errors import Problem, TraceError
from wattkeeper.traces.limits import MOST_FAULTS
from wattkeeper.traces.networks.cells import is_cell

MOST_NETWORKS: Final = 1_000_000
"""Of a space."""
MOST_CHOICES: Final = 1000
"""For a name."""


def check_networks(
    name: str, tables: Mapping[str, pa.Table], parameters: Mapping[str, Any]
) -> None:
    """Check that a table has all networks of its space, and recordings of these.

    Raises:
        TraceError: If not.
    """
    if not _is_space(parameters.get("space")):
        what = "parameters.space: a list of names, each with a list of different texts, is needed"
        raise TraceError(what, f"{name}/trace.json")
    problems = list(itertools.islice(_find_problems(name, tables, parameters), MOST_FAULTS))
    if problems:
        raise TraceError(problems)


_SPACE: Final[TypeAdapter[list[tuple[str, list[str]]]]] = TypeAdapter(
    Annotated[
        list[tuple[str, Annotated[list[str], Field(min_length=1, max_length=MOST_CHOICES)]]],
        Field(min_length=1),
    ],
    config=ConfigDict(strict=True),
)


def _is_space(value: object) -> bool:
    try:
        pairs = _SPACE.validate_json(json.dumps(value))
    except ValidationError:
        return False
    return (
        len(dict(pairs)) == len(pairs)
        and all(len({*choices}) == len(choices) for _, choices in pairs)
        and not any("," in choice for _, choices in pairs for choice in choices)
        and math.prod(len(choices) for _, choices in pairs) <= MOST_NETWORKS
    )


def _find_problems(
    name: str, tables: Mapping[str, pa.Table], parameters: Mapping[str, Any]
) -> Iterator[Problem]:
    names = dict(parameters["space"])
    space = {*map(",".join, itertools.product(*names.values()))}
    known: dict[str, dict[str, str]] = defaultdict(dict)
    cells = parameters.get("cells")
    where = f"{name}/networks.parquet"
    for number, row in enumerate(tables["networks"].to_pylist(), 1):
        place = f"{where}, row {number}"
        choices, of_task = row["choices"], known[row["task"]]
        if choices not in space:
            yield Problem(f"choices {choices!r} are not in the space", place)
        elif choices in of_task:
            yield Problem(f"has the choices of {of_task[choices]!r}", place)
        elif row["graph"] is None and not is_cell(cells, names, row["task"]):
            yield Problem("has no graph, and parameters.cells does not say how to make it", place)
        of_task[choices] = row["network"]
    for task, found in known.items():
        if len(found) < len(space):
            lacks = next(each for each in sorted(space) if each not in found)
            what = f"{task}: has {len(found)} of the {len(space)} networks of the space"
            yield Problem(f"{what}; it lacks the one with the choices {lacks}", where)
    listed = {task: {*found.values()} for task, found in known.items()}
    yield from _find_wrong_recordings(name, tables["recordings"], listed)


def _find_wrong_recordings(
    name: str, table: pa.Table, names: Mapping[str, set[str]]
) -> Iterator[Problem]:
    where = f"{name}/recordings.parquet"
    from_scratch: dict[str, set[str]] = defaultdict(set)
    for number, row in enumerate(table.to_pylist(), 1):
        place, of_task = f"{where}, row {number}", names.get(row["task"], set())
        for column in ("network", "parent"):
            if row[column] is not None and row[column] not in of_task:
                yield Problem(f"{column} {row[column]!r} has no row in networks", place)
        if row["parent"] is None:
            from_scratch[row["task"]].add(row["network"])
        curve = row["curve"]
        if curve is not None:
            counts = curve.split(" ")
            if len(counts) != row["epochs"] + 1 or not all(map(str.isdecimal, counts)):
                what = f"curve: {row['epochs'] + 1} whole numbers are needed, one more than epochs"
                yield Problem(what, place)
    for task, of_task in names.items():
        if lacking := sorted(of_task - from_scratch[task]):
            yield Problem(f"{task}: {lacking[0]!r} has no training from scratch", where)
