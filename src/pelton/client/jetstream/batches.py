"""Batches of publishes into one stream, as numbers and answers, without transport or waiting.

An **atomic** batch is stored as a whole or not at all. Its messages have its id and their number in
headers, and the last one also says commit. So the client holds each message back until the next one
is added, or until the commit.

A **fast** batch is many ordinary publishes with few answers. The position of a message in its batch
is in its reply subject::

    <inbox>.<batch>.<flow>.<ok|fail>.<number>.<operation>.$FI

The stream answers once per many messages with its progress (``ack``), reports gaps and errors, and
ends with one PubAck.

``AtomicNumbers`` and ``FastFlow`` keep the numbers; ``Atomic`` and ``Fast`` are the steps that both
shells share.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pelton.api import error_from
from pelton.api.errors import ErrorBody  # noqa: TC001 # msgspec reads the annotation
from pelton.errors import (
    BatchEndedError,
    ConnectionClosedError,
    NoRespondersError,
    PayloadTooLargeError,
    PeltonError,
    PeltonTimeoutError,
    ProtocolError,
)

from ..base.steps import RETRY_S, SEND, Mailbox, Ready, Until, call, pausing
from ..plans.jetstream import Headers, decode_pub_ack, encode_header_map, publish_headers
from ..protocol.subjects import check_literal

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..base.durations import Duration
    from ..base.interest import Interest
    from ..base.message import BaseMessage
    from ..base.models import PubAck
    from ..base.steps import Steps
    from .streams import Streams

START, APPEND, COMMIT_EOB, PING = 0, 1, 3, 4
COMMIT = b"Nats-Batch-Commit: 1\r\n\r\n"
"""The end of the headers of an atomic batch's last message."""
UNANSWERED = 2  # flow acks that may be outstanding


class Outgoing(NamedTuple):
    """One message to send."""

    subject: str
    payload: bytes
    headers: bytes


class AtomicNumbers:
    """The numbers of one atomic batch."""

    def __init__(self, batch_id: str, ack_every: int) -> None:
        """``ack_every``: after this many messages the stream is asked for an answer."""
        if ack_every < 1:
            raise ValueError(f"ack_every is at least 1, got {ack_every}")
        self.id = batch_id
        self.count = 0
        """The number of added messages."""
        self.over = False
        self._ack_every = ack_every
        self._held: Outgoing | None = None

    def add(
        self,
        subject: str,
        payload: bytes,
        headers: Headers | None,
        *,
        msg_id: str | None = None,
        expected_last_seq: int | None = None,
        expected_last_subject_seq: int | None = None,
        ttl: Duration | None = None,
        size_max: float = math.inf,
    ) -> tuple[Outgoing, bool] | None:
        """Add a message; returns the previous message to send, and whether it asks for an answer.

        None for the first message. Raises ValueError when the batch is over, or when a header cannot hold a
        value, InvalidSubjectError, and PayloadTooLargeError when the message, with the header of the commit, has more
        than ``size_max`` bytes; the batch is as before then.
        """
        if self.over:
            raise ValueError(f"batch {self.id} is over")
        check_literal(subject)  # it is sent with the next message
        place: Headers = {"Nats-Batch-Id": self.id, "Nats-Batch-Sequence": str(self.count + 1)}
        block = publish_headers(
            {**headers, **place} if headers else place,
            msg_id=msg_id,
            expected_last_seq=expected_last_seq,
            expected_last_subject_seq=expected_last_subject_seq,
            ttl=ttl,
        )
        size = len(block) + len(COMMIT) - 2 + len(payload)
        if size > size_max:
            raise PayloadTooLargeError(
                f"message {self.count + 1} of the batch has {size} bytes with its headers, the server "
                f"takes {size_max}"
            )
        before, self._held = self._held, Outgoing(subject, payload, block)
        self.count += 1
        if before is None:
            return None
        return before, self.count == 2 or (self.count - 1) % self._ack_every == 0

    def commit(self) -> Outgoing:
        """The last message, whose answer is the PubAck; ValueError when there is none."""
        if self.over or self._held is None:
            raise ValueError(f"batch {self.id} is over" if self.over else "the batch is empty")
        last, self._held, self.over = self._held, None, True
        return last._replace(headers=last.headers[:-2] + COMMIT)


