"""The zoo's index: an SQLite database that says which models there are, and of which tensors.

A model refers to its tensors by their content; how many refer to one is counted when it is asked.
An operation that writes or removes files first takes a lease on their contents, which ends with it:
then those that no model refers to and no other lease names are removed. While a lease changes, or
files are removed, the writer's lock of SQLite is held.
"""

import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Final

from wattkeeper.live.zoo.blobs import OWN, BlobStore
from wattkeeper.policies.errors import EnvironmentLacks, StoreError
from wattkeeper.traces.files.atomic import move_file
from wattkeeper.traces.files.locks import hold_lock
from wattkeeper.traces.files.private import check_own_folder, follow_own_link
from wattkeeper.traces.files.seals import seal

NAME: Final = "index.sqlite"
UNFINISHED: Final = [f"{NAME}.new{suffix}" for suffix in ("", "-journal", "-wal", "-shm")]
"""An index that is being made; SQLite would replay the journal of a killed process into it."""
FORMAT: Final = 3
"""Rows of format 1 have no seals, and those of format 2 none of their tensors.

Opening such a zoo adds them.
"""

APPLICATION: Final = 0x77_7A_6F_6F
"""Marks a database as a zoo's."""

LOCK_TIMEOUT_S: Final = 300.0
"""How long to wait for other processes."""

SCHEMA: Final = """
CREATE TABLE settings (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL,
    seal TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE graphs (digest TEXT PRIMARY KEY, graph TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE arrays (
    digest TEXT NOT NULL REFERENCES graphs ON DELETE CASCADE,
    layout TEXT NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (digest, layout)
) WITHOUT ROWID;
CREATE TABLE models (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    digest TEXT NOT NULL REFERENCES graphs,
    task TEXT NOT NULL,
    dataset TEXT NOT NULL,
    accuracy REAL NOT NULL,
    parent INTEGER,
    source TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    added INTEGER NOT NULL,
    used INTEGER NOT NULL,
    uses INTEGER NOT NULL,
    parts TEXT NOT NULL,
    seal TEXT NOT NULL
);
CREATE TABLE tensors (digest TEXT PRIMARY KEY, bytes INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE parts (
    model INTEGER NOT NULL REFERENCES models ON DELETE CASCADE,
    name TEXT NOT NULL,
    digest TEXT NOT NULL REFERENCES tensors,
    PRIMARY KEY (model, name)
) WITHOUT ROWID;
CREATE INDEX models_of_tensors ON parts (digest, model);
CREATE TABLE leases (
    token TEXT NOT NULL,
    digest TEXT NOT NULL,
    PRIMARY KEY (token, digest)
) WITHOUT ROWID;
CREATE INDEX leases_of_tensors ON leases (digest);
"""

LOOSE: Final = """
SELECT digest FROM leases WHERE token = ?
AND NOT EXISTS (SELECT 1 FROM parts WHERE parts.digest = leases.digest)
AND NOT EXISTS (
    SELECT 1 FROM leases AS other WHERE other.digest = leases.digest AND other.token != leases.token
)
"""


