"""Real servers that are started over a store whose streams take a while to open, and killed meanwhile."""

import fcntl
import json
import os
import re
import signal
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from pelton.core.log import maintenance
from pelton.core.log.recovery import open_log
from tests.ports import free_port
from tests.server.process import ServerProcess, Wire

SEGMENTS = 3
PAYLOAD = b"x" * 60_000


def server_over(store: Path) -> tuple[ServerProcess, int]:
    port = free_port()
    return ServerProcess("-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(store)), port


def early(port: int) -> Wire:
    """Connected as soon as it listens, which is before its streams are there."""
    deadline = time.monotonic() + 20
    while True:
        try:
            return Wire(port)
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.001)


def ask(wire: Wire, subject: str, body: str = "") -> None:
    inbox = f"answer.{wire.socket.getsockname()[1]}"
    wire.send(f"SUB {inbox} 1\r\nUNSUB 1 1\r\nPUB {subject} {inbox} {len(body)}\r\n{body}\r\n")


def answer(wire: Wire) -> Any:
    while not wire.line().startswith("MSG answer"):
        pass
    return json.loads(wire.line())


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Two streams; BIG has no index files, so each opening reads all of it."""
    server, port = server_over(tmp_path)
    try:
        wire = early(port)
        for name in ("BIG", "SMALL"):
            config = {"name": name, "subjects": [f"{name.lower()}.>"]}
            ask(wire, f"$JS.API.STREAM.CREATE.{name}", json.dumps(config))
            assert "error" not in answer(wire)
    finally:
        server.stop()
    log = open_log(str(tmp_path / "jetstream/$G/streams/BIG/log"))
    for number in range(SEGMENTS * 280):
        log.add(time.time_ns(), f"big.{number}", PAYLOAD)
        if number % 100 == 0:
            log.flush()
    maintenance.close(log)
    return tmp_path


def forget_indexes(store: Path) -> None:
    for path in store.glob("jetstream/*/streams/BIG/log/*.idx"):
        path.unlink()


def test_kills_while_streams_are_opened_lose_nothing(store: Path) -> None:
    acked = {"BIG": 0, "SMALL": 0}
    for life in range(6):
        forget_indexes(store)
        server, port = server_over(store)
        try:
            one, other, third = early(port), early(port), early(port)
            ask(one, "big.new", str(life))
            ask(other, "small.new", str(life))
            third.send("PING\r\n")
            assert third.line() == "PONG"
            small = answer(other)
            assert small["stream"] == "SMALL"
            assert small["seq"] > acked["SMALL"]
            acked["SMALL"] = small["seq"]
            if life % 2:
                big = answer(one)
                assert big["stream"] == "BIG"
                assert big["seq"] > acked["BIG"]
                acked["BIG"] = big["seq"]
        finally:
            server.signal(signal.SIGKILL)
            server.end()
    server, port = server_over(store)
    try:
        wire = early(port)
        for name, seq in acked.items():
            ask(wire, f"$JS.API.STREAM.MSG.GET.{name}", f'{{"seq":{seq}}}')
            assert answer(wire)["message"]["seq"] == seq
        ask(wire, "$JS.API.STREAM.INFO.BIG")
        state = answer(wire)["state"]
        assert state["messages"] == state["last_seq"] >= SEGMENTS * 280 + 3
    finally:
        assert server.stop() == 0


def health(port: int) -> str:
    """What is wrong; "": nothing is."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=20):
            return ""
    except urllib.error.HTTPError as error:
        return f"{json.loads(error.read())['error']}"


def test_health_says_how_far_it_is(store: Path, tmp_path: Path) -> None:
    """BIG is not begun before a thread has brought its files to the disk: one with a lease makes that
    last until the lease is given back.
    """
    (store / "jetstream/$G/closed").unlink()  # as after a kill: a clean stop needs no such thread
    held = store / "jetstream/$G/streams/BIG/log" / f"{10**19}.seg"
    held.write_bytes(b"x")
    lease = os.open(held, os.O_RDWR)
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)  # that somebody waits for it
    fcntl.fcntl(lease, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    port = free_port()
    server = ServerProcess("-a", "127.0.0.1", "-p", "-1", "-m", str(port), "-js", "-sd", str(store))
    try:
        server.http_port()
        deadline = time.monotonic() + 60
        while (said := health(port)) != "recovering 1 of 2 streams":
            assert said in ("recovering 0 of 2 streams", "JetStream not enabled")
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert health(port) == "recovering 1 of 2 streams"
        held.rename(tmp_path / "away")
        fcntl.fcntl(lease, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        while said := health(port):
            assert re.fullmatch("recovering [12] of 2 streams", said)
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert server.wait_for("Took .*ms to start JetStream")
    finally:
        os.close(lease)
        signal.signal(signal.SIGIO, before)
        assert server.stop() == 0


def test_a_stop_while_streams_are_opened(store: Path) -> None:
    forget_indexes(store)
    server, port = server_over(store)
    wire = early(port)
    ask(wire, "big.new")
    server.wait_for("Server is ready")
    os.kill(server.pid, signal.SIGTERM)
    assert server.end() == 0
    assert "Internal error" not in server.text
    assert "Traceback" not in server.text
