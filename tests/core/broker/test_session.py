"""Operations of clients: answers, -ERR texts, and what closes the connection."""

import pytest

from pelton.core.broker.reactor import Connection
from pelton.core.broker.session import PENDING, Sessions
from tests.core.wires import Server


@pytest.fixture
def server() -> Server:
    return Server()


def test_before_connect_the_defaults_are_verbose_pedantic_and_echo(server: Server) -> None:
    client = server.bare().send("SUB a 1\r\nPUB a 2\r\nhi\r\nPING\r\n")
    assert client.raw() == b"+OK\r\n+OK\r\nMSG a 1 2\r\nhi\r\nPONG\r\n"


def test_a_second_sub_with_the_same_sid_is_ignored(server: Server) -> None:
    client = server.client().send("SUB a 1\r\nSUB b 1\r\nPUB b 0\r\n\r\nPUB a 0\r\n\r\n")
    assert client.raw() == b"MSG a 1 0\r\n\r\n"


@pytest.mark.parametrize(
    ("said", "answer", "reason"),
    [
        (b"HELLO\r\n", b"-ERR 'Unknown Protocol Operation'\r\n", "Protocol Violation"),
        (b"SUB\r\n", b"-ERR 'Unknown Protocol Operation'\r\n", "Protocol Violation"),
        (b"PUB a 2\r\nhixPING\r\n", b"-ERR 'Unknown Protocol Operation'\r\n", "Protocol Violation"),
        (b"PUB a -1\r\n", b"", "Parse Error"),
        (b"PUB a b c d 1\r\n", b"", "Parse Error"),
        (b"HPUB a 9 3\r\nabc\r\n", b"", "Parse Error"),
        (
            b"SUB " + b"a" * 5000 + b" 1\r\n",
            b"-ERR 'maximum control line exceeded'\r\n",
            "Maximum Control Line Exceeded",
        ),
        (
            b"PUB a 1048577\r\n",
            b"-ERR 'Maximum Payload Violation'\r\n",
            "Maximum Message Payload Exceeded",
        ),
        (b"-ERR 'no'\r\n", b"", "Parse Error"),
    ],
)
def test_what_breaks_the_protocol_closes_with_its_text(
    server: Server, said: bytes, answer: bytes, reason: str
) -> None:
    client = server.client()
    client.send(said)
    assert (client.raw(), client.connection.closed, client.connection.reason) == (
        answer,
        True,
        reason,
    )


@pytest.mark.parametrize("subject", ["a..b", ".a", "a.", "a.>.b"])
def test_an_invalid_subject_is_refused_and_the_connection_stays(
    server: Server, subject: str
) -> None:
    client = server.client().send(f"SUB {subject} 1\r\nPING\r\n")
    assert client.raw() == b"-ERR 'Invalid Subject'\r\nPONG\r\n"


def test_a_pedantic_client_is_told_of_a_wildcard_publish_but_it_is_routed(server: Server) -> None:
    listener = server.client().send("SUB a.* 1\r\n")
    client = server.client(pedantic=True).send("PUB a.* 2\r\nhi\r\n")
    assert client.raw() == b"-ERR 'Invalid Publish Subject'\r\n"
    assert listener.raw() == b"MSG a.* 1 2\r\nhi\r\n"


@pytest.mark.parametrize("reply", ["$JS.ACK.s.c.1.1.1.1.1", "_R_.x", "_GR_.x"])
def test_reserved_reply_subjects_are_denied(server: Server, reply: str) -> None:
    client = server.client().send("SUB a 1\r\n").send(f"PUB a {reply} 0\r\n\r\nPING\r\n")
    assert (
        client.raw()
        == f"-ERR 'Permissions Violation for Publish with Reply of \"{reply}\"'\r\nPONG\r\n".encode()
    )


def test_no_responders_goes_to_the_publishers_own_plain_subscription(server: Server) -> None:
    other = server.client().send("SUB inbox.* 7\r\n")
    client = server.client().send(
        "SUB inbox.1 q 8\r\nSUB inbox.* 9\r\nPUB nobody inbox.1 0\r\n\r\n"
    )
    head = b"NATS/1.0 503\r\nNats-Subject: nobody\r\n\r\n"
    assert client.raw() == b"HMSG inbox.1 9 %d %d\r\n%s\r\n" % (len(head), len(head), head)
    assert other.raw() == b""


