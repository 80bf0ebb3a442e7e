"""One bucket of a batch: turns messages into rows for every table, with the state that the tables
hold.

::

    messages ──► decode ──► versions ──► events ──► twins, sessions, commands, links, audit
        │           │           └─► gaps, aggregates
        raw     dead letters

The same messages and the same state give the same rows, and it makes no difference how a stream is
cut into batches. Nothing here opens a file: `Tables` passes the state in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError

from ..codec import Envelope, unpack
from ..columns import decode_batch
from ..numbers import SIGNED_MAX, fitting
from ..reasons import UndecodableEventError
from . import commands, connections, links, registrations, twins
from .rows import Ended, OpenRows
from .schemas import (
    AGGREGATES,
    AUDIT,
    COMMANDS,
    DEAD_LETTERS,
    EVENTS,
    LINKS_CURRENT,
    RAW,
    REGISTRATIONS,
    SESSIONS,
    TWIN_HISTORY,
    TWIN_LATEST,
    TWIN_SYNC,
    VERSION_GAPS,
    TableSchema,
)
from .settings import REPAIR_HEADER, Settings
from .tracking import ARRIVALS, LEFT_OUT, Tracked, track

if TYPE_CHECKING:
    from datetime import date

    Numbers = np.ndarray[Any, Any]

MESSAGES = pa.schema([one for one in RAW.schema if one.name != "day"])
"""What a batch is made of: messages with their bucket."""


class State(Protocol):
    """The rows of a bucket before a batch."""

    def current(self, table: TableSchema) -> pa.Table:
        """All rows of a table that has the current ones, the open ones of a table with open rows."""

    def closed(self, table: TableSchema, day: date) -> pa.Table:
        """The rows of a day that are closed."""


@dataclass
class Change:
    """The changes of a batch to a table: rows to add; rows that replace all current or open ones;
    days to replace.

    ``touched`` are the keys, by `TableSchema.page_key`, of those rows that may differ; None for all.
    """

    add: pa.Table
    instead: pa.Table | None = None
    days: tuple[date, ...] = ()
    touched: pa.Array | None = None


@dataclass
class Outcome:
    """The changes of a batch to every table, and its counts."""

    changes: dict[str, Change] = field(default_factory=dict)
    messages: int = 0
    events: int = 0
    duplicates: int = 0
    dead_letters: int = 0
    first_seq: int = 0
    last_seq: int = 0


def process(messages: pa.Table, state: State, settings: Settings) -> Outcome:
    """The changes that a bucket's messages make. ``messages`` have the schema `MESSAGES`, in any order."""
    messages = in_order(messages)
    work = Batch(messages, state, settings)
    work.run()
    return work.outcome


