"""Streams whose retention goes by their consumers, and those that may have no more of them: reading
and writing takes nothing away from anybody, and changes nobody's interest."""

from __future__ import annotations

import time

import pytest

from pelton.client.base.models import ConsumerConfig, StreamConfig
from pelton.spark.connection import ReadError
from pelton.spark.reading import streaming
from pelton.spark.reading.offsets import DataLossError
from pelton.spark.reading.source import JetStreamReader
from pelton.spark.reading.streaming import JetStreamStreamReader
from pelton.spark.writing.writer import write_partition
from tests.spark.calls import rows_of, seqs_of
from tests.spark.test_writer import Killed, dying
from tests.spark.writing import DATA, broker, payloads, sink, task, write

__all__ = ["broker", "sink"]
pytestmark = pytest.mark.peer

RETENTIONS = ["workqueue", "interest"]


def make(stream, retention, **more):
    """A stream of that retention with a worker, and what the worker would see."""
    stream.js.delete_stream(stream.name)
    subjects = [f"{stream.name.lower()}.>"]
    stream.js.create_stream(
        StreamConfig(
            name=stream.name, subjects=subjects, retention=retention, storage="memory", **more
        )
    )
    stream.js.create_consumer(
        stream.name, ConsumerConfig(durable_name="worker", ack_policy="explicit")
    )


def seen(stream):
    state = stream.js.stream_info(stream.name).state
    worker = stream.js.consumer_info(stream.name, "worker")
    return (state.messages, state.consumer_count, worker.num_pending, worker.ack_floor.stream_seq)


def batch(stream, **given):
    reader = JetStreamReader(stream.options(**given))
    return seqs_of(reader, reader.partitions())


@pytest.mark.parametrize("retention", RETENTIONS)
@pytest.mark.parametrize("direct", [True, False])
def test_a_batch_takes_nothing(stream, retention, direct):
    make(stream, retention, allow_direct=direct)
    stream.fill(3000)
    stream.js.delete_message(stream.name, 1500)
    before = seen(stream)
    everything = [seq for seq in range(1, 3001) if seq != 1500]
    low = stream.name.lower()
    given = {"includeHeaders": True, "metadata": True}
    assert batch(stream, **given) == everything
    assert batch(stream, transport="get") == everything
    assert batch(stream, subject=f"{low}.1") == list(range(1, 3001, 3))
    ones = batch(stream, subject=f"{low}.1,{low}.2")
    assert ones == [seq for seq in everything if seq % 3]
    middle = stream.js.get_message(stream.name, 2000).timestamp_ns
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(middle / 1e9)) + f".{middle % 10**9:09}Z"
    later = batch(stream, startingOffsets=at[:26] + "Z")
    assert later[-1] == 3000
    assert later[0] <= 2000
    with pytest.raises(
        ReadError, match=f"has {retention} retention: a consumer of this read would"
    ):
        batch(stream, transport="consumer")
    assert seen(stream) == before


@pytest.mark.parametrize("retention", RETENTIONS)
def test_what_a_worker_has_done_with_is_gone(stream, retention, monkeypatch):
    monkeypatch.setattr(streaming, "_POLL_SECONDS", 0.0)
    make(stream, retention)
    stream.fill(20)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 5}
    reader = JetStreamStreamReader(stream.options(streaming=True, **options))
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, reader.getDefaultReadLimit())
    assert seqs_of(reader, reader.partitions(begin, end)) == [1, 2, 3, 4, 5]
    worker = stream.js.consumer(stream.name, "worker")
    for message in worker.fetch(10, timeout=5):
        message.ack_sync()
    worker.close()
    deadline = time.monotonic() + 10
    while stream.js.stream_info(stream.name).state.messages > 10:
        assert time.monotonic() < deadline
    with pytest.raises(DataLossError, match="begins at sequence 11; 6 and later"):
        reader.latestOffset(end, reader.getDefaultReadLimit())
    lenient = JetStreamStreamReader(
        stream.options(streaming=True, failOnDataLoss="false", **options)
    )
    with pytest.warns(UserWarning, match="goes on with the messages that are left"):
        further = lenient.latestOffset(end, lenient.getDefaultReadLimit())
    assert seqs_of(lenient, lenient.partitions(end, further)) == [11, 12, 13, 14, 15]


def test_a_stream_that_may_have_no_more_consumers(stream):
    stream.js.delete_stream(stream.name)
    subjects = [f"{stream.name.lower()}.>"]
    stream.js.create_stream(
        StreamConfig(name=stream.name, subjects=subjects, max_consumers=1, storage="memory")
    )
    stream.js.create_consumer(stream.name, ConsumerConfig(durable_name="only"))
    stream.fill(3000)
    with pytest.warns(UserWarning, match="no consumer can be made to read it"):
        assert batch(stream) == list(range(1, 3001))
    reader = JetStreamReader(stream.options(startingOffsets="2020-01-01T00:00:00Z"))
    with pytest.warns(UserWarning, match="no consumer can be made to read it"):
        assert len(rows_of(reader, reader.partitions())) == 3000


@pytest.mark.parametrize("retention", RETENTIONS)
def test_rows_written_into_them_are_there_once(sink, retention):
    """What nobody has consumed yet is found again, and stays."""
    sink.make(retention=retention, duplicate_window=0.1)
    sink.js.create_consumer(sink.name, ConsumerConfig(durable_name="worker", ack_policy="explicit"))
    with pytest.warns(UserWarning, match=f"{retention} retention"):
        plan = sink.plan(DATA, subject=f"{sink.low}.x")
    with pytest.raises(Killed):
        write_partition(plan, task(), dying(payloads(500), DATA, 50, 5))
    time.sleep(0.2)  # the duplicate window itself is what must pass
    assert write(plan, payloads(500)).rows == 500
    state = sink.js.stream_info(sink.name).state
    assert (state.messages, state.last_seq, state.consumer_count) == (500, 500, 1)
    got = [sink.js.get_message(sink.name, seq).data for seq in range(1, 501)]
    assert got == [b"row %d" % n for n in range(500)]
