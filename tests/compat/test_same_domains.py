"""A server with a JetStream domain beside a real nats-server: which answers name the domain, and the
longer ack subjects of `js_ack_fc_v2`.
"""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.compat.pair import Judges, Pair, RawClient, both, comparable
from tests.compat.scene import NEEDS_BOTH
from tests.readable import readable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = NEEDS_BOTH
CONFIG = """
jetstream { domain: hub }
feature_flags { js_ack_fc_v2: true }
accounts {
  $SYS { users: [{user: sys, password: pw}] }
  A { jetstream: enabled, users: [{user: a, password: pw}] }
  B { users: [{user: b, password: pw}] }
}
no_auth_user: a
"""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    path: Path = tmp_path_factory.mktemp("domain") / "hub.conf"
    path.write_text(CONFIG)
    with both("-c", str(path)) as servers:
        yield servers


@pytest.fixture
def judges(pair: Pair) -> Judges:
    made = Judges(pair)
    for name in "SM":
        made.ask(f"STREAM.DELETE.{name}")
    return made


def test_calls(judges: Judges) -> None:
    stream = {"name": "S", "subjects": ["s.>"], "allow_atomic": True}
    consumer = {"stream_name": "S", "config": {"durable_name": "c", "ack_policy": "explicit"}}
    calls: list[tuple[str, Any]] = [
        ("STREAM.CREATE.S", stream),
        ("STREAM.CREATE.S", stream),
        ("STREAM.CREATE.S", {**stream, "max_msgs": 4}),
        ("STREAM.UPDATE.S", {**stream, "max_msgs": 9}),
        ("STREAM.INFO.S", b""),
        ("STREAM.INFO.nobody", b""),
        ("STREAM.LIST", b""),
        ("STREAM.NAMES", b""),
        ("STREAM.PURGE.S", b""),
        ("CONSUMER.DURABLE.CREATE.S.c", consumer),
        ("CONSUMER.INFO.S.c", b""),
        ("CONSUMER.LIST.S", b""),
        ("INFO", b""),
        ("STREAM.CREATE.M", {"name": "M", "mirror": {"name": "S"}}),
        ("STREAM.INFO.M", b""),
        ("STREAM.DELETE.S", b""),
    ]
    for call, body in calls:
        judges.same(call, body)


def test_acknowledgements(judges: Judges) -> None:
    fields = {"subjects": ["s.>"], "allow_atomic": True, "allow_batched": True}
    judges.same("STREAM.CREATE.S", {"name": "S", **fields, "allow_msg_ttl": True})
    blocks = [
        "",
        "Nats-Msg-Id: a",
        "Nats-Msg-Id: a",
        "Nats-Expected-Last-Sequence: 70",
        "Nats-Expected-Stream: T",
        "Nats-TTL: x",
        "Nats-Rollup: sub",
        "Nats-Incr: 1",
        "Nats-Batch-Id: b\r\nNats-Batch-Sequence: 1\r\nNats-Batch-Commit: 1",
        "Nats-Batch-Id: c\r\nNats-Batch-Sequence: 2",
        "Nats-Batch-Id: d\r\nNats-Batch-Sequence: 1\r\nNats-Expected-Last-Sequence: 70\r\nNats-Batch-Commit: 1",
        "Nats-Required-Api-Level: 5",
        "Nats-Required-Api-Level: 6",
        "Nats-Stream-Source: a",
    ]
    for lines in blocks:
        header = f"NATS/1.0\r\n{lines}\r\n\r\n".encode() if lines else b""
        ours, theirs = judges.publish("s.a", b"x", header)
        assert ours == theirs, lines


