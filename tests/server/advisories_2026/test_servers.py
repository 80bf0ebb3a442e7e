"""What ended a server, filled its memory, or showed a secret."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
import zlib

import pytest

from tests.peers import command_of, free_port
from tests.server.auth import signed
from tests.server.auth.live import KINDS, OK, Talk, configured
from tests.server.auth.signed import USER, account_jwt, user_jwt
from tests.server.auth.test_live_operator import request, system_user
from tests.server.configured import configured as with_ports
from tests.server.configured import line_of, rest_of
from tests.server.test_hostile_leafs import join_as
from tests.server.test_tracing import Traced

from .test_logins import CONNECT, UPGRADE, said

both = pytest.mark.parametrize("kind", KINDS)


def still_serves(server) -> None:
    client = server.connect()
    line_of(client)
    client.sendall(CONNECT)
    assert said(client) == b"PONG\r\n"
    client.close()


LEAFS = """
    listen: 127.0.0.1:@port
    leafnodes {{ listen: 127.0.0.1:@leaf, compression: {} }}
"""
BEFORE_CONNECT = {
    "account": b'INFO {}\r\nINFO {"remote_account":"attacker"}\r\n',
    "connect info": b'INFO {}\r\nINFO {"connect_info":true}\r\n',
    "compression": b'INFO {"compression":"s2_fast"}\r\nINFO {"compression":"off"}\r\n',
    "interest": b"LS+ test\r\n",
    "interest after INFO": b'INFO {"server_id":"x","compression":"off"}\r\nLS+ test\r\n',
    "no interest": b"LS- test\r\n",
    "message": b"LMSG a 5\r\nhello\r\n",
    "message with headers": b"HMSG a 12 12\r\nNATS/1.0\r\n\r\n\r\n",
    "loop": b"-ERR 'Loop detected for leafnode account=\"$G\"'\r\n",
    "ping": b"PING\r\n",
    "pong": b"PONG\r\n",
    "ok": b"+OK\r\n",
}


@both
@pytest.mark.parametrize("mode", ["off", "s2_auto"])
@pytest.mark.parametrize("lines", BEFORE_CONNECT)
def test_a_leaf_node_may_do_nothing_before_connect(kind, mode, lines):
    """8ed9e19f2, ec52c6a51: nats-server ended. Nothing but an error is answered."""
    with with_ports(kind, LEAFS.format(mode)) as server:
        leaf = server.connect("leaf")
        line_of(leaf)
        leaf.sendall(BEFORE_CONNECT[lines])
        if not lines.startswith(("account", "connect info", "compression")):
            assert rest_of(leaf) == b"-ERR 'Authorization Violation'\r\n"
        leaf.close()
        still_serves(server)


IMPORTS = """
    listen: 127.0.0.1:@port
    server_name: hub
    accounts {
        A {
            users: [ { user: leaf, password: x, permissions: { publish: [svc, "_R_.>"] } } ]
            imports: [ { service: { account: B, subject: svc }, share: @share } ]
        }
        B {
            users: [ { user: b, password: x } ]
            exports: [ { service: svc, accounts: [A] }, { service: other } ]
        }
    }
    leafnodes { listen: 127.0.0.1:@leaf }
"""


def forged(header: str) -> bytes:
    head = f"NATS/1.0\r\n{header}X: 1\r\n\r\n"
    return f"HMSG svc reply.x {len(head)} {len(head)}\r\n{head}\r\n".encode()


def header_of(connection) -> bytes:
    """The header block of the next message."""
    while not (line := line_of(connection)).startswith(b"HMSG"):
        assert line, "closed"
    size = int(line.split()[-1])
    data = b""
    while len(data) < size + 2:
        data += connection.recv(size + 2 - len(data))
    return data


@both
@pytest.mark.parametrize("share", [False, True])
def test_a_leaf_node_does_not_forge_who_asks(kind, share):
    """CVE-2026-33246 (894ecebe9): the service gets the identity of the leaf node's connection."""
    with with_ports(kind, IMPORTS.replace("@share", str(share).lower())) as server:
        service = server.connect()
        line_of(service)
        fields = b'CONNECT {"verbose":false,"headers":true,"user":"b","pass":"x"}\r\n'
        service.sendall(fields + b"SUB svc 1\r\nPING\r\n")
        assert said(service) == b"PONG\r\n"
        leaf = join_as(server.ports["leaf"], {"user": "leaf", "pass": "x", "headers": True})
        lie = 'Nats-Request-Info: {"acc":"SYS","user":"admin","id":99}\r\n'
        for header in (lie, lie * 2, "", f"A: b\r\n{lie}"):
            leaf.sendall(forged(header))
            block = header_of(service)
            assert block.count(b"Nats-Request-Info:") == 1, block
            info = json.loads(block.partition(b"Nats-Request-Info: ")[2].partition(b"\r\n")[0])
            assert info["acc"] == "A"
            assert info.get("user") == ("leaf" if share else None)
            assert info.get("kind") == ("Leafnode" if share else None)
            assert info.get("name") == ("leaf" if share else None)
            assert info.get("id") != 99
        leaf.close()
        service.close()


