"""The connection of both shells: its events, forced reconnects, credentials, many answers."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest

from pelton import (
    ConnectError,
    ConnectionClosedError,
    NoRespondersError,
    PeltonTimeoutError,
    Status,
)
from pelton.client.base.addresses import Server, parse_servers
from pelton.client.protocol.connection import Connection
from pelton.client.protocol.options import Options
from pelton.client.protocol.pool import ServerPool
from tests.client.shells import connected
from tests.counting import calls_of
from tests.peers import OLDEST, ServerProcess, available_servers, free_port, running_server
from tests.ways import length

if TYPE_CHECKING:
    from collections.abc import Sequence


def kinds(events: list[Status]) -> list[str]:
    return [event.type for event in events]


def test_the_life_of_a_connection_as_events(shell: str, own_server: ServerProcess) -> None:
    told: list[Status] = []
    with connected(shell, own_server.url, on_status=told.append, reconnect_wait=0.01) as client:
        events = client.status()
        client.reconnect()
        own_server.stop()
        own_server.start()
        client.reconnect()
        client.publish("a")
    assert kinds(told)[:4] == ["connected", "disconnected", "reconnecting", "reconnected"]
    assert kinds(told)[-1] == "closed"
    assert set(kinds(told)) <= {
        "connected",
        "disconnected",
        "reconnecting",
        "reconnected",
        "lame_duck",
        "closed",
        "error",
    }
    assert all(event.server == own_server.url for event in told)
    assert "connect again" in str(told[1].error)
    with connected(shell, own_server.url) as client:
        events = client.status()
        client.reconnect()
        assert kinds(list(itertools.islice(events, 3))) == [
            "disconnected",
            "reconnecting",
            "reconnected",
        ]
        client.close()
        assert kinds(list(events)) == ["closed"]
        assert list(client.status()) == []


def test_subscriptions_and_queued_output_survive_a_forced_reconnect(
    shell: str, server: ServerProcess, unique: str
) -> None:
    with connected(shell, server.url) as client:
        subscription = client.subscribe(unique)
        for number in range(100):
            client.publish(unique, b"%d" % number)
        client.reconnect(timeout=60)
        client.publish(unique, b"100")
        assert [int(subscription.next().data) for _ in range(101)] == list(range(101))
        assert client.stats.reconnects == 1
    with connected(shell, server.url, reconnect=False) as client:
        with pytest.raises(ValueError, match="reconnect is off"):
            client.reconnect()
        client.publish(unique)


def test_slow_consumers_and_refusals_are_events(
    shell: str, server: ServerProcess, unique: str
) -> None:
    with connected(shell, server.url) as client:
        events = client.status()
        client.subscribe(unique, pending_messages_max=1)
        for _ in range(3):
            client.publish(unique)
        client.flush()
        event = next(iter(events))
        assert event.type == "slow_consumer"
        assert unique in str(event.error)


def test_the_first_connection_is_tried_again_on_wish(shell: str) -> None:
    asked: list[int] = []

    def delay(failures: int) -> float:
        asked.append(failures)
        return 0.001

    options: dict[str, Any] = {"reconnect_delay": delay, "reconnect_attempts_max": 3}
    url = f"nats://127.0.0.1:{free_port()}"
    with (
        pytest.raises(ConnectError, match="cannot connect"),
        connected(shell, url, retry_first_connect=True, **options),
    ):
        pass
    assert asked == [1, 2, 3]
    with pytest.raises(ConnectError), connected(shell, url, **options):
        pass
    assert asked == [1, 2, 3]


def test_a_server_that_takes_no_connection_in_time_has_no_answer(shell: str) -> None:
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):  # nobody accepts them, so that there is no room for another
            other = stack.enter_context(socket.socket())
            other.setblocking(False)
            other.connect_ex(full.getsockname())
        url = f"nats://127.0.0.1:{full.getsockname()[1]}"
        with (
            pytest.raises(ConnectError, match=r"no answer in 0\.05 s"),
            connected(shell, url, connect_timeout=0.05, reconnect=False),
        ):
            pass


@pytest.mark.parametrize("kind", available_servers(OLDEST))
def test_credentials_are_asked_for_at_every_connect(shell: str, kind: str) -> None:
    asked = itertools.count()

    def password() -> str:
        return "p" if next(asked) < 2 else "old"

    with (
        running_server(kind, "--user", "u", "--pass", "p") as server,
        connected(shell, server.url, user=lambda: "u", password=password) as client,
    ):
        client.reconnect()
        assert next(asked) == 2
        with pytest.raises(ConnectionClosedError, match="gave up reconnecting"):
            client.reconnect()


def test_one_request_and_many_answers(shell: str, server: ServerProcess, unique: str) -> None:
    with connected(shell, server.url) as client, connected("blocking", server.url) as other:

        def answered(count: int, end: bytes | None = None, **options: Any) -> list[bytes]:
            """The answers taken, of ``count`` that were sent at once."""
            questions = other.subscribe(unique)
            other.flush()
            answers = client.request_many(unique, b"?", **options)

            def answer() -> None:
                question = questions.next()
                for number in range(count):
                    question.respond(b"%d" % number)
                if end is not None:
                    question.respond(end)

            thread = threading.Thread(target=answer)
            thread.start()
            found = [message.data for message in answers]
            thread.join()
            questions.unsubscribe()
            return found

        assert answered(5, max_messages=3) == [b"0", b"1", b"2"]
        assert answered(2, b"", sentinel=True, max_wait=60) == [b"0", b"1"]
        assert answered(2, b"end", sentinel=lambda m: m.data == b"end", max_wait=60) == [b"0", b"1"]
        assert answered(3, stall=0.2, max_wait=60) == [b"0", b"1", b"2"]
        assert answered(3, max_wait=0.5) == [b"0", b"1", b"2"]
        with pytest.raises(NoRespondersError):
            list(client.request_many(f"{unique}.nobody"))
        with pytest.raises(ValueError, match="max_messages"):
            list(client.request_many(unique, max_messages=0))
        assert client._connection.interests == {}, "every inbox is given up"


def test_requests_with_a_subscription_each(shell: str, server: ServerProcess, unique: str) -> None:
    with connected(shell, server.url, shared_inbox=False) as client:
        info = client.jetstream().account_info()
        assert info.streams >= 0
        with pytest.raises(NoRespondersError):
            client.request(f"{unique}.nobody")
        client.subscribe(unique)
        with pytest.raises(PeltonTimeoutError):
            client.request(unique, timeout=0.05)
        assert len(client._connection.interests) == 1


def test_shuffled_servers_are_all_tried_once_in_a_round() -> None:
    servers = tuple(Server(f"h{number}") for number in range(20))
    numbers = itertools.cycle([0.1, 0.9, 0.5])
    pool = ServerPool(Options(servers=servers, shuffle_servers=True), lambda: next(numbers))
    order = []
    for _ in servers:
        choice = pool.next()
        assert choice is not None
        order.append(choice[0])
        pool.failed(OSError("refused"))
    assert sorted(order, key=servers.index) == list(servers)
    assert order != list(servers)
    assert ServerPool(Options(learn_servers=False), lambda: 0.0).learn(["h:1"]) == []
    assert ServerPool(Options(), lambda: 0.0).learn(["h:1", "127.0.0.1:4222", "h:1"]) == [
        Server("h", 1)
    ]


def many_subscriptions(number: int) -> None:
    """Subscribe, receive a message on each, connect again, unsubscribe each."""
    connection = Connection(Options())
    greeting = b'INFO {"server_id":"S","headers":true}\r\nPONG\r\n'
    connection.connected_to(Server("h"))
    connection.receive_data(greeting)
    interests = [connection.subscribe(f"a.{each}") for each in range(number)]
    connection.receive_data(b"".join(b"MSG a %d 0\r\n\r\n" % each.sid for each in interests))
    assert sum(each.delivered for each in interests) == number
    connection.receive_eof()
    connection.events()
    connection.data_to_send()
    connection.connected_to(Server("h"))
    connection.receive_data(greeting)
    assert connection.data_to_send().count(b"SUB a.") == number
    for each in interests:
        connection.unsubscribe(each)
    assert connection.data_to_send().count(b"UNSUB ") == number


def test_the_cost_of_subscriptions_is_linear() -> None:
    number = length(2_000, 10_000)
    few, many = (calls_of(lambda n=n: many_subscriptions(n)) for n in (number, 10 * number))  # type: ignore[misc]  # bound now
    assert many < 10.5 * few


def test_servers_are_shown_replaced_and_chosen(shell: str, server: ServerProcess) -> None:
    dead = f"nats://127.0.0.1:{free_port()}"
    asked: list[tuple[str, ...]] = []

    def choose(servers: Sequence[Server]) -> Server | None:
        asked.append(tuple(map(str, servers)))
        if len(asked) == 1:
            raise LookupError("one")  # is logged, and the next server is tried
        return next((each for each in servers if str(each) == server.url), None)

    with connected(shell, [dead, server.url], choose_server=choose, learn_servers=False) as nc:
        assert asked == [(dead, server.url), (server.url, dead)]
        assert str(nc.connected_server) == server.url
        assert set(map(str, nc.servers)) == {dead, server.url}
        for bad in ("", "http://a", []):
            with pytest.raises(ValueError, match=r"server address|cannot connect"):
                nc.set_servers(bad)
        nc.set_servers([dead, server.url, "nats://127.0.0.1:1"])
        assert list(map(str, nc.servers)) == [dead, server.url, "nats://127.0.0.1:1"]
        nc.flush()  # the connection stays
        nc.reconnect(60)
        assert asked[-1] == (dead, server.url, "nats://127.0.0.1:1")
        assert str(nc.connected_server) == server.url
    assert nc.connected_server is None


def test_a_replaced_pool_keeps_the_failures_of_servers_it_had() -> None:
    pool = ServerPool(Options(servers=parse_servers("a,b"), reconnect_attempts_max=1), lambda: 1.0)
    pool.next()
    pool.failed(ConnectError("no"))
    pool.replace(parse_servers("c,a"))
    assert [str(each) for each in pool.servers] == ["nats://c:4222", "nats://a:4222"]
    pool.next()
    pool.succeeded()
    assert pool.next() is not None
    pool.failed(ConnectError("no"))  # for the second time
    assert [str(each) for each in pool.servers] == ["nats://c:4222"]
