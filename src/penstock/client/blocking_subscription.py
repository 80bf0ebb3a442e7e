"""A subscription of the blocking client, and its messages with the verbs of blocking code."""

from __future__ import annotations

import contextlib
import math
from collections import deque
from typing import TYPE_CHECKING, Self

from penstock.errors import ClientInUse, ConnectionClosed, ConnectionLost, SlowConsumer, Timeout

from .blocking_guard import exclusive
from .message import ACK, IN_PROGRESS, TERM, BaseMessage, nak_body

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .blocking import BlockingClient
    from .connection import Interest
    from .durations import Duration
    from .jetstream import Headers


class BlockingMessage(BaseMessage):
    """A message with the verbs of blocking code."""

    __slots__ = ()

    @property
    def _client(self) -> BlockingClient:
        client: BlockingClient = self.interest.owner.client
        return client

    def respond(self, data: bytes, headers: Headers | None = None) -> None:
        """Publish an answer to whoever asked; ValueError when nobody did."""
        if not self.reply:
            raise ValueError("the message has no reply subject")
        self._client.publish(self.reply, data, headers=headers)

    def ack(self) -> None:
        """The message is done. When the connection breaks just then it is delivered again, as a
        message without an ack is; ``ack_sync`` tells.
        """
        self._answer(ACK)

    def ack_sync(self, timeout: Duration | None = None) -> None:
        """The message is done, and the server has taken note; Timeout, NoResponders."""
        self.check_acknowledgeable()
        self._client.request(self.reply, ACK, timeout=timeout)
        self.acked = True

    def nak(self, delay: Duration | None = None) -> None:
        """Deliver the message again, at once or after ``delay`` seconds."""
        self._answer(nak_body(delay))

    def term(self, reason: str = "") -> None:
        """Never deliver the message again."""
        self._answer(TERM + (b" " + reason.encode() if reason else b""))

    def in_progress(self) -> None:
        """Start the ack wait over: the message is still being worked on."""
        self.check_acknowledgeable()
        with contextlib.suppress(ConnectionLost):
            self._client.publish(self.reply, IN_PROGRESS)

    def _answer(self, body: bytes) -> None:
        self.check_acknowledgeable()
        with contextlib.suppress(ConnectionLost):  # the message comes again
            self._client.publish(self.reply, body)
        self.acked = True


class Subscription:
    """Messages of one subject, kept until they are asked for."""

    def __init__(self, client: BlockingClient, messages_max: int, bytes_max: int) -> None:
        """``client.attach`` sets ``interest``."""
        self.client = client
        self.guard = client.guard
        self.interest: Interest
        """What the connection knows of it; set by the client."""
        self.dropped = 0
        """Messages that were dropped because the pending limits were reached."""
        self._reported = 0
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._queue: deque[BaseMessage] = deque()
        self._ended = False

    def __enter__(self) -> Self:
        """The subscription itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Unsubscribe; the consumer of a push subscription stays."""
        if not self._ended and not self.client.closed:
            self.unsubscribe()

    @property
    def subject(self) -> str:
        """What was subscribed to."""
        return self.interest.subject

    @property
    def pending(self) -> int:
        """Messages received but not asked for yet."""
        return len(self._queue)

    def receive(self, message: BaseMessage) -> None:
        """The client hands over a message of this subscription."""
        size = len(message.data) + len(message.raw_headers)
        if len(self._queue) >= self._messages_max or self._bytes + size > self._bytes_max:
            self.dropped += 1
            return
        self._bytes += size
        self._queue.append(message)

    def end(self) -> None:
        """The client says that no message follows."""
        self._ended = True

    def next(self, timeout: Duration | None = None) -> BlockingMessage:
        """The next message.

        Raises Timeout, ConnectionClosed when no message can come any more, and once SlowConsumer
        when messages were dropped since the last call.
        """
        if self.dropped > self._reported:
            lost, self._reported = self.dropped - self._reported, self.dropped
            raise SlowConsumer(self.subject, lost)
        if not self._queue and not self._ended:
            self.client.wait_until(lambda: bool(self._queue) or self._ended, timeout)
        if self._queue:
            try:
                message = self._queue.popleft()
            except IndexError:  # there was one a moment ago
                raise ClientInUse from None
            self._bytes -= len(message.data) + len(message.raw_headers)
            assert isinstance(message, BlockingMessage)
            return message
        if self._ended:
            self.interest.check()
            raise ConnectionClosed(f"the subscription to {self.subject!r} has ended", self.subject)
        raise Timeout(f"no message on {self.subject!r} in {self.client.timeout_of(timeout)} s")

    def __iter__(self) -> Iterator[BlockingMessage]:
        """Messages until the subscription ends; waits without limit. ConnectionClosed when the client
        is lost meanwhile.
        """
        while self._wait():
            yield self.next()
        self.interest.check()

    def _wait(self) -> bool:
        """Until there is something to tell; False when the subscription has ended."""
        while not self._queue and not self._ended and self.dropped == self._reported:
            self.client.wait_until(lambda: bool(self._queue) or self._ended, math.inf)
        return bool(self._queue) or self.dropped > self._reported

    @exclusive
    def unsubscribe(self, max_msgs: int = 0) -> None:
        """No more messages; with max_msgs: after that many in all."""
        self.client.connection.unsubscribe(self.interest, max_msgs)
        self.client.flush_output()
        self._ended = self._ended or self.interest.sid not in self.client.connection.interests

    @exclusive
    def drain(self, timeout: Duration | None = None) -> None:
        """Unsubscribe, but take what is still on its way; the messages can then be asked for."""
        self.client.connection.drain(self.interest)
        self.client.flush(timeout)
        self.client.connection.forget(self.interest)
        self._ended = True
