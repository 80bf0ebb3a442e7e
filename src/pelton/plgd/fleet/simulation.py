"""The simulation of a fleet: devices connect, measure, carry out commands and disconnect, and the
hub stores an event for each.

A heap has the planned actions by time. `Hub` gives versions and times to messages, and keeps the
state of every aggregate, as the hub's store does.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from ..codec import aggregate_of
from ..ids import NIL_UUID, links_id
from ..kinds import Kind, type_of
from ..projection import apply, new_snapshot
from ..wire import events_pb2 as events
from ..wire import registrations_pb2 as registrations
from . import commands
from .config import SECOND_NS, FleetConfig
from .device import Device, Twin, random_uuid
from .resources import SENSORS, next_reading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .commands import Command

GATEWAYS = 3
FLOOD_CHANGES = 1000


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event in the hub's store: its time, its aggregate and its message.

    ``incarnation`` counts how often the device was registered, and every restore of the store: the same version of
    an aggregate in two incarnations is two events. A registration has no aggregate.
    """

    time_ns: int
    owner: str
    device_id: str
    incarnation: int
    message: Any
    aggregate_id: str | None = None
    version: int | None = None


class Hub:
    """The hub's store: versions, and the state of every aggregate."""

    def __init__(self, config: FleetConfig, rng: Random) -> None:
        """An empty store."""
        self.config = config
        self.rng = rng
        self.states: dict[str, Any] = {}
        self.since_snapshot: dict[str, int] = {}
        self.incarnations: dict[str, int] = {}
        self.restores = 0
        skew = config.skew_s * SECOND_NS
        self.skews_ns = [int(rng.uniform(-skew, skew)) for _ in range(2)]
        self.kept: dict[str, bytes] = {}

    def store(self, time_ns: int, device: Device, message: Any) -> Iterator[StoredEvent]:
        """Store an event, followed by the snapshot of an older hub."""
        event_type = type_of(message)
        time_ns = device.not_before_last(time_ns)
        aggregate = aggregate_of(event_type, message)
        state = self.states.get(aggregate)
        version = 0 if state is None else state.event_metadata.version + 1
        if state is None:
            state = self.states[aggregate] = new_snapshot(message)
        meta = message.event_metadata
        meta.version = version
        meta.timestamp = time_ns + self.skews_ns[self.rng.getrandbits(1)]
        meta.connection_id = device.connection_id
        meta.sequence = device.sequence
        if self.config.since(9):
            meta.hub_id = device.hub_id
        if self.rng.random() < self.config.otel:
            trace = f"00-{self.rng.getrandbits(128):032x}-{self.rng.getrandbits(64):016x}-01"
            message.open_telemetry_carrier["traceparent"] = trace
        apply(state, message)
        yield self.stored(time_ns, device, message, aggregate, version)
        if self.config.since(16):
            return
        count = self.since_snapshot.get(aggregate, 0) + 1
        if count >= self.config.snapshot_threshold:
            count = 0
            state.event_metadata.version = version + 1
            copy = type(state)()
            copy.CopyFrom(state)
            yield self.stored(time_ns, device, copy, aggregate, version + 1)
        self.since_snapshot[aggregate] = count

    def stored(
        self, time_ns: int, device: Device, message: Any, aggregate: str, version: int
    ) -> StoredEvent:
        """An event with what the store knows of it."""
        incarnation = self.incarnation(device)
        return StoredEvent(
            time_ns, device.owner, device.id, incarnation, message, aggregate, version
        )

    def incarnation(self, device: Device) -> int:
        """How often versions of the device began again."""
        return self.incarnations.get(device.id, 0) + self.restores

    def wipe(self, device: Device) -> None:
        """Forget a device that is deleted."""
        for aggregate in [a for a, state in self.states.items() if device_of(state) == device.id]:
            del self.states[aggregate]
            self.since_snapshot.pop(aggregate, None)

    def keep(self) -> None:
        """Take a backup."""
        self.kept = {a: state.SerializeToString() for a, state in self.states.items()}

    def restore(self) -> None:
        """Go back to the backup; newer aggregates begin again."""
        self.restores += 1
        for aggregate in list(self.states):
            if aggregate in self.kept:
                self.states[aggregate].ParseFromString(self.kept[aggregate])
            else:
                del self.states[aggregate]


