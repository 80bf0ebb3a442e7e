"""Servers that accept a client and end its connection soon: how often it comes back, and what its user hears."""

from __future__ import annotations

import itertools
import logging
import socket
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton import (
    AuthenticationError,
    ConnectionClosedError,
    InvalidSubjectError,
    PayloadTooLargeError,
    PeltonError,
    Status,
)
from pelton.client.aio.attempts import connect_again, connect_first
from pelton.client.base.addresses import parse_servers
from pelton.client.protocol import events
from pelton.client.protocol.connection import Connection
from pelton.client.protocol.options import Options
from pelton.client.protocol.pool import ServerPool
from pelton.errors import ServerError
from tests.client.by_hand import Dial, House, Pause
from tests.client.shells import connected, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.peers import ServerProcess

LINE = 4096


def logins(options: Options, lives_s: list[float], numbers: Iterator[float]) -> list[float]:
    """When a client logs in, at a server that ends each connection after so many seconds."""
    client = House(options, info=b"")
    client.now = 1000.0
    client._pool = ServerPool(options, lambda: next(numbers))
    times = []
    call = connect_first(client)
    for life_s in lives_s:
        with suppress(StopIteration):
            while True:
                step = call.send(None)
                if isinstance(step, Pause):
                    client.now += step.seconds
                else:
                    assert isinstance(step, Dial)
                    client._tried_at = client.now
                    times.append(client.now)
        client.now += life_s
        client._pool.lost(None, client.now - client._tried_at)
        call = connect_again(client, float("inf"))
    call.close()
    return times


@given(st.lists(st.floats(0, 0.9), min_size=2, max_size=30), st.randoms(use_true_random=False))
def test_logins_at_a_server_that_closes_are_ever_further_apart(lives_s, source) -> None:
    options = Options(reconnect_wait=0.1, reconnect_wait_max=1.0, reconnect_jitter=0.5)
    times = logins(options, lives_s, iter(source.random, None))
    for number, (one, other) in enumerate(itertools.pairwise(times)):
        assert other - one >= min(1.0, 0.1 * 2**number) / 2 - 1e-9
        assert other - one <= max(lives_s[number], min(1.0, 0.1 * 2**number)) + 1e-9


@pytest.mark.parametrize("life_s", [0.0, 0.01, 0.1])
def test_few_logins_in_eight_seconds(life_s: float) -> None:
    times = logins(Options(), [life_s] * 50, iter(lambda: 0.0, None))
    assert len([each for each in times if each <= times[0] + 8]) <= 12


def test_a_connection_that_lived_long_is_replaced_at_once() -> None:
    times = logins(Options(), [0, 0, 0, 4, 4, 0, 0], iter(lambda: 1.0, None))
    gaps = [round(b - a, 3) for a, b in itertools.pairwise(times)]
    assert gaps == [0.05, 0.1, 0.2, 4, 4, 0.05]


@contextmanager
def closing(*farewells: bytes) -> Iterator[tuple[str, list[float]]]:
    """The URL of a server that ends each connection after the login, with the next of these words (then the last)."""
    times: list[float] = []
    kept: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    kept.append(client)
                    with suppress(OSError):
                        client.sendall(b'INFO {"max_payload":1000000,"headers":true}\r\n')
                        data = b""
                        while b"PING\r\n" not in data:
                            data += client.recv(4096)
                        farewell = farewells[min(len(times), len(farewells) - 1)]
                        times.append(time.monotonic())
                        client.sendall(b"PONG\r\n")
                        if farewell:  # in answer to what comes after the login
                            client.recv(4096)
                            client.sendall(farewell)
                        client.shutdown(socket.SHUT_RDWR)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"nats://127.0.0.1:{listener.getsockname()[1]}", times
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)
            for client in kept:
                client.close()


def use(client: Any) -> None:
    """Let a client work, whatever happens to its connection."""
    with suppress(PeltonError):
        client.flush(timeout=0.5)


def test_a_server_that_closes_is_not_stormed(shell: str) -> None:
    """The lower bound of the time for six logins: the waits with the most jitter."""
    with closing(b"") as (url, times), connected(shell, url) as client:
        while len(times) < 6:
            use(client)
        assert times[5] - times[0] >= sum(0.05 * 2**n for n in range(5)) / 2 - 0.01


def test_the_user_hears_what_the_server_refused(shell: str, caplog) -> None:
    told: list[Exception] = []
    heard: list[Status] = []
    with (
        caplog.at_level(logging.WARNING),
        closing(b"-ERR 'Something Is Wrong'\r\n") as (url, times),
        connected(shell, url, on_error=told.append, on_status=heard.append) as client,
    ):
        while len(times) < 3:
            use(client)
        wait_for(lambda: bool(told))
    assert isinstance(told[0], ServerError)
    assert str(told[0]) == "Something Is Wrong"
    assert any(
        "Something Is Wrong" in str(each.error) for each in heard if each.type == "disconnected"
    )
    assert any("lost after" in text and "Something Is Wrong" in text for text in caplog.messages)


