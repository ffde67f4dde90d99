"""Recorded searches: the networks of a space, and how their trainings went.

A trace of kind ``networks`` has each network of a complete space, by task, and recordings of its
trainings, from scratch and from parents. Its parameters hold ``space`` (a list of names, each with
the list of its choices), ``gpu_type`` (what the seconds are of; absent if not known), and
``cells``, the name of the definition from which graphs follow, where the table has none.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from wattkeeper.policies.errors import InputError
from wattkeeper.traces.models.graphs import parse_graph
from wattkeeper.traces.networks.cells import CELLS

if TYPE_CHECKING:
    import pyarrow as pa

    from wattkeeper.policies.matching.graph import Graph

Choices = tuple[str, ...]
"""A choice for each name of a space, in its order."""


class RecordedTraining(NamedTuple):
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

    def __init__(
        self,
        name: str,
        tables: Mapping[str, pa.Table],
        parameters: Mapping[str, Any],
        task: str | None = None,
    ) -> None:
        """Read the networks of a task, which must be named where there are several.

        Raises:
            InputError: If there is no such task.
        """
        rows = tables["networks"].to_pylist()
        tasks = list(dict.fromkeys(row["task"] for row in rows))
        if task is None and len(tasks) > 1:
            raise InputError(f"task: trace {name!r} has {', '.join(tasks)}; name one")
        task = tasks[0] if task is None else task
        if task not in tasks:
            raise InputError(f"task: {task!r} is not in {name!r}; it has {', '.join(tasks)}")
        self.name, self.task = name, task
        self.space: Mapping[str, list[str]] = dict(parameters["space"])
        self.gpu_type: str | None = parameters.get("gpu_type")
        self._cells: str | None = parameters.get("cells")
        self.networks = {
            tuple(row["choices"].split(",")): RecordedNetwork(
                row["network"], row["parameters"], row["graph"]
            )
            for row in rows
            if row["task"] == task
        }
        recordings = defaultdict[tuple[str, str | None], list[tuple[int, RecordedTraining]]](list)
        for row in tables["recordings"].to_pylist():
            if row["task"] == task:
                test = math.nan if row["test_accuracy"] is None else row["test_accuracy"]
                training = RecordedTraining(row["epochs"], row["time_s"], row["accuracy"], test)
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
        where = f"{self.name}/networks.parquet, {network.name}"
        return parse_graph(network.name, network.graph.encode(), where)