class Index:
    """The index of a zoo and its transactions; each opens a connection of its own.

    So processes may fork, and threads share it.

    Args:
        root: The zoo's folder; it becomes a zoo if it is empty or not there.

    Raises:
        StoreError: If there is something else, a zoo of another format, or one that belongs to
            another user or that others may write.
        EnvironmentLacks: If the file system refuses.
    """

    def __init__(self, root: Path) -> None:
        self.path, self.files = root / NAME, BlobStore(root)
        if root.exists() and not root.is_dir():
            raise StoreError("a file; name the folder of a zoo", root)
        if root.is_symlink() and not root.exists():
            broken = f"a link to {root.readlink()}, which is not there; name the folder of a zoo"
            raise StoreError(broken, root)
        try:
            root.parent.mkdir(parents=True, exist_ok=True)
            root.mkdir(mode=OWN, exist_ok=True)
            check_own_folder(follow_own_link(root))
            self._check_empty(root)
            with hold_lock(root / "lock", wait=True):
                if not self.path.exists():
                    self._make(root)
            self.files.make()
        except OSError as error:
            reason = error.strerror or error
            raise EnvironmentLacks(f"cannot make a zoo of {root}: {reason}") from None
        if not self.path.stat().st_size:
            raise self._wrong("it is empty; restore it from a copy, or remove the whole folder")
        with self.read() as db:
            ((application,),) = db.execute("PRAGMA application_id")
            ((version,),) = db.execute("PRAGMA user_version")
        if application != APPLICATION:
            raise self._wrong("it is a database, but not of a zoo; name the folder of a zoo")
        if 0 < version < FORMAT:
            self._add_seals()
        elif version != FORMAT:
            raise self._wrong(
                f"its format is {version}, this wattkeeper reads format {FORMAT}; use the version "
                "of wattkeeper that wrote it, or add its models to a new zoo"
            )

    def _make(self, root: Path) -> None:
        """Make the index; what a process that is killed here leaves is made anew."""
        self._check_empty(root)
        for name in UNFINISHED:
            (root / name).unlink(missing_ok=True)
        new = root / f"{NAME}.new"
        with closing(sqlite3.connect(new, isolation_level=None)) as db:
            db.execute(f"PRAGMA application_id = {APPLICATION}")
            db.execute(f"PRAGMA user_version = {FORMAT}")
            db.executescript(f"BEGIN; {SCHEMA} COMMIT;")
            db.execute("PRAGMA journal_mode = WAL")
        move_file(new, self.path)

    def _check_empty(self, root: Path) -> None:
        """Refuse a folder that is no zoo, before anything is written there."""
        others = sorted({path.name for path in root.iterdir()} - {"lock", *UNFINISHED})
        if others and not self.path.exists():  # another process may just have made it
            raise StoreError(
                f"no zoo: {NAME} is not there, but {', '.join(others[:3])} is; name the folder of "
                "a zoo, or an empty one",
                root,
            )

    def _add_seals(self) -> None:
        with self.write() as db:
            ((version,),) = db.execute("PRAGMA user_version")
            if version == FORMAT:  # another process was faster
                return
            if version == 1:
                for table in ("models", "settings"):
                    db.execute(f"ALTER TABLE {table} ADD COLUMN seal TEXT NOT NULL DEFAULT ''")
            db.execute("ALTER TABLE models ADD COLUMN parts TEXT NOT NULL DEFAULT ''")
            ids = db.execute("SELECT id FROM models").fetchall()
            own = [(seal_parts(db, model_id), model_id) for (model_id,) in ids]
            db.executemany("UPDATE models SET parts = ? WHERE id = ?", own)
            for table, key in (("models", "id"), ("settings", "name")):
                columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
                columns.remove("seal")
                known = db.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall()
                seals = [(seal(row), row[0]) for row in known]
                db.executemany(f"UPDATE {table} SET seal = ? WHERE {key} = ?", seals)
            db.execute(f"PRAGMA user_version = {FORMAT}")

    def _wrong(self, message: str) -> StoreError:
        return StoreError(message, self.path)

    def read(self) -> AbstractContextManager[sqlite3.Connection]:
        """A transaction that sees the index as it is now."""
        return self._transaction("BEGIN")

    def write(self) -> AbstractContextManager[sqlite3.Connection]:
        """A transaction that excludes other writers; it commits at the end, or rolls back."""
        return self._transaction("BEGIN IMMEDIATE")

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, LOCK_TIMEOUT_S, isolation_level=None)) as db:
                db.execute("PRAGMA foreign_keys = ON")
                db.execute("PRAGMA synchronous = FULL")
                db.execute(begin)
                yield db
                db.execute("COMMIT")  # closing without it rolls back
        except sqlite3.DatabaseError as error:
            code = getattr(error, "sqlite_errorcode", None)
            # An SQLITE_ERROR is of what should be there and is not: a table, a column.
            if isinstance(error, sqlite3.OperationalError) and code != sqlite3.SQLITE_ERROR:
                raise EnvironmentLacks(f"{self.path}: {error}") from error
            raise self._wrong(
                f"damaged: {error}. Restore it from a copy, or add its models to a new zoo"
            ) from error

    @contextmanager
    def lease(self, sizes: Mapping[str, int]) -> Iterator[str]:
        """Lease tensors that may be written, given their sizes in bytes by digest.

        The value is the token of the lease. At its end, its tensors that no model and no other
        lease needs are removed.
        """
        with self.write() as db:
            token, release = self.files.begin()
            rows = sizes.items()
            db.executemany("INSERT OR IGNORE INTO tensors (digest, bytes) VALUES (?, ?)", rows)
            extend(db, token, sizes)
        try:
            yield token
        finally:
            try:
                with self.write() as db:
                    self._end(db, token)
            finally:
                release()

    def _end(self, db: sqlite3.Connection, token: str) -> tuple[int, int]:
        loose = [digest for (digest,) in db.execute(LOOSE, (token,))]
        freed = [self.files.unlink(digest) for digest in loose]
        db.execute("DELETE FROM leases WHERE token = ?", (token,))
        db.executemany("DELETE FROM tensors WHERE digest = ?", ((digest,) for digest in loose))
        self.files.end(token)
        return sum(size > 0 for size in freed), sum(freed)

    def sweep(self) -> tuple[int, int]:
        """End the leases of processes that are gone; number and bytes of the files removed."""
        with self.read() as db:
            known = _tokens(db)
        if not known and not self.files.tokens():
            return 0, 0
        with self.write() as db:
            known = _tokens(db)
            tokens = sorted(known.union(self.files.tokens()))
            freed = [self._end(db, token) for token in tokens if self.files.is_dead(token)]
        return sum(count for count, _ in freed), sum(size for _, size in freed)


def _tokens(db: sqlite3.Connection) -> set[str]:
    tokens = [token for (token,) in db.execute("SELECT DISTINCT token FROM leases")]
    if not all(isinstance(token, str) and re.fullmatch("[0-9a-f]{32}", token) for token in tokens):
        raise sqlite3.DatabaseError(f"found the leases {tokens}; a token is 32 hex digits")
    return set(tokens)


def extend(db: sqlite3.Connection, token: str, digests: Iterable[str]) -> None:
    """Add tensors to a lease, which are removed at its end if no model refers to them."""
    rows = ((token, digest) for digest in digests)
    db.executemany("INSERT OR IGNORE INTO leases (token, digest) VALUES (?, ?)", rows)


def seal_parts(db: sqlite3.Connection, model_id: int) -> str:
    """Digest of the names, digests and sizes of a model's tensors, as its row has it."""
    query = "SELECT name, digest, bytes FROM parts JOIN tensors USING (digest) WHERE model = ?"
    return seal(sorted(db.execute(query, (model_id,)), key=repr))
