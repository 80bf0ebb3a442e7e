"""The state of uploads and downloads: chunks that are sent, acknowledged, asked for and received.

``aio/objecttransfers.py`` waits for what these classes are told by the client. Nothing here waits.
"""

from __future__ import annotations

import hashlib
from collections import deque
from typing import TYPE_CHECKING, Any

from pelton.api import encode
from pelton.api.calls import MsgGetRequest
from pelton.core.protocol.wire import encode_headers
from pelton.errors import (
    ApiError,
    ConnectionClosedError,
    ConnectionLostError,
    NoRespondersError,
    ObjectDamagedError,
    OutputFullError,
    PeltonError,
    PeltonTimeoutError,
    PermissionsViolationError,
    ProtocolError,
)

from ..base.answers import IN_PROCESS, decode_pub_ack
from ..base.mailbox import Interest, Mailbox
from ..base.message import MSG_ID, BaseMessage, Headers
from ..consume.ordered import LEADERLESS
from .models import CHUNK_BYTES, ObjectInfo, same_digest

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..session.session import Session
    from .sources import Chunk

UPLOAD_BYTES = 2 * 2**20
"""Bytes of chunks without an ack, at most; two chunks are always allowed."""
# Also a number: chunks may be small, and each needs an entry and an ack.
UPLOAD_CHUNKS = 256
DOWNLOAD_BYTES = 4 * 2**20
"""Bytes of chunks that are asked for at once; at least two chunks are."""
DOWNLOAD_CHUNKS = 1024
NO_RESPONDERS = 503
SEQUENCE = "Nats-Sequence"
PENDING = "Nats-Num-Pending"


class Deadline:
    """The end of a call that makes no progress. Every progress moves it."""

    def __init__(self, clock: Callable[[], float], seconds: float, attempt_s: float) -> None:
        """``attempt_s``: how long to wait for one answer, at most, before the request is repeated."""
        self.seconds = seconds
        self._clock = clock
        # Half of the time, so that an answer that got lost is asked for again before the call fails.
        self._attempt_s = min(attempt_s, seconds / 2)
        self._at = clock() + seconds

    def renew(self) -> None:
        """The call has made progress."""
        self._at = self._clock() + self.seconds

    @property
    def left(self) -> float:
        """How many seconds are left."""
        return max(0.0, self._at - self._clock())

    @property
    def attempt_s(self) -> float:
        """How long to wait for the next answer."""
        return min(self._attempt_s, self.left)


def passing(error: BaseException, *, served: bool = True) -> bool:
    """Whether the same call may succeed soon after this error.

    ``served``: whether the server has answered such a call before, so that silence means a restart.
    """
    if isinstance(error, ApiError):
        return error.err_code in LEADERLESS
    if isinstance(error, NoRespondersError):
        return served
    return isinstance(error, ConnectionLostError | OutputFullError | PeltonTimeoutError)


class Transfer(Mailbox):
    """What uploads and downloads have in common: answers below an inbox of their own."""

    def __init__(self, client: Session, subject: str, deadline: Deadline) -> None:
        """``subject`` is that of the object's chunks."""
        self._interest: Interest
        self.held_bytes_max = 0
        """The most bytes of chunks that were held in memory."""
        self.client = client
        self._subject = subject
        self._deadline = deadline
        self._inbox = client.new_inbox()

    def _subscribe(self) -> None:
        """Receive answers from now on."""
        self._interest = self.client._connection.subscribe(f"{self._inbox}.*", "", self)
        self.client._watchers.add(self)

    def close(self) -> None:
        """Receive no more answers."""
        self.client._watchers.discard(self)
        # ``begin`` may have failed before it subscribed.
        if hasattr(self, "_interest"):
            self.client._release(self._interest)


