"""Thousands of streams in a process that may open far fewer files: created, used, stopped, killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.crash.wire import Wire
from tests.server.process import ServerProcess
from tests.ways import length

STREAMS = length(150, 10_000)
DESCRIPTORS = length(100, 1024)
IN_FLIGHT = 64


def started(store: Path, sync: str) -> ServerProcess:
    code = (
        "import resource, sys;"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({DESCRIPTORS}, {DESCRIPTORS}));"
        "from pelton.server.__main__ import main; sys.exit(main(sys.argv[1:]))"
    )
    config = store.parent / "server.conf"
    config.write_text(
        f'host: 127.0.0.1, port: -1\njetstream {{ store_dir: "{store}", sync_interval: {sync} }}\n'
    )
    command = [sys.executable, "-c", code, "-c", str(config)]
    return ServerProcess(child=subprocess.Popen(command, stderr=subprocess.PIPE))


def ask(wire: Wire, requests: Iterable[tuple[str, bytes]], check: Callable[[Any], bool]) -> None:
    """Send requests, IN_FLIGHT at a time, and check each answer."""
    waiting: dict[str, str] = {}
    left = enumerate(requests)
    more = True
    while more or waiting:
        while more and len(waiting) < IN_FLIGHT:
            number, request = next(left, (0, None))
            if request is None:
                more = False
                break
            waiting[f"a.{number}"] = request[0]
            wire.publish(*request, f"a.{number}")
        for event in wire.events(60.0):
            subject = waiting.pop(event.subject, None)
            if subject is not None:
                answer = json.loads(event.payload) if event.payload else {}
                assert check(answer), (subject, answer)
        assert not wire.gone


def sound(answer: Any) -> bool:
    return "error" not in answer


def create(wire: Wire, number: int) -> Iterable[tuple[str, bytes]]:
    config = {"name": f"S{number}", "subjects": [f"s.{number}.>"]}
    yield f"$JS.API.STREAM.CREATE.S{number}", json.dumps(config).encode()
    consumer = {"durable_name": "c", "ack_policy": "explicit"}
    body = json.dumps({"stream_name": f"S{number}", "config": consumer}).encode()
    yield f"$JS.API.CONSUMER.DURABLE.CREATE.S{number}.c", body


@pytest.mark.timeout(length(300, 3600))
@pytest.mark.parametrize("sync", ["always", "2m"])
def test_more_streams_than_descriptors(tmp_path: Path, sync: str) -> None:
    if sync == "always" and length(0, 1):
        pytest.skip("the same with more fsyncs, tried with fewer streams")
    store = tmp_path / "store"
    server = started(store, sync)
    wire = Wire(server.port(), timeout=60.0)

    def publish() -> None:
        subjects = ((f"s.{number}.x", b"payload") for number in range(STREAMS))
        ask(wire, subjects, lambda answer: answer.get("stream", "").startswith("S"))

    def check(messages: int, pending: int) -> None:
        infos = ((f"$JS.API.STREAM.INFO.S{number}", b"") for number in range(STREAMS))
        ask(wire, infos, lambda answer: answer["state"]["messages"] == messages)
        infos = ((f"$JS.API.CONSUMER.INFO.S{number}.c", b"") for number in range(STREAMS))
        ask(
            wire,
            infos,
            lambda answer: (
                answer["num_pending"] == pending and answer["ack_floor"]["stream_seq"] == 1
            ),
        )
        assert len(list(Path(f"/proc/{server.pid}/fd").iterdir())) < DESCRIPTORS

    ask(wire, (each for number in range(STREAMS) for each in create(wire, number)), sound)
    publish()
    publish()
    for number in range(STREAMS):
        wire.publish(f"$JS.API.CONSUMER.MSG.NEXT.S{number}.c", b"1", f"pull.{number}")
        replies: list[str] = []
        while not replies:  # the answer to the last ack may come first, alone
            assert not wire.gone
            replies = [event.reply for event in wire.events(60.0) if event.reply]
        wire.publish(replies[0], b"+ACK", "acked")
    for messages, stop in ((2, signal.SIGTERM), (3, signal.SIGKILL)):
        check(messages, messages - 1)
        wire.close()
        server.child.send_signal(stop)
        server.end()
        assert "Too many open files" not in server.text
        server = started(store, sync)
        wire = Wire(server.port(), timeout=60.0)
        check(messages, messages - 1)
        publish()
    wire.close()
    assert server.stop() == 0
    assert "Too many open files" not in server.text
