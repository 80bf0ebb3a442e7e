"""Consumers that are created and deleted in one turn wait for the disk together, and what is answered holds."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pelton.core.base.disk import PyDisk
from pelton.engine.files.waiting_files import CHANGES_MAX
from pelton.testing.simulated_disk import PowerCut, SimDisk
from tests.engine.house import House
from tests.ways import SEED, length

STORE = Path("store")
CUTS = length(25, 400)


class Counting(SimDisk):
    """Counts the syncs of folders, and refuses calls on request."""

    def __init__(self) -> None:
        super().__init__()
        self.folders: list[str] = []
        self.refused = ""  # what is in the paths of the calls that fail

    def sync_dir(self, path: str) -> None:
        self.folders.append(path)
        super().sync_dir(path)

    def _fails(self, verb: str, path: str) -> int:
        if self.refused and self.refused in path and verb in ("sync", "sync_dir"):
            return errno.EIO
        return super()._fails(verb, path)


def ask(call: str, reply: str, body: Any = b"") -> bytes:
    """The bytes of a request."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return b"PUB $JS.API.%s %s %d\r\n%s\r\n" % (call.encode(), reply.encode(), len(data), data)


def create(name: str, **fields: Any) -> bytes:
    body = {"stream_name": "S", "config": {"durable_name": name, **fields}}
    return ask(f"CONSUMER.CREATE.S.{name}", f"_I.{name}", body)


def delete(name: str) -> bytes:
    return ask(f"CONSUMER.DELETE.S.{name}", f"_I.{name}")


def answers(house: House) -> dict[str, Any]:
    """The answers that have arrived, by the last token of their subject."""
    found = {}
    for event in house.client.events():
        found[str(event[1]).rpartition(".")[2]] = json.loads(bytes(event[5]))  # type: ignore[call-overload] # the payload of a message
    return found


def names(house: House) -> set[str]:
    return set(house.ok("CONSUMER.NAMES.S")["consumers"] or [])


def test_the_creates_of_a_turn_sync_their_folder_once() -> None:
    disk = Counting()
    house = House(STORE, disk=PyDisk(disk))
    house.stream()
    disk.folders.clear()
    wanted = [f"c{number}" for number in range(CHANGES_MAX)]
    house.client.send(b"".join(map(create, wanted)))
    assert disk.folders == []
    assert [each.get("error") for each in answers(house).values()] == [None] * CHANGES_MAX
    assert len(disk.folders) == 1
    house.client.send(b"".join(map(delete, wanted)))
    assert all(each["success"] for each in answers(house).values())
    assert len(disk.folders) == 2
    assert names(house) == set()


def test_more_than_a_group_goes_in_several() -> None:
    disk = Counting()
    house = House(STORE, disk=PyDisk(disk))
    house.stream()
    disk.folders.clear()
    house.client.send(b"".join(create(f"c{number}") for number in range(CHANGES_MAX + 1)))
    assert len(answers(house)) == CHANGES_MAX + 1
    assert len(disk.folders) == 2


def test_another_request_is_answered_behind_the_creates_before_it() -> None:
    disk = Counting()
    house = House(STORE, disk=PyDisk(disk))
    house.stream()
    disk.folders.clear()
    house.client.send(create("a") + ask("CONSUMER.INFO.S.a", "_I.info") + create("b"))
    assert len(disk.folders) == 1  # what is shown is on the disk
    found = answers(house)
    assert list(found) == ["a", "info", "b"]
    assert found["info"]["name"] == "a"


def test_the_same_names_again_in_one_turn() -> None:
    house = House(STORE, disk=PyDisk(Counting()))
    house.stream()
    house.client.send(create("a") + create("a") + delete("a") + create("a") + create("b"))
    found = answers(house)
    assert [each.get("error") for each in found.values()] == [None, None]
    assert names(house) == {"a", "b"}
    house = house.crash()
    assert names(house) == {"a", "b"}
    house.client.send(create("c") + create("c", description="x") + delete("c") + delete("c"))
    assert (
        answers(house)["c"]["error"]["err_code"] == 10014
    )  # the last answer is the last request's
    assert names(house.crash()) == {"a", "b"}


def test_a_create_that_the_disk_refuses_spares_the_others() -> None:
    disk = Counting()
    house = House(STORE, disk=PyDisk(disk))
    house.stream()
    disk.refused = "/b.json"
    house.client.send(create("a") + create("b") + create("c"))
    found = answers(house)
    disk.refused = ""
    assert found["b"]["error"]["err_code"] == 10104
    assert "error" not in found["a"]
    assert "error" not in found["c"]
    assert names(house) == {"a", "c"}
    disk.crash()
    assert names(house.crash()) == {"a", "c"}


def test_a_folder_that_cannot_be_synced_refuses_all_of_its_creates() -> None:
    disk = Counting()
    house = House(STORE, disk=PyDisk(disk))
    house.stream(retention="interest", subjects=["s"])
    disk.refused = "/consumers"
    house.client.send(create("a") + create("b") + b"PUB s 1\r\nx\r\n")
    found = answers(house)
    disk.refused = ""
    assert [found[name]["error"]["err_code"] for name in "ab"] == [10104, 10104]
    assert names(house) == set()
    assert house.ok("STREAM.INFO.S")["state"]["messages"] == 0  # nobody needs it
    house.pass_time(3_000_000_000)  # what may be on the disk is removed
    assert names(house.crash()) == set()


@pytest.mark.parametrize("seed", range(CUTS))
def test_what_was_answered_holds_when_the_power_goes(seed: int) -> None:
    random = Random(SEED + seed)
    disk = SimDisk()
    house = House(STORE, disk=PyDisk(disk))
    house.stream()
    known: set[str] = set()
    unsure: set[str] = set()
    for _ in range(4):
        drawn = random.sample([f"c{number}" for number in range(12)], random.randint(1, 8))
        disk.cut_after(random.randrange(120))
        try:
            house.client.send(b"".join(delete(c) if c in known else create(c) for c in drawn))
            found = answers(house)
        except PowerCut:
            # a turn that was cut has sent nothing
            found = {}
        for name in drawn:
            if name not in found:
                unsure.add(name)
            elif "error" not in found[name]:
                known ^= {name}
        disk.heal()
        disk.crash(random)
        house = house.crash()
        assert names(house) - unsure == known - unsure, seed
        known, unsure = names(house), set()
        assert not [line for line in house.reports if "offline" in line], house.reports
