"""Uploads and downloads of objects, and the requests about the objects of one bucket.

An upload sends a bounded number of chunks at a time. Each has a message id, so the stream stores it once, however
often it is sent. Acks carry sequences, which must rise from chunk to chunk. When the connection breaks or acks
do not come, the stream is asked which chunks it has, and the others are sent again::

    sent        1 2 3 4 5 6 7          acked  1 2 3          the connection breaks
    the stream has 4 5          ─►     sent again  6 7
    the stream has 5 6          ─►     these are removed; sent again  4 5 6 7

In a cluster, a leader may lose chunks that its followers do not have yet, and the next one may take those behind
them. A removed chunk is sent with another id. After such a disturbance the chunks are counted at the end.

A download asks for the next few chunks with a direct get; the answers come without a consumer. The next request
goes out with the last answer of the one before::

    from sequence 1, 32 chunks    ──►  chunk, chunk ... chunk
    from sequence 95, 32 chunks   ──►  chunk, chunk, 204 (no more in this batch)
    from sequence 97, 32 chunks   ──►  the connection breaks: asked again

A server before 2.11 answers each request with one chunk. A stream without direct get is read with plain requests.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from pelton.api import encode
from pelton.api.calls import StreamPurgeRequest
from pelton.errors import (
    ApiError,
    ConnectionLostError,
    MessageNotFoundError,
    NoRespondersError,
    ObjectDamagedError,
    ObjectReplacedError,
    OutputFullError,
    PeltonError,
    PeltonTimeoutError,
    ProtocolError,
    StreamNotFoundError,
    WrongLastSequenceError,
)

from ..base.durations import Duration, seconds_of
from ..base.mailbox import RETRY_S
from ..objects.models import (
    ObjectInfo,
    chunk_subject,
    decode_meta,
    digest_text,
    encode_meta,
    meta_subject,
    stream_of,
)
from ..objects.sources import Chunk, FileSource, PieceSource, Progress, Source
from ..objects.transfers import NO_RESPONDERS, Deadline, DownloadState, UploadState, passing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ..base.message import BaseMessage
    from .connection import Client
    from .jetstream import JetStream

T = TypeVar("T")

END_OF_BATCH = 204
NOT_FOUND = 404
MISSING_MAX = 8
"""How often a chunk that is not there is asked for in a cluster, where a replica may be behind."""
# The stream then removes the earlier properties of the object (ADR-20).
ROLLUP = {"Nats-Rollup": "sub"}


class ObjectStream:
    """The stream of one bucket: the messages about its objects, and their chunks.

    An object exists once the message with its properties does. That message expects the one that the writer
    read, so of two writers of one name each knows whose chunks it replaces, and removes them.
    """

    def __init__(self, js: JetStream, bucket: str) -> None:
        """Sends no request; ValueError for a name that no bucket can have."""
        self.name = stream_of(bucket)
        self.bucket = bucket
        self.js = js
        self.client: Client = js.client
        self._limited = js

    def deadline(self, timeout: Duration | None = None) -> Deadline:
        """The deadline of a call: by default that of all calls."""
        seconds = self.js.timeout if timeout is None else seconds_of("timeout", timeout)
        return Deadline(self.client._clock, seconds, self.js.timeout)

    def within(self, seconds: float) -> JetStream:
        """The same API, whose calls wait for at most ``seconds``."""
        if seconds != self._limited.timeout:  # most requests have the time of the one before
            prefix = self.js.subjects.prefix
            self._limited = self.client.jetstream(prefix=prefix, timeout=seconds)
        return self._limited

    async def repeat(
        self,
        attempt: Callable[[JetStream], Awaitable[T]],
        deadline: Deadline,
        *,
        served: bool = True,
    ) -> T:
        """Repeat a request until it succeeds, fails for good, or the deadline is over: then its last error."""
        while True:
            try:
                # Never longer than the call may take, however long the requests of JetStream wait.
                return await attempt(self.within(deadline.attempt_s))
            except PeltonError as error:
                again = passing(error, served=served or self.client.clustered)
                if not again or self.client.closed:
                    raise
                if not deadline.left:
                    if isinstance(error, ApiError | NoRespondersError):
                        raise  # it says more than that the time is over
                    text = f"no answer about stream {self.name!r} in {deadline.seconds} s"
                    raise PeltonTimeoutError(text) from error
            await self.client._sleep(min(RETRY_S, deadline.left))

    # -- messages about objects --------------------------------------------------------------------

    async def look(
        self, name: str, deadline: Deadline, *, served: bool = True
    ) -> tuple[ObjectInfo | None, int]:
        """What the stream's leader knows, and the sequence to expect when it is replaced."""
        subject = meta_subject(self.bucket, name)
        try:
            found = await self.repeat(
                lambda js: js.get_message(self.name, last_by_subject=subject),
                deadline,
                served=served,
            )
        except MessageNotFoundError:
            return None, 0
        try:
            return decode_meta(found.data, self.bucket, found.timestamp_ns), found.seq
        except ObjectDamagedError:
            return None, found.seq  # it is replaced

    async def store(self, info: ObjectInfo, expected_seq: int, seconds: float) -> int:
        """Store the properties in place of those of a sequence; returns theirs."""
        ack = await self.js.publish(
            meta_subject(self.bucket, info.name),
            encode_meta(info),
            headers=ROLLUP,
            timeout=seconds,
            expected_stream=self.name,
            expected_last_subject_seq=expected_seq,
        )
        return ack.seq

    async def try_to_store(self, info: ObjectInfo, seq: int, deadline: Deadline) -> bool:
        """Store the properties; False when the stream has others, or these already, or may have them."""
        try:
            await self.store(info, seq, deadline.attempt_s)
        except WrongLastSequenceError:
            return False
        except PeltonError as error:
            # Without an ack nobody knows whether it is stored: the caller looks, and does not send it blindly.
            if not passing(error) or not deadline.left:
                raise
            await self.client._sleep(min(RETRY_S, deadline.left))
            return False
        return True

    async def commit(
        self, info: ObjectInfo, before: ObjectInfo | None, seq: int, deadline: Deadline
    ) -> ObjectInfo | None:
        """Store the properties in place of those that were read; returns what they replaced."""
        while not await self.try_to_store(info, seq, deadline):
            found, seq = await self.look(info.name, deadline)
            # An earlier attempt may have stored it, without an ack.
            if found is not None and found.nuid == info.nuid and found.deleted == info.deleted:
                break
            before = found
        return before

    # -- chunks ------------------------------------------------------------------------------------

    async def purge(self, nuid: str, deadline: Deadline) -> None:
        """Remove the chunks of an object."""
        subject = chunk_subject(self.bucket, nuid)
        await self.repeat(lambda js: js.purge_stream(self.name, filter_subject=subject), deadline)

    def purge_unanswered(self, nuid: str) -> None:
        """Ask a server that does not answer to remove the chunks, once it goes on.

        nats-server may do that before it stores the chunks that arrive with the request, so some may stay.
        """
        subject = self.js.subjects.stream("PURGE", self.name)
        request = StreamPurgeRequest(filter=chunk_subject(self.bucket, nuid))
        if self.client.connected:
            self.client._connection.publish(subject, encode(request))
            self.client._write_queued()

    async def remove_replaced(self, before: ObjectInfo | None, deadline: Deadline) -> None:
        """Remove the chunks of the object that was replaced; a failure harms nobody."""
        if before is None or before.deleted or before.link is not None or not before.nuid:
            return
        # The put itself may have used up its time.
        deadline.renew()
        nuid = before.nuid
        try:
            # The new object is complete, so its writer gets no error for this.
            await complete(lambda: self.purge(nuid, deadline), deadline, self.remains(nuid))
        except PeltonError as error:
            self.client._report(error)

    def remains(self, nuid: str) -> str:
        """A note about chunks that nobody could remove."""
        subject = chunk_subject(self.bucket, nuid)
        return f"chunks of it may have stayed, purge {subject!r} of stream {self.name!r}"


