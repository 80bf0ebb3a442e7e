"""A bucket as a table and as a feed of changes, on every server there is, without a JVM."""

import pickle
import threading
import time
import warnings
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pelton.api.streams import StreamSource
from pelton.client.base.models import StreamConfig
from pelton.client.sync import connect
from pelton.core.protocol.subjects import matches
from pelton.spark.buckets import kv_source
from pelton.spark.buckets.kv_options import parse_kv_options
from pelton.spark.buckets.kv_source import JetStreamKv, KvOffset, KvReader, KvStreamReader
from pelton.spark.connection import ReadError, forget_client
from pelton.spark.parsing import OptionError
from pelton.spark.reading.offsets import DataLossError
from pelton.spark.servers import Servers
from tests.peers import available_servers, running_server, start_server
from tests.ways import length

pytestmark = pytest.mark.peer
names = count(1)


@pytest.fixture(scope="module", params=available_servers((2, 9)))
def server(request):
    started = start_server(request.param)
    yield started
    forget_client(Servers(urls=(started.url,)))
    started.remove()


@pytest.fixture(scope="module")
def js(server):
    with connect(server.url) as client:
        yield client.jetstream()


class KeyValue:
    """A bucket, and a model of what is in it: (revision, key, operation, value) of each change."""

    def __init__(self, js, url, history=1, storage="memory"):
        self.js = js
        self.url = url
        self.name = f"B{next(names)}"
        self.history = history
        self.storage = storage
        self.log = []
        self.create()

    def create(self):
        self.js.create_stream(
            StreamConfig(
                name=f"KV_{self.name}",
                subjects=[f"$KV.{self.name}.>"],
                max_msgs_per_subject=self.history,
                allow_rollup_hdrs=True,
                deny_delete=True,
                discard="new",
                storage=self.storage,
            )
        )

    def put(self, key, value):
        self._change(key, "PUT", value)

    def delete(self, key):
        self._change(key, "DEL", None, {"KV-Operation": "DEL"})

    def purge(self, key):
        self._change(key, "PURGE", None, {"KV-Operation": "PURGE", "Nats-Rollup": "sub"})

    def _change(self, key, operation, value, headers=None):
        ack = self.js.publish(f"$KV.{self.name}.{key}", value or b"", headers=headers)
        self.log.append((ack.seq, key, operation, value))

    def state(self, bound=None, deletes=False, keys=(">",)):
        """What is told of the model at a revision."""
        last = {
            key: (seq, key, op, value) for seq, key, op, value in self.log if seq <= (bound or seq)
        }
        return sorted(
            row
            for row in last.values()
            if (deletes or row[2] == "PUT") and any(matches(row[1], one) for one in keys)
        )

    def options(self, streaming=False, **given_options):
        texts = {name: str(value) for name, value in given_options.items()}
        return parse_kv_options(
            {"servers": self.url, "bucket": self.name, **texts}, streaming=streaming
        )

    def read(self, **given_options):
        reader = KvReader(self.options(**given_options))
        return rows_of(reader, reader.partitions())

    def feed(self, **given_options):
        return KvStreamReader(self.options(streaming=True, **given_options))


def rows_of(reader, partitions):
    """What the partitions hold, read from pickled copies as on executors."""
    rows = []
    for partition in partitions:
        copy, part = pickle.loads(pickle.dumps((reader, partition)))
        for batch in copy.read(part):
            rows += [
                (row["revision"], row["key"], row["operation"], row["value"])
                for row in batch.to_pylist()
            ]
    return rows


@pytest.fixture(params=[1, 4])
def bucket(js, server, request):
    return KeyValue(js, server.url, request.param)


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(kv_source, "_POLL_SECONDS", 0.0)


def filled(bucket):
    for round_ in range(3):
        for key in ("a.x", "a.y", "b.x", "c"):
            bucket.put(key, f"{key} {round_}".encode())
    bucket.delete("a.y")
    bucket.purge("c")
    bucket.put("d", b"")
    return bucket


def test_the_state_is_one_row_for_each_live_key(bucket):
    filled(bucket)
    assert sorted(bucket.read()) == bucket.state()
    assert [row[1] for row in bucket.state()] == ["a.x", "b.x", "d"]
    assert sorted(bucket.read(deletes="true")) == bucket.state(deletes=True)
    for keys in ("a.>", "a.>,c", "a.*,*.x", "d", "nothing.>"):
        patterns = tuple(keys.split(","))
        assert sorted(bucket.read(keys=keys, deletes="true")) == bucket.state(None, True, patterns)
    assert KvReader(bucket.options()).read(None) is not None
    assert rows_of(KvReader(bucket.options()), [None]) == []


