"""Alerts about sessions and commands: after each batch, and between batches as time passes.

    alerts.plgd.offline.{device}     {"connection_id": ..., "ended_at": "...", "end_reason": "heartbeat", ...}
    alerts.plgd.late.{device}        {"correlation_id": ..., "outcome": "expired", "latency_ms": null, ...}
    alerts.plgd.flapping.{device}    {"sessions": 5, "window_s": 3600.0, "first_connected_at": "...", ...}

The clock runs with the stream: it is the time now only when the tables have all events that the stream has, else
the hub's latest time in the tables, but not far ahead of when the stream got their last message: a time may be wrong.
So a pipeline that lags gives no alert for a device whose return it has not read yet.

The stream of the alerts says which were sent before: its ids are read once at the start. So a device that stays
offline alerts once, however often the pipeline is started, for as long as the stream keeps the alert.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from pelton.client.sync.gets import read_stored
from pelton.core.protocol.wire import decode_headers
from pelton.errors import MessageNotFoundError
from pelton.spark.tables.rows import read_files

from ..tables import conditions
from ..tables.commands import CONFIRMED, PENDING
from ..tables.rows import EPOCH, time_of
from ..tables.schemas import AGGREGATES, COMMANDS, EVENTS, RAW, SESSIONS
from .alerts import SUBJECT, received

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pelton.client.sync import Client
    from pelton.plgd.tables.conditions import Alert, Bounds
    from pelton.plgd.tables.rows import Row

    from .lake import Counts, Lake

KINDS = ("offline", "late", "flapping")
LOOK_S = 10.0
"""Time between two looks at the clock without a batch: an alert of time is later by so much at most."""

READ_ROWS = 128 * 1024
BEFORE = 1000
"""Messages before a batch whose times say how far the hub's clock was."""
SESSION = pa.schema(
    [SESSIONS.schema.field(n) for n in dict.fromkeys((*conditions.OFFLINE, *conditions.FLAPPING))]
)
ID_HEADER = "Nats-Msg-Id"


def sent_before(client: Client, stream: str) -> set[str]:
    """The ids of the alerts of these kinds that a stream has."""
    js = client.jetstream()
    state = js.stream_info(stream).state
    subjects = [f"{SUBJECT}.{kind}.>" for kind in KINDS]
    ids: set[str] = set()
    first, stop = state.first_seq, state.last_seq + 1
    for columns in read_stored(js, stream, first, stop, filter_subjects=subjects):
        for _, _, _, headers, _ in columns.rows():
            ids.update(decode_headers(headers)[2].get(ID_HEADER, ()) if headers else ())
    return ids


class Newest:
    """The newest session of every device; after the first time only new files of the table are read."""

    def __init__(self, lake: Lake) -> None:
        """Nothing is read yet."""
        self.lake = lake
        self.files: set[str] = set()
        self.rows = SESSION.empty_table()

    def read(self) -> pa.Table:
        """The sessions as the table has them now."""
        files = self.lake.files(SESSIONS.name)
        new = [file for file in files if file.path not in self.files]
        self.files = {file.path for file in files}
        if new:
            found = read_files(self.lake.places[SESSIONS.name], new, SESSION, READ_ROWS)
            parts = [pa.Table.from_batches(found, SESSION), self.rows]
            self.rows = conditions.newest_sessions(pa.concat_tables(parts)).combine_chunks()
        return self.rows


