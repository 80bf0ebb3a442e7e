"""Removals and acks while a sync runs, while the disk cannot be read, and while it is full."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.core.base.disk import PyDisk
from penstock.testing.simulated_disk import SimDisk
from tests.engine.house import SECOND, House

if TYPE_CHECKING:
    from penstock.core.broker.reactor import HandedSync

STORE = Path("store")


def test_a_removal_waits_for_a_sync_that_begins_after_its_write() -> None:
    """The sync that runs ends between the removal and its write, and the next one begins at once."""
    disk = SimDisk()
    house = House(STORE, disk=PyDisk(disk, background=True))
    syncs: list[HandedSync] = []

    def begin(sync: HandedSync) -> None:
        disk.sync(sync.handle)  # it covers what is written by now
        syncs.append(sync)

    house.server.reactor.on_sync = begin

    house.stream(subjects=["s"])
    house.send("s", b"1")
    house.send("s", b"2")
    assert syncs
    body = json.dumps({"seq": 1, "no_erase": True})
    house.client.send(f"PUB $JS.API.STREAM.MSG.DELETE.S _I.gone {len(body)}\r\n{body}\r\n")
    syncs.pop(0).end(0)
    while not house.client.events():
        syncs.pop(0).end(0)
    log = house.account.streams["S"].core.log
    assert log.get(1) is None
    disk.crash()
    house = House(STORE, house.server.clock.now(), PyDisk(disk))
    assert house.ok("STREAM.INFO.S")["state"]["messages"] == 1


@pytest.mark.parametrize("markers", [0, SECOND])
def test_an_expired_message_that_cannot_be_read_is_removed_later(markers: int) -> None:
    disk = SimDisk()
    house = House(STORE, disk=PyDisk(disk), segment_bytes=4096)
    house.stream(
        subjects=["s", "t"],
        allow_msg_ttl=True,
        subject_delete_marker_ttl=markers,
        duplicate_window=SECOND // 10,  # so that the start reads no message to find its id
    )
    house.publish("s", b"1", b"NATS/1.0\r\nNats-TTL: 5s\r\n\r\n")
    for _ in range(3):
        house.publish("t", b"x" * 3000)
    house = house.restart()  # the deadline is read from a file, and the message not yet
    log = house.account.streams["S"].core.log
    disk.fail("read", errno.EIO, "*.seg", times=None)
    house.pass_time(7 * SECOND)
    assert log.msgs == 4
    disk.heal()
    house.pass_time(5 * SECOND)
    assert log.msgs == 3


def test_the_publisher_of_a_message_that_the_disk_lost_is_told() -> None:
    """The sync of a file fails, and its bytes cannot be read back: the PubAck that waits is an error."""
    disk = SimDisk()
    house = House(STORE, disk=PyDisk(disk, background=True), segment_bytes=4096)
    syncs: list[HandedSync] = []
    house.server.reactor.on_sync = syncs.append
    house.stream(subjects=["s"])
    for number in range(6):
        house.client.send(f"PUB s _I.{number} 1500\r\n{str(number) * 1500}\r\n")
        assert house.client.events() == []
    while syncs:
        syncs.pop(0).end(errno.EIO)
    path = next(
        path for path, _ in disk.root.walk() if path.endswith("/log/00000000000000000001.seg")
    )
    for at in (100, 101):
        disk.flip(path, at)
    house.pass_time(5 * SECOND)
    while syncs:
        disk.sync(syncs[0].handle)
        syncs.pop(0).end(0)
    house.pass_time(SECOND)
    answers = {event[1]: json.loads(event[5]) for event in house.client.events()}
    assert answers.pop("_I.0")["error"]["description"].startswith("message lost: ")
    assert {answer["seq"] for answer in answers.values()} == {2, 3, 4, 5, 6}


def test_what_is_written_is_acknowledged_when_the_rest_finds_no_room() -> None:
    """A large turn is written in parts. Where acks promise the page cache, a part that is there is acked."""
    disk = SimDisk()
    house = House(STORE, disk=PyDisk(disk), sync_interval_ns=120 * SECOND)
    house.stream(subjects=["s"])
    disk.room = disk.used() + 700_000
    for number in range(30):
        house.client.send(f"PUB s _I.{number} 40000\r\n{'x' * 40_000}\r\n")
    acked = [json.loads(event[5]) for event in house.client.events()]
    assert 10 < len(acked) < 30
    assert [answer["seq"] for answer in acked] == list(range(1, 1 + len(acked)))
    disk.kill()
    house = House(STORE, house.server.clock.now(), PyDisk(disk), sync_interval_ns=120 * SECOND)
    assert house.ok("STREAM.INFO.S")["state"]["messages"] >= len(acked)


def test_a_write_that_finds_no_room_leaves_nothing_behind() -> None:
    disk = SimDisk()
    house = House(STORE, disk=PyDisk(disk))
    house.stream(subjects=["s"])
    house.publish("s")
    used = disk.used()
    disk.room = used + 100
    house.send("s", b"y" * 300)
    assert disk.used() == used


def test_a_purge_makes_room_on_a_full_disk_for_its_own_record() -> None:
    disk = SimDisk()
    house = House(STORE, disk=PyDisk(disk))
    house.stream(subjects=["s"])
    house.publish("s", b"x" * 100)
    disk.room = disk.used() + 150
    house.send("s", b"y" * 300)  # accepted, and waits for room
    assert "error" in house.publish("s", b"z")
    assert house.ok("STREAM.PURGE.S")["success"]
    disk.kill()
    house = House(STORE, house.server.clock.now(), PyDisk(disk))
    state = house.ok("STREAM.INFO.S")["state"]
    assert (state["messages"], state["last_seq"]) == (0, 2)
