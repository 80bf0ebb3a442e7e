"""End to end: a pelton-server with a fleet's events in a stream, and the query of ``pelton plgd run`` behind it.

    backlog    all events are in the stream; the query brings them into all tables, and ends (``--once``)
    by hand    the same events as `plgd_by_hand` does it: two tables, in a session of Spark with its own settings
    steady     events are published at a rate, and the query follows; the lag is the age of a batch's oldest
               message when all tables have the batch

Server, JVM, Python workers and driver share the machine. A small run comes first in each session, so that the
figures are those of a session that is warm. Every run is checked: all events are in the table,
and the twins are those of the other.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING

import plgd_by_hand
import plgd_load
import pyarrow as pa
import pyarrow.compute as pc
from bench_spark_cost import Processes, bytes_below, per_million
from deltalake import DeltaTable

from pelton import Nanoseconds, StreamConfig
from pelton.plgd.spark.lake import Counts, Lake
from pelton.plgd.spark.running import Source, hub_session, stream
from pelton.plgd.tables import Settings
from pelton.spark.session import end_session, jvm_pid, session
from pelton.sync import connect
from pelton.testing import LocalServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAM = "EVENTS"
WARM = 20_000
LOOK_S = 2.0
HAND_BATCH = 50_000
TWINS = ["aggregate_id", "version"]
RATIOS = ("events_per_second", "events_per_processor_second")


def publisher(told: multiprocessing.SimpleQueue, *given: object) -> None:
    """`plgd_load.publish` in a process of its own; it tells its seconds."""
    told.put(plgd_load.publish(*given))


class Bench:
    """A server that all runs share, and a session of Spark of the kind that a run needs."""

    def __init__(self, server: LocalServer, folder: str, file: str, batch: int) -> None:
        """``batch`` is how many messages a batch of the query has at most."""
        self.server = server
        self.folder = folder
        self.file = file
        self.batch = batch
        self.sessions = 0
        self.kind = ""
        self.spark: SparkSession

    def use(self, kind: str, count: int) -> None:
        """The session for ours or by hand, warm, and so many messages in the stream."""
        if kind != self.kind:
            self.end()
            self.kind, self.sessions = kind, self.sessions + 1
            warm = f"{self.folder}/warm-{self.sessions}"
            self.fill(self.file, WARM)
            if kind == "ours":
                self.spark = hub_session("plgd", master="local[2]")
                self.backlog(WARM, warm)
            else:
                self.spark = session("by hand", master="local[2]")
                self.spark.sparkContext.addPyFile(plgd_by_hand.__file__)
                self.by_hand(WARM, warm)
        self.fill(self.file, count)

    def end(self) -> None:
        """End the session."""
        if self.kind:
            end_session(self.spark)
            self.kind = ""

    def fill(self, file: str, count: int) -> None:
        """The stream anew, with the first messages of a file."""
        with connect(self.server.url) as client:
            js = client.jetstream(timeout=60)
            if STREAM in js.stream_names():
                js.delete_stream(STREAM)
            window = Nanoseconds(600 * 10**9)
            js.create_stream(
                StreamConfig(name=STREAM, subjects=["plgd.>"], duplicate_window=window)
            )
        plgd_load.publish(self.server.url, file, 0, count, 0)
        with connect(self.server.url) as client:
            if (found := client.jetstream().stream_info(STREAM).state.messages) != count:
                raise SystemExit(f"the stream has {found} messages instead of {count}")

    def processes(self) -> Processes:
        """What takes part in a run."""
        roots = {"server": self.server.pid, "jvm": jvm_pid(self.spark), "workers": -1}
        return Processes(roots | {"driver": os.getpid()})

    def timed(self, count: int, work: Callable[[], object]) -> dict[str, object]:
        """Clock and processor time of a run over so many events."""
        processes = self.processes()
        began = time.monotonic()
        work()
        took = time.monotonic() - began
        spent = processes.spent()
        return {
            "seconds": round(took, 2),
            "events_per_second": round(count / took),
            "events_per_processor_second": round(count / sum(spent.values())),
            "processor_seconds_per_million": per_million(spent, count),
        }

    def backlog(self, count: int, folder: str) -> dict[str, object]:
        """The query over the stream as it is."""
        ends: list[tuple[float, int]] = []
        parts = self.processes()
        spent: list[tuple[int, float]] = []

        def told(number: int, counts: Counts) -> None:
            del number
            ends.append((time.monotonic(), counts.messages))
            spent.append((counts.messages, sum(parts.spent().values())))
            if len(known := each_million(spent)) > len(each_million(spent[:-1])):
                print(f"million {len(known)}: {known[-1]} processor seconds", flush=True)

        def work() -> None:
            lake = Lake(f"{folder}/tables", Settings())
            lake.create()
            query = stream(
                self.spark,
                Source(STREAM, self.server.url),
                lake,
                f"{folder}/checkpoint",
                batch=self.batch,
                once=True,
                told=told,
            )
            query.awaitTermination()

        with looking(parts):
            figures = self.timed(count, work)
        check(f"{folder}/tables", count)
        figures["table_bytes_per_event"] = round(
            bytes_below(f"{folder}/tables", ".parquet") / count
        )
        figures["stream_bytes_per_event"] = round(bytes_below(self.server.store) / count)
        figures["each_million"] = each_million(spent)
        figures["memory_mb"] = {name: round(most / 2**20) for name, most in parts.peak.items()}
        figures["batches"] = [round(end - before, 2) for (before, _), (end, _) in pairwise(ends)]
        return figures

    def by_hand(self, count: int, folder: str) -> dict[str, object]:
        """The first events of the stream by hand."""
        size = min(HAND_BATCH, self.batch)

        def work() -> None:
            asyncio.run(plgd_by_hand.run(self.spark, self.server.url, STREAM, count, size, folder))

        figures = self.timed(count, work)
        check(folder, count)
        return figures

    def steady(self, file: str, rate: int, seconds: int, folder: str) -> dict[str, object]:
        """Events at a rate, and the query behind them."""
        count = rate * seconds
        lags: list[float] = []
        spent: list[tuple[int, float]] = []
        parts, own = self.processes(), Own()
        held = 0
        lake = Lake(f"{folder}/tables", Settings())
        lake.create()
        with connect(self.server.url) as client:
            js = client.jetstream()

            def told(number: int, counts: Counts) -> None:
                nonlocal held
                held += counts.messages
                all_of_batch = {**parts.spent(), "driver": own.passed()}  # without the publisher
                if held > 1:
                    spent.append((counts.messages, sum(all_of_batch.values())))
                oldest = js.get_message(STREAM, counts.first_seq).timestamp_ns
                if number:
                    lags.append(time.time() - oldest / 1e9)

            query = stream(
                self.spark,
                Source(STREAM, self.server.url),
                lake,
                f"{folder}/checkpoint",
                batch=self.batch,
                told=told,
            )
            try:
                query.processAllAvailable()
                spawn = multiprocessing.get_context("spawn")
                said = spawn.SimpleQueue()
                load = spawn.Process(
                    target=publisher, args=(said, self.server.url, file, 1, count, rate)
                )
                processes = self.processes()
                began = time.monotonic()
                load.start()
                with looking(processes):
                    load.join()
                took = time.monotonic() - began
                used = processes.spent()
                published, of_load = said.get()
                used["driver"] -= of_load
                behind = js.stream_info(STREAM).state.last_seq - held
                query.processAllAvailable()
            finally:
                query.stop()
        check(f"{folder}/tables", count + 1)
        parts_of_run = [round(max(part), 2) for part in parts_in_turn(lags, 10)]
        lags.sort()
        return {
            "rate": round(count / published),
            "lag_seconds_most_of_each_tenth": parts_of_run,
            "lag_seconds_99th_percentile": round(lags[len(lags) * 99 // 100], 2),
            "each_million": each_million(spent),
            "memory_mb": {name: round(most / 2**20) for name, most in processes.peak.items()},
            "lag_seconds_median": round(lags[len(lags) // 2], 2),
            "lag_seconds_most": round(lags[-1], 2),
            "behind_at_the_end": behind,
            "cores": {name: round(one / took, 2) for name, one in used.items()},
            "cores_of_publisher": round(of_load / published, 2),
            "batches": len(lags),
        }


class Own:
    """Processor seconds of this process."""

    def __init__(self) -> None:
        """Begins now."""
        self.before = time.process_time()

    def passed(self) -> float:
        """Those since the beginning or the last call."""
        before, self.before = self.before, time.process_time()
        return self.before - before


@contextmanager
def looking(processes: Processes) -> Iterator[None]:
    """Look at the memory of processes while something runs."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(LOOK_S):
            processes.look()

    looker = threading.Thread(target=look)
    looker.start()
    try:
        yield
    finally:
        over.set()
        looker.join()


