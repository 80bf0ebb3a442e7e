#!/usr/bin/env python3
"""Measure Pelton beside a nats-server: messages per second, start and recovery times, memory.

Both servers are up at once. Each row runs several rounds, and in each round both servers take their
turn, the first one alternating, so that a slow spell of the machine hits both. A row's ratio is the
median of the rounds' ratios; above 1 Pelton is better, also in the rows of times and memory.

    make bench                                  every row, acks from the page cache on both sides
    make bench ARGS='--durability disk'         every ack after an fsync, on both sides
    make bench ARGS='--only fetch --rounds 5'   some rows, more rounds
    make bench ARGS='--cipher aes'              both stores encrypted; chacha or aes
    make bench ARGS='--markdown table.md'       also as a Markdown table

The load comes from natsload.c beside this file, compiled into a temporary folder.
"""

import argparse
import contextlib
import json
import math
import os
import platform
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
START_SECONDS = 30
RUN_SECONDS = 120
FILL = 1_000_000

# What a row is called, and what natsload is told. Rows without -n run for --seconds.
LOADS = {
    "PING/PONG round trip": "rtt",
    "request and reply, 16 B": "reqrep -w 1 -s 16",
    "publish, 16 B": "pub -s 16",
    "publish, 128 B": "pub -s 128",
    "publish, 128 B, 16 connections": "pub -s 128 -c 16",
    "publish and subscribe, 16 B": "pubsub -s 16",
    "publish and subscribe, 128 B": "pubsub -s 128",
    "publish and subscribe, 1 KiB": "pubsub -s 1024",
    "publish and subscribe, 128 B, 1 to 4": "pubsub -s 128 -r 4",
    "JetStream publish, one at a time": "jspub -w 1 -s 128",
    "JetStream publish, one at a time, 16 connections": "jspub -w 1 -s 128 -c 16",
    "JetStream publish, 512 in flight, 16 B": "jspub -w 512 -s 16",
    "JetStream publish, 512 in flight, 128 B": "jspub -w 512 -s 128",
    "JetStream publish, 512 in flight, 1 KiB": "jspub -w 512 -s 1024",
    "JetStream publish, 512 in flight, 16 KiB": "jspub -w 512 -s 16384",
    "JetStream publish, 512 in flight, 16 connections": "jspub -w 512 -s 128 -c 16",
    "JetStream publish, 512 in flight, Nats-Msg-Id": "jspub -w 512 -s 128 -i",
    "JetStream publish, 512 in flight, 10,000 subjects": "jspub -w 512 -s 128 -k 10000",
    "JetStream publish, 512 in flight, memory stream": "jspub -w 512 -s 128 -m",
    "JetStream fetch 1, ack each": "fetch -b 1 -s 128 -n 8000",
    "JetStream fetch 100, ack each": "fetch -b 100 -s 128 -n 60000",
    "JetStream fetch 100, ack each, 1 KiB": "fetch -b 100 -s 1024 -n 40000",
    "JetStream fetch 100, ack each, 4 connections": "fetch -b 100 -s 128 -c 4 -n 60000",
    "JetStream push, no acks": "push -s 128 -n 200000",
    "JetStream push, ack each": "pushack -s 128 -n 60000",
}
COSTS = {
    "start": "ms",
    f"start with {FILL:,} messages stored": "ms",
    "memory when idle": "MB",
    f"memory with {FILL:,} messages stored": "MB",
}


class BenchError(Exception):
    """Something the person at the keyboard can mend; its text says what."""


@dataclass(frozen=True)
class Row:
    """One measured line: medians of both servers, and the median of the rounds' ratios."""

    name: str
    unit: str
    peer: float
    ours: float
    ratio: float

    @property
    def is_rate(self) -> bool:
        return self.unit == "msg/s"


def find_peer() -> str:
    """The nats-server to compare with."""
    named = os.environ.get("NATS_SERVER")
    found = named or shutil.which("nats-server") or shutil.which("/usr/sbin/nats-server")
    if not found:
        raise BenchError(
            "no nats-server to compare with: install one (Debian: apt-get install nats-server),"
            " or name one: make bench NATS_SERVER=/path/to/nats-server"
        )
    return found


def find_ours() -> str:
    """Our server as a user starts it, from the environment that runs this file."""
    script = Path(sys.executable).with_name("pelton-server")
    return str(script) if script.exists() else f"{sys.executable} -m pelton.server"