class Batch:
    """One bucket of a batch while it is worked on."""

    def __init__(self, messages: pa.Table, state: State, settings: Settings) -> None:
        """``messages`` are in the order of the stream."""
        self.messages = messages
        self.state = state
        self.settings = settings
        first, last = (of(messages["seq"]).as_py() or 0 for of in (pc.min, pc.max))
        self.outcome = Outcome(messages=len(messages), first_seq=first, last_seq=last)
        self.aggregates = state.current(AGGREGATES)

    def add(self, table: TableSchema, rows: pa.Table) -> None:
        """Rows that a table gets."""
        if len(rows):
            self.outcome.changes[table.name] = Change(rows.select(table.schema.names))

    def replace(self, table: TableSchema, rows: pa.Table | None, new: pa.Table) -> None:
        """Rows in place of all that a table has; those with a key of ``new`` may differ."""
        if rows is not None:
            touched = new[table.page_key].combine_chunks().unique()
            change = Change(table.schema.empty_table(), rows, touched=touched)
            self.outcome.changes[table.name] = change

    def end(self, table: TableSchema, ended: Ended) -> None:
        """Rows of a table with open ones."""
        if ended.changed:
            change = Change(ended.closed, ended.open, ended.recalled)
            self.outcome.changes[table.name] = change

    def open_rows(self, table: TableSchema, by: str) -> OpenRows:
        """The open rows of a table, with the way to closed ones."""
        found: dict[date, pa.Table] = {}

        def recall(day: date) -> pa.Table:
            if day not in found:
                found[day] = self.state.closed(table, day)
            return found[day]

        has_days = "day" in table.partition_by
        return OpenRows(table, self.state.current(table), by, recall if has_days else None)

    def run(self) -> None:
        """Make the rows of every table."""
        self.add(RAW, with_day(self.messages, "received"))
        decoded = decoded_rows(self.messages, self.settings)
        letters = self.dead_letters(decoded)
        decoded = decoded.drop_columns(["error", "error_detail", "payload", "subject"])
        gaps = self.open_rows(VERSION_GAPS, "aggregate_id")
        tracked = self.tracked(decoded, letters, gaps)
        versions = tracked.aggregates
        is_new, rows, owners = self.registered(decoded)
        events = new_events(decoded, tracked, is_new)
        self.add(EVENTS, events)
        self.outcome.events = len(events)
        good = pc.sum(pc.is_valid(decoded["event_type"])).as_py() or 0
        self.outcome.duplicates = good - len(events)
        self.add(REGISTRATIONS, rows)
        self.add(AUDIT, audit(events))
        clock = self.clock_ns(versions)
        late = clock - int(self.settings.late_s * 1e9)
        self.twins(events)
        self.connections(events, clock, late)
        gone = self.gone()
        self.commands(events, clock, late, gone)
        of_links = links.events_of(events)
        current = links.current_links(self.state.current(LINKS_CURRENT), of_links, gone)
        self.replace(LINKS_CURRENT, current, of_links)
        self.age(gaps)
        self.end(VERSION_GAPS, gaps.finish())
        new = pa.concat_tables([with_gone(versions, gone), owners])
        self.replace(AGGREGATES, self.advanced(new), new)

    def dead_letters(self, decoded: pa.Table) -> pa.Table:
        """The messages that are no event; the table gets them."""
        bad = decoded.filter(pc.is_valid(decoded["error"]))
        self.outcome.dead_letters = len(bad)
        if not len(bad):
            return DEAD_LETTERS.schema.empty_table()
        found = [envelope_of(row) for row in bad.select(ENVELOPE_OF).to_pylist()]
        bad = bad.drop_columns(["device_id", "aggregate_id", "version", "data"])
        for place, name in enumerate(("device_id", "aggregate_id", "version")):
            column = [one[place] for one in found]
            bad = bad.append_column(name, pa.array(column, DEAD_LETTERS.schema.field(name).type))
        bad = bad.rename_columns({"error": "reason", "error_detail": "detail", "payload": "data"})
        rows = with_day(bad.drop_columns(["day"]), "received").select(DEAD_LETTERS.schema.names)
        rows = rows.cast(DEAD_LETTERS.schema)
        self.add(DEAD_LETTERS, rows)
        return rows

    def tracked(self, decoded: pa.Table, letters: pa.Table, gaps: OpenRows) -> Tracked:
        """The arrival of each message, `LEFT_OUT` for messages without a device; and the new state of aggregates."""
        kinds = decoded["kind"]
        of_devices = pc.and_(
            pc.is_valid(decoded["event_type"]), pc.not_equal(kinds, registrations.KIND)
        )
        rows = np.flatnonzero(pc.fill_null(of_devices, False).to_numpy())
        events = decoded.select([*VERSIONED, "headers"])
        told = versioned(events if len(rows) == len(events) else events.take(rows), letters)
        found = track(told, self.aggregates, gaps)
        is_event = np.flatnonzero(~told["is_damaged"].to_numpy())
        arrival = np.full(len(decoded), LEFT_OUT, np.int64)
        incarnation = np.zeros(len(decoded), np.int64)
        arrival[rows], incarnation[rows] = found.arrival[is_event], found.incarnation[is_event]
        return Tracked(arrival, incarnation, found.aggregates)

    def registered(self, decoded: pa.Table) -> tuple[Numbers, pa.Table, pa.Table]:
        """Which messages are registrations that are new, as rows of their table, and the state of their owners."""
        is_one = pc.fill_null(pc.equal(decoded["kind"], registrations.KIND), False)
        found = decoded.select(registrations.COLUMNS).filter(is_one)
        new, rows, state = registrations.registered(found, self.aggregates)
        is_new = is_one.to_numpy() & np.isin(decoded["seq"].to_numpy(), new)
        return is_new, rows, state

    def clock_ns(self, versions: pa.Table) -> int:
        """The hub's latest time that the bucket has seen.

        A time that is far ahead of the stream's is wrong and is ignored: it would make all commands
        expire.
        """
        now_us = pc.max(self.messages["received"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()))
        limit = pa.scalar((now_us.as_py() or 0) * 1000 + int(self.settings.late_s * 1e9))
        times = [table["last_ns"] for table in (self.aggregates, versions)]
        believed = [pc.max(each.filter(pc.less_equal(each, limit))).as_py() or 0 for each in times]
        return max(believed)

    def twins(self, events: pa.Table) -> None:
        """Changes of resources."""
        changes = twins.history(events)
        self.add(TWIN_HISTORY, changes)
        current = self.state.current(TWIN_LATEST)
        from_snapshots = twins.of_snapshots(events)
        if len(from_snapshots):
            changes = pa.concat_tables([changes, from_snapshots])
        self.replace(TWIN_LATEST, twins.latest(current, changes), changes)

    def connections(self, events: pa.Table, clock: int, late: int) -> None:
        """Updates of metadata."""
        rows = connections.updates(events, late)
        sessions = self.open_rows(SESSIONS, "device_id")
        connections.connect(sessions, rows)
        connections.end_sessions(sessions, clock, self.settings)
        syncs = self.open_rows(TWIN_SYNC, "device_id")
        connections.synchronize(syncs, rows)
        connections.end_syncs(syncs, sessions, clock, self.settings)
        self.end(SESSIONS, sessions.finish())
        self.end(TWIN_SYNC, syncs.finish())

    def commands(
        self, events: pa.Table, clock: int, late: int, gone: dict[str, tuple[int, int]]
    ) -> None:
        """Commands and their ends."""
        rows = self.open_rows(COMMANDS, "aggregate_id")
        commands.join(rows, commands.of_commands(events, late), gone)
        commands.end_commands(rows, clock, self.settings)
        self.end(COMMANDS, rows.finish())

    def gone(self) -> dict[str, tuple[int, int]]:
        """At which version aggregates were emptied: by aggregate, or by device for links."""
        some = self.aggregates.filter(pc.is_valid(self.aggregates["gone_version"]))
        return {
            row["device_id" if row["kind"] == "resource-links" else "aggregate_id"]: (
                row["incarnation"],
                row["gone_version"],
            )
            for row in some.to_pylist()
        }

    def age(self, gaps: OpenRows) -> None:
        """Close gaps that have been open for too long."""
        if not len(gaps.table):
            return
        now = pc.max(self.messages["received"])
        limit = now.as_py().timestamp() - self.settings.keep_open_s
        old = pc.less(gaps.table["found_at"], pa.scalar(int(limit * 1e6)).cast(now.type))
        for row in gaps.take(old):
            row |= {"closed_at": now.as_py(), "closed_by": "age", "is_open": False}
            gaps.put(row)

    def advanced(self, new: pa.Table) -> pa.Table | None:
        """The state of all aggregates, with the rows of some in place of their old ones."""
        if not len(new):
            return None
        replaced = pc.is_in(
            self.aggregates["aggregate_id"], value_set=new["aggregate_id"].combine_chunks()
        )
        return pa.concat_tables([self.aggregates.filter(pc.invert(replaced)), new])


