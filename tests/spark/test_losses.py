"""When the begin of a stream says that something was lost, and when it does not: what was read, or
never was there, may go."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.spark.reading import lookups, one_range, streaming
from pelton.spark.reading.batches import View, available, batch_problems, batch_ranges, next_end
from pelton.spark.reading.offsets import (
    DataLossError,
    Offset,
    Range,
    StreamState,
    offsets_from_json,
    offsets_to_json,
)
from pelton.spark.reading.options import Options
from pelton.spark.reading.partitions import Part
from pelton.spark.reading.ranges import read_range
from pelton.spark.reading.streaming import JetStreamStreamReader
from pelton.spark.reading.tasks import plan_of
from tests.spark.calls import seqs_of

# -- the model


class World:
    """A stream as the set of what it holds, and a query that reads it in small batches."""

    def __init__(self, most: int) -> None:
        self.options = Options(("S",), max_offsets_per_trigger=most)
        self.held: set[int] = set()
        self.last = 0
        self.offsets: dict[str, Offset] = {"S": Offset("S", 0, "life")}
        self.unread: set[int] = set()  # what was there at the last look, or came since

    @property
    def state(self) -> StreamState:
        first = min(self.held, default=self.last + 1)
        return StreamState("S", "life", first, self.last, len(self.held), 100 * len(self.held))

    def publish(self, count: int) -> None:
        new = set(range(self.last + 1, self.last + count + 1))
        self.held |= new
        self.unread |= new
        self.last += count

    def delete(self, number: int) -> None:
        self.held.discard(number)

    def drop(self, count: int) -> None:
        self.held -= set(sorted(self.held)[:count])

    def problems(self) -> tuple[str, ...]:
        return available(self.offsets, View({"S": self.state})).problems

    def step(self, _: int) -> str | None:
        """A micro-batch; the problem, if there is one."""
        state = self.state
        begin = self.offsets
        if problems := self.problems():
            return problems[0]
        end = next_end(begin, View({"S": state}), 0.0, self.options)
        if end["S"].place == begin["S"].place:
            return None
        behind = min((seq for seq in self.held if seq > end["S"].seq), default=self.last + 1)
        end["S"] = Offset("S", end["S"].seq, "life", end["S"].begin, None, behind)
        end = offsets_from_json(json.loads(json.dumps(offsets_to_json(end, one_stream=True))))
        ranges = batch_ranges(begin, end)
        assert batch_problems(begin, ranges, end, {"S": state}) == []
        self.unread = {seq for seq in self.held if seq > end["S"].seq}
        self.offsets = end
        return None


happenings = st.lists(
    st.tuples(st.sampled_from(["publish", "delete", "drop", "step", "step"]), st.integers(1, 12)),
    max_size=40,
)


@given(happenings, st.integers(1, 8))
def test_an_alarm_is_a_loss_and_a_loss_is_an_alarm(happened, most):
    world = World(most)
    for what, number in happened:
        getattr(world, what)(number)
        gone = {seq for seq in world.unread - world.held if seq < world.state.first_seq}
        dropped = what == "drop" and gone
        if world.problems():
            assert gone, "nothing unread is gone"
            return
        assert not dropped, "something unread was dropped"


# -- servers

pytestmark = pytest.mark.peer


def streamer(stream, **given):
    return JetStreamStreamReader(
        stream.options(streaming=True, startingOffsets="earliest", **given)
    )


def step(reader, begin):
    end = reader.latestOffset(json.loads(json.dumps(begin)), reader.getDefaultReadLimit())
    return end, seqs_of(reader, reader.partitions(begin, end))


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(streaming, "_POLL_SECONDS", 0.0)


def with_holes(stream):
    stream.fill(30)
    for seq in range(11, 21):
        stream.js.delete_message(stream.name, seq)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("purged", [16, 18, 21, 22])
def test_a_hole_that_was_seen_may_go(stream, restarted, purged):
    with_holes(stream)
    reader = streamer(stream, maxOffsetsPerTrigger=15)
    end, read = step(reader, reader.initialOffset())
    assert read == list(range(1, 11))
    assert (end["seq"], end["next"]) == (15, 21)
    # Servers before 2.10 refuse to purge up to a hole.
    old = not stream.js.client.server_info.version_at_least(2, 10)
    stream.js.purge_stream(stream.name, seq=max(purged, 21) if old else purged)
    if restarted:
        reader = streamer(stream, maxOffsetsPerTrigger=15)
    if purged > 21:
        with pytest.raises(DataLossError, match="begins at sequence 22; 21 and later"):
            step(reader, end)
        return
    end, read = step(reader, end)
    assert read == list(range(21, 31))
    assert "next" not in end


def test_what_a_filter_does_not_want_may_go(stream):
    stream.fill(30)
    given = {"subject": f"{stream.name.lower()}.1", "maxOffsetsPerTrigger": 8}
    reader = streamer(stream, **given)
    end, read = step(reader, reader.initialOffset())
    assert read == [1, 4, 7]
    assert (end["seq"], end["next"]) == (8, 10)
    stream.js.purge_stream(stream.name, seq=10)
    end, read = step(streamer(stream, **given), end)
    assert read[0] == 10
    assert end["next"] == 19
    stream.js.purge_stream(stream.name, seq=20)
    with pytest.raises(DataLossError, match="begins at sequence 20; 19 and later"):
        step(streamer(stream, **given), end)


def test_after_the_last_one_a_filter_wants_everything_may_go(stream):
    stream.fill(6)
    given = {"subject": f"{stream.name.lower()}.1"}
    reader = streamer(stream, **given)
    end, read = step(reader, reader.initialOffset())
    assert read == [1, 4]
    assert (end["seq"], end["next"]) == (4, 7)
    stream.js.purge_stream(stream.name)
    stream.fill(3)
    end, read = step(streamer(stream, **given), end)
    assert read == [7]


def test_a_drop_between_two_questions_is_not_hidden(stream, monkeypatch):
    with_holes(stream)
    ask = lookups.next_stored

    def dropped_meanwhile(js, *given):
        stream.js.purge_stream(stream.name, seq=25)
        return ask(js, *given)

    monkeypatch.setattr(lookups, "next_stored", dropped_meanwhile)
    reader = streamer(stream, maxOffsetsPerTrigger=15)
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert "next" not in end
    with pytest.raises(DataLossError):
        reader.partitions(end | {"seq": 0}, end)
    with pytest.raises(DataLossError, match="begins at sequence 25; 16 and later"):
        reader.latestOffset(end, reader.getDefaultReadLimit())


def test_a_drop_while_filters_are_asked_is_not_hidden(stream, monkeypatch):
    stream.fill(9)
    reader = streamer(stream, subject=f"{stream.name.lower()}.1")
    end, _ = step(reader, reader.initialOffset())
    stream.fill(9)
    real = lookups.Lookups.end

    def dropped_meanwhile(self, state, subjects):
        stream.js.purge_stream(stream.name)
        return real(self, state, subjects)

    monkeypatch.setattr(lookups.Lookups, "end", dropped_meanwhile)
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end
    monkeypatch.setattr(lookups.Lookups, "end", real)
    with pytest.raises(DataLossError, match="begins at sequence 19"):
        reader.latestOffset(end, reader.getDefaultReadLimit())


def reading(stream, transport, empty_below=0, **given):
    options = stream.options(batchRows=10, transport=transport, **given)
    born = streaming.JetStreamStreamReader(options)._lookups.state(stream.name).born
    part = Part(stream.name, born, Range(1, 30), empty_below=empty_below)
    return read_range(plan_of(part, options, options.subjects))


@pytest.mark.parametrize("transport", ["consumer", "get"])
@pytest.mark.parametrize("told", [True, False])
def test_holes_that_were_there_before_the_read(stream, monkeypatch, transport, told):
    with_holes(stream)
    if not told:
        monkeypatch.setattr(one_range, "HOLES_MAX", 9)
    batches = reading(stream, transport)
    read = next(batches)["seq"].to_pylist()
    assert read == list(range(1, 11))
    stream.js.purge_stream(stream.name, seq=21)
    if told:
        read += [seq for batch in batches for seq in batch["seq"].to_pylist()]
        assert read == [*range(1, 11), *range(21, 31)]
    else:
        with pytest.raises(DataLossError, match="dropped messages from 11 to 20"):
            list(batches)


def test_what_the_plan_knows_to_be_empty_is_no_loss(stream):
    stream.fill(30)
    stream.js.purge_stream(stream.name, seq=8)
    with pytest.raises(DataLossError, match="from 1 to 7"):
        list(reading(stream, "auto"))
    with pytest.raises(DataLossError, match="from 5 to 7"):
        list(reading(stream, "auto", empty_below=5))
    batches = list(reading(stream, "auto", empty_below=8))
    assert sum(len(batch) for batch in batches) == 23
