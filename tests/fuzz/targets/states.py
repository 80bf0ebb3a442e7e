"""Small files: consumer states, bases and journals of acks, configuration files: refused in words, or read the same again.

A server opens over any such files, says what is wrong with them, and serves.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from pelton.core.base.disk import PyDisk
from pelton.core.consumer.snapshot import pack, unpack
from pelton.engine.files.consumer_states import ConsumerStates
from tests.core.streams import Site
from tests.engine.house import House
from tests.fuzz import seals
from tests.fuzz.inputs import Input
from tests.fuzz.memory_disk import MemoryDisk

MAX_BYTES = 3000
WORDS = (
    b"PCS1",
    b"PSSTATE1",
    b"PSACKS1\n",
    b"\xff" * 8,
    b"crc32c 00000000\n",
    b'"format":1',
    b'"start_seq":5',
    b"\x92\x01\x91\x93",
)


def run(data: bytes) -> None:
    """Byte 0: what the rest is, and whether its checksums are set right."""
    source = Input(data)
    kind = source.number()
    if kind % 3 == 0:
        snapshot(seals.state(source.rest()) if kind & 128 else source.rest())
    elif kind % 3 == 1:
        files(source, bool(kind & 128))
    else:
        folder(source, bool(kind & 128))


def snapshot(data: bytes) -> None:
    try:
        numbers, entries, starts = unpack(data)
    except ValueError:
        return
    assert unpack(pack(numbers, entries, starts)) == (numbers, entries, starts)
    site = Site()
    for n in range(9):
        site.publish(f"s.{n % 2}", b"m")
    consumer = site.consumer(max_deliver=3)
    try:
        consumer.restore(data)
    except ValueError:
        return
    state = consumer.state()
    assert state.floor_stream_seq <= state.delivered_stream_seq <= site.log.last_seq, state
    assert state.num_ack_pending <= 9
    site.pull(b"20")
    site.after(40_000_000_000)
    for message in site.heard():
        if not message.status:
            site.ack(message, b"+ACK")
    site.pull(b'{"batch":9,"no_wait":true}')
    site.heard()
    again = unpack(consumer.snapshot())
    assert again[0][4] <= again[0][0], again


def files(source: Input, seal: bool) -> None:
    """Bases and journals."""
    found: dict[str, bytes] = {}
    for name in ("states.0", "states.1", "acks.1", "acks.2"):
        content = source.sized(1000)
        if content:
            fix = seals.base if name.startswith("states") else seals.journal
            found[f"c/{name}"] = fix(content) if seal else content
    states = ConsumerStates(PyDisk(MemoryDisk(found)), "c")
    states.load({("c", 1): 1, ("d", 2): 5})
    for known in states.found.values():
        try:
            unpack(known.packed([1, 2, 7]))
        except ValueError:
            assert known.state is not None  # as it was found; whoever restores it says so


@cache
def store() -> dict[str, bytes]:
    """The files of a store with a stream and two consumers."""
    disk = MemoryDisk()
    house = House(Path("store"), disk=PyDisk(disk))
    house.stream("S", subjects=["s.>"])
    for name in ("c", "d"):
        house.consumer(name, durable_name=name, ack_policy="explicit")
    for n in range(4):
        house.publish(f"s.{n}")
    for event in house.pull(3):
        house.request(event[3], b"+ACK")
    house.restart()
    return disk.copy()


def folder(source: Input, seal: bool) -> None:
    disk = MemoryDisk(store())
    names = sorted(name for name in disk.files if "/log/" not in name)
    while source:
        content = disk.files[names[source.number() % len(names)]]
        verb, at = source.number(), source.number(2) % (len(content) + 1)
        if verb % 4 == 0:
            del content[at:]
        elif verb % 4 == 1:
            del content[at : at + verb // 4]
        piece = source.sized(64)
        content[at : at + (len(piece) if verb % 4 == 2 else 0)] = piece
    if seal:
        for name in names:
            fix = seals.base if "states." in name else seals.journal if "acks." in name else bytes
            disk.files[name][:] = fix(bytes(disk.files[name]))
    house = House(Path("store"), disk=PyDisk(disk))
    house.ok("STREAM.NAMES")
    house.ok("INFO")
    for name in house.ok("STREAM.NAMES")["streams"] or []:
        listed = house.api(
            f"CONSUMER.LIST.{name}"
        )  # a stream whose file can't be understood is offline
        for each in listed.get("consumers") or []:
            assert each["ack_floor"]["stream_seq"] <= each["delivered"]["stream_seq"], each
    house.pull(9)
    house.pass_time(31_000_000_000, 5_000_000_000)
    house.pull(9)
    assert not house.server.errors, house.server.errors
    house.api("STREAM.CREATE.NEW", {"name": "NEW", "subjects": ["new"]})
    assert house.publish("new")["seq"] == 1
    house.restart()


def seeds() -> Iterable[bytes]:
    site = Site()
    for n in range(9):
        site.publish(f"s.{n}", b"m")
    consumer = site.consumer(max_deliver=2)
    site.pull(b"5")
    first = site.heard()[1:]
    site.ack(first[1])
    for flag in (0, 129):
        yield bytes([flag]) + consumer.snapshot()
        yield bytes([flag]) + pack(
            (5, 5, 6, 9, 1, 1, 9), [(2, 2, 9, 1, 1), (4, 4, 0, 2, 4)], [7, 8]
        )
    small = {
        name.rpartition("/")[2]: data for name, data in store().items() if "/consumers/" in name
    }
    contents = [small.get(name, b"") for name in ("states.0", "states.1", "acks.1", "acks.2")]
    for flag in (1, 130):
        yield bytes([flag]) + b"".join(len(data).to_bytes(2, "little") + data for data in contents)
    for flag in (2, 128):
        for at in range(6):
            yield bytes([flag, at, at, 20 + at, 0, 3, 0, 1, 255])
