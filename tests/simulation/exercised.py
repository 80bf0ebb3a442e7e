"""The events that a range of seeds must have: a range without failures, or without successes,
proves nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

IN_EACH = ("messages acked", "restarts")
IN_TEN = (
    "messages sent",
    "deliveries",
    "redeliveries",
    "acks",
    "acks confirmed",
    "power cuts",
    "kills",
    "clean stops",
    "syncs ended later",
    "troubles of the disk",
)
IN_A_HUNDRED = (
    "seeds with an encrypted store",
    "ended while opening",
    "starts on a full disk",
    "stopped within a call of the disk",
    "writes torn",
    "writes reordered",
    "writes lost",
    "files grown with zeros",
    "renames lost",
    "unlinks lost",
    "creates lost",
    "writes to a full disk",
    "reserves used",
    "sync failed",
    "syncs of the journal of acks failed",
    "bits flipped",
    "messages lost that were never synced",
    "duplicates told",
    "atomic batches",
    "fast batches",
    "removals",
    "seeds with the wider choice",
    "changes of keys",
    "changes of file sizes",
    "changes of sync_interval",
    "clocks that went back",
    "consumers paused",
    "consumer updates",
    "clients unpinned",
    "publishes with an expectation",
    "expectations not met",
    "sums compared",
    "seeds with alterations",
    "stream alterations",
    "consumer alterations",
    "consumer resets",
    "messages asked for",
    "sent while a request waited",
    "mirrors compared",
    "gradual openings",
    "copies that were seen",
    "messages that may expire",
)


def missing(counts: Mapping[str, int], seeds: int) -> list[str]:
    """Return the required events that did not happen in so many seeds."""
    needed = IN_EACH + IN_TEN * (seeds >= 10) + IN_A_HUNDRED * (seeds >= 100)
    return [what for what in needed if not counts.get(what, 0)]
