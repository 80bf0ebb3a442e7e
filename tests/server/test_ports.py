"""When ports are listened on, and on which addresses: a connection is taken when it is served at once."""

import asyncio
import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pelton.core.base.clock import SystemClock
from pelton.core.broker.event_loop import EventLoop
from pelton.server.errors import StartError
from pelton.server.http import HttpServer, text_answer
from pelton.server.logs.log import Log
from pelton.server.transports.listener import Listener, open_sockets
from tests.server.process import ServerProcess

# Prints how many ports are listened on at each step of a start.
SCRIPT = """
import os
import signal
import socket
import sys

from pelton.server import app
from pelton.server.__main__ import main
from pelton.server.early_start import EarlyStart

def count():
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(name))) as each:
                found += each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        except OSError:
            pass
    return found

def show(place, name):
    usual = getattr(place, name)
    def shown(*arguments):
        print(name, count(), flush=True)
        return usual(*arguments)
    setattr(place, name, shown)

show(app.Server, "_build")
show(app.Server, "_load")
show(app.Server, "_listen")
show(app.Server, "write_files")
app.tell_systemd = lambda _text: os.kill(os.getpid(), signal.SIGTERM)
main(sys.argv[1:])
"""


def steps(*arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-P", "-c", SCRIPT, "-a", "127.0.0.1", "-p", "-1", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.split("\n")[:-1]


def test_a_plain_server_listens_when_it_can_greet_and_monitors_when_it_can_answer() -> None:
    assert steps("-m", "-1") == [
        "_build 0",
        "_load 1",
        "_listen 1",
        "write_files 2",
    ]


def test_one_with_more_ways_in_opens_them_all_together(tmp_path: Path) -> None:
    config = tmp_path / "server.conf"
    config.write_text(
        "websocket { listen: '127.0.0.1:-1', no_tls: true }\n"
        "leafnodes { listen: '127.0.0.1:-1' }\nhttp: '127.0.0.1:-1'\n"
    )
    assert steps("-c", str(config)) == [
        "_build 0",
        "_load 0",
        "_listen 0",
        "write_files 4",
    ]


def test_bound_sockets_refuse_until_the_listener_is_opened() -> None:
    (bound,) = open_sockets("127.0.0.1", -1)
    with bound, pytest.raises(ConnectionRefusedError):
        socket.create_connection(bound.getsockname(), timeout=10)


def test_a_port_that_another_server_takes_meanwhile_is_said(tmp_path: Path) -> None:
    (first,) = open_sockets("127.0.0.1", -1)
    port = first.getsockname()[1]
    (second,) = open_sockets("127.0.0.1", port)
    with first, second:
        first.listen()
        listener = Listener(
            [second], lambda *_: None, EventLoop(SystemClock()), Log(str(tmp_path / "log"))
        )
        with pytest.raises(
            StartError, match=f"can't listen on 127.0.0.1:{port}: the port is taken"
        ):
            listener.open()
        with pytest.raises(StartError, match=r"the port is taken.*choose another with -m"):
            asyncio.run(HttpServer(lambda *_: text_answer(200, ""), print).open([second], None))


@pytest.mark.parametrize("host", [None, "0.0.0.0", "::"])
def test_all_addresses_are_those_of_ipv4_and_ipv6(host: str | None, tmp_path: Path) -> None:
    config = tmp_path / "server.conf"
    shown = f"[{host}]" if host == "::" else host
    listen = f'listen: "{shown}:-1"' if host else "port: -1"
    config.write_text(
        f"{listen}\nhttp: -1\nwebsocket {{ {listen}, no_tls: true }}\nleafnodes {{ {listen} }}\n"
    )
    folder = tmp_path / "ports"
    folder.mkdir()
    server = ServerProcess("-c", str(config), "--ports_file_dir", str(folder))
    try:
        port = server.port()
        (file,) = folder.iterdir()
        ports = json.loads(file.read_text())
        found = {kind: int(urls[0].rpartition(":")[2]) for kind, urls in ports.items()}
        assert set(found) == {"nats", "monitoring", "websocket", "leafnodes"}
        assert found["nats"] == port
        for address in ("127.0.0.1", "::1"):
            for each in found.values():
                socket.create_connection((address, each), timeout=10).close()
            with socket.create_connection((address, port), timeout=10) as client:
                info = json.loads(client.makefile("rb").readline()[5:])
                assert info["client_ip"] == address
    finally:
        assert server.stop() == 0
