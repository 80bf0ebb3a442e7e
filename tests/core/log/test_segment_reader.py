"""Reading segments without a log finds what an opening of the log finds, and changes nothing."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pelton.core.base.buffer import crc32c_of
from pelton.core.base.readonly_disk import OverlayDisk, ReadOnlyDisk
from pelton.core.bulk.columns import Columns
from pelton.core.log import maintenance, queries
from pelton.core.log.log import Log
from pelton.core.log.recovery import open_log
from pelton.core.log.segment_reader import LogReader, SegmentReader
from tests.ways import length

from .test_recovery import copy, drop_indexes, segments

NUMBERS = itertools.count()
Row = tuple[int, int, str, bytes, bytes]


def build(folder: Path, seed: int) -> None:
    """A log that has lived: messages of all sizes, removals of all kinds, compaction, compression."""
    pick = random.Random(seed)
    log = open_log(
        str(folder),
        segment_bytes=pick.choice([4096, 4096, 20_000, 200_000]),
        first_seq=pick.choice([1, 1, 1000]),
    )
    log.compress = pick.random() < 0.5
    noise = pick.random() < 0.5
    for i in range(pick.randint(0, 400)):
        what = pick.random()
        if what < 0.8:
            size = pick.randint(0, 300)
            payload = pick.randbytes(size) if noise else b"state: on; " * (size // 11)
            log.add(1000 + i, f"s.{pick.randint(0, 9)}", payload, b"H" * pick.choice([0, 0, 17]))
        elif what < 0.9:
            maintenance.delete(
                log, pick.randint(1, max(log.last_seq, 1)), erase=pick.random() < 0.3
            )
        elif what < 0.92:
            maintenance.purge(log, below=pick.randint(1, log.last_seq + 1))
        elif what < 0.94:
            queries.purge_subjects(log, f"s.{pick.randint(0, 9)}", keep=pick.randint(0, 2))
        elif what < 0.96:
            log.skip(log.last_seq + pick.randint(1, 50))
        else:
            log.flush()
            maintenance.maintain(log)
    log.flush()
    while pick.random() < 0.7 and maintenance.maintain(log):
        pass
    if pick.random() < 0.5:
        maintenance.close(log)


def bind(folder: Path, pick: random.Random) -> None:
    """Some messages of a plain segment become a group, at its end an unfinished one."""
    path = pick.choice([segments(folder)[-1], pick.choice(segments(folder))])
    data = bytearray(path.read_bytes())
    if data[8] != 1:
        return
    salt = int.from_bytes(data[12:16], "little")
    at, starts = 32, []
    while at < len(data):
        starts.append(at)
        at += int.from_bytes(data[at : at + 4], "little")
    for at in starts[-pick.randint(1, 6) :]:
        length = int.from_bytes(data[at : at + 4], "little")
        if data[at + 4] == 1 and pick.random() < 0.8:
            data[at + 5] |= 128
            crc = crc32c_of(bytes(data[at : at + length - 4]), salt)
            data[at + length - 4 : at + length] = crc.to_bytes(4, "little")
    path.write_bytes(data)


def damage(folder: Path, pick: random.Random) -> None:
    for _ in range(pick.choice([0, 1, 1, 2, 5])):
        path = pick.choice(segments(folder))
        data = bytearray(path.read_bytes())
        what = pick.random()
        if not data:
            continue
        at = pick.randrange(len(data))
        if what < 0.5:
            data[at] ^= 1 << pick.randrange(8)
        elif what < 0.6:
            data[at % 40 % len(data)] ^= 1 << pick.randrange(8)
        elif what < 0.75:
            end = min(len(data), at + pick.randint(1, 400))
            data[at:end] = pick.randbytes(end - at)
        elif what < 0.85:
            del data[at:]
        elif what < 0.9:
            data += pick.randbytes(pick.randint(1, 100))
        elif len(segments(folder)) > 1:
            path.unlink()
            continue
        path.write_bytes(data)


def rows(reader: LogReader, **how: object) -> list[Row]:
    found: list[Row] = []
    more = True
    while more:
        columns = Columns(7, 1 << 20)
        more = reader.fill(columns, **how)  # type: ignore[arg-type]  # options as they come
        found += columns.rows()
    return found


def everything(log: Log) -> list[Row]:
    found = []
    message = queries.next_of(log, ">", 1)
    while message is not None:
        found.append(
            (message.seq, message.ts_ns, message.subject, message.headers, message.payload)
        )
        message = queries.next_of(log, ">", message.seq + 1)
    return found


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@settings(max_examples=length(25, 400), deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 32), quick=st.booleans(), indexed=st.booleans())
def test_it_finds_what_an_opening_finds(
    tmp_path: Path, seed: int, quick: bool, indexed: bool
) -> None:
    folder = tmp_path / f"log{next(NUMBERS)}"
    build(folder, seed)
    pick = random.Random(seed + 1)
    if pick.random() < 0.3:
        bind(folder, pick)
    damage(folder, pick)
    if not indexed:
        drop_indexes(folder)
    before = bytes_of(folder)
    reader = LogReader(ReadOnlyDisk(), str(folder), quick=quick)
    found = rows(reader)
    assert bytes_of(folder) == before
    told = [
        part for segment in reader.segments for _, _, parts, _ in segment.faults for part in parts
    ]
    log = open_log(str(folder))
    facts = (log.msgs, log.bytes, log.first_seq, log.last_seq, log.lost)
    if quick or not indexed:
        ours = (reader.log.msgs, reader.log.bytes, reader.log.first_seq, reader.log.last_seq)
        assert (*ours, reader.lost) == facts
    messages = everything(log)
    if quick or not indexed:
        assert found == messages
    assert len(told) == len(set(told))
    assert {part[:2] for part in told} <= {
        (first, n)
        for low, count, _ in reader.lost
        for first in range(low, low + count + 1)
        for n in range(count + 1)
    }
    maintenance.close(log)


@settings(max_examples=length(20, 200), deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 32))
def test_index_files_give_the_same_messages(tmp_path: Path, seed: int) -> None:
    folder = tmp_path / f"log{next(NUMBERS)}"
    build(folder, seed)
    whole = LogReader(ReadOnlyDisk(), str(folder))
    quick = LogReader(ReadOnlyDisk(), str(folder), quick=True)
    assert rows(quick) == rows(whole)
    assert [quick.live_sum(s.first) for s in quick.segments] == [
        whole.live_sum(s.first) for s in whole.segments
    ]
    assert (quick.log.msgs, quick.log.bytes) == (whole.log.msgs, whole.log.bytes)
    assert quick.lost == whole.lost == []


@settings(max_examples=length(25, 60), deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 32))
def test_an_opening_on_an_overlay_finds_the_same_and_writes_nothing(
    tmp_path: Path, seed: int
) -> None:
    folder = tmp_path / f"log{next(NUMBERS)}"
    build(folder, seed)
    damage(folder, random.Random(seed + 1))
    before = bytes_of(folder)
    overlay = OverlayDisk(ReadOnlyDisk())
    log = open_log(str(folder), overlay)
    seen = (log.msgs, log.bytes, log.first_seq, log.last_seq, log.lost)
    log.add(5, "s.new", b"in memory only")
    maintenance.close(log)
    assert bytes_of(folder) == before
    assert any(data for data in overlay.changes().values())
    real = open_log(str(folder))
    assert seen == (real.msgs, real.bytes, real.first_seq, real.last_seq, real.lost)
    maintenance.close(real)


@settings(max_examples=length(25, 60), deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 32), low=st.integers(1, 300), span=st.integers(0, 300))
def test_parts_are_those_of_the_whole(tmp_path: Path, seed: int, low: int, span: int) -> None:
    folder = tmp_path / f"log{next(NUMBERS)}"
    build(folder, seed)
    reader = LogReader(ReadOnlyDisk(), str(folder), quick=seed % 2 == 0)
    everything = rows(reader)
    reader.seek(low)
    assert rows(reader, upto=low + span) == [
        row for row in everything if low <= row[0] <= low + span
    ]
    assert rows(reader) == [row for row in everything if row[0] > low + span]
    reader.seek(1)
    wanted = {"s.1", "s.2"}
    assert rows(reader, patterns=(b"s.1", b"s.2")) == [r for r in everything if r[2] in wanted]
    reader.seek(1)
    assert rows(reader, patterns=(b"*.*",)) == everything
    reader.seek(1)
    times = 1000 + low, 1000 + low + span
    found = rows(reader, since_ns=times[0], until_ns=times[1])
    assert found == [row for row in everything if times[0] <= row[1] < times[1]]


@settings(max_examples=length(30, 80), deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 32), low=st.integers(1, 300), span=st.integers(0, 300))
def test_parts_with_damage_are_those_of_the_whole_or_say_so(
    tmp_path: Path, seed: int, low: int, span: int
) -> None:
    folder = tmp_path / f"log{next(NUMBERS)}"
    build(folder, seed)
    damage(folder, random.Random(seed + 1))
    whole = LogReader(ReadOnlyDisk(), str(folder), quick=True)
    wanted = [row for row in rows(whole) if low <= row[0] <= low + span]
    part = LogReader(ReadOnlyDisk(), str(folder), quick=True, survey=False)
    assert part.segments == []
    part.seek(low)
    found = rows(part, upto=low + span)
    if whole.damages == 0:
        assert part.damages == 0
    if part.damages == 0:
        assert found == wanted
    part.close()


def test_a_held_folder_stays_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    log = open_log(str(folder), segment_bytes=4096)
    for i in range(300):
        log.add(i, f"s.{i % 3}", b"x" * 40)
    log.flush()
    disk = ReadOnlyDisk()
    assert disk.hold(str(folder))
    before = rows(LogReader(ReadOnlyDisk(), str(folder)))
    for i in range(300):
        log.add(i, "s.new", b"y" * 40)
    maintenance.purge(log, below=250)
    queries.purge_subjects(log, "s.0")
    log.flush()
    while maintenance.maintain(log):
        pass
    maintenance.close(log)
    assert rows(LogReader(disk, str(folder))) == before
    assert rows(LogReader(ReadOnlyDisk(), str(folder))) != before
    disk.release(str(folder))
    assert rows(LogReader(disk, str(folder))) == rows(LogReader(ReadOnlyDisk(), str(folder)))


def test_a_disk_for_reading_refuses_all_else(tmp_path: Path) -> None:
    disk = ReadOnlyDisk()
    path = tmp_path / "a"
    path.write_bytes(b"1")
    for refused in (
        lambda: disk.make_dir(str(tmp_path / "b")),
        lambda: disk.rename(str(path), str(tmp_path / "b")),
        lambda: disk.unlink(str(path)),
        lambda: disk.remove_tree(str(tmp_path)),
        lambda: disk.write_file_atomic(str(path), b"2"),
    ):
        with pytest.raises(OSError, match="Read-only"):
            refused()
    assert path.read_bytes() == b"1"
    assert not disk.hold(str(tmp_path / "none"))


def test_what_each_damage_costs_and_where_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    log = open_log(str(folder), segment_bytes=100_000)
    for i in range(10):
        log.add(i, "s", b"payload %d" % i)
    maintenance.close(log)
    drop_indexes(folder)
    copy(folder, tmp_path / "kept")
    path = segments(folder)[0]
    steps = SegmentReader(ReadOnlyDisk(), str(path), 1).steps()
    assert [step[3] for step in steps] == list(range(1, 11))
    kind, at, end, seq, ts_ns = steps[4]
    assert (kind, seq, ts_ns) == (1, 5, 4)
    data = bytearray(path.read_bytes())
    data[end - 6] ^= 16
    path.write_bytes(data)
    reader = LogReader(ReadOnlyDisk(), str(folder))
    assert reader.segments[0].faults == [(at, end, [(5, 1, "checksum mismatch")], True)]
    assert reader.lost == [(5, 1, "checksum mismatch")]
    assert SegmentReader(ReadOnlyDisk(), str(path), 1).piece(at, end) == bytes(data[at:end])


@settings(max_examples=length(20, 400), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 1 << 32),
    low=st.integers(0, 1500),
    span=st.integers(0, 500),
    patterns=st.sampled_from([(), (b"s.3",), (b"s.*",), (b"s.1", b"s.9"), (b"nobody",)]),
)
def test_subjects_of_the_index_are_those_of_the_records(
    tmp_path: Path, seed: int, low: int, span: int, patterns: tuple[bytes, ...]
) -> None:
    folder = tmp_path / f"log{next(NUMBERS)}"
    build(folder, seed)
    reader = LogReader(ReadOnlyDisk(), str(folder), quick=True, survey=False)
    for upto in (0, low + span):
        reader.seek(low)
        want = [(row[0], row[2]) for row in rows(reader, upto=upto, patterns=patterns)]
        reader.seek(low)
        found: list[tuple[int, str]] = []
        more = True
        while more:
            columns = Columns(7, 1 << 20)
            more = reader.fill_subjects(columns, upto=upto, patterns=patterns)
            found += [(row[0], row[2]) for row in columns.rows()]
        assert found == want
    reader.close()


def test_subjects_come_without_the_records(tmp_path: Path) -> None:
    log = open_log(str(tmp_path), segment_bytes=4096)
    for i in range(200):
        log.add(1000 + i, f"s.{i % 7}", b"x" * 100)
    log.flush()
    while maintenance.maintain(log):
        pass
    maintenance.close(log)
    sealed = [path for path in segments(tmp_path)[:-1] if path.with_suffix(".idx").exists()]
    assert len(sealed) > 3
    for path in sealed:
        data = path.read_bytes()
        path.write_bytes(data[:32] + bytes(len(data) - 32))
    reader = LogReader(ReadOnlyDisk(), str(tmp_path), quick=True, survey=False)
    columns = Columns(1000, 1 << 20)
    reader.seek(0)
    assert not reader.fill_subjects(columns)
    assert [(row[0], row[2]) for row in columns.rows()] == [
        (i + 1, f"s.{i % 7}") for i in range(200)
    ]
    reader.close()
