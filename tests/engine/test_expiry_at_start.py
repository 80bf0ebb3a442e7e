"""No client of a server that has just started gets a message that has expired: neither one that expired
while no server ran, nor one whose removal a full disk did not take. The same holds for a restored stream.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pelton.core.base.disk import PyDisk
from pelton.engine.rules import message_ttl
from pelton.testing.simulated_disk import SimDisk
from tests.engine.backups import backup, restore
from tests.engine.house import SECOND, House

TTL = b"NATS/1.0\r\nNats-TTL: 1s\r\n\r\n"
NEVER = b"NATS/1.0\r\nNats-TTL: never\r\n\r\n"
WAYS: dict[str, tuple[dict[str, Any], bytes]] = {
    "ttl": ({"allow_msg_ttl": True}, TTL),
    "ttl with markers": ({"allow_msg_ttl": True, "subject_delete_marker_ttl": SECOND}, TTL),
    "max_age": ({"max_age": SECOND}, b""),
    "max_age beside others": ({"max_age": SECOND, "allow_msg_ttl": True}, b""),
}
MESSAGES = 50


def furnished(disk: SimDisk, way: str) -> House:
    config, headers = WAYS[way]
    house = House(Path("store"), disk=PyDisk(disk))
    house.stream(subjects=["s.>"], allow_rollup_hdrs=True, **config)
    house.consumer("c", ack_policy="explicit")
    if "allow_msg_ttl" in config:
        house.publish("s.stays", b"stays", NEVER)
    for number in range(MESSAGES):
        house.publish(f"s.{number % 7}", b"%d" % number, headers)
    return house


def after_a_kill(house: House, disk: SimDisk, *, gradually: bool = False) -> House:
    disk.kill()
    now_ns = house.server.clock.now()
    return House(Path("store"), now_ns, PyDisk(disk), gradually=gradually)


def seen(house: House) -> set[bytes]:
    """The payloads that a reader and a consumer get, and those that are counted, without markers."""
    log = house.account.streams["S"].core.log
    stored = {log.get(seq).payload for seq in range(1, log.last_seq + 1) if log.get(seq)}
    delivered = {event[5] for event in house.pull(2 * MESSAGES)}
    return (stored | delivered) - {b""}


def left(way: str) -> set[bytes]:
    return {b"stays"} if "allow_msg_ttl" in WAYS[way][0] else set()


@pytest.mark.parametrize("way", WAYS)
def test_what_expired_while_no_server_ran(way: str) -> None:
    disk = SimDisk(random=Random(1))
    house = furnished(disk, way)
    house.server.clock.advance(2 * SECOND)
    assert seen(after_a_kill(house, disk)) == left(way)


@pytest.mark.parametrize("way", ["ttl", "max_age", "max_age beside others"])
def test_what_expired_on_a_full_disk_stays_gone(way: str) -> None:
    disk = SimDisk(random=Random(1))
    house = furnished(disk, way)
    disk.room = disk.used()
    house.pass_time(2 * SECOND)
    assert seen(house) == left(way)
    for _ in range(3):
        house = after_a_kill(house, disk)
        assert seen(house) == left(way)
    disk.room = None
    house.pass_time(6 * SECOND)
    assert seen(after_a_kill(house, disk)) == left(way)


@pytest.mark.parametrize("way", WAYS)
def test_many_messages_expire_in_steps(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimDisk(random=Random(1))
    house = furnished(disk, way)
    house.server.clock.advance(2 * SECOND)
    monkeypatch.setattr(message_ttl, "PER_TICK", 4)
    house = after_a_kill(house, disk, gradually=True)
    asked = house.client.send("PUB $JS.API.STREAM.INFO.S _I.info 0\r\n\r\n")
    steps, answers = 0, asked.events()
    while house.engine.open_more():
        steps += 1
        house.server.reactor.settle()
        answers += house.client.events()
    house.server.reactor.settle()
    answers += house.client.events()
    (info,) = [json.loads(event[5])["state"] for event in answers]
    assert info["messages"] == house.account.streams["S"].core.log.msgs
    assert seen(house) == left(way)
    if way != "max_age":  # one removal of a range
        assert steps >= MESSAGES // 4


def test_a_store_that_is_only_read_keeps_what_has_expired() -> None:
    disk = SimDisk(random=Random(1))
    house = furnished(disk, "ttl")
    disk.kill()
    now_ns = house.server.clock.now() + 2 * SECOND
    reader = House(Path("store"), now_ns, PyDisk(disk), frozen=True)
    assert reader.ok("STREAM.INFO.S")["state"]["messages"] == 1 + MESSAGES


@pytest.mark.parametrize("storage", ["file", "memory"])
@pytest.mark.parametrize("way", WAYS)
def test_what_has_expired_in_a_backup_is_not_restored(
    way: str, storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = furnished(SimDisk(random=Random(1)), way)
    answer, data = backup(house)
    other = House(
        Path("store"),
        house.server.clock.now() + 2 * SECOND,
        PyDisk(SimDisk(random=Random(2))),
    )
    monkeypatch.setattr(message_ttl, "PER_TICK", 4)
    info = restore(other, answer, data, storage=storage)
    assert info["state"]["messages"] == other.account.streams["S"].core.log.msgs
    assert seen(other) == left(way)
    markers = 7 if way == "ttl with markers" else 0
    assert info["state"]["messages"] == len(left(way)) + markers
