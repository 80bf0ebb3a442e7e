"""Users by what they may do, and logins by what they show: each try is made at both servers, and every
line that they answer is compared, with what another user hears of it.
"""

import json
import socket
from collections.abc import Iterator

import pytest

from tests.compat.cast import Cast, cast
from tests.peers import available_servers

pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(
        "nats-server" not in available_servers(), reason="no nats-server from 2.14 on"
    ),
]

# What one user may do.
PERMISSIONS = {
    "everything": "",
    "nothing": "publish: {deny: '>'}, subscribe: {deny: '>'}",
    "one": "publish: a, subscribe: a",
    "several": "publish: [a, 'b.*'], subscribe: [a, 'b.*', 'in.>']",
    "tail": "publish: 'a.>', subscribe: 'a.>'",
    "star": "publish: '*', subscribe: '*'",
    "denied": "publish: {deny: 'a.*'}, subscribe: {deny: 'a.*'}",
    "both": "publish: {allow: 'a.>', deny: 'a.b'}, subscribe: {allow: 'a.>', deny: ['a.b', 'a.c.>']}",
    "queue": "subscribe: {allow: ['a q', 'b.* q.*', c], deny: 'c r'}",
    "no queue": "subscribe: {deny: ['a q', '> z']}",
    "answers": "publish: {deny: '>'}, subscribe: [a, 'b.*'], allow_responses: true",
    "two answers": "publish: c, subscribe: a, allow_responses: {max: 2, expires: '1m'}",
    "requests": "publish: ['$JS.API.>', a], subscribe: '_INBOX.>'",
}
TRIES = [
    *("SUB a 1", "SUB a q 1", "SUB a z 1", "SUB a.b 1", "SUB a.* 1", "SUB a.> 1", "SUB > 1"),
    *("SUB b.x q.1 1", "SUB b.* q.1 1", "SUB b.x p 1", "SUB c r 1", "SUB c 1", "SUB a*.b 1"),
    *("SUB * 1", "SUB *.b 1", "SUB a.c.d 1", "SUB _INBOX.x.* 1", "SUB in.> q 1", "SUB a.>.b 1"),
    *("PUB a 1\r\nx", "PUB a.b 1\r\nx", "PUB a.c.d 1\r\nx", "PUB b.x 1\r\nx", "PUB c 1\r\nx"),
    *("PUB a in.1 1\r\nx", "PUB a.> 1\r\nx", "PUB a.* 1\r\nx", "PUB $KV.x 0\r\n"),
    *("PUB $SYS.x 1\r\nx", "PUB _R_.x 1\r\nx", "PUB a..b 1\r\nx", "PUB a _R_.x 1\r\nx"),
    *("UNSUB 1", "UNSUB 9 3"),
]

# Where we differ: docs/reference/differences.md says why of the first two. Both refuse what is no
# subject; which of the two errors comes is all that differs.
DIFFERENT = {
    ("star", "SUB > 1"),
    ("denied", "SUB a.> 1"),
    ("nothing", "SUB a.>.b 1"),
    ("tail", "SUB a.>.b 1"),
    ("both", "SUB a.>.b 1"),
}


def permissions_config() -> str:
    users = "\n".join(
        f'  {{user: "{name}", password: pw, permissions: {{ {text} }} }}'
        if text
        else f'  {{user: "{name}", password: pw}}'
        for name, text in PERMISSIONS.items()
    )
    return f"authorization {{ users: [\n{users}\n  {{user: all, password: pw}}\n] }}\n"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cast]:
    with cast(permissions_config(), tmp_path_factory.mktemp("permissions"), []) as both:
        yield both


class Talk:
    """A bare connection; `say` gives all lines that came until the PONG after it."""

    def __init__(self, port: int, hello: dict[str, object]) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.reader = self.socket.makefile("rb")
        self.info = json.loads(self.reader.readline()[5:])
        self.first = self.say(f"CONNECT {json.dumps({'verbose': False, **hello})}")

    def say(self, text: str) -> list[str]:
        self.socket.sendall(f"{text}\r\nPING\r\n".encode())
        lines: list[str] = []
        while line := self._line():
            if line == "PONG":
                return lines
            if line != "PING":  # the server asks on a slow day
                lines.append(line)
        return [*lines, "closed"]

    def _line(self) -> str:
        try:
            return self.reader.readline().decode().rstrip("\r\n")
        except ConnectionResetError:
            return ""

    def close(self) -> None:
        self.reader.close()
        self.socket.close()


