"""A full disk: no false acks, reads go on, and room makes it go on; also over a kill.

Needs the right to mount a small file system; skipped without.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from tests.crash import loop
from tests.crash.load import stored
from tests.crash.wire import Wire, message
from tests.peers import ServerProcess
from tests.ways import SEED

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZE = 20_000

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server whose store has 8 MB."""
    place = tmp_path / "small"
    place.mkdir()
    mount = shutil.which("mount")
    command = [mount or "mount", "-t", "tmpfs", "-o", "size=8m", "pelton-test", str(place)]
    if mount is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no right to mount a small file system here")
    server = ServerProcess("pelton", store=str(place))
    try:
        server.start()
        yield server
    finally:
        server.stop(kill=True)
        subprocess.run(["umount", str(place)], check=True)


def payload(number: int) -> bytes:
    return (b"%d;" % number * SIZE)[:SIZE]


def fill(wire: Wire, stream: str, acked: dict[int, bytes], first: int) -> list[Any]:
    """Publish until the disk is full for good; the refusals."""
    refused: list[Any] = []
    for start in range(first, first + 2000, 20):
        numbers = range(start, start + 20)
        wire.send(b"".join(message(stream, payload(n), wire.inbox(str(n))) for n in numbers))
        answered = 0
        while answered < 20 and (events := wire.events(1.0)):
            for event in events:
                answered += 1
                answer = json.loads(event.payload)
                if "error" in answer:
                    refused.append(answer["error"])
                else:
                    assert answer["seq"] not in acked
                    acked[answer["seq"]] = payload(int(event.subject))
        assert not wire.gone
        if len(refused) >= 40:
            return refused
    raise AssertionError("the disk did not become full")


def check(wire: Wire, stream: str, acked: dict[int, bytes]) -> None:
    """Every acked message is there."""
    got = stored(wire, stream, sorted(acked))
    assert sorted(got) == sorted(acked)
    for seq, found in got.items():
        assert base64.b64decode(found["data"]) == acked[seq]


def resumes(wire: Wire, stream: str, data: bytes = b"again") -> int:
    """Publish until it is taken again; its sequence."""
    answer: Any = None
    for _ in range(200):
        answer = wire.request(stream, data)
        if "error" not in answer:
            return int(answer["seq"])
        time.sleep(0.05)
    raise AssertionError(f"{stream} does not go on: {answer}")


@pytest.mark.parametrize("how", ["purge", "keep", "limit", "delete", "kill"])
def test_a_full_disk(small: ServerProcess, how: str) -> None:
    print(f"seed {SEED}")
    rng = Random(SEED)
    wire = Wire(small.port)
    for name in ("A", "B"):
        wire.ok(f"STREAM.CREATE.{name}", {"name": name, "subjects": [name]})
    body = {"stream_name": "A", "config": {"durable_name": "c", "ack_policy": "explicit"}}
    wire.ok("CONSUMER.CREATE.A.c", body)
    held: dict[str, dict[int, bytes]] = {"A": {}, "B": {}}
    for number in range(rng.randrange(50)):
        held["B"][wire.request("B", payload(number))["seq"]] = payload(number)
    refused = fill(wire, "A", held["A"], 1000)
    assert all(error["code"] == 503 for error in refused), refused[:3]
    assert len(held["A"]) > 100
    for name, acked in held.items():
        check(wire, name, acked)
    # what needs room is refused in words, and leaves nothing behind
    answer = wire.api("STREAM.CREATE.N", {"name": "N", "subjects": ["N"]})
    if "error" in answer:
        assert wire.ok("STREAM.NAMES")["streams"] == ["A", "B"]
    if how == "kill":
        wire.close()
        small.stop(kill=True)
        small.start()
        wire = Wire(small.port)
        for name, acked in held.items():
            check(wire, name, acked)
    if how == "delete":
        wire.ok("STREAM.DELETE.A")
        assert resumes(wire, "B") > max(held["B"], default=0)
        del held["A"]
    elif how in ("keep", "limit"):
        if how == "keep":
            assert wire.ok("STREAM.PURGE.A", {"keep": 10})["purged"] > 90
        else:
            wire.ok("STREAM.UPDATE.A", {"name": "A", "subjects": ["A"], "max_msgs": 10})
        held["A"][resumes(wire, "A")] = b"again"
        held["A"] = {seq: held["A"][seq] for seq in sorted(held["A"])[-10:]}
        assert resumes(wire, "B") > max(held["B"], default=0)
    else:
        wire.ok("STREAM.PURGE.A")
        assert resumes(wire, "A") > max(held["A"])
        assert resumes(wire, "B") > max(held["B"], default=0)
        held["A"] = {}
    more: dict[int, bytes] = held["B"]
    for number in range(9000, 9050):
        more[resumes(wire, "B", payload(number))] = payload(number)
    wire.ok("STREAM.CREATE.N", {"name": "N", "subjects": ["N"]})
    wire.close()
    small.stop(kill=True)
    small.start()
    wire = Wire(small.port)
    for name, acked in held.items():
        check(wire, name, acked)
    wire.close()


