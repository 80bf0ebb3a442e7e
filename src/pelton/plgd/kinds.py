"""The event types of the hub: the message, the place in the subject and the key of each."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from .wire import events_pb2 as events
from .wire import registrations_pb2 as registrations

if TYPE_CHECKING:
    from google.protobuf.message import Message


class Kind(StrEnum):
    """The kinds of events; the value is the token in the subject."""

    LINKS = "resource-links"
    METADATA = "metadata"
    RESOURCES = "resources"
    REGISTRATIONS = "registrations"
    SERVICES = "services"  # only in stores; such events have no subject


class EventType(NamedTuple):
    """One event type: its name on the wire, its kind, and the class of its message."""

    name: str
    kind: Kind
    message: type[Message]
    is_snapshot: bool = False


def _of(kind: Kind, *classes: type[Message]) -> list[EventType]:
    """Event types that are named as their messages are, in lower case."""
    names = [cls.DESCRIPTOR.name for cls in classes]
    return [
        EventType(
            name if kind is Kind.SERVICES else name.lower(),
            kind,
            cls,
            name.endswith("SnapshotTaken"),
        )
        for name, cls in zip(names, classes, strict=True)
    ]


EVENT_TYPES: dict[str, EventType] = {
    event_type.name: event_type
    for event_type in [
        *_of(
            Kind.LINKS,
            events.ResourceLinksPublished,
            events.ResourceLinksUnpublished,
            events.ResourceLinksSnapshotTaken,
        ),
        *_of(
            Kind.METADATA,
            events.DeviceMetadataUpdatePending,
            events.DeviceMetadataUpdated,
            events.DeviceMetadataSnapshotTaken,
        ),
        *_of(
            Kind.RESOURCES,
            events.ResourceChanged,
            events.ResourceCreatePending,
            events.ResourceCreated,
            events.ResourceRetrievePending,
            events.ResourceRetrieved,
            events.ResourceUpdatePending,
            events.ResourceUpdated,
            events.ResourceDeletePending,
            events.ResourceDeleted,
            events.ResourceStateSnapshotTaken,
        ),
        *_of(
            Kind.REGISTRATIONS, registrations.DevicesRegistered, registrations.DevicesUnregistered
        ),
        *_of(Kind.SERVICES, events.ServiceMetadataUpdated, events.ServiceMetadataSnapshotTaken),
    ]
}
"""Every event type by its name on the wire."""

TYPE_OF_MESSAGE: dict[str, EventType] = {
    event_type.message.DESCRIPTOR.full_name: event_type for event_type in EVENT_TYPES.values()
}


def type_of(message: Message) -> EventType:
    """The event type of a message; ``KeyError`` for other messages."""
    return TYPE_OF_MESSAGE[message.DESCRIPTOR.full_name]
