"""Rows as publishes against the writer for one message, and the window against a model of it: any
order of answers, any split of their bytes.
"""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.core.bulk.publish_window import (
    BAD_SUBJECT,
    SEND,
    SKIP,
    TOO_LARGE,
    UNNUMBERED,
    Column,
    Encoder,
    PublishWindow,
    Rows,
)
from pelton.core.protocol.wire import OP_PUB, ROLE_CLIENT, ROLE_SERVER, Parser, WireError

SID = 4
REPLY = b"_INBOX.abc."


def column(texts: list[bytes]) -> Column:
    """Texts in Arrow's layout."""
    ends = [0]
    for text in texts:
        ends.append(ends[-1] + len(text))
    return Column(b"".join(texts), struct.pack(f"{len(ends)}i", *ends), len(texts))


def rows_of(
    subjects: list[bytes] | bytes,
    payloads: list[bytes],
    lines: list[bytes] | None = None,
    first: int = 0,
    how: bytes = b"",
) -> Rows:
    names = Column(subjects) if isinstance(subjects, bytes) else column(subjects)
    extra = None if lines is None else column(lines)
    return Rows(names, column(payloads), extra, first=first, count=len(payloads), how=how)


def read(data: bytes) -> list[Any]:
    return Parser(ROLE_SERVER, max_payload=1 << 30).feed(data)


TOKENS = st.text("abcXYZ019-_$é", min_size=1, max_size=8)
SUBJECTS = st.lists(TOKENS, min_size=1, max_size=4).map(".".join)
LINES = st.lists(st.sampled_from([b"K: v\r\n", b"Long-Name: a b c\r\n"]), max_size=3).map(b"".join)
MESSAGES = st.lists(
    st.tuples(SUBJECTS, st.binary(max_size=40), LINES, st.sampled_from([SEND, SKIP, UNNUMBERED])),
    min_size=1,
    max_size=20,
)


@given(MESSAGES, st.integers(0, 10**12), st.booleans(), st.booleans())
def test_every_row_becomes_the_message_it_says(messages, first, with_common, with_numbers):
    common = b"Nats-Expected-Stream: S\r\n" if with_common else b""
    numbered = b"Nats-Msg-Id: q:1:2:" if with_numbers else b""
    encoder = Encoder(common=common, numbered=numbered, reply=REPLY, max_payload=1 << 20)
    flow = PublishWindow(encoder, 64, 1 << 20)
    subjects, payloads, lines, how = zip(*messages, strict=True)
    rows = rows_of(
        [subject.encode() for subject in subjects], list(payloads), list(lines), first, bytes(how)
    )
    assert flow.put(rows, 0, 1 << 20) == len(messages)
    expected = []
    for at, (subject, payload, line, its) in enumerate(messages):
        if its == SKIP:
            continue
        number = numbered + b"%d\r\n" % (first + at) if numbered and its == SEND else b""
        block = common + line + number
        block = b"NATS/1.0\r\n" + block + b"\r\n" if block else b""
        reply = (REPLY + b"%d" % (len(expected) + 1)).decode()
        expected.append((OP_PUB, subject, reply, block, payload))
    assert read(flow.take()) == expected
    assert flow.take() == b""
    assert len(flow) == len(expected)


def test_what_cannot_be_sent_is_refused_and_the_rest_goes():
    encoder = Encoder(numbered=b"Nats-Msg-Id: ", reply=REPLY, max_payload=60)
    flow = PublishWindow(encoder, 10, 1000)
    subjects = [b"a", b"a.*", b"", b"a..b", b"a b", b"a\0b", b"a.>", b"b"]
    payloads = [b"x" * 100] + [b"x"] * 7
    assert flow.put(rows_of(subjects, payloads, first=5), 0, 1000) == 8
    size = 100 + len(b"NATS/1.0\r\nNats-Msg-Id: 5\r\n\r\n")
    bad = [(row, BAD_SUBJECT, len(subjects[row - 5])) for row in range(6, 12)]
    assert encoder.refused == [(5, TOO_LARGE, size), *bad]
    assert [operation[1] for operation in read(flow.take())] == ["b"]


