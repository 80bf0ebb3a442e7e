"""Pulling messages of one consumer, for asyncio."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from typing import TYPE_CHECKING

from penstock.errors import ConnectionClosed, ConnectionLost, NoResponders, Timeout

from .aio_message import Message
from .durations import Duration, to_nanoseconds, to_seconds
from .publishing import RETRY_S
from .pull import Fetch, Flow, pull_body

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from penstock.errors import PenstockError

    from .aio_client import Client
    from .connection import Interest
    from .message import BaseMessage

GRACE_S = 2.0  # how much longer than the server's own deadline an answer is waited for


class _Inbox:
    """Where the messages of a handle arrive. The client knows this and not the handle, so that a
    handle that nobody has any more is noticed.
    """

    def __init__(self, client: Client) -> None:
        """Subscribed from now on; ConnectionClosed."""
        self.client = client
        self.interest: Interest
        self.queue: deque[BaseMessage] = deque()
        self.ended = False
        self.error: PenstockError | None = None
        """The connection broke: what was asked for does not come any more."""
        self.name = client.new_inbox()
        self._waiter: asyncio.Future[None] | None = None
        client.attach(f"{self.name}.*", self)
        client.watchers.add(self)

    # -- called by the client ----------------------------------------------------------------------

    def receive(self, message: BaseMessage) -> None:
        """A message came for the handle."""
        self.queue.append(message)
        self._wake()

    def end(self) -> None:
        """No message follows."""
        self.ended = True
        self.client.watchers.discard(self)
        self._wake()

    def lost(self, error: PenstockError) -> None:
        """The connection broke."""
        self.error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # -- called by the handle ----------------------------------------------------------------------

    @property
    def stirred(self) -> bool:
        """Whether something came, or broke, or ended."""
        return bool(self.queue) or self.ended or self.error is not None

    async def wait(self, timeout: float) -> bool:
        """Until something came or broke; False when the timeout comes first."""
        if self.stirred:
            return True
        loop = asyncio.get_running_loop()
        self._waiter = waiter = loop.create_future()
        timer = loop.call_later(timeout, _give_up, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiter = None
        return self.stirred


class PullConsumer:
    """Pulls messages of one consumer; made by ``JetStream.pull``. One call at a time.

    Use it in ``async with``, or ``close`` it: until then the server keeps a subscription for it.
    That of a handle that nobody has any more is given back, too, some time later.
    """

    def __init__(self, client: Client, stream: str, consumer: str, subject: str) -> None:
        """``subject``: where pull requests go. Sends nothing yet."""
        self.client = client
        self.stream = stream
        self.consumer = consumer
        self._subject = subject
        self._inbox: _Inbox | None = None
        self._requests = 0
        self._busy = False
        self._closed = False

    async def __aenter__(self) -> PullConsumer:
        """The handle itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def _request(self, inbox: _Inbox, body: bytes) -> str:
        self._requests += 1
        reply = f"{inbox.name}.{self._requests}"
        self.client.connection.publish(self._subject, body, reply)
        self.client.plan_flush()
        return reply

    def _begin(self) -> _Inbox:
        """What receives; RuntimeError when another call is under way, ConnectionClosed when handle or
        client are closed.
        """
        if self._busy:
            raise RuntimeError("another call is pulling with this handle")
        if self._inbox is None:
            self._check_open()
            inbox = self._inbox = _Inbox(self.client)
            weakref.finalize(self, self.client.connection.abandon, inbox.interest).atexit = False
        self._inbox.interest.check()
        self._check_open()
        self._busy = True
        self._inbox.error = None
        return self._inbox

    def _check_open(self) -> None:
        if self._closed:
            raise ConnectionClosed(f"the handle of consumer {self.consumer!r} is closed")

    async def fetch(
        self,
        batch: int = 1,
        *,
        timeout: Duration | None = None,
        max_bytes: int = 0,
        no_wait: bool = False,
    ) -> list[Message]:
        """Up to ``batch`` messages: as soon as all are there, or what came within ``timeout``
        seconds.

        With no_wait only what the consumer has right now. An empty list when there is nothing.
        Raises PullError, ConsumerDeleted, NoResponders (no such consumer), ConnectionLost, but
        never with messages in hand.
        """
        seconds = self.client.timeout_of(timeout)
        fetch = Fetch(self._subject, "", batch)
        inbox = self._begin()
        try:
            _feed(inbox, fetch)
            if not fetch.done:
                body = pull_body(
                    batch - len(fetch.messages),
                    expires_ns=0 if no_wait else max(1, to_nanoseconds(seconds)),
                    no_wait=no_wait,
                    max_bytes=max_bytes,
                )
                fetch.reply = self._request(inbox, body)
                clock = asyncio.get_running_loop().time
                deadline = clock() + seconds
                await self._collect(inbox, fetch, seconds + GRACE_S)
                while self.client.server_info.cluster and isinstance(fetch.error, NoResponders):
                    left = deadline - clock() - RETRY_S
                    if fetch.messages or left <= 0:
                        break
                    await asyncio.sleep(RETRY_S)
                    fetch.again(self._request(inbox, body))  # it may be choosing a leader
                    await self._collect(inbox, fetch, left + GRACE_S)
        finally:
            self._busy = False
        return [message for message in fetch.result() if isinstance(message, Message)]

    async def _collect(self, inbox: _Inbox, fetch: Fetch, timeout: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        try:
            while not fetch.done and not inbox.ended:
                over = not await inbox.wait(deadline - loop.time())
                _feed(inbox, fetch)
                if fetch.done or (fetch.messages and (over or inbox.error is not None)):
                    return
                if inbox.error is not None:
                    raise ConnectionLost(f"connection lost while pulling: {inbox.error}")
                if over:
                    raise Timeout(f"no answer to a pull from {self.consumer!r} in {timeout} s")
            if not fetch.done and not fetch.messages:
                inbox.interest.check()
                raise ConnectionClosed(f"the handle of consumer {self.consumer!r} is closed")
        except asyncio.CancelledError:
            inbox.queue.extendleft(reversed(fetch.messages))  # for the next call
            raise

    async def messages(
        self,
        *,
        batch: int = 500,
        max_bytes: int = 0,
        expires: Duration = 30.0,
        heartbeat: Duration = 5.0,
        patient: bool = True,
    ) -> AsyncGenerator[Message, None]:
        """Messages for ever, with overlapping pull requests; ends when handle or client is closed by
        its owner, and raises ConnectionClosed when the client is lost.

        Raises ConsumerDeleted, NoResponders and PullError when the consumer cannot be pulled from
        any more; in a cluster, if ``patient``, NoResponders only after half a minute, for it may be
        choosing a leader. Survives a lost connection, as far as the consumer does.
        """
        quiet = 2 * to_seconds(heartbeat)
        flow = Flow(
            self._subject, batch, max_bytes, to_nanoseconds(expires), to_nanoseconds(heartbeat)
        )
        inbox = self._begin()
        try:
            while not inbox.ended:
                body = flow.due()
                if body is not None:
                    self._request(inbox, body)
                if not await inbox.wait(quiet):
                    flow.restart()  # not even a heartbeat: the request is lost
                if inbox.error is not None:
                    inbox.error = None
                    flow.restart()
                clustered = patient and bool(self.client.server_info.cluster)
                while inbox.queue:
                    message = inbox.queue.popleft()
                    if flow.take(message, clustered=clustered):
                        assert isinstance(message, Message)
                        yield message
                        if 2 * flow.outstanding <= batch:
                            break  # ask for more before the rest is handled
                if flow.refusals:
                    await asyncio.sleep(RETRY_S)
            inbox.interest.check()
        finally:
            self._busy = False

    def close(self) -> None:
        """Stop receiving; the consumer itself stays."""
        self._closed = True
        inbox = self._inbox
        if inbox is None or inbox.ended:
            return
        if not self.client.closed:
            self.client.connection.unsubscribe(inbox.interest)
            self.client.plan_flush()
        inbox.end()


def _feed(inbox: _Inbox, fetch: Fetch) -> None:
    """Hand over what came, until the request is over."""
    while inbox.queue and not fetch.done:
        fetch.take(inbox.queue.popleft())


def _give_up(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
