"""Changes of aggregates: load the state, decide on events, store them, and retry if another writer was faster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ..codec import aggregate_of, device_of, encode
from ..kinds import type_of
from ..projection import apply, new_snapshot
from .model import Aggregate, VersionConflictError

if TYPE_CHECKING:
    from ..subjects import Era, LeadType
    from .model import EventStore

ATTEMPTS = 8

Change: TypeAlias = Callable[[Any | None], Sequence[Any]]
"""Decides on the events of one aggregate from its snapshot (None: there is none yet); it may return no events."""


class Aggregates:
    """Changes aggregates of a store. With a hub before v2.16, snapshots are events with versions of their own."""

    def __init__(
        self,
        store: EventStore,
        *,
        era: Era,
        lead: LeadType | None = None,
        snapshot_every: int | None = None,
    ) -> None:
        """``snapshot_every`` is the older hub's threshold, such as 16; None is the newer hub."""
        self.store = store
        self.era = era
        self.lead = lead
        self.snapshot_every = snapshot_every

    def change(self, aggregate_id: str, owner: str, now_ns: int, decide: Change) -> list[Any]:
        """Store the events that ``decide`` returns, and put them into the outbox; returns them with versions and times.

        ``decide`` may be called again when another writer has changed the aggregate. Raises VersionConflictError after
        eight attempts, and ValueError for an event of another aggregate.
        """
        for attempt in range(ATTEMPTS):
            before = self.store.load(aggregate_id)
            events = [copied(e) for e in decide(None if before is None else before.snapshot)]
            if not events:
                return []
            try:
                self._append(aggregate_id, owner, now_ns, before, events)
            except VersionConflictError:
                if attempt == ATTEMPTS - 1:
                    raise
                continue
            return events
        raise AssertionError("the last attempt returns or raises")

    def _append(
        self,
        aggregate_id: str,
        owner: str,
        now_ns: int,
        before: Aggregate | None,
        events: list[Any],
    ) -> None:
        """Give events their versions, and store them after a state."""
        version = after = -1 if before is None else before.version
        snapshot = copied(before.snapshot) if before is not None else new_snapshot(events[0])
        for place in range(len(events)):
            message = events[place]
            if aggregate_of(type_of(message), message) != aggregate_id:
                raise ValueError(f"{type_of(message).name} is not of aggregate {aggregate_id}")
            version += 1
            message.event_metadata.version = version
            message.event_metadata.timestamp = now_ns
            apply(snapshot, message)
        every = self.snapshot_every
        if every is not None and version // every != max(after, 0) // every:
            version += 1
            snapshot.event_metadata.version = version
            events.append(copied(snapshot))
        state = Aggregate(
            aggregate_id, device_of(type_of(events[0]), events[0]), owner, version, now_ns, snapshot
        )
        out = [encode(e, owner=owner, era=self.era, lead=self.lead) for e in events]
        self.store.append(state, events, out, after=after)


def copied(message: Any) -> Any:
    """A copy of a message."""
    copy = type(message)()
    copy.CopyFrom(message)
    return copy
