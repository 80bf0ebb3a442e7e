#!/usr/bin/env python3
"""Time reading a stream with Spark, beside what else there is for it on the same machine.

    .venv/bin/python bench/bench_spark.py --nats-server /usr/sbin/nats-server
    .venv/bin/python bench/bench_spark.py --linear 1,5,20 --markdown table.md --json figures.json

A stream of 128-byte messages is made on a pelton-server, and the same on a nats-server if there
is one. Each round takes every row once, so that a slow spell of the machine hits all; a figure is
the median of the rounds. Rows, all into Spark's no-op sink on local[2] unless they say otherwise:

    segments            the files of the Pelton store, read in Spark's workers
    wire                over the network, by consumers
    direct              over the network, by batches of direct gets
    parquet             Spark's own scan of the same rows
    tuples              a Python source that hands over one row at a time
    nats-py pull, push  no Spark: a loop of fetch and ack, an ordered push consumer's callback

then writing the rows of a Parquet file into a stream, in each way of being exact, the stream into a
Delta table, as a batch and as a query, and the time of micro-batches of one message. With --linear:
streams of so many million messages, read once each, and the time per message.
"""

import argparse
import asyncio
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import nats
from deltalake import DeltaTable
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from pelton import StreamConfig, sync
from pelton.spark.session import end_session, session
from pelton.testing import LocalServer

STREAM = "SPARKBENCH"
WRITTEN = "SPARKWRITTEN"
WAYS = ("none", "ids", "batch")
PAYLOAD = b"x" * 128
PARTITION = 100_000
SCHEMA = "stream string, seq long, subject string, ts timestamp, data binary"
START_SECONDS = 20


@dataclass
class Side:
    """A server and the folder of its store."""

    name: str
    url: str
    store: str


@dataclass
class Table:
    """Figures by row, and what they are."""

    units: dict[str, str] = field(default_factory=dict)
    figures: dict[str, list[float]] = field(default_factory=dict)

    def add(self, row: str, figure: float, unit: str = "rows/s") -> None:
        """One more figure of a row."""
        self.units[row] = unit
        self.figures.setdefault(row, []).append(figure)
        print(f"  {row}: {figure:,.6g} {unit}", flush=True)

    def medians(self) -> dict[str, float]:
        """The median of each row."""
        return {row: statistics.median(figures) for row, figures in self.figures.items()}

    def markdown(self) -> str:
        """A table of medians and what they are spread over."""
        lines = ["| row | median | from | to | unit |", "|---|---:|---:|---:|---|"]
        for row, median in self.medians().items():
            low, high = min(self.figures[row]), max(self.figures[row])
            shown = " | ".join(
                f"{each:,.0f}" if each >= 100 else f"{each:.3g}" for each in (median, low, high)
            )
            lines.append(f"| {row} | {shown} | {self.units[row]} |")
        return "\n".join(lines) + "\n"


class TuplePartition(InputPartition):
    """A range of sequences."""

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, last


class TupleReader(DataSourceReader):
    """Reads a stream as a source does that knows nothing of Arrow: one tuple per row."""

    def __init__(self, options: dict[str, str]) -> None:
        self.url, self.messages = options["url"], int(options["messages"])

    def partitions(self) -> list[InputPartition]:
        """As many as the format's own."""
        firsts = range(1, self.messages + 1, PARTITION)
        return [
            TuplePartition(first, min(first + PARTITION, self.messages + 1)) for first in firsts
        ]

    def read(self, partition: TuplePartition):
        """Tuples."""
        with sync.connect(self.url) as client:
            batches = client.jetstream().read_columns(STREAM, partition.first, partition.last)
            for columns in batches:
                for seq, ns, subject, _, payload in columns.rows():
                    yield STREAM, seq, subject, datetime.fromtimestamp(ns / 1e9, UTC), payload


