"""The zoo on disk as policies see it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import Any, TypeVar

from typing_extensions import override

from wattkeeper.live.zoo import rows
from wattkeeper.live.zoo.rows import ZooModel, task_key
from wattkeeper.live.zoo.zoo import Zoo
from wattkeeper.policies.arrays import Ints
from wattkeeper.policies.errors import StoreError
from wattkeeper.policies.matching.graph import Graph, Node
from wattkeeper.policies.matching.packing import pack, unpack
from wattkeeper.policies.matching.sketches import SKETCHES
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.zoo_views import ChildModel, TrainedModel

A = TypeVar("A", bound=tuple[Ints, ...])
T = TypeVar("T")


class StoredGraph(Graph):
    """The graph of a model in a zoo; its nodes are read only where its arrays do not suffice."""

    _model: ZooModel
    _snapshot: ZooSnapshot

    def __init__(self, model: ZooModel, snapshot: ZooSnapshot) -> None:
        self.__dict__.update(name=model.name, digest=model.digest, _model=model, _snapshot=snapshot)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Its operators."""
        return self._snapshot.zoo.graph(self._model.model_id).nodes

    @override
    def arrays(self, layout: type[A], make: Callable[[Graph], A]) -> A:
        """Read them from the index; sketches with those of all models of the zoo."""
        return self._snapshot.arrays(self._model, layout, make)


class ZooSnapshot:
    """The models of a zoo at one moment (`wattkeeper.policies.points.policy.ZooView`).

    What policies ask of a model that was evicted since raises `StoreError`; see `read_zoo`.

    `child` is about to be trained; `usable`: whether it may start from a model.

    Attributes:
        zoo: The zoo.
        stored: Its models by their number, in the order of addition.
    """

    def __init__(
        self, zoo: Zoo, child: ChildModel, usable: Callable[[ZooModel], bool] = lambda _: True
    ) -> None:
        self.zoo = zoo
        self.stored = {model.model_id: model for model in zoo.models()}
        self._child = child
        self._arrays: defaultdict[type[Any], dict[str, Any]] = defaultdict(dict)
        self._graphs = {model.digest: StoredGraph(model, self) for model in self.stored.values()}
        self._models = tuple(
            TrainedModel(
                str(number),
                model.name,
                task_key(model.task, model.dataset),
                model.accuracy,
                self._graphs[model.digest],
                usable(model),
            )
            for number, model in self.stored.items()
        )

    def child(self, job: Job) -> ChildModel | None:
        """The model that is about to be trained."""
        return self._child

    def models(self) -> Sequence[TrainedModel]:
        """The models of the zoo, in order of addition."""
        return self._models

    def work_left(self, job: Job, parent: str) -> float:
        """1: nothing was measured of it."""
        return 1.0

    def graph(self, model: ZooModel) -> Graph:
        """The graph of one of the models."""
        return self._graphs[model.digest]

    def arrays(self, model: ZooModel, layout: type[A], make: Callable[[Graph], A]) -> A:
        """The arrays of a model's graph.

        Raises:
            StoreError: If it is not in the zoo any more.
        """
        known = self._arrays[layout]
        if model.digest not in known:
            if layout in SKETCHES:
                self.read_all(layout, make)
            else:
                known |= _read_arrays(self.zoo, [model], layout, make)
        if model.digest not in known:
            raise self.zoo.no_such_model(model.model_id)
        arrays: A = known[model.digest]
        return arrays

    def read_all(self, layout: type[A], make: Callable[[Graph], A]) -> None:
        """Read the arrays of all models at once, for `arrays`."""
        self._arrays[layout] |= _read_arrays(self.zoo, self.stored.values(), layout, make)


def read_zoo(take: Callable[[], ZooSnapshot], work: Callable[[ZooSnapshot], T]) -> T:
    """Do something with a snapshot; with a new one if a model of it was evicted meanwhile.

    Raises:
        StoreError: If the work raises it though all models are still there.
    """
    while True:
        snapshot = take()
        try:
            return work(snapshot)
        except StoreError:
            if set(snapshot.stored) <= {model.model_id for model in snapshot.zoo.models()}:
                raise


def _read_arrays(
    zoo: Zoo, models: Collection[ZooModel], layout: type[A], make: Callable[[Graph], A]
) -> dict[str, A]:
    """Arrays by digest from the index, where those that are missing are kept from now on."""
    wanted = {model.digest: model for model in models}
    with zoo.index.read() as db:
        packed = rows.arrays(db, layout.__name__, next(iter(wanted)) if len(wanted) == 1 else None)
        read = {
            digest: unpack(layout, data)
            for digest, data in packed
            if digest in wanted and isinstance(data, bytes)
        }
        arrays = {digest: each for digest, each in read.items() if each is not None}
        graphs = {
            digest: rows.graph(db, model)
            for digest, model in wanted.items()
            if digest not in arrays and rows.has_graph(db, digest)
        }
    made = {digest: graph.arrays(layout, make) for digest, graph in graphs.items()}
    if made:
        with zoo.index.write() as db:
            for digest, graph in graphs.items():
                if rows.has_graph(db, digest):
                    for kind, each in graph.known_arrays.items():
                        rows.put_arrays(db, digest, kind.__name__, pack(each))
    return arrays | made
