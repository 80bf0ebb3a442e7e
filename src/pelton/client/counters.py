"""Counters: a stream that keeps a whole number of any size for each subject.

::

    publish  Nats-Incr: +3, no payload     ─►  PubAck {"val":"10"}
    stored   {"val":"10"}                      Nats-Counter-Sources: {"EU":{"hits.a":"4"}, ...}

The stream needs ``allow_msg_counter``.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pelton.api.errors import ErrorBody, error_from
from pelton.errors import ProtocolError

from .base.arguments import refuse

if TYPE_CHECKING:
    from .base.models import PubAck, StoredMessage

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
        refuse("by", "a whole number", number)
    if number.bit_length() > DIGITS_MAX * 3.32:
        raise ValueError(f"a counter has at most {DIGITS_MAX} digits")
    return f"{Decimal(number):+f}"


def entry_of(message: StoredMessage) -> CounterEntry:
    """The state in a stored message; ProtocolError when it is no counter's."""
    try:
        value = number_of(_body.decode(message.data).val)
        told = _sources.decode(message.headers[SOURCES]) if SOURCES in message.headers else {}
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"{message.subject!r} is no counter: {error}") from None
    added = message.headers.get(INCREMENT)
    return CounterEntry(
        message.subject,
        value,
        message.seq,
        number_of(added) if added else None,
        {
            stream: {subject: number_of(text) for subject, text in values.items()}
            for stream, values in told.items()
        },
        message.timestamp_ns,
    )


def check_counted(ack: PubAck, subject: str, stream: str) -> None:
    """Raise WrongStreamError when another stream has counted."""
    if ack.stream != stream:
        raise error_from(
            ErrorBody(
                code=400,
                err_code=WRONG_STREAM,
                description=f"{subject!r} belongs to stream {ack.stream!r}, which counted",
            )
        )
