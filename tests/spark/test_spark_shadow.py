"""A query inside Spark with a shadow and a listener: killed between batches, and watched."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pelton.client.base.models import StreamConfig
from pelton.client.sync import connect
from pelton.spark import watch
from pelton.spark.connection import forget_client
from pelton.spark.servers import Servers
from tests.peers import available_servers, running_server
from tests.spark import shadow_job

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]


def committed(checkpoint):
    """The sequence that the commit log of a query has come to."""
    numbers = [int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit()]
    if not numbers:
        return 0
    lines = (checkpoint / "offsets" / str(max(numbers))).read_text().splitlines()
    return json.loads(lines[-1])["seq"]


def run_job(server, checkpoint, batches):
    """One life of the query in a process of its own; returns the exit status."""
    command = [sys.executable, str(ROOT / "tests/spark/shadow_job.py"), server.url, "S"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [*command, str(checkpoint), str(batches)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=250,
    )
    return done.returncode


@pytest.mark.parametrize("kind", available_servers((2, 9))[-1:])
def test_killed_between_batches_the_floor_is_never_ahead_of_the_commit_log(spark, kind, tmp_path):
    checkpoint = tmp_path / "checkpoint"
    with running_server(kind) as server, connect(server.url) as client:
        js = client.jetstream()
        js.create_stream(
            StreamConfig(name="S", subjects=["s"], storage="file", retention="interest")
        )
        js.create_consumer("S", other_consumer())
        for index in range(60):
            js.publish("s", b"%d" % index)
        assert run_job(server, checkpoint, 3) == -9
        log = committed(checkpoint)
        floor = js.consumer_info("S", "query").ack_floor.stream_seq
        assert 0 < log - 10 <= floor <= log  # one batch behind at most
        shadow_job.run(spark, server.url, "S", str(checkpoint), lambda rows, batch: rows.count())
        assert committed(checkpoint) == 60
        info = js.consumer_info("S", "query")
        assert (info.ack_floor.stream_seq, info.num_pending) == (60, 0)


def other_consumer():
    """Somebody else who wants the messages, so that interest holds them before the query runs."""
    from pelton.client.base.models import ConsumerConfig

    return ConsumerConfig(durable_name="other", ack_policy="explicit")


@pytest.mark.usefixtures("one_server")
def test_a_watched_query(spark, server, stream, tmp_path):
    stream.fill(25)
    with connect(server.url) as client:
        subscription = client.subscribe("spark.progress.>")
        client.flush()
        made = watch(spark, server.url)
        rows = (
            spark.readStream.format("jetstream")
            .options(servers=stream.url, stream=stream.name, consumer="watched")
            .options(startingOffsets="earliest", maxOffsetsPerTrigger=10)
            .load()
        )
        query = (
            rows.writeStream.queryName("watched orders")
            .format("noop")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        told = []
        while not told or told[-1]["event"] != "terminated":
            message = subscription.next(30)
            assert message.subject == "spark.progress.watched_orders"
            told.append(json.loads(message.data))
        made.close()
    assert told[0]["event"] == "started"
    batches = [each for each in told if each["event"] == "progress" and each["rows"]]
    assert [each["rows"] for each in batches] == [10, 10, 5]
    assert [each["lag"] for each in batches] == [15, 5, 0]
    info = stream.js.consumer_info(stream.name, "watched")
    assert (info.ack_floor.stream_seq, info.num_pending) == (25, 0)
    assert made.failures == 0
    forget_client(Servers(urls=(server.url,)))


@pytest.mark.usefixtures("one_server")
def test_a_bucket_as_a_table_and_as_a_stream(spark, server, stream, tmp_path):
    subjects = ["$KV.devices.>"]
    stream.js.create_stream(
        StreamConfig(name="KV_devices", subjects=subjects, max_msgs_per_subject=1, storage="memory")
    )
    try:
        for key in ("eu.a", "eu.b", "us.c", "eu.b"):
            stream.js.publish(f"$KV.devices.{key}", key.encode())
        stream.js.publish("$KV.devices.us.c", b"", headers={"KV-Operation": "DEL"})
        options = {"servers": stream.url, "bucket": "devices"}
        table = spark.read.format("jetstream_kv").options(**options).load()
        assert table.columns == ["key", "value", "revision", "created", "operation"]
        found = {row.key: (bytes(row.value), row.revision) for row in table.collect()}
        assert found == {"eu.a": (b"eu.a", 1), "eu.b": (b"eu.b", 4)}
        rows, seen = spark.readStream.format("jetstream_kv").options(**options).load(), []
        for _ in range(2):
            query = (
                rows.writeStream.foreachBatch(
                    lambda batch, _: seen.append(
                        [(row.key, row.operation) for row in batch.orderBy("revision").collect()]
                    )
                )
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination(120)
            stream.js.publish("$KV.devices.eu.a", b"", headers={"KV-Operation": "DEL"})
        assert seen == [[("eu.a", "PUT"), ("eu.b", "PUT")], [("eu.a", "DEL")]]
    finally:
        stream.js.delete_stream("KV_devices")
