"""The common part of all clients without a transport: state of the connection, requests, pings, and
the choice of the next server.

The shells inherit from ``Session``: they carry the bytes and carry out the steps. They pass time and
randomness in.
"""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

from penstock.errors import (
    ConnectionClosed,
    ConnectionLost,
    NoResponders,
    PenstockError,
    PermissionsViolation,
    Timeout,
)
from penstock.nuid import Nuid

from . import connection as machine
from .durations import Duration, to_seconds
from .jetstream import Headers, encode_header_map
from .message import BaseMessage
from .pool import ServerPool
from .steps import Dial, Mailbox, Owner, Ready, Sleep, Until, call

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from .info import ServerInfo
    from .options import Options
    from .steps import Steps

M = TypeVar("M", bound=BaseMessage)

OUTPUT_BYTES = 64 * 1024
"""The size of queued output from which it is sent at once."""
PENDING_MESSAGES_MAX = 524_288
PENDING_BYTES_MAX = 128 * 1024 * 1024

logger = logging.getLogger(__name__)


class Stats(NamedTuple):
    """Messages and bytes over the connection since the client was made."""

    messages_received: int
    messages_sent: int
    bytes_received: int
    bytes_sent: int
    reconnects: int


class Question(Mailbox):
    """A request with an outstanding answer; made by ``ask``."""

    def __init__(self, subject: str, inbox: str) -> None:
        """``inbox``: the subject of the answer."""
        self.subject = subject
        self.inbox = inbox
        self.answer: BaseMessage | None = None
        self.error: PenstockError | None = None
        """Why no answer will come."""

    def is_over(self) -> bool:
        """Whether the wait is over."""
        return self.answer is not None or self.error is not None

    def outcome(self, seconds: float) -> Any:
        """The answer after a wait of ``seconds``; raises its error, or the reason why there is
        none.
        """
        if self.answer is None:
            if self.error is not None:
                raise self.error
            raise Timeout(f"no answer from {self.subject!r} in {seconds} s")
        if self.answer.status == 503:
            raise NoResponders(self.subject)
        return self.answer

    def lost(self, error: PenstockError) -> None:
        """The connection broke after the request was sent, or the client was closed."""
        if not isinstance(error, ConnectionLost) and isinstance(error, ConnectionClosed):
            self.error = error
        else:
            self.error = ConnectionLost(f"no answer from {self.subject!r}: {error}")
        self.stir()

    def refused(self, complaint: PermissionsViolation) -> None:
        """Fail when the server does not permit the request, or the subscription for the answer."""
        inbox = f"{self.inbox.rpartition('.')[0]}.*"
        if f'"{self.subject}"' in complaint.text or f'"{inbox}"' in complaint.text:
            self.error = complaint
            self.stir()


class Ping(Mailbox):
    """A ping with an outstanding pong."""

    def __init__(self) -> None:
        """Not answered yet."""
        self.answered = False
        self.error: PenstockError | None = None

    def is_over(self) -> bool:
        """Whether the wait is over."""
        return self.answered or self.error is not None

    def pong(self) -> None:
        """The pong arrived."""
        self.answered = True
        self.stir()

    def lost(self, error: PenstockError) -> None:
        """No pong will come."""
        self.error = error
        self.stir()


class Answers:
    """The owner of the inbox that all requests of a client share."""

    def __init__(self, client: Session[Any], questions: dict[str, Question]) -> None:
        """``questions``: the requests by the subject of their answer."""
        self.client = client
        self.interest: machine.Interest
        self._questions = questions

    def receive(self, message: BaseMessage) -> None:
        """An answer arrived."""
        question = self._questions.get(message.subject)
        if question is not None and question.answer is None:
            question.answer = message
            if question.waiting:
                question.stir()

    def end(self) -> None:
        """The client is closed; the requests are told separately."""


