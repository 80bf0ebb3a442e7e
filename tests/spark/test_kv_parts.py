"""The state of a bucket read in parts, and while keys are purged: every key that stays is there once,
whatever a server counts as pending."""

from __future__ import annotations

import pytest

from pelton.client.sync.gets import read_stored
from pelton.spark.buckets import kv_reading
from pelton.spark.buckets.kv_source import KvReader
from tests.spark.test_kv_source import KeyValue, js, rows_of, server

__all__ = ["js", "server"]
pytestmark = pytest.mark.peer


@pytest.fixture
def bucket(js, server):
    made = KeyValue(js, server.url)
    with js.publisher() as publisher:
        for number in range(900):
            region = ("eu", "us", "asia.east")[number % 3]
            publisher.publish(f"$KV.{made.name}.{region}.{number}", b"%d" % number)
    yield made
    js.delete_stream(f"KV_{made.name}")


def keys_of(rows):
    return sorted(row[1] if isinstance(row, tuple) else row["key"] for row in rows)


EVERY = sorted(f"{('eu', 'us', 'asia.east')[number % 3]}.{number}" for number in range(900))


@pytest.mark.parametrize(
    ("keys", "parts", "count"),
    [
        (">", 1, 900),
        ("eu.>,us.>,asia.>", 3, 900),
        ("eu.>,asia.east.*", 2, 600),
        ("eu.>,*.0", 1, 300),
        (",".join(f"eu.{number}" for number in range(0, 60, 3)), None, 20),
    ],
)
def test_patterns_that_share_no_key_are_read_side_by_side(bucket, keys, parts, count):
    reader = KvReader(bucket.options(keys=keys))
    partitions = reader.partitions()
    several = bucket.js.client.server_info.version_at_least(2, 10)
    assert len(partitions) == (parts or (16 if several else 1))
    rows = rows_of(reader, partitions)
    assert len(rows) == count
    assert len(set(keys_of(rows))) == count


def test_a_feed_begins_with_the_state_in_parts(bucket):
    reader = bucket.feed(keys="eu.>,us.>")
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, reader.getDefaultReadLimit())
    partitions = reader.partitions(begin, end)
    assert len(partitions) == 2
    assert len(rows_of(reader, partitions)) == 600
    again = bucket.feed(keys="eu.>,us.>")
    assert rows_of(again, again.partitions(begin, end)) == rows_of(reader, partitions)


@pytest.mark.parametrize("at", [0, 3, 20, 40, 60])
@pytest.mark.parametrize("how", ["subject", "many", "seq", "last"])
def test_keys_are_purged_while_they_are_read(bucket, monkeypatch, at, how):
    monkeypatch.setattr(kv_reading, "_QUIET_SECONDS", 0.3)
    stream = f"KV_{bucket.name}"
    reader = KvReader(bucket.options(batchRows=10))
    [partition] = reader.partitions()
    got: list[str] = []
    for number, batch in enumerate(reader.read(partition)):
        got += batch["key"].to_pylist()
        if number == at:
            if how == "subject":
                bucket.js.purge_stream(stream, filter_subject=f"$KV.{bucket.name}.us.>")
            elif how == "seq":
                bucket.js.purge_stream(stream, seq=700)
            elif how == "last":
                bucket.js.purge_stream(stream, filter_subject=f"$KV.{bucket.name}.asia.east.899")
            else:
                for each in range(0, 900, 9):
                    subject = f"$KV.{bucket.name}.eu.{each}"
                    bucket.js.purge_stream(stream, filter_subject=subject)
    left = {
        row[2].removeprefix(f"$KV.{bucket.name}.")
        for columns in read_stored(bucket.js, stream, 1, 901)
        for row in columns.rows()
    }
    assert left
    assert len(got) == len(set(got))
    assert left <= set(got) <= set(EVERY)
