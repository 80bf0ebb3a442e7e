"""The common part of all clients without a transport: the state of the connection, its events, pings
and subscriptions.

The clients of both halves inherit from ``Session``: they carry the bytes, wait, and pass time and randomness in.
``requests.py`` has the requests of a client, ``attempts.py`` of each half its attempts to connect. In a process
that was forked clients are closed: the connection stays the parent's, or they would send into the middle of
what the parent sends, and take its answers.
"""

from __future__ import annotations

import logging
import math
import os
import time
import weakref
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn, Protocol, Self

from pelton.errors import (
    AuthenticationError,
    CallbackFailedError,
    ConnectionClosedError,
    PeltonError,
    PermissionsViolationError,
    ServerError,
)
from pelton.nuid import Nuid

from ..base.addresses import Server, parse_servers
from ..base.arguments import check_number
from ..base.durations import Duration, to_seconds
from ..base.mailbox import Interest, Mailbox, Owner
from ..base.message import BaseMessage
from ..protocol import events
from ..protocol.connection import Connection, State
from ..protocol.events import OnProtocol, ProtocolLines
from ..protocol.pool import ServerPool
from .requests import Replies, Requests, Tokens
from .status import Status, StatusBox, StatusType

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable

    from ..protocol.info import ServerInfo
    from ..protocol.options import Options

OUTPUT_BYTES = 64 * 1024
"""The size of queued output from which it is sent at once."""
LEAVE_SHARE = 0.5
"""The share of the time of a forced reconnect in which the old server may take queued output."""
KEY_BYTES = 32
# The limits of nats-py.
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
        self.error: PeltonError | None = None

    def is_over(self) -> bool:
        """Whether the wait is over."""
        return self.answered or self.error is not None

    def pong(self) -> None:
        """The pong arrived."""
        self.answered = True
        self._stir()

    def _on_lost(self, error: PeltonError) -> None:
        """No pong will come."""
        self.error = error
        self._stir()


class Leaving(Protocol):
    """What has something to remove at the server before a client closes."""

    def leave(self) -> None:
        """Request the removal, without waiting for it."""


