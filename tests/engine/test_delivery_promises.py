"""What a consumer promises: room after a removal, messages that were refused, ack floors, resets, and
retention while another consumer needs a message.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pelton.core.base.disk import PyDisk
from pelton.testing.simulated_disk import SimDisk
from tests.engine.house import SECOND, House


@pytest.fixture
def house(tmp_path: Path) -> House:
    house = House(tmp_path / "store")
    house.stream(subjects=["s.>"])
    return house


def numbers(events: list[Any]) -> list[int]:
    return [int(event[5]) for event in events]


def publish(house: House, count: int, first: int = 1) -> None:
    for number in range(first, first + count):
        house.publish("s.x", b"%d" % number)


def floor(house: House) -> tuple[int, int]:
    info = house.ok("CONSUMER.INFO.S.c")["ack_floor"]
    return info["consumer_seq"], info["stream_seq"]


class Waiting:
    """A client whose pull request waits for messages."""

    def __init__(
        self, house: House, batch: int = 5, expires: int = 60 * SECOND, **more: Any
    ) -> None:
        self.client = house.server.client()
        body = json.dumps({"batch": batch, "expires": expires, **more})
        inbox = f"_T.{self.client.connection.id}"
        request = f"PUB $JS.API.CONSUMER.MSG.NEXT.S.c {inbox} {len(body)}\r\n{body}\r\n"
        self.client.send(f"SUB {inbox} 1\r\n{request}")

    def got(self) -> list[int]:
        return numbers([event for event in self.client.events() if event[3]])


@pytest.mark.parametrize("how", ["delete", "purge", "expire"])
def test_the_removal_of_an_unacknowledged_message_makes_room(house: House, how: str) -> None:
    if how == "expire":
        house.ok("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], "max_age": 10 * SECOND})
    house.consumer("c", ack_policy="explicit", max_ack_pending=1, ack_wait=600 * SECOND)
    publish(house, 1)
    assert numbers(house.pull()) == [1]
    house.pass_time(5 * SECOND)
    publish(house, 1, first=2)
    waiting = Waiting(house)
    assert waiting.got() == []
    if how == "delete":
        house.ok("STREAM.MSG.DELETE.S", {"seq": 1})
    elif how == "purge":
        house.ok("STREAM.PURGE.S", {"seq": 2})
    else:
        house.pass_time(6 * SECOND)
    assert waiting.got() == [2]


def test_a_purge_of_a_subject_takes_its_messages_from_the_unacknowledged(house: House) -> None:
    house.consumer("c", ack_policy="explicit", ack_wait=600 * SECOND)
    for subject in ("s.x", "s.y", "s.x"):
        house.publish(subject, b"1")
    assert len(house.pull(3)) == 3
    house.ok("STREAM.PURGE.S", {"filter": "s.y"})
    assert house.ok("CONSUMER.INFO.S.c")["num_ack_pending"] == 2
    house.ok("STREAM.PURGE.S", {"filter": "s.x"})
    info = house.ok("CONSUMER.INFO.S.c")
    assert (info["num_ack_pending"], floor(house)) == (0, (3, 3))


def test_an_answer_to_a_delivery_that_is_settled_counts_no_more(house: House) -> None:
    """An ack of a redelivery, whose number is higher, settles all deliveries before it."""
    house.consumer("c", ack_policy="all", ack_wait=600 * SECOND)
    publish(house, 3)
    first, second, third = house.pull(3)
    house.send(first[3], b"-NAK")
    (again,) = house.pull()
    house.send(again[3], b"+ACK")
    assert floor(house) == (4, 1)
    house.send(third[3], b"+ACK")
    house.send(second[3], b"-NAK")
    assert house.pull() == []
    assert floor(house) == (4, 1)
    assert house.ok("CONSUMER.INFO.S.c")["num_ack_pending"] == 2


def test_a_request_that_is_over_gets_no_message(house: House) -> None:
    """Also before the consumer's timer has ended the request."""
    house.consumer("c", ack_policy="explicit", ack_wait=600 * SECOND)
    waiting = Waiting(house, expires=SECOND)
    house.server.clock.advance(SECOND)
    house.server.reactor.turn()
    publish(house, 1)
    (answer,) = waiting.client.events()
    assert answer[4].startswith(b"NATS/1.0 408 Request Timeout\r\n")
    (event,) = house.pull()
    assert event[3].startswith("$JS.ACK.S.c.1.1.1.")


