"""Answered calls hold after a power cut, and when the disk fails within a call."""

import errno
import json
import random
from pathlib import Path
from typing import Any

import pytest

from pelton.core.base.disk import PyDisk
from pelton.testing.simulated_disk import SimDisk
from tests.engine.house import SECOND, House
from tests.simulation.world import World

STORE = Path("store")


def shape(house: House) -> dict[str, Any]:
    """The promises to clients: streams with their configuration and messages, consumers."""
    seen: dict[str, Any] = {}
    for name in house.ok("STREAM.NAMES")["streams"] or []:
        info = house.ok(f"STREAM.INFO.{name}", {"deleted_details": True})
        seen[name] = (info["config"], info["created"], info["state"]["messages"])
        for each in house.ok(f"CONSUMER.LIST.{name}")["consumers"]:
            seen[f"{name} > {each['name']}"] = (each["config"], each["created"])
    return seen


def act(house: House, rng: random.Random) -> str:
    """Make one call of a client; return its description."""
    name = rng.choice("AB")
    call, body = rng.choice(
        [
            (f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.*"]}),
            (
                f"STREAM.UPDATE.{name}",
                {"name": name, "subjects": [f"{name}.*"], "max_msgs": rng.randint(1, 9)},
            ),
            (f"STREAM.DELETE.{name}", b""),
            (f"STREAM.PURGE.{name}", {"seq": rng.randint(1, 30)}),
            (f"STREAM.MSG.DELETE.{name}", {"seq": rng.randint(1, 10)}),
            (
                f"CONSUMER.CREATE.{name}.c",
                {
                    "stream_name": name,
                    "config": {"durable_name": "c", "max_batch": rng.randint(0, 5)},
                },
            ),
            (f"CONSUMER.DELETE.{name}.c", b""),
        ]
        + [("publish", name)] * 5
    )
    if call == "publish":
        house.request(f"{name}.x", b"payload")
    else:
        house.api(call, body)
    return f"{call} {body!r}"


@pytest.mark.parametrize("seed", range(20))
def test_what_was_answered_survives_power_loss(seed: int) -> None:
    rng = random.Random(seed)
    disk = SimDisk()
    house = House(STORE, disk=PyDisk(disk))
    for _ in range(12):
        done = [act(house, rng) for _ in range(rng.randint(1, 6))]
        if rng.random() < 0.3:
            house.pass_time(rng.randrange(SECOND))
        house.server.reactor.settle()
        before = shape(house)
        disk.crash(rng)
        house = house.crash()
        assert shape(house) == before, (seed, done)
        assert not house.alarms()


@pytest.mark.parametrize("count", range(14))
def test_a_create_that_the_disk_refuses_leaves_nothing(count: int) -> None:
    disk = SimDisk()
    house = House(STORE, disk=PyDisk(disk))
    disk.fail_after = count
    answer = house.api("STREAM.CREATE.S", {"name": "S"})
    disk.fail_after = None
    if "error" in answer:
        assert answer["error"]["err_code"] == 10049
        assert "Errno 5" in answer["error"]["description"]
        assert house.ok("STREAM.NAMES")["streams"] is None
    disk.crash()
    house = house.crash()
    names = house.ok("STREAM.NAMES")["streams"]
    assert names == (["S"] if "error" not in answer else None)
    house.stream()


def test_enough_disk_verbs_were_refused() -> None:
    disk = SimDisk()
    house = House(STORE, disk=PyDisk(disk))
    disk.fail_after = 13
    house.stream()
    assert disk.fail_after is not None


def test_updates_and_consumers_that_the_disk_refuses_change_nothing() -> None:
    disk = SimDisk()
    house = House(STORE, disk=PyDisk(disk))
    house.stream()
    house.consumer(durable_name="c")
    before = shape(house)
    disk.broken = True
    code, text = house.error("STREAM.UPDATE.S", {"name": "S", "max_msgs": 5})
    assert (code, "Input/output error" in text) == (10069, True)
    for config in ({"durable_name": "d"}, {"durable_name": "c", "description": "x"}):
        name = config["durable_name"]
        body = {"stream_name": "S", "config": config}
        code, text = house.error(f"CONSUMER.CREATE.S.{name}", body)
        assert (code, "Input/output error" in text) == (10104, True)
    disk.broken = False
    assert shape(house) == before


def test_states_that_can_not_be_written_are_told_once_and_written_later() -> None:
    disk = SimDisk()
    house = House(STORE, disk=PyDisk(disk))
    house.stream()
    house.consumer(durable_name="c", ack_policy="explicit")
    house.publish("S")
    house.pull(1)
    disk.broken = True
    house.pass_time(2 * SECOND)
    assert len(house.reports) == 1
    assert "stream S cannot write the states of its consumers" in house.reports[0]
    disk.broken = False
    house.pass_time(SECOND)
    house = house.crash()
    assert house.ok("CONSUMER.INFO.S.c")["num_ack_pending"] == 1


@pytest.mark.parametrize("retention", ["limits", "workqueue", "interest"])
@pytest.mark.parametrize("seed", range(12))
def test_confirmed_acks_survive_power_loss(seed: int, retention: str) -> None:
    rng = random.Random(seed)
    disk = SimDisk()
    house = House(STORE, disk=PyDisk(disk))
    house.stream(subjects=["s.*"], retention=retention)
    filters = (
        {"a": ["s.0", "s.1"], "b": ["s.2"]} if retention == "workqueue" else {"a": [], "b": []}
    )
    for name, subjects in filters.items():
        config = {"ack_policy": "explicit", "ack_wait": SECOND, "filter_subjects": subjects}
        house.consumer(name, durable_name=name, **config)
    stored: dict[int, str] = {}
    acked: dict[str, set[int]] = {"a": set(), "b": set()}
    confirmed: dict[str, set[int]] = {"a": set(), "b": set()}

    def pull(name: str, count: int) -> None:
        for event in house.pull(count, name):
            seq = int(event[3].split(".")[5])
            assert seq not in confirmed[name], (seed, name, seq)
            draw = rng.random()
            if draw < 0.4:
                acked[name].add(seq)
                assert house.request(event[3], rng.choice([b"+ACK", b"", b"+TERM"]))
                confirmed[name].add(seq)
            elif draw < 0.6:
                acked[name].add(seq)
                house.send(event[3], b"+ACK")
            elif draw < 0.7:
                house.send(event[3], b"-NAK")

    for _ in range(15):
        for _ in range(rng.randint(1, 25)):
            draw = rng.random()
            if draw < 0.5:
                subject = f"s.{rng.randrange(3)}"
                stored[house.publish(subject)["seq"]] = subject
            elif draw < 0.9:
                pull(rng.choice("ab"), rng.randint(1, 6))
            else:
                house.pass_time(rng.randrange(SECOND))
        if rng.random() < 0.2 and house.engine.accounts["$G"].streams["S"].journal is not None:
            journal = house.engine.accounts["$G"].streams["S"].journal
            states = house.engine.accounts["$G"].streams["S"].files
            assert states is not None
            house.pass_time(SECOND // 5)
            journal.rebase(states.states.base(journal.number))
        disk.crash(rng)
        house = house.crash()
        assert not house.alarms()
    left: dict[str, set[int]] = {"a": set(), "b": set()}
    for _ in range(12):
        house.pass_time(SECOND + 1)
        for name in "ab":
            for event in house.pull(500, name):
                seq = int(event[3].split(".")[5])
                assert seq not in confirmed[name], (seed, name, seq)
                left[name].add(seq)
                house.send(event[3], b"+ACK")
    for name, subjects in filters.items():
        due = {seq for seq, subject in stored.items() if not subjects or subject in subjects}
        assert due - acked[name] <= left[name], (seed, name)
    if retention != "limits":
        house = house.restart()
        assert house.ok("STREAM.INFO.S")["state"]["messages"] == 0


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_what_a_consumer_took_stays_gone_when_the_consumer_is_deleted(retention: str) -> None:
    disk = SimDisk()
    house = House(STORE, disk=PyDisk(disk))
    house.stream(subjects=["s.*"], retention=retention)
    house.consumer("a", durable_name="a", ack_policy="explicit")
    kept = house.publish("s.0")["seq"]
    taken = house.publish("s.1")["seq"]
    for event in house.pull(2, "a"):
        if int(event[3].split(".")[5]) == taken:
            assert house.request(event[3], b"+ACK")
    if retention == "interest":
        house.consumer("b", durable_name="b", ack_policy="explicit")
    house.ok("CONSUMER.DELETE.S.a")
    disk.crash()
    house = house.crash()
    if retention == "workqueue":
        house.consumer("b", durable_name="b", ack_policy="explicit")
    assert [int(event[3].split(".")[5]) for event in house.pull(2, "b")] == [kept]


@pytest.mark.parametrize(
    ("call", "body"),
    [("STREAM.MSG.DELETE.S", {"seq": 2, "no_erase": True}), ("STREAM.PURGE.S", {"keep": 1})],
)
def test_a_removal_is_answered_when_it_is_on_the_disk(call: str, body: dict[str, int]) -> None:
    """A failed sync promises nothing: the answer is sent when the removal is durable, not before."""
    disk = SimDisk()
    house = House(STORE, disk=PyDisk(disk))
    house.stream()
    for _ in range(3):
        house.publish("S")
    disk.fail("sync", errno.EIO, "*.seg", times=None)
    assert house.api(call, body) is None
    disk.heal()
    house.pass_time(20 * SECOND)
    answers = [json.loads(event[5]) for event in house.client.events() if event[5]]
    assert any(answer.get("success") for answer in answers), answers
    disk.crash()
    house = house.crash()
    assert house.ok("STREAM.INFO.S")["state"]["messages"] < 3


def test_a_stop_on_a_failed_disk_answers_no_removal() -> None:
    disk = SimDisk()
    house = House(STORE, disk=PyDisk(disk))
    house.stream()
    for _ in range(3):
        house.publish("S")
    disk.fail("write", errno.ENOSPC, "*.seg", times=None)
    assert house.api("STREAM.PURGE.S") is None
    house.engine.close()
    assert not [event for event in house.client.events() if b"success" in bytes(event[5])]
    disk.heal()
    disk.crash()
    assert house.crash().ok("STREAM.INFO.S")["state"]["messages"] == 3


def test_what_a_start_has_seen_of_consumers_holds_when_the_power_goes() -> None:
    """A delete that ended before its sync: this start and the next one find the consumer removed."""
    disk = SimDisk()
    house = House(STORE, disk=PyDisk(disk))
    house.stream("S", subjects=["s"])
    house.consumer("c", durable_name="c")
    house.server.reactor.settle()
    disk.fail("sync_dir", errno.EIO, "*/consumers")
    house.api("CONSUMER.DELETE.S.c")
    disk.kill()
    disk.heal()
    house = house.crash()
    assert house.ok("CONSUMER.NAMES.S")["consumers"] in (None, [])
    disk.crash()
    house = house.crash()
    assert house.ok("CONSUMER.NAMES.S")["consumers"] in (None, [])


def test_what_an_opening_removed_by_a_limit_stays_gone() -> None:
    world = World(1)
    assert not world.changes.sync_interval_ns
    link = world.links[0]
    link.api("STREAM.CREATE.S", {"name": "S", "subjects": ["S.*"], "max_msgs_per_subject": 2})
    world.settle()
    for _ in range(3):
        link.send("S.a", b"x" * 100)
    world.settle()
    log = world.account.streams["S"].core.log
    assert [log.get(seq) is None for seq in (1, 2, 3)] == [True, False, False]
    # the removal of the first file did not reach the disk
    (path,) = [name for name in world.disk.names if name.endswith(".seg")]
    node = world.disk.file(path)
    del node.data[-52:]
    node.durable[:] = node.data
    world.disk.crash()
    world.start()
    log = world.account.streams["S"].core.log
    assert [log.get(seq) is None for seq in (1, 2, 3)] == [True, False, False]
    world.links[0].api("STREAM.UPDATE.S", {"name": "S", "subjects": ["S.*"]})
    world.turn()
    world.disk.crash()
    world.start()
    assert world.account.streams["S"].config.max_msgs_per_subject == -1
    log = world.account.streams["S"].core.log
    assert [log.get(seq) is None for seq in (1, 2, 3)] == [True, False, False]


def test_what_an_opening_on_a_full_disk_removed_is_on_the_disk_when_messages_are_taken() -> None:
    world = World(1)
    assert not world.changes.sync_interval_ns
    link = world.links[0]
    link.api("STREAM.CREATE.S", {"name": "S", "subjects": ["S.*"], "max_msgs_per_subject": 2})
    world.settle()
    for _ in range(3):
        link.send("S.a", b"x" * 100)
    world.settle()
    # the removal of the first file did not reach the disk
    (path,) = [name for name in world.disk.names if name.endswith(".seg")]
    node = world.disk.file(path)
    del node.data[-52:]
    node.durable[:] = node.data
    world.disk.crash()
    world.disk.room = world.disk.used()
    world.start()
    stream = world.account.streams["S"].core
    assert [stream.log.get(seq) is None for seq in (1, 2, 3)] == [True, False, False]
    assert stream.failure
    world.disk.room = None
    while stream.failure:
        world.pass_time(SECOND)  # no background sync ends meanwhile
    world.links[0].api("STREAM.UPDATE.S", {"name": "S", "subjects": ["S.*"]})
    world.turn()
    world.disk.crash()
    world.start()
    assert world.account.streams["S"].config.max_msgs_per_subject == -1
    log = world.account.streams["S"].core.log
    assert [log.get(seq) is None for seq in (1, 2, 3)] == [True, False, False]


@pytest.mark.parametrize("seq", [0, 2])
def test_an_answered_reset_survives_a_kill(seq: int) -> None:
    disk = SimDisk()
    house = House(STORE, disk=PyDisk(disk))
    house.stream(subjects=["s"])
    for _ in range(5):
        house.publish("s")
    house.consumer(durable_name="c", ack_policy="explicit")
    messages = house.pull(5)
    for message in messages[:1] + messages[2:]:
        assert house.request(message[3], b"+ACK")
    house.pass_time(SECOND)
    assert house.ok("CONSUMER.RESET.S.c", {"seq": seq} if seq else {})["reset_seq"] == 2
    house.server.reactor.settle()
    house = house.crash()
    info = house.ok("CONSUMER.INFO.S.c")
    assert (info["ack_floor"]["stream_seq"], info["num_pending"]) == (1, 4)
