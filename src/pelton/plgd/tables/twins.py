"""Twins: every change of a resource, and the last one of each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..wire.events_pb2 import ResourceStateSnapshotTaken as StateSnapshot
from .rows import time_of
from .schemas import TWIN_HISTORY, TWIN_LATEST

SHARED = [
    name
    for name in TWIN_HISTORY.schema.names
    if name not in {"version", "timestamp_ns", "time", "is_present"}
]
Numbers = np.ndarray[Any, Any]


def history(events: pa.Table) -> pa.Table:
    """The rows of `TWIN_HISTORY` of events: changes of resources."""
    changes = events.filter(pc.equal(events["event_type"], "resourcechanged"))
    present = pc.fill_null(pc.equal(changes["status"], "OK"), False)
    columns = [
        present if name == "is_present" else changes[name] for name in TWIN_HISTORY.schema.names
    ]
    return pa.table(columns, schema=TWIN_HISTORY.schema)


def newest(rows: pa.Table) -> pa.Table:
    """The row of each aggregate with the greatest incarnation and version."""
    if not len(rows):
        return rows
    codes = rows["aggregate_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    order = np.lexsort((rows["version"].to_numpy(), rows["incarnation"].to_numpy(), codes))
    last = np.flatnonzero(np.r_[np.diff(codes[order]) != 0, True])
    return rows.take(pa.array(order[last]))


def latest(current: pa.Table, changes: pa.Table) -> pa.Table | None:
    """The rows of `TWIN_LATEST` with some changes; None if these change nothing."""
    new = newest(changes.select(TWIN_LATEST.schema.names))
    if not len(new):
        return None
    at = pc.index_in(new["aggregate_id"], value_set=current["aggregate_id"].combine_chunks())
    place = pc.fill_null(at, -1).combine_chunks().to_numpy(zero_copy_only=False)
    there = place >= 0
    wins = ~there

    def both(name: str) -> tuple[Numbers, Numbers]:
        return new[name].to_numpy()[there], current[name].to_numpy()[place[there]]

    (began, began_there), (version, version_there) = both("incarnation"), both("version")
    wins[there] = (began > began_there) | ((began == began_there) & (version > version_there))
    if not wins.any():
        return None
    stays = np.ones(len(current), bool)
    stays[place[wins & there]] = False
    return pa.concat_tables([current.filter(pa.array(stays)), new.filter(pa.array(wins))])


def of_snapshots(events: pa.Table) -> pa.Table:
    """The latest changes that snapshots of resources hold, as rows of `TWIN_LATEST`.

    They are those of the snapshot's past, so only a change that was lost makes a difference.
    """
    wanted = events.filter(pc.equal(events["event_type"], "resourcestatesnapshottaken"))
    rows = []
    for row in wanted.select([*SHARED, "version", "data"]).to_pylist():
        snapshot = StateSnapshot.FromString(row.pop("data"))
        meta = snapshot.latest_resource_change.event_metadata
        has_change = snapshot.HasField("latest_resource_change")
        if not has_change or meta.version > row["version"]:  # none is newer than its snapshot
            continue
        rows.append(
            row
            | {
                "version": meta.version,
                "timestamp_ns": meta.timestamp,
                "time": time_of(meta.timestamp),
                "is_present": row["status"] == "OK",
            }
        )
    return pa.Table.from_pylist(rows, TWIN_HISTORY.schema)
