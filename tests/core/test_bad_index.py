"""An index file that turns out bad when it is needed, beside a segment that is damaged, too: each
message is lost once.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.core.disk import PyDisk
from penstock.core.log import Log
from tests.fuzz import seals
from tests.simulation.disk import SimDisk

Question = Callable[[Log], object]


def damaged() -> Log:
    """Messages 1 to 5 in a sealed segment; the record of 3 is damaged, and so are the entries of the index file."""
    target = SimDisk()
    log = Log("log", PyDisk(target), segment_bytes=4096)
    for seq in range(1, 6):
        log.add(seq, "s.a" if seq == 3 else "s.b", b"m" * 800)
    log.add(6, "s.b", b"n" * 800)
    log.flush()
    log.close()
    first = "log/00000000000000000001"
    target.names[first + ".seg"].data[32 + 2 * 839 + 100] ^= 1
    target.names[first + ".idx"].data[112 + 12] ^= 1  # the second entry
    log = Log("log", PyDisk(target), segment_bytes=4096)
    assert log.msgs == 6
    return log


@pytest.mark.parametrize(
    "ask",
    [
        lambda log: log.get(3),
        lambda log: log.size_of(3),
        lambda log: log.next_of("s.a", 1),
        lambda log: log.next_seq("s.*", 3),
        lambda log: log.delete(3),
        lambda log: log.delete(3, erase=True),
        lambda log: log.count_from(2, "s.a"),
        lambda log: log.purge(4),
    ],
)
def test_a_damaged_message_behind_a_bad_index_is_lost_once(ask: Question) -> None:
    log = damaged()
    ask(log)
    log.get(3)
    gone = 3 if log.first_seq == 4 else 1
    assert log.lost == [(3, 1, "checksum")]
    assert log.msgs == 6 - gone
    assert sum(log.subjects().values()) == log.msgs
    left = [seq for seq in range(1, 7) if log.get(seq) is not None]
    assert len(left) == log.msgs
    assert log.bytes == sum(log.size_of(seq) for seq in left)


def test_the_question_that_finds_it_is_answered_without_it() -> None:
    assert damaged().get(3) is None
    assert damaged().size_of(3) == 0
    assert damaged().next_of("s.a", 1) is None
    assert damaged().delete(3) is False
    assert damaged().delete(3, erase=True) is False


def test_what_is_found_while_the_log_is_opened_is_counted_once() -> None:
    """A removal that is newer than the index makes the opening read the entries, which are bad."""
    target = SimDisk()
    log = Log("log", PyDisk(target), segment_bytes=4096)
    for seq in range(1, 12):
        log.add(seq, "s.a" if seq == 3 else "s.b", b"m" * 800)
    log.flush()
    log.close()
    log = Log("log", PyDisk(target), segment_bytes=4096)
    log.delete(2)
    log.flush()
    first = "log/00000000000000000001"
    target.names[first + ".seg"].data[32 + 2 * 839 + 100] ^= 1
    target.names[first + ".idx"].data[112 + 12] ^= 1
    log = Log("log", PyDisk(target), segment_bytes=4096)
    left = [seq for seq in range(1, 12) if log.get(seq) is not None]
    assert left == [1, *range(4, 12)]
    assert (log.msgs, sum(log.subjects().values())) == (9, 9)
    assert log.bytes == sum(log.size_of(seq) for seq in left)
    assert log.removed == 0


@pytest.mark.parametrize("field", [0, 4, 8])
def test_an_index_whose_numbers_do_not_fit_its_segment_is_not_believed(field: int) -> None:
    """Its checksums are right; what it says of a subject lies outside: a walk to there would not end."""
    target = SimDisk()
    log = Log("log", PyDisk(target), segment_bytes=4096)
    for seq in range(1, 9):
        log.add(seq, f"s.{seq % 3}", b"m" * 20)
    log.flush()
    log.close()
    name = "log/00000000000000000001.idx"
    content = target.names[name].data
    row = 112 + 8 * 12 + 16
    content[row + field : row + field + 4] = (257).to_bytes(4, "little")
    content[:] = seals.sealed(name, bytes(content))
    log = Log("log", PyDisk(target), segment_bytes=4096)
    for subject, first, last in (("s.0", 3, 6), ("s.1", 1, 7), ("s.2", 2, 8)):
        assert log.subject_state(subject) == ((last - first) // 3 + 1, first, last)
        found = log.last_of(subject)
        assert found is not None
        assert found.seq == last


def test_two_segments_that_turn_out_damaged_in_one_question_are_counted_once() -> None:
    target = SimDisk()
    log = Log("log", PyDisk(target), segment_bytes=4096)
    for seq in range(1, 16):
        log.add(seq, "s.b", b"m" * 800)
    log.flush()
    log.close()
    sealed = sorted(name[:-4] for name in target.names if name.endswith(".idx"))[:-1]
    assert len(sealed) > 1
    for first in sealed:
        target.names[first + ".seg"].data[32 + 2 * 839 + 100] ^= 1
        target.names[first + ".idx"].data[112 + 12] ^= 1
    log = Log("log", PyDisk(target), segment_bytes=4096)
    left = [seq for seq in range(1, 16) if log.get(seq) is not None]
    assert len(left) == 15 - len(sealed)
    assert log.msgs == len(left)
    assert log.subjects() == {"s.b": len(left)}
    assert log.bytes == sum(log.size_of(seq) for seq in left)
