#!/usr/bin/env python3
"""How much one client's writes full of requests cost the clients of another account.

    python bench/bench_fair.py                          each kind of write, both servers
    python bench/bench_fair.py --only LIST --seconds 10
    python bench/bench_fair.py --server ours --rates    also publishes and fetches of the other account

One connection sends the same write again and again, and counts its answers. A connection of another
account sends a PING every few milliseconds. Each PING is measured in the server's processor time
between its PING and its PONG (/proc/PID/schedstat), so that a busy machine does not count; the table
has the median, the 99.9th percentile and the longest, in milliseconds. `--rates` adds what the other
account's publishes and fetches, one after the other, keep of the rate that they have alone. The
peer is $NATS_SERVER or nats-server in PATH.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from typing import TYPE_CHECKING

from bench.bench_stalls import connected
from bench.bench_start import Link, free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.sharedctypes import Synchronized

STREAMS, CONSUMERS, SUBJECTS = 312, 250, 100_000
CONFIG = """
listen: 127.0.0.1:%d
jetstream { store_dir: "%s" }
no_auth_user: a
system_account: SYS
accounts {
  A { jetstream: enabled, users: [{user: a, password: a}] }
  B { jetstream: enabled, users: [{user: b, password: b}] }
  SYS { users: [{user: s, password: s}] }
}
"""
NEVER = b"NATS/1.0\r\nNats-Schedule: 0 0 0 30 2 *\r\nNats-Schedule-Target: cron.t\r\n\r\n"
DIGITS = b"NATS/1.0\r\nNats-Incr: " + b"9" * 24_000 + b"\r\n\r\n"


def request(subject: str, body: bytes = b"", headers: bytes = b"") -> bytes:
    if headers:
        sizes = b"%d %d" % (len(headers), len(headers) + len(body))
        return b"HPUB %s in.%s\r\n%s%s\r\n" % (subject.encode(), b"x " + sizes, headers, body)
    return b"PUB %s in.x %d\r\n%s\r\n" % (subject.encode(), len(body), body)


def stream(name: str, **fields: object) -> tuple[str, bytes]:
    config = {"name": name, "subjects": [f"{name}.>"], "storage": "memory", **fields}
    return f"$JS.API.STREAM.CREATE.{name}", json.dumps(config).encode()


@dataclass(frozen=True)
class Write:
    """One kind of write: so many times the same request."""

    name: str
    data: bytes
    count: int
    prepare: Callable[[Link], None] | None = None
    user: str = "a"
    old: bool = False  # a dialect, which only Pelton has


def many_streams(link: Link) -> None:
    for number in range(STREAMS):
        link.request(*stream(f"L{number}"))


def many_subjects(link: Link) -> None:
    link.request(*stream("subj"))
    batch = b"".join(b"PUB subj.%d 0\r\n\r\n" % number for number in range(SUBJECTS))
    link.socket.sendall(batch)
    link.request("$JS.API.STREAM.INFO.subj")


def many_consumers(link: Link) -> None:
    link.request(*stream("cons"))
    for number in range(CONSUMERS):
        body = {
            "stream_name": "cons",
            "config": {"durable_name": f"c{number}", "ack_policy": "explicit"},
        }
        text = json.dumps(body).encode()
        link.request(f"$JS.API.CONSUMER.DURABLE.CREATE.cons.c{number}", text)


def schedules(link: Link) -> None:
    link.request(*stream("cron", allow_msg_schedules=True))


def counter(link: Link) -> None:
    link.request(*stream("count", allow_msg_counter=True))


FILTER = b'{"subjects_filter":">"}'
SAME = stream("same")
WRITES = (
    Write("STREAM.LIST", request("$JS.API.STREAM.LIST"), 3000, many_streams),
    Write("STREAM.INFO filter", request("$JS.API.STREAM.INFO.subj", FILTER), 200, many_subjects),
    Write("CONSUMER.LIST", request("$JS.API.CONSUMER.LIST.cons"), 2000, many_consumers),
    Write("cron never due", request("cron.s", b"x", NEVER), 3000, schedules),
    Write("counters of 24,000 digits", request("count.n", b"", DIGITS), 5, counter),
    Write("CONNZ", request("$SYS.REQ.ACCOUNT.PING.CONNZ"), 1000),
    Write("2020 STREAM.LIST", request("$JS.STREAM.LIST"), 3000, many_streams, old=True),
    Write("CREATE invalid", request("$JS.API.STREAM.CREATE.bad", b'{"name":1}'), 5000),
    Write("CREATE identical", request(*SAME), 1500, lambda link: link.request(*SAME) and None),
    Write("DIRECT.GET", request("$JS.API.DIRECT.GET.dg", b'{"seq":1}'), 3000, lambda link: direct(link)),
)  # fmt: skip


def direct(link: Link) -> None:
    link.request(*stream("dg", allow_direct=True))
    link.request("dg.1", b"x")


def send_all_the_time(port: int, write: Write, answers: Synchronized[int]) -> None:
    """Send a write again and again; the next one when all answers to the last one came."""
    link = login(port, write.user)
    link.socket.sendall(b"SUB in.* 9\r\n")
    link.socket.setblocking(False)
    data, waiting, tail = b"", 0, b""
    while True:
        if not data and waiting <= 0:
            data, waiting = write.data * write.count, write.count
        writers = [link.socket] if data else []
        ready, writable, _ = select.select([link.socket], writers, [])
        if writable:
            data = data[link.socket.send(data) :]
        if ready:
            got = tail + link.socket.recv(1 << 20)
            came = got.count(b"MSG in.x 9 ")
            tail = got[-10:]
            waiting -= came
            answers.value += came


def processor_ns(pid: int) -> int:
    """The processor time of the server's threads."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            total += int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()[0])
        except OSError:
            continue
    return total