class UploadState(Transfer):
    """The chunks of one object on their way into the stream: in order, a bounded number at a time."""

    def __init__(self, client: Session, subject: str, deadline: Deadline) -> None:
        """No chunk is sent yet."""
        super().__init__(client, subject, deadline)
        self.acked = 0
        """The number of chunks that the stream has."""
        self.acked_bytes = 0
        self.sent = 0
        """The number of chunks that were sent."""
        self._nuid = subject.rpartition(".")[2]
        self._unanswered: deque[Chunk] = deque()  # chunks acked + 1 ... sent
        self._held = 0
        self._acks: dict[int, int] = {}  # chunk to sequence, before that of a chunk before it
        self._recent = deque([(0, 0)], UPLOAD_CHUNKS + 2)  # chunks in order, with their sequences
        self._disorder = False  # whether one is stored before a chunk that it follows
        self._numbers: dict[str, int] = {}  # of chunks without an answer, by their reply subjects
        self._series = 0  # of message ids
        self._rejected: set[int] = set()  # chunks that the stream will never take
        self._doubt = False  # whether chunks may be stored without an ack: the connection broke
        self._broken: PeltonError | None = None  # why chunks must be sent again
        self._failure: PeltonError | None = None

    @property
    def may_be_stored(self) -> bool:
        """Whether the stream may have a chunk."""
        return self.acked > 0 or self._doubt or self.sent > len(self._rejected)

    def _on_message(self, message: BaseMessage) -> None:
        """An ack arrived."""
        number = self._numbers.pop(message.subject, 0)
        if not self.acked < number <= self.sent:
            return  # of a chunk that was sent again, or of somebody else
        if message.status == NO_RESPONDERS:
            self._refuse(number, NoRespondersError(self._subject), again=True)
            return
        try:
            ack = decode_pub_ack(message.data)
        except PeltonError as error:
            # The first copy of the chunk is still being stored: the stream is asked soon whether it has it.
            in_process = isinstance(error, ApiError) and error.err_code == IN_PROCESS
            self._refuse(number, error, again=in_process)
            return
        # Acks may come in another order than chunks; they count as far as there is no gap.
        self._acks[number] = ack.seq
        while (seq := self._acks.pop(self.acked + 1, None)) is not None:
            # A lost chunk was stored again, behind those that follow it.
            if seq <= self._recent[-1][1]:
                self._disorder = True
                self._broken = ObjectDamagedError(
                    "the stream stored chunks out of order: put the object again"
                )
                break
            self._drop()
            self._recent.append((self.acked, seq))
        self._stir()

    def _drop(self) -> None:
        chunk = self._unanswered.popleft()
        self.acked += 1
        self.acked_bytes += len(chunk)
        self._held -= len(chunk)

    def _refuse(self, number: int, error: PeltonError, *, again: bool) -> None:
        if again:
            self._broken = error
        else:
            self._rejected.add(number)
            # The first one: later refusals are often a consequence of it.
            self._failure = self._failure or error
        self._stir()

    def _on_lost(self, error: PeltonError) -> None:
        """The connection broke, or the client was closed."""
        self._doubt = True
        if isinstance(error, ConnectionLostError):
            self._broken = error
        else:
            self._failure = error
        self._stir()

    def _on_refused(self, complaint: PermissionsViolationError) -> None:
        """The server does not permit a publish, which may be one of these."""
        if f'"{self._subject}"' in complaint.text:
            self._failure = complaint
            self._stir()

    def _on_end(self) -> None:
        """The client is closed: no ack follows."""
        if self._failure is None:
            self._failure = ConnectionClosedError("the client was closed during a put")
        self._stir()

    def _has_room(self) -> bool:
        waiting = len(self._unanswered)
        # Two at least, however large: with one, the line would be idle until each ack.
        return waiting < 2 or (self._held < UPLOAD_BYTES and waiting < UPLOAD_CHUNKS)

    def _add(self, chunk: Chunk) -> None:
        """Queue one more chunk."""
        self.sent += 1
        self._unanswered.append(chunk)
        self._held += len(chunk)
        self.held_bytes_max = max(self.held_bytes_max, self._held)
        self._publish([(self.sent, chunk)])

    def _add_again(self) -> None:
        """Queue the chunks without an ack once more."""
        self._publish(enumerate(self._unanswered, self.acked + 1))

    def _publish(self, chunks: Any) -> None:
        suffix = f".{self._series}" if self._series else ""
        try:
            for number, chunk in chunks:
                reply = f"{self._inbox}.{self.client._tokens.next()}"
                self._numbers[reply] = number
                headers = encode_headers({MSG_ID: [f"{self._nuid}.{number}{suffix}"]})
                self.client._connection.publish_chunk(self._subject, chunk, reply, headers)
        except ConnectionLostError as error:
            # Chunks that were not sent stay without an answer: they go out once the stream was asked.
            self._broken = error

    def _number_of(self, headers: Headers) -> int:
        """Which chunk a stored message is; 0 when its id is not one of these."""
        text = headers.get(MSG_ID, "").removeprefix(f"{self._nuid}.").partition(".")[0]
        return int(text) if text.isdigit() else 0


