"""The answers of an event store to each call of the gateway, for one owner; no gRPC, no clock.

States are read device by device, so one device at a time is in memory. A device belongs to the
owner that its states name.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from urllib.parse import parse_qs

from ..content import NONE, decode_content
from ..ids import aggregate_id
from ..kinds import Kind, type_of
from ..reasons import UndecodableEventError
from ..wire import events_pb2 as events
from ..wire import gateway_pb2 as pb
from .methods import EVENT_FIELDS, PENDING_FIELDS

if TYPE_CHECKING:
    from ..store import Aggregate, EventStore

DEVICE_HREF = "/oic/d"
DEVICES_AT_ONCE = 500
Command = pb.GetPendingCommandsRequest.Command
PENDINGS = {
    Command.RESOURCE_CREATE: "resource_create_pendings",
    Command.RESOURCE_RETRIEVE: "resource_retrieve_pendings",
    Command.RESOURCE_UPDATE: "resource_update_pendings",
    Command.RESOURCE_DELETE: "resource_delete_pendings",
}
Answer: TypeAlias = Callable[["EventStore", str, Any, int], Iterator[Any]]


class BadRequest(ValueError):
    """A filter that is not valid."""


class Wanted(NamedTuple):
    """The devices and resources that a request names; neither means everything."""

    devices: frozenset[str]
    resources: dict[tuple[str, str], tuple[bytes, ...]]

    @property
    def everything(self) -> bool:
        """Whether there is no filter."""
        return not self.devices and not self.resources

    def all_devices(self) -> list[str]:
        """The devices that the filter names; none means all."""
        return sorted(self.devices | {device for device, _ in self.resources})

    def has(self, device_id: str, href: str) -> bool:
        """Whether a resource is wanted."""
        return self.everything or device_id in self.devices or (device_id, href) in self.resources


def parse_resource(text: str) -> tuple[str, str, tuple[bytes, ...]]:
    """The device, the href and the etags of ``{device id}{href}?etag={base64}``; raises BadRequest."""
    path, _, query = text.lstrip("/").partition("?")
    device, slash, href = path.partition("/")
    if not device or not href:
        raise BadRequest(f"a resource is a device id and an href, not {text[:200]!r}")
    try:
        etags = [base64.urlsafe_b64decode(e + "===") for e in parse_qs(query).get("etag", [])]
    except binascii.Error as error:
        raise BadRequest(f"no etag in {text[:200]!r}: {error}") from error
    return device, slash + href, tuple(etags)


def wanted(request: Any) -> Wanted:
    """The filters of a request for devices and resources; raises BadRequest."""
    resources: dict[tuple[str, str], tuple[bytes, ...]] = {}
    for each in request.resource_id_filter:
        device, href = each.resource_id.device_id, each.resource_id.href
        if not device or not href:
            raise BadRequest("a resource id filter has a device id and an href")
        resources[device, href] = resources.get((device, href), ()) + tuple(each.etag)
    for text in request.http_resource_id_filter:
        device, href, etags = parse_resource(text)
        resources[device, href] = resources.get((device, href), ()) + etags
    return Wanted(frozenset(request.device_id_filter), resources)


class Device:
    """The states of one device."""

    def __init__(self, device_id: str, states: Iterable[Aggregate]) -> None:
        """Sorts the states."""
        self.id = device_id
        self.links: Any = None
        self.metadata: Any = None
        self.resources: list[Any] = []
        for state in states:
            snapshot, kind = state.snapshot, type_of(state.snapshot).kind
            if kind is Kind.LINKS:
                self.links = snapshot
            elif kind is Kind.METADATA:
                self.metadata = snapshot
            elif kind is Kind.RESOURCES:
                self.resources.append(snapshot)
        self.resources.sort(key=lambda snapshot: str(snapshot.resource_id.href))

    def types(self, href: str) -> list[str] | None:
        """The types of a published resource; None if it is not published."""
        if self.links is None or href not in self.links.resources:
            return None
        return list(self.links.resources[href].resource_types)

    def updated(self) -> Any:
        """The last metadata; None before there are any."""
        if self.metadata is None or not self.metadata.HasField("device_metadata_updated"):
            return None
        return self.metadata.device_metadata_updated


def states_of(
    store: EventStore, owner: str, device_ids: list[str], after_ns: int | None = None
) -> Iterator[Aggregate]:
    """The states of an owner's devices, by device; no device ids mean all devices."""
    if not device_ids:
        yield from store.aggregates(owner=owner, after_ns=after_ns)
        return
    for place in range(0, len(device_ids), DEVICES_AT_ONCE):
        some = device_ids[place : place + DEVICES_AT_ONCE]
        yield from store.aggregates(owner=owner, device_ids=some, after_ns=after_ns)


