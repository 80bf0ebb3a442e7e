"""Many events at once: Arrow arrays of subjects and payloads to a table of typed columns.

One row for each message, in their order. A message that is no event has a row with ``error`` and
``error_detail``, and null in the columns that could not be read. Messages are grouped by event
type. The compiled scanner (`plain`) reads all plain messages of a type at once; other messages are
decoded one by one, with the class of their type. Arrow puts the rows back into their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from cramjam import snappy
from google.protobuf.message import DecodeError

from .codec import MAX_UNPACKED, Envelope, parse_registration, unpack
from .content_columns import contents_as_json
from .ids import href_id
from .kinds import EVENT_TYPES, EventType, Kind
from .plain import PLAIN, fitted, named, scan
from .reasons import Reason, UndecodableEventError
from .subject_columns import Places
from .wire import events_pb2 as events

if TYPE_CHECKING:
    from .subjects import Subject

TEXT, TEXTS, COUNT, TIME = pa.string(), pa.list_(pa.string()), pa.uint64(), pa.int64()
FLAG, DATA = pa.bool_(), pa.binary()

SCHEMA: pa.Schema = pa.schema(
    [
        ("error", TEXT),  # a Reason, null for an event
        ("error_detail", TEXT),
        ("kind", TEXT),  # a Kind
        ("event_type", TEXT),
        ("is_snapshot", FLAG),
        ("owner_id", TEXT),
        ("device_id", TEXT),
        ("device_ids", TEXTS),  # of registrations
        ("href", TEXT),
        ("href_id", TEXT),
        ("lead_type", TEXT),
        ("aggregate_id", TEXT),
        ("version", COUNT),
        ("timestamp_ns", TIME),
        ("hub_id", TEXT),
        ("user_id", TEXT),
        ("owner", TEXT),  # the owner claim: in registrations, and since hub v2.12
        ("correlation_id", TEXT),
        ("connection_id", TEXT),
        ("sequence", COUNT),
        ("status", TEXT),
        ("content", DATA),
        ("content_type", TEXT),
        ("content_format", pa.int32()),
        ("content_json", TEXT),
        ("etag", DATA),
        ("resource_types", TEXTS),
        ("resource_interface", TEXT),
        ("valid_until_ns", TIME),  # 0: forever
        ("hrefs", TEXTS),  # of links published, unpublished, in a snapshot
        ("connection_status", TEXT),
        ("protocol", TEXT),
        ("connected_at_ns", TIME),
        ("service_id", TEXT),
        ("local_endpoints", TEXTS),
        ("twin_state", TEXT),
        ("twin_enabled", FLAG),
        ("syncing_at_ns", TIME),
        ("in_sync_at_ns", TIME),
        ("force_synchronization_at_ns", TIME),
        ("force_synchronization", FLAG),
        ("canceled", FLAG),
        ("data", DATA),  # the event as protobuf, unpacked: what no column has
    ]
)
"""The columns of `decode_batch`."""

SLICE = 16 * 1024
"""Rows that are decoded at a time: more leave the cache, fewer cost more calls for each."""

Columns = dict[str, Sequence[Any]]


class EnumNames(dict[int, str]):
    """Names of an enum by number; a number that no hub had is its own name."""

    def __missing__(self, number: int) -> str:
        """The number as text."""
        return str(number)


STATUS = EnumNames({v: k for k, v in events.Status.items()})
CONNECTED = EnumNames({v: k for k, v in events.Connection.Status.items()})
PROTOCOL = EnumNames({v: k for k, v in events.Connection.Protocol.items()})
TWIN_STATE = EnumNames({v: k for k, v in events.TwinSynchronization.State.items()})

ENUMS = {
    "status": STATUS,
    "connection_status": CONNECTED,
    "protocol": PROTOCOL,
    "twin_state": TWIN_STATE,
}


def spread(objects: Iterable[Any], columns: dict[str, str]) -> Columns:
    """Columns of attributes of many objects: name of the column -> name of the attribute."""
    rows = list(map(attrgetter(*columns.values()), objects))
    return dict(zip(columns, zip(*rows, strict=True), strict=True))


META = {
    "timestamp_ns": "timestamp",
    "connection_id": "connection_id",
    "sequence": "sequence",
    "hub_id": "hub_id",
}
AUDIT = {"user_id": "user_id", "correlation_id": "correlation_id", "owner": "owner"}
CONTENT = {
    "content": "data",
    "content_type": "content_type",
    "content_format": "coap_content_format",
}
CONTENTS = {"content": DATA, "content_type": TEXT, "content_format": pa.int32()}
CONNECTION = {
    "connection_status": "status",
    "connected_at_ns": "connected_at",
    "protocol": "protocol",
    "service_id": "service_id",
    "local_endpoints": "local_endpoints",
}
TWIN = {
    "twin_state": "state",
    "syncing_at_ns": "syncing_at",
    "in_sync_at_ns": "in_sync_at",
    "force_synchronization_at_ns": "force_synchronization_at",
}


def common(messages: list[Any], fields: set[str]) -> Columns:
    """The columns that most events share, of those fields that the message's class has."""
    columns = spread([m.event_metadata for m in messages], META)
    if "audit_context" in fields:
        columns |= spread([m.audit_context for m in messages], AUDIT)
    if "content" in fields:
        columns |= spread([m.content for m in messages], CONTENT)
    for name in ("resource_interface", "canceled"):
        if name in fields:
            columns[name] = [getattr(m, name) for m in messages]
    if "status" in fields:
        columns["status"] = [STATUS[m.status] for m in messages]
    if "valid_until" in fields:
        columns["valid_until_ns"] = [m.valid_until for m in messages]
    if "resource_types" in fields:
        columns["resource_types"] = [list(m.resource_types) for m in messages]
    return columns


