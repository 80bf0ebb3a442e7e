#!/usr/bin/env python3
"""How fast `pelton.sql` answers: out of a store folder, and over the network.

    python bench/bench_sql.py                         10 million messages of 128 bytes, three rounds
    python bench/bench_sql.py --messages 1000000 --folder ./sql-bench

The folder is filled once, and kept if it is named. Then each query runs in a process of its own, from the
start of `pelton sql` to its end, and the medians are printed: seconds, processor time, rows a second. The
queries over the network go to pelton-server on the same folder.
"""

import argparse
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pelton.api.streams import StreamConfig
from pelton.core.base.disk import Disk
from pelton.core.log import maintenance
from pelton.core.log.recovery import open_log
from pelton.engine.files.files import FORMAT, AccountFiles, StreamFile
from pelton.testing import LocalServer

BEGAN_NS = 1_700_000_000_000_000_000
STEP_NS = 1_000_000
SUBJECTS = 1000
PAYLOAD = b'{"id": 12345, "name": "a bolt of steel", "price": 4.25, "note": "%s"}'


def fill(folder: Path, count: int) -> None:
    """A stream BIG as a server leaves it."""
    files = AccountFiles(Disk(), str(folder), "$G")
    files.open()
    stream = files.stream("BIG")
    stream.create()
    config = StreamConfig(name="BIG", subjects=["big.>"], num_replicas=1, allow_direct=True)
    stream.write(StreamFile(format=FORMAT, created=BEGAN_NS, config=config))
    log = open_log(stream.log_folder)
    subjects = [f"big.{number}" for number in range(SUBJECTS)]
    payload = PAYLOAD % (b"x" * (128 - len(PAYLOAD) + 2))
    for number in range(count):
        log.add(BEGAN_NS + number * STEP_NS, subjects[number * 7919 % SUBJECTS], payload)
    maintenance.close(log)


def queries(count: int) -> dict[str, str]:
    """What is asked, by what it shows."""
    middle = count // 2
    return {
        "count by subject": "select subject, count(*) from BIG group by all",
        "a thousand sequences": f"select count(*) from BIG where seq between {middle} and {middle + 999}",
        "the last thousand, by time": "select count(*), max(size) from BIG where ts_ns >= "
        f"{BEGAN_NS + (count - 1000) * STEP_NS}",
        "one subject of a thousand": "select sum(size) from BIG where subject = 'big.7'",
        "text in payloads": "select count(*) from BIG where text like '%copper%'",
    }


def timed(arguments: list[str]) -> tuple[float, float]:
    """(seconds, seconds of the processor) of one command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "pelton.cli", *arguments], capture_output=True, check=False
    )
    seconds = time.perf_counter() - began
    if done.returncode:
        sys.exit(f"{arguments} failed: {done.stderr.decode()}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, used


def measure(title: str, where: list[str], count: int, rounds: int) -> None:
    """Print the medians of all queries."""
    for name, query in queries(count).items():
        runs = [timed([*where[:2], "sql", query, *where[2:]]) for _ in range(rounds)]
        seconds = statistics.median(each[0] for each in runs)
        used = statistics.median(each[1] for each in runs)
        print(
            f"{title:8} {name:28} {seconds:6.2f} s {used:6.2f} s of the processor "
            f"{count / seconds:12,.0f} messages/s"
        )


def main() -> None:
    """Fill, measure, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=None)
    asked = parser.parse_args()
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="pelton-sql-"))
    try:
        if not (folder / "jetstream").exists():
            fill(folder, asked.messages)
        measure(
            "folder", ["--timeout", "60s", "--store", str(folder)], asked.messages, asked.rounds
        )
        with LocalServer(store=str(folder)) as server:
            measure("network", ["--server", server.url], asked.messages, asked.rounds)
    finally:
        if asked.folder is None:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
