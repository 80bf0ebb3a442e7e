"""Every kind of damage to every file of small logs: what opens, what is lost, what is told.

All of it (some 130,000 damages, four minutes) with PELTON_FULL=1; else every so many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pelton.core.base.disk import PyDisk
from pelton.core.log import maintenance
from pelton.core.log.log import Log
from pelton.core.log.recovery import open_log
from tests.core import damage
from tests.core.damage import Damage, Shelf, Store
from tests.ways import length

STRIDE = length(101, 1)
STORES: dict[str, Store] = {}


def store_of(kind: str) -> Store:
    if kind not in STORES:
        STORES[kind] = damage.build(kind)
    return STORES[kind]


def check(store: Store, damages: Iterator[Damage]) -> None:
    wrong = {}
    tried = 0
    for each in damages:
        tried += 1
        if found := damage.judge(store, each):
            wrong[f"{each.path}: {each.what}"] = found
    assert tried
    assert not wrong, dict(list(wrong.items())[:5])


@pytest.mark.parametrize("make", [damage.flips, damage.cuts])
@pytest.mark.parametrize("kind", damage.KINDS)
def test_flips_and_cuts(kind: str, make: Callable[[Store, int], Iterator[Damage]]) -> None:
    check(store_of(kind), make(store_of(kind), STRIDE))


@pytest.mark.parametrize("kind", damage.KINDS)
def test_zeros(kind: str) -> None:
    check(store_of(kind), damage.holes(store_of(kind), length(512, 64)))


@pytest.mark.parametrize("make", [damage.losses, damage.returns, damage.foreign])
@pytest.mark.parametrize("kind", damage.KINDS)
def test_files_that_are_gone_of_old_or_foreign(
    kind: str, make: Callable[[Store], Iterator[Damage]]
) -> None:
    check(store_of(kind), make(store_of(kind)))


def test_what_a_single_bit_costs_at_most() -> None:
    # a message: itself; anything else: nothing
    store = store_of("bare")
    for each in damage.flips(store, 97):
        shelf = Shelf(each.done_to(store.files))
        log = damage.open_log(shelf)
        missing = set(store.whole) - set(damage.everything(log))
        assert len(missing) <= 1
        assert missing == {seq for seq, count, _ in log.lost if count}


def test_a_removal_counts_though_a_bit_of_it_is_flipped() -> None:
    shelf = Shelf()
    log = damage.open_log(shelf)
    for n in range(20):
        log.add(n + 1, "a", b"%d" % n)
    log.flush()
    for seq in (5, 7, 13):
        maintenance.delete(log, seq)
    log.flush()
    files = shelf.taken()
    (path,) = files
    start = next(p.start for p in damage.pieces(files[path]) if p.kind == damage.REMOVE)
    for at in range(start, len(files[path])):
        for bit in range(8):
            data = bytearray(files[path])
            data[at] ^= 1 << bit
            log = damage.open_log(Shelf({path: bytes(data)}))
            assert set(damage.everything(log)) == set(range(1, 21)) - {5, 7, 13}
            assert log.lost == []
            assert log.last_seq == 20
            assert log.notes


def test_a_removal_counts_though_a_torn_record_follows_it() -> None:
    # a bit that flips in the last whole record, and a write behind it that was cut short
    shelf = Shelf()
    log = damage.open_log(shelf)
    for n in range(20):
        log.add(n + 1, "a", b"message %d" % n)
    log.flush()
    for seq in (5, 7, 13):
        maintenance.delete(log, seq)
    log.flush()
    log.add(21, "a", b"next")
    log.flush()
    files = shelf.taken()
    (path,) = files
    found = damage.pieces(files[path])
    last = next(n for n, piece in enumerate(found) if piece.kind == damage.REMOVE)
    start, end = found[last].start, found[last + 1].start
    for cut in (end + 10, end + 30):
        for at in range(start, end):
            for bit in range(8):
                data = bytearray(files[path][:cut])
                data[at] ^= 1 << bit
                log = damage.open_log(Shelf({path: bytes(data)}))
                assert set(damage.everything(log)) == set(range(1, 21)) - {5, 7, 13}
                assert log.lost == []
                assert log.last_seq in (20, 21)


def test_a_removal_counts_though_the_message_before_it_is_damaged_too() -> None:
    # a write that lost its end in a power cut, and a bit that flips later in the record behind it
    shelf = Shelf()
    log = damage.open_log(shelf)
    for n in range(20):
        log.add(n + 1, "a", b"message %d" % n)
    log.flush()
    for seq in (5, 7, 13):
        maintenance.delete(log, seq)
    log.flush()
    log.add(21, "a", b"next")
    log.flush()
    files = shelf.taken()
    (path,) = files
    found = damage.pieces(files[path])
    first = next(n for n, piece in enumerate(found) if piece.kind == damage.REMOVE)
    start, end = found[first].start, found[first + 1].start
    torn = bytearray(files[path])
    torn[start - 12 : start] = bytes(12)
    for at in range(start, end):
        for bit in range(8):
            data = bytearray(torn)
            data[at] ^= 1 << bit
            log = damage.open_log(Shelf({path: bytes(data)}))
            assert set(damage.everything(log)) == set(range(1, 22)) - {5, 7, 13, 20}
            assert [(seq, count) for seq, count, _ in log.lost] == [(20, 1)]
            assert log.last_seq == 21


def test_good_records_behind_a_hole_stay() -> None:
    # what the disk did not write before it lost power: zeros, and good records behind them
    shelf = Shelf()
    log = damage.open_log(shelf)
    for n in range(30):
        log.add(n + 1, "a", b"%d" % n)
    log.flush()
    ((path, whole),) = shelf.taken().items()
    found = damage.pieces(whole)
    low, high = found[11].start, found[15].start  # messages 11 to 14
    zeros = whole[:low] + bytes(high - low) + whole[high:]
    for _ in range(3):
        shelf = Shelf({path: zeros})
        log = damage.open_log(shelf)
        assert set(damage.everything(log)) == set(range(1, 31)) - {11, 12, 13, 14}
        assert [(first, count) for first, count, _ in log.lost] == [(11, 4)]
        assert log.add(99, "a", b"next") == 31
        log.flush()
        zeros_now = shelf.taken()[path]
        assert zeros_now.startswith(zeros)


def test_damage_met_while_reading_is_told_at_each_opening() -> None:
    shelf = Shelf()
    log = damage.open_log(shelf)
    for n in range(150):
        log.add(n + 1, "a", b"x" * 60)
    log.flush()
    first = min(name for name in shelf.files if name.endswith(".seg"))
    for close in (False, True, True):
        if not close:
            shelf.files[first][200] ^= 3  # under a running server
        assert log.get(2) is None
        assert [(seq, n) for seq, n, _ in log.lost] == [(2, 1)]
        maintenance.close(log)
        log = damage.open_log(shelf)
        assert [(seq, n) for seq, n, _ in log.lost] == [(2, 1)]
        assert len(damage.everything(log)) == 149
    # it goes on being told until the message would be gone anyway
    maintenance.purge(log, below=5)
    log.flush()
    assert log.lost == []
    maintenance.close(log)
    assert damage.open_log(shelf).lost == []


def test_the_last_message_of_a_damaged_segment_may_go_its_bytes_stay() -> None:
    shelf = Shelf()
    log = damage.open_log(shelf)
    for n in range(60):
        log.add(n + 1, "a", b"x" * 60)
    log.flush()
    first = min(name for name in shelf.files if name.endswith(".seg"))
    shelf.files[first][200] ^= 3
    assert log.get(2) is None
    for seq in range(1, 61):
        if seq != 2:
            maintenance.delete(log, seq)
    log.flush()
    maintenance.close(log)
    assert first in shelf.files
    log = damage.open_log(shelf)
    assert [(seq, n) for seq, n, _ in log.lost] == [(2, 1)]
    assert first in shelf.files
    maintenance.purge(log)
    log.flush()
    maintenance.close(log)
    maintenance.close(damage.open_log(shelf))
    assert first not in shelf.files


@pytest.mark.parametrize("closed", [True, False])
def test_opening_costs_a_constant_number_of_calls_for_each_segment(closed: bool) -> None:
    def cost(segments: int) -> tuple[dict[str, int], int]:
        shelf = Shelf()
        log = open_log("log", PyDisk(shelf), segment_bytes=16384)
        while len([name for name in shelf.files if name.endswith(".seg")]) < segments:
            log.add(1, f"s.{log.last_seq % 7}", b"x" * 100)
        log.flush()
        log.fsync()
        if closed:
            maintenance.close(log)
        held = sum(len(data) for name, data in shelf.files.items() if name.endswith(".idx"))
        shelf.calls.clear()
        shelf.bytes_read = 0
        opened = open_log("log", PyDisk(shelf), segment_bytes=16384)
        assert opened.msgs == log.msgs
        # heads and tables of the index files, the head of each segment, the last one as a whole
        assert shelf.bytes_read <= held + 32 * segments + 16384 + 4096
        return shelf.calls, shelf.bytes_read

    few, few_bytes = cost(50)
    many, many_bytes = cost(200)
    for verb, count in many.items():
        assert count <= 4 * 150 + few.get(verb, 0), verb
    assert sum(many.values()) <= 200 * 7 + 30
    # without the entries of the messages, which are read when they are asked for
    assert many_bytes - few_bytes <= 150 * 500


def test_what_was_removed_above_a_loss_stays_removed_when_its_segments_are_gone(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "log"

    def fill(log: Log) -> None:
        first = log.segments.items[-1].first
        while log.segments.items[-1].first == first:
            log.add(1, "s", b"x" * 700)
        log.flush()

    log = open_log(str(folder), segment_bytes=4096)
    fill(log)
    log.fsync()
    del log
    path = folder / f"{1:020}.seg"
    path.write_bytes(path.read_bytes()[:10])
    path.with_suffix(".idx").unlink(missing_ok=True)
    log = open_log(str(folder), segment_bytes=4096)
    lost = [(first, count) for first, count, _ in log.lost]
    assert lost
    for _ in range(4):
        fill(log)
        maintenance.delete(log, log.last_seq - 1)
        for seq in range(log.first_seq, log.last_seq):
            maintenance.delete(log, seq)
        log.fsync()
        log = open_log(str(folder), segment_bytes=4096)
        assert [(first, count) for first, count, _ in log.lost] == lost


def fill(log: Log) -> None:
    """Messages until a segment is full."""
    first = log.segments.items[-1].first
    while log.segments.items[-1].first == first:
        log.add(1, "s", b"x" * 700)
    log.flush()


def drop_all_but(log: Log, kept: set[int]) -> None:
    for seq in range(1, log.last_seq + 1):
        if seq not in kept:
            maintenance.delete(log, seq)
    log.fsync()


def test_a_gap_behind_a_compacted_segment_stays_explained() -> None:
    # 1 is compacted after segments behind it went; then the one goes that said that they did
    shelf = Shelf()
    log = damage.open_log(shelf)
    for _ in range(3):
        fill(log)
    told_in = log.segments.items[-1].first
    drop_all_but(log, {1, log.last_seq})
    fill(log)
    while maintenance.maintain(log):
        pass
    assert f"log/{6:020}.seg" not in shelf.files
    fill(log)
    drop_all_but(log, {1, log.last_seq})
    log.flush()
    assert f"log/{told_in:020}.seg" not in shelf.files
    log = damage.open_log(shelf)
    assert log.lost == []
    assert len(damage.everything(log)) == 2


def test_a_gap_behind_a_segment_that_holds_only_damage_stays_explained() -> None:
    shelf = Shelf()
    log = damage.open_log(shelf)
    for _ in range(3):
        fill(log)
    hurt = log.segments.items[2].first
    lost = log.segments.items[3].first - hurt
    log.fsync()
    del shelf.files[f"log/{hurt:020}.idx"]
    shelf.files[f"log/{hurt:020}.seg"][:] = b""
    log = damage.open_log(shelf)
    assert [(first, count) for first, count, _ in log.lost] == [(hurt, lost)]
    for _ in range(5):
        fill(log)
        drop_all_but(log, {1, log.last_seq})
        fill(log)
        log.fsync()
        log = damage.open_log(shelf)
        assert [(first, count) for first, count, _ in log.lost] == [(hurt, lost)]


@pytest.mark.parametrize("at", [0, 4, 8, 10, 16, 24])
@pytest.mark.parametrize("size", [2, 4, 8])
def test_the_sequences_of_a_damaged_end_are_not_given_again(
    tmp_path: Path, at: int, size: int
) -> None:
    log = open_log(str(tmp_path / "log"))
    for n in range(20):
        log.add(n + 1, "s", b"%d" % n)
    log.flush()
    del log
    path = tmp_path / "log" / f"{1:020}.seg"
    data = bytearray(path.read_bytes())
    starts = [k - 10 for k in range(32, len(data)) if data[k : k + 2] == b"\x5e\xa7"]
    for start in starts[-2:]:
        for k in range(start + at, start + at + size):
            data[k] ^= 0x99
    path.write_bytes(data)
    for _ in range(2):
        log = open_log(str(tmp_path / "log"))
        assert set(damage.everything(log)) == set(range(1, 19))
        if at == 0:  # a length beyond the end: like a record that never reached the disk whole
            assert log.last_seq in (19, 20)
            assert all(first >= 19 for first, _, _ in log.lost)
        else:  # of heads without a mark one is told
            assert log.last_seq == 20
            told = 1 if 10 - size < at < 12 else 2
            assert [(first, count) for first, count, _ in log.lost] == [(19, told)]
        del log


def test_an_erased_message_stays_away_when_the_record_of_its_removal_is_gone(
    tmp_path: Path,
) -> None:
    """The index file is older than the removal, and its segment has the message as zeros."""
    log = open_log(str(tmp_path), segment_bytes=4096)
    for n in range(60):
        log.add(n + 1, "a", b"message %d " % n + b"x" * 100)
    maintenance.close(log)
    log = open_log(str(tmp_path), segment_bytes=4096)
    assert maintenance.delete(log, 5, True)
    del log  # as when the process is killed
    newest = max(tmp_path.glob("*.seg"))
    end = newest.read_bytes().rindex(b"x" * 100) + 104
    newest.write_bytes(newest.read_bytes()[:end])
    for _ in range(2):
        log = open_log(str(tmp_path), segment_bytes=4096)
        assert set(damage.everything(log)) == set(range(1, 61)) - {5}
        assert log.lost == []
        assert log.msgs == 59
        log.fsync()
        del log
