"""When devices and commands alert: by the rows of the tables and the clock alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.plgd.tables.conditions import (
    Bounds,
    flapping,
    late,
    micros,
    newest_sessions,
    offline,
)
from pelton.plgd.tables.schemas import COMMANDS, SESSIONS

START = datetime(2026, 11, 20, 6, tzinfo=UTC)
BOUNDS = Bounds(offline_s=100, late_s=10, flaps=3, short_s=20, window_s=200)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def session(device: str, begin: float, length: float | None, reason: str = "offline") -> Any:
    row: dict[str, Any] = dict.fromkeys(SESSIONS.schema.names)
    ended = None if length is None else at(begin + length)
    return row | {
        "device_id": device,
        "connected_at": at(begin),
        "ended_at": ended,
        "duration_s": length,
        "end_reason": None if length is None else reason,
    }


def command(**told: Any) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(COMMANDS.schema.names)
    return row | {"aggregate_id": "a", "correlation_id": "c", "kind": "update"} | told


def table(rows: list[Any]) -> pa.Table:
    return pa.Table.from_pylist(rows, SESSIONS.schema)


SESSIONS_OF = st.lists(
    st.tuples(
        st.sampled_from("xyz"),
        st.integers(1, 400),
        st.none() | st.integers(1, 40),
        st.sampled_from(["offline", "heartbeat", "replaced"]),
    ),
    max_size=40,
)


def drawn(steps: list[tuple[str, int, int | None, str]]) -> list[Any]:
    """Sessions of each device behind one another."""
    clock: dict[str, int] = {}
    rows = []
    for device, pause, length, reason in steps:
        begin = clock.get(device, 0) + pause
        rows.append(session(device, begin, length, reason))
        clock[device] = begin + (length or 1)
    return rows


@given(SESSIONS_OF, st.integers(0, 8000))
def test_a_device_is_offline_by_its_newest_session(steps: Any, now: int) -> None:
    rows = drawn(steps)
    wanted = set()
    for device in "xyz":
        own = [row for row in rows if row["device_id"] == device]
        last = max(own, key=lambda row: row["connected_at"], default=None)
        if last is None or last["end_reason"] not in ("offline", "heartbeat"):
            continue
        if (at(now) - last["ended_at"]).total_seconds() >= BOUNDS.offline_s:
            wanted.add(f"{device}.{micros(last['connected_at'])}.offline")
    found = list(offline(newest_sessions(table(rows)), at(now), BOUNDS))
    assert {msg_id for msg_id, _ in found} == wanted
    assert len(found) == len(wanted)


def test_an_outage_has_one_id_for_as_long_as_it_lasts() -> None:
    rows = [session("x", 0, 50)]
    ids = [
        [msg_id for msg_id, _ in offline(newest_sessions(table(rows)), at(now), BOUNDS)]
        for now in (149, 150, 1000, 100_000)
    ]
    assert ids[0] == []
    assert ids[1] == ids[2] == ids[3] != []
    again = newest_sessions(pa.concat_tables([table([session("x", 5000, 10)]), table(rows)]))
    assert [one for one, _ in offline(again, at(9000), BOUNDS)] not in ids
    assert not list(offline(again, at(9000), Bounds(offline_s=0)))


def test_a_newer_row_of_the_same_session_counts() -> None:
    was, now = table([session("x", 0, 50)]), table([session("x", 0, None)])
    assert newest_sessions(pa.concat_tables([now, was]))["ended_at"].to_pylist() == [None]


@given(SESSIONS_OF)
def test_flapping_alerts_when_it_begins(steps: Any) -> None:
    rows = drawn(steps)
    wanted = []
    for device in "xyz":
        short = [
            row for row in rows if row["device_id"] == device and row["duration_s"] is not None
        ]
        times = sorted(row["connected_at"] for row in short if row["duration_s"] < BOUNDS.short_s)
        dense = [
            sum(time - timedelta(seconds=BOUNDS.window_s) <= one <= time for one in times[: n + 1])
            >= BOUNDS.flaps
            for n, time in enumerate(times)
        ]
        for before, is_dense, time in zip([False, *dense], dense, times, strict=False):
            if is_dense and not before:
                wanted.append(f"{device}.{micros(time)}.flapping")
    assert [msg_id for msg_id, _ in flapping(rows, BOUNDS)] == wanted


@given(SESSIONS_OF)
def test_flapping_is_the_same_when_old_sessions_are_not_read(steps: Any) -> None:
    rows = drawn(steps)
    whole = list(flapping(rows, BOUNDS))
    for msg_id, told in whole:
        since = told["last_connected_at"] - timedelta(seconds=2 * BOUNDS.window_s)
        near = [row for row in rows if row["connected_at"] >= since]
        assert (msg_id, told) in list(flapping(near, BOUNDS))
    for row in rows:
        since = row["connected_at"] - timedelta(seconds=2 * BOUNDS.window_s)
        near = [one for one in rows if one["connected_at"] >= since]
        ids = {
            one
            for one, told in flapping(near, BOUNDS)
            if told["last_connected_at"] == row["connected_at"]
        }
        assert ids <= {one for one, _ in whole}


@pytest.mark.parametrize(
    ("told", "is_one"),
    [
        ({"outcome": "success", "latency_ms": 10_001.0}, True),
        ({"outcome": "success", "latency_ms": 10_000.0}, False),
        ({"outcome": "success", "latency_ms": None}, False),
        ({"outcome": "failed", "latency_ms": 50_000.0}, True),
        ({"outcome": "expired"}, True),
        ({"outcome": "dropped", "issued_at": at(0)}, False),
        ({"outcome": "pending", "issued_at": at(995)}, False),
        ({"outcome": "pending", "issued_at": at(989)}, True),
        ({"outcome": "pending", "issued_at": at(995), "valid_until": at(999)}, True),
        ({"outcome": "pending", "issued_at": at(995), "valid_until": at(1001)}, False),
    ],
)
def test_a_command_is_late(told: dict[str, Any], is_one: bool) -> None:
    found = list(late([command(**told)], at(1000), BOUNDS))
    assert [msg_id for msg_id, _ in found] == (["a.c.update.late"] if is_one else [])
    assert not list(late([command(**told)], at(1000), Bounds(late_s=0)))


@pytest.mark.parametrize(
    "wrong", [{"offline_s": -1}, {"late_s": -1}, {"flaps": 1}, {"short_s": 0}, {"window_s": 0}]
)
def test_bounds_that_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Bounds(**wrong)
