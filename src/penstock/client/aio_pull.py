"""Pulling messages of one consumer, for asyncio."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from penstock.errors import ConnectionLost, NoResponders, Timeout

from .aio_message import AioMessage
from .publishing import RETRY_S
from .pull import Fetch, Flow, pull_body

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from penstock.errors import PenstockError

    from .aio_client import Client
    from .connection import Interest
    from .message import Message
    from .options import Duration

GRACE_S = 2.0  # how much longer than the server's own deadline an answer is waited for


class PullConsumer:
    """Pulls messages of one consumer; made by ``JetStream.pull``. One call at a time."""

    def __init__(self, client: Client, stream: str, consumer: str, subject: str) -> None:
        """``subject``: where pull requests go."""
        self.client = client
        self.stream = stream
        self.consumer = consumer
        self.interest: Interest
        self._subject = subject
        self._inbox = ""
        self._requests = 0
        self._queue: deque[Message] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._busy = False
        self._closed = False
        self._lost: PenstockError | None = None
        client.watchers.add(self)

    # -- called by the client ----------------------------------------------------------------------

    def receive(self, message: Message) -> None:
        """A message came for this handle."""
        self._queue.append(message)
        self._wake()

    def end(self) -> None:
        """No message follows."""
        self._closed = True
        self._wake()

    def lost(self, error: PenstockError) -> None:
        """The connection broke: what was asked for does not come any more."""
        self._lost = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # -- pulling -----------------------------------------------------------------------------------

    def _request(self, body: bytes) -> str:
        if not self._inbox:
            self._inbox = self.client.new_inbox()
            self.client.attach(f"{self._inbox}.*", self)
        self._requests += 1
        reply = f"{self._inbox}.{self._requests}"
        self.client.connection.publish(self._subject, body, reply)
        self.client.plan_flush()
        return reply

    async def _wait(self, timeout: float) -> bool:
        """Until something came or broke; False when the timeout comes first."""
        if self._queue or self._closed or self._lost is not None:
            return True
        loop = asyncio.get_running_loop()
        self._waiter = waiter = loop.create_future()
        timer = loop.call_later(timeout, _give_up, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiter = None
        return bool(self._queue) or self._closed or self._lost is not None

    def _begin(self) -> None:
        if self._busy:
            raise RuntimeError("another call is pulling with this handle")
        self._busy = True
        self._lost = None

    async def fetch(
        self,
        batch: int = 1,
        *,
        timeout: Duration | None = None,
        max_bytes: int = 0,
        no_wait: bool = False,
    ) -> list[AioMessage]:
        """Up to ``batch`` messages: as soon as all are there, or what came within ``timeout``
        seconds.

        With no_wait only what the consumer has right now. An empty list when there is nothing.
        Raises PullError, ConsumerDeleted, NoResponders (no such consumer), ConnectionLost, but
        never with messages in hand.
        """
        seconds = self.client.timeout_of(timeout)
        fetch = Fetch(self._subject, "", batch)
        self._begin()
        try:
            self._feed(fetch)
            if not fetch.done:
                body = pull_body(
                    batch - len(fetch.messages),
                    expires_ns=0 if no_wait else max(1, round(seconds * 1e9)),
                    no_wait=no_wait,
                    max_bytes=max_bytes,
                )
                fetch.reply = self._request(body)
                clock = asyncio.get_running_loop().time
                deadline = clock() + seconds
                await self._collect(fetch, seconds + GRACE_S)
                while self.client.server_info.cluster and isinstance(fetch.error, NoResponders):
                    left = deadline - clock() - RETRY_S
                    if fetch.messages or left <= 0:
                        break
                    await asyncio.sleep(RETRY_S)
                    fetch.again(self._request(body))  # it may be choosing a leader
                    await self._collect(fetch, left + GRACE_S)
        finally:
            self._busy = False
        return [message for message in fetch.result() if isinstance(message, AioMessage)]

    async def _collect(self, fetch: Fetch, timeout: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        try:
            while not fetch.done and not self._closed:
                over = not await self._wait(deadline - loop.time())
                self._feed(fetch)
                if fetch.done or (fetch.messages and (over or self._lost is not None)):
                    return
                if self._lost is not None:
                    raise ConnectionLost(f"connection lost while pulling: {self._lost}")
                if over:
                    raise Timeout(f"no answer to a pull from {self.consumer!r} in {timeout} s")
        except asyncio.CancelledError:
            self._queue.extendleft(reversed(fetch.messages))  # for the next call
            raise

    def _feed(self, fetch: Fetch) -> None:
        while self._queue and not fetch.done:
            fetch.take(self._queue.popleft())

    async def messages(
        self,
        *,
        batch: int = 500,
        max_bytes: int = 0,
        expires: float = 30.0,
        heartbeat: float = 5.0,
        patient: bool = True,
    ) -> AsyncGenerator[AioMessage, None]:
        """Messages for ever, with overlapping pull requests; ends when handle or client is closed.

        Raises ConsumerDeleted, NoResponders and PullError when the consumer cannot be pulled from
        any more; in a cluster, if ``patient``, NoResponders only after half a minute, for it may be
        choosing a leader.
        Survives a lost connection, as far as the consumer does.
        """
        flow = Flow(self._subject, batch, max_bytes, round(expires * 1e9), round(heartbeat * 1e9))
        self._begin()
        try:
            while not self._closed:
                body = flow.due()
                if body is not None:
                    self._request(body)
                if not await self._wait(2 * heartbeat):
                    flow.restart()  # not even a heartbeat: the request is lost
                if self._lost is not None:
                    self._lost = None
                    flow.restart()
                clustered = patient and bool(self.client.server_info.cluster)
                while self._queue:
                    message = self._queue.popleft()
                    if flow.take(message, clustered=clustered):
                        assert isinstance(message, AioMessage)
                        yield message
                        if 2 * flow.outstanding <= batch:
                            break  # ask for more before the rest is handled
                if flow.refusals:
                    await asyncio.sleep(RETRY_S)
        finally:
            self._busy = False

    def close(self) -> None:
        """Stop receiving; the consumer itself stays."""
        self.client.watchers.discard(self)
        if self._inbox and not self.client.closed:
            self.client.connection.unsubscribe(self.interest)
            self.client.plan_flush()
        self.end()


def _give_up(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
