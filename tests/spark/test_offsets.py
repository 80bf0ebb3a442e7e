"""Planning against a truthful model: a stream as a list of the sequences it holds."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.spark.parsing import OptionError
from pelton.spark.reading.offsets import (
    Next,
    Offset,
    Range,
    StreamState,
    offsets_from_json,
    offsets_to_json,
    resolve_end,
    resolve_start,
    what_is_next,
)
from pelton.spark.reading.positions import Position

EARLIEST, LATEST = Position(word="earliest"), Position(word="latest")
BORN = "2026-10-16T23:04:01Z"


def state_of(first: int, last: int, born: str = BORN, size: int = 100) -> StreamState:
    count = last - first + 1
    return StreamState("S", born, first, last, count, count * size)


states = st.integers(1, 10**6).flatmap(
    lambda first: st.integers(first - 1, first + 10**6).map(lambda last: state_of(first, last))
)


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


@given(states, st.integers(0, 3 * 10**6), st.integers(0, 3 * 10**6))
def test_going_on_is_right_behind_the_offset_or_a_problem(state, seq, passed):
    step = what_is_next(Offset("S", seq, BORN), state, passed)
    if seq > state.last_seq:
        assert "ends at sequence" in step.problem
        assert step.range == Range(state.last_seq + 1, state.last_seq)
    elif seq + 1 >= state.first_seq:
        assert step == Next(Range(seq + 1, state.last_seq), moved=False)
    else:
        assert step.range == Range(state.first_seq, state.last_seq)
        assert step.moved
        seen = max(seq, min(passed, state.last_seq))
        assert (step.problem is None) == (seen + 1 >= state.first_seq)
        assert step.problem is None or f"{seen + 1} and later" in step.problem


@given(states)
def test_a_stream_made_again_is_read_from_its_begin(state):
    step = what_is_next(Offset("S", state.last_seq, "2020-01-01T00:00:00Z"), state)
    assert "created again" in step.problem
    assert step.range == Range(state.first_seq, state.last_seq)
    assert what_is_next(None, state) == Next(step.range, moved=True)


places = st.builds(
    Offset,
    st.text("ABC_", min_size=1, max_size=3),
    st.integers(0, 2**63 - 1),
    st.sampled_from([BORN, "2027-01-01T00:00:00Z"]),
    st.none() | st.integers(1, 2**63 - 1),
    st.none() | st.integers(1, 2**20),
    st.none() | st.integers(1, 2**63 - 1),
)


@given(st.lists(places, max_size=4))
def test_offsets_are_json_and_back(given_places):
    offsets = {place.stream: place for place in given_places}
    for one_stream in (False, True):
        text = json.dumps(offsets_to_json(offsets, one_stream=one_stream))
        assert offsets_from_json(json.loads(text)) == offsets
    turned = dict(reversed(offsets.items()))
    assert json.dumps(offsets_to_json(turned, one_stream=False)) == json.dumps(
        offsets_to_json(offsets, one_stream=False)
    ), "Spark compares offsets as text"


def test_the_form_of_one_stream():
    offsets = {"S": Offset("S", 41, BORN)}
    old = {"stream": "S", "seq": 41, "born": BORN}
    assert offsets_to_json(offsets, one_stream=True) == old
    assert offsets_from_json(old) == offsets
    # A stream may have any name.
    odd = {"stream": Offset("stream", 1, BORN), "seq": Offset("seq", 2, BORN)}
    assert offsets_from_json(offsets_to_json(odd, one_stream=False)) == odd


@pytest.mark.parametrize(
    "value", [{"partition-0": 5}, {"stream": "S"}, {"S": {"seq": 1}}, [], {"S": {"seq": "x"}}]
)
def test_what_is_no_offset_is_refused(value):
    with pytest.raises(ValueError, match="not an offset of the jetstream source"):
        offsets_from_json(value)
