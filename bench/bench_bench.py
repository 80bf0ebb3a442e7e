"""Compare `penstock bench` with natsload.c: the same load on the same server, in turns.

    python bench/bench_bench.py                                both servers, all rows, four minutes
    python bench/bench_bench.py --server penstock --rounds 7   one server
    python bench/bench_bench.py --only publish                 rows whose name contains this

A ratio is the median of the rounds' ratios, `penstock bench` to natsload, by the rates that both print;
they take turns in being the first. The last columns are the processor time of the load generator itself for a message,
while it measures.
Both answer their own requests, on one more connection.
Acks come from the page cache on both servers, so that the load and not the disk is compared.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from compare import BenchError, Server, build_load, find_ours, find_peer, machine

PENSTOCK = str(Path(sys.executable).with_name("penstock"))
TIMEOUT_S = 60
FILLED = "js pub async BENCH.0 --create --purge --stream BENCH --msgs"


@dataclass(frozen=True)
class Load:
    """A load as both generators are told."""

    natsload: str
    bench: str
    messages: int
    reads: bool = False
    """Whether the stream must be filled before; natsload fills its own."""


STORE = "--create --purge --stream BENCH"
ASK = "service request LOAD.0 --serve --size 16"
LOADS = {
    "publish": Load("pub", "pub LOAD.0", 3_000_000),
    "publish, 16 clients": Load("pub -c 16", "pub LOAD.0 --clients 16", 3_000_000),
    "request, one at a time": Load("reqrep -w 1 -s 16", ASK, 15_000),
    "request, 64 outstanding": Load("reqrep -w 64 -s 16", f"{ASK} --outstanding 64", 150_000),
    "request, 16 clients": Load("reqrep -w 1 -s 16 -c 16", f"{ASK} --clients 16", 50_000),
    "js pub sync": Load("jspub -w 1", f"js pub sync BENCH.0 {STORE}", 15_000),
    "js pub sync, 16 clients": Load(
        "jspub -w 1 -c 16", f"js pub sync BENCH.0 {STORE} --clients 16", 60_000
    ),
    "js pub async, 512 in flight": Load(
        "jspub -w 512", f"js pub async BENCH.0 {STORE} --batch 512", 300_000
    ),
    "js pub async, 16 clients": Load(
        "jspub -w 512 -c 16", f"js pub async BENCH.0 {STORE} --batch 512 --clients 16", 300_000
    ),
    "js fetch 100, ack each": Load(
        "fetch -b 100", "js fetch --stream BENCH --batch 100", 120_000, reads=True
    ),
    "js fetch 100, ack each, 4 clients": Load(
        "fetch -b 100 -c 4", "js fetch --stream BENCH --batch 100 --clients 4", 120_000, reads=True
    ),
    "js push": Load("push", "js push --stream BENCH --acks none", 400_000, reads=True),
    "js push, ack each": Load("pushack", "js push --stream BENCH", 150_000, reads=True),
}


@dataclass(frozen=True)
class Run:
    """What one run gave: messages per second, microseconds of a processor for a message."""

    rate: float
    cost_us: float


@dataclass
class Row:
    """All rounds of a load on a server."""

    name: str
    natsload: list[Run] = field(default_factory=list)
    bench: list[Run] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """The median of the rounds' ratios."""
        pairs = zip(self.bench, self.natsload, strict=True)
        return statistics.median(ours.rate / theirs.rate for ours, theirs in pairs)

    def cells(self) -> list[str]:
        """Its cells in the table."""
        both = self.natsload, self.bench
        rates = [f"{statistics.median(run.rate for run in runs):,.0f}" for runs in both]
        costs = [f"{statistics.median(run.cost_us for run in runs):.2f}" for runs in both]
        return [self.name, *rates, f"{self.ratio:.2f}", *costs]


class Comparison:
    """Both generators on one server."""

    def __init__(self, server: Server, natsload: Path, rounds: int, scale: float) -> None:
        self.server = server
        self.natsload = natsload
        self.rounds = rounds
        self.scale = scale

    def measure(self, name: str, load: Load) -> Row:
        """All rounds of a row."""
        row = Row(name)
        count = max(1000, int(load.messages * self.scale))
        for number in range(self.rounds):
            if number % 2:
                row.natsload.append(self.by_natsload(load, count))
            row.bench.append(self.by_bench(load, count))
            if number % 2 == 0:
                row.natsload.append(self.by_natsload(load, count))
        return row

    def by_natsload(self, load: Load, count: int) -> Run:
        """One run of natsload."""
        port = str(self.server.port)
        found = result_of(
            [str(self.natsload), "-p", port, *load.natsload.split(), "-n", str(count)]
        )
        return Run(found["rate"], found["processor_seconds"] / count * 1e6)

    def by_bench(self, load: Load, count: int) -> Run:
        """One run of `penstock bench`."""
        if load.reads:
            result_of(self.command(f"{FILLED} {count}"))
        found = result_of(self.command(f"{load.bench} --msgs {count}"))
        if " fetch " in load.bench:
            self.remove_consumer()
        return Run(found["messages_per_second"], found["processor_seconds"] / count * 1e6)

    def command(self, words: str) -> list[str]:
        """A command line of `penstock bench`."""
        url = f"nats://127.0.0.1:{self.server.port}"
        return [PENSTOCK, "-s", url, "bench", *words.split(), "--json"]

    def remove_consumer(self) -> None:
        """The next round reads from the start again."""
        request = (
            b"SUB _INBOX.b 1\r\nPUB $JS.API.CONSUMER.DELETE.BENCH.nats-bench _INBOX.b 0\r\n\r\n"
        )
        self.server.ask(request, b'"type"')


def result_of(command: list[str]) -> dict[str, float]:
    """What a command printed as JSON."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        raise BenchError(f"{' '.join(command)}: {done.stderr.strip()[-300:]}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def table(rows: list[Row]) -> str:
    """The rows in Markdown."""
    head = ["", "natsload", "penstock bench", "ratio", "natsload, µs", "penstock bench, µs"]
    lines = [f"| {' | '.join(head)} |", "|---|--:|--:|--:|--:|--:|"]
    return "\n".join([*lines, *(f"| {' | '.join(row.cells())} |" for row in rows)])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--server", choices=["penstock", "nats-server"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="of the messages of each run")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    return parser.parse_args()


def compare(options: argparse.Namespace, folder: Path) -> None:
    """Measure on each server and print a table."""
    config = folder / "bench.conf"
    config.write_text('jetstream { sync_interval: "2m" }\n')
    flags = ["-c", str(config)]
    servers = {"penstock": find_ours, "nats-server": find_peer}
    natsload = build_load(folder)
    print(machine(), flush=True)
    for kind, command in servers.items():
        if options.server not in (None, kind):
            continue
        server = Server(kind, command(), folder, flags)
        server.start()
        try:
            comparison = Comparison(server, natsload, options.rounds, options.scale)
            rows = []
            for name, load in LOADS.items():
                if options.only in name:
                    rows.append(comparison.measure(name, load))
                    print(f"{kind}: {name}: {rows[-1].ratio:.2f}", file=sys.stderr, flush=True)
        finally:
            server.stop()
        print(f"\n{server.version()}, {options.rounds} rounds\n\n{table(rows)}", flush=True)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        try:
            compare(arguments(), Path(folder))
        except BenchError as error:
            print(f"bench_bench: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
