"""The sinks inside Spark: batch and streaming, a crash between a write and its commit, a killed
driver, and how errors look.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path

import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import functions as F  # noqa: N812  the name the field knows it by

from pelton.spark.writing.sink import StreamSink, refuse_overwrite
from pelton.spark.writing.writer import JetStreamStreamWriter, plan_write
from tests.spark.jvm import EVERY_WAY
from tests.spark.writing import Sink, broker, needs_atomic, sink
from tests.ways import skip_other_servers

__all__ = ["broker", "sink"]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.peer,
    pytest.mark.timeout(240),
    pytest.mark.filterwarnings("ignore"),
]


def into(writer, target: Sink, **given: object):
    options = {"servers": target.url, "stream": target.name, **given}
    return writer.format("jetstream").options(**options)


def test_a_table_is_written_and_read_back(spark, sink):
    sink.make()
    table = spark.range(0, 20_000, 1, 4).select(
        F.col("id"),
        (F.col("id") % 7).cast("int").alias("device"),
        F.concat(F.lit("row "), F.col("id").cast("string")).alias("data"),
    )
    rows = table.select("device", "data")
    into(rows.write.mode("append"), sink, subject=f"{sink.low}.{{device}}.new").save()
    stored = sink.stored()
    assert sorted(data for _, data in stored) == sorted(b"row %d" % n for n in range(20_000))
    assert all(subject == f"{sink.low}.{int(data[4:]) % 7}.new" for subject, data in stored[::97])
    bucket = sink.js.stream_info("KV_pelton_spark")
    assert bucket.state.messages == 0  # a write without a name leaves no records
    named = into(
        rows.write.mode("append"), sink, subject=f"{sink.low}.{{device}}.new", writeId="job-1"
    )
    named.save()
    named.save()
    assert sink.js.stream_info(sink.name).state.messages == 40_000


def test_buckets_and_object_stores(spark, sink):
    name = sink.name
    sink.js.create_stream(
        _config(f"KV_{name}", [f"$KV.{name}.>"], max_msgs_per_subject=1, allow_rollup_hdrs=True)
    )
    sink.js.create_stream(
        _config(f"OBJ_{name}", [f"$O.{name}.C.>", f"$O.{name}.M.>"], allow_rollup_hdrs=True)
    )
    options = {"servers": sink.url, "bucket": name}
    table = spark.range(100).selectExpr(
        "concat('k.', id) key", "case when id < 90 then cast(id as string) end value"
    )
    table.write.format("jetstream_kv").mode("append").options(**options).save()
    state = spark.read.format("jetstream_kv").options(**options).load()
    assert state.count() == 90
    found = state.where("key = 'k.42'").first()
    assert bytes(found.value) == b"42"
    objects = spark.range(3).selectExpr(
        "concat('o', id) name", "repeat(cast(id as string), 9) data"
    )
    objects.write.format("jetstream_object").mode("append").options(**options).save()
    assert sink.js.stream_info(f"OBJ_{name}").state.messages == 6
    for stream in (f"KV_{name}", f"OBJ_{name}"):
        sink.js.delete_stream(stream)


def _config(name: str, subjects: list[str], **more: object):
    from pelton.client.base.models import StreamConfig

    return StreamConfig(name=name, subjects=subjects, **more)


class FailingWriter(JetStreamStreamWriter):
    """Writes, then dies before Spark notes that the batch is done, if a file says so."""

    def commit(self, messages, batchId):  # noqa: N803  Spark's name
        super().commit(messages, batchId)
        flag = Path(self._plan.options.error_path) / f"fail-{batchId}"
        if flag.exists():
            flag.unlink()
            raise RuntimeError(f"told to fail in batch {batchId}")


class FailingSink(StreamSink):
    """``format("failing_jetstream")``."""

    @classmethod
    def name(cls):
        return "failing_jetstream"

    def streamWriter(self, schema, overwrite):  # noqa: N802  Spark's name
        refuse_overwrite(overwrite)
        return FailingWriter(plan_write(self.options, schema))


@pytest.mark.parametrize("mode", ["ids", "batch"])
def test_a_crash_between_write_and_commit(spark, sink, tmp_path, mode, request):
    """Spark runs the batch again from the same checkpoint, long after the duplicate window."""
    skip_other_servers(request)
    more: dict[str, object] = {"duplicate_window": 0.1}
    if mode == "batch":
        needs_atomic(sink)
        more |= {"allow_atomic": True, "subjects": [f"{sink.low}.>", sink.progress]}
    sink.make(**more)
    source = Sink(sink.client, sink.url, f"{sink.name}IN")
    source.make()
    with source.js.publisher() as publisher:
        for n in range(1000):
            publisher.publish(f"{source.low}.{n % 3}", b"row %d" % n)
    spark.dataSource.register(FailingSink)
    failing = tmp_path / "side"
    failing.mkdir()
    options = {
        "servers": sink.url,
        "stream": sink.name,
        "subject": f"{sink.low}.x",
        "exactlyOnce": mode,
        "onRowError": "side",
        "errorPath": str(failing),
        "checkpointLocation": str(tmp_path / "checkpoint"),
    }

    def run() -> None:
        read = spark.readStream.format("jetstream").options(
            servers=sink.url,
            stream=source.name,
            startingOffsets="earliest",
            maxOffsetsPerTrigger=400,
            minPartitions=2,
        )
        rows = read.load().select("data")
        query = rows.writeStream.format("failing_jetstream").options(**options)
        query.trigger(availableNow=True).start().awaitTermination(120)

    for batch in (0, 1):
        (failing / f"fail-{batch}").touch()
        with pytest.raises(PySparkException, match=f"told to fail in batch {batch}"):
            run()
        time.sleep(0.3)  # the duplicate window itself is what must pass
    run()
    assert sorted(data for _, data in sink.stored()) == sorted(b"row %d" % n for n in range(1000))
    assert sink.js.stream_info(source.name).state.messages == 1000
    sink.js.delete_stream(source.name)


JOB = """
import sys
from pelton.spark.session import session

