"""Commands to simulated devices: pending commands, their ends, and the changes that they make."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..wire import events_pb2 as events
from .device import content_of, nothing, random_uuid
from .resources import switch

if TYPE_CHECKING:
    from .device import Device

KINDS = ("update", "retrieve", "create", "delete")
WEIGHTS = (70, 22, 4, 4)
# The shares of a thousand commands; other commands are never confirmed.
ENDINGS = (
    (920, events.OK),
    (930, events.METHOD_NOT_ALLOWED),
    (940, events.FORBIDDEN),
    (950, events.BAD_REQUEST),
    (960, events.UNAVAILABLE),
    (970, events.ERROR),
    (980, events.CANCELED),
)


@dataclass(frozen=True)
class Command:
    """A command that was sent: its kind, its resource, and how it will end (None: never)."""

    kind: str
    href: str
    correlation_id: str
    user: str
    status: int | None
    power: int = 0


def choose(device: Device, operator: str) -> Command:
    """The next command to a device."""
    rng = device.rng
    kind = rng.choices(KINDS, WEIGHTS)[0]
    switches = [href for href in device.links if href.startswith("/switches/")]
    if kind == "delete" and not switches:
        kind = "update"
    href = {"update": "/light/1", "retrieve": "/oic/d", "create": "/switches"}.get(kind)
    if href is None:
        href = rng.choice(switches)
    roll = rng.randrange(1000)
    status = next((status for limit, status in ENDINGS if roll < limit), None)
    if kind == "create" and status == events.OK:
        status = events.CREATED
    return Command(kind, href, random_uuid(rng), operator, status, rng.randrange(101))


def latency_ns(device: Device) -> int:
    """How long a device takes to answer: log-normal, at most a few seconds."""
    median_s = 0.4 if device.is_cellular else 0.08
    return int(median_s * math.exp(device.rng.gauss(0, 0.9)) * 1e9)


def pending(device: Device, command: Command, valid_until_ns: int) -> Any:
    """The event that says that a command is pending."""
    shared: dict[str, Any] = {
        "resource_id": device.resource_id(command.href),
        "audit_context": device.audit(command.user, command.correlation_id),
        "valid_until": valid_until_ns,
        "resource_types": device.types(command.href),
    }
    if command.kind == "update":
        content = content_of({"power": command.power}, device.rng)
        return events.ResourceUpdatePending(content=content, **shared)
    if command.kind == "create":
        link = switch(device.switches + 1)
        body = {"rt": link.types, "if": link.interfaces, "rep": {"value": False}, "p": {"bm": 3}}
        return events.ResourceCreatePending(content=content_of(body, device.rng), **shared)
    if command.kind == "delete":
        return events.ResourceDeletePending(**shared)
    return events.ResourceRetrievePending(**shared)


def confirmed(device: Device, command: Command) -> Any:
    """The event that says how a command ended."""
    shared: dict[str, Any] = {
        "resource_id": device.resource_id(command.href),
        "status": command.status,
        "content": nothing(),
        "audit_context": device.audit(command.user, command.correlation_id),
        "resource_types": device.types(command.href),
    }
    if command.kind == "retrieve":
        if command.status == events.OK and command.href in device.bodies:
            shared["content"] = content_of(device.bodies[command.href], device.rng)
        return events.ResourceRetrieved(**shared)
    if command.kind == "update":
        return events.ResourceUpdated(**shared)
    if command.kind == "create":
        return events.ResourceCreated(**shared)
    return events.ResourceDeleted(**shared)


def effects(device: Device, command: Command) -> list[Any]:
    """The further events of a successful command, in order."""
    if command.status not in {events.OK, events.CREATED} or command.href not in device.links:
        return []
    if command.kind == "update":
        body = device.bodies[command.href]
        if body["power"] == command.power:
            return []
        device.bodies[command.href] = body | {"power": command.power}
        return [device.resource_changed(command.href)]
    if command.kind == "create":
        device.switches += 1
        link = switch(device.switches)
        device.links[link.href] = link
        device.bodies[link.href] = {"value": False}
        return [device.published([link]), device.resource_changed(link.href)]
    if command.kind == "delete":
        del device.links[command.href]
        del device.bodies[command.href]
        return [device.unpublished([command.href]), device.resource_changed(command.href)]
    return []
