"""The chunks of one object on their way to the reader: by direct gets, a bounded number at a time.

A request asks for the next few chunks; the answers come without a consumer. The next request goes out with
the last answer of the one before::

    from sequence 1, 32 chunks    ──►  chunk, chunk ... chunk
    from sequence 95, 32 chunks   ──►  chunk, chunk, 204 (no more in this batch)
    from sequence 97, 32 chunks   ──►  the connection breaks: asked again

A server before 2.11 answers each request with one chunk. A stream without direct get, or whose server has
none, is read with plain requests. Does not depend on transports.
"""

from __future__ import annotations

import hashlib
from collections import deque
from typing import TYPE_CHECKING, Any

from pelton.api import encode
from pelton.api.calls import MsgGetRequest
from pelton.errors import (
    ConnectionClosedError,
    ConnectionLostError,
    MessageNotFoundError,
    ObjectDamagedError,
    OutputFullError,
    PeltonTimeoutError,
    ProtocolError,
)

from ..base.steps import SEND, Attach, Mailbox, Until, pausing
from .models import CHUNK_BYTES, same_digest
from .persisting import persisting

if TYPE_CHECKING:
    from pelton.errors import PeltonError, PermissionsViolationError

    from ..base.interest import Interest
    from ..base.message import BaseMessage
    from ..base.steps import Steps
    from ..jetstream.streams import Streams
    from .models import ObjectInfo

WINDOW_BYTES = 4 * 2**20
"""Bytes of chunks that are asked for at once; at least two chunks are."""
WINDOW_CHUNKS = 1024
END_OF_BATCH = 204
NOT_FOUND = 404
NO_RESPONDERS = 503
MISSING_MAX = 8
"""How often a chunk that is not there is asked for in a cluster, where a replica may be behind."""
SEQUENCE = "Nats-Sequence"
PENDING = "Nats-Num-Pending"


class ChunkMissing(Exception):
    """The stream has no further chunk of the object; its owner finds out why."""


