"""Rows into object stores, without Spark, over each kind of server; nats-py reads what is there."""

from __future__ import annotations

import asyncio
import contextlib
import os

import nats
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from pelton.spark.buckets.object_sink import nuid_of, plan_object_write, write_objects
from pelton.spark.parsing import OptionError
from pelton.spark.writing.row_errors import WriteError
from tests.spark.writing import Sink, batches, broker, sink, task

__all__ = ["broker", "sink"]
pytestmark = pytest.mark.peer

SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("data", pa.binary()),
        ("description", pa.string()),
        ("headers", pa.map_(pa.string(), pa.list_(pa.string()))),
    ]
)


def store(sink: Sink) -> str:
    """An object store as clients make them."""
    name = sink.name
    sink.name = f"OBJ_{name}"
    subjects = [f"$O.{name}.C.>", f"$O.{name}.M.>"]
    sink.make(subjects=subjects, discard="new", allow_rollup_hdrs=True, allow_direct=True)
    return name


def plan(sink: Sink, name: str, **given: object):
    options = {"servers": sink.url, "bucket": name, "retryTimeout": "10s"}
    options.update({option: str(value) for option, value in given.items()})
    return plan_object_write(options, from_arrow_schema(SCHEMA))


def row(name: object, data: object, **more: object) -> dict[str, object]:
    return {"name": name, "data": data, "description": None, "headers": None, **more}


def read(url: str, name: str, *names: str) -> list:
    """What nats-py gets of these objects; it checks the digests."""

    async def look() -> list:
        nc = await nats.connect(url)
        objects = await nc.jetstream().object_store(name)
        found = []
        for one in names:
            got = None
            with contextlib.suppress(Exception):
                got = await objects.get(one)
            found.append(got)
        await nc.close()
        return found

    return asyncio.run(look())


def test_rows_become_objects_that_others_read(sink):
    name = store(sink)
    large = os.urandom(1_000_000)
    rows = [
        row("large", large, description="noise", headers=[("K", ["v", "w"])]),
        row("empty", b""),
        row("a/b ü.txt", b"text"),
    ]
    written = write_objects(plan(sink, name), task(), batches(rows, SCHEMA))
    assert (written.rows, written.already, written.refused) == (3, 0, 0)
    got, empty, text = read(sink.url, name, "large", "empty", "a/b ü.txt")
    assert got.data == large
    assert (got.info.size, got.info.chunks, got.info.description) == (1_000_000, 8, "noise")
    assert got.info.headers == {"K": ["v", "w"]}
    assert (empty.info.size, empty.info.chunks) == (0, 0)
    assert empty.data == b""
    assert text.data == b"text"


def test_run_again_it_writes_nothing_and_cut_off_chunks_go(sink):
    name = store(sink)
    given = plan(sink, name, chunkSize="1k")
    rows = [row(f"o{n}", b"%d" % n * 5000) for n in range(4)]
    for _ in range(3):  # left behind by an attempt that was cut off
        sink.js.publish(f"$O.{name}.C.{nuid_of(task().id + '2')}", b"half")
    write_objects(given, task(), batches(rows, SCHEMA))
    last = sink.js.stream_info(sink.name).state.last_seq
    again = write_objects(given, task(), batches(rows, SCHEMA))
    assert again.already == 4
    assert sink.js.stream_info(sink.name).state.last_seq == last
    assert [got.data for got in read(sink.url, name, "o0", "o2")] == [b"0" * 5000, b"2" * 5000]
    replaced = [row("o0", b"new"), row("o1", None)]
    write_objects(plan(sink, name, nullData="delete"), task(1), batches(replaced, SCHEMA))
    new, deleted = read(sink.url, name, "o0", "o1")
    assert new.data == b"new"
    assert deleted is None
    assert sink.js.stream_info(sink.name).state.messages == 1 + 1 + 1 + 2 * (5 + 1)


def test_what_cannot_be_an_object(sink, tmp_path):
    name = store(sink)
    rows = [row("", b"x"), row("a", None), row("b", b"ok")]
    with pytest.raises(WriteError, match=r"row 0 .*it has no name"):
        write_objects(plan(sink, name), task(), batches(rows, SCHEMA))
    side = plan(sink, name, onRowError="side", errorPath=tmp_path)
    written = write_objects(side, task(), batches(rows, SCHEMA))
    assert (written.rows, written.refused) == (3, 2)
    [path] = tmp_path.iterdir()
    assert pq.read_table(path)["reason"].to_pylist() == ["it has no name", "it has no data"]
    [got] = read(sink.url, name, "b")
    assert got.data == b"ok"


def test_what_cannot_be_is_said_before(sink):
    with pytest.raises(WriteError, match="there is no object store nothere"):
        plan(sink, "nothere")
    with pytest.raises(OptionError, match="chunkSize is '1g'"):
        plan(sink, store(sink), chunkSize="1g")


def test_names_that_are_not_utf8_go_aside(sink, tmp_path):
    name = store(sink)
    rows = [row("a", b"1"), row("b", b"2"), row("c", b"\xff")]
    batch = pa.RecordBatch.from_pylist(rows, SCHEMA)
    raw = pa.array([b"a", b"b\xff", b"c"], pa.binary())
    names = pa.Array.from_buffers(pa.string(), 3, raw.buffers())
    batch = batch.set_column(0, SCHEMA.field(0), names)
    side = {"onRowError": "side", "errorPath": tmp_path}
    written = write_objects(plan(sink, name, **side), task(), [batch])
    assert (written.rows, written.refused) == (3, 1)
    [path] = tmp_path.iterdir()
    assert pq.read_table(path)["reason"].to_pylist() == ["column name is not UTF-8: b'b\\xff'"]
    with pytest.raises(WriteError, match="column name is not UTF-8"):
        write_objects(plan(sink, name), task(1), [batch])