@both
def test_messages_of_a_leaf_node_need_its_users_permissions(kind):
    """038a56adf: the hub checks them, whatever the leaf node does."""
    with with_ports(kind, IMPORTS.replace("@share", "false")) as server:
        leaf = join_as(server.ports["leaf"], {"user": "leaf", "pass": "x"})
        leaf.sendall(b"LMSG other 5\r\nhello\r\n")
        assert b"Permissions Violation for Publish to" in rest_of(leaf)
        leaf.close()


def upgraded(server, path=b"/", *more: bytes):
    connection = server.connect("ws")
    connection.sendall(
        UPGRADE.replace(b" / ", b" %b " % path).replace(b"13\r\n", b"13\r\n" + b"".join(more))
    )
    return connection


def frame(payload: bytes, first: int = 0x82) -> bytes:
    """A masked frame, with a mask of zeros."""
    size = len(payload)
    if size < 126:
        head = bytes([first, 0x80 | size])
    elif size < 1 << 16:
        head = bytes([first, 0xFE]) + size.to_bytes(2, "big")
    else:
        head = bytes([first, 0xFF]) + size.to_bytes(8, "big")
    return head + bytes(4) + payload


SOCKET = """
    listen: 127.0.0.1:@port
    authorization { user: u, password: x }
    websocket { listen: 127.0.0.1:@ws, no_tls: true, compression: true }
"""


def resident_kib(server) -> int:
    with open(f"/proc/{server.process.pid}/status", encoding="ascii") as status:
        return int(next(line.split()[1] for line in status if line.startswith("VmRSS")))


@pytest.mark.parametrize("form", ["announced", "fragments", "bomb"])
def test_a_stranger_over_websocket_takes_little_memory(form):
    """d450ad78e: frames without end and frames that inflate, before the login."""
    with with_ports("pelton", SOCKET) as server:
        extension = (
            b"Sec-WebSocket-Extensions: permessage-deflate; "
            b"server_no_context_takeover; client_no_context_takeover\r\n"
        )
        connections = [upgraded(server, b"/", extension) for _ in range(8)]
        for connection in connections:
            while line_of(connection) != b"\r\n":
                pass
        before = resident_kib(server)
        for connection in connections:
            try:
                if form == "announced":
                    connection.sendall(
                        bytes([0x82, 0xFF]) + (1 << 40).to_bytes(8, "big") + bytes(4)
                    )
                    connection.sendall(bytes(4 << 20))
                elif form == "fragments":
                    connection.sendall(frame(b"x" * 60_000, 0x02) + frame(b"x" * 60_000, 0x00) * 60)
                else:
                    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
                    packed = packer.compress(bytes(40 << 20)) + packer.flush(zlib.Z_SYNC_FLUSH)
                    connection.sendall(frame(packed[:-4], 0xC2))
            except ConnectionError:
                pass
            rest_of(connection)  # the server closes
            connection.close()
        assert resident_kib(server) - before < 24 << 10
        client = server.connect()
        assert line_of(client).startswith(b"INFO")
        client.close()