def test_room_is_noticed_without_a_publish(small: ServerProcess) -> None:
    """Somebody else fills the disk, and makes room again: one advisory, and late acks."""
    wire = Wire(small.port)
    wire.ok("STREAM.CREATE.A", {"name": "A", "subjects": ["A"]})
    wire.ok("STREAM.CREATE.B", {"name": "B", "subjects": ["B"]})
    listener = Wire(small.port)
    listener.send(b"SUB $JS.EVENT.ADVISORY.SERVER.> 7\r\n")
    held = {wire.request("A", payload(n))["seq"]: payload(n) for n in range(20)}
    wire.request("B", b"small")
    filler = Path(small.store) / "filler"
    with filler.open("wb") as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(65536))
            file.flush()
    refused = fill(wire, "A", held, 100)
    assert refused[0] == {
        "code": 503,
        "err_code": 10077,
        "description": "No space left on device",
    }
    check(wire, "A", held)
    # a full disk is nothing that compaction, states or new consumers may do harm on
    body = {"stream_name": "A", "config": {"durable_name": "c", "ack_policy": "explicit"}}
    answer = wire.api("CONSUMER.CREATE.A.c", body)
    assert "error" not in answer or answer["error"]["err_code"] == 10104
    wire.events(1.0)
    filler.unlink()
    late = [e for e in wire.events(5.0) if b'"seq"' in e.payload and b"error" not in e.payload]
    for event in late:
        held[json.loads(event.payload)["seq"]] = payload(int(event.subject))
    assert resumes(wire, "A") == max(held) + 1
    check(wire, "A", held)
    (told,) = listener.events(5.0)
    assert json.loads(told.payload)["stream"] == "A"
    listener.close()
    wire.close()


@pytest.fixture
def image(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server whose store is an ext4 of 24 MB."""
    with contextlib.ExitStack() as stack:
        try:
            loop.make(tmp_path / "disk.img", 24 << 20)
            place = stack.enter_context(loop.mounted(tmp_path / "disk.img", tmp_path / "small"))
        except loop.NotHere as why:
            pytest.skip(str(why))
        server = ServerProcess("pelton", store=str(place))
        server.arguments = ["--sync_interval", "always"]
        stack.callback(lambda: server.stop(kill=True))
        server.start()
        yield server


def no_block_free(server: ServerProcess) -> Path:
    """Somebody else takes all the room there is."""
    filler = Path(server.store) / "filler"
    with filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(1024)):
            pass
    return filler


def offered(
    wire: Wire, stream: str, data: bytes, held: dict[str, dict[int, bytes]]
) -> list[dict[str, Any]]:
    """Publish; the error, when it was refused. There is no answer when it waits for the disk."""
    try:
        answer = wire.request(stream, data)
    except RuntimeError:
        return []
    if "error" in answer:
        return [answer["error"]]
    held[stream][answer["seq"]] = data
    return []


def is_served(server: ServerProcess, held: dict[str, dict[int, bytes]]) -> None:
    """All streams are there, with all that was acked."""
    wire = Wire(server.port)
    assert "offline" not in wire.ok("STREAM.LIST")
    for name, acked in held.items():
        check(wire, name, acked)
    wire.close()


@pytest.mark.parametrize("ragged", [False, True], ids=["", "with what an opening mends"])
def test_killed_and_started_while_the_disk_is_full(image: ServerProcess, ragged: bool) -> None:
    print(f"seed {SEED}")
    rng = Random(SEED)
    wire = Wire(image.port, 2)
    held: dict[str, dict[int, bytes]] = {"A": {}, "B": {}}
    for name in held:
        wire.ok(f"STREAM.CREATE.{name}", {"name": name, "subjects": [name]})
        body = {"stream_name": name, "config": {"durable_name": "c", "ack_policy": "explicit"}}
        wire.ok(f"CONSUMER.CREATE.{name}.c", body)
        for number in range(rng.randrange(20, 60)):
            held[name][wire.request(name, payload(number))["seq"]] = payload(number)
    for life in range(4):
        filler = no_block_free(image)
        refused: list[Any] = []
        while len(refused) < 5:  # what blocks of files still take is taken
            refused += offered(wire, "A", payload(1000 + life), held)
        wire.close()
        image.stop(kill=True)
        if ragged:
            make_ragged(Path(image.store), life)
        image.start()
        wire = Wire(image.port, 2)
        is_served(image, held)
        for error in offered(wire, "B", b"x", held):
            assert error["err_code"] == 10077
        image.stop(kill=True)  # and once more: nothing was written in between
        image.start()
        wire = Wire(image.port, 2)
        is_served(image, held)
        filler.unlink()
        for name, acked in held.items():
            acked[resumes(wire, name, b"again")] = b"again"
        is_served(image, held)


def make_ragged(store: Path, life: int) -> None:
    """An unfinished end, an index file and the copy of a configuration that are gone."""
    log = store / "jetstream/$G/streams/A/log"
    newest = max(log.glob("*.seg"))
    with newest.open("r+b") as file:
        file.seek(0, os.SEEK_END)
        end = file.tell()
        with contextlib.suppress(OSError):
            file.write(b"half a record")
            file.flush()
        if file.tell() == end:
            file.truncate(end - 5)
    for path in [*log.glob("*.idx"), log.parent / "meta.json.copy"]:
        path.unlink(missing_ok=True)
