"""Time reading a stream as a Spark batch, beside a loop of nats-py pull fetches on the same server.

    .venv/bin/python bench/bench_spark.py                    a penstock-server of this environment
    .venv/bin/python bench/bench_spark.py --url nats://...   any server with JetStream

Fills a stream with 128-byte messages, reads all of it into Spark's no-op sink on local[2] (the first
read of a session starts Spark's workers and is told apart), reads some of it with nats-py's `fetch`
and scales that to the whole, and takes the time of micro-batches of one message.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from contextlib import nullcontext

import nats

from penstock.client import StreamConfig, connect_blocking
from penstock.spark.session import end_session, session
from penstock.testing import LocalServer

STREAM = "SPARKBENCH"
PAYLOAD = b"x" * 128


def fill(url: str, count: int) -> None:
    """A new stream with that many messages."""
    with connect_blocking(url) as client:
        jetstream = client.jetstream()
        if any(name == STREAM for name in jetstream.stream_names()):
            jetstream.delete_stream(STREAM)
        jetstream.create_stream(StreamConfig(name=STREAM, subjects=["sparkbench.>"]))
        with jetstream.publisher(window=4096) as publisher:
            for number in range(count):
                publisher.publish(f"sparkbench.{number % 100}", PAYLOAD)


async def fetch_rate(url: str, count: int) -> float:
    """Messages per second of a nats-py loop: fetch 1000, ack each."""
    client = await nats.connect(url)
    pull = await client.jetstream().pull_subscribe("sparkbench.>", None, stream=STREAM)
    begin = time.perf_counter()
    done = 0
    while done < count:
        for message in await pull.fetch(1000, timeout=5):
            await message.ack()
            done += 1
    seconds = time.perf_counter() - begin
    await client.close()
    return done / seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", help="a running server (else one is started)")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--fetched", type=int, default=50_000, help="messages for the nats-py loop")
    arguments = parser.parse_args()
    with LocalServer() if arguments.url is None else nullcontext() as local:
        url = arguments.url or local.url
        fill(url, arguments.messages)
        rate = asyncio.run(fetch_rate(url, arguments.fetched))
        loop_seconds = arguments.messages / rate
        print(
            f"nats-py fetch loop: {rate:,.0f} messages/s, {loop_seconds:.1f} s for {arguments.messages:,}"
        )
        spark = session("bench")
        try:
            frame = (
                spark.read.format("jetstream")
                .option("servers", url)
                .option("stream", STREAM)
                .load()
            )
            times = []
            for _ in range(4):
                begin = time.perf_counter()
                frame.write.format("noop").mode("overwrite").save()
                times.append(time.perf_counter() - begin)
            later = statistics.median(times[1:])
            for what, seconds in (("first", times[0]), ("median of the next 3", later)):
                rows = arguments.messages / seconds
                share = loop_seconds / seconds
                print(f"Spark batch, {what}: {seconds:.2f} s, {rows:,.0f} rows/s, {share:.1f}x")
            stream = (
                spark.readStream.format("jetstream").option("servers", url).option("stream", STREAM)
            )
            with tempfile.TemporaryDirectory() as folder, connect_blocking(url) as client:
                query = (
                    stream.option("startingOffsets", "latest")
                    .load()
                    .writeStream.format("noop")
                    .option("checkpointLocation", folder)
                    .start()
                )
                jetstream = client.jetstream()
                seen = 0
                while seen < 20:
                    jetstream.publish("sparkbench.one", b"x")
                    query.processAllAvailable()
                    seen += 1
                spans = [p["batchDuration"] for p in query.recentProgress if p["numInputRows"]][2:]
                print(
                    f"micro-batch of one message: median {statistics.median(spans):.0f} ms of {len(spans)}"
                )
                query.stop()
        finally:
            end_session(spark)


if __name__ == "__main__":
    main()
