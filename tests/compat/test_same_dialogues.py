"""Dialogues of clients beside a nats-server: what each operation is answered, what closes a
connection, with which words; permissions and limits of users.

All dialogues of a server go on at once, each on a connection of its own; the bytes that come back
have to be the same.
"""

import contextlib
import json
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.peers import ServerProcess, available_servers, running_server
from tests.readable import readable

pytestmark = pytest.mark.peer

PATIENCE_S = 10.0
QUIET_S = 3.0  # nothing more comes after so long, and no PONG did

Dialogue = tuple[bytes, dict[str, object] | None]  # what is sent, and CONNECT's fields before it

# After a CONNECT that is neither verbose nor pedantic, with headers.
SAID = {
    "verbose": [
        "SUB a 1\r\nSUB a 1\r\nPUB a 0\r\n\r\nUNSUB 1\r\nUNSUB 1\r\nPING\r\nSUB a..b 2\r\n"
        "PUB x $JS.ACK.a 0\r\n\r\nSUB b 3\r\nSUB a..b 3\r\n"
    ],
    "sub": [
        "SUB a..b 1\r\nSUB .a 2\r\nSUB a. 3\r\nSUB a.>.b 4\r\nSUB \xff\xfe 6\r\nSUB a\x00b 7\r\n",
        "SUB\r\n",
        "SUB a\r\n",
        "SUB a b c d\r\n",
        "SUB \r\n",
        "SUB\ta\t1\r\nPUB\ta\t\t2\r\nhi\r\n",
        "SUB a _sys_ 1\r\nSUB a _sys_x 2\r\n",
        "SUB a q..x 1\r\nSUB a q* 2\r\nSUB a > 3\r\n",
        "SUB " + "a" * 5000 + " 1\r\n",
        "SUB " + "a" * 5000,
        "SUB " + "a" * 4094 + " 1\r\n",
        "SUB " + "a" * 4095 + " 1\r\n",
    ],
    "unsub": [
        "UNSUB\r\n",
        "UNSUB \r\n",
        "UNSUB 1 2 3\r\n",
        "UNSUB 99\r\n",
        "SUB a 1\r\nUNSUB 1 x\r\nPUB a 0\r\n\r\n",
        "SUB a 1\r\nUNSUB 1 -5\r\nPUB a 0\r\n\r\n",
        "SUB > 1\r\nUNSUB 1 2\r\nPUB u 0\r\n\r\nPUB u 0\r\n\r\nPUB u 0\r\n\r\n",
        "SUB a 1\r\nPUB a 0\r\n\r\nUNSUB 1 1\r\nPUB a 0\r\n\r\n",
    ],
    "pub": [
        "PUB\r\n",
        "PUB \r\n",
        "PUB a\r\n",
        "PUB a b c 1\r\n",
        "PUB a -1\r\n",
        "PUB a 1x\r\n",
        "PUB a 9999999999\r\n",
        "PUB a 99999999999999999999\r\n",
        "PUB a 1073741824\r\n",
        "PUB a 1048577\r\n",
        "PUB a 2\nhi\r\nPING\n",
        "PUB a 2\r\nhi\nPING\r\n",
        "PUB a 2\r\nhixx\r\nPING\r\n",
        "PUB a 3\r\nhi\r\nPING\r\n",
        "PUB a..b 0\r\n\r\nPUB a.>.b 0\r\n\r\nPUB a.* 1\r\nx\r\n",
    ],
    "hpub": [
        "SUB a 1\r\nHPUB a 12 14\r\nNATS/1.0\r\n\r\nhi\r\n",
        "HPUB a 9 3\r\nabc\r\n",
        "HPUB a -1 3\r\nabc\r\n",
        "SUB a 1\r\nHPUB a 0 2\r\nhi\r\n",
        "HPUB a 1\r\n",
        "HPUB a 12 2000000\r\n",
        "HPUB a x 3\r\nabc\r\n",
    ],
    "other": [
        "PING xyz\r\nPING\r\n",
        "PINGPING\r\nPING\r\n",
        "PONG\r\n",
        "+OK\r\n",
        "-ERR 'x'\r\nPING\r\n",
        "-ERR\r\n",
        "INFO {}\r\n",
        "INFO {x\r\nPING\r\n",
        "MSG a 1 2\r\nhi\r\n",
        "RS+ a\r\n",
        "LS+ a\r\n",
        "A+ x\r\n",
        "\r\n",
        " PING\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "\0\0\0\r\n",
        "ping\r\nsub a 1\r\npub a 2\r\nhi\r\n",
        "FOO\r\nPING\r\n",
        "Q\r\n",
        'SUB a 1\r\nCONNECT {"verbose":false}\r\nPUB a 0\r\n\r\n',
        "CONNECT {x\r\nPING\r\n",
    ],
    "reserved": [
        f"PUB {subject} 0\r\n\r\nPUB x {subject} 0\r\n\r\n"
        for subject in (
            *("$JS.ACK.", "$JS.ACK.a", "$JS.ACK", "_R_.", "_R_.x", "_R_", "_GR_.", "_GR_.x"),
            *("_GR_.abcdef.ghijkl.m", "$GR.", "$GR.x", "$GR.abcdefgh.ijklmn.o", "$SYS.x"),
            *("$NRG.", "$NRG.x", "$NRG", "$GNR.x", "$LDS.x", "$JSC.x"),
        )
    ],
}