def test_operations_are_numbered_without_holes():
    encoder = Encoder(common=b"B: 1\r\n", numbered=b"N: ", max_payload=100)
    rows = rows_of([b"a", b"a.*", b"c", b"d"], [b"1", b"2", b"3", b"4"], how=bytes([0, 0, SKIP, 0]))
    data, count = encoder.operations(rows, 0, 4, 7)
    assert count == 2
    assert [(one[1], one[3]) for one in read(data)] == [
        ("a", b"NATS/1.0\r\nB: 1\r\nN: 7\r\n\r\n"),
        ("d", b"NATS/1.0\r\nB: 1\r\nN: 8\r\n\r\n"),
    ]
    checked = Encoder(numbered=b"N: ", max_payload=100)
    checked.check(rows, 1000)
    assert checked.refused == [(1, BAD_SUBJECT, 3)]


def test_columns_that_lie_are_found_out():
    with pytest.raises(ValueError, match="need 4 offsets"):
        Column(b"abc", b"\0" * 12, 3)
    with pytest.raises(ValueError, match="2 rows, but there are 3"):
        Rows(column([b"a", b"b"]), column([b""] * 3), None, first=0, count=3)
    with pytest.raises(ValueError, match="2 marks for 1 rows"):
        rows_of(b"a", [b""], how=b"\0\0")
    lying = Column(b"abc", struct.pack("3i", 0, 900, 3), 2)
    flow = PublishWindow(Encoder(reply=REPLY, max_payload=10_000), 4, 100)
    with pytest.raises(ValueError, match="outside of the data"):
        flow.put(Rows(Column(b"s"), lying, None, first=0, count=2), 0, 1000)
    with pytest.raises(ValueError, match="a window has room"):
        PublishWindow(Encoder(max_payload=1), 0, 1)


def answer(number: int, text: bytes, headers: bytes = b"", sid: int = SID) -> bytes:
    subject = (REPLY + b"%d" % number).decode()
    total = len(headers) + len(text)
    sizes = f"{len(headers)} {total}" if headers else f"{total}"
    verb = "HMSG" if headers else "MSG"
    return f"{verb} {subject} {sid} {sizes}\r\n".encode() + headers + text + b"\r\n"


PLAIN = [
    b'{"stream":"S","seq":%d}',
    b'{"stream":"S", "seq":%d}',
    b'{"stream":"S","domain":"D","seq":%d}',
    b'{ "seq" : %d , "stream" : "S" }',
    b'{"stream":"S","seq":%d,"duplicate":false}',
    b'{"stream":"S","seq":%d,"val":"42"}',
]
AGAIN = [b'{"stream":"S","seq":%d,"duplicate": true}', b'{"duplicate":true,"stream":"S","seq":%d}']
OTHER = [
    b"",
    b"+OK",
    b"{}",
    b"{",
    b'{"stream":"S"}',
    b'{"stream":"S","seq":0}',
    b'{"stream":"S","seq":-1}',
    b'{"stream":"S","seq":"7"}',
    b'{"stream":"S","seq":7',
    b'{"stream":"a\\"b","seq":7}',
    b'{"error":{"code":400,"err_code":10071,"description":"x"},"stream":"S","seq":0}',
    b'{"error":{"code":400},"stream":"S","seq":5}',
    b'{"stream":"S","error":5,"seq":5}',
    b'["stream"]',
]


@pytest.mark.parametrize("text", [*PLAIN, *AGAIN])
def test_plain_acks_are_counted(text):
    flow = PublishWindow(Encoder(reply=REPLY, max_payload=100), 4, 100)
    flow.put(rows_of(b"s", [b"x"]), 0, 100)
    flow.take()
    assert flow.feed(Parser(ROLE_CLIENT), SID, answer(1, text % 17)) == []
    assert (flow.acked, flow.duplicates, len(flow)) == (1, int(text in AGAIN), 0)
    assert flow.floor_seq == 17
    assert flow.failures == []


