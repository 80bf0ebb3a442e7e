"""An event store in one SQLite file, for one machine: every commit is on the disk before it returns."""

from __future__ import annotations

import sqlite3
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..codec import pack, parse_event, unpack
from ..kinds import EVENT_TYPES, type_of
from ..reasons import Reason, UndecodableEventError
from .model import Aggregate, Outgoing, StoreError, VersionConflictError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ..codec import Encoded

APPLICATION_ID = 0x70676473
SCHEMA = """
CREATE TABLE IF NOT EXISTS aggregates (
    aggregate_id TEXT PRIMARY KEY, device_id TEXT NOT NULL, owner TEXT NOT NULL, version INTEGER NOT NULL,
    timestamp_ns INTEGER NOT NULL, event_type TEXT NOT NULL, data BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS aggregates_of_devices ON aggregates (device_id);
CREATE INDEX IF NOT EXISTS aggregates_by_time ON aggregates (timestamp_ns);
CREATE TABLE IF NOT EXISTS events (
    aggregate_id TEXT NOT NULL, version INTEGER NOT NULL, event_type TEXT NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (aggregate_id, version)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS outbox (
    number INTEGER PRIMARY KEY AUTOINCREMENT, subject TEXT NOT NULL, payload BLOB NOT NULL, message_id TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS position (only INTEGER PRIMARY KEY CHECK (only = 0), last_seq INTEGER NOT NULL);
INSERT OR IGNORE INTO position VALUES (0, 0);
"""
BUSY_S = 60
WHOSE = "SELECT application_id, (SELECT count(*) FROM sqlite_master) FROM pragma_application_id"
STATE = "aggregate_id, device_id, owner, version, timestamp_ns, event_type, data"
TO_DO = {
    sqlite3.SQLITE_BUSY: "another process holds it; try again when that has ended",
    sqlite3.SQLITE_FULL: "make room; nothing of this change is stored, what was stored before is whole",
    sqlite3.SQLITE_READONLY: "let this user write the file and its folder",
    sqlite3.SQLITE_CORRUPT: "the file is damaged; restore a backup of it, or save what is left: sqlite3 FILE .recover",
}
"""What helps, by the kind of an error."""


@contextmanager
def telling(path: Path) -> Iterator[None]:
    """Raise SQLite's errors about a file as StoreError, with advice. Errors of wrong use are not changed."""
    try:
        yield
    except sqlite3.ProgrammingError:
        raise
    except sqlite3.Error as error:
        raise StoreError(f"{path}: {said(error)}") from error


def said(error: sqlite3.Error) -> str:
    """The text of an error of SQLite, with advice."""
    to_do = TO_DO.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
    return f"{error}: {to_do}" if to_do else str(error)