class Session(ABC):
    """The part of a client that needs no transport."""

    _stays_open: ClassVar[bool]
    """Whether the half replaces lost connections in the background, so that no call has to."""

    logged: ClassVar[type[Exception]] = Exception
    """What ``report`` logs when nobody else is told."""
    _now_ns: Callable[[], int] = staticmethod(time.time_ns)
    """The wall clock, in nanoseconds since 1970 UTC: for moments that a server is told."""

    def __init__(
        self,
        options: Options,
        message_type: type[BaseMessage],
        clock: Callable[[], float],
        randomness: random.Random,
    ) -> None:
        """``clock``: a monotonic clock in seconds. Opens no connection."""
        self.options = options
        """What it was made with."""
        self._clock = clock
        self._connection = Connection(options, message_type)
        self.reconnects = 0
        """How often it has connected again."""
        self.last_error: Exception | None = None
        """The last error of the server that did not close the connection, or why the connection was
        lost.
        """
        self._watchers: set[Mailbox] = set()
        """Mailboxes to tell when the connection breaks or the server does not permit something."""
        # Weak, so that a dropped reader is collected: then its finalizer removes its consumers.
        self._own_consumers: weakref.WeakSet[Leaving] = weakref.WeakSet()
        """The consumers that readers made for themselves."""
        # Weak as well: a client that the program has dropped must not stay for the sake of forks.
        _living.add(self)
        self._requests = Requests(self)
        self._pool = ServerPool(options, randomness.random)
        self._tried_at = -math.inf  # when the last attempt to connect failed, or the last login was
        self._nuid = Nuid(randomness)
        self._randbytes = randomness.randbytes
        self._tokens = Tokens(randomness.randbytes)
        self._arrivals = Mailbox()
        self._was_connected = False
        self._readers_of_status: set[StatusBox] = set()
        """Those who iterate over the events of the connection."""
        self.on_status: Callable[[Status], Any] | None = None
        """Called with each event of the connection."""
        self.on_error: Callable[[Exception], Any] | None = None
        """Called with each error that no call can raise."""

    def __reduce__(self) -> NoReturn:
        """Refuse copies and pickles: TypeError, also for an object that has a client."""
        raise TypeError(
            f"a {type(self).__name__} cannot be pickled or copied: its connection belongs to this process. "
            "Pickle its options (client.options), and connect with them in the other process"
        )

    # -- implemented by the halves -----------------------------------------------------------------

    @abstractmethod
    def _attach(self, subject: str, owner: Owner, queue: str = "") -> None:
        """Subscribe for an owner, and set its ``interest``."""

    @property
    @abstractmethod
    def _much_waits(self) -> bool:
        """Whether so much output is queued that it must be sent before more is queued."""

    @abstractmethod
    def _plan_flush(self) -> None:
        """Send queued output soon: at the latest with the next wait."""

    @abstractmethod
    def _flush_output(self) -> None:
        """Send queued output now, as far as the transport takes it."""

    @abstractmethod
    def _changed(self, event: events.Event) -> None:
        """React to an event that concerns the transport."""

    def _caller(self) -> object:
        """Who makes the call, in the half where several threads do."""
        return 0

    # -- state -------------------------------------------------------------------------------------

    @property
    def client(self) -> Self:
        """The client itself, as on every object that belongs to a client."""
        return self

    @property
    def connected(self) -> bool:
        """Whether there is a connection right now; the client replaces one that is lost."""
        return self._connection.connected

    @property
    def closed(self) -> bool:
        """Whether the client was closed, by its owner or because no server was left."""
        return self._connection.state is State.CLOSED

    @property
    def server_info(self) -> ServerInfo:
        """The server's last INFO."""
        return self._connection.info

    @property
    def servers(self) -> tuple[Server, ...]:
        """The servers that the client knows, given or learned from INFO; the one to try next first."""
        return tuple(self._pool.servers)

    @property
    def connected_server(self) -> Server | None:
        """The server of the connection; None without a connection."""
        return self._connection.server if self._connection.connected else None

    def set_servers(self, servers: str | Iterable[str]) -> None:
        """Replace the servers, for the next time that the client connects; the connection stays.

        ``reconnect`` leaves a server that is not among them. Raises ValueError for none, or a bad URL.
        """
        self._pool.replace(parse_servers(servers))

    @property
    def clustered(self) -> bool:
        """Whether the server is in a cluster, where a stream may be electing a leader."""
        return bool(self._connection.info.cluster)

    @property
    def stats(self) -> Stats:
        """Messages and bytes in both directions, and the number of reconnects."""
        at = self._connection
        return Stats(
            at.messages_received,
            at.messages_sent,
            at.bytes_received,
            at.bytes_sent,
            self.reconnects,
        )

    def _timeout_of(self, timeout: Duration | None, name: str = "timeout") -> float:
        """The timeout in seconds: the given one, or that of the options; TypeError with the argument's ``name``."""
        return self.options.timeout if timeout is None else to_seconds(timeout, name)

    def _api_of(self, domain: str | None, prefix: str | None) -> tuple[str | None, str | None]:
        """Domain and prefix of a JetStream API: the given ones, or those of the options."""
        if domain is not None or prefix is not None:
            return domain, prefix
        return self.options.jetstream_domain or None, self.options.jetstream_prefix or None

    def new_id(self) -> str:
        """A unique identifier of 22 letters and digits."""
        return self._nuid.next()

    def new_inbox(self) -> str:
        """A new subject for answers, which nobody can guess."""
        return f"{self.options.inbox_prefix}.{self._tokens.next()}"

    def _new_replies(self) -> Replies:
        """Numbered subjects for answers below a new inbox."""
        return Replies(self.new_inbox(), self._randbytes(KEY_BYTES))

    def _settle_abandoned(self) -> None:
        """Do what objects that were garbage collected have left to do."""
        self._connection.settle_abandoned()
        self._process()
        self._plan_flush()

    def _leave_consumers(self) -> None:
        """Before the end: let the server remove the consumers of readers that are still open."""
        for each in list(self._own_consumers):
            each.leave()

    def _release(self, interest: Interest) -> None:
        """Unsubscribe: the messages of a subscription are not needed any more."""
        if not self.closed:
            self._connection.unsubscribe(interest)
            self._plan_flush()

    # -- events ------------------------------------------------------------------------------------

    def _listen(
        self,
        on_status: Callable[[Status], Any] | None = None,
        on_protocol: OnProtocol | None = None,
        on_error: Callable[[Exception], Any] | None = None,
    ) -> None:
        """Set the functions that get each event of the connection, line of the protocol, and error."""
        self.on_status = on_status
        self.on_error = on_error
        self._connection.lines = None if on_protocol is None else ProtocolLines(on_protocol)

    def _report(self, error: Exception) -> None:
        """Keep an error that no call can raise in ``last_error``, and tell ``on_error`` of it.

        Without that handler it goes to the log; in blocking code only that of a callback does.
        """
        self.last_error = error
        if isinstance(error, CallbackFailedError):
            self._note("error", error)
        if self.on_error is not None:
            self._tell(self.on_error, error)
        elif isinstance(error, self.logged):
            logger.warning("%s: %s", type(error).__name__, error, exc_info=error.__cause__)

    def _tell(self, handler: Callable[..., Any] | None, *arguments: object) -> None:
        """Call a handler of the user; its exceptions are logged."""
        if handler is None:
            return
        try:
            handler(*arguments)
        except Exception:
            logger.exception("a handler of the client failed")

    def _note(self, kind: StatusType, error: Exception | None = None, servers: Any = ()) -> None:
        """An event of the connection, for everybody who wants to know."""
        if self.on_status is None and not self._readers_of_status:
            return
        at = self._connection.server
        self._spread(
            Status(kind, str(at) if at else "", error, tuple(str(each) for each in servers))
        )

    def _attempting(self, server: Server) -> None:
        """An attempt to connect again begins."""
        if self._connection.connections and (self.on_status or self._readers_of_status):
            self._spread(Status("reconnecting", str(server)))

    def _spread(self, status: Status) -> None:
        for reader in list(self._readers_of_status):
            reader._put(status)
        self._tell(self.on_status, status)

    def _process(self) -> None:
        """Process the events of the received bytes."""
        for event in self._connection.events():
            if not isinstance(event, BaseMessage):
                self._on_event(event)
                continue
            try:
                event._interest.owner._on_message(event)
            except (PeltonError, ValueError) as error:  # concerns this message only
                self._report(error)

    def _on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Pong):
            assert isinstance(event.waiter, Ping)
            event.waiter.pong()
            return
        if isinstance(event, events.Ended):
            event.interest.owner._on_end()
            return
        if isinstance(event, events.Abandoned):
            event.interest.owner._on_abandoned()
            return
        if isinstance(event, events.ServerComplaint):
            self._note("error", event.error)
            self._report(event.error)
            if isinstance(event.error, PermissionsViolationError):
                self._requests._on_refused(event.error)
                # A copy, because a watcher that fails takes itself out of the set.
                for each in list(self._watchers):
                    each._on_refused(event.error)
            return
        if isinstance(event, events.Connected):
            self._was_connected = True
            # If this connection soon ends, the wait before the next attempt counts from here.
            self._tried_at = self._clock()
            self._note("reconnected" if event.again else "connected")
            self._arrivals._stir()
        if isinstance(event, events.Connected | events.InfoChanged):
            if found := self._pool.learn(event.info.connect_urls):
                self._note("servers_discovered", servers=found)
        elif isinstance(event, events.LameDuck):
            self._note("lame_duck")
        elif isinstance(event, events.Disconnected) and self._was_connected:
            self._was_connected = False
            self._pool.lost(event.error, self._clock() - self._tried_at)
            self._note("disconnected", event.error)
            if isinstance(event.error, ServerError | AuthenticationError):
                self._report(event.error)  # a -ERR: no call may be there to raise it
        self._changed(event)

    def _tell_lost(self, error: PeltonError, waiters: list[object]) -> None:
        """The connection broke: tell every waiting call and watcher."""
        # A list of all of them first: those that are told may leave the sets, or make new requests.
        boxes = [waiter for waiter in waiters if isinstance(waiter, Mailbox)]
        for box in [*boxes, *self._requests.outstanding.values(), *self._watchers]:
            box._on_lost(error)

    def _end_all(self, failure: str) -> None:
        """End all subscriptions and calls. ``failure``: why, unless the owner closes."""
        if failure:
            logger.error("the client is closed: %s", failure)
        # Before ``close``, which empties the table.
        owners = [interest.owner for interest in self._connection.interests.values()]
        self._connection.close(failure)
        waiters: list[object] = []
        for event in self._connection.events():
            if isinstance(event, events.Disconnected):
                waiters += event.waiters
        self._tell_lost(self._connection.closed_error(), waiters)
        for owner in owners:
            owner._on_end()
        self._arrivals._stir()
        self._note("closed", ConnectionClosedError(failure) if failure else None)
        self._readers_of_status.clear()

    def _leave_to_parent(self, why: str) -> None:
        """This process was forked: close the client here, without a word to the server."""
        # Closes the descriptor of this process only: the parent's connection goes on.
        self._release_socket()
        # The parent still uses them.
        self._own_consumers.clear()
        if not self.closed:
            self._connection.close(why)
        # Dropped: threads and tasks that could react to them exist in the parent alone.
        self._connection.events()

    @abstractmethod
    def _release_socket(self) -> None:
        """Give the socket back in a forked process; the parent's stays as it is."""

    # -- pings -------------------------------------------------------------------------------------

    def _keep_alive(self) -> bool:
        """Send a ping; when too many pings have no answer, the connection counts as lost: False."""
        if self._connection.pings_outstanding >= self.options.pings_outstanding_max:
            # A half-open connection shows only here: after a power cut or a lost route no FIN ever comes.
            self._connection.receive_eof(TimeoutError("stale: the server does not answer pings"))
            self._process()
            return False
        self._connection.ping()
        return True

    # -- subscriptions -----------------------------------------------------------------------------

    def _subscribe(self, subject: str, owner: Owner, queue: str, max_msgs: int) -> None:
        check_number("max_msgs", max_msgs)
        self._attach(subject, owner, queue)
        if max_msgs:
            self._connection.unsubscribe(owner._interest, max_msgs)
            self._plan_flush()


FORKED = "this process was forked, and the connection is the parent's: connect again here"

_living: weakref.WeakSet[Session] = weakref.WeakSet()
"""The clients that are closed in a process that is forked."""


def _leave_to_parent() -> None:
    for client in list(_living):
        client._leave_to_parent(FORKED)
    _living.clear()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_leave_to_parent)
