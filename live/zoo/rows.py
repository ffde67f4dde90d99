"""Rows of the zoo's index, read and written in a transaction; see `wattkeeper.live.zoo.index`."""

import json
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple

from wattkeeper.live.zoo.index import extend, seal_parts
from wattkeeper.live.zoo.tensors import Tensors
from wattkeeper.policies import failures
from wattkeeper.policies.matching.graph import Graph, digest_of
from wattkeeper.policies.points.retain import Retain, StoredModel, StoredModels
from wattkeeper.policies.registry import find_config
from wattkeeper.sim.kernel.hosting import Capabilities
from wattkeeper.traces.files.seals import seal, unseal

TOTAL: Final = "SELECT TOTAL(bytes) FROM tensors WHERE digest IN (SELECT digest FROM parts)"


class ZooModel(NamedTuple):
    """A model in the zoo.

    Attributes:
        model_id: Its number, never given twice.
        name: What it is called.
        digest: Of its graph.
        task: What it was trained for.
        dataset: What it was trained on; empty if not given.
        accuracy: The larger, the better; compared among models of a task and data set only.
        parent: The model whose weights it started from, which may be gone; None if there is none.
        source: The callable that makes its module, as `module:callable`; empty if not given.
        bytes: Of its tensors' files, also of those that other models share.
        added: The count of additions and uses of the zoo at its addition.
        used: That count at its last use; `added` if there was none.
        uses: How often it was used as a parent.
    """

    model_id: int
    name: str
    digest: str
    task: str
    dataset: str
    accuracy: float
    parent: int | None
    source: str
    bytes: int
    added: int
    used: int
    uses: int


STORE: Final = Capabilities("a zoo on disk", hooks=frozenset({"on_use"}))
"""What a zoo offers to its policy, which outlives all runs: it knows no jobs."""
COLUMNS: Final = ", ".join(("id", *ZooModel._fields[1:], "parts"))


def scalar(db: sqlite3.Connection, query: str, *values: Any) -> Any:
    """The first value of the first row; None if there is no row."""
    row = db.execute(query, values).fetchone()
    return None if row is None else row[0]


def get(db: sqlite3.Connection, setting: str) -> Any:
    """A setting of the zoo; None if it was not set."""
    query = "SELECT name, value, seal FROM settings WHERE name = ?"
    row = db.execute(query, (setting,)).fetchone()
    return None if row is None else json.loads(unseal(row, f"the setting {setting}")[1])


def put(db: sqlite3.Connection, setting: str, value: Any) -> None:
    """Set a setting of the zoo, a JSON value."""
    row = (setting, json.dumps(value, allow_nan=False))
    sealed = (*row, seal(row))
    db.execute("INSERT OR REPLACE INTO settings (name, value, seal) VALUES (?, ?, ?)", sealed)


def new_policy(kind: str) -> Retain:
    """A new policy of the decision point `retain`.

    Raises:
        InputError: If there is none of that name.
        PolicyError: If it wants to be told of jobs.
    """
    policy: Retain = STORE.admit(find_config("retain", kind))
    return policy


def policy_of(db: sqlite3.Connection) -> Retain:
    """The zoo's policy in its stored state."""
    policy, state = new_policy(get(db, "retain")), get(db, "state")
    if state is not None:
        policy.load_state_dict(state)
    return policy


def explain_failures(
    db: sqlite3.Connection, method: Callable[..., Any], about: str
) -> AbstractContextManager[None]:
    """Context manager: raise what a method of the zoo's policy raises as an error that names it."""
    return failures.explain_failures(find_config("retain", get(db, "retain")), method, about)


def models(db: sqlite3.Connection) -> list[ZooModel]:
    """All models, in the order of their addition."""
    lost = scalar(db, "SELECT model FROM parts WHERE model NOT IN (SELECT id FROM models)")
    if lost is not None:
        raise sqlite3.DatabaseError(f"model {lost} is missing, whose tensors are there")
    return [_model(row) for row in db.execute(f"SELECT {COLUMNS}, seal FROM models ORDER BY id")]


def total_bytes(db: sqlite3.Connection) -> int:
    """Bytes of the tensors of all models, each once."""
    for each in models(db):
        parts(db, each)
    return int(scalar(db, TOTAL))


def model(db: sqlite3.Connection, model_id: int) -> ZooModel | None:
    """One of them; None if it is not there."""
    query = f"SELECT {COLUMNS}, seal FROM models WHERE id = ?"
    row = db.execute(query, (model_id,)).fetchone()
    return row and _model(row)


def _model(row: Sequence[Any]) -> ZooModel:
    return ZooModel(*unseal(row, f"model {row[0]}")[:-1])


def note_use(db: sqlite3.Connection, used: ZooModel, count: int) -> None:
    """Store that a model was used, at that count of additions and uses of the zoo."""
    new = used._replace(uses=used.uses + 1, used=count)
    kept = scalar(db, "SELECT parts FROM models WHERE id = ?", new.model_id)
    values = (new.uses, new.used, seal((*new, kept)), new.model_id)
    db.execute("UPDATE models SET uses = ?, used = ?, seal = ? WHERE id = ?", values)


