"""Stored messages without a consumer, one or many of them, by direct gets; and the counters of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pelton.api import encode
from pelton.errors import PeltonTimeoutError, ProtocolError

from ..base.answers import DIRECT_GETS, unknown
from ..base.arguments import check_literal
from ..base.message import BaseMessage, HeadersLike, merged_headers
from ..session.requests import Gathered
from ..stored import (
    END,
    INCREMENT,
    NOT_FOUND,
    OK,
    PAGE_MAX,
    CounterEntry,
    advance,
    batch_get,
    check_counted,
    entry_of,
    error_of,
    last_get,
    number_of,
    single_get,
    stored_message,
    text_of_number,
)
from .locks import locked
from .management import Management

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from pelton.api.calls import MsgGetRequest

    from ..base.durations import Duration, Moment
    from ..base.models import StoredMessage
    from .connection import Client
    from .jetstream import JetStream

T = TypeVar("T")


class StoredMessages(Management):
    """The direct gets of ``js``."""

    async def direct_get(
        self,
        stream: str,
        seq: int | None = None,
        *,
        last_by_subject: str | None = None,
        next_by_subject: str | None = None,
        start_time: Moment | None = None,
    ) -> StoredMessage:
        """One stored message, from any server that has a copy: the stream needs ``allow_direct``.

        By its sequence; the last one of a subject; or the first one at or after ``seq`` or
        ``start_time``, of the subject ``next_by_subject`` if that is given. A copy may be behind the
        leader, whom ``get_message`` asks. Raises MessageNotFoundError, DirectGetError, NotEnabledError for a
        ``start_time`` before nats-server 2.11, and NoRespondersError when the stream does not exist or does not
        allow direct gets.
        """
        subject = self.subjects.direct_get(stream)
        request = single_get(seq, last_by_subject, next_by_subject, start_time)
        body = encode(request)
        if last_by_subject is not None and {"*", ">"}.isdisjoint(last_by_subject.split(".")):
            # ADR-31: with the subject in that of the request, permissions can restrict what is read.
            subject, body = self.subjects.direct_get(stream, last_by_subject), b""
        client = self.client
        return stored_message(await client._read(subject, body, self.timeout))

    def get_batch(
        self,
        stream: str,
        batch: int | None = None,
        *,
        seq: int | None = None,
        subject: str | None = None,
        start_time: Moment | None = None,
        max_bytes: int = 0,
    ) -> AsyncIterator[StoredMessage]:
        """Stored messages in the order of their sequences, many of them in one direct get.

        At most ``batch`` messages (None: all), from ``seq`` (1) or ``start_time`` on, of one
        ``subject``, which may have wildcards. ``max_bytes`` limits one answer of the server; the next
        get follows by itself. Needs ``allow_direct`` and nats-server 2.11 (NotEnabledError). Raises
        NoRespondersError, DirectGetError, PeltonTimeoutError, ConnectionLostError.
        """
        request = batch_get(batch, seq, subject, start_time, max_bytes)
        return self._direct_gets(stream, request, batch, _itself)

    def get_last_messages_for(
        self,
        stream: str,
        subjects: str | Iterable[str],
        *,
        batch: int | None = None,
        up_to_seq: int | None = None,
        up_to_time: Moment | None = None,
        max_bytes: int = 0,
    ) -> AsyncIterator[StoredMessage]:
        """The last message of every subject that matches, in the order of their sequences.

        All of them belong to one state of the stream: that at ``up_to_seq`` or ``up_to_time`` if one
        is given. At most 1024 subjects may match, otherwise DirectGetError with the status 413. Needs
        ``allow_direct`` and nats-server 2.11; raises as ``get_batch``.
        """
        request = last_get(subjects, batch, up_to_seq, up_to_time, max_bytes)
        return self._direct_gets(stream, request, batch, _itself)

    def _direct_gets(
        self,
        stream: str,
        request: MsgGetRequest,
        most: int | None,
        make: Callable[[StoredMessage], T | None],
    ) -> AsyncIterator[T]:
        """What ``make`` makes of at most ``most`` messages (None: all); None is left out.

        Nothing when no message matches.
        """
        return self._pages(self.subjects.direct_get(stream), request, most, make)

    @locked
    async def _pages(
        self,
        subject: str,
        request: MsgGetRequest,
        most: int | None,
        make: Callable[[StoredMessage], T | None],
    ) -> AsyncIterator[T]:
        client, answers = self.client, Gathered(subject, self.client.new_inbox())
        await client._ready(self.timeout)
        client._attach(answers.inbox, answers)
        client._watchers.add(answers)
        try:
            while True:
                request.batch = PAGE_MAX if most is None else min(most, PAGE_MAX)
                last_seq = 0
                client._connection.publish(subject, encode(request), answers.inbox)
                await client._send_queued()
                while (message := await self._next(answers)).status == OK:
                    # A server before 2.11 ignores the batch and returns one message (ADR-31).
                    if message.header("Nats-Num-Pending") is None:
                        raise unknown([DIRECT_GETS])
                    stored = stored_message(message)
                    last_seq = stored.seq
                    if most is not None:
                        most -= 1
                    made = make(stored)
                    if made is not None:
                        yield made
                if message.status == NOT_FOUND:
                    return
                if message.status != END:
                    raise error_of(message)
                if most == 0 or not last_seq or not int(message.header("Nats-Num-Pending") or 0):
                    return
                advance(request, last_seq, message)
        finally:
            client._watchers.discard(answers)
            client._release(answers._interest)

    async def _next(self, answers: Gathered) -> BaseMessage:
        subject, seconds = answers.subject, self.timeout
        if not answers._has_news() and not await self.client._until(
            answers, answers._has_news, seconds
        ):
            raise PeltonTimeoutError(f"no answer from {subject!r} in {seconds} s")
        message: BaseMessage | None = answers.take()
        if message is None:
            raise ProtocolError(f"{subject!r} stopped answering")
        return message


def _itself(message: StoredMessage) -> StoredMessage:
    return message


class Counter:
    """The counters of one stream; made by ``js.counter(stream)``::

        counter = js.counter("HITS")
        await counter.increment("hits.home", 2)
        await counter.get("hits.home")

    Every subject of the stream is a counter.
    """

    def __init__(self, js: JetStream, stream: str) -> None:
        """Made by ``JetStream.counter``."""
        js.subjects.direct_get(stream)  # checks the name
        self.client: Client = js.client
        """The client that it belongs to."""
        self._js = js
        self.stream = stream
        """The name of the stream."""

    async def increment(
        self,
        subject: str,
        by: int = 1,
        *,
        msg_id: str | None = None,
        headers: HeadersLike | None = None,
        timeout: Duration | None = None,
    ) -> int:
        """Add a whole number, which may be negative, and return the new value.

        With a ``msg_id``, the same call can be made again after a PeltonTimeoutError or ConnectionLostError: the
        number is added once, and the call returns the value of now. Raises TypeError, ValueError,
        WrongStreamError when another stream with counters has the subject and counted it, ApiError, and
        the errors of ``publish``.
        """
        added = merged_headers(headers, {INCREMENT: text_of_number(by)})
        ack = await self._js.publish(subject, headers=added, msg_id=msg_id, timeout=timeout)
        check_counted(ack, subject, self.stream)
        # The ack of a duplicate has no value.
        if ack.duplicate or not ack.val:
            return await self.get(subject)
        return number_of(ack.val)

    async def load(self, subject: str) -> CounterEntry:
        """The state of a counter, from the leader of the stream: value, last increment, sources.

        Raises MessageNotFoundError when nothing was added to it yet.
        """
        check_literal(subject)
        return entry_of(await self._js.get_message(self.stream, last_by_subject=subject))

    async def get(self, subject: str) -> int:
        """The value of a counter; raises MessageNotFoundError when nothing was added to it yet."""
        return (await self.load(subject)).value

    def get_many(self, subjects: str | Iterable[str]) -> AsyncIterator[CounterEntry]:
        """The states of all counters whose subjects match, at one moment.

        At most 1024, otherwise DirectGetError. The stream needs ``allow_direct``.
        """
        return self._js._direct_gets(self.stream, last_get(subjects), None, entry_of)

    def history(
        self, subject: str, *, seq: int | None = None, start_time: Moment | None = None
    ) -> AsyncIterator[CounterEntry]:
        """The states of a counter that the stream still holds, oldest first.

        ``subject`` may have wildcards. The stream needs ``allow_direct``.
        """
        request = batch_get(None, seq, subject, start_time)
        return self._js._direct_gets(self.stream, request, None, entry_of)
