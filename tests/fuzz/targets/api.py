"""Every call of the API with any body, publishes with any headers, pulls and acks, over a whole server in memory.

Each call is answered once with JSON of its type, with a documented error if with one; nothing is an internal error; the
server goes on; and after a restart the same streams and consumers are there with the same configurations.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pelton.api import errors_generated as _errors  # noqa: F401 -- defines the documented errors
from pelton.api.consumers import ConsumerConfig
from pelton.api.errors import ApiError
from pelton.api.streams import StreamConfig
from pelton.core.base.disk import PyDisk
from tests.engine.house import House
from tests.fuzz.inputs import Input
from tests.fuzz.memory_disk import MemoryDisk

MAX_BYTES = 2500
ENGINE_TESTS = Path(__file__).resolve().parents[2] / "engine"
CALLS = [line.split("\t") for line in (ENGINE_TESTS / "call_table.tsv").read_text().splitlines()]
NAMES = ("S", "V", "c", "d", "M", "x.y", "", "s.>")
PUBLISH, PULL, ACK, DIRECT, WAIT, BATCH = range(len(CALLS), len(CALLS) + 6)
FIELDS = sorted({*StreamConfig.__struct_fields__, *ConsumerConfig.__struct_fields__})
WORDS = (
    *(b'"%s":' % name.encode() for name in FIELDS),
    b'"limits"', b'"interest"', b'"workqueue"', b'"memory"', b'"file"', b'"new"', b'"s2"', b'"explicit"', b'"all"', b'"none"',
    b'"last_per_subject"', b'"by_start_sequence"', b'"by_start_time"', b'"2024-01-01T00:00:00Z"', b'"overflow"', b'"pinned_client"',
    b'"config":{', b'"stream_name":"S"', b'"name":"V"', b'"src":"a.*"', b'"dest":"b.$1"', b'"external":{"api":"$JS.x.API"}',
    b"9223372036854775807", b"-9223372036854775808", b"18446744073709551616", b"1e400", b"null", b"true", b"[]", b"{}", b"\\ud800",
    b"NATS/1.0\r\n", b"Nats-TTL: 1s\r\n", b"Nats-Incr: +5\r\n", b"Nats-Rollup: all\r\n", b"Nats-Batch-Id: b\r\n",
    b"Nats-Batch-Sequence: 1\r\n", b"Nats-Batch-Commit: 1\r\n", b"Nats-Schedule: @every 1s\r\n", b"Nats-Schedule: @at 2026-01-01T00:00:00Z\r\n",
    b"Nats-Schedule-Target: s.t\r\n", b"Nats-Schedule-TTL: 5s\r\n", b"Nats-Schedule: 0 0 * * * *\r\n", b"Nats-Msg-Id: a\r\n",
    b"Nats-Required-Api-Level: 99\r\n", b"Nats-Expected-Last-Subject-Sequence: 0\r\n",
)  # fmt: skip
FEATURES = {
    "subjects": ["s.>"],
    "allow_direct": True,
    "allow_msg_ttl": True,
    "allow_rollup_hdrs": True,
    "allow_atomic": True,
    "allow_msg_schedules": True,
}


def run(data: bytes) -> None:
    """Byte 0: what S is like; then calls: which, names, length, body."""
    source = Input(data)
    house = House(Path("store"), disk=PyDisk(MemoryDisk()))
    kind = source.number()
    made = dict(FEATURES)
    if kind & 1:
        made |= {"allow_msg_counter": True, "allow_msg_schedules": False, "allow_msg_ttl": False}
    house.api(
        "STREAM.CREATE.S",
        {"name": "S", **made, "retention": ("limits", "interest", "workqueue")[kind // 2 % 3]},
    )
    house.api(
        "CONSUMER.CREATE.S.c",
        {
            "stream_name": "S",
            "config": {"name": "c", "ack_policy": "explicit", "durable_name": "c"},
        },
    )
    house.request("s.a", b"1", b"NATS/1.0\r\nNats-Incr: 3\r\n\r\n" if kind & 1 else b"")
    house.request("s.b", b"2")
    steps = 0
    while source and steps < 8:
        steps += 1
        step(house, source)
        assert not house.server.errors, house.server.errors
        assert not any("internal error" in line for line in house.reports), house.reports
    before = view(house)
    after = view(house.restart())
    assert before == after, (before, after)


def step(house: House, source: Input) -> None:
    which = source.number() % (BATCH + 1)
    names, body = source.number(), source.sized(2000)
    if which < len(CALLS):
        pattern, kind = CALLS[which]
        call(house, subject_of(pattern, names, source), kind, body)
        return
    if which == WAIT:
        house.pass_time((names + 1) * 100_000_000, 500_000_000)
        return
    head, _, rest = body.partition(b"\r\n\r\n")
    headers = head + b"\r\n\r\n" if body.startswith(b"NATS/1.0\r\n") else b""
    payload = rest if headers else body
    if which in (PUBLISH, BATCH):
        subject = ("s.a", "s.b", "s.c.d", "v.x")[names % 4]
        if which == BATCH:
            headers = (
                b"NATS/1.0\r\nNats-Batch-Id: b\r\nNats-Batch-Sequence: %d\r\n" % (names // 8 % 5)
                + (b"Nats-Batch-Commit: 1\r\n" if names & 4 else b"")
                + headers[10:]
                + (b"" if headers else b"\r\n")
            )
        answers = house.request(subject, payload, headers)
    elif which == PULL:
        answers = house.request(f"$JS.API.CONSUMER.MSG.NEXT.S.{'cd'[names % 2]}", payload, headers)
        return
    elif which == ACK:
        house.request(f"$JS.ACK.S.c.1.{names % 5}.{names // 5 % 5}.1700000000000000000.0", payload)
        return
    else:
        house.request(f"$JS.API.DIRECT.GET.S{'.s.a' if names & 1 else ''}", payload, headers)
        return
    for _, said in answers:
        if said:
            refused(json.loads(said))


def subject_of(pattern: str, names: int, source: Input) -> str:
    tokens = []
    for at, token in enumerate(pattern.split(".")):
        tokens.append(token if token not in ("*", ">") else NAMES[names >> at % 4 & 7])
    return ".".join(tokens)


def call(house: House, subject: str, kind: str, body: bytes) -> None:
    answers = house.request(f"$JS.API.{subject}", body)
    if any(headers.startswith(b"NATS/1.0 503") for headers, _ in answers) or not answers:
        return
    assert len(answers) == 1, answers
    said = json.loads(answers[0][1])
    assert said["type"] == f"io.nats.jetstream.api.v1.{kind}" or "." in subject.replace(
        ".", "", 2
    ), said
    refused(said)


def refused(said: Any) -> None:
    """If it is a refusal, it is one of the table."""
    error = said.get("error")
    if error is None:
        return
    known = ApiError._by_err_code.get(error.get("err_code", 0))
    assert known is not None or error["code"] in (400, 404, 500, 503), error
    assert known is None or known.code == error["code"], error
    assert error["description"], error
    assert "internal error" not in error["description"], error


def view(house: House) -> dict[str, Any]:
    """Configurations of all streams and consumers, by name."""
    found: dict[str, Any] = {}
    for stream in house.ok("STREAM.LIST")["streams"] or []:
        name, config = stream["config"]["name"], stream["config"]
        consumers = house.ok(f"CONSUMER.LIST.{name}")["consumers"] or []
        kept = {
            each["name"]: each["config"] for each in consumers if "durable_name" in each["config"]
        }
        if config["storage"] == "file":
            kept = {n: c for n, c in kept.items() if not c.get("mem_storage")}
            found[name] = (config, kept)
    return found


def seeds() -> Iterable[bytes]:
    rows = []
    for name in ("stream_verdicts.jsonl", "consumer_verdicts.jsonl"):
        rows += [json.loads(line) for line in (ENGINE_TESTS / name).read_text().splitlines()]
    places = {pattern: at for at, (pattern, _) in enumerate(CALLS)}

    def one(which: int, names: int, body: bytes) -> bytes:
        return bytes([which, names]) + len(body).to_bytes(2, "little") + body

    for at, row in enumerate(rows):
        stream = row["call"].startswith("STREAM")
        which = places["STREAM.CREATE.*" if stream else "CONSUMER.CREATE.*.*"]
        names = 1 << 2 if stream else 2 << 3
        body = json.dumps(row["request"]).encode()
        if len(body) < 2000:
            yield (
                bytes([at % 6])
                + one(which, names, body)
                + one(WAIT, 3, b"")
                + one(places["STREAM.LIST"], 0, b"{}")
            )
    for at in range(len(CALLS)):
        for body in (
            b"",
            b"{}",
            b"[]",
            b'{"seq":1}',
            b'{"filter":"s.a","keep":1}',
            b'{"deliver_subject":"in.b"}',
            b'{"offset":1,"limit":2}',
        ):
            yield b"\0" + one(at, 0, body) + one(at, 0x10, body)
    for word in WORDS:
        if word.startswith(b"Nats-"):
            block = b"NATS/1.0\r\n" + word + b"Nats-Schedule-Target: s.t\r\n\r\n"
            yield (
                b"\1" + one(PUBLISH, 0, block + b"5") + one(DIRECT, 1, block) + one(WAIT, 200, b"")
            )
            yield (
                b"\0"
                + one(PUBLISH, 0, block + b"5")
                + one(BATCH, 8, block)
                + one(BATCH, 20, b"x")
                + one(WAIT, 200, b"")
            )
    for body in (
        b"3",
        b'{"batch":2,"no_wait":true}',
        b'{"batch":9,"expires":1000000000,"idle_heartbeat":100000000}',
    ):
        yield (
            b"\0"
            + one(PULL, 0, body)
            + one(ACK, 6, b"+ACK")
            + one(ACK, 12, b'-NAK {"delay":7}')
            + one(WAIT, 99, b"")
        )
