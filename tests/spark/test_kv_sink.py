"""Rows into buckets, without Spark, over each kind of server; nats-py reads what is there."""

from __future__ import annotations

import asyncio
import time

import nats
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from nats.js.errors import KeyNotFoundError
from pyspark.sql.pandas.types import from_arrow_schema

from pelton.spark.buckets.kv_sink import plan_kv_write
from pelton.spark.parsing import OptionError
from pelton.spark.writing.row_errors import WriteError
from pelton.spark.writing.writer import write_partition
from tests.spark.writing import Sink, batches, broker, sink, task

__all__ = ["broker", "sink"]
pytestmark = pytest.mark.peer

PLAIN = pa.schema([("key", pa.string()), ("value", pa.binary())])
FULL = pa.schema(
    [
        ("key", pa.string()),
        ("value", pa.string()),
        ("operation", pa.string()),
        ("revision", pa.int64()),
    ]
)


def bucket(sink: Sink, history: int = 1, **config: object) -> str:
    """A bucket as clients make them."""
    name = sink.name
    sink.name = f"KV_{name}"
    sink.make(
        subjects=[f"$KV.{name}.>"],
        max_msgs_per_subject=history,
        discard="new",
        allow_rollup_hdrs=True,
        deny_delete=True,
        allow_direct=True,
        **{"duplicate_window": 120, **config},
    )
    return name


def plan(sink: Sink, name: str, schema: pa.Schema, **given: object):
    options = {"servers": sink.url, "bucket": name, "retryTimeout": "10s"}
    options.update({option: str(value) for option, value in given.items()})
    return plan_kv_write(options, from_arrow_schema(schema))


def read(url: str, name: str, keys: list[str]) -> dict[str, object]:
    """What nats-py finds at these keys."""

    async def look() -> dict[str, object]:
        nc = await nats.connect(url)
        store = await nc.jetstream().key_value(name)
        found: dict[str, object] = {}
        for key in keys:
            try:
                found[key] = (await store.get(key)).value
            except KeyNotFoundError:
                found[key] = None
        await nc.close()
        return found

    return asyncio.run(look())


def operation(sink: Sink, name: str, key: str) -> list[str] | None:
    """What the last message of a key says of its operation."""
    found = sink.js.get_message(sink.name, last_by_subject=f"$KV.{name}.{key}")
    return found.headers.get_all("KV-Operation") or None


def rows(*values: tuple) -> list[dict[str, object]]:
    return [
        dict(zip(("key", "value", "operation", "revision"), row, strict=False)) for row in values
    ]


def test_a_table_becomes_the_values_of_keys(sink):
    name = bucket(sink)
    table = rows(("a.b", b"1"), ("a.c", b"2"), ("a.b", b"3"), ("gone", b"4"), ("gone", None))
    written = write_partition(plan(sink, name, PLAIN), task(), batches(table, PLAIN))
    assert (written.rows, written.refused) == (5, 0)
    keys = ["a.b", "a.c", "gone"]
    assert read(sink.url, name, keys) == {"a.b": b"3", "a.c": b"2", "gone": None}
    assert operation(sink, name, "gone") == ["DEL"]


def test_operations_and_revisions(sink, tmp_path):
    name = bucket(sink, history=5)
    given = plan(sink, name, FULL, onRowError="side", errorPath=tmp_path)
    table = rows(
        ("a", "1", "put", 0),
        ("b", "1", None, None),
        ("a", "2", None, 1),
        ("a", "3", None, 1),  # not the last revision any more
        ("b", None, "PURGE", None),
        ("c", None, "put", None),
        ("c", "x", "delete", None),
        ("c", "x", "upsert", None),
        ("c d", "x", None, None),
        (None, "x", None, None),
    )
    written = write_partition(given, task(), batches(table, FULL))
    assert (written.rows, written.refused) == (10, 6)
    assert read(sink.url, name, ["a", "b", "c"]) == {"a": b"2", "b": None, "c": None}
    assert operation(sink, name, "b") == ["PURGE"]
    assert sink.js.stream_info(sink.name).state.messages == 3
    [path] = tmp_path.iterdir()
    side = pq.read_table(path)
    assert sorted(side["row"].to_pylist()) == [3, 5, 6, 7, 8, 9]
    reasons = dict(zip(side["row"].to_pylist(), side["reason"].to_pylist(), strict=True))
    assert "wrong last sequence" in reasons[3]
    assert "has no value" in reasons[5]
    assert "no key" in reasons[8]


