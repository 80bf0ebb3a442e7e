#!/usr/bin/env python3
"""A server under many connections: memory, storms, throughput among them, slow consumers.

    python bench/bench_load.py                              pelton-server, and nats-server if it is there
    python bench/bench_load.py --connections 2000 --rounds 5

Prints a Markdown table, a column for each server. The load comes from natscrowd.c beside this file
(10,000 connections in one thread) and natsload.c (single rows, with the crowd idle beside them);
both check what they get: a row with a lost, doubled or misordered message ends the program. Rates are
medians of --rounds, with the server's processor time per message. JetStream's acks come from the page
cache on both sides. Memory is the resident set of the server process: what the kernel keeps for the
sockets is not in it. 10,000 connections need 10,200 open files on both sides (ulimit -n). The peer is
$NATS_SERVER or nats-server in PATH.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import shlex
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.request import urlopen

from bench_start import cpu_ms, free_port

HERE = Path(__file__).resolve().parent
IDLE_SECONDS = 5
PINGS_OVER_SECONDS = 4  # the server's first pings come two to three seconds after connecting
LOADS = {
    "publish and subscribe, 128 B": "pubsub -s 128 -d 1",
    "request and reply, 16 B": "reqrep -w 1 -s 16 -d 1",
    "JetStream publish, 512 in flight, 128 B": "jspub -w 512 -s 128 -d 1",
}


class Server:
    """One server process with monitoring and a store."""

    def __init__(self, command: list[str], folder: str, max_pending: str = "64MB") -> None:
        self.port, self.http_port = free_port(), free_port()
        config = Path(folder, "load.conf")
        config.write_text(
            f"max_pending: {max_pending}\nmax_connections: 100000\n"
            f'jetstream {{ store_dir: "{folder}", sync_interval: "2m" }}\n'
        )
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        self.process = subprocess.Popen(
            [
                *(*command, "-c", str(config), "-p", str(self.port)),
                *("-m", str(self.http_port), "-js"),
            ],
            env=env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until = time.monotonic() + 20
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                self.varz()
                break
            time.sleep(0.05)

    def varz(self) -> dict[str, int]:
        with urlopen(f"http://127.0.0.1:{self.http_port}/varz", timeout=20) as answer:
            return json.load(answer)

    def resident(self) -> int:
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def cpu_seconds(self) -> float:
        return cpu_ms(self.process.pid) / 1e3

    def pong_ms(self) -> float:
        begun = time.perf_counter()
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as link:
            link.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
            data = b""
            while b"PONG" not in data:
                data += link.recv(65536)
        return (time.perf_counter() - begun) * 1e3

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


class Crowd:
    """A natscrowd process: one command, one answer."""

    def __init__(self, program: str, port: int) -> None:
        self.process = subprocess.Popen(
            [program, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def do(self, command: str) -> dict[str, float]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(f"  {command}", end=" ", file=sys.stderr, flush=True)
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        print(line.strip(), file=sys.stderr)
        answer = json.loads(line or '{"error":"natscrowd is gone"}')
        if "error" in answer or answer.get("faults") or answer.get("missing"):
            raise SystemExit(f"{command}: {answer}")
        return answer

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)


class Bench:
    """The rows of one server."""

    def __init__(self, args: argparse.Namespace, programs: str, command: list[str]) -> None:
        self.args, self.programs, self.command = args, programs, command
        self.rows: dict[str, str] = {}

    def run(self) -> dict[str, str]:
        for part in (self.alone, self.crowd, self.subscriptions, self.slow):
            with tempfile.TemporaryDirectory() as folder:
                pending = "1MB" if part == self.slow else "64MB"
                server = Server(self.command, folder, pending)
                crowd = Crowd(f"{self.programs}/natscrowd", server.port)
                try:
                    part(server, crowd)
                finally:
                    crowd.end()
                    server.stop()
        return self.rows

    def rate(self, name: str, server: Server, crowd: Crowd, command: str) -> None:
        crowd.do(command)  # once for the caches
        before, rates, messages = server.cpu_seconds(), [], 0.0
        for _ in range(self.args.rounds):
            answer = crowd.do(command)
            rates.append(answer["rate"])
            messages += answer["received"]
        spent = (server.cpu_seconds() - before) / messages * 1e6
        self.rows[name] = f"{statistics.median(rates):,.0f}/s, {spent:.2f} µs"

    def loads(self, server: Server, when: str) -> None:
        for name, arguments in LOADS.items():
            rates, messages, before = [], 0, server.cpu_seconds()
            for _ in range(self.args.rounds):
                done = subprocess.run(
                    [f"{self.programs}/natsload", "-p", str(server.port), *arguments.split()],
                    capture_output=True,
                    text=True,
                    check=True,
                )
                found = json.loads(done.stdout)
                rates.append(found["rate"])
                messages += found["messages"]
            spent = (server.cpu_seconds() - before) / messages * 1e6
            self.rows[f"{name}, {when}"] = f"{statistics.median(rates):,.0f}/s, {spent:.2f} µs"

    def alone(self, server: Server, crowd: Crowd) -> None:
        crowd.do("connect 1 1")
        self.rate("to itself, 100 in flight, 1 connection", server, crowd, "rounds 10000 100 128")
        self.rate("to itself, 1 in flight, 1 connection", server, crowd, "rounds 50000 1 128")
        crowd.do("drop")
        self.loads(server, "nobody else")

    def crowd(self, server: Server, crowd: Crowd) -> None:
        many = self.args.connections
        before, cpu = server.resident(), server.cpu_seconds()
        opened = crowd.do(f"connect {many} 1")
        spent = (server.cpu_seconds() - cpu) / many * 1e6
        self.rows[f"{many:,} connect, SUB and PING"] = f"{opened['seconds']:.2f} s, {spent:.0f} µs"
        time.sleep(PINGS_OVER_SECONDS)
        each = (server.resident() - before) / many / 1024
        self.rows["memory of an idle connection with one subscription"] = f"{each:.1f} KiB"
        cpu = server.cpu_seconds()
        time.sleep(IDLE_SECONDS)
        share = (server.cpu_seconds() - cpu) / IDLE_SECONDS * 100
        self.rows[f"processor with {many:,} idle"] = f"{share:.2f} %"
        self.loads(server, f"{many:,} idle beside")
        hundred = f"rounds {max(20000 // many, 1)} 100 128"
        self.rate(f"1 to 1, 100 in flight, {many:,} connections", server, crowd, hundred)
        one = f"rounds {max(100000 // many, 1)} 1 128"
        self.rate(f"1 to 1, 1 in flight, {many:,} connections", server, crowd, one)
        churned = crowd.do("churn 5")
        rate = churned["churned"] / churned["seconds"]
        self.rows["SUB and UNSUB"] = f"{rate:,.0f}/s"
        self.storm(server, crowd)

    def storm(self, server: Server, crowd: Crowd) -> None:
        many = self.args.connections
        cpu, begun = server.cpu_seconds(), time.perf_counter()
        crowd.do("drop")
        answered = server.pong_ms()
        while server.varz()["connections"] > 0:
            time.sleep(0.01)
        gone = time.perf_counter() - begun
        spent = (server.cpu_seconds() - cpu) / many * 1e6
        self.rows[f"{many:,} closed at once: all gone"] = f"{gone:.2f} s, {spent:.0f} µs"
        self.rows["PONG to a newcomer meanwhile"] = f"{answered:.0f} ms"
        times = []
        for _ in range(self.args.rounds):
            times.append(crowd.do(f"connect {many} 1")["seconds"])
            crowd.do("drop")
        self.rows[f"{many:,} come again, right after all went"] = (
            f"{statistics.median(times):.2f} s"
        )

    def subscriptions(self, server: Server, crowd: Crowd) -> None:
        many, before = self.args.connections, server.resident()
        opened = crowd.do(f"connect {many} 10")
        self.rows[f"{many:,} connect with 10 subscriptions each"] = f"{opened['seconds']:.2f} s"
        time.sleep(PINGS_OVER_SECONDS)
        each = (server.resident() - before) / many / 1024
        self.rows["memory of an idle connection with 10 subscriptions"] = f"{each:.1f} KiB"
        name = f"many to many, {many * 10:,} subscriptions"
        self.rate(name, server, crowd, "rounds 1 20 128")

    def slow(self, server: Server, crowd: Crowd) -> None:
        """With max_pending 1MB, so that a thousand of them are no test of the machine's memory."""
        crowd.do("connect 10 1")
        crowd.do("listen 0")
        self.rate("to one another, 10 connections", server, crowd, "rounds 2000 100 128")
        many = self.args.slow
        crowd.do(f"deaf {many}")
        crowd.do("flood 1 200 8192")  # fills what the kernel takes
        self.rate(
            f"to one another, 10 connections, {many:,} who don't read",
            server,
            crowd,
            "rounds 2000 100 128",
        )
        flooded = crowd.do("flood 1 600 8192")
        crowd.do("heard 0 800")
        self.rows["600 messages of 8 KiB to them and one who reads"] = f"{flooded['seconds']:.2f} s"
        cut = server.varz()["slow_consumers"]
        until = time.monotonic() + 15
        while cut < many and time.monotonic() < until:
            time.sleep(0.2)
            cut = server.varz()["slow_consumers"]
        self.rows["slow consumers cut off; messages lost to others"] = f"{cut:,}; 0"


def compiled(folder: str) -> None:
    for name in ("natscrowd", "natsload"):
        subprocess.run(["cc", "-O2", "-o", f"{folder}/{name}", str(HERE / f"{name}.c")], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--slow", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", default=os.environ.get("NATS_SERVER") or "nats-server")
    args = parser.parse_args()
    if importlib.util.find_spec("pelton") is None:  # not installed: the tree's own
        os.environ["PYTHONPATH"] = str(HERE.parent / "src")
    servers = {"Pelton": [sys.executable, "-m", "pelton.server"]}
    peer = shlex.split(args.peer)
    if shutil.which(peer[0]):
        servers["nats-server"] = peer
    with tempfile.TemporaryDirectory() as programs:
        compiled(programs)
        columns = {}
        for name, command in servers.items():
            print(name, file=sys.stderr)
            columns[name] = Bench(args, programs, command).run()
    print(f"| | {' | '.join(columns)} |")
    print("|---" + "|--:" * len(columns) + "|")
    for row in next(iter(columns.values())):
        print(f"| {row} | {' | '.join(column[row] for column in columns.values())} |")


if __name__ == "__main__":
    main()
