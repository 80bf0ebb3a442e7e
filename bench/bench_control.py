#!/usr/bin/env python3
"""How long requests of the control plane, apart from the JetStream API, hold up a server's other clients.

    python bench/bench_control.py                       both servers, all cases
    python bench/bench_control.py --only connz --server ours --connections 2000

A server has thousands of connections, subscriptions, streams' consumers, exports, imports, mappings and
permissions. Of each case: the longest PING of another client meanwhile, the processor time of the
server, and the time to the end. A busy machine makes PINGs slow as well: the best of three tries
counts. `bench/bench_stalls.py` does the same for requests to the JetStream API. The peer is
$NATS_SERVER or nats-server in PATH.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import contextlib

from bench.bench_start import Link, free_port

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

TRIES = 3
START_SECONDS = 20
SHARED = 3_000  # exports, imports, mappings
DENIED = 20_000  # subjects of one user
SUBSCRIPTIONS = 100_000  # of one connection
STREAMS, CONSUMERS = 50, 20
_ids = itertools.count(10)  # of subscriptions, so that a second try is as much work as the first
LONG = 1_000_000  # bytes of one line


def enter(port: int, user: str, more: str = "") -> Link:
    """A client of a user, let in."""
    link = Link(port)
    link.info()
    link.socket.sendall(
        b'CONNECT {"verbose":false,"pedantic":false,"user":"%b","pass":"pw"%b}\r\nPING\r\n'
        % (user.encode(), more.encode())
    )
    while (line := link.line()) != b"PONG":
        if line.startswith(b"-ERR"):
            raise ConnectionError(line.decode())
    return link


def wait(link: Link) -> None:
    """Until the server has read everything that was sent."""
    link.socket.sendall(b"PING\r\n")
    while link.line() != b"PONG":
        pass


def ping_all_the_time(port: int, asked: Connection) -> None:
    """Send PING after PING; the longest since the last question is the answer to the next."""
    link = enter(port, "a")
    longest = 0.0
    while True:
        begin = time.perf_counter()
        link.socket.sendall(b"PING\r\n")
        while link.line() != b"PONG":
            pass
        longest = max(longest, time.perf_counter() - begin)
        if asked.poll():
            if not asked.recv():
                return
            asked.send(longest)
            longest = 0.0
        time.sleep(0.0005)


@dataclass
class House:
    """A running server and its ports."""

    config: Path
    port: int
    http: int
    leafs: int
    streams: Path
    ours: bool
    process: subprocess.Popen[bytes] = field(init=False)

    def cpu_ms(self) -> float:
        """Processor time of all threads."""
        folder = Path(f"/proc/{self.process.pid}/task")
        threads = [each / "schedstat" for each in folder.iterdir()]
        return sum(int(each.read_text().split()[0]) for each in threads) / 1e6

    def write(self, shared: int) -> None:
        """The configuration, with so many exports, imports and mappings."""
        rows = range(shared)
        exports = ",".join(f'{{service: "x.{n}.*"}}' for n in rows)
        imports = ",".join(f'{{service: {{account: A, subject: "x.{n}.*"}}}}' for n in rows)
        mappings = "\n".join(f'"m.{n}.*": "n.{n}.$1"' for n in rows)
        denied = ",".join(f'"d.{n}.>"' for n in range(DENIED))
        self.config.write_text(f"""
            listen: "127.0.0.1:{self.port}"
            http: "127.0.0.1:{self.http}"
            max_control_line: {1 << 20}
            system_account: S
            jetstream {{ store_dir: "{self.streams}" }}
            leafnodes {{ listen: "127.0.0.1:{self.leafs}" }}
            accounts {{
                S {{ users: [{{user: s, password: pw}}] }}
                A {{
                    jetstream: enabled
                    users: [
                        {{user: a, password: pw}}
                        {{user: d, password: pw, permissions: {{
                            subscribe: {{deny: [{denied}]}}, publish: {{deny: [{denied}]}} }} }}
                    ]
                    exports: [{exports}]
                    mappings: {{ {mappings} }}
                }}
                B {{ users: [{{user: b, password: pw}}], imports: [{imports}] }}
            }}
            """)


def crowd(house: House, connections: int) -> list[Link]:
    """The connections, subscriptions, streams and consumers that reports are about."""
    links = []
    for number in range(connections):
        link = Link(house.port)
        link.socket.sendall(
            b'CONNECT {"verbose":false,"user":"a","pass":"pw","name":"client %d"}\r\n'
            b"SUB c.%d 1\r\nSUB d.%d.* q 2\r\n" % (number, number, number)
        )
        links.append(link)
    many = enter(house.port, "a")
    subscribe(many, SUBSCRIPTIONS)
    for number in range(STREAMS):
        config = {"name": f"S{number}", "subjects": [f"s{number}.>"], "storage": "memory"}
        many.request(f"$JS.API.STREAM.CREATE.S{number}", json.dumps(config).encode())
        for each in range(CONSUMERS):
            body = {
                "stream_name": f"S{number}",
                "config": {"durable_name": f"c{each}", "ack_policy": "explicit"},
            }
            many.request(
                f"$JS.API.CONSUMER.DURABLE.CREATE.S{number}.c{each}", json.dumps(body).encode()
            )
    return [*links, many]


def subscribe(link: Link, count: int, subject: bytes = b"many.%d.x") -> None:
    """Many subscriptions of one connection."""
    for begin in range(0, count, 5000):
        rows = range(begin, begin + 5000)
        lines = [b"SUB " + subject % n + b" %d\r\n" % next(_ids) for n in rows]
        link.socket.sendall(b"".join(lines))
        wait(link)


# -- the cases: each returns what it does, prepared


Case = Callable[[], object]


def cases(house: House) -> Iterator[tuple[str, Case]]:
    """(name, the request), each after its preparation."""
    yield from reports(house)
    system = enter(house.port, "s")
    yield "CONNECT with 20,000 denies", lambda: enter(house.port, "d")
    denied = enter(house.port, "d")
    yield "5,000 SUBs beside 20,000 denies", lambda: subscribe(denied, 5000, b"e.%d.x")
    starred = enter(house.port, "d")
    yield "5,000 SUBs with * beside 20,000 denies", lambda: subscribe(starred, 5000, b"*.*.%d")
    publisher = enter(house.port, "a")
    yield "5,000 PUBs on new subjects, 5,000 mappings", lambda: publish(publisher)
    yield from connects(house)
    for deep in (b"a." * 2000 + b"%d", b"*." * 2000 + b"%d", b"*.x." * 1000 + b"%d.>"):
        link = enter(house.port, "a")
        name = f"500 SUBs of 4,000 bytes: {deep[:8].decode()}..."
        yield name, partial(burst, link, deep, 500)
    yield "a connection with 100,000 subscriptions closes", lambda: closes(house)
    yield "a leaf node joins and asks 50,000 subjects", lambda: leaf(house)
    house.write(SHARED)
    yield "reload: as many, nothing changed", lambda: reload(house, system)
    yield "reload: none any more", lambda: (house.write(10), reload(house, system))
    yield (
        "reload: 3,000 exports, imports, mappings",
        lambda: (
            house.write(10),
            reload(house, system),
            house.write(SHARED),
            reload(house, system),
        ),
    )


def reports(house: House) -> Iterator[tuple[str, Case]]:
    """Monitoring, over the system account and over HTTP."""
    system, plain = enter(house.port, "s"), enter(house.port, "a")
    for name, body in (
        ("STATSZ", {}),
        ("VARZ", {}),
        ("CONNZ", {}),
        ("CONNZ", {"limit": 100000}),
        ("CONNZ", {"limit": 100000, "subscriptions": True, "auth": True}),
        ("CONNZ", {"limit": 100000, "subscriptions_detail": True, "sort": "subs"}),
        ("CONNZ", {"limit": 100000, "acc": "A", "filter_subject": "nobody.*"}),
        ("SUBSZ", {"subscriptions": True}),
        ("SUBSZ", {"subscriptions": True, "limit": 1000000}),
        ("SUBSZ", {"subscriptions": True, "test": "many.7.x"}),
        ("ACCOUNTZ", {"account": "A"}),
        ("ACCOUNTZ", {"account": "B"}),
        ("JSZ", {"accounts": True, "streams": True, "consumer": True, "config": True}),
        ("LEAFZ", {"subscriptions": True}),
        ("HEALTHZ", {}),
    ):
        subject, data = f"$SYS.REQ.SERVER.PING.{name}", json.dumps(body).encode()
        yield (
            f"$SYS {name} {json.dumps(body)[1:-1]}",
            partial(system.request, subject, data),
        )
    yield "$SYS ACCOUNT STATZ", lambda: system.request("$SYS.REQ.ACCOUNT.PING.STATZ")
    yield "$SYS ACCOUNT A CONNS", lambda: system.request("$SYS.REQ.ACCOUNT.A.CONNS")
    yield "DEBUG.SUBSCRIBERS >", lambda: system.request("$SYS.DEBUG.SUBSCRIBERS", b">")
    yield (
        "A's own CONNZ with subscriptions",
        lambda: plain.request(
            "$SYS.REQ.ACCOUNT.PING.CONNZ", b'{"limit":100000,"subscriptions":true}'
        ),
    )
    for path in (
        "/connz?limit=100000&subs=1&auth=1",
        "/connz?limit=100000&subs=detail",
        "/subsz?subs=1&limit=1000000",
        "/jsz?accounts=1&streams=1&consumers=1&config=1",
        "/accountz?acc=A",
        "/accountz?acc=B",
        "/accstatz?unused=1",
        "/metrics",
    ):
        if house.ours or path != "/metrics":
            yield path, partial(get, house, path)


def connects(house: House) -> Iterator[tuple[str, Case]]:
    """CONNECT lines as long as max_control_line allows."""
    for name, more in (
        ("deep lists", ',"x":' + "[" * (LONG // 2) + "]" * (LONG // 2)),
        ("open lists", ',"x":' + "[" * LONG),
        ("keys", "".join(f',"k{n}":1' for n in range(LONG // 10))),
        ("digits", ',"protocol":' + "9" * LONG),
        ("a long name", ',"name":"' + "x" * LONG + '"'),
        ("escapes", ',"name":"' + "\\u0041" * (LONG // 6) + '"'),
        ("a long JWT", ',"jwt":"' + "a.b" * (LONG // 3) + '"'),
        ("a long nkey", ',"nkey":"U' + "A" * LONG + '","sig":"' + "A" * 80 + '"'),
    ):
        yield f"CONNECT of 1 MB: {name}", partial(try_enter, house, more)


def try_enter(house: House, more: str) -> None:
    with contextlib.suppress(ConnectionError, TimeoutError):
        enter(house.port, "a", more)


def get(house: House, path: str) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{house.http}{path}", timeout=60) as answer:
        body: bytes = answer.read()
        return body


def publish(link: Link) -> None:
    stamp = time.monotonic_ns()
    link.socket.sendall(b"".join(b"PUB new.%d.%d 0\r\n\r\n" % (stamp, n) for n in range(5000)))
    wait(link)


def burst(link: Link, subject: bytes, count: int) -> None:
    link.socket.sendall(
        b"".join(b"SUB " + subject % n + b" %d\r\n" % next(_ids) for n in range(count))
    )
    wait(link)


def closes(house: House) -> None:
    link = enter(house.port, "a")
    subscribe(link, SUBSCRIPTIONS, b"gone.%d.x")
    link.socket.close()
    time.sleep(0.5)


def leaf(house: House) -> None:
    link = Link(house.leafs)
    link.info()
    link.socket.sendall(
        b'CONNECT {"user":"a","pass":"pw","name":"leaf","version":"2.11.0","headers":true}\r\n'
    )
    lines = b"".join(b"LS+ leaf.%d.x\r\n" % n for n in range(50_000))
    link.socket.sendall(b"PING\r\n")
    while link.line() != b"PONG":
        pass
    link.socket.sendall(lines + b"PING\r\n")
    while link.line() != b"PONG":
        pass
    link.socket.close()
    time.sleep(0.5)


def reload(house: House, system: Link) -> None:
    before = loaded(house)
    house.process.send_signal(signal.SIGHUP)
    end = time.monotonic() + 60
    while loaded(house) == before and time.monotonic() < end:
        time.sleep(0.05)


def loaded(house: House) -> str:
    return str(json.loads(get(house, "/varz"))["config_load_time"])


# -- measuring


def measure(house: House, pings: Connection, case: Case) -> tuple[float, float, float]:
    """Milliseconds of the longest PING, of processor time, and to the end: the best of some tries."""
    worst = cpu = took = 1e9
    for _ in range(TRIES):
        pings.send(True)
        pings.recv()
        before, begin = house.cpu_ms(), time.perf_counter()
        case()
        took = min(took, (time.perf_counter() - begin) * 1000)
        cpu = min(cpu, house.cpu_ms() - before)
        pings.send(True)
        worst = min(worst, pings.recv() * 1000)
    return worst, cpu, took


def serve(command: list[str], said: argparse.Namespace, *, ours: bool) -> None:
    """All cases on one server."""
    with tempfile.TemporaryDirectory() as folder:
        port, http, leafs, *_ = {free_port() for _ in range(9)}
        config = Path(folder) / "server.conf"
        house = House(config, port, http, leafs, Path(folder) / "js", ours)
        house.write(SHARED)
        with subprocess.Popen([*command, "-c", str(config)], stderr=subprocess.DEVNULL) as process:
            house.process = process
            try:
                run(house, said)
            finally:
                process.terminate()


def run(house: House, said: argparse.Namespace) -> None:
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            enter(house.port, "a")
            break
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
    links = crowd(house, said.connections)
    ours, theirs = multiprocessing.Pipe()
    pinger = multiprocessing.Process(target=ping_all_the_time, args=(house.port, theirs))
    pinger.start()
    for name, case in cases(house):
        if said.only in name:
            worst, cpu, took = measure(house, ours, case)
            print(f"{worst:9.1f} {cpu:9.1f} {took:9.1f}  {name}", flush=True)
    ours.send(False)
    pinger.join()
    for link in links:
        link.socket.close()


def main() -> None:
    """Measure what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--connections", type=int, default=5_000)
    parser.add_argument("--only", default="")
    parser.add_argument("--server", choices=["ours", "theirs", "both"], default="both")
    said = parser.parse_args()
    peer = os.environ.get("NATS_SERVER") or shutil.which("nats-server")
    print("  PING ms    CPU ms  total ms  case")
    if said.server != "theirs":
        print("pelton-server")
        serve([sys.executable, "-m", "pelton.server"], said, ours=True)
    if said.server != "ours" and peer:
        print("nats-server")
        serve([peer], said, ours=False)


if __name__ == "__main__":
    main()
