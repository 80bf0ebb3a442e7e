"""An index file that turns out bad when it is needed, beside a segment that is damaged, too: each
message is lost once.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pelton.core.base.disk import PyDisk
from pelton.core.log import maintenance, queries
from pelton.core.log.log import Log
from pelton.core.log.recovery import open_log
from pelton.testing.simulated_disk import SimDisk
from tests.fuzz import seals

Question = Callable[[Log], object]


def damaged() -> Log:
    """Messages 1 to 5 in a sealed segment; the record of 3 is damaged, and so are the entries of the index file."""
    target = SimDisk()
    log = open_log("log", PyDisk(target), segment_bytes=4096)
    for seq in range(1, 6):
        log.add(seq, "s.a" if seq == 3 else "s.b", b"m" * 800)
    log.add(6, "s.b", b"n" * 800)
    log.flush()
    maintenance.close(log)
    first = "log/00000000000000000001"
    target.names[first + ".seg"].data[32 + 2 * 839 + 100] ^= 1
    target.names[first + ".idx"].data[112 + 12] ^= 1  # the second entry
    log = open_log("log", PyDisk(target), segment_bytes=4096)
    assert log.msgs == 6
    return log


@pytest.mark.parametrize(
    "ask",
    [
        lambda log: log.get(3),
        lambda log: log.size_of(3),
        lambda log: queries.next_of(log, "s.a", 1),
        lambda log: queries.next_seq(log, "s.*", 3),
        lambda log: maintenance.delete(log, 3),
        lambda log: maintenance.delete(log, 3, erase=True),
        lambda log: queries.count_from(log, 2, "s.a"),
        lambda log: maintenance.purge(log, 4),
    ],
)
def test_a_damaged_message_behind_a_bad_index_is_lost_once(ask: Question) -> None:
    log = damaged()
    ask(log)
    log.get(3)
    gone = 3 if log.first_seq == 4 else 1
    assert log.lost == [(3, 1, "checksum mismatch")]
    assert log.msgs == 6 - gone
    assert sum(queries.subjects(log).values()) == log.msgs
    left = [seq for seq in range(1, 7) if log.get(seq) is not None]
    assert len(left) == log.msgs
    assert log.bytes == sum(log.size_of(seq) for seq in left)


def test_the_question_that_finds_it_is_answered_without_it() -> None:
    assert damaged().get(3) is None
    assert damaged().size_of(3) == 0
    assert queries.next_of(damaged(), "s.a", 1) is None
    assert maintenance.delete(damaged(), 3) is False
    assert maintenance.delete(damaged(), 3, erase=True) is False


def test_what_is_found_while_the_log_is_opened_is_counted_once() -> None:
    """A removal that is newer than the index makes the opening read the entries, which are bad."""
    target = SimDisk()
    log = open_log("log", PyDisk(target), segment_bytes=4096)
    for seq in range(1, 12):
        log.add(seq, "s.a" if seq == 3 else "s.b", b"m" * 800)
    log.flush()
    maintenance.close(log)
    log = open_log("log", PyDisk(target), segment_bytes=4096)
    maintenance.delete(log, 2)
    log.flush()
    first = "log/00000000000000000001"
    target.names[first + ".seg"].data[32 + 2 * 839 + 100] ^= 1
    target.names[first + ".idx"].data[112 + 12] ^= 1
    log = open_log("log", PyDisk(target), segment_bytes=4096)
    left = [seq for seq in range(1, 12) if log.get(seq) is not None]
    assert left == [1, *range(4, 12)]
    assert (log.msgs, sum(queries.subjects(log).values())) == (9, 9)
    assert log.bytes == sum(log.size_of(seq) for seq in left)
    assert log.removed == 0


@pytest.mark.parametrize("field", [0, 4, 8])
def test_an_index_whose_numbers_do_not_fit_its_segment_is_not_believed(field: int) -> None:
    """Its checksums are right; what it says of a subject lies outside: a walk to there would not end."""
    target = SimDisk()
    log = open_log("log", PyDisk(target), segment_bytes=4096)
    for seq in range(1, 9):
        log.add(seq, f"s.{seq % 3}", b"m" * 20)
    log.flush()
    maintenance.close(log)
    name = "log/00000000000000000001.idx"
    content = target.names[name].data
    row = 112 + 8 * 12 + 16
    content[row + field : row + field + 4] = (257).to_bytes(4, "little")
    content[:] = seals.sealed(name, bytes(content))
    log = open_log("log", PyDisk(target), segment_bytes=4096)
    for subject, first, last in (("s.0", 3, 6), ("s.1", 1, 7), ("s.2", 2, 8)):
        assert queries.subject_state(log, subject) == ((last - first) // 3 + 1, first, last)
        found = queries.last_of(log, subject)
        assert found is not None
        assert found.seq == last


def test_two_segments_that_turn_out_damaged_in_one_question_are_counted_once() -> None:
    target = SimDisk()
    log = open_log("log", PyDisk(target), segment_bytes=4096)
    for seq in range(1, 16):
        log.add(seq, "s.b", b"m" * 800)
    log.flush()
    maintenance.close(log)
    sealed = sorted(name[:-4] for name in target.names if name.endswith(".idx"))[:-1]
    assert len(sealed) > 1
    for first in sealed:
        target.names[first + ".seg"].data[32 + 2 * 839 + 100] ^= 1
        target.names[first + ".idx"].data[112 + 12] ^= 1
    log = open_log("log", PyDisk(target), segment_bytes=4096)
    left = [seq for seq in range(1, 16) if log.get(seq) is not None]
    assert len(left) == 15 - len(sealed)
    assert log.msgs == len(left)
    assert queries.subjects(log) == {"s.b": len(left)}
    assert log.bytes == sum(log.size_of(seq) for seq in left)


def test_a_removal_that_only_a_bad_index_knows_stays() -> None:
    """The record of the removal is in a segment whose end is lost; the entries of the index file are damaged."""
    target = SimDisk()
    log = open_log("log", PyDisk(target), segment_bytes=4096)
    for seq in range(1, 9):
        log.add(seq, "s", b"m" * 800)
    log.flush()
    maintenance.delete(log, 1)
    maintenance.delete(log, 2)
    maintenance.close(log)
    first, second = sorted(name for name in target.names if name.endswith(".seg"))
    del target.names[second].data[40:]
    target.unlink(second.replace(".seg", ".idx"))
    target.names[first.replace(".seg", ".idx")].data[112 + 12] ^= 1
    target.names[first].data[32 + 3 * 837 + 100] ^= 1
    for _ in range(3):
        log = open_log("log", PyDisk(target), segment_bytes=4096)
        assert [seq for seq in range(1, 9) if log.get(seq) is not None] == [3]
        assert 4 in {at + k for at, count, _ in log.lost for k in range(count)}
        assert log.msgs == 1
        maintenance.close(log)


def test_what_a_bad_index_knows_of_damaged_records_of_removed_messages_stays_known() -> None:
    """Such a message is not told as lost."""
    target = SimDisk()
    log = open_log("log", PyDisk(target), segment_bytes=4096)
    for seq in range(1, 9):
        log.add(seq, "s", b"m" * 800)
    log.flush()
    maintenance.delete(log, 2)
    maintenance.close(log)
    first, second = sorted(name for name in target.names if name.endswith(".seg"))
    del target.names[second].data[40:]
    target.unlink(second.replace(".seg", ".idx"))
    target.names[first.replace(".seg", ".idx")].data[112 + 12] ^= 1
    for seq in (2, 4):
        target.names[first].data[32 + (seq - 1) * 837 + 100] ^= 1
    for _ in range(3):
        log = open_log("log", PyDisk(target), segment_bytes=4096)
        assert [seq for seq in range(1, 9) if log.get(seq) is not None] == [1, 3]
        told = {at + k for at, count, _ in log.lost for k in range(count)}
        assert 4 in told
        assert 2 not in told
        maintenance.close(log)


@pytest.mark.parametrize("size", [80, 800])
def test_an_index_with_another_name_than_the_records_have_does_no_harm(size: int) -> None:
    """Its checksums are right, but for those of its entries: they are made again, with names that it does not know."""
    target = SimDisk()
    log = open_log("log", PyDisk(target), segment_bytes=4096)
    for seq in range(1, 6):
        log.add(seq, "s.a" if seq == 3 else "s.b", b"m" * size)
    log.flush()
    maintenance.close(log)
    path = "log/00000000000000000001.idx"
    index = target.names[path].data
    at = index.index(b"s.a")
    index[at : at + 3] = b"s.x"
    index[:] = seals.sealed(path, bytes(index))
    index[112 + 12] ^= 1
    log = open_log("log", PyDisk(target), segment_bytes=4096)
    assert {log.get(seq).subject for seq in range(1, 6)} == {"s.a", "s.b"}
    assert maintenance.delete(log, 1)
    assert maintenance.delete(log, 2)
    log.add(6, "s.c", b"m" * 3000)
    log.flush()
    log.fsync()
    while maintenance.maintain(log):
        pass
    maintenance.close(log)
    log = open_log("log", PyDisk(target), segment_bytes=4096)
    assert queries.subjects(log) == {"s.a": 1, "s.b": 2, "s.c": 1}
    assert queries.next_of(log, "s.a", 1).seq == 3


LAST_EVER = 2**63 - 1


def near_the_end_of_all_sequences() -> tuple[SimDisk, str]:
    """A log with three messages, and its newest segment."""
    target = SimDisk()
    log = open_log("log", PyDisk(target), segment_bytes=4096)
    log.skip(LAST_EVER - 10)
    for _ in range(3):
        log.add(1, "s", b"m")
    log.flush()
    maintenance.close(log)
    return target, max(name for name in target.names if name.endswith(".seg"))[:-4]


def test_a_record_of_a_sequence_that_cannot_be_is_damage() -> None:
    target, path = near_the_end_of_all_sequences()
    target.unlink(path + ".idx")
    content = target.names[path + ".seg"].data
    at = 32 + 2 * 38 + 16
    content[at : at + 8] = (LAST_EVER + 1).to_bytes(8, "little")
    content[:] = seals.sealed(path + ".seg", bytes(content))
    for _ in range(2):
        log = open_log("log", PyDisk(target), segment_bytes=4096)
        assert log.last_seq == LAST_EVER - 8
        assert [seq for seq, count, _ in log.lost] == [LAST_EVER - 8]
        assert log.msgs == 2


@pytest.mark.parametrize(("at", "size", "value"), [(48, 8, LAST_EVER + 1), (32, 4, 12)])
def test_an_index_of_sequences_that_cannot_be_is_not_believed(
    at: int, size: int, value: int
) -> None:
    """Behind right checksums."""
    target, path = near_the_end_of_all_sequences()
    content = target.names[path + ".idx"].data
    content[at : at + size] = value.to_bytes(size, "little")
    if at == 32:
        content[112:112] = bytes(12 * (value - 3))
    content[:] = seals.sealed(path + ".idx", bytes(content))
    log = open_log("log", PyDisk(target), segment_bytes=4096)
    assert (log.msgs, log.last_seq, log.lost) == (3, LAST_EVER - 8, [])
