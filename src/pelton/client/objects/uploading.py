"""The chunks of one object on their way into the stream: in order, a bounded number at a time.

Each chunk has a message id, so that the stream stores it once, however often it is sent. Acks carry
sequences; they must rise from chunk to chunk. When the connection breaks or acks do not come, the stream
is asked which chunks it has, and the others are sent again::

    sent        1 2 3 4 5 6 7          acked  1 2 3          the connection breaks
    the stream has 4 5          ─►     sent again  6 7
    the stream has 5 6          ─►     these are removed; sent again  4 5 6 7

In a cluster, a leader may lose chunks that its followers do not have yet, and the next one take those behind
them. What was removed is sent with another id. After such a disturbance the chunks are counted at the end.

Does not depend on transports.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pelton.core.protocol.wire import encode_headers
from pelton.errors import (
    ApiError,
    ConnectionClosedError,
    ConnectionLostError,
    MessageNotFoundError,
    NoRespondersError,
    ObjectDamagedError,
    PeltonError,
    PeltonTimeoutError,
)

from ..base.steps import SEND, Attach, Mailbox, Until, pausing
from ..jetstream.publishing import IN_PROCESS
from ..plans.jetstream import MSG_ID, decode_pub_ack
from .persisting import passing, persisting

if TYPE_CHECKING:
    from collections.abc import Callable

    from pelton.errors import PermissionsViolationError

    from ..base.interest import Interest
    from ..base.message import BaseMessage
    from ..base.steps import Steps
    from ..jetstream.streams import Streams
    from .sources import Chunk

T = TypeVar("T")

WINDOW_BYTES = 2 * 2**20
"""Bytes of chunks without an ack, at most; two chunks are always allowed."""
WINDOW_CHUNKS = 256
NO_RESPONDERS = 503


class Upload(Mailbox):
    """The chunks of one object; ``begin``, then ``send`` each, then ``finish``."""

    def __init__(self, js: Streams[Any], stream: str, subject: str, patience_s: float) -> None:
        """``patience_s``: how long to wait for the next ack."""
        self._interest: Interest
        self.acked = 0
        """The number of chunks that the stream has."""
        self.acked_bytes = 0
        self.sent = 0
        """The number of chunks that were sent."""
        self.held_bytes_max = 0
        """The most bytes that were held for chunks without an ack."""
        self._js = js
        self._client = js.client
        self._stream = stream
        self._subject = subject
        self._nuid = subject.rpartition(".")[2]
        self._patience_s = patience_s
        self._inbox = js.client.new_inbox()
        self._unanswered: deque[Chunk] = deque()  # chunks acked + 1 ... sent
        self._held = 0
        self._acks: dict[
            int, int
        ] = {}  # chunk to sequence; arrived before that of a chunk before it
        self._recent = deque([(0, 0)], WINDOW_CHUNKS + 2)  # chunks in order, with their sequences
        self._disorder = False  # whether one is stored before a chunk that it follows
        self._disturbed = False  # whether anything was sent again
        self._sure = 0, 0  # the last chunk that was surely in order before that
        self._numbers: dict[str, int] = {}  # of chunks without an answer, by their reply subjects
        self._series = 0  # of message ids
        self._rejected: set[int] = set()  # chunks that the stream will never take
        self._doubt = (
            False  # whether the connection broke, so that chunks may be stored without an ack
        )
        self._broken: PeltonError | None = None
        self._failure: PeltonError | None = None

    # -- called by the client ----------------------------------------------------------------------

    def _on_message(self, message: BaseMessage) -> None:
        """An ack arrived."""
        number = self._numbers.pop(message.subject, 0)
        if not self.acked < number <= self.sent:
            return  # of a chunk that was sent again, or of somebody else
        if message.status == NO_RESPONDERS:
            self._refuse(number, NoRespondersError(self._subject), passing=True)
            return
        try:
            ack = decode_pub_ack(message.data)
        except PeltonError as error:
            in_process = isinstance(error, ApiError) and error.err_code == IN_PROCESS
            self._refuse(number, error, passing=in_process)
            return
        self._acks[number] = ack.seq
        while (seq := self._acks.pop(self.acked + 1, None)) is not None:
            if seq <= self._recent[-1][1]:
                self._disorder = True
                self._broken = _out_of_order()
                break
            self._drop()
            self._recent.append((self.acked, seq))
        self._stir()

    def _drop(self) -> None:
        chunk = self._unanswered.popleft()
        self.acked += 1
        self.acked_bytes += len(chunk)
        self._held -= len(chunk)

    def _refuse(self, number: int, error: PeltonError, *, passing: bool) -> None:
        if passing:
            self._broken = error
        else:
            self._rejected.add(number)
            self._failure = self._failure or error
        self._stir()

    @property
    def may_be_stored(self) -> bool:
        """Whether the stream may have a chunk."""
        return self.acked > 0 or self._doubt or self.sent > len(self._rejected)

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

    # -- steps -------------------------------------------------------------------------------------

    def begin(self) -> Steps[None]:
        """Subscribe to the acks."""
        yield Attach(f"{self._inbox}.*", self)
        self._client._watchers.add(self)

    def close(self) -> None:
        """Stop receiving acks."""
        self._client._watchers.discard(self)
        if hasattr(self, "_interest"):
            self._client._release(self._interest)

    def send(self, chunk: Chunk) -> Steps[None]:
        """Send a chunk, after waiting for room. Raises the refusal of the stream, or PeltonTimeoutError."""
        if self._failure is not None or self._broken is not None or not self._has_room():
            yield from self._settling(self._has_room)
        self.sent += 1
        self._unanswered.append(chunk)
        self._held += len(chunk)
        self.held_bytes_max = max(self.held_bytes_max, self._held)
        try:
            self._publish(self.sent, chunk)
            yield SEND
        except (ConnectionLostError, PeltonTimeoutError) as error:
            self._broken = error

    def finish(self) -> Steps[None]:
        """Wait until the stream has every chunk, in order and once."""
        yield from self._settling(lambda: not self._unanswered)
        if self._disturbed and (yield from self._persisting(self._counting)) != self.sent:
            yield from self._tidying()

    def settle(self, seconds: float) -> Steps[None]:
        """Wait until the stream has answered for every chunk that was sent, whatever it answered."""
        yield Until(
            self,
            lambda: len(self._unanswered) <= len(self._rejected) or self._broken is not None,
            seconds,
        )

    def _has_room(self) -> bool:
        waiting = len(self._unanswered)
        return waiting < 2 or (self._held < WINDOW_BYTES and waiting < WINDOW_CHUNKS)

    def _publish(self, number: int, chunk: Chunk) -> None:
        suffix = f".{self._series}" if self._series else ""
        reply = f"{self._inbox}.{self._client._tokens.next()}"
        self._numbers[reply] = number
        self._client._connection.publish_chunk(
            self._subject,
            chunk,
            reply,
            encode_headers({MSG_ID: [f"{self._nuid}.{number}{suffix}"]}),
        )

    def _settling(self, done: Callable[[], bool]) -> Steps[None]:
        """Wait for acks until ``done()``."""
        clock = self._client._clock
        acked, deadline = self.acked, clock() + self._patience_s
        while True:
            if self._failure is not None:
                raise self._failure
            if self._broken is None and done():
                return
            if self.acked > acked:
                acked, deadline = self.acked, clock() + self._patience_s
            left = deadline - clock()
            if left <= 0:
                raise PeltonTimeoutError(
                    f"no ack of a chunk for {self._subject!r} in {self._patience_s} s"
                ) from self._broken
            if self._broken is not None:
                yield from self._resume()
                continue
            before = self.acked

            def news(before: int = before) -> bool:
                return (
                    self._failure is not None
                    or self._broken is not None
                    or done()
                    or self.acked > before
                )

            if not (yield Until(self, news, min(left, self._js.timeout))):
                self._broken = PeltonTimeoutError("no ack in time")

    def _resume(self) -> Steps[None]:
        """Learn what the stream has, and send the rest again."""
        again, self._broken = self._broken, None
        if not isinstance(again, ConnectionLostError):
            yield from pausing()
        self._numbers.clear()  # acks of what was sent before do not count
        self._acks.clear()
        if not self._disturbed:
            self._disturbed, self._sure = True, self._recent[0]
        stored = yield from self._persisting(self._counting)
        if stored < self.acked:
            raise _damaged(stored, self.acked, self.sent)
        if stored > self.acked or self._disorder:
            yield from self._sorting()
        if self._broken is not None:
            return  # lost again; the next attempt asks again
        try:
            for number, chunk in enumerate(self._unanswered, self.acked + 1):
                self._publish(number, chunk)
            yield SEND
        except (ConnectionLostError, PeltonTimeoutError) as error:
            self._broken = error

    def _sorting(self) -> Steps[None]:
        """Take what follows in the stream, up to a gap; remove what is after one."""
        last, strays = yield from self._walking(*self._recent[0 if self._disorder else -1])
        self._disorder = False
        while self.acked < last[0]:
            self._drop()
        self._recent.clear()
        self._recent.append(last)
        if strays:
            self._series += 1
            yield from self._removing(strays)

    def _tidying(self) -> Steps[None]:
        """Remove chunks that were stored twice, which happens when a late one arrives after its repetition."""
        last, strays = yield from self._walking(*self._sure)
        yield from self._removing(strays)
        stored = yield from self._persisting(self._counting)
        if last[0] != self.sent or stored != self.sent:
            raise _damaged(stored, self.acked, self.sent)

    def _walking(self, number: int, seq: int) -> Steps[tuple[tuple[int, int], list[int]]]:
        """From a chunk on: the last one that is in order, with its sequence; the sequences of all others."""
        last, strays = (number, seq), []
        while (found := (yield from self._next(seq))) is not None:
            seq, number = found
            if number == last[0] + 1:
                last = number, seq
            else:
                strays.append(seq)
        return last, strays

    def _next(self, seq: int) -> Steps[tuple[int, int] | None]:
        """The next chunk in the stream after a sequence: its own one, and its number."""
        try:
            message = yield from self._persisting(
                lambda: self._js._plans.get_message(
                    self._stream, seq + 1, next_by_subject=self._subject
                )
            )
        except MessageNotFoundError:
            return None
        number = (
            message.headers.get(MSG_ID, [""])[0].removeprefix(f"{self._nuid}.").partition(".")[0]
        )
        return message.seq, int(number) if number.isdigit() else 0

    def _removing(self, seqs: list[int]) -> Steps[None]:
        """Remove messages; what the stream does not remove is found when all are counted."""
        delete = self._js._plans.delete_message
        for seq in seqs:
            try:
                yield from self._persisting(partial(delete, self._stream, seq, erase=False))
            except ApiError as error:
                if passing(error):
                    raise

    def _persisting(self, attempt: Callable[[], Steps[T]]) -> Steps[T]:
        return persisting(self._client, attempt, self._patience_s)

    def _counting(self) -> Steps[int]:
        info = yield from self._js._plans.stream_info(self._stream, subjects_filter=self._subject)
        return info.state.subjects.get(self._subject, 0)


def _out_of_order() -> ObjectDamagedError:
    return ObjectDamagedError("the stream stored chunks out of order: put the object again")


def _damaged(stored: int, acked: int, sent: int) -> ObjectDamagedError:
    return ObjectDamagedError(
        f"the stream has {stored} chunks of {acked} acknowledged and {sent} sent ones: "
        "put the object again"
    )
