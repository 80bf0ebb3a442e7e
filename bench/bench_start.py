#!/usr/bin/env python3
"""How long after exec a server answers: INFO, the first PONG, and the first answer of the JetStream API.

    python bench/bench_start.py                     pelton-server as installed, python -m, nats-server
    python bench/bench_start.py --runs 31 --streams 0

Each run starts a server process, tries to connect in a tight loop, reads INFO, sends CONNECT and
PING, reads to PONG, and then asks for $JS.API.INFO. Medians are printed: milliseconds since just
before exec to the accepted connection, to INFO, PONG and the answer, and the processor time that the
process had used by then (all its threads, user and system), which says more on a busy machine. One
row with an empty store, one with --streams streams of one message each. The peer is $NATS_SERVER or
nats-server in PATH.
"""

import argparse
import contextlib
import importlib.util
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

PATIENCE_SECONDS = 20
# What pip writes for a console script, for a tree that is not installed.
STUB = """#!{python}
import sys
from pelton.server.__main__ import main
if __name__ == "__main__":
    if sys.argv[0].endswith(".exe"):
        sys.argv[0] = sys.argv[0][:-4]
    sys.exit(main())
"""


class Link:
    """A connection that reads and writes lines."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(PATIENCE_SECONDS)
        self.data = b""

    def line(self) -> bytes:
        while b"\r\n" not in self.data:
            got = self.socket.recv(65536)
            if not got:
                raise ConnectionError("the server hung up")
            self.data += got
        line, _, self.data = self.data.partition(b"\r\n")
        return line

    def info(self) -> None:
        if not self.line().startswith(b"INFO "):
            raise ConnectionError("the server did not greet")

    def pong(self) -> None:
        self.socket.sendall(b'CONNECT {"verbose":false,"pedantic":false}\r\nPING\r\n')
        while self.line() != b"PONG":
            pass

    def request(self, subject: str, body: bytes = b"") -> bytes:
        self.socket.sendall(
            b"SUB answers 1\r\nPUB %s answers %d\r\n%s\r\nUNSUB 1 1\r\n"
            % (subject.encode(), len(body), body)
        )
        while not (line := self.line()).startswith(b"MSG "):
            if line.startswith(b"-ERR"):
                raise ConnectionError(line.decode())
        size = int(line.rsplit(b" ", 1)[1])
        while len(self.data) < size + 2:
            self.data += self.socket.recv(65536)
        answer, self.data = self.data[:size], self.data[size + 2 :]
        return answer


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def cpu_ms(pid: int) -> float:
    """Processor time of a process so far, all its threads, user and system."""
    return (
        time.clock_gettime(~pid << 3 | 2) * 1e3
    )  # the clock of another process: clock_getcpuclockid(3)


def connected(port: int, process: subprocess.Popen[bytes]) -> Link:
    until = time.perf_counter() + PATIENCE_SECONDS
    while time.perf_counter() < until:
        try:
            return Link(port)
        except ConnectionRefusedError:
            if process.poll() is not None:
                raise RuntimeError(f"the server ended with {process.returncode}") from None
            time.sleep(0.0005)
    raise RuntimeError("the server does not listen")


@contextlib.contextmanager
def started(command: list[str], port: int, store: str):
    arguments = ["-a", "127.0.0.1", "-p", str(port), "-js", "-sd", store]
    # An installed package has its .pyc files; a source tree gets them with the first run.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(
        command + arguments, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_SECONDS)


def one_start(command: list[str], store: str) -> list[tuple[float, float]]:
    """(ms, processor ms by then) of connection, INFO, PONG, the API's answer."""
    port = free_port()
    begun = time.perf_counter()
    with started(command, port, store) as process:
        seen: list[tuple[float, float]] = []

        def note() -> None:
            seen.append(((time.perf_counter() - begun) * 1e3, cpu_ms(process.pid)))

        link = connected(port, process)
        note()
        link.info()
        note()
        link.pong()
        note()
        answer = link.request("$JS.API.INFO")
        note()
        if b'"streams"' not in answer:
            raise RuntimeError(f"unexpected answer: {answer[:200]!r}")
    return seen


def fill(command: list[str], store: str, streams: int) -> None:
    port = free_port()
    with started(command, port, store) as process:
        link = connected(port, process)
        link.pong()
        for number in range(streams):
            body = b'{"name":"S%d","subjects":["s.%d.>"]}' % (number, number)
            answer = link.request(f"$JS.API.STREAM.CREATE.S{number}", body)
            if b'"error"' in answer:
                raise RuntimeError(answer.decode())
            link.request(f"s.{number}.a", b"hello")


def row(name: str, command: list[str], streams: int, runs: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        if streams:
            fill(command, folder, streams)
        one_start(command, folder)  # files into the page cache
        all_runs = [one_start(command, folder) for _ in range(runs)]
    cells: list[float] = []
    for steps in zip(*all_runs, strict=True):
        taken = [ms for ms, _ in steps]
        cells += [statistics.median(taken), min(taken), statistics.median(cpu for _, cpu in steps)]
    print(f"| {name} | {streams} | {' | '.join(f'{cell:.0f}' for cell in cells)} |", flush=True)


def installed_script(folder: str) -> list[str]:
    """pelton-server beside this interpreter, or a script like it."""
    beside = Path(sys.executable).with_name("pelton-server")
    if beside.exists():
        return [str(beside)]
    path = Path(folder, "pelton-server")
    path.write_text(STUB.format(python=sys.executable))
    path.chmod(0o755)
    return [str(path)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--streams", type=int, default=100)
    source = str(Path(__file__).parents[1] / "src")
    parser.add_argument("--peer", default=os.environ.get("NATS_SERVER") or "nats-server")
    args = parser.parse_args()
    if importlib.util.find_spec("pelton") is None:  # not installed: the tree's own
        os.environ["PYTHONPATH"] = source
    with tempfile.TemporaryDirectory() as folder:
        servers = [
            ("pelton-server", installed_script(folder)),
            ("python -m pelton.server", [sys.executable, "-m", "pelton.server"]),
        ]
        peer = shlex.split(args.peer)
        if shutil.which(peer[0]):
            servers.append(("nats-server", peer))
        steps = ("connected", "INFO", "PONG", "API")
        print(f"| | streams | {' | '.join(f'{step} ms | best | cpu ms' for step in steps)} |")
        print("|---|--:" + "|--:" * 3 * len(steps) + "|")
        for name, command in servers:
            for streams in sorted({0, args.streams}):
                row(name, command, streams, args.runs)


if __name__ == "__main__":
    main()