def test_no_responders_needs_to_be_asked_for(server: Server) -> None:
    client = server.client(no_responders=False).send("SUB inbox 9\r\nPUB nobody inbox 0\r\n\r\n")
    assert client.raw() == b""


def test_headers_are_stripped_for_who_does_not_understand_them(server: Server) -> None:
    old = server.client(headers=False, no_responders=False).send("SUB a 1\r\n")
    new = server.client().send("SUB a 1\r\n")
    head = b"NATS/1.0\r\nK: v\r\n\r\n"
    server.client().send(b"HPUB a r %d %d\r\n%sbody\r\n" % (len(head), len(head) + 4, head))
    assert old.raw() == b"MSG a 1 r 4\r\nbody\r\n"
    assert new.raw() == b"HMSG a 1 r %d %d\r\n%sbody\r\n" % (len(head), len(head) + 4, head)


def test_auto_unsubscribe_counts_deliveries(server: Server) -> None:
    client = server.client().send("SUB a 1\r\nUNSUB 1 2\r\n" + "PUB a 0\r\n\r\n" * 3)
    assert client.raw() == b"MSG a 1 0\r\n\r\n" * 2
    assert client.connection.subscription_count() == 0


def test_unsubscribe_at_or_below_what_was_delivered_ends_at_once(server: Server) -> None:
    client = server.client().send(
        "SUB a 1\r\nPUB a 0\r\n\r\nPUB a 0\r\n\r\nUNSUB 1 2\r\nPUB a 0\r\n\r\n"
    )
    assert client.raw() == b"MSG a 1 0\r\n\r\n" * 2


def test_echo_off_keeps_own_messages_away_also_in_queue_groups(server: Server) -> None:
    client = server.client(echo=False).send("SUB a 1\r\nSUB a q 2\r\nPUB a inbox 0\r\n\r\n")
    assert client.raw() == b""


def test_with_auth_the_first_operation_must_be_connect() -> None:
    server = Server(auth=True)
    client = server.bare().send("PING\r\n")
    assert client.raw() == b"-ERR 'Authorization Violation'\r\n"
    assert client.connection.closed


def test_with_auth_a_good_connect_opens_the_door() -> None:
    server = Server(auth=True)
    server.on_connect = lambda _connection, options: options.get("user") == "me"
    assert server.client(user="me").send("PING\r\n").raw() == b"PONG\r\n"
    bad = server.client(user="you")
    assert bad.raw() == b"-ERR 'Authorization Violation'\r\n"


def test_max_subscriptions_refuses_and_stays_open(server: Server) -> None:
    server.sessions.max_subscriptions = 1
    client = server.client().send("SUB a 1\r\nSUB b 2\r\nPUB b 0\r\n\r\nPING\r\n")
    assert client.raw() == b"-ERR 'maximum subscriptions exceeded'\r\nPONG\r\n"


def test_an_exception_in_a_callback_closes_that_connection_only(server: Server) -> None:
    server.on_connect = lambda _connection, _options: 1 // 0
    bad = server.bare().send("CONNECT {}\r\n")
    assert bad.connection.closed
    assert [type(error) for error in server.errors] == [ZeroDivisionError]
    server.on_connect = None
    assert server.client().send("PING\r\n").raw() == b"PONG\r\n"


