#!/usr/bin/env python3
"""Time the work on a plgd hub's events: on one core, or end to end with a server and Spark (see `plgd_end_to_end`).

    .venv/bin/python bench/bench_plgd.py
    .venv/bin/python bench/bench_plgd.py --devices 100,300,1000 --json figures.json
    .venv/bin/python bench/bench_plgd.py --end-to-end --events 300000 --by-hand --rate 10000
    .venv/bin/python bench/bench_plgd.py --save 10k.arrow --devices 10000 --events 10000000
    .venv/bin/python bench/bench_plgd.py --save 100k.arrow --devices 100000 --copies 10 --events 10000000
    .venv/bin/python bench/bench_plgd.py --end-to-end --linear 10k.arrow --events 10000000 --batch 250000
    .venv/bin/python bench/bench_plgd.py --end-to-end --linear 10k.arrow --rate 30000 --seconds 300 --batch 250000
    .venv/bin/python bench/bench_plgd.py --growth 10,50,200,500 --devices 1000

On one core, decoding and everything that makes the tables:

A made-up fleet gives the messages. Figures are of processor time, so that other work on the machine does not
change them much, and medians of the rounds:

    decode        subjects and payloads to typed columns, without and with contents as JSON
    one by one    the same by protobuf's own messages, as a loop in Python does it: no columns
    tables        decode, versions, rows and Parquet files of all tables, and their commits, by batches
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import plgd_growth
import plgd_load
import pyarrow as pa
import pyarrow.compute as pc

from pelton.plgd import content_json, decode, decode_batch
from pelton.plgd.fleet import FleetConfig, FleetRun
from pelton.plgd.spark.buckets import Job, write_bucket
from pelton.plgd.spark.lake import Lake
from pelton.plgd.tables import Settings
from pelton.plgd.tables.batch import MESSAGES
from pelton.plgd.tables.buckets import bucket_key, bucket_of
from pelton.spark.tables.marks import Mark

BUCKETS = 2


def messages_of(devices: int, events: int, buckets: int = BUCKETS) -> pa.Table:
    """Messages of a fleet as a batch has them."""
    found = []
    for delivery in FleetRun(FleetConfig(devices=devices, duration_s=1e6, seed=3)).deliveries():
        found.append(delivery)
        if len(found) == events:
            break
    columns = {
        "stream": ["EVENTS"] * len(found),
        "seq": range(1, len(found) + 1),
        "received": [one.time_ns // 1000 for one in found],
        "subject": [one.subject for one in found],
        "headers": [None] * len(found),
        "data": [one.payload for one in found],
        "bucket": [bucket_of(bucket_key(one.subject), buckets) for one in found],
    }
    arrays = []
    for field in MESSAGES:
        kind = pa.int64() if field.name == "received" else field.type
        arrays.append(pa.array(columns[field.name], kind).cast(field.type))
    return pa.table(arrays, schema=MESSAGES)


def seconds(work: object) -> float:
    """Processor seconds of a call."""
    began = time.process_time()
    work()
    return time.process_time() - began


def one_by_one(messages: pa.Table) -> None:
    """Decode in a loop, contents too."""
    columns = (messages["subject"].to_pylist(), messages["data"].to_pylist())
    for subject, payload in zip(*columns, strict=True):
        event = decode(subject, payload)
        content = getattr(event.message, "content", None)
        if content is not None:
            content_json(content.data, content.content_type, content.coap_content_format)


def tables(messages: pa.Table, batch: int) -> float:
    """Processor seconds of all tables, behind a first batch that warms up."""
    spent = 0.0
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake(Path(folder), Settings(buckets=BUCKETS))
        lake.create()
        for number, start in enumerate(range(0, len(messages), batch)):
            part = messages.slice(start, batch)
            began = time.process_time()
            begun = lake.begin(Mark("bench", number))
            job = Job(lake.targets, begun.held, lake.settings, f"bench-{number}")
            mine = [part.filter(pc.equal(part["bucket"], bucket)) for bucket in range(BUCKETS)]
            lake.commit(begun, [write_bucket(job, one, rows) for one, rows in enumerate(mine)])
            spent += time.process_time() - began
    return spent


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", default="300", help="numbers of devices, with commas")
    parser.add_argument("--events", default="200000", help="numbers of events, with commas")
    parser.add_argument("--batch", type=int, default=100_000, help="messages of a batch at most")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--tables-only", action="store_true", help="on one core, time tables alone")
    parser.add_argument("--end-to-end", action="store_true", help="from a server's stream by Spark")
    parser.add_argument("--by-hand", action="store_true", help="end to end, the same by hand too")
    parser.add_argument("--save", metavar="FILE", help="only save the messages of a fleet")
    parser.add_argument(
        "--copies", type=int, default=1, help="saved fleets, up to 16, side by side"
    )
    parser.add_argument(
        "--linear", metavar="FILE", nargs="+", default=[], help="end to end, with saved messages"
    )
    parser.add_argument("--rate", type=int, default=0, help="end to end, follow so many a second")
    parser.add_argument("--seconds", type=int, default=60, help="for so long")
    parser.add_argument(
        "--growth", metavar="BATCHES", help="what begin and commit take at these numbers of batches"
    )
    parser.add_argument("--iceberg", action="store_true", help="with --growth: of Iceberg tables")
    given = parser.parse_args()
    counts = [int(count) for count in given.events.split(",")]
    devices = [int(count) for count in given.devices.split(",")]
    if given.save:
        plgd_load.save(given.save, devices[0], counts[0], given.copies)
        return
    if given.growth:
        looks = [int(count) for count in given.growth.split(",")]
        rows = messages_of(devices[0], max(looks) * plgd_growth.SMALL, plgd_growth.BUCKETS)
        figures = plgd_growth.growth(rows, looks, iceberg=given.iceberg)
    elif given.end_to_end:
        from plgd_end_to_end import measure

        figures = measure(given, counts, devices, messages_of)
    else:
        figures = on_one_core(given, counts, devices)
    if given.json:
        given.json.write_text(json.dumps(figures, indent=2))


def on_one_core(
    given: argparse.Namespace, counts: list[int], fleets: list[int]
) -> dict[str, float]:
    """Events a second of each way, printed as a table."""
    figures = {}
    for devices in fleets:
        every = messages_of(devices, max(counts))
        for count in counts:
            messages = every.slice(0, count)
            subjects, data = messages["subject"], messages["data"]
            ways = {
                "decode": lambda s=subjects, d=data: decode_batch(s, d),
                "decode, JSON": lambda s=subjects, d=data: decode_batch(s, d, content="json"),
                "one by one": lambda m=messages: one_by_one(m),
            }
            spent = {
                name: [seconds(work) for _ in range(given.rounds)]
                for name, work in ways.items()
                if not given.tables_only
            }
            spent["tables"] = [tables(messages, given.batch) for _ in range(given.rounds)]
            for name, rounds in spent.items():
                title = f"{name}, {devices:,} devices, {count:,} events"
                figures[title] = figure = count / statistics.median(rounds)
                print(f"{title:48} {figure:12,.0f} events/s   {1e6 / figure:6.2f} µs", flush=True)
    return figures


if __name__ == "__main__":
    main()
