"""Streams whose newest segment is cut after a kill: what was there is told, and not given again."""

from pathlib import Path

import pytest

from penstock.core.disk import PyDisk
from penstock.engine import floors
from tests.engine.house import SECOND, House
from tests.simulation.disk import SimDisk

STORE = Path("store")


def cut_all(disk: SimDisk, size: int) -> None:
    disk.kill()
    for path, node in disk.names.items():
        if path.endswith(".seg"):
            del node.data[size:]
            del node.durable[size:]


def busy(house: House, streams: int, messages: int) -> None:
    for number in range(streams):
        house.stream(f"S{number}", subjects=[f"s{number}"])
    for _ in range(messages):
        for number in range(streams):
            house.publish(f"s{number}")
    house.pass_time(1)  # acks mean the disk here


def test_a_stream_that_was_cut_after_a_kill_gives_no_sequence_again() -> None:
    disk = SimDisk()
    house = House(STORE, disk=PyDisk(disk))
    busy(house, 3, 10)
    house.pass_time(3 * SECOND)
    cut_all(disk, 150)
    house = House(STORE, disk=PyDisk(disk))
    for number in range(3):
        state = house.ok(f"STREAM.INFO.S{number}")["state"]
        assert state["last_seq"] == 10
        assert state["messages"] == 3
        assert state["lost"]["msgs"] == [4, 5, 6, 7, 8, 9, 10]
        assert house.publish(f"s{number}")["seq"] == 11
    assert len([line for line in house.reports if " lost: " in line]) == 3


def test_all_streams_have_their_turn_when_there_are_very_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(floors, "AT_ONCE", 2)
    disk = SimDisk()
    house = House(STORE, disk=PyDisk(disk))
    busy(house, 9, 3)
    first = house.server.clock.now()
    while not all(
        f"store/jetstream/$G/streams/S{n}/log/{1:020}.idx" in disk.names for n in range(9)
    ):
        for number in range(9):
            house.publish(f"s{number}")
        house.pass_time(SECOND // 4)
        assert house.server.clock.now() < first + 10 * SECOND


def test_a_mirror_has_none_it_gets_its_messages_again() -> None:
    disk = SimDisk()
    house = House(STORE, disk=PyDisk(disk))
    busy(house, 1, 10)
    house.stream("M", mirror={"name": "S0"})
    house.pass_time(5 * SECOND)
    assert house.ok("STREAM.INFO.M")["state"]["messages"] == 10
    disk.kill()
    for path, node in disk.names.items():
        if "/M/log/" in path and path.endswith(".seg"):
            del node.data[150:]
            del node.durable[150:]
    house = House(STORE, disk=PyDisk(disk), now_ns=house.server.clock.now())
    house.pass_time(5 * SECOND)
    state = house.ok("STREAM.INFO.M")["state"]
    assert (state["messages"], state["last_seq"]) == (10, 10)
    assert "lost" not in state
