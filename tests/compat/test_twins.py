"""The comparison of both servers: which differences it forgives."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from tests.compat.twins import MAX_DELIVERIES, in_one_order, twins

if TYPE_CHECKING:
    from collections.abc import Iterator

FIRST = (MAX_DELIVERIES + b"S.c", b'{"stream_seq": 1}')
SECOND = (MAX_DELIVERIES + b"S.c", b'{"stream_seq": 2}')
OTHER = (b"orders.new", b"42 bolts")


def test_advisories_of_exhausted_deliveries_come_in_any_order():
    assert in_one_order({"1": [SECOND, OTHER, FIRST]}) == in_one_order(
        {"1": [FIRST, OTHER, SECOND]}
    )


def test_each_of_them_counts():
    assert in_one_order({"1": [FIRST, FIRST]}) != in_one_order({"1": [FIRST, SECOND]})
    assert in_one_order({"1": [FIRST]}) != in_one_order({"1": [FIRST, FIRST]})


def test_other_messages_keep_their_places():
    assert in_one_order({"1": [OTHER, FIRST]}) != in_one_order({"1": [FIRST, OTHER]})
    assert in_one_order({"1": [OTHER]}) != in_one_order({"2": [OTHER]})


@contextlib.contextmanager
def delivering(before: int) -> Iterator[int]:
    """A server that delivers one message just before it answers this request; its port."""
    delivery = b"MSG in.a 2 5\r\nhello\r\n"

    def serve() -> None:
        with listener.accept()[0] as client, client.makefile("rb") as lines:
            asked = 0
            for line in lines:
                if line == b"PING\r\n":
                    client.sendall(b"PONG\r\n")
                elif line.startswith(b"PUB "):
                    asked += 1
                    reply = line.split()[2]
                    came = delivery if asked == before else b""
                    client.sendall(came + b"MSG %s asked 5\r\nstate\r\n" % reply)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


def test_a_delivery_that_one_makes_later_is_no_difference() -> None:
    with delivering(before=1) as ours, delivering(before=2) as theirs, twins(ours, theirs) as both:
        assert both.agree("CONSUMER.INFO.S.c") == b"state"


def test_a_delivery_that_only_one_makes_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    with delivering(before=1) as ours, delivering(before=0) as theirs, twins(ours, theirs) as both:
        monkeypatch.setattr("tests.compat.twins.PATIENCE_S", 1)
        with pytest.raises(AssertionError, match="hello"):
            both.agree("CONSUMER.INFO.S.c")