def parts(db: sqlite3.Connection, owner: ZooModel) -> dict[str, str]:
    """Digest of each of a model's tensors by its name."""
    model_id = owner.model_id
    if seal_parts(db, model_id) != scalar(db, "SELECT parts FROM models WHERE id = ?", model_id):
        raise sqlite3.DatabaseError(f"the tensors of model {model_id} are not those it came with")
    return dict(db.execute("SELECT name, digest FROM parts WHERE model = ?", (model_id,)))


def insert(db: sqlite3.Connection, new: ZooModel, graph: Graph, tensors: Tensors) -> None:
    """Add a model whose tensors are on the disk."""
    known = (graph.digest, graph.to_json())
    db.execute("INSERT OR IGNORE INTO graphs (digest, graph) VALUES (?, ?)", known)
    marks = ", ".join("?" * (len(new) + 2))
    db.execute(f"INSERT INTO models ({COLUMNS}, seal) VALUES ({marks})", (*new, "", ""))
    db.executemany(
        "INSERT INTO parts (model, name, digest) VALUES (?, ?, ?)",
        ((new.model_id, name, tensor.digest) for name, tensor in tensors.items()),
    )
    own = seal_parts(db, new.model_id)
    values = (own, seal((*new, own)), new.model_id)
    db.execute("UPDATE models SET parts = ?, seal = ? WHERE id = ?", values)


def delete(db: sqlite3.Connection, model_id: int, token: str) -> bool:
    """Remove a model, and its files with the lease of a token; whether it was there."""
    removed = model(db, model_id)
    if removed is None:
        return False
    own = db.execute("SELECT digest FROM parts WHERE model = ?", (model_id,))
    extend(db, token, [digest for (digest,) in own])
    db.execute("DELETE FROM models WHERE id = ?", (model_id,))
    if scalar(db, "SELECT 1 FROM models WHERE digest = ?", removed.digest) is None:
        db.execute("DELETE FROM graphs WHERE digest = ?", (removed.digest,))
    return True


def graph(db: sqlite3.Connection, owner: ZooModel) -> Graph:
    """The architecture of a model that is there."""
    text = scalar(db, "SELECT graph FROM graphs WHERE digest = ?", owner.digest)
    if not isinstance(text, str) or digest_of(text) != owner.digest:
        raise sqlite3.DatabaseError(f"the graph of model {owner.model_id} is another one")
    return Graph.from_json(owner.name, text)


def has_graph(db: sqlite3.Connection, digest: str) -> bool:
    """Whether a model with that graph is there."""
    return scalar(db, "SELECT 1 FROM graphs WHERE digest = ?", digest) is not None


def arrays(
    db: sqlite3.Connection, layout: str, digest: str | None = None
) -> Iterable[tuple[str, bytes]]:
    """Stored arrays of a layout by the digest of their graph: all, or those of one graph."""
    query = "SELECT digest, data FROM arrays WHERE layout = ?"
    if digest is None:
        return db.execute(query, (layout,))
    return db.execute(f"{query} AND digest = ?", (layout, digest))


def put_arrays(db: sqlite3.Connection, digest: str, layout: str, data: bytes) -> None:
    """Store arrays of a graph that is there."""
    query = "INSERT OR REPLACE INTO arrays (digest, layout, data) VALUES (?, ?, ?)"
    db.execute(query, (digest, layout, data))


def task_key(task: str, dataset: str) -> str:
    """What accuracies are measured on: those of one key can be compared."""
    return f"{task} on {dataset}" if dataset else task


def view_of(row: ZooModel, shared: tuple[tuple[str, int], ...] = ()) -> StoredModel:
    """A model as the policy sees it."""
    task = task_key(row.task, row.dataset)
    return StoredModel(
        str(row.model_id), task, row.accuracy, row.bytes, row.added, row.used, row.uses, shared
    )


def views(
    db: sqlite3.Connection, new: ZooModel, sizes: Mapping[str, int]
) -> tuple[StoredModels, StoredModel]:
    """The views for `Retain` when a model is added, given the sizes of its tensors by digest.

    Which tensors are shared is looked up only if they might decide whether all fits.
    """
    capacity, known = get(db, "capacity_bytes"), models(db)
    shared: dict[int, list[tuple[str, int]]] = defaultdict(list)
    if capacity is not None and sum(each.bytes for each in (*known, new)) > capacity:
        query = "SELECT digest FROM parts GROUP BY digest HAVING COUNT(DISTINCT model) > 1"
        several = {digest for (digest,) in db.execute(query)}
        ours = {d for d in sizes if scalar(db, "SELECT 1 FROM parts WHERE digest = ?", d)}
        holders = (
            "SELECT DISTINCT model, digest, bytes FROM parts JOIN tensors USING (digest) "
            "WHERE digest = ?"
        )
        for each in sorted(several | ours):
            for model_id, digest, size in db.execute(holders, (each,)):
                shared[model_id].append((digest, size))
        shared[new.model_id] = [(digest, sizes[digest]) for digest in sorted(ours)]
    stored = tuple(view_of(each, tuple(shared[each.model_id])) for each in known)
    return StoredModels(capacity, stored), view_of(new, tuple(shared[new.model_id]))
