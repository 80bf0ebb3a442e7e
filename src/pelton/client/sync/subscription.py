"""A subscription of the client for blocking code."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Self

from ..session.subscribing import Subscribed
from .locks import locked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..base.durations import Duration
    from .connection import Client
    from .messages import Message


class Subscription(Subscribed):
    """Messages of one subject, kept until they are taken; several threads share them.

    ::

        with nc.subscribe("news.>", queue="readers") as subscription:
            for message in subscription:
                print(message.subject, message.data)
    """

    client: Client

    def next(self, timeout: Duration | None = None) -> Message | None:
        """The next message, or None when none came in ``timeout``.

        Raises ConnectionClosedError when no message can come any more, and once SlowConsumerError when messages were
        dropped since the last call.
        """
        message: Message
        if self._queue and self.dropped == self._reported:
            # Without the lock, which would cost a fifth of the time.
            try:
                message = self._queue.popleft()
            except IndexError:
                pass  # another thread took it
            else:
                self._bytes -= len(message.data) + len(message.raw_headers)
                return message
        return self._wait_next(timeout)

    @locked
    def _wait_next(self, timeout: Duration | None) -> Message | None:
        if not self._has_news():
            seconds = self.client._timeout_of(timeout)
            if not self.client._until(self, self._has_news, seconds):
                return None
        message: Message = self._take()
        return message

    def __iter__(self) -> Iterator[Message]:
        """Messages until the subscription ends; waits without limit.

        Raises ConnectionClosedError when the client is lost meanwhile.
        """
        client = self.client
        guard = client._guard
        while True:
            # Within the loop: the guard is free while the caller has a message.
            guard.take()
            try:
                if not self._queue:
                    client._until(self, self._has_news, math.inf)
                    if self._over():
                        return
                message: Message = self._take()
            finally:
                guard.give()
            yield message

    def __enter__(self) -> Self:
        """The subscription itself."""
        return self

    @locked
    def __exit__(self, *_: object) -> None:
        """Unsubscribe at the end of the block."""
        if not self._ended and not self.client.closed:
            self.unsubscribe()

    @locked
    def unsubscribe(self, max_msgs: int = 0) -> None:
        """Unsubscribe at once, or with max_msgs after that many messages in all."""
        self._unsubscribe(max_msgs)
        self.client._send_queued()

    @locked
    def drain(self, timeout: Duration | None = None) -> None:
        """Unsubscribe, but keep messages that are still on their way; they can be taken afterwards."""
        connection = self.client._connection
        connection.drain(self._interest)
        try:
            self.client.flush(self.client._timeout_of(timeout))
        finally:
            # Also when there was no PONG in time: the server has the UNSUB, or there is no connection.
            self._end_drained(0.0)

    def _end_drained(self, seconds: float) -> None:
        """The client has unsubscribed and flushed: end."""
        self.client._connection.forget(self._interest)
        self._on_end()
