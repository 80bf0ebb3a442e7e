"""Deletes that the disk has refused in part are finished by the server, or by the next one."""

import errno
import itertools
import random
from pathlib import Path

import pytest

from pelton.core.base.disk import PyDisk
from pelton.testing.simulated_disk import SimDisk
from tests.engine.house import SECOND, House

STORE = Path("store")
STREAMS = "store/jetstream/$G/streams"
DELETED = "store/jetstream/$G/deleted"


def names(house: House) -> list[str]:
    return house.ok("STREAM.NAMES")["streams"] or []


def refused(house: House, disk: SimDisk, *streams: str) -> None:
    """Delete streams on a disk that does not sync the renames."""
    disk.fail("sync_dir", errno.EIO, STREAMS, times=None)
    for stream in streams:
        assert house.error(f"STREAM.DELETE.{stream}")[0] == 10050
    assert not set(streams) & set(names(house))


def test_power_does_not_bring_back_what_the_next_server_has_finished() -> None:
    disk = SimDisk()
    house = House(STORE, disk=PyDisk(disk))
    house.stream("G")
    house.publish("G")
    refused(house, disk, "G")
    disk.kill()
    disk.fail("sync_dir", errno.EIO, STREAMS, times=None)  # the disk refuses at the next start too
    house = house.crash()
    assert names(house) == []
    disk.heal()
    house.pass_time(6 * SECOND)
    assert disk.counts["power cuts"] == 0
    assert PyDisk(disk).list_dir(DELETED) == []
    disk.crash()
    assert names(house.crash()) == []


def test_a_folder_that_stays_does_not_keep_the_others() -> None:
    disk = SimDisk()
    house = House(STORE, disk=PyDisk(disk))
    for name in "ABC":
        house.stream(name)
    refused(house, disk, "A", "B", "C")
    disk.heal()
    disk.fail("remove_tree", errno.EACCES, "*.A", times=None)
    house.pass_time(12 * SECOND)
    assert [name.rpartition(".")[2] for name in PyDisk(disk).list_dir(DELETED)] == ["A"]
    disk.heal()
    house.pass_time(6 * SECOND)
    assert PyDisk(disk).list_dir(DELETED) == []


@pytest.mark.parametrize("again", [False, True], ids=["", "made again"])
def test_many_are_removed_some_at_a_time(again: bool) -> None:
    disk = SimDisk()
    house = House(STORE, disk=PyDisk(disk))
    many = [f"S{number}" for number in range(40)]
    for name in many:
        house.stream(name)
        house.publish(name, b"old")
    refused(house, disk, *many)
    disk.heal()
    for name in many[::2] if again else ():
        house.stream(name)
        assert house.publish(name, b"new")["seq"] == 1
    seen = [len(PyDisk(disk).list_dir(DELETED))]
    for _ in range(140):
        house.pass_time(SECOND // 20)
        seen.append(len(PyDisk(disk).list_dir(DELETED)))
    assert seen[0] == 40
    assert seen[-1] == 0
    steps = [before - after for before, after in itertools.pairwise(seen)]
    assert max(steps) <= 8
    house.server.reactor.settle()
    disk.crash(random.Random(7))
    house = house.crash()
    assert names(house) == (sorted(many[::2]) if again else [])
    for name in names(house):
        assert house.ok(f"STREAM.INFO.{name}")["state"]["last_seq"] <= 1


def test_the_engine_asks_to_be_called_for_the_last_one() -> None:
    disk = SimDisk()
    house = House(STORE, disk=PyDisk(disk))
    house.stream("G")
    house.pass_time(SECOND)
    refused(house, disk, "G")
    assert house.engine.next_deadline_ns() > 0
    disk.heal()
    house.pass_time(6 * SECOND)
    assert house.engine.next_deadline_ns() == 0


def test_consumers_that_may_be_on_the_disk_are_removed_some_at_a_time() -> None:
    disk = SimDisk()
    house = House(STORE, disk=PyDisk(disk))
    house.stream()
    disk.fail("sync_dir", errno.EIO, "*/consumers", times=None)
    for number in range(100):
        config = {"durable_name": f"c{number}"}
        body = {"stream_name": "S", "config": config}
        assert house.error(f"CONSUMER.CREATE.S.c{number}", body)[0] == 10104
    entry = house.account.streams["S"]
    assert len(entry.rewrites) == 100
    disk.heal()
    house.consumer("c7", durable_name="c7")  # the consumer exists after all
    seen = [len(entry.rewrites)]
    for _ in range(200):
        house.pass_time(SECOND // 20)
        seen.append(len(entry.rewrites))
    assert seen[-1] == 0
    assert max(before - after for before, after in itertools.pairwise(seen)) <= 32
    disk.crash()
    house = house.crash()
    assert house.ok("CONSUMER.NAMES.S")["consumers"] == ["c7"]