VERSIONED = [
    *("aggregate_id", "kind", "device_id", "href", "owner_id", "version", "timestamp_ns"),
    *("seq", "received", "is_snapshot", "bucket"),
]
ENVELOPE_OF = ["error", "payload", "device_id", "aggregate_id", "version"]


def envelope_of(row: dict[str, Any]) -> tuple[str | None, str | None, int | None]:
    """Device, aggregate and version of a message that is no event, as far as its envelope can be read."""
    told = row["device_id"], row["aggregate_id"], row["version"]
    if row["aggregate_id"] is not None:
        return told
    payload = row["payload"] or b""
    for is_packed in (False, True):
        try:
            envelope = Envelope.FromString(unpack(payload) if is_packed else payload)
        except (UndecodableEventError, DecodeError):
            continue
        if envelope.event_type and envelope.aggregate_id and envelope.version <= SIGNED_MAX:
            return envelope.group_id or None, envelope.aggregate_id, int(envelope.version)
    return told


def in_order(table: pa.Table) -> pa.Table:
    """A table by `seq`; most have this order already, and nothing is copied."""
    seq = table["seq"].to_numpy()
    return table if (seq[1:] >= seq[:-1]).all() else table.sort_by("seq")


def new_events(decoded: pa.Table, tracked: Tracked, is_new: Numbers) -> pa.Table:
    """The events that are new, with arrival and incarnation; registrations, which have neither, by a mask."""
    is_left_out = tracked.arrival == LEFT_OUT
    arrival = ARRIVALS.take(pa.array(tracked.arrival, mask=is_left_out))
    incarnation = pa.array(tracked.incarnation, mask=is_left_out)
    events = decoded.append_column("arrival", arrival).append_column("incarnation", incarnation)
    taken = ~is_left_out | is_new
    return events if taken.all() else events.filter(pa.array(taken))