class TupleSource(DataSource):
    """``format("tuples")``."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "tuples"

    def schema(self) -> str:
        """The columns."""
        return SCHEMA

    def reader(self, schema) -> DataSourceReader:
        """A reader of the whole stream."""
        return TupleReader(dict(self.options))


def fill(url: str, count: int, have: int = 0) -> None:
    """The stream, with that many messages; with ``have`` of them already there, if any."""
    with sync.connect(url) as client:
        jetstream = client.jetstream(timeout=60)
        if not have:
            if any(name == STREAM for name in jetstream.stream_names()):
                jetstream.delete_stream(STREAM)
            config = StreamConfig(name=STREAM, subjects=["sparkbench.>"], allow_direct=True)
            jetstream.create_stream(config)
        with jetstream.publisher(window=4096) as publisher:
            for number in range(have, count):
                publisher.publish(f"sparkbench.{number % 100}", PAYLOAD)


@contextmanager
def nats_server(executable: str):
    """A running nats-server and its store."""
    folder = tempfile.mkdtemp(prefix="bench-spark-")
    command = [executable, "-js", "-a", "127.0.0.1", "-p", "-1", "-sd", folder]
    with open(f"{folder}/log", "wb") as log:
        child = subprocess.Popen(
            [*command, "--ports_file_dir", folder], stdout=log, stderr=subprocess.STDOUT
        )
    try:
        ports = Path(folder) / f"{Path(executable).name}_{child.pid}.ports"
        deadline = time.monotonic() + START_SECONDS
        while not ports.exists() or not ports.read_text().strip():
            if time.monotonic() > deadline:
                raise SystemExit(f"{executable} does not start: {Path(folder, 'log').read_text()}")
            time.sleep(0.05)
        url = json.loads(ports.read_text())["nats"][0]
        yield Side("nats-server", url, folder)
    finally:
        child.terminate()
        child.wait()
        shutil.rmtree(folder, ignore_errors=True)


async def pull_rate(url: str, count: int) -> float:
    """Messages per second of a nats-py loop: fetch 1000, ack each."""
    client = await nats.connect(url)
    pull = await client.jetstream().pull_subscribe("sparkbench.>", None, stream=STREAM)
    begin = time.perf_counter()
    done = 0
    while done < count:
        for message in await pull.fetch(1000, timeout=30):
            await message.ack()
            done += 1
    seconds = time.perf_counter() - begin
    await pull.unsubscribe()
    await client.close()
    return done / seconds


async def push_rate(url: str, count: int) -> float:
    """Messages per second of nats-py's ordered push consumer with a callback that only counts."""
    client = await nats.connect(url)
    done = 0
    over = asyncio.get_running_loop().create_future()

    async def take(message) -> None:
        nonlocal done
        done += 1
        if done == count:
            over.set_result(None)

    begin = time.perf_counter()
    subscription = await client.jetstream().subscribe(
        "sparkbench.>",
        stream=STREAM,
        ordered_consumer=True,
        cb=take,
        pending_msgs_limit=10_000_000,
        pending_bytes_limit=1 << 32,
    )
    await over
    seconds = time.perf_counter() - begin
    await subscription.unsubscribe()
    await client.close()
    return count / seconds


def reads_of(sides: list[Side]) -> dict[str, tuple[str, dict[str, str]]]:
    """The rows that are reads of Spark from a stream: format and options."""
    rows: dict[str, tuple[str, dict[str, str]]] = {}
    for side in sides:
        common = {"servers": side.url, "stream": STREAM, "maxRecordsPerPartition": str(PARTITION)}
        if side.name == "Pelton":
            how = {"transport": "segments", "segments": side.store}
            rows["segments, Pelton"] = ("jetstream", common | how)
        rows[f"wire, {side.name}"] = ("jetstream", common | {"transport": "consumer"})
        rows[f"direct, {side.name}"] = ("jetstream", common | {"transport": "direct"})
    return rows


def seconds_of(spark, how: str, options: dict[str, str]) -> float:
    """How long a read of everything into the no-op sink takes."""
    frame = spark.read.format(how).options(**options).load()
    begin = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - begin


def micro_batches(spark, options: dict[str, str], count: int) -> list[float]:
    """Seconds of micro-batches of one message each, the first few left out."""
    with tempfile.TemporaryDirectory() as folder, sync.connect(options["servers"]) as client:
        query = (
            spark.readStream.format("jetstream")
            .options(**options, startingOffsets="latest")
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", folder)
            .start()
        )
        jetstream = client.jetstream()
        query.processAllAvailable()
        for _ in range(count + 3):
            jetstream.publish("sparkbench.one", b"x")
            query.processAllAvailable()
        spans = [p["batchDuration"] / 1e3 for p in query.recentProgress if p["numInputRows"]]
        query.stop()
    return spans[3:]