@pytest.mark.parametrize("words", ["Authorization Violation", "User Authentication Expired"])
def test_credentials_that_are_refused_after_two_logins_end_the_client(
    shell: str, words: str
) -> None:
    told: list[Exception] = []
    with (
        closing(f"-ERR '{words}'\r\n".encode()) as (url, times),
        connected(shell, url, on_error=told.append) as client,
    ):
        while not client.closed:
            use(client)
        with pytest.raises(ConnectionClosedError, match=words):
            client.flush()
    assert len(times) == 2
    assert any(isinstance(each, AuthenticationError) for each in told)


# -- lengths ------------------------------------------------------------------------------------------


def named(unique: str, size: int) -> str:
    return f"{unique}.{'x' * (size - len(unique) - 1)}"


def test_a_subject_that_is_too_long_is_refused_here(
    shell: str, server: ServerProcess, unique: str
) -> None:
    with connected(shell, server.url) as client:
        client.subscribe("first")
        sid = 2
        longest = LINE - 1 - len(str(sid))
        client.subscribe(named(unique, longest))
        client.flush()
        for call in (
            lambda: client.subscribe(named(unique, LINE)),
            lambda: client.subscribe(named(unique, LINE - 20), queue="q" * 20),
            lambda: client.publish(named(unique, LINE)),
            lambda: client.publish(unique, reply=named(unique, LINE)),
            lambda: client.publish(named(unique, 2100), reply=named(unique, 2100)),
            lambda: client.request(named(unique, LINE - 30), b""),
            lambda: client.jetstream().publish(named(unique, LINE - 30), b""),
            lambda: client.subscribe("\u00e9" * (LINE // 2)),
        ):
            with pytest.raises(InvalidSubjectError, match="max_control_line"):
                call()
        client.publish(named(unique, LINE - 30), b"x")
        client.publish(named(unique, 1900), b"x", reply=named(unique, 2000))
        client.flush()
        assert client.reconnects == 0


def test_a_server_that_takes_less_than_the_client_thinks(
    shell: str, server: ServerProcess, unique: str
) -> None:
    """It ends the connection, and the user hears why; the client does not storm it."""
    told: list[Exception] = []
    with connected(shell, server.url, control_line_max=9000, on_error=told.append) as client:
        client.subscribe(named(unique, LINE + 1))
        while not told:
            use(client)
        assert "maximum control line" in str(told[0]).lower()
        assert client.reconnects < 12


@given(st.integers(1, 6000), st.integers(0, 6000), st.integers(0, 40), st.sampled_from("xé€𝄞"))
def test_no_line_is_longer_than_the_limit(subject, reply, prefix, letter) -> None:
    connection = Connection(Options(inbox_prefix="p" * (prefix + 1)))
    connection.connected_to(parse_servers("a")[0])
    connection.receive_data(b'INFO {"max_payload":1000,"headers":true}\r\nPONG\r\n')
    connection.data_to_send()
    own = f"{'p' * (prefix + 1)}.{'t' * 16}.{'1' * 10}-{'c' * 24}"
    for call in (
        lambda: connection.publish(
            letter * subject, b"x" * 900, letter * reply, b"NATS/1.0\r\n\r\n"
        ),
        lambda: connection.publish(letter * subject, b"x" * 900, own, b"", sound_reply=True),
        lambda: connection.subscribe(letter * subject, letter * reply),
    ):
        with suppress(InvalidSubjectError):
            call()
        for line in connection.data_to_send().split(b"\r\n"):
            if line.startswith((b"SUB ", b"PUB ", b"HPUB ")):
                assert len(line.partition(b" ")[2]) <= LINE


def test_what_was_kept_for_a_server_that_takes_less_is_not_sent() -> None:
    connection = Connection(Options())
    connection.connected_to(parse_servers("a")[0])
    connection.receive_data(b'INFO {"max_payload":1000}\r\nPONG\r\n')
    connection.receive_eof()
    connection.publish("a", b"x" * 900)
    connection.publish("b", b"y" * 9)
    connection.connected_to(parse_servers("b")[0])
    connection.data_to_send()
    connection.receive_data(b'INFO {"max_payload":100}\r\n')
    connection.data_to_send()
    connection.events()
    connection.receive_data(b"PONG\r\n")
    assert connection.data_to_send() == b"PUB b 9\r\nyyyyyyyyy\r\n"
    complaint, _ = connection.events()
    assert isinstance(complaint, events.ServerComplaint)
    assert isinstance(complaint.error, PayloadTooLargeError)