def check_staged(answer: bytes) -> None:
    """Check the answer to a message of an open atomic batch; ApiError when the stream refused it."""
    if answer:
        raise ProtocolError(_stored_at_once(decode_pub_ack(answer), "atomic batches", "2.12"))


def _stored_at_once(ack: PubAck, what: str, version: str) -> str:
    return (
        f"stream {ack.stream!r} has stored a message at once, at sequence {ack.seq}: its server has no "
        f"{what} (nats-server has them from {version} on)"
    )


class _Answer(msgspec.Struct):
    """An answer of a stream to a fast batch; a PubAck has no type."""

    type: str = ""
    seq: int = 0
    msgs: int = 0
    last_seq: int = 0
    error: ErrorBody | None = None


_answer = msgspec.json.Decoder(_Answer)


class FastFlow:
    """The progress of one fast batch, and how many messages may be sent."""

    def __init__(
        self, inbox: str, batch_id: str, flow: int, *, gaps: bool, unanswered: int = UNANSWERED
    ) -> None:
        """Answers arrive below ``inbox``.

        ``flow`` is the largest number of messages between two answers, ``unanswered`` how many answers may be
        outstanding. With ``gaps`` the batch goes on when messages do not arrive or are refused.
        """
        if flow < 1 or unanswered < 1:
            raise ValueError(f"flow and unanswered are at least 1, got {flow} and {unanswered}")
        self._unanswered = unanswered
        self.count = 0
        """The number of sent messages."""
        self.acked = 0
        """The number up to which the stream has processed the messages."""
        self.gaps: list[tuple[int, int]] = []
        """Numbers that did not arrive: the first one, and the first one after the gap."""
        self.failures: list[tuple[int, PeltonError]] = []
        """The messages that the stream refused."""
        self.result: PubAck | None = None
        self.error: PeltonError | None = None
        self._every = 0
        self._prefix = f"{inbox}.{batch_id}.{flow}.{'ok' if gaps else 'fail'}"
        self._over = False

    @property
    def started(self) -> bool:
        """Whether the stream has answered the first message."""
        return self._every > 0 or self.ended

    @property
    def ended(self) -> bool:
        """Whether the stream has sent its final answer."""
        return self.result is not None or self.error is not None

    @property
    def full(self) -> bool:
        """Whether the client must wait for an answer before it sends another message."""
        if self.ended or self.count == 0:
            return False
        return not self.started or self.count >= self.acked + self._unanswered * self._every

    def reply_of_next(self) -> str:
        """Count one more message and return its reply subject; BatchEndedError when the batch is over."""
        self.check()
        self.count += 1
        return self._reply(self.count, START if self.count == 1 else APPEND)

    def reply_of_end(self) -> str:
        """The reply subject of the empty message that ends the batch."""
        self.check()
        if self.count == 0:
            raise ValueError("the batch is empty")
        self._over = True
        return self._reply(self.count + 1, COMMIT_EOB)

    def reply_of_ping(self) -> str:
        """The reply subject of a request for the progress of the batch."""
        return self._reply(self.count, PING)

    def check(self) -> None:
        """Raise BatchEndedError, or the stream's refusal of the batch, when it takes no more messages."""
        if self.error is not None:
            raise self.error
        if self.result is not None:
            raise BatchEndedError(self.count, self.result.count, self.failures[-1:])
        if self._over:
            raise ValueError("the batch is over")

    def outcome(self) -> PubAck:
        """The PubAck, when it covers all sent messages; raises BatchEndedError otherwise."""
        if self.error is not None:
            raise self.error
        assert self.result is not None
        if self.result.count < self.count:
            raise BatchEndedError(self.count, self.result.count, self.failures[-1:])
        return self.result

    def _on_message(self, message: BaseMessage) -> None:
        """Take an answer of the stream; answers after the final one do not concern this batch."""
        if self.ended:
            return
        if message.status == 503:
            self.error = NoRespondersError("the subject of a batch")
            return
        try:
            answer = _answer.decode(message.data)
        except msgspec.MsgspecError as error:
            self.error = ProtocolError(f"not an answer to a batch: {error}: {message.data[:200]!r}")
            return
        if answer.type == "ack":
            self.acked = max(self.acked, answer.seq)
            self._every = answer.msgs or 1
        elif answer.type == "gap":
            self.gaps.append((answer.last_seq, answer.seq))
        elif answer.type == "err" and answer.error is not None:
            self.failures.append((answer.seq, error_from(answer.error)))
        else:
            try:
                result = decode_pub_ack(message.data)
            except PeltonError as error:
                self.error = error
            else:
                if result.batch:
                    self.result = result
                else:
                    self.error = ProtocolError(_stored_at_once(result, "fast batches", "2.14"))

    def _reply(self, number: int, operation: int) -> str:
        return f"{self._prefix}.{number}.{operation}.$FI"


