"""The numbers and answers of batches, without a transport."""

from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.client.base.mailbox import Interest
from pelton.client.base.message import BaseMessage
from pelton.client.batches import AtomicNumbers, FastFlow, check_staged
from pelton.core.protocol.wire import decode_headers
from pelton.errors import ApiError, BatchEndedError, ProtocolError


@given(st.integers(1, 30), st.integers(1, 9))
def test_an_atomic_batch_is_numbered_and_only_its_last_one_commits(count: int, every: int) -> None:
    numbers = AtomicNumbers("b", every)
    sent = [numbers.add("s", b"%d" % n, {"A": "1"}) for n in range(count)]
    assert sent[0] is None
    waiting = [each for each in sent if each is not None]
    out = [each[0] for each in waiting] + [numbers.commit()]
    assert [message.payload for message in out] == [b"%d" % n for n in range(count)]
    blocks = [decode_headers(message.headers)[-1] for message in out]
    assert [block["Nats-Batch-Sequence"] for block in blocks] == [
        [str(n)] for n in range(1, count + 1)
    ]
    assert [block.get("Nats-Batch-Commit") for block in blocks] == [None] * (count - 1) + [["1"]]
    assert all(block["A"] == ["1"] for block in blocks)
    asked = [number for number, (_, ask) in enumerate(waiting, 1) if ask]
    assert asked == [n for n in range(1, count) if n == 1 or n % every == 0]


def test_answers_to_staged_messages() -> None:
    check_staged(b"")
    with pytest.raises(ApiError):
        check_staged(
            b'{"error":{"code":400,"err_code":10174,"description":"x"},"stream":"S","seq":0}'
        )
    for other in (b'{"stream":"S","seq":1}', b"garbage"):
        with pytest.raises(ProtocolError):
            check_staged(other)


def said(body: bytes) -> BaseMessage:
    return BaseMessage("in", "", b"", body, Interest(1, "in.>", "", None))


def answer(**fields: object) -> BaseMessage:
    return said(json.dumps(fields).encode())


def test_the_flow_of_a_fast_batch() -> None:
    flow = FastFlow("in", "b", 10, gaps=False)
    assert not flow.full
    assert flow.reply_of_next() == "in.b.10.fail.1.0.$FI"
    assert flow.full
    flow._on_message(answer(type="ack", seq=0, msgs=2))
    for n in range(2, 5):
        assert not flow.full
        assert flow.reply_of_next() == f"in.b.10.fail.{n}.1.$FI"
    assert flow.full
    assert flow.reply_of_ping() == "in.b.10.fail.4.4.$FI"
    flow._on_message(answer(type="ack", seq=2, msgs=1))
    assert flow.full
    flow._on_message(answer(type="ack", seq=4, msgs=1))
    assert not flow.full
    assert flow.reply_of_end() == "in.b.10.fail.5.3.$FI"
    with pytest.raises(ValueError, match="over"):
        flow.reply_of_next()
    flow._on_message(answer(stream="S", seq=9, batch="b", count=4))
    assert flow.outcome().seq == 9


def test_a_fast_batch_that_ends_early() -> None:
    flow = FastFlow("in", "b", 10, gaps=False)
    for _ in range(3):
        flow.reply_of_next()
    flow._on_message(answer(type="gap", last_seq=2, seq=3))
    error = {"code": 400, "err_code": 10060, "description": "no"}
    flow._on_message(answer(type="err", seq=2, error=error))
    flow._on_message(answer(stream="S", seq=1, batch="b", count=1))
    assert flow.gaps == [(2, 3)]
    for end in (flow.reply_of_next, flow.reply_of_end, flow.outcome):
        with pytest.raises(BatchEndedError, match="after 1 of 3 messages: message 2: ") as ended:
            end()
    again = pickle.loads(pickle.dumps(ended.value))
    assert (again.sent, again.count, str(again)) == (3, 1, str(ended.value))


@pytest.mark.parametrize(("body", "kind"), [(b"garbage", ProtocolError), (b"{}", ProtocolError)])
def test_answers_that_are_none(body: bytes, kind: type[Exception]) -> None:
    flow = FastFlow("in", "b", 10, gaps=True)
    flow.reply_of_next()
    flow._on_message(said(body))
    with pytest.raises(kind):
        flow.reply_of_next()


def test_what_makes_no_batch() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        FastFlow("in", "b", 0, gaps=True)
    with pytest.raises(ValueError, match="at least 1"):
        AtomicNumbers("b", 0)
    with pytest.raises(ValueError, match="empty"):
        FastFlow("in", "b", 1, gaps=True).reply_of_end()


def test_a_server_without_batches_is_told_as_such() -> None:
    """It stores each message at once, and answers with an ordinary ack."""
    ack = b'{"stream":"S","seq":11}'
    with pytest.raises(ProtocolError, match=r"at sequence 11: its server has no atomic batches"):
        check_staged(ack)
    flow = FastFlow("in", "b", 10, gaps=False)
    flow._on_message(said(ack))
    assert "its server has no fast batches" in str(flow.error)