servers, source, target, low, mode, checkpoint = sys.argv[1:]
spark = session("job")
rows = spark.readStream.format("jetstream").options(
    servers=servers, stream=source, startingOffsets="earliest", maxOffsetsPerTrigger=20000,
    minPartitions=2,
).load().select("data")
query = rows.writeStream.format("jetstream").options(
    servers=servers, stream=target, subject=low + ".x", exactlyOnce=mode,
    checkpointLocation=checkpoint,
).trigger(availableNow=True).start()
print("begun", flush=True)
query.awaitTermination()
print("done", flush=True)
"""


@EVERY_WAY  # the small run of test_exact.py kills a writing driver, too, and compares more
@pytest.mark.timeout(600)  # two JVMs are started, one after the other
@pytest.mark.parametrize("mode", ["ids", "batch"])
def test_a_driver_is_killed_in_mid_batch(sink, tmp_path, mode, request):
    skip_other_servers(request)
    more: dict[str, object] = {"duplicate_window": 0.1}
    if mode == "batch":
        needs_atomic(sink)
        more |= {"allow_atomic": True, "subjects": [f"{sink.low}.>", sink.progress]}
    sink.make(**more)
    source = Sink(sink.client, sink.url, f"{sink.name}IN")
    source.make()
    count = 200_000
    with source.js.publisher(window=8192) as publisher:
        for n in range(count):
            publisher.publish(f"{source.low}.x", b"row %d" % n)
    arguments = [sink.url, source.name, sink.name, sink.low, mode, str(tmp_path / "checkpoint")]
    command = [sys.executable, "-W", "ignore", "-c", JOB, *arguments]
    with (tmp_path / "log").open("wb") as log:
        job = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        )
        while sink.js.stream_info(sink.name).state.messages < 30_000:
            assert job.poll() is None, (tmp_path / "log").read_text()[-3000:]
            time.sleep(0.01)
        os.killpg(job.pid, signal.SIGKILL)  # the driver, its JVM, the Python workers
        job.wait()
        time.sleep(0.5)
        assert sink.js.stream_info(sink.name).state.messages < count
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, text=True, check=False)
    assert "done" in done.stdout, (tmp_path / "log").read_text()[-3000:]
    stored = [data for _, data in sink.stored()]
    assert len(stored) == count
    assert set(stored) == {b"row %d" % n for n in range(count)}
    sink.js.delete_stream(source.name)


@pytest.mark.usefixtures("one_server")
def test_errors_say_what_is_wrong(spark, sink):
    rows = spark.range(3).selectExpr("cast(id as string) data")
    for given, wanted in (
        ({"subject": f"{sink.low}.x"}, f"there is no stream {sink.name}"),
        ({"subjet": "x"}, "no option 'subjet'"),
        ({"subject": "a", "servers": "nats://127.0.0.1:1"}, "cannot connect to"),
    ):
        with pytest.raises(PySparkException, match=wanted):
            into(rows.write.mode("append"), sink, **given).save()
    sink.make()
    with pytest.raises(PySparkException, match="use mode append"):
        into(rows.write.mode("overwrite"), sink, subject=f"{sink.low}.x").save()
    with pytest.raises(PySparkException, match="needs a column data"):
        into(spark.range(3).write.mode("append"), sink, subject=f"{sink.low}.x").save()
    bad = rows.selectExpr("data", "case when data = '1' then 'a b' else 'a' end id")
    with pytest.raises(PySparkException, match=r"row \d of partition \d .*no token of a subject"):
        into(bad.write.mode("append"), sink, subject=f"{sink.low}.{{id}}").save()


@pytest.mark.usefixtures("one_server")
def test_a_row_that_cannot_be_written_is_not_tried_again(spark, sink, tmp_path):
    """Neither the task of a batch write nor the one of a micro-batch, though tasks have four tries."""
    sink.make()

    def noted(batches):
        for batch in batches:
            (tmp_path / f"try-{TaskContext.get().attemptNumber()}").touch()
            yield batch

    rows = spark.range(0, 30_000, 1, 1).selectExpr("'x' data", "if(id = 5, 'a b', 'a') id")
    rows = rows.mapInArrow(noted, rows.schema)
    with pytest.raises(PySparkException, match=r"row 5 of partition 0 .*no token of a subject"):
        into(rows.write.mode("append"), sink, subject=f"{sink.low}.{{id}}").save()
    assert [path.name for path in tmp_path.glob("try-*")] == ["try-0"]
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    rows = rate.selectExpr("'x' data", "if(value = 5, 'a b', 'a') id").coalesce(1)
    rows = rows.mapInArrow(noted, rows.schema)
    query = into(
        rows.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")),
        sink,
        subject=f"{sink.low}.{{id}}",
    ).start()
    with pytest.raises(PySparkException, match=r"row \d of partition 0 .*no token of a subject"):
        query.awaitTermination()
    assert [path.name for path in tmp_path.glob("try-*")] == ["try-0"]


def test_what_spark_refuses_is_not_printed_as_json(spark):
    """PySpark's loggers say nothing of what is raised; they would, if the session had not told them."""

    def refused():
        with pytest.raises(PySparkException, match="UNRESOLVED_COLUMN"):
            spark.range(1).select(F.col("nobody"))
        with pytest.raises(PySparkException, match="UNRESOLVED_COLUMN"):
            spark.sql("select no.one")

    loud, quiet = printed(refused, logging.ERROR), printed(refused, None)
    assert '"level": "ERROR"' in loud
    assert quiet == ""


def printed(what, level):
    """What all loggers of PySpark print meanwhile; with a level, or as they are."""
    known = logging.root.manager.loggerDict.values()
    loggers = [each for each in known if isinstance(each, PySparkLogger)]
    kept = [each.level for each in loggers]
    text = StringIO()
    handler = logging.StreamHandler(text)
    for each in loggers:
        each.addHandler(handler)  # as JSON
        each.setLevel(each.level if level is None else level)
    try:
        what()
    finally:
        for each, before in zip(loggers, kept, strict=True):
            each.removeHandler(handler)
            each.setLevel(before)
    return text.getvalue()