class Atomic:
    """Messages that a stream stores as a whole, or not at all."""

    def __init__(
        self, js: Streams[Any], *, ack_every: int = 100, timeout: Duration | None = None
    ) -> None:
        """Open a batch.

        The stream is asked whether it takes the batch at the first message, and then every
        ``ack_every``.
        """
        self.client = js.client
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

    def _adding(
        self,
        subject: str,
        data: bytes = b"",
        *,
        headers: Headers | None = None,
        msg_id: str | None = None,
        expected_last_seq: int | None = None,
        expected_last_subject_seq: int | None = None,
        ttl: Duration | None = None,
    ) -> Steps[None]:
        """Add a message.

        Raises ApiError when the stream refuses the batch so far; a refused message that asks for no answer
        fails the commit. PayloadTooLargeError leaves the batch as it was. NoRespondersError as for ``publish``: in a
        cluster only after the timeout, because the stream may be electing a leader.
        """
        before = self._numbers.add(
            subject,
            data,
            headers,
            msg_id=msg_id,
            expected_last_seq=expected_last_seq,
            expected_last_subject_seq=expected_last_subject_seq,
            ttl=ttl,
            size_max=self.client._connection.info.max_payload,
        )
        if before is None:
            return
        message, ask = before
        if ask:
            check_staged((yield from self._asking(message)))
            return
        client = self.client
        if not client._stays_open:
            yield Ready()
        client._connection.publish(message.subject, message.payload, "", message.headers)
        client._plan_flush()
        if client._much_waits:
            yield SEND

    def _committing(self) -> Steps[PubAck]:
        """Store all messages; the ack has the sequence of the last one, and their number.

        Raises ApiError when one of them cannot be stored; then none is. So it does when the stream has another
        leader than at the first message: a leader keeps its batches in memory. After PeltonTimeoutError or
        ConnectionLostError it is unknown whether they are stored.
        """
        self.ack = decode_pub_ack((yield from self._asking(self._numbers.commit())))
        return self.ack

    def _leaving(self, kind: type[BaseException] | None) -> Steps[None]:
        """Commit at the end of the block what is not committed; nothing is stored when the block raises."""
        if kind is None and self.count and not self._numbers.over:
            yield from self._committing()

    add = call(_adding)
    commit = call(_committing)

    def _asking(self, message: Outgoing) -> Steps[bytes]:
        """The answer of the stream. What nobody took is not in the batch, and is sent again."""
        answer: BaseMessage = yield from self.client._persevering(
            message.subject, message.payload, self._timeout, message.headers
        )
        return answer.data