def test_a_connect_can_be_decided_later() -> None:
    server = Server()
    asked: list[Connection] = []

    def connect(connection: Connection, text: bytes) -> object:
        if text != b"{}":
            connection.verbose = False
            return server.router
        asked.append(connection)
        return PENDING

    sessions = Sessions(server.reactor, connect, server.router, True)
    connection = sessions.accept()
    sessions.feed(connection, b"CONNECT {}\r\nSUB a 1\r\nPUB a 1\r\n")
    sessions.feed(connection, b"x\r\nPING\r\n")
    server.reactor.settle()
    assert (asked, connection.stalled, connection.take()) == ([connection], True, b"")
    connection.ready = True
    sessions.admit(connection, server.router)
    sessions.admit(connection, server.router)  # once is enough
    server.reactor.settle()
    assert connection.take() == b"+OK\r\n+OK\r\n+OK\r\nMSG a 1 1\r\nx\r\nPONG\r\n"
    sessions.feed(connection, b"CONNECT {}\r\nPING\r\n")
    connection.fail(b"Authorization Violation", "Authentication Failure")
    sessions.admit(connection, server.router)
    server.reactor.settle()
    assert connection.take() == b"-ERR 'Authorization Violation'\r\n"
    assert connection.closed


def test_input_that_waits_for_a_decision_is_bounded() -> None:
    server = Server()
    sessions = Sessions(server.reactor, lambda connection, text: PENDING, server.router, True)
    connection = sessions.accept()
    sessions.feed(connection, b"CONNECT {}\r\n")
    for _ in range(100):
        sessions.feed(connection, b"PING\r\n" * 10_000)
    assert connection.take() == b"-ERR 'Authorization Violation'\r\n"
    assert connection.closed
    assert connection.buffered() < 2**23


def test_limits_are_those_of_the_connection() -> None:
    server = Server()
    server.sessions.max_subscriptions = 2
    server.sessions.max_sub_tokens = 3
    client = server.client().send("SUB a 1\r\nSUB b 2\r\nSUB c 3\r\nSUB a.b.c.d 4\r\n")
    assert client.raw() == (
        b"-ERR 'maximum subscriptions exceeded'\r\n"
        b"-ERR 'Permissions Violation for Subscription to \"a.b.c.d\", too many tokens'\r\n"
    )
    client.connection.max_subscriptions = 3
    assert (
        client.send("SUB c 3\r\nSUB d 4\r\n").raw() == b"-ERR 'maximum subscriptions exceeded'\r\n"
    )
    client.connection.max_subscriptions = -1
    assert client.send("SUB d 4\r\n").raw() == b""


def test_a_slow_subscriber_can_miss_messages_instead_of_holding_up_who_publishes() -> None:
    server = Server()
    server.reactor.max_pending = 2**22
    slow, fast = server.client().send("SUB a 1\r\n"), server.client().send("SUB a 1\r\n")
    slow.connection.set_blocked(True)
    publisher = server.client()
    message = b"PUB a 100000\r\n" + b"x" * 100_000 + b"\r\n"
    server.reactor.drop_for_slow = True
    for _ in range(100):
        publisher.send(message)
        assert not publisher.connection.stalled
        assert len(fast.raw()) > 100_000
    assert 3 * 2**20 < slow.connection.pending_bytes() < 2**22
    server.reactor.drop_for_slow = False
    publisher.send(message)
    assert publisher.connection.stalled


def test_held_publishes_wait_and_keep_their_order(server: Server) -> None:
    listener, talker, late = (server.client() for _ in range(3))
    listener.send("SUB > 1\r\n")
    server.sessions.hold()
    talker.send("PING\r\nPUB a 1\r\nx\r\nPUB b 1\r\ny\r\nPI")
    late.send("SUB z 1\r\nUNSUB 1\r\n")
    assert talker.raw() == b"PONG\r\n"
    talker.send("NG\r\nPUB c 1\r\nz\r\n")
    late.send("PUB d 0\r\n\r\n")
    assert (talker.raw(), listener.raw(), late.raw()) == (b"", b"", b"")
    server.sessions.go_on()
    assert listener.raw() == (
        b"MSG a 1 1\r\nx\r\nMSG b 1 1\r\ny\r\nMSG c 1 1\r\nz\r\nMSG d 1 0\r\n\r\n"
    )
    assert talker.raw() == b"PONG\r\n"
    assert server.errors == []


def test_go_on_without_hold_changes_nothing(server: Server) -> None:
    client = server.client().send("SUB a 1\r\nPUB a 0\r\n\r\n")
    server.sessions.go_on()
    assert client.raw() == b"MSG a 1 0\r\n\r\n"
