"""Columns of consumers without payloads and of direct gets: the message is what was stored,
whatever its own headers look like.
"""

import struct
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.core.bulk.header_maps import message_sizes
from pelton.core.bulk.wire_columns import DirectColumns, WireColumns
from pelton.core.protocol.wire import ROLE_CLIENT, Parser

ADDED = ["Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp", "Nats-Num-Pending"]
ADDED += ["Nats-Last-Sequence", "Nats-Msg-Size"]
LINES = st.one_of(
    st.sampled_from([f"{name}: {value}" for name in ADDED for value in ("1", "S", "x", "")]),
    st.text(st.characters(codec="utf-8", blacklist_characters="\r\n"), max_size=8),
)
STATUS = st.sampled_from(["", " 204 EOB", " 503", " 100 Idle"])
PAYLOAD = st.binary(max_size=8)


@st.composite
def headers(draw):
    """A block as somebody publishes it, also with lines that servers add; empty for none."""
    lines = draw(st.lists(LINES, max_size=8))
    first = f"NATS/1.0{draw(STATUS)}"
    if draw(st.booleans()) or (not lines and first == "NATS/1.0"):
        return b""
    return "\r\n".join([first, *lines, "", ""]).encode()


def with_lines(block, *lines):
    """What a server sends when it adds lines to a block."""
    begin = block[:-2] if block else b"NATS/1.0\r\n"
    return begin + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


def hmsg(subject, reply, block, payload):
    head = f"HMSG {subject} 7 {reply}{' ' if reply else ''}{len(block)} {len(block) + len(payload)}"
    return head.encode() + b"\r\n" + block + payload + b"\r\n"


def fed(columns, data, cut=None):
    parser = Parser(ROLE_CLIENT)
    assert columns.feed(parser, 7, data[:cut]) == []
    if cut is not None:
        assert columns.feed(parser, 7, data[cut:]) == []
    return columns


def ack(seq, pending=0):
    return f"$JS.ACK.S.c.1.{seq}.{seq}.1700000000000000001.{pending}"


MESSAGES = st.lists(st.tuples(headers(), PAYLOAD), min_size=1, max_size=6)


@given(MESSAGES, st.integers(0, 400))
def test_headers_only(messages, cut):
    data = b"".join(
        hmsg("s.a", ack(seq), with_lines(block, b"Nats-Msg-Size: %d" % len(payload)), b"")
        for seq, (block, payload) in enumerate(messages, 1)
    )
    columns = WireColumns(50)
    columns.headers_only = columns.replies = True
    fed(columns, data, min(cut, len(data)))
    rows = columns.rows()
    assert [(row[0], row[3], row[4]) for row in rows] == [
        (seq, block, b"") for seq, (block, _) in enumerate(messages, 1)
    ]
    assert list(columns.payload_sizes.view("q")) == [len(payload) for _, payload in messages]
    offsets = list(columns.reply_offsets.view("i"))
    replies = bytes(columns.reply_data)
    assert replies[: offsets[1]].decode() == ack(1)
    assert len(offsets) == columns.count + 1
    sizes = struct.unpack(f"{len(messages)}q", bytes(message_sizes(columns)))
    assert sizes == tuple(
        len(payload) + (len(block) if block.count(b"\n") > 2 else 0) for block, payload in messages
    )
    kept = len(messages) // 2
    if not cut % 2:
        return
    columns.truncate(kept + 1)
    assert len(columns.payload_sizes) == 8 * kept
    assert len(columns.reply_offsets) == 4 * (kept + 1)
    assert bytes(columns.reply_data) == replies[: offsets[kept]]


TIMES = st.datetimes(datetime(1970, 1, 1), datetime(2261, 12, 31))


def rfc3339(moment, fraction):
    text = f"{fraction:09d}".rstrip("0")
    return f"{moment:%Y-%m-%dT%H:%M:%S}{'.' if text else ''}{text}Z"


@given(MESSAGES, TIMES, st.integers(0, 999_999_999), st.integers(0, 400))
def test_direct_gets(messages, moment, fraction, cut):
    moment = moment.replace(microsecond=0)
    data = b""
    for seq, (block, payload) in enumerate(messages, 1):
        lines = [b"Nats-Stream: S", b"Nats-Subject: s.\xc3\xa9", b"Nats-Sequence: %d" % seq]
        lines += [b"Nats-Time-Stamp: " + rfc3339(moment, fraction).encode()]
        lines += [b"Nats-Num-Pending: 9", b"Nats-Last-Sequence: %d" % (seq - 1)]
        data += hmsg("_INBOX.x.1", "", with_lines(block, *lines), payload)
    end = b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 9\r\nNats-Last-Sequence: 3\r\n\r\n"
    data += hmsg("_INBOX.x.1", "", end, b"")
    columns = DirectColumns(50)
    columns.stream = b"S"
    fed(columns, data, min(cut, len(data)))
    since = (moment.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
    assert columns.rows() == [
        (seq, since * 10**9 + fraction, "s.\xe9", block, payload)
        for seq, (block, payload) in enumerate(messages, 1)
    ]
    assert columns.last_pending == 9
    assert columns.statuses == [("_INBOX.x.1", end)]
    assert not columns.foreign


def test_direct_gets_of_another_stream_are_not_taken():
    lines = [b"Nats-Stream: M", b"Nats-Subject: s", b"Nats-Sequence: 1"]
    lines += [b"Nats-Time-Stamp: 2026-10-16T23:04:01Z", b"Nats-Num-Pending: 0"]
    block = with_lines(b"", *lines, b"Nats-Last-Sequence: 0")
    columns = DirectColumns(5)
    columns.stream = b"S"
    fed(columns, hmsg("_INBOX.x.1", "", block, b""))
    assert (columns.count, columns.foreign) == (0, True)


@pytest.mark.parametrize("kind", [WireColumns, DirectColumns])
@given(st.binary(max_size=60), PAYLOAD, st.booleans())
def test_whatever_else_comes_is_no_row_or_one_as_it_is(kind, tail, payload, acked):
    columns = kind(5)
    if kind is WireColumns:
        columns.headers_only = True
    block = b"NATS/1.0" + tail
    fed(columns, hmsg("_INBOX.x.1", ack(1) if acked else "", block, payload))
    assert columns.count == (1 if acked and kind is WireColumns else 0)


def test_messages_come_by_feed_only():
    with pytest.raises(TypeError, match="feed"):
        WireColumns(5).append("s", ack(1), b"", b"")