def writing_seconds(spark, side: Side, way: str, rows: str, count: int) -> float:
    """How long a batch write of the rows in a Parquet file into an empty stream takes."""
    with sync.connect(side.url) as client:
        jetstream = client.jetstream(timeout=60)
        if any(name == WRITTEN for name in jetstream.stream_names()):
            jetstream.delete_stream(WRITTEN)
        subjects = ["written.>", f"spark.progress.{WRITTEN}.>"]
        jetstream.create_stream(
            StreamConfig(name=WRITTEN, subjects=subjects, allow_atomic=way == "batch")
        )
        options = {"servers": side.url, "stream": WRITTEN, "exactlyOnce": way}
        frame = spark.read.parquet(rows).selectExpr("'written.rows' as subject", "data")
        begin = time.perf_counter()
        frame.write.format("jetstream").options(**options).mode("append").save()
        seconds = time.perf_counter() - begin
        state = jetstream.stream_info(WRITTEN, subjects_filter="written.>").state
        found = (state.subjects or {}).get("written.rows", 0)
        if found != count:
            raise SystemExit(f"writing, {way}, {side.name}: {found} messages instead of {count}")
        jetstream.delete_stream(WRITTEN)
    return seconds


def table_seconds(spark, side: Side, count: int, *, streaming: bool) -> float:
    """How long it takes until all of a stream is in a new Delta table."""
    options = {"servers": side.url, "stream": STREAM}
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        if streaming:
            frame = spark.readStream.format("jetstream").options(**options)
            writer = frame.option("startingOffsets", "earliest").load().writeStream
            query = (
                writer.format("jetstream_delta")
                .option("checkpointLocation", f"{folder}/checkpoint")
                .trigger(availableNow=True)
                .start(f"{folder}/table")
            )
            query.awaitTermination()
        else:
            frame = spark.read.format("jetstream").options(**options).load()
            frame.write.format("jetstream_delta").mode("append").save(f"{folder}/table")
        seconds = time.perf_counter() - begin
        found = DeltaTable(f"{folder}/table").count()
        if found != count:
            raise SystemExit(f"into a table, {side.name}: {found} rows instead of {count}")
    return seconds


def compare_writing(
    spark, sides: list[Side], arguments: argparse.Namespace, table: Table, rows: str
) -> None:
    """The rows of one round that write."""
    for side in sides:
        for way in WAYS:
            row = f"writing, {way}, {side.name}"
            if not arguments.only or any(each in row for each in arguments.only):
                seconds = writing_seconds(spark, side, way, rows, arguments.messages)
                table.add(row, arguments.messages / seconds)
        for how in ("batch", "query"):
            row = f"into a Delta table, {how}, {side.name}"
            if not arguments.only or any(each in row for each in arguments.only):
                streaming = how == "query"
                taken = table_seconds(spark, side, arguments.messages, streaming=streaming)
                table.add(row, taken, "s")


def compare(spark, sides: list[Side], arguments: argparse.Namespace, table: Table) -> None:
    """Every row, round by round."""
    messages = arguments.messages
    rows = reads_of(sides)
    tuples = {"url": sides[0].url, "messages": str(messages)}
    first = "into a Delta table, first query of the session"
    if not arguments.only or any(each in first for each in arguments.only):
        table.add(first, table_seconds(spark, sides[0], messages, streaming=True), "s")
    with tempfile.TemporaryDirectory() as folder:
        for row, (how, options) in rows.items():
            found = spark.read.format(how).options(**options).load().count()
            if found != messages:
                raise SystemExit(f"{row}: {found} rows instead of {messages}")
        how, options = next(iter(rows.values()))
        spark.read.format(how).options(**options).load().write.parquet(f"{folder}/rows")
        rows["parquet"] = ("parquet", {"path": f"{folder}/rows"})
        rows["tuples, Pelton"] = ("tuples", tuples)
        for number in range(1, arguments.rounds + 1):
            print(f"round {number} of {arguments.rounds}", flush=True)
            for row, (how, options) in rows.items():
                if arguments.only and not any(each in row for each in arguments.only):
                    continue
                table.add(row, messages / seconds_of(spark, how, options))
            for side in sides if not arguments.only or "nats-py" in arguments.only else ():
                rate = asyncio.run(pull_rate(side.url, arguments.fetched))
                table.add(f"nats-py pull, {side.name}", rate)
                rate = asyncio.run(push_rate(side.url, min(messages, 10 * arguments.fetched)))
                table.add(f"nats-py push, {side.name}", rate)
            compare_writing(spark, sides, arguments, table, f"{folder}/rows")
    for side in sides if not arguments.only or "micro" in arguments.only else ():
        common = {"servers": side.url, "stream": STREAM}
        ways = {"wire": common}
        if side.name == "Pelton":
            ways["segments"] = common | {"segments": side.store}
        for way, options in ways.items():
            for span in micro_batches(spark, options, arguments.batches):
                table.figures.setdefault(f"micro-batch, {way}, {side.name}", []).append(span)
            table.units[f"micro-batch, {way}, {side.name}"] = "s"


