"""The file of positions of a stream that has lost its newest messages."""

from pathlib import Path
from typing import Any

from penstock.core.base.disk import PyDisk
from penstock.engine.files import FORMAT
from penstock.engine.sources.positions import Position, PositionsFile
from penstock.testing.simulated_disk import SimDisk
from tests.engine.house import House


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
