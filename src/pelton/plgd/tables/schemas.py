"""The tables that the pipeline makes of a hub's events: their columns, keys and partitions.

Three ways in which a table takes a batch::

    APPEND    rows are added, and stay
    CURRENT   one row for each key, replaced by a newer one
    OPEN      one row for each key; while `is_open` is true it is replaced, afterwards it stays

Every table has the column ``bucket``, which all rows of a device share, and is partitioned by it. Numbers that
the hub keeps unsigned are signed here: a Delta table has no unsigned type. A column that ends in ``_ns`` is the
hub's time in ns since 1970; ``time`` is the same in the type of a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable

TEXT, TEXTS, INTEGER, FLAG, DATA = (
    pa.string(),
    pa.list_(pa.string()),
    pa.int64(),
    pa.bool_(),
    pa.binary(),
)
TIME, DAY, NUMBER, SMALL = pa.timestamp("us", tz="UTC"), pa.date32(), pa.float64(), pa.int32()
RANGES = pa.list_(pa.struct([("first", INTEGER), ("last", INTEGER)]))
HEADERS = pa.map_(TEXT, TEXTS)


class Way(StrEnum):
    """How a table takes a batch."""

    APPEND = "append"
    CURRENT = "current"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, its type and its meaning."""

    name: str
    type: pa.DataType
    meaning: str