def test_small_batches_and_times(bucket):
    filled(bucket)
    reader = KvReader(bucket.options(batchRows=1))
    [partition] = reader.partitions()
    batches = list(reader.read(partition))
    assert [len(batch) for batch in batches] == [1, 1, 1]
    assert batches[0].schema.names == ["key", "value", "revision", "created", "operation"]
    assert all(batch["created"][0].as_py().year >= 2020 for batch in batches)


def test_an_empty_bucket(bucket):
    assert bucket.read() == []
    feed = bucket.feed()
    assert feed.latestOffset(feed.initialOffset(), None) == feed.initialOffset()


def test_what_changes_after_planning_does_not_show_where_there_is_a_history(js, server):
    for history in (1, 4):
        bucket = filled(KeyValue(js, server.url, history))
        planned = bucket.state()
        reader = KvReader(bucket.options())
        partitions = reader.partitions()
        bucket.put("a.x", b"later")
        bucket.delete("b.x")
        bucket.put("new", b"new")
        rows = sorted(rows_of(reader, partitions))
        if history > 1:
            assert rows == planned
        else:  # the later value stands in; a key is never missing because it was changed
            assert rows == bucket.state()


def test_a_state_of_the_past_is_exact_or_an_error(js, server):
    bucket = filled(KeyValue(js, server.url, 4))
    bucket.put("e", b"e")
    bound = bucket.log[-1][0]
    for value in (b"1", b"2", b"3"):
        bucket.put("a.x", value)
        bucket.put("new", value)
    for _ in range(2):
        assert sorted(bucket.read(endingOffsets=bound)) == bucket.state(bound)
    bucket.put("a.x", b"4")
    with pytest.raises(DataLossError, match=r"no longer has the value of key a.x at revision 16"):
        bucket.read(endingOffsets=bound)
    lenient = sorted(bucket.read(endingOffsets=bound, failOnDataLoss="false"))
    assert lenient == [row for row in bucket.state(bound) if row[1] != "a.x"]
    with pytest.raises(OptionError, match="is at revision"):
        bucket.read(endingOffsets=10_000)


def test_many_changed_keys_are_looked_up_together(js, server):
    bucket = KeyValue(js, server.url, 2)
    for index in range(150):
        bucket.put(f"k.{index}", b"old")
    bound = bucket.log[-1][0]
    for index in range(0, 150, 2):
        bucket.put(f"k.{index}", b"new")
    assert sorted(bucket.read(endingOffsets=bound)) == bucket.state(bound)
    assert sorted(bucket.read(endingOffsets=bound, keys="k.1,k.2,k.4")) == bucket.state(
        bound, keys=("k.1", "k.2", "k.4")
    )


CHANGES = st.lists(
    st.tuples(st.sampled_from(["put", "put", "delete", "purge"]), st.sampled_from("abcd")),
    max_size=25,
)


def apply(bucket, changes):
    for index, (operation, key) in enumerate(changes):
        if operation == "put":
            bucket.put(key, b"%d" % index)
        else:
            getattr(bucket, operation)(key)


@settings(max_examples=length(10, 25), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from([1, 2, 5]), CHANGES, CHANGES, st.booleans())
def test_any_changes(js, server, history, before, after, deletes):
    """A state, and a feed that goes on from it: applied in order they give the later state."""
    bucket = KeyValue(js, server.url, history)
    apply(bucket, before)
    assert sorted(bucket.read(deletes=deletes)) == bucket.state(deletes=deletes)
    feed = bucket.feed(deletes=deletes)
    start = feed.initialOffset()
    middle = feed.latestOffset(start, None)
    planned = feed.partitions(start, middle)
    apply(bucket, after)
    first = rows_of(feed, planned)
    end = feed.latestOffset(middle, None)
    rest = rows_of(feed, feed.partitions(middle, end))
    assert [row[0] for row in rest] == sorted(row[0] for row in rest)
    assert len(first) == len({row[1] for row in first})
    built = {row[1]: row for row in [*first, *rest]}
    assert sorted(row for row in built.values() if row[2] == "PUT") == bucket.state()
    js.delete_stream(f"KV_{bucket.name}")


def test_a_feed_has_every_operation_within_limits(js, server):
    bucket = filled(KeyValue(js, server.url, 64))
    feed = bucket.feed(startingOffsets=1, maxOffsetsPerTrigger=4, maxRecordsPerPartition=3)
    offset, told, sizes = feed.initialOffset(), [], []
    while (end := feed.latestOffset(offset, None)) != offset:
        partitions = feed.partitions(offset, end)
        told += rows_of(feed, partitions)
        sizes.append((end["revision"] - offset["revision"], len(partitions)))
        feed.commit(end)
        offset = end
    gone = [row for row in bucket.log if row[1] == "c" and row[2] == "PUT"]  # by the purge
    assert told == [row for row in bucket.log if row not in gone]
    assert sizes == [(4, 2), (4, 2), (4, 2), (3, 1)]
    assert feed.reportLatestOffset()["revision"] == 15
    latest = bucket.feed(startingOffsets="latest")
    assert latest.latestOffset(latest.initialOffset(), None) == latest.initialOffset()
    bucket.put("z", b"z")
    end = latest.latestOffset(offset, None)
    assert rows_of(latest, latest.partitions(offset, end)) == [bucket.log[-1]]


