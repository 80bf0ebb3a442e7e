"""Reading ranges from a real server: what is there, whatever is deleted, purged or restarted
meanwhile.
"""

import time

import pytest

from pelton.client.base.models import StreamConfig
from pelton.spark import connection
from pelton.spark.connection import ReadError, forget_client, stream_state
from pelton.spark.reading import ranges
from pelton.spark.reading.offsets import DataLossError, Range
from pelton.spark.reading.options import parse_options
from pelton.spark.reading.partitions import Part
from pelton.spark.reading.ranges import read_range
from pelton.spark.reading.tasks import plan_of
from tests.peers import ServerProcess

pytestmark = pytest.mark.peer


def born_of(options):
    return stream_state(options.servers, options.streams[0]).born


def plan(options, first, last, born=None):
    [stream] = options.streams
    part = Part(stream, born or born_of(options), Range(first, last))
    return plan_of(part, options, options.subjects)


def read(options, first, last, born=None):
    batches = list(read_range(plan(options, first, last, born)))
    return [row for batch in batches for row in batch.to_pylist()]


def seqs(rows):
    return [row["seq"] for row in rows]


def test_a_range_with_all_columns(stream):
    stream.js.publish(f"{stream.name.lower()}.a", b"one", headers={"K": ["v1", "v2"], "É": "ü"})
    stream.js.publish(f"{stream.name.lower()}.b.c", b"")
    before = time.time()
    rows = read(stream.options(includeHeaders="true"), 1, 2)
    assert [row["subject"] for row in rows] == [
        f"{stream.name.lower()}.a",
        f"{stream.name.lower()}.b.c",
    ]
    assert [row["data"] for row in rows] == [b"one", b""]
    assert dict(rows[0]["headers"]) == {"K": ["v1", "v2"], "É": ["ü"]}
    assert rows[1]["headers"] is None
    assert {row["stream"] for row in rows} == {stream.name}
    assert abs(rows[0]["ts"].timestamp() - before) < 60
    assert "headers" not in read(stream.options(), 1, 1)[0]


def test_headers_that_are_not_utf8(stream):
    client = stream.js.client
    block = b"NATS/1.0\r\nBad: \xff\xfe\r\n\r\n"
    with client._guard:
        client._request(f"{stream.name.lower()}.a", b"x", 5.0, block)
    rows = read(stream.options(includeHeaders="true"), 1, 1)
    assert dict(rows[0]["headers"]) == {"Bad": ["\ufffd\ufffd"]}


@pytest.mark.parametrize(("first", "last"), [(1, 50), (7, 7), (20, 30), (50, 50), (10, 9)])
def test_ranges(stream, first, last):
    stream.fill(50)
    assert seqs(read(stream.options(), first, last)) == list(range(first, last + 1))


def test_batches_are_bounded_in_rows_and_bytes(stream):
    stream.fill(100, size=200_000)
    options = stream.options(batchRows=30)
    batches = list(read_range(plan(options, 1, 100)))
    assert sum(batch.num_rows for batch in batches) == 100
    assert max(batch.num_rows for batch in batches) <= 30
    assert max(batch.nbytes for batch in batches) <= 5 * 2**20


def test_deleted_messages_are_passed_over(stream):
    stream.fill(30)
    for seq in (5, 6, 10, 28, 29, 30):
        stream.js.delete_message(stream.name, seq)
    left = [seq for seq in range(1, 31) if seq not in (5, 6, 10, 28, 29, 30)]
    assert seqs(read(stream.options(), 1, 30)) == left
    assert seqs(read(stream.options(), 5, 6)) == []
    assert seqs(read(stream.options(), 4, 10)) == [4, 7, 8, 9]
    assert seqs(read(stream.options(), 28, 30)) == []


def test_a_subject_filter(stream):
    stream.fill(30)
    options = stream.options(subject=f"{stream.name.lower()}.1")
    assert seqs(read(options, 5, 20)) == [7, 10, 13, 16, 19]
    nothing = stream.options(subject=f"{stream.name.lower()}.none")
    assert read(nothing, 1, 30) == []


