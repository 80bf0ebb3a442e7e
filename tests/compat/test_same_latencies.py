"""How long services take, measured for those who offer them: side by side with nats-server."""

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

CONFIG = """
accounts {
  A {
    users: [{user: a, password: pw}]
    exports: [
      {service: "help", latency: {sampling: 100%, subject: "times.help"}}
      {service: "quick", latency: "times.quick", threshold: "150ms"}
      {service: "traced", latency: {sampling: headers, subject: "times.traced"}}
    ]
  }
  B {
    users: [{user: b, password: pw}]
    imports: [
      {service: {account: A, subject: "help"}}
      {service: {account: A, subject: "quick"}, share: true}
      {service: {account: A, subject: "traced"}}
    ]
  }
}
"""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cast]:
    with cast(CONFIG, tmp_path_factory.mktemp("latencies"), []) as both:
        yield both


@pytest.fixture
def users(servers: Cast) -> Iterator[Cast]:
    fresh = Cast(*servers.ports, ["a", "b"])
    fresh.say("a", "SUB times.> 9\r\nSUB help 1\r\nSUB quick 2\r\nSUB traced 3\r\n")
    fresh.say("b", "SUB in.* 1\r\n")
    yield fresh
    fresh.close()


def test_an_answer(users: Cast) -> None:
    users.publish("b", "help", "x", reply="in.1")
    assert users.answer("a", "y")["a"]["9"][0][3]["status"] == 200


def test_no_reply_subject(users: Cast) -> None:
    assert users.publish("b", "help", "x")["a"]["9"][0][3]["status"] == 400


def test_nobody_serves(users: Cast) -> None:
    users.say("a", "UNSUB 1\r\n")
    users.publish("b", "help", "x", reply="in.1")


def test_interest_in_the_answer_is_lost(users: Cast) -> None:
    users.publish("b", "help", "x", reply="in.1")
    users.say("b", "UNSUB 1\r\n")


def test_it_takes_too_long(users: Cast) -> None:
    users.publish("b", "quick", "x", reply="in.1")
    users.wait(0.6)
    users.say("a", "")


@pytest.mark.parametrize(
    "headers",
    [
        "",
        "Other: 1",
        "Uber-Trace-Id: 1:2:3:1",
        "uber-trace-id: 1:2:3:1\nUberctx-A: b",
        "Uber-Trace-Id: 1:2:3:0",
        "Uber-Trace-Id: 1:2:3",
        "X-B3-Sampled: 1",
        "X-B3-Sampled: 0\nX-B3-TraceId: 5",
        "X-B3-TraceId: 5\nX-B3-SpanId: 6\nX-B3-ParentSpanId: 4",
        "B3: 80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1-1",
        "B3: a-b-0",
        "B3: 0",
        "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\ntracestate: a=b",
        "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
        "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff",
    ],
)
def test_headers_ask_for_it(users: Cast, headers: str) -> None:
    users.publish("b", "traced", "x", reply="in.1", headers=headers)
    users.answer("a", "y")
