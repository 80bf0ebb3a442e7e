"""The documents of a hub's event store in MongoDB, made and read; pure.

A document has events of one aggregate: since hub v2.16 only its newest snapshot, in place of the
last event; before, the last snapshot and the events after it. Numbers are 64 bits wide, as the
hub's are::

    _id "{aggregate}.{first version}"   groupid (device)   aggregateid
    firstversion   latestversion   latestsnapshotversion   latesttimestamp   isactive
    events [ version, data (snappy block), eventtype, issnapshot, timestamp ]
    latestetag { etag, timestamp } or null   etag   types   serviceid
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bson import Int64

from ..codec import pack, parse_event, unpack
from ..kinds import EVENT_TYPES, type_of
from ..projection import apply, new_snapshot
from ..reasons import Reason, UndecodableEventError
from .model import Aggregate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

DATABASE = "eventStore"
OWNERS = "ownersDevices"
EVENTS = "devices_events"
USER_DEVICES = "userdevices"
OUTBOX = "peltonoutbox"
"""The field of events that wait for the bus: in the same document, so both are written or neither is."""

INDEXES: list[list[tuple[str, int]]] = [
    [("aggregateid", 1), ("latestversion", 1)],
    [("aggregateid", 1), ("firstversion", 1)],
    [("groupid", 1), ("isactive", 1)],
    [("groupid", 1), ("aggregateid", 1), ("isactive", 1)],
    [("groupid", 1), ("latesttimestamp", 1)],
    [("aggregateid", 1), ("latesttimestamp", 1)],
    [("groupid", 1), ("latestetag.timestamp", -1)],
    [("serviceid", 1), ("isactive", 1)],
    [("groupid", 1), ("types", 1), ("isactive", 1)],
]
"""Those of the hub."""


def event_document(message: Any) -> dict[str, Any]:
    """One event in the array of a document."""
    event_type, meta = type_of(message), message.event_metadata
    return {
        "version": Int64(meta.version),
        "data": pack(message),
        "eventtype": event_type.name,
        "issnapshot": event_type.is_snapshot,
        "timestamp": Int64(meta.timestamp),
    }


def etag_of(message: Any) -> dict[str, Any] | None:
    """The etag of an event; None if it has none."""
    changed = message if type_of(message).name == "resourcechanged" else None
    if type_of(message).name == "resourcestatesnapshottaken":
        changed = message.latest_resource_change
    if changed is None or not changed.etag:
        return None
    return {"etag": changed.etag, "timestamp": Int64(changed.event_metadata.timestamp)}


def changes(messages: Sequence[Any]) -> dict[str, Any]:
    """The fields that events set in the document of their aggregate."""
    last = messages[-1]
    found: dict[str, Any] = {
        "latestversion": Int64(last.event_metadata.version),
        "latesttimestamp": Int64(last.event_metadata.timestamp),
    }
    for message in messages:
        event_type = type_of(message)
        if event_type.is_snapshot:
            found["latestsnapshotversion"] = Int64(message.event_metadata.version)
        if etag := etag_of(message):
            found["latestetag"] = etag
        types = list(getattr(message, "resource_types", ()))
        if types:
            found["types"] = types
        if event_type.name == "devicemetadataupdated":
            found["serviceid"] = message.connection.service_id
        elif event_type.name == "devicemetadatasnapshottaken":
            found["serviceid"] = message.device_metadata_updated.connection.service_id
    return found


def document(aggregate_id: str, device_id: str, messages: Sequence[Any]) -> dict[str, Any]:
    """A new document, which begins with these events."""
    first = Int64(messages[0].event_metadata.version)
    made: dict[str, Any] = {
        "_id": f"{aggregate_id}.{first}",
        "groupid": device_id,
        "aggregateid": aggregate_id,
        "firstversion": first,
        "latestsnapshotversion": first,
        "isactive": True,
        "events": [event_document(message) for message in messages],
        "latestetag": None,
    } | changes(messages)
    if made["latestetag"] is not None:
        made["etag"] = made["latestetag"]["etag"]
    return made


def kept_events(state: Aggregate, messages: Sequence[Any], *, every_event: bool) -> list[Any]:
    """The new events that a hub keeps: all of them, or the state in place of the last one."""
    if every_event and messages:
        return list(messages)
    return [*messages[:-1], state.snapshot]


def messages_of(found: Mapping[str, Any]) -> list[Any]:
    """The events of a document, in order of version; raises UndecodableEventError for an entry that is no event."""
    made = []
    for each in sorted(found.get("events", ()), key=lambda event: int(event["version"])):
        event_type = EVENT_TYPES.get(each["eventtype"])
        if event_type is None:
            name = str(each["eventtype"])[:100]
            raise UndecodableEventError(
                Reason.EVENT_TYPE, f"no event type {name!r} in {found.get('_id')}"
            )
        made.append(parse_event(event_type, unpack(bytes(each["data"]))))
    return made


def state_of(found: Mapping[str, Any], owner: str) -> Aggregate:
    """The state that a document leads to."""
    messages = messages_of(found)
    if not messages:
        raise UndecodableEventError(Reason.EVENT, f"the document {found.get('_id')} has no events")
    snapshot = new_snapshot(messages[0])
    for message in messages:
        apply(snapshot, message)
    snapshot.event_metadata.CopyFrom(messages[-1].event_metadata)
    return Aggregate(
        found["aggregateid"],
        found["groupid"],
        owner,
        int(found["latestversion"]),
        int(found["latesttimestamp"]),
        snapshot,
    )


def newest(documents: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The last of those that follow each other and are of the same aggregate."""
    held: dict[str, Any] | None = None
    for each in documents:
        if held is not None and held["aggregateid"] != each["aggregateid"]:
            yield held
        held = each
    if held is not None:
        yield held