def of_resources(messages: list[Any], fields: set[str]) -> Columns:
    """Columns of events of resources; a snapshot has those of its latest change."""
    columns = common(messages, fields)
    hrefs = [m.resource_id.href for m in messages]
    columns["href"] = hrefs
    columns["href_id"] = list(map(href_id, hrefs))
    if "latest_resource_change" in fields:
        latest = [m.latest_resource_change for m in messages]
        columns |= spread([m.content for m in latest], CONTENT)
        columns["status"] = [STATUS[m.status] for m in latest]
        columns["etag"] = [m.etag for m in latest]
    elif "etag" in fields and messages[0].DESCRIPTOR.fields_by_name["etag"].is_repeated:
        columns["etag"] = [m.etag[0] if m.etag else None for m in messages]
    elif "etag" in fields:
        columns["etag"] = [m.etag for m in messages]
    return columns


def of_links(messages: list[Any], fields: set[str]) -> Columns:
    """Columns of events of links."""
    columns = common(messages, fields)
    if "hrefs" in fields:
        columns["hrefs"] = [list(m.hrefs) for m in messages]
    elif messages and hasattr(messages[0].resources, "keys"):
        columns["hrefs"] = [sorted(m.resources) for m in messages]
    else:
        columns["hrefs"] = [[link.href for link in m.resources] for m in messages]
    return columns


def of_metadata(messages: list[Any], fields: set[str]) -> Columns:
    """Columns of events of metadata; a snapshot has those of its latest update."""
    columns = common(messages, fields)
    if "update_pending" in {o.name for o in messages[0].DESCRIPTOR.oneofs}:
        chosen = [m.WhichOneof("update_pending") for m in messages]
        columns["twin_enabled"] = [
            m.twin_enabled if c == "twin_enabled" else None
            for m, c in zip(messages, chosen, strict=True)
        ]
        columns["force_synchronization"] = [
            m.twin_force_synchronization if c == "twin_force_synchronization" else None
            for m, c in zip(messages, chosen, strict=True)
        ]
        return columns
    updates = messages
    if "device_metadata_updated" in fields:
        updates = [m.device_metadata_updated for m in messages]
        columns |= spread([m.audit_context for m in updates], AUDIT)
    columns["twin_enabled"] = [m.twin_enabled for m in updates]
    columns |= spread([m.connection for m in updates], CONNECTION)
    columns["connection_status"] = [CONNECTED[n] for n in columns["connection_status"]]
    columns["protocol"] = [PROTOCOL[n] for n in columns["protocol"]]
    columns["local_endpoints"] = [list(texts) for texts in columns["local_endpoints"]]
    columns |= spread([m.twin_synchronization for m in updates], TWIN)
    columns["twin_state"] = [TWIN_STATE[n] for n in columns["twin_state"]]
    return columns


def of_registrations(messages: list[Any], fields: set[str]) -> Columns:
    """Columns of registrations."""
    del fields
    return {
        "device_ids": [list(m.device_ids) for m in messages],
        "owner": [m.owner for m in messages],
        "timestamp_ns": [m.timestamp for m in messages],
        "user_id": [m.audit_context.user_id for m in messages],
        "hub_id": [m.event_metadata.hub_id for m in messages],
    }


COLUMNS_OF: dict[Kind, Callable[[list[Any], set[str]], Columns]] = {
    Kind.RESOURCES: of_resources,
    Kind.LINKS: of_links,
    Kind.METADATA: of_metadata,
    Kind.REGISTRATIONS: of_registrations,
}


