"""Batches of publishes into one stream, as numbers and answers, without transport or waiting.

An **atomic** batch is stored as a whole or not at all. Its messages have its id and their number in
headers, and the last one also says commit. So the client holds each message back until the next one
is added, or until the commit.

A **fast** batch is many ordinary publishes with few answers. The position of a message in its batch
is in its reply subject::

    <inbox>.<batch>.<flow>.<ok|fail>.<number>.<operation>.$FI

The stream answers once per many messages with its progress (``ack``), reports gaps and errors, and
ends with one PubAck.

``AtomicNumbers`` and ``FastFlow`` keep the numbers. ``FastBatchBase`` has what the fast batches of both halves do
without waiting.
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
    ProtocolError,
)

from .base.answers import decode_pub_ack
from .base.arguments import check_literal, check_number, refuse
from .base.mailbox import RETRY_S, Interest, Mailbox
from .base.message import (
    BaseMessage,
    HeadersLike,
    encode_header_map,
    merged_headers,
    publish_headers,
)

if TYPE_CHECKING:
    from typing import Any

    from .base.durations import Duration
    from .base.models import PubAck

# Operations of ADR-50. 2 would commit with a message; here the end is a message without content.
START, APPEND, COMMIT_EOB, PING = 0, 1, 3, 4
COMMIT = b"Nats-Batch-Commit: 1\r\n\r\n"
"""The end of the headers of an atomic batch's last message."""
# With one, the client would stand still while the next ack is on its way.
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
        check_number("ack_every", ack_every, least=1)
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
        headers: HeadersLike | None,
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
        if not isinstance(payload, bytes):
            refuse("data", "bytes", payload)
        place = {"Nats-Batch-Id": self.id, "Nats-Batch-Sequence": str(self.count + 1)}
        block = publish_headers(
            merged_headers(headers, place),
            msg_id=msg_id,
            expected_last_seq=expected_last_seq,
            expected_last_subject_seq=expected_last_subject_seq,
            ttl=ttl,
        )
        # Any message may become the last one: then COMMIT replaces the empty line at the end of its headers.
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
        # The first message always asks: a stream without atomic batches would store each message at once.
        return before, self.count == 2 or (self.count - 1) % self._ack_every == 0

    def commit(self) -> Outgoing:
        """The last message, whose answer is the PubAck; ValueError when there is none."""
        if self.over or self._held is None:
            raise ValueError(f"batch {self.id} is over" if self.over else "the batch is empty")
        last, self._held, self.over = self._held, None, True
        return last._replace(headers=last.headers[:-2] + COMMIT)


def check_staged(answer: bytes) -> None:
    """Check the answer to a message of an open atomic batch; ApiError when the stream refused it."""
    # A message that is only staged gets an empty answer (ADR-50).
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
        check_number("flow", flow, least=1)
        check_number("unanswered", unanswered, least=1)
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
        # ADR-50: after the first message the client waits, because the answer to it has the pace that the
        # stream allows.
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
        # With the number of the last message: a ping that gets lost must not look like a gap (ADR-50).
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
            # A ping repeats an earlier ack.
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
                # An older server knows no batches: for it, this was an ordinary publish.
                if result.batch:
                    self.result = result
                else:
                    self.error = ProtocolError(_stored_at_once(result, "fast batches", "2.14"))

    def _reply(self, number: int, operation: int) -> str:
        return f"{self._prefix}.{number}.{operation}.$FI"


class FastBatchBase(Mailbox):
    """The state of a fast batch, and what it does with answers; nothing here waits."""

    def __init__(
        self,
        js: Any,
        *,
        flow: int = 500,
        gaps: bool = False,
        timeout: Duration | None = None,
    ) -> None:
        """Made by ``JetStream.fast_batch``."""
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

    def _put(self, subject: str, data: bytes, headers: HeadersLike | None) -> None:
        """Send a message; BatchEndedError when the batch is over."""
        block = encode_header_map(headers)
        reply = self.flow.reply_of_next()
        if self.flow.count == 1:
            self._first = data, reply, block
            # Until then the first message is sent again while no leader takes it.
            self._begin_until = self.client._clock() + self._timeout - RETRY_S
        try:
            self._connection.publish(subject, data, reply, block, sound_reply=True)
        except BaseException:  # nothing was sent: the stream would wait for that number
            self.flow.count -= 1
            raise
        self._subject = subject

    def _ping(self) -> None:
        """Queue a request for the stream's progress."""
        if self.flow.started and not self.flow.ended:
            self._connection.publish(self._subject, b"", self.flow.reply_of_ping(), b"")
            self.client._plan_flush()

    def _begin_again(self) -> None:
        """Send the first message once more: no leader took it."""
        self._unserved = False
        payload, reply, block = self._first
        self._connection.publish(self._subject, payload, reply, block, sound_reply=True)

    def _close(self) -> None:
        if not self._closed:
            self.client._release(self._interest)
        self._closed = True
