"""Fast-ingest batches of one server. tests/compat compares them message by message with another
server.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pelton.core.base.disk import PyDisk
from pelton.engine.base.settings import BatchLimits
from pelton.testing.simulated_disk import SimDisk
from tests.engine.house import SECOND, House
from tests.ways import length

START, APPEND, COMMIT, EOB, PING = range(5)


class Publisher:
    """Publishes batches to S and keeps the answers in order."""

    def __init__(self, house: House) -> None:
        self.house = house
        house.client.send("SUB fast.> 9\r\n").events()

    def put(
        self, batch: str, seq: int, op: int, *, flow: int = 10, gap: str = "ok", body: bytes = b"x"
    ) -> list[Any]:
        reply = f"fast.{batch}.{flow}.{gap}.{seq}.{op}.$FI".encode()
        self.house.client.send(b"PUB S %s %d\r\n%s\r\n" % (reply, len(body), body))
        return [json.loads(event[5]) for event in self.house.client.events()]


@pytest.fixture
def house(tmp_path: Path) -> House:
    made = House(tmp_path)
    made.stream(allow_batched=True)
    return made


def ack(seq: int, messages: int) -> dict[str, Any]:
    return {"type": "ack", "seq": seq, "msgs": messages}


def test_one_answer_for_many(house: House) -> None:
    publisher = Publisher(house)
    assert publisher.put("b", 1, START, flow=4) == [ack(0, 4)]
    heard = [publisher.put("b", seq, APPEND, flow=4) for seq in range(2, 12)]
    assert [len(each) for each in heard] == [0, 0, 1, 0, 0, 0, 1, 0, 0, 0]
    assert heard[2] == [ack(4, 4)]
    assert publisher.put("b", 11, PING, flow=4) == [ack(8, 4)]
    assert publisher.put("b", 12, COMMIT, flow=4) == [
        {"stream": "S", "seq": 12, "batch": "b", "count": 12}
    ]
    assert publisher.put("b", 13, APPEND)[0]["error"]["err_code"] == 10208


def test_flow_acks_wait_for_the_disk() -> None:
    disk = SimDisk()
    house = House(Path("store"), disk=PyDisk(disk))
    house.stream(allow_batched=True)
    publisher = Publisher(house)
    assert publisher.put("b", 1, START, flow=2) == [ack(0, 2)]
    disk.fail_sync = 5
    assert publisher.put("b", 2, APPEND, flow=2) == []
    disk.fail_sync = 0
    assert publisher.put("b", 3, APPEND, flow=2)[0]["type"] == "err"
    assert publisher.put("b", 4, COMMIT, flow=2)[0]["type"] == "err"


def test_a_gap_ends_a_batch_that_takes_none(house: House) -> None:
    publisher = Publisher(house)
    publisher.put("b", 1, START, gap="fail")
    assert publisher.put("b", 3, APPEND, gap="fail") == [
        {"type": "gap", "last_seq": 2, "seq": 3},
        {"stream": "S", "seq": 1, "batch": "b", "count": 1},
    ]
    assert publisher.put("b", 4, APPEND, gap="fail")[0]["error"]["err_code"] == 10208
    assert house.ok("STREAM.INFO.S")["state"]["messages"] == 1


def test_a_batch_is_over_at_its_time(house: House) -> None:
    """Also before the timer of the engine has looked."""
    publisher = Publisher(house)
    publisher.put("b", 1, START)
    house.server.clock.advance(10 * SECOND - 1)
    house.server.reactor.turn()
    assert publisher.put("b", 2, APPEND) == []
    house.server.clock.advance(10 * SECOND)
    house.server.reactor.turn()
    assert publisher.put("b", 3, APPEND)[0]["error"]["err_code"] == 10208


@pytest.mark.parametrize("op", [APPEND, COMMIT])
def test_an_answer_about_a_duplicate_waits_for_its_original(op: int) -> None:
    """Another client has published the message, and its sync has not ended."""
    house = House(Path("store"), disk=PyDisk(SimDisk(), background=True))
    syncs: list[Any] = []
    house.server.reactor.on_sync = syncs.append
    house.client.send(b'PUB $JS.API.STREAM.CREATE.S 33\r\n{"name":"S","allow_batched":true}\r\n')
    house.client.events()
    publisher = Publisher(house)
    block = b"NATS/1.0\r\nNats-Msg-Id: X\r\n\r\n"
    house.client.send(b"PUB S fast.b.2.ok.1.0.$FI 1\r\nx\r\n").events()
    assert len(syncs) == 1  # of the first message of the batch
    house.client.send(b"HPUB S %d %d\r\n%sy\r\n" % (len(block), len(block) + 1, block)).events()
    head = b"HPUB S fast.b.2.ok.2.%d.$FI %d %d\r\n" % (op, len(block), len(block) + 1)
    assert publisher.house.client.send(head + block + b"y\r\n").events() == []
    syncs.pop().end(0)
    assert house.client.events() == []
    assert len(syncs) == 1  # of the message that the other client has published
    syncs.pop().end(0)
    flow, *pubacks = [json.loads(event[5]) for event in house.client.events()]
    assert flow == ack(2, 2)
    assert pubacks == [{"stream": "S", "seq": 1, "batch": "b", "count": 2}] * (op == COMMIT)


def test_a_batch_that_is_not_heard_of_ends(house: House) -> None:
    publisher = Publisher(house)
    ingest = house.engine.accounts["$G"].batches.fast
    publisher.put("b", 1, START)
    publisher.put("c", 1, START)
    house.pass_time(6 * SECOND)
    publisher.put("c", 1, PING)
    house.pass_time(6 * SECOND)
    assert ingest.count == 1
    assert house.client.events() == []
    assert publisher.put("b", 2, APPEND)[0]["error"]["err_code"] == 10208
    assert publisher.put("c", 2, COMMIT)[0]["count"] == 2
    assert ingest.count == 0


def test_limits_are_settings(tmp_path: Path) -> None:
    limits = BatchLimits(max_inflight_per_stream=2, timeout_ns=SECOND)
    house = House(tmp_path, batch=limits)
    house.stream(allow_batched=True)
    publisher = Publisher(house)
    publisher.put("a", 1, START)
    publisher.put("b", 1, START)
    assert publisher.put("c", 1, START)[0]["error"]["err_code"] == 10211
    house.server.clock.advance(2 * SECOND)
    house.server.reactor.settle()
    assert publisher.put("c", 1, START) == [ack(0, 10)]


@pytest.mark.parametrize("end", ["delete", "update"])
def test_open_batches_end_with_the_stream(house: House, end: str) -> None:
    Publisher(house).put("b", 1, START)
    assert house.engine.accounts["$G"].batches.fast.count == 1
    if end == "delete":
        house.ok("STREAM.DELETE.S")
    else:
        house.ok("STREAM.UPDATE.S", {"name": "S"})
        assert Publisher(house).put("b", 2, APPEND)[0]["error"]["err_code"] == 10205
    assert house.engine.accounts["$G"].batches.fast.count == 0


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 4)), max_size=120),
    st.integers(1, 9),
)
@settings(max_examples=length(25, 60), deadline=None)
def test_the_acks_cover_what_is_stored(steps: list[tuple[str, int]], flow: int) -> None:
    """Batches side by side, with gaps allowed: every message is stored, acks never name a later
    message, and arrive before more than the promised number of messages is unanswered.
    """
    house = House(Path("store"), disk=PyDisk(SimDisk()))
    house.stream(allow_batched=True, storage="memory")
    publisher = Publisher(house)
    last: dict[str, int] = {}
    told: dict[str, int] = {}
    every: dict[str, int] = {}
    stored = 0
    for batch, skip in steps:
        seq = last.get(batch, 0) + 1
        if seq > 1:
            seq += skip == 4
        heard = publisher.put(batch, seq, APPEND if seq > 1 else START, flow=flow)
        stored += 1
        last[batch] = seq
        for each in heard:
            if each["type"] == "ack":
                assert told.get(batch, 0) <= each["seq"] <= seq
                told[batch], every[batch] = each["seq"], each["msgs"]
                assert 1 <= each["msgs"] <= flow
        assert seq - told[batch] < every[batch] or seq == 1 == every[batch]
    for batch, seq in last.items():
        (answer,) = publisher.put(batch, seq + 1, EOB, flow=flow)
        assert answer["count"] == seq
    assert house.engine.accounts["$G"].streams["S"].core.log.msgs == stored
    assert house.engine.accounts["$G"].batches.fast.count == 0


TOKENS = st.sampled_from(
    ["ok", "fail", "0", "1", "2", "3", "4", "5", "-1", "x", "10", "99999999999999999999", "b" * 65]
)


def meaning(tokens: list[str]) -> tuple[str, int] | None:
    """Return (id, number) of a batch's reply subject; None: it is none."""
    if len(tokens) < 6:
        return None
    batch, _, gap, number, operation = tokens[-5:]
    if gap not in ("ok", "fail") or operation not in ("0", "1", "2", "3", "4"):
        return None
    if not number.isdigit() or not 0 < int(number) < 2**63:
        return None
    first = int(number) == 1
    if (operation == "0" and not first) or (operation in ("1", "3") and first):
        return None
    return batch, int(number)


@given(st.lists(TOKENS, min_size=1, max_size=7), st.sampled_from([b"", b"x"]))
@settings(max_examples=length(40, 300), deadline=None)
def test_reply_subjects_of_any_form(tokens: list[str], body: bytes) -> None:
    house = House(Path("store"), disk=PyDisk(SimDisk()))
    house.stream(allow_batched=True, storage="memory")
    reply = ".".join(["fast", *tokens, "$FI"]).encode()
    house.client.send("SUB fast.> 9\r\n").events()
    house.client.send(b"PUB S %s %d\r\n%s\r\n" % (reply, len(body), body))
    (answer,) = [json.loads(event[5]) for event in house.client.events()]
    found = meaning(["fast", *tokens])
    if found is None:
        assert answer["error"]["err_code"] == 10206
    elif len(found[0]) > 64:
        assert answer["error"]["err_code"] == 10207
    elif found[1] > 1 or tokens[-1] == "4":
        assert answer["error"]["err_code"] == 10208
    else:
        assert answer.get("type") == "ack" or answer["count"] == 1
