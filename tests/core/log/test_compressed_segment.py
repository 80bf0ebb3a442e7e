"""Logs whose full segments are compressed: the same messages, whatever happens to the files.

The model of tests/core/log/test_log runs with compression too.
"""

from __future__ import annotations

import errno
import itertools
import random
import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pelton.core.base.buffer import crc32c_of
from pelton.core.base.disk import PyDisk
from pelton.core.base.s2 import decompress
from pelton.core.log import maintenance, queries, recovery
from pelton.core.log.log import Log, StoredMessage
from pelton.testing.simulated_disk import SimDisk
from tests.ways import length

from .test_recovery import copy, drop_indexes, everything, segments

if TYPE_CHECKING:
    from pathlib import Path

NUMBERS = itertools.count()
PACKED = b"\x02\0\0\0"  # version 2, at byte 8 of a segment's head
SEGMENT = 200_000


def open_log(folder: Path) -> Log:
    log = recovery.open_log(str(folder), segment_bytes=SEGMENT)
    log.compress = True
    return log


def fill(log: Log, count: int) -> dict[int, StoredMessage]:
    source = random.Random(count)
    for i in range(count):
        noise = source.randbytes(30)
        payload = b"device %d says %s" % (i % 7, noise) + b"state: on, mode: automatic; " * 20
        log.add(1000 + i, f"s.{i % 3}", payload, b"H" * (i % 2 * 20))
    log.flush()
    return everything(log)


def compressed(folder: Path) -> list[Path]:
    return [path for path in segments(folder) if path.read_bytes()[8:12] == PACKED]


def source_of(tmp_path: Path) -> Path:
    """A closed log of three compressed segments and an active one, made once for a test."""
    source = tmp_path / "source"
    if not source.exists():
        log = open_log(source)
        fill(log, 1000)
        maintenance.delete(log, 100)
        while maintenance.maintain(log):
            pass
        maintenance.close(log)
        assert len(compressed(source)) == len(segments(source)) - 1 == 3
    return source


