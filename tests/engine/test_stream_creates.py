"""Streams that are created in one turn wait for the disk together, and what is answered holds."""

from __future__ import annotations

import contextlib
import errno
import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pelton.api.calls import Response, StreamConfigRequest
from pelton.api.codec import decode_request
from pelton.api.errors_generated import StreamCreateError
from pelton.core.base.disk import PyDisk
from pelton.engine.account.catalog import SOURCES_STEP
from pelton.engine.base.steps import finish
from pelton.engine.calls import stream_calls
from pelton.testing.simulated_disk import PowerCut, SimDisk
from pelton.vault import Vault
from tests.engine.house import SECOND, House
from tests.ways import SEED, length

STORE = Path("store")
STREAMS = f"{STORE}/jetstream/$G/streams"
CUTS = length(60, 600)
LARGE = 200_000  # three of such messages are written before the end of the turn


class Counting(SimDisk):
    """Counts the syncs of each file and folder, and refuses calls on request."""

    def __init__(self) -> None:
        super().__init__()
        self.made: Counter[str] = Counter()
        self.refused = ""  # the end of the paths whose syncs fail

    def _fails(self, verb: str, path: str) -> int:
        if verb in ("sync", "sync_dir"):
            self.made[path] += 1
            if self.refused and path.endswith(self.refused):
                return errno.EIO
        return super()._fails(verb, path)


class Waits(PyDisk):
    """Counts how often files are written with one wait."""

    def __init__(self, target: SimDisk) -> None:
        super().__init__(target)
        self.waits = 0

    def write_groups(
        self, groups: list[tuple[list[str], bytes, str]], durable: bool = True
    ) -> list[OSError | None]:
        self.waits += bool(groups)
        return super().write_groups(groups, durable)


