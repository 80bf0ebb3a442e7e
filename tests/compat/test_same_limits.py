"""Limits of a server and of an account, beside a nats-server: the same calls and publishes, the
answers compared field by field.

The server's limits come from a configuration file. Those of an account are given to an engine
without a server: there is one account, and its limits are no setting.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pelton.api.calls import AccountLimits
from tests.compat.twins import Twin, Twins, plain, twins
from tests.engine.house import House
from tests.peers import available_servers, running_server

pytestmark = pytest.mark.peer

SERVER = """
jetstream {
    max_mem: 20000, max_file: 30000
    limits { max_ack_pending: 50, max_request_batch: 20, duplicate_window: "1m30s" }
}
"""
ACCOUNT = """
jetstream { max_mem: 1GB, max_file: 1GB }
accounts {
    A { users: [{user: a, password: a}], jetstream { LIMITS } }
    SYS { users: [{user: s, password: s}] }
}
system_account: SYS
no_auth_user: a
"""


@pytest.fixture
def need_both() -> None:
    missing = [kind for kind in ("pelton", "nats-server") if kind not in available_servers()]
    if missing:
        pytest.skip(f"not on this machine: {missing}")


@pytest.fixture
def both(need_both: None, tmp_path: Path) -> Iterator[Twins]:
    file = tmp_path / "limits.conf"
    file.write_text(SERVER)
    arguments = ("-n", "twin", "-c", str(file))
    with (
        running_server("pelton", *arguments) as ours,
        running_server("nats-server", *arguments) as theirs,
        twins(ours.port, theirs.port) as pair,
    ):
        yield pair


def make(name: str, **fields: Any) -> tuple[str, dict[str, Any]]:
    return f"STREAM.CREATE.{name}", {"name": name, **fields}


def change(name: str, **fields: Any) -> tuple[str, dict[str, Any]]:
    return f"STREAM.UPDATE.{name}", {"name": name, **fields}


def consumer(stream: str, name: str, **fields: Any) -> tuple[str, dict[str, Any]]:
    config = {"name": name, "durable_name": name, "ack_policy": "explicit", **fields}
    pedantic = config.pop("pedantic", False)
    body = {"stream_name": stream, "config": config, **({"pedantic": True} if pedantic else {})}
    return f"CONSUMER.CREATE.{stream}.{name}", body


def test_what_a_server_reserves(both: Twins) -> None:
    for call, body in (
        make("F", max_bytes=20_000),
        make("F", max_bytes=20_000),
        make("G", max_bytes=10_001),
        make("G", max_bytes=10_000),
        make("H"),
        make("M", storage="memory", max_bytes=20_001),
        make("M", storage="memory", max_bytes=15_000),
        make("N", storage="memory", max_bytes=5_001),
        make("N", storage="memory"),
        change("F", max_bytes=20_001),
        change("G", max_bytes=5_000),
        change("F", max_bytes=25_000),
        change("M", storage="memory"),
        change("G", max_bytes=-1),
        ("INFO", ""),
        ("STREAM.DELETE.F", ""),
        make("H"),
        make("G", max_bytes=10_000),
        ("INFO", ""),
        ("STREAM.DELETE.M", ""),
        ("STREAM.DELETE.G", ""),
        ("INFO", ""),
    ):
        both.ask(call, body)


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_a_full_server(both: Twins, storage: str) -> None:
    both.ask(*make("S", subjects=["s.>"], storage=storage))
    for n in range(8):
        both.publish("s.x", b"x" * 5000, reply="answer")
        both.publish("s.x", b"", headers="A: b", reply="answer")
        if n == 5:
            both.ask("INFO")
    both.ask("STREAM.INFO.S")
    both.ask(*make("T", storage=storage))
    both.ask("STREAM.MSG.DELETE.S", {"seq": 1})
    both.ask("STREAM.MSG.DELETE.S", {"seq": 3, "no_erase": True})
    both.publish("s.x", b"again", reply="answer")
    both.ask("STREAM.PURGE.S")
    both.publish("s.x", b"and again", reply="answer")
    both.ask("INFO")


def test_what_the_operator_allows(both: Twins) -> None:
    for call, body in (
        make("S"),
        make("T", duplicate_window=90_000_000_001),
        make("T", duplicate_window=90_000_000_000),
        make("U", max_age=60_000_000_000),
        make("V", pedantic=True),
        change("S", duplicate_window=100_000_000_000),
        consumer("S", "a"),
        consumer("S", "b", max_ack_pending=51),
        consumer("S", "b", max_ack_pending=50),
        consumer("S", "c", max_ack_pending=-1),
        consumer("S", "d", ack_policy="none"),
        consumer("S", "e", max_batch=21),
        consumer("S", "e", max_batch=20),
        consumer("S", "f", pedantic=True),
        consumer("S", "f", pedantic=True, max_batch=5, max_ack_pending=4),
        consumer("S", "g", deliver_subject="x", max_batch=30),
        consumer("S", "a", max_ack_pending=60),
        consumer("S", "a", max_batch=60),
        ("CONSUMER.LIST.S", ""),
    ):
        both.ask(call, body)
    for batch in (20, 21):
        both.publish("$JS.API.CONSUMER.MSG.NEXT.S.a", json.dumps({"batch": batch, "no_wait": True}),
                     reply="answer")  # fmt: skip


LIMITS: dict[str, dict[str, Any]] = {
    "bytes": {"max_memory": 5000, "max_storage": 9000},
    "counts": {"max_streams": 2, "max_consumers": 2, "max_ack_pending": 30},
    "streams": {
        "max_bytes_required": True,
        "memory_max_stream_bytes": 1000,
        "storage_max_stream_bytes": 2000,
    },
    "nothing": {"max_memory": 0, "max_storage": 0},
    "none": {},
}
WORDS = {
    "max_memory": "max_mem",
    "max_storage": "max_file",
    "memory_max_stream_bytes": "mem_max_stream_bytes",
    "storage_max_stream_bytes": "disk_max_stream_bytes",
}
CALLS: list[tuple[str, Any]] = [
    make("S", subjects=["s.>"], sealed=True),
    make("S", subjects=["s.>"]),
    make("S", subjects=["s.>"], max_bytes=1500),
    make("S", subjects=["s.>"], max_bytes=1500),
    make("L", max_bytes=2001),
    make("L", storage="memory", max_bytes=1001),
    make("L", storage="memory", max_bytes=1000),
    make("X", max_bytes=100, max_consumers=3),
    make("X", max_bytes=100, max_consumers=1),
    make("X", max_bytes=100, subjects=["bad subject"]),
    make("Y", max_bytes=100, num_replicas=3),
    make("S", max_bytes=8000),
    ("STREAM.DELETE.X", ""),
    ("STREAM.DELETE.L", ""),
    change("S", subjects=["s.>"], max_bytes=9001),
    change("S", subjects=["s.>"], max_bytes=2001),
    change("S", subjects=["s.>"], max_bytes=-1),
    consumer("S", "a"),
    consumer("S", "b", max_ack_pending=31),
    consumer("S", "b", max_ack_pending=30),
    consumer("S", "c"),
    consumer("S", "a", description="again"),
    ("INFO", ""),
    *[("> s.a", b"x" * 1000) for _ in range(12)],
    ("STREAM.PURGE.S", {"keep": 1}),
    ("> s.a", b"x" * 100),
    make("M", storage="memory", max_bytes=900),
    *[("> M", b"y" * 1300) for _ in range(6)],
    ("INFO", ""),
    ("STREAM.DELETE.S", ""),
    ("INFO", ""),
]


def settled(value: Any) -> Any:
    """What two servers can have in common."""
    text = json.dumps(plain(value))
    return json.loads(re.sub(r'"leader": "[^"]*"', '"leader": "x"', text))


@pytest.mark.parametrize("limits", LIMITS)
def test_what_an_account_may(need_both: None, tmp_path: Path, limits: str) -> None:
    values = LIMITS[limits]
    house = House(tmp_path / "ours", account_limits={"": AccountLimits(**values)})
    lines = ", ".join(f"{WORDS.get(k, k)}: {json.dumps(v)}" for k, v in values.items())
    file = tmp_path / "account.conf"
    file.write_text(ACCOUNT.replace("LIMITS", lines or "max_streams: -1"))
    with running_server("nats-server", "-c", str(file)) as server:
        twin = Twin(server.port)
        twin.send(b"SUB answer 1\r\n")
        for step, (call, body) in enumerate(CALLS):
            raw = body if isinstance(body, bytes) else json.dumps(body).encode() if body else b""
            subject = call[2:] if call.startswith("> ") else f"$JS.API.{call}"
            ours = house.request(subject, raw)
            twin.seen = {}
            twin.send(b"PUB %s answer %d\r\n%s\r\n" % (subject.encode(), len(raw), raw))
            while not twin.seen.get("1"):
                assert twin.read(4), f"no answer to {call}"
            _, _, head, theirs = twin.seen["1"][0]
            if not theirs:  # nobody takes it
                assert (ours[0][0][:12], ours[0][1]) == (head[:12], b"")
                continue
            theirs = theirs if isinstance(theirs, dict) else json.loads(theirs)
            answer = json.loads(ours[0][1])
            assert settled(answer) == settled(theirs), f"step {step}: {call} {raw[:200]!r}"
        twin.close()
