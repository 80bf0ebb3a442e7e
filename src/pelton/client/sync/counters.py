# Made of client/aio/counters.py by tools/gen_sync.py: change that file, and run it again.
"""Counters of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base.arguments import check_literal
from ..base.message import HeadersLike, merged_headers
from ..stored import (
    INCREMENT,
    CounterEntry,
    batch_get,
    check_counted,
    entry_of,
    last_get,
    number_of,
    text_of_number,
)
from .locks import locked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..base.durations import Duration, Moment
    from .connection import Client
    from .jetstream import JetStream


class Counter:
    """The counters of one stream; made by ``js.counter(stream)``::

        counter = js.counter("HITS")
        counter.increment("hits.home", 2)
        counter.get("hits.home")

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

    @locked
    def increment(
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
        ack = self._js.publish(subject, headers=added, msg_id=msg_id, timeout=timeout)
        check_counted(ack, subject, self.stream)
        if ack.duplicate or not ack.val:
            return self.get(subject)
        return number_of(ack.val)

    @locked
    def load(self, subject: str) -> CounterEntry:
        """The state of a counter, from the leader of the stream: value, last increment, sources.

        Raises MessageNotFoundError when nothing was added to it yet.
        """
        check_literal(subject)
        return entry_of(self._js.get_message(self.stream, last_by_subject=subject))

    @locked
    def get(self, subject: str) -> int:
        """The value of a counter; raises MessageNotFoundError when nothing was added to it yet."""
        return self.load(subject).value

    def get_many(self, subjects: str | Iterable[str]) -> Iterator[CounterEntry]:
        """The states of all counters whose subjects match, at one moment.

        At most 1024, otherwise DirectGetError. The stream needs ``allow_direct``.
        """
        return self._js._direct_gets(self.stream, last_get(subjects), None, entry_of)

    def history(
        self, subject: str, *, seq: int | None = None, start_time: Moment | None = None
    ) -> Iterator[CounterEntry]:
        """The states of a counter that the stream still holds, oldest first.

        ``subject`` may have wildcards. The stream needs ``allow_direct``.
        """
        request = batch_get(None, seq, subject, start_time)
        return self._js._direct_gets(self.stream, request, None, entry_of)