def build_load(folder: Path) -> Path:
    """Compile natsload; its path."""
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("cc")
    if not compiler:
        raise BenchError(
            "no C compiler for the load generator (Debian: apt-get install gcc libc6-dev)"
        )
    tool = folder / "natsload"
    subprocess.run([compiler, "-O2", "-o", str(tool), str(HERE / "natsload.c")], check=True)
    return tool


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Server:
    """One server process on a port and store of its own."""

    def __init__(self, name: str, command: str, folder: Path, flags: list[str]) -> None:
        self.name = name
        self.command = command.split()
        self.port = free_port()
        self.store = folder / name
        self.log = folder / f"{name}.log"
        self.flags = [
            "-js",
            "-a",
            "127.0.0.1",
            "-p",
            str(self.port),
            "-sd",
            str(self.store),
            *flags,
        ]
        self.process: subprocess.Popen[bytes] | None = None

    def version(self) -> str:
        """What it says of itself; ours names the nats-server it is like, and then itself."""
        command = [*self.command, "--version"]
        said = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
        ours = re.search(r"pelton ([\w.]+)", said)
        return f"Pelton {ours[1]}" if ours else said.replace(": v", " ") or self.command[0]

    def start(self) -> float:
        """Start it; the seconds until it answered a PING."""
        self.store.mkdir(parents=True, exist_ok=True)
        begin = time.perf_counter()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([*self.command, *self.flags], stdout=log, stderr=log)
        while time.perf_counter() - begin < START_SECONDS:
            if self.process.poll() is not None:
                break
            with contextlib.suppress(OSError):
                self.ask(b"PING\r\n", b"PONG")
                return time.perf_counter() - begin
            time.sleep(0.001)
        raise BenchError(f"{self.command[0]} did not start:\n{self.log.read_text()[-1000:]}")

    def ask(self, request: bytes, until: bytes) -> bytes:
        """Send an operation on a connection of its own; what came up to and with `until`."""
        with socket.create_connection(("127.0.0.1", self.port), 5) as connection:
            connection.sendall(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\n')
            connection.sendall(request)
            seen = b""
            while until not in seen:
                more = connection.recv(65536)
                if not more:
                    raise ConnectionError("closed")
                seen += more
            return seen

    def stored(self) -> int:
        """Messages in the load's stream; 0 while there is none."""
        request = b"SUB _INBOX.b 1\r\nPUB $JS.API.STREAM.INFO.LOAD _INBOX.b 0\r\n\r\nPING\r\n"
        with contextlib.suppress(OSError):
            found = re.search(rb'"messages":\s*(\d+)', self.ask(request, b'"type"'))
            return int(found[1]) if found else 0
        return 0

    def memory_mb(self) -> float:
        """Private resident memory of the process."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"RssAnon:\s+(\d+)", status)
        return int(found[1]) / 1024 if found else math.nan

    def stop(self) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Comparison:
    """Two servers and the rows measured on them."""

    def __init__(self, peer: Server, ours: Server, load: Path, rounds: int, seconds: float) -> None:
        self.peer, self.ours = peer, ours
        self.load, self.rounds, self.seconds = load, rounds, seconds
        self.rows: list[Row] = []
        self.failures: list[str] = []

    def run_load(self, server: Server, arguments: str) -> float:
        """Messages per second of one run; nan, and a noted failure, when it did not end well."""
        limit = [] if " -n " in arguments else ["-d", str(self.seconds)]
        command = [str(self.load), "-p", str(server.port), *arguments.split(), *limit]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=RUN_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            self.failures.append(f"{server.name}: {arguments}: no end after {RUN_SECONDS} s")
            return math.nan
        if done.returncode:
            self.failures.append(f"{server.name}: {arguments}: {done.stderr.strip()[-300:]}")
            return math.nan
        return float(json.loads(done.stdout)["rate"])

    def add(self, row: Row) -> None:
        self.rows.append(row)
        print(
            f"{row.name:50s} {row.peer:13,.1f} {row.ours:13,.1f} {row.unit:6s} {row.ratio:7.2f}",
            flush=True,
        )

    def measure_rates(self, only: str) -> None:
        self.peer.start()
        self.ours.start()
        for name, arguments in LOADS.items():
            if only.lower() not in name.lower():
                continue
            rates: dict[str, list[float]] = {"peer": [], "ours": []}
            for number in range(self.rounds):
                order = (self.peer, self.ours) if number % 2 == 0 else (self.ours, self.peer)
                for server in order:
                    rates[server.name].append(self.run_load(server, arguments))
            ratios = [o / p for o, p in zip(rates["ours"], rates["peer"], strict=True)]
            medians = (statistics.median(rates["peer"]), statistics.median(rates["ours"]))
            self.add(Row(name, "msg/s", *medians, statistics.median(ratios)))
        self.peer.stop()
        self.ours.stop()

    def measure_costs(self) -> None:
        """Times and memory: each server alone, from an empty store."""
        costs = {server.name: self.costs_of(server) for server in (self.peer, self.ours)}
        for (name, unit), peer, ours in zip(
            COSTS.items(), costs["peer"], costs["ours"], strict=True
        ):
            self.add(Row(name, unit, peer, ours, peer / ours))

    def costs_of(self, server: Server) -> tuple[float, float, float, float]:
        """In the order of COSTS."""
        starts = []
        for _ in range(self.rounds):
            shutil.rmtree(server.store, ignore_errors=True)
            starts.append(server.start())
            idle = server.memory_mb()
            server.stop()
        server.start()
        self.run_load(server, f"fill -w 512 -s 128 -n {FILL}")
        full = server.memory_mb()
        server.stop()
        begin = time.perf_counter()
        server.start()
        while server.stored() != FILL and time.perf_counter() - begin < START_SECONDS:
            time.sleep(0.002)
        recovery = time.perf_counter() - begin
        server.stop()
        return 1e3 * statistics.median(starts), 1e3 * recovery, idle, full

    def summary(self) -> str:
        ratios = [row.ratio for row in self.rows if row.is_rate and not math.isnan(row.ratio)]
        if not ratios:
            return "no rates were measured"
        mean = statistics.geometric_mean(ratios)
        return f"{len(ratios)} rates: geometric mean {mean:.2f}, lowest {min(ratios):.2f}"


def machine() -> str:
    """What it ran on, in one line."""
    with contextlib.suppress(OSError):
        model = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
        name = model[1] if model else platform.machine()
        python = platform.python_version()
        return f"{name}, {os.cpu_count()} processors, Linux {platform.release()}, Python {python}"
    return platform.platform()


def markdown(comparison: Comparison, durability: str) -> str:
    """The rows as a Markdown table, with what is needed to judge them."""
    where = "on the disk" if durability == "disk" else "in the page cache"
    lines = [
        f"{comparison.peer.version()} and {comparison.ours.version()}; {machine()};",
        f"{time.strftime('%Y-%m-%d', time.gmtime())}, {comparison.rounds} rounds;"
        f" a PubAck means that the message is {where}.",
        "",
        "| | nats-server | Pelton | | ratio |",
        "|---|--:|--:|---|--:|",
    ]
    lines += [
        f"| {r.name} | {r.peer:,.0f} | {r.ours:,.0f} | {r.unit} | {r.ratio:.2f} |"
        for r in comparison.rows
    ]
    return "\n".join([*lines, "", f"{comparison.summary()}.", ""])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer", help="the nats-server to compare with (else NATS_SERVER, PATH)")
    parser.add_argument("--ours", help="our server (else pelton-server of this environment)")
    parser.add_argument("--durability", choices=["page-cache", "disk"], default="page-cache")
    parser.add_argument("--cipher", choices=["chacha", "aes"], help="encrypt both stores")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each row and server")
    parser.add_argument("--seconds", type=float, default=0.7, help="length of a run")
    parser.add_argument(
        "--only", default="", help="rows whose name contains this; no times and memory"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write a table there")
    parser.add_argument("--floor", type=float, help="exit code 1 when a rate's ratio is below this")
    return parser.parse_args()


def compare(options: argparse.Namespace, folder: Path) -> int:
    """Measure, print, write; the exit code."""
    always = options.durability == "disk"
    config = folder / "peer.conf"
    interval = "always" if always else "2m"
    cipher = f", cipher: {options.cipher}, key: bench" if options.cipher else ""
    config.write_text(f'jetstream {{ sync_interval: "{interval}"{cipher} }}\n')
    peer = Server("peer", options.peer or find_peer(), folder, ["-c", str(config)])
    flags = ["--sync_interval", interval, *(["-c", str(config)] if cipher else [])]
    ours = Server("ours", options.ours or find_ours(), folder, flags)
    comparison = Comparison(peer, ours, build_load(folder), options.rounds, options.seconds)
    print(f"{peer.version()} and {ours.version()}; {machine()}")
    print(f"{'':50s} {'nats-server':>13s} {'Pelton':>13s} {'':6s} {'ratio':>7s}")
    try:
        comparison.measure_rates(options.only)
        if not options.only:
            comparison.measure_costs()
    finally:
        peer.stop()
        ours.stop()
    print(comparison.summary())
    for failure in comparison.failures:
        print(f"failed: {failure}", file=sys.stderr)
    if options.json:
        options.json.write_text(
            json.dumps([asdict(row) for row in comparison.rows], indent=1) + "\n"
        )
    if options.markdown:
        options.markdown.write_text(markdown(comparison, options.durability))
    low = options.floor and [
        r.name for r in comparison.rows if r.is_rate and not r.ratio >= options.floor
    ]
    if low:
        print(f"below {options.floor}: {', '.join(low)}", file=sys.stderr)
    return 1 if low or comparison.failures else 0


def main() -> int:
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="pelton-bench-") as folder:
        try:
            return compare(options, Path(folder))
        except BenchError as error:
            print(f"bench: {error}", file=sys.stderr)
            return 1


if __name__ == "__main__":
    sys.exit(main())
