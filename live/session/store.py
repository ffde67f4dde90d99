"""The database of sessions, which several processes, or hosts, share.

::

    wattkeeper_schema        version of these tables
    wattkeeper_jobs          one row a job: its seed, how many recurrences and observations it has
    wattkeeper_states        what a policy learnt of a job, by decision point and config, as JSON
    wattkeeper_attempts      choices, lease and progress of each attempt
    wattkeeper_decisions     the journal: what each policy was shown, and what it chose
    wattkeeper_observations  outcome of each attempt, once
    wattkeeper_slices        what each slice of an attempt shall measure, and what it did

SQLite in a file, for the processes of one host; PostgreSQL for several hosts. A transaction that
decides, or learns, holds the row of its job (SQLite: the whole file) from its beginning.
"""

import json
import os
import secrets
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import sqlalchemy as sa

from wattkeeper.policies.errors import EnvironmentLacks, InputError, StoreError, WattkeeperError
from wattkeeper.policies.points.views import Measurement, Slice
from wattkeeper.sim.attempts.decided import NO_SLICES, SliceTotals
from wattkeeper.traces.files.private import check_own_entry, make_private_file, make_private_parents
from wattkeeper.traces.files.user_dirs import state_folder

T = TypeVar("T")

SCHEMA: Final = 1
FIRST_S: Final = 5.0
"""How long a session waits at first for a store that cannot be reached, s."""
BUSY_S: Final = 30.0
"""How long a session waits for another one that has locked a job, s. PostgreSQL ends a transaction
that is idle for so long."""
BESIDE: Final = ("-journal", "-wal", "-shm")
"""Files that SQLite keeps beside a database, and reads."""
LOCK: Final = 8_430_017
"""Advisory lock of PostgreSQL while tables are made."""