class Group:
    """The messages of one event type, in the order in which they came."""

    def __init__(self, event_type: EventType) -> None:
        """An empty group."""
        self.type = event_type
        self.rows: list[int] = []
        self.subjects: list[Subject] = []
        self.messages: list[Any] = []
        self.envelopes: list[Any] = []
        self.data: list[bytes] = []

    def add(self, row: int, subject: Subject, payload: bytes) -> None:
        """Decode one message; raises ``UndecodableEventError``."""
        event_type = self.type
        if event_type.kind is Kind.REGISTRATIONS:
            message = parse_registration(event_type.name, payload)
            self.data.append(message.SerializeToString())
        else:
            try:
                envelope = Envelope.FromString(payload)
            except DecodeError as error:
                raise UndecodableEventError(Reason.ENVELOPE, f"no envelope: {error}") from error
            if envelope.event_type != event_type.name or envelope.group_id != subject.device_id:
                raise disagreement(subject, envelope)
            data = envelope.data
            try:
                # damage of the block is told apart only after it failed: most blocks are sound
                if snappy.decompress_raw_len(data) > MAX_UNPACKED:
                    raise OverflowError
                data = bytes(snappy.decompress_raw(data))
            except Exception:  # cramjam raises its own class, and others for other damage
                data = unpack(envelope.data)
            try:
                message = event_type.message.FromString(data)
            except DecodeError as error:
                raise UndecodableEventError(
                    Reason.EVENT, f"no {event_type.name}: {error}"
                ) from error
            self.envelopes.append(envelope)
            self.data.append(data)
        self.rows.append(row)
        self.subjects.append(subject)
        self.messages.append(message)

    def columns(self, as_json: bool) -> tuple[Columns, dict[str, Any]]:
        """The group's columns, and the values that are the same in all of its rows."""
        fields = {f.name for f in self.type.message.DESCRIPTOR.fields}
        columns = COLUMNS_OF[self.type.kind](self.messages, fields)
        columns |= spread(
            self.subjects,
            {"owner_id": "owner_id", "device_id": "device_id", "lead_type": "lead_type"},
        )
        if self.envelopes:
            columns |= spread(
                self.envelopes, {"aggregate_id": "aggregate_id", "version": "version"}
            )
        columns["data"] = self.data
        if as_json and "content" in columns:
            columns |= contents_as_json(*(pa.array(columns[n], t) for n, t in CONTENTS.items()))
        same = {
            "kind": self.type.kind.value,
            "event_type": self.type.name,
            "is_snapshot": self.type.is_snapshot,
        }
        return columns, same


def disagreement(subject: Subject, envelope: Any) -> UndecodableEventError:
    """Why an envelope does not fit its subject."""
    if not envelope.event_type:
        return UndecodableEventError(Reason.ENVELOPE, "no envelope: no event type")
    if envelope.event_type not in EVENT_TYPES:
        return UndecodableEventError(
            Reason.EVENT_TYPE, f"no event type {envelope.event_type[:100]!r}"
        )
    said = f"{envelope.event_type} of device {envelope.group_id[:100]!r}"
    return UndecodableEventError(
        Reason.MISMATCH,
        f"the subject says {subject.event_type} of device {subject.device_id!r}, the envelope {said}",
    )


def arrow(count: int, columns: Columns, same: dict[str, Any]) -> pa.Table:
    """A table of the schema; a column that is not given is null."""
    arrays = []
    for field in SCHEMA:
        if (values := columns.get(field.name)) is not None:
            is_array = isinstance(values, pa.Array)
            arrays.append(values if is_array else pa.array(values, field.type))
        elif field.name in same:
            arrays.append(pa.repeat(pa.scalar(same[field.name], field.type), count))
        else:
            arrays.append(pa.nulls(count, field.type))
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def flat(values: Any, kind: pa.DataType) -> pa.Array:
    """One array of an array, a chunked array or a sequence."""
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks()
    return values if isinstance(values, pa.Array) else pa.array(values, kind)


def decode_batch(subjects: Any, payloads: Any, *, content: str = "raw") -> pa.Table:
    """A table of `SCHEMA` with one row for each message, in their order.

    ``subjects`` (strings) and ``payloads`` (binary) are Arrow arrays or sequences of one length. A bad message
    raises nothing: ``error`` has its reason, ``error_detail`` a line for a person. ``content="json"`` also
    fills ``content_json``, and then content that is not of its type is an error too; ``"raw"`` leaves it null.
    """
    if content not in {"raw", "json"}:
        raise ValueError(f"content is 'raw' or 'json', not {content!r}")
    bodies = flat(payloads, DATA)
    if len(subjects) != len(bodies):
        raise ValueError(f"{len(subjects)} subjects for {len(bodies)} payloads")
    names = flat(subjects, TEXT)
    tables = [
        decode_slice(names.slice(start, SLICE), bodies.slice(start, SLICE), content == "json")
        for start in range(0, len(bodies), SLICE)
    ]
    return pa.concat_tables(tables) if tables else SCHEMA.empty_table()


