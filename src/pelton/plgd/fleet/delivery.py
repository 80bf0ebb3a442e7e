"""From the hub's store to the bus: events are encoded; some are lost, late, doubled or damaged.

The contents of the store are available too, to compare them with the messages of the bus.
"""

from __future__ import annotations

import heapq
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from ..codec import Encoded, Envelope, encode, encode_registration, pack
from .config import SECOND_NS, FleetConfig
from .simulation import Simulation, StoredEvent, device_of, is_registration
from .truth import Loss, Truth

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..store import Aggregate

LATE_NS = SECOND_NS // 5


class Delivery(NamedTuple):
    """A message on the bus, with its time. Duplicates have the message id of their first."""

    time_ns: int
    subject: str
    payload: bytes
    message_id: str


class FleetRun:
    """One run of a fleet: `deliveries` once; `truth` and `aggregates` are whole at their end."""

    def __init__(self, config: FleetConfig, *, keep_events: bool = False) -> None:
        """A run that has not begun. With ``keep_events`` it keeps the events of every aggregate in memory."""
        self.config = config
        self.truth = Truth()
        self.simulation = Simulation(config)
        self.rng = Random(f"pelton faults {config.seed}")
        self.held: dict[tuple[str, int], StoredEvent] = {}
        self.in_tail: dict[tuple[str, int], bool] = {}
        self.history: dict[str, list[StoredEvent]] | None = {} if keep_events else None
        self.owners: dict[str, str] = {}

    def deliveries(self) -> Iterator[Delivery]:
        """The messages of the bus, in its order; at the end ``truth`` has the states of all aggregates."""
        waiting: list[tuple[int, int, Delivery]] = []
        count = 0
        for event in self.simulation.run():
            self.truth.stored += 1
            self.keep(event)
            for delivery in self.of_event(event):
                count += 1
                heapq.heappush(waiting, (delivery.time_ns, count, delivery))
            while waiting and waiting[0][0] <= self.simulation.now_ns:
                yield self.delivered(heapq.heappop(waiting)[2])
        while waiting:
            yield self.delivered(heapq.heappop(waiting)[2])
        for event in self.held.values():
            self.truth.lost(event, Loss.TAIL)
        self.truth.states = self.simulation.hub.states

    def keep(self, event: StoredEvent) -> None:
        """Remember an event as a store does: a version that comes again replaces what followed it."""
        if event.aggregate_id is None:
            return
        self.owners[event.device_id] = event.owner
        if self.history is not None:
            kept = self.history.setdefault(event.aggregate_id, [])
            while kept and int(kept[-1].version or 0) >= int(event.version or 0):
                kept.pop()
            kept.append(event)

    def aggregates(self) -> Iterator[tuple[Aggregate, list[Any]]]:
        """The contents of the hub's store: the state of each aggregate, and the events that were kept."""
        from ..store import Aggregate

        for aggregate_id, state in self.simulation.hub.states.items():
            meta, device_id = state.event_metadata, device_of(state)
            owner = self.owners[device_id]
            kept = (self.history or {}).get(aggregate_id, ())
            messages = [e.message for e in kept if int(e.version or 0) <= meta.version]
            yield (
                Aggregate(aggregate_id, device_id, owner, meta.version, meta.timestamp, state),
                messages,
            )

    def delivered(self, delivery: Delivery) -> Delivery:
        """Count a delivery."""
        self.truth.delivered += 1
        return delivery

    def of_event(self, event: StoredEvent) -> Iterable[Delivery]:
        """The messages that an event causes now: often one."""
        if event.aggregate_id is None or not self.config.faults.tail_drop:
            return self.sent(event)
        key = (event.aggregate_id, event.incarnation)
        if key not in self.in_tail:
            self.in_tail[key] = self.rng.random() < self.config.faults.tail_drop
        if not self.in_tail[key]:
            return self.sent(event)
        # the last event of this aggregate is to be lost, so each one waits until there is a later one
        before = self.held.get(key)
        self.held[key] = event
        if before is None:
            return ()
        return [
            d._replace(time_ns=d.time_ns + event.time_ns - before.time_ns)
            for d in self.sent(before)
        ]

    def loss_of(self, event: StoredEvent) -> Loss | None:
        """The fault that happens to an event, if any."""
        faults, rng = self.config.faults, self.rng
        at_s = (event.time_ns - self.config.start_ns) / SECOND_NS
        if any(begin <= at_s < end for begin, end in faults.outages):
            return Loss.OUTAGE
        chances = [(faults.drop, Loss.DROP)]
        if not is_registration(event):
            chances += [
                (faults.corrupt, Loss.CORRUPT),
                (faults.wrong_envelope, Loss.WRONG_ENVELOPE),
                (faults.unknown_type, Loss.UNKNOWN_TYPE),
            ]
            if self.config.since(21) and hasattr(event.message, "valid_until"):
                chances.append((faults.hidden, Loss.HIDDEN))
        return next((loss for chance, loss in chances if chance and rng.random() < chance), None)

    def encoded(self, event: StoredEvent) -> Encoded:
        """An event as the hub publishes it."""
        if is_registration(event):
            return encode_registration(event.message)
        config = self.config
        return encode(event.message, owner=event.owner, era=config.era, lead=config.lead)

    def sent(self, event: StoredEvent) -> list[Delivery]:
        """The messages of an event that is published: none, one or two."""
        loss = self.loss_of(event)
        if loss is not None:
            self.truth.lost(event, loss)
            if loss in {Loss.DROP, Loss.OUTAGE, Loss.HIDDEN}:
                return []
        encoded = self.encoded(event)
        if loss is not None:
            encoded = damaged(encoded, loss)
            self.truth.dead_letter(encoded.subject, loss, event.time_ns)
        time_ns, faults, rng = event.time_ns, self.config.faults, self.rng
        if faults.reorder and rng.random() < faults.reorder:
            self.truth.reordered += 1
            time_ns += rng.randrange(1, LATE_NS)
        first = Delivery(time_ns, encoded.subject, encoded.payload, encoded.message_id)
        if faults.duplicate and rng.random() < faults.duplicate:
            self.truth.duplicates += 1
            return [first, first._replace(time_ns=time_ns + rng.randrange(1, LATE_NS))]
        return [first]


def damaged(encoded: Encoded, loss: Loss) -> Encoded:
    """An event as a damaged message, which is no event."""
    envelope = Envelope.FromString(encoded.payload)
    if loss is Loss.CORRUPT:
        envelope.data = envelope.data[: len(envelope.data) // 2]
        return Encoded(encoded.subject, envelope.SerializeToString(), encoded.message_id)
    if loss is Loss.WRONG_ENVELOPE:
        return Encoded(encoded.subject, pack(envelope), encoded.message_id)
    known, envelope.event_type = envelope.event_type, "resourcemoved"
    subject = encoded.subject.replace(f".{known}", ".resourcemoved")
    return Encoded(subject, envelope.SerializeToString(), encoded.message_id)