class Fast(Mailbox):
    """Publishes into a stream that answers once per many messages."""

    def __init__(
        self,
        js: Streams[Any],
        *,
        flow: int = 500,
        gaps: bool = False,
        timeout: Duration | None = None,
    ) -> None:
        """Open a batch of ordinary publishes with at least one answer per ``flow`` messages.

        Use it in ``with`` or ``async with``. With ``gaps`` it goes on when messages do not arrive or are
        refused.
        """
        self.client = js.client
        self._interest: Interest
        inbox = self.client.new_inbox()
        self.flow = FastFlow(inbox, self.client.new_id(), flow, gaps=gaps)
        """What the stream has answered: ``flow.gaps`` and ``flow.failures``."""
        self.result: PubAck | None = None
        """The PubAck of the whole batch, once it is committed."""
        self._connection = self.client._connection
        self._timeout = js._seconds_of(timeout)
        self._subject = ""
        self._first: tuple[bytes, str, bytes] = b"", "", b""  # its payload, reply and headers
        self._unserved = False  # whether no leader took the first message
        self._begin_until = 0.0
        self._closed = False
        self._heard = 0
        self.client._attach(f"{inbox}.>", self)

    def _on_message(self, message: BaseMessage) -> None:
        """An answer arrived."""
        self._heard += 1
        if message.status == 503 and self._may_begin_again():
            self._unserved = True
        else:
            self.flow._on_message(message)
        self._stir()

    def _may_begin_again(self) -> bool:
        """Whether the stream may only be electing a leader; no other message follows the first one yet."""
        client = self.client
        return client.clustered and not self.flow.started and client._clock() < self._begin_until

    def _on_end(self) -> None:
        """The client is closed: no answer follows."""
        if not self.flow.ended:
            why = f": {self._interest.failure}" if self._interest.failure else ""
            self.flow.error = ConnectionClosedError(
                f"the client was closed before the batch ended{why}"
            )
        self._stir()

    def _put(self, subject: str, data: bytes, headers: Headers | None) -> None:
        """Send a message; BatchEndedError when the batch is over."""
        block = encode_header_map(headers)
        reply = self.flow.reply_of_next()
        self._subject = subject
        if self.flow.count == 1:
            self._first = data, reply, block
            self._begin_until = self.client._clock() + self._timeout - RETRY_S
        self._connection.publish(subject, data, reply, block, sound_reply=True)

    def _making_room(self) -> Steps[None]:
        return self._settling(lambda: not self.flow.full)

    def _committing(self) -> Steps[PubAck]:
        """End the batch and return its ack; BatchEndedError when it lacks some of the messages."""
        if self.flow.count:
            yield from self._settling(lambda: self.flow.started)
        if not self.flow.ended:
            self._connection.publish(self._subject, b"", self.flow.reply_of_end(), b"")
            yield from self._settling(lambda: self.flow.ended)
        self._close()
        self.result = self.flow.outcome()
        return self.result

    commit = call(_committing)

    def _leaving(self, kind: type[BaseException] | None) -> Steps[None]:
        """Commit at the end of the block, unless that is done or nothing was published."""
        try:
            if kind is None and self.flow.count and self.result is None:
                yield from self._committing()
        finally:
            self._close()

    def _ping(self) -> None:
        """Queue a request for the stream's progress."""
        if self.flow.started and not self.flow.ended:
            self._connection.publish(self._subject, b"", self.flow.reply_of_ping(), b"")
            self.client._plan_flush()

    def _pinging(self) -> Steps[None]:
        """Ask for the stream's progress, which also keeps the batch open."""
        self._ping()
        yield SEND

    ping = call(_pinging)

    def _settling(self, done: Callable[[], bool]) -> Steps[None]:
        """Wait until ``done()`` holds; after a silence, ask the stream for its progress."""
        yield SEND
        silences = 0
        while not done():
            if self._unserved:
                yield from self._beginning_again()
                continue
            before = self._heard

            def heard(before: int = before) -> bool:
                return done() or self._heard != before

            if (yield Until(self, heard, self._timeout / 3)):
                silences = 0
            elif silences == 2:
                raise PeltonTimeoutError(
                    f"no answer from the stream of {self._subject!r} in {self._timeout} s"
                )
            else:
                silences += 1
                yield from self._pinging()

    def _beginning_again(self) -> Steps[None]:
        yield from pausing()
        self._unserved = False
        payload, reply, block = self._first
        self._connection.publish(self._subject, payload, reply, block, sound_reply=True)
        yield SEND

    def _close(self) -> None:
        if not self._closed:
            self.client._release(self._interest)
        self._closed = True
