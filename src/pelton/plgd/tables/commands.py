"""Commands: the pending event and the confirmation of each, joined; and commands without a
confirmation.

Both events name the aggregate and the correlation id, so either may come first. No event says that
a command expired: this follows from the hub's time.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from .rows import EPOCH, day_of, time_of

if TYPE_CHECKING:
    from .rows import OpenRows, Row
    from .settings import Settings

PENDING = {
    "resourceupdatepending": "update",
    "resourceretrievepending": "retrieve",
    "resourcecreatepending": "create",
    "resourcedeletepending": "delete",
    "devicemetadataupdatepending": "metadata",
}
CONFIRMED = {
    "resourceupdated": "update",
    "resourceretrieved": "retrieve",
    "resourcecreated": "create",
    "resourcedeleted": "delete",
    "devicemetadataupdated": "metadata",
}
SUCCESS = {"OK", "ACCEPTED", "CREATED", "NOT_MODIFIED"}
COLUMNS = [
    *("event_type", "aggregate_id", "incarnation", "version", "correlation_id", "device_id"),
    *("href", "owner_id", "hub_id", "user_id", "timestamp_ns", "valid_until_ns", "content_json"),
    *("status", "canceled", "twin_enabled", "force_synchronization", "arrival", "bucket"),
]
SAME = (
    *("correlation_id", "device_id", "href", "aggregate_id", "owner_id", "hub_id", "incarnation"),
    *("user_id", "bucket"),
)


def of_commands(events: pa.Table, late_ns: int) -> list[Row]:
    """The events of commands, in the order of their versions.

    ``may_be_late`` says that the command may be closed already: the event came late, is older than ``late_ns``,
    or ends a command; most of these find theirs open.
    """
    kinds = pa.array([*PENDING, *CONFIRMED])
    is_one = pc.and_(
        pc.is_in(events["event_type"], value_set=kinds),
        pc.not_equal(pc.fill_null(events["correlation_id"], ""), ""),
    )
    rows: list[Row] = events.filter(is_one).select(COLUMNS).to_pylist()
    rows.sort(key=lambda row: (row["aggregate_id"], row["incarnation"], row["version"]))
    for row in rows:
        is_old = row["arrival"] != "next" or row["timestamp_ns"] < late_ns
        row["may_be_late"] = is_old or row["event_type"] in CONFIRMED
    return rows


def join(commands: OpenRows, rows: list[Row], gone: dict[str, tuple[int, int]]) -> None:
    """Update commands by their events; ``gone`` are versions at which resources were deleted."""
    commands.touch({row["aggregate_id"] for row in rows})
    deletions: list[Row] = []
    for row in rows:
        command = command_of(commands, row)
        if row["event_type"] in PENDING:
            sent(command, row)
        else:
            ended(command, row)
        commands.put(command)
        if row["event_type"] == "resourcedeleted" and row["status"] in {"OK", "ACCEPTED"}:
            key = (row["incarnation"], row["version"])
            gone[row["aggregate_id"]] = max(gone.get(row["aggregate_id"], (0, -1)), key)
            deletions.append(row)
    for row in deletions:
        drop(commands, row)
    new = {row["aggregate_id"] for row in deletions}
    for aggregate, (incarnation, version) in gone.items():
        for command in () if aggregate in new else commands.of(aggregate):
            at = (command["incarnation"], command["pending_version"] or 0)
            if command["outcome"] == "pending" and at < (incarnation, version):
                command["outcome"] = "dropped"
                commands.put(command)


def drop(commands: OpenRows, row: Row) -> None:
    """A resource was deleted: its pending commands are dropped, except those that had expired before."""
    deleted, key = time_of(row["timestamp_ns"]), (row["incarnation"], row["version"])
    for command in commands.of(row["aggregate_id"]):
        at = (command["incarnation"], command["pending_version"] or 0)
        until = command["valid_until"]
        if command["outcome"] not in {"pending", "expired"} or at >= key:
            continue
        if until is None or deleted is None or until >= deleted:
            command["outcome"] = "dropped"
            commands.put(command)


def command_of(commands: OpenRows, row: Row) -> Row:
    """The command of an event; a new one if it is the first."""
    kind = PENDING.get(row["event_type"]) or CONFIRMED[row["event_type"]]
    key = (row["aggregate_id"], row["correlation_id"], kind)
    if (found := commands.get(key)) is not None:
        return found
    day = day_of(row["timestamp_ns"])
    if row["may_be_late"]:
        days = [day, day - timedelta(days=1), day + timedelta(days=1)]
        known = commands.late(days, key)
        if known is not None:
            return known
    new: Row = dict.fromkeys(commands.schema.schema.names)
    return new | {
        **{name: row[name] for name in SAME},
        "kind": kind,
        "outcome": "pending",
        "is_open": True,
        "day": day,
    }


def sent(command: Row, row: Row) -> None:
    """The command was sent."""
    command["issued_ns"] = row["timestamp_ns"]
    command["issued_at"] = time_of(row["timestamp_ns"])
    command["valid_until"] = time_of(row["valid_until_ns"])
    command["user_id"] = row["user_id"]
    command["pending_version"] = row["version"]
    command["day"] = day_of(row["timestamp_ns"])
    command["content_json"] = row["content_json"]
    if row["twin_enabled"] is not None:
        command["content_json"] = f'{{"twinEnabled":{"true" if row["twin_enabled"] else "false"}}}'
    elif row["force_synchronization"] is not None:
        command["content_json"] = '{"forceSynchronization":true}'
    measure(command)


def ended(command: Row, row: Row) -> None:
    """The command was confirmed."""
    command["finished_ns"] = row["timestamp_ns"]
    command["finished_at"] = time_of(row["timestamp_ns"])
    command["finished_version"] = row["version"]
    command["status"] = row["status"]
    if command["kind"] == "metadata":
        command["outcome"] = "canceled" if row["canceled"] else "success"
    elif row["status"] in SUCCESS:
        command["outcome"] = "success"
    else:
        command["outcome"] = "canceled" if row["status"] == "CANCELED" else "failed"
    measure(command)


def measure(command: Row) -> None:
    """How long it took."""
    if command["issued_ns"] is not None and command["finished_ns"] is not None:
        command["latency_ms"] = (command["finished_ns"] - command["issued_ns"]) / 1e6


def end_commands(commands: OpenRows, clock_ns: int, settings: Settings) -> None:
    """Let commands expire, and close those to which nothing happens any more."""
    now, late = clock_ns, clock_ns - int(settings.late_s * 1e9)
    given_up = clock_ns - int(settings.keep_open_s * 1e9)
    until = commands.table["valid_until"]
    clock = pa.scalar(time_of(now) or EPOCH, until.type)
    commands.take(pc.less(until, clock))
    for name, limit in (("issued_ns", given_up), ("finished_ns", late)):
        commands.take(pc.less(commands.table[name], pa.scalar(limit)))
    for command in commands.rows.values():
        was = command["outcome"], command["is_open"]
        if command["outcome"] == "pending":
            settle(command, now, given_up)
        command["is_open"] = stays_open(command, late)
        commands.changed |= was != (command["outcome"], command["is_open"])


def settle(command: Row, now: int, given_up: int) -> None:
    """A pending command expires, or is given up."""
    if command["valid_until"] is not None and command["valid_until"] < (time_of(now) or EPOCH):
        command["outcome"] = "expired"
    elif command["issued_ns"] < given_up:
        command["outcome"] = "given up"


def stays_open(command: Row, late: int) -> bool:
    """Whether something may happen to a command: it waits, or half of it is not known yet."""
    if command["outcome"] == "pending":
        return True
    if command["finished_ns"] is not None:
        return command["issued_ns"] is None and bool(command["finished_ns"] >= late)
    if command["outcome"] == "expired":
        return bool(command["valid_until"] >= (time_of(max(late, 1)) or EPOCH))
    return False