def with_day(table: pa.Table, time: str) -> pa.Table:
    """A table with the day of one of its times."""
    return table.append_column("day", table[time].cast(pa.date32()))


def decoded_rows(messages: pa.Table, settings: Settings) -> pa.Table:
    """Decoded messages: the columns of `EVENTS` except arrival and incarnation, and those of dead letters."""
    content = "json" if settings.with_json else "raw"
    table = fitting(decode_batch(messages["subject"], messages["data"], content=content))
    arrays: dict[str, Any] = {name: table[name] for name in table.schema.names}
    arrays |= {name: messages[name] for name in ("stream", "seq", "received", "bucket")}
    arrays |= {name: messages[name] for name in ("subject", "headers")}
    arrays["payload"] = messages["data"]
    ns = table["timestamp_ns"]
    arrays["time"] = pc.divide(ns, 1000).cast(pa.timestamp("us", tz="UTC"))
    arrays["day"] = pc.coalesce(arrays["time"], messages["received"]).cast(pa.date32())
    types = EVENTS.schema
    for name in ("version", "sequence"):
        arrays[name] = arrays[name].cast(pa.int64())
    names = [n for n in types.names if n not in {"arrival", "incarnation"}]
    names += ["error", "error_detail", "data", "payload", "subject", "headers"]
    return pa.table({name: arrays[name] for name in names})


def versioned(events: pa.Table, letters: pa.Table) -> pa.Table:
    """The messages that carry versions, in the order of the stream: events, then damaged ones among them."""
    count = len(events)
    table = events.select(VERSIONED)
    table = table.append_column("is_damaged", pa.repeat(False, count))
    table = table.append_column("is_repair", is_repair(events["headers"]))
    has_place = pc.and_(pc.is_valid(letters["aggregate_id"]), pc.is_valid(letters["version"]))
    broken = letters.filter(pc.and_(has_place, pc.not_equal(letters["reason"], "content")))
    if not len(broken):
        return table
    rows = [
        dict.fromkeys(table.schema.names)
        | {name: row[name] for name in ("aggregate_id", "device_id", "version", "seq", "received")}
        | {"is_damaged": True, "is_snapshot": False, "is_repair": False, "bucket": row["bucket"]}
        for row in broken.to_pylist()
    ]
    merged = pa.concat_tables([table, pa.Table.from_pylist(rows, table.schema)])
    return in_order(merged)


def is_repair(headers: pa.ChunkedArray) -> Any:
    """Which messages a reconciliation published."""
    if headers.null_count == len(headers):
        return pa.repeat(False, len(headers))
    return pa.array(
        [any(name == REPAIR_HEADER for name, _ in row or ()) for row in headers.to_pylist()],
        pa.bool_(),
    )


def audit(events: pa.Table) -> pa.Table:
    """The rows of `AUDIT` of events."""
    types = events["event_type"]
    is_own = pc.is_in(types, value_set=pa.array(["resourcechanged"]))
    is_metadata = pc.equal(types, "devicemetadataupdated")
    asked = pc.not_equal(pc.fill_null(events["correlation_id"], ""), "")
    chosen = pc.and_(
        pc.and_(pc.invert(is_own), pc.or_(pc.invert(is_metadata), asked)),
        pc.invert(pc.fill_null(events["is_snapshot"], False)),
    )
    rows = events.filter(chosen)
    columns = [rows["event_type" if name == "action" else name] for name in AUDIT.schema.names]
    return pa.table(columns, schema=AUDIT.schema)


def with_gone(aggregates: pa.Table, gone: dict[str, tuple[int, int]]) -> pa.Table:
    """The state of aggregates with the versions at which they were emptied, in their incarnation."""
    if not gone:
        return aggregates
    values: list[int | None] = []
    names = ["kind", "device_id", "aggregate_id", "incarnation"]
    for row in aggregates.select(names).to_pylist():
        key = row["device_id" if row["kind"] == "resource-links" else "aggregate_id"]
        incarnation, version = gone.get(key, (-1, None))
        values.append(version if incarnation == row["incarnation"] else None)
    place = aggregates.schema.get_field_index("gone_version")
    return aggregates.set_column(place, "gone_version", pa.array(values, pa.int64()))
