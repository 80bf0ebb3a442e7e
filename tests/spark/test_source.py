"""The data source and its batch reader, called as Spark does, without a JVM."""

import time

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from pelton.spark.connection import ReadError
from pelton.spark.parsing import OptionError
from pelton.spark.reading import consumers
from pelton.spark.reading.offsets import DataLossError
from pelton.spark.reading.source import (
    JetStreamDataSource,
    JetStreamReader,
)
from tests.spark.calls import places_of, rows_of, seqs_of

pytestmark = pytest.mark.peer


def test_schema_and_name():
    plain = JetStreamDataSource({"stream": "S"})
    assert plain.name() == "jetstream"
    assert plain.schema().split(", ")[-1] == "data binary"
    assert "headers" not in plain.schema()
    assert "headers map" in JetStreamDataSource({"stream": "S", "includeHeaders": "True"}).schema()
    for call in (JetStreamDataSource({}).schema, lambda: JetStreamDataSource({}).reader(None)):
        with pytest.raises(OptionError, match="stream is missing"):
            call()


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
        assert seqs_of(reader, reader.partitions()) == list(wanted), given
    reader = JetStreamReader(stream.options(maxRecordsPerPartition=3))
    assert len(reader.partitions()) == 7
    assert list(reader.read(None)) == []
    assert list(reader.read(InputPartition(None))) == []


def test_batch_reads_by_time(stream):
    stream.fill(5)
    time.sleep(0.01)  # so that the two halves have different times in microseconds
    stream.fill(5)
    every = JetStreamReader(stream.options())
    stamps = [row["ts"] for row in rows_of(every, every.partitions())]
    middle = stamps[5].isoformat()
    later = JetStreamReader(stream.options(startingOffsets=middle))
    assert seqs_of(later, later.partitions()) == [6, 7, 8, 9, 10]
    earlier = JetStreamReader(stream.options(endingOffsets=middle))
    assert seqs_of(earlier, earlier.partitions()) == [1, 2, 3, 4, 5]


def test_batch_reads_of_a_stream_that_lost_its_begin(stream):
    stream.fill(20)
    stream.js.purge_stream(stream.name, seq=11)
    earliest = JetStreamReader(stream.options())
    assert seqs_of(earliest, earliest.partitions()) == list(range(11, 21))
    with pytest.raises(DataLossError):
        JetStreamReader(stream.options(startingOffsets=5)).partitions()
    lenient = JetStreamReader(stream.options(startingOffsets=5, failOnDataLoss="false"))
    assert seqs_of(lenient, lenient.partitions()) == list(range(11, 21))


def test_a_batch_of_several_streams(stream, family):
    stream.fill(5)
    other = family("B")
    other.fill(3)
    both = f"{stream.name},{other.name}"
    every = [(stream.name, seq) for seq in range(1, 6)] + [(other.name, seq) for seq in range(1, 4)]
    for given, wanted in (
        ({"stream": both}, every),
        ({"streamPattern": f"{stream.name}.*"}, every),
        ({"streamPattern": f"{stream.name}_."}, every[5:]),
        ({"stream": both, "startingOffsets": f'{{"{other.name}": 3}}'}, [*every[:5], every[7]]),
        ({"stream": both, "endingOffsets": f'{{"{stream.name}": 2}}'}, every[:2] + every[5:]),
        ({"stream": both, "minPartitions": 4}, every),
    ):
        reader = JetStreamReader(stream.options(**given))
        assert places_of(reader, reader.partitions()) == wanted, given
    assert len(JetStreamReader(stream.options(stream=both, minPartitions=4)).partitions()) == 4


def test_streams_that_are_not_there(stream):
    with pytest.raises(ReadError, match="there is no stream NOBODY"):
        JetStreamReader(stream.options(stream=f"{stream.name},NOBODY")).partitions()
    with pytest.raises(ReadError, match=r"no streams that match NOBODY_\.\*"):
        JetStreamReader(stream.options(streamPattern="NOBODY_.*")).partitions()
    given = f'{{"{stream.name}_X": 1}}'
    options = stream.options(streamPattern=f"{stream.name}.*", startingOffsets=given)
    with pytest.raises(OptionError, match=f"for {stream.name}_X, but there is no such stream"):
        JetStreamReader(options).partitions()