class SqliteStore:
    """An event store in a file. ``history`` keeps all events; without it only states are kept, as a hub does.

    Several processes may use one file, each with its own store object, which belongs to one thread.
    """

    at_once = 1

    def __init__(self, path: str | Path, *, history: bool = True) -> None:
        """Open or make the file; StoreError if it is something else, or cannot be used now."""
        self.path = Path(path)
        self.history = history
        try:
            self._db = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None)
        except sqlite3.Error as error:
            raise StoreError(f"cannot open the event store {self.path}: {error}") from error
        try:
            self._prepare()
        except BaseException as error:
            self._db.close()
            if not isinstance(error, sqlite3.Error):
                raise
            if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_NOTADB:
                raise StoreError(f"{self.path} is no event store: {error}") from error
            raise StoreError(f"cannot open the event store {self.path}: {said(error)}") from error

    def _prepare(self) -> None:
        """Check that the file is an event store, and create the tables that it lacks."""
        # One statement: another process may be making the tables at this moment.
        found, tables = self._db.execute(WHOSE).fetchone()
        if found != APPLICATION_ID and (found or tables):
            raise StoreError(f"{self.path} is another program's database")
        self._keep_a_journal()
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        self._db.executescript(SCHEMA)

    def _keep_a_journal(self) -> None:
        """Write ahead. SQLite refuses at once, without the timeout, while another process does the same."""
        deadline = time.monotonic() + BUSY_S
        while True:
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
            time.sleep(0.01)

    def __enter__(self) -> SqliteStore:
        """The store."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing, with the right to write from the beginning."""
        with telling(self.path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # a full disk has ended it already
                    self._db.execute("ROLLBACK")
                raise

    def load(self, aggregate_id: str) -> Aggregate | None:
        """The state of an aggregate; None if there is none."""
        with telling(self.path):
            row = self._db.execute(
                f"SELECT {STATE} FROM aggregates WHERE aggregate_id = ?", (aggregate_id,)
            ).fetchone()
        return None if row is None else read_state(row)

    def append(
        self, state: Aggregate, events: Sequence[Any], published: Iterable[Encoded], *, after: int
    ) -> None:
        """Store events, state and outbox in one transaction; VersionConflictError if the version is not ``after``."""
        with self._transaction() as db:
            row = db.execute(
                "SELECT version FROM aggregates WHERE aggregate_id = ?", (state.aggregate_id,)
            ).fetchone()
            found = -1 if row is None else row[0]
            if found != after:
                raise VersionConflictError(
                    f"aggregate {state.aggregate_id} has version {found}, not {after}"
                )
            self._put(db, state, events)
            put_out(db, published)

    def _put(self, db: sqlite3.Connection, state: Aggregate, events: Sequence[Any]) -> None:
        """Write a state and new events."""
        db.execute(
            "INSERT OR REPLACE INTO aggregates VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                state.aggregate_id,
                state.device_id,
                state.owner,
                state.version,
                state.timestamp_ns,
                type_of(state.snapshot).name,
                pack(state.snapshot),
            ),
        )
        if self.history:
            db.executemany(
                "INSERT INTO events VALUES (?, ?, ?, ?)",
                [
                    (state.aggregate_id, e.event_metadata.version, type_of(e).name, pack(e))
                    for e in events
                ],
            )

    def fill(self, aggregates: Iterable[tuple[Aggregate, Sequence[Any]]]) -> int:
        """Replace whole aggregates in one transaction."""
        count = 0
        with self._transaction() as db:
            for state, events in aggregates:
                db.execute("DELETE FROM events WHERE aggregate_id = ?", (state.aggregate_id,))
                self._put(db, state, events)
                count += 1
        return count

    def aggregates(
        self,
        *,
        owner: str | None = None,
        device_ids: Iterable[str] = (),
        after_ns: int | None = None,
        after_device: str = "",
    ) -> Iterator[Aggregate]:
        """States that fit every filter that is given, by device and aggregate."""
        wanted = list(device_ids)
        clauses, values = ["1"], list[Any](wanted)
        if wanted:
            clauses.append(f"device_id IN ({', '.join('?' * len(wanted))})")
        if owner is not None:
            clauses.append("owner = ?")
            values.append(owner)
        if after_ns is not None:
            clauses.append("timestamp_ns > ?")
            values.append(after_ns)
        if after_device:
            clauses.append("device_id > ?")
            values.append(after_device)
        with telling(self.path):
            rows = self._db.execute(
                f"SELECT {STATE} FROM aggregates WHERE {' AND '.join(clauses)}"
                " ORDER BY device_id, aggregate_id",
                values,
            )
            yield from map(read_state, rows)

    def events(self, aggregate_id: str, *, after: int = -1) -> Iterator[Any]:
        """The events of an aggregate with versions above ``after``; none without history."""
        with telling(self.path):
            rows = self._db.execute(
                "SELECT event_type, data FROM events WHERE aggregate_id = ? AND version > ? ORDER BY version",
                (aggregate_id, after),
            )
            for name, data in rows:
                yield read_event(name, data, aggregate_id)

    def events_of(self, aggregate_ids: Sequence[str]) -> dict[str, list[Any]]:
        """The events of many aggregates; none of one without history."""
        return {each: list(self.events(each)) for each in aggregate_ids}

    def delete_device(self, device_id: str, published: Iterable[Encoded] = ()) -> int:
        """Forget a device, and put its events of leaving into the outbox; how many aggregates it had."""
        with self._transaction() as db:
            db.execute(
                "DELETE FROM events WHERE aggregate_id IN"
                " (SELECT aggregate_id FROM aggregates WHERE device_id = ?)",
                (device_id,),
            )
            count = db.execute("DELETE FROM aggregates WHERE device_id = ?", (device_id,)).rowcount
            put_out(db, published)
        return count

    def outgoing(self, limit: int = 1000) -> list[Outgoing]:
        """The events that wait for the bus, oldest first."""
        with telling(self.path):
            rows = self._db.execute(
                "SELECT number, subject, payload, message_id FROM outbox ORDER BY number LIMIT ?",
                (limit,),
            )
            return [Outgoing(*row) for row in rows]

    def sent(self, numbers: Iterable[int], last_seq: int) -> None:
        """Remove events that the stream has from the outbox, and keep the position in the stream."""
        with self._transaction() as db:
            db.executemany("DELETE FROM outbox WHERE number = ?", [(number,) for number in numbers])
            db.execute("UPDATE position SET last_seq = ?", (last_seq,))

    def last_seq(self) -> int:
        """The position in the stream."""
        with telling(self.path):
            [last] = self._db.execute("SELECT last_seq FROM position").fetchone()
        return int(last)


def read_state(row: Any) -> Aggregate:
    """A row of the table of aggregates."""
    aggregate_id, device_id, owner, version, timestamp_ns, event_type, data = row
    snapshot = read_event(event_type, data, aggregate_id)
    return Aggregate(aggregate_id, device_id, owner, version, timestamp_ns, snapshot)


def read_event(name: str, data: bytes, aggregate_id: str) -> Any:
    """An event or a state as it is stored; UndecodableEventError names its aggregate."""
    try:
        if name not in EVENT_TYPES:
            raise UndecodableEventError(Reason.EVENT_TYPE, f"no hub has an event {name!r}")
        return parse_event(EVENT_TYPES[name], unpack(data))
    except UndecodableEventError as bad:
        raise UndecodableEventError(bad.reason, f"{bad.detail} (aggregate {aggregate_id})") from bad


def put_out(db: sqlite3.Connection, published: Iterable[Encoded]) -> None:
    """Put events into the outbox."""
    db.executemany(
        "INSERT INTO outbox (subject, payload, message_id) VALUES (?, ?, ?)",
        [(item.subject, item.payload, item.message_id) for item in published],
    )
