#!/usr/bin/env python3
"""What turning a stream into a table costs: processor seconds and bytes, part by part.

    .venv/bin/python bench/bench_spark_cost.py --nats-server /usr/sbin/nats-server --json cost.json

Messages are JSON of about 230 bytes, as devices send it, each with other values, on ten thousand
subjects. Two measurements per server:

    backlog    a stream of many messages, read into a Delta table by one query as fast as it goes
    steady     messages published at a rate for some time, while a query with a trigger follows

For each: processor seconds per million messages of the server, of Spark's JVM, of its Python
workers and of the driver, the most memory each took, the bytes of a message in the stream and in
the table; for steady also how long its batches took.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench_spark import Side, nats_server
from deltalake import DeltaTable

from pelton import StreamConfig
from pelton.spark.session import end_session, jvm_pid, session
from pelton.sync import connect
from pelton.testing import LocalServer

STREAM = "DEVICES"
DEVICES = 10_000
TICKS = os.sysconf("SC_CLK_TCK")
MIB = 1 << 20


def payloads(seed: int) -> Iterator[tuple[str, bytes]]:
    """Subjects and messages without end; always the same for a seed."""
    chance = random.Random(seed)
    ids = [f"{chance.getrandbits(128):032x}" for _ in range(DEVICES)]
    at = 1_790_000_000.0
    while True:
        device = chance.randrange(DEVICES)
        at += chance.random() / 1000
        text = (
            f'{{"deviceId":"{ids[device]}","at":{at:.6f},"kind":"state","firmware":"2.14.{device % 9}",'
            f'"temperature":{chance.gauss(21, 4):.3f},"humidity":{chance.random() * 100:.2f},'
            f'"battery":{chance.random():.4f},"rssi":{-30 - chance.randrange(60)},'
            f'"uptime":{chance.randrange(10**7)},"errors":{chance.randrange(5)},'
            f'"state":"{chance.choice(("idle", "heating", "cooling", "fault"))}"}}'
        )
        yield f"devices.{device % 100}.{device}", text.encode()


def publish(url: str, count: int, rate: float, seed: int) -> None:
    """That many messages, at a rate per second (0: as fast as it goes)."""
    source = payloads(seed)
    with connect(url) as client, client.jetstream().publisher(window=4096) as publisher:
        begin = time.monotonic()
        for number in range(count):
            publisher.publish(*next(source))
            if rate and number % 500 == 499:
                early = begin + number / rate - time.monotonic()
                if early > 0:
                    publisher.flush()
                    time.sleep(early)


class Processes:
    """Processor seconds and memory of a process and all below it, but for some of them."""

    def __init__(self, roots: dict[str, int]) -> None:
        """``roots`` by name; a root inside the tree of another is counted for itself alone."""
        self.roots = roots
        self.peak = dict.fromkeys(roots, 0)
        self._looked = 0.0  # what `look` takes itself, in this process, which is the driver
        self._before = self._seconds()

    def spent(self) -> dict[str, float]:
        """Processor seconds since the beginning or the last call."""
        now = self._seconds()
        before, self._before = self._before, now
        return {name: now[name] - before[name] for name in now}

    def look(self) -> None:
        """Note how much memory there is now: bytes, what several share taken once."""
        begin = time.thread_time()
        for name, members in self._members().items():
            total = 0
            for pid in members:
                total += _share(pid)
            self.peak[name] = max(self.peak[name], total)
        self._looked += time.thread_time() - begin

    def _members(self) -> dict[str, list[int]]:
        parents = {}
        for entry in os.listdir("/proc"):
            if entry.isdigit() and (fields := _stat(int(entry))):
                parents[int(entry)] = int(fields[1])
        owner = {pid: name for name, pid in self.roots.items()}
        members: dict[str, list[int]] = {name: [] for name in self.roots}
        for pid in parents:
            at = pid
            while at in parents and at not in owner:
                at = parents[at]
            if at in owner:
                name = owner[at]
                # Below the JVM are Spark's Python workers.
                members["workers" if name == "jvm" and pid != at else name].append(pid)
        return members

    def _seconds(self) -> dict[str, float]:
        seconds = dict.fromkeys(self.roots, 0.0)
        for name, members in self._members().items():
            for pid in members:
                if fields := _stat(pid):
                    own, children = fields[11:13], fields[13:15]
                    # Ended children of the JVM are workers; those of the driver are the JVM itself.
                    seconds[name] += sum(map(int, own)) / TICKS
                    seconds["workers" if name == "jvm" else name] += sum(map(int, children)) / TICKS
        seconds["driver"] -= self._looked
        return seconds


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name; none when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _share(pid: int) -> int:
    """The memory of a process, its part of what it shares with others; 0 when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def bytes_below(folder: str, ending: str = "") -> int:
    """Bytes of the files of a folder."""
    found = Path(folder).rglob("*" + ending)
    return sum(each.stat().st_size for each in found if each.is_file())


@contextmanager
def into_table(spark, url: str, folder: str, trigger: dict[str, object]):
    """A query from the stream into a table."""
    query = (
        spark.readStream.format("jetstream")
        .option("servers", url)
        .option("stream", STREAM)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "2000000")
        .option("maxRecordsPerPartition", "250000")
        .load()
        .writeStream.format("jetstream_delta")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(**trigger)
        .start(f"{folder}/table")
    )
    try:
        yield query
    finally:
        query.stop()


