"""The reserve of a full disk: all that removes data is done and answered, and makes room; all that adds
data is refused until the reserve is whole again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pelton.core.base.disk import PyDisk
from pelton.engine.lifecycles import streams
from pelton.testing.simulated_disk import SimDisk
from tests.engine.house import SECOND, House

STORE = Path("store")
RESERVE = 100_000  # more than half of the messages
COUNT = 60
NO_ROOM = "No space left on device"


class Full:
    """A house with a stream S of messages of 3 KB, on a disk that is full."""

    def __init__(self, **fields: Any) -> None:
        self.disk = SimDisk()
        self.house = House(
            STORE, disk=PyDisk(self.disk), reserve_bytes=RESERVE, segment_bytes=1 << 20
        )
        # what the stream is, apart from the limits of the test
        self.config = {"name": "S", "subjects": ["s.*"], "allow_rollup_hdrs": True, **fields}
        self.house.ok("STREAM.CREATE.S", self.config)
        self.house.consumer(ack_policy="explicit", max_ack_pending=1000)
        self.house.stream("T", subjects=["t"])
        for number in range(COUNT):
            self.house.publish(f"s.{number % 3}", b"x" * 3000)
        self.house.pass_time(SECOND)
        assert self.disk.exists("store/reserve")
        self.disk.room = self.disk.used() + 10
        # the publish that meets the full disk is stored in the reserve, and answered
        assert self.house.publish("s.0", b"y" * 3000)["seq"] == COUNT + 1
        self.refused()

    def refused(self) -> None:
        """Publishes, creates and growth are refused, and answered."""
        for _ in range(3):
            answer = self.house.publish("s.0", b"z" * 3000)
            assert answer["error"]["err_code"] == 10077
            assert answer["error"]["description"] == NO_ROOM
            assert self.house.publish("t")["error"]["description"] == NO_ROOM
        assert NO_ROOM in self.house.error("STREAM.CREATE.N", {"name": "N"})[1]
        body = {"stream_name": "T", "config": {"name": "n", "ack_policy": "explicit"}}
        assert self.house.error("CONSUMER.CREATE.T.n", body)[0] == 10104

    def messages(self) -> int:
        return int(self.house.ok("STREAM.INFO.S")["state"]["messages"])

    def removed(self, left: int, more: int = 1) -> None:
        """Only `left` messages are there, and there is room again; a crash brings no other message back.
        `more`: how many there are more of after another one is published.
        """
        assert self.messages() == left
        self.house.pass_time(3 * SECOND)
        assert self.house.publish("t", b"again" * 1000)["seq"] == 1
        assert self.house.publish("s.1", b"again")["seq"] == COUNT + 2
        assert self.disk.exists("store/reserve")
        self.disk.crash()
        self.house = House(STORE, self.house.server.clock.now(), PyDisk(self.disk))
        assert self.messages() == left + more


@pytest.mark.parametrize("keep", [0, 1, 10])
def test_a_purge_makes_room(keep: int) -> None:
    full = Full()
    assert full.house.ok("STREAM.PURGE.S", {"keep": keep} if keep else {})["success"]
    full.removed(keep)


def test_a_purge_of_a_subject_makes_room() -> None:
    full = Full()
    for subject in ("s.0", "s.1"):
        assert full.house.ok("STREAM.PURGE.S", {"filter": subject})["success"]
    full.removed(COUNT // 3)


@pytest.mark.parametrize(
    ("limit", "more"),
    [({"max_msgs": 10}, 0), ({"max_bytes": 31_000}, 1), ({"max_msgs_per_subject": 3}, 0)],
)
def test_a_lowered_limit_makes_room(limit: dict[str, int], more: int) -> None:
    full = Full()
    full.house.ok("STREAM.UPDATE.S", {**full.config, **limit})
    assert full.messages() <= 10
    full.removed(full.messages(), more)


def test_expired_messages_make_room() -> None:
    full = Full()
    full.house.ok("STREAM.UPDATE.S", {**full.config, "max_age": SECOND, "duplicate_window": SECOND})
    full.house.pass_time(2 * SECOND)
    full.removed(0)


def test_deleted_messages_make_room() -> None:
    full = Full()
    for seq in range(1, COUNT):
        assert full.house.ok("STREAM.MSG.DELETE.S", {"seq": seq, "no_erase": seq % 2 == 0})[
            "success"
        ]
    full.removed(2)


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_acknowledged_messages_make_room(retention: str) -> None:
    full = Full(retention=retention)
    for event in full.house.pull(COUNT):
        assert full.house.request(event[3], b"+ACK")
    full.removed(1)


def test_a_stream_is_deleted() -> None:
    full = Full()
    assert full.house.ok("STREAM.DELETE.S")["success"]
    full.house.pass_time(SECOND)
    assert full.house.publish("t")["seq"] == 1


def test_an_account_is_purged() -> None:
    full = Full()
    # as the system account's ACCOUNT.PURGE does
    assert streams.delete_all(full.house.account) == []
    full.house.pass_time(3 * SECOND)
    assert not full.house.ok("STREAM.NAMES")["streams"]
    full.house.stream("T", subjects=["t"])
    assert full.house.publish("t", b"again" * 1000)["seq"] == 1
    full.disk.crash()
    after = House(STORE, full.house.server.clock.now(), PyDisk(full.disk))
    assert after.ok("STREAM.NAMES")["streams"] == ["T"]


def test_a_consumer_is_deleted() -> None:
    full = Full()
    assert full.house.ok("CONSUMER.DELETE.S.c")["success"]
    full.refused()


def test_sources_are_removed_with_their_position() -> None:
    """The position is in a file that is written before the removal."""
    full = Full()
    house, disk = full.house, full.disk
    disk.room = None
    house.pass_time(SECOND)
    house.stream("F", subjects=["f"], sources=[{"name": "S"}])
    house.pass_time(SECOND)
    disk.room = disk.used() + 10
    assert house.publish("f", b"y" * 3000)["seq"]
    assert house.ok("STREAM.PURGE.F", {"keep": 1})["success"]
    disk.crash()
    house = House(STORE, house.server.clock.now(), PyDisk(disk))
    house.pass_time(SECOND)
    assert house.ok("STREAM.INFO.F")["state"]["messages"] == 1


def test_nothing_is_accepted_before_the_reserve_is_whole_again() -> None:
    full = Full()
    full.disk.room = full.disk.used() + RESERVE - 100
    full.house.pass_time(SECOND)
    full.refused()
    full.disk.room += 200
    full.house.pass_time(SECOND)
    assert full.house.publish("s.0")["seq"] == COUNT + 2
    assert [line for line in full.house.reports if "accepts messages again" in line]


def test_many_publishes_of_one_turn_are_answered() -> None:
    """What a turn has accepted finds room in the reserve."""
    full = Full()
    full.disk.room = None
    full.house.pass_time(SECOND)
    full.disk.room = full.disk.used() + 10
    client = full.house.client
    client.send(b"".join(b"PUB s.0 _I.x%d 1000\r\n%s\r\n" % (n, b"q" * 1000) for n in range(20)))
    answers = [json.loads(event[5]) for event in client.events()]
    assert len(answers) == 20


def test_the_next_server_takes_the_reserve_as_it_is() -> None:
    full = Full()
    full.disk.room = None
    full.house.pass_time(SECOND)
    house = full.house.restart()
    before = full.disk.counts.copy()
    house.pass_time(SECOND)
    assert house.disk.spent is False
    assert before["writes to a full disk"] == full.disk.counts["writes to a full disk"]


def test_all_that_removes_data_is_answered_on_a_full_disk() -> None:
    """Each request in one turn and alone, with the reserve spent, and before."""
    removals = {
        "STREAM.PURGE.S": {"filter": "s.0", "keep": 2},
        "STREAM.MSG.DELETE.S": {"seq": 2},
        "STREAM.UPDATE.S": {"name": "S", "subjects": ["s.*"], "max_msgs": 30},
        "CONSUMER.DELETE.S.c": {},
        "STREAM.PURGE.T": {},
        "STREAM.DELETE.T": {},
        "STREAM.DELETE.S": {},
    }
    for together in (False, True):
        full = Full(allow_rollup_hdrs=False)
        if not together:
            for call, body in removals.items():
                assert "error" not in full.house.api(call, body), call
            continue
        wire = ""
        for number, (call, body) in enumerate(removals.items()):
            data = json.dumps(body)
            wire += f"PUB $JS.API.{call} _I.r{number} {len(data)}\r\n{data}\r\n"
        full.house.client.send(wire)
        answers = {event[1]: json.loads(event[5]) for event in full.house.client.events()}
        assert len(answers) == len(removals)
        assert not [each for each in answers.values() if "error" in each]


def test_a_turn_with_more_than_the_reserve_holds_answers_each_request_sooner_or_later() -> None:
    """What was accepted is written when there is room. All that comes later is refused at once."""
    full = Full()
    full.disk.room = None
    full.house.pass_time(SECOND)
    full.disk.room = full.disk.used() + 10
    client, count = full.house.client, 3 * RESERVE // 10_000
    load = b"".join(b"PUB s.0 _I.x%d 10000\r\n%s\r\n" % (n, b"q" * 10_000) for n in range(count))
    calls = ("STREAM.INFO.S", "STREAM.PURGE.T", "CONSUMER.DELETE.S.c")
    client.send(
        load + b"".join(b"PUB $JS.API.%s _I.%s 0\r\n\r\n" % (c.encode(), c.encode()) for c in calls)
    )
    found = {event[1]: json.loads(event[5]) for event in client.events()}
    assert {f"_I.{call}" for call in calls} <= set(found)
    assert full.house.publish("s.0")["error"]["description"] == NO_ROOM
    body = b'{"keep":10}'
    client.send(b"PUB $JS.API.STREAM.PURGE.S _I.purge %d\r\n%s\r\n" % (len(body), body))
    full.disk.room += 10 * RESERVE
    for _ in range(20):
        found |= {event[1]: json.loads(event[5]) for event in client.events()}
        full.house.pass_time(SECOND // 4)
    assert found["_I.purge"]["success"]
    assert len([reply for reply in found if reply.startswith("_I.x")]) == count
    assert not [each for each in found.values() if "error" in each]