def linearity(spark, sides: list[Side], arguments: argparse.Namespace, table: Table) -> None:
    """Reads of larger and larger streams, in microseconds per message."""
    have = dict.fromkeys([side.name for side in sides], 0)
    for millions in arguments.linear:
        count = round(millions * 1_000_000)
        for side in sides:
            fill(side.url, count, have[side.name])
            have[side.name] = count
        for row, (how, options) in reads_of(sides).items():
            if row.startswith("direct"):
                continue
            if millions == arguments.linear[0]:  # Spark starts its workers at the first read
                spark.read.format(how).options(**options).load().count()
            begin = time.perf_counter()
            found = spark.read.format(how).options(**options).load().count()
            seconds = time.perf_counter() - begin
            if found != count:
                raise SystemExit(f"{row}: {found} rows instead of {count}")
            table.add(f"{row}, {millions:g} M messages", seconds / count * 1e6, "\u00b5s/message")


def ratios(medians: dict[str, float]) -> list[str]:
    """What is promised, as one line each."""
    lines = []
    for side in ("Pelton", "nats-server"):
        wire = medians.get(f"wire, {side}")
        for other in ("pull", "push"):
            loop = medians.get(f"nats-py {other}, {side}")
            if wire and loop:
                lines.append(f"wire, {side}: {wire / loop:.1f} times nats-py {other}")
    segments, parquet = medians.get("segments, Pelton"), medians.get("parquet")
    if segments and parquet:
        lines.append(f"segments: {segments / parquet:.2f} times Spark's own parquet scan")
    return lines


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nats-server", default=os.environ.get("NATS_SERVER"))
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=20, help="micro-batches of one message")
    parser.add_argument("--fetched", type=int, default=20_000, help="messages of the pull loop")
    parser.add_argument("--only", nargs="*", help="rows that contain one of these")
    parser.add_argument(
        "--linear",
        type=lambda text: [float(each) for each in text.split(",")],
        default=[],
        help="millions of messages, commas between",
    )
    parser.add_argument("--json", help="write the figures there")
    parser.add_argument("--markdown", help="write a table there")
    arguments = parser.parse_args()
    table = Table()
    with ExitStack() as stack:
        local = stack.enter_context(LocalServer())
        sides = [Side("Pelton", local.url, local.store)]
        if arguments.nats_server:
            sides.append(stack.enter_context(nats_server(arguments.nats_server)))
        if arguments.rounds:
            for side in sides:
                fill(side.url, arguments.messages)
        spark = session("bench")
        try:
            spark.dataSource.register(TupleSource)
            if arguments.rounds:
                compare(spark, sides, arguments, table)
            if arguments.linear:
                linearity(spark, sides, arguments, table)
        finally:
            end_session(spark)
    medians = table.medians()
    print(f"\n{table.markdown()}")
    print("\n".join(ratios(medians)))
    if arguments.markdown:
        Path(arguments.markdown).write_text(table.markdown())
    if arguments.json:
        machine = {"processors": os.cpu_count(), "python": platform.python_version()}
        figures = {
            row: {"median": medians[row], "unit": table.units[row], "rounds": table.figures[row]}
            for row in medians
        }
        Path(arguments.json).write_text(json.dumps({**machine, "rows": figures}, indent=1))


if __name__ == "__main__":
    sys.exit(main())
