"""Rows and streams that are not as they should be, in every way of writing: what is wrong with one row
is told of that row, what is wrong with the stream ends the write, and nothing is lost in silence."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from pelton.client.base.models import StreamConfig
from pelton.client.sync import connect
from pelton.spark.connection import forget_client
from pelton.spark.reading.options import parse_options
from pelton.spark.reading.source import JetStreamReader
from pelton.spark.writing.row_errors import WriteError
from pelton.spark.writing.writer import plan_write, write_partition
from tests.peers import ServerProcess, available_servers
from tests.spark.writing import (
    DATA,
    Sink,
    batches,
    broker,
    needs_atomic,
    payloads,
    sink,
    task,
    write,
)

__all__ = ["broker", "sink"]
pytestmark = pytest.mark.peer

MODES = ["ids", "batch", "none"]
ROWS = pa.schema(
    [
        ("data", pa.binary()),
        ("subject", pa.string()),
        ("headers", pa.map_(pa.string(), pa.list_(pa.string()))),
        ("msg_id", pa.string()),
    ]
)


def made(sink: Sink, mode: str, **config: object) -> dict[str, object]:
    subjects = [f"{sink.low}.>"]
    if mode == "batch":
        needs_atomic(sink)
        sink.make(subjects=[*subjects, sink.progress], allow_atomic=True, **config)
    else:
        sink.make(**config)
    return {"exactlyOnce": mode, "subject": f"{sink.low}.x"}


def row(**given: object) -> dict[str, object]:
    return {"data": b"x", "subject": None, "headers": None, "msg_id": None, **given}


BAD = [
    ({"data": bytes(2**20 + 1)}, "1048577|1048[0-9]+ bytes of headers and data, but only 1048576"),
    ({"headers": [("K", ["a\r\nNats-Msg-Id: stolen"])]}, "header"),
    ({"headers": [("K", ["a\nb"])]}, "header"),
    ({"headers": [("K\r\nL", ["a"])]}, "header"),
    ({"headers": [("K:", ["a"])]}, "header"),
    ({"headers": [("", ["a"])]}, "header"),
    ({"msg_id": "a\nb"}, "Nats-Msg-Id would be"),
    ({"msg_id": ""}, "Nats-Msg-Id would be"),
    ({"subject": ""}, "none that can be published to|no subject"),
    ({"subject": "a b"}, "none that can be published to"),
    ({"subject": "a\r\nPUB b 0"}, "none that can be published to"),
    ({"subject": "a..b"}, "none that can be published to"),
    ({"subject": "a.>"}, "none that can be published to"),
    ({"subject": "a." + "x" * 5000}, "its subject has 5002 bytes, more than a server takes"),
]


@pytest.mark.parametrize("mode", MODES)
def test_rows_that_are_no_messages(sink, mode, tmp_path):
    given = made(sink, mode)
    table = [row(data=b"before"), *(row(**wrong) for wrong, _ in BAD), row(data=None)]
    side = {"onRowError": "side", "errorPath": tmp_path}
    written = write(sink.plan(ROWS, **given, **side), table, ROWS)
    assert (written.rows, written.refused) == (len(table), len(BAD))
    assert sink.stored() == [(f"{sink.low}.x", b"before"), (f"{sink.low}.x", b"")]
    [path] = tmp_path.iterdir()
    reasons = pq.read_table(path).sort_by("row").to_pylist()
    assert [one["row"] for one in reasons] == list(range(1, len(BAD) + 1))
    for number, (wrong, text) in enumerate(BAD, 1):
        with pytest.raises(WriteError, match=f"row {0} of .*({text})") as caught:
            write(sink.plan(ROWS, **given), [row(**wrong)], ROWS, of=task(number))
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("mode", MODES)
def test_texts_that_are_not_utf8(sink, mode, tmp_path):
    given = made(sink, mode)
    given.pop("subject")
    raw = ROWS.set(1, pa.field("subject", pa.binary())).set(3, pa.field("msg_id", pa.binary()))
    maps = pa.map_(pa.string(), pa.list_(pa.binary()))
    raw = raw.set(0, pa.field("data", pa.binary())).set(2, pa.field("headers", maps))
    x = f"{sink.low}.x".encode()
    rows = [
        row(subject=x, data=b"\xff first"),
        row(subject=x + b"\xff"),
        row(subject=x, msg_id=b"\xed\xa0\x80"),
        row(subject=x, headers=[("K", [b"\xfe"])]),
        row(subject=x, data=b"last"),
    ]
    columns = [
        column if kind.equals(column.type) else _as_text(column, kind)
        for column, kind in zip(pa.Table.from_pylist(rows, raw).columns, ROWS.types, strict=True)
    ]
    batch = pa.RecordBatch.from_arrays([one.combine_chunks() for one in columns], schema=ROWS)
    side = {"onRowError": "side", "errorPath": tmp_path}
    written = write_partition(sink.plan(ROWS, **given, **side), task(), [batch])
    assert (written.rows, written.refused) == (5, 3)
    assert [data for _, data in sink.stored()] == [b"\xff first", b"last"]
    [path] = tmp_path.iterdir()
    found = pq.read_table(path).sort_by("row").to_pylist()
    columns = ("subject", "msg_id", "headers")
    for one, number, column in zip(found, (1, 2, 3), columns, strict=True):
        assert one["row"] == number
        assert one["reason"].startswith(f"column {column} ")
        assert "UTF-8" in one["reason"]
    if mode != "none":
        write_partition(sink.plan(ROWS, **given, **side), task(), [batch])
        assert [data for _, data in sink.stored()] == [b"\xff first", b"last"]
    with pytest.raises(WriteError, match=r"row 1 of .* column subject is not UTF-8"):
        write_partition(sink.plan(ROWS, **given), task(9), [batch])


def _as_text(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """The same bytes as texts, whatever they are."""
    [array] = column.chunks
    if pa.types.is_string(kind):
        return pa.chunked_array([pa.Array.from_buffers(kind, len(array), array.buffers())])
    values = array.items.values
    texts = pa.Array.from_buffers(pa.string(), len(values), values.buffers())
    lists = pa.ListArray.from_arrays(array.items.offsets, texts)
    offsets = array.offsets.to_pylist()
    starts = [
        None if missing else at
        for at, missing in zip(offsets, [*array.is_null().to_pylist(), False], strict=True)
    ]
    made = pa.MapArray.from_arrays(pa.array(starts, pa.int32()), array.keys, lists)
    return pa.chunked_array([made])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"max_bytes": 20_000}, "maximum bytes exceeded"),
        ({"max_msgs": 20}, "maximum messages exceeded"),
    ],
)
def test_a_full_stream_ends_the_write(sink, mode, config, text, tmp_path):
    given = made(sink, mode, discard="new", **config)
    side = {"onRowError": "side", "errorPath": tmp_path, "atomicRows": 11}
    with pytest.raises(WriteError, match=text):
        write(sink.plan(DATA, **given, **side), ({"data": bytes(400)} for _ in range(200)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", MODES)
def test_a_stream_that_is_sealed(sink, mode):
    given = made(sink, mode)
    plan = sink.plan(DATA, **given)
    write(plan, payloads(10))
    config = sink.js.stream_info(sink.name).config
    config.sealed = True
    sink.js.update_stream(config)
    with pytest.raises(WriteError, match="is sealed and takes no messages"):
        sink.plan(DATA, **given)
    with pytest.raises(WriteError, match="sealed") as caught:
        write(plan, payloads(10), of=task(1))
    assert "\n" not in str(caught.value)
    options = parse_options({"servers": sink.url, "stream": sink.name}, streaming=False)
    reader = JetStreamReader(options)
    held = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert sum(len(batch) for batch in held) >= 10
    forget_client(options.servers)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("again", [False, True])
def test_a_stream_that_goes_while_it_is_written(sink, mode, again):
    given = made(sink, mode)
    plan = sink.plan(
        DATA, **given, atomicRows=20, maxInFlight=32, retryTimeout="1s", requestTimeout="1s"
    )

    def goes():
        for number, batch in enumerate(batches(payloads(500), DATA, 50)):
            if number == 5:
                config = sink.js.stream_info(sink.name).config
                sink.js.delete_stream(sink.name)
                if again:
                    sink.js.create_stream(config)
            yield batch

    with pytest.raises(WriteError, match=f"stream {sink.name}") as caught:
        write_partition(plan, task(), goes())
    assert "\n" not in str(caught.value)
    if again and mode != "none":
        write(sink.plan(DATA, **given), payloads(500))
        assert {data for _, data in sink.stored()} == {b"row %d" % n for n in range(500)}


@pytest.mark.slow
@pytest.mark.parametrize("kind", available_servers((2, 9)))
def test_a_server_in_lame_duck_mode(kind, tmp_path: Path):
    config = tmp_path / "duck.conf"
    config.write_text('lame_duck_duration: "30s"\nlame_duck_grace_period: "1s"\n')
    own = ServerProcess(kind, arguments=["-c", str(config)])
    own.start()
    try:
        with connect(own.url) as client:
            js = client.jetstream()
            js.create_stream(StreamConfig(name="R", subjects=["r.>"]))
            js.create_stream(StreamConfig(name="W", subjects=["w.>"]))
            with js.publisher() as publisher:
                for number in range(5000):
                    publisher.publish("r.a", b"%d" % number)
        texts = {"servers": own.url, "retryTimeout": "60s", "requestTimeout": "2s"}
        reader = JetStreamReader(
            parse_options(
                {**texts, "stream": "R", "transport": "consumer", "batchRows": "50"},
                streaming=False,
            )
        )
        [part] = reader.partitions()
        read: list[int] = []
        half = threading.Event()

        def restarted() -> None:
            assert half.wait(20)
            assert own.process is not None
            own.process.send_signal(signal.SIGUSR2)
            own.process.wait(60)
            own.start()

        thread = threading.Thread(target=restarted)
        thread.start()
        # A connection of its own, as it is another process in Spark.
        given = {**texts, "requestTimeout": "3s", "stream": "W", "subject": "w.a"}
        plan = plan_write(given, from_arrow_schema(DATA))

        def rows():
            for batch in reader.read(part):
                read.extend(batch["seq"].to_pylist())
                if len(read) > 1000:
                    half.set()
                yield pa.RecordBatch.from_arrays([batch["data"]], ["data"])

        assert write_partition(plan, task(), rows()).rows == 5000
        thread.join()
        assert read == list(range(1, 5001))
        with connect(own.url) as client:
            js = client.jetstream()
            found = [
                row[4] for columns in js.read_columns("W", 1, 10_000) for row in columns.rows()
            ]
        # Each row once. What the server took and dropped, and what is sent again for another reason,
        # comes behind what got through.
        assert sorted(map(int, found)) == list(range(5000))
        forget_client(plan.options.servers)
    finally:
        own.remove()