def parts_in_turn(numbers: list[float], parts: int) -> list[list[float]]:
    """Numbers in parts of about one size, in their order; none is empty."""
    ends = [len(numbers) * part // parts for part in range(parts + 1)]
    return [numbers[begin:end] for begin, end in pairwise(ends) if begin < end]


def each_million(spent: list[tuple[int, float]]) -> list[float]:
    """Processor seconds of each million of messages, by those of batches; a batch is shared out evenly."""
    found: list[float] = []
    there, used = 0, 0.0
    for count, seconds in spent:
        each, left = seconds / count, count
        while there + left >= 1_000_000:
            some = 1_000_000 - there
            found.append(round(used + some * each, 1))
            there, used, left = 0, 0.0, left - some
        there, used = there + left, used + left * each
    return found


def check(folder: str, count: int) -> None:
    """The table of events has every one."""
    if (found := DeltaTable(f"{folder}/events").count()) != count:
        raise SystemExit(f"{folder}: {found} events instead of {count}")


def same_twins(ours: str, by_hand: str) -> None:
    """Both know the same versions of the same twins."""
    known = [
        DeltaTable(f"{folder}/twin_latest").to_pyarrow_table(columns=TWINS).sort_by(TWINS[0])
        for folder in (f"{ours}/tables", by_hand)
    ]
    if not pc.all(pc.equal(*(table[TWINS[0]] for table in known))).as_py() or not known[0].equals(
        known[1].cast(known[0].schema)
    ):
        raise SystemExit("the twins differ")


def measure(
    given: argparse.Namespace,
    counts: list[int],
    fleets: list[int],
    messages_of: Callable[[int, int], pa.Table],
) -> dict[str, object]:
    """Every run that the options ask for, printed as it ends."""
    results: dict[str, object] = {}

    def tell(name: str, figures: dict[str, object]) -> None:
        results[name] = figures
        print(name, json.dumps(figures), flush=True)

    for file in given.linear:
        with LocalServer() as server, tempfile.TemporaryDirectory() as folder:
            bench = Bench(server, folder, file, given.batch)
            try:
                if given.rate:
                    bench.use("ours", 1)
                    steady = bench.steady(file, given.rate, given.seconds, f"{folder}/steady")
                    tell(f"steady, {file}, {given.rate:,} a second", steady)
                    continue
                for count in counts:
                    bench.use("ours", count)
                    tell(f"{file}, {count:,} events", bench.backlog(count, f"{folder}/{count}"))
            finally:
                bench.end()
    if given.linear:
        return results
    for devices in fleets:
        with LocalServer() as server, tempfile.TemporaryDirectory() as folder:
            file = f"{folder}/messages.arrow"
            most = max(*counts, given.rate * given.seconds + 1, WARM)
            save(messages_of(devices, most), file)
            bench = Bench(server, folder, file, given.batch)
            try:
                one_fleet(bench, given, counts, devices, tell)
            finally:
                bench.end()
    return results


def save(messages: pa.Table, file: str) -> None:
    """Subjects and payloads into a file that the publisher reads."""
    rows = messages.select(["subject", "data"])
    with pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_table(rows)


def one_fleet(
    bench: Bench,
    given: argparse.Namespace,
    counts: list[int],
    devices: int,
    tell: Callable[[str, dict[str, object]], None],
) -> None:
    """The runs over one fleet's events."""
    for count in counts:
        ratios = []
        for number in range(given.rounds):
            name = f"{devices:,} devices, {count:,} events"
            ours, hand = (f"{bench.folder}/{kind}-{count}-{number}" for kind in ("ours", "hand"))
            bench.use("ours", count)
            figures = bench.backlog(count, ours)
            tell(f"backlog, {name}", figures)
            if given.by_hand:
                bench.use("by hand", count)
                slow = bench.by_hand(count, hand)
                tell(f"by hand, {name}", slow)
                same_twins(ours, hand)
                ratios.append([figures[one] / slow[one] for one in RATIOS])
        for place, one in enumerate(RATIOS if ratios else ()):
            middle = sorted(ratio[place] for ratio in ratios)[len(ratios) // 2]
            tell(f"ratio to by hand, {name}", {one: round(middle, 2)})
    if given.rate:
        name = f"steady, {devices:,} devices, {given.rate:,} a second"
        bench.use("ours", 1)
        tell(name, bench.steady(bench.file, given.rate, given.seconds, f"{bench.folder}/steady"))
