"""Schedules: when they produce messages, which ones, how they end, and that they survive restarts."""

from pathlib import Path
from typing import Any

import pytest

from pelton.api.times import format_time
from pelton.core.log import queries
from pelton.core.log.log import StoredMessage
from pelton.core.protocol.publish_headers import value
from tests.core.streams import block
from tests.engine.house import SECOND, START_NS, House

TARGET = "Nats-Schedule-Target: s.out"


def make(house: House, subject: str, *lines: str, body: bytes = b"body") -> Any:
    return house.publish(subject, body, block(*lines))


def on(house: House, subject: str) -> list[StoredMessage]:
    log = house.engine.accounts["$G"].streams["S"].core.log
    found = []
    seq = 1
    while (message := queries.next_of(log, subject, seq)) is not None:
        found.append(message)
        seq = message.seq + 1
    return found


def at(seconds: float) -> str:
    return "@at " + format_time(START_NS + int(seconds * SECOND))


def stream(house: House, **fields: Any) -> House:
    house.stream(subjects=["s.>"], allow_msg_schedules=True, **fields)
    return house


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_a_message_is_published_at_its_time_and_its_schedule_goes(
    storage: str, tmp_path: Path
) -> None:
    house = stream(House(tmp_path), storage=storage)
    lines = [f"Nats-Schedule: {at(3)}", TARGET, "My: own", "Nats-Msg-Id: 1"]
    assert make(house, "s.plan", *lines)["seq"] == 1
    assert value(on(house, "s.plan")[0].headers, b"Nats-Rollup") == b"sub"
    house.pass_time(2 * SECOND)
    assert on(house, "s.out") == []
    house.pass_time(2 * SECOND)
    (message,) = on(house, "s.out")
    assert (message.seq, message.payload) == (2, b"body")
    assert message.headers == block(
        "My: own", "Nats-Scheduler: s.plan", "Nats-Schedule-Next: purge"
    )
    assert on(house, "s.plan") == []
    house.pass_time(9 * SECOND)
    assert len(on(house, "s.>")) == 1


def test_an_interval_repeats_until_it_is_replaced(tmp_path: Path) -> None:
    house = stream(House(tmp_path))
    make(house, "s.plan", "Nats-Schedule: @every 2s", TARGET)
    house.pass_time(7 * SECOND)
    found = on(house, "s.out")
    assert len(found) == 3
    next_ns = found[0].ts_ns // SECOND * SECOND + 2 * SECOND
    assert value(found[0].headers, b"Nats-Schedule-Next") == format_time(next_ns).encode()
    make(house, "s.plan", "Nats-Schedule: @every 60s", TARGET, body=b"new")
    house.pass_time(10 * SECOND)
    assert len(on(house, "s.out")) == 3
    make(house, "s.plan")
    house.pass_time(90 * SECOND)
    assert len(on(house, "s.out")) == 3


def test_a_schedule_can_be_called_off(tmp_path: Path) -> None:
    house = stream(House(tmp_path))
    make(house, "s.plan", "Nats-Schedule: @every 1s", TARGET)
    ack = make(house, "s.x", "Nats-Schedule-Next: purge", "Nats-Scheduler: s.plan")
    assert ack["seq"] == 2
    assert on(house, "s.plan") == []
    house.pass_time(5 * SECOND)
    assert on(house, "s.out") == []
    make(house, "s.plan", "Nats-Schedule: @every 1s", TARGET)
    house.ok("STREAM.MSG.DELETE.S", {"seq": 3})
    house.pass_time(5 * SECOND)
    assert on(house, "s.out") == []


