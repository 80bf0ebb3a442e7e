"""The state machine of a connection, fed by hand."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.client.base.addresses import Server, TlsOptions
from pelton.client.base.message import BaseMessage
from pelton.client.protocol.connection import Connection, State
from pelton.client.protocol.events import (
    Connected,
    Disconnected,
    Ended,
    InfoChanged,
    LameDuck,
    Pong,
    ServerComplaint,
    TlsRequired,
)
from pelton.client.protocol.options import Options
from pelton.errors import (
    AuthenticationError,
    ConnectError,
    ConnectionClosedError,
    ConnectionLostError,
    InvalidSubjectError,
    OutputFullError,
    PayloadTooLargeError,
    PermissionsViolationError,
    ProtocolError,
)

SERVER = Server("example.org")


def info(**fields: Any) -> bytes:
    text = {"server_id": "S", "version": "2.14.0", "headers": True, "max_payload": 1000, **fields}
    return b"INFO " + json.dumps(text).encode() + b" \r\n"


def started(options: Options | None = None, **fields: Any) -> Connection:
    """A connection that has shaken hands; its output and events are taken."""
    connection = Connection(options or Options())
    connection.connected_to(SERVER)
    connection.receive_data(info(**fields))
    connection.receive_data(b"PONG\r\n")
    assert connection.state is State.CONNECTED
    connection.data_to_send()
    connection.events()
    return connection


def connect_fields(data: bytes) -> dict[str, Any]:
    line = data.split(b"\r\n")[0]
    assert line.startswith(b"CONNECT ")
    fields: dict[str, Any] = json.loads(line[8:])
    return fields


def only(connection: Connection) -> Any:
    (event,) = connection.events()
    return event


def test_handshake_introduces_itself_and_waits_for_the_pong() -> None:
    connection = Connection(Options(name="me"))
    connection.connected_to(SERVER)
    assert connection.data_to_send() == b""
    connection.receive_data(info())
    data = connection.data_to_send()
    fields = connect_fields(data)
    assert data.endswith(b"\r\nPING\r\n")
    assert (fields["verbose"], fields["pedantic"], fields["protocol"]) == (False, False, 1)
    assert fields["headers"] is True
    assert fields["no_responders"] is True
    assert fields["name"] == "me"
    assert "user" not in fields
    assert "auth_token" not in fields
    assert connection.events() == []
    connection.receive_data(b"PONG\r\n")
    event = only(connection)
    assert isinstance(event, Connected)
    assert (event.info.server_id, event.again) == ("S", False)


@pytest.mark.parametrize(
    ("server", "options", "expected"),
    [
        (Server("h", user="u", password="p"), Options(), {"user": "u", "pass": "p"}),
        (Server("h", token="t"), Options(), {"auth_token": "t"}),
        (Server("h"), Options(user="u", password="p"), {"user": "u", "pass": "p"}),
        (Server("h"), Options(token="t"), {"auth_token": "t"}),
        (Server("h", user="a", password="b"), Options(token="t"), {"user": "a", "pass": "b"}),
        (
            Server("h"),
            Options(authenticator=lambda nonce: {"nkey": "U", "sig": nonce[::-1]}),
            {"nkey": "U", "sig": "ecnon"},
        ),
    ],
)
def test_credentials_of_the_url_go_before_those_of_the_options(
    server: Server, options: Options, expected: dict[str, str]
) -> None:
    connection = Connection(options)
    connection.connected_to(server)
    connection.receive_data(info(nonce="nonce"))
    fields = connect_fields(connection.data_to_send())
    found = {k: v for k, v in fields.items() if k in ("user", "pass", "auth_token", "nkey", "sig")}
    assert found == expected


def test_headers_are_not_promised_to_a_server_without_them() -> None:
    connection = Connection(Options())
    connection.connected_to(SERVER)
    connection.receive_data(info(headers=False))
    fields = connect_fields(connection.data_to_send())
    assert (fields["headers"], fields["no_responders"]) == (False, False)


@pytest.mark.parametrize(
    ("options", "fields", "outcome"),
    [
        (Options(), {}, State.AWAITING_PONG),
        (Options(), {"tls_required": True}, State.AWAITING_TLS),
        (Options(), {"tls_available": True}, State.AWAITING_PONG),
        (Options(tls=TlsOptions()), {"tls_available": True}, State.AWAITING_TLS),
        (Options(tls=TlsOptions()), {}, State.DISCONNECTED),
    ],
)
def test_tls_is_used_when_one_side_wants_it_and_the_other_can(
    options: Options, fields: dict[str, Any], outcome: State
) -> None:
    connection = Connection(options)
    connection.connected_to(SERVER)
    connection.receive_data(info(**fields))
    assert connection.state is outcome
    if outcome is State.AWAITING_TLS:
        assert isinstance(only(connection), TlsRequired)
        assert connection.data_to_send() == b"", "nothing is said in clear"
        connection.tls_established()
        assert connect_fields(connection.data_to_send())["tls_required"] is True
    elif outcome is State.DISCONNECTED:
        assert isinstance(only(connection).error, ConnectError)


@pytest.mark.parametrize("text", ["Authorization Violation", "Authentication Timeout"])
def test_refused_credentials_are_an_authentication_error(text: str) -> None:
    connection = Connection(Options())
    connection.connected_to(SERVER)
    connection.receive_data(info(nonce="x"))
    connection.receive_data(b"-ERR '%s'\r\n" % text.encode())
    event = only(connection)
    assert isinstance(event, Disconnected)
    assert isinstance(event.error, AuthenticationError)
    assert "authenticator" in str(event.error), "a nonce was sent: nkeys are wanted"


def test_an_end_during_the_handshake_is_a_connect_error() -> None:
    connection = Connection(Options())
    connection.connected_to(SERVER)
    connection.receive_eof()
    event = only(connection)
    assert isinstance(event.error, ConnectError)
    assert connection.state is State.DISCONNECTED


def test_messages_reach_their_subscription_with_all_parts() -> None:
    connection = started()
    first, second = connection.subscribe("a.*", owner="one"), connection.subscribe("b", "q")
    assert connection.data_to_send() == b"SUB a.* 1\r\nSUB b q 2\r\n"
    connection.receive_data(
        b"MSG a.x 1 5\r\nhello\r\nHMSG b 2 r.1 20 23\r\nNATS/1.0\r\nK:  v \r\n\r\nabc\r\n"
        b"MSG gone 9 1\r\nx\r\n"
    )
    one, two = connection.events()
    assert isinstance(one, BaseMessage)
    assert isinstance(two, BaseMessage)
    assert (one.subject, one.reply, one.data, one.headers) == ("a.x", "", b"hello", {})
    assert one._interest is first
    assert one._interest.owner == "one"
    assert (two.subject, two.reply, two.data) == ("b", "r.1", b"abc")
    assert two.header("K") is not None
    assert two._interest is second
    assert (first.delivered, second.delivered) == (1, 1)


def test_auto_unsubscribe_ends_after_the_last_message_and_not_before() -> None:
    connection = started()
    interest = connection.subscribe("a")
    connection.unsubscribe(interest, 2)
    assert connection.data_to_send() == b"SUB a 1\r\nUNSUB 1 2\r\n"
    connection.receive_data(b"MSG a 1 0\r\n\r\n")
    assert [type(event) for event in connection.events()] == [BaseMessage]
    connection.receive_data(b"MSG a 1 0\r\n\r\nMSG a 1 0\r\n\r\n")
    assert [type(event) for event in connection.events()] == [BaseMessage, Ended]
    assert connection.interests == {}


def test_auto_unsubscribe_below_what_came_ends_at_once() -> None:
    connection = started()
    interest = connection.subscribe("a")
    connection.receive_data(b"MSG a 1 0\r\n\r\nMSG a 1 0\r\n\r\n")
    connection.events()
    connection.data_to_send()
    connection.unsubscribe(interest, 1)
    assert isinstance(only(connection), Ended)
    assert connection.data_to_send() == b"UNSUB 1\r\n"


def test_a_drained_subscription_takes_what_is_on_its_way_but_is_not_replayed() -> None:
    connection = started()
    interest = connection.subscribe("a")
    connection.drain(interest)
    assert connection.data_to_send().endswith(b"UNSUB 1\r\n")
    connection.receive_data(b"MSG a 1 1\r\nx\r\n")
    assert only(connection).data == b"x"
    connection.receive_eof()
    connection.events()
    connection.connected_to(SERVER)
    connection.receive_data(info() + b"PONG\r\n")
    assert b"SUB" not in connection.data_to_send()


def test_after_a_reconnect_subscriptions_come_first_then_what_was_published_meanwhile() -> None:
    connection = started()
    connection.subscribe("a", "q")
    counted = connection.subscribe("b")
    connection.unsubscribe(counted, 5)
    connection.receive_data(b"MSG b 2 0\r\n\r\nMSG b 2 0\r\n\r\n")
    gone = connection.subscribe("c")
    connection.unsubscribe(gone)
    connection.events()
    connection.receive_eof(OSError("reset"))
    event = only(connection)
    assert isinstance(event.error, ConnectionLostError)
    assert "reset" in str(event.error)
    connection.publish("x", b"1")
    late = connection.subscribe("d")
    assert connection.data_to_send() == b""
    connection.connected_to(SERVER)
    connection.receive_data(info())
    connect_fields(connection.data_to_send())
    connection.receive_data(b"PONG\r\n")
    assert connection.data_to_send() == (
        b"SUB a q 1\r\nSUB b 2\r\nUNSUB 2 3\r\nSUB d %d\r\nPUB x 1\r\n1\r\n" % late.sid
    )
    assert only(connection).again is True


def test_kept_output_is_bounded() -> None:
    connection = Connection(Options(pending_bytes_max=100))
    for _ in range(4):
        connection.publish("x", b"0123456789")  # 22 bytes each
    with pytest.raises(OutputFullError):
        connection.publish("x", b"0123456789")
    connection.connected_to(SERVER)
    connection.receive_data(info() + b"PONG\r\n")
    assert connection.data_to_send().count(b"PUB x 10\r\n") == 4


def test_pings_are_answered_and_pongs_find_who_asked() -> None:
    connection = started()
    connection.ping("first")
    connection.ping()
    connection.ping("second")
    connection.data_to_send()
    connection.receive_data(b"PING\r\nPONG\r\nPONG\r\n")
    assert connection.data_to_send() == b"PONG\r\n"
    assert only(connection) == Pong("first")
    connection.receive_eof()
    assert only(connection).waiters == ["second"]


def test_what_the_server_complains_about_without_closing_is_told() -> None:
    connection = started()
    connection.receive_data(b"-ERR 'Permissions Violation for Publish to \"a\"'\r\n")
    event = only(connection)
    assert isinstance(event, ServerComplaint)
    assert isinstance(event.error, PermissionsViolationError)
    assert event.error.text == 'Permissions Violation for Publish to "a"'
    assert connection.connected
    connection.receive_data(b"-ERR 'Stale Connection'\r\nMSG a 1 0\r\n\r\n")
    event = only(connection)
    assert isinstance(event, Disconnected)
    assert "Stale" in str(event.error)


def test_lame_duck_is_told_once() -> None:
    connection = started()
    connection.receive_data(info(ldm=True))
    assert [type(event) for event in connection.events()] == [InfoChanged, LameDuck]
    connection.receive_data(info(ldm=True, max_payload=5))
    assert [type(event) for event in connection.events()] == [InfoChanged]
    with pytest.raises(PayloadTooLargeError):
        connection.publish("a", b"123456")


@pytest.mark.parametrize("garbage", [b"XYZ\r\n", b"MSG a\r\n", b"MSG a 1 1\r\nxyz", b"INFO {]\r\n"])
def test_a_broken_protocol_ends_the_connection(garbage: bytes) -> None:
    connection = started()
    connection.subscribe("a")
    connection.receive_data(b"MSG a 1 1\r\nx\r\n" + garbage)
    message, event = connection.events()
    assert isinstance(message, BaseMessage), "what came before the break counts"
    assert isinstance(event, Disconnected)
    assert isinstance(event.error, ProtocolError)
    connection.receive_data(b"MSG a 1 1\r\nx\r\n")
    assert connection.events() == []


def test_a_failing_authenticator_ends_the_attempt() -> None:
    def fail(_: str) -> dict[str, str]:
        raise OSError("no key file")

    connection = Connection(Options(authenticator=fail))
    connection.connected_to(SERVER)
    connection.receive_data(info())
    error = only(connection).error
    assert isinstance(error, AuthenticationError)
    assert "no key file" in str(error)


@pytest.mark.parametrize(
    "subject", ["", "a b", "a..b", ".a", "a.", "a\r\n", "*", "a.>", "a.*.b", "\0"]
)
def test_subjects_that_cannot_be_published_to_are_refused(subject: str) -> None:
    connection = started()
    with pytest.raises(InvalidSubjectError):
        connection.publish(subject, b"")
    assert connection.data_to_send() == b""


@pytest.mark.parametrize("subject", ["", "a b", "a..b", "a.>.b", "a\n"])
def test_subjects_that_cannot_be_subscribed_to_are_refused(subject: str) -> None:
    with pytest.raises(InvalidSubjectError):
        started().subscribe(subject)


@pytest.mark.parametrize("subject", ["a", "a.b.c", "foo*", "f>o.x", "é.ü", "$JS.API.INFO"])
def test_odd_but_legal_subjects_are_published(subject: str) -> None:
    connection = started()
    connection.publish(subject, b"")
    assert connection.data_to_send() == b"PUB " + subject.encode() + b" 0\r\n\r\n"


def test_a_reply_subject_cannot_carry_another_operation() -> None:
    with pytest.raises(InvalidSubjectError):
        started().publish("a", b"", "r 0\r\n\r\nPUB b")


def test_nothing_works_after_close() -> None:
    connection = started()
    connection.ping("waiter")
    connection.close()
    assert only(connection) == Disconnected(None, ["waiter"])
    with pytest.raises(ConnectionClosedError):
        connection.publish("a", b"")
    with pytest.raises(ConnectionClosedError):
        connection.subscribe("a")


STREAM = (
    info()
    + b"PONG\r\n"
    + b"MSG a.b 1 3\r\nabc\r\n"
    + b"PING\r\n"
    + b"HMSG a.c 1 reply 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"
    + b"+OK\r\n"
    + b"-ERR 'Permissions Violation for Publish to \"x\"'\r\n"
    + info(ldm=True)
    + b"MSG a.d 1  0\r\n\r\n"
)


def outcome(chunks: list[bytes]) -> tuple[list[tuple[Any, ...]], bytes]:
    connection = Connection(Options())
    connection.subscribe("a.*")
    connection.connected_to(SERVER)
    seen: list[tuple[Any, ...]] = []
    sent = b""
    for chunk in chunks:
        connection.receive_data(chunk)
        for event in connection.events():
            if isinstance(event, BaseMessage):
                seen.append((event.subject, event.reply, event.raw_headers, event.data))
            else:
                seen.append((type(event).__name__,))
        sent += connection.data_to_send()
    return seen, sent


@given(st.lists(st.integers(0, len(STREAM)), max_size=30))
def test_any_split_of_the_bytes_gives_the_same_events(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    chunks = [STREAM[start:end] for start, end in itertools.pairwise(edges)]
    expected = outcome([STREAM])
    assert len(expected[0]) == 7
    assert outcome(chunks) == expected


@given(st.binary(max_size=200))
def test_no_bytes_of_a_server_raise(data: bytes) -> None:
    connection = started()
    connection.subscribe("a")
    connection.receive_data(data)
    connection.events()
    connection.data_to_send()