def test_purged_before_it_was_read(stream):
    stream.fill(30)
    options = stream.options()
    born = born_of(options)
    stream.js.purge_stream(stream.name, seq=11)
    with pytest.raises(DataLossError, match="from 5 to 10"):
        read(options, 5, 20, born)
    lenient = stream.options(failOnDataLoss="false")
    assert seqs(read(lenient, 5, 20)) == list(range(11, 21))
    stream.js.purge_stream(stream.name)
    with pytest.raises(DataLossError, match="from 5 to 20"):
        read(options, 5, 20, born)
    assert read(lenient, 5, 20) == []


def test_purged_while_it_is_read(stream):
    stream.fill(3000, size=1000)
    options = stream.options(batchRows=10)
    reading = read_range(plan(options, 1, 3000))
    assert next(reading)["seq"].to_pylist() == list(range(1, 11))
    stream.js.purge_stream(stream.name, seq=2900)
    with pytest.raises(DataLossError, match="dropped messages"):
        for _ in reading:
            pass


def test_a_stream_made_again_is_not_the_one_that_was_planned(stream):
    stream.fill(10)
    options = stream.options()
    born = born_of(options)
    stream.js.delete_stream(stream.name)
    stream.js.create_stream(StreamConfig(name=stream.name, subjects=[f"{stream.name.lower()}.>"]))
    with pytest.raises(DataLossError):
        read(options, 1, 10, born)


def test_nothing_is_left_on_the_server(stream):
    stream.fill(100)
    read(stream.options(), 1, 100)
    assert stream.js.consumers(stream.name) == []


def test_errors_are_one_line_with_the_stream(stream, server):
    missing = parse_options({"servers": server.url, "stream": "NOBODY"}, streaming=False)
    with pytest.raises(ReadError, match="no stream NOBODY"):
        stream_state(missing.servers, "NOBODY")
    away = parse_options({"servers": "nats://127.0.0.1:1", "stream": "S"}, streaming=False)
    with pytest.raises(ReadError, match="stream S: cannot connect") as caught:
        stream_state(away.servers, "S")
    assert "\n" not in str(caught.value)


def test_one_connection_is_kept_and_opened_again_when_closed(stream):
    servers = stream.options().servers
    client = connection.client_for(servers)
    assert connection.client_for(stream.options(batchRows=5).servers) is client
    forget_client(servers)
    assert client.closed
    assert connection.client_for(servers) is not client


def test_a_server_restarted_in_the_middle(server):
    own = ServerProcess(server.kind)
    own.start()
    try:
        with connection.connect(own.url) as client:
            js = client.jetstream()
            js.create_stream(StreamConfig(name="R", subjects=["r.>"]))
            with js.publisher() as publisher:
                for number in range(10_000):
                    publisher.publish("r.a", str(number).encode().ljust(4000))
        options = parse_options(
            {"servers": own.url, "stream": "R", "batchRows": "50", "requestTimeout": "2s"},
            streaming=False,
        )
        reading = read_range(plan(options, 1, 10_000))
        got = next(reading)["seq"].to_pylist()
        own.stop(kill=True)
        own.start()
        for batch in reading:
            got += batch["seq"].to_pylist()
        assert got == list(range(1, 10_001))
        forget_client(options.servers)
    finally:
        own.remove()


def test_a_server_that_stays_away_is_an_error_in_time(server, monkeypatch):
    own = ServerProcess(server.kind)
    own.start()
    try:
        with connection.connect(own.url) as client:
            js = client.jetstream()
            js.create_stream(StreamConfig(name="R", subjects=["r.>"]))
            with js.publisher() as publisher:
                for _ in range(500):
                    publisher.publish("r.a", b"x" * 20_000)
        options = parse_options(
            {"servers": own.url, "stream": "R", "batchRows": "10", "retryTimeout": "1s"},
            streaming=False,
        )
        monkeypatch.setattr(ranges, "_RETRY_EVERY_SECONDS", 0.05)
        reading = read_range(plan(options, 1, 500))
        next(reading)
        own.stop(kill=True)
        with pytest.raises(ReadError, match="cannot read on"):
            for _ in reading:
                pass
        forget_client(options.servers)
    finally:
        own.remove()
