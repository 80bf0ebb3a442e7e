"""Trace lines: what they show, and what they do not."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.core.base.clock import Clock
from pelton.core.broker.reactor import Reactor
from pelton.core.broker.router import Router
from pelton.core.broker.session import Sessions
from pelton.server.logs.log import Log
from pelton.server.logs.trace_log import TraceLog, without_secrets
from pelton.server.settings import Settings


class Traced:
    """A reactor without sockets whose traffic is traced."""

    def __init__(self, **settings):
        self.stream = io.StringIO()
        log = Log(stream=self.stream, stamps=False, trace=True)
        self.reactor = Reactor(Clock(10**18))
        router = Router(self.reactor)

        def connect(connection, text):
            connection.headers = True
            connection.verbose = False
            return router

        self.sessions = Sessions(self.reactor, connect, router)
        self.reactor.trace_log = TraceLog(log, Settings(**settings), lambda c: f"cid:{c.id}")
        self.client = self.sessions.accept()

    def lines(self, data):
        self.sessions.feed(self.client, data)
        self.reactor.settle()
        self.client.take()
        return [line.split("[TRC] ")[1] for line in self.stream.getvalue().splitlines()]


def test_each_operation_has_its_line_in_both_directions():
    lines = Traced().lines(
        b'CONNECT {"pass":"hush"}\r\nPING\r\nSUB foo.* 1\r\nSUB q g 2\r\nPUB foo.a re.ply 5\r\nhello\r\n'
        b"HPUB foo.c 18 21\r\nNATS/1.0\r\nA: b\r\n\r\nx\ny\r\nUNSUB 1 7\r\nUNSUB 2\r\nPONG\r\n"
    )
    assert lines == [
        'cid:1 - <<- [CONNECT {"pass":"[REDACTED]"}]',
        "cid:1 - <<- [PING]",
        "cid:1 - ->> [PONG]",
        "cid:1 - <<- [SUB foo.* 1]",
        "cid:1 - <<- [SUB q g 2]",
        "cid:1 - <<- [PUB foo.a re.ply 5]",
        'cid:1 - <<- MSG_PAYLOAD: ["hello"]',
        "cid:1 - ->> [MSG foo.a 1 re.ply 5]",
        'cid:1 - ->> MSG_PAYLOAD: ["hello"]',
        "cid:1 - <<- [HPUB foo.c 18 21]",
        r'cid:1 - <<- MSG_PAYLOAD: ["NATS/1.0\r\nA: b\r\n\r\nx\ny"]',
        "cid:1 - ->> [HMSG foo.c 1 18 21]",
        r'cid:1 - ->> MSG_PAYLOAD: ["NATS/1.0\r\nA: b\r\n\r\nx\ny"]',
        "cid:1 - <<- [UNSUB 1 7]",
        "cid:1 - <<- [UNSUB 2]",
        "cid:1 - <<- [PONG]",
    ]


def test_a_payload_is_cut_where_the_settings_say():
    lines = Traced(max_traced_msg_len=2).lines(
        b"CONNECT {}\r\nPUB a 3\r\nxyz\r\nPUB a 2\r\nxy\r\nPUB a 0\r\n\r\n"
    )
    assert lines == [
        "cid:1 - <<- [CONNECT {}]",
        "cid:1 - <<- [PUB a 3]",
        'cid:1 - <<- MSG_PAYLOAD: ["xy..."]',
        "cid:1 - <<- [PUB a 2]",
        'cid:1 - <<- MSG_PAYLOAD: ["xy"]',
        "cid:1 - <<- [PUB a 0]",
    ]


def test_with_trace_headers_only_headers_are_shown():
    lines = Traced(trace_headers=True).lines(
        b"CONNECT {}\r\nPUB a 3\r\nxyz\r\nHPUB a 18 19\r\nNATS/1.0\r\nA: b\r\n\r\nx\r\n"
    )
    assert lines == [
        "cid:1 - <<- [CONNECT {}]",
        "cid:1 - <<- [PUB a 3]",
        "cid:1 - <<- [HPUB a 18 19]",
        r'cid:1 - <<- MSG_PAYLOAD: ["NATS/1.0\r\nA: b"]',
    ]


def test_an_error_is_shown():
    lines = Traced().lines(b"SUB a..b 1\r\nNONSENSE\r\n")
    assert lines[1:] == [
        "cid:1 - ->> [-ERR Invalid Subject]",
        "cid:1 - ->> [-ERR Unknown Protocol Operation]",
    ]


SECRET = "very-secret-word"


KEYS = [
    "pass",
    "auth_token",
    "jwt",
    "sig",
    "PASS",
    "Auth_Token",
    "password",
    "passwd",
    "token",
    "secret",
    "proxy_sig",
    "api-key",
]


@given(
    st.sampled_from(KEYS),
    st.text(max_size=5),
    st.booleans(),
    st.sampled_from(
        [lambda s: s, lambda s: [s], lambda s: {"name": s}, lambda s: {"a": [{"b": s}]}]
    ),
)
def test_no_secret_is_shown_however_it_is_written(key, more, escaped, wrapped):
    written = "".join(f"\\u{ord(c):04x}" for c in key) if escaped else key
    text = f'{{"user":"me","{written}": {json.dumps(wrapped(SECRET + more))},"verbose":true}}'
    shown = without_secrets(text.encode())
    assert SECRET.encode() not in shown
    assert json.loads(shown) == {"user": "me", key: "[REDACTED]", "verbose": True}


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"user": SECRET, "auth_token": SECRET}, {"user": 0, "auth_token": 0}),
        ({"name": {"pass": SECRET}, "lang": "go"}, {"name": 0, "lang": "go"}),
        ({"pass": 12345, "user": "12345"}, {"pass": 0, "user": 0}),
        ({"pass": "", "later": True, "echo": True}, {"pass": "", "later": True, "echo": True}),
        ({"deny_pub": ["a", "b"], "protocol": 1}, {"deny_pub": ["a", "b"], "protocol": 1}),
    ],
)
def test_a_secret_is_left_out_wherever_it_stands(fields, shown):
    expected = {key: "[REDACTED]" if value == 0 else value for key, value in shown.items()}
    assert json.loads(without_secrets(json.dumps(fields).encode())) == expected


def test_what_an_auth_callout_asks_is_not_shown():
    traced = Traced()
    lines = traced.lines(
        b"CONNECT {}\r\nSUB $SYS.REQ.USER.AUTH 1\r\nPUB $SYS.REQ.USER.AUTH 4\r\nhush\r\n"
    )
    assert [line for line in lines if "MSG_PAYLOAD" in line] == [
        "cid:1 - <<- MSG_PAYLOAD: [[REDACTED]]",
        "cid:1 - ->> MSG_PAYLOAD: [[REDACTED]]",
    ]
    assert "hush" not in traced.stream.getvalue()


@pytest.mark.parametrize("text", [b"", b"[]", b'{"pass":"hush"', b'"hush"', b'\xff{"pass":"hush"}'])
def test_what_is_no_object_is_not_shown(text):
    assert b"hush" not in without_secrets(text)


@given(st.binary(max_size=50))
def test_any_payload_is_one_printable_line(data):
    lines = Traced().lines(b"CONNECT {}\r\nPUB a %d\r\n%s\r\n" % (len(data), data))
    assert len(lines) == (3 if data else 2)
    assert all(line.isprintable() for line in lines)
