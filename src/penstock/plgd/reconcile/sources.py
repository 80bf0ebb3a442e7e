"""Where the truth comes from: an event store, or a gateway. Both give one device at a time."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Protocol

from ..codec import aggregate_of, device_of
from ..kinds import type_of
from ..projection import apply, new_snapshot
from .judging import Kept

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..gateway import BlockingGatewayClient
    from ..store import Aggregate, EventStore

DEVICES_AT_ONCE = 100
OUTGOING_MAX = 2**31


class Source(Protocol):
    """Gives what was stored."""

    @property
    def name(self) -> str:
        """What repairs name as their source."""

    @property
    def owner(self) -> str | None:
        """The owner whose devices it has; None: all."""

    def devices(self, seen: Iterable[str]) -> Iterator[list[Kept]]:
        """The aggregates of each device, one device after the other; ``seen`` are the devices of the stream."""


class StoreSource:
    """An event store: SQLite, or a hub's MongoDB."""

    def __init__(self, store: EventStore, *, owner: str | None = None, name: str = "store") -> None:
        """``owner`` is an owner claim, for the devices of one owner."""
        self.store = store
        self.owner = owner
        self.name = name

    def devices(self, seen: Iterable[str]) -> Iterator[list[Kept]]:
        """The aggregates of each device."""
        waiting: dict[str, set[int]] = {}
        for item in self.store.outgoing(OUTGOING_MAX):
            aggregate_id, _, rest = item.message_id.partition(".")
            version = rest.partition(".")[0]
            if version.isdecimal():  # a registration has no version
                waiting.setdefault(aggregate_id, set()).add(int(version))
        states = self.store.aggregates(owner=self.owner)
        for devices in _portions(states, self.store.at_once):
            kept = self.store.events_of([one.aggregate_id for each in devices for one in each])
            for device in devices:
                yield [
                    Kept(
                        state.aggregate_id,
                        state.device_id,
                        state.owner,
                        state.snapshot,
                        events_of(kept.pop(state.aggregate_id, [])),
                        frozenset(waiting.get(state.aggregate_id, ())),
                    )
                    for state in device
                ]


def _portions(states: Iterable[Aggregate], at_once: int) -> Iterator[list[list[Aggregate]]]:
    """States, which come by device, as devices: so many that a store is asked for their events at once."""
    portion: list[list[Aggregate]] = []
    size = 0
    for _, group in groupby(states, key=lambda state: state.device_id):
        portion.append(list(group))
        size += len(portion[-1])
        if size >= at_once:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def events_of(kept: list[Any]) -> tuple[Any, ...]:
    """The events among what a store keeps; a snapshot that stands alone is a state, not an event.

    A snapshot of an older hub has a version of its own, and events around it.
    """
    return tuple(kept) if any(not type_of(message).is_snapshot for message in kept) else ()


class GatewaySource:
    """A gateway, ours or a hub's, as the owner of its token."""

    def __init__(self, client: BlockingGatewayClient, owner: str) -> None:
        """``owner`` is the owner claim of the client's token."""
        self.client = client
        self.owner: str | None = owner
        self.name = f"gateway {client.target}"

    def devices(self, seen: Iterable[str]) -> Iterator[list[Kept]]:
        """The aggregates of each device: those that the gateway lists, and those that the stream knows."""
        ids = sorted({device.id for device in self.client.devices()} | set(seen))
        for place in range(0, len(ids), DEVICES_AT_ONCE):
            some = ids[place : place + DEVICES_AT_ONCE]
            messages: dict[str, dict[str, list[Any]]] = {}
            for message in self.client.events(device_ids=some):
                event_type = type_of(message)
                device = messages.setdefault(device_of(event_type, message), {})
                device.setdefault(aggregate_of(event_type, message), []).append(message)
            for device_id, aggregates in messages.items():
                yield [
                    kept_of(aggregate, device_id, self.owner or "", found)
                    for aggregate, found in aggregates.items()
                ]


def kept_of(aggregate_id: str, device_id: str, owner: str, messages: list[Any]) -> Kept:
    """What a gateway's events of an aggregate say: a state, made of a snapshot and what follows it."""
    messages.sort(key=lambda message: int(message.event_metadata.version))
    snapshot = new_snapshot(messages[0])
    for message in messages:
        apply(snapshot, message)
    return Kept(aggregate_id, device_id, owner, snapshot, events_of(messages))
