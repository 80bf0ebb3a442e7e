"""Batches of publishes into one stream, for blocking code: atomic ones, and fast ones with few
answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import ClientInUse, Timeout

from .batches import AtomicNumbers, FastFlow, Outgoing, check_staged
from .blocking_guard import exclusive
from .jetstream import Headers, decode_pub_ack, encode_header_map

if TYPE_CHECKING:
    from collections.abc import Callable

    from .blocking import BlockingClient
    from .connection import Interest
    from .durations import Duration
    from .message import BaseMessage
    from .models import PubAck

OUTPUT_BYTES = 64 * 1024  # written in blocks of this size


class AtomicBatch:
    """Messages that a stream stores together, or not at all; made by ``JetStream.atomic_batch``.

    Nothing of them is seen before ``commit``. All subjects must be of one stream, which allows
    atomic batches (API level 2). The stream gives up a batch in which nothing comes for 10 s.
    """

    def __init__(self, client: BlockingClient, timeout: float, ack_every: int) -> None:
        """``timeout`` in seconds, for one answer."""
        self.client = client
        self.guard = client.guard
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

    @exclusive
    def add(
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
            check_staged(self._request(message))
            return
        self.client.ensure_open()
        self.client.connection.publish(message.subject, message.payload, "", message.headers)
        if self.client.connection.bytes_waiting > OUTPUT_BYTES:
            self.client.flush_output()

    @exclusive
    def commit(self) -> PubAck:
        """Store them all; the ack says the sequence of the last one, and how many they are.

        An ApiError when one of them can not be stored: nothing is, then. After Timeout or
        ConnectionLost nobody knows.
        """
        return decode_pub_ack(self._request(self._numbers.commit()))

    def _request(self, message: Outgoing) -> bytes:
        answer = self.client.request(
            message.subject, message.payload, timeout=self._timeout, raw_headers=message.headers
        )
        return answer.data


class FastBatch:
    """Publishes into a stream that answers once per many; made by ``JetStream.fast_batch``.

    Use it in ``with``: the end commits. Each message is stored by itself and seen at once. A
    message that is lost on the way or refused ends the batch with BatchEnded, unless ``gaps`` are
    allowed: then see ``flow.gaps`` and ``flow.failures``. The stream gives up a batch in which
    nothing comes for 10 s: who has nothing to publish calls ``ping``.
    """

    def __init__(self, client: BlockingClient, timeout: float, flow: int, *, gaps: bool) -> None:
        """``timeout`` in seconds, for one answer."""
        self.client = client
        self.guard = client.guard
        self.interest: Interest
        inbox = client.new_inbox()
        self.flow = FastFlow(inbox, inbox.rpartition(".")[2], flow, gaps=gaps)
        self.result: PubAck | None = None
        """Of the whole batch, once it is committed."""
        self._timeout = timeout
        self._subject = ""
        self._closed = False
        self._heard = 0
        client.attach(f"{inbox}.>", self)

    def __enter__(self) -> FastBatch:
        """The batch itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Commit, unless that is done or nothing was published."""
        try:
            if kind is None and self.flow.count and self.result is None:
                self.commit()
        finally:
            self._close()

    def publish(self, subject: str, data: bytes = b"", *, headers: Headers | None = None) -> None:
        """Queue a message; waits while the stream is too far behind. Queued bytes go out in blocks,
        when the stream has to answer and at the end.

        BatchEnded or an ApiError when the stream takes nothing more; Timeout when it is silent.
        """
        if not self.guard.take(False):
            raise ClientInUse
        try:
            if self.flow.full:
                self._wait(lambda: not self.flow.full)
            elif self.client.connection.bytes_waiting > OUTPUT_BYTES:
                self.client.flush_output()
            block = encode_header_map(headers)
            reply = self.flow.reply_of_next()
            self._subject = subject
            self.client.connection.publish(subject, data, reply, block)
        finally:
            self.guard.give()

    @exclusive
    def ping(self) -> None:
        """Ask how far the stream is, which also keeps the batch open."""
        if self.flow.started and not self.flow.ended:
            self._send(self.flow.reply_of_ping())
            self.client.flush_output()

    @exclusive
    def commit(self) -> PubAck:
        """End the batch; its ack. BatchEnded when not all messages are in it."""
        if self.flow.count:
            self._wait(lambda: self.flow.started)
        if not self.flow.ended:
            self._send(self.flow.reply_of_end())
            self._wait(lambda: self.flow.ended)
        self._close()
        self.result = self.flow.outcome()
        return self.result

    def receive(self, message: BaseMessage) -> None:
        """The client hands over an answer."""
        self._heard += 1
        self.flow.receive(message)

    def end(self) -> None:
        """The client is closed: nothing more is answered."""

    def _send(self, reply: str) -> None:
        self.client.connection.publish(self._subject, b"", reply, b"")

    def _wait(self, done: Callable[[], bool]) -> None:
        """Until that holds; what was lost on the way is asked for again after a silence."""
        self.client.flush_output()
        attempts = 0
        while not done():
            before = self._heard
            self._listen(done)
            if self._heard != before:
                attempts = 0
            elif attempts == 2:
                raise Timeout(f"no answer from the stream of {self._subject!r}")
            elif not done():
                attempts += 1
                self.ping()

    def _listen(self, done: Callable[[], bool]) -> None:
        """Until that holds, anything is heard, or a third of the time for an answer is over."""
        before = self._heard
        self.client.wait_until(lambda: done() or self._heard != before, self._timeout / 3)

    def _close(self) -> None:
        if not self._closed and not self.client.closed:
            self.client.connection.unsubscribe(self.interest)
        self._closed = True
