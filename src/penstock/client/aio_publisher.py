"""Publishing into streams with many acks outstanding, for asyncio."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.errors import ConnectionClosed, OutputFull, PenstockError, PublishFailed

from .jetstream import Headers, publish_headers
from .publishing import Pending, Window

if TYPE_CHECKING:
    from .aio_client import Client
    from .connection import Interest
    from .message import BaseMessage
    from .models import PubAck


class Publisher:
    """Publishes into streams with a bounded window of outstanding acks; made by
    ``JetStream.publisher``.

    A message that is not acknowledged in time is sent again if it has a message id, and fails
    otherwise; one that no stream of a cluster answers is sent again until then. Each ``publish``
    returns a future for its ack; failures are also collected in ``failures``, and raised as
    PublishFailed by ``flush`` and at the end of ``async with``.
    """

    def __init__(self, client: Client, window: int, timeout: float, attempts_max: int) -> None:
        """``timeout`` in seconds, for one attempt."""
        self.client = client
        self.acked = 0
        """Messages that a stream has acknowledged."""
        self.duplicates = 0
        """How many of them the stream already had."""
        self.failures: list[tuple[str, str, Exception]] = []
        self.interest: Interest
        self._loop = asyncio.get_running_loop()
        inbox = client.new_inbox()
        self._window = Window(inbox, window, timeout, attempts_max)
        self._room: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        client.attach(f"{inbox}.*", self)
        client.watchers.add(self)

    async def __aenter__(self) -> Publisher:
        """The publisher itself."""
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait for every ack; PublishFailed when some did not come."""
        try:
            if kind is None:
                await self.flush()
        finally:
            self.client.watchers.discard(self)
            if self._timer is not None:
                self._timer.cancel()
            if not self.client.closed:
                self.client.connection.unsubscribe(self.interest)
                self.client.plan_flush()

    async def publish(
        self,
        subject: str,
        data: bytes = b"",
        *,
        headers: Headers | None = None,
        msg_id: str | None = None,
    ) -> asyncio.Future[PubAck]:
        """Send a message, after waiting for room in the window; the future is for its ack."""
        while self._window.full:
            await self._settled()
        block = publish_headers(headers, msg_id=msg_id) if headers or msg_id else b""
        future: asyncio.Future[PubAck] = self._loop.create_future()
        entry = self._window.add(subject, data, block, msg_id or "", self._loop.time(), future)
        try:
            self.client.connection.publish(subject, data, entry.reply, block)
        except PenstockError:
            self._window.drop(entry)
            raise
        self.client.plan_flush()
        if self._timer is None:
            self._plan_look()
        await self.client.wait_writable()
        return future

    async def flush(self) -> None:
        """Wait until every message is acknowledged or has failed.

        PublishFailed tells which failed since the last time.
        """
        while self._window:
            await self._settled()
        if self.failures:
            failures, self.failures = self.failures, []
            raise PublishFailed(failures)

    async def _settled(self) -> None:
        """Until one more message is acknowledged or has failed."""
        if self._room is None:
            self._room = self._loop.create_future()
        await asyncio.shield(self._room)

    def _wake(self) -> None:
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)

    # -- called by the client ----------------------------------------------------------------------

    def receive(self, message: BaseMessage) -> None:
        """An ack came."""
        settled = self._window.settle(message)
        if settled is None:
            return
        entry, outcome = settled
        if isinstance(outcome, PenstockError):
            clustered = bool(self.client.server_info.cluster)
            if self._window.bear(entry, outcome, self._loop.time(), clustered=clustered):
                self._plan_look()
            else:
                self._fail(entry, outcome)
            return
        self.acked += 1
        self.duplicates += outcome.duplicate
        if not entry.waiter.done():
            entry.waiter.set_result(outcome)
        if self._room is not None:
            self._wake()

    def end(self) -> None:
        """The client is closed: nothing more is acknowledged."""
        why = f": {self.interest.failure}" if self.interest.failure else ""
        for entry in self._window.give_up():
            self._fail(entry, ConnectionClosed(f"the client was closed before the ack came{why}"))

    def lost(self, _: PenstockError) -> None:
        """The connection broke: send again what may be sent twice."""
        self._again(lost=True)

    def _fail(self, entry: Pending, error: Exception) -> None:
        self.failures.append((entry.subject, entry.msg_id, error))
        if not entry.waiter.done():
            entry.waiter.set_exception(error)
            entry.waiter.exception()  # told: whoever does not await it finds it in `failures`
        self._wake()

    def _again(self, *, lost: bool = False) -> None:
        again, failed = self._window.overdue(self._loop.time(), lost)
        for entry in again:
            try:
                self.client.connection.publish(
                    entry.subject, entry.payload, entry.reply, entry.headers
                )
            except OutputFull:
                continue  # stays in the window, and is sent again at its new deadline
            except PenstockError as error:
                self._window.drop(entry)
                self._fail(entry, error)
        self.client.plan_flush()
        for entry in failed:
            self._fail(entry, self._window.why_failed(entry))
        if again and not self._window.full:
            self._wake()

    def _plan_look(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        deadline = self._window.next_deadline()
        self._timer = None if deadline is None else self._loop.call_at(deadline, self._look)

    def _look(self) -> None:
        self._again()
        self._plan_look()