def ask(call: str, reply: str, body: Any = b"") -> bytes:
    """The bytes of a request."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return b"PUB $JS.API.%s _I.%s %d\r\n%s\r\n" % (call.encode(), reply.encode(), len(data), data)


def create(name: str, reply: str = "", **fields: Any) -> bytes:
    config = {"name": name, "subjects": [f"{name}.>"], **fields}
    return ask(f"STREAM.CREATE.{name}", reply or name, config)


def publish(subject: str, reply: str, payload: bytes = b"x") -> bytes:
    return b"PUB %s _I.%s %d\r\n%s\r\n" % (subject.encode(), reply.encode(), len(payload), payload)


def answers(house: House) -> dict[str, Any]:
    """The answers that have arrived, in order, by the last token of their subject."""
    found = {}
    for event in house.client.events():
        found[str(event[1]).rpartition(".")[2]] = json.loads(bytes(event[5]))  # type: ignore[call-overload] # the payload of a message
    assert not house.server.errors, house.server.errors
    return found


def names(house: House) -> list[str]:
    return list(house.ok("STREAM.NAMES")["streams"] or [])


def test_the_creates_of_a_turn_share_their_waits() -> None:
    disk = Counting()
    waits = Waits(disk)
    house = House(STORE, disk=waits)
    waits.waits = 0
    disk.made.clear()
    wanted = [f"S{number:02}" for number in range(50)]
    house.client.send(b"".join(map(create, wanted)))
    found = answers(house)
    assert list(found) == wanted
    assert not any("error" in each for each in found.values())
    assert waits.waits == 1
    assert disk.made[STREAMS] == 1
    disk.crash()
    assert names(house.crash()) == wanted


def test_changes_wait_while_more_requests_of_the_account_do() -> None:
    disk = Counting()
    house = House(STORE, disk=PyDisk(disk))
    waiting = house.account.waiting_files
    disk.made.clear()
    left = [True, True, False]
    waiting.more = lambda: left.pop(0)
    house.client.send(create("A"))
    assert list(answers(house)) == ["A"]  # once no more requests wait
    assert left == []
    waiting.more = lambda: True
    house.client.send(create("B") + ask("STREAM.INFO.B", "info"))  # nothing is told of it before
    assert list(answers(house)) == ["B", "info"]
    house.client.send(create("C"))
    house.server.reactor.turn()
    assert disk.made[f"{STREAMS}/C"] == 0
    house.engine.tick(house.server.clock.now())
    assert disk.made[f"{STREAMS}/C"] == 1


@pytest.mark.parametrize("refused", ["", "meta.json.tmp"])
def test_the_disk_may_answer_before_all_sources_are_shown(refused: str) -> None:
    disk = Counting()
    house = House(STORE, disk=PyDisk(disk))
    sources = [{"name": f"O{number}"} for number in range(2 * SOURCES_STEP)]
    request = decode_request(
        StreamConfigRequest, json.dumps({"name": "S", "sources": sources}).encode()
    )
    late: list[Response] = []
    steps = stream_calls.create(house.account, request, late.append, "S")
    while "S" not in house.account.streams:
        next(steps)
    disk.refused = refused
    house.account.waiting_files.commit()
    if refused:
        with pytest.raises(StreamCreateError):
            finish(steps)
    else:
        made = finish(steps)
        assert made is not None
        assert made.did_create
    assert late == []
    assert names(house) == ([] if refused else ["S"])


def test_a_single_create_makes_four_syncs_in_two_waits() -> None:
    disk = Counting()
    house = House(STORE, disk=PyDisk(disk))
    disk.made.clear()
    house.stream("S", subjects=["s.>"])
    folder = f"{STREAMS}/S"
    meta = f"{folder}/meta.json"
    assert disk.made == {f"{meta}.tmp": 1, f"{meta}.copy.tmp": 1, STREAMS: 1, folder: 1}


def test_what_follows_in_the_same_turn_finds_the_stream() -> None:
    house = House(STORE, disk=PyDisk(Counting()))
    consumer = {"stream_name": "A", "config": {"durable_name": "c", "ack_policy": "explicit"}}
    update = {"name": "A", "subjects": ["A.>"], "description": "new"}
    house.client.send(
        create("A")
        + publish("A.x", "first")
        + ask("CONSUMER.CREATE.A.c", "consumer", consumer)
        + create("A", "again")
        + create("A", "other", description="other")
        + create("B", "overlap", subjects=["A.x"])
        + ask("STREAM.UPDATE.A", "update", update)
        + publish("A.y", "second")
        + create("C")
        + ask("STREAM.DELETE.C", "delete")
        + ask("STREAM.INFO.C", "gone")
        + create("C", "back")
        + publish("C.x", "third")
    )
    found = answers(house)
    errors = {name: each["error"]["err_code"] for name, each in found.items() if "error" in each}
    assert errors == {"other": 10058, "overlap": 10065, "gone": 10059}
    assert [found[name]["seq"] for name in ("first", "second", "third")] == [1, 2, 1]
    assert found["update"]["config"]["description"] == "new"
    requests = [name for name in found if name not in ("first", "second", "third")]
    assert requests == [
        *("A", "consumer", "again", "other", "overlap", "update"),
        *("C", "delete", "gone", "back"),
    ]
    house = house.crash()
    assert names(house) == ["A", "C"]
    assert house.ok("STREAM.INFO.A")["state"]["messages"] == 2
    assert house.ok("CONSUMER.NAMES.A")["consumers"] == ["c"]


def test_the_answer_of_a_create_has_no_message_of_the_same_turn() -> None:
    house = House(STORE, disk=PyDisk(Counting()))
    house.client.send(create("A") + publish("A.x", "ack"))
    assert answers(house)["A"]["state"]["messages"] == 0


@pytest.mark.parametrize("refused", ["B/meta.json.tmp", "B/meta.json.copy.tmp", "streams/B"])
def test_a_create_that_the_disk_refuses_spares_the_others(refused: str) -> None:
    disk = Counting()
    house = House(STORE, disk=PyDisk(disk))
    disk.refused = refused
    house.client.send(create("A") + create("B") + publish("B.x", "ack") + create("C"))
    found = answers(house)
    disk.refused = ""
    assert found["B"]["error"]["err_code"] == 10049
    assert "error" not in found["A"]
    assert "error" not in found["C"]
    assert "ack" not in found  # the message may not be stored
    assert names(house) == ["A", "C"]
    house.stream("D", subjects=["B.x"])  # the subject is free
    assert house.publish("B.x")["stream"] == "D"
    house.pass_time(SECOND)
    disk.crash()
    house = house.crash()
    assert names(house) == ["A", "C", "D"]
    assert house.reports == []
    house.stream("B", subjects=["b"])


def test_a_folder_that_cannot_be_synced_refuses_all_creates() -> None:
    disk = Counting()
    house = House(STORE, disk=PyDisk(disk))
    house.stream("S", subjects=["S"])
    disk.refused = "/streams"
    house.client.send(create("A") + create("B"))
    found = answers(house)
    disk.refused = ""
    assert [found[name]["error"]["err_code"] for name in "AB"] == [10049, 10049]
    assert names(house) == ["S"]
    house.pass_time(SECOND)
    disk.crash()
    assert names(house.crash()) == ["S"]


def test_a_log_that_cannot_be_made_refuses_its_create() -> None:
    class Refusing(SimDisk):
        def _fails(self, verb: str, path: str) -> int:
            if verb == "open" and path.endswith(".seg") and "/B/" in path:
                return errno.EIO
            return super()._fails(verb, path)

    house = House(STORE, disk=PyDisk(Refusing()))
    house.client.send(create("A") + create("B"))
    found = answers(house)
    assert found["B"]["error"]["err_code"] == 10049
    assert names(house) == ["A"]


@pytest.mark.parametrize("refused", ["", "A/meta.json.tmp"])
def test_a_log_that_writes_in_its_first_turn_waits_for_the_create(refused: str) -> None:
    disk = Counting()
    house = House(STORE, disk=PyDisk(disk))
    disk.refused = refused
    load = b"".join(publish("A.x", f"m{n}", b"x" * LARGE) for n in range(4))
    house.client.send(create("A") + load + create("B"))
    found = answers(house)
    disk.refused = ""
    assert "error" not in found["B"]
    if refused:
        assert found["A"]["error"]["err_code"] == 10049
        assert not [each for each in found.values() if each.get("seq")]
        assert names(house) == ["B"]
        return
    assert [found[f"m{n}"]["seq"] for n in range(4)] == [1, 2, 3, 4]
    disk.crash()
    house = house.crash()
    assert house.ok("STREAM.INFO.A")["state"]["messages"] == 4


def test_a_stream_of_advisories_does_not_store_its_own_creation() -> None:
    disk = Counting()
    house = House(STORE, disk=PyDisk(disk))
    advisories = "$JS.EVENT.ADVISORY.STREAM.>"
    house.client.send("SUB _I.adv 9\r\nSUB $JS.EVENT.ADVISORY.STREAM.> 9\r\n")
    disk.refused = "/B"
    house.client.send(create("A", subjects=[advisories]) + create("B") + create("C"))
    house.client.events()
    disk.refused = ""
    stored = [
        house.ok("STREAM.MSG.GET.A", {"seq": seq})["message"]["subject"].rpartition(".")[2]
        for seq in range(1, house.ok("STREAM.INFO.A")["state"]["last_seq"] + 1)
    ]
    assert stored == ["C"]  # and none of a create that failed


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("seed", range(CUTS))
def test_what_was_answered_holds_when_the_power_goes(seed: int, encrypted: bool) -> None:
    random = Random(SEED + seed)
    disk = SimDisk(random=Random(seed))
    vault = Vault.of("k", "", "aes", random=random.randbytes) if encrypted else None
    house = House(STORE, disk=PyDisk(disk), segment_bytes=4096, vault=vault)
    acked: dict[str, int] = {}
    for turn in range(3):
        drawn = random.sample([f"S{number}" for number in range(9)], random.randint(1, 5))
        wire, made = b"", [name for name in drawn if name not in acked]
        for name in drawn:
            if name in made:
                wire += create(name, first_seq=random.choice([0, 0, 7]))
            for number in range(random.choice([0, 1, 9])):
                wire += publish(f"{name}.x", f"{name}-{number}", b"x" * random.choice([5, 900]))
        disk.cut_after(random.randrange(90))
        found: dict[str, Any] = {}
        with contextlib.suppress(PowerCut):  # a turn that was cut has sent nothing
            house.client.send(wire)
            found = answers(house)
        disk.heal()
        killed = (
            random.random() < 0.3
        )  # without a power cut: the next server finds all that was written
        disk.cut_at = None
        if not killed:
            disk.crash(random)
        for name in made:
            if name in found:
                acked[name] = 0
        for reply, answer in found.items():
            if "seq" in answer:
                acked[reply.partition("-")[0]] = answer["seq"]
        house = house.crash()
        there = names(house)
        assert set(acked) <= set(there), seed
        assert not house.account.offline, (seed, house.reports)
        for name in there:
            last = house.ok(f"STREAM.INFO.{name}")["state"]["last_seq"]
            assert last >= acked.get(name, 0), seed
            acked[name] = max(acked.get(name, 0), last)
        if random.random() < 0.5:  # what this server has found and shown stays
            disk.crash(random)
            house = house.crash()
            assert names(house) == there, seed
            assert not house.account.offline, (seed, house.reports)
        free = next(n for n in (f"X{turn}{k}" for k in range(9)) if n not in there)
        house.stream(free, subjects=[f"{free}.>"])
        acked[free] = 0
