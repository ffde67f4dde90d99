"""Read-only views of models: the one to be trained, and those in the zoo."""

from typing import NamedTuple

from wattkeeper.policies.matching.graph import Graph


class ChildModel(NamedTuple):
    """The model that a job is about to train.

    Attributes:
        name: Name of the model.
        task: Task and data set: accuracies of one task can be compared.
        graph: Operators and their tensors.
        mutated_from: Name of the model that it was mutated from; None if it is not a mutation.
    """

    name: str
    task: str
    graph: Graph
    mutated_from: str | None = None


class TrainedModel(NamedTuple):
    """A trained model in the zoo.

    Attributes:
        model_id: Unique over the lifetime of the zoo.
        name: Name of the model.
        task: Task and data set.
        accuracy: Reached accuracy; larger is better.
        graph: Operators and their tensors.
        usable: Whether a child may start from it. On disk, a model whose code is not at hand cannot
            be a parent, but counts for the mean accuracy of its task.
    """

    model_id: str
    name: str
    task: str
    accuracy: float
    graph: Graph
    usable: bool = True
