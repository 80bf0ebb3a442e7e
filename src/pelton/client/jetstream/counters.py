"""Counters: a stream that keeps a whole number of any size for each subject.

::

    publish  Nats-Incr: +3, no payload     ─►  PubAck {"val":"10"}
    stored   {"val":"10"}                      Nats-Counter-Sources: {"EU":{"hits.a":"4"}, ...}

The stream needs ``allow_msg_counter``. No I/O here.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec

from pelton.api.calls import MsgGetRequest
from pelton.api.errors import ErrorBody, error_from
from pelton.errors import ProtocolError

from ..base.message import BaseMessage
from ..base.steps import call, flow
from ..protocol.subjects import check_literal
from .direct import DirectGets, subjects_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..base.durations import Duration, Moment
    from ..base.steps import Flow, Steps
    from ..plans.jetstream import Headers, StoredMessage
    from .streams import Streams

M = TypeVar("M", bound=BaseMessage)

INCREMENT = "Nats-Incr"
SOURCES = "Nats-Counter-Sources"
DIGITS_MAX = 30_000
WRONG_STREAM = 10060
_NUMBER = re.compile(r"[+-]?[0-9]+", re.ASCII)


class CounterEntry(NamedTuple):
    """One state of a counter.

    Example::

        counter = js.counter("VOTES")
        counter.increment("votes.yes", 2)
        for entry in counter.history("votes.yes"):
            print(entry.subject, entry.value)
    """

    subject: str
    value: int
    seq: int
    increment: int | None
    """What was added; None when the message does not say it."""
    sources: dict[str, dict[str, int]]
    """By stream and subject: the values of the counters that this one sums up."""
    timestamp_ns: int


class _Body(msgspec.Struct):
    val: str


_body = msgspec.json.Decoder(_Body)
_sources = msgspec.json.Decoder(dict[str, dict[str, str]])


def number_of(text: str) -> int:
    """The number in a text of digits; ProtocolError for another text or too many digits."""
    if len(text) > DIGITS_MAX + 1 or _NUMBER.fullmatch(text) is None:
        raise ProtocolError(f"not a number of a counter: {text[:40]!r}")
    return int(Decimal(text))  # int() refuses more than 4300 digits


def text_of_number(number: int) -> str:
    """The digits of a number with its sign; TypeError, and ValueError for one of too many digits."""
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"a counter takes whole numbers, not {number!r}")
    if number.bit_length() > DIGITS_MAX * 3.32:
        raise ValueError(f"a counter has at most {DIGITS_MAX} digits")
    return f"{Decimal(number):+f}"


def entry_of(message: StoredMessage) -> CounterEntry:
    """The state in a stored message; ProtocolError when it is no counter's."""
    try:
        value = number_of(_body.decode(message.data).val)
        told = _sources.decode(message.headers[SOURCES][0]) if SOURCES in message.headers else {}
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"{message.subject!r} is no counter: {error}") from None
    added = message.headers.get(INCREMENT)
    return CounterEntry(
        message.subject,
        value,
        message.seq,
        number_of(added[0]) if added else None,
        {
            stream: {subject: number_of(text) for subject, text in values.items()}
            for stream, values in told.items()
        },
        message.timestamp_ns,
    )


class Counting(Generic[M]):
    """The counters of one stream; every subject of it is a counter."""

    def __init__(self, js: Streams[M], stream: str) -> None:
        """The stream has to exist and to have ``allow_msg_counter``."""
        js._plans.direct_get(stream)  # checks the name
        self.client: Any = js.client
        """The client that it belongs to."""
        self._js: Any = js
        self.stream = stream
        """The name of the stream."""

    def _incrementing(
        self,
        subject: str,
        by: int = 1,
        *,
        msg_id: str | None = None,
        headers: Headers | None = None,
        timeout: Duration | None = None,
    ) -> Steps[int]:
        """Add a whole number, which may be negative, and return the new value.

        With a ``msg_id``, the same call can be made again after a PeltonTimeoutError or ConnectionLostError: the
        number is added once, and the call returns the value of now. Raises TypeError, ValueError,
        WrongStreamError when another stream with counters has the subject and counted it, ApiError, and
        the errors of ``publish``.
        """
        added = {**(headers or {}), INCREMENT: text_of_number(by)}
        ack = yield from self._js._publishing(
            subject,
            headers=added,
            msg_id=msg_id,
            timeout=timeout,
        )
        if ack.stream != self.stream:
            raise error_from(
                ErrorBody(
                    code=400,
                    err_code=WRONG_STREAM,
                    description=f"{subject!r} belongs to stream {ack.stream!r}, which counted",
                )
            )
        if ack.duplicate or not ack.val:
            return (yield from self._reading(subject)).value
        return number_of(ack.val)

    increment = call(_incrementing)

    def _reading(self, subject: str) -> Steps[CounterEntry]:
        """The state of a counter, from the leader of the stream: value, last increment, sources.

        Raises MessageNotFoundError when nothing was added to it yet.
        """
        check_literal(subject)
        message = yield from self._js._plans.get_message(self.stream, last_by_subject=subject)
        return entry_of(message)

    load = call(_reading)

    def _getting(self, subject: str) -> Steps[int]:
        """The value of a counter; raises MessageNotFoundError when nothing was added to it yet."""
        return (yield from self._reading(subject)).value

    get = call(_getting)

    def _getting_many(self, subjects: str | Iterable[str]) -> Flow[CounterEntry]:
        """The states of all counters whose subjects match, at one moment.

        At most 1024, otherwise DirectGetError. The stream needs ``allow_direct``.
        """
        request = MsgGetRequest(multi_last=subjects_of(subjects))
        yield from self._gets().pages(request, None, entry_of)

    get_many = flow(_getting_many)

    def _remembering(
        self, subject: str, *, seq: int | None = None, start_time: Moment | None = None
    ) -> Flow[CounterEntry]:
        """The states of a counter that the stream still holds, oldest first.

        ``subject`` may have wildcards. The stream needs ``allow_direct``.
        """
        yield from self._js._batch_of(self.stream, None, seq, subject, start_time, 0, entry_of)

    history = flow(_remembering)

    def _gets(self) -> DirectGets:
        subject = self._js._plans.direct_get(self.stream)
        return DirectGets(self.client, subject, self._js.timeout)
