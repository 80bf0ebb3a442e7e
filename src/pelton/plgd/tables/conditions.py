"""Conditions that alert: a device offline for too long, a command that is late, a device that flaps.

All follow from rows of the tables. Conditions about time use the pipeline's clock, which is passed
in::

    session  ■■■■■■■■■■■■         offline_s          ▲ offline: once for the session that ended
    command  issued ●     late_s ▲ ......... ●       late: once for the command, whether it ends or not
    device   ■■ ■■■ ■ ■■ ■ ▲ ■ ■■                    flapping: once, when so many short sessions began in a window

Each alert has an id, which is the same for as long as its cause is.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from .rows import EPOCH

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from .rows import Row

Alert = tuple[str, "Row"]
"""The id of an alert, and what it says."""

WENT = ("offline", "heartbeat")
OFFLINE = (
    *("device_id", "owner_id", "hub_id", "connection_id", "connected_at", "ended_at"),
    *("end_reason",),
)
FLAPPING = ("device_id", "owner_id", "hub_id", "connected_at", "ended_at", "duration_s")
LATE = (
    *("correlation_id", "kind", "device_id", "href", "aggregate_id", "owner_id", "hub_id"),
    *("user_id", "issued_at", "valid_until", "finished_at", "latency_ms", "status", "outcome"),
)


@dataclass(frozen=True)
class Bounds:
    """The bounds of the conditions.

    A device flaps when ``flaps`` sessions of less than ``short_s`` began within ``window_s``. 0 turns
    ``offline_s``, ``late_s`` or ``flaps`` off. ``ValueError`` for numbers that are not allowed.
    """

    offline_s: float = 3600.0
    late_s: float = 30.0
    flaps: int = 5
    short_s: float = 60.0
    window_s: float = 3600.0

    def __post_init__(self) -> None:
        """Check the numbers."""
        if min(self.offline_s, self.late_s, self.flaps) < 0:
            raise ValueError("offline_s, late_s and flaps must not be negative")
        if self.flaps == 1:
            raise ValueError("one short session is not flapping: flaps are 2 or more")
        if min(self.short_s, self.window_s) <= 0:
            raise ValueError("short_s and window_s must be positive")


def micros(time: datetime) -> int:
    """A time in us since 1970, for an id."""
    since = time - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def newest_sessions(sessions: pa.Table) -> pa.Table:
    """The newest session of each device; of the same session the row that comes first."""
    order = pc.sort_indices(
        sessions.append_column("place", pa.array(range(len(sessions)), pa.int64())),
        sort_keys=[
            ("device_id", "ascending"),
            ("connected_at", "descending"),
            ("place", "ascending"),
        ],
    )
    found = sessions.take(order)
    if len(found) < 2:
        return found
    device = found["device_id"].combine_chunks()
    is_first = pc.not_equal(device[1:], device[:-1])
    return found.filter(pa.concat_arrays([pa.array([True]), is_first]))


def offline(newest: pa.Table, now: datetime, bounds: Bounds) -> Iterator[Alert]:
    """Devices whose newest session (of `newest_sessions`) ended too long ago."""
    if not bounds.offline_s:
        return
    ended = newest["ended_at"]
    limit = pa.scalar(micros(now) - int(bounds.offline_s * 1e6)).cast(ended.type)
    is_one = pc.and_(
        pc.is_in(newest["end_reason"], value_set=pa.array(WENT)), pc.less_equal(ended, limit)
    )
    for row in newest.filter(pc.fill_null(is_one, False)).to_pylist():
        told = {name: row[name] for name in OFFLINE}
        yield f"{row['device_id']}.{micros(row['connected_at'])}.offline", told


def is_late(command: Row, now: datetime, bounds: Bounds) -> bool:
    """Whether a command took too long, waits for too long, or expired."""
    if command["outcome"] == "expired":
        return True
    if command["outcome"] == "pending" and command["issued_at"] is not None:
        waited = (now - command["issued_at"]).total_seconds()
        until = command["valid_until"]
        return waited > bounds.late_s or (until is not None and until < now)
    latency = command["latency_ms"]
    return latency is not None and latency > bounds.late_s * 1000


def late(commands: Iterable[Row], now: datetime, bounds: Bounds) -> Iterator[Alert]:
    """Commands that are late; a pending one is late when the clock says so."""
    for row in commands:
        if bounds.late_s and is_late(row, now, bounds):
            told = {name: row[name] for name in LATE}
            yield f"{row['aggregate_id']}.{row['correlation_id']}.{row['kind']}.late", told


def flapping(sessions: Iterable[Row], bounds: Bounds) -> Iterator[Alert]:
    """Devices that began to flap; ``sessions`` are all of some devices in a time.

    The short session with which ``flaps`` of them began within the window is the cause, unless the one before
    it was such a session already: so a device that goes on flapping alerts once, and again when it was calmer
    in between.
    """
    if not bounds.flaps:
        return
    short = [
        row
        for row in sessions
        if row["end_reason"] is not None
        and row["duration_s"] is not None
        and row["duration_s"] < bounds.short_s
    ]
    short.sort(key=lambda row: (row["device_id"], row["connected_at"]))
    for device, found in groupby(short, lambda row: row["device_id"]):
        was = False
        rows = list(found)
        for place, row in enumerate(rows):
            first = rows[place - bounds.flaps + 1] if place >= bounds.flaps - 1 else None
            is_one = first is not None and within(first, row, bounds.window_s)
            if first is not None and is_one and not was:
                yield f"{device}.{micros(row['connected_at'])}.flapping", flaps(first, row, bounds)
            was = is_one


def within(first: Row, last: Row, seconds: float) -> bool:
    """Whether two sessions began within a time."""
    length: float = (last["connected_at"] - first["connected_at"]).total_seconds()
    return length <= seconds


def flaps(first: Row, last: Row, bounds: Bounds) -> dict[str, Any]:
    """The contents of an alert of flapping."""
    return {
        **{name: last[name] for name in ("device_id", "owner_id", "hub_id")},
        "sessions": bounds.flaps,
        "short_s": bounds.short_s,
        "window_s": bounds.window_s,
        "first_connected_at": first["connected_at"],
        "last_connected_at": last["connected_at"],
        "last_ended_at": last["ended_at"],
    }
