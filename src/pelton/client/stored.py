"""Direct gets: stored messages without a consumer, from any server that has a copy of the stream.

::

    $JS.API.DIRECT.GET.ORDERS  {"seq":7,"batch":100,"next_by_subj":"orders.>"}
      ◄── message 7 ... 12     headers: Nats-Subject, Nats-Sequence, Nats-Time-Stamp, Nats-Num-Pending
      ◄── 204 EOB              Nats-Num-Pending: how many follow

A page ends at a number of messages or bytes; the next one begins after its last sequence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pelton.api import calls as wire
from pelton.api.errors import ErrorBody, error_from
from pelton.api.times import parse_instant
from pelton.errors import DirectGetError, ProtocolError

from .base.arguments import check_number, check_texts, refuse
from .base.durations import Moment, to_moment
from .base.message import BaseMessage, Headers
from .base.models import StoredMessage
from .base.needs import DIRECT_GETS, unknown

if TYPE_CHECKING:
    from collections.abc import Iterable


END, NOT_FOUND, REFUSED, OK = 204, 404, 408, 0
MESSAGE_NOT_FOUND = 10037
PAGE_MAX = 1000
_OWN = {
    "Nats-Stream",
    "Nats-Subject",
    "Nats-Sequence",
    "Nats-Time-Stamp",
    "Nats-Num-Pending",
    "Nats-Last-Sequence",
}


def stored_message(message: BaseMessage) -> StoredMessage:
    """The stored message in an answer; raises MessageNotFoundError, DirectGetError, ProtocolError."""
    if message.status != OK:
        raise error_of(message)
    try:
        given = message.headers.lists()
        headers = Headers({name: each for name, each in given.items() if name not in _OWN})
        subject, seq, time = (
            # a message that was stored with such headers has the server's after its own
            given[name][-1]
            for name in ("Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp")
        )
        return StoredMessage(subject, int(seq), message.data, headers, parse_instant(time))
    except (KeyError, ValueError) as error:
        raise ProtocolError(f"not the answer to a direct get: {error!r}") from None


def error_of(message: BaseMessage) -> Exception:
    """The error that an answer with a status stands for."""
    if message.status == NOT_FOUND:
        body = ErrorBody(code=404, err_code=MESSAGE_NOT_FOUND, description="no message found")
        return error_from(body)
    if message.status == REFUSED and message.description == "Empty Request":  # which it is not
        return unknown([DIRECT_GETS])
    return DirectGetError(message.status, message.description)


def single_get(
    seq: int | None,
    last_by_subject: str | None,
    next_by_subject: str | None,
    start_time: Moment | None,
) -> wire.MsgGetRequest:
    """The request for one message; ValueError unless the arguments select one."""
    check_texts(last_by_subject=last_by_subject, next_by_subject=next_by_subject)
    check_number("seq", seq, least=1, optional=True)
    if last_by_subject is not None and (seq, next_by_subject, start_time) != (None, None, None):
        raise ValueError("last_by_subject is given alone")
    if seq is not None and start_time is not None:
        raise ValueError("give seq or start_time, not both")
    if (seq, last_by_subject, next_by_subject, start_time) == (None, None, None, None):
        raise ValueError("give seq, last_by_subject, next_by_subject or start_time")
    return wire.MsgGetRequest(
        seq=seq or 0,
        last_by_subj=last_by_subject or "",
        next_by_subj=next_by_subject or "",
        start_time=to_moment(start_time, "start_time"),
    )


def batch_get(
    batch: int | None,
    seq: int | None,
    subject: str | None,
    start_time: Moment | None,
    max_bytes: int = 0,
) -> wire.MsgGetRequest:
    """The request for messages in order; ValueError, TypeError."""
    check_texts(subject=subject)
    check_number("batch", batch, least=1, optional=True)
    check_number("seq", seq, optional=True)
    check_number("max_bytes", max_bytes)
    if seq is not None and start_time is not None:
        raise ValueError("give seq or start_time, not both")
    return wire.MsgGetRequest(
        seq=(seq or 1) if start_time is None else 0,
        next_by_subj=subject or "",
        start_time=to_moment(start_time, "start_time"),
        max_bytes=max_bytes,
    )


def last_get(
    subjects: str | Iterable[str],
    batch: int | None = None,
    up_to_seq: int | None = None,
    up_to_time: Moment | None = None,
    max_bytes: int = 0,
) -> wire.MsgGetRequest:
    """The request for the last messages of several subjects; ValueError, TypeError."""
    check_number("batch", batch, least=1, optional=True)
    check_number("up_to_seq", up_to_seq, optional=True)
    check_number("max_bytes", max_bytes)
    if up_to_seq is not None and up_to_time is not None:
        raise ValueError("give up_to_seq or up_to_time, not both")
    return wire.MsgGetRequest(
        multi_last=_subjects(subjects),
        up_to_seq=up_to_seq or 0,
        up_to_time=to_moment(up_to_time, "up_to_time"),
        max_bytes=max_bytes,
    )


def advance(request: wire.MsgGetRequest, last_seq: int, end: BaseMessage) -> None:
    """Ask for what is after the last message, of the same state of the stream."""
    request.seq = last_seq + 1
    request.start_time = None
    up_to = end.header("Nats-UpTo-Sequence")
    if up_to is not None:
        request.up_to_seq, request.up_to_time = int(up_to), None


def _subjects(subjects: str | Iterable[str]) -> list[str]:
    try:
        found = [subjects] if isinstance(subjects, str) else list(subjects)
    except TypeError:
        refuse("subjects", "text or an iterable of texts", subjects)
    for each in found:
        check_texts(subjects=each)
    if not found or not all(found):
        raise ValueError("give at least one subject, and no empty one")
    return found