_tables = sa.MetaData()
schema = sa.Table("wattkeeper_schema", _tables, sa.Column("version", sa.Integer, nullable=False))
jobs = sa.Table(
    "wattkeeper_jobs",
    _tables,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("seed", sa.BigInteger, nullable=False),
    sa.Column("begun_s", sa.Double, nullable=False),
    sa.Column("recurrences", sa.Integer, nullable=False, default=0),
    sa.Column("observed", sa.Integer, nullable=False, default=0),
)
states = sa.Table(
    "wattkeeper_states",
    _tables,
    sa.Column("job", sa.Text, sa.ForeignKey(jobs.c.name), primary_key=True),
    sa.Column("point", sa.Text, primary_key=True),
    sa.Column("config", sa.Text, primary_key=True),
    sa.Column("state", sa.Text, nullable=False),
)
attempts = sa.Table(
    "wattkeeper_attempts",
    _tables,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("job", sa.Text, sa.ForeignKey(jobs.c.name), nullable=False, index=True),
    sa.Column("recurrence", sa.Integer, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("terms", sa.Text, nullable=False),
    sa.Column("plan", sa.Text, nullable=False),
    sa.Column("in_flight", sa.Integer, nullable=False),
    sa.Column("batch_size", sa.Integer, nullable=False),
    sa.Column("power_limit_w", sa.Double),
    sa.Column("profile_w", sa.Text, nullable=False),
    sa.Column("cost_bound", sa.Double),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("again", sa.Boolean, nullable=False, default=False),
    sa.Column("holder", sa.Text, nullable=False),
    sa.Column("lease_s", sa.Double, nullable=False),
    sa.Column("heard_s", sa.Double, nullable=False),
    sa.Column("epochs", sa.Integer, nullable=False, default=0),
    sa.Column("time_s", sa.Double, nullable=False, default=0.0),
    sa.Column("energy_j", sa.Double),
    sa.UniqueConstraint("job", "recurrence", "attempt"),
)
decisions = sa.Table(
    "wattkeeper_decisions",
    _tables,
    sa.Column("job", sa.Text, sa.ForeignKey(jobs.c.name), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("recurrence", sa.Integer, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("time_s", sa.Double, nullable=False),
    sa.Column("point", sa.Text, nullable=False),
    sa.Column("policy", sa.Text, nullable=False),
    sa.Column("saw", sa.Text, nullable=False),
    sa.Column("chose", sa.Text, nullable=False),
)
observations = sa.Table(
    "wattkeeper_observations",
    _tables,
    sa.Column("attempt_id", sa.Text, sa.ForeignKey(attempts.c.id), primary_key=True),
    sa.Column("job", sa.Text, sa.ForeignKey(jobs.c.name), nullable=False),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("cause", sa.Text, nullable=False),
    sa.Column("reached", sa.Boolean, nullable=False),
    sa.Column("learnt", sa.Boolean, nullable=False),
    sa.Column("cost", sa.Double),
    sa.Column("limit_set", sa.Boolean, nullable=False),
    sa.Column("how", sa.Text, nullable=False),
    sa.Column("message", sa.Text, nullable=False),
    sa.UniqueConstraint("job", "number"),
)
slices = sa.Table(
    "wattkeeper_slices",
    _tables,
    sa.Column("attempt_id", sa.Text, sa.ForeignKey(attempts.c.id), primary_key=True),
    sa.Column("report", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("power_limit_w", sa.Double, nullable=False),
    sa.Column("batch_size", sa.Integer),
    sa.Column("warm_steps", sa.Integer, nullable=False),
    sa.Column("steps", sa.Integer, nullable=False),
    sa.Column("least_s", sa.Double, nullable=False),
    sa.Column("measured", sa.Text),
)
"""`report` is that which reports the slice; `measured`: its values, as JSON."""


class SessionStore:
    """The database of sessions, made if it is not there.

    Every use opens a connection of its own, so that a process may fork, and a server be started
    again, between two of them.

    Args:
        where: A file, or the URL of a PostgreSQL database (``postgresql://user@host/name``). By
            default `WATTKEEPER_STORE`, else ``sessions.sqlite`` in the user's state folder.

    Raises:
        InputError: If the URL is wrong.
        StoreError: If the file is something else, or of a newer wattkeeper.
        EnvironmentLacks: If the database cannot be reached or written, or its driver is absent.

    Attributes:
        name: As messages show it, without a password.
        checkpoints: Folder for the states of attempts that were stopped.
    """

    def __init__(self, where: str | Path | None = None) -> None:
        place = where or os.environ.get("WATTKEEPER_STORE") or state_folder() / "sessions.sqlite"
        if "://" in str(place):
            self._engine = _server(str(place))
            self.name = self._engine.url.render_as_string(hide_password=True)
            self.checkpoints = state_folder() / "checkpoints"
        else:
            path = Path(place).expanduser().absolute()
            self.name = str(path)
            self._engine = self._file(path)
            self.checkpoints = path.with_name(f"{path.name}.checkpoints")
        self.run(self._prepare, FIRST_S)

    def run(self, work: Callable[[sa.Connection], T], patience_s: float) -> T:
        """Do something in a transaction, and repeat it if the server could not be reached.

        The commit may have succeeded all the same, so the work first checks whether it is done.

        `patience_s` is how long it retries, s of the host.

        Raises:
            EnvironmentLacks: If the database cannot be reached for that long, or not be written.
            StoreError: If it is damaged.
        """
        until_s, pause_s = time.monotonic() + patience_s, 0.05
        while True:
            try:
                with self._engine.begin() as db:
                    return work(db)
            except sa.exc.DBAPIError as error:
                if not _is_transient(error) or time.monotonic() > until_s:
                    self._refuse(error)
            time.sleep(pause_s)
            pause_s = min(1.0, 2 * pause_s)

    def now_s(self, db: sa.Connection) -> float:
        """Seconds since 1970, by the clock that all users of the database share."""
        if self._engine.dialect.name == "sqlite":
            return time.time()
        epoch = sa.select(sa.func.extract("epoch", sa.func.clock_timestamp()))
        return float(db.execute(epoch).scalar_one())

    def job(self, db: sa.Connection, name: str) -> sa.RowMapping:
        """The row of a job, made if it is not there; others wait until the transaction ends."""
        values = {"name": name, "seed": secrets.randbits(62), "begun_s": self.now_s(db)}
        made = insert_into(db)(jobs).values(recurrences=0, observed=0, **values)
        db.execute(made.on_conflict_do_nothing())
        query = sa.select(jobs).where(jobs.c.name == name).with_for_update()
        return db.execute(query).mappings().one()

    def journal(self, job: str) -> list[dict[str, Any]]:
        """The decisions on a job, in order."""
        query = sa.select(decisions).where(decisions.c.job == job).order_by(decisions.c.number)
        return self.run(lambda db: [dict(row) for row in db.execute(query).mappings()], FIRST_S)

    def history(self, job: str) -> list[dict[str, Any]]:
        """All attempts of a job in the order of their beginning, with their outcomes so far."""
        query = (
            sa.select(attempts, *(c for c in observations.c if c.name not in attempts.c))
            .outerjoin(observations, observations.c.attempt_id == attempts.c.id)
            .where(attempts.c.job == job)
            .order_by(attempts.c.recurrence, attempts.c.attempt)
        )
        trained = sa.select(slices).join(attempts).where(attempts.c.job == job)

        def read(db: sa.Connection) -> list[dict[str, Any]]:
            totals = defaultdict[str, SliceTotals](lambda: NO_SLICES)
            for row in db.execute(trained).mappings():
                _, piece, measured = _slice_of(row)
                if measured is not None:
                    own, discarded = row["attempt_id"], piece.batch_size is not None
                    totals[own] = totals[own].add(measured.spent_s, measured.spent_j, discarded)
            names = (
                "slices",
                "slice_time_s",
                "slice_energy_j",
                "discarded_time_s",
                "discarded_energy_j",
            )
            return [
                dict(row) | dict(zip(names, totals[row["id"]], strict=True))
                for row in db.execute(query).mappings()
            ]

        return self.run(read, FIRST_S)

    def _file(self, path: Path) -> sa.Engine:
        try:
            make_private_parents(path)
            make_private_file(path)
            for suffix in BESIDE:
                check_own_entry(path.with_name(path.name + suffix))
        except OSError as error:
            self._refuse(error)
        until_s = time.monotonic() + BUSY_S
        while True:
            try:
                with sqlite3.connect(path, timeout=BUSY_S) as db:
                    db.execute("PRAGMA journal_mode = WAL")
                db.close()
                break
            except sqlite3.Error as error:
                if "locked" not in str(error) or time.monotonic() > until_s:
                    self._refuse(error)
            time.sleep(0.05)
        engine = sa.create_engine(
            sa.URL.create("sqlite", database=str(path)),
            poolclass=sa.NullPool,
            connect_args={"timeout": BUSY_S, "isolation_level": None},
        )
        sa.event.listen(engine, "begin", lambda db: db.exec_driver_sql("BEGIN IMMEDIATE"))
        return engine

    def _prepare(self, db: sa.Connection) -> None:
        if db.dialect.name == "postgresql":
            db.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK)))
        is_made = sa.inspect(db).has_table(schema.name)
        _tables.create_all(db)
        if not is_made:
            db.execute(schema.insert().values(version=SCHEMA))
        version = db.execute(sa.select(schema.c.version)).scalar_one()
        if version != SCHEMA:
            raise StoreError(
                f"{self.name} is of schema {version}, this wattkeeper knows {SCHEMA}: install a "
                "newer wattkeeper, or name another store (store=, or WATTKEEPER_STORE)"
            )

    def _refuse(self, error: Exception) -> NoReturn:
        reason = " ".join(str(getattr(error, "orig", None) or error).split())
        other = "or name another store (store=, or WATTKEEPER_STORE)"
        refusal: WattkeeperError
        if "not a database" in reason or "malformed" in reason:
            refusal = StoreError(
                f"{self.name} is damaged, or no store ({reason}): remove it, {other}"
            )
        elif "locked" in reason or "lock timeout" in reason:
            refusal = EnvironmentLacks(
                f"the store {self.name} was held by another process for more than {BUSY_S:g} s: "
                "let one that was stopped (SIGSTOP) go on, or end it"
            )
        elif "://" not in self.name:
            refusal = EnvironmentLacks(
                f"the store {self.name} cannot be written ({reason}): let this user write the file "
                f"and its folder, {other}"
            )
        elif isinstance(error, sa.exc.OperationalError):
            refusal = EnvironmentLacks(
                f"the database {self.name} cannot be reached ({reason}): see that the server runs, "
                f"and that host, user, password and database of the URL are right, {other}"
            )
        else:
            refusal = EnvironmentLacks(
                f"the database {self.name} refuses ({reason}): let this user make and write tables "
                f"there, {other}"
            )
        raise refusal from error


def slices_of(db: sa.Connection, attempt: str) -> list[tuple[int, Slice, Measurement | None]]:
    """The slices of an attempt in order: number of its report, what was asked, what it measured."""
    query = sa.select(slices).where(slices.c.attempt_id == attempt).order_by(slices.c.report)
    return [_slice_of(row) for row in db.execute(query).mappings()]


def _slice_of(row: sa.RowMapping) -> tuple[int, Slice, Measurement | None]:
    return (
        row["report"],
        Slice(*(row[name] for name in Slice._fields)),
        None if row["measured"] is None else Measurement(*json.loads(row["measured"])),
    )


def ask_for_slice(db: sa.Connection, attempt: str, report: int, piece: Slice) -> None:
    """Note that a slice is asked for, which the report of that number measures."""
    db.execute(sa.insert(slices).values(attempt_id=attempt, report=report, **piece._asdict()))


def note_slice(db: sa.Connection, attempt: str, report: int, measured: Measurement) -> None:
    """Note what the slice that was asked for measured."""
    own = slices.c.attempt_id == attempt, slices.c.report == report
    db.execute(sa.update(slices).where(*own).values(measured=json.dumps(measured)))


def _server(url: str) -> sa.Engine:
    allowed = "allowed: the path of a file, or postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError) as error:
        raise InputError(f"found a store whose URL cannot be read; {allowed}") from error
    if parsed.get_backend_name() not in {"postgresql", "postgres"}:
        raise InputError(f"found a store of the kind {parsed.drivername!r}; {allowed}")
    try:
        engine = sa.create_engine(
            parsed.set(drivername="postgresql+psycopg"),
            poolclass=sa.NullPool,
            connect_args={"connect_timeout": int(FIRST_S)},
        )
    except ImportError as error:
        raise EnvironmentLacks(
            "PostgreSQL's driver is not installed: pip install 'wattkeeper[postgres]'"
        ) from error
    held_ms = int(BUSY_S * 1000)
    limits = (
        f"SET LOCAL idle_in_transaction_session_timeout = {held_ms}; "
        f"SET LOCAL lock_timeout = {held_ms + 5000}"
    )
    sa.event.listen(engine, "begin", lambda db: db.exec_driver_sql(limits))
    return engine


def insert_into(db: sa.Connection) -> Any:
    """The `insert` of the database's dialect, which knows what to do on a conflict."""
    return import_module(f"sqlalchemy.dialects.{db.dialect.name}").insert


def _is_transient(error: sa.exc.DBAPIError) -> bool:
    """Whether the error may pass: the server is busy, starting, stopping, or unreachable."""
    message, state = str(error.orig), getattr(error.orig, "sqlstate", None)
    if isinstance(error.orig, sqlite3.Error):
        return "locked" in message or "busy" in message
    if state is None:
        refused = "FATAL" in message and not any(
            word in message for word in ("starting up", "shutting down", "too many", "recovery")
        )
        return not refused and isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError)
    return str(state)[:2] in {"08", "25", "40", "53", "57"}
