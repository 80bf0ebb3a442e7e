"""The classes Spark calls, called as Spark does, without a JVM."""

import pickle
import time

import pytest

from penstock.client.models import StreamConfig
from penstock.spark import source
from penstock.spark.offsets import DataLossError
from penstock.spark.parsing import OptionError
from penstock.spark.source import JetStreamDataSource, JetStreamReader, JetStreamStreamReader

pytestmark = pytest.mark.peer


def rows_of(reader, partitions):
    """What the partitions hold, read from pickled copies as on executors."""
    rows = []
    for partition in partitions:
        copy, part = pickle.loads(pickle.dumps((reader, partition)))
        rows += [row["seq"] for batch in copy.read(part) for row in batch.to_pylist()]
    return rows


def test_schema_and_name():
    plain = JetStreamDataSource({"stream": "S"})
    assert plain.name() == "jetstream"
    assert plain.schema().split(", ")[-1] == "data binary"
    assert "headers" not in plain.schema()
    assert "headers map" in JetStreamDataSource({"includeHeaders": "True"}).schema()
    with pytest.raises(OptionError, match="stream is missing"):
        JetStreamDataSource({}).reader(None)


def test_batch_reads(stream):
    stream.fill(20)
    for given, wanted in (
        ({}, range(1, 21)),
        ({"startingOffsets": 5, "endingOffsets": 9}, range(5, 10)),
        ({"startingOffsets": 21}, []),
        ({"endingOffsets": 3, "minPartitions": 5}, range(1, 4)),
        ({"maxRecordsPerPartition": 3}, range(1, 21)),
    ):
        reader = JetStreamReader(stream.options(**given))
        assert rows_of(reader, reader.partitions()) == list(wanted), given
    reader = JetStreamReader(stream.options(maxRecordsPerPartition=3))
    assert len(reader.partitions()) == 7
    assert list(reader.read(None)) == []


def test_batch_reads_by_time(stream):
    stream.fill(5)
    time.sleep(0.01)  # so that the two halves have different times in microseconds
    stream.fill(5)
    every = JetStreamReader(stream.options())
    stamps = [
        row["ts"]
        for part in every.partitions()
        for batch in every.read(part)
        for row in batch.to_pylist()
    ]
    middle = stamps[5].isoformat()
    later = JetStreamReader(stream.options(startingOffsets=middle))
    assert rows_of(later, later.partitions()) == [6, 7, 8, 9, 10]
    earlier = JetStreamReader(stream.options(endingOffsets=middle))
    assert rows_of(earlier, earlier.partitions()) == [1, 2, 3, 4, 5]


def test_batch_reads_of_a_stream_that_lost_its_begin(stream):
    stream.fill(20)
    stream.js.purge_stream(stream.name, seq=11)
    earliest = JetStreamReader(stream.options())
    assert rows_of(earliest, earliest.partitions()) == list(range(11, 21))
    with pytest.raises(DataLossError):
        JetStreamReader(stream.options(startingOffsets=5)).partitions()
    lenient = JetStreamReader(stream.options(startingOffsets=5, failOnDataLoss="false"))
    assert rows_of(lenient, lenient.partitions()) == list(range(11, 21))


def streamer(stream, **given):
    return JetStreamStreamReader(stream.options(streaming=True, **given))


def run_batches(reader, at_most=100):
    """Micro-batches until nothing is left, as sequences; in the order of calls Spark makes."""
    offset = reader.initialOffset()
    batches = []
    for _ in range(at_most):
        end = reader.latestOffset(offset, reader.getDefaultReadLimit())
        if end == offset:
            return batches
        batches.append(rows_of(reader, reader.partitions(offset, end)))
        reader.commit(end)
        offset = end
    raise AssertionError("no end")


def test_streaming_reads_everything_once_within_the_limits(stream, monkeypatch):
    monkeypatch.setattr(source, "_POLL_SECONDS", 0.0)
    stream.fill(23)
    batches = run_batches(streamer(stream, startingOffsets="earliest", maxOffsetsPerTrigger=5))
    assert [len(batch) for batch in batches] == [5, 5, 5, 5, 3]
    assert [seq for batch in batches for seq in batch] == list(range(1, 24))
    assert run_batches(streamer(stream)) == []
    by_bytes = run_batches(streamer(stream, startingOffsets="earliest", maxBytesPerTrigger="1"))
    assert [len(batch) for batch in by_bytes] == [1] * 23


def test_a_subject_filter_makes_no_empty_batches(stream, monkeypatch):
    monkeypatch.setattr(source, "_POLL_SECONDS", 0.0)
    stream.fill(9)
    reader = streamer(stream, startingOffsets="earliest", subject=f"{stream.name.lower()}.1")
    assert run_batches(reader) == [[1, 4, 7]]
    begin = {**reader.initialOffset(), "seq": 7}
    stream.fill(0)
    assert reader.latestOffset(begin, reader.getDefaultReadLimit()) == begin


