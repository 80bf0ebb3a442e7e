"""Tables of plgd events that are drawn, without Spark: for what reads them."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pelton.plgd.tables.schemas import TABLES

if TYPE_CHECKING:
    from pathlib import Path

Rows = dict[str, list[dict[str, Any]]]
START = datetime(2026, 11, 20, 6, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SINCE = timedelta(days=400)  # the stream got the messages long after the hub made them
OWNERS = ("e1407479-3136-56c0-9908-bb02fb0339e2", "b80c8fef-a677-5340-85fb-2c162d75df03")
EVENT_TYPES = (
    ("resources", "resourcechanged"),
    ("resources", "resourceupdatepending"),
    ("resources", "resourceupdated"),
    ("metadata", "devicemetadataupdated"),
    ("resource-links", "resourcelinkspublished"),
)


def drawn(seed: int, devices: int = 40, hours: float = 6.0) -> Rows:
    """Rows of the tables that a report reads."""
    draw = random.Random(seed)
    rows: Rows = {name: [] for name in TABLES}
    end = START + timedelta(hours=hours)

    def moment() -> datetime:
        return START + timedelta(microseconds=draw.randrange(int(hours * 3_600_000_000)))

    for number in range(devices):
        device = f"00000000-0000-4000-8000-{number:012d}"
        owner = draw.choice(OWNERS)
        base = {"device_id": device, "owner_id": owner, "hub_id": "hub", "bucket": number % 4}
        for _ in range(draw.randrange(5, 60)):
            kind, event_type = draw.choice(EVENT_TYPES)
            rows["events"].append(base | {"kind": kind, "event_type": event_type, "time": moment()})
        _sessions(draw, rows, base, end)
        for _ in range(draw.randrange(12)):
            _command(draw, rows, base, moment(), end)
        if draw.random() < 0.5:
            first, count = draw.randrange(50), draw.randrange(1, 4)
            behind = moment()
            closed = draw.choice(["arrival", "repair", None])
            rows["version_gaps"].append(
                base
                | {
                    "aggregate_id": f"aggregate-{number}",
                    "kind": "resources",
                    "href": draw.choice(["/light/1", "/<b>bold</b>"]),
                    "first_version": first,
                    "last_version": first + count - 1,
                    "cause": draw.choice(["lost", "late", "damaged", "restore"]),
                    "missing": 0 if closed else count,
                    draw.choice(["before_ns", "after_ns"]): (behind - EPOCH)
                    // timedelta(microseconds=1)
                    * 1000,
                    "found_at": behind + SINCE,
                    "closed_by": closed,
                    "is_open": closed is None,
                }
            )
    for _ in range(draw.randrange(20)):
        rows["dead_letters"].append(
            {
                "subject": f"plgd.owners.{draw.choice(OWNERS)}.devices.x.y",
                "reason": draw.choice(["snappy", "envelope"]),
                "detail": "<script>alert(1)</script>",
                "received": moment() + SINCE,
                "device_id": None,
            }
        )
    return rows


def _sessions(draw: random.Random, rows: Rows, base: dict[str, Any], end: datetime) -> None:
    at = START + timedelta(seconds=draw.randrange(600))
    short = draw.random() < 0.2
    while at < end:
        length = draw.expovariate(1 / (100 if short else 7200))
        ended = at + timedelta(seconds=length)
        is_open = ended >= end
        rows["sessions"].append(
            base
            | {
                "connected_at": at,
                "ended_at": None if is_open else ended,
                "duration_s": None if is_open else length,
                "end_reason": None if is_open else draw.choice(["offline", "heartbeat"]),
                "is_open": is_open,
            }
        )
        sync = draw.lognormvariate(6, 1)
        rows["twin_sync"].append(
            base
            | {
                "syncing_at": at,
                "sync_ms": sync,
                "ready_ms": sync + 40,
                "outcome": "in sync",
                "is_open": False,
            }
        )
        at = ended + timedelta(seconds=draw.randrange(5, 900))


def _command(
    draw: random.Random, rows: Rows, base: dict[str, Any], at: datetime, end: datetime
) -> None:
    outcome = draw.choices(
        ["success", "failed", "canceled", "expired", "pending"], [80, 6, 4, 6, 4]
    )[0]
    latency = (
        draw.lognormvariate(4.4, 0.8) if outcome in ("success", "failed", "canceled") else None
    )
    rows["commands"].append(
        base
        | {
            "kind": draw.choice(["update", "retrieve", "create", "delete", "metadata"]),
            "user_id": draw.choice(["operator", "<i>mallory</i>"]),
            "issued_at": at,
            "finished_at": None if latency is None else at + timedelta(milliseconds=latency),
            "latency_ms": latency,
            "status": "FORBIDDEN" if outcome == "failed" else "OK",
            "outcome": outcome,
            "is_open": outcome == "pending" and at < end,
        }
    )
    rows["audit"].append(
        base | {"user_id": "<i>mallory</i>", "action": "resourceupdatepending", "time": at}
    )


def arrow(rows: Rows) -> dict[str, pa.Table]:
    """The same as Arrow tables; a column that is not given is null."""
    return {
        name: pa.Table.from_pylist(
            [dict.fromkeys(table.schema.names) | row for row in rows[name]], schema=table.schema
        )
        for name, table in TABLES.items()
    }


def write(rows: Rows, folder: Path) -> None:
    """The same as Delta tables in folders of their names."""
    from deltalake import write_deltalake

    for name, table in arrow(rows).items():
        write_deltalake(folder / name, table, partition_by=["bucket"], mode="overwrite")
