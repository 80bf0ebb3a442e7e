"""The state of an aggregate: a snapshot, to which events are applied one after the other.

A snapshot is the hub's own message: links by href, the last metadata and its pending updates, or the last
change of a resource and its pending commands. Applying an event sets the snapshot's ``event_metadata`` to the
event's, so its version is that of the last event.
"""

from __future__ import annotations

from typing import Any

from .kinds import Kind, type_of
from .wire import events_pb2 as events

SNAPSHOT_OF: dict[Kind, Any] = {
    Kind.LINKS: events.ResourceLinksSnapshotTaken,
    Kind.METADATA: events.DeviceMetadataSnapshotTaken,
    Kind.RESOURCES: events.ResourceStateSnapshotTaken,
    Kind.SERVICES: events.ServiceMetadataSnapshotTaken,
}
PENDINGS = {
    "resourcecreatepending": "resource_create_pendings",
    "resourceretrievepending": "resource_retrieve_pendings",
    "resourceupdatepending": "resource_update_pendings",
    "resourcedeletepending": "resource_delete_pendings",
}
CONFIRMED = {
    "resourcecreated": "resource_create_pendings",
    "resourceretrieved": "resource_retrieve_pendings",
    "resourceupdated": "resource_update_pendings",
    "resourcedeleted": "resource_delete_pendings",
}
DONE = {events.OK, events.ACCEPTED}


def new_snapshot(message: Any) -> Any:
    """The state before the first event: an empty snapshot of the kind that an event belongs to."""
    kind = type_of(message).kind
    snapshot = SNAPSHOT_OF[kind]()
    if kind is Kind.RESOURCES:
        snapshot.resource_id.CopyFrom(message.resource_id)
    elif kind is not Kind.SERVICES:
        snapshot.device_id = message.device_id
    return snapshot


def without(pendings: Any, correlation_id: str) -> None:
    """Take the pending commands of a correlation id out of a list."""
    for place in range(len(pendings) - 1, -1, -1):
        if pendings[place].audit_context.correlation_id == correlation_id:
            del pendings[place]


def apply(snapshot: Any, message: Any) -> None:
    """Change a snapshot by an event of its aggregate; a snapshot event replaces it."""
    event_type = type_of(message)
    if event_type.is_snapshot:
        snapshot.CopyFrom(message)
        return
    if event_type.kind is Kind.LINKS:
        apply_links(snapshot, message)
    elif event_type.kind is Kind.METADATA:
        apply_metadata(snapshot, message)
    elif event_type.kind is Kind.RESOURCES:
        apply_resource(snapshot, event_type.name, message)
    else:
        snapshot.service_metadata_updated.CopyFrom(message)
    snapshot.event_metadata.CopyFrom(message.event_metadata)


def apply_links(snapshot: Any, message: Any) -> None:
    """Links that were published or unpublished; no href at all means every link."""
    if hasattr(message, "hrefs"):
        for href in list(message.hrefs) or list(snapshot.resources):
            snapshot.resources.pop(href, None)
    else:
        for link in message.resources:
            snapshot.resources[link.href].CopyFrom(link)
    snapshot.audit_context.CopyFrom(message.audit_context)


def apply_metadata(snapshot: Any, message: Any) -> None:
    """Metadata that was updated, or an update that waits."""
    if isinstance(message, events.DeviceMetadataUpdatePending):
        snapshot.update_pendings.append(message)
        return
    if message.audit_context.correlation_id:
        without(snapshot.update_pendings, message.audit_context.correlation_id)
    snapshot.device_metadata_updated.CopyFrom(message)


def apply_resource(snapshot: Any, name: str, message: Any) -> None:
    """A change of a resource, a command that waits, or one that was confirmed."""
    if name in PENDINGS:
        getattr(snapshot, PENDINGS[name]).append(message)
    elif name in CONFIRMED:
        without(getattr(snapshot, CONFIRMED[name]), message.audit_context.correlation_id)
        if name == "resourcedeleted" and message.status in DONE:
            for field in PENDINGS.values():
                snapshot.ClearField(field)
    else:
        snapshot.latest_resource_change.CopyFrom(message)
    if message.resource_types:
        snapshot.resource_types[:] = message.resource_types
    snapshot.audit_context.CopyFrom(message.audit_context)
