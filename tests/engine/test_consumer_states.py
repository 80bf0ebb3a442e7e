"""The use of a consumer's saved state after the stream has lost its last messages."""

from __future__ import annotations

import struct

from pelton.core.consumer.snapshot import pack, unpack
from pelton.engine.files.consumer_states import SavedState


def found(delivered: int, passed: int, next_seq: int) -> SavedState:
    return SavedState(numbers=[delivered, passed, next_seq, 1, delivered, passed, 1])


def test_what_was_passed_over_is_looked_at_again_when_the_end_is_lost() -> None:
    """Messages 45 to 55 were removed before the consumer reached them. The end of the stream and
    the removal are lost.
    """
    one = found(8, 44, 56)
    assert one.forget_above(46)
    assert one.numbers[:3] == [8, 44, 45]


def test_a_consumer_that_has_delivered_nothing_looks_again_from_its_beginning() -> None:
    """It was reset to 5, or began there; the messages up to 55 had been removed."""
    for one in (found(0, 4, 56), found(0, 4, 51)):
        one.forget_above(50)
        one.look_again()
        assert one.numbers[:3] == [0, 4, 5]
    assert one.forget_above(3)
    assert one.numbers[1:3] == [3, 4]


def test_a_consumer_that_has_first_ones_to_give_goes_on_behind_them() -> None:
    one = found(8, 44, 56)
    one.starts = [46]
    assert one.forget_above(50)
    assert (one.numbers[1:3], one.starts) == ([44, 51], [46])


def test_the_end_is_still_there() -> None:
    one = found(8, 44, 56)
    assert not one.forget_above(55)
    assert one.numbers[2] == 56


def test_what_was_removed_behind_the_last_delivery_is_looked_at_again() -> None:
    one = found(8, 44, 56)
    one.look_again()
    assert one.numbers[:3] == [8, 44, 45]
    fresh = found(0, 1, 3)
    fresh.look_again()
    assert fresh.numbers[:3] == [0, 1, 2]
    other = found(8, 44, 56)
    other.starts = [46]
    other.look_again()
    assert other.numbers[2] == 56


def test_what_was_passed_over_is_not_taken_for_delivered() -> None:
    """The record of the deliveries up to 11 is damaged. The next record knows that 12 to 21 had been
    removed and were passed; the power cut brought them back, undelivered (simulation, seed 7023377).
    """
    one = SavedState()
    numbers = (13, 11, 22, 1, 0, 0, 0)
    one.apply(1, struct.pack("<8QII", 13, *numbers, 0, 0))
    assert one.gaps == [(1, 12)]
    one.look_again()
    assert one.numbers[2] == 12


def test_a_gap_behind_a_reset_begins_where_the_consumer_began_again() -> None:
    """The consumer began at 36 and was reset to 5. The record of its deliveries since is damaged."""
    one = SavedState()
    one.take(pack((0, 4, 5, 0, 0, 4, 0), [], []))
    one.apply(36, struct.pack("<8QII", 3, 3, 7, 8, 1, 0, 4, 0, 0, 0))
    assert one.gaps == [(5, 8)]
    _, entries, _ = unpack(one.packed([5, 6, 7]))
    assert [entry[0] for entry in entries] == [5, 6, 7]


def test_acks_from_before_a_reset_do_not_count_behind_it() -> None:
    one = SavedState()
    one.apply(1, struct.pack("<8QIIQ", 0, 3, 3, 4, 1, 1, 1, 1, 0, 1, 2))
    assert one.acked == {2}
    one.take(pack((0, 0, 1, 0, 0, 0, 0), [], []))
    one.apply(1, struct.pack("<8QII", 3, 3, 3, 4, 1, 0, 0, 0, 0, 0))
    _, entries, _ = unpack(one.packed([1, 2, 3]))
    assert [entry[0] for entry in entries] == [1, 2, 3]


def test_a_gap_has_the_first_messages_that_were_still_to_be_delivered() -> None:
    """The consumer begins with the last message of each subject, 3 and 7 of 9."""
    one = SavedState()
    one.take(pack((0, 2, 10, 0, 0, 2, 0), [], [3, 7]))
    one.apply(1, struct.pack("<8QII", 2, 2, 9, 10, 1, 0, 2, 0, 0, 0))
    assert one.gaps == [(3, 4), (7, 8), (10, 10)]


def record(before: int, numbers: tuple[int, ...], fresh: list[int], acked: list[int]) -> bytes:
    """A record of acks, as the journal writes it."""
    body = struct.pack("<8QII", before, *numbers, len(fresh), len(acked))
    body += b"".join(struct.pack("<3Q", seq, 1, 0) for seq in fresh)
    return body + struct.pack(f"<{len(acked)}Q", *acked)


def test_the_record_of_a_reset_is_missing() -> None:
    """The consumer had delivered 25 messages, up to 27, and was reset to 28; since then it has
    delivered 28 to 33, and an ack of all up to 32 came (simulation, seed 9020820).
    """
    one = SavedState()
    one.take(pack((25, 27, 28, 1, 24, 26, 1), [(27, 25, 1, 1, 1)], []))
    one.apply(1, record(0, (6, 33, 34, 1, 5, 32, 1), [33], []))
    numbers, entries, _ = unpack(one.packed())
    assert numbers == (6, 33, 34, 1, 5, 32, 1)
    assert [entry[0] for entry in entries] == [33]


def test_the_records_of_a_reset_and_of_deliveries_behind_it_are_missing() -> None:
    """What may have been delivered since the reset to 5 is pending, but for what was acknowledged."""
    one = SavedState()
    one.take(pack((25, 27, 28, 1, 24, 26, 1), [(27, 25, 1, 1, 1)], []))
    one.apply(1, record(3, (5, 9, 10, 1, 0, 4, 1), [9], [8]))
    assert one.gaps == [(5, 10)]
    numbers, entries, _ = unpack(one.packed([5, 6, 7, 8, 9]))
    assert numbers[:3] == (5, 9, 10)
    assert [entry[0] for entry in entries] == [5, 6, 7, 9]
