#!/usr/bin/env python3
"""One stream with very many messages, subjects, holes and consumers: what single operations cost.

    python bench/bench_scale.py                       a million subjects, ten million messages,
                                                      a million interior deletes, 10,000 consumers
    python bench/bench_scale.py --messages 1000000 --subjects 100000 --consumers 1000
    python bench/bench_scale.py --server ours         one of the two only

Both servers get the same work, one after the other: fill, delete one group of subjects in the
middle, create the consumers, then each operation many times, one at a time, over one connection.
Times are milliseconds from request to answer, median and the worst of a hundred; then memory, and
the processor while nobody asks for anything. The peer is $NATS_SERVER or nats-server in PATH.
"""

import argparse
import contextlib
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

GROUPS = 10
PURGED = 5
START_SECONDS = 60
REST_SECONDS = 10
IDLE_SECONDS = 10
FILL_BLOCK = 5000


class Client:
    """One connection that asks and waits."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=300)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.data = b""
        self.number = 0
        self.inbox = b"_R%s" % os.urandom(4).hex().encode()
        options = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True}
        connect = b"CONNECT " + json.dumps(options).encode()
        self.socket.sendall(b"%s\r\nSUB %s.> 1\r\n" % (connect, self.inbox))
        self.flush()

    def flush(self) -> None:
        """Wait until all that was sent is processed."""
        self.socket.sendall(b"PING\r\n")
        while self.line() != b"PONG":
            pass

    def _more(self) -> None:
        got = self.socket.recv(1 << 20)
        if not got:
            raise SystemExit("the server has closed the connection")
        self.data += got

    def line(self) -> bytes:
        """The next line."""
        while b"\r\n" not in self.data:
            self._more()
        line, _, self.data = self.data.partition(b"\r\n")
        return line

    def message(self) -> bytes:
        """The body of the next message, headers included."""
        while True:
            line = self.line()
            if line.startswith((b"MSG ", b"HMSG ")):
                size = int(line.rpartition(b" ")[2])
                while len(self.data) < size + 2:
                    self._more()
                body, self.data = self.data[:size], self.data[size + 2 :]
                return body
            if line == b"PING":
                self.socket.sendall(b"PONG\r\n")

    def ask(self, subject: str, body: Any = b"") -> bytes:
        """The answer to one request."""
        self.number += 1
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.socket.sendall(
            b"PUB %s %s.%d %d\r\n%s\r\n"
            % (subject.encode(), self.inbox, self.number, len(raw), raw)
        )
        return self.message()

    def api(self, call: str, body: Any = b"") -> Any:
        """The answer of an API call that must not fail."""
        answer = json.loads(self.ask(f"$JS.API.{call}", body))
        if "error" in answer:
            raise SystemExit(f"{call}: {answer['error']}")
        return answer


@dataclass
class Results:
    """The figures of one server."""

    rows: dict[str, str] = field(default_factory=dict)

    def timed(self, name: str, act: Callable[[int], object], count: int) -> None:
        """Do it so many times; median and worst."""
        times = []
        for n in range(count):
            begun = time.perf_counter()
            act(n)
            times.append((time.perf_counter() - begun) * 1000)
        self.rows[name] = f"{statistics.median(times):.2f} / {max(times):.1f} ms"
        print(f"  {name}: {self.rows[name]}", flush=True)

    def once(self, name: str, act: Callable[[], object]) -> None:
        """Do it once; seconds."""
        begun = time.perf_counter()
        act()
        self.rows[name] = f"{time.perf_counter() - begun:.2f} s"
        print(f"  {name}: {self.rows[name]}", flush=True)


def subject_of(number: int, subjects: int) -> str:
    """The subject of the n-th message: its group, then its place."""
    place = number % subjects
    return f"b.{place % GROUPS}.{place}"


def fill(client: Client, args: argparse.Namespace) -> None:
    """Publish all messages; one in each block asks for an acknowledgement."""
    subjects = [subject_of(n, args.subjects).encode() for n in range(args.subjects)]
    waiting = 0
    for start in range(0, args.messages, FILL_BLOCK):
        lines = [
            b"PUB %s 16\r\n0123456789abcdef\r\n" % subjects[n % args.subjects]
            for n in range(start, min(start + FILL_BLOCK, args.messages))
        ]
        lines[-1] = lines[-1].replace(b" 16\r\n", b" %s.p 16\r\n" % client.inbox, 1)
        client.socket.sendall(b"".join(lines))
        waiting += 1
        if waiting == 4:
            client.message()
            waiting -= 1
    for _ in range(waiting):
        client.message()


def add_consumers(client: Client, args: argparse.Namespace) -> None:
    """Create them: nine of ten with a filter on one subject, the others on everything."""
    for n in range(args.consumers):
        config = {"durable_name": f"c{n}", "ack_policy": "explicit", "deliver_policy": "all"}
        if n % 10:
            config["filter_subject"] = subject_of(n, args.subjects)
        client.api(f"CONSUMER.CREATE.BIG.c{n}", {"stream_name": "BIG", "config": config})


def processor_seconds(pid: int) -> float:
    """What the process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int) -> int:
    """Resident memory."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) // 1024
    return 0


def operations(client: Client, args: argparse.Namespace) -> dict[str, Callable[[int], object]]:
    """What is measured, by name: each gets the number of its turn."""
    following = "$JS.API.CONSUMER.MSG.NEXT.BIG"
    subjects, consumers, times = args.subjects, args.consumers, args.times

    def name(n: int) -> str:
        """A subject that has messages: not of the group that was purged."""
        number = (n * 7919) % subjects
        return subject_of(number + (number % GROUPS == PURGED), subjects)

    def by_wildcard(n: int) -> str:
        return f"b.*.{name(n).rpartition('.')[2]}"

    def info(**options: Any) -> object:
        return client.api("STREAM.INFO.BIG", options)

    def consumer(n: int, *, filtered: bool) -> int:
        number = n * 30 % consumers
        return number + 1 if filtered else number

    def fetch(n: int, *, filtered: bool) -> object:
        request = {"batch": 1, "no_wait": True}
        return client.ask(f"{following}.c{consumer(n, filtered=filtered)}", request)

    def come_and_go(n: int) -> object:
        config = {"durable_name": "x", "ack_policy": "explicit", "filter_subject": by_wildcard(n)}
        client.api("CONSUMER.CREATE.BIG.x", {"stream_name": "BIG", "config": config})
        return client.api("CONSUMER.DELETE.BIG.x")

    def get(**request: Any) -> object:
        return client.api("STREAM.MSG.GET.BIG", request)

    def purge(subject: str) -> object:
        return client.api("STREAM.PURGE.BIG", {"filter": subject})

    return {
        "stream info": lambda n: info(),
        "stream info, one subject": lambda n: info(subjects_filter=name(n)),
        "stream info, a wildcard, one match": lambda n: info(subjects_filter=by_wildcard(n)),
        "publish, known subject": lambda n: client.ask(name(n), b"x"),
        "publish, new subject": lambda n: client.ask(f"b.new.{n}", b"x"),
        "fetch 1 by filter": lambda n: fetch(n, filtered=True),
        "fetch 1, no filter": lambda n: fetch(n, filtered=False),
        "consumer info": lambda n: client.api(f"CONSUMER.INFO.BIG.c{consumer(n, filtered=True)}"),
        "create and delete a consumer": come_and_go,
        "get the last of a subject": lambda n: get(last_by_subj=name(n)),
        "get the next by wildcard": lambda n: get(seq=1 + n, next_by_subj=by_wildcard(n)),
        "purge a subject": lambda n: purge(name(n)),
        "purge by wildcard, one match": lambda n: purge(by_wildcard(n + times)),
        "delete a message": lambda n: client.ask(
            "$JS.API.STREAM.MSG.DELETE.BIG", {"seq": 1001 + GROUPS * n}
        ),
    }


def measure(client: Client, pid: int, args: argparse.Namespace, results: Results) -> None:
    """All operations on the filled stream, then what the server costs at rest."""
    for name, act in operations(client, args).items():
        results.timed(name, act, args.times)
    time.sleep(REST_SECONDS)
    begun = processor_seconds(pid)
    time.sleep(IDLE_SECONDS)
    used = (processor_seconds(pid) - begun) / IDLE_SECONDS
    results.rows["processor when idle"] = f"{used:.1%}"
    results.rows["memory"] = f"{memory_mb(pid)} MB"
    print(f"  idle {used:.1%}, {memory_mb(pid)} MB", flush=True)


@contextlib.contextmanager
def running(command: list[str], folder: str, sync: str = "2m") -> Iterator[tuple[int, int]]:
    """A server on a free port with its own store: port and process id."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = Path(folder) / "server.conf"
    # nats-server has a default limit of 1,000 consumers to a stream
    more = "" if "pelton" in " ".join(command) else ", limits { default_max_consumers: 1000000 }"
    store = f'store_dir: "{folder}/store", sync_interval: "{sync}"{more}'
    config.write_text(f'listen: "127.0.0.1:{port}"\njetstream {{ {store} }}\n')
    with (Path(folder) / "log").open("wb") as log:
        process = subprocess.Popen([*command, "-c", str(config)], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            time.sleep(0.05)
        yield port, process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def run(name: str, command: list[str], args: argparse.Namespace) -> Results:
    """Everything on one server."""
    print(name, flush=True)
    results = Results()
    with (
        tempfile.TemporaryDirectory(dir=args.folder) as folder,
        running(command, folder) as (port, pid),
    ):
        client = Client(port)
        client.api("STREAM.CREATE.BIG", {"name": "BIG", "subjects": ["b.>"]})
        results.once(f"fill, {args.messages:,} messages", lambda: fill(client, args))
        results.once(
            f"purge {args.messages // GROUPS:,} in the middle",
            lambda: client.api("STREAM.PURGE.BIG", {"filter": f"b.{PURGED}.*"}),
        )
        results.once(f"create {args.consumers:,} consumers", lambda: add_consumers(client, args))
        measure(client, pid, args, results)
    return results


def main() -> None:
    """Run and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--subjects", type=int, default=1_000_000)
    parser.add_argument("--consumers", type=int, default=10_000)
    parser.add_argument("--times", type=int, default=100, help="how often each operation")
    parser.add_argument("--server", choices=["both", "ours", "peer"], default="both")
    parser.add_argument("--folder", help="where the stores go")
    args = parser.parse_args()
    peer = os.environ.get("NATS_SERVER") or shutil.which("nats-server")
    found: dict[str, Results] = {}
    if args.server != "peer":
        script = Path(sys.executable).with_name("pelton-server")
        ours = [str(script)] if script.exists() else [sys.executable, "-m", "pelton.server"]
        found["Pelton"] = run("Pelton", ours, args)
    if args.server != "ours":
        if not peer:
            raise SystemExit("no nats-server to compare with: name one in NATS_SERVER")
        found["nats-server"] = run("nats-server", shlex.split(peer), args)
    names = list(found)
    print("\n| operation | " + " | ".join(names) + " |\n|---|" + "---|" * len(names))
    for row in found[names[0]].rows:
        print(f"| {row} | " + " | ".join(found[name].rows.get(row, "") for name in names) + " |")


if __name__ == "__main__":
    main()
