"""Folders and files that a user has copied or renamed: the name on the disk decides."""

import shutil
from pathlib import Path

import pytest

from tests.engine.house import House
from tests.engine.test_recovery import stream_folder


@pytest.mark.parametrize("name", ["ORDERS", "o" * 250])
@pytest.mark.parametrize("copy", ["A_COPY", "z_copy", "z" * 240 + "%41"])
def test_the_copy_of_a_stream_folder_is_offline(tmp_path: Path, name: str, copy: str) -> None:
    """The name of the folder decides, whichever of the two folders comes first."""
    house = House(tmp_path)
    house.stream(name, subjects=["orders"])
    house.publish("orders", b"one")
    house.engine.close()
    folder = next(house.folder.rglob("meta.json")).parent
    copied = folder.with_name(copy)
    shutil.copytree(folder, copied)
    before = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()}
    for count in (2, 3):
        house = house.crash()
        [told] = house.reports
        assert str(copied) in told
        assert f"file of stream {name};" in told
        assert name in house.ok("STREAM.NAMES")["streams"]
        assert house.publish("orders")["seq"] == count
        assert house.ok(f"STREAM.INFO.{name}")["state"]["messages"] == count
        if "%" not in copy:
            code, text = house.error(f"STREAM.INFO.{copy}")
            assert (code, name in text) == (10194, True)
            assert house.error(f"STREAM.CREATE.{copy}", {"name": copy})[0] == 10194
        assert {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()} == before
        house.engine.close()
    house = house.crash()
    if "%" not in copy:
        house.ok(f"STREAM.DELETE.{copy}")
        assert not copied.exists()
    assert house.ok(f"STREAM.INFO.{name}")["state"]["messages"] == 3


def test_a_renamed_stream_folder_is_offline_until_it_has_its_name_again(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream(subjects=["s"])
    house.publish("s")
    house.engine.close()
    folder = stream_folder(house)
    moved = folder.rename(folder.with_name("OTHER"))
    house = house.crash()
    assert house.error("STREAM.INFO.OTHER")[0] == 10194
    assert house.error("STREAM.INFO.S")[0] == 10059
    house.engine.close()
    moved.rename(folder)
    house = house.crash()
    assert not house.reports
    assert house.publish("s")["seq"] == 2


@pytest.mark.parametrize("file", ["meta.json", "meta.json.copy"])
def test_the_configuration_of_another_stream_replaces_none(tmp_path: Path, file: str) -> None:
    house = House(tmp_path)
    house.stream("A")
    house.stream("B")
    house.engine.close()
    other, place = (stream_folder(house, name) for name in ("A", "B"))
    shutil.copy(other / file, place / file)
    house = house.crash()
    if file == "meta.json":
        assert house.error("STREAM.INFO.B")[0] == 10194
    else:
        assert house.ok("STREAM.INFO.B")["config"]["name"] == "B"
    assert house.ok("STREAM.INFO.A")["config"]["name"] == "A"


def test_the_copy_of_a_consumer_file_is_offline(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream()
    house.consumer("c", durable_name="c", ack_policy="explicit")
    house.publish("S")
    house.pull(1)
    house.engine.close()
    folder = stream_folder(house) / "consumers"
    for name in ("a", "d"):
        shutil.copy(folder / "c.json", folder / f"{name}.json")
    house = house.crash()
    assert len(house.reports) == 2
    assert house.ok("CONSUMER.INFO.S.c")["num_ack_pending"] == 1
    for name in ("a", "d"):
        assert house.error(f"CONSUMER.INFO.S.{name}")[0] == 10195
