"""The record of a fleet's events: which of them the bus lost and why, and the last state of every
aggregate.

`Truth.lines` is a file of JSON lines: first a line for each event that was lost or damaged, then one for each
message that is no event, then the state of every aggregate, then the counts.
"""

from __future__ import annotations

import base64
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

from ..kinds import type_of

if TYPE_CHECKING:
    from collections.abc import Iterator


class Loss(StrEnum):
    """Why the bus lacks an event that the store has."""

    DROP = "drop"  # the publish failed
    TAIL = "tail"  # the same, of the last event of its aggregate
    OUTAGE = "outage"  # no bus was there
    HIDDEN = "hidden"  # the hub does not publish it: a forced command
    CORRUPT = "corrupt"  # its snappy block is cut
    WRONG_ENVELOPE = "wrong_envelope"  # its envelope is packed too
    UNKNOWN_TYPE = "unknown_type"  # no hub has its event type


@dataclass
class Truth:
    """The account of a run; whole when its deliveries are at their end."""

    stored: int = 0
    delivered: int = 0
    duplicates: int = 0
    reordered: int = 0
    losses: list[dict[str, Any]] = field(default_factory=list)
    dead_letters: list[dict[str, Any]] = field(default_factory=list)
    states: dict[str, Any] = field(default_factory=dict)

    def lost(self, event: Any, loss: Loss) -> None:
        """Note an event that the bus lacks."""
        self.losses.append(
            {
                "loss": loss.value,
                "device_id": event.device_id,
                "incarnation": event.incarnation,
                "aggregate_id": event.aggregate_id,
                "version": event.version,
                "event_type": type_of(event.message).name,
                "time_ns": event.time_ns,
            }
        )

    def dead_letter(self, subject: str, loss: Loss, time_ns: int) -> None:
        """Note a message that is no event."""
        self.dead_letters.append({"subject": subject, "damage": loss.value, "time_ns": time_ns})

    def aggregates(self) -> Iterator[dict[str, Any]]:
        """The state of every aggregate: its last version, and a snapshot as the hub would store it."""
        for aggregate_id, state in self.states.items():
            meta = state.event_metadata
            resource = getattr(state, "resource_id", None)
            yield {
                "aggregate_id": aggregate_id,
                "device_id": state.device_id if resource is None else resource.device_id,
                "href": None if resource is None else resource.href,
                "version": meta.version,
                "timestamp_ns": meta.timestamp,
                "snapshot_type": type_of(state).name,
                "snapshot": base64.b64encode(state.SerializeToString(deterministic=True)).decode(),
            }

    def summary(self) -> dict[str, Any]:
        """The counts."""
        return {
            "stored": self.stored,
            "delivered": self.delivered,
            "duplicates": self.duplicates,
            "reordered": self.reordered,
            "dead_letters": len(self.dead_letters),
            "lost": dict(sorted(Counter(loss["loss"] for loss in self.losses).items())),
        }

    def lines(self) -> Iterator[str]:
        """The account as JSON, a line for each thing; ``kind`` says what it is."""
        for kind, rows in [
            ("loss", self.losses),
            ("dead_letter", self.dead_letters),
            ("aggregate", self.aggregates()),
            ("summary", [self.summary()]),
        ]:
            for row in rows:
                yield msgspec.json.encode({"kind": kind} | row).decode()