# With these fields of CONNECT besides.
CONNECTED: list[tuple[dict[str, object], str]] = [
    ({"pedantic": True}, "SUB p.* 1\r\nPUB p.* 2\r\nhi\r\nPUB a..b 0\r\n\r\n"),
    ({"verbose": True, "pedantic": True}, "PUB a.* 0\r\n\r\nPUB $NRG.* 0\r\n\r\n"),
    ({"headers": False}, "HPUB a 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"),
    ({"protocol": 2}, ""),
    ({"protocol": -1}, ""),
    ({"headers": False, "no_responders": True}, ""),
    ({"account": "x"}, ""),
    ({"new_account": True}, ""),
    ({"verbose": "yes"}, ""),
    ({"verbose": None, "name": None}, ""),
    ({"VERBOSE": True}, ""),
    ({"protocol": 1.0}, ""),
    ({"protocol": 10**30}, ""),
    ({"name": 5}, ""),
    ({"unknown": {"a": [1]}}, ""),
    ({"echo": False}, "SUB e 1\r\nPUB e 0\r\n\r\n"),
    ({"no_responders": True}, "SUB in 1\r\nPUB nobody in 0\r\n\r\n"),
    ({"no_responders": True}, "SUB in q 1\r\nPUB nobody in 0\r\n\r\n"),
    ({"no_responders": True}, "SUB in.* 1\r\nSUB in.> 2\r\nPUB nobody in.x 0\r\n\r\n"),
    ({"no_responders": True, "echo": False}, "SUB in 1\r\nSUB f 2\r\nPUB f in 0\r\n\r\n"),
]

# From the first byte on.
RAW = [
    "SUB a 1\r\nPUB a 2\r\nhi\r\n",
    "CONNECT {}\r\n",
    "CONNECT null\r\n",
    "CONNECT []\r\n",
    "CONNECT \r\n",
    "CONNECT\r\n",
    "CONNECT{}\r\n",
    "CONNECT {} x\r\n",
    "CONNECT {}{}\r\n",
    'CONNECT {"verbose":true,"verbose":false}\r\n',
    'CONNECT {"x":' + "[" * 90 + "]" * 90 + "}\r\n",
    'CONNECT {"x":' + "[" * 3000 + "\r\n",
    'CONNECT {"name":"' + "x" * 5000 + '"}\r\n',
    'CONNECT {"verbose":false,"name":"\xff\xfe"}\r\n',
    'CONNECT {"verbose":false,"name":"\\ud800"}\r\n',
    'CONNECT {"verbose":false,"name":"a\tb"}\r\n',
    'CONNECT {"verbose":NaN}\r\n',
    "CONNECT 5\r\n",
    'CONNECT "x"\r\n',
    'CONNECT {\r"verbose":false}\r\n',
    "FOO\r\n",
    "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
]

QUIETLY = {"verbose": False, "pedantic": False, "headers": True, "no_responders": False}

USERS = """
max_sub_tokens: 4
authorization { users: [
    {user: a, password: a, permissions: {
        subscribe: {allow: ["foo.*", "q.a w.*", "bar.>"], deny: ["bar.secret", "bar.x.*", "q.d q1"]}
        publish: {allow: ["foo.*", "x.>"], deny: "x.no"}}}
    {user: d, password: d, permissions: {subscribe: {deny: ["secret.>", "z q1", "d.*.x"]}}}
    {user: r, password: r, permissions: {subscribe: "r.>", publish: {deny: "zip"},
        allow_responses: {max: 2, expires: "1m"}}}
    {user: all, password: all}
] }
"""