def devices_of(store: EventStore, owner: str, device_ids: list[str]) -> Iterator[Device]:
    """The owner's devices, one after the other."""
    states = states_of(store, owner, device_ids)
    for device_id, own in groupby(states, key=lambda state: state.device_id):
        yield Device(device_id, own)


def fits(types: Iterable[str], type_filter: Iterable[str]) -> bool:
    """Whether one of the types is asked for; an empty filter takes all."""
    asked = set(type_filter)
    return not asked or bool(asked.intersection(types))


def get_events(store: EventStore, owner: str, request: Any, now_ns: int) -> Iterator[Any]:
    """The events that the store keeps of each aggregate, after a time; its state where it keeps none."""
    if request.timestamp_filter < 0:
        raise BadRequest("timestamp_filter is a time in ns, not negative")
    found = wanted(request)
    after = request.timestamp_filter
    named = {aggregate_id(device, href) for device, href in found.resources}
    for state in states_of(store, owner, found.all_devices(), after or None):
        if not (found.everything or state.device_id in found.devices) and (
            state.aggregate_id not in named
        ):
            continue
        kept = list(store.events(state.aggregate_id)) or [state.snapshot]
        for message in kept:
            field = EVENT_FIELDS.get(message.DESCRIPTOR.full_name)
            if field is not None and message.event_metadata.timestamp > after:
                yield pb.GetEventsResponse(**{field: message})


def get_resources(store: EventStore, owner: str, request: Any, now_ns: int) -> Iterator[Any]:
    """The published resources as they changed last; content that has an etag of the request is left out."""
    found = wanted(request)
    for device in devices_of(store, owner, found.all_devices()):
        for snapshot in device.resources:
            href = snapshot.resource_id.href
            types = device.types(href)
            if types is None or not snapshot.HasField("latest_resource_change"):
                continue
            if not found.has(device.id, href) or not fits(types, request.type_filter):
                continue
            data = snapshot.latest_resource_change
            if data.etag and data.etag in found.resources.get((device.id, href), ()):
                data.status = events.NOT_MODIFIED
                data.content.CopyFrom(events.Content(coap_content_format=NONE))
            yield pb.Resource(types=types, data=data)


def is_valid(pending: Any, now_ns: int) -> bool:
    """Whether a command still waits: it has no end, or its end is to come."""
    return not pending.valid_until or bool(pending.valid_until > now_ns)


def get_pending_commands(store: EventStore, owner: str, request: Any, now_ns: int) -> Iterator[Any]:
    """The commands that wait and have not expired; those to the twin only without a filter of resources."""
    found = wanted(request)
    kinds = set(request.command_filter)
    twins = (not kinds or Command.DEVICE_METADATA_UPDATE in kinds) and not (
        found.resources or request.type_filter
    )
    fields = [field for kind, field in PENDINGS.items() if not kinds or kind in kinds]
    for device in devices_of(store, owner, found.all_devices()):
        waiting: list[Any] = []
        if twins and device.metadata is not None:
            waiting += device.metadata.update_pendings
        for snapshot in device.resources:
            href = snapshot.resource_id.href
            types = device.types(href)
            if types is None:
                if not request.include_hidden_resources:
                    continue
                types = list(snapshot.resource_types)
            if found.has(device.id, href) and fits(types, request.type_filter):
                waiting += [pending for field in fields for pending in getattr(snapshot, field)]
        for pending in waiting:
            if is_valid(pending, now_ns):
                yield pb.PendingCommand(**{PENDING_FIELDS[pending.DESCRIPTOR.full_name]: pending})