def pings(link: Link, pid: int, seconds: float) -> list[float]:
    """The server's processor time of each PING, in milliseconds, in order."""
    found = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        before = processor_ns(pid)
        link.socket.sendall(b"PING\r\n")
        while link.line() != b"PONG":
            pass
        found.append((processor_ns(pid) - before) / 1e6)
        time.sleep(0.003)
    return sorted(found)


def rate(pid: int, seconds: float, alone: bool, act: Callable[[], object]) -> float:
    """Actions, one after the other, in a second of processor time: a server that has nothing else to
    do waits while the client works, a busy one does not.
    """
    count, end, before, own = (
        0,
        time.monotonic() + seconds,
        processor_ns(pid),
        time.thread_time_ns(),
    )
    while time.monotonic() < end:
        act()
        count += 1
    taken = processor_ns(pid) - before
    return count * 1e9 / (taken + (time.thread_time_ns() - own if alone else 0))


def rates(port: int, pid: int, seconds: float, alone: bool) -> Iterator[tuple[str, float]]:
    """Publishes and fetches of the other account."""
    link = login(port, "b")
    link.request(*stream("V"))
    body = {"stream_name": "V", "config": {"durable_name": "d", "ack_policy": "none"}}
    link.request("$JS.API.CONSUMER.DURABLE.CREATE.V.d", json.dumps(body).encode())
    yield "publishes", rate(pid, seconds, alone, lambda: link.request("V.a", b"x"))
    subject, fetch = "$JS.API.CONSUMER.MSG.NEXT.V.d", b'{"batch":1,"no_wait":true}'
    yield "fetches", rate(pid, seconds, alone, lambda: link.request(subject, fetch))


def login(port: int, user: str) -> Link:
    link = Link(port)
    text = json.dumps({"user": user, "pass": user, "verbose": False, "headers": user == "a"})
    link.socket.sendall(f"CONNECT {text}\r\nPING\r\n".encode())
    while link.line() != b"PONG":
        pass
    return link


def measure(command: list[str], write: Write, seconds: float, with_rates: bool) -> None:
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "server.conf"
        config.write_text(CONFIG % (port, folder))
        with subprocess.Popen([*command, "-c", str(config)], stderr=subprocess.DEVNULL) as process:
            try:
                connected(port)
                link = login(port, write.user)
                if write.prepare is not None:
                    write.prepare(link)
                alone = dict(rates(port, process.pid, 2, True)) if with_rates else {}
                answers = multiprocessing.Value("q", 0)
                arguments = (port, write, answers)
                sender = multiprocessing.Process(
                    target=send_all_the_time, args=arguments, daemon=True
                )
                sender.start()
                found = pings(login(port, "b"), process.pid, seconds)
                kept = ""
                for name, each in rates(port, process.pid, 4, False) if with_rates else ():
                    kept += f"  {name} {100 * each / alone[name]:3.0f} %"
                sender.kill()
                at = found[min(int(len(found) * 0.999), len(found) - 1)]
                middle = found[len(found) // 2]
                print(
                    f"{middle:9.2f} {at:9.2f} {found[-1]:9.2f} {answers.value:9d}  {write.name}{kept}",
                    flush=True,
                )
            finally:
                process.terminate()


def main() -> None:
    """Measure the writes that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rates", action="store_true")
    parser.add_argument("--server", choices=["ours", "theirs", "both"], default="both")
    given = parser.parse_args()
    peer = os.environ.get("NATS_SERVER") or shutil.which("nats-server")
    servers = {"ours": [sys.executable, "-m", "pelton.server"], "theirs": [peer] if peer else []}
    for name, command in servers.items():
        if given.server not in (name, "both") or not command:
            continue
        print(f"{name}\n   median     99.9 %   longest   answers")
        for write in WRITES:
            if given.only in write.name and not (write.old and name == "theirs"):
                measure([str(part) for part in command], write, given.seconds, given.rates)


if __name__ == "__main__":
    main()
