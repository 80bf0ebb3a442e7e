"""Publishing many messages into streams: with many acks outstanding; and in batches into one stream,
atomic ones, and fast ones with few answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from pelton.errors import PeltonTimeoutError, PublishFailedError

from ..base.answers import decode_pub_ack
from ..base.mailbox import RETRY_S
from ..batches import AtomicNumbers, Outgoing, check_staged
from .sending import FlowSender, WindowSender

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..base.durations import Duration
    from ..base.message import HeadersLike
    from ..base.models import PubAck
    from .connection import Client
    from .jetstream import JetStream


class Publisher(WindowSender):
    """Publishes into streams with a bounded window of outstanding acks; made by ``JetStream.publisher``.

    A message that is not acknowledged in time is sent again if it has a message id, and fails otherwise;
    a message that no stream of a cluster answers is sent again until then. Failures are collected in
    ``failures``, and raised as PublishFailedError by ``flush`` and at the end of the block.

    ::

        async with js.publisher(window=512) as publisher:
            for number in range(1000):
                await publisher.publish("orders.new", b"%d" % number, msg_id=f"order-{number}")
    """

    async def flush(self) -> None:
        """Wait until every message is acknowledged or has failed.

        PublishFailedError names the messages that failed since the last call.
        """
        await self._settle(lambda: not self._window)
        if self.failures:
            failures, self.failures = self.failures, []
            raise PublishFailedError(failures)

    async def __aenter__(self) -> Self:
        """The publisher itself."""
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait for every ack, unless the block raises; PublishFailedError when some did not arrive."""
        try:
            if kind is None:
                await self.flush()
        finally:
            self._close()

    async def _make_room(self) -> None:
        await self._settle(lambda: not self._window.full)

    async def _settle(self, done: Callable[[], bool]) -> None:
        client, window = self.client, self._window
        while not done():
            # A first refusal moves the next deadline forward, so the wait is begun anew.
            refused = window.refused

            def over(refused: bool = refused) -> bool:
                return done() or self._lost or (window.refused and not refused)

            await client._until(self, over, window.seconds_left(self._clock()))
            if self._lost:
                await client._ready(self._patience)
            self._look()


