"""The log of the external events of a live run, each written before it is processed."""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from wattkeeper.live.controller.events import KINDS, LOGGED, ExternalEvent
from wattkeeper.live.wire.messages import read_message
from wattkeeper.policies.errors import StoreError
from wattkeeper.traces.files.private import make_private_file, make_private_folder
from wattkeeper.traces.files.seals import seal, unseal

VERSION: Final = "6"
"""Of the events and their payloads."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL, seal TEXT);
CREATE TABLE IF NOT EXISTS events (
    number INTEGER PRIMARY KEY,
    time_s REAL NOT NULL,
    job_id TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    run TEXT NOT NULL,
    kind TEXT NOT NULL,
    payload TEXT NOT NULL,
    seal TEXT NOT NULL
);
CREATE TRIGGER IF NOT EXISTS note_last AFTER INSERT ON events BEGIN
    INSERT OR REPLACE INTO about VALUES ('last', NEW.number, NEW.seal);
END;
"""
"""The number and seal of the last event are stored with it: events that are missing after it are
noticed."""

COLUMNS: Final = "number, time_s, job_id, attempt, run, kind, payload, seal"


TOKEN: Final = "token"
"""Name of the secret of the sessions in a log."""


class EventLog:
    """The log of one run, in an SQLite file; a controller that is killed loses nothing of it.

    It holds the secret of the sessions: only its owner may read it.

    Args:
        path: The file; it is made if it is not there.

    Raises:
        StoreError: If it is no such file, of another version, or another controller holds it.
    """

    def __init__(self, path: Path) -> None:
        make_private_folder(path.parent)
        make_private_file(path)
        self.path = path
        self._db = sqlite3.connect(path, timeout=1.0, isolation_level=None)
        try:
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.executescript(SCHEMA)
            self._db.execute(
                "INSERT OR IGNORE INTO about (name, value) VALUES ('version', ?)", (VERSION,)
            )
            query = "SELECT value FROM about WHERE name = 'version'"
            (version,) = self._db.execute(query).fetchone()
        except sqlite3.OperationalError as error:
            self._db.close()
            raise StoreError(
                f"{path} is in use ({error}): another wattkeeper runs this; wait for it, end it, "
                "or name another folder (--out)"
            ) from None
        except sqlite3.DatabaseError as error:
            self._db.close()
            raise StoreError(
                f"{path} is no log of a live run ({error}): remove it, or name another folder "
                "(--out)"
            ) from None
        if version != VERSION:
            self._db.close()
            raise StoreError(
                f"{path} is of version {version}, this wattkeeper reads version {VERSION}: go on "
                "with the wattkeeper that began this run, or name another folder (--out)"
            )

    def add(self, external: ExternalEvent) -> None:
        """Append an event; it survives the process once this returns."""
        ((number,),) = self._execute("SELECT coalesce(max(number), 0) + 1 FROM events")
        time_s, job_id, attempt, run, event, _, _ = external
        content = KINDS[type(event)], json.dumps(event._asdict())
        row = (number, float(time_s), job_id, attempt, run, *content)
        self._execute(
            f"INSERT INTO events ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*row, seal(row))
        )

    def events(self) -> Iterator[ExternalEvent]:
        """All events, in order.

        Raises:
            StoreError: If one is missing or changed.
        """
        rows = self._execute(f"SELECT {COLUMNS} FROM events ORDER BY number")
        for expected, row in enumerate(rows, 1):
            if row[0] != expected:
                raise self.damaged(f"event {expected} is missing")
            self._unseal(row, f"event {expected}")
        last = self._execute("SELECT value, seal FROM about WHERE name = 'last'")
        if last != [(str(row[0]), row[-1]) for row in rows[-1:]]:
            known = f"the last one was number {last[0][0]}" if last else "their number is missing"
            raise self.damaged(f"it has {len(rows)} events, and {known}")
        for _, time_s, job_id, attempt, run, kind, payload, _ in rows:
            event = read_message(LOGGED[kind], json.loads(payload))
            yield ExternalEvent(time_s, job_id, attempt, run, event)

    def __len__(self) -> int:
        count: int = self._execute("SELECT count(*) FROM events")[0][0]
        return count

    @property
    def has_begun(self) -> bool:
        """Whether processes may have been started, for which sessions need a secret."""
        return len(self) > 0 or self.get(TOKEN) is not None

    def get(self, name: str) -> str | None:
        """The text kept under a name; None if there is none."""
        rows = self._execute("SELECT name, value, seal FROM about WHERE name = ?", (name,))
        return str(self._unseal(rows[0], name)[1]) if rows else None

    def note(self, name: str, value: str) -> None:
        """Keep a text under a name."""
        row = (name, value)
        self._execute("INSERT OR REPLACE INTO about VALUES (?, ?, ?)", (*row, seal(row)))

    def _execute(self, statement: str, values: Sequence[object] = ()) -> list[Any]:
        try:
            return self._db.execute(statement, values).fetchall()
        except sqlite3.DatabaseError as error:
            raise self.damaged(error) from None

    def _unseal(self, row: Sequence[Any], what: str) -> Sequence[Any]:
        try:
            return unseal(row, what)
        except sqlite3.DatabaseError as error:
            raise self.damaged(error) from None

    def damaged(self, reason: object) -> StoreError:
        """The error for a log that is not as it was written."""
        return StoreError(
            f"damaged: {reason}; remove the folder of the live run to begin anew, or name another "
            "one (--out)",
            self.path,
        )

    def close(self) -> None:
        """Let others open it."""
        self._db.close()
