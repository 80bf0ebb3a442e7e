"""Registrations: devices that were registered with their owner, or unregistered.

They have no version. A duplicate has the same device, action and time as its original; the latest
times of each are kept to recognize it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from .schemas import AGGREGATES, REGISTRATIONS

if TYPE_CHECKING:
    from .rows import Row

KEPT = 8
ACTIONS = {"devicesregistered": "registered", "devicesunregistered": "unregistered"}
COLUMNS = [
    *("stream", "seq", "received", "time", "timestamp_ns", "event_type", "device_ids"),
    *("owner_id", "owner", "user_id", "hub_id", "day", "bucket"),
]
KIND = "registrations"


def identity(row: Row, device: str | None) -> str:
    """The key for the times of an owner's device and action."""
    return f"{row['owner_id']}/{device or ''}/{ACTIONS[row['event_type']]}"


def registered(events: pa.Table, state: pa.Table) -> tuple[list[int], pa.Table, pa.Table]:
    """Decide about registrations: the sequences of those that are new, their rows, and the new state.

    ``events`` has all registrations of a batch in the order of the stream, ``state`` is `AGGREGATES`.
    """
    rows: list[Row] = events.select(COLUMNS).to_pylist()
    ids = {identity(row, device) for row in rows for device in devices(row)}
    concerned = pc.is_in(state["aggregate_id"], value_set=pa.array(sorted(ids), pa.string()))
    known: dict[str, Row] = {
        row["aggregate_id"]: row for row in (state.filter(concerned).to_pylist() if ids else [])
    }
    new: list[int] = []
    out: list[Row] = []
    for row in rows:
        taken = [device for device in devices(row) if take(known, row, device)]
        if taken:
            new.append(row["seq"])
        for device in taken:
            shared = {
                name: row[name] for name in COLUMNS if name not in {"event_type", "device_ids"}
            }
            out.append(shared | {"device_id": device, "action": ACTIONS[row["event_type"]]})
    return (
        new,
        pa.Table.from_pylist(out, REGISTRATIONS.schema),
        pa.Table.from_pylist(list(known.values()), AGGREGATES.schema),
    )


def devices(row: Row) -> list[str | None]:
    """The devices of an event; None stands for none at all."""
    return row["device_ids"] or [None]


def take(known: dict[str, Row], row: Row, device: str | None) -> bool:
    """Whether a registration is new; note its time."""
    key = identity(row, device)
    kept = known.get(key)
    if kept is None:
        kept = known[key] = dict.fromkeys(AGGREGATES.schema.names) | {
            "aggregate_id": key,
            "kind": KIND,
            "device_id": device,
            "owner_id": row["owner_id"],
            "incarnation": 0,
            "started_ns": row["timestamp_ns"],
            "last_ns": 0,
            "events": 0,
            "duplicates": 0,
            "recent": [],
            "bucket": row["bucket"],
        }
    kept["last_seq"] = row["seq"]
    if row["timestamp_ns"] in kept["recent"]:
        kept["duplicates"] += 1
        return False
    kept["recent"] = [*kept["recent"], row["timestamp_ns"]][-KEPT:]
    kept["last_ns"] = max(kept["last_ns"], row["timestamp_ns"])
    kept["events"] += 1
    return True
