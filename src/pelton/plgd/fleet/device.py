"""One simulated device and the events that it causes: the messages of the hub, with versions and times."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import cbor2
import msgspec

from ..content import CBOR, JSON, NONE, OCF_CBOR, TEXT
from ..wire import events_pb2 as events
from .resources import KINDS, Link, first_body, links_of

if TYPE_CHECKING:
    from random import Random

    from .config import FleetConfig

Connection = events.Connection
Twin = events.TwinSynchronization
MEDIA = {
    OCF_CBOR: "application/vnd.ocf+cbor",
    CBOR: "application/cbor",
    JSON: "application/json",
    TEXT: "text/plain; charset=utf-8",
}


def random_uuid(rng: Random) -> str:
    """A UUID of version 4 from a generator with a seed."""
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def nothing() -> Any:
    """The content of an empty answer and of a resource that is gone."""
    return events.Content(coap_content_format=NONE)


def content_of(body: Any, rng: Random) -> Any:
    """A body as content: OCF CBOR, and now and then another format."""
    roll = rng.random()
    form = OCF_CBOR if roll < 0.97 else (CBOR, JSON, TEXT)[int((roll - 0.97) * 99)]
    if form in {OCF_CBOR, CBOR}:
        data = cbor2.dumps(body)
    else:
        data = msgspec.json.encode(body)
    return events.Content(data=data, content_type=MEDIA[form], coap_content_format=form)


class Device:
    """A device: its owner, its resources and its connection. Its methods make messages without metadata."""

    def __init__(
        self, config: FleetConfig, rng: Random, gateways: list[str], hubs: list[str]
    ) -> None:
        """A device that was never connected."""
        self.rng = rng
        self.config = config
        self.id = random_uuid(rng)
        self.owner = random_uuid(rng) if rng.random() < 0.8 else f"auth0|{rng.getrandbits(48):012x}"
        self.kind = rng.choice(KINDS)
        self.hub_id = rng.choice(hubs)
        self.gateway = rng.choice(gateways)
        self.is_flapper = rng.random() < config.flappers
        self.is_cellular = rng.random() < config.cellular
        self.is_large = rng.random() < config.large
        self.protocol = rng.choices(
            [Connection.COAPS_TCP, Connection.COAP_TCP, Connection.COAPS, Connection.C2C],
            [80, 15, 3, 2],
        )[0]
        self.links: dict[str, Link] = {}
        self.bodies: dict[str, Any] = {}
        self.changed: set[str] = set()
        self.session = 0
        self.is_online = False
        self.connection_id = ""
        self.sequence = 0
        self.connected_at_ns = self.syncing_at_ns = self.in_sync_at_ns = 0
        self.switches = 0
        self.last_ns = 0
        self.reset()

    def reset(self) -> None:
        """Reset the hub's state of the device: it is new, or was deleted."""
        links = links_of(self.kind, self.rng, large=self.is_large)
        self.links = {link.href: link for link in links}
        self.bodies = {href: first_body(href, self.id, self.kind, self.rng) for href in self.links}
        self.changed = set(self.links)
        self.switches = len([href for href in self.links if href.startswith("/switches/")])
        self.is_online = False
        self.session += 1

    def connect(self, now_ns: int) -> None:
        """A new session."""
        rng = self.rng
        self.session += 1
        self.is_online = True
        self.connection_id = f"10.{rng.randrange(256)}.{rng.randrange(256)}.{rng.randrange(1, 255)}"
        self.connection_id += f":{rng.randrange(32768, 61000)}"
        self.sequence = 0
        self.connected_at_ns = now_ns
        self.syncing_at_ns = self.in_sync_at_ns = 0

    def disconnect(self) -> None:
        """The end of a session; its planned events are dropped."""
        self.is_online = False
        self.session += 1

    def not_before_last(self, time_ns: int) -> int:
        """A time for the next event: its own, but after the device's last event."""
        self.last_ns = max(time_ns, self.last_ns + 1)
        return self.last_ns

    def next_sequence(self) -> int:
        """The number of the next message on the connection."""
        self.sequence += self.rng.randrange(1, 6)
        return self.sequence

    def audit(self, user: str | None = None, correlation_id: str = "") -> Any:
        """The user who causes an event: the device's owner unless a user is given."""
        return events.AuditContext(
            user_id=self.owner if user is None else user,
            correlation_id=correlation_id,
            owner=self.owner if self.config.since(12) else "",
        )

    def metadata(self, state: Any, *, user: str | None = None, correlation_id: str = "") -> Any:
        """The device's metadata as they are now, in a state of its twin."""
        online = self.is_online
        message = events.DeviceMetadataUpdated(
            device_id=self.id,
            connection=Connection(
                status=Connection.ONLINE if online else Connection.OFFLINE,
                id=self.connection_id,
                connected_at=self.connected_at_ns,
                protocol=self.protocol,
                service_id=self.gateway if online and self.config.since(12) else "",
            ),
            audit_context=self.audit(user, correlation_id),
            twin_synchronization=Twin(
                state=state,
                syncing_at=self.syncing_at_ns,
                in_sync_at=self.in_sync_at_ns,
                command_metadata=events.CommandMetadata(
                    connection_id=self.connection_id, sequence=self.next_sequence()
                ),
            ),
            twin_enabled=True,
        )
        if online and self.config.since(17):
            message.connection.local_endpoints.append(
                f"coaps+tcp://192.168.1.{len(self.links)}:5684"
            )
        return message

    def link(self, link: Link) -> Any:
        """A link as the hub stores it."""
        return events.Resource(
            href=link.href,
            device_id=self.id,
            resource_types=link.types,
            interfaces=link.interfaces,
            anchor=f"ocf://{self.id}",
            supported_content_types=[MEDIA[OCF_CBOR]],
            policy=events.Policy(bit_flags=link.bits),
            endpoint_informations=[
                events.EndpointInformation(endpoint="coaps+tcp://192.168.1.2:5684", priority=1)
            ],
        )

    def published(self, links: list[Link]) -> Any:
        """Links that the device publishes."""
        return events.ResourceLinksPublished(
            device_id=self.id,
            resources=[self.link(link) for link in links],
            audit_context=self.audit(),
        )

    def unpublished(self, hrefs: list[str]) -> Any:
        """Links that the device takes back."""
        return events.ResourceLinksUnpublished(
            device_id=self.id, hrefs=hrefs, audit_context=self.audit()
        )

    def resource_id(self, href: str) -> Any:
        """The id of one of its resources."""
        return events.ResourceId(device_id=self.id, href=href)

    def types(self, href: str) -> tuple[str, ...]:
        """The types of a resource, for hubs that put them into events."""
        link = self.links.get(href)
        return link.types if link is not None and self.config.since(18) else ()

    def has_etags(self) -> bool:
        """Whether the hub stores etags."""
        return self.config.since(10)

    def resource_changed(self, href: str) -> Any:
        """The resource as it is now; NOT_FOUND if it is unpublished."""
        here = href in self.links
        return events.ResourceChanged(
            resource_id=self.resource_id(href),
            content=content_of(self.bodies[href], self.rng) if here else nothing(),
            status=events.OK if here else events.NOT_FOUND,
            audit_context=self.audit(),
            etag=self.rng.randbytes(8) if here and self.has_etags() else b"",
            resource_types=self.types(href),
        )