def decode_slice(subjects: pa.Array, bodies: pa.Array, as_json: bool) -> pa.Table:
    """`decode_batch` of as many messages as stay in the processor's cache."""
    encoded = subjects.dictionary_encode()
    places = Places(encoded.dictionary)
    codes = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False)
    tables: list[pa.Table] = []
    order: list[Any] = []
    left = np.ones(len(bodies), bool)
    for name, code in places.plain.items():
        rows = np.flatnonzero(places.type_of[codes] == code)
        if len(rows) and name in PLAIN:
            good, table = plain_events(EVENT_TYPES[name], rows, codes, places, bodies, as_json)
            tables.append(table)
            order.append(good)
            left[good] = False
    rest = np.flatnonzero(left)
    if len(rest):
        table, rows = one_by_one(rest, codes[rest], bodies.take(pa.array(rest)), places, as_json)
        tables.append(table)
        order.append(rows)
    numbers = np.concatenate(order) if order else np.zeros(0, np.int64)
    whole = pa.concat_tables(tables) if tables else SCHEMA.empty_table()
    if (numbers[1:] < numbers[:-1]).any():
        back = np.empty(len(numbers), np.int64)
        back[numbers] = np.arange(len(numbers))
        return reordered(whole, pa.array(back))
    return whole.combine_chunks()


def reordered(table: pa.Table, rows: pa.Array) -> pa.Table:
    """All rows of a table in another order. Most columns are those of some event types alone: often all are null."""
    arrays = []
    for column in table.columns:
        if column.null_count == len(column):
            arrays.append(pa.nulls(len(column), column.type))
        else:
            arrays.append(column.combine_chunks().take(rows))
    return pa.Table.from_arrays(arrays, schema=table.schema)


def plain_events(
    event_type: EventType, rows: Any, codes: Any, places: Places, bodies: pa.Array, as_json: bool
) -> tuple[Any, pa.Table]:
    """Those rows that are plain events of a type, and their table."""
    of_rows = pa.array(codes[rows])
    said = {
        name: places.column(name).take(of_rows) for name in ("owner_id", "device_id", "lead_type")
    }
    taken = bodies if len(rows) == len(bodies) else bodies.take(pa.array(rows))
    payloads = taken.fill_null(b"") if taken.null_count else taken
    refused, columns = scan(event_type, payloads, said["device_id"])
    columns |= said
    for name, names in ENUMS.items():
        if name in columns:
            columns[name] = named(columns[name], names)
    columns = {name: fitted(array, SCHEMA.field(name).type) for name, array in columns.items()}
    if refused.any():
        kept = pa.array(np.flatnonzero(~refused))
        columns = {name: array.take(kept) for name, array in columns.items()}
    good = rows[~refused]
    told: Columns = dict(columns)
    if as_json and "content" in told:
        told |= contents_as_json(*(columns[name] for name in CONTENTS))
    same = {
        "kind": event_type.kind.value,
        "event_type": event_type.name,
        "is_snapshot": event_type.is_snapshot,
    }
    return good, arrow(len(good), told, same)


def one_by_one(
    numbers: Any, codes: Any, bodies: pa.Array, places: Places, as_json: bool
) -> tuple[pa.Table, Any]:
    """The table of messages that are read one by one, and their numbers in its order."""
    groups: dict[str, Group] = {}
    bad_rows: list[int] = []
    reasons: list[str] = []
    details: list[str] = []
    rows = zip(numbers.tolist(), codes.tolist(), bodies.to_pylist(), strict=True)
    for row, code, payload in rows:
        found = places.at(code)
        try:
            if isinstance(found, UndecodableEventError):
                raise found
            name = found.event_type
            if name not in groups:
                groups[name] = Group(EVENT_TYPES[name])
            groups[name].add(row, found, payload or b"")
        except UndecodableEventError as bad:
            bad_rows.append(row)
            reasons.append(bad.reason.value)
            details.append(bad.detail)
    tables = [arrow(len(bad_rows), {"error": reasons, "error_detail": details}, {})]
    order = list(bad_rows)
    for group in groups.values():
        if group.rows:
            tables.append(arrow(len(group.rows), *group.columns(as_json)))
            order += group.rows
    return pa.concat_tables(tables), np.array(order, np.int64)
