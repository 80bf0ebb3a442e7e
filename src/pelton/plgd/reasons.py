"""Why a message of the bus is no event: a reason code for a dead letter, and a line of text."""

from __future__ import annotations

from enum import StrEnum

from pelton.errors import PeltonError


class Reason(StrEnum):
    """The reasons; the value is in the dead letter."""

    SUBJECT = "subject"  # the subject is not that of an event
    EVENT_TYPE = "event_type"  # no hub has an event of that type
    ENVELOPE = "envelope"  # the payload is no envelope, or no registration
    SNAPPY = "snappy"  # the data is no snappy block, or too large unpacked
    EVENT = "event"  # the unpacked data is no event of its type
    MISMATCH = "mismatch"  # subject, envelope and event name different things
    CONTENT = "content"  # the content is not of its content type


class UndecodableEventError(PeltonError, ValueError):
    """A message that is no event of the hub: ``reason`` and ``detail``."""

    def __init__(self, reason: Reason, detail: str) -> None:
        """An error with its reason, and a line of text."""
        super().__init__(f"{reason.value}: {detail}")
        self.reason = reason
        self.detail = detail