@pytest.mark.filterwarnings("ignore:stream .* recognizes a message id")
@pytest.mark.parametrize("history", [1, 3])
@pytest.mark.parametrize("count", [150, 200])
def test_a_write_run_again_does_not_turn_back_what_came_later(sink, history, count):
    """The first rows of the partition are outdone by later ones, and by somebody else; those that
    were not written yet are the newest.
    """
    name = bucket(sink, history=history, duplicate_window=0.1)
    table = rows(*((f"k{n % 7}", b"%d" % n) for n in range(200)))
    given = plan(sink, name, PLAIN, maxInFlight=1)

    class Killed(Exception):
        pass

    def cut(at: int):
        for number, batch in enumerate(batches(table, PLAIN, 50)):
            if number == at:
                raise Killed
            yield batch

    with pytest.raises(Killed):
        write_partition(given, task(), cut(3))
    for n in range(history):
        sink.js.publish(f"$KV.{name}.k3", b"newer %d" % n)
    time.sleep(0.3)  # the duplicate window itself is what must pass
    write_partition(given, task(), batches(table[:count], PLAIN, 50))
    expected = {f"k{n % 7}": b"%d" % n for n in range(count)}
    if count == 150:
        expected["k3"] = b"newer %d" % (history - 1)
    assert read(sink.url, name, sorted(expected)) == expected
    last = sink.js.stream_info(sink.name).state.last_seq
    again = write_partition(given, task(), batches(table[:count], PLAIN, 50))
    assert again.already == count
    assert sink.js.stream_info(sink.name).state.last_seq == last


def test_keys_from_a_pattern(sink):
    name = bucket(sink)
    schema = pa.schema([("country", pa.string()), ("id", pa.int64()), ("value", pa.string())])
    table = [{"country": "de", "id": 7, "value": "x"}]
    given = plan(sink, name, schema, key="{country}.dev-{id}")
    write_partition(given, task(), batches(table, schema))
    assert read(sink.url, name, ["de.dev-7"]) == {"de.dev-7": b"x"}


def test_what_cannot_be_is_said_before(sink):
    with pytest.raises(WriteError, match="there is no bucket nothere"):
        plan(sink, "nothere", PLAIN)
    name = bucket(sink)
    with pytest.raises(OptionError, match="needs a column value"):
        plan(sink, name, pa.schema([("key", pa.string())]))
    with pytest.raises(OptionError, match="no use for column colour"):
        plan(sink, name, PLAIN.append(pa.field("colour", pa.string())))
    with pytest.raises(OptionError, match="column value is int"):
        plan(sink, name, pa.schema([("key", pa.string()), ("value", pa.int32())]))
    with pytest.raises(OptionError, match="exactlyOnce"):
        plan(sink, name, PLAIN, exactlyOnce="batch")
    with pytest.raises(OptionError, match="bucket is missing"):
        plan_kv_write({"servers": sink.url}, from_arrow_schema(PLAIN))


def test_keys_that_are_not_utf8_go_aside(sink, tmp_path):
    name = bucket(sink)
    raw = pa.array([b"a", b"b\xff", b"c"], pa.binary())
    keys = pa.Array.from_buffers(pa.string(), 3, raw.buffers())
    days = pa.array([0, 0, 3_000_000], pa.int32()).cast(pa.date32())
    values = pa.array([b"1", b"2", b"\xff"], pa.binary())
    batch = pa.RecordBatch.from_arrays([keys, values], ["key", "value"])
    side = {"onRowError": "side", "errorPath": tmp_path}
    written = write_partition(plan(sink, name, PLAIN, **side), task(), [batch])
    assert (written.rows, written.refused) == (3, 1)
    assert read(sink.url, name, ["a", "c"]) == {"a": b"1", "c": b"\xff"}
    [path] = tmp_path.iterdir()
    assert pq.read_table(path)["reason"].to_pylist() == ["column key is not UTF-8: b'b\\xff'"]
    by_day = pa.schema([("day", pa.date32()), ("value", pa.binary())])
    batch = pa.RecordBatch.from_arrays([days, values], ["day", "value"])
    written = write_partition(plan(sink, name, by_day, key="d.{day}", **side), task(1), [batch])
    assert (written.rows, written.refused) == (3, 1)
