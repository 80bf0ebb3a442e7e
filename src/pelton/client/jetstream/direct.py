"""Direct gets: stored messages without a consumer, from any server that has a copy of the stream.

::

    $JS.API.DIRECT.GET.ORDERS  {"seq":7,"batch":100,"next_by_subj":"orders.>"}
      ◄── message 7 ... 12     headers: Nats-Subject, Nats-Sequence, Nats-Time-Stamp, Nats-Num-Pending
      ◄── 204 EOB              Nats-Num-Pending: how many follow

A page ends at a number of messages or bytes; the next one begins after its last sequence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from pelton.api import calls as wire
from pelton.api import encode
from pelton.api.errors import ErrorBody, error_from
from pelton.api.times import parse_instant
from pelton.errors import DirectGetError, PeltonTimeoutError, ProtocolError

from ..base.durations import Moment, to_moment
from ..base.steps import SEND, Attach, Ready, Until
from ..plans.jetstream import StoredMessage
from ..plans.needs import DIRECT_GETS, unknown
from ..session.requests import Gathered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..base.message import BaseMessage
    from ..base.steps import Flow, Steps
    from ..session.session import Session

T = TypeVar("T")

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
        headers = {name: values for name, values in message.headers.items() if name not in _OWN}
        subject, seq, time = (
            # a message that was stored with such headers has the server's after its own
            message.headers[name][-1]
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
    if last_by_subject is not None and (seq, next_by_subject, start_time) != (None, None, None):
        raise ValueError("last_by_subject is given alone")
    if seq is not None and start_time is not None:
        raise ValueError("give seq or start_time, not both")
    if seq is not None and seq < 1:
        raise ValueError(f"a sequence is at least 1, got {seq}")
    if (seq, last_by_subject, next_by_subject, start_time) == (None, None, None, None):
        raise ValueError("give seq, last_by_subject, next_by_subject or start_time")
    return wire.MsgGetRequest(
        seq=seq or 0,
        last_by_subj=last_by_subject or "",
        next_by_subj=next_by_subject or "",
        start_time=to_moment(start_time),
    )


class DirectGets:
    """One direct get with many answers: pages of them."""

    def __init__(self, client: Session[Any], subject: str, seconds: float) -> None:
        """``seconds``: how long to wait for each answer."""
        self._client = client
        self._subject = subject
        self._seconds = seconds
        self._answers = Gathered(subject, client.new_inbox())
        self._last: BaseMessage | None = None

    def pages(
        self,
        request: wire.MsgGetRequest,
        most: int | None,
        make: Callable[[StoredMessage], T | None],
    ) -> Flow[T]:
        """What ``make`` makes of at most ``most`` messages (None: all); None is left out.

        Nothing when no message matches.
        """
        client, answers = self._client, self._answers
        yield Ready(self._seconds)
        yield Attach(answers.inbox, answers)
        client._watchers.add(answers)
        try:
            while True:
                request.batch = PAGE_MAX if most is None else min(most, PAGE_MAX)
                last_seq = 0
                client._connection.publish(self._subject, encode(request), answers.inbox)
                yield SEND
                while (message := (yield from self._next())).status == OK:
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
                self._advance(request, last_seq, message)
        finally:
            client._watchers.discard(answers)
            client._release(answers._interest)

    @staticmethod
    def _advance(request: wire.MsgGetRequest, last_seq: int, end: BaseMessage) -> None:
        """Ask for what is after the last message, of the same state of the stream."""
        request.seq = last_seq + 1
        request.start_time = None
        up_to = end.header("Nats-UpTo-Sequence")
        if up_to is not None:
            request.up_to_seq, request.up_to_time = int(up_to), None

    def _next(self) -> Steps[BaseMessage]:
        answers = self._answers
        if not answers._has_news() and not (yield Until(answers, answers._has_news, self._seconds)):
            raise PeltonTimeoutError(f"no answer from {self._subject!r} in {self._seconds} s")
        message = answers.take()
        if message is None:
            raise ProtocolError(f"{self._subject!r} stopped answering")
        return message


def itself(message: StoredMessage) -> StoredMessage:
    """The message, for ``pages`` of messages."""
    return message


def subjects_of(subjects: str | Iterable[str]) -> list[str]:
    """A list of at least one subject; ValueError."""
    found = [subjects] if isinstance(subjects, str) else list(subjects)
    if not found or not all(found):
        raise ValueError("give at least one subject, and no empty one")
    return found
