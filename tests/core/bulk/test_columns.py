"""Messages into columns: against the parser's own events, for any split and any batch size."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.core.bulk.columns import Columns
from pelton.core.protocol.wire import OP_MSG, OP_PING, ROLE_CLIENT, Parser, WireError

SID = 7

Row = tuple[int, int, str, bytes, bytes]


def wire_message(row: Row, pending: int, *, sid: int = SID, long: bool = False) -> bytes:
    seq, timestamp, subject, headers, payload = row
    where = "_.hash.S.C" if long else "S.C"
    reply = f"$JS.ACK.{where}.1.{seq}.{seq}.{timestamp}.{pending}" + (".more" if long else "")
    total = len(headers) + len(payload)
    sizes = f"{len(headers)} {total}" if headers else f"{total}"
    verb = "HMSG" if headers else "MSG"
    return f"{verb} {subject} {sid} {reply} {sizes}\r\n".encode() + headers + payload + b"\r\n"


def feed_all(chunks: list[bytes], rows_max: int = 1000) -> tuple[list[Columns], list[Any]]:
    """Every batch and every other operation, as a reader takes them."""
    parser = Parser(ROLE_CLIENT)
    batches, others = [Columns(rows_max)], []
    for chunk in chunks:
        others += batches[-1].feed(parser, SID, chunk)
        while batches[-1].full:
            batches.append(Columns(rows_max))
            others += batches[-1].feed(parser, SID, b"")
    return batches, others


rows = st.tuples(
    st.integers(1, 2**62),
    st.integers(0, 2**62),
    st.sampled_from(["a", "logs.host.file", "é.ü"]),
    st.sampled_from([b"", b"NATS/1.0\r\nA: b\r\n\r\n"]),
    st.binary(max_size=30),
)


@given(
    st.lists(st.tuples(rows, st.booleans()), max_size=20),
    st.lists(st.integers(0, 5000), max_size=20),
    st.integers(1, 8),
)
def test_rows_are_the_messages_for_any_split_and_any_batch_size(
    messages: list[tuple[Row, bool]], cuts: list[int], rows_max: int
) -> None:
    data = b"PING\r\n".join(wire_message(row, 3, long=long) for row, long in messages)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    chunks = [data[start:end] for start, end in itertools.pairwise(edges)]
    batches, others = feed_all(chunks, rows_max)
    assert [row for batch in batches for row in batch.rows()] == [row for row, _ in messages]
    assert others == [(OP_PING,)] * max(0, len(messages) - 1)
    assert all(batch.count == rows_max for batch in batches[:-1])
    for batch in batches:
        taken = batch.rows()
        assert batch.last_seq == (taken[-1][0] if taken else 0)
        assert batch.last_pending == (3 if taken else -1)


def test_the_buffers_are_laid_out_for_arrow() -> None:
    header = b"NATS/1.0\r\n\r\n"
    data = wire_message((5, 50, "a.b", b"", b"one"), 1) + wire_message((6, 60, "c", header, b""), 0)
    ((batch,), _) = feed_all([data])
    assert batch.seq.view("q").tolist() == [5, 6]
    assert batch.timestamp_ns.view("q").tolist() == [50, 60]
    assert batch.subject_offsets.view("i").tolist() == [0, 3, 4]
    assert batch.subject_data.view().tobytes() == b"a.bc"
    assert batch.headers_offsets.view("i").tolist() == [0, 0, 12]
    assert batch.headers_data.view().tobytes() == header
    assert batch.payload_offsets.view("i").tolist() == [0, 3, 3]
    assert batch.payload_data.view().tobytes() == b"one"
    assert batch.nbytes == 4 + 12 + 3


def test_an_empty_batch_has_buffers_too() -> None:
    batch = Columns()
    assert batch.payload_offsets.view("i").tolist() == [0]
    assert batch.payload_data.view().tobytes() == b""
    assert batch.rows() == []


def test_other_subscriptions_and_the_servers_own_words_are_no_rows() -> None:
    row = (1, 2, "a", b"", b"x")
    status = b"NATS/1.0 404 No Messages\r\n\r\n"
    data = (
        wire_message(row, 0, sid=8)
        + b"HMSG _INBOX.1 %d %d %d\r\n%b\r\n" % (SID, len(status), len(status), status)
        + b"MSG plain %d 1\r\nx\r\n" % SID
        + wire_message(row, 0)
    )
    ((batch,), others) = feed_all([data])
    assert batch.rows() == [row]
    assert batch.statuses == [("_INBOX.1", status)]
    assert [(other[0], other[2]) for other in others] == [(OP_MSG, 8)]


@pytest.mark.parametrize(
    "reply",
    [
        "$JS.ACK.S.C.1.2.3.4",
        "$JS.ACK._.h.S.C.1.2.3.4",
        "$JS.ACK.S.C.1.x.3.4.5",
        "$JS.ACK.S.C.1.-2.3.4.5",
        "$JS.ACK.S.C.1.99999999999999999999.3.4.5",
        "$JS.FC.S.C.1.2.3.4.5",
        "_INBOX.x",
        "",
    ],
)
def test_what_is_no_ack_subject_is_no_row(reply: str) -> None:
    batch = Columns()
    assert batch.append("a", reply, b"", b"x") is False
    assert batch.count == 0


def test_a_message_that_came_another_way_is_a_row_like_others() -> None:
    batch = Columns()
    assert batch.append("a", "$JS.ACK.S.C.1.2.3.4.5", b"NATS/1.0\r\n\r\n", b"x") is True
    assert batch.rows() == [(2, 4, "a", b"NATS/1.0\r\n\r\n", b"x")]
    assert batch.last_consumer_seq == 3


def test_a_batch_is_full_by_bytes_too() -> None:
    row = (1, 2, "a", b"", b"x" * 40)
    parser = Parser(ROLE_CLIENT)
    batch = Columns(1000, 100)
    assert batch.feed(parser, SID, wire_message(row, 0) * 5) == []
    assert (batch.count, batch.full) == (3, True)
    after = Columns(1000, 100)
    after.feed(parser, SID, b"")
    assert after.count == 2


@given(st.lists(st.integers(1, 20), unique=True).map(sorted), st.integers(0, 25))
def test_truncate_drops_the_rows_at_and_behind_a_sequence(seqs: list[int], stop: int) -> None:
    data = b"".join(wire_message((seq, seq, f"s.{seq}", b"", b"p" * seq), 0) for seq in seqs)
    ((batch,), _) = feed_all([data])
    kept = [seq for seq in seqs if seq < stop]
    assert batch.truncate(stop) == len(seqs) - len(kept)
    assert [(row[0], row[2], len(row[4])) for row in batch.rows()] == [
        (seq, f"s.{seq}", seq) for seq in kept
    ]
    assert batch.count == len(kept) == len(batch)


def test_columns_that_are_looked_at_do_not_move() -> None:
    parser = Parser(ROLE_CLIENT)
    batch = Columns()
    batch.feed(parser, SID, wire_message((1, 2, "a", b"", b"x"), 0))
    view = batch.seq.view("q")
    with pytest.raises(BufferError):
        batch.feed(parser, SID, wire_message((2, 2, "a", b"", b"x"), 0))
    with pytest.raises(BufferError):
        batch.truncate(1)
    assert view.tolist() == [1]
    view.release()


@pytest.mark.parametrize(("rows_max", "bytes_max"), [(0, 1), (1, 0), (1, 2**31)])
def test_limits_that_make_no_sense_are_refused(rows_max: int, bytes_max: int) -> None:
    with pytest.raises(ValueError, match="a batch has"):
        Columns(rows_max, bytes_max)


def test_a_broken_protocol_is_told_after_what_came_before_it() -> None:
    parser = Parser(ROLE_CLIENT)
    batch = Columns()
    with pytest.raises(WireError) as caught:
        batch.feed(parser, SID, wire_message((1, 2, "a", b"", b"x"), 0) + b"PING\r\nNONSENSE\r\n")
    assert caught.value.events == [(OP_PING,)]
    assert batch.count == 1
    with pytest.raises(WireError):
        batch.feed(parser, SID, b"")


@given(st.binary(max_size=100))
def test_no_bytes_crash(data: bytes) -> None:
    try:
        feed_all([b"HMSG a 7 $JS.ACK.", data])
    except WireError:
        return