async def complete(attempt: Callable[[], Awaitable[T]], deadline: Deadline, remains: str) -> T:
    """Carry out what may be done twice; when it is cancelled, do it once more before the cancel goes on.

    A message that is on its way may be stored at any time, so what was begun can only be completed.
    ``remains`` is a note for the error when it cannot be completed.
    """
    try:
        return await attempt()
    except GeneratorExit:  # nothing may be awaited any more
        raise
    except PeltonError as error:
        if passing(error):
            error.add_note(remains)
        raise
    except BaseException as error:
        deadline.renew()  # what is completed now has its own time
        try:
            await attempt()
        except PeltonError as reason:
            error.add_note(f"{remains}: {reason}")
        raise


# -- uploads ---------------------------------------------------------------------------------------


async def read_chunks(client: Client, source: Source) -> list[Chunk]:
    """The next chunks of a source; empty at the end."""
    if isinstance(source, FileSource):
        return await client._work(source.read, finishes=source.finishes)
    # Iterators run here and not in a thread: they may use the client, or what belongs to this thread.
    if isinstance(source, PieceSource):
        while source.wants_more:
            piece = source.next_piece()
            source.add(await client._awaited(piece) if source.awaited else piece)
    return source.read()


class Upload(UploadState):
    """The chunks of one object: ``begin``, then ``send`` each, then ``finish``."""

    client: Client

    def __init__(self, stream: ObjectStream, nuid: str, deadline: Deadline) -> None:
        """The deadline moves with each ack."""
        super().__init__(stream.client, chunk_subject(stream.bucket, nuid), deadline)
        self._stream = stream
        self._sure: tuple[int, int] | None = None
        """The last chunk that was surely in order before anything was sent again; None without that."""

    async def begin(self) -> None:
        """Subscribe to the acks."""
        # An inbox of its own, not that of the client's requests: it must see each ack without a waiting call.
        await self.client._ready(self._deadline.left)
        self._subscribe()
        self.client._write_queued()

    async def send(self, chunk: Chunk) -> None:
        """Send a chunk, after waiting for room. Raises the refusal of the stream, or PeltonTimeoutError."""
        if self._failure is not None or self._broken is not None or not self._has_room():
            await self._settle(self._has_room)
        self._add(chunk)
        self.client._write_queued()  # and do not wait: the window bounds what is queued

    async def finish(self) -> None:
        """Wait until the stream has every chunk, in order and once."""
        await self._settle(lambda: not self._unanswered)
        # Undisturbed chunks were sent once, in order, over one connection: acks alone prove them.
        if self._sure is not None and await self._count() != self.sent:
            await self._tidy(self._sure)

    async def wait_for_answers(self, seconds: float) -> None:
        """Wait until the stream has answered for every chunk that was sent, whatever it answered."""
        await self.client._until(
            self,
            lambda: len(self._unanswered) <= len(self._rejected) or self._broken is not None,
            seconds,
        )

    async def _settle(self, done: Callable[[], bool]) -> None:
        """Wait for acks until ``done()``."""
        deadline = self._deadline
        deadline.renew()  # the source may take its time
        acked = self.acked

        def has_news() -> bool:
            failed = self._failure is not None or self._broken is not None
            return failed or done() or self.acked > acked

        while True:
            if self._failure is not None:
                raise self._failure
            if self._broken is None and done():
                return
            # Acks alone count as progress: a server that answers requests and stores nothing is stuck, too.
            if self.acked > acked:
                acked = self.acked
                deadline.renew()
            if not deadline.left:
                raise PeltonTimeoutError(
                    f"no ack of a chunk for {self._subject!r} in {deadline.seconds} s"
                ) from self._broken
            if self._broken is not None:
                try:
                    await self._resume()
                except PeltonTimeoutError as error:
                    self._broken = error
            elif not await self.client._until(self, has_news, deadline.attempt_s):
                self._broken = PeltonTimeoutError("no ack in time")

    async def _resume(self) -> None:
        """Learn what the stream has, and send the rest again."""
        again, self._broken = self._broken, None
        # A new connection was waited for already; without one lost, the stream needs a moment.
        if not isinstance(again, ConnectionLostError):
            await self.client._sleep(min(RETRY_S, self._deadline.left))
        self._numbers.clear()  # acks of what was sent before do not count
        self._acks.clear()
        self._sure = self._sure or self._recent[0]
        stored = await self._count()
        # An acknowledged chunk that is gone is not in memory any more, so it cannot be sent again.
        if stored < self.acked:
            raise self._damaged(stored)
        # Chunks whose acks were lost are in the stream; they may have gaps.
        if stored > self.acked or self._disorder:
            await self._sort()
        if self._broken is None:  # or it was lost again, and the next attempt asks again
            self._add_again()
            self.client._write_queued()

    async def _sort(self) -> None:
        """Take what follows in the stream, up to a gap; remove what is after one."""
        last, strays = await self._walk(*self._recent[0 if self._disorder else -1])
        self._disorder = False
        # They count as acknowledged now, so they are not sent again.
        while self.acked < last[0]:
            self._drop()
        self._recent.clear()
        self._recent.append(last)
        if strays:
            # The stream would take a removed chunk with the same id for a duplicate.
            self._series += 1
            await self._remove(strays)

    async def _tidy(self, sure: tuple[int, int]) -> None:
        """Remove chunks that were stored twice: a late one may arrive after its repetition."""
        last, strays = await self._walk(*sure)
        await self._remove(strays)
        stored = await self._count()
        if last[0] != self.sent or stored != self.sent:
            raise self._damaged(stored)

    async def _walk(self, number: int, seq: int) -> tuple[tuple[int, int], list[int]]:
        """From a chunk on: the last one that is in order, with its sequence; the sequences of all others."""
        last, strays = (number, seq), []
        while (found := await self._next(seq)) is not None:
            seq, number = found
            if number == last[0] + 1:
                last = number, seq
            else:
                strays.append(seq)
        return last, strays

    async def _next(self, seq: int) -> tuple[int, int] | None:
        """The next chunk in the stream after a sequence: its own one, and its number."""
        stream, subject = self._stream.name, self._subject
        try:
            message = await self._stream.repeat(
                lambda js: js.get_message(stream, seq + 1, next_by_subject=subject),
                self._deadline,
            )
        except MessageNotFoundError:
            return None
        return message.seq, self._number_of(message.headers)

    async def _remove(self, seqs: list[int]) -> None:
        """Remove messages; what the stream does not remove is found when all are counted."""
        for seq in seqs:
            try:
                await self._delete(seq)
            except ApiError as error:
                if passing(error):
                    raise

    async def _delete(self, seq: int) -> None:
        stream = self._stream.name
        await self._stream.repeat(
            lambda js: js.delete_message(stream, seq, erase=False), self._deadline
        )

    async def _count(self) -> int:
        """How many chunks the stream has."""
        stream, subject = self._stream.name, self._subject
        info = await self._stream.repeat(
            lambda js: js.stream_info(stream, subjects_filter=subject), self._deadline
        )
        return info.state.subjects.get(subject, 0)

    def _damaged(self, stored: int) -> ObjectDamagedError:
        return ObjectDamagedError(
            f"the stream has {stored} chunks of {self.acked} acknowledged and {self.sent} sent ones: "
            "put the object again"
        )


