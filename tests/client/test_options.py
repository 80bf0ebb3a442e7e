"""URLs of servers, options, and which server is tried next."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.client.base.addresses import Server, parse_server, parse_servers
from pelton.client.protocol.options import Options
from pelton.client.protocol.pool import ServerPool
from pelton.errors import AuthenticationError

REFUSED = OSError("refused")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("nats://h:1", Server("h", 1)),
        ("nats://h", Server("h", 4222)),
        ("h", Server("h", 4222)),
        ("h:9", Server("h", 9)),
        ("tls://h:1", Server("h", 1, tls=True)),
        ("nats://[::1]:7", Server("::1", 7)),
        ("nats://u:p@h", Server("h", user="u", password="p")),
        ("nats://u:p%40x@h", Server("h", user="u", password="p@x")),
        ("nats://secret@h:1", Server("h", 1, token="secret")),
        ("ws://h", Server("h", 80, websocket=True)),
        ("wss://h", Server("h", 443, tls=True, websocket=True)),
        (
            "wss://u:p@h:8443/a/b?c=d",
            Server("h", 8443, True, "u", "p", websocket=True, path="/a/b?c=d"),
        ),
        ("ws://h/a b", Server("h", 80, websocket=True, path="/a%20b")),
        ("u:p@h:3", Server("h", 3, user="u", password="p")),
    ],
)
def test_urls_are_understood(url: str, expected: Server) -> None:
    assert parse_server(url) == expected


@pytest.mark.parametrize(
    "url", ["ftp://h", "http://h:1", "nats://", "nats://h:x", "nats://h:99999"]
)
def test_urls_that_name_no_server_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"server|connect"):
        parse_server(url)


def test_several_urls_may_be_given_in_one_string() -> None:
    assert parse_servers("nats://a:1, b:2,a:1") == (Server("a", 1), Server("b", 2))
    with pytest.raises(ValueError, match="no server"):
        parse_servers("")


def test_a_server_shows_itself_without_credentials() -> None:
    server = Server("::1", 5, user="u", password="geheim", token="")
    assert str(server) == "nats://[::1]:5"
    assert "geheim" not in repr(Options(servers=(server,), user="u", password="geheim"))


@pytest.mark.parametrize(
    "fields",
    [{"servers": ()}, {"token": "t", "user": "u"}, {"timeout": 0}, {"connect_timeout": -1}],
)
def test_options_that_make_no_sense_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"server|token|timeout"):
        Options(**fields)


def test_options_travel_to_another_process() -> None:
    options = Options(servers=parse_servers("tls://u:p@h:1"), name="n", timeout=3.0)
    assert pickle.loads(pickle.dumps(options)) == options


def test_the_first_round_goes_without_waiting_then_waits_grow_to_the_limit() -> None:
    options = Options(servers=parse_servers("a,b"), reconnect_wait=0.1, reconnect_wait_max=0.5)
    pool = ServerPool(options, lambda: 1.0)
    waits = []
    for _ in range(10):
        choice = pool.next()
        assert choice is not None
        waits.append((choice[0].host, round(choice[1], 3)))
        pool.failed(REFUSED)
    assert waits[:6] == [("a", 0), ("b", 0), ("a", 0.1), ("b", 0.1), ("a", 0.2), ("b", 0.2)]
    assert waits[-1][1] == 0.5


@given(st.floats(0, 1, exclude_max=True), st.integers(1, 40))
def test_a_wait_is_between_half_of_it_and_all_of_it(number: float, failures: int) -> None:
    options = Options(reconnect_wait=0.1, reconnect_wait_max=2.0, reconnect_attempts_max=-1)
    pool = ServerPool(options, lambda: number)
    for _ in range(failures):
        pool.next()
        pool.failed(REFUSED)
    choice = pool.next()
    assert choice is not None
    full = min(2.0, 0.1 * 2 ** (failures - 1))
    assert full / 2 <= choice[1] <= full


def test_a_server_is_given_up_after_its_attempts_and_sooner_when_it_refuses() -> None:
    pool = ServerPool(Options(servers=parse_servers("a,b"), reconnect_attempts_max=3), lambda: 0.5)
    hosts = []
    while choice := pool.next():
        hosts.append(choice[0].host)
        pool.failed(AuthenticationError("no") if choice[0].host == "a" else REFUSED)
    assert hosts == ["a", "b", "a", "b", "b", "b"]


def test_a_server_is_never_given_up_by_default() -> None:
    pool = ServerPool(Options(), lambda: 0.5)
    for _ in range(1000):
        assert pool.next() is not None
        pool.failed(REFUSED)
    assert str(pool.error()) == "cannot connect: nats://127.0.0.1:4222: refused"


def test_a_server_that_was_not_tried_comes_first_again() -> None:
    pool = ServerPool(Options(servers=parse_servers("a,b")), lambda: 0.5)
    for _ in range(3):
        choice = pool.next()
        assert choice is not None
        assert choice[0].host == "a"
        pool.postpone()


def test_every_attempt_to_reconnect_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    pool = ServerPool(Options(servers=parse_servers("a"), reconnect_attempts_max=1), lambda: 0.5)
    pool.next()
    pool.failed(REFUSED)
    pool.next()
    pool.succeeded()
    for _ in range(2):
        pool.next()
        pool.failed(REFUSED)
    assert [record.getMessage() for record in caplog.records] == [
        "cannot connect to nats://a:4222: refused (attempt 1)",
        "cannot connect to nats://a:4222: refused (attempt 2, the last one)",
    ]


def test_success_forgets_the_failures() -> None:
    pool = ServerPool(Options(reconnect_attempts_max=1), lambda: 0.5)
    for _ in range(5):
        assert pool.next() is not None
        pool.failed(REFUSED)
        assert pool.next() is not None
        pool.succeeded()


def test_addresses_the_server_names_are_learned_once_and_keep_tls() -> None:
    pool = ServerPool(Options(servers=parse_servers("tls://a:1")), lambda: 0.5)
    pool.next()
    pool.learn(["a:1", "b:2", "b:2", "[::1]:3", "not a port:x"])
    pool.learn(None)
    assert pool.servers == [Server("a", 1, True), Server("b", 2, True), Server("::1", 3, True)]