def test_requests_of_the_pinned_client_keep_its_pin(house: House) -> None:
    """The pin lasts as long from each request that names it."""
    house.consumer(
        "c",
        ack_policy="explicit",
        priority_policy="pinned_client",
        priority_groups=["g"],
        priority_timeout=10 * SECOND,
    )
    publish(house, 1)
    (event,) = Waiting(house, 1, group="g").client.events()
    pin = event[4].split(b"Nats-Pin-Id: ")[1].split(b"\r\n")[0].decode()
    house.pass_time(6 * SECOND)
    pinned = Waiting(house, 1, group="g", id=pin)
    other = Waiting(house, 1, group="g")
    house.pass_time(6 * SECOND)
    publish(house, 1, first=2)
    assert (pinned.got(), other.got()) == ([2], [])
    house.pass_time(10 * SECOND)
    publish(house, 1, first=3)
    assert other.got() == [3]


def test_an_overflow_request_is_served_from_its_number_on(house: House) -> None:
    house.consumer(
        "c",
        ack_policy="explicit",
        priority_policy="overflow",
        priority_groups=["g"],
        ack_wait=600 * SECOND,
    )
    publish(house, 1)
    assert Waiting(house, 1, group="g").got() == [1]
    unacknowledged = Waiting(house, 1, group="g", min_ack_pending=2)
    ahead = Waiting(house, 1, group="g", min_pending=2)
    publish(house, 1, first=2)
    assert (unacknowledged.got(), ahead.got()) == ([], [])
    assert Waiting(house, 1, group="g").got() == [2]
    publish(house, 1, first=3)
    assert (unacknowledged.got(), ahead.got()) == ([3], [])
    publish(house, 2, first=4)
    assert ahead.got() == [4]


def test_flow_control_that_is_the_ack_is_asked_for_at_max_ack_pending(house: House) -> None:
    """The messages are too few to fill the window, and the next heartbeat is far away."""
    house.consumer(
        "c",
        deliver_subject="_I.push",
        ack_policy="flow_control",
        flow_control=True,
        idle_heartbeat=SECOND,
        max_ack_pending=3,
    )
    for number in range(5):
        house.client.send(f"PUB s.x 1\r\n{number}\r\n")
    events: list[Any] = house.client.events()
    assert [event[5] for event in events[:-1]] == [b"0", b"1", b"2"]
    request = events[-1]
    assert request[4].startswith(b"NATS/1.0 100 FlowControl Request")
    block = b"NATS/1.0\r\nNats-Last-Consumer: 3\r\nNats-Last-Stream: 3\r\n\r\n"
    head = f"HPUB {request[3]} {len(block)} {len(block)}\r\n".encode()
    house.client.send(head + block + b"\r\n")
    later: list[Any] = house.client.events()
    assert [event[5] for event in later] == [b"3", b"4"]
    assert house.ok("CONSUMER.INFO.S.c")["num_ack_pending"] == 2


@pytest.mark.parametrize("purged", [False, True])
def test_a_flow_control_answer_acknowledges_no_more_than_was_delivered(
    house: House, *, purged: bool
) -> None:
    house.consumer(
        "c",
        deliver_subject="_I.push",
        ack_policy="flow_control",
        flow_control=True,
        idle_heartbeat=SECOND,
        max_ack_pending=1,
    )
    house.client.send("PUB s.x 1\r\nm\r\n")
    request = house.client.events()[-1]
    if purged:
        house.ok("STREAM.PURGE.S")
    block = b"NATS/1.0\r\nNats-Last-Consumer: 90\r\nNats-Last-Stream: 90\r\n\r\n"
    head = f"HPUB {request[3]} {len(block)} {len(block)}\r\n".encode()
    house.client.send(head + block + b"\r\n")
    assert floor(house) == (1, 1)


def test_new_filters_take_messages_that_the_old_ones_passed_over(house: House) -> None:
    """Those behind the last delivered message."""
    wide = {"ack_policy": "explicit", "ack_wait": 600 * SECOND}
    house.consumer("c", filter_subject="s.a", **wide)
    for number, subject in enumerate(("s.b", "s.a", "s.b", "s.c", "s.b")):
        house.publish(subject, b"%d" % number)
    assert numbers(house.pull(9)) == [1]
    assert house.ok("CONSUMER.INFO.S.c")["num_pending"] == 0
    house.consumer("c", filter_subject="s.b", **wide)
    assert house.ok("CONSUMER.INFO.S.c")["num_pending"] == 2
    assert numbers(house.pull(9)) == [2, 4]


