"""Opening damaged logs: torn ends, flipped bits, missing and foreign files, half-made segments."""

from __future__ import annotations

import errno
import itertools
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pelton.core.base.buffer import seed_hash
from pelton.core.base.disk import PyDisk
from pelton.core.log import maintenance, queries, recovery
from pelton.core.log.log import Log, StoredMessage
from pelton.core.log.recovery_writes import do_late
from pelton.core.log.segment_reader import segment_head
from pelton.testing.simulated_disk import SimDisk
from tests.core.damage import everything
from tests.core.streams import Site
from tests.ways import length

if TYPE_CHECKING:
    from pathlib import Path

SEGMENT = 4096
NUMBERS = itertools.count()


def open_log(folder: Path) -> Log:
    return recovery.open_log(str(folder), segment_bytes=SEGMENT)


def fill(folder: Path, count: int, removed: tuple[int, ...] = ()) -> dict[int, StoredMessage]:
    log = open_log(folder)
    for i in range(count):
        log.add(1000 + i, f"s.{i % 3}", b"%d:" % i + b"p" * (i * 31 % 150), b"H" * (i % 2 * 20))
    log.flush()
    for seq in removed:
        maintenance.delete(log, seq)
    log.flush()
    return everything(log)


def segments(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.suffix == ".seg")


def drop_indexes(folder: Path) -> None:
    for path in folder.glob("*.idx"):
        path.unlink()


def copy(source: Path, target: Path) -> None:
    target.mkdir()
    for path in source.iterdir():
        (target / path.name).write_bytes(path.read_bytes())


def record_ends(data: bytes) -> list[int]:
    ends = [32]
    while ends[-1] < len(data):
        ends.append(ends[-1] + int.from_bytes(data[ends[-1] : ends[-1] + 4], "little"))
    return ends


def test_torn_tail_at_every_byte(tmp_path: Path) -> None:
    whole = fill(tmp_path / "whole", 20)
    source = segments(tmp_path / "whole")[-1]
    data = source.read_bytes()
    ends = record_ends(data)
    assert ends[-1] == len(data)
    for cut in range(ends[-2], len(data)):
        folder = tmp_path / f"cut{cut}"
        folder.mkdir()
        (folder / source.name).write_bytes(data[:cut])
        log = open_log(folder)
        assert everything(log) == {seq: whole[seq] for seq in range(1, 20)}
        assert log.last_seq in (19, 20)
        assert log.lost == []
        kept = sorted(folder.glob("*.torn-*"))
        assert b"".join(p.read_bytes() for p in kept) == data[ends[-2] : cut]
        following = log.last_seq + 1
        assert log.add(5000, "s.0", b"after") == following
        log.flush()
        del log
        log = open_log(folder)
        assert log.lost == []
        assert set(everything(log)) == {*range(1, 20), following}


@pytest.mark.parametrize("length", [1, 7, 32, 500])
@pytest.mark.parametrize("byte", [b"\x00", b"\xff"])
def test_end_overwritten_with_garbage_is_kept_aside(
    tmp_path: Path, length: int, byte: bytes
) -> None:
    whole = fill(tmp_path / "log", 20)
    path = segments(tmp_path / "log")[-1]
    data = path.read_bytes()
    path.write_bytes(data + byte * length)
    for _ in range(2):
        log = open_log(tmp_path / "log")
        assert everything(log) == whole
        # what is more than zeros and long enough for a record may have been one, or as many as have room: none of their
        # sequences is given again, and one is told
        room = (length + 3) // 36 if byte != b"\x00" else 0
        assert log.last_seq == 20 + room
        assert sum(count for _, count, _ in log.lost) == min(room, 1)
        del log
    assert [p.read_bytes() for p in (tmp_path / "log").glob("*.torn-*")] == [byte * length]


