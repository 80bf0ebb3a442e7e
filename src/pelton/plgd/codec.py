"""One event: decoded from the bytes of the bus, and encoded to them.

::

    devices         envelope( version, type, device id, aggregate id, snappy block( event ) )
    registrations   snappy block( oneof( registered, unregistered ) )

A snappy block is the raw format: the length unpacked, then its elements; it has no checksum, so damage may
only show as a wrong event. Events newer than hub v2.25 decode if their type is known: protobuf keeps unknown
fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from cramjam import snappy
from google.protobuf.message import DecodeError, Message

from .content import decode_content
from .ids import aggregate_id, links_id, metadata_id, owner_id
from .kinds import EVENT_TYPES, EventType, Kind, type_of
from .reasons import Reason, UndecodableEventError
from .subjects import (
    Era,
    LeadType,
    Subject,
    device_subject,
    parse_subject,
    registration_subject,
)
from .wire import envelope_pb2, registrations_pb2

MAX_UNPACKED = 64 << 20
"""Bytes that a snappy block may have unpacked; the hub's own limit for a document is 16 MiB."""

Envelope = envelope_pb2.Event
Registration = registrations_pb2.Event
REGISTRATION_FIELDS = {
    "devicesregistered": "devices_registered",
    "devicesunregistered": "devices_unregistered",
}


@dataclass(frozen=True, slots=True)
class Event:
    """A decoded event: its subject, its type and its protobuf message.

    ``message`` is of the class ``type.message`` and holds all fields; the properties are those that most
    events share. Registrations have no aggregate and no version.
    """

    subject: Subject
    type: EventType
    message: Any
    aggregate_id: str | None = None
    version: int | None = None

    @property
    def device_id(self) -> str | None:
        """The device; None for registrations, which may name many."""
        return self.subject.device_id

    @property
    def href(self) -> str | None:
        """The path of the resource; None if the event is not about one resource."""
        return str(self.message.resource_id.href) if self.type.kind is Kind.RESOURCES else None

    @property
    def timestamp_ns(self) -> int:
        """The hub's time of the event."""
        if self.type.kind is Kind.REGISTRATIONS:
            return int(self.message.timestamp)
        return int(self.message.event_metadata.timestamp)

    @property
    def hub_id(self) -> str:
        """The hub; empty before v2.9."""
        return str(self.message.event_metadata.hub_id)

    def content_value(self) -> Any:
        """The content as a value; None if it is empty or the event has none.

        :raises UndecodableEventError: ``content`` if the data is not of its content type.
        """
        content = getattr(self.message, "content", None)
        if content is None:
            return None
        return decode_content(content.data, content.content_type, content.coap_content_format)


@dataclass(frozen=True, slots=True)
class Encoded:
    """An event as bytes for the bus; with ``message_id`` a stream stores a repeated publish once."""

    subject: str
    payload: bytes
    message_id: str


def unpack(data: bytes) -> bytes:
    """The content of a snappy block; ``UndecodableEventError`` with the reason ``snappy`` for other bytes."""
    try:
        if not data:
            raise UndecodableEventError(Reason.SNAPPY, "no data")
        if (size := snappy.decompress_raw_len(data)) > MAX_UNPACKED:
            raise UndecodableEventError(
                Reason.SNAPPY, f"{size} bytes unpacked, over {MAX_UNPACKED}"
            )
        return bytes(snappy.decompress_raw(data))
    except UndecodableEventError:
        raise
    except Exception as error:  # cramjam raises its own class, and others for other damage
        raise UndecodableEventError(Reason.SNAPPY, f"no snappy block: {error}") from error


def pack(message: Message) -> bytes:
    """A message as a snappy block."""
    return bytes(snappy.compress_raw(message.SerializeToString(deterministic=True)))


def parse_envelope(payload: bytes) -> envelope_pb2.Event:
    """The envelope of a payload; ``UndecodableEventError`` with the reason ``envelope`` for other bytes."""
    try:
        envelope = Envelope.FromString(payload)
    except DecodeError as error:
        raise UndecodableEventError(Reason.ENVELOPE, f"no envelope: {error}") from error
    if not envelope.event_type:
        raise UndecodableEventError(Reason.ENVELOPE, "no envelope: no event type")
    return envelope


def decode_version(payload: bytes) -> tuple[str, str, int] | None:
    """The device, the aggregate and the version that an envelope names, whatever it contains; None for other bytes."""
    try:
        envelope = Envelope.FromString(payload)
    except DecodeError:
        return None
    if not envelope.group_id or not envelope.aggregate_id:
        return None
    return envelope.group_id, envelope.aggregate_id, envelope.version


def parse_event(event_type: EventType, data: bytes) -> Any:
    """The message of unpacked data; ``UndecodableEventError`` with the reason ``event`` for other data."""
    try:
        return event_type.message.FromString(data)
    except DecodeError as error:
        raise UndecodableEventError(Reason.EVENT, f"no {event_type.name}: {error}") from error


