"""The counts of received messages and their answers, against a plain model, in any split of the bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.bulk.tally import Tally
from penstock.core.protocol.wire import (
    OP_MSG,
    OP_PING,
    OP_PUB,
    ROLE_CLIENT,
    ROLE_SERVER,
    Parser,
    WireError,
)

MINE, CONFIRMS, FOREIGN = 1, 2, 3
HEADERS = st.sampled_from(
    [
        b"",
        b"NATS/1.0\r\nK: v\r\n\r\n",
        b"NATS/1.0 404 No Messages\r\n\r\n",
        b"NATS/1.0 204 EOB\r\nNats-Last-Sequence: 7\r\n\r\n",
    ]
)
MESSAGES = st.lists(
    st.tuples(
        st.sampled_from([MINE, CONFIRMS, FOREIGN]),
        st.sampled_from(["", "r", "$JS.ACK.S.c.1.2.3.4.5"]),
        HEADERS,
        st.binary(max_size=30),
    ),
    max_size=20,
)


def line_of(sid: int, reply: str, headers: bytes, payload: bytes) -> bytes:
    """The message as a server sends it."""
    words = ["s.x", str(sid), *([reply] if reply else [])]
    if headers:
        words.append(str(len(headers)))
    head = f"{'HMSG' if headers else 'MSG'} {' '.join(words)} {len(headers) + len(payload)}\r\n"
    return head.encode() + headers + payload + b"\r\n"


def answers_in(data: bytes) -> list[Any]:
    return Parser(ROLE_SERVER).feed(data)


@given(MESSAGES, st.data(), st.booleans())
def test_all_is_counted_and_answered(messages: Any, data: Any, with_reply: bool) -> None:
    text = b"".join(line_of(*each) for each in messages) + b"PING\r\n"
    tally = Tally(b"+ACK", reply=b"inbox" if with_reply else b"")
    parser = Parser(ROLE_CLIENT)
    others: list[Any] = []
    while text:
        cut = data.draw(st.integers(1, len(text)))
        others += tally.feed(parser, MINE, text[:cut], CONFIRMS)
        text = text[cut:]
    mine = [each for each in messages if each[0] == MINE]
    counted = [each for each in mine if not each[2].startswith(b"NATS/1.0 ")]
    assert tally.messages == len(counted)
    assert tally.payload_bytes == sum(len(each[3]) for each in counted)
    assert tally.confirmations == sum(each[0] == CONFIRMS for each in messages)
    assert tally.statuses == [each[2] for each in mine if each[2].startswith(b"NATS/1.0 ")]
    assert [each[0] for each in others] == [OP_MSG] * sum(
        each[0] == FOREIGN for each in messages
    ) + [OP_PING]
    waiting = tally.waiting_bytes
    taken = tally.take()
    assert (len(taken), tally.waiting_bytes, tally.take()) == (waiting, 0, b"")
    assert answers_in(taken) == [
        (OP_PUB, each[1], "inbox" if with_reply else "", b"", b"+ACK")
        for each in counted
        if each[1]
    ]


def test_one_answer_covers_a_feed() -> None:
    tally = Tally(b"+ACK", only_last=True)
    parser = Parser(ROLE_CLIENT)
    tally.feed(parser, MINE, b"".join(line_of(MINE, f"r{n}", b"", b"") for n in range(3)))
    tally.feed(parser, MINE, line_of(MINE, "r3", b"", b"") + line_of(CONFIRMS, "r4", b"", b""))
    assert [each[1] for each in answers_in(tally.take())] == ["r2", "r3"]


def test_without_an_answer_nothing_is_written() -> None:
    tally = Tally()
    tally.feed(Parser(ROLE_CLIENT), MINE, line_of(MINE, "r", b"", b"x"))
    assert (tally.messages, tally.take()) == (1, b"")


def test_a_broken_protocol_is_told() -> None:
    parser = Parser(ROLE_CLIENT)
    with pytest.raises(WireError) as caught:
        Tally().feed(parser, MINE, b"PING\r\nRUBBISH x\r\n")
    assert [each[0] for each in caught.value.events] == [OP_PING]
