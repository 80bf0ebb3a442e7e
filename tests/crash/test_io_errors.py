"""A server process whose disk answers with I/O errors for a while: no false acks, and it goes on.

The errors come from a small library that is preloaded; skipped where there is no C compiler.
"""

from __future__ import annotations

import base64
import errno
import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.crash.load import stored
from tests.crash.wire import Wire, message
from tests.peers import ServerProcess, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


class Faulty:
    """A server, and the switches of its disk."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.switches = folder / "switches"
        self.switches.mkdir()
        store = folder / "store"
        store.mkdir()
        library = folder / "failing.so"
        source = Path(__file__).with_name("failing.c")
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("no C compiler here")
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source)]
        subprocess.run(command, check=True)
        self.environment = {
            "LD_PRELOAD": str(library),
            "PELTON_FAULTS": str(self.switches),
            "PELTON_FAULTS_BELOW": f"{store}/jetstream",
        }
        self.monitor = free_port()
        self.server = ServerProcess(
            "pelton", store=str(store), arguments=["-m", str(self.monitor), *arguments]
        )
        self.start()

    def start(self) -> None:
        before = dict(os.environ)
        os.environ.update(self.environment)
        try:
            self.server.start()
        finally:
            os.environ.clear()
            os.environ.update(before)

    def fails(self, call: str, code: int = errno.EIO) -> None:
        (self.switches / call).write_text(str(code))

    def works(self) -> None:
        for each in self.switches.iterdir():
            each.unlink()

    def health(self) -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.monitor}/healthz") as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def complaints(self) -> list[str]:
        """What the server wrote about its streams."""
        lines = self.server.log_path.read_text().splitlines()
        return [line for line in lines if "stream S" in line and "[WRN]" in line]


@pytest.fixture(params=["always", "2m"])
def faulty(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Faulty]:
    made = Faulty(tmp_path, "--sync_interval", request.param)
    try:
        yield made
    finally:
        made.server.stop(kill=True)


def publish(
    wire: Wire, count: int, size: int, acked: dict[int, bytes], wait: float = 1.0
) -> list[Any]:
    """Publish at once; what was refused. Acks are noted."""
    sent: dict[str, bytes] = {}
    for _ in range(count):
        name = os.urandom(6).hex()
        sent[name] = os.urandom(size)
        wire.send(message("S", sent[name], wire.inbox(name)))
    refused = []
    until = time.monotonic() + 10
    while sent and time.monotonic() < until and (events := wire.events(wait)):
        for event in events:
            answer = json.loads(event.payload)
            data = sent.pop(event.subject, b"")
            if "error" in answer:
                refused.append(answer["error"])
            elif data:
                acked[answer["seq"]] = data
    return refused


def check(wire: Wire, acked: dict[int, bytes]) -> None:
    got = stored(wire, "S", sorted(acked))
    assert sorted(got) == sorted(acked)
    for seq, found in got.items():
        assert base64.b64decode(found["data"]) == acked[seq]


def wait_for(true: Any, seconds: float = 20) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.parametrize("call", ["write", "sync"])
def test_io_errors_while_writing(faulty: Faulty, call: str) -> None:
    wire = Wire(faulty.server.port)
    wire.ok("STREAM.CREATE.S", {"name": "S", "subjects": ["S"]})
    acked: dict[int, bytes] = {}
    # more than memory holds of the newest file, so that a part has to be read back
    assert publish(wire, 400, 10_000, acked) == []
    assert len(acked) == 400
    faulty.fails(call)
    lazily = call == "sync" and "2m" in faulty.server.arguments
    publish(wire, 20, 10_000, acked)
    if lazily:
        # nobody waits for that fsync: it is the next one of a file, when a segment is full
        faulty.works()
        check(wire, acked)
        return
    assert len(acked) == 400
    refused = publish(wire, 20, 100, acked)
    assert len(refused) == 20
    assert refused[0] == {"code": 503, "err_code": 10077, "description": "Input/output error"}
    check(wire, acked)  # reads go on
    status, body = faulty.health()
    assert status == 503
    assert body["error"] == "JetStream stream '$G > S' write error: Input/output error"
    time.sleep(1.5)
    assert len(publish(wire, 5, 100, acked)) == 5
    assert len(faulty.complaints()) == 1
    faulty.works()
    wait_for(lambda: faulty.health()[0] == 200)  # nobody publishes meanwhile
    late = wire.events(5.0)
    assert any("seq" in (answer := json.loads(e.payload)) and "error" not in answer for e in late)
    last = wire.ok("STREAM.INFO.S")["state"]
    assert last["messages"] >= 401
    assert "lost" not in last
    assert publish(wire, 50, 3000, acked) == []
    check(wire, acked)
    assert len(faulty.complaints()) == 2
    wire.close()
    faulty.server.stop(kill=True)
    faulty.start()
    wire = Wire(faulty.server.port)
    check(wire, acked)
    wire.close()


def test_io_errors_while_reading(faulty: Faulty) -> None:
    wire = Wire(faulty.server.port)
    wire.ok("STREAM.CREATE.S", {"name": "S", "subjects": ["S"], "allow_direct": True})
    config = {"durable_name": "c", "ack_policy": "explicit"}
    wire.ok("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
    acked: dict[int, bytes] = {}
    publish(wire, 400, 10_000, acked)
    faulty.fails("read")
    answer = wire.api("STREAM.MSG.GET.S", {"seq": 7})
    assert answer["error"]["description"] == "Input/output error"
    wire.send(
        message(
            "$JS.API.CONSUMER.MSG.NEXT.S.c", b'{"batch":3,"expires":20000000000}', wire.inbox("p")
        )
    )
    assert wire.events(1.5) == []
    assert publish(wire, 5, 100, acked) == []  # writes go on
    assert wire.ok("STREAM.INFO.S")["state"]["messages"] == 405
    faulty.works()
    got: list[Any] = []
    while len(got) < 3:
        more = wire.events(5.0)
        assert more
        got += more
    assert [event.payload for event in got] == [acked[seq] for seq in (1, 2, 3)]
    check(wire, acked)
    assert "lost" not in wire.ok("STREAM.INFO.S")["state"]
    wire.close()
