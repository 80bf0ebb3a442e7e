"""Pulling messages of one consumer, for blocking code."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from penstock.errors import ConnectionLost, NoResponders, Timeout

from .blocking_subscription import BlockingMessage
from .publishing import RETRY_S
from .pull import Fetch, Flow, pull_body

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .blocking import BlockingClient
    from .connection import Interest
    from .message import Message
    from .options import Duration

GRACE_S = 2.0  # how much longer than the server's own deadline an answer is waited for


class PullConsumer:
    """Pulls messages of one consumer; made by ``JetStream.pull``. One call at a time."""

    def __init__(self, client: BlockingClient, stream: str, consumer: str, subject: str) -> None:
        """``subject``: where pull requests go. Sends nothing yet."""
        self.client = client
        self.stream = stream
        self.consumer = consumer
        self.interest: Interest
        self._subject = subject
        self._inbox = ""
        self._requests = 0
        self._queue: deque[Message] = deque()
        self._ended = False

    def receive(self, message: Message) -> None:
        """The client hands over a message for this handle."""
        self._queue.append(message)

    def end(self) -> None:
        """The client says that no message follows."""
        self._ended = True

    def _request(self, body: bytes) -> str:
        if not self._inbox:
            self._inbox = self.client.new_inbox()
            self.client.attach(f"{self._inbox}.*", self)
        self._requests += 1
        reply = f"{self._inbox}.{self._requests}"
        self.client.connection.publish(self._subject, body, reply)
        return reply

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
        self.client.ensure_open()
        fetch = Fetch(self._subject, "", batch)
        self._feed(fetch)
        if not fetch.done:
            body = pull_body(
                batch - len(fetch.messages),
                expires_ns=0 if no_wait else max(1, round(seconds * 1e9)),
                no_wait=no_wait,
                max_bytes=max_bytes,
            )
            fetch.reply = self._request(body)
            deadline = time.monotonic() + seconds
            self._collect(fetch, seconds + GRACE_S)
            while self.client.server_info.cluster and isinstance(fetch.error, NoResponders):
                left = deadline - time.monotonic() - RETRY_S
                if fetch.messages or left <= 0:
                    break
                self.client.wait_until(lambda: self._ended, RETRY_S)
                fetch.again(self._request(body))  # it may be choosing a leader
                self._collect(fetch, left + GRACE_S)
        return [message for message in fetch.result() if isinstance(message, BlockingMessage)]

    def _feed(self, fetch: Fetch) -> bool:
        while self._queue and not fetch.done:
            fetch.take(self._queue.popleft())
        return fetch.done

    def _collect(self, fetch: Fetch, timeout: float) -> None:
        client, reconnects = self.client, self.client.reconnects
        client.wait_until(
            lambda: self._feed(fetch) or self._ended or client.lost_since(reconnects), timeout
        )
        if fetch.done or fetch.messages:
            return
        if client.lost_since(reconnects):
            raise ConnectionLost(f"connection lost while pulling: {client.last_error}")
        raise Timeout(f"no answer to a pull from {self.consumer!r} in {timeout} s")

    def messages(
        self,
        *,
        batch: int = 500,
        max_bytes: int = 0,
        expires: float = 30.0,
        heartbeat: float = 5.0,
        patient: bool = True,
    ) -> Iterator[BlockingMessage]:
        """Messages for ever, with overlapping pull requests; ends when handle or client is closed.

        Raises ConsumerDeleted, NoResponders and PullError when the consumer cannot be pulled from
        any more; in a cluster, if ``patient``, NoResponders only after half a minute, for it may be
        choosing a leader.
        Survives a lost connection, as far as the consumer does.
        """
        client = self.client
        flow = Flow(self._subject, batch, max_bytes, round(expires * 1e9), round(heartbeat * 1e9))
        reconnects = client.reconnects
        while not self._ended:
            client.ensure_open()
            if client.lost_since(reconnects):
                reconnects = client.reconnects
                flow.restart()
            body = flow.due()
            if body is not None:
                self._request(body)
                client.flush_output()
            if not self._wait(reconnects, 2 * heartbeat):
                flow.restart()  # not even a heartbeat: the request is lost
            clustered = patient and bool(client.server_info.cluster)
            while self._queue:
                message = self._queue.popleft()
                if flow.take(message, clustered=clustered):
                    assert isinstance(message, BlockingMessage)
                    yield message
                    if 2 * flow.outstanding <= batch:
                        break  # ask for more before the rest is handled
            if flow.refusals:
                client.wait_until(lambda: self._ended, RETRY_S)

    def _wait(self, reconnects: int, timeout: float) -> bool:
        return self.client.wait_until(
            lambda: bool(self._queue) or self._ended or self.client.reconnects != reconnects,
            timeout,
        )

    def close(self) -> None:
        """Stop receiving; the consumer itself stays."""
        if self._inbox and not self.client.closed:
            self.client.connection.unsubscribe(self.interest)
        self._ended = True
