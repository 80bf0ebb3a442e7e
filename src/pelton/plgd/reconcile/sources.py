"""The sources of truth: an event store, or a gateway. Both return one device at a time."""

from __future__ import annotations

import time
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pelton.errors import PeltonError

from ..codec import aggregate_of, device_of
from ..kinds import type_of
from ..projection import apply, new_snapshot
from .judging import Kept

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ..gateway import BlockingGatewayClient, GatewayError
    from ..store import Aggregate, EventStore, StoreError

T = TypeVar("T")

DEVICES_AT_ONCE = 100
OUTGOING_MAX = 2**31
PATIENCE_S = 60.0
RETRY_S, RETRY_S_MAX = 0.25, 5.0
PASSING = {"UNAVAILABLE", "CANCELLED", "ABORTED"}
"""gRPC's codes of a gateway that is away, or stops in the middle of an answer."""


class Source(Protocol):
    """A source of stored events and states."""

    @property
    def name(self) -> str:
        """The name of the source in repairs."""

    @property
    def owner(self) -> str | None:
        """The owner whose devices it has; None: all."""

    def devices(self, seen: Iterable[str]) -> Iterator[list[Kept]]:
        """The aggregates of each device, one device after the other; ``seen`` are the devices of the stream."""


def patiently(
    ask: Callable[[], T],
    may_pass: Callable[[PeltonError], bool],
    waiting: Callable[[Any], None],
    patience_s: float,
) -> T:
    """The result of a call, which is repeated while it fails with errors that may pass."""
    deadline, wait_s = time.monotonic() + patience_s, RETRY_S
    while True:
        try:
            return ask()
        except PeltonError as error:
            if time.monotonic() + wait_s > deadline or not may_pass(error):
                raise
            waiting(error)
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, RETRY_S_MAX)


class StoreSource:
    """An event store: SQLite, or a hub's MongoDB.

    If a store's server goes away, the calls are repeated for ``patience_s``, and reading continues
    after the last device that it has given.
    """

    def __init__(
        self,
        store: EventStore,
        *,
        owner: str | None = None,
        name: str = "store",
        patience_s: float = PATIENCE_S,
        waiting: Callable[[StoreError], None] = lambda error: None,
    ) -> None:
        """``owner`` is an owner claim, for the devices of one owner; ``waiting`` gets the reason of each wait."""
        self.store = store
        self.owner = owner
        self.name = name
        self.patience_s = patience_s
        self.waiting = waiting

    def devices(self, seen: Iterable[str]) -> Iterator[list[Kept]]:
        """The aggregates of each device."""
        waiting: dict[str, set[int]] = {}
        for item in self._asked(partial(self.store.outgoing, OUTGOING_MAX)):
            aggregate_id, _, rest = item.message_id.partition(".")
            version = rest.partition(".")[0]
            if version.isdecimal():  # a registration has no version
                waiting.setdefault(aggregate_id, set()).add(int(version))
        reading = _Reading(self.store, self.owner)
        while portion := self._asked(reading.portion):
            for device, kept in portion:
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

    def _asked(self, ask: Callable[[], T]) -> T:
        """The answer of the store, for which it has some time."""
        return patiently(ask, _store_may_pass, self.waiting, self.patience_s)


def _store_may_pass(error: PeltonError) -> bool:
    return getattr(error, "may_pass", False)


class _Reading:
    """The devices of a store, some at a time; after a failure it continues with the next ones."""

    def __init__(self, store: EventStore, owner: str | None) -> None:
        self.store = store
        self.owner = owner
        self.last = ""
        self.portions: Iterator[list[list[Aggregate]]] | None = None

    def portion(self) -> list[tuple[list[Aggregate], dict[str, list[Any]]]]:
        """The next devices with their events; none at the end."""
        portions, self.portions = self.portions, None  # not to be used after a failure
        if portions is None:
            states = self.store.aggregates(owner=self.owner, after_device=self.last)
            portions = _portions(states, self.store.at_once)
        devices = next(portions, [])
        kept = self.store.events_of([one.aggregate_id for each in devices for one in each])
        if devices:
            self.last = devices[-1][0].device_id
        self.portions = portions
        return [(device, kept) for device in devices]


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
    """A gateway, ours or a hub's, as the owner of its token.

    If a gateway that has answered once goes away, the calls are repeated for ``patience_s``. The
    same holds if it refuses a token from a function, because the next token may be valid. Other
    errors are raised at once.
    """

    def __init__(
        self,
        client: BlockingGatewayClient,
        owner: str,
        *,
        patience_s: float = PATIENCE_S,
        waiting: Callable[[GatewayError], None] = lambda error: None,
    ) -> None:
        """``owner`` is the owner claim of the client's token; ``waiting`` is called with the reason of each wait."""
        self.client = client
        self.owner: str | None = owner
        self.name = f"gateway {client.target}"
        self.patience_s = patience_s
        self.waiting = waiting
        self._answered = False

    def devices(self, seen: Iterable[str]) -> Iterator[list[Kept]]:
        """The aggregates of each device: those that the gateway lists, and those that the stream knows."""
        listed = self._asked(self.client.devices)
        ids = sorted({device.id for device in listed} | set(seen))
        for place in range(0, len(ids), DEVICES_AT_ONCE):
            some = ids[place : place + DEVICES_AT_ONCE]
            messages: dict[str, dict[str, list[Any]]] = {}
            for message in self._asked(partial(self.client.events, device_ids=some)):
                event_type = type_of(message)
                device = messages.setdefault(device_of(event_type, message), {})
                device.setdefault(aggregate_of(event_type, message), []).append(message)
            for device_id, aggregates in messages.items():
                yield [
                    kept_of(aggregate, device_id, self.owner or "", found)
                    for aggregate, found in aggregates.items()
                ]

    def _asked(self, ask: Callable[[], Iterator[Any]]) -> list[Any]:
        """All answers to a call, which is made again from its beginning while the gateway is away."""
        answers = patiently(
            lambda: list(ask()), self._may_pass, self.waiting, patience_s=self.patience_s
        )
        self._answered = True
        return answers

    def _may_pass(self, error: PeltonError) -> bool:
        """Whether the same call may be answered later."""
        code = getattr(error, "code", "")
        if code == "UNAUTHENTICATED":
            return self._answered and callable(self.client.token)
        return self._answered and code in PASSING


def kept_of(aggregate_id: str, device_id: str, owner: str, messages: list[Any]) -> Kept:
    """The state of an aggregate from a gateway's events: a snapshot and the events after it."""
    messages.sort(key=lambda message: int(message.event_metadata.version))
    snapshot = new_snapshot(messages[0])
    for message in messages:
        apply(snapshot, message)
    return Kept(aggregate_id, device_id, owner, snapshot, events_of(messages))