@pytest.mark.parametrize("text", OTHER)
def test_any_other_answer_is_handed_on_with_its_message(text):
    flow = PublishWindow(Encoder(reply=REPLY, max_payload=100), 4, 100)
    flow.put(rows_of(b"s", [b"x"], first=9), 0, 100)
    sent = flow.take()
    flow.feed(Parser(ROLE_CLIENT), SID, answer(1, text, b"NATS/1.0 503\r\n\r\n"))
    assert flow.failures == [(9, sent, b"NATS/1.0 503\r\n\r\n", text)]
    assert (flow.acked, len(flow)) == (0, 0)


@given(st.binary(max_size=60))
def test_no_answer_is_taken_for_an_ack_without_a_sequence(text):
    flow = PublishWindow(Encoder(reply=REPLY, max_payload=100), 4, 100)
    flow.put(rows_of(b"s", [b"x"]), 0, 100)
    flow.feed(Parser(ROLE_CLIENT), SID, answer(1, text))
    assert flow.acked + len(flow.failures) == 1
    assert not flow.acked or b'"seq"' in text


def test_other_operations_pass_and_strange_answers_change_nothing():
    flow = PublishWindow(Encoder(reply=REPLY, max_payload=100), 4, 100)
    flow.put(rows_of(b"s", [b"x"]), 0, 100)
    parser = Parser(ROLE_CLIENT)
    others = flow.feed(
        parser, SID, b"PING\r\n" + answer(1, PLAIN[0] % 5, sid=9) + answer(77, PLAIN[0] % 5)
    )
    assert [one[0] for one in others] == [5, 10]
    assert len(flow) == 1
    with pytest.raises(WireError):
        flow.feed(parser, SID, b"NONSENSE\r\n")
    with pytest.raises(WireError):
        flow.feed(parser, SID, b"")


class Model:
    """What a window holds, told plainly."""

    def __init__(self, rows_max: int) -> None:
        self.rows_max = rows_max
        self.waiting: dict[int, bytes] = {}  # number -> payload
        self.next = 1

    @property
    def full(self) -> bool:
        oldest = min(self.waiting, default=self.next)
        return self.next - oldest >= self.rows_max


@given(st.data(), st.integers(1, 9), st.integers(1, 400))
def test_the_window_is_like_its_model(data, rows_max, chunk):
    flow = PublishWindow(Encoder(reply=REPLY, max_payload=1000), rows_max, 1 << 20)
    model, parser = Model(rows_max), Parser(ROLE_CLIENT)
    taken, seq = b"", 0
    for step in range(data.draw(st.integers(1, 25))):
        act = data.draw(
            st.sampled_from(["put", "put", "take", "answer", "answer", "again", "settle"])
        )
        if act == "put":
            payloads = [b"%d.%d" % (step, n) for n in range(data.draw(st.integers(1, 6)))]
            at = flow.put(rows_of(b"s", payloads), 0, 1 << 20)
            for payload in payloads[:at]:
                assert not model.full
                model.waiting[model.next] = payload
                model.next += 1
            assert at == len(payloads) or model.full
        elif act == "take":
            taken += flow.take()
        elif act == "again":
            assert [one[4] for one in read(flow.again())] == list(model.waiting.values())
            assert flow.take() == b""
        elif model.waiting:
            number = data.draw(st.sampled_from(sorted(model.waiting)))
            del model.waiting[number]
            if act == "settle":
                flow.settle(number)
            else:
                seq += 1
                wire = answer(number, PLAIN[0] % seq)
                for start in range(0, len(wire), chunk):
                    flow.feed(parser, SID, wire[start : start + chunk])
        assert flow.full == model.full
        assert len(flow) == len(model.waiting)
        unanswered = [(number, read(whole)[0][4]) for number, _, whole in flow.unanswered()]
        assert unanswered == list(model.waiting.items())
    assert flow.failures == []
