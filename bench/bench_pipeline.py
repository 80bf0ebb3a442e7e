#!/usr/bin/env python3
"""Time a pipeline's parts beside what does the same without it, on one Spark session.

    .venv/bin/python bench/bench_pipeline.py
    .venv/bin/python bench/bench_pipeline.py --rounds 5 --only upsert --json figures.json

Each round takes both sides of a row one after the other; a ratio is the median of the rounds' ratios. Rows:

    sinks     five Delta tables from one stream, beside one
    json      the step ``json`` with a schema and one from data, beside Spark's from_json
    upsert    100,000 keys into a table of a million, beside deltalake's merge
    large     a million keys into a large table: time, and the greatest memory of the driver
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from pelton import sync
from pelton.pipeline import load, run
from pelton.spark.session import end_session, session
from pelton.spark.tables.marks import Mark
from pelton.spark.tables.places import place
from pelton.spark.tables.upserts import merge
from pelton.testing import LocalServer

if TYPE_CHECKING:
    from collections.abc import Callable

STREAM = "PIPELINE"


def timed(work: Callable[[], object]) -> float:
    """How long it takes, in seconds."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def ratios(rounds: int, ours: Callable[[], object], other: Callable[[], object]) -> dict[str, Any]:
    """The median ratio of the rounds, and the medians of both sides."""
    timed(ours)  # warm
    timed(other)
    pairs = [(timed(ours), timed(other)) for _ in range(rounds)]
    return {
        "ratio": round(statistics.median(one / two for one, two in pairs), 2),
        "seconds": round(statistics.median(one for one, _ in pairs), 2),
        "other_seconds": round(statistics.median(two for _, two in pairs), 2),
    }


class Bench:
    """A session, a server with a stream of orders, and a folder."""

    def __init__(self, folder: Path, messages: int, rounds: int) -> None:
        """Publishes the orders."""
        self.folder, self.rounds, self.messages = folder, rounds, messages
        self.server = LocalServer()
        self.server.__enter__()
        self._files = 0
        with sync.connect(self.server.url) as client:
            js = client.jetstream()
            js.create_stream(STREAM, subjects=["orders.>"])
            with js.publisher() as publisher:
                for number in range(messages):
                    order = {"id": number, "customer": f"c{number % 1000}", "amount": number / 7}
                    order["to"] = {"name": "Ada", "zip": str(number % 10_000)}
                    publisher.publish("orders.eu", json.dumps(order).encode())
        self.spark = session("bench", master="local[2]", log_file=folder / "spark.log")

    def close(self) -> None:
        """End the session and the server."""
        end_session(self.spark)
        self.server.__exit__(None, None, None)

    def pipeline(self, steps: str, sinks: str) -> None:
        """Run a file once, from nothing."""
        self._files += 1
        folder = self.folder / str(self._files)
        folder.mkdir()
        file = folder / "orders.yaml"
        source = f'{{format: jetstream, stream: {STREAM}, servers: "{self.server.url}"}}'
        file.write_text(
            f"pipeline: p\nsources: {{raw: {source}}}\nsteps: {steps}\nsinks: {sinks}\n"
        )
        run(load(file), self.spark, once=True)
        shutil.rmtree(folder)

    def sinks(self) -> dict[str, Any]:
        """Five tables of one read, beside one table."""
        steps = "{good: {from: raw, where: length(data) > 0}}"

        def tables(many: int) -> str:
            one = "t{0}: {{from: good, format: jetstream_delta, path: t{0}}}"
            return "{" + ", ".join(one.format(number) for number in range(many)) + "}"

        return ratios(
            self.rounds,
            lambda: self.pipeline(steps, tables(5)),
            lambda: self.pipeline(steps, tables(1)),
        )

    def json(self) -> dict[str, Any]:
        """Orders as columns: the step with a schema and one from data, beside from_json."""
        sink = "{t: {from: orders, format: jetstream_delta, path: t, mergeSchema: true}}"
        schema = "id long, customer string, amount double, to struct<name:string,zip:string>"

        def step(how: str) -> str:
            return f'{{orders: {{from: raw, {how}, select: [seq, "value.*"]}}}}'

        plain = step(f"columns: {{value: \"from_json(cast(data as string), '{schema}')\"}}")
        given, found = step(f'json: "{schema}"'), step("json: {}")
        return {
            name: ratios(
                self.rounds,
                partial(self.pipeline, one, sink),
                partial(self.pipeline, plain, sink),
            )
            for name, one in (("schema", given), ("from_data", found))
        }

    def upsert(self) -> dict[str, Any]:
        """100,000 keys into a million rows, in one process, beside deltalake's merge of the same."""
        place_ = self.folder / "upserts"

        def fresh(name: str) -> str:
            shutil.rmtree(place_ / name, ignore_errors=True)
            write_deltalake(str(place_ / name), keyed(1_000_000, 1), mode="overwrite")
            return str(place_ / name)

        batch = keyed(100_000, 2, step=10)
        ours, others = [], []
        for number in range(1, self.rounds + 2):
            table = fresh("ours")
            mark = Mark("q", number)
            ours.append(
                timed(partial(merge, batch, place(table), keys=["k"], sequence="seq", mark=mark))
            )
            other = fresh("other")
            others.append(timed(partial(by_deltalake, other, batch)))
        pairs = list(zip(ours[1:], others[1:], strict=True))  # without the first, which warms up
        return {
            "ratio": round(statistics.median(one / two for one, two in pairs), 2),
            "seconds": round(statistics.median(one for one, _ in pairs), 2),
            "other_seconds": round(statistics.median(two for _, two in pairs), 2),
        }