def test_offsets_beyond_the_end(stream):
    stream.fill(5)
    with pytest.raises(OptionError, match=f"is 7, but stream {stream.name} ends at 5"):
        JetStreamReader(stream.options(startingOffsets=7)).partitions()
    beyond = JetStreamReader(stream.options(endingOffsets=1000))
    assert seqs_of(beyond, beyond.partitions()) == [1, 2, 3, 4, 5]
    for given in ("9999-12-31", "2300-01-01", "2090-01-01"):
        later = JetStreamReader(stream.options(startingOffsets=given))
        assert later.partitions() == []
    earlier = JetStreamReader(stream.options(startingOffsets="1905-01-01"))
    assert seqs_of(earlier, earlier.partitions()) == [1, 2, 3, 4, 5]


def test_several_subjects(stream):
    stream.fill(12, tokens=4)
    head = stream.name.lower()
    for given, wanted in (
        (f"{head}.1, {head}.3", [1, 3, 5, 7, 9, 11]),
        (f"{head}.*,{head}.1", list(range(1, 13))),
        (f"*.2,{head}.2,{head}.0", [2, 4, 6, 8, 10, 12]),
        # Two that overlap, and neither has the other in it.
        (f"*.2,{head}.*.x", [2, 6, 10]),
        (f"{head}.none,{head}.nothing", []),
    ):
        reader = JetStreamReader(stream.options(subject=given))
        assert seqs_of(reader, reader.partitions()) == wanted, given


def test_filters_that_overlap_are_sorted_out_here(stream):
    head = stream.name.lower()
    for subject in (f"{head}.a.x", f"{head}.b.y", f"{head}.a.y", f"{head}.c"):
        stream.js.publish(subject, b"x")
    given = f"{head}.a.*,*.*.y"
    reader = JetStreamReader(stream.options(subject=given, columns="seq"))
    assert rows_of(reader, reader.partitions()) == [{"seq": 1}, {"seq": 2}, {"seq": 3}]


def test_a_server_that_takes_one_filter_only(stream, monkeypatch):
    """As nats-server before 2.10, which ignores a list of filters."""
    stream.fill(12, tokens=4)
    head = stream.name.lower()
    reader = JetStreamReader(
        stream.options(subject=f"{head}.1,{head}.3", transport="consumer", columns="seq")
    )
    asked = []
    monkeypatch.setattr(consumers, "SEVERAL_FILTERS", (1000, 0))
    monkeypatch.setattr(
        consumers.bulk,
        "_range_consumer",
        lambda *given, made=consumers.bulk._range_consumer: asked.append(given) or made(*given),
    )
    assert seqs_of(reader, reader.partitions()) == [1, 3, 5, 7, 9, 11]
    assert [filters for given in asked for filters in given if isinstance(filters, list)] == [
        [f"{head}.>"]
    ]


def test_columns_in_the_order_asked_for(stream):
    stream.js.publish(f"{stream.name.lower()}.a", b"abc", headers={"K": "v"})
    reader = JetStreamReader(stream.options(columns="data,size,seq,headers,born,stream"))
    [row] = rows_of(reader, reader.partitions())
    assert list(row) == ["data", "size", "seq", "headers", "born", "stream"]
    assert (row["data"], row["seq"], row["stream"]) == (b"abc", 1, stream.name)
    assert dict(row["headers"]) == {"K": ["v"]}
    assert row["size"] == len(b"NATS/1.0\r\nK: v\r\n\r\n") + 3
    assert row["born"].startswith("20")
    reader = JetStreamReader(stream.options(metadata="true"))
    [row] = rows_of(reader, reader.partitions())
    assert row["ts_ns"] // 1000 == round(row["ts"].timestamp() * 1_000_000)


def test_a_schema_of_the_user_chooses_columns(stream):
    stream.fill(2)
    source = JetStreamDataSource({"stream": stream.name, "servers": stream.url})
    schema = StructType().add("data", "binary").add("seq", "long")
    reader = source.reader(schema)
    assert rows_of(reader, reader.partitions()) == [
        {"data": b"m1", "seq": 1},
        {"data": b"m2", "seq": 2},
    ]