@settings(
    max_examples=length(30, 150),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(where=st.floats(0, 0.999), bit=st.integers(0, 7), indexes=st.booleans(), reads=st.booleans())
def test_one_flipped_bit_loses_at_most_one_record(
    tmp_path: Path, where: float, bit: int, indexes: bool, reads: bool
) -> None:
    source = tmp_path / "source"
    if not source.exists():
        fill(source, 150, removed=(3, 4, 5, 30, 60, 61))
    folder = tmp_path / f"flip{next(NUMBERS)}"
    copy(source, folder)
    log = open_log(folder)
    whole = everything(log)
    last = log.last_seq
    del log
    if not indexes:
        drop_indexes(folder)
    sealed = segments(folder)[:-1]
    assert len(sealed) > 2
    path = sealed[int(where * len(sealed))]
    data = bytearray(path.read_bytes())
    at = int(where * len(sealed) * len(data)) % len(data)
    data[at] ^= 1 << bit
    path.write_bytes(data)
    before = path.read_bytes()
    log = open_log(folder)
    if reads:
        for seq in range(1, last + 1):
            log.get(seq)
    found = everything(log)
    missing = set(whole) - set(found)
    assert len(missing) <= 1
    assert all(found[seq] == whole[seq] for seq in found if seq in whole)
    assert set(found) <= set(whole)
    assert {seq for seq, count, _ in log.lost if count} == missing
    assert log.last_seq == last
    assert sum(queries.subjects(log).values()) == log.msgs
    assert path.read_bytes() == before
    for path in folder.iterdir():
        path.unlink()


def test_flipped_bit_in_a_removal_brings_back_only_what_it_named(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    whole = fill(folder, 60, removed=(2, 3))
    path = segments(folder)[-1]
    data = path.read_bytes()
    at = data.rindex((2).to_bytes(8, "little") + (2).to_bytes(8, "little"))
    path.write_bytes(data[:at] + b"\x01" + data[at + 1 :])
    drop_indexes(folder)
    log = open_log(folder)
    assert set(everything(log)) == set(whole) | {2, 3}
    # The record was the last one: it is kept aside like any damaged end.
    assert list(folder.glob("*.torn-*"))


@pytest.mark.parametrize("size", [0, 1, 31])
def test_segment_whose_making_was_cut_short(tmp_path: Path, size: int) -> None:
    folder = tmp_path / "log"
    whole = fill(folder, 60)
    (folder / f"{70:020d}.seg").write_bytes(b"PNSTKSEG"[:size].ljust(size, b"\0"))
    log = open_log(folder)
    assert everything(log) == whole
    assert log.last_seq == 69
    assert log.lost == []
    assert log.add(1, "a", b"") == 70
    log.flush()
    del log
    assert set(everything(open_log(folder))) == {*whole, 70}


@pytest.mark.parametrize("indexes", [True, False])
def test_what_the_head_of_a_segment_said_follows_from_its_records(
    tmp_path: Path, indexes: bool
) -> None:
    folder = tmp_path / "log"
    whole = fill(folder, 100)
    if not indexes:
        drop_indexes(folder)
    for path in segments(folder):
        path.write_bytes(b"\xaa" * 32 + path.read_bytes()[32:])
    for _ in range(2):
        log = open_log(folder)
        assert everything(log) == whole
        assert log.lost == []
        assert len([note for note in log.notes if "head of segment" in note]) == 4
        del log


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("written", [0, 8, 14, 31])
def test_head_that_did_not_reach_the_disk_as_a_whole_is_completed(
    tmp_path: Path, written: int, behind: bool
) -> None:
    """The records agree on it while all of them are sound; later one of them may be damaged."""
    folder = tmp_path / "log"
    whole = fill(folder, 2)
    (path,) = segments(folder)
    data = path.read_bytes()
    path.write_bytes(data[:written] + bytes(32 - written) + data[32:])
    log = open_log(folder)
    assert everything(log) == whole
    assert path.read_bytes() == data
    if behind:
        assert log.add(2000, "a", b"") == 3
        log.flush()
    del log
    damaged = bytearray(data)
    damaged[40] ^= 1
    path.write_bytes(damaged)
    for _ in range(2):
        log = open_log(folder)
        assert set(everything(log)) == ({2, 3} if behind else {2})
        assert [(low, n) for low, n, _ in log.lost] == [(1, 1)]
        del log
    assert path.read_bytes() == damaged


def test_head_with_other_damage_stays_as_it_is(tmp_path: Path) -> None:
    """Zeros were never written; other bytes are kept, whatever they are."""
    folder = tmp_path / "log"
    whole = fill(folder, 2)
    (path,) = segments(folder)
    data = bytes(8) + b"\xaa" * 4 + path.read_bytes()[12:]
    path.write_bytes(data)
    for _ in range(2):
        assert everything(open_log(folder)) == whole
        assert path.read_bytes() == data


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_head_is_completed_when_the_disk_takes_writes_again(error: int) -> None:
    target = SimDisk()
    log = recovery.open_log("log", PyDisk(target), segment_bytes=SEGMENT)
    for i in range(2):
        log.add(1, "a", b"%d" % i)
    log.fsync()
    del log
    file = target.names["log/00000000000000000001.seg"]
    data = bytes(file.data)
    file.data[8:32] = file.durable[8:32] = bytes(24)
    target.fail("write", error, "*1.seg", times=None)
    log = recovery.open_log("log", PyDisk(target), segment_bytes=SEGMENT)
    assert set(everything(log)) == {1, 2}
    assert bytes(file.data) != data
    target.heal()
    log.flush()
    while do_late(log):
        pass
    assert bytes(file.durable) == data
    assert [note for note in log.notes if "completed the head" in note]


@pytest.mark.parametrize("size", [0, 10, 32])
def test_what_a_segment_without_a_head_had_is_told_though_the_next_one_is_empty(
    tmp_path: Path, size: int
) -> None:
    folder = tmp_path / "log"
    fill(folder, 2)
    (path,) = segments(folder)
    data = bytearray(b"\xaa" * 32 + path.read_bytes()[32:])
    data[40] ^= 1  # now the records agree on no head
    path.write_bytes(data)
    (folder / f"{3:020d}.seg").write_bytes(segment_head(3, 7)[:size])
    for last in (2, 3):
        log = open_log(folder)
        assert set(everything(log)) == set(range(3, last + 1))
        assert sum(n for _, n, _ in log.lost) == 2, log.lost
        assert log.last_seq == last
        assert log.add(2000, "a", b"") == last + 1
        log.flush()
        del log
    assert path.read_bytes() == data


@pytest.mark.parametrize("size", [0, 10, 31, 32])
def test_what_an_index_file_knows_of_a_gap_is_told_at_each_opening(
    tmp_path: Path, size: int
) -> None:
    """A segment is gone, and the one behind it has no record."""
    folder = tmp_path / "log"
    whole = fill(folder, 100, removed=(97,))
    maintenance.close(open_log(folder))
    path = segments(folder)[-1]
    path.unlink()
    first = int(path.stem)
    (folder / f"{101:020d}.seg").write_bytes(segment_head(101, 7)[:size])
    gone = {seq for seq in whole if seq >= first}
    for _ in range(3):
        log = open_log(folder)
        assert everything(log) == {seq: m for seq, m in whole.items() if seq not in gone}
        told = {low + k for low, n, _ in log.lost for k in range(n)}
        assert told == gone
        del log


def test_head_of_a_segment_and_its_records_destroyed(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    whole = fill(folder, 100)
    drop_indexes(folder)
    paths = segments(folder)
    path = paths[1]
    first, following = int(path.stem), int(paths[2].stem)
    path.write_bytes(b"\xaa" * path.stat().st_size)
    for _ in range(2):
        log = open_log(folder)
        assert everything(log) == {
            seq: m for seq, m in whole.items() if not first <= seq < following
        }
        assert [(low, n) for low, n, _ in log.lost] == [(first, following - first)]
        del log
    assert path.exists()


def test_head_of_the_last_segment_destroyed_reuses_no_sequence(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    whole = fill(folder, 100)
    path = segments(folder)[-1]
    first = int(path.stem)
    data = bytearray(b"\xaa" * 32 + path.read_bytes()[32:])
    for number, start in enumerate(record_ends(bytes(data))[:-1]):
        data[start + 40] ^= 0x11 + number  # no two records agree on a salt
    path.write_bytes(data)
    log = open_log(folder)
    assert everything(log) == {seq: m for seq, m in whole.items() if seq < first}
    assert [(low, n) for low, n, _ in log.lost] == [(first, 101 - first)]
    assert log.last_seq == 100
    assert log.add(1, "a", b"") == 101


@pytest.mark.parametrize("length", [93, 94, 95, 96, 104, 128])
def test_records_that_a_disk_changed_alike_agree_on_no_salt(tmp_path: Path, length: int) -> None:
    # Without head and index file, and a bit is flipped after every 64 bytes: always at the same
    # place of a record, or at one that moves.
    folder = tmp_path / "log"
    log = open_log(folder)
    for _ in range(100):
        log.add(1, "a", b"x" * (length - 37))
    log.flush()
    whole = everything(log)
    del log
    path = segments(folder)[0]
    data = bytearray(b"\xaa" * 32 + path.read_bytes()[32:])
    starts = record_ends(bytes(data))[:-1]
    assert starts[1] - starts[0] == length
    hit = {seq for seq, start in enumerate(starts, 1) if start % 64 == 32}
    for seq in hit:
        data[starts[seq - 1] + 40] ^= 4
    path.write_bytes(data)
    drop_indexes(folder)
    for _ in range(2):
        log = open_log(folder)
        found = everything(log)
        lost = {seq for first, n, _ in log.lost for seq in range(first, first + n)}
        assert found.items() <= whole.items()
        assert lost == set(whole) - set(found)
        assert lost == (hit if length % 8 else set(range(1, len(starts) + 1)))
        del log


@pytest.mark.parametrize("before", [0, 30])
@pytest.mark.parametrize("damage", ["one bit", "the head"])
def test_head_of_an_empty_last_segment_damaged(tmp_path: Path, before: int, damage: str) -> None:
    """The segment that follows it does not get its file, which goes."""
    folder = tmp_path / "log"
    fill(folder, before)
    log = open_log(folder)
    maintenance.purge(log)
    log.flush()
    del log
    (path,) = segments(folder)
    data = bytearray(path.read_bytes())
    data[:32] = bytes([data[0] ^ 4]) + data[1:32] if damage == "one bit" else b"\xaa" * 32
    path.write_bytes(data)
    log = open_log(folder)
    assert not everything(log)
    seqs = [log.add(2000 + i, "a", b"%d" % i) for i in range(200)]
    assert seqs[0] > before
    log.flush()
    del log
    for _ in range(2):
        log = open_log(folder)
        assert list(everything(log)) == seqs
        if damage == "one bit":
            assert log.lost == []
        del log


def test_lost_is_told_at_each_opening(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    fill(folder, 100)
    path = segments(folder)[1]
    data = bytearray(path.read_bytes())
    data[32 + 60] ^= 1
    path.write_bytes(data)
    lost = int(path.stem)
    log = open_log(folder)
    assert log.get(lost) is None
    assert log.lost == [(lost, 1, "checksum mismatch")]
    maintenance.close(log)
    for _ in range(2):
        log = open_log(folder)
        assert log.lost == [(lost, 1, "checksum mismatch")]
        assert log.msgs == 99
        maintenance.close(log)


def test_removal_outlives_the_segment_that_tells_it(tmp_path: Path) -> None:
    # Old messages stay partly; their removals are told in a later segment, which then dies.
    folder = tmp_path / "log"
    log = open_log(folder)
    for i in range(60):
        log.add(i + 1, "old", b"x" * 100)
    removed = [seq for seq in range(2, 60) if seq % 3]
    for seq in removed:
        maintenance.delete(log, seq)
    log.flush()
    kept = set(everything(log))
    for round_ in range(5):
        teller = segments(folder)[-1]
        for _ in range(60):
            log.add(1, "new", b"y" * 100)
        log.flush()
        queries.purge_subjects(log, "new")
        log.flush()
        if round_:
            assert not teller.exists()
        del log
        drop_indexes(folder) if round_ % 2 else None
        log = open_log(folder)
        assert set(everything(log)) == kept
    assert log.last_seq == 360


@pytest.mark.parametrize("all_of_it", [True, False])
def test_removals_in_a_damaged_segment_outlive_the_one_that_tells_them(
    tmp_path: Path, all_of_it: bool
) -> None:
    # what is lost in it stays lost, and is told; what was removed stays removed
    folder = tmp_path / "log"
    fill(folder, 80)
    first, second = segments(folder)[:2]
    data = bytearray(first.read_bytes())
    data[32 + 60] ^= 1
    first.write_bytes(data)
    end = int(second.stem)
    removed = [1, *range(3, end if all_of_it else end - 1)]
    log = open_log(folder)
    for seq in removed:
        maintenance.delete(log, seq)
    log.flush()
    kept = set(range(1, 81)) - {2, *removed}
    for round_ in range(4):
        teller = segments(folder)[-1]
        for _ in range(60):
            log.add(1, "new", b"y" * 100)
        log.flush()
        queries.purge_subjects(log, "new")
        log.flush()
        if round_:
            assert not teller.exists()
        assert [(low, count) for low, count, _ in log.lost] == [(2, 1)]
        del log
        log = open_log(folder)
        assert set(everything(log)) == kept
        assert [(low, count) for low, count, _ in log.lost] == [(2, 1)]


def test_compaction_shrinks_and_survives(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    log = open_log(folder)
    for i in range(400):
        log.add(i + 1, f"s.{i % 10}", b"%d" % i + b"x" * 50)
    log.flush()
    for seq in range(1, 401):
        if seq % 10 != 3:
            maintenance.delete(log, seq)
    log.flush()
    whole = everything(log)
    size = sum(p.stat().st_size for p in segments(folder))
    rounds = 0
    while maintenance.maintain(log):
        rounds += 1
        assert everything(log) == whole
    assert rounds > 5
    assert sum(p.stat().st_size for p in segments(folder)) < size / 2
    assert log.deleted_count() == 400 - log.first_seq + 1 - log.msgs
    del log
    for indexes in (True, False):
        if not indexes:
            drop_indexes(folder)
        log = open_log(folder)
        assert everything(log) == whole
        assert log.lost == []
        assert log.last_seq == 400
        del log


def test_erased_bytes_are_gone_from_the_files(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    log = open_log(folder)
    for i in range(100):
        log.add(i + 1, "a", b"secret-%d-" % i + b"x" * 80, b"hidden-%d-" % i)
    log.flush()
    for seq in (1, 50, 100):
        assert maintenance.delete(log, seq, erase=True)
        assert log.get(seq) is None
    assert log.synced_seq == 100
    text = b"".join(p.read_bytes() for p in segments(folder))
    for seq in (1, 50, 100):
        assert b"secret-%d-" % (seq - 1) not in text
        assert b"hidden-%d-" % (seq - 1) not in text
    assert b"secret-2-" in text
    del log
    drop_indexes(folder)
    log = open_log(folder)
    assert set(everything(log)) == set(range(1, 101)) - {1, 50, 100}
    assert log.lost == []


def test_removal_after_sealing_with_damaged_entries_in_the_index_file(tmp_path: Path) -> None:
    # The index file's tables hold, its entries don't, and a removal is newer than both.
    folder = tmp_path / "log"
    log = open_log(folder)
    for _ in range(100):
        log.add(1, "a", b"x" * 60)
    log.flush()
    log.fsync()
    maintenance.delete(log, 3)
    log.flush()
    whole, size = everything(log), log.bytes
    del log
    path = folder / f"{1:020d}.idx"
    data = bytearray(path.read_bytes())
    data[112 + 5] ^= 1
    path.write_bytes(data)
    for _ in range(3):
        log = open_log(folder)
        assert (log.bytes, log.lost) == (size, [])
        assert everything(log) == whole
        del log


def test_record_images_in_payloads_never_become_records(tmp_path: Path) -> None:
    # A publisher sends bytes that look like records; with the hash seeded as a server does it,
    # damage around them must not bring them to life.
    folder = tmp_path / "log"
    fill(folder, 3)
    image = segments(folder)[0].read_bytes()[32:]
    other = tmp_path / "other"
    seed_hash(4711)
    log = open_log(other)
    log.add(1, "a", b"first")
    log.add(1, "a", image * 3)
    log.add(1, "a", b"last")
    log.flush()
    del log
    path = segments(other)[0]
    data = bytearray(path.read_bytes())
    data[record_ends(bytes(data))[1] + 20] ^= 0x10
    path.write_bytes(data)
    log = open_log(other)
    assert {m.payload for m in everything(log).values()} <= {b"first", b"last"}


def test_foreign_files_are_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    whole = fill(folder, 60)
    for name in (
        "readme.txt",
        "12.seg",
        "x" * 20 + ".seg",
        f"{5:020d}.seg.tmp",
        "00000000000000000099.idx",
    ):
        (folder / name).write_bytes(b"something")
    log = open_log(folder)
    assert everything(log) == whole
    assert (folder / "readme.txt").read_bytes() == b"something"


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        recovery.open_log(str(tmp_path / "none"), create=False)
    assert not (tmp_path / "none").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=re.escape("file")):
        recovery.open_log(str(tmp_path / "file" / "log"))


@settings(
    max_examples=length(25, 60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(junk=st.binary(max_size=400), at=st.floats(0, 1), data=st.data())
def test_any_bytes_anywhere_never_crash(
    tmp_path: Path, junk: bytes, at: float, data: st.DataObject
) -> None:
    source = tmp_path / "source"
    if not source.exists():
        fill(source, 100, removed=(7, 8))
        maintenance.close(open_log(source))  # with all its index files
    folder = tmp_path / f"junk{next(NUMBERS)}"
    copy(source, folder)
    path = data.draw(st.sampled_from(sorted(p.name for p in folder.iterdir())))
    whole = bytearray((folder / path).read_bytes())
    start = int(at * len(whole))
    whole[start : start + data.draw(st.integers(0, len(junk)))] = junk
    (folder / path).write_bytes(whole)
    log = open_log(folder)
    found = everything(log)
    original = everything(open_log(source))
    assert all(original[seq] == m for seq, m in found.items() if seq in original)
    assert log.add(1, "a", b"") > 0
    maintenance.close(log)
    maintenance.close(open_log(folder))
    for p in folder.iterdir():
        p.unlink()


class Reads(SimDisk):
    """Counts what is read."""

    count = 0

    def read_at(self, handle: int, n: int, offset: int) -> bytes:
        self.count += 1
        return super().read_at(handle, n, offset)


def test_a_segment_of_removals_that_are_needed_is_not_compacted_again_and_again() -> None:
    disk = Reads()
    log = recovery.open_log("log", PyDisk(disk), segment_bytes=4096)
    for number in range(1200):
        log.add(number + 1, "a", b"x" * 20)
    log.flush()
    # a segment of little else than removals, each of its own, of messages of older segments
    for seq in range(1, 1100, 4):
        maintenance.delete(log, seq, False)
        if seq % 200 == 1:
            log.flush()
    for number in range(1200, 1400):
        log.add(number + 1, "a", b"x" * 20)
    log.flush()
    while maintenance.maintain(log):
        log.flush()
    before = disk.count
    assert not maintenance.maintain(log)
    assert disk.count == before
    maintenance.purge(log, 1100)  # now the removals speak of nothing that is there
    log.flush()
    segments = len([name for name in disk.list_dir("log") if name.endswith(".seg")])
    size = disk.used()
    while maintenance.maintain(log):
        log.flush()
    assert segments
    assert disk.used() < size
    assert log.msgs == 1400 - 1099 + len([seq for seq in range(1, 1100, 4) if seq >= 1100])


def test_a_segment_that_an_opening_retired_stays_until_what_it_told_is_on_the_disk() -> None:
    disk = SimDisk()
    log = recovery.open_log("log", PyDisk(disk), segment_bytes=4096)
    for number in range(200):
        log.add(number + 1, "s.a", b"x" * 100)
    log.fsync()
    for seq in range(2, 150):  # told by the last segments; the first one stays
        maintenance.delete(log, seq)
    log.fsync()
    for number in range(60):
        log.add(number + 1, "s.b", b"x" * 100)
    log.fsync()
    for seq in range(150, 261):  # now those that told of it are empty, but for a process that ended
        maintenance.delete(log, seq)
    log.flush()
    del log
    disk.kill()
    before = set(disk.list_dir("log"))
    site = Site(log=recovery.open_log("log", PyDisk(disk, background=True), segment_bytes=4096))
    site.reactor.on_sync = lambda sync: None
    site.stream.publish("s.c", b"")
    site.reactor.turn()  # written; the sync has not ended
    assert before <= set(disk.list_dir("log"))
    disk.crash()
    log = recovery.open_log("log", PyDisk(disk), segment_bytes=4096)
    assert [seq for seq in range(1, 262) if log.get(seq)] == [1]
    assert log.lost == []


@pytest.mark.parametrize("first_bit", range(8))
def test_a_flipped_bit_behind_zeros_takes_no_removal_back(tmp_path: Path, first_bit: int) -> None:
    """A power cut left zeros where message 6 was; the removal behind them has its flipped bit later."""
    log = open_log(tmp_path)
    for seq in range(1, 7):
        log.add(seq, "s", b"message %d" % seq)
    log.flush()
    maintenance.delete(log, 2)
    log.flush()
    log.add(7, "s", b"message 7")
    log.flush()
    del log  # its process ends
    (path,) = segments(tmp_path)
    data = bytearray(path.read_bytes())
    ends = record_ends(bytes(data))
    hole, begin, end = ends[5:8]
    data[hole:begin] = bytes(begin - hole)
    for at in range(begin, end):
        hurt = bytearray(data)
        hurt[at] ^= 1 << first_bit
        folder = tmp_path / f"at{at}"
        folder.mkdir()
        (folder / path.name).write_bytes(hurt)
        log = open_log(folder)
        assert everything(log).keys() == {1, 3, 4, 5, 7}, at
        assert [(first, count) for first, count, _ in log.lost] == [(6, 1)], at
        maintenance.close(log)


def test_a_process_that_ended_while_it_replaced_the_only_segment(tmp_path: Path) -> None:
    """It had renamed the file, whose head is damaged and which has no messages, and made no other."""
    (tmp_path / "00000000000000000014.seg.aside-1").write_bytes(b"")
    for expected in (13, 14):
        log = open_log(tmp_path)
        assert log.last_seq == expected
        assert log.lost == []
        assert log.add(1, "s", b"message") == expected + 1
        log.flush()
        maintenance.close(log)
