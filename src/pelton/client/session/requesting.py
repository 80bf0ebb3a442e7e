"""Requests and their answers, as calls of a client: one answer, or many.

``requests.py`` has the state of the outstanding requests. Does no I/O: both shells carry out the steps.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from pelton.errors import ConnectionLostError, NoRespondersError

from ..base.durations import Duration, to_seconds
from ..base.message import BaseMessage
from ..base.steps import RETRY_S, SEND, Attach, Ready, Sent, Until, call, flow, pausing
from ..plans.jetstream import Headers, encode_header_map
from .requests import Gathered, Question, Requests, is_end

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..base.interest import Interest
    from ..base.steps import Flow, Mailbox, Request, Steps
    from ..protocol.connection import Connection
    from ..protocol.options import Options

M = TypeVar("M", bound=BaseMessage)

SILENCE_S = 1.0
"""How long to wait for an answer before a request is sent again that may be; each further time twice as long."""


class Requesting(ABC, Generic[M]):
    """The part of a client that sends requests and waits for their answers."""

    _stays_open: ClassVar[bool]
    """Whether the shell replaces lost connections in the background, so that no call has to."""
    options: Options
    _clock: Callable[[], float]
    _connection: Connection
    _requests: Requests
    _watchers: set[Mailbox]

    @property
    @abstractmethod
    def clustered(self) -> bool:
        """Whether the server is in a cluster, where a stream may be electing a leader."""

    @abstractmethod
    def _timeout_of(self, timeout: Duration | None) -> float:
        """The timeout in seconds: the given one, or that of the options."""

    @abstractmethod
    def new_inbox(self) -> str:
        """A new subject for answers, which nobody can guess."""

    @abstractmethod
    def _release(self, interest: Interest) -> None:
        """Unsubscribe: the messages of a subscription are not needed any more."""

    def _forget(self, question: Question) -> None:
        """Forget a request: no caller waits for the answer any more."""
        self._requests.forget(question)

    def _requesting(
        self,
        subject: str,
        data: bytes = b"",
        *,
        timeout: Duration | None = None,
        headers: Headers | None = None,
        raw_headers: bytes = b"",
    ) -> Steps[M]:
        """Publish a request and wait for one answer.

        Raises NoRespondersError, PeltonTimeoutError, PermissionsViolationError when the server refuses it,
        ConnectionLostError when the connection broke meanwhile, and the errors of publish.
        """
        seconds = self._timeout_of(timeout)
        if not self._stays_open:
            yield Ready(seconds)
        question = self._requests.ask(subject, data, raw_headers or encode_header_map(headers))
        try:
            yield Until(question, question.is_over, seconds)
        finally:
            self._requests.forget(question)
        answer: M = question.outcome(seconds)
        return answer

    request = call(_requesting)

    def _repeating(
        self,
        subject: str,
        data: bytes,
        seconds: float,
        raw_headers: bytes = b"",
        sent: Sent | None = None,
    ) -> Steps[M]:
        """A request that is sent again while no answer comes: sent twice it does nothing more.

        A server that just ceases to lead may answer nothing. Raises as ``request``.
        """
        sent = sent or Sent()
        if not self._stays_open:
            yield Ready(seconds)
        deadline, pause = self._clock() + seconds, min(SILENCE_S, seconds / 4)
        question = self._requests.ask(subject, data, raw_headers)
        sent.times += 1
        try:
            while not (
                yield Until(
                    question, question.is_over, min(pause, max(0.0, deadline - self._clock()))
                )
            ):
                if self._clock() >= deadline:
                    break
                pause *= 2
                self._requests.repeat(question, data, raw_headers)
                sent.times += 1
        finally:
            self._requests.forget(question)
        answer: M = question.outcome(seconds)
        return answer

    def _reading(self, subject: str, data: bytes, seconds: float) -> Steps[M]:
        """A request that changes nothing: in a cluster it is sent again while no answer comes."""
        if self.clustered:
            return self._repeating(subject, data, seconds)
        return self._requesting(subject, data, timeout=seconds)

    def _persevering(
        self,
        subject: str,
        data: bytes,
        seconds: float,
        raw_headers: bytes = b"",
        *,
        again: Sent | None = None,
    ) -> Steps[M]:
        """A request that is sent again while a cluster elects a leader and nobody answers.

        ``again``: also when the connection breaks or no answer comes, because sent twice it does nothing
        more; counts how often it was sent. Raises as ``request``, at the latest when the time is over.
        """
        deadline = self._clock() + seconds
        while True:
            try:
                if again is not None:
                    return (yield from self._repeating(subject, data, seconds, raw_headers, again))
                return (
                    yield from self._requesting(
                        subject, data, timeout=seconds, raw_headers=raw_headers
                    )
                )
            except NoRespondersError:
                seconds = deadline - self._clock() - RETRY_S
                if seconds <= 0 or not self.clustered:
                    raise
                yield from pausing()
            except ConnectionLostError:
                seconds = deadline - self._clock()
                if seconds <= 0 or again is None:
                    raise

    def _asking(self, step: Request) -> Steps[bytes]:
        """The bytes of the answer to a plan's request."""
        if step.reads:
            seconds = self._timeout_of(step.seconds)
            return (yield from self._reading(step.subject, step.body, seconds)).data
        answer = yield from self._requesting(
            step.subject, step.body, timeout=step.seconds, raw_headers=step.headers
        )
        return answer.data

    def _answering(self, question: Question, timeout: Duration | None = None) -> Steps[M]:
        """Wait for the answer.

        Raises NoRespondersError, PeltonTimeoutError, PermissionsViolationError when the server refused the request, and
        ConnectionLostError when the connection broke after it was sent.
        """
        seconds = self._timeout_of(timeout)
        try:
            yield Until(question, question.is_over, seconds)
        finally:
            self._requests.forget(question)
        answer: M = question.outcome(seconds)
        return answer

    def _gathering(
        self,
        subject: str,
        data: bytes = b"",
        *,
        headers: Headers | None = None,
        max_messages: int | None = None,
        max_wait: Duration | None = None,
        stall: Duration | None = None,
        sentinel: Callable[[M], bool] | bool = False,
    ) -> Flow[M]:
        """Publish a request and yield its answers, as they come.

        Ends after ``max_messages``, after ``max_wait`` (the timeout of the options), when ``stall``
        passes after an answer without another one, or with the answer that ends the answers:
        ``sentinel`` says which one does, True stands for an empty one; it is not yielded. Raises
        NoRespondersError when nobody listens, and the errors of publish.
        """
        seconds = self._timeout_of(max_wait)
        pause = math.inf if stall is None else to_seconds(stall)
        if max_messages is not None and max_messages < 1:
            raise ValueError(f"max_messages must be at least 1, got {max_messages}")
        yield Ready(seconds)
        answers = Gathered(subject, self.new_inbox())
        yield Attach(answers.inbox, answers)
        self._watchers.add(answers)
        deadline, taken = self._clock() + seconds, 0
        try:
            self._connection.publish(subject, data, answers.inbox, encode_header_map(headers))
            yield SEND
            while max_messages is None or taken < max_messages:
                left = deadline - self._clock()
                if not answers._has_news():
                    wait = min(left, pause) if taken else left
                    if wait <= 0 or not (yield Until(answers, answers._has_news, wait)):
                        return
                message: Any = answers.take()
                if message is None or is_end(message, sentinel):
                    return
                taken += 1
                yield message
        finally:
            self._watchers.discard(answers)
            self._release(answers._interest)

    request_many = flow(_gathering)