@dataclass(frozen=True)
class TableSchema:
    """A table: its meaning, how it takes a batch, its key and its columns."""

    name: str
    meaning: str
    way: Way
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    partition_by: tuple[str, ...]

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns as Arrow has them."""
        return pa.schema([(column.name, column.type) for column in self.columns])

    @cached_property
    def bounded(self) -> tuple[str, ...]:
        """The columns with bounds for each file in the log; readers use these to skip files."""
        return tuple(name for name in self.schema.names if name in BOUNDED)

    @cached_property
    def page_key(self) -> str:
        """The key column that finds current rows and decides the page of a row."""
        return "aggregate_id" if "aggregate_id" in self.schema.names else "device_id"


BOUNDED = frozenset(
    [
        *("seq", "received", "time", "timestamp_ns", "issued_at", "valid_until", "finished_at"),
        *("connected_at", "ended_at", "syncing_at", "found_at", "found_seq", "last_ns", "last_seq"),
    ]
)
"""Columns that grow along the stream. A file has nearly all values of any other one, so bounds would leave out none."""

MESSAGE = (
    Column("stream", TEXT, "the stream of the message"),
    Column("seq", INTEGER, "its sequence there"),
    Column("received", TIME, "when the stream got it"),
)
HUB_TIME = (
    Column("time", TIME, "the hub's time of the event"),
    Column("timestamp_ns", INTEGER, "the same, exactly"),
)
BUCKET = Column("bucket", SMALL, "which share of the devices: a hash of the device id")
DAY_OF_EVENT = Column("day", DAY, "the day of `time`, in UTC")
DAY_OF_MESSAGE = Column("day", DAY, "the day of `received`, in UTC")
IS_OPEN = Column("is_open", FLAG, "whether the row may still change")
INCARNATION = Column(
    "incarnation", INTEGER, "how often versions of the aggregate began again before, from 0"
)
OWNER = Column("owner_id", TEXT, "the id of the owner, as in the subject")
DEVICE = Column("device_id", TEXT, "the device")
HREF = Column("href", TEXT, "the path of the resource; null if the row is not about one")
AGGREGATE = Column("aggregate_id", TEXT, "the aggregate that the versions belong to")
HUB = Column("hub_id", TEXT, "the hub; empty before v2.9")
USER = Column("user_id", TEXT, "who did it; the nil UUID is the hub's heartbeat")
CONTENT = (
    Column("content", DATA, "the body"),
    Column("content_type", TEXT, "its media type"),
    Column("content_json", TEXT, "the body as JSON; null if it is empty or cannot be JSON"),
)


def _table(
    name: str,
    way: Way,
    meaning: str,
    key: str,
    columns: Iterable[Column],
    last: tuple[Column, ...],
) -> TableSchema:
    partitions = tuple(column.name for column in last)
    return TableSchema(name, meaning, way, tuple(key.split()), (*columns, *last), partitions)


RAW = _table(
    "raw",
    Way.APPEND,
    "every message of the stream, unchanged",
    "stream seq",
    [
        *MESSAGE,
        Column("subject", TEXT, "the subject"),
        Column("headers", HEADERS, "the headers; null without"),
        Column("data", DATA, "the payload"),
    ],
    (DAY_OF_MESSAGE, BUCKET),
)

EVENTS = _table(
    "events",
    Way.APPEND,
    "every event once, decoded",
    "aggregate_id incarnation version",
    [
        *MESSAGE,
        Column("kind", TEXT, "`resources`, `metadata`, `resource-links` or `registrations`"),
        Column("event_type", TEXT, "the type, as in the subject"),
        Column("is_snapshot", FLAG, "whether it is a snapshot, as of hubs before v2.16"),
        OWNER,
        DEVICE,
        Column("device_ids", TEXTS, "the devices of a registration"),
        HREF,
        Column("href_id", TEXT, "the id of the path"),
        Column("lead_type", TEXT, "the lead resource type of the subject"),
        AGGREGATE,
        INCARNATION,
        Column("version", INTEGER, "the version; null for registrations"),
        Column(
            "arrival",
            TEXT,
            "`next`; `first` of its aggregate; `gap`: versions before it are missing; `late`: it was"
            " missing; `restart`: version 0 again; `restore`: an older version, but a newer event",
        ),
        *HUB_TIME,
        HUB,
        USER,
        Column("owner", TEXT, "the owner claim"),
        Column("correlation_id", TEXT, "the id of the command"),
        Column("connection_id", TEXT, "the connection of the device"),
        Column(
            "sequence",
            INTEGER,
            "the number of the device's message on its connection; null above 2^63 - 1",
        ),
        Column("status", TEXT, "the status: `OK`, `NOT_FOUND`, ..."),
        *CONTENT,
        Column("content_format", SMALL, "the CoAP content format, -1 for none"),
        Column("etag", DATA, "the etag of the body"),
        Column("resource_types", TEXTS, "the types of the resource, since hub v2.18"),
        Column("resource_interface", TEXT, "the interface that a command asks for"),
        Column("valid_until_ns", INTEGER, "when a command expires, 0 for never"),
        Column("hrefs", TEXTS, "the paths of links"),
        Column("connection_status", TEXT, "`ONLINE` or `OFFLINE`"),
        Column("protocol", TEXT, "the protocol of the connection"),
        Column("connected_at_ns", INTEGER, "when the device connected"),
        Column("service_id", TEXT, "the gateway of the connection"),
        Column("local_endpoints", TEXTS, "where the device is reached in its own network"),
        Column("twin_state", TEXT, "`OUT_OF_SYNC`, `SYNCING`, `IN_SYNC` or `DISABLED`"),
        Column("twin_enabled", FLAG, "whether the hub keeps a twin"),
        Column("syncing_at_ns", INTEGER, "when the synchronization began"),
        Column("in_sync_at_ns", INTEGER, "when it ended"),
        Column("force_synchronization_at_ns", INTEGER, "when it was forced"),
        Column("force_synchronization", FLAG, "whether the command forces it"),
        Column("canceled", FLAG, "whether a command to the metadata was canceled"),
    ],
    (DAY_OF_EVENT, BUCKET),
)

DEAD_LETTERS = _table(
    "dead_letters",
    Way.APPEND,
    "every message that is no event, or whose content is not of its type, with the reason and its bytes",
    "stream seq",
    [
        *MESSAGE,
        Column("subject", TEXT, "the subject"),
        Column("reason", TEXT, "a `Reason`: `snappy`, `envelope`, `content`, ..."),
        Column("detail", TEXT, "the reason in words"),
        Column("device_id", TEXT, "the device, if the subject or the envelope says it"),
        Column("aggregate_id", TEXT, "the aggregate, if the envelope can be read"),
        Column("version", INTEGER, "the version, if the envelope can be read"),
        Column("headers", HEADERS, "the headers; null without"),
        Column("data", DATA, "the payload"),
    ],
    (DAY_OF_MESSAGE, BUCKET),
)

TWIN = (
    DEVICE,
    Column("href", TEXT, "the path of the resource"),
    AGGREGATE,
    OWNER,
    HUB,
    INCARNATION,
    Column("version", INTEGER, "the version of the change"),
    *HUB_TIME,
    Column("is_present", FLAG, "whether the resource is there: its status is `OK`"),
    Column("status", TEXT, "the status; `NOT_FOUND` once it is unpublished"),
    Column("resource_types", TEXTS, "the types of the resource, since hub v2.18"),
    *CONTENT,
    Column("etag", DATA, "the etag of the body"),
    Column("seq", INTEGER, "the sequence of the message"),
)
TWIN_LATEST = _table(
    "twin_latest",
    Way.CURRENT,
    "every resource with its last change, by incarnation and version",
    "device_id href",
    TWIN,
    (BUCKET,),
)
TWIN_HISTORY = _table(
    "twin_history",
    Way.APPEND,
    "every change of every resource",
    "aggregate_id incarnation version",
    TWIN,
    (DAY_OF_EVENT, BUCKET),
)

SESSIONS = _table(
    "sessions",
    Way.OPEN,
    "every connection of a device, from online to offline",
    "device_id connection_id connected_at",
    [
        DEVICE,
        OWNER,
        HUB,
        INCARNATION,
        Column("connection_id", TEXT, "the address of the connection"),
        Column("protocol", TEXT, "the protocol, such as `COAPS_TCP`"),
        Column("service_id", TEXT, "the gateway"),
        Column("local_endpoints", TEXTS, "where the device is reached in its own network"),
        Column("connected_at", TIME, "when the device connected"),
        Column("online_at", TIME, "the first event of the connection that says online"),
        Column(
            "ended_at", TIME, "when it went offline, or the next connection began; null: online"
        ),
        Column("duration_s", NUMBER, "seconds from `connected_at` to `ended_at`"),
        Column(
            "end_reason",
            TEXT,
            "`offline`; `heartbeat`: the gateway died; `replaced`: a new connection began without an"
            " event that said offline; null: online",
        ),
        Column("first_version", INTEGER, "the first version of the metadata that speaks of it"),
        Column("last_version", INTEGER, "the last one"),
    ],
    (IS_OPEN, Column("day", DAY, "the day of `connected_at`, in UTC"), BUCKET),
)

TWIN_SYNC = _table(
    "twin_sync",
    Way.OPEN,
    "every synchronization of a device's twin",
    "device_id syncing_at",
    [
        DEVICE,
        OWNER,
        HUB,
        INCARNATION,
        Column("connection_id", TEXT, "the connection that it belongs to"),
        Column("connected_at", TIME, "when the device connected"),
        Column("syncing_at", TIME, "when the synchronization began"),
        Column("in_sync_at", TIME, "when the twin was in sync; null: not yet, or never"),
        Column(
            "over_at",
            TIME,
            "when its connection ended, or the next synchronization began; null: not yet",
        ),
        Column("sync_ms", NUMBER, "ms from `syncing_at` to `in_sync_at`"),
        Column("ready_ms", NUMBER, "ms from `connected_at` to `in_sync_at`"),
        Column(
            "outcome",
            TEXT,
            "`in sync`; `interrupted`: it ended before the twin was in sync; `syncing`: not ended yet",
        ),
        Column("first_version", INTEGER, "the first version of the metadata that speaks of it"),
        Column("last_version", INTEGER, "the last one"),
    ],
    (IS_OPEN, Column("day", DAY, "the day of `syncing_at`, in UTC"), BUCKET),
)

COMMANDS = _table(
    "commands",
    Way.OPEN,
    "every command, from pending to its end",
    "aggregate_id correlation_id kind",
    [
        Column("correlation_id", TEXT, "the id of the command"),
        Column("kind", TEXT, "`update`, `retrieve`, `create`, `delete`, or `metadata`"),
        DEVICE,
        HREF,
        AGGREGATE,
        OWNER,
        HUB,
        INCARNATION,
        Column("user_id", TEXT, "who sent it"),
        Column("issued_at", TIME, "when it was sent; null if only its confirmation was seen"),
        Column("issued_ns", INTEGER, "the same, exactly"),
        Column("valid_until", TIME, "when it expires; null: never"),
        Column("content_json", TEXT, "what it asks for, as JSON"),
        Column("finished_at", TIME, "when it was confirmed; null if it was not"),
        Column("finished_ns", INTEGER, "the same, exactly"),
        Column("latency_ms", NUMBER, "ms from `issued_at` to `finished_at`, by the hub's clock"),
        Column("status", TEXT, "the status of the confirmation"),
        Column(
            "outcome",
            TEXT,
            "`pending`; `success`, `failed`, `canceled` by its status; `expired`: not confirmed when"
            " `valid_until` was over; `dropped`: its resource was deleted; `given up`: pending for"
            " longer than the pipeline keeps it",
        ),
        Column("pending_version", INTEGER, "the version of the event that says it is pending"),
        Column("finished_version", INTEGER, "the version of the event that says it has ended"),
    ],
    (
        IS_OPEN,
        Column("day", DAY, "the day of `issued_at`, or else of `finished_at`, in UTC"),
        BUCKET,
    ),
)

LINKS_CURRENT = _table(
    "links_current",
    Way.CURRENT,
    "every link of every device, including unpublished ones",
    "device_id href",
    [
        DEVICE,
        Column("href", TEXT, "the path of the link"),
        OWNER,
        HUB,
        Column("is_published", FLAG, "whether the link is published; false: it was unpublished"),
        Column("resource_types", TEXTS, "the types"),
        Column("interfaces", TEXTS, "the interfaces"),
        Column("anchor", TEXT, "the anchor"),
        Column("title", TEXT, "the title"),
        Column("content_types", TEXTS, "the content types that it supports"),
        Column("is_discoverable", FLAG, "its policy"),
        Column("is_observable", FLAG, "its policy"),
        Column("endpoints", TEXTS, "the endpoints"),
        INCARNATION,
        Column("version", INTEGER, "the version of the links that set this"),
        *HUB_TIME,
        Column("seq", INTEGER, "the sequence of the message"),
    ],
    (BUCKET,),
)

REGISTRATIONS = _table(
    "registrations",
    Way.APPEND,
    "every registration of a device with its owner, and every end of one",
    "device_id action timestamp_ns",
    [
        *MESSAGE,
        *HUB_TIME,
        Column("action", TEXT, "`registered` or `unregistered`"),
        Column("device_id", TEXT, "the device; null for an event without devices"),
        OWNER,
        Column("owner", TEXT, "the owner claim"),
        USER,
        HUB,
    ],
    (DAY_OF_EVENT, BUCKET),
)

VERSION_GAPS = _table(
    "version_gaps",
    Way.OPEN,
    "every range of versions that was missing when a later one came",
    "aggregate_id incarnation first_version",
    [
        AGGREGATE,
        DEVICE,
        HREF,
        Column("kind", TEXT, "`resources`, `metadata` or `resource-links`"),
        OWNER,
        INCARNATION,
        Column("first_version", INTEGER, "the first version of the gap"),
        Column("last_version", INTEGER, "the last one"),
        Column(
            "cause",
            TEXT,
            "`lost`: not in the stream, or not yet; `late`: arrived after a later version; `damaged`: is"
            " a dead letter; `prefix`: the stream begins later; `restore`: the hub was restored, and uses"
            " these versions again in this incarnation",
        ),
        Column("missing", INTEGER, "how many versions are still missing"),
        Column("remaining", RANGES, "the versions that are still missing"),
        Column("found_at", TIME, "when the stream got the message that showed the gap"),
        Column("found_seq", INTEGER, "that message"),
        Column("before_ns", INTEGER, "the hub's time of the last event before; null: none"),
        Column("after_ns", INTEGER, "the hub's time of the event after the gap"),
        Column("closed_at", TIME, "when the stream got the last missing one"),
        Column("closed_seq", INTEGER, "that message"),
        Column(
            "closed_by",
            TEXT,
            "`arrival`; `repair`: published by a reconciliation; `restore`; `age`: no longer waited for;"
            " null: open",
        ),
        Column("dead_letter_seq", INTEGER, "the dead letter in its place"),
        Column("state_version", INTEGER, "a snapshot of this version has the state after the gap"),
    ],
    (IS_OPEN, BUCKET),
)

AUDIT = _table(
    "audit",
    Way.APPEND,
    "the actions of users: commands and confirmations, links, requested metadata, registrations",
    "stream seq",
    [
        *MESSAGE,
        *HUB_TIME,
        USER,
        Column("action", TEXT, "the event type"),
        OWNER,
        Column("device_id", TEXT, "the device; null for registrations"),
        HREF,
        Column("correlation_id", TEXT, "the id of the command"),
        Column("status", TEXT, "the status; null if the event has none"),
        Column("version", INTEGER, "the version of the event"),
        HUB,
    ],
    (DAY_OF_EVENT, BUCKET),
)

AGGREGATES = _table(
    "aggregates",
    Way.CURRENT,
    "the last version and time that the pipeline saw of each aggregate, to find duplicates and gaps",
    "aggregate_id",
    [
        AGGREGATE,
        Column("kind", TEXT, "`resources`, `metadata`, `resource-links` or `registrations`"),
        DEVICE,
        HREF,
        OWNER,
        INCARNATION,
        Column("started_ns", INTEGER, "the hub's time of the first event of the incarnation"),
        Column(
            "before_ns", INTEGER, "the hub's latest time before the incarnation; 0: it is the first"
        ),
        Column("first_version", INTEGER, "the first version of the incarnation that was seen"),
        Column("last_version", INTEGER, "the greatest version that was seen"),
        Column("last_ns", INTEGER, "the hub's latest time that was seen"),
        Column("last_seq", INTEGER, "the last message of it"),
        Column("gone_version", INTEGER, "everything up to this version was deleted or unpublished"),
        Column("events", INTEGER, "how many events it has"),
        Column("duplicates", INTEGER, "how many duplicates were left out"),
        Column(
            "recent",
            pa.list_(INTEGER),
            "the hub's times of the last four versions, the last first; for registrations the latest times;"
            " they identify duplicates",
        ),
    ],
    (BUCKET,),
)

TABLES: dict[str, TableSchema] = {
    table.name: table
    for table in (
        RAW,
        EVENTS,
        DEAD_LETTERS,
        TWIN_LATEST,
        TWIN_HISTORY,
        SESSIONS,
        TWIN_SYNC,
        COMMANDS,
        LINKS_CURRENT,
        REGISTRATIONS,
        VERSION_GAPS,
        AUDIT,
        AGGREGATES,
    )
}
"""Every table by its name; each is a folder of that name."""
