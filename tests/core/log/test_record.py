"""The bytes on the disk, decoded by a second reader made from the drawings in the modules."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pelton.core.base.buffer import crc32c_of
from pelton.core.log import maintenance
from pelton.core.log.recovery import open_log
from tests.ways import length

if TYPE_CHECKING:
    from pathlib import Path

MESSAGE, REMOVE, SKIP = 1, 2, 3


class Read(NamedTuple):
    kind: int
    state: int
    seq: int
    ts_ns: int
    subject: bytes
    headers: bytes
    payload: bytes


def read_segment(data: bytes) -> tuple[int, list[Read]]:
    magic, version, salt, first, zero, crc = struct.unpack_from("<8sIIQII", data)
    assert (magic, version, zero) == (b"PNSTKSEG", 1, 0)
    assert crc == crc32c_of(data[:28])
    records = []
    at = 32
    while at < len(data):
        length, kind, state, flags, subject_len, mark, hlen, seq, ts_ns = struct.unpack_from(
            "<IBBHHHIQQ", data, at
        )
        assert (flags, mark) == (0, 0xA75E)
        body = data[at + 32 : at + length - 4]
        assert struct.unpack_from("<I", data, at + length - 4)[0] == crc32c_of(
            data[at : at + length - 4], salt
        )
        rest = body[subject_len:]
        records.append(Read(kind, state, seq, ts_ns, body[:subject_len], rest[:hlen], rest[hlen:]))
        at += length
    assert at == len(data)
    return first, records


def ranges(record: Read) -> list[tuple[int, int]]:
    return list(struct.iter_unpack("<QQ", record.payload))


MESSAGES = st.lists(
    st.tuples(
        st.integers(0, 2**64 - 1),
        st.text("abc.é", min_size=1, max_size=20),
        st.binary(max_size=60),
        st.binary(max_size=200),
    ),
    min_size=1,
    max_size=12,
)


@settings(
    max_examples=length(25, 60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(messages=MESSAGES)
def test_messages_are_as_drawn(
    tmp_path: Path, messages: list[tuple[int, str, bytes, bytes]]
) -> None:
    log = open_log(str(tmp_path / "log"))
    for ts_ns, subject, headers, payload in messages:
        log.add(ts_ns, subject, payload, headers)
    log.flush()
    (path,) = (tmp_path / "log").glob("*.seg")
    assert path.name == f"{1:020d}.seg"
    assert path.stat().st_mode & 0o777 == 0o600
    first, records = read_segment(path.read_bytes())
    assert first == 1
    assert records == [
        Read(MESSAGE, 0, i + 1, ts_ns, subject.encode(), headers, payload)
        for i, (ts_ns, subject, headers, payload) in enumerate(messages)
    ]
    maintenance.destroy(log)


def test_all_removals_of_a_turn_are_one_record(tmp_path: Path) -> None:
    log = open_log(str(tmp_path / "log"))
    for i in range(20):
        log.add(i, "a", b"x")
    log.flush()
    for seq in (9, 3, 4, 10, 11, 2, 17):
        maintenance.delete(log, seq)
    log.add(99, "a", b"later")
    log.flush()
    maintenance.purge(log)
    log.flush()
    _, records = read_segment((tmp_path / "log" / f"{1:020d}.seg").read_bytes())
    assert [r.kind for r in records] == [MESSAGE] * 21 + [REMOVE, REMOVE]
    assert ranges(records[-2]) == [(2, 3), (9, 3), (17, 1)]
    assert ranges(records[-1]) == [(1, 21)]
    assert records[-1].seq == 21


def test_short_skips_are_records_and_long_ones_new_segments(tmp_path: Path) -> None:
    log = open_log(str(tmp_path / "log"))
    log.add(1, "a", b"x")
    log.skip(10)
    log.add(2, "a", b"y")
    log.skip(1_000_000)
    log.add(3, "a", b"z")
    log.flush()
    found = {p.name: read_segment(p.read_bytes()) for p in sorted((tmp_path / "log").glob("*.seg"))}
    assert list(found) == [f"{1:020d}.seg", f"{1_000_000:020d}.seg"]
    (_, low), (first, high) = found.values()
    assert [(r.kind, r.seq) for r in low] == [(MESSAGE, 1), (SKIP, 9), (MESSAGE, 10)]
    assert first == 1_000_000
    assert [(r.kind, r.seq) for r in high] == [(MESSAGE, 1_000_000), (REMOVE, 1_000_000)]
    assert ranges(high[1]) == [(11, 999_989)]  # so that nobody takes the gap for a lost file


def test_many_removals_are_split_over_records(tmp_path: Path) -> None:
    log = open_log(str(tmp_path / "log"))
    for i in range(10_001):
        log.add(i, "a", b"")
    for seq in range(2, 10_001, 2):
        maintenance.delete(log, seq)
    log.flush()
    _, records = read_segment((tmp_path / "log" / f"{1:020d}.seg").read_bytes())
    told = [len(ranges(r)) for r in records if r.kind == REMOVE]
    assert sum(told) == 5000
    assert max(told) == 4096
    del log
    log = open_log(str(tmp_path / "log"))
    assert log.msgs == 5001


def test_index_file_is_as_drawn(tmp_path: Path) -> None:
    log = open_log(str(tmp_path / "log"), segment_bytes=4096)
    for i in range(60):
        log.add(100 + i, f"s.{i % 3}", b"x" * 60, b"h" * (i % 2))
        if i == 20:
            maintenance.delete(log, 5)
            log.flush()
    log.flush()
    index = tmp_path / "log" / f"{1:020d}.idx"
    assert not index.exists()  # it would speak of bytes that a loss of power may take
    log.fsync()
    data = index.read_bytes()
    segment = (tmp_path / "log" / f"{1:020d}.seg").read_bytes()
    _, records = read_segment(segment)
    messages = [r for r in records if r.kind == MESSAGE]
    magic, version, salt, first, size, count, live, live_bytes, last = struct.unpack_from(
        "<8sIIQQIIQQ", data
    )
    last_ts, subjects, names, words, told = struct.unpack_from("<QIIII", data, 64)
    assert (magic, version, first, size) == (b"PNSTKIDX", 1, 1, len(segment))
    assert salt == struct.unpack_from("<I", segment, 12)[0]
    assert (count, live, last) == (len(messages), len(messages) - 1, log.last_seq)
    assert live_bytes == sum(30 + 3 + 60 + 5 * len(m.headers) for m in messages if m.seq != 5)
    assert (last_ts, subjects, names, words, told) == (messages[-1].ts_ns, 3, 9, 1, 1)
    assert struct.unpack_from("<I", data, 108)[0] == crc32c_of(data[:108])
    entries = list(struct.iter_unpack("<III", data[112 : 112 + 12 * count]))
    for (offset, local, n), message in zip(entries, messages, strict=True):
        assert segment[offset + 32 : offset + 35] == message.subject
        assert local == int(message.subject[-1:])
        assert n & 0x7FFFFFFF == len(message.subject) + len(message.headers) + len(message.payload)
        assert bool(n >> 31) is bool(message.headers)
    tables = data[112 + 12 * count :]
    assert struct.unpack_from("<I", data, 96)[0] == crc32c_of(tables)
    assert struct.unpack_from("<I", data, 100)[0] == crc32c_of(data[112 : 112 + 12 * count])
    assert tables[48:57] == b"s.0s.1s.2"
    assert struct.unpack_from("<QQQ", tables, 57) == (1 << 4, 5, 1)
    assert len(tables) == 57 + 24