class Download(Mailbox):
    """The chunks of one object: ``begin``, then ``more`` until it returns an empty list."""

    def __init__(
        self, js: Streams[Any], stream: str, subject: str, info: ObjectInfo, patience_s: float
    ) -> None:
        """``patience_s``: how long to wait for the next chunk."""
        self._interest: Interest
        self.done = 0
        """The bytes that ``more`` has returned."""
        self.held_bytes_max = 0
        """The most bytes of chunks that waited for the reader."""
        self._js = js
        self._client = js.client
        self._stream = stream
        self._subject = subject
        self._info = info
        self._patience_s = patience_s
        size = info.chunk_size or -(-info.size // max(1, info.chunks)) or CHUNK_BYTES
        self._window = min(max(2, WINDOW_BYTES // size), WINDOW_CHUNKS)
        self._digest = hashlib.sha256()
        self._inbox = js.client.new_inbox()
        self._queue: deque[BaseMessage] = deque()
        self._queued = 0
        self._chunks = 0  # taken
        self._next_seq = 1
        self._reply = ""  # where the answers of this round arrive
        self._left = 0  # chunks of this round that are still to come; 0: ask again
        self._missing = 0
        self._plain = False  # whether the stream takes no direct gets
        self._error: PeltonError | None = None

    # -- called by the client ----------------------------------------------------------------------

    def _on_message(self, message: BaseMessage) -> None:
        """An answer arrived."""
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
        """The server does not permit something, which may be these requests."""
        if self._inbox in complaint.text or f".DIRECT.GET.{self._stream}" in complaint.text:
            self._error = complaint
            self._stir()

    def _on_end(self) -> None:
        """The client is closed: no answer follows."""
        self._error = ConnectionClosedError("the client was closed during a get")
        self._stir()

    def _has_news(self) -> bool:
        return bool(self._queue) or self._error is not None

    # -- steps -------------------------------------------------------------------------------------

    def begin(self) -> Steps[None]:
        """Subscribe to the answers."""
        yield Attach(f"{self._inbox}.*", self)
        self._client._watchers.add(self)

    def close(self) -> None:
        """Stop receiving answers."""
        self._client._watchers.discard(self)
        if hasattr(self, "_interest"):
            self._client._release(self._interest)

    def more(self) -> Steps[list[bytes]]:
        """The next chunks, as soon as there are any; empty when the object is complete.

        Raises ObjectDamagedError, ChunkMissing, PeltonTimeoutError, ConnectionClosedError.
        """
        clock = self._client._clock
        deadline = clock() + self._patience_s
        while self.done < self._info.size:
            if self._plain:
                chunks = yield from self._one()
            else:
                chunks = yield from self._some(deadline)
            if chunks:
                for chunk in chunks:
                    self._digest.update(chunk)
                    self.done += len(chunk)
                return chunks
            if clock() >= deadline:
                raise PeltonTimeoutError(f"no chunk of {self._info.name!r} in {self._patience_s} s")
        self._check()
        return []

    def _check(self) -> None:
        info = self._info
        where = f"object {info.name!r} in bucket {info.bucket!r} is damaged:"
        if self.done != info.size:
            raise ObjectDamagedError(f"{where} it has {self.done} bytes instead of {info.size}")
        if info.size and not same_digest(info.digest, self._digest.digest()):
            raise ObjectDamagedError(f"{where} its bytes do not have the digest {info.digest!r}")

    # -- direct gets -------------------------------------------------------------------------------

    def _some(self, deadline: float) -> Steps[list[bytes]]:
        """The chunks that have arrived, after asking and waiting if needed; may be none."""
        client = self._client
        if not self._left:
            yield from self._ask()
        seconds = min(self._js.timeout, max(0.0, deadline - client._clock()))
        arrived = yield Until(self, self._has_news, seconds)
        if self._error is not None or not arrived:
            error, self._error = self._error, None
            if error is not None and not isinstance(error, ConnectionLostError):
                raise error
            self._begin_round()
            if error is not None:
                yield from pausing()
            return []
        chunks: list[bytes] = []
        while self._queue:
            message = self._queue.popleft()
            self._queued -= len(message.data)
            status = message.status
            if status == 0:
                chunks.append(self._take(message))
            else:
                yield from self._on_status(status, message)
        if chunks and not self._left and self.done + sum(map(len, chunks)) < self._info.size:
            yield from self._ask()  # the server works while the reader does
        return chunks

    def _begin_round(self) -> None:
        self._reply = f"{self._inbox}.{self._client._tokens.next()}"
        self._left = 0
        self._queue.clear()
        self._queued = 0

    def _ask(self) -> Steps[None]:
        self._begin_round()
        left = max(1, self._info.chunks - self._chunks)
        self._left = min(self._window, left)
        request = MsgGetRequest(
            seq=self._next_seq, next_by_subj=self._subject, batch=self._left if left > 1 else 0
        )
        subject = self._js._plans.subjects.direct_get(self._stream)
        try:
            self._client._connection.publish(
                subject, encode(request), self._reply, sound_reply=True
            )
            yield SEND
            if self._client._connection.connected:
                self._client._flush_output()
        except (ConnectionLostError, OutputFullError, PeltonTimeoutError):
            self._left = 0
            yield from pausing()

    def _take(self, message: BaseMessage) -> bytes:
        seq = message.headers.get(SEQUENCE, [""])[-1]  # after one that the chunk was stored with
        if not seq.isdigit() or int(seq) < self._next_seq:
            raise ProtocolError(f"unexpected answer to a direct get: {message.headers!r}")
        self._next_seq = int(seq) + 1
        self._missing = 0
        self._chunks += 1
        self._left -= 1
        if message.header(PENDING) is None:
            self._left = 0  # not an answer of a batch, so no other one follows
        return message.data

    def _on_status(self, status: int, message: BaseMessage) -> Steps[None]:
        self._left = 0
        if status == END_OF_BATCH:
            return
        if status == NO_RESPONDERS:
            self._plain = True
        elif status == NOT_FOUND:
            yield from self._on_missing()
        else:
            raise ProtocolError(f"a direct get was refused: {status} {message.description}")

    def _on_missing(self) -> Steps[None]:
        self._missing += 1
        if not self._client.clustered or self._missing > MISSING_MAX:
            raise ChunkMissing
        yield from pausing()

    # -- plain requests ----------------------------------------------------------------------------

    def _one(self) -> Steps[list[bytes]]:
        self._plain = False
        try:
            message = yield from persisting(
                self._client,
                lambda: self._js._plans.get_message(
                    self._stream, self._next_seq, next_by_subject=self._subject
                ),
                self._patience_s,
            )
        except MessageNotFoundError:
            raise ChunkMissing from None
        self._next_seq = message.seq + 1
        self._chunks += 1
        return [message.data]
