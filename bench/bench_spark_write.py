"""How fast Spark writes, on this machine, into a Pelton server that it starts.

    python bench/bench_spark_write.py [--rows 1000000] [--rounds 3] [--only ids batch] [--json x.json]

    ids, batch, none   rows into a stream, by `exactlyOnce`; noop: the same rows into Spark's no-op sink
    memory batch       the same into a stream in memory
    delta              rows of a stream into a Delta table, as a stream: the first query of a
                       session, then those after it
    micro-batch        seconds of micro-batches of one row from a stream, by sink: the parts that
                       Spark tells of as well

Runs of a round follow each other, so a machine that is busy for a while is so for all of them.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time

from pelton import StreamConfig
from pelton.spark.session import end_session, session
from pelton.sync import connect
from pelton.testing import LocalServer

PAYLOAD_BYTES = 128
SOURCE = "WRITEBENCH"


class Figures:
    """Figures by row."""

    def __init__(self) -> None:
        self.of: dict[str, list[float]] = {}

    def add(self, row: str, figure: float) -> None:
        """One more."""
        self.of.setdefault(row, []).append(figure)
        print(f"  {row}: {figure:,.6g}", flush=True)

    def show(self) -> None:
        """Medians, and from where to where."""
        for row, figures in self.of.items():
            low, high = min(figures), max(figures)
            print(f"{row:40} {statistics.median(figures):>12,.6g}  ({low:,.6g} to {high:,.6g})")


def fill(url: str, count: int) -> None:
    """A stream with that many messages."""
    with connect(url) as client:
        jetstream = client.jetstream(timeout=60)
        jetstream.create_stream(
            StreamConfig(name=SOURCE, subjects=["writebench.>"], allow_direct=True)
        )
        with jetstream.publisher(window=4096) as publisher:
            for number in range(count):
                publisher.publish(f"writebench.{number % 100}", b"x" * PAYLOAD_BYTES)


def rows_of(spark, count: int):
    """That many rows of one column, made by Spark."""
    text = f"cast(rpad(cast(id as string), {PAYLOAD_BYTES}, 'x') as binary) data"
    return spark.range(0, count, 1, 2).selectExpr(text)


def write_rate(spark, url: str, mode: str, storage: str, count: int) -> float:
    """Rows per second into a new stream."""
    with connect(url) as client:
        jetstream = client.jetstream(timeout=60)
        jetstream.create_stream(
            StreamConfig(
                name="OUT", subjects=["out.>", "done.>"], allow_atomic=True, storage=storage
            )
        )
        options = {"servers": url, "stream": "OUT", "subject": "out.rows", "exactlyOnce": mode}
        if mode == "batch":
            options["progressSubject"] = "done"
        frame = rows_of(spark, count)
        begin = time.perf_counter()
        frame.write.format("jetstream").options(**options).mode("append").save()
        seconds = time.perf_counter() - begin
        found = jetstream.stream_info("OUT", subjects_filter="out.rows").state
        if (found.subjects or {}).get("out.rows") != count:
            raise SystemExit(f"{mode}: {found.subjects} instead of {count} rows")
        jetstream.delete_stream("OUT")
    return count / seconds


def noop_rate(spark, count: int) -> float:
    """Rows per second into nothing."""
    frame = rows_of(spark, count)
    begin = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return count / (time.perf_counter() - begin)


def delta_seconds(spark, url: str, count: int) -> float:
    """Seconds of a query that takes the whole stream into a new table."""
    from deltalake import DeltaTable

    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        query = (
            spark.readStream.format("jetstream")
            .options(servers=url, stream=SOURCE, startingOffsets="earliest")
            .load()
            .writeStream.format("jetstream_delta")
            .option("path", f"{folder}/table")
            .option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        seconds = time.perf_counter() - begin
        found = DeltaTable(f"{folder}/table").to_pyarrow_dataset().count_rows()
        if found != count:
            raise SystemExit(f"delta: {found} rows instead of {count}")
    return seconds


def micro_batches(spark, url: str, sink: str, count: int, figures: Figures) -> None:
    """Seconds of micro-batches of one message each, the first few left out."""
    with tempfile.TemporaryDirectory() as folder, connect(url) as client:
        jetstream = client.jetstream(timeout=60)
        frame = spark.readStream.format("jetstream").options(
            servers=url, stream=SOURCE, startingOffsets="latest"
        )
        writer = frame.load().writeStream.option("checkpointLocation", f"{folder}/checkpoint")
        writer = writer.format("noop")
        if sink == "delta":
            writer = writer.format("jetstream_delta").option("path", f"{folder}/table")
        elif sink != "noop":
            jetstream.create_stream(
                StreamConfig(name="OUT", subjects=["out.>", "done.>"], allow_atomic=True)
            )
            writer = frame.load().select("data").writeStream.format("jetstream")
            writer = writer.option("checkpointLocation", f"{folder}/checkpoint").options(
                servers=url, stream="OUT", subject="out.rows", exactlyOnce=sink
            )
            if sink == "batch":
                writer = writer.option("progressSubject", "done")
        query = writer.start()
        query.processAllAvailable()
        for _ in range(count + 3):
            jetstream.publish("writebench.one", b"x")
            query.processAllAvailable()
        found = [p for p in query.recentProgress if p["numInputRows"]][3:]
        query.stop()
        if sink not in ("noop", "delta"):
            jetstream.delete_stream("OUT")
    for progress in found:
        figures.of.setdefault(f"micro-batch, {sink}", []).append(progress["batchDuration"] / 1e3)
        for part, milliseconds in progress["durationMs"].items():
            row = f"micro-batch, {sink}: {part}"
            figures.of.setdefault(row, []).append(milliseconds / 1e3)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=20, help="micro-batches of one message")
    parser.add_argument("--only", nargs="*", help="rows that begin with one of these")
    parser.add_argument("--json", help="write the figures there")
    arguments = parser.parse_args()
    only = arguments.only
    figures = Figures()

    def wanted(row: str) -> bool:
        return not only or any(row.startswith(each) for each in only)

    with LocalServer() as server:
        if wanted("delta") or wanted("micro-batch"):
            fill(server.url, arguments.rows)
        begin = time.perf_counter()
        spark = session("bench")
        figures.add("session, s", time.perf_counter() - begin)
        try:
            if wanted("delta"):
                seconds = delta_seconds(spark, server.url, arguments.rows)
                figures.add("delta, first query, s", seconds)
            for _ in range(arguments.rounds):
                for mode in ("ids", "batch", "none"):
                    for storage in ("file", "memory") if mode == "batch" else ("file",):
                        row = mode if storage == "file" else f"{storage} {mode}"
                        if wanted(row):
                            rate = write_rate(spark, server.url, mode, storage, arguments.rows)
                            figures.add(f"{row}, rows/s", rate)
                if wanted("noop"):
                    figures.add("noop, rows/s", noop_rate(spark, arguments.rows))
                if wanted("delta"):
                    seconds = delta_seconds(spark, server.url, arguments.rows)
                    figures.add("delta, next query, s", seconds)
            for sink in ("noop", "ids", "batch", "none", "delta"):
                if wanted("micro-batch"):
                    micro_batches(spark, server.url, sink, arguments.batches, figures)
        finally:
            end_session(spark)
    figures.show()
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as out:
            json.dump({"processors": os.cpu_count(), "rows": figures.of}, out, indent=1)


if __name__ == "__main__":
    sys.exit(main())