class Put:
    """One put: the chunks go before the message that makes the object.

    They are removed when that message cannot be stored.
    """

    def __init__(
        self, stream: ObjectStream, info: ObjectInfo, source: Source, deadline: Deadline
    ) -> None:
        """``info``: the properties that are known before the content is read."""
        self.client = stream.client
        self._stream = stream
        self._info = info
        self._source = source
        self._deadline = deadline
        self._upload = Upload(stream, info.nuid, deadline)
        self._before: ObjectInfo | None = None
        self._seq = 0
        self._committing = False  # whether the object may be stored

    async def run(self, progress: Progress | None) -> ObjectInfo:
        """Store the object; returns its properties."""
        stream, source, upload, deadline = self._stream, self._source, self._upload, self._deadline
        try:
            if isinstance(source, FileSource):
                await stream.client._work(
                    source.open, finishes=False
                )  # a FIFO waits for its writer
            deadline.renew()
            await upload.begin()
            digest, size = await self._carry(progress)
            deadline.renew()
            # Asked while the last acks are on their way: a small put waits once for both.
            self._before, self._seq = await stream.look(
                self._info.name, deadline, served=upload.acked > 0
            )
            await upload.finish()
            if progress is not None:
                progress(size, size)
            self._info = replace(self._info, size=size, chunks=upload.sent, digest=digest)
            self._committing = True
            deadline.renew()
            self._before = await stream.commit(self._info, self._before, self._seq, deadline)
        except GeneratorExit:  # nothing may be awaited any more
            raise
        except BaseException as error:
            await self._fail(error)
            raise
        finally:
            upload.close()
            if isinstance(source, FileSource):
                source.close()
        await stream.remove_replaced(self._before, deadline)
        return self._info

    async def _carry(self, progress: Progress | None) -> tuple[str, int]:
        """Send all chunks; returns their digest and size."""
        digest = hashlib.sha256()
        size = told = 0
        upload = self._upload
        while chunks := await read_chunks(self._stream.client, self._source):
            for chunk in chunks:
                digest.update(chunk)
                size += len(chunk)
                await upload.send(chunk)
                if progress is not None and upload.acked_bytes > told:
                    told = upload.acked_bytes
                    progress(told, self._source.total)
        return digest_text(digest.digest()), size

    async def _fail(self, error: BaseException) -> None:
        """Leave nothing behind; or the whole object, when its last message is on the way."""
        self._deadline.renew()
        remains = self._stream.remains(self._info.nuid)
        if isinstance(error, PeltonTimeoutError):
            # The server would not answer now, either: waiting again would only double the timeout. The chunks of
            # an object that may be stored must stay.
            if self._committing:
                remains = f"object {self._info.name!r} may be stored; if it is not, {remains}"
            elif self._upload.may_be_stored:
                self._stream.purge_unanswered(self._info.nuid)
            else:
                return
            error.add_note(remains)
        elif self._committing and not isinstance(error, PeltonError):
            await self._complete(error)
        elif self._upload.may_be_stored:
            await self._roll_back(error)

    async def _complete(self, error: BaseException) -> None:
        """Store the object of a put that was cancelled with its last message on the way.

        The server may take that message at any time, also after a question whether it has. Sent once more,
        it is answered after the first one, and only one of them is stored.
        """
        try:
            before = await self._stream.commit(self._info, self._before, self._seq, self._deadline)
            await self._stream.remove_replaced(before, self._deadline)
        except PeltonError as reason:
            if not passing(reason):
                await self._roll_back(error)
            else:
                error.add_note(f"object {self._info.name!r} may be stored, or not: {reason}")

    async def _roll_back(self, error: BaseException) -> None:
        """Remove the chunks, or those of the replaced object if this one is complete after all."""
        stream, nuid = self._stream, self._info.nuid
        try:
            if stream.client.connected:
                await self._upload.wait_for_answers(self._deadline.left)
            # Chunks that are stored after the purge would stay, so it comes after all answers.
            found, _ = await stream.look(self._info.name, self._deadline)
            if found is None or found.nuid != nuid:
                await stream.purge(nuid, self._deadline)
            else:
                await stream.remove_replaced(self._before, self._deadline)
        except StreamNotFoundError:
            return
        except PeltonError as reason:
            error.add_note(f"{stream.remains(nuid)}: {reason}")


