"""Damage to every file of a store, as clients see it: streams, consumers, messages, acks.

tests/core/log/test_damage.py damages the files of a log byte by byte. Here every other file is
damaged: at every byte with PELTON_FULL=1 (some minutes), else at every n-th byte.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.house import SECOND, START_NS, House
from tests.ways import length

STRIDE = length(149, 1)
ACKED = 4  # confirmed acks, of the 10 messages of each stream; the fifth message is delivered
Files = dict[str, bytes]


def furnish(folder: Path) -> Files:
    """A store with bases of consumer states, a journal behind them, and sources."""
    house = House(folder)
    house.stream("S", subjects=["s.*"])
    house.stream("W", subjects=["w.*"], retention="workqueue")
    house.stream("C", sources=[{"name": "S"}])
    for stream in ("S", "W"):
        house.consumer("c", stream, durable_name="c", ack_policy="explicit", ack_wait=SECOND)
        for n in range(10):
            house.publish(f"{stream.lower()}.{n % 3}", b"%d" % n)
    for part in range(2):
        for stream in ("S", "W"):
            for event in house.pull(ACKED // 2, "c", stream):
                assert house.request(event[3], b"+ACK")
        if part == 0:
            house.pass_time(6 * SECOND)
            house = house.restart()
    for stream in ("S", "W"):
        house.pull(1, "c", stream)
    house.pass_time(6 * SECOND)
    assert not house.reports
    del house
    return taken(folder)


def taken(folder: Path) -> Files:
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def put(folder: Path, files: Files) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def seen(house: House) -> dict[str, Any]:
    """The state that no damage to one of these files may change."""
    found: dict[str, Any] = {}
    for name in house.ok("STREAM.NAMES")["streams"]:
        info = house.ok(f"STREAM.INFO.{name}")
        state = info["state"]
        found[name] = (info["config"], info["created"], state["messages"], state["last_seq"])
        assert "lost" not in state
        for each in house.ok(f"CONSUMER.LIST.{name}")["consumers"]:
            found[f"{name} > {each['name']}"] = (each["config"], each["created"])
    return found


def floors(house: House) -> list[int]:
    return [house.ok(f"CONSUMER.INFO.{s}.c")["ack_floor"]["stream_seq"] for s in ("S", "W")]


def left_of(house: House, stream: str) -> set[int]:
    """Return the messages that are still delivered."""
    left: set[int] = set()
    for _ in range(3):
        house.pass_time(SECOND + 1, SECOND + 1)
        left |= {int(event[3].split(".")[5]) for event in house.pull(50, "c", stream)}
    return left


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return furnish(tmp_path_factory.mktemp("whole"))


def configured(files: Files) -> list[str]:
    return [name for name in files if "/log/" not in name]


def opened(folder: Path, files: Files) -> House:
    put(folder, files)
    return House(folder, START_NS + 3600 * SECOND)


def test_every_flipped_bit_costs_nothing(tmp_path: Path, files: Files) -> None:
    house = opened(tmp_path, files)
    before, whole_floors = seen(house), floors(house)
    tried = 0
    for name in configured(files):
        for at in range(0, len(files[name]), STRIDE):
            data = bytearray(files[name])
            data[at] ^= 1 << (at * 5 + at // 8) % 8
            house = opened(tmp_path, {**files, name: bytes(data)})
            where = (name, at)
            assert seen(house) == before, where
            assert floors(house) == whole_floors == [ACKED, ACKED], (where, house.reports)
            # a base and its journal may be older than the newest base; then no start reads them
            told = len(house.reports)
            assert told or not name.endswith((".json", ".copy")), where
            house = house.crash()
            assert seen(house) == before, where
            tried += 1
    assert tried > 20


def more_damage(name: str, data: bytes) -> Iterator[tuple[str, bytes | None]]:
    yield "gone", None
    for size in range(0, len(data), max(len(data) // 4, 1) if STRIDE > 1 else 7):
        yield f"cut to {size}", data[:size]
    for at in range(0, len(data), 1024 if STRIDE > 1 else 64):
        yield f"zeros at {at}", data[:at] + bytes(len(data[at : at + 512])) + data[at + 512 :]


def test_more_damage_to_one_file_costs_no_stream_no_consumer_no_message(
    tmp_path: Path, files: Files
) -> None:
    house = opened(tmp_path, files)
    before = seen(house)
    for name in configured(files):
        for what, data in more_damage(name, files[name]):
            after = {**files, name: data} if data is not None else dict(files)
            if data is None:
                del after[name]
            house = opened(tmp_path, after)  # type: ignore[arg-type]  # no None is left in it
            assert seen(house) == before, (name, what)
            for stream in ("S", "W"):
                # acks may be lost, but no ack may appear
                assert left_of(house, stream) >= set(range(ACKED + 1, 11)), (name, what)
            house = house.crash()
            assert seen(house)["S > c"] == before["S > c"], (name, what)


def test_an_older_version_of_a_file_costs_no_stream_no_consumer_no_message(
    tmp_path: Path, files: Files
) -> None:
    house = opened(tmp_path, files)
    before = seen(house)
    house.ok("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.*"], "description": "new"})
    house = house.restart()
    after = seen(house)
    house.engine.close()
    later = taken(tmp_path)
    for name, data in files.items():
        if "/log/" in name or name not in later or later[name] == data:
            continue
        house = opened(tmp_path, {**later, name: data})
        assert seen(house).keys() == before.keys(), name
        # the first of the two files decides, as long as it is sound
        assert seen(house) == (before if name.endswith("S/meta.json") else after), name
        assert left_of(house, "S") >= set(range(ACKED + 1, 11)), name