class Session(ABC, Generic[M]):
    """The part of a client that needs no transport."""

    stays_open: ClassVar[bool]
    """Whether the shell replaces lost connections in the background, so that no call has to."""

    def __init__(
        self,
        options: Options,
        message_type: Callable[[str, str, bytes, bytes, machine.Interest], M],
        clock: Callable[[], float],
        randomness: random.Random,
    ) -> None:
        """``clock``: a monotonic clock in seconds. Opens no connection."""
        self.options = options
        self.clock = clock
        self.connection = machine.Connection(options, message_type)
        self.reconnects = 0
        self.last_error: Exception | None = None
        """The last error of the server that did not close the connection, or why the connection was
        lost.
        """
        self.watchers: set[Mailbox] = set()
        """Mailboxes to tell when the connection breaks or the server does not permit something."""
        self._pool = ServerPool(options, randomness.random)
        self._nuid = Nuid(randomness)
        self._inbox = ""
        self._questions: dict[str, Question] = {}
        self._asked = 0
        self._failed_at = -math.inf  # when an attempt to connect last failed

    # -- implemented by the shells -----------------------------------------------------------------

    @abstractmethod
    def attach(self, subject: str, owner: Owner, queue: str = "") -> None:
        """Subscribe for an owner, and set its ``interest``."""

    @property
    @abstractmethod
    def much_waits(self) -> bool:
        """Whether so much output is queued that it must be sent before more is queued."""

    @abstractmethod
    def plan_flush(self) -> None:
        """Send queued output soon: at the latest with the next wait."""

    @abstractmethod
    def report(self, error: Exception) -> None:
        """Report an error that no call can raise."""

    @abstractmethod
    def _changed(self, event: machine.Event) -> None:
        """React to an event that concerns the transport."""

    # -- state -------------------------------------------------------------------------------------

    @property
    def client(self) -> Session[M]:
        """The client itself, as on every object that belongs to a client."""
        return self

    @property
    def closed(self) -> bool:
        """Whether the client was closed, by its owner or because no server was left."""
        return self.connection.state is machine.State.CLOSED

    @property
    def server_info(self) -> ServerInfo:
        """The server's last INFO."""
        return self.connection.info

    @property
    def clustered(self) -> bool:
        """Whether the server is in a cluster, where a stream may be electing a leader."""
        return bool(self.connection.info.cluster)

    @property
    def stats(self) -> Stats:
        """Messages and bytes in both directions, and the number of reconnects."""
        at = self.connection
        return Stats(
            at.messages_received,
            at.messages_sent,
            at.bytes_received,
            at.bytes_sent,
            self.reconnects,
        )

    def timeout_of(self, timeout: Duration | None) -> float:
        """The timeout in seconds: the given one, or that of the options."""
        return self.options.timeout if timeout is None else to_seconds(timeout)

    def new_inbox(self) -> str:
        """A unique subject for answers."""
        return f"{self.options.inbox_prefix}.{self._nuid.next()}"

    def release(self, interest: machine.Interest) -> None:
        """Unsubscribe: the messages of a subscription are not needed any more."""
        if not self.closed:
            self.connection.unsubscribe(interest)
            self.plan_flush()

    # -- events ------------------------------------------------------------------------------------

    def process(self) -> None:
        """Process the events of the received bytes."""
        for event in self.connection.events():
            if not isinstance(event, BaseMessage):
                self._on_event(event)
                continue
            try:
                event.interest.owner.receive(event)
            except (PenstockError, ValueError) as error:  # concerns this message only
                self.report(error)

    def _on_event(self, event: machine.Event) -> None:
        if isinstance(event, machine.Pong):
            assert isinstance(event.waiter, Ping)
            event.waiter.pong()
            return
        if isinstance(event, machine.Ended):
            event.interest.owner.end()
            return
        if isinstance(event, machine.ServerComplaint):
            self.report(event.error)
            if isinstance(event.error, PermissionsViolation):
                for each in [*self._questions.values(), *self.watchers]:
                    each.refused(event.error)
            return
        if isinstance(event, machine.Connected | machine.InfoChanged):
            self._pool.learn(event.info.connect_urls)
        self._changed(event)

    def _tell_lost(self, error: PenstockError, waiters: list[object]) -> None:
        """The connection broke: tell every waiting call and watcher."""
        boxes = [waiter for waiter in waiters if isinstance(waiter, Mailbox)]
        for box in [*boxes, *self._questions.values(), *self.watchers]:
            box.lost(error)

    def _end_all(self, failure: str) -> None:
        """End all subscriptions and calls. ``failure``: why, unless the owner closes."""
        if failure:
            logger.error("the client is closed: %s", failure)
        owners = [interest.owner for interest in self.connection.interests.values()]
        self.connection.close(failure)
        waiters: list[object] = []
        for event in self.connection.events():
            if isinstance(event, machine.Disconnected):
                waiters += event.waiters
        self._tell_lost(self.connection.closed_error(), waiters)
        for owner in owners:
            owner.end()

    # -- servers -----------------------------------------------------------------------------------

    def _opening(self) -> Steps[None]:
        """Connect to the first server that accepts; ConnectError with every server's reason."""
        error: Exception | None = None
        for _ in self.options.servers:
            error = yield from self._trying(math.inf)
            if error is None:
                return
        raise self._pool.error(error)

    def _reopening(self, deadline: float) -> Steps[None]:
        """Connect again, as often as the options say.

        Raises ConnectError when no server is left, Timeout at the deadline.
        """
        while (yield from self._trying(deadline)) is not None:
            pass
        self.reconnects += 1

    def _trying(self, deadline: float) -> Steps[Exception | None]:
        """Make one attempt at the next server; returns the error, None for a connection.

        Raises ConnectError when no server is left, Timeout when the wait before it goes beyond the deadline.
        """
        choice = self._pool.next()
        if choice is None:
            raise self._pool.error()
        server, wait = choice
        now = self.clock()
        wait = max(0.0, self._failed_at + wait - now)  # the time since then counts as waiting
        if deadline - now <= wait:
            self._pool.postpone()
            yield Sleep(max(0.0, deadline - now))
            raise Timeout(f"no connection in time: {self._pool.error()}")
        if wait:
            yield Sleep(wait)
        try:
            yield Dial(server)
        except (PenstockError, OSError, ValueError) as error:  # ValueError: an invalid host name
            self._pool.failed(error)
            self._failed_at = self.clock()
            return error
        self._pool.succeeded()
        return None

    # -- requests ----------------------------------------------------------------------------------

    def _ask(self, subject: str, data: bytes, block: bytes) -> Question:
        if not self._inbox:
            self._inbox = self.new_inbox()
            owner = Answers(self, self._questions)
            owner.interest = self.connection.subscribe(f"{self._inbox}.*", owner=owner)
        self._asked += 1
        question = Question(subject, f"{self._inbox}.{self._asked}")
        self.connection.publish(subject, data, question.inbox, block)
        self._questions[question.inbox] = question
        return question

    def forget(self, question: Question) -> None:
        """Forget a request: no caller waits for the answer any more."""
        self._questions.pop(question.inbox, None)

    def requesting(
        self,
        subject: str,
        data: bytes = b"",
        *,
        timeout: Duration | None = None,
        headers: Headers | None = None,
        raw_headers: bytes = b"",
    ) -> Steps[M]:
        """Publish a request and wait for one answer.

        Raises NoResponders, Timeout, PermissionsViolation when the server refuses it, ConnectionLost when the
        connection broke meanwhile, and the errors of publish.
        """
        seconds = self.timeout_of(timeout)
        if not self.stays_open:
            yield Ready(seconds)
        question = self._ask(subject, data, raw_headers or encode_header_map(headers))
        try:
            yield Until(question, question.is_over, seconds)
        finally:
            self.forget(question)
        answer: M = question.outcome(seconds)
        return answer

    request = call(requesting)

    def answering(self, question: Question, timeout: Duration | None = None) -> Steps[M]:
        """Wait for the answer.

        Raises NoResponders, Timeout, PermissionsViolation when the server refused the request, and
        ConnectionLost when the connection broke after it was sent.
        """
        seconds = self.timeout_of(timeout)
        try:
            yield Until(question, question.is_over, seconds)
        finally:
            self.forget(question)
        answer: M = question.outcome(seconds)
        return answer

    # -- pings -------------------------------------------------------------------------------------

    def flushing(self, timeout: Duration | None = None) -> Steps[None]:
        """Wait until the server has processed all sent operations; Timeout, ConnectionLost."""
        seconds = self.timeout_of(timeout)
        yield Ready(seconds)
        ping = Ping()
        self.connection.ping(ping)
        if not (yield Until(ping, ping.is_over, seconds)):
            raise Timeout(f"the server did not answer a ping in {seconds} s")
        if ping.error is not None:
            raise ping.error

    def measuring(self) -> Steps[float]:
        """The time that the server takes to answer a ping, in seconds."""
        start = self.clock()
        yield from self.flushing()
        return self.clock() - start

    flush = call(flushing)
    rtt = call(measuring)

    def _keep_alive(self) -> bool:
        """Send a ping; when too many pings have no answer, the connection counts as lost: False."""
        if self.connection.pings_outstanding >= self.options.pings_outstanding_max:
            self.connection.receive_eof(TimeoutError("stale: pings are not answered"))
            self.process()
            return False
        self.connection.ping()
        return True

    # -- subscriptions -----------------------------------------------------------------------------

    def _subscribe(self, subject: str, owner: Owner, queue: str, max_msgs: int) -> None:
        self.attach(subject, owner, queue)
        if max_msgs:
            self.connection.unsubscribe(owner.interest, max_msgs)
            self.plan_flush()
