#!/usr/bin/env python3
"""How long a server with a full store takes from just before exec to its first PubAck.

    python bench/bench_restart.py                        all rows, pelton and nats-server
    python bench/bench_restart.py --scale 0.1 --runs 3   a tenth of the messages

Per row a store is filled once (100-byte messages, one in 2000 asks for its PubAck), then the server
is stopped with SIGTERM, and with SIGKILL while it is publishing, --runs times each, and started again:
connect in a tight loop, publish to the last stream, read to the PubAck; and ask $JS.API.INFO, which
waits for all streams. Medians in milliseconds, and the processor time (all threads) that the process had
used by the PubAck, which says more on a busy machine. The peer is $NATS_SERVER or nats-server in PATH.
"""

import argparse
import importlib.util
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench_start import Link, connected, cpu_ms, free_port

BATCH = 2000
PAYLOAD = b"x" * 100
CONNECT = b'CONNECT {"verbose":false,"headers":true}\r\n'


@dataclass(frozen=True)
class Row:
    """What a store is filled with."""

    name: str
    messages: int
    subjects: int = 10
    streams: int = 1
    consumers: int = 0  # durable ones, of each stream
    headers: bool = False  # each message has an id


ROWS = (
    Row("10 M messages", 10_000_000),
    Row("1 M messages, 1 M subjects", 1_000_000, subjects=1_000_000),
    Row("10 M messages, 1 M subjects", 10_000_000, subjects=1_000_000),
    Row("10 M messages, 100 streams, 300 consumers", 10_000_000, streams=100, consumers=3),
    Row("1 M messages with ids", 1_000_000, headers=True),
)


def publish(row: Row, first: int, count: int, reply: bool) -> bytes:
    """The bytes of some messages; the last one asks for its PubAck."""
    stream = first // BATCH % row.streams
    out = []
    for number in range(first, first + count):
        subject = b"s%d.%d" % (stream, number % row.subjects)
        to = b" acks" if reply and number == first + count - 1 else b""
        if row.headers:
            head = b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % number
            sizes = b"%d %d" % (len(head), len(head) + len(PAYLOAD))
            out.append(b"HPUB %s%s %s\r\n%s%s\r\n" % (subject, to, sizes, head, PAYLOAD))
        else:
            out.append(b"PUB %s%s %d\r\n%s\r\n" % (subject, to, len(PAYLOAD), PAYLOAD))
    return b"".join(out)


def until_ack(link: Link) -> bytes:
    while not (line := link.line()).startswith(b"MSG acks "):
        if line.startswith(b"-ERR"):
            raise ConnectionError(line.decode())
    answer = link.line()
    if b'"seq"' not in answer:
        raise RuntimeError(answer.decode())
    return answer


def fill(link: Link, row: Row) -> None:
    for stream in range(row.streams):
        config = {"name": f"S{stream}", "subjects": [f"s{stream}.>"]}
        call(link, f"STREAM.CREATE.S{stream}", config)
    link.socket.sendall(b"SUB acks 9\r\n")
    for first in range(0, row.messages, BATCH):
        link.socket.sendall(publish(row, first, min(BATCH, row.messages - first), reply=True))
        until_ack(link)
    for stream in range(row.streams):
        for consumer in range(row.consumers):
            config = {"durable_name": f"c{consumer}", "ack_policy": "explicit"}
            body = {"stream_name": f"S{stream}", "config": config}
            call(link, f"CONSUMER.DURABLE.CREATE.S{stream}.c{consumer}", body)


def call(link: Link, name: str, body: object) -> None:
    answer = link.request(f"$JS.API.{name}", json.dumps(body).encode())
    if b'"error"' in answer:
        raise RuntimeError(answer.decode())


def start(command: list[str], port: int, store: str) -> subprocess.Popen[bytes]:
    arguments = ["-a", "127.0.0.1", "-p", str(port), "-js", "-sd", store]
    null = subprocess.DEVNULL
    return subprocess.Popen(command + arguments, stdout=null, stderr=null)


def measure(command: list[str], store: str, row: Row, *, kill: bool) -> list[float]:
    """Milliseconds to the first PubAck, of processor time by then, to $JS.API.INFO; then it is stopped or killed."""
    port = free_port()
    last = (row.streams - 1) * BATCH
    begun = time.perf_counter()
    process = start(command, port, store)
    try:
        link = connected(port, process)
        link.socket.sendall(CONNECT + b"SUB acks 9\r\n")
        link.socket.sendall(publish(Row("", 1, streams=row.streams), last, 1, reply=True))
        until_ack(link)
        acked = time.perf_counter()
        used = cpu_ms(process.pid)
        link.request("$JS.API.INFO")
        answered = time.perf_counter()
        if kill:  # while it has more to do
            link.socket.sendall(publish(row, last, 5000, reply=True))
            process.kill()
    finally:
        process.terminate()
        process.wait(60)
    return [(acked - begun) * 1e3, used, (answered - begun) * 1e3]


def run(name: str, command: list[str], row: Row, runs: int, folder: str) -> None:
    port = free_port()
    process = start(command, port, folder)
    try:
        link = connected(port, process)
        link.socket.sendall(CONNECT)
        fill(link, row)
    finally:
        process.terminate()
        process.wait(60)
    cells = []
    for kill in (False, True):
        measure(command, folder, row, kill=kill)  # the one before the first of this kind
        found = [measure(command, folder, row, kill=kill) for _ in range(runs)]
        cells += [statistics.median(column) for column in zip(*found, strict=True)]
    print(f"| {row.name} | {name} | " + " | ".join(f"{ms:.0f}" for ms in cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--only", default="", help="rows whose name has this in it")
    parser.add_argument("--peer", default=os.environ.get("NATS_SERVER") or "nats-server")
    parser.add_argument("--folder", default=None, help="where the stores are made")
    args = parser.parse_args()
    if importlib.util.find_spec("pelton") is None:  # not installed: the tree's own
        os.environ["PYTHONPATH"] = str(Path(__file__).parents[1] / "src")
    servers = [("pelton", [sys.executable, "-m", "pelton.server"])]
    peer = shlex.split(args.peer)
    if shutil.which(peer[0]):
        servers.append(("nats-server", peer))
    print("| store | server | stopped: PubAck | cpu | INFO | killed: PubAck | cpu | INFO |")
    print("|---|---|--:|--:|--:|--:|--:|--:|")
    for row in ROWS:
        if args.only not in row.name:
            continue
        scaled = Row(
            row.name,
            int(row.messages * args.scale),
            max(int(row.subjects * min(args.scale, 1)), 10),
            row.streams,
            row.consumers,
            row.headers,
        )
        for name, command in servers:
            with tempfile.TemporaryDirectory(dir=args.folder) as folder:
                run(name, command, scaled, args.runs, folder)


if __name__ == "__main__":
    main()
