"""The source inside Spark: batch, streaming, restart from a checkpoint, and how errors look."""

import json
import os
import threading

import pytest
from deltalake import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812  the name the field knows it by
from pyspark.sql.datasource import DataSource

from pelton.client.sync import connect
from pelton.spark.reading.plan import COLUMNS
from pelton.spark.session import jvm_pid
from pelton.spark.tables import append
from tests.peers import ServerProcess
from tests.spark.servers import Stream

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(240)]


def reading(reader, source, **given):
    options = {"servers": source.url, "stream": source.name, **given}
    if "streamPattern" in given:
        del options["stream"]
    return reader.format("jetstream").options(**options).load()


def test_a_batch_read_with_all_columns(spark, stream):
    stream.fill(1000)
    stream.js.publish(f"{stream.name.lower()}.x", b"last", headers={"K": ["v", "w"]})
    messages = reading(spark.read, stream, minPartitions=4, includeHeaders="true")
    assert messages.columns == ["stream", "seq", "subject", "ts", "headers", "data"]
    assert messages.rdd.getNumPartitions() == 4
    summed = messages.agg(F.count("*"), F.sum("seq"), F.countDistinct("seq")).first()
    assert tuple(summed) == (1001, 1001 * 1002 // 2, 1001)
    last = messages.where("seq = 1001").first()
    assert bytes(last.data) == b"last"
    assert last.headers == {"K": ["v", "w"]}
    assert messages.where("seq = 1").first().headers is None


@pytest.mark.usefixtures("one_server")
def test_filters_of_one_query_are_not_those_of_another(spark, stream):
    """Queries of one DataFrame, one after the other and in one plan: each has its own rows."""
    stream.fill(100)
    rows = reading(spark.read, stream)
    few, many = rows.where("seq <= 10"), rows.where("seq > 80")
    assert rows.count() == 100
    assert few.count() == 10
    assert rows.count() == 100
    seqs = sorted(row.seq for row in few.union(many).collect())
    assert seqs == [*range(1, 11), *range(81, 101)]
    assert sorted(row.seq for row in rows.collect()) == list(range(1, 101))
    rows.createOrReplaceTempView("kept")
    asked = "select (select count(*) from kept where seq <= 10), (select count(*) from kept)"
    for pushing in ("true", "false"):
        spark.conf.set("spark.sql.python.filterPushdown.enabled", pushing)
        assert tuple(spark.sql(asked).first()) == (10, 100)
        assert spark.sql("select * from kept where seq > 97").count() == 3
        assert spark.table("kept").count() == 100
    with pytest.raises(
        Exception, match="option pushdown is 'true', but must be false: Spark gives"
    ):
        reading(spark.read, stream, pushdown="true").count()


@pytest.mark.usefixtures("one_server")
def test_columns_and_schemas(spark, stream):
    stream.fill(3)
    chosen = reading(spark.read, stream, columns="data,seq,size")
    assert chosen.columns == ["data", "seq", "size"]
    assert tuple(chosen.orderBy("seq").first()) == (b"m1", 1, 2)
    every = reading(spark.read, stream, metadata="true", includeHeaders="true")
    assert every.columns == list(COLUMNS)
    assert every.where("ts_ns div 1000 = unix_micros(ts)").count() == 3
    for_schema = spark.read.schema("seq bigint, headers map<string,array<string>>")
    assert [tuple(row) for row in reading(for_schema, stream).orderBy("seq").collect()] == [
        (1, None),
        (2, None),
        (3, None),
    ]
    for schema, text in (
        ("payload binary", "a column 'payload'"),
        ("seq int", "seq as int, but it is bigint"),
        ("seq bigint not null", "seq as not null"),
    ):
        with pytest.raises(PySparkException, match=text):
            reading(spark.read.schema(schema), stream).collect()


@pytest.mark.usefixtures("one_server")
def test_several_streams_in_one_query(spark, stream, family, tmp_path):
    other = family("B")
    stream.fill(30)
    other.fill(10)
    messages = reading(
        spark.readStream,
        stream,
        stream=f"{stream.name},{other.name}",
        startingOffsets=f'{{"{stream.name}": 11, "{other.name}": "earliest"}}',
        maxOffsetsPerTrigger=12,
        columns="stream,seq",
    )
    seen = []

    def sink(rows, batch_id):
        seen.append(sorted((row.stream, row.seq) for row in rows.collect()))

    run_query(messages, sink, tmp_path / "checkpoint")
    assert [len(batch) for batch in seen] == [12, 12, 6]
    assert len([row for row in seen[0] if row[0] == other.name]) == 6
    assert sorted(row for batch in seen for row in batch) == sorted(
        [(stream.name, seq) for seq in range(11, 31)] + [(other.name, seq) for seq in range(1, 11)]
    )
    # Another stream joins on the same checkpoint.
    late = family("C")
    late.fill(2)
    seen.clear()
    several = reading(
        spark.readStream, stream, streamPattern=f"{stream.name}.*", columns="stream,seq"
    )
    query = run_query(several, sink, tmp_path / "checkpoint")
    assert seen == [[(late.name, 1), (late.name, 2)]]
    ends = json.loads(query.lastProgress["sources"][0]["latestOffset"])
    assert {name: end["seq"] for name, end in ends.items()} == {
        stream.name: 30,
        other.name: 10,
        late.name: 2,
    }


@pytest.mark.usefixtures("one_server")
def test_an_empty_batch_read(spark, stream):
    assert reading(spark.read, stream).count() == 0
    stream.fill(5)
    assert reading(spark.read, stream, startingOffsets=6).count() == 0


class Sink:
    """Collects the sequences of each micro-batch; fails when told to, before the batch counts as
    done.
    """

    def __init__(self):
        self.batches = {}
        self.fail_at = None

    def __call__(self, rows, batch_id):
        self.batches.setdefault(batch_id, []).append(
            sorted(row.seq for row in rows.select("seq").collect())
        )
        if self.fail_at == batch_id:
            raise RuntimeError("told to fail")


def run_query(messages, sink, checkpoint):
    query = (
        messages.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    return query


@pytest.mark.usefixtures("one_server")
def test_available_now_then_a_failure_then_a_restart(spark, stream, tmp_path):
    stream.fill(25)
    sink = Sink()
    messages = reading(
        spark.readStream, stream, startingOffsets="earliest", maxOffsetsPerTrigger=10
    )
    run_query(messages, sink, tmp_path / "checkpoint")
    assert [batch for [batch] in sink.batches.values()] == [
        list(range(1, 11)),
        list(range(11, 21)),
        list(range(21, 26)),
    ]
    stream.fill(10)
    sink.fail_at = 3
    with pytest.raises(PySparkException, match="told to fail"):
        run_query(messages, sink, tmp_path / "checkpoint")
    sink.fail_at = None
    stream.fill(5)
    run_query(messages, sink, tmp_path / "checkpoint")
    assert sink.batches[3] == [list(range(26, 36))] * 2
    assert sink.batches[4] == [list(range(36, 41))]


def test_a_running_query_follows_the_stream_and_idles_cheaply(spark, stream, tmp_path):
    seen, arrived = [], threading.Event()

    def sink(rows, batch_id):
        seen.extend(row.seq for row in rows.select("seq").collect())
        if len(seen) >= 20:
            arrived.set()

    messages = reading(spark.readStream, stream, startingOffsets="earliest")
    query = (
        messages.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        stream.fill(10)
        query.processAllAvailable()
        stream.fill(10)
        assert arrived.wait(30)
        assert seen == list(range(1, 21))
        query.processAllAvailable()
        progress = query.lastProgress
        assert '"seq":20' in progress["sources"][0]["endOffset"].replace(" ", "")
    finally:
        query.stop()


def test_a_server_is_restarted_and_a_stream_made_again_under_a_query(spark, server, tmp_path):
    own = ServerProcess(server.kind)
    own.start()
    try:
        with connect(own.url) as client:
            source = Stream(client, own.url, "R", storage="file")
            source.fill(10)
        seen = []

        def sink(rows, batch_id):
            seen.extend(row.seq for row in rows.select("seq").collect())

        messages = reading(
            spark.readStream, source, startingOffsets="earliest", requestTimeout="2s"
        )
        query = (
            messages.writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        query.processAllAvailable()
        own.stop(kill=True)
        own.start()
        with connect(own.url) as client:
            source.js = client.jetstream()
            source.fill(10)
        query.processAllAvailable()
        assert seen == list(range(1, 21))
        with connect(own.url) as client:
            Stream(client, own.url, "R", storage="file").fill(30)
        # The query may look between the two.
        told = "stream R was deleted and created again|stream R, read up to 20, is not there"
        with pytest.raises(PySparkException, match=told):
            query.awaitTermination(60)
        assert seen == list(range(1, 21))
    finally:
        own.remove()


@pytest.mark.usefixtures("one_server")
def test_errors_say_what_is_wrong(spark, stream):
    for given, wanted in (
        ({"sartingOffsets": "1"}, "no option 'sartingoffsets'"),
        ({"startingOffsets": "soon"}, "must be earliest, latest"),
        ({"stream": "NOBODY"}, "there is no stream NOBODY"),
        ({"startingOffsets": 7}, "startingOffsets is 7, but stream .* ends at 0"),
        ({"servers": "nats://127.0.0.1:1"}, "cannot connect"),
    ):
        with pytest.raises(PySparkException, match=wanted):
            reading(spark.read, stream, **given).collect()


@pytest.mark.usefixtures("one_server")
def test_tables_take_batches_from_executors(spark, stream, tmp_path):
    stream.fill(500)
    rows = reading(spark.read, stream, minPartitions=3).select("seq", "subject", "data")
    for _ in range(2):
        append(rows, 0, tmp_path / "t", query_id="q")
    table = DeltaTable(tmp_path / "t")
    assert len(table.file_uris()) == 3
    assert sorted(table.to_pyarrow_table()["seq"].to_pylist()) == list(range(1, 501))


class Registered(DataSource):
    """A format that is only there where it was registered."""

    @classmethod
    def name(cls):
        return "registered"

    def schema(self):
        return "seq long"


@pytest.mark.usefixtures("one_server")
def test_spark_finds_the_format_by_itself(spark, stream):
    """A session in which nothing was registered knows formats only by looking for them."""
    stream.fill(7)
    spark.dataSource.register(Registered)
    other = spark.newSession()
    with pytest.raises(Py4JJavaError, match="Failed to find the data source: registered"):
        other.read.format("registered").load()
    assert reading(other.read, stream).count() == 7


def test_the_session_is_quiet_and_its_jvm_is_known(spark):
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    pid = jvm_pid(spark)
    assert pid is not None
    assert os.path.exists(f"/proc/{pid}")


def test_a_table_of_the_catalog_is_refused_with_the_view_to_write(spark, stream, tmp_path):
    """Spark gives a Python format no options when it reads such a table."""
    stream.fill(5)
    options = f"servers '{stream.url}', stream '{stream.name}'"
    with pytest.raises(Exception, match="CREATE TEMPORARY VIEW"):
        spark.sql(f"create table kept_forever using jetstream options ({options})")
    with pytest.raises(Exception, match="CREATE TEMPORARY VIEW"):
        spark.sql(f"create table t using jetstream_delta location '{tmp_path}/t'")
    spark.sql("create table typed (seq bigint) using jetstream_delta")
    try:
        with pytest.raises(Exception, match="CREATE TEMPORARY VIEW"):
            spark.sql("select * from typed").count()
    finally:
        spark.sql("drop table typed")
    spark.sql(f"create or replace temporary view seen using jetstream options ({options})")
    assert spark.sql("select count(*) from seen").first()[0] == 5
    spark.catalog.dropTempView("seen")