PERMITTED = [
    ("a", "SUB foo.* 1\r\nSUB foo.a 2\r\nSUB > 3\r\nSUB foo 4\r\nSUB foo.a.b 5\r\n"),
    ("a", "SUB q.a 1\r\nSUB q.a w.1 2\r\nSUB q.a x 3\r\nSUB q.* w.1 4\r\nSUB q.a w.> 5\r\nSUB q.a w.* 6\r\n"),
    ("a", "SUB bar.* 1\r\nSUB bar.secret 2\r\nSUB bar.x.a.b 3\r\nSUB bar.x.* 4\r\nSUB bar.> 5\r\nSUB bar.a.b.c 6\r\n"),
    ("a", "SUB a..b 1\r\nSUB foo.* _sys_ 2\r\nSUB foo.a 2\r\nSUB foo.b q 1\r\nSUB bar.x.y q 7\r\n"),
    ("a", "PUB foo.a.b 0\r\n\r\nPUB x.no 0\r\n\r\nPUB x.* 0\r\n\r\nPUB foo..a 0\r\n\r\nPUB x.a y.z 0\r\n\r\n"),
    ("a", "PUB $NRG.a 0\r\n\r\nPUB x.a $JS.ACK.a 0\r\n\r\nPUB x.no _R_.x 0\r\n\r\n"),
    ("a", 'PUB y"\xff\x01\\\xc3\xa9 0\r\n\r\nSUB y"\xff\x7f 1\r\nSUB y q" 1\r\n'),
    ("a", "SUB a.b.c.d.e 1\r\nSUB foo.b.c.d.e 2\r\nSUB bar.b.c.d.e 3\r\n"),
    ("d", "SUB secret.* 1\r\nSUB * 2\r\nSUB > q1 3\r\nSUB z q1 4\r\nSUB z q2 5\r\nSUB z 6\r\nSUB d.y.x 7\r\n"),
    ("d", "SUB d.> 1\r\nPUB d.1.y 0\r\n\r\nPUB d.1.x 0\r\n\r\nPUB d.1 0\r\n\r\n"),
    ("d", "SUB dz.* 1\r\nSUB secret 2\r\nPUB secret 0\r\n\r\nPUB secret.a 0\r\n\r\nPUB dz.a 0\r\n\r\n"),
    ("r", "PUB any 0\r\n\r\nPUB zip 0\r\n\r\nSUB s 1\r\nSUB r.a 1\r\n"),
    ("all", "SUB a.b.c.d 1\r\nSUB a.b.c.d.e 2\r\nSUB a.b.>.d.e 3\r\n"),
]  # fmt: skip


ACCOUNTS = """
max_sub_tokens: 3
no_header_support: true
accounts {
    A { users: [{user: a, password: a}], limits { max_subscriptions: 2, max_payload: 100 } }
    B { users: [{user: b, password: b}] }
}
"""

LIMITED = [
    ("a", "SUB a 1\r\nSUB b 2\r\nSUB c 3\r\nSUB a 1\r\nSUB a..b 9\r\nSUB a.b.c.d 4\r\nUNSUB 1\r\nSUB c 3\r\n"),
    ("a", "SUB a 1\r\nPUB a 100\r\n" + "x" * 100 + "\r\n"),
    ("a", "PUB a 101\r\n"),
    ("b", "SUB a.b.c.d 4\r\nSUB a.b.c 5\r\nSUB a 6\r\nSUB b 7\r\nPUB a.b.c 0\r\n\r\n"),
    ("b", "HPUB a 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"),
    ("b", "PUB b.x 101\r\n" + "x" * 101 + "\r\n"),
]  # fmt: skip


def dialogues() -> dict[str, Dialogue]:
    """Name -> what is said. Subjects of dialogues that go on at once are not the same ones."""
    found: dict[str, Dialogue] = {}
    for kind, texts in SAID.items():
        for i, text in enumerate(texts):
            fields = QUIETLY | ({"verbose": True} if kind == "verbose" else {})
            found[f"{kind}-{i}"] = text.encode("latin-1"), fields
    for i, (more, text) in enumerate(CONNECTED):
        found[f"connect-{i}"] = text.encode("latin-1"), QUIETLY | more
    for i, text in enumerate(RAW):
        found[f"raw-{i}"] = text.encode("latin-1"), None
    return found


def of_users(said: list[tuple[str, str]]) -> dict[str, Dialogue]:
    return {
        f"{user}-{i}": (text.encode("latin-1"), QUIETLY | {"user": user, "pass": user})
        for i, (user, text) in enumerate(said)
    }