def test_other_keys_make_no_batches(bucket):
    filled(bucket)
    feed = bucket.feed(keys="a.>,b.x")
    start = feed.initialOffset()
    end = feed.latestOffset(start, None)
    bucket.put("elsewhere", b"")
    assert feed.latestOffset(end, None) == end
    bucket.delete("a.x")
    bucket.put("elsewhere", b"")
    last = feed.latestOffset(end, None)
    assert [row[1:3] for row in rows_of(feed, feed.partitions(end, last))] == [("a.x", "DEL")]


def test_available_now_ends_where_the_bucket_was(bucket):
    filled(bucket)
    feed = bucket.feed()
    feed.prepareForTriggerAvailableNow()
    bucket.put("later", b"")
    start = feed.initialOffset()
    end = feed.latestOffset(start, None)
    assert end["revision"] == 15
    assert feed.latestOffset(end, None) == end


def test_a_batch_planned_again_is_the_same(bucket):
    filled(bucket)
    feed = bucket.feed()
    start = feed.initialOffset()
    end = feed.latestOffset(start, None)
    bucket.put("later", b"")
    [first], [again] = feed.partitions(start, end), bucket.feed().partitions(start, end)
    assert (first.range, first.gone) == (again.range, again.gone)
    assert rows_of(feed, [first]) == rows_of(feed, [again])
    assert KvOffset.from_json(end).to_json() == end


def test_a_bucket_made_again(bucket):
    filled(bucket)
    feed = bucket.feed()
    start = feed.initialOffset()
    end = feed.latestOffset(start, None)
    planned = KvReader(bucket.options()).partitions()
    bucket.js.delete_stream(f"KV_{bucket.name}")
    bucket.create()
    bucket.log.clear()
    bucket.put("fresh", b"1")
    for call in (
        lambda: feed.latestOffset(end, None),
        lambda: feed.partitions(start, end),
        lambda: rows_of(feed, planned),
    ):
        with pytest.raises(DataLossError, match="deleted and created again"):
            call()
    lenient = bucket.feed(failOnDataLoss="false")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert lenient.partitions(start, end) == []
        last = lenient.latestOffset(end, None)
        rows = rows_of(lenient, lenient.partitions(end, last))
    assert rows == bucket.log
    assert lenient.latestOffset(last, None) == last


def test_a_checkpoint_of_something_else(bucket):
    feed = bucket.feed()
    with pytest.raises(ValueError, match="not an offset of the jetstream_kv source"):
        feed.latestOffset({"stream": "S", "seq": 1, "born": ""}, None)
    other = {**feed.initialOffset(), "bucket": "OTHER"}
    with pytest.raises(ValueError, match="the checkpoint is of bucket OTHER"):
        feed.latestOffset(other, None)
    with pytest.raises(OptionError, match="is at revision 0"):
        bucket.feed(startingOffsets=9).initialOffset()


def test_what_is_no_bucket(js, server):
    bucket = KeyValue(js, server.url)
    js.create_stream(StreamConfig(name="KV_PLAIN", subjects=["plain.>"], storage="memory"))
    for name, problem in (("NOBODY", "there is no bucket NOBODY"), ("PLAIN", "is not a bucket")):
        with pytest.raises(ReadError, match=problem):
            bucket.read(bucket=name)
    js.delete_stream("KV_PLAIN")
    with pytest.raises(ReadError, match="cannot connect"):
        bucket.read(servers="nats://127.0.0.1:1")


@pytest.mark.parametrize("kind", available_servers((2, 9)))
@pytest.mark.parametrize("history", [1, 3])
def test_a_key_is_told_once_whatever_happens_to_the_read(kind, history):
    with running_server(kind) as server, connect(server.url) as client:
        bucket = KeyValue(client.jetstream(), server.url, history, "file")
        keys = [f"k{index}" for index in range(6000)]
        with bucket.js.publisher() as publisher:
            for key in keys:
                publisher.publish(f"$KV.{bucket.name}.{key}", key.encode())
        options = bucket.options(batchRows=500)
        reader = KvReader(options)
        [partition] = reader.partitions()
        told = {}
        for number, batch in enumerate(reader.read(partition)):
            for row in batch.to_pylist():
                assert row["key"] not in told, "told twice"
                told[row["key"]] = row["value"]
            if number == 2:  # keys told already, and some far ahead
                for index in (0, 1, 700, 5500, 5999):
                    bucket.put(keys[index], b"changed")
                server.stop()
                server.start()
        forget_client(options.servers)
    assert sorted(told) == sorted(keys)
    changed = {key for key, value in told.items() if value == b"changed"}
    assert changed == ({keys[5500], keys[5999]} if history == 1 else set())


