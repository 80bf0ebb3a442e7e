"""Roles of a load: what its clients do with each message."""

from collections.abc import Callable

from pelton.core.bulk.publish_window import PublishWindow, Rows

from .crowd import Link, Pace, Role

SID: int
"""Of the subscription whose messages a role counts."""

class Listen(Role):
    """Counts what arrives on a subject, and acknowledges it if asked; its clock starts with the first message."""

    def __init__(self, link: Link, subject: str, quota: int, *, acks: bool = False) -> None:
        """Subscribes."""

class Serve(Role):
    """Answers requests, without end."""

    def __init__(self, link: Link, subject: str, payload: bytes, sleep_ns: int = 0) -> None:
        """Subscribes in the queue group ``q``, as services do. ``sleep_ns``: before each answer."""

class Requests:
    """The requests of a client: alike, or each with its number at the end of the subject or in the payload."""

    def __init__(
        self,
        subject: str,
        body: bytes = b"",
        *,
        lines: bytes = b"",
        first: int = 0,
        numbered: bool = False,
        tail: bytes | None = None,
        below: int = 0,
        seed: int = 1,
    ) -> None:
        """``lines``: header lines. ``numbered``: numbers from ``first`` on end the subject.

        With a ``tail`` they follow ``body`` instead, and the tail follows them. ``below``: the numbers are below
        this, by lot from ``seed``.
        """

class Ask(Role):
    """Sends requests, each of which has one answer."""

    def __init__(
        self,
        link: Link,
        quota: int,
        requests: Requests,
        pace: Pace,
        *,
        window: int = 1,
        api: bool = False,
        refuse: Callable[[bytes, bytes], object],
    ) -> None:
        """``window``: how many requests may wait for their answer.

        ``api``: an answer is JSON, in which the server may tell an error. ``refuse``: gets the headers and the
        payload of an answer that is a status or an error, and raises.
        """

class AskBatches(Role):
    """Sends requests, each of which has many answers and a status that ends them, one after the other."""

    def __init__(
        self,
        link: Link,
        quota: int,
        subject: str,
        request: Callable[[int], bytes],
        pace: Pace,
        *,
        batch: int,
        ended: Callable[[bytes], object],
    ) -> None:
        """``request``: the payload of a request for so many messages.

        ``ended``: gets the headers of the status, and raises if it is an error.
        """

class Store(Role):
    """Publishes into a stream, with a window of messages whose ack has not come."""

    def __init__(
        self,
        link: Link,
        quota: int,
        window: PublishWindow,
        rows: Callable[[int], tuple[Rows, int]],
        pace: Pace,
        *,
        chunk: int,
        refuse: Callable[[bytes, bytes, bytes], object],
    ) -> None:
        """``rows``: gets how many messages have gone; rows that begin with or before the next one, and its place.

        ``chunk``: bytes that are written before other clients get their turn. ``refuse``: gets a message, and the
        headers and payload of the answer that is no ack, and raises.
        """

class Pull(Role):
    """Pulls the messages of a consumer, and acknowledges them."""

    def __init__(
        self,
        link: Link,
        quota: int,
        subject: str,
        body: Callable[[int], bytes],
        *,
        batch: int,
        overlapped: bool,
        acks: str,
        confirmed: bool,
        ended: Callable[[bytes], int],
        sleep_ns: int = 0,
    ) -> None:
        """``subject``: of the pull requests; ``body``: of one for so many messages. ``acks``: none, explicit, all.

        With ``overlapped`` the next request goes when half of the messages of the last ones are there, without when
        all are. ``confirmed``: acks have an answer. ``ended``: gets the headers of a status; how many messages of the
        request will not come, -1 for all that are open; raises if it is an error.
        """