# -- downloads -------------------------------------------------------------------------------------


class Download(DownloadState):
    """The chunks of one object: ``begin``, then ``more`` until it returns an empty list."""

    client: Client

    def __init__(self, stream: ObjectStream, info: ObjectInfo, deadline: Deadline) -> None:
        """The deadline moves with each chunk."""
        asked = stream.js.subjects.direct_get(stream.name)
        subject = chunk_subject(stream.bucket, info.nuid)
        super().__init__(stream.client, subject, deadline, info, asked)
        self._stream = stream
        self._plain = False  # whether the stream takes no direct gets

    async def begin(self) -> None:
        """Subscribe to the answers."""
        await self.client._ready(self._deadline.left)
        self._subscribe()
        self.client._write_queued()

    async def more(self) -> list[bytes]:
        """The next chunks, as soon as there are any; empty when the object is complete.

        Raises ObjectDamagedError, ObjectReplacedError, PeltonTimeoutError, ConnectionClosedError.
        """
        deadline = self._deadline
        deadline.renew()  # the reader may take its time
        while self.done < self._info.size:
            chunks = await (self._one() if self._plain else self._some())
            if chunks:
                return self._hand_over(chunks)
            if not deadline.left:
                raise PeltonTimeoutError(f"no chunk of {self._info.name!r} in {deadline.seconds} s")
        self._check()
        return []

    async def _some(self) -> list[bytes]:
        """The chunks that have arrived, after asking and waiting if needed; may be none."""
        if not self._left:
            await self._ask()
        arrived = await self.client._until(self, self._has_news, self._deadline.attempt_s)
        if self._error is not None or not arrived:
            # Answers of the last request may still come; a new inbox tells them apart from those of the next.
            error, self._error = self._error, None
            if error is not None and not isinstance(error, ConnectionLostError):
                raise error
            # Also after a silence: the request may have been lost without a word.
            self._begin_round()
            if error is not None:
                await self._pause()
            return []
        chunks: list[bytes] = []
        while self._queue:
            message = self._next_message()
            if message.status == 0:
                chunks.append(self._take(message))
            else:
                await self._on_status(message)
        if chunks and not self._left and self.done + sum(map(len, chunks)) < self._info.size:
            await self._ask()  # the server works while the reader does
        return chunks

    async def _ask(self) -> None:
        try:
            self._request()
            self.client._write_queued()
        except (ConnectionLostError, OutputFullError):
            await self._pause()

    async def _pause(self) -> None:
        await self.client._sleep(min(RETRY_S, self._deadline.left))

    async def _on_status(self, message: BaseMessage) -> None:
        status = message.status
        self._left = 0
        if status == END_OF_BATCH:
            return
        # The stream allows no direct gets, or its server just restarts.
        if status == NO_RESPONDERS:
            self._plain = True
        elif status != NOT_FOUND:
            raise ProtocolError(f"a direct get was refused: {status} {message.description}")
        else:
            # In a cluster, any replica may answer, also one that is behind.
            self._missing += 1
            if not self.client.clustered or self._missing > MISSING_MAX:
                raise await self._why_missing()
            await self._pause()

    async def _one(self) -> list[bytes]:
        """The next chunk, with a plain request."""
        self._plain = False  # asked directly next time: 503 may have been a restart
        stream, seq, subject = self._stream.name, self._next_seq, self._subject
        try:
            message = await self._stream.repeat(
                lambda js: js.get_message(stream, seq, next_by_subject=subject), self._deadline
            )
        except MessageNotFoundError:
            raise await self._why_missing() from None
        self._next_seq = message.seq + 1
        self._chunks += 1
        return [message.data]

    async def _why_missing(self) -> PeltonError:
        """The error when the stream has no further chunk."""
        info = self._info
        # The leader decides: a replica may know neither the new object nor its chunks.
        found, _ = await self._stream.look(info.name, self._deadline)
        if found is None or found.nuid != info.nuid or found.deleted:
            return replaced(info)
        return ObjectDamagedError(
            f"object {info.name!r} in bucket {info.bucket!r} is damaged: the stream has "
            f"{self.done} of its {info.size} bytes"
        )


def replaced(info: ObjectInfo) -> ObjectReplacedError:
    """The error of a get whose object is not there any more."""
    return ObjectReplacedError(
        f"object {info.name!r} in bucket {info.bucket!r} was replaced or deleted while it was read: "
        "read it again"
    )