def test_available_now_ends_where_the_stream_ended_at_its_start(stream):
    stream.fill(10)
    reader = streamer(
        stream, startingOffsets="earliest", maxOffsetsPerTrigger=4, minOffsetsPerTrigger=3
    )
    reader.prepareForTriggerAvailableNow()
    stream.fill(10)
    started = time.monotonic()
    assert run_batches(reader) == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]
    assert time.monotonic() - started < 5


def test_small_batches_wait_for_more(stream, monkeypatch):
    monkeypatch.setattr(source, "_POLL_SECONDS", 0.0)
    stream.fill(3)
    reader = streamer(stream, startingOffsets="earliest", minOffsetsPerTrigger=5)
    assert run_batches(reader) == []
    stream.fill(2)
    assert run_batches(reader) == [[1, 2, 3, 4, 5]]
    hasty = streamer(
        stream, startingOffsets="earliest", minOffsetsPerTrigger=50, maxTriggerDelay="1ms"
    )
    time.sleep(0.002)  # the delay itself, of the reader's own clock
    assert run_batches(hasty) == [[1, 2, 3, 4, 5]]


def test_an_idle_query_asks_a_few_times_a_second(stream, monkeypatch):
    looks = 0
    reader = streamer(stream)
    look = reader._look

    def counted():
        nonlocal looks
        looks += 1
        return look()

    offset = reader.initialOffset()
    monkeypatch.setattr(reader, "_look", counted)
    started = time.monotonic()
    assert reader.latestOffset(offset, reader.getDefaultReadLimit()) == offset
    waited = time.monotonic() - started
    assert 0.2 < waited < 1.0
    assert looks <= 8


def test_a_batch_planned_again_is_the_same(stream):
    stream.fill(10)
    reader = streamer(stream, startingOffsets="earliest", maxRecordsPerPartition=3)
    offset = reader.initialOffset()
    end = reader.latestOffset(offset, reader.getDefaultReadLimit())
    stream.fill(10)
    again = streamer(stream, startingOffsets="earliest", maxRecordsPerPartition=3)
    assert again.partitions(offset, end) == reader.partitions(offset, end)
    assert rows_of(again, again.partitions(offset, end)) == list(range(1, 11))
    assert reader.reportLatestOffset()["seq"] == 20


def test_lost_messages_stop_a_query_or_are_told(stream, monkeypatch):
    monkeypatch.setattr(source, "_POLL_SECONDS", 0.0)
    stream.fill(20)
    strict = streamer(stream, startingOffsets="earliest")
    offset = strict.initialOffset()
    stream.js.purge_stream(stream.name, seq=11)
    with pytest.raises(DataLossError, match="begins at sequence 11"):
        strict.latestOffset(offset, strict.getDefaultReadLimit())
    lenient = streamer(stream, startingOffsets="earliest", failOnDataLoss="false")
    with pytest.warns(UserWarning, match="going on with 11"):
        end = lenient.latestOffset(offset, lenient.getDefaultReadLimit())
    with pytest.warns(UserWarning, match="going on with 11"):
        partitions = lenient.partitions(offset, end)
    assert rows_of(lenient, partitions) == list(range(11, 21))


def test_a_stream_made_again(stream, monkeypatch):
    monkeypatch.setattr(source, "_POLL_SECONDS", 0.0)
    stream.fill(5)
    reader = streamer(stream, startingOffsets="earliest")
    offset = reader.initialOffset()
    end = reader.latestOffset(offset, reader.getDefaultReadLimit())
    stream.js.delete_stream(stream.name)
    stream.js.create_stream(
        StreamConfig(name=stream.name, subjects=[f"{stream.name.lower()}.>"], storage="memory")
    )
    stream.fill(8)
    for call in (
        lambda: reader.latestOffset(end, reader.getDefaultReadLimit()),
        lambda: reader.partitions(offset, end),
    ):
        with pytest.raises(DataLossError, match="created again"):
            call()
    lenient = streamer(stream, startingOffsets="earliest", failOnDataLoss="false")
    with pytest.warns(UserWarning, match="are gone"):
        assert lenient.partitions(offset, end) == []
    with pytest.warns(UserWarning, match="are gone"):
        last = lenient.latestOffset(end, lenient.getDefaultReadLimit())
    with pytest.warns(UserWarning, match="are gone"):
        partitions = lenient.partitions(end, last)
    assert rows_of(lenient, partitions) == list(range(1, 9))
    assert lenient.latestOffset(last, lenient.getDefaultReadLimit()) == last
