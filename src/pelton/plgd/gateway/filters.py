"""Which events of the bus match a subscription, and the answers that it gets; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..kinds import Kind
from ..wire import gateway_pb2 as pb
from .answers import BadRequest, parse_resource
from .methods import BUS_FIELDS

if TYPE_CHECKING:
    from ..codec import Event
    from ..subjects import Subject

Asked = pb.SubscribeToEvents.CreateSubscription.Event
KINDS: dict[str, Any] = {
    "devicesregistered": Asked.REGISTERED,
    "devicesunregistered": Asked.UNREGISTERED,
    "devicemetadataupdated": Asked.DEVICE_METADATA_UPDATED,
    "devicemetadataupdatepending": Asked.DEVICE_METADATA_UPDATE_PENDING,
    "resourcelinkspublished": Asked.RESOURCE_PUBLISHED,
    "resourcelinksunpublished": Asked.RESOURCE_UNPUBLISHED,
    "resourceupdatepending": Asked.RESOURCE_UPDATE_PENDING,
    "resourceupdated": Asked.RESOURCE_UPDATED,
    "resourceretrievepending": Asked.RESOURCE_RETRIEVE_PENDING,
    "resourceretrieved": Asked.RESOURCE_RETRIEVED,
    "resourcedeletepending": Asked.RESOURCE_DELETE_PENDING,
    "resourcedeleted": Asked.RESOURCE_DELETED,
    "resourcecreatepending": Asked.RESOURCE_CREATE_PENDING,
    "resourcecreated": Asked.RESOURCE_CREATED,
    "resourcechanged": Asked.RESOURCE_CHANGED,
}
"""What an event type is called in a filter; snapshots of older hubs have no name there."""


class EventFilter:
    """The filter of one subscription. Devices and hrefs narrow each other; resources come on top."""

    def __init__(self, request: Any) -> None:
        """Of a CreateSubscription; raises BadRequest."""
        self.kinds = set(request.event_filter)
        self.devices = {device for device in request.device_id_filter if device != "*"}
        self.hrefs = {href for href in request.href_filter if href != "*"}
        self.leads = set(request.lead_resource_type_filter)
        self.resources: set[tuple[str, str]] = set()
        named = [(r.resource_id.device_id, r.resource_id.href) for r in request.resource_id_filter]
        named += [parse_resource(text)[:2] for text in request.http_resource_id_filter]
        for device, href in named:
            if not device or not href:
                raise BadRequest(
                    "a resource id filter has a device id and an href; * stands for all"
                )
            self.resources.add((device, href))
        if ("*", "*") in self.resources:
            self.resources.clear()
            self.devices.clear()
            self.hrefs.clear()

    def may_want(self, subject: Subject) -> bool:
        """Whether an event with this subject can match, before it is decoded."""
        kind = KINDS.get(subject.event_type)
        if kind is None or (self.kinds and kind not in self.kinds):
            return False
        if subject.kind is Kind.REGISTRATIONS:
            return True
        if not self._of_device(subject.device_id or ""):
            return False
        if subject.kind is Kind.RESOURCES and self.leads:
            lead = subject.lead_type
            return lead is not None and (bool(self.leads & {"*", ">"}) or lead in self.leads)
        return True

    def _of_device(self, device_id: str) -> bool:
        """Whether an event of a device can match."""
        if not self.devices and (self.hrefs or not self.resources):
            return True
        return device_id in self.devices or any(d in {"*", device_id} for d, _ in self.resources)

    def wants(self, event: Event) -> bool:
        """Whether an event matches; its subject does already."""
        if event.type.kind is not Kind.RESOURCES:
            return True
        device, href = str(event.device_id), str(event.href)
        if not self.devices and not self.hrefs and not self.resources:
            return True
        if (self.devices or self.hrefs) and (
            (not self.devices or device in self.devices) and (not self.hrefs or href in self.hrefs)
        ):
            return True
        names = {(device, href), ("*", href), (device, "*")}
        return bool(names & self.resources)


def as_answer(event: Event, subscription_id: str, correlation_id: str) -> Any:
    """An event of the bus as a subscriber gets it."""
    answer = pb.Event(subscription_id=subscription_id, correlation_id=correlation_id)
    message = event.message
    if event.type.kind is Kind.REGISTRATIONS:
        registered = event.type.name == "devicesregistered"
        made = answer.device_registered if registered else answer.device_unregistered
        made.device_ids.extend(message.device_ids)
        made.event_metadata.CopyFrom(message.event_metadata)
        made.open_telemetry_carrier.update(message.open_telemetry_carrier)
        return answer
    getattr(answer, BUS_FIELDS[message.DESCRIPTOR.full_name]).CopyFrom(message)
    return answer


def processed(subscription_id: str, correlation_id: str, code: Any, message: str = "") -> Any:
    """The answer that a request was carried out, or why not."""
    status = pb.Event.OperationProcessed.ErrorStatus(code=code, message=message)
    return pb.Event(
        subscription_id=subscription_id,
        correlation_id=correlation_id,
        operation_processed=pb.Event.OperationProcessed(error_status=status),
    )


def canceled(subscription_id: str, correlation_id: str) -> Any:
    """The answer that a subscription has ended."""
    return pb.Event(
        subscription_id=subscription_id,
        correlation_id=correlation_id,
        subscription_canceled=pb.Event.SubscriptionCanceled(),
    )
