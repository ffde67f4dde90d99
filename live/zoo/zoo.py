"""The model zoo on disk."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from wattkeeper.live.zoo import rows
from wattkeeper.live.zoo.index import Index
from wattkeeper.live.zoo.rows import ZooModel
from wattkeeper.live.zoo.tensors import RawTensor, check, mismatches, tensors_of_state
from wattkeeper.policies.errors import InputError, Problem, StoreError
from wattkeeper.policies.matching.graph import Graph
from wattkeeper.policies.points.retain import check_retention
from wattkeeper.traces.files.names import check_label

if TYPE_CHECKING:
    import torch


class AddResult(NamedTuple):
    """What the zoo's policy decided on a model.

    Attributes:
        model_id: Its number; None if it was refused.
        evicted: Numbers of the models that were removed for it.
        reason: Why it was refused; empty if it was not.
    """

    model_id: int | None
    evicted: tuple[int, ...]
    reason: str


class FreedSpace(NamedTuple):
    """What was removed from the disk: files of tensors, and their bytes."""

    files: int
    bytes: int


class Zoo:
    """Trained models in a folder that several processes may use at a time.

    A tensor that several models share is stored once. The capacity bounds the bytes of all tensors'
    files; the index is not counted, nor are the files of models that are just being added.
    Capacity and policy are kept with the zoo, for all processes.

    Args:
        path: The folder; it is made if it is not there.
        capacity_bytes: From now on; None leaves it as it is, which is unbounded at first.
        retain: Policy of the decision point `retain`, from now on; None leaves it as it is, which
            is ModelKeeper's at first.

    Raises:
        StoreError: If the folder holds something else, or the index is damaged or of another
            format.
        InputError: If there is no such policy, or the capacity is not above 0.
        EnvironmentLacks: If the file system refuses.

    Attributes:
        path: The folder.
        index: The index, for what else is kept of models.
    """

    def __init__(
        self, path: str | Path, capacity_bytes: int | None = None, retain: str | None = None
    ) -> None:
        if capacity_bytes is not None and capacity_bytes <= 0:
            raise InputError(f"found a capacity of {capacity_bytes} bytes; must be above 0")
        if retain is not None:
            rows.new_policy(retain)
        self.path = Path(path)
        self.index = Index(self.path.absolute())  # whatever the working directory becomes
        self._files = self.index.files
        self.index.sweep()
        with self.index.read() as db:
            is_set = rows.get(db, "retain") is not None
        if not is_set or retain is not None or capacity_bytes is not None:
            self._set(capacity_bytes, retain)

    def _set(self, capacity_bytes: int | None, retain: str | None) -> None:
        with self.index.write() as db:
            if capacity_bytes is not None:
                rows.put(db, "capacity_bytes", capacity_bytes)
            known = rows.get(db, "retain")
            chosen = retain or known or "modelkeeper"
            if chosen != known:
                rows.put(db, "retain", chosen)
                rows.put(db, "state", None)

    def add(
        self,
        graph: Graph,
        state: Mapping[str, Any],
        *,
        task: str,
        accuracy: float,
        dataset: str = "",
        name: str | None = None,
        parent: int | None = None,
        source: str = "",
    ) -> AddResult:
        """Add a model, unless the zoo's policy refuses it; the policy may evict others for it.

        Once this returns, the model is there, whatever becomes of the process or the machine.

        Args:
            graph: Its architecture, with the names of all tensors.
            state: Its tensors by name, as `state_dict` gives them; of torch or numpy.
            task: What it was trained for.
            accuracy: The larger, the better.
            dataset: What it was trained on.
            name: By default the graph's.
            parent: Number of the model whose weights it started from.
            source: The callable that makes its module, as `module:callable`.

        Raises:
            StoreError: If a tensor is not finite or not as the graph says, with all that is wrong.
            InputError: If a name is not allowed, the accuracy not finite, or the parent never was
                here.
        """
        if not task or not math.isfinite(accuracy):
            raise InputError(
                f"found the task {task!r} and the accuracy {accuracy}; a model needs a task and a "
                "finite accuracy"
            )
        check_label(name or graph.name, "model name")
        check_label(task, "task")
        check_label(dataset or "-", "data set")
        tensors = tensors_of_state(state)
        check(tensors, graph)
        contents = {tensor.digest: tensor for tensor in tensors.values()}
        sizes = {digest: tensor.file_bytes for digest, tensor in contents.items()}
        new = ZooModel(
            model_id=0,
            name=name or graph.name,
            digest=graph.digest,
            task=task,
            dataset=dataset,
            accuracy=float(accuracy),
            parent=parent,
            source=source,
            bytes=sum(sizes.values()),
            added=0,
            used=0,
            uses=0,
        )
        with self.index.lease(sizes) as token:
            for tensor in contents.values():
                self._files.write(tensor, token)
            self._files.settle()
            with self.index.write() as db:
                last = rows.scalar(db, "SELECT seq FROM sqlite_sequence WHERE name = 'models'") or 0
                count = (rows.get(db, "count") or 0) + 1
                if parent is not None and not 0 < parent <= last:
                    raise InputError(f"no model {parent} ever was in {self.path} to be the parent")
                new = new._replace(model_id=last + 1, added=count, used=count)
                policy = rows.policy_of(db)
                stored, view = rows.views(db, new, sizes)
                with rows.explain_failures(db, policy.retain, f" for model {view.model_id}"):
                    decision = check_retention(stored, view, policy.retain(stored, view))
                    rows.put(db, "state", policy.state_dict())
                admit, evict, reason = decision
                for evicted in evict:
                    rows.delete(db, int(evicted), token)
                if admit:
                    rows.put(db, "count", count)
                    rows.insert(db, new, graph, tensors)
        return AddResult(new.model_id if admit else None, tuple(map(int, evict)), reason)

    def models(self) -> tuple[ZooModel, ...]:
        """The models, in the order of their addition."""
        with self.index.read() as db:
            return tuple(rows.models(db))

    def graph(self, model_id: int) -> Graph:
        """The architecture of a model.

        Raises:
            StoreError: If it is not in the zoo.
        """
        with self.index.read() as db:
            model = rows.model(db, model_id)
            if model:
                return rows.graph(db, model)
        raise self.no_such_model(model_id)

    def load(self, model_id: int) -> dict[str, torch.Tensor]:
        """The tensors of a model as torch tensors on the CPU, for `load_state_dict`.

        Raises:
            StoreError: If it is not in the zoo (any more), or a file of it is damaged.
        """
        return {name: tensor.to_torch() for name, tensor in self.read(model_id).items()}

    def read(self, model_id: int) -> dict[str, RawTensor]:
        """The tensors of a model as bytes; see `load`."""
        with self.index.read() as db:
            model = rows.model(db, model_id)
            parts = rows.parts(db, model) if model else {}
        if not model:
            raise self.no_such_model(model_id)
        try:
            contents = {digest: self._files.read(digest) for digest in set(parts.values())}
        except FileNotFoundError as error:
            with self.index.read() as db:
                model = rows.model(db, model_id)
            if not model:  # it was evicted while it was being read
                raise self.no_such_model(model_id) from None
            raise StoreError(
                f"missing, though model {model_id} has it; remove the model and add it again",
                error.filename,
            ) from None
        return {name: contents[digest] for name, digest in parts.items()}

    def no_such_model(self, model_id: int) -> StoreError:
        """The error for a model that is not in the zoo."""
        known = [str(model.model_id) for model in self.models()]
        there = ", ".join(known[-10:]) or "none"
        more = f" and {len(known) - 10} before them" if len(known) > 10 else ""
        return StoreError(
            f"model {model_id} is not in the zoo {self.path} (any more); there is {there}{more}"
        )

    def note_use(self, model_id: int) -> None:
        """Count a use of a model as the parent of another one.

        Raises:
            StoreError: If it is not in the zoo.
        """
        with self.index.write() as db:
            model = rows.model(db, model_id)
            if model:
                policy, count = rows.policy_of(db), rows.get(db, "count") + 1
                with rows.explain_failures(db, policy.on_use, f" for model {model_id}"):
                    policy.on_use(rows.view_of(model))
                    rows.put(db, "state", policy.state_dict())
                rows.put(db, "count", count)
                rows.note_use(db, model, count)
        if not model:
            raise self.no_such_model(model_id)

    def remove(self, model_id: int) -> None:
        """Remove a model, and from the disk what only it had.

        Raises:
            StoreError: If it is not in the zoo.
        """
        with self.index.lease({}) as token, self.index.write() as db:
            removed = rows.delete(db, model_id, token)
        if not removed:
            raise self.no_such_model(model_id)

    def gc(self) -> FreedSpace:
        """Remove files that killed processes left, and files that are not in the index."""
        count, size = self.index.sweep()
        with self.index.write() as db:
            rows.total_bytes(db)  # refuses a damaged index, which may not know all files
            needed = "SELECT digest FROM parts UNION SELECT digest FROM leases"
            db.execute(f"DELETE FROM tensors WHERE digest NOT IN ({needed})")
            known = {digest for (digest,) in db.execute("SELECT digest FROM tensors")}
            strange = [digest for digest in self._files.digests() if digest not in known]
            freed = [self._files.unlink(digest) for digest in strange]
        return FreedSpace(count + len(freed), size + sum(freed))

    def check(self) -> tuple[Problem, ...]:
        """Read all files: what is damaged, missing or not used, and which models that concerns."""
        with self.index.write() as db:  # so that nothing comes or goes meanwhile
            verdict = rows.scalar(db, "PRAGMA integrity_check")
            query = "SELECT digest FROM parts UNION SELECT digest FROM leases"
            needed = {digest for (digest,) in db.execute(query)}
            strange = [digest for digest in self._files.digests() if digest not in needed]
            known = rows.models(db)
        problems = [Problem(f"damaged: {verdict}", str(self.index.path))] * (verdict != "ok")
        for digest in strange:
            path = str(self._files.path(digest))
            problems.append(Problem("no model has it; `Zoo.gc` removes it", path))
        for each in known:
            problems += [
                Problem(f"model {each.model_id} ({each.name}): {wrong.message}", wrong.where)
                for wrong in self._check(each.model_id)
            ]
        return tuple(problems)

    def _check(self, model_id: int) -> Sequence[Problem]:
        try:
            tensors, graph = self.read(model_id), self.graph(model_id)
        except StoreError as error:
            with self.index.read() as db:
                evicted = rows.model(db, model_id) is None  # while it was being read
            return () if evicted else error.problems
        return [Problem(text) for text in mismatches(tensors, graph)]

    @property
    def retain(self) -> str:
        """Name of the policy."""
        with self.index.read() as db:
            return str(rows.get(db, "retain"))

    @property
    def capacity_bytes(self) -> int | None:
        """What may be stored, B; None if there is no bound."""
        with self.index.read() as db:
            capacity: int | None = rows.get(db, "capacity_bytes")
        return capacity

    @property
    def bytes(self) -> int:
        """What the tensors of all models take on the disk, B."""
        with self.index.read() as db:
            return rows.total_bytes(db)