class DownloadState(Transfer):
    """The chunks of one object on their way to the reader, a bounded number at a time."""

    def __init__(
        self, client: Session, subject: str, deadline: Deadline, info: ObjectInfo, asked: str
    ) -> None:
        """``asked``: the subject of direct gets."""
        super().__init__(client, subject, deadline)
        self.done = 0
        """The bytes that the reader has got."""
        self._info = info
        self._asked = asked
        size = info.chunk_size or -(-info.size // max(1, info.chunks)) or CHUNK_BYTES
        self._window = min(max(2, DOWNLOAD_BYTES // size), DOWNLOAD_CHUNKS)
        self._digest = hashlib.sha256()
        self._queue: deque[BaseMessage] = deque()
        self._queued = 0
        self._chunks = 0  # taken
        self._next_seq = 1
        self._reply = ""  # where the answers of this round arrive
        self._left = 0  # chunks of this round that are still to come; 0: ask again
        self._missing = 0  # how often in a row the stream had no further chunk
        self._error: PeltonError | None = None

    def _on_message(self, message: BaseMessage) -> None:
        """An answer arrived."""
        # Late answers of the request before would deliver chunks twice.
        if message.subject == self._reply:
            self._queue.append(message)
            self._queued += len(message.data)
            self.held_bytes_max = max(self.held_bytes_max, self._queued)
            self._stir()

    def _on_lost(self, error: PeltonError) -> None:
        """The connection broke, or the client was closed."""
        self._error = error
        self._stir()

    def _on_refused(self, complaint: PermissionsViolationError) -> None:
        """The server does not permit an operation, which may be these requests."""
        if self._inbox in complaint.text or f'"{self._asked}"' in complaint.text:
            self._error = complaint
            self._stir()

    def _on_end(self) -> None:
        """The client is closed: no answer follows."""
        self._error = ConnectionClosedError("the client was closed during a get")
        self._stir()

    def _has_news(self) -> bool:
        return bool(self._queue) or self._error is not None

    def _begin_round(self) -> None:
        """Take nothing more of the last request."""
        # One for each round, below one subscription: it tells late answers apart without a round trip.
        self._reply = f"{self._inbox}.{self.client._tokens.next()}"
        self._left = 0
        self._queue.clear()
        self._queued = 0

    def _request(self) -> None:
        """Queue a request for the next chunks; ConnectionLostError, OutputFullError."""
        self._begin_round()
        # The number in the properties may be wrong or missing: the size decides when all is here.
        left = max(1, self._info.chunks - self._chunks)
        count = min(self._window, left)
        # A single chunk needs no batch, whose end is one more message (ADR-31).
        request = MsgGetRequest(
            seq=self._next_seq, next_by_subj=self._subject, batch=count if left > 1 else 0
        )
        self.client._connection.publish(self._asked, encode(request), self._reply, sound_reply=True)
        self._left = count

    def _next_message(self) -> BaseMessage:
        message = self._queue.popleft()
        self._queued -= len(message.data)
        return message

    def _take(self, message: BaseMessage) -> bytes:
        """The chunk of an answer."""
        seq = (message.headers.get_all(SEQUENCE) or [""])[
            -1
        ]  # after one that the chunk was stored with
        if not seq.isdigit() or int(seq) < self._next_seq:
            raise ProtocolError(f"unexpected answer to a direct get: {message.headers!r}")
        self._next_seq = int(seq) + 1
        self._missing = 0
        self._chunks += 1
        self._left -= 1
        if message.header(PENDING) is None:
            self._left = 0  # not an answer of a batch, so no other one follows
        return message.data

    def _hand_over(self, chunks: list[bytes]) -> list[bytes]:
        """The chunks, counted and hashed."""
        for chunk in chunks:
            self._digest.update(chunk)
            self.done += len(chunk)
        return chunks

    def _check(self) -> None:
        """Raise ObjectDamagedError unless the object is complete."""
        info = self._info
        where = f"object {info.name!r} in bucket {info.bucket!r} is damaged:"
        if self.done != info.size:
            raise ObjectDamagedError(f"{where} it has {self.done} bytes instead of {info.size}")
        if info.size and not same_digest(info.digest, self._digest.digest()):
            raise ObjectDamagedError(f"{where} its bytes do not have the digest {info.digest!r}")
