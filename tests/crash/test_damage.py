"""A killed server's files are damaged before the next one starts: it comes up, says what is
missing, and has everything else.

ROUNDS is how many times each kind of damage is done.
"""

from __future__ import annotations

import base64
import os
import shutil
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.crash.load import stored
from tests.crash.wire import Wire
from tests.peers import ServerProcess, start_server
from tests.ways import SEED, length

if TYPE_CHECKING:
    from collections.abc import Iterator

ROUNDS = length(2, 10)
MESSAGES = 40
SIZE = 700_000  # 23 of them to a segment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120 + 20 * ROUNDS)]


def payload(seq: int) -> bytes:
    return (b"%d," % seq * (SIZE // 2))[:SIZE]


@pytest.fixture(scope="module")
def killed() -> Iterator[ServerProcess]:
    """A killed server with two segments of large messages, and a second stream beside them."""
    print(f"seed {SEED}")
    server = start_server("pelton")
    wire = Wire(server.port)
    for name in ("BIG", "OTHER"):
        wire.ok(f"STREAM.CREATE.{name}", {"name": name, "subjects": [name]})
    for seq in range(1, MESSAGES + 1):
        assert wire.request("BIG", payload(seq))["seq"] == seq
    for seq in range(1, 11):
        assert wire.request("OTHER", b"%d" % seq)["seq"] == seq
    wire.ok("STREAM.MSG.DELETE.BIG", {"seq": 5, "no_erase": True})
    wire.close()
    server.stop(kill=True)
    assert len(files(server, "seg")) == 2
    yield server
    server.remove()


@pytest.fixture
def copy(killed: ServerProcess, tmp_path: Path) -> Iterator[ServerProcess]:
    """Another server over a copy of its files; `again` copies them anew."""
    server = ServerProcess("pelton", store=str(tmp_path / "store"))
    again(killed, server)
    yield server
    server.remove()


def again(killed: ServerProcess, server: ServerProcess) -> None:
    server.stop(kill=True)
    shutil.rmtree(server.store, ignore_errors=True)
    shutil.copytree(killed.store, server.store)
    server.log_path.unlink()


def files(server: ServerProcess, kind: str) -> list[Path]:
    """The files of one kind of BIG's log, oldest first."""
    (folder,) = Path(server.store).glob("jetstream/*/streams/BIG/log")
    return sorted(folder.glob(f"*.{kind}"))


def held(server: ServerProcess) -> set[int]:
    """Start it; which messages BIG still has. Those must be the right ones, OTHER must be whole,
    and BIG goes on.
    """
    server.start()
    wire = Wire(server.port)
    assert sorted(stored(wire, "OTHER", list(range(1, 11)))) == list(range(1, 11))
    got = stored(wire, "BIG", list(range(1, MESSAGES + 1)), 8)
    for seq, found in got.items():
        assert base64.b64decode(found["data"]) == payload(seq)
    state = wire.ok("STREAM.INFO.BIG")["state"]
    assert state["messages"] == len(got)
    assert wire.request("BIG", b"next")["seq"] == state["last_seq"] + 1
    wire.close()
    return set(got)


def log_says(server: ServerProcess, text: str) -> bool:
    """Whether the server's log has it, now or within a moment."""
    for _ in range(40):
        if text in server.log_path.read_text():
            return True
        time.sleep(0.05)
    return False


ALL = set(range(1, MESSAGES + 1)) - {5}


def test_index_files_may_be_damaged_or_gone(killed: ServerProcess, copy: ServerProcess) -> None:
    rng = Random(SEED)
    for number in range(ROUNDS):
        again(killed, copy)
        indexes = files(copy, "idx")
        assert indexes
        for path in indexes:
            data = bytearray(path.read_bytes())
            if number % 3 == 0:
                path.unlink()
            elif number % 3 == 1:
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
                path.write_bytes(data)
            else:
                path.write_bytes(data[: rng.randrange(len(data))])
        assert held(copy) == ALL


def test_a_cut_segment_loses_only_what_was_cut(killed: ServerProcess, copy: ServerProcess) -> None:
    rng = Random(SEED)
    first = int(files(killed, "seg")[-1].stem)
    for _ in range(ROUNDS):
        again(killed, copy)
        path = files(copy, "seg")[-1]
        size = rng.randrange(path.stat().st_size)
        os.truncate(path, size)
        got = held(copy)
        whole = size // (SIZE + 100)  # so many records at least are before the cut
        kept = set(range(1, first + whole)) - {5}
        assert kept <= got, (SEED, size, sorted(kept - got))


def test_a_flipped_bit_costs_one_message_and_is_told(
    killed: ServerProcess, copy: ServerProcess
) -> None:
    rng = Random(SEED)
    for number in range(ROUNDS):
        again(killed, copy)
        path = files(copy, "seg")[0]
        if number % 2:
            for index in files(copy, "idx"):
                index.unlink()  # so that the segment is read from its start
        record = path.stat().st_size // 23
        at = rng.randrange(23) * record + (rng.randrange(200) if number % 3 else 1000)
        with path.open("r+b") as file:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1 << rng.randrange(8)]))
        missing = ALL - held(copy)
        assert len(missing) <= 1, (SEED, at, missing)
        if missing:
            assert log_says(copy, f"message {missing.pop()} is lost"), (SEED, at)


def test_a_damaged_stream_is_told_and_costs_nobody_else(
    killed: ServerProcess, copy: ServerProcess
) -> None:
    rng = Random(SEED)
    for number in range(ROUNDS):
        again(killed, copy)
        paths = sorted(Path(copy.store).glob("jetstream/*/streams/BIG/meta.json*"))
        assert len(paths) == 2  # it is written twice
        for path in paths:
            data = bytearray(path.read_bytes())
            if number % 2:
                for at in rng.sample(range(len(data)), 2):  # one bit alone would be put right
                    data[at] ^= 1 << rng.randrange(8)
                path.write_bytes(data)
            else:
                path.write_bytes(data[: rng.randrange(len(data) // 2)])
        copy.start()
        assert log_says(copy, "streams/BIG, the stream stays offline"), (
            SEED,
            copy.log_path.read_text(),
        )
        wire = Wire(copy.port)
        assert wire.ok("STREAM.NAMES")["streams"] == ["BIG", "OTHER"]
        answer = wire.api("STREAM.CREATE.BIG", {"name": "BIG", "subjects": ["BIG"]})
        assert (
            "could not be opened" in answer["error"]["description"]
            or "offline" in answer["error"]["description"]
        )
        wire.close()
        assert len(files(copy, "seg")) == 2
