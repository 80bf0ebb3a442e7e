#!/usr/bin/env python3
"""How long one request as large as max_payload holds up the other clients of a server.

    python bench/bench_stalls.py                        every request of bench/heavy_requests.py
    python bench/bench_stalls.py --only subjects        those whose name has this in it
    python bench/bench_stalls.py --size 60000 --server theirs

One connection sends the requests, one after the other; another one, in a process of its own, sends
PING and waits for PONG all the time. Of each request: the longest PING meanwhile, the time to the
answer, and the answer. A busy machine makes PINGs slow as well: a request that seems to hold up
others is sent three times, and the best of the three counts. The peer is $NATS_SERVER or
nats-server in PATH.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.bench_start import Link, free_port
from bench.heavy_requests import CONSUMER, NEW, STREAM, Heavy, requests

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

BOUND_MS = 20
TRIES = 3
START_SECONDS = 20


def ping_all_the_time(port: int, asked: Connection) -> None:
    """Send PING after PING; the longest since the last question is the answer to the next."""
    link = Link(port)
    link.pong()
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


def tidy(link: Link) -> None:
    """A stream and a consumer that the requests name, and nothing else."""
    for name in (NEW, STREAM):
        link.request(f"$JS.API.STREAM.DELETE.{name}")
    config = {"name": STREAM, "subjects": ["s.>"], "storage": "memory"}
    link.request(f"$JS.API.STREAM.CREATE.{STREAM}", json.dumps(config).encode())
    body = {"stream_name": STREAM, "config": {"durable_name": CONSUMER, "ack_policy": "explicit"}}
    link.request(f"$JS.API.CONSUMER.DURABLE.CREATE.{STREAM}.{CONSUMER}", json.dumps(body).encode())


def measure(link: Link, pings: Connection, heavy: Heavy) -> tuple[float, float, str]:
    """Milliseconds of the longest PING, and to the answer; the answer in short."""
    worst, took, said = 1e9, 1e9, ""
    for _ in range(TRIES):
        tidy(link)
        pings.send(True)
        pings.recv()
        begin = time.perf_counter()
        answer = json.loads(link.request(f"$JS.API.{heavy.call}", heavy.body) or b"{}")
        took = min(took, (time.perf_counter() - begin) * 1000)
        pings.send(True)
        worst = min(worst, pings.recv() * 1000)
        error = answer.get("error", {})
        said = f"{error.get('err_code', '')} {error.get('description', 'ok')[:60]}".strip()
        if worst <= BOUND_MS:
            break
    return worst, took, said


def serve(command: list[str], size: int, only: str) -> None:
    """All requests to one server; a line for each that holds up others, and a summary."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["-a", "127.0.0.1", "-p", str(port), "-js", "-sd", folder]
        with subprocess.Popen([*command, *arguments], stderr=subprocess.DEVNULL) as process:
            try:
                link = connected(port)
                ours, theirs = multiprocessing.Pipe()
                pinger = multiprocessing.Process(target=ping_all_the_time, args=(port, theirs))
                pinger.start()
                number = above = 0
                longest = 0.0
                for heavy in requests(size):
                    if only not in heavy.name:
                        continue
                    worst, took, said = measure(link, ours, heavy)
                    number, above = number + 1, above + (worst > BOUND_MS)
                    longest = max(longest, worst)
                    if worst > BOUND_MS or only:
                        print(f"{worst:9.1f} {took:9.1f}  {heavy.name}: {said}", flush=True)
                print(f"{number} requests, longest PING {longest:.1f} ms, {above} above {BOUND_MS}")
                ours.send(False)
                pinger.join()
            finally:
                process.terminate()


def connected(port: int) -> Link:
    """A connection to a server that is being started."""
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            link = Link(port)
            break
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
    link.pong()
    return link


def main() -> None:
    """Measure what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--size", type=int, default=1_000_000)
    parser.add_argument("--only", default="")
    parser.add_argument("--server", choices=["ours", "theirs", "both"], default="both")
    said = parser.parse_args()
    peer = os.environ.get("NATS_SERVER") or shutil.which("nats-server")
    print("  PING ms answer ms  request")
    if said.server != "theirs":
        print("pelton-server")
        serve([sys.executable, "-m", "pelton.server"], said.size, said.only)
    if said.server != "ours" and peer:
        print("nats-server")
        serve([peer], said.size, said.only)


if __name__ == "__main__":
    main()
