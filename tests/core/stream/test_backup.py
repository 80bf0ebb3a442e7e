"""Blocks and entries of backups: logs come back as they were, damage is refused."""

import hashlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.core.base.highway_hash import highway64
from pelton.core.log import maintenance
from pelton.core.log.log import Log, StoredMessage
from pelton.core.log.recovery import open_log
from pelton.core.stream.backup import BlockReader, BlockWriter, EntryReader, apply_state

messages = st.lists(
    st.tuples(
        st.integers(1, 4),  # step from the sequence before
        st.sampled_from(["a", "b.c", "d" * 300]),
        st.sampled_from([b"", b"NATS/1.0\r\nK: v\r\n\r\n"]),
        st.binary(max_size=100),
        st.booleans(),  # removed afterwards
    ),
    max_size=40,
)
Message = tuple[int, str, bytes, bytes, bool]


def log_of(parts: list[Message]) -> Log:
    log = open_log(None)
    gone = []
    for step, subject, headers, payload, removed in parts:
        if step > 1:
            log.skip(log.last_seq + step)
        seq = log.add(1_000 + log.last_seq, subject, payload, headers)
        if removed:
            gone.append(seq)
    for seq in gone:
        maintenance.delete(log, seq)
    return log


def content(log: Log) -> list[StoredMessage]:
    return [each for seq in range(1, log.last_seq + 1) if (each := log.get(seq)) is not None]


def blocks_of(log: Log, block_bytes: int = 1000, budget: int = 300) -> list[bytes]:
    out, seq = [], 1
    while seq <= log.last_seq:
        writer = BlockWriter("S")
        writer.start(len(out) + 1)
        while seq <= log.last_seq and len(writer) < block_bytes:
            seq = writer.fill(log, seq, log.last_seq, budget, block_bytes)
        out.append(writer.take())
    return out


def read(blocks: list[bytes], log: Log, cut: int = 1 << 20) -> BlockReader:
    reader = BlockReader(log, "S")
    for number, block in enumerate(blocks, 1):
        reader.start(number)
        for at in range(0, len(block), cut):
            reader.feed(block[at : at + cut])
            reader.run()
    reader.start(len(blocks) + 1)
    return reader


@given(messages, st.integers(1, 500))
def test_a_log_comes_back_through_blocks_however_they_are_cut(
    parts: list[Message], cut: int
) -> None:
    log, copy = log_of(parts), open_log(None)
    read(blocks_of(log), copy, cut)
    assert content(copy) == content(log)


def test_a_record_is_drawn_as_the_head_says() -> None:
    log = open_log(None)
    log.add(77, "a.b", b"body", b"NATS/1.0\r\n\r\n")
    [block] = blocks_of(log)
    head = struct.pack("<IQqH", len(block) | 1 << 31, 1, 77, 3)
    headers = b"NATS/1.0\r\n\r\n"
    assert block[:-8] == head + b"a.b" + struct.pack("<I", len(headers)) + headers + b"body"
    key = hashlib.sha256(b"S-1").digest()
    checked = head[4:20] + b"a.b" + headers + b"body"
    assert block[-8:] == highway64(key, checked).to_bytes(8, "little")
    assert len(block) == log.bytes + 22 + 4 + 8 - 16  # a file counts so, memory otherwise


def test_removed_and_erased_messages_are_gaps() -> None:
    log, copy = open_log(None), open_log(None)
    for _ in range(3):
        log.add(1, "a", b"x")
    [block] = blocks_of(log)
    writer = BlockWriter("S")
    writer.start(2)
    writer.erased(9, 5)
    reader = read([block, writer.take()], copy)
    assert [m.seq for m in map(copy.get, (1, 2, 3)) if m] == [1, 2, 3]
    assert reader.last_removed == 9
    tombstone = struct.pack("<IQqH", 30, 2 | 1 << 62, 5, 0)
    key = hashlib.sha256(b"S-1").digest()
    tombstone += highway64(key, tombstone[4:20]).to_bytes(8, "little")
    copy = open_log(None)
    assert read([block + tombstone], copy).last_removed == 2
    assert copy.get(2) is None
    assert copy.msgs == 2


