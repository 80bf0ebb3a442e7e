"""Alerts about the rows of a batch: new gaps of versions, versions that a restored hub uses again,
and commands that failed or were canceled.

::

    alerts.plgd.gap.{device}        {"aggregate_id": ..., "first_version": 5, "last_version": 7, "cause": "lost", ...}
    alerts.plgd.command.{device}    {"correlation_id": ..., "status": "FORBIDDEN", "href": "/light/1", ...}

Each alert has its own message id, so if an interrupted batch sends an alert again, the stream
stores it once within its duplicate window. A gap that a late event closes in the same batch gives
no alert.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow.compute as pc
import pyarrow.dataset as ds

from pelton.errors import PeltonError

from ..tables.commands import CONFIRMED, SUCCESS
from ..tables.rows import EPOCH
from ..tables.schemas import EVENTS, RAW, VERSION_GAPS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from pelton.client.sync import Client

    from .lake import Lake

SUBJECT = "alerts.plgd"
GAP = [
    *("aggregate_id", "device_id", "href", "kind", "incarnation", "first_version", "last_version"),
    *("cause", "missing", "found_at", "found_seq", "before_ns", "after_ns"),
]
COMMAND = [
    *("correlation_id", "device_id", "href", "aggregate_id", "event_type", "status", "user_id"),
    *("time", "incarnation", "version", "seq"),
]


class NotTakenError(PeltonError):
    """The stream of the alerts does not take their subjects."""

    def __init__(self, stream: str) -> None:
        """``stream`` is its name."""
        super().__init__(
            f"the stream {stream} does not take {SUBJECT}.>; add that to its subjects, or name another stream"
        )


def received(lake: Lake, seq: int) -> datetime:
    """When the stream got a message of the newest batch: of a stream that was made again, in its last life."""
    rows = lake.dataset(RAW.name).to_table(columns=["received"], filter=ds.field("seq") == seq)
    found: datetime | None = pc.max(rows["received"]).as_py()
    return EPOCH if found is None else found


def gaps(
    lake: Lake, first_seq: int, since: datetime = EPOCH
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Gaps that messages from a sequence and a time on opened, with their ids."""
    rows = lake.dataset(VERSION_GAPS.name)
    is_told = ds.field("is_open") | (ds.field("cause") == "restore")
    is_new = (ds.field("found_seq") >= first_seq) & (ds.field("found_at") >= since)
    wanted = is_new & is_told
    for row in rows.to_table(columns=GAP, filter=wanted).to_pylist():
        yield f"{row['aggregate_id']}.{row['incarnation']}.{row['first_version']}.gap", row


def failures(
    lake: Lake, first_seq: int, since: datetime = EPOCH
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Commands that messages from a sequence and a time on ended without success, with their ids."""
    rows = lake.dataset(EVENTS.name)
    is_end = ds.field("event_type").isin(
        [name for name in CONFIRMED if name.startswith("resource")]
    )
    is_new = (ds.field("seq") >= first_seq) & (ds.field("received") >= since)
    wanted = is_new & is_end & ~ds.field("status").isin(sorted(SUCCESS))
    for row in rows.to_table(columns=COMMAND, filter=wanted).to_pylist():
        yield f"{row['aggregate_id']}.{row['correlation_id']}.command", row


def send_alerts(client: Client, lake: Lake, first_seq: int) -> int:
    """Publish the alerts of a batch from a sequence on, which a stream must take; how many."""
    count, since = 0, received(lake, first_seq)
    with client.jetstream().publisher() as publisher:
        for kind, found in (("gap", gaps), ("command", failures)):
            for msg_id, row in found(lake, first_seq, since):
                subject = f"{SUBJECT}.{kind}.{row['device_id']}"
                publisher.publish(subject, msgspec.json.encode(row), msg_id=msg_id)
                count += 1
    return count
