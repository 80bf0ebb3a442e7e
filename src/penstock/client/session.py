"""The common part of all clients without a transport: state of the connection, requests, pings, and
the choice of the next server.

The shells inherit from ``Session``: they carry the bytes and carry out the steps. They pass time and
randomness in.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import time
import weakref
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Self, TypeVar

from penstock.errors import (
    CallbackFailed,
    ConnectionClosed,
    ConnectionLost,
    NoResponders,
    PenstockError,
    PermissionsViolation,
    Timeout,
)
from penstock.nuid import Nuid

from . import events
from .addresses import parse_servers
from .connection import Connection, State
from .durations import Duration, to_seconds
from .forking import remember
from .jetstream import Headers, encode_header_map
from .message import BaseMessage
from .pool import ServerPool
from .protocol_lines import OnProtocol, ProtocolLines
from .requests import Answers, Gathered, Question, is_end
from .status import Kind, Status, StatusBox
from .steps import (
    RETRY_S,
    SEND,
    Attach,
    Dial,
    Mailbox,
    Owner,
    Ready,
    Sleep,
    Until,
    call,
    flow,
    pausing,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable

    from .addresses import Server
    from .info import ServerInfo
    from .interest import Interest
    from .options import Options
    from .own_consumers import OwnConsumers
    from .steps import Flow, Request, Steps

M = TypeVar("M", bound=BaseMessage)

OUTPUT_BYTES = 64 * 1024
"""The size of queued output from which it is sent at once."""
LEAVE_SHARE = 0.5
"""The share of the time of a forced reconnect in which the old server may take queued output."""
PENDING_MESSAGES_MAX = 524_288
PENDING_BYTES_MAX = 128 * 1024 * 1024

logger = logging.getLogger(__name__)


class Stats(NamedTuple):
    """Messages and bytes over the connection since the client was made.

    Example::

        print(nc.stats.messages_sent, nc.stats.bytes_received, nc.stats.reconnects)
    """

    messages_received: int
    messages_sent: int
    bytes_received: int
    bytes_sent: int
    reconnects: int


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


class Session(ABC, Generic[M]):
    """The part of a client that needs no transport."""

    stays_open: ClassVar[bool]
    """Whether the shell replaces lost connections in the background, so that no call has to."""
    logged: ClassVar[type[Exception]] = Exception
    """What ``report`` logs when nobody else is told."""
    now_ns: Callable[[], int] = staticmethod(time.time_ns)
    """The wall clock, in nanoseconds since 1970 UTC: for moments that a server is told."""

    def __init__(
        self,
        options: Options,
        message_type: Callable[[str, str, bytes, bytes, Interest], M],
        clock: Callable[[], float],
        randomness: random.Random,
    ) -> None:
        """``clock``: a monotonic clock in seconds. Opens no connection."""
        self.options = options
        self.clock = clock
        self.connection = Connection(options, message_type)
        self.reconnects = 0
        self.last_error: Exception | None = None
        """The last error of the server that did not close the connection, or why the connection was
        lost.
        """
        self.watchers: set[Mailbox] = set()
        """Mailboxes to tell when the connection breaks or the server does not permit something."""
        self.own_consumers: weakref.WeakSet[OwnConsumers] = weakref.WeakSet()
        """The consumers that readers made for themselves."""
        remember(self)
        self._pool = ServerPool(options, randomness.random)
        self._nuid = Nuid(randomness)
        self._inbox = ""
        self._questions: dict[str, Question] = {}
        self._asked = 0
        self._arrivals = Mailbox()
        self._was_connected = False
        self.readers_of_status: set[StatusBox] = set()
        """Those who iterate over the events of the connection."""
        self.on_status: Callable[[Status], Any] | None = None
        """Called with each event of the connection."""
        self.on_error: Callable[[Exception], Any] | None = None
        """Called with each error that no call can raise."""
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
    def flush_output(self) -> None:
        """Send queued output now, as far as the transport takes it."""

    @abstractmethod
    def _changed(self, event: events.Event) -> None:
        """React to an event that concerns the transport."""

    def caller(self) -> object:
        """Who makes the call, in a shell where several threads do."""
        return 0

    # -- state -------------------------------------------------------------------------------------

    @property
    def client(self) -> Self:
        """The client itself, as on every object that belongs to a client."""
        return self

    @property
    def connected(self) -> bool:
        """Whether there is a connection right now; the client replaces one that is lost."""
        return self.connection.connected

    @property
    def closed(self) -> bool:
        """Whether the client was closed, by its owner or because no server was left."""
        return self.connection.state is State.CLOSED

    @property
    def server_info(self) -> ServerInfo:
        """The server's last INFO."""
        return self.connection.info

    @property
    def servers(self) -> tuple[Server, ...]:
        """The servers that the client knows, given or learned from INFO; the one to try next first."""
        return tuple(self._pool.servers)

    @property
    def connected_server(self) -> Server | None:
        """The server of the connection; None without a connection."""
        return self.connection.server if self.connection.connected else None

    def set_servers(self, servers: str | Iterable[str]) -> None:
        """Replace the servers, for the next time that the client connects; the connection stays.

        ``reconnect`` leaves a server that is not among them. Raises ValueError for none, or a bad URL.
        """
        self._pool.replace(parse_servers(servers))

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

    def api_of(self, domain: str | None, prefix: str | None) -> tuple[str | None, str | None]:
        """Domain and prefix of a JetStream API: the given ones, or those of the options."""
        if domain is not None or prefix is not None:
            return domain, prefix
        return self.options.jetstream_domain or None, self.options.jetstream_prefix or None

    def new_id(self) -> str:
        """A unique identifier of 22 letters and digits."""
        return self._nuid.next()

    def new_inbox(self) -> str:
        """A unique subject for answers."""
        return f"{self.options.inbox_prefix}.{self._nuid.next()}"

    def _settle_abandoned(self) -> None:
        """Do what objects that were garbage collected have left to do."""
        self.connection.settle_abandoned()
        self.process()
        self.plan_flush()

    def _leave_consumers(self) -> None:
        """Before the end: let the server remove the consumers of readers that are still open."""
        for each in list(self.own_consumers):
            each.leave()

    def release(self, interest: Interest) -> None:
        """Unsubscribe: the messages of a subscription are not needed any more."""
        if not self.closed:
            self.connection.unsubscribe(interest)
            self.plan_flush()

    # -- events ------------------------------------------------------------------------------------

    def listen(
        self,
        on_status: Callable[[Status], Any] | None = None,
        on_protocol: OnProtocol | None = None,
        on_error: Callable[[Exception], Any] | None = None,
    ) -> None:
        """Set the functions that get each event of the connection, line of the protocol, and error."""
        self.on_status = on_status
        self.on_error = on_error
        self.connection.lines = None if on_protocol is None else ProtocolLines(on_protocol)

    def report(self, error: Exception) -> None:
        """Keep an error that no call can raise in ``last_error``, and tell ``on_error`` of it.

        Without that handler it goes to the log; in blocking code only that of a callback does.
        """
        self.last_error = error
        if isinstance(error, CallbackFailed):
            self.note("error", error)
        if self.on_error is not None:
            self.tell(self.on_error, error)
        elif isinstance(error, self.logged):
            logger.warning("%s: %s", type(error).__name__, error, exc_info=error.__cause__)

    def tell(self, handler: Callable[..., Any] | None, *arguments: object) -> None:
        """Call a handler of the user; its exceptions are logged."""
        if handler is None:
            return
        try:
            handler(*arguments)
        except Exception:
            logger.exception("a handler of the client failed")

    def note(self, kind: Kind, error: Exception | None = None, servers: Any = ()) -> None:
        """An event of the connection, for everybody who wants to know."""
        if self.on_status is None and not self.readers_of_status:
            return
        at = self.connection.server
        self._spread(
            Status(kind, str(at) if at else "", error, tuple(str(each) for each in servers))
        )

    def _spread(self, status: Status) -> None:
        for reader in list(self.readers_of_status):
            reader.put(status)
        self.tell(self.on_status, status)

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

    def _on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Pong):
            assert isinstance(event.waiter, Ping)
            event.waiter.pong()
            return
        if isinstance(event, events.Ended):
            event.interest.owner.end()
            return
        if isinstance(event, events.Abandoned):
            event.interest.owner.abandoned()
            return
        if isinstance(event, events.ServerComplaint):
            self.note("error", event.error)
            self.report(event.error)
            if isinstance(event.error, PermissionsViolation):
                for each in [*self._questions.values(), *self.watchers]:
                    each.refused(event.error)
                if self._inbox and f'"{self._inbox}.*"' in event.error.text:
                    self._inbox = ""  # the next request subscribes, and is refused, anew
            return
        if isinstance(event, events.Connected):
            self._was_connected = True
            self.note("reconnected" if event.again else "connected")
            self._arrivals.stir()
        if isinstance(event, events.Connected | events.InfoChanged):
            if found := self._pool.learn(event.info.connect_urls):
                self.note("servers_discovered", servers=found)
        elif isinstance(event, events.LameDuck):
            self.note("lame_duck")
        elif isinstance(event, events.Disconnected) and self._was_connected:
            self._was_connected = False
            self.note("disconnected", event.error)
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
            if isinstance(event, events.Disconnected):
                waiters += event.waiters
        self._tell_lost(self.connection.closed_error(), waiters)
        for owner in owners:
            owner.end()
        self._arrivals.stir()
        self.note("closed", ConnectionClosed(failure) if failure else None)
        self.readers_of_status.clear()

    def leave_to_parent(self, why: str) -> None:
        """This process was forked: close the client here, without a word to the server."""
        self._release_socket()
        self.own_consumers.clear()
        if not self.closed:
            self.connection.close(why)
        self.connection.events()

    def _release_socket(self) -> None:
        """Give the socket back in a forked process; the parent's stays as it is. Nothing without a transport."""

    # -- servers -----------------------------------------------------------------------------------

    def _opening(self) -> Steps[None]:
        """Connect to the first server that accepts; ConnectError with every server's reason."""
        error: Exception | None = None
        attempts = itertools.count() if self.options.retry_first_connect else self.options.servers
        for _ in attempts:
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
        if self.connection.connections and (self.on_status or self.readers_of_status):
            self._spread(Status("reconnecting", str(server)))
        try:
            yield Dial(server)
        except (PenstockError, OSError, ValueError) as error:  # ValueError: an invalid host name
            if self.closed:
                raise self.connection.closed_error() from error
            self._pool.failed(error)
            self._failed_at = self.clock()
            return error
        self._pool.succeeded()
        return None

    # -- requests ----------------------------------------------------------------------------------

    def _ask(self, subject: str, data: bytes, block: bytes) -> Question:
        if not self.options.shared_inbox:
            return self._ask_alone(subject, data, block)
        if not self._inbox:
            self._inbox = self.new_inbox()
            owner = Answers(self, self._questions)
            owner.interest = self.connection.subscribe(f"{self._inbox}.*", owner=owner)
        self._asked += 1
        question = Question(subject, f"{self._inbox}.{self._asked}")
        self.connection.publish(subject, data, question.inbox, block, sound_reply=True)
        self._questions[question.inbox] = question
        return question

    def _ask_alone(self, subject: str, data: bytes, block: bytes) -> Question:
        """Ask with a subscription for this one answer."""
        question = Question(subject, self.new_inbox())
        owner = Answers(self, self._questions)
        owner.interest = self.connection.subscribe(question.inbox, owner=owner)
        try:
            self.connection.unsubscribe(owner.interest, 1)
            self.connection.publish(subject, data, question.inbox, block, sound_reply=True)
        except BaseException:
            self.connection.unsubscribe(owner.interest)
            raise
        question.interest = owner.interest
        self._questions[question.inbox] = question
        return question

    def forget(self, question: Question) -> None:
        """Forget a request: no caller waits for the answer any more."""
        self._questions.pop(question.inbox, None)
        if question.interest is not None and question.answer is None:
            self.release(question.interest)

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

    def persevering(
        self,
        subject: str,
        data: bytes,
        seconds: float,
        raw_headers: bytes = b"",
        *,
        again: bool = False,
    ) -> Steps[M]:
        """A request that is sent anew while nobody answers for a leader that a cluster elects.

        ``again``: also when the connection breaks, because sent twice it does nothing more. Raises as
        ``request``, at the latest when the time is over.
        """
        deadline = self.clock() + seconds
        while True:
            try:
                return (
                    yield from self.requesting(
                        subject, data, timeout=seconds, raw_headers=raw_headers
                    )
                )
            except NoResponders:
                seconds = deadline - self.clock() - RETRY_S
                if seconds <= 0 or not self.clustered:
                    raise
                yield from pausing()
            except ConnectionLost:
                seconds = deadline - self.clock()
                if seconds <= 0 or not again:
                    raise

    def asking(self, step: Request) -> Steps[bytes]:
        """The bytes of the answer to a plan's request."""
        answer = yield from self.requesting(
            step.subject, step.body, timeout=step.seconds, raw_headers=step.headers
        )
        return answer.data

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

    def gathering(
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
        NoResponders when nobody listens, and the errors of publish.
        """
        seconds = self.timeout_of(max_wait)
        pause = math.inf if stall is None else to_seconds(stall)
        if max_messages is not None and max_messages < 1:
            raise ValueError(f"max_messages must be at least 1, got {max_messages}")
        yield Ready(seconds)
        answers = Gathered(subject, self.new_inbox())
        yield Attach(answers.inbox, answers)
        self.watchers.add(answers)
        deadline, taken = self.clock() + seconds, 0
        try:
            self.connection.publish(subject, data, answers.inbox, encode_header_map(headers))
            yield SEND
            while max_messages is None or taken < max_messages:
                left = deadline - self.clock()
                if not answers.has_news():
                    wait = min(left, pause) if taken else left
                    if wait <= 0 or not (yield Until(answers, answers.has_news, wait)):
                        return
                message: Any = answers.take()
                if message is None or is_end(message, sentinel):
                    return
                taken += 1
                yield message
        finally:
            self.watchers.discard(answers)
            self.release(answers.interest)

    request_many = flow(gathering)

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

    def moving(self, timeout: Duration | None = None) -> Steps[None]:
        """Leave the server and connect to the next one, or to the same when there is only one.

        Subscriptions continue. The old server gets queued output before; half of the time is for that.
        Raises Timeout when there is no new connection in time (the client goes on trying), ValueError with
        the option ``reconnect=False``.
        """
        seconds = self.timeout_of(timeout)
        if not self.options.reconnect:
            raise ValueError("the option reconnect is off, so the client can't connect again")
        if self.closed:
            raise self.connection.closed_error()
        if self.connection.connected:
            with contextlib.suppress(Timeout, ConnectionLost):
                yield from self.flushing(seconds * LEAVE_SHARE)
            self.connection.receive_eof(ConnectionLost("asked to connect again"))
            self.process()
        yield Ready(seconds)
        at = self.connection
        done = yield Until(self._arrivals, lambda: at.connected or self.closed, seconds)
        if self.closed:
            raise at.closed_error()
        if not done:
            raise Timeout(f"no connection in {seconds} s; the client goes on trying")

    flush = call(flushing)
    rtt = call(measuring)
    reconnect = call(moving)

    def _keep_alive(self) -> bool:
        """Send a ping; when too many pings have no answer, the connection counts as lost: False."""
        if self.connection.pings_outstanding >= self.options.pings_outstanding_max:
            self.connection.receive_eof(TimeoutError("stale: the server does not answer pings"))
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
