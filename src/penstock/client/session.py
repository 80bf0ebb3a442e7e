"""What every client is, without a transport: its connection's state, requests and their answers,
pings, and which server is tried next.

The shells inherit from ``Session``: they carry the bytes and carry out the steps. Time and
randomness are handed in.
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
"""Queued output that is much: it is sent at once."""
PENDING_MESSAGES_MAX = 524_288
PENDING_BYTES_MAX = 128 * 1024 * 1024

logger = logging.getLogger(__name__)


class Stats(NamedTuple):
    """What went over the connection since the client was made."""

    messages_received: int
    messages_sent: int
    bytes_received: int
    bytes_sent: int
    reconnects: int


class Question(Mailbox):
    """A request whose answer is waited for; made by ``ask``."""

    def __init__(self, subject: str, inbox: str) -> None:
        """``inbox``: where the answer comes."""
        self.subject = subject
        self.inbox = inbox
        self.answer: BaseMessage | None = None
        self.error: PenstockError | None = None
        """Why no answer will come."""

    def is_over(self) -> bool:
        """Whether there is nothing to wait for any more."""
        return self.answer is not None or self.error is not None

    def outcome(self, seconds: float) -> Any:
        """The answer, after it was waited for so long; raises what it means, or why there is none."""
        if self.answer is None:
            if self.error is not None:
                raise self.error
            raise Timeout(f"no answer from {self.subject!r} in {seconds} s")
        if self.answer.status == 503:
            raise NoResponders(self.subject)
        return self.answer

    def lost(self, error: PenstockError) -> None:
        """The connection broke since it was asked, or the client was closed."""
        if not isinstance(error, ConnectionLost) and isinstance(error, ConnectionClosed):
            self.error = error
        else:
            self.error = ConnectionLost(f"no answer from {self.subject!r}: {error}")
        self.stir()

    def refused(self, complaint: PermissionsViolation) -> None:
        """Fail when the server does not permit to ask it, or to hear the answer."""
        inbox = f"{self.inbox.rpartition('.')[0]}.*"
        if f'"{self.subject}"' in complaint.text or f'"{inbox}"' in complaint.text:
            self.error = complaint
            self.stir()


class Ping(Mailbox):
    """A ping whose answer is waited for."""

    def __init__(self) -> None:
        """Not answered yet."""
        self.answered = False
        self.error: PenstockError | None = None

    def is_over(self) -> bool:
        """Whether there is nothing to wait for any more."""
        return self.answered or self.error is not None

    def pong(self) -> None:
        """The answer came."""
        self.answered = True
        self.stir()

    def lost(self, error: PenstockError) -> None:
        """No answer will come."""
        self.error = error
        self.stir()


class Answers:
    """Owner of the inbox that all requests of a client share."""

    def __init__(self, client: Session[Any], questions: dict[str, Question]) -> None:
        """The questions by the subject of their answer."""
        self.client = client
        self.interest: machine.Interest
        self._questions = questions

    def receive(self, message: BaseMessage) -> None:
        """An answer came."""
        question = self._questions.get(message.subject)
        if question is not None and question.answer is None:
            question.answer = message
            if question.waiting:
                question.stir()

    def end(self) -> None:
        """The client is closed; the questions hear of it by themselves."""


class Session(ABC, Generic[M]):
    """The part of a client that needs no transport."""

    stays_open: ClassVar[bool]
    """Whether lost connections are made anew in the background: no call need see to it."""

    def __init__(
        self,
        options: Options,
        message_type: Callable[[str, str, bytes, bytes, machine.Interest], M],
        clock: Callable[[], float],
        randomness: random.Random,
    ) -> None:
        """``clock``: seconds that never go back. Nothing is opened yet."""
        self.options = options
        self.clock = clock
        self.connection = machine.Connection(options, message_type)
        self.reconnects = 0
        self.last_error: Exception | None = None
        """What the server complained about last without closing, or why the connection was lost."""
        self.watchers: set[Mailbox] = set()
        """Whoever is told when the connection breaks and what the server does not permit."""
        self._pool = ServerPool(options, randomness.random)
        self._nuid = Nuid(randomness)
        self._inbox = ""
        self._questions: dict[str, Question] = {}
        self._asked = 0
        self._failed_at = -math.inf  # when an attempt to connect failed last

    # -- what a shell does -------------------------------------------------------------------------

    @abstractmethod
    def attach(self, subject: str, owner: Owner, queue: str = "") -> None:
        """Subscribe for an owner, whose ``interest`` is set."""

    @property
    @abstractmethod
    def much_waits(self) -> bool:
        """Whether so much is queued that it is to be sent before there is more."""

    @abstractmethod
    def plan_flush(self) -> None:
        """What is queued goes out soon: at the latest with what is waited for next."""

    @abstractmethod
    def report(self, error: Exception) -> None:
        """An error that no call can raise."""

    @abstractmethod
    def _changed(self, event: machine.Event) -> None:
        """Something happened that concerns the transport."""

    # -- state -------------------------------------------------------------------------------------

    @property
    def client(self) -> Session[M]:
        """Itself, as everything that belongs to a client has it."""
        return self

    @property
    def closed(self) -> bool:
        """Whether the client was closed, by its owner or because no server was left."""
        return self.connection.state is machine.State.CLOSED

    @property
    def server_info(self) -> ServerInfo:
        """What the server said of itself last."""
        return self.connection.info

    @property
    def clustered(self) -> bool:
        """Whether the server is of a cluster, where a stream may be choosing a leader."""
        return bool(self.connection.info.cluster)

    @property
    def stats(self) -> Stats:
        """Messages and bytes both ways, and reconnects."""
        at = self.connection
        return Stats(
            at.messages_received,
            at.messages_sent,
            at.bytes_received,
            at.bytes_sent,
            self.reconnects,
        )

    def timeout_of(self, timeout: Duration | None) -> float:
        """The timeout that counts, in seconds: the one given, or that of the options."""
        return self.options.timeout if timeout is None else to_seconds(timeout)

    def new_inbox(self) -> str:
        """A subject nobody else uses."""
        return f"{self.options.inbox_prefix}.{self._nuid.next()}"

    def release(self, interest: machine.Interest) -> None:
        """Nobody wants the messages of a subscription any more."""
        if not self.closed:
            self.connection.unsubscribe(interest)
            self.plan_flush()

    # -- what happens ------------------------------------------------------------------------------

    def process(self) -> None:
        """Hand over what the connection has made of the bytes received."""
        for event in self.connection.events():
            if not isinstance(event, BaseMessage):
                self._on_event(event)
                continue
            try:
                event.interest.owner.receive(event)
            except (PenstockError, ValueError) as error:  # of this message; the others still count
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
        """The connection broke: who waits for what does not come any more hears of it."""
        boxes = [waiter for waiter in waiters if isinstance(waiter, Mailbox)]
        for box in [*boxes, *self._questions.values(), *self.watchers]:
            box.lost(error)

    def _end_all(self, failure: str) -> None:
        """Nothing works any more. ``failure``: why, unless the owner closes."""
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
        """Connect to the first server that takes us; ConnectError with every server's reason."""
        error: Exception | None = None
        for _ in self.options.servers:
            error = yield from self._trying(math.inf)
            if error is None:
                return
        raise self._pool.error(error)

    def _reopening(self, deadline: float) -> Steps[None]:
        """Connect again, as often as the options say; ConnectError when no server is left, Timeout
        at the deadline.
        """
        while (yield from self._trying(deadline)) is not None:
            pass
        self.reconnects += 1

    def _trying(self, deadline: float) -> Steps[Exception | None]:
        """One attempt at the next server; None when it took us. ConnectError when no server is
        left, Timeout when its turn comes after the deadline.
        """
        choice = self._pool.next()
        if choice is None:
            raise self._pool.error()
        server, wait = choice
        now = self.clock()
        wait = max(0.0, self._failed_at + wait - now)  # what was done in between counts as waiting
        if deadline - now <= wait:
            self._pool.postpone()
            yield Sleep(max(0.0, deadline - now))
            raise Timeout(f"no connection in time: {self._pool.error()}")
        if wait:
            yield Sleep(wait)
        try:
            yield Dial(server)
        except (PenstockError, OSError, ValueError) as error:  # ValueError: a host that is no name
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
        """Nobody waits for the answer any more."""
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
        """Publish and wait for one answer.

        Raises NoResponders, Timeout, PermissionsViolation where the server says so, ConnectionLost
        when the connection broke meanwhile, and what publish raises.
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

        Raises NoResponders, Timeout, PermissionsViolation where the server says so, and
        ConnectionLost when the connection broke since it was asked.
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
        """Wait until the server has taken all that was sent; Timeout, ConnectionLost."""
        seconds = self.timeout_of(timeout)
        yield Ready(seconds)
        ping = Ping()
        self.connection.ping(ping)
        if not (yield Until(ping, ping.is_over, seconds)):
            raise Timeout(f"the server did not answer a ping in {seconds} s")
        if ping.error is not None:
            raise ping.error

    def measuring(self) -> Steps[float]:
        """Seconds the server takes to answer a ping."""
        start = self.clock()
        yield from self.flushing()
        return self.clock() - start

    flush = call(flushing)
    rtt = call(measuring)

    def _keep_alive(self) -> bool:
        """Ping, unless too many pings have no answer: then the connection is lost, and False."""
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
