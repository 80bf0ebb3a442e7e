"""The file of positions of a stream that has lost its newest messages."""

from pathlib import Path
from typing import Any

import pytest

from pelton.core.base.disk import PyDisk
from pelton.engine.files.files import FORMAT
from pelton.engine.sources.positions import Position, PositionsFile
from pelton.testing.simulated_disk import PowerCut, SimDisk
from tests.engine.house import SECOND, House


def follower(house: House) -> Any:
    return house.engine.accounts["$G"].streams["F"]


def payloads(house: House) -> list[bytes]:
    log = follower(house).core.log
    return [log.get(seq).payload for seq in range(1, log.last_seq + 1)]


def test_a_file_from_before_a_power_cut_is_not_believed_later() -> None:
    """The file has the source's position at sequence 10 of the stream; then other messages take
    these sequences.
    """
    house = House(Path("store"), disk=PyDisk(SimDisk()))
    house.stream("O", subjects=["o"])
    house.stream("F", subjects=["f"], sources=[{"name": "O"}], persist_mode="async")
    for number in range(5):
        house.publish("o", b"%d" % number)
    # As if the stream had had five messages of its own before, and a power cut had taken the newest
    # five.
    origin = follower(house).core.log.guard.of("O > >").origin
    assert origin
    position = Position(name="O > >", seq=5, origin=origin)
    file = PositionsFile(format=FORMAT, seq=10, positions=[position])
    follower(house).files.write_positions(file)
    house = house.crash()
    for number in range(5, 8):
        house.publish("o", b"%d" % number)
    for _ in range(4):
        house.publish("f", b"own")
    there = [b"%d" % number for number in range(8)] + [b"own"] * 4
    assert payloads(house) == there
    house = house.crash()
    assert payloads(house) == there
    house.publish("o", b"8")
    assert payloads(house) == [*there, b"8"]


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_a_message_that_an_opening_removes_is_not_copied_again(retention: str) -> None:
    """The process ends between the journal of acks and the removal of the acknowledged message, whose
    header alone has the position.
    """
    ended = 0
    for calls in range(12):
        disk = SimDisk()
        house = House(Path("store"), disk=PyDisk(disk))
        house.stream("O", subjects=["o"])
        house.stream("F", sources=[{"name": "O"}], retention=retention)
        house.consumer("c", "F", ack_policy="explicit")
        for number in range(3):
            house.publish("o", b"%d" % number)
        delivered = house.pull(10, "c", "F")
        assert [event[5] for event in delivered] == [b"0", b"1", b"2"]
        disk.cut_after(calls)
        try:
            for event in delivered:
                house.send(event[3], b"+ACK")
            house.pass_time(SECOND)
        except PowerCut:
            ended += 1
        disk.cut_at = None
        disk.kill()
        house = House(Path("store"), house.server.clock.now(), PyDisk(disk))
        house.pass_time(SECOND)
        assert follower(house).core.log.last_seq == 3, calls
    assert ended > 3


def test_a_message_that_expires_during_an_opening_is_not_copied_again() -> None:
    """The clients are served meanwhile, so that time passes."""
    disk = SimDisk()
    house = House(Path("store"), disk=PyDisk(disk))
    house.stream("O", subjects=["o"])
    house.stream("F", sources=[{"name": "O"}], max_age=SECOND)
    for name in ("X", "Y"):
        house.stream(name)
    for number in range(3):
        house.publish("o", b"%d" % number)
    disk.kill()
    now_ns = house.server.clock.now() + 2 * SECOND
    house = House(Path("store"), now_ns, PyDisk(disk), gradually=True)
    while house.engine.open_more():
        house.pass_time(SECOND)
    house.pass_time(SECOND)
    assert follower(house).core.log.last_seq == 3


def test_a_message_that_a_lowered_limit_removes_at_an_opening_is_not_copied_again() -> None:
    """The process ends between the new configuration and the removal, so the next opening applies the
    limit, and the message that it removes is the only one with the position.
    """
    ended = 0
    for calls in range(24):
        disk = SimDisk()
        house = House(Path("store"), disk=PyDisk(disk))
        house.stream("O", subjects=["o"])
        house.stream("F", subjects=["f"], sources=[{"name": "O"}])
        house.publish("o", b"copied")
        for _ in range(2):
            house.publish("f", b"own")
        disk.cut_after(calls)
        try:
            config = {"name": "F", "subjects": ["f"], "sources": [{"name": "O"}], "max_msgs": 1}
            house.ok("STREAM.UPDATE.F", config)
            house.pass_time(SECOND)
        except PowerCut:
            ended += 1
        disk.cut_at = None
        disk.kill()
        house = House(Path("store"), house.server.clock.now(), PyDisk(disk))
        house.pass_time(SECOND)
        assert follower(house).core.log.last_seq == 3, calls
    assert ended > 3


def test_a_file_that_has_the_created_time_of_an_origin_is_understood() -> None:
    """As earlier versions wrote it: the origin is the same, and nothing is copied again."""
    house = House(Path("store"), disk=PyDisk(SimDisk()))
    house.stream("O", subjects=["o"])
    house.stream("F", sources=[{"name": "O"}], max_msgs=1)
    for number in range(3):
        house.publish("o", b"%d" % number)
    origin = str(house.account.streams["O"].created_ns)
    house.ok("STREAM.PURGE.F")
    position = Position(name="O > >", seq=3, origin=origin)
    file = PositionsFile(format=FORMAT, seq=3, positions=[position])
    follower(house).files.write_positions(file)
    house = house.crash()
    house.pass_time(SECOND)
    assert follower(house).core.log.last_seq == 3
