"""Pulling messages of one consumer, for blocking code."""

from __future__ import annotations

import math
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING

from penstock.errors import ConnectionClosed, ConnectionLost, NoResponders, Timeout

from .blocking_guard import exclusive
from .blocking_subscription import BlockingMessage
from .durations import Duration, to_nanoseconds, to_seconds
from .publishing import RETRY_S
from .pull import Fetch, Flow, pull_body

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .blocking import BlockingClient
    from .connection import Interest
    from .message import BaseMessage

GRACE_S = 2.0  # how much longer than the server's own deadline an answer is waited for


class _Inbox:
    """Where the messages of a handle arrive. The connection knows this and not the handle, so that a
    handle that nobody has any more is noticed.
    """

    def __init__(self, client: BlockingClient) -> None:
        """``client.attach`` sets ``interest``."""
        self.client = client
        self.interest: Interest
        self.queue: deque[BaseMessage] = deque()
        self.ended = False
        self.name = client.new_inbox()
        client.attach(f"{self.name}.*", self)

    def receive(self, message: BaseMessage) -> None:
        """The client hands over a message for the handle."""
        self.queue.append(message)

    def end(self) -> None:
        """The client says that no message follows."""
        self.ended = True


class PullConsumer:
    """Pulls messages of one consumer; made by ``JetStream.pull``. One call at a time.

    Use it in ``with``, or ``close`` it: until then the server keeps a subscription for it. That of
    a handle that nobody has any more is given back, too, some time later.
    """

    def __init__(self, client: BlockingClient, stream: str, consumer: str, subject: str) -> None:
        """``subject``: where pull requests go. Sends nothing yet."""
        self.client = client
        self.guard = client.guard
        self.stream = stream
        self.consumer = consumer
        self._subject = subject
        self._inbox: _Inbox | None = None
        self._requests = 0
        self._closed = False

    def __enter__(self) -> PullConsumer:
        """The handle itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def _open(self) -> _Inbox:
        """What receives; ConnectionClosed when handle or client are closed."""
        if self._inbox is None:
            if self._closed:
                raise ConnectionClosed(f"the handle of consumer {self.consumer!r} is closed")
            inbox = self._inbox = _Inbox(self.client)
            weakref.finalize(self, self.client.connection.abandon, inbox.interest).atexit = False
        self._check(self._inbox)
        return self._inbox

    def _check(self, inbox: _Inbox) -> None:
        inbox.interest.check()
        if self._closed:
            raise ConnectionClosed(f"the handle of consumer {self.consumer!r} is closed")

    def _request(self, inbox: _Inbox, body: bytes) -> str:
        self._requests += 1
        reply = f"{inbox.name}.{self._requests}"
        self.client.connection.publish(self._subject, body, reply)
        return reply

    @exclusive
    def fetch(
        self,
        batch: int = 1,
        *,
        timeout: Duration | None = None,
        max_bytes: int = 0,
        no_wait: bool = False,
    ) -> list[BlockingMessage]:
        """Up to ``batch`` messages: as soon as all are there, or what came within ``timeout``.

        With no_wait only what the consumer has right now. An empty list when there is nothing.
        Raises PullError, ConsumerDeleted, NoResponders (no such consumer), ConnectionLost, but
        never with messages in hand.
        """
        seconds = self.client.timeout_of(timeout)
        self.client.ensure_open(seconds)
        inbox = self._open()
        fetch = Fetch(self._subject, "", batch)
        _feed(inbox, fetch)
        if not fetch.done:
            body = pull_body(
                batch - len(fetch.messages),
                expires_ns=0 if no_wait else max(1, to_nanoseconds(seconds)),
                no_wait=no_wait,
                max_bytes=max_bytes,
            )
            fetch.reply = self._request(inbox, body)
            deadline = time.monotonic() + seconds
            self._collect(inbox, fetch, seconds + GRACE_S)
            while self.client.server_info.cluster and isinstance(fetch.error, NoResponders):
                left = deadline - time.monotonic() - RETRY_S
                if fetch.messages or left <= 0:
                    break
                self.client.wait_until(lambda: inbox.ended, RETRY_S)
                fetch.again(self._request(inbox, body))  # it may be choosing a leader
                self._collect(inbox, fetch, left + GRACE_S)
        return [message for message in fetch.result() if isinstance(message, BlockingMessage)]

    def _collect(self, inbox: _Inbox, fetch: Fetch, timeout: float) -> None:
        client, reconnects = self.client, self.client.reconnects
        client.wait_until(
            lambda: _feed(inbox, fetch) or inbox.ended or client.lost_since(reconnects), timeout
        )
        if fetch.done or fetch.messages:
            return
        if client.lost_since(reconnects):
            raise ConnectionLost(f"connection lost while pulling: {client.last_error}")
        self._check(inbox)
        raise Timeout(f"no answer to a pull from {self.consumer!r} in {timeout} s")

    def messages(
        self,
        *,
        batch: int = 500,
        max_bytes: int = 0,
        expires: Duration = 30.0,
        heartbeat: Duration = 5.0,
        patient: bool = True,
    ) -> Iterator[BlockingMessage]:
        """Messages for ever, with overlapping pull requests; ends when handle or client is closed by
        its owner, and raises ConnectionClosed when the client is lost.

        Raises ConsumerDeleted, NoResponders and PullError when the consumer cannot be pulled from
        any more; in a cluster, if ``patient``, NoResponders only after half a minute, for it may be
        choosing a leader. Survives a lost connection, as far as the consumer does.
        """
        client = self.client
        quiet = 2 * to_seconds(heartbeat)
        flow = Flow(
            self._subject, batch, max_bytes, to_nanoseconds(expires), to_nanoseconds(heartbeat)
        )
        client.ensure_open(math.inf)
        inbox = self._open()
        reconnects = client.reconnects
        while not inbox.ended:
            reconnects = self._turn(inbox, flow, reconnects, quiet)
            clustered = patient and bool(client.server_info.cluster)
            while inbox.queue:
                message = inbox.queue.popleft()
                if flow.take(message, clustered=clustered):
                    assert isinstance(message, BlockingMessage)
                    yield message
                    if 2 * flow.outstanding <= batch:
                        break  # ask for more before the rest is handled
            if flow.refusals:
                client.wait_until(lambda: inbox.ended, RETRY_S)
        inbox.interest.check()

    @exclusive
    def _turn(self, inbox: _Inbox, flow: Flow, reconnects: int, quiet: float) -> int:
        """Ask for messages if it is time, and wait for some; the count of reconnects now."""
        client = self.client
        client.ensure_open(math.inf)
        if client.lost_since(reconnects):
            reconnects = client.reconnects
            flow.restart()
        body = flow.due()
        if body is not None:
            self._request(inbox, body)
            client.flush_output()
        came = client.wait_until(
            lambda: bool(inbox.queue) or inbox.ended or client.reconnects != reconnects, quiet
        )
        if not came:
            flow.restart()  # not even a heartbeat: the request is lost
        return reconnects

    @exclusive
    def close(self) -> None:
        """Stop receiving; the consumer itself stays."""
        self._closed = True
        inbox = self._inbox
        if inbox is not None and not inbox.ended:
            self.client.connection.unsubscribe(inbox.interest)
            inbox.ended = True


def _feed(inbox: _Inbox, fetch: Fetch) -> bool:
    """Hand over what came; whether the request is over."""
    while inbox.queue and not fetch.done:
        fetch.take(inbox.queue.popleft())
    return fetch.done
