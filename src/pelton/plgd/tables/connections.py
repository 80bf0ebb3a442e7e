"""Connections of devices and synchronizations of their twins, from updates of their metadata.

Every update names its connection and when the connection began, so updates may come in any order:
the one with the greatest version decides whether the connection is online, and the state of the
synchronization.
"""

from __future__ import annotations

from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ..ids import NIL_UUID
from .rows import EPOCH, time_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .rows import OpenRows, Row
    from .settings import Settings

COLUMNS = [
    *("device_id", "owner_id", "hub_id", "incarnation", "version", "timestamp_ns", "user_id"),
    *("connection_id", "connection_status", "protocol", "service_id", "local_endpoints"),
    *("connected_at_ns", "twin_state", "syncing_at_ns", "in_sync_at_ns", "bucket", "arrival"),
]
SAME = ("device_id", "owner_id", "hub_id", "incarnation", "bucket")


def updates(events: pa.Table, late_ns: int) -> list[Row]:
    """The updates of metadata among events, in the order of their versions.

    ``may_be_late`` says that a row may be closed already: the update came late, or is older than ``late_ns``.
    """
    found = events.filter(pc.equal(events["event_type"], "devicemetadataupdated"))
    rows: list[Row] = found.select(COLUMNS).to_pylist()
    rows.sort(key=lambda row: (row["device_id"], row["incarnation"], row["version"]))
    for row in rows:
        row["may_be_late"] = row["arrival"] != "next" or row["timestamp_ns"] < late_ns
    return rows


def connect(sessions: OpenRows, rows: Iterable[Row]) -> None:
    """Update sessions by updates of metadata."""
    rows = list(rows)
    sessions.touch({row["device_id"] for row in rows})
    for row in rows:
        if not row["connected_at_ns"] and not row["connection_id"]:
            continue  # the device was never connected
        session = session_of(sessions, row)
        is_newest = note_version(session, row)
        at = time_of(row["timestamp_ns"])
        if row["connection_status"] == "ONLINE":
            for name in ("protocol", "service_id", "local_endpoints"):
                session[name] = row[name] or session[name]
            session["online_at"] = min(session["online_at"] or at or EPOCH, at or EPOCH)
            if is_newest:
                session["ended_at"] = session["end_reason"] = None
        elif is_newest or session["end_reason"] in {None, "replaced"}:
            is_again = session["end_reason"] in {"offline", "heartbeat"}
            if not is_again:
                session["ended_at"] = at
                session["end_reason"] = "heartbeat" if row["user_id"] == NIL_UUID else "offline"
        sessions.put(session)


def note_version(known: Row, row: Row) -> bool:
    """Widen the versions that speak of something; whether this one is the newest."""
    at, last = (row["incarnation"], row["version"]), (known["incarnation"], known["last_version"])
    if row["incarnation"] == known["incarnation"]:
        known["first_version"] = min(known["first_version"], row["version"])
    known["incarnation"], known["last_version"] = max(at, last)
    return at >= last


def session_of(sessions: OpenRows, row: Row) -> Row:
    """The session of an update; a new one if the update is its first."""
    connected = time_of(row["connected_at_ns"])
    if connected is None:  # an update that says offline may leave this out
        at = time_of(row["timestamp_ns"]) or EPOCH
        before = [
            one
            for one in sessions.of(row["device_id"])
            if one["connection_id"] == row["connection_id"] and one["connected_at"] <= at
        ]
        if before:
            return max(before, key=lambda one: one["connected_at"])
        connected = at
    key = (row["device_id"], row["connection_id"], connected)
    if (found := sessions.get(key)) is not None:
        return found
    if row["may_be_late"]:
        known = sessions.late([connected.date()], key)
        if known is not None:
            return known
    return {
        **{name: row[name] for name in SAME},
        "connection_id": row["connection_id"],
        "protocol": row["protocol"],
        "service_id": row["service_id"],
        "local_endpoints": row["local_endpoints"],
        "connected_at": connected,
        "online_at": None,
        "ended_at": None,
        "duration_s": None,
        "end_reason": None,
        "first_version": row["version"],
        "last_version": row["version"],
        "is_open": True,
        "day": connected.date(),
    }