RULES = """
authorization { users: [
  { user: a, password: b }
  { user: blind, password: b, permissions: { publish: { deny: "$JS.API.STREAM.INFO.>" } } }
] }
"""


@pytest.mark.parametrize("kind", available_servers((2, 9)))
def test_who_may_not_read(kind, tmp_path):
    config = tmp_path / "server.conf"
    config.write_text(RULES)
    with running_server(kind, "-c", str(config)) as server:
        for given_options, problem in (
            ({}, "cannot connect to .*Authorization Violation"),
            ({"user": "a", "password": "secret"}, "cannot connect to .*Authorization Violation"),
            ({"user": "blind", "password": "b"}, "bucket B: .*Permissions Violation"),
            ({"user": "a", "password": "b"}, "there is no bucket B"),
        ):
            options = {"servers": server.url, "bucket": "B", "requestTimeout": "1s"}
            parsed = parse_kv_options({**options, **given_options}, streaming=False)
            with pytest.raises(ReadError, match=problem) as caught:
                KvReader(parsed).partitions()
            assert "secret" not in str(caught.value)
            forget_client(parsed.servers)


@pytest.mark.parametrize("kind", available_servers((2, 9)))
def test_a_feed_waits_for_its_server(kind):
    with running_server(kind) as server, connect(server.url) as client:
        bucket = filled(KeyValue(client.jetstream(), server.url, 5, "file"))
        feed = bucket.feed(retryTimeout="20s", startingOffsets=1)
        start = feed.initialOffset()
        server.stop()
        starting = threading.Timer(0.3, server.start)
        starting.start()
        end = feed.latestOffset(start, None)
        starting.join()
        assert end["revision"] == 15
        server.stop()
        hasty = bucket.feed(retryTimeout="1s")
        with pytest.raises(ReadError, match="cannot connect"):
            hasty.initialOffset()
        forget_client(bucket.options().servers)


def test_a_bucket_that_goes_while_it_is_read(bucket):
    filled(bucket)
    reader = KvReader(bucket.options())
    planned = reader.partitions()
    bucket.js.delete_stream(f"KV_{bucket.name}")
    with pytest.raises(ReadError, match="there is no bucket"):
        rows_of(reader, planned)


@pytest.mark.parametrize(
    ("headers", "operation"),
    [
        ({"Nats-Marker-Reason": "MaxAge"}, "PURGE"),
        ({"Nats-Marker-Reason": "Purge"}, "PURGE"),
        ({"Nats-Marker-Reason": "Remove"}, "DEL"),
        ({"KV-Operation": "DEL"}, "DEL"),
        ({"Other": "thing"}, "PUT"),
        ({"KV-Operation": "what"}, "PUT"),
    ],
)
def test_operations(js, server, headers, operation):
    bucket = KeyValue(js, server.url)
    js.publish(f"$KV.{bucket.name}.k", b"v", headers=headers)
    [row] = bucket.read(deletes="true")
    assert row == (1, "k", operation, b"v" if operation == "PUT" else None)
    assert len(bucket.read()) == (operation == "PUT")


def test_a_mirror_of_a_bucket(js, server):
    bucket = filled(KeyValue(js, server.url))
    js.create_stream(
        StreamConfig(
            name=f"KV_{bucket.name}M",
            subjects=[],
            mirror=StreamSource(name=f"KV_{bucket.name}"),
            allow_rollup_hdrs=True,
            max_msgs_per_subject=1,
            storage="memory",
        )
    )
    deadline = time.monotonic() + 20
    while js.stream_info(f"KV_{bucket.name}M").state.last_seq < bucket.log[-1][0]:
        assert time.monotonic() < deadline, "the mirror does not follow"
        time.sleep(0.02)
    assert sorted(bucket.read(bucket=f"{bucket.name}M")) == bucket.state()


def test_the_class_spark_finds():
    import pyspark_jetstream_kv

    assert pyspark_jetstream_kv.DefaultSource is JetStreamKv
    assert JetStreamKv.name() == "jetstream_kv"
    with pytest.raises(OptionError, match="bucket is missing"):
        JetStreamKv({}).reader(None)
    with pytest.raises(OptionError, match="bucket is missing"):
        JetStreamKv({}).streamReader(None)
