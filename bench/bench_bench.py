"""Compare `pelton bench` with natsload.c: the same load on the same server, in turns.

    python bench/bench_bench.py                                both servers, all rows, ten minutes
    python bench/bench_bench.py --server pelton --rounds 7   one server
    python bench/bench_bench.py --only publish                 rows whose name contains this

Both do the same work: the same streams and consumers, made by natsload, the same subjects, sizes and windows, and a
queue group of responders. A first run of natsload, which counts for nothing, says how many messages last a second
(--seconds); a stream is removed before the next run begins.

A ratio is the median of the rounds' ratios, `pelton bench` to natsload, by the rates that both print;
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

PELTON = str(Path(sys.executable).with_name("pelton"))
TIMEOUT_S = 60
STORED_MOST = 3_000_000
"""Messages of a stream: below a gigabyte, so that the kernel need not write while it is read."""


@dataclass(frozen=True)
class Load:
    """A load as both generators are told."""

    natsload: str
    bench: str
    tried: int
    """Messages of the first run."""
    stream: str = ""
    """``empty`` or ``filled``: the stream LOAD that `pelton bench` finds; natsload makes its own."""


ASK = "service request LOAD.0 --serve --size 16"
READ = "--stream LOAD"
ENDS = "--consumer reader"
LOADS = {
    "publish": Load("pub", "pub LOAD.0", 3_000_000),
    "publish, 16 clients": Load("pub -c 16", "pub LOAD.0 --clients 16", 3_000_000),
    "request, one at a time": Load("reqrep -q -w 1 -s 16", ASK, 5_000),
    "request, 64 outstanding": Load("reqrep -q -w 64 -s 16", f"{ASK} --outstanding 64", 150_000),
    "request, 16 clients": Load("reqrep -q -w 1 -s 16 -c 16", f"{ASK} --clients 16", 30_000),
    "js pub sync": Load("jspub -w 1", f"js pub sync LOAD.0 {READ}", 8_000, "empty"),
    "js pub sync, 16 clients": Load(
        "jspub -w 1 -c 16", f"js pub sync LOAD.0 {READ} --clients 16", 40_000, "empty"
    ),
    "js pub async, 512 in flight": Load(
        "jspub -w 512", f"js pub async LOAD.0 {READ} --batch 512", 200_000, "empty"
    ),
    "js pub async, 16 clients": Load(
        "jspub -w 512 -c 16",
        f"js pub async LOAD.0 {READ} --batch 512 --clients 16",
        200_000,
        "empty",
    ),
    "js fetch 100, ack each": Load(
        "fetch -b 100", f"js fetch {READ} {ENDS} --batch 100", 120_000, "filled"
    ),
    "js fetch 100, ack each, 4 clients": Load(
        "fetch -b 100 -c 4", f"js fetch {READ} {ENDS} --batch 100 --clients 4", 120_000, "filled"
    ),
    "js push": Load("push -e", f"js push {READ} --acks none", 400_000, "filled"),
    "js push, ack each": Load("pushack -e", f"js push {READ}", 150_000, "filled"),
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

    def __init__(self, server: Server, natsload: Path, rounds: int, seconds: float) -> None:
        self.server = server
        self.natsload = natsload
        self.rounds = rounds
        self.seconds = seconds

    def measure(self, name: str, load: Load) -> Row:
        """All rounds of a row."""
        row = Row(name)
        count = max(1000, int(self.by_natsload(load, load.tried).rate * self.seconds))
        if load.stream:
            count = min(count, STORED_MOST)
        for number in range(self.rounds):
            if number % 2:
                row.natsload.append(self.by_natsload(load, count))
            row.bench.append(self.by_bench(load, count))
            if number % 2 == 0:
                row.natsload.append(self.by_natsload(load, count))
        return row

    def by_natsload(self, load: Load, count: int) -> Run:
        """One run of natsload."""
        found = result_of(self.told(f"{load.natsload} -n {count}"))
        return Run(found["rate"], found["processor_seconds"] / count * 1e6)

    def by_bench(self, load: Load, count: int) -> Run:
        """One run of `pelton bench`."""
        if load.stream:
            stored = count if load.stream == "filled" else 1
            result_of(self.told(f"fill -w 1000 -n {stored}"))
        url = f"nats://127.0.0.1:{self.server.port}"
        words = f"bench {load.bench} --msgs {count} --json"
        found = result_of([PELTON, "-s", url, *words.split()])
        if load.stream:
            self.remove_stream()
        return Run(found["messages_per_second"], found["processor_seconds"] / count * 1e6)

    def told(self, words: str) -> list[str]:
        """A command line of natsload."""
        return [str(self.natsload), "-p", str(self.server.port), *words.split()]

    def remove_stream(self) -> None:
        """As natsload does at its end."""
        request = b"SUB _INBOX.b 1\r\nPUB $JS.API.STREAM.DELETE.LOAD _INBOX.b 0\r\n\r\n"
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
    head = ["", "natsload", "pelton bench", "ratio", "natsload, µs", "pelton bench, µs"]
    lines = [f"| {' | '.join(head)} |", "|---|--:|--:|--:|--:|--:|"]
    return "\n".join([*lines, *(f"| {' | '.join(row.cells())} |" for row in rows)])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--server", choices=["pelton", "nats-server"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="that each run takes, about")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    return parser.parse_args()


def compare(options: argparse.Namespace, folder: Path) -> None:
    """Measure on each server and print a table."""
    config = folder / "bench.conf"
    config.write_text('jetstream { sync_interval: "2m" }\n')
    flags = ["-c", str(config)]
    servers = {"pelton": find_ours, "nats-server": find_peer}
    natsload = build_load(folder)
    print(machine(), flush=True)
    for kind, command in servers.items():
        if options.server not in (None, kind):
            continue
        server = Server(kind, command(), folder, flags)
        server.start()
        try:
            comparison = Comparison(server, natsload, options.rounds, options.seconds)
            rows = []
            for name, load in LOADS.items():
                if options.only in name:
                    rows.append(comparison.measure(name, load))
                    print(f"{kind}: {name}: {rows[-1].ratio:.2f}", file=sys.stderr, flush=True)
        finally:
            server.stop()
        print(f"\n{server.version()}, {options.rounds} rounds\n\n{table(rows)}", flush=True)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="pelton-bench-") as folder:
        try:
            compare(arguments(), Path(folder))
        except BenchError as error:
            print(f"bench_bench: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
