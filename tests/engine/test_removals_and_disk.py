"""Removals and acks while a sync runs, while the disk cannot be read, and while it is full."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pelton.core.base.disk import PyDisk
from pelton.engine.lifecycles import streams
from pelton.testing.simulated_disk import SimDisk
from tests.engine.house import SECOND, House

if TYPE_CHECKING:
    from pelton.core.broker.reactor import HandedSync

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


@pytest.mark.parametrize("batched", [False, True])
def test_the_publisher_of_a_message_that_the_disk_lost_is_told(*, batched: bool) -> None:
    """The sync of a file fails, and its bytes cannot be read back: the PubAck that waits is an error."""
    disk = SimDisk()
    house = House(STORE, disk=PyDisk(disk, background=True), segment_bytes=4096)
    syncs: list[HandedSync] = []
    house.server.reactor.on_sync = syncs.append
    house.stream(subjects=["s"], allow_atomic=True)
    lines = ["Nats-Batch-Sequence: 1\r\n", "Nats-Batch-Sequence: 2\r\nNats-Batch-Commit: 1\r\n"]
    heads = [f"NATS/1.0\r\nNats-Batch-Id: b\r\n{line}\r\n" for line in lines] if batched else []
    for number, head in enumerate((heads + [""] * 6)[:6]):
        sizes = f"{len(head)} {len(head) + 1500}" if head else "1500"
        body = head + str(number) * 1500
        house.client.send(f"{'HPUB' if head else 'PUB'} s _I.{number} {sizes}\r\n{body}\r\n")
        # the first message of a batch has an empty answer
        assert [event[5] for event in house.client.events()] == [b""] * ([head] == heads[:1])
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
    told = answers.pop("_I.1" if batched else "_I.0")
    assert told["error"]["description"].startswith("message lost: ")
    assert {answer["seq"] for answer in answers.values()} == set(range(3 if batched else 2, 7))


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


@pytest.mark.parametrize("follower", [{"mirror": {"name": "O"}}, {"sources": [{"name": "O"}]}])
def test_a_message_that_the_origin_cannot_read_is_copied_later(follower: dict[str, Any]) -> None:
    disk = SimDisk()
    house = House(STORE, disk=PyDisk(disk), segment_bytes=4096)
    house.stream("O", subjects=["s"])
    for number in range(6):
        house.publish("s", str(number).encode() * 3000)
    house = house.restart()
    disk.fail("read", errno.EIO, "*.seg", times=None)
    house.stream("F", **follower)
    house.pass_time(SECOND)
    log = house.account.streams["F"].core.log
    assert log.msgs < 6
    disk.heal()
    house.pass_time(5 * SECOND)
    payloads = [log.get(seq).payload[:1] for seq in range(1, 7)]
    assert payloads == [b"0", b"1", b"2", b"3", b"4", b"5"]


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


class KeepsB(SimDisk):
    """Refuses to move the folder of one stream."""

    def rename(self, source: str, target: str) -> None:
        if source.endswith("/B"):
            raise OSError(errno.EPERM, "Operation not permitted", source)
        super().rename(source, target)


def test_the_streams_behind_one_that_can_not_be_removed_are() -> None:
    house = House(Path("/store"), disk=PyDisk(KeepsB()))
    for name in "ABC":
        house.stream(name, subjects=[name.lower()])
        house.publish(name.lower())
    assert [problem[:3] for problem in streams.delete_all(house.account)] == ["B: "]
    assert house.ok("STREAM.NAMES")["streams"] == ["B"]
    assert house.publish("b")["seq"] == 2