def test_full_segments_get_small_and_nothing_else_changes(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    log = open_log(folder)
    whole = fill(log, 1500)
    before = (log.bytes, log.msgs, log.last_seq, queries.deleted(log))
    size = sum(path.stat().st_size for path in segments(folder))
    rounds = 0
    while maintenance.maintain(log):
        rounds += 1
        assert everything(log) == whole
    assert rounds == len(compressed(folder)) == len(segments(folder)) - 1
    assert sum(path.stat().st_size for path in segments(folder)) < size / 2
    assert (log.bytes, log.msgs, log.last_seq, queries.deleted(log)) == before
    assert log.at_time(1700) == 701
    picks = random.Random(1).choices(sorted(whole), k=200)
    assert [log.get(seq) for seq in picks] == [whole[seq] for seq in picks]
    del log
    for indexes in (True, False):
        if not indexes:
            drop_indexes(folder)
        log = open_log(folder)
        assert everything(log) == whole
        assert log.lost == []
        assert (log.bytes, log.msgs, log.last_seq, queries.deleted(log)) == before
        assert not maintenance.maintain(log)
        del log


def test_without_the_option_what_is_compressed_is_read_and_compacted_plain(
    tmp_path: Path,
) -> None:
    folder = source_of(tmp_path)
    log = recovery.open_log(str(folder), segment_bytes=SEGMENT)
    whole = everything(log)
    assert len(compressed(folder)) == 3
    for seq in range(1, 300):
        if seq % 5:
            maintenance.delete(log, seq)
            whole.pop(seq, None)
    log.flush()
    assert maintenance.maintain(log)
    assert len(compressed(folder)) == 2
    assert everything(log) == whole
    log.compress = True
    for seq in range(300, 620):
        if seq % 5:
            maintenance.delete(log, seq)
            whole.pop(seq, None)
    log.flush()
    while maintenance.maintain(log):
        assert everything(log) == whole
    assert len(compressed(folder)) == 3
    maintenance.close(log)
    assert everything(open_log(folder)) == whole


def test_what_does_not_compress_is_left_as_it_is(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    for i in range(600):
        log.add(i + 1, "a", random.Random(i).randbytes(1000))
    log.flush()
    assert not maintenance.maintain(log)
    assert not compressed(tmp_path / "log")


def test_erased_bytes_are_gone_from_compressed_files(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    log = open_log(folder)
    for i in range(1500):
        log.add(i + 1, "a", b"secret-%d-" % i + b"x" * 200, b"hidden-%d-" % i)
    log.flush()
    while maintenance.maintain(log):
        pass
    packed = compressed(folder)
    erased = [1, 100, 500]
    for seq in erased:
        assert maintenance.delete(log, seq, erase=True)
        assert log.get(seq) is None
    assert compressed(folder) == packed
    text = b"".join(plain(path) for path in packed)
    for seq in erased:
        assert b"secret-%d-" % (seq - 1) not in text
        assert b"hidden-%d-" % (seq - 1) not in text
    assert b"secret-50-" in text
    whole = everything(log)
    del log
    drop_indexes(folder)
    log = open_log(folder)
    assert everything(log) == whole
    assert log.lost == []


def plain(path: Path) -> bytes:
    """The bytes of a compressed segment, as the module's head draws the file."""
    data, at, out = path.read_bytes(), 32, b""
    count = int.from_bytes(data[-16:-12], "little")
    assert data[-8:] == b"PNSTKEN2"
    for _ in range(count):
        length = int.from_bytes(data[at : at + 4], "little")
        block = data[at + 4 : at + 4 + (length & 0x7FFFFFFF)]
        out += block if length >> 31 else decompress(block)
        at += 4 + len(block)
    assert len(out) == int.from_bytes(data[-24:-16], "little")
    return out


def test_the_old_file_of_an_erased_message_becomes_zeros() -> None:
    target = SimDisk()
    log = recovery.open_log("log", PyDisk(target), segment_bytes=SEGMENT)
    log.compress = True
    fill(log, 600)
    while maintenance.maintain(log):
        pass
    name = min(each for each in target.names if each.endswith(".seg"))
    old = target.names[name]
    assert old.data[8:12] == PACKED
    first_length = int.from_bytes(old.data[32:36], "little") & 0x7FFFFFFF
    maintenance.delete(log, 1, erase=True)
    assert target.names[name] is not old
    assert bytes(old.durable[32 : 36 + first_length]) == bytes(4 + first_length)


def test_the_last_segment_may_be_compressed(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    copy(source_of(tmp_path), folder)
    for indexes in (True, False):
        last_one = segments(folder)[-1]  # as if it had never reached the disk
        last_one.unlink()
        last_one.with_suffix(".idx").unlink(missing_ok=True)
        if not indexes:
            drop_indexes(folder)
        log = open_log(folder)
        whole = everything(log)
        last = log.last_seq
        assert len(whole) > 300
        # other index files may say that more sequences were given
        assert not whole.keys() & {seq for low, n, _ in log.lost for seq in range(low, low + n)}
        whole[last + 1] = StoredMessage(last + 1, 5, "a", b"", b"next")
        assert log.add(5, "a", b"next") == last + 1
        maintenance.close(log)
        assert everything(open_log(folder)) == whole


@settings(
    max_examples=length(20, 100),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    which=st.integers(0, 2),
    where=st.floats(0, 0.9999),
    bit=st.integers(0, 7),
    indexes=st.booleans(),
    near_end=st.booleans(),
)
def test_a_flipped_bit_costs_at_most_its_block(
    tmp_path: Path, which: int, where: float, bit: int, indexes: bool, near_end: bool
) -> None:
    source = source_of(tmp_path)
    whole = everything(open_log(source))
    folder = tmp_path / f"flip{next(NUMBERS)}"
    copy(source, folder)
    if not indexes:
        drop_indexes(folder)
    path = compressed(folder)[which]
    data = bytearray(path.read_bytes())
    at = len(data) - 1 - int(where * 60) if near_end else int(where * len(data))
    data[at] ^= 1 << bit
    path.write_bytes(data)
    log = open_log(folder)
    for seq in range(1, log.last_seq + 1):
        log.get(seq)
    found = everything(log)
    missing = set(whole) - set(found)
    assert all(found[seq] == whole[seq] for seq in found if seq in whole)
    assert set(found) - set(whole) <= {100}  # its removal may be what was damaged
    assert not missing or len(missing) <= 65536 // 500
    told = {s for seq, count, _ in log.lost for s in range(seq, seq + count)}
    assert missing <= told
    assert log.last_seq == 1000
    assert sum(queries.subjects(log).values()) == log.msgs
    for each in folder.iterdir():
        each.unlink()


@settings(
    max_examples=length(25, 60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    which=st.integers(0, 2),
    end=st.floats(0, 1),
    junk=st.binary(max_size=300),
    indexes=st.booleans(),
)
def test_a_compressed_file_that_is_cut_or_overwritten(
    tmp_path: Path, which: int, end: float, junk: bytes, indexes: bool
) -> None:
    source = source_of(tmp_path)
    whole = everything(open_log(source))
    folder = tmp_path / f"cut{next(NUMBERS)}"
    copy(source, folder)
    if not indexes:
        drop_indexes(folder)
    path = compressed(folder)[which]
    data = path.read_bytes()
    path.write_bytes(data[: int(end * len(data))] + junk)
    log = open_log(folder)
    found = everything(log)
    assert all(whole[seq] == m for seq, m in found.items() if seq in whole)
    assert log.last_seq == 1000
    assert log.add(5, "a", b"next") == 1001
    maintenance.close(log)
    again = open_log(folder)
    assert {**found, 1001: StoredMessage(1001, 5, "a", b"", b"next")} == everything(again)
    maintenance.close(again)
    for each in folder.iterdir():
        each.unlink()


class FailingDisk(SimDisk):
    """Fails at the n-th verb that changes something."""

    steps: int | None = None

    def step(self) -> None:
        if self.steps is not None:
            self.steps -= 1
            if self.steps < 0:
                raise OSError(errno.EIO, "power is going")

    def write_at(self, handle: int, data: bytes, offset: int) -> None:
        self.step()
        super().write_at(handle, data, offset)

    def sync(self, handle: int) -> None:
        self.step()
        super().sync(handle)

    def rename(self, old: str, new: str) -> None:
        self.step()
        super().rename(old, new)

    def sync_dir(self, path: str) -> None:
        self.step()
        super().sync_dir(path)

    def close(self, handle: int) -> None:
        self.handles.pop(handle, None)


@pytest.mark.parametrize("erase", [False, True])
def test_power_goes_at_any_step(erase: bool, seed: int) -> None:
    for steps in range(12):
        target = FailingDisk()
        log = recovery.open_log("log", PyDisk(target), segment_bytes=SEGMENT)
        log.compress = True
        whole = fill(log, 700)
        log.fsync()
        if erase:
            while maintenance.maintain(log):
                pass
        target.steps = steps
        done = False
        try:
            if erase:
                done = maintenance.delete(log, 5, erase=True)
            else:
                done = maintenance.maintain(log)
        except OSError:
            pass
        target.steps = None
        target.crash(random.Random(seed + steps))
        after = recovery.open_log("log", PyDisk(target), segment_bytes=SEGMENT)
        found = everything(after)
        if erase and 5 not in found:
            whole.pop(5)
        assert found == whole, (steps, done)
        assert not (erase and done and 5 in found)
        assert after.last_seq == 700
        assert after.lost == []


def test_a_compressed_last_segment_without_anything_in_it_gives_up_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    head = b"PNSTKSEG" + struct.pack("<IIQI", 2, 7, 18, 0)
    bad = head + struct.pack("<I", crc32c_of(head)) + b"\xff" * 90
    (folder / f"{18:020}.seg").write_bytes(bad)
    log = recovery.open_log(str(folder))
    assert log.add(1, "s", b"new") == 18
    log.fsync()
    maintenance.close(log)
    assert everything(recovery.open_log(str(folder)))[18].payload == b"new"
    assert (folder / f"{18:020}.seg.aside-1").read_bytes() == bad