@given(messages.filter(bool), st.integers(0), st.integers(1, 255))
def test_a_flipped_byte_is_refused(parts: list[Message], at: int, flip: int) -> None:
    log = log_of([(*part[:4], False) for part in parts])
    blocks = blocks_of(log)
    damaged = bytearray(blocks[0])
    damaged[at % len(damaged)] ^= flip
    copy = open_log(None)
    refused = False
    try:
        read([bytes(damaged), *blocks[1:]], copy)
    except ValueError as error:
        refused = "message" in str(error)
        assert refused
    # the checksum does not cover where subject, headers and payload part
    for message in content(copy):
        original = log.get(message.seq)
        assert original is not None
        assert (message.ts_ns, whole(message)) == (original.ts_ns, whole(original))
    assert refused or copy.msgs == log.msgs


def whole(message: StoredMessage) -> bytes:
    return message.subject.encode(errors="surrogateescape") + message.headers + message.payload


def test_subjects_that_would_break_the_protocol_are_refused() -> None:
    for subject in (b"", b"a b", b"a\r\nPING\r\n", b"a\0"):
        head = struct.pack("<IQqH", 30 + len(subject), 1, 5, len(subject)) + subject
        key = hashlib.sha256(b"S-1").digest()
        record = head + highway64(key, head[4:20] + subject).to_bytes(8, "little")
        with pytest.raises(ValueError, match="cannot be stored"):
            read([record], open_log(None))
        reader = EntryReader()
        reader.log = open_log(None)
        reader.feed(b"NATSARC1" + entry(subject, 1, 1, b"", b"x"))
        with pytest.raises(ValueError, match=r"."):
            reader.run()


@given(st.binary(max_size=300))
def test_blocks_of_garbage_harm_nothing(data: bytes) -> None:
    log = open_log(None)
    with pytest.raises(ValueError, match="message block"):
        read([data + b"\0" * 30], log)
    assert not log.msgs


# -- the newer archive


def number(value: int) -> bytes:
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def entry(name: bytes, ts_ns: int, seq: int, headers: bytes, payload: bytes) -> bytes:
    sizes = number(len(headers)) + number(len(payload))
    return number(len(name)) + number(ts_ns << 1) + number(seq) + sizes + name + headers + payload


END = entry(b"", 0, 0, b"", b"")


@given(messages, st.integers(1, 400))
def test_a_log_comes_back_through_entries(parts: list[Message], cut: int) -> None:
    log, copy = log_of(parts), open_log(None)
    data = b"NATSARC1" + entry(b"state.json", 5, 0, b"", b"{}")
    for seq in range(1, log.last_seq + 1):
        m = log.get(seq)
        if m is not None:
            data += entry(m.subject.encode(), m.ts_ns, m.seq, m.headers, m.payload)
    reader = EntryReader()
    files = []
    data += END
    for at in range(0, len(data), cut):
        reader.feed(data[at : at + cut])
        while (found := reader.run()) is not None:
            files.append(found)
            reader.log = copy
    assert files == [("state.json", b"{}")]
    assert reader.complete
    assert content(copy) == content(log)


@pytest.mark.parametrize(
    "data",
    [
        b"NATSARC2",
        b"NATSARC1" + b"\xff" * 60,
        b"NATSARC1" + entry(b"a", 1, 1, b"", b"x"),  # a message and no log
        b"NATSARC1" + entry(b"", 1, 0, b"", b""),
        b"NATSARC1" + number(1 << 30) + bytes(4),
        b"NATSARC1" + number(1) + bytes(2) + number(1 << 63) + number(1 << 63) + b"x",
    ],
)
def test_what_is_no_archive_is_refused(data: bytes) -> None:
    reader = EntryReader()
    reader.feed(data)
    with pytest.raises(ValueError, match=r"."):
        reader.run()


