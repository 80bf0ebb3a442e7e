"""The contents and the interface of event stores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pelton.errors import PeltonError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ..codec import Encoded


class StoreError(PeltonError):
    """The store cannot be used: it is no store, or another program's."""

    may_pass = False
    """Whether the same call may succeed later: a server is away."""


class VersionConflictError(PeltonError):
    """Another writer changed the aggregate first: load it and decide again."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """The state of an aggregate: a snapshot of the hub, whose metadata has the version and the time."""

    aggregate_id: str
    device_id: str
    owner: str
    version: int
    timestamp_ns: int
    snapshot: Any


@dataclass(frozen=True, slots=True)
class Outgoing:
    """An event that waits for the bus; ``number`` is its place in the outbox."""

    number: int
    subject: str
    payload: bytes
    message_id: str


class EventStore(Protocol):
    """A store of aggregates, events, and the outbox."""

    at_once: int
    """Of how many aggregates `events_of` is best asked: many where a request travels."""

    def load(self, aggregate_id: str) -> Aggregate | None:
        """The state of an aggregate; None if it was never stored, or is deleted."""

    def append(
        self, state: Aggregate, events: Sequence[Any], published: Iterable[Encoded], *, after: int
    ) -> None:
        """Store events of one aggregate, the state after them, and the events to publish: all or
        nothing.

        ``after`` is the version that the aggregate must have, -1 if it must not exist. Raises VersionConflictError.
        """

    def aggregates(
        self,
        *,
        owner: str | None = None,
        device_ids: Iterable[str] = (),
        after_ns: int | None = None,
        after_device: str = "",
    ) -> Iterator[Aggregate]:
        """States by device, of an owner, of some devices, that changed after a time; no filter means all.

        ``after_device`` leaves out devices up to this id.
        """

    def events(self, aggregate_id: str, *, after: int = -1) -> Iterator[Any]:
        """The messages of an aggregate that are kept, with versions above ``after``, in order."""

    def events_of(self, aggregate_ids: Sequence[str]) -> dict[str, list[Any]]:
        """The messages that are kept of many aggregates, in order; in one request if there are any."""

    def fill(self, aggregates: Iterable[tuple[Aggregate, Sequence[Any]]]) -> int:
        """Replace whole aggregates with their events; nothing is published.

        For copies and restores; returns how many aggregates there were.
        """

    def delete_device(self, device_id: str, published: Iterable[Encoded] = ()) -> int:
        """Forget a device; its versions begin again. Returns how many aggregates it had."""

    def outgoing(self, limit: int = 1000) -> list[Outgoing]:
        """The events that wait for the bus, oldest first."""

    def sent(self, numbers: Iterable[int], last_seq: int) -> None:
        """Remove events that the stream has from the outbox; ``last_seq`` is the stream's sequence of the last one."""

    def last_seq(self) -> int:
        """The stream sequence up to which the outbox is known to be sent; 0 at first."""

    def close(self) -> None:
        """Close the file or the connection."""
