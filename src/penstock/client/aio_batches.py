"""Batches of publishes into one stream, for asyncio: atomic ones, and fast ones with few answers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.errors import ConnectionClosed, PenstockError, Timeout

from .batches import AtomicNumbers, FastFlow, Outgoing, check_staged
from .jetstream import Headers, decode_pub_ack, encode_header_map

if TYPE_CHECKING:
    from .aio_client import Client
    from .connection import Interest
    from .durations import Duration
    from .message import BaseMessage
    from .models import PubAck

KEEP_ALIVE_S = 3.0
"""A fast batch in which nothing is published says so after this long; streams wait for 10 s."""


class AtomicBatch:
    """Messages that a stream stores together, or not at all; made by ``JetStream.atomic_batch``.

    Nothing of them is seen before ``commit``. All subjects must be of one stream, which allows
    atomic batches (API level 2). The stream gives up a batch in which nothing comes for 10 s.
    """

    def __init__(self, client: Client, timeout: float, ack_every: int) -> None:
        """``timeout`` in seconds, for one answer."""
        self.client = client
        self._timeout = timeout
        self._numbers = AtomicNumbers(client.new_inbox().rpartition(".")[2], ack_every)

    @property
    def id(self) -> str:
        """What stands in the header Nats-Batch-Id."""
        return self._numbers.id

    @property
    def count(self) -> int:
        """Messages added."""
        return self._numbers.count

    async def add(
        self,
        subject: str,
        data: bytes = b"",
        *,
        headers: Headers | None = None,
        msg_id: str | None = None,
        expected_last_seq: int | None = None,
        expected_last_subject_seq: int | None = None,
        ttl: Duration | None = None,
    ) -> None:
        """One more message. An ApiError when the stream refuses the batch so far; a message that it
        is not asked about fails the commit.
        """
        before = self._numbers.add(
            subject,
            data,
            headers,
            msg_id=msg_id,
            expected_last_seq=expected_last_seq,
            expected_last_subject_seq=expected_last_subject_seq,
            ttl=ttl,
        )
        if before is None:
            return
        message, ask = before
        if ask:
            check_staged(await self._request(message))
            return
        self.client.connection.publish(message.subject, message.payload, "", message.headers)
        self.client.plan_flush()
        await self.client.wait_writable()

    async def commit(self) -> PubAck:
        """Store them all; the ack says the sequence of the last one, and how many they are.

        An ApiError when one of them can not be stored: nothing is, then. After Timeout or
        ConnectionLost nobody knows.
        """
        return decode_pub_ack(await self._request(self._numbers.commit()))

    async def _request(self, message: Outgoing) -> bytes:
        answer = await self.client.request(
            message.subject, message.payload, timeout=self._timeout, raw_headers=message.headers
        )
        return answer.data


class FastBatch:
    """Publishes into a stream that answers once per many; made by ``JetStream.fast_batch``.

    Use it in ``async with``: the end commits. Each message is stored by itself and seen at once. A
    message that is lost on the way or refused ends the batch with BatchEnded, unless ``gaps`` are
    allowed: then see ``flow.gaps`` and ``flow.failures``.
    """

    def __init__(self, client: Client, timeout: float, flow: int, *, gaps: bool) -> None:
        """``timeout`` in seconds, for one answer."""
        self.client = client
        self.interest: Interest
        inbox = client.new_inbox()
        self.flow = FastFlow(inbox, inbox.rpartition(".")[2], flow, gaps=gaps)
        self.result: PubAck | None = None
        """Of the whole batch, once it is committed."""
        self._timeout = timeout
        self._subject = ""
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._heard: asyncio.Future[None] | None = None
        self._published_at = self._loop.time()
        self._timer = self._loop.call_later(KEEP_ALIVE_S, self._keep_alive)
        client.attach(f"{inbox}.>", self)

    async def __aenter__(self) -> FastBatch:
        """The batch itself."""
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Commit, unless that is done or nothing was published."""
        try:
            if kind is None and self.flow.count and self.result is None:
                await self.commit()
        finally:
            self._close()

    async def publish(
        self, subject: str, data: bytes = b"", *, headers: Headers | None = None
    ) -> None:
        """Send a message; waits while the stream is too far behind.

        BatchEnded or an ApiError when the stream takes nothing more; Timeout when it is silent.
        """
        while self.flow.full:
            await self._answered()
        block = encode_header_map(headers)
        reply = self.flow.reply_of_next()
        self._subject = subject
        self._published_at = self._loop.time()
        self.client.connection.publish(subject, data, reply, block)
        self.client.plan_flush()
        if self.client.connection.bytes_waiting:
            await self.client.wait_writable()

    async def commit(self) -> PubAck:
        """End the batch; its ack. BatchEnded when not all messages are in it."""
        while not self.flow.started and self.flow.count:
            await self._answered()
        if not self.flow.ended:
            self._send(self.flow.reply_of_end())
            while not self.flow.ended:
                await self._answered()
        self._close()
        self.result = self.flow.outcome()
        return self.result

    def receive(self, message: BaseMessage) -> None:
        """The client hands over an answer."""
        self.flow.receive(message)
        self._wake()

    def end(self) -> None:
        """The client is closed: nothing more is answered."""
        if not self.flow.ended:
            why = f": {self.interest.failure}" if self.interest.failure else ""
            self.flow.error = ConnectionClosed(f"the client was closed before the batch ended{why}")
        self._wake()

    def _send(self, reply: str) -> None:
        self.client.connection.publish(self._subject, b"", reply, b"")
        self.client.plan_flush()

    def _wake(self) -> None:
        heard, self._heard = self._heard, None
        if heard is not None and not heard.done():
            heard.set_result(None)

    async def _answered(self) -> None:
        """Until one more answer has come; what was lost on the way is asked for again."""
        third = self._timeout / 3
        for attempt in range(3):
            if self._heard is None:
                self._heard = self._loop.create_future()
            done, _ = await asyncio.wait([self._heard], timeout=third)
            if done:
                return
            if attempt < 2 and self.flow.started and not self.flow.ended:
                self._send(self.flow.reply_of_ping())
        raise Timeout(f"no answer from the stream of {self._subject!r} in {self._timeout} s")

    def _keep_alive(self) -> None:
        self._timer = self._loop.call_later(KEEP_ALIVE_S, self._keep_alive)
        idle_s = self._loop.time() - self._published_at
        if self.flow.started and not self.flow.ended and idle_s >= KEEP_ALIVE_S:
            try:
                self._send(self.flow.reply_of_ping())
            except PenstockError as error:
                self.client.report(error)

    def _close(self) -> None:
        self._timer.cancel()
        if not self._closed and not self.client.closed:
            self.client.connection.unsubscribe(self.interest)
            self.client.plan_flush()
        self._closed = True
