"""Plain events of one type at once: the compiled scanner reads them straight into Arrow columns.

Most events are plain: known fields, text in ASCII. `scan` returns the columns of these, and says
which events must be decoded one by one with protobuf, which also reports their errors.
For plain events both ways give the same values.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pelton.core.bulk.protobuf import Scanner, unpack_blocks

from .codec import MAX_UNPACKED, Envelope
from .ids import href_id
from .kinds import EVENT_TYPES, Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .kinds import EventType

Path = tuple[str, ...]
PLAIN = {
    *("resourcechanged", "resourceupdated", "resourcecreated", "resourceretrieved"),
    *("resourcedeleted", "resourceupdatepending", "resourcecreatepending"),
    *("resourcedeletepending", "devicemetadataupdated"),
}
"""The event types that the scanner reads; the others are rare, or have fields with a meaning of their own."""

MEANINGS: dict[str, str] = {
    "event_metadata.timestamp": "timestamp_ns",
    "event_metadata.connection_id": "connection_id",
    "event_metadata.sequence": "sequence",
    "event_metadata.hub_id": "hub_id",
    "audit_context.user_id": "user_id",
    "audit_context.correlation_id": "correlation_id",
    "audit_context.owner": "owner",
    "content.data": "content",
    "content.content_type": "content_type",
    "content.coap_content_format": "content_format",
    "resource_id.href": "href",
    "resource_interface": "resource_interface",
    "canceled": "canceled",
    "status": "status",
    "valid_until": "valid_until_ns",
    "resource_types": "resource_types",
    "etag": "etag",
    "connection.status": "connection_status",
    "connection.connected_at": "connected_at_ns",
    "connection.protocol": "protocol",
    "connection.service_id": "service_id",
    "connection.local_endpoints": "local_endpoints",
    "twin_synchronization.state": "twin_state",
    "twin_synchronization.syncing_at": "syncing_at_ns",
    "twin_synchronization.in_sync_at": "in_sync_at_ns",
    "twin_synchronization.force_synchronization_at": "force_synchronization_at_ns",
    "twin_enabled": "twin_enabled",
}
"""Column of a field, by its path."""

ENVELOPE = {
    "version": "version",
    "event_type": "event_type",
    "group_id": "device_id",
    "aggregate_id": "aggregate_id",
    "data": "data",
}


@dataclass(frozen=True)
class Plan:
    """A scanner and the columns that it fills, by name, with their kinds."""

    scanner: Scanner
    names: tuple[str, ...]
    kinds: tuple[str, ...]

    def scan(self, array: pa.Array) -> tuple[Any, dict[str, pa.Array]]:
        """Which rows of a binary array are refused, and the columns of all."""
        _, offsets, data = array.buffers()
        count = len(array)
        empty = pa.py_buffer(b"\0\0\0\0")
        refused, found = self.scanner.scan(offsets or empty, data or b"", array.offset, count)
        columns = {
            name: as_array(kind, buffers, count)
            for name, kind, buffers in zip(self.names, self.kinds, found, strict=True)
        }
        return np.asarray(refused.view(), np.uint8).astype(bool), columns


def as_array(kind: str, buffers: Any, count: int) -> pa.Array:
    """The buffers of a column as an array."""
    wrapped = [pa.py_buffer(buffer) for buffer in buffers]
    if kind == "int":
        return pa.Array.from_buffers(pa.int64(), count, [None, *wrapped])
    if kind != "texts":
        of = pa.string() if kind == "text" else pa.binary()
        return pa.Array.from_buffers(of, count, [None, *wrapped])
    ends, offsets, data = wrapped
    inner = pa.Array.from_buffers(pa.string(), offsets.size // 4 - 1, [None, offsets, data])
    return pa.ListArray.from_arrays(
        pa.Array.from_buffers(pa.int32(), count + 1, [None, ends]), inner
    )


def kind_of(field: Any) -> str | None:
    """How the scanner treats a field; None if it refuses the field."""
    if field.message_type is not None:
        is_map = field.message_type.GetOptions().map_entry
        return "message" if is_map or not field.is_repeated else None
    if field.type == field.TYPE_STRING:
        return "texts" if field.is_repeated else "text"
    if field.is_repeated:
        return None
    if field.type == field.TYPE_BYTES:
        return "bytes"
    return "int"


class Planner:
    """Makes the tables of a scanner from the description of a message."""

    def __init__(self, meanings: Mapping[str, str]) -> None:
        """``meanings`` are columns by path."""
        self.meanings = meanings
        self.nodes: list[dict[int, tuple[str, int]]] = []
        self.names: list[str] = []
        self.kinds: list[str] = []

    def node(self, descriptor: Any, path: str = "") -> int:
        """The node of a message; those inside come with it."""
        number = len(self.nodes)
        fields: dict[int, tuple[str, int]] = {}
        self.nodes.append(fields)
        for field in descriptor.fields:
            kind, inner = kind_of(field), f"{path}{field.name}"
            if kind is None:
                continue
            if kind == "message":
                fields[field.number] = (kind, self.node(field.message_type, f"{inner}."))
            elif inner in self.meanings:
                fields[field.number] = (kind, len(self.names))
                self.names.append(self.meanings[inner])
                self.kinds.append(kind)
            else:
                fields[field.number] = ("no text" if kind == "texts" else f"no {kind}", 0)
        return number

    def plan(self, descriptor: Any) -> Plan:
        """The plan for a message."""
        self.node(descriptor)
        return Plan(Scanner(self.nodes, self.kinds), tuple(self.names), tuple(self.kinds))


@cache
def envelope_plan() -> Plan:
    """The plan for envelopes."""
    return Planner(ENVELOPE).plan(Envelope.DESCRIPTOR)


@cache
def plan_of(name: str) -> Plan:
    """The plan for an event type."""
    return Planner(MEANINGS).plan(EVENT_TYPES[name].message.DESCRIPTOR)


def scan(
    event_type: EventType, payloads: pa.Array, devices: pa.Array
) -> tuple[Any, dict[str, pa.Array]]:
    """Which payloads are no plain events of a type, by the device of their subject; and the columns of all."""
    refused, envelopes = envelope_plan().scan(payloads)
    right = pc.and_(
        pc.equal(envelopes["event_type"], event_type.name),
        pc.equal(envelopes["device_id"], devices),
    )
    refused |= ~right.to_numpy(zero_copy_only=False)
    packed = envelopes["data"]
    _, offsets, data = packed.buffers()
    broken, ends, unpacked = unpack_blocks(offsets, data, 0, len(packed), MAX_UNPACKED)
    refused |= np.asarray(broken.view(), np.uint8).astype(bool)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(unpacked)]
    events = pa.Array.from_buffers(pa.binary(), len(packed), buffers)
    strange, columns = plan_of(event_type.name).scan(events)
    refused |= strange
    columns |= {name: envelopes[name] for name in ("version", "aggregate_id")}
    columns["data"] = events
    if event_type.kind is Kind.RESOURCES:
        hrefs = columns["href"].dictionary_encode()
        ids = pa.array([href_id(href) for href in hrefs.dictionary.to_pylist()], pa.string())
        columns["href_id"] = ids.take(hrefs.indices)
    return refused, columns


def named(numbers: pa.Array, names: Mapping[int, str]) -> pa.Array:
    """Numbers of an enum as their names."""
    encoded = numbers.dictionary_encode()
    # enums are of 32 bits, whatever a message says
    texts = [names[(n + 2**31) % 2**32 - 2**31] for n in encoded.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(encoded.indices)


def fitted(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column of the scanner in the type that it has in the end."""
    if array.type == kind:
        return array
    values = array.to_numpy()
    if pa.types.is_boolean(kind):
        return pa.array(values != 0)
    return pa.array(values.astype(kind.to_pandas_dtype()), kind)
