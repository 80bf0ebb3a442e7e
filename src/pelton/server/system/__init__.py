"""The system account: events about the server, and services for the system account and every other account.

A server loads this module at its start: the subjects, a timer, and the check whether a client listens.
The other modules are loaded at their first use: ``events``, ``services``, ``message_trace``;
``envelope`` is the frame of all messages.

    $SYS.REQ.SERVER.<id>.*     $SYS.REQ.SERVER.PING[.*]     $SYS.REQ.ACCOUNT.*.*
    $SYS.REQ.USER.*.INFO       $SYS.DEBUG.SUBSCRIBERS       $JS.API.ACCOUNT.PURGE.*
    in every account:  $SYS.REQ.USER.INFO  $SYS.REQ.ACCOUNT.PING.{CONNZ,STATZ}
                       $SYS.REQ.SERVER.PING.CONNZ
"""

from typing import TYPE_CHECKING, Protocol

from pelton.core.broker.reactor import Connection, Trace
from pelton.core.broker.router import CallbackSink, Router
from pelton.server.clients.client import Client
from pelton.server.units import SECOND_NS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pelton.server.leaf.node import LeafNode
    from pelton.server.monitor.server_state import ServerState
    from pelton.server.system.events import Events
    from pelton.server.system.message_trace import MessageTraces
    from pelton.server.system.services import Services

FIRST_STATSZ_NS = SECOND_NS // 4
STATSZ_NS = 10 * SECOND_NS
ACCOUNT_BEAT_NS = 30 * SECOND_NS  # interval of the events about an account's connections


class Actions(Protocol):
    """Actions of the services on the server."""

    def reload_configuration(self) -> str:
        """Reload, as SIGHUP does. Returns the error, or ""."""

    def disconnect_client(self, cid: int) -> bool:
        """Close the connection. False when there is none."""

    def send_lame_duck(self, cid: int) -> str:
        """Send one client the lame duck INFO. Returns the error, or ""."""

    def audit(self, subject: str, request: bytes, answer: bytes) -> None:
        """Publish the audit of a JetStream request in the system account."""

    def purge_account(self, name: str) -> str:
        """Remove all JetStream data of an account. Returns the error, or ""."""


class System:
    """The system account's part of one server. It is also the tracer of core/broker/session."""

    def __init__(
        self,
        server_state: "Callable[[], ServerState]",
        server_id: str,
        router: Router,
        actions: Actions,
        later: "Callable[[Callable[[], None]], object]",
    ) -> None:
        """`router` has the system account's subjects; server_state() is called at each use;
        later(call) runs a call on the event loop's thread, from another thread.
        """
        self.server_state = server_state
        self.server_id = server_id
        self.router = router
        self.actions = actions
        self.later = later
        self._events: Events | None = None
        self._services: Services | None = None
        self._tracing: MessageTraces | None = None
        self._statsz_ns = FIRST_STATSZ_NS
        self._statsz_at_ns = 0
        self._beat_at_ns = 0
        self._attach()
        self._unheard = router.subscription_count()  # subscriptions of the server itself

    # -- subjects

    def _attach(self) -> None:
        for pattern in (
            f"$SYS.REQ.SERVER.{self.server_id}.*",
            "$SYS.REQ.SERVER.PING",
            "$SYS.REQ.SERVER.PING.*",
            "$SYS.REQ.ACCOUNT.*.*",
            "$SYS.REQ.USER.*.INFO",
            "$SYS.REQ.USER.INFO",
            "$SYS.DEBUG.SUBSCRIBERS",
            "$JS.API.ACCOUNT.PURGE.*",
        ):
            self.router.attach(pattern, CallbackSink(self._asked))

    def serve(self, name: str, router: Router) -> None:
        """Add the services of an account other than the system account."""

        def asked(
            source: Connection | None, subject: str, reply: str, headers: bytes, payload: bytes
        ) -> bool:
            return self._loaded().ask_from(name, router, source, subject, reply, headers, payload)

        for subject in (
            "$SYS.REQ.ACCOUNT.PING.CONNZ",
            "$SYS.REQ.ACCOUNT.PING.STATZ",
            "$SYS.REQ.SERVER.PING.CONNZ",
            "$SYS.REQ.USER.INFO",
        ):
            router.attach(subject, CallbackSink(asked))

    def _asked(
        self, source: Connection | None, subject: str, reply: str, headers: bytes, payload: bytes
    ) -> bool:
        return self._loaded().ask(source, subject, reply, headers, payload)

    def _loaded(self) -> "Services":
        if self._services is None:
            from pelton.server.system.services import Services

            self._services = Services(self)
        return self._services

    # -- events

    @property
    def events(self) -> "Events":
        """The Events object, made at its first use."""
        if self._events is None:
            from pelton.server.system.events import Events

            self._events = Events(self.server_state(), self.router)
        return self._events

    @property
    def has_listeners(self) -> bool:
        """Whether any client can receive an event."""
        return self.router.subscription_count() > self._unheard

    def connected(self, connection: Connection) -> None:
        """Publish that a client has connected."""
        if self.has_listeners:
            self.events.connected(connection)

    def account_changed(self, client: "Client | LeafNode") -> None:
        """Publish that a leaf node of an account has connected or disconnected."""
        if self.has_listeners:
            self.events.account_changed(client)

    def disconnected(self, connection: Connection, client: Client) -> None:
        """Publish that a connection was closed; after a refusal, also the AUTH.ERR event."""
        if self.has_listeners:
            self.events.disconnected(connection, client)

    def leaving(self, lame_duck: bool) -> None:
        """Publish that the server stops, or enters lame duck mode."""
        if self.has_listeners:
            self.events.leaving(lame_duck)

    def tick(self, now_ns: int) -> int:
        """Publish the periodic events; returns the interval to the next call, in nanoseconds."""
        if now_ns >= self._statsz_at_ns:
            if self._statsz_at_ns and self.has_listeners:
                self.events.statistics()
            self._statsz_at_ns = now_ns + self._statsz_ns
            self._statsz_ns = min(2 * self._statsz_ns, STATSZ_NS)
        if now_ns >= self._beat_at_ns:
            if self._beat_at_ns and self.has_listeners:
                self.events.all_accounts()
            self._beat_at_ns = now_ns + ACCOUNT_BEAT_NS
        return min(self._statsz_at_ns, self._beat_at_ns)

    # -- traces

    @property
    def tracing(self) -> "MessageTraces":
        """The tracer, made at its first use."""
        if self._tracing is None:
            from pelton.server.system.message_trace import MessageTraces

            self._tracing = MessageTraces(self.server_state())
        return self._tracing

    def begin(
        self, connection: Connection, subject: str, headers: bytes, size: int
    ) -> Trace | bool | None:
        """See core/broker/session: start a trace, if the message asks for one."""
        return self.tracing.begin(connection, subject, headers, size)

    def end(self, connection: Connection, trace: Trace) -> None:
        """The traced message was published: publish its trace."""
        self.tracing.end(connection, trace)


__all__ = ["Actions", "System"]