def parse_registration(event_type: str, payload: bytes) -> Any:
    """The message of a registration; raises ``UndecodableEventError``."""
    try:
        wrapper = Registration.FromString(unpack(payload))
    except DecodeError as error:
        raise UndecodableEventError(Reason.ENVELOPE, f"no registration: {error}") from error
    field = wrapper.WhichOneof("type")
    if field is None:
        raise UndecodableEventError(Reason.ENVELOPE, "a registration without an event")
    if field != REGISTRATION_FIELDS[event_type]:
        raise UndecodableEventError(
            Reason.MISMATCH, f"the subject says {event_type}, the event {field}"
        )
    return getattr(wrapper, field)


def mismatch(subject: Subject, envelope: envelope_pb2.Event) -> str:
    """How subject and envelope differ; empty if they agree."""
    if envelope.event_type != subject.event_type:
        return f"the subject says {subject.event_type}, the envelope {envelope.event_type[:100]!r}"
    if envelope.group_id != subject.device_id:
        return (
            f"the subject says device {subject.device_id}, the envelope {envelope.group_id[:100]!r}"
        )
    return ""


def decode(subject: str | Subject, payload: bytes) -> Event:
    """The event of a message of the bus, of every era of the hub.

    :raises UndecodableEventError: with the ``reason`` for a dead letter.
    """
    parsed = parse_subject(subject) if isinstance(subject, str) else subject
    event_type = EVENT_TYPES[parsed.event_type]
    if parsed.kind is Kind.REGISTRATIONS:
        return Event(parsed, event_type, parse_registration(parsed.event_type, payload))
    envelope = parse_envelope(payload)
    if envelope.event_type not in EVENT_TYPES:
        raise UndecodableEventError(
            Reason.EVENT_TYPE, f"no event type {envelope.event_type[:100]!r}"
        )
    if difference := mismatch(parsed, envelope):
        raise UndecodableEventError(Reason.MISMATCH, difference)
    message = parse_event(event_type, unpack(envelope.data))
    return Event(parsed, event_type, message, envelope.aggregate_id, envelope.version)


def device_of(event_type: EventType, message: Any) -> str:
    """The device id of an event of a device."""
    if event_type.kind is Kind.RESOURCES:
        return str(message.resource_id.device_id)
    return str(message.device_id)


def aggregate_of(event_type: EventType, message: Any) -> str:
    """The id of the aggregate that an event of a device belongs to."""
    if event_type.kind is Kind.RESOURCES:
        return aggregate_id(message.resource_id.device_id, message.resource_id.href)
    if event_type.kind is Kind.LINKS:
        return links_id(message.device_id)
    if event_type.kind is Kind.METADATA:
        return metadata_id(message.device_id)
    raise ValueError(f"{event_type.name} is not published")


def lead_types(message: Any) -> list[str]:
    """The resource types that the lead resource type is chosen from."""
    return list(message.resource_types)


def encode(
    message: Message, *, owner: str, era: Era = Era.HREF, lead: LeadType | None = None
) -> Encoded:
    """An event of a device as the hub publishes it.

    ``owner`` is the owner claim. Version and times are those of the message's ``event_metadata``. The
    message id is the aggregate, the version and the time: the same event has the same id, and the first event
    of a device that came back has another. A registration or an event that is not published is a ``ValueError``.
    """
    event_type = type_of(message)
    if event_type.kind is Kind.REGISTRATIONS:
        raise ValueError("encode_registration encodes registrations")
    body = cast("Any", message)
    aggregate = aggregate_of(event_type, body)
    device, meta = device_of(event_type, body), body.event_metadata
    resources = event_type.kind is Kind.RESOURCES
    tokens = lead.tokens(lead_types(body)) if lead is not None and resources else ""
    subject = device_subject(
        event_type,
        owner_id(owner),
        device,
        href=body.resource_id.href if resources else "",
        era=era,
        lead=tokens,
    )
    envelope = Envelope(
        version=meta.version,
        event_type=event_type.name,
        group_id=device,
        aggregate_id=aggregate,
        data=pack(message),
    )
    message_id = f"{aggregate}.{meta.version}.{meta.timestamp}"
    return Encoded(subject, envelope.SerializeToString(), message_id)


def encode_registration(message: Message) -> Encoded:
    """A registration as the hub publishes it; the owner is that of the message."""
    event_type = type_of(message)
    field = REGISTRATION_FIELDS.get(event_type.name)
    if field is None:
        raise ValueError(f"{event_type.name} is no registration")
    body = cast("Any", message)
    wrapper = Registration(**{field: body})
    owner = owner_id(body.owner)
    message_id = f"{owner}.{event_type.name}.{body.timestamp}.{'.'.join(body.device_ids[:4])}"
    return Encoded(registration_subject(event_type, owner), pack(wrapper), message_id)