def made(side: Side, messages: int) -> None:
    """The stream anew, with that many messages."""
    with connect(side.url) as client:
        jetstream = client.jetstream(timeout=60)
        if any(name == STREAM for name in jetstream.stream_names()):
            jetstream.delete_stream(STREAM)
        jetstream.create_stream(
            StreamConfig(name=STREAM, subjects=["devices.>"], allow_direct=True)
        )
    publish(side.url, messages, 0, 1)


def backlog(spark, side: Side, pid: int, messages: int) -> dict[str, object]:
    """All of a stream into a table, as fast as it goes."""
    made(side, messages)
    stored = bytes_below(side.store)
    processes = Processes(
        {"server": pid, "jvm": jvm_pid(spark), "workers": -1, "driver": os.getpid()}
    )
    with tempfile.TemporaryDirectory() as folder:
        begin = time.monotonic()
        with into_table(spark, side.url, folder, {"availableNow": True}) as query:
            while not query.awaitTermination(1):
                processes.look()
        seconds = time.monotonic() - begin
        check(folder, messages)
        table = bytes_below(f"{folder}/table", ".parquet")
    return {
        "messages": messages,
        "messages_per_second": messages / seconds,
        "cpu_seconds_per_million": per_million(processes.spent(), messages),
        "peak_mib": {name: round(size / MIB) for name, size in processes.peak.items()},
        "stream_bytes_per_message": stored / messages,
        "table_bytes_per_message": table / messages,
    }


def steady(spark, side: Side, pid: int, rate: int, trigger: str, seconds: int) -> dict[str, object]:
    """Messages at a rate, and a query that follows them."""
    made(side, 1)
    messages = rate * seconds
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--publish", side.url, str(messages), str(rate)]
        with into_table(spark, side.url, folder, {"processingTime": trigger}) as query:
            query.processAllAvailable()
            roots = {"server": pid, "jvm": jvm_pid(spark), "workers": -1, "driver": os.getpid()}
            processes = Processes(roots)
            begin = time.monotonic()
            publisher = subprocess.Popen(command)
            while publisher.poll() is None:
                time.sleep(1)
                processes.look()
            took = time.monotonic() - begin
            query.processAllAvailable()
            spent = processes.spent()
            batches = [p for p in query.recentProgress if p["numInputRows"] > 1]
            spans = sorted(p["batchDuration"] / 1e3 for p in batches)
        check(folder, messages + 1)
    # The publisher is a child of the driver; what it took is not the driver's.
    spent["driver"] -= children_seconds()
    return {
        "rate": messages / took,
        "trigger": trigger,
        "batches": len(batches),
        "batch_seconds_median": spans[len(spans) // 2],
        "batch_seconds_most": spans[-1],
        "cpu_seconds_per_million": per_million(spent, messages),
        "cores_busy": sum(spent.values()) / took,
        "peak_mib": {name: round(size / MIB) for name, size in processes.peak.items()},
    }


_children_before = 0.0


def children_seconds() -> float:
    """Processor seconds of children of this process that ended since the last call."""
    global _children_before
    times = os.times()
    now = times.children_user + times.children_system
    _children_before, before = now, _children_before
    return now - before


def per_million(seconds: dict[str, float], messages: int) -> dict[str, float]:
    """Processor seconds for a million messages, and their sum."""
    each = {name: round(spent / messages * 1e6, 3) for name, spent in seconds.items()}
    return {**each, "all": round(sum(each.values()), 3)}


def check(folder: str, messages: int) -> None:
    """The table has every message."""
    found = DeltaTable(f"{folder}/table").count()
    if found != messages:
        raise SystemExit(f"{found} rows instead of {messages}")


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["--publish"]:
        url, count, rate = sys.argv[2:5]
        publish(url, int(count), float(rate), 2)
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nats-server", default=os.environ.get("NATS_SERVER"))
    parser.add_argument("--messages", type=int, default=10_000_000, help="of the backlog")
    parser.add_argument(
        "--rates", default="11574,57870", help="messages per second, commas between"
    )
    parser.add_argument("--triggers", default="1 second,10 seconds")
    parser.add_argument("--seconds", type=int, default=60, help="how long each rate is kept")
    parser.add_argument("--json", help="write the figures there")
    arguments = parser.parse_args()
    results: dict[str, dict[str, object]] = {}

    def told(name: str, result: dict[str, object]) -> None:
        results[name] = result
        print(name, json.dumps(result, indent=1), flush=True)

    with ExitStack() as stack:
        local = stack.enter_context(LocalServer())
        sides = [(Side("Pelton", local.url, local.store), local.pid)]
        if arguments.nats_server:
            side = stack.enter_context(nats_server(arguments.nats_server))
            name = f"{Path(arguments.nats_server).name}_"
            pid = int(next(Path(side.store).glob(name + "*.ports")).stem.removeprefix(name))
            sides.append((side, pid))
        spark = session("cost")
        try:
            for side, pid in sides:
                made(side, 100_000)
                with (
                    tempfile.TemporaryDirectory() as folder,
                    into_table(spark, side.url, folder, {"availableNow": True}) as query,
                ):
                    query.awaitTermination()  # Spark starts its workers at the first read
                told(f"backlog, {side.name}", backlog(spark, side, pid, arguments.messages))
                for rate in map(int, arguments.rates.split(",")):
                    for trigger in arguments.triggers.split(","):
                        children_seconds()
                        found = steady(spark, side, pid, rate, trigger, arguments.seconds)
                        told(f"steady {rate}/s, every {trigger}, {side.name}", found)
        finally:
            end_session(spark)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