def tried(port: int, user: str) -> dict[str, list[list[str]]]:
    """What a user is answered to each try, and what somebody hears who hears everything."""
    witness = Talk(port, {"user": "all", "pass": "pw"})
    witness.say("SUB > 1")
    found = {}
    for text in TRIES:
        talk = Talk(port, {"user": user, "pass": "pw", "headers": True, "pedantic": False})
        heard = talk.say(text)
        found[text] = [talk.first, heard, witness.say("SUB nothing 9\r\nUNSUB 9")]
        talk.close()
    witness.close()
    return found


@pytest.mark.parametrize("user", PERMISSIONS)
def test_what_a_user_may_do(servers: Cast, user: str) -> None:
    ours, theirs = (tried(port, user) for port in servers.ports)
    different = {(user, text) for text in TRIES if ours[text] != theirs[text]}
    assert different == {each for each in DIFFERENT if each[0] == user}, (ours, theirs)


@pytest.mark.parametrize("user", ["answers", "two answers", "one"])
def test_who_may_answer(servers: Cast, user: str) -> None:
    """As often as it may, on the reply subject of what it received, and nowhere else."""
    found = []
    for port in servers.ports:
        asking = Talk(port, {"user": "all", "pass": "pw"})
        serving = Talk(port, {"user": user, "pass": "pw"})
        said = [serving.say("SUB a 1"), asking.say("SUB back.* 1")]
        asking.say("PUB a back.1 1\r\nx\r\nPUB a 1\r\ny")
        said.append(serving.say("PUB back.2 1\r\nz"))
        said += [serving.say("PUB back.1 1\r\nz") for _ in range(3)]
        said.append(asking.say("PUB a back.3 1\r\nx"))
        said.append(serving.say("PUB back.3 1\r\nz"))
        said.append(asking.say("PUB nothing 0\r\n"))
        asking.close()
        serving.close()
        found.append(said)
    assert found[0] == found[1]


# -- logins

LOGINS = {
    "single": "authorization { user: me, password: pw }",
    "token": "authorization { token: secret }",
    "users": "authorization { users: [{user: me, password: pw}, {user: bare, password: ''}] }",
    "guest": "authorization { users: [{user: me, password: pw}] }\nno_auth_user: me",
    "kinds": """authorization { users: [
        {user: me, password: pw, allowed_connection_types: [WEBSOCKET]}
        {user: you, password: pw, allowed_connection_types: [STANDARD]} ] }""",
    "accounts": """accounts { A { users: [{user: me, password: pw}] }
        B { users: [{user: you, password: pw}] } }""",
    "nobody": "",
}
SHOWN: list[dict[str, object]] = [
    {},
    {"user": "me", "pass": "pw"},
    {"user": "me", "pass": "wrong"},
    {"user": "me"},
    {"pass": "pw"},
    {"user": "you", "pass": "pw"},
    {"user": "ME", "pass": "pw"},
    {"user": "bare"},
    {"user": "bare", "pass": ""},
    {"auth_token": "secret"},
    {"auth_token": "wrong"},
    {"auth_token": ""},
    {"user": "me", "pass": "pw", "auth_token": "secret"},
    {"USER": "me", "Pass": "pw"},
    {"user": None, "pass": None},
    {"jwt": "x.y.z", "sig": "s"},
    {"nkey": "U", "sig": "s"},
    {"account": "A"},
    {"user": "me", "pass": "pw", "new_account": True},
]


@pytest.fixture(scope="module", params=LOGINS)
def doors(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[int, int]]:
    with cast(LOGINS[request.param], tmp_path_factory.mktemp("logins"), []) as both:
        yield both.ports


def test_who_is_let_in(doors: tuple[int, int]) -> None:
    answers: list[list[list[str]]] = []
    for port in doors:
        found = []
        for shown in SHOWN:
            talk = Talk(port, shown)
            found.append(talk.first)
            talk.close()
        answers.append(found)
    assert list(zip(map(str, SHOWN), answers[0], strict=True)) == list(
        zip(map(str, SHOWN), answers[1], strict=True)
    )
