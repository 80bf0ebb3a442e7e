"""Planning against a truthful model: a stream as a list of the sequences it holds."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.offsets import (
    DataLossError,
    Offset,
    Range,
    StreamState,
    admit,
    continue_from,
    cut,
    resolve_end,
    resolve_start,
    worth_a_batch,
)
from penstock.spark.options import Options, Position
from penstock.spark.parsing import OptionError

EARLIEST, LATEST = Position(word="earliest"), Position(word="latest")
BORN = "2026-10-16T23:04:01Z"


def state_of(first: int, last: int, born: str = BORN, size: int = 100) -> StreamState:
    count = last - first + 1
    return StreamState("S", born, first, last, count, count * size)


states = st.integers(1, 10**6).flatmap(
    lambda first: st.integers(first - 1, first + 10**6).map(lambda last: state_of(first, last))
)
ranges = st.integers(1, 10**9).flatmap(
    lambda first: st.integers(first - 1, first + 10**7).map(lambda last: Range(first, last))
)


@given(ranges, st.integers(1, 64), st.integers(1, 10**6))
def test_partitions_hold_every_sequence_once(whole, min_partitions, at_most):
    options = Options("S", min_partitions=min_partitions, max_records_per_partition=at_most)
    if len(whole) // at_most > 10_000:
        return
    parts = cut(whole, options)
    assert sum(len(part) for part in parts) == len(whole)
    position = whole.first
    for part in parts:
        assert part.first == position
        assert 1 <= len(part) <= at_most
        position = part.last + 1
    if parts:
        assert position == whole.last + 1
        assert len(parts) >= min(min_partitions, len(whole))
        sizes = {len(part) for part in parts}
        assert max(sizes) - min(sizes) <= 1


@given(states)
def test_words(state):
    assert resolve_start(EARLIEST, state, None) == state.first_seq - 1
    assert resolve_start(LATEST, state, None) == state.last_seq
    assert resolve_end(LATEST, state, None) == state.last_seq


@given(states, st.integers(1, 3 * 10**6))
def test_a_starting_sequence_is_read_or_refused(state, sequence):
    if sequence > state.last_seq + 1:
        with pytest.raises(OptionError, match=str(sequence)):
            resolve_start(Position(sequence=sequence), state, None)
    else:
        assert resolve_start(Position(sequence=sequence), state, None) == sequence - 1


@given(states, st.integers(1, 3 * 10**6))
def test_an_ending_sequence_is_included_and_never_beyond_the_end(state, sequence):
    end = resolve_end(Position(sequence=sequence), state, None)
    assert end == min(sequence, state.last_seq)


@given(st.lists(st.integers(0, 50), max_size=30), st.integers(0, 60), st.integers(0, 60))
def test_times_choose_what_was_stored_from_start_to_before_end(stored_at, start, end):
    stored_at.sort()
    state = state_of(1, len(stored_at))

    def first_at(second: int) -> int | None:
        return next((row + 1 for row, at in enumerate(stored_at) if at >= second), None)

    def position(second: int) -> Position:
        return Position(time=datetime(2026, 1, 1, 0, 0, second % 60, tzinfo=UTC))

    after = resolve_start(position(start), state, first_at(start))
    last = resolve_end(position(end), state, first_at(end))
    chosen = [row + 1 for row, at in enumerate(stored_at) if start <= at < end]
    assert list(range(after + 1, last + 1)) == chosen


@given(states, st.integers(0, 3 * 10**6))
def test_going_on_reads_all_that_is_new_or_fails(state, seq):
    offset = Offset("S", seq, BORN)
    dropped = seq + 1 < state.first_seq
    went_back = seq > state.last_seq
    if dropped or went_back:
        with pytest.raises(DataLossError, match="failOnDataLoss"):
            continue_from(offset, state, fail_on_data_loss=True)
        left = continue_from(offset, state, fail_on_data_loss=False)
        assert (left.first, left.last) == (
            (state.first_seq, state.last_seq) if dropped else (state.last_seq + 1, state.last_seq)
        )
    else:
        assert continue_from(offset, state, fail_on_data_loss=True) == Range(
            seq + 1, state.last_seq
        )


def test_a_stream_made_again_is_noticed_even_when_the_sequences_fit():
    offset, state = Offset("S", 5, BORN), state_of(1, 9, born="2027-01-01T00:00:00Z")
    with pytest.raises(DataLossError, match="created again"):
        continue_from(offset, state, fail_on_data_loss=True)
    assert continue_from(offset, state, fail_on_data_loss=False) == Range(1, 9)


def test_the_checkpoint_of_another_stream_is_refused():
    with pytest.raises(ValueError, match="use another one"):
        continue_from(Offset("T", 5, BORN), state_of(1, 9), fail_on_data_loss=False)


@given(states, st.none() | st.integers(1, 10**7), st.none() | st.integers(1, 10**9))
def test_admission_keeps_both_limits_and_always_moves(state, rows_max, bytes_max):
    available = Range(state.first_seq, state.last_seq)
    options = Options("S", max_offsets_per_trigger=rows_max, max_bytes_per_trigger=bytes_max)
    end = admit(available, state, options)
    rows = end - available.first + 1
    assert 0 <= rows <= len(available)
    assert (rows > 0) == (len(available) > 0)
    if rows_max is not None:
        assert rows <= rows_max
    if bytes_max is not None and rows > 1:
        assert rows * (state.bytes // state.messages) <= bytes_max
    if rows_max is None and bytes_max is None:
        assert rows == len(available)


@given(st.integers(0, 100), st.integers(1, 100), st.floats(0, 100), st.floats(1, 100))
def test_small_batches_wait_but_not_for_ever(rows, least, waited, delay):
    options = Options("S", min_offsets_per_trigger=least, max_trigger_delay_seconds=delay)
    worth = worth_a_batch(Range(1, rows), waited, options)
    assert worth == (rows > 0 and (rows >= least or waited >= delay))


def test_offsets_are_json_and_back():
    offset = Offset("S", 41, BORN)
    assert Offset.from_json(offset.to_json()) == offset
    with pytest.raises(ValueError, match="not an offset"):
        Offset.from_json({"partition-0": 5})