@both
def test_mqtt_over_websocket_is_refused(kind):
    """dc6827ade: nats-server ended when MQTT was off."""
    with with_ports(kind, SOCKET) as server:
        connection = upgraded(server, b"/mqtt", b"Sec-WebSocket-Protocol: mqtt\r\n")
        if b" 101 " in line_of(connection):  # as a client, which such bytes are not from
            connection.sendall(frame(b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00"))
            assert b"\x20\x02" not in rest_of(connection)  # the answer of an MQTT server
        connection.close()
        client = server.connect()
        assert line_of(client).startswith(b"INFO")
        client.close()


STORE = """
    accounts {
        A { jetstream: enabled, users: [ { user: a, password: x } ] }
        S { users: [ { user: s, password: x } ] }
    }
    system_account: S
    no_auth_user: a
    jetstream: enabled
"""


def ask(talk, call, body=""):
    text = body if isinstance(body, str) else json.dumps(body)
    return json.loads(request(talk, f"$JS.API.{call}", text))


@both
def test_names_have_no_path_separators(kind, tmp_path):
    """1ba5e4d8f, 7acacf2db: of streams, consumers, accounts; nor do they lead out of the store."""
    with configured(kind, tmp_path, STORE) as server:
        talk = Talk(server)
        talk.connect()
        assert "error" not in ask(talk, "STREAM.CREATE.GOOD", {"name": "GOOD", "subjects": ["g"]})
        for name in ("a/b", "..", "../x", "a\\b", "/etc", "a/../../b"):
            if "." not in name:
                for call, body in (
                    (f"STREAM.CREATE.{name}", {"name": name, "subjects": ["b"]}),
                    (
                        f"CONSUMER.DURABLE.CREATE.GOOD.{name}",
                        {"stream_name": "GOOD", "config": {"durable_name": name}},
                    ),
                ):
                    assert "error" in ask(talk, call, body), call
            body = {"name": name, "subjects": ["b"]}
            assert "error" in ask(talk, "STREAM.CREATE.GOOD", body)
            config = {"name": name, "durable_name": name, "ack_policy": "none"}
            body = {"stream_name": "GOOD", "config": config}
            assert "error" in ask(talk, "CONSUMER.CREATE.GOOD", body)
            state = {"messages": 0, "bytes": 0, "first_seq": 0, "last_seq": 0, "consumer_count": 0}
            config = {"name": name, "subjects": ["b"], "retention": "limits", "storage": "file"}
            body = {"config": {**config, "max_consumers": -1}, "state": state}
            assert "error" in ask(talk, "STREAM.RESTORE.NEW", body)  # under another name
        assert ask(talk, "STREAM.NAMES")["streams"] == ["GOOD"]
        system = Talk(server)
        system.connect(user="s", **{"pass": "x"})
        for name in ("A/hello", "..", "../A", "\\"):
            if "." not in name:
                assert "error" in ask(system, f"ACCOUNT.PURGE.{name}")
        talk.close()
        system.close()


@both
def test_bodies_that_lack_a_part_end_nothing(kind, tmp_path):
    """68a3a1647, 0cd37272f, 61e59f526: a pull without a group, a counter's null source, a consumer that
    an origin does not describe.
    """
    with configured(kind, tmp_path, STORE) as server:
        talk = Talk(server)
        talk.connect(headers=True)
        assert "error" not in ask(talk, "STREAM.CREATE.P", {"name": "P", "subjects": ["p"]})
        config = {
            "durable_name": "c",
            "ack_policy": "explicit",
            "priority_policy": "pinned_client",
            "priority_groups": ["g"],
            "priority_timeout": 5_000_000_000,
        }
        body = {"stream_name": "P", "config": config}
        assert "error" not in ask(talk, "CONSUMER.DURABLE.CREATE.P.c", body)
        for pull in ("", "1", "{}", '{"batch":1,"group":null}', '{"batch":1,"group":""}'):
            talk.send(f"PUB $JS.API.CONSUMER.MSG.NEXT.P.c pull {len(pull)}\n{pull}\n")
        counter = {"name": "C", "subjects": ["c"], "allow_msg_counter": True}
        assert "error" not in ask(talk, "STREAM.CREATE.C", counter)
        head = 'NATS/1.0\nNats-Incr: 1\nNats-Counter-Sources: {"O1":null}\n\n'
        size = len(head.replace("\n", "\r\n"))
        talk.send(f"HPUB c {size} {size}\n{head}\n")
        origin = {"name": "O1", "subjects": ["o"], "allow_msg_counter": True}
        assert "error" not in ask(talk, "STREAM.CREATE.O1", origin)
        change = {"subject_transforms": [{"src": "o", "dest": "c"}], "name": "O1"}
        ask(talk, "STREAM.UPDATE.C", {**counter, "sources": [change]})
        head = "NATS/1.0\nNats-Incr: 5\n\n"
        size = len(head.replace("\n", "\r\n"))
        talk.send(f"HPUB o {size} {size}\n{head}\n")
        origin_api = Talk(server)
        origin_api.connect()
        assert origin_api.say("SUB XAPI.> 1\nPING\n") == OK
        external = {"name": "E", "external": {"api": "XAPI", "deliver": "d"}}
        answers = ('{"config":null}', '{"stream_name":"S","name":"MC"}', "null", "[]", "{")
        for n, answer in enumerate(answers):
            name = f"M{n}"
            assert "error" not in ask(
                talk, f"STREAM.CREATE.{name}", {"name": name, "mirror": external}
            )
            reply = origin_api.say("").split()[3]
            origin_api.line()  # the payload of the request
            origin_api.send(f"PUB {reply} {len(answer)}\n{answer}\n")
            assert origin_api.say("PING\n") == OK
            assert ask(talk, f"STREAM.INFO.{name}")["config"]["name"] == name
        talk.close()
        origin_api.close()


@both
def test_the_command_line_on_the_monitoring_port_has_no_secrets(kind):
    """6f93d7e7e."""
    port, monitor = free_port(), free_port()
    words = ["-a", "127.0.0.1", "-p", str(port), "-m", str(monitor), "--user", "hush-user"]
    words += ["--pass=hush-pass", "--cluster", "nats://c:hush-cluster@127.0.0.1:-1"]
    command = command_of(kind)
    assert command is not None
    process = subprocess.Popen([*command, *words], stderr=subprocess.DEVNULL)
    try:
        for path in ("debug/vars", "varz", "connz?auth=true&subs=detail"):
            text = ""
            while not text:
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{monitor}/{path}") as answer:
                        text = answer.read().decode()
                except (ConnectionError, urllib.error.URLError):
                    assert process.poll() is None
                    time.sleep(0.02)
            assert "hush" not in text
    finally:
        process.terminate()
        process.wait()


@both
def test_bearer_tokens_are_not_shown(kind, tmp_path):
    """b118e07f5: whoever reads one can log in with it."""
    monitor = free_port()
    text = signed.config(account_jwt(), extra=f"http: 127.0.0.1:{monitor}")
    token = user_jwt(bearer_token=True)
    with configured(kind, tmp_path, text) as server, Talk(server) as talk:
        assert talk.connect(jwt=token) == OK
        url = f"http://127.0.0.1:{monitor}/connz?auth=true"
        with urllib.request.urlopen(url) as answer:
            shown = answer.read().decode()
        assert USER.public in shown
        assert token not in shown
        system = system_user(server)
        reply = request(system, "$SYS.REQ.SERVER.PING.CONNZ", '{"auth":true}')
        assert token not in reply
        assert token.split(".")[1] not in reply
        system.close()


@pytest.mark.parametrize(
    "text",
    [
        '{"pass":"hush","pass":"hush2","password":"hush3"}',
        '{"auth_token":"hush","auth_token":"hush2"}',
        '{"sig":"hush","proxy_sig":"hush","nonce":"hush"}',
        '{"name":"a sig:b","sig":"hush"}',
        '{pass = "hush",password ="hush2"}',
        "sig=hush",
        '{"jwt":"hush","user":"u"',
        '{"a":{"pass":"hush"}}',
    ],
)
def test_the_trace_log_has_no_secrets(text):
    """1f6212940."""
    traced = Traced()
    traced.reactor.trace_log.received(traced.client, b"CONNECT " + text.encode(), None, 0)
    assert "hush" not in traced.stream.getvalue()


@both
@pytest.mark.parametrize(
    "query",
    ["connz?offset={0}&limit=1", "connz?offset={0}&limit={0}", "subsz?subs=1&offset={0}&limit=1"],
)
def test_an_offset_and_a_limit_do_not_overflow(kind, query):
    """c75576eb6: nats-server ended."""
    with with_ports(kind, "listen: 127.0.0.1:@port\nhttp: 127.0.0.1:@http") as server:
        client = server.connect()
        line_of(client)
        client.sendall(b"SUB a 1\r\n" + CONNECT)
        url = f"http://127.0.0.1:{server.ports['http']}/{query.format((1 << 63) - 1)}"
        with urllib.request.urlopen(url) as answer:
            report = json.loads(answer.read())
        assert not report.get("connections")
        assert not report.get("subscriptions_list")
        client.close()
        still_serves(server)