def end_sessions(sessions: OpenRows, clock_ns: int, settings: Settings) -> None:
    """End sessions that a later connection replaced, and close sessions that ended long enough ago."""
    by_device: dict[str, list[Row]] = {}
    for session in sessions.rows.values():
        by_device.setdefault(session["device_id"], []).append(session)
    for found in by_device.values():
        found.sort(key=lambda one: one["connected_at"])
        for one, after in pairwise(found):
            if one["ended_at"] is None:
                one["ended_at"], one["end_reason"] = after["connected_at"], "replaced"
    ended = sessions.table["ended_at"]
    limit = time_of(clock_ns - int(settings.late_s * 1e9)) or EPOCH
    sessions.take(pc.less(ended, pa.scalar(limit, ended.type)))
    for session in sessions.rows.values():
        was = session["is_open"], session["duration_s"]
        if session["ended_at"] is not None:
            length = session["ended_at"] - session["connected_at"]
            session["duration_s"] = length.total_seconds()
            session["is_open"] = session["ended_at"] >= limit
        else:
            session["duration_s"], session["is_open"] = None, True
        sessions.changed |= was != (session["is_open"], session["duration_s"])


def synchronize(syncs: OpenRows, rows: Iterable[Row]) -> None:
    """Update synchronizations by updates of metadata."""
    rows = list(rows)
    syncs.touch({row["device_id"] for row in rows})
    for row in rows:
        began = time_of(row["syncing_at_ns"])
        if began is not None and row["twin_state"] in {"SYNCING", "IN_SYNC"}:
            key = (row["device_id"], began)
            sync = syncs.get(key)
            if sync is None and row["may_be_late"]:
                sync = syncs.late([began.date()], key)
            if sync is None:
                sync = new_sync(row, began)
            take_sync(sync, row)
            syncs.put(sync)


def new_sync(row: Row, began: Any) -> Row:
    """A synchronization that an update speaks of for the first time."""
    return {
        **{name: row[name] for name in SAME},
        "connection_id": row["connection_id"],
        "connected_at": time_of(row["connected_at_ns"]),
        "syncing_at": began,
        "in_sync_at": None,
        "over_at": None,
        "sync_ms": None,
        "ready_ms": None,
        "outcome": "syncing",
        "first_version": row["version"],
        "last_version": row["version"],
        "is_open": True,
        "day": began.date(),
    }


def take_sync(sync: Row, row: Row) -> None:
    """Note the state of the synchronization in an update."""
    note_version(sync, row)
    if row["in_sync_at_ns"] and row["in_sync_at_ns"] >= row["syncing_at_ns"]:
        sync["in_sync_at"] = time_of(row["in_sync_at_ns"])
        sync["sync_ms"] = (row["in_sync_at_ns"] - row["syncing_at_ns"]) / 1e6
        if row["connected_at_ns"]:
            sync["ready_ms"] = (row["in_sync_at_ns"] - row["connected_at_ns"]) / 1e6
        sync["outcome"] = "in sync"


def end_syncs(syncs: OpenRows, sessions: OpenRows, clock_ns: int, settings: Settings) -> None:
    """End synchronizations that their connection or a later one ended, and close old ones."""
    for device in {sync["device_id"] for sync in syncs.rows.values()}:
        ends = {
            (one["connection_id"], one["connected_at"]): one["ended_at"]
            for one in sessions.of(device)
        }
        found = [sync for sync in syncs.of(device) if sync["is_open"]]
        found.sort(key=lambda one: one["syncing_at"])
        for sync, after in zip_longest(found, found[1:]):
            over = [
                ends.get((sync["connection_id"], sync["connected_at"])),
                None if after is None else after["syncing_at"],
            ]
            end_sync(syncs, sync, min(filter(None, over), default=None))
    limit = time_of(clock_ns - int(settings.late_s * 1e9)) or EPOCH
    over_at = syncs.table["over_at"]
    syncs.take(pc.less(over_at, pa.scalar(limit, over_at.type)))
    for sync in syncs.rows.values():
        was = sync["is_open"]
        sync["is_open"] = sync["over_at"] is None or sync["over_at"] >= limit
        syncs.changed |= was != sync["is_open"]


def end_sync(syncs: OpenRows, sync: Row, over: Any) -> None:
    """Note when a synchronization was over."""
    outcome = "syncing" if over is None else "interrupted"
    if sync["in_sync_at"] is not None:
        outcome = "in sync"
    syncs.changed |= (over, outcome) != (sync["over_at"], sync["outcome"])
    sync["over_at"], sync["outcome"] = over, outcome
