#!/usr/bin/env python3
"""Confirmed acks (an ack with a reply subject) per second, at one and at several connections.

    python bench/bench_acks.py                    each ack as durable as its stream promises
    python bench/bench_acks.py --sync 2m          acks from the page cache on both sides
    python bench/bench_acks.py --retention workqueue

Each connection has its share of the messages, acknowledges one, waits for the answer, and so on.
The peer is $NATS_SERVER or nats-server in PATH; its acks never wait for a disk.
"""

import argparse
import contextlib
import os
import selectors
import shlex
import shutil
import sys
import tempfile
import time

from bench_scale import Client, running


class Acknowledger:
    """One connection with messages to acknowledge."""

    def __init__(self, port: int) -> None:
        self.client = Client(port)
        self.acks: list[bytes] = []

    def pull(self, count: int) -> None:
        """Take messages; only their reply subjects matter."""
        body = b'{"batch":%d}' % count
        subject = b"$JS.API.CONSUMER.MSG.NEXT.S.c"
        head = b"PUB %s %s.m %d\r\n" % (subject, self.client.inbox, len(body))
        self.client.socket.sendall(head + body + b"\r\n")
        while len(self.acks) < count:
            words = self.client.line().split(b" ")
            if words[0] == b"MSG" and len(words) == 5:
                self.acks.append(words[3])

    def send(self) -> None:
        """Acknowledge one."""
        self.client.socket.sendall(
            b"PUB %s %s.a 4\r\n+ACK\r\n" % (self.acks.pop(), self.client.inbox)
        )


def rate(port: int, connections: int, count: int) -> float:
    """Confirmed acks per second."""
    workers = [Acknowledger(port) for _ in range(connections)]
    for worker in workers:
        worker.pull(count // connections)
    selector = selectors.DefaultSelector()
    for worker in workers:
        selector.register(worker.client.socket, selectors.EVENT_READ, worker)
    begun, done, active = time.perf_counter(), 0, len(workers)
    for worker in workers:
        worker.send()
    while active:
        for key, _ in selector.select():
            worker = key.data
            worker.client.message()
            done += 1
            if worker.acks:
                worker.send()
            else:
                active -= 1
    return done / (time.perf_counter() - begun)


def run(command: list[str], args: argparse.Namespace) -> list[float]:
    """The rates of one server at one and at several connections."""
    with (
        tempfile.TemporaryDirectory(dir=args.folder) as folder,
        running(command, folder, args.sync) as (port, _),
    ):
        client = Client(port)
        config = {"name": "S", "subjects": ["s"], "retention": args.retention}
        client.api("STREAM.CREATE.S", config)
        consumer = {"durable_name": "c", "ack_policy": "explicit", "max_ack_pending": -1}
        client.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": consumer})
        for _ in range(2 * args.acks + 100):
            client.socket.sendall(b"PUB s 1\r\nx\r\n")
        client.ask("s", b"x")
        return [rate(port, 1, args.acks), rate(port, args.connections, args.acks)]


def main() -> None:
    """Run and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--acks", type=int, default=4000)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--sync", default="always", help="sync_interval of both")
    parser.add_argument("--retention", default="limits")
    parser.add_argument("--folder", help="where the stores go")
    args = parser.parse_args()
    rows = [("Pelton", run([sys.executable, "-m", "pelton.server"], args))]
    peer = os.environ.get("NATS_SERVER") or shutil.which("nats-server")
    if peer:
        rows.append(("nats-server", run(shlex.split(peer), args)))
    print(f"| confirmed acks/s | 1 connection | {args.connections} connections |\n|---|---|---|")
    for name, rates in rows:
        print(f"| {name} | {rates[0]:,.0f} | {rates[1]:,.0f} |")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
