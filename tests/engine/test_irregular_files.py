"""Pipes, sockets, devices and folders in place of a store's files: the server never waits for them
or writes to them.
"""

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.house import House
from tests.engine.test_recovery import stream_folder


def bind(path: Path) -> None:
    """Create a socket in the file system. The real path is too long for a socket."""
    back = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(back)


KINDS: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "socket": bind,
    "folder": Path.mkdir,
    "device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("file", ["meta.json", "log/00000000000000000001.seg"])
def test_a_stream_with_such_a_file_is_offline(tmp_path: Path, kind: str, file: str) -> None:
    house = House(tmp_path)
    house.stream("GOOD", subjects=["good"])
    house.stream("S", subjects=["s"])
    house.publish("s")
    house.engine.close()
    path = stream_folder(house) / file
    kept = path.rename(tmp_path / "kept")
    KINDS[kind](path)
    mode = stat.S_IFMT(path.lstat().st_mode)
    for _ in range(2):
        house = house.crash()
        [told] = house.reports
        assert f"not a regular file: '{path}'" in told
        code, text = house.error("STREAM.INFO.S")
        assert (code, f"not a regular file: '{path}'" in text) == (10194, True)
        house.publish("good")
        house.engine.close()
        assert stat.S_IFMT(path.lstat().st_mode) == mode
    path.rmdir() if kind == "folder" else path.unlink()
    kept.rename(path)
    house = house.crash()
    assert not house.reports
    assert house.ok("STREAM.INFO.S")["state"]["messages"] == 1
    assert house.ok("STREAM.INFO.GOOD")["state"]["messages"] == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_consumer_with_such_a_file_is_offline(tmp_path: Path, kind: str) -> None:
    house = House(tmp_path)
    house.stream()
    house.consumer("c", durable_name="c")
    house.consumer("good", durable_name="good")
    house.engine.close()
    path = stream_folder(house) / "consumers/c.json"
    path.unlink()
    KINDS[kind](path)
    house = house.crash()
    [told] = house.reports
    assert "not a regular file" in told
    assert house.error("CONSUMER.INFO.S.c")[0] == 10195
    house.ok("CONSUMER.INFO.S.good")


@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
@pytest.mark.parametrize("file", ["log/00000000000000000001.idx", "consumers/states.0"])
def test_what_is_made_again_is_made_a_file(tmp_path: Path, kind: str, file: str) -> None:
    house = House(tmp_path)
    house.stream(subjects=["s"])
    house.consumer("c", durable_name="c", ack_policy="explicit")
    house.publish("s")
    house.pull(1)
    house.engine.close()
    path = stream_folder(house) / file
    path.unlink(missing_ok=True)
    KINDS[kind](path)
    house = house.crash()
    assert house.ok("STREAM.INFO.S")["state"]["messages"] == 1
    house.ok("CONSUMER.INFO.S.c")
    house.publish("s")
    house = house.restart()
    assert house.ok("STREAM.INFO.S")["state"]["messages"] == 2