def open_dialogue(port: int, said: Dialogue) -> socket.socket:
    """Connect, read INFO, and say it all; a PING last."""
    talk = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
    while not talk.recv(1, socket.MSG_PEEK) or b"\r\n" not in talk.recv(65536):
        pass
    text, fields = said
    if fields is not None:
        text = b"CONNECT " + json.dumps(fields).encode() + b"\r\n" + text
    with contextlib.suppress(OSError):
        talk.sendall(text + (b"PING\r\n" if text.endswith(b"\n") else b""))
    return talk


def outcomes(ports: tuple[int, int], said: Dialogue) -> list[bytes]:
    """All bytes of both servers; where they differ, what comes late beside load is waited for."""
    found = [outcome(port, said) for port in ports]
    return found if found[0] == found[1] else [outcome(port, said, 1.0) for port in ports]


def outcome(port: int, said: Dialogue, late_s: float = 0.03) -> bytes:
    """All bytes until the server closes, or says nothing more."""
    with open_dialogue(port, said) as talk:
        got = b""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            done = got.endswith(b"PONG\r\n")
            if not readable([talk], late_s if done else QUIET_S):
                break
            try:
                data = talk.recv(65536)
            except OSError:
                data = b""
            if not data:
                return got + b"<closed>"
            got += data
        return got


@pytest.fixture(scope="module")
def ports() -> Iterator[tuple[int, int]]:
    """Our server's port and the other one's."""
    if "nats-server" not in available_servers():
        pytest.skip("no nats-server that is new enough on this machine")
    with running_server("pelton") as ours, running_server("nats-server") as theirs:
        yield ours.port, theirs.port


@contextlib.contextmanager
def configured(folder: Path, text: str) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    """Both servers with the same configuration, each in a file of its own."""
    if "nats-server" not in available_servers():
        pytest.skip("no nats-server that is new enough on this machine")
    paths = [folder / f"{kind}.conf" for kind in ("ours", "theirs")]
    for path in paths:
        path.write_text(text)
    with (
        running_server("pelton", "-c", str(paths[0])) as ours,
        running_server("nats-server", "-c", str(paths[1])) as theirs,
    ):
        yield ours, theirs


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """The same with users who may not do everything."""
    with configured(tmp_path_factory.mktemp("users"), USERS) as (ours, theirs):
        yield ours.port, theirs.port


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """The same with accounts that have limits."""
    with configured(tmp_path_factory.mktemp("accounts"), ACCOUNTS) as (ours, theirs):
        yield ours.port, theirs.port


@pytest.mark.parametrize("name", dialogues())
def test_a_dialogue_goes_the_same_way(ports: tuple[int, int], name: str) -> None:
    ours, theirs = outcomes(ports, dialogues()[name])
    assert ours == theirs


@pytest.mark.parametrize("name", of_users(PERMITTED))
def test_users_may_do_the_same(guarded: tuple[int, int], name: str) -> None:
    ours, theirs = outcomes(guarded, of_users(PERMITTED)[name])
    assert ours == theirs


@pytest.mark.parametrize("name", of_users(LIMITED))
def test_limits_of_accounts_are_the_same(limited: tuple[int, int], name: str) -> None:
    ours, theirs = outcomes(limited, of_users(LIMITED)[name])
    assert ours == theirs


def test_a_reload_ends_what_is_no_longer_allowed(tmp_path: Path) -> None:
    """One subscription of each kind, as what ends comes in no order."""
    before = (
        'authorization { users: [{user: a, password: a, permissions: {subscribe: {deny: "x"}}}] }\n'
    )
    after = before.replace('"x"', '["foo", "bar.a"]')
    seen = []
    with configured(tmp_path, before) as servers:
        for server, name in zip(servers, ("ours", "theirs"), strict=True):
            fields = QUIETLY | {"user": "a", "pass": "a"}
            with open_dialogue(server.port, (b"SUB foo q 1\r\nSUB bar.* 2\r\n", fields)) as talk:
                (tmp_path / f"{name}.conf").write_text(after)
                got = b""
                while b"PONG\r\n" not in got:
                    got += talk.recv(65536)
                assert server.process is not None
                server.process.send_signal(signal.SIGHUP)
                while b'(sid "1")' not in got:
                    got += talk.recv(65536)
                talk.sendall(b"PUB foo 0\r\n\r\nPUB bar.a 0\r\n\r\nPUB bar.b 0\r\n\r\n")
                while b"MSG bar.b" not in got:
                    got += talk.recv(65536)
                seen.append(got.replace(b"PING\r\n", b""))
    assert seen[0] == seen[1]