def device_of(state: Any) -> str:
    """The device that a snapshot is of."""
    if isinstance(state, events.ResourceStateSnapshotTaken):
        return str(state.resource_id.device_id)
    return str(state.device_id)


class Simulation:
    """A running fleet: `run` returns the events that its hub stores, in the order of time."""

    def __init__(self, config: FleetConfig) -> None:
        """A fleet of which no device has been connected."""
        self.config = config
        rng = self.rng = Random(f"pelton fleet {config.seed}")
        self.hub = Hub(config, rng)
        self.gateways = [random_uuid(rng) for _ in range(GATEWAYS)]
        self.operator = random_uuid(rng)
        hubs = [random_uuid(rng) for _ in range(config.hubs)]
        self.devices = [Device(config, rng, self.gateways, hubs) for _ in range(config.devices)]
        self.heap: list[tuple[int, int, Callable[[int], Iterator[StoredEvent]]]] = []
        self.count = 0
        self.now_ns = config.start_ns

    def after(
        self, now_ns: int, wait_s: float, what: Callable[[int], Iterator[StoredEvent]]
    ) -> None:
        """Plan what happens some seconds after a time."""
        self.count += 1
        heapq.heappush(self.heap, (now_ns + int(wait_s * SECOND_NS), self.count, what))

    def run(self) -> Iterator[StoredEvent]:
        """Every stored event up to the end of the config's duration."""
        start, config = self.config.start_ns, self.config
        for device in self.devices:
            self.after(
                start, self.rng.uniform(0, config.onboarding_s), self.task(self.register, device)
            )
        for place, at_s in enumerate(config.gateway_crash_s):
            gateway = self.gateways[place % GATEWAYS]
            self.after(start, at_s, partial(self.crash, gateway=gateway))
        for at_s in config.flood_s if self.devices else ():
            self.after(start, at_s, self.task(self.flood, self.devices[0]))
        faults = config.faults
        if faults.restore_at_s is not None:
            kept_s = max(0.0, faults.restore_at_s - faults.restore_back_s)
            self.after(start, kept_s, lambda _: self.silently(self.hub.keep))
            self.after(start, faults.restore_at_s, lambda _: self.silently(self.hub.restore))
        end = start + int(config.duration_s * SECOND_NS)
        while self.heap and self.heap[0][0] <= end:
            self.now_ns, _, what = heapq.heappop(self.heap)
            yield from what(self.now_ns)

    def silently(self, action: Callable[[], None]) -> Iterator[StoredEvent]:
        """Do what stores no event."""
        action()
        yield from ()

    def task(
        self, what: Callable[..., Iterator[StoredEvent]], device: Device, *args: Any
    ) -> Callable[[int], Iterator[StoredEvent]]:
        """Something that a device does at a time."""
        return lambda now: what(now, device, *args)

    def in_session(
        self, what: Callable[..., Iterator[StoredEvent]], device: Device, *args: Any
    ) -> Callable[[int], Iterator[StoredEvent]]:
        """Something that happens only if the device is still in the session that it is in now."""
        session = device.session
        return lambda now: what(now, device, *args) if device.session == session else iter(())

    def pace(self, now_ns: int) -> float:
        """How busy the hour is: 0.5 by night to 1.5 by day."""
        return 1 - 0.5 * math.cos(2 * math.pi * (now_ns / SECOND_NS % 86_400) / 86_400)

    def register(self, now: int, device: Device) -> Iterator[StoredEvent]:
        """A device joins its owner."""
        yield self.registration(now, device, registrations.DevicesRegistered)
        yield from self.connect(now, device)

    def registration(self, now: int, device: Device, kind: Any) -> StoredEvent:
        """A device joins its owner, or leaves it."""
        now = device.not_before_last(now)
        message = kind(
            owner=device.owner,
            device_ids=[device.id],
            timestamp=now,
            audit_context=registrations.AuditContext(user_id=device.owner),
        )
        if self.config.since(9):
            message.event_metadata.hub_id = device.hub_id
        return StoredEvent(now, device.owner, device.id, self.hub.incarnation(device), message)

    def connect(self, now: int, device: Device) -> Iterator[StoredEvent]:
        """A session begins: online, links if the device is new, syncing, what changed, in sync."""
        is_new = not device.connection_id or self.hub_forgot(device)
        device.connect(now)
        store = self.hub.store
        yield from store(now, device, device.metadata(Twin.OUT_OF_SYNC))
        if is_new:
            device.changed = set(device.links)
            yield from store(now, device, device.published(list(device.links.values())))
        device.syncing_at_ns = now + SECOND_NS // 100
        yield from store(device.syncing_at_ns, device, device.metadata(Twin.SYNCING))
        time_ns = device.syncing_at_ns
        for href in [href for href in device.links if href in device.changed]:
            time_ns += self.rng.randrange(1_000_000, 5_000_000)
            device.next_sequence()
            yield from store(time_ns, device, device.resource_changed(href))
        device.changed.clear()
        device.in_sync_at_ns = time_ns
        yield from store(time_ns, device, device.metadata(Twin.IN_SYNC))
        self.plan(time_ns, device)

    def hub_forgot(self, device: Device) -> bool:
        """Whether the store has no links of the device."""
        return links_id(device.id) not in self.hub.states

    def plan(self, now: int, device: Device) -> None:
        """The actions of a device in its session."""
        config, rng = self.config, self.rng
        for href in SENSORS:
            if href in device.links:
                wait_s = rng.uniform(0, config.sensor_interval_s)
                self.after(now, wait_s, self.in_session(self.measure, device, href))
        for mean_s, what in [
            (config.clock_interval_s, self.tick),
            (config.command_interval_s, self.command),
            (config.unpublish_interval_s, self.unpublish),
            (config.delete_interval_s, self.delete),
        ]:
            self.after(now, rng.expovariate(1 / mean_s), self.in_session(what, device))
        session_s = (
            rng.uniform(60, 300) if device.is_flapper else rng.expovariate(1 / config.session_s)
        )
        self.after(now, session_s, self.in_session(self.disconnect, device))

    def changed(self, now: int, device: Device, href: str) -> Iterator[StoredEvent]:
        """A resource has a new body."""
        device.next_sequence()
        return self.hub.store(now, device, device.resource_changed(href))

    def measure(self, now: int, device: Device, href: str) -> Iterator[StoredEvent]:
        """A sensor measures; it reports what moved."""
        body = device.bodies[href]
        if (reading := next_reading(href, body, self.rng)) != body:
            device.bodies[href] = reading
            yield from self.changed(now, device, href)
        wait_s = self.config.sensor_interval_s * self.rng.uniform(0.8, 1.2) / self.pace(now)
        self.after(now, wait_s, self.in_session(self.measure, device, href))

    def tick(self, now: int, device: Device) -> Iterator[StoredEvent]:
        """The clock of a device is set."""
        if (href := "/x.plgd.dev/time") in device.links:
            text = datetime.fromtimestamp(now // SECOND_NS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            device.bodies[href] = {"time": text, "lastSyncedTime": text, "status": "in-sync"}
            yield from self.changed(now, device, href)
        self.after(now, self.config.clock_interval_s, self.in_session(self.tick, device))

    def command(self, now: int, device: Device) -> Iterator[StoredEvent]:
        """Somebody sends a command; one in twenty is to the twin."""
        wait_s = self.rng.expovariate(1 / self.config.command_interval_s)
        self.after(now, wait_s, self.in_session(self.command, device))
        until = now + int(self.config.command_ttl_s * SECOND_NS)
        if self.rng.random() < 0.05:
            correlation_id = random_uuid(self.rng)
            pending = events.DeviceMetadataUpdatePending(
                device_id=device.id,
                audit_context=device.audit(self.operator, correlation_id),
                valid_until=until,
                twin_enabled=True,
            )
            yield from self.hub.store(now, device, pending)
            answer = self.in_session(self.twin_updated, device, correlation_id)
            self.after(now, commands.latency_ns(device) / SECOND_NS, answer)
            return
        command = commands.choose(device, self.operator)
        if command.href not in device.links:
            return
        yield from self.hub.store(now, device, commands.pending(device, command, until))
        if command.status is not None:
            answer = self.in_session(self.confirm, device, command)
            self.after(now, commands.latency_ns(device) / SECOND_NS, answer)

    def twin_updated(self, now: int, device: Device, correlation_id: str) -> Iterator[StoredEvent]:
        """A command to the twin is done."""
        message = device.metadata(Twin.IN_SYNC, user=self.operator, correlation_id=correlation_id)
        return self.hub.store(now, device, message)

    def confirm(self, now: int, device: Device, command: Command) -> Iterator[StoredEvent]:
        """A device answers a command, and changes by it."""
        device.next_sequence()
        yield from self.hub.store(now, device, commands.confirmed(device, command))
        for message in commands.effects(device, command):
            device.next_sequence()
            yield from self.hub.store(now, device, message)

    def unpublish(self, now: int, device: Device) -> Iterator[StoredEvent]:
        """A device takes back one of its links; the resource is gone."""
        if (href := "/oc/swu") in device.links:
            del device.links[href]
            yield from self.hub.store(now, device, device.unpublished([href]))
            yield from self.changed(now, device, href)

    def disconnect(
        self, now: int, device: Device, user: str | None = None
    ) -> Iterator[StoredEvent]:
        """A session ends; the device comes back later."""
        device.disconnect()
        wait_s = self.config.offline_s * math.exp(self.rng.gauss(0, 1))
        self.after(now, wait_s, self.in_session(self.connect, device))
        for href in SENSORS:
            if href in device.links and self.rng.random() < 0.5:
                body = next_reading(href, device.bodies[href], self.rng)
                if body != device.bodies[href]:
                    device.bodies[href] = body
                    device.changed.add(href)
        yield from self.hub.store(now, device, device.metadata(Twin.OUT_OF_SYNC, user=user))

    def delete(self, now: int, device: Device) -> Iterator[StoredEvent]:
        """A device leaves its owner: the store forgets it first. Later it comes back."""
        self.hub.wipe(device)
        yield self.registration(now, device, registrations.DevicesUnregistered)
        device.reset()
        device.connection_id = ""
        self.hub.incarnations[device.id] = self.hub.incarnations.get(device.id, 0) + 1
        self.after(now, self.rng.uniform(60, 600), self.in_session(self.register, device))

    def crash(self, now: int, gateway: str) -> Iterator[StoredEvent]:
        """A gateway dies: its devices go offline within the heartbeat's minute, and come back."""
        for device in self.devices:
            if device.gateway == gateway and device.is_online:
                lost = self.in_session(self.disconnect, device, NIL_UUID)
                self.after(now, self.rng.uniform(0, 60), lost)
        yield from ()

    def flood(self, now: int, device: Device, left: int = FLOOD_CHANGES) -> Iterator[StoredEvent]:
        """A device changes again and again, for a minute."""
        href = "/light/1"
        if device.is_online and href in device.links:
            body = device.bodies[href]
            device.bodies[href] = body | {"state": not body["state"]}
            yield from self.changed(now, device, href)
        if left > 1:
            self.after(now, 60 / FLOOD_CHANGES, self.task(self.flood, device, left - 1))


def simulate(config: FleetConfig) -> Iterator[StoredEvent]:
    """The events that the hub of a fleet stores, in the order of time."""
    return Simulation(config).run()


def is_registration(event: StoredEvent) -> bool:
    """Whether an event is of the registry, which has no versions."""
    return type_of(event.message).kind is Kind.REGISTRATIONS
