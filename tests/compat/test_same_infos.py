"""The INFO lines of a connection's life, ours and nats-server's: the greeting, and the one that tells
who has come in which account CONNECT led to.
"""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pelton.nkeys import USER, encode
from tests.peers import ServerProcess, available_servers, running_server

pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(
        "nats-server" not in available_servers(), reason="no nats-server from 2.14 on"
    ),
]

# Each server's own, or a difference that is written down.
OWN = {"server_id", "version", "git_commit", "go", "port", "xkey", "api_lvl", "client_id", "nonce"}

OPEN = ""
ACCOUNTS = """
system_account: SYS
accounts {
  A { users: [{user: a, password: pw}] }
  B-é: { users: [{user: b, password: pw}, {nkey: KEY}] }
  SYS { users: [{user: s, password: pw}] }
}
""".replace("KEY", encode(USER, bytes(32)))
GUEST = """
jetstream { domain: d }
max_payload: 5000
accounts { A { users: [{user: a, password: pw}] } }
no_auth_user: a
"""
CONFIGS = {"open": OPEN, "accounts": ACCOUNTS, "guest": GUEST}

HELLO = 'CONNECT {"verbose":false,"protocol":1}\r\n'
A = 'CONNECT {"verbose":false,"protocol":1,"user":"a","pass":"pw"}\r\n'
DIALOGUES = {
    "once": HELLO + "PING\r\nPING\r\n",
    "verbose": 'CONNECT {"protocol":1}\r\nPING\r\nPING\r\n',
    "an older client": 'CONNECT {"verbose":false,"protocol":0}\r\nPING\r\nPING\r\n',
    "one that does not say": 'CONNECT {"verbose":false}\r\nPING\r\nPING\r\n',
    "twice": HELLO + HELLO + "PING\r\n" + HELLO + "PING\r\n",
    "newer later": 'CONNECT {"verbose":false}\r\nPING\r\n' + HELLO + "PING\r\n",
    "no connect": "PING\r\nPING\r\n",
    "a subscription before": HELLO + "SUB a 1\r\nPUB a 1\r\nx\r\nPING\r\n",
    "a": A + "PING\r\nPING\r\n",
    "b": A.replace('"a"', '"b"') + "PING\r\n",
    "the system's": A.replace('"a"', '"s"') + "PING\r\n",
    "a stranger": A.replace('"a"', '"x"') + "PING\r\n",
}


@pytest.fixture(scope="module", params=CONFIGS)
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    files = []
    for name in ("ours", "theirs"):
        folder: Path = tmp_path_factory.mktemp(name)
        file = folder / "server.conf"
        file.write_text(f"server_name: S\n{CONFIGS[request.param]}")
        files.append(["-c", str(file)])
    with (
        running_server("pelton", *files[0]) as ours,
        running_server("nats-server", *files[1]) as theirs,
    ):
        yield ours, theirs


def lines(server: ServerProcess, dialogue: str) -> list[Any]:
    """What a server says, up to the PONG of a last PING or until it hangs up."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
        client.sendall(dialogue.encode())
        reader = client.makefile("rb")
        said: list[Any] = []
        wanted = dialogue.count("PING\r\n")
        while line := reader.readline().decode().rstrip():
            if line.startswith("INFO "):
                info = json.loads(line[5:])
                said.append([(name, info[name]) for name in info if name not in OWN])
            else:
                said.append(line)
            if said.count("PONG") == wanted:
                client.sendall(b"PING\r\n")  # what is to come before this PONG has come
                wanted = -1
            elif wanted < 0 and line == "PONG":
                return said
        return said


@pytest.mark.parametrize("name", DIALOGUES)
def test_infos(both: tuple[ServerProcess, ServerProcess], name: str) -> None:
    ours, theirs = (lines(server, DIALOGUES[name]) for server in both)
    assert ours == theirs