def test_messages_out_of_order_too_long_or_too_old() -> None:
    def reader_of(data: bytes) -> EntryReader:
        reader = EntryReader()
        reader.log = open_log(None)
        reader.feed(b"NATSARC1" + data)
        return reader

    twice = reader_of(entry(b"a", 1, 5, b"", b"x") + entry(b"a", 1, 5, b"", b"x"))
    with pytest.raises(ValueError, match="out of order"):
        twice.run()
    long = reader_of(entry(b"a", 1, 5, b"", b"x" * 11))
    long.max_bytes = 10
    with pytest.raises(ValueError, match="too long"):
        long.run()
    ttl = b"NATS/1.0\r\nNats-TTL: 1s\r\n\r\n"
    old = reader_of(entry(b"a", 1, 5, ttl, b"x") + entry(b"a", 1, 6, b"", b"y"))
    old.now_ns = 2 * 10**9
    assert old.run() is None
    assert old.log is not None
    assert (old.log.get(5), old.log.msgs, old.log.last_seq) == (None, 1, 6)


@given(st.binary(max_size=200))
def test_entries_of_garbage_harm_nothing(data: bytes) -> None:
    reader = EntryReader()
    reader.log = open_log(None)
    reader.feed(b"NATSARC1" + data)
    try:
        while reader.run() is not None:
            continue
    except ValueError:
        return


# -- index.db


def signed(value: int) -> bytes:
    return number((value << 1) ^ (value >> 63))


def index_db(
    first: int, last: int, gone: set[int], version: int = 3, nodes: int = 1, far: int = 0
) -> bytes:
    """One block, as the module's head draws it; its set has so many nodes, the same but the last."""
    base = first - first % 2048 if gone else 0
    bits = bytearray(32 * 8)
    for seq in gone:
        bits[(seq - base) // 8] |= 1 << (seq - base) % 8
    found = bytes([11, version]) + number(0) + number(0) + number(first) + signed(5)
    found += number(last) + signed(9) + number(1) + number(1) + b"a" + number(1) + number(1)
    found += number(1) + number(1) + number(0) + number(first) + signed(0) + number(last)
    found += signed(4) + number(len(gone)) + (number(0) if version >= 2 else b"")
    found += number(0) if version >= 3 else b""
    if gone:
        found += bytes([22, 2]) + struct.pack("<II", nodes, len(gone))
        for n in range(nodes):
            found += (
                struct.pack("<Q", far if n and n == nodes - 1 else base) + bytes(bits) + b"\1\0"
            )
    found += number(1) + bytes(8)
    return found + highway64(bytes(32), found).to_bytes(8, "little")


@given(st.sets(st.integers(3, 39)), st.integers(1, 3))
def test_what_the_index_says_is_removed_is_removed(gone: set[int], version: int) -> None:
    log = open_log(None)
    for _ in range(50):
        log.add(1, "a", b"x")
    assert apply_state(log, index_db(3, 40, gone, version), bytes(32)) == (3, 40)
    live = {seq for seq in range(1, 51) if log.get(seq)}
    assert live == {*range(3, 51)} - gone


def test_a_set_that_names_more_than_there_is_is_not_believed() -> None:
    log = open_log(None)
    for _ in range(50):
        log.add(1, "a", b"x")
    gone = set(range(3, 40))
    assert apply_state(log, index_db(3, 40, gone, nodes=3, far=1 << 40), bytes(32)) == (3, 40)
    assert apply_state(log, index_db(3, 40, gone, nodes=300), bytes(32)) is None


@given(st.integers(0), st.integers(1, 255))
def test_a_damaged_index_is_not_believed(at: int, flip: int) -> None:
    data = bytearray(index_db(3, 40, {5, 6}))
    data[at % len(data)] ^= flip
    log = open_log(None)
    log.add(1, "a", b"x")
    assert apply_state(log, bytes(data), bytes(32)) is None
    assert log.msgs == 1


@given(st.binary(max_size=400))
def test_an_index_of_garbage_with_a_good_checksum_harms_nothing(data: bytes) -> None:
    log = open_log(None)
    body = bytes([11, 3]) + data + bytes(20)
    apply_state(log, body + highway64(bytes(32), body).to_bytes(8, "little"), bytes(32))