class AtomicBatch:
    """Messages that a stream stores as a whole, or not at all; made by ``JetStream.atomic_batch``.

    The end of its block commits, and nothing is stored when the block raises; or call ``commit``. None of
    them is visible before. All subjects must belong to one stream, which allows atomic batches (API level
    2). The stream gives up a batch that gets no message for 10 s.

    ::

        async with js.atomic_batch() as batch:
            await batch.add("orders.new", b"42 bolts")
            await batch.add("orders.paid", b"42 bolts")
        print(batch.ack.seq)
    """

    def __init__(
        self, js: JetStream, *, ack_every: int = 100, timeout: Duration | None = None
    ) -> None:
        """Made by ``JetStream.atomic_batch``."""
        self.client: Client = js.client
        """The client that it belongs to."""
        self._timeout = js._seconds_of(timeout)
        self._numbers = AtomicNumbers(self.client.new_id(), ack_every)
        self.ack: PubAck | None = None
        """The stream's ack, once the batch is committed."""

    @property
    def id(self) -> str:
        """The value of the header Nats-Batch-Id."""
        return self._numbers.id

    @property
    def count(self) -> int:
        """The number of added messages."""
        return self._numbers.count

    async def add(
        self,
        subject: str,
        data: bytes = b"",
        *,
        headers: HeadersLike | None = None,
        msg_id: str | None = None,
        expected_last_seq: int | None = None,
        expected_last_subject_seq: int | None = None,
        ttl: Duration | None = None,
    ) -> None:
        """Add a message.

        Raises ApiError when the stream refuses the batch so far; a refused message that asks for no answer
        fails the commit. PayloadTooLargeError leaves the batch as it was. NoRespondersError as for ``publish``: in a
        cluster only after the timeout, because the stream may be electing a leader.
        """
        client = self.client
        before = self._numbers.add(
            subject,
            data,
            headers,
            msg_id=msg_id,
            expected_last_seq=expected_last_seq,
            expected_last_subject_seq=expected_last_subject_seq,
            ttl=ttl,
            size_max=client._connection.info.max_payload,
        )
        if before is None:
            return
        message, ask = before
        if ask:
            check_staged(await self._ask(message))
            return
        await client._ready()
        # Without a reply subject: most messages need no answer, and the commit reports what was refused.
        client._connection.publish(message.subject, message.payload, "", message.headers)
        client._plan_flush()
        if client._much_waits:
            await client._send_queued()

    async def commit(self) -> PubAck:
        """Store all messages; the ack has the sequence of the last one, and their number.

        Raises ApiError when one of them cannot be stored; then none is. So it does when the stream has another
        leader than at the first message: a leader keeps its batches in memory. After PeltonTimeoutError or
        ConnectionLostError it is unknown whether they are stored.
        """
        self.ack = decode_pub_ack(await self._ask(self._numbers.commit()))
        return self.ack

    async def __aenter__(self) -> Self:
        """The batch itself."""
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Commit what is not committed; nothing is stored when the block raises."""
        if kind is None and self.count and not self._numbers.over:
            await self.commit()

    async def _ask(self, message: Outgoing) -> bytes:
        """The answer of the stream. What nobody took is not in the batch, and is sent again."""
        answer = await self.client._persevere(
            message.subject, message.payload, self._timeout, message.headers
        )
        return answer.data


class FastBatch(FlowSender):
    """Publishes into a stream that answers once per many messages; made by ``JetStream.fast_batch``.

    The end of its block commits. Each message is stored separately and visible at once. A message that does
    not arrive or is refused ends the batch with BatchEndedError, unless ``gaps`` are allowed: then see
    ``flow.gaps`` and ``flow.failures``. The stream gives up a batch that gets no message for 10 s: asyncio
    sends a ping in time, and a blocking caller without messages calls ``ping``.

    ::

        async with js.fast_batch() as batch:
            for reading in readings:
                await batch.publish("readings.oven", reading)
    """

    async def commit(self) -> PubAck:
        """End the batch and return its ack; BatchEndedError when it lacks some of the messages."""
        flow = self.flow
        if flow.count:
            # The end, too, may only be sent after the answer to the first message (ADR-50).
            await self._settle(lambda: flow.started)
        if not flow.ended:
            self._connection.publish(self._subject, b"", flow.reply_of_end(), b"")
            await self._settle(lambda: flow.ended)
        self._close()
        self.result = flow.outcome()
        return self.result

    async def ping(self) -> None:
        """Ask for the stream's progress, which also keeps the batch open."""
        self._ping()
        await self.client._send_queued()

    async def __aenter__(self) -> Self:
        """The batch itself."""
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Commit, unless that is done or nothing was published."""
        try:
            if kind is None and self.flow.count and self.result is None:
                await self.commit()
        finally:
            self._close()

    async def _make_room(self) -> None:
        await self._settle(lambda: not self.flow.full)

    async def _settle(self, done: Callable[[], bool]) -> None:
        """Wait until ``done()`` holds; after a silence, ask the stream for its progress."""
        client = self.client
        await client._send_queued()
        silences = 0
        while not done():
            if self._unserved:
                await client._sleep(RETRY_S)
                self._begin_again()
                await client._send_queued()
                continue
            before = self._heard

            def heard(before: int = before) -> bool:
                return done() or self._heard != before

            # In thirds: an answer that got lost is asked for twice before the batch fails.
            if await client._until(self, heard, self._timeout / 3):
                silences = 0
            elif silences == 2:
                raise PeltonTimeoutError(
                    f"no answer from the stream of {self._subject!r} in {self._timeout} s"
                )
            else:
                silences += 1
                self._ping()
                await client._send_queued()
