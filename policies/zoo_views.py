"""Models as policies see them: the one that is about to be trained, and those of the zoo."""

from __future__ import annotations

from typing import NamedTuple

from wattkeeper.policies.matching.graph import Graph


class ChildModel(NamedTuple):
    """The model that a job is about to train.

    Attributes:
        name: Its name.
        task: Task and data set: accuracies of one task can be compared.
        graph: Its operators and their tensors.
        mutated_from: Name of the model that it is a mutation of; None if it is none.
    """

    name: str
    task: str
    graph: Graph
    mutated_from: str | None = None


class TrainedModel(NamedTuple):
    """A trained model in the zoo.

    Attributes:
        model_id: Unique among all that were ever in the zoo.
        name: Its name.
        task: Task and data set.
        accuracy: What it reached; the larger, the better.
        graph: Its operators and their tensors.
        usable: Whether the child may start from it. On disk, a model whose code is not at hand is
            no parent, but says how accurate models of its task are.
    """

    model_id: str
    name: str
    task: str
    accuracy: float
    graph: Graph
    usable: bool = True
