"""A store that was closed cleanly is opened without syncs, and every other one with them."""

from __future__ import annotations

import errno
import random
from pathlib import Path
from typing import Any

import pytest

from pelton.core.base.disk import PyDisk
from pelton.testing.simulated_disk import SimDisk
from tests.engine.house import SECOND, House
from tests.engine.test_power import act, shape
from tests.ways import SEED, length

STORE = Path("store")
MARK = "store/jetstream/$G/closed"


def filled(disk: SimDisk, streams: int) -> House:
    house = House(STORE, disk=PyDisk(disk))
    for number in range(streams):
        name = f"S{number}"
        house.stream(name, subjects=[f"{name}.*"])
        house.consumer("c", name, ack_policy="explicit")
        house.publish(f"{name}.x")
        assert len(house.pull(1, "c", name)) == 1
    return house


def states(house: House) -> dict[str, Any]:
    """What clients can see: streams, messages, consumers and their positions."""
    seen = shape(house)
    for name in house.ok("STREAM.NAMES")["streams"] or []:
        seen[f"{name} state"] = house.ok(f"STREAM.INFO.{name}")["state"]
        for each in house.ok(f"CONSUMER.LIST.{name}")["consumers"]:
            at = (each["delivered"], each["ack_floor"], each["num_ack_pending"])
            seen[f"{name} > {each['name']} at"] = [str(part) for part in at]
    return seen


@pytest.mark.parametrize("publish", [False, True])
def test_the_syncs_of_an_opening_do_not_grow_with_the_streams(publish: bool) -> None:
    found = []
    for streams in (2, 9):
        disk = SimDisk()
        house = filled(disk, streams).restart()
        if publish:
            house.publish("S1.x")
            house = house.restart()
        before, calls = disk.syncs, states(house)
        house = house.restart()
        found.append(disk.syncs - before)
        assert states(house) == calls
        assert not house.alarms()
    assert found[0] == found[1]
    assert found[0] <= 6


def test_the_mark_is_gone_while_a_server_runs() -> None:
    disk = SimDisk()
    house = filled(disk, 1)
    assert not disk.exists(MARK)
    house = house.restart()
    assert not disk.exists(MARK)
    house = house.crash()
    assert not disk.exists(MARK)
    house.engine.close()
    assert disk.exists(MARK)


def test_an_opening_after_a_kill_syncs_each_log() -> None:
    disk = SimDisk()
    house = filled(disk, 4).restart().crash()
    before = states(house)
    disk.crash(random.Random(1))
    assert states(house.crash()) == before


def test_a_mark_that_cannot_be_removed_counts_as_none() -> None:
    disk = SimDisk()
    house = filled(disk, 2)
    house.engine.close()
    assert disk.exists(MARK)
    disk.fail("unlink", errno.EIO, "*/closed", times=2)
    before = disk.syncs
    house = house.crash()
    assert disk.syncs - before >= 4
    house.pass_time(90 * SECOND)
    assert not disk.exists(MARK)


def test_a_stream_that_is_not_sound_leaves_no_mark() -> None:
    disk = SimDisk()
    house = filled(disk, 2)
    disk.fail("sync", errno.EIO, "*/S1/log/*", times=None)
    disk.fail("open", errno.EIO, "*/S1/log/*", times=None)
    house.send("S1.x")
    house.engine.close()
    assert not disk.exists(MARK)


@pytest.mark.parametrize("number", range(length(10, 200)))
def test_a_restart_shows_only_what_a_power_cut_leaves(number: int) -> None:
    rng = random.Random(SEED * 1000 + number)
    disk = SimDisk()
    house = House(STORE, disk=PyDisk(disk))
    for _ in range(12):
        done = [act(house, rng) for _ in range(rng.randint(1, 6))]
        if rng.random() < 0.3:
            house.pass_time(rng.randrange(SECOND))
        house.server.reactor.settle()
        clean = rng.random() < 0.7
        house = house.restart() if clean else house.crash()
        before = states(house)
        if rng.random() < 0.5:
            disk.crash(rng)
            house = house.crash()
            assert states(house) == before, (number, clean, done)
        assert not house.alarms()
