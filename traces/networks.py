"""Recorded searches: the networks of a space, and how their trainings went.

A trace of kind ``networks`` has each network of a complete space, by task, and recordings of its
trainings, from scratch and from parents. Its parameters hold ``space`` (a list of names, each with
the list of its choices), ``gpu_type`` (what the seconds are of; absent if not known), and
``cells``, the name of the definition from which graphs follow, where the table has none.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import pyarrow as pa
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from wattkeeper.policies.errors import InputError, Problem, TraceError
from wattkeeper.traces.limits import MOST_FAULTS
from wattkeeper.traces.models.cells import CELLS, is_cell

if TYPE_CHECKING:
    from wattkeeper.policies.matching.graph import Graph
    from wattkeeper.traces.trace import Trace

MOST_NETWORKS: Final = 1_000_000
"""Of a space."""
MOST_CHOICES: Final = 1000
"""For a name."""

Choices = tuple[str, ...]
"""A choice for each name of a space, in its order."""


class Recording(NamedTuple):
    """How a training went.

    Attributes:
        epochs: Until it ended.
        time_s: Its duration, s.
        accuracy: On the validation set, of the best epoch.
        test_accuracy: On the test set, of that epoch; NaN where it was not recorded.
    """

    epochs: int
    time_s: float
    accuracy: float
    test_accuracy: float

    @property
    def final_accuracy(self) -> float:
        """On the test set; on the validation set where that was not recorded."""
        return self.accuracy if math.isnan(self.test_accuracy) else self.test_accuracy


class RecordedNetwork(NamedTuple):
    """A network of a table.

    Attributes:
        name: Its name.
        parameters: Number of trained elements.
        graph: Its graph as JSON; None: its choices tell.
    """

    name: str
    parameters: float
    graph: str | None


class NetworkTable:
    """The networks of a task, and the recordings of their trainings.

    Attributes:
        name: Name of the trace.
        task: The task.
        space: The choices for each name.
        gpu_type: What the seconds are of; None: not known.
        networks: By their choices.
        recordings: By network and parent (None: from scratch), in order of their seeds.
    """

    def __init__(self, trace: Trace, task: str | None = None) -> None:
        """Read the networks of a task, which must be named where there are several.

        Raises:
            InputError: If the trace is of another kind, or has no such task.
        """
        if trace.kind != "networks":
            raise InputError(f"trace {trace.name!r} holds {trace.kind}; networks are needed")
        rows = trace.tables["networks"].to_pylist()
        tasks = list(dict.fromkeys(row["task"] for row in rows))
        if task is None and len(tasks) > 1:
            raise InputError(f"task: trace {trace.name!r} has {', '.join(tasks)}; name one")
        task = tasks[0] if task is None else task
        if task not in tasks:
            raise InputError(f"task: {task!r} is not in {trace.name!r}; it has {', '.join(tasks)}")
        self.name, self.task = trace.name, task
        self.space: Mapping[str, list[str]] = dict(trace.parameters["space"])
        self.gpu_type: str | None = trace.parameters.get("gpu_type")
        self._cells: str | None = trace.parameters.get("cells")
        self.networks = {
            tuple(row["choices"].split(",")): RecordedNetwork(
                row["network"], row["parameters"], row["graph"]
            )
            for row in rows
            if row["task"] == task
        }
        recordings = defaultdict[tuple[str, str | None], list[tuple[int, Recording]]](list)
        for row in trace.tables["recordings"].to_pylist():
            if row["task"] == task:
                test = math.nan if row["test_accuracy"] is None else row["test_accuracy"]
                training = Recording(row["epochs"], row["time_s"], row["accuracy"], test)
                recordings[row["network"], row["parent"]].append((row["seed"], training))
        self.recordings = {
            pair: tuple(training for _, training in sorted(found))
            for pair, found in recordings.items()
        }

    @cached_property
    def seeds(self) -> int:
        """The largest number of recordings from scratch of a network."""
        return max(len(self.recordings[each.name, None]) for each in self.networks.values())

    @cached_property
    def most_epochs(self) -> int:
        """The largest number of epochs of a recording."""
        return max(one.epochs for found in self.recordings.values() for one in found)

    def graph(self, choices: Choices) -> Graph:
        """The graph of a network.

        Raises:
            TraceError: If it is damaged.
        """
        network = self.networks[choices]
        if network.graph is None:
            assert self._cells is not None  # checked with the trace
            return CELLS[self._cells](choices, self.task)
        from wattkeeper.traces.models.graphs import parse_graph

        where = f"{self.name}/networks.parquet, {network.name}"
        return parse_graph(network.name, network.graph.encode(), where)


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