def test_levels(judges: Judges) -> None:
    judges.same("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    for level in ("0", "4", "5", "6", "-1", "+5", "+", "", "x", "05", "5 5"):
        header = f"NATS/1.0\r\nNats-Required-Api-Level: {level}\r\n\r\n".encode()
        answers = [
            json.loads(client.request("$JS.API.STREAM.INFO.S", b"", header=header) or b"")
            for client in judges.clients
        ]
        assert [each.get("error") for each in answers[:1]] == [
            each.get("error") for each in answers[1:]
        ], level
    levels = [
        json.loads(client.request("$JS.API.INFO", b"") or b"")["api"]["level"]
        for client in judges.clients
    ]
    assert levels == [5, 5]


def test_ack_subjects(judges: Judges) -> None:
    judges.same("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    config = {"durable_name": "c", "ack_policy": "explicit"}
    judges.same("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
    judges.publish("s.a", b"x")
    seen = []
    for client in judges.clients:
        reply = reply_of(client, "$JS.API.CONSUMER.MSG.NEXT.S.c")
        assert client.request(reply, b"+ACK") == b""
        seen.append(re.sub(r"\d{19}", "time", reply))
    assert seen[0] == seen[1]
    assert seen[0].startswith("$JS.ACK.hub.")
    ours, theirs = judges.ask("CONSUMER.INFO.S.c")
    assert ours[0]["num_ack_pending"] == theirs[0]["num_ack_pending"] == 0


def reply_of(client: Any, subject: str) -> str:
    """The reply subject of the message that a pull request is answered with."""
    reply = client.send(subject, b"1")
    while (found := re.search(rb"MSG \S+ \S+ (\$JS\.ACK\S+) ", client._lines)) is None:
        client._lines += client._socket.recv(1 << 16)
    assert reply
    client._lines = b""
    return found[1].decode()


CALLS = [
    *("META.LEADER.STEPDOWN", "META.RESCUE", "META.X", "META.LEADER.STEPDOWN.x"),
    *("SERVER.REMOVE", "SERVER.EVACUATE", "SERVER.REMOVE.x", "SERVER.X"),
    *("ACCOUNT.PURGE.nobody", "ACCOUNT.STREAM.MOVE.A.S", "ACCOUNT.STREAM.CANCEL_MOVE.A.S"),
    *("INFO", "STREAM.NAMES", "STREAM.INFO.X", "DIRECT.GET.X", "X"),
]


def test_calls_of_the_system_account(pair: Pair) -> None:
    """With and without the domain. All requests are sent before any answer is awaited."""
    subjects = [
        f"{prefix}.{call}"
        for prefix in ("$JS.API", "$JS.hub.API", "$JS.leaf.API")
        for call in CALLS
    ]
    seen: list[dict[str, Any]] = []
    for server in pair:
        client = RawClient(server, "sys")
        replies = {client.send(subject, b"{}"): subject for subject in subjects}
        last = client.send("no.one.is.here", b"")
        answers: dict[str, Any] = {}
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and len(answers) <= len(subjects):
            found = client._read()
            if found is not None and found[0] == last:
                deadline = min(deadline, time.monotonic() + 0.5)
            elif found is not None:
                answers[replies[found[0]]] = comparable(found[1])
            elif readable([client._socket], 0.1):
                client._lines += client._socket.recv(1 << 16)
        seen.append(answers)
        client.close()
    assert seen[0] == seen[1]


def test_advisories_in_the_system_account(pair: Pair, judges: Judges) -> None:
    """Audits of its own requests, and abandoned batches of all accounts."""
    ears = [RawClient(server, "sys") for server in pair]
    mouths = [RawClient(server, "sys") for server in pair]
    for ear in ears:
        ear._socket.sendall(b"SUB $JS.EVENT.> 9\r\n")
        assert ear.request("no.one.is.here", b"") is not None
    judges.same("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "allow_atomic": True})
    for call in ("INFO", "STREAM.INFO.X", "ACCOUNT.PURGE.nobody", "STREAM.CREATE.q"):
        for mouth in mouths:
            assert mouth.request(f"$JS.API.{call}", b"{}") is not None
    for sequence in (1, 5):
        lines = f"NATS/1.0\r\nNats-Batch-Id: b\r\nNats-Batch-Sequence: {sequence}\r\n\r\n"
        judges.publish("s.a", b"x", lines.encode())
    seen: list[list[Any]] = []
    for ear in ears:
        events: list[Any] = []
        deadline = time.monotonic() + 20
        while len(events) < 5 and time.monotonic() < deadline:
            if (found := ear._read()) is not None and found[0].startswith(b"$JS.EVENT"):
                event = json.loads(found[1])
                event.pop("id"), event.pop("timestamp")
                events.append((found[0], [*event], event))
            elif found is None and readable([ear._socket], 0.1):
                ear._lines += ear._socket.recv(1 << 16)
        seen.append(events)
        ear.close()
    for mouth in mouths:
        mouth.close()
    assert seen[0] == [
        (
            subject,
            keys,
            {**event, **({"server": seen[0][0][2]["server"]} if "server" in event else {})},
        )
        for subject, keys, event in seen[1]
    ]
    assert len(seen[0]) == 5