def test_the_body_of_another_subject_ttl_and_rollup(tmp_path: Path) -> None:
    house = stream(House(tmp_path), allow_msg_ttl=True)
    lines = ["Nats-Schedule: @every 1s", TARGET, "Nats-Schedule-Source: s.data"]
    make(house, "s.plan", *lines, "Nats-Schedule-TTL: 60", "Nats-Schedule-Rollup: sub")
    house.pass_time(3 * SECOND // 2)
    assert [m.payload for m in on(house, "s.out")] == [b"body"]
    house.publish("s.data", b"fresh", block("Nats-TTL: 9", "Kept: 1", "Nats-Rollup: sub"))
    house.pass_time(SECOND)
    (message,) = on(house, "s.out")
    assert message.payload == b"fresh"
    lines = message.headers.decode().split("\r\n")
    assert lines[1:3] == ["Kept: 1", "Nats-Scheduler: s.plan"]
    assert lines[4:6] == ["Nats-TTL: 60", "Nats-Rollup: sub"]


@pytest.mark.parametrize("how", ["restart", "crash"])
def test_what_was_missed_is_made_once(how: str, tmp_path: Path) -> None:
    house = stream(House(tmp_path))
    make(house, "s.plan", "Nats-Schedule: @every 2s", TARGET)
    make(house, "s.once", f"Nats-Schedule: {at(4)}", "Nats-Schedule-Target: s.one")
    house.pass_time(3 * SECOND)
    assert len(on(house, "s.out")) == 1
    house.server.clock.advance(100 * SECOND)
    house = house.restart() if how == "restart" else house.crash()
    house.pass_time(SECOND)
    assert (len(on(house, "s.out")), len(on(house, "s.one"))) == (2, 1)
    house.pass_time(4 * SECOND)
    assert (len(on(house, "s.out")), len(on(house, "s.one"))) == (4, 1)
    house = house.crash()
    house.pass_time(3 * SECOND)
    assert 5 <= len(on(house, "s.out")) <= 6


NO = [
    (["Nats-Schedule: x", TARGET], 10189),
    (["Nats-Schedule: @every 1s"], 10190),
    (["Nats-Schedule: @every 1s", "Nats-Schedule-Target: s.plan"], 10190),
    (["Nats-Schedule: @every 1s", "Nats-Schedule-Target: s.*"], 10190),
    (["Nats-Schedule: @every 1s", "Nats-Schedule-Target: t.x"], 10190),
    (["Nats-Schedule: @every 1s", TARGET, "Nats-Schedule-TTL: 0"], 10191),
    (["Nats-Schedule: @every 1s", TARGET, "Nats-Schedule-TTL: 5"], 10166),
    (["Nats-Schedule: @every 1s", TARGET, "Nats-Schedule-Rollup: all"], 10192),
    (["Nats-Schedule: @every 1s", TARGET, "Nats-Rollup: all"], 10192),
    (["Nats-Schedule: @every 1s", TARGET, "Nats-Schedule-Source: s.out"], 10203),
    (["Nats-Schedule: @every 1s", TARGET, "Nats-Schedule-Source: t.x"], 10203),
    (["Nats-Schedule: @daily", TARGET, "Nats-Schedule-Time-Zone: Nowhere"], 10223),
    (["Nats-Schedule: @every 1s", TARGET, "Nats-Schedule-Time-Zone: UTC"], 10189),
    (["Nats-Schedule-Next: later", "Nats-Scheduler: s.x"], 10212),
    (["Nats-Schedule-Next: purge"], 10212),
    (["Nats-Schedule-Next: purge", "Nats-Scheduler: s.plan"], 10212),
    (["Nats-Schedule-Next: purge", "Nats-Scheduler: s.plain"], 10212),
    (["Nats-Scheduler: s.x"], 10212),
]


@pytest.mark.parametrize(("lines", "code"), NO, ids=str)
def test_what_is_refused(lines: list[str], code: int, tmp_path: Path) -> None:
    house = stream(House(tmp_path))
    house.publish("s.plain")
    assert make(house, "s.plan", *lines)["error"]["err_code"] == code
    house.stream("T", subjects=["t.>"])
    refused = make(house, "t.plan", *lines)["error"]["err_code"]
    asked = any(line.startswith("Nats-Schedule: ") for line in lines)
    assert refused in ((10188,) if asked else (10188, 10212))


def test_many_schedules_at_once(tmp_path: Path) -> None:
    house = stream(House(tmp_path), storage="memory")
    core = house.engine.accounts["$G"].streams["S"].core
    for n in range(5_000):
        core.publish(f"s.plan.{n}", b"x", block(f"Nats-Schedule: {at(2)}", f"{TARGET}.{n}"))
    house.server.reactor.settle()
    house.pass_time(4 * SECOND)
    assert core.log.msgs == 5_000
    assert len(queries.subjects(core.log, "s.out.*")) == 5_000
