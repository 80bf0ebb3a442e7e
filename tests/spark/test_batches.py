"""Micro-batches over several streams, against a truthful model of streams that grow, lose their
begin, go and come again.
"""

import json
from dataclasses import dataclass, field
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.spark.reading.batches import (
    View,
    admit,
    available,
    batch_problems,
    batch_ranges,
    moved_on,
    next_end,
    refuse_loss,
    same_places,
    share,
    worth_a_batch,
)
from pelton.spark.reading.offsets import (
    DataLossError,
    Offset,
    Range,
    StreamState,
    offsets_from_json,
    offsets_to_json,
)
from pelton.spark.reading.options import Options

BORN = "2026-10-16T23:04:01Z"


def state_of(name: str, first: int, last: int, born: str = BORN, size: int = 100) -> StreamState:
    held = last - first + 1
    return StreamState(name, born, first, last, held, held * size)


def view_of(*states: StreamState, **passed: int) -> View:
    return View({state.stream: state for state in states}, passed=passed)


# -- sharing


@given(st.lists(st.integers(0, 50), max_size=6), st.integers(0, 200), st.integers(0, 10))
def test_a_share_is_fair_and_wastes_nothing(wanted, total, turn):
    given_out = share(wanted, total, turn)
    assert sum(given_out) == min(total, sum(wanted))
    assert all(0 <= part <= want for part, want in zip(given_out, wanted, strict=True))
    unsated = [part for part, want in zip(given_out, wanted, strict=True) if part < want]
    if unsated:
        # Nobody who wants more has less than anybody else, but for what cannot be divided.
        assert min(unsated) >= max(given_out) - 1


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=8), st.integers(1, 8))
def test_nobody_waits_for_ever(backlogs, limit):
    """As many batches as there are streams, and each has had its turn, whatever comes meanwhile to
    the others.
    """
    names = [f"S{place}" for place in range(len(backlogs))]
    begin = {name: Offset(name, 0, BORN) for name in names}
    options = Options(tuple(names), max_offsets_per_trigger=limit)
    ends = dict(zip(names, backlogs, strict=True))
    served = set()
    for _ in names:
        states = [state_of(name, 1, ends[name]) for name in names]
        end = next_end(begin, view_of(*states), 0.0, options)
        for name in batch_ranges(begin, end):
            served.add(name)
            ends[name] += 1000
        begin = end
    assert served == set(names)


available_states = st.dictionaries(
    st.sampled_from("ABCD"), st.tuples(st.integers(1, 10**6), st.integers(0, 10**6)), min_size=1
).map(
    lambda made: [state_of(name, first, first - 1 + held) for name, (first, held) in made.items()]
)


@given(available_states, st.none() | st.integers(1, 10**7), st.none() | st.integers(1, 10**9))
def test_admission_keeps_both_limits_and_always_moves(states, rows_max, bytes_max):
    view = view_of(*states)
    options = Options(
        tuple(view.states), max_offsets_per_trigger=rows_max, max_bytes_per_trigger=bytes_max
    )
    found = available({}, view)
    rows = admit(found, {}, view, options)
    lengths = [len(found.ranges[name]) for name in sorted(found.ranges)]
    assert all(0 <= taken <= length for taken, length in zip(rows, lengths, strict=True))
    assert (sum(rows) > 0) == (sum(lengths) > 0)
    if rows_max is not None:
        assert sum(rows) <= rows_max
    if bytes_max is not None:
        # Each stream may give one message, however large.
        assert sum(taken for taken in rows if taken > 1) * 100 <= bytes_max
    if rows_max is None and bytes_max is None:
        assert rows == lengths


@given(st.integers(0, 100), st.integers(1, 100), st.floats(0, 100), st.floats(1, 100))
def test_small_batches_wait_but_not_for_ever(rows, least, waited, delay):
    options = Options(("S",), min_offsets_per_trigger=least, max_trigger_delay_seconds=delay)
    worth = worth_a_batch(rows, waited, options)
    assert worth == (rows > 0 and (rows >= least or waited >= delay))


# -- the model


@dataclass
class Life:
    """One life of a stream: which messages it has held, by sequence, and where it begins."""

    born: str
    messages: list[int] = field(default_factory=list)  # the id of sequence 1, 2, ...
    first: int = 1

    def state(self, name: str) -> StreamState:
        return state_of(name, self.first, len(self.messages), self.born)