class Watch:
    """Sends alerts of a pipeline's sessions and commands; a stream must take them.

    `batch` comes behind each batch, `look` at any time from any thread. The pipeline reads
    ``stream`` and ``subject``. ``is_whole`` says that the tables have all of every batch that they
    have anything of; else `look` waits for the first batch. ``clock`` gives the time now.
    """

    def __init__(
        self,
        client: Client,
        lake: Lake,
        bounds: Bounds,
        *,
        alerts: str,
        stream: str,
        subject: str = "plgd.>",
        is_whole: bool = False,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Reads which alerts the stream ``alerts`` has."""
        self.client = client
        self.lake = lake
        self.bounds = bounds
        self.stream, self.subject = stream, subject
        self.clock = clock
        self.alerts = alerts
        self.sent: set[str] = set()
        self.read_sent()
        self.newest = Newest(lake)
        self.last_seq = lake.greatest(RAW.name, "seq") if is_whole else 0
        self.looked = 0.0
        self.lock = threading.Lock()

    def read_sent(self) -> None:
        """Read which alerts the stream has; none if it was created again."""
        self.sent = sent_before(self.client, self.alerts)

    def batch(self, counts: Counts) -> int:
        """Send the alerts that are due after a batch; returns their number."""
        with self.lock:
            if counts.messages:
                self.last_seq = counts.last_seq  # lower, if the stream was made again
            now = self.now()
            found: list[tuple[str, Alert]] = []
            if counts.messages:
                found += [("late", one) for one in self.late_of(counts.first_seq, now)]
                found += [("flapping", one) for one in self.flapping_of(counts.first_seq)]
            return self.send([*found, *self.by_time(now)])

    def look(self) -> int:
        """Send the alerts that are due now, without a batch; returns their number. None before the first batch."""
        with self.lock:
            if not self.last_seq or time.monotonic() - self.looked < LOOK_S:
                return 0
            self.looked = time.monotonic()  # also if it fails
            return self.send(self.by_time(self.now()))

    def now(self) -> datetime:
        """The pipeline's clock."""
        now = self.clock()
        try:
            last = self.client.jetstream().get_message(self.stream, last_by_subject=self.subject)
        except MessageNotFoundError:
            return now
        if last.seq <= self.last_seq:
            return now
        ahead = timedelta(seconds=self.lake.settings.late_s)
        return min(now, self.hub_time(), received(self.lake, self.last_seq) + ahead)

    def hub_time(self) -> datetime:
        """The hub's latest time in the tables."""
        return time_of(self.lake.greatest(AGGREGATES.name, "last_ns")) or EPOCH

    def rows(self, table: str, columns: Iterable[str], wanted: Any) -> pa.Table:
        """Rows of a table."""
        rows = self.lake.dataset(table)
        return rows.to_table(columns=list(dict.fromkeys(columns)), filter=wanted)

    def by_time(self, now: datetime) -> Iterator[tuple[str, Alert]]:
        """The alerts that follow from the clock alone."""
        self.looked = time.monotonic()
        for one in conditions.offline(self.newest.read(), now, self.bounds):
            yield "offline", one
        waiting = ds.field("is_open") & ds.field("outcome").isin(["pending", "expired"])
        for one in self.late(waiting, now):
            yield "late", one

    def late(self, wanted: Any, now: datetime) -> Iterator[Alert]:
        """Commands of a filter that are late."""
        rows: list[Row] = self.rows(COMMANDS.name, conditions.LATE, wanted).to_pylist()
        yield from conditions.late(rows, now, self.bounds)

    def late_of(self, first_seq: int, now: datetime) -> Iterator[Alert]:
        """Commands that are late by the events from a sequence on, or expired since the clock was there."""
        wanted = (
            (ds.field("seq") >= first_seq)
            & ds.field("event_type").isin([*PENDING, *CONFIRMED])
            & (ds.field("correlation_id") != "")
        )
        events = self.rows(EVENTS.name, ["aggregate_id", "correlation_id"], wanted)
        ids, of = (events[name].unique() for name in ("correlation_id", "aggregate_id"))
        touched = ds.field("correlation_id").isin(ids) & ds.field("aggregate_id").isin(of)
        expired = ds.field("outcome") == "expired"
        since = ds.field("valid_until") >= self.clock_before(first_seq)
        yield from self.late(touched | (expired & since), now)

    def clock_before(self, first_seq: int) -> datetime:
        """A time that the hub's clock had reached before a batch: what expired by then alerted then."""
        wanted = (ds.field("seq") >= first_seq - BEFORE) & (ds.field("seq") < first_seq)
        found = pc.min(self.rows(EVENTS.name, ["time"], wanted)["time"]).as_py()
        return EPOCH if found is None else found - timedelta(seconds=self.lake.settings.late_s)

    def flapping_of(self, first_seq: int) -> Iterator[Alert]:
        """Devices that began to flap by the events from a sequence on."""
        wanted = (ds.field("seq") >= first_seq) & (
            ds.field("event_type") == "devicemetadataupdated"
        )
        events = self.rows(EVENTS.name, ["device_id", "time"], wanted)
        if not len(events):
            return
        since = pc.min(events["time"]).as_py()
        # A session that is the cause ended in this batch; those before it began within the window.
        begun = since - timedelta(seconds=self.bounds.short_s + 2 * self.bounds.window_s)
        devices = ds.field("device_id").isin(events["device_id"].unique())
        near = devices & (ds.field("connected_at") >= begun) & (ds.field("day") >= begun.date())
        columns = [*conditions.FLAPPING, "end_reason"]
        rows: list[Row] = self.rows(SESSIONS.name, columns, near).to_pylist()
        for msg_id, row in conditions.flapping(rows, self.bounds):
            if row["last_ended_at"] >= since:
                yield msg_id, row

    def send(self, found: Iterable[tuple[str, Alert]]) -> int:
        """Publish those alerts that were not sent before."""
        new: dict[str, tuple[str, Row]] = {}
        for kind, (msg_id, row) in found:
            if msg_id not in self.sent:
                new.setdefault(msg_id, (kind, row))
        if new:
            with self.client.jetstream().publisher() as publisher:
                for msg_id, (kind, row) in new.items():
                    subject = f"{SUBJECT}.{kind}.{row['device_id']}"
                    publisher.publish(subject, msgspec.json.encode(row), msg_id=msg_id)
            self.sent.update(new)
        return len(new)