def test_an_ack_with_the_name_of_another_account_is_not_ours(house: House) -> None:
    """Ack subjects may name domain and account: another server's acks pass here on leaf nodes."""
    house.consumer("c", ack_policy="explicit", ack_wait=600 * SECOND)
    publish(house, 2)
    assert len(house.pull(2)) == 2
    assert house.account.api_subjects is not None
    domain, account, _ = house.account.api_subjects.owner.decode().split(".")
    left = []
    for place in (f"{domain}.{account[::-1]}", f"other.{account}", f"{domain}.{account}"):
        house.send(f"$JS.ACK.{place}.S.c.1.1.1.0.0")
        left.append(house.ok("CONSUMER.INFO.S.c")["num_ack_pending"])
    assert left == [2, 2, 1]


def test_a_replay_keeps_its_pace_when_the_consumer_is_changed(house: House) -> None:
    for number in range(2):
        house.publish("s.x", b"%d" % number)
        house.server.clock.advance(10 * SECOND)
        house.server.reactor.turn()
    config = {"ack_policy": "explicit", "replay_policy": "original", "ack_wait": 600 * SECOND}
    house.consumer("c", **config)
    waiting = Waiting(house)
    assert waiting.got() == [0]
    house.consumer("c", description="changed", **config)
    house.pass_time(9 * SECOND)
    assert waiting.got() == []
    house.pass_time(2 * SECOND)
    assert waiting.got() == [1]


def test_a_message_that_reached_max_deliver_makes_room(house: House) -> None:
    house.consumer("c", ack_policy="explicit", max_ack_pending=1, max_deliver=1, ack_wait=SECOND)
    publish(house, 2)
    assert numbers(house.pull()) == [1]
    waiting = Waiting(house)
    assert waiting.got() == []
    house.pass_time(2 * SECOND)
    assert waiting.got() == [2]


def test_a_refused_message_comes_again_although_its_work_goes_on(house: House) -> None:
    """+WPI behind -NAK does not take the message out of the queue of redeliveries."""
    house.consumer("c", ack_policy="explicit", ack_wait=600 * SECOND)
    publish(house, 1)
    (event,) = house.pull()
    house.send(event[3], b"-NAK")
    house.send(event[3], b"+WPI")
    assert numbers(house.pull()) == [1]


def test_the_ack_floor_stays_at_a_message_that_was_given_up(house: House) -> None:
    house.consumer("c", ack_policy="explicit", max_deliver=1, ack_wait=10 * SECOND)
    publish(house, 4)
    first, second = house.pull(2)
    house.send(first[3], b"+ACK")
    assert floor(house) == (1, 1)
    house.pass_time(5 * SECOND)
    third, fourth = house.pull(2)
    house.pass_time(6 * SECOND)  # the second message is over
    assert house.ok("CONSUMER.INFO.S.c")["num_ack_pending"] == 2
    assert floor(house) == (1, 1)
    house.send(third[3], b"+ACK")
    assert floor(house) == (1, 1)
    house.send(fourth[3], b"+ACK")
    assert floor(house) == (4, 4)  # nothing is unacknowledged any more
    house.send(second[3], b"+ACK")
    assert floor(house) == (4, 4)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_message_stays_until_all_that_take_it_have_acknowledged_it(
    tmp_path: Path, order: tuple[int, int]
) -> None:
    house = House(tmp_path / "store")
    house.stream(subjects=["s.>"], retention="interest")
    for number, subjects in enumerate((["s.x", "s.y"], ["s.x", "s.z"])):
        house.consumer(f"c{number}", ack_policy="explicit", filter_subjects=subjects)
    house.consumer("other", ack_policy="explicit", filter_subject="s.other")
    publish(house, 1)
    events = [house.pull(1, f"c{number}")[0] for number in (0, 1)]
    house.send(events[order[0]][3], b"+ACK")
    assert house.ok("STREAM.INFO.S")["state"]["messages"] == 1
    house.send(events[order[1]][3], b"+ACK")
    assert house.ok("STREAM.INFO.S")["state"]["messages"] == 0


def test_confirmed_acks_behind_a_reset(tmp_path: Path) -> None:
    """The ack journal has the deliveries after the reset, not those of the same numbers before it."""
    disk = SimDisk()
    house = House(Path("store"), disk=PyDisk(disk))
    house.stream(subjects=["s.>"])
    house.consumer("c", durable_name="c", ack_policy="explicit", ack_wait=SECOND)
    publish(house, 6)
    for event in house.pull(3):
        assert house.request(event[3], b"+ACK")
    house.ok("CONSUMER.RESET.S.c", {"seq": 1})
    events = house.pull(5)
    assert numbers(events) == [1, 2, 3, 4, 5]
    assert house.request(events[4][3], b"+ACK")
    disk.kill()
    house = House(Path("store"), house.server.clock.now() + 2 * SECOND, PyDisk(disk))
    house.pass_time(SECOND)
    assert numbers(house.pull(9)) == [1, 2, 3, 4, 6]