def keyed(rows: int, seq: int, step: int = 1, begin: int = 0) -> pa.Table:
    """Rows with different keys."""
    keys = np.arange(begin, begin + rows * step, step)
    return pa.table(
        {
            "k": pa.array(keys),
            "seq": pa.array(np.full(rows, seq)),
            "amount": pa.array(keys / 7),
            "customer": pa.array(keys % 1000).cast(pa.string()),
        }
    )


def by_deltalake(path: str, batch: pa.Table) -> None:
    """The same merge by ``deltalake``."""
    merging = DeltaTable(path).merge(batch, "t.k = s.k", source_alias="s", target_alias="t")
    merging.when_matched_update_all("s.seq > t.seq").when_not_matched_insert_all().execute()


LARGE = """
import resource, sys, time
from bench_pipeline import keyed
from pelton.spark.tables.marks import Mark
from pelton.spark.tables.places import place
from pelton.spark.tables.upserts import merge

def rss():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

rows = int(sys.argv[2])
batch = keyed(1_000_000, 2, step=max(1, rows // 1_000_000))
before, begin = rss(), time.perf_counter()
merge(batch, place(sys.argv[1]), keys=["k"], sequence="seq", mark=Mark("q", 1))
print(before, rss(), round(time.perf_counter() - begin, 1))
"""


def large(folder: Path, rows: int) -> dict[str, Any]:
    """A million keys into a large table, in a process of its own."""
    table = str(folder / "large")
    for begin in range(0, rows, 5_000_000):
        many = min(5_000_000, rows - begin)
        write_deltalake(table, keyed(many, 1, begin=begin), mode="append")
    done = subprocess.run(
        [sys.executable, "-c", LARGE, table, str(rows)],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=True,
    )
    before, most, seconds = done.stdout.split()
    return {
        "rows": rows,
        "seconds": float(seconds),
        "mib_before": int(before),
        "mib_most": int(most),
    }


def main() -> None:
    """Print a line for each row."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=300_000)
    parser.add_argument("--rows", type=int, default=20_000_000, help="of the large table")
    parser.add_argument("--only", nargs="*", default=["sinks", "json", "upsert", "large"])
    parser.add_argument("--json", help="write the figures there")
    told = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="pelton-bench-"))
    found: dict[str, Any] = {}
    try:
        if {"sinks", "json", "upsert"} & set(told.only):
            bench = Bench(folder, told.messages, told.rounds)
            try:
                for name in ("sinks", "json", "upsert"):
                    if name in told.only:
                        found[name] = getattr(bench, name)()
                        print(name, found[name], flush=True)
            finally:
                bench.close()
        if "large" in told.only:
            found["large"] = large(folder, told.rows)
            print("large", found["large"], flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if told.json:
        Path(told.json).write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