def get_devices_metadata(store: EventStore, owner: str, request: Any, now_ns: int) -> Iterator[Any]:
    """The last metadata of devices that have published themselves."""
    for device in devices_of(store, owner, sorted(set(request.device_id_filter))):
        types, updated = device.types(DEVICE_HREF), device.updated()
        if types is not None and updated is not None and fits(types, request.type_filter):
            yield updated


def get_resource_links(store: EventStore, owner: str, request: Any, now_ns: int) -> Iterator[Any]:
    """The links of each device."""
    for device in devices_of(store, owner, sorted(set(request.device_id_filter))):
        if device.links is None:
            continue
        links = [
            device.links.resources[href]
            for href in sorted(device.links.resources)
            if fits(device.links.resources[href].resource_types, request.type_filter)
        ]
        if links:
            yield events.ResourceLinksPublished(
                device_id=device.id,
                resources=links,
                audit_context=device.links.audit_context,
                event_metadata=device.links.event_metadata,
            )


def get_devices(store: EventStore, owner: str, request: Any, now_ns: int) -> Iterator[Any]:
    """Devices that have published themselves: names, models, and metadata."""
    for device in devices_of(store, owner, sorted(set(request.device_id_filter))):
        types, updated = device.types(DEVICE_HREF), device.updated()
        if types is None or updated is None or not fits(types, request.type_filter):
            continue
        online = updated.connection.status == events.Connection.ONLINE
        status = pb.GetDevicesRequest.ONLINE if online else pb.GetDevicesRequest.OFFLINE
        if request.status_filter and status not in request.status_filter:
            continue
        yield described(device, types, updated)


def described(device: Device, types: list[str], updated: Any) -> Any:
    """A device with what its own resource says about it."""
    made = pb.Device(
        id=device.id,
        types=types,
        interfaces=device.links.resources[DEVICE_HREF].interfaces,
        ownership_status=pb.Device.OWNED,
        endpoints=updated.connection.local_endpoints,
        metadata=pb.Device.Metadata(
            connection=updated.connection,
            twin_synchronization=updated.twin_synchronization,
            twin_enabled=updated.twin_enabled,
        ),
    )
    own = [s for s in device.resources if s.resource_id.href == DEVICE_HREF]
    if own and own[0].HasField("latest_resource_change"):
        made.data.CopyFrom(own[0].latest_resource_change)
        content = made.data.content
        try:
            body = decode_content(content.data, content.content_type, content.coap_content_format)
        except UndecodableEventError:
            return made  # its bytes are in data
        if isinstance(body, dict):
            made.name = text(body.get("n"))
            made.model_number = text(body.get("dmno"))
            made.protocol_independent_id = text(body.get("piid"))
            for name in body.get("dmn") or ():
                if isinstance(name, dict):
                    made.manufacturer_name.add(
                        language=text(name.get("language")), value=text(name.get("value"))
                    )
    return made


def text(value: Any) -> str:
    """A value if it is text, else nothing."""
    return value if isinstance(value, str) else ""


ANSWERS: dict[str, Answer] = {
    "GetDevices": get_devices,
    "GetDevicesMetadata": get_devices_metadata,
    "GetEvents": get_events,
    "GetPendingCommands": get_pending_commands,
    "GetResourceLinks": get_resource_links,
    "GetResources": get_resources,
}
"""What each call answers: of a store, an owner, a request and the time."""