class World:
    """Streams, and a query that reads them as Spark would."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.streams: dict[str, Life] = {}
        self.numbers = count(1)
        self.begin: dict[str, Offset] = {}
        self.read: list[int] = []
        self.lost = False

    def publish(self, name: str, how_many: int) -> None:
        if name not in self.streams:
            self.streams[name] = Life(f"life {next(self.numbers)}")
        self.streams[name].messages += [next(self.numbers) for _ in range(how_many)]

    def drop(self, name: str, how_many: int) -> None:
        if life := self.streams.get(name):
            life.first = min(life.first + how_many, len(life.messages) + 1)

    def delete(self, name: str, _: int) -> None:
        self.streams.pop(name, None)

    def go_back(self, name: str, how_many: int) -> None:
        """The end of a stream is lost, which a server's disk may do; the query looks before it
        grows again.
        """
        if life := self.streams.get(name):
            keep = max(life.first - 1, len(life.messages) - how_many)
            del life.messages[keep:]
        self.step("", 0)

    def step(self, _: str, waited: int) -> None:
        """One micro-batch, which the driver may plan twice."""
        view = View({name: life.state(name) for name, life in self.streams.items()})
        problems = available(self.begin, view).problems
        if problems:
            self.lost = True
            if self.options.fail_on_data_loss:
                return
        end = next_end(self.begin, view, float(waited), self.options)
        if same_places(self.begin, end):
            return
        # Through the checkpoint, and back.
        text = json.dumps(offsets_to_json(end, one_stream=False))
        end = offsets_from_json(json.loads(text))
        ranges = batch_ranges(self.begin, end)
        assert batch_ranges(self.begin, end) == ranges
        assert batch_problems(self.begin, ranges, end, view.states) == []
        rows = 0
        for name, wanted in ranges.items():
            life = self.streams[name]
            assert life.born == end[name].born
            assert life.first <= wanted.first <= wanted.last <= len(life.messages)
            self.read += life.messages[wanted.first - 1 : wanted.last]
            rows += len(wanted)
        limit = self.options.max_offsets_per_trigger
        assert limit is None or rows <= limit
        self.begin = end

    def drain(self) -> None:
        for _ in range(10_000):
            before = self.begin
            self.step("", 10**6)
            if self.begin == before:
                return
        raise AssertionError("no end")


names = st.sampled_from("ABC")
happenings = st.lists(
    st.tuples(
        st.sampled_from(["publish", "publish", "step", "step", "drop", "delete", "go_back"]),
        names,
        st.integers(0, 30),
    ),
    max_size=30,
)
limits = st.none() | st.integers(1, 20)


@given(happenings, limits, st.none() | st.integers(1, 20))
def test_a_lenient_query_reads_what_is_left_once_and_in_order(happened, most, least):
    options = Options(
        stream_pattern=".*",
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least and min(least, most or least),
        fail_on_data_loss=False,
    )
    world = World(options)
    for what, name, number in happened:
        getattr(world, what)(name, number)
    world.drain()
    assert len(world.read) == len(set(world.read)), "a message was read twice"
    held = {each for life in world.streams.values() for each in life.messages[life.first - 1 :]}
    assert held <= set(world.read), "what is there at the end was read"


@given(happenings, limits, st.none() | st.integers(1, 20))
def test_a_strict_query_reads_everything_or_stops(happened, most, least):
    options = Options(
        stream_pattern=".*",
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least and min(least, most or least),
    )
    world = World(options)
    for what, name, number in happened:
        getattr(world, what)(name, number)
        if world.lost:
            return
    world.drain()
    if world.lost:
        return
    for each in world.streams.values():
        mine = [number for number in world.read if number in set(each.messages)]
        begin = each.messages.index(mine[0]) if mine else len(each.messages)
        assert mine == each.messages[begin:], "a gap that nobody was told of"


# -- single cases


def test_loss_is_told_of_all_streams():
    begin = {"A": Offset("A", 5, BORN), "B": Offset("B", 5, BORN), "C": Offset("C", 5, BORN)}
    found = available(begin, view_of(state_of("A", 8, 9), state_of("C", 6, 9)))
    with pytest.raises(DataLossError) as caught:
        refuse_loss(found.problems)
    assert str(caught.value) == (
        "stream B, read up to 5, is not there any more, or not asked for;"
        " stream A begins at sequence 8; 6 and later were not read yet."
        " To go on with what is left, set failOnDataLoss to false"
    )
    refuse_loss([])


def test_a_batch_that_cannot_be_read_any_more():
    end = {"A": Offset("A", 9, BORN)}
    wanted = {"A": Range(3, 9)}
    for state, text in (
        (None, "to be read from 3 to 9, is not there any more"),
        (state_of("A", 4, 9), "begins at sequence 4; 3 and later"),
        (state_of("A", 1, 8), "ends at sequence 8, not at 9"),
        (state_of("A", 1, 1), "ends at sequence 1, before the last one read, 2"),
        (state_of("A", 1, 9, born="2030-01-01T00:00:00Z"), "created again"),
    ):
        [problem] = batch_problems({}, wanted, end, {} if state is None else {"A": state})
        assert text in problem
    assert batch_problems({}, wanted, end, {"A": state_of("A", 3, 9)}) == []
    # What lay before 6 was seen to be empty when the batch before was planned.
    begin = {"A": Offset("A", 2, BORN, next=6)}
    assert batch_problems(begin, wanted, end, {"A": state_of("A", 6, 9)}) == []
    [problem] = batch_problems(begin, wanted, end, {"A": state_of("A", 7, 9)})
    assert "begins at sequence 7; 6 and later" in problem


def test_what_was_passed_is_moved_over():
    begin = {"A": Offset("A", 5, BORN, begin=2), "B": Offset("B", 7, BORN)}
    view = view_of(state_of("A", 1, 50), state_of("B", 1, 7), A=40, B=7)
    end = moved_on(begin, view)
    assert end == {"A": Offset("A", 40, BORN, begin=41), "B": Offset("B", 7, BORN)}
    assert batch_ranges(begin, end) == {}


def test_a_bound_ends_a_stream_earlier():
    view = View({"A": state_of("A", 1, 50), "B": state_of("B", 1, 50)}, ends={"A": 10, "B": 0})
    end = next_end({}, view, 0.0, Options(("A", "B")))
    assert batch_ranges({}, end) == {"A": Range(1, 10)}


def test_mean_sizes_are_written_down_where_partitions_need_them():
    view = view_of(state_of("A", 1, 50, size=77))
    end = next_end({}, view, 0.0, Options(("A",), max_bytes_per_partition=1000))
    assert end["A"].mean_bytes == 77
    assert next_end(end, view, 0.0, Options(("A",)))["A"] == Offset("A", 50, BORN)
