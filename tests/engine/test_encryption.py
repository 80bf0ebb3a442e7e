"""Encrypted streams in the engine: new, changed and removed keys, and the bytes in a store's files."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pelton.vault import Vault
from tests.engine.house import SECOND, House

MARKS = (b"marksubject", b"markpayload", b"markheader", b"markdescription")


def vault(key: str, previous: str = "", cipher: str = "chacha") -> Vault | None:
    source = random.Random(f"{key} {previous} {cipher}")
    return Vault.of(key, previous, cipher, random=source.randbytes)


def folder_of(house: House, stream: str = "S") -> Path:
    return house.folder / "jetstream/$G/streams" / stream


def files(folder: Path) -> Iterator[tuple[Path, bytes]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield path, path.read_bytes()


def plain_in(folder: Path) -> list[tuple[str, bytes]]:
    return [
        (str(path.relative_to(folder)), mark)
        for path, data in files(folder)
        for mark in MARKS
        if mark in data
    ]


def busy(house: House, stream: str = "S", **fields: Any) -> None:
    """A stream with consumers in all states, and with files of sources and rules."""
    house.stream(
        stream,
        subjects=[f"marksubject.{stream}.>"],
        description="markdescription",
        allow_msg_ttl=True,
        **fields,
    )
    house.consumer("c", stream, ack_policy="explicit", description="markdescription")
    headers = b"NATS/1.0\r\nNats-TTL: 1h\r\nmarkheader: 1\r\n\r\n"
    for i in range(30):
        house.publish(f"marksubject.{stream}.{i % 3}", b"markpayload %d" % i, headers)
    taken = house.pull(10, "c", stream)
    for event in taken[:5]:
        house.request(event[3], b"+ACK")
    house.pass_time(SECOND)


def facts(house: House, stream: str = "S") -> Any:
    info = house.ok(f"STREAM.INFO.{stream}")
    consumer = house.ok(f"CONSUMER.INFO.{stream}.c")
    messages = [house.ok(f"STREAM.MSG.GET.{stream}", {"seq": n})["message"] for n in range(1, 31)]
    keep = ("delivered", "ack_floor", "num_ack_pending", "config")
    delivered = {
        name: {k: v for k, v in consumer[name].items() if k != "last_active"}
        if name in keep[:2]
        else consumer[name]
        for name in keep
    }
    return info["config"], info["state"]["messages"], delivered, messages


@pytest.mark.parametrize("cipher", ["chacha", "aes"])
@pytest.mark.parametrize("compression", ["none", "s2"])
def test_no_file_shows_what_is_in_a_stream(tmp_path: Path, cipher: str, compression: str) -> None:
    house = House(tmp_path, vault=vault("k", cipher=cipher))
    busy(house, compression=compression)
    before = facts(house)
    assert plain_in(tmp_path) == []
    for again in (house.crash, house.restart, house.crash):
        house = again()
        assert facts(house) == before
        assert house.reports == []
        assert plain_in(tmp_path) == []
    house.pass_time(10 * SECOND)
    house = house.restart()
    assert facts(house) == before


def kept_files(folder: Path) -> dict[Path, bytes]:
    """All files but the mark of a clean stop, which each start removes."""
    return {path: data for path, data in files(folder) if path.name != "closed"}


@pytest.mark.parametrize("keys", [("other", ""), ("other", "third"), ("", "other"), ("", "")])
def test_the_wrong_key_opens_nothing_and_touches_nothing(
    tmp_path: Path, keys: tuple[str, str]
) -> None:
    house = House(tmp_path, vault=vault("right"))
    busy(house)
    before = facts(house)
    house.engine.close()
    was = kept_files(tmp_path)
    house.vault = vault(*keys)
    house = house.crash()
    (report,) = house.reports
    assert "stays offline" in report
    assert "encrypted" in report
    assert not any(key in report for key in ("right", *filter(None, keys)))
    code, why = house.error("STREAM.INFO.S")
    assert code == 10194
    assert "encrypted" in why
    assert house.error("STREAM.CREATE.S", {"name": "S"})[0] in (10049, 10194)
    house.pass_time(5 * SECOND)
    house.engine.close()
    assert kept_files(tmp_path) == was
    house.vault = vault("right")
    assert facts(house.crash()) == before


@pytest.mark.parametrize("compression", ["none", "s2"])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (("", ""), ("a", "")),
        (("a", ""), ("b", "a")),
        (("a", ""), ("", "a")),
        (("a", "", "chacha"), ("a", "", "aes")),
    ],
)
def test_keys_come_change_and_go_on_a_store_that_is_there(
    tmp_path: Path, old: tuple[str, ...], new: tuple[str, ...], compression: str
) -> None:
    house = House(tmp_path, vault=vault(*old))
    busy(house, compression=compression)
    before = facts(house)
    house.engine.close()
    house.vault = vault(*new)
    house = house.crash()
    assert facts(house) == before
    house.pass_time(20 * SECOND)
    assert facts(house) == before
    house = house.restart()
    assert facts(house) == before
    house.pass_time(10 * SECOND)
    house = house.restart()
    assert facts(house) == before
    if new[0]:
        assert plain_in(tmp_path) == []
        house.vault = vault(new[0], "", *new[2:])
    else:
        assert plain_in(tmp_path) != []
        assert not list(tmp_path.rglob("key.0"))
        house.vault = None
    house = house.restart()
    assert facts(house) == before


def test_what_an_earlier_key_protected_is_written_under_new_data_keys(tmp_path: Path) -> None:
    house = House(tmp_path, vault=vault("a"))
    busy(house)
    house = house.restart()  # the segment is sealed
    house.pass_time(5 * SECOND)
    first = folder_of(house) / "log" / f"{1:020d}.seg"
    was = first.read_bytes()
    house.vault = vault("b", "a")
    house = house.restart()
    house.pass_time(10 * SECOND)
    now = first.read_bytes()
    assert was[24:28] != now[24:28]
    numbers = {data[12:16] for path, data in files(folder_of(house)) if path.suffix == ".json"}
    assert numbers == {now[24:28]}


def test_one_copy_of_the_keys_is_enough_and_the_other_comes_back(tmp_path: Path) -> None:
    house = House(tmp_path, vault=vault("a"))
    busy(house)
    before = facts(house)
    for name, how in (("key.0", "gone"), ("key.1", "gone"), ("key.0", "damaged"), ("key.1", "bit")):
        house.engine.close()
        path = folder_of(house) / name
        data = bytearray(path.read_bytes())
        if how == "gone":
            path.unlink()
        else:
            data[70] ^= 1
            data[90] ^= 1 if how == "damaged" else 0
            path.write_bytes(data)
        house = house.crash()
        assert house.reports == []
        assert facts(house) == before
        assert (folder_of(house) / "key.0").read_bytes() == (
            folder_of(house) / "key.1"
        ).read_bytes()


def test_without_its_key_files_a_stream_is_left_aside_as_it_is(tmp_path: Path) -> None:
    house = House(tmp_path, vault=vault("a"))
    busy(house)
    house.engine.close()
    for name in ("key.0", "key.1"):
        (folder_of(house) / name).unlink()
    was = kept_files(tmp_path)
    house = house.crash()
    (report,) = house.reports
    assert "key files are missing" in report
    assert kept_files(tmp_path) == was


def test_files_of_another_stream_are_not_believed(tmp_path: Path) -> None:
    house = House(tmp_path, vault=vault("a"))
    busy(house, "S")
    busy(house, "T")
    house.engine.close()
    before = (folder_of(house) / "consumers/c.json").read_bytes()
    for name in ("c.json", "c.json.copy"):
        theirs = folder_of(house, "T") / "consumers" / name
        shutil.copy(theirs, folder_of(house) / "consumers" / name)
        house = house.crash()
        if name == "c.json":
            assert facts(house)  # the copy belongs to S
            house.engine.close()
            shutil.copy(theirs, folder_of(house) / "consumers/c.json")
            continue
        assert house.error("CONSUMER.INFO.S.c")[0] != 0
        assert facts(house, "T")
    assert before


@pytest.mark.parametrize("name", ["meta.json", "consumers/c.json", "key.0", "key.1"])
def test_a_flipped_bit_in_a_small_file_costs_nothing(tmp_path: Path, name: str) -> None:
    house = House(tmp_path, vault=vault("a"))
    busy(house)
    before = facts(house)
    house.engine.close()
    path = folder_of(house) / name
    good = path.read_bytes()
    rng = random.Random(name)
    for _ in range(12):
        bad = bytearray(good)
        bit = rng.randrange(len(bad) * 8)
        bad[bit >> 3] ^= 1 << (bit & 7)
        path.write_bytes(bad)
        house = house.crash()
        assert house.reports == []
        assert facts(house) == before
        house.engine.close()
        path.write_bytes(good)


def test_secrets_are_in_no_text() -> None:
    box = vault("hunter2", "hunter1")
    assert box is not None
    cipher = box.new()
    for thing in (box, cipher):
        assert "hunter" not in repr(thing) + str(thing)
    keys = [key for _, _, key in cipher.rows()]
    assert keys
    assert all(key.hex() not in repr(cipher) for key in keys)
    assert b"hunter" not in box.key_file(cipher)
    assert all(key not in box.key_file(cipher) for key in keys)
