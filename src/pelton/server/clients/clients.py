"""The clients of one server: greeting, CONNECT, authentication, pings, and records of closed
connections.

The core calls this module on CONNECT and on close, the listener for every new connection, and a timer
for pings and deadlines. Nothing here runs per message. The reactor gives the time.
"""

from pelton.core.broker.job import Job
from pelton.core.broker.reactor import Connection, Reactor
from pelton.core.broker.router import Router
from pelton.core.broker.session import PENDING
from pelton.server.auth import Admitted, AuthContext, Authenticator, PendingOutcome, Refused
from pelton.server.auth.compiled_permissions import permits_of
from pelton.server.auth.connect_options import Credentials, read_connect
from pelton.server.clients.auth_context import auth_context, has_guest, must_log_in, with_cookies
from pelton.server.clients.client import WEBSOCKET, Client, full_label, where
from pelton.server.clients.closed_connections import ClosedConnections, ClosedTotals, departed
from pelton.server.clients.timer_wheel import NEVER_NS, STEP_NS, TimerWheel
from pelton.server.identity import Greeting, new_nonce
from pelton.server.logs.log import Log
from pelton.server.logs.rate_limited_log import RateLimitedLog
from pelton.server.settings import Settings
from pelton.server.units import SECOND_NS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pelton.core.protocol.permissions import ConnectionPermissions
    from pelton.server.accounts.registry import Accounts, ServerAccount
    from pelton.server.system import System

CHECKED_AT_ONCE = 20  # connected clients that are checked again in one turn
FIRST_PING_NS = 2 * SECOND_NS
# Settings of authentication.
AUTHORIZATION = frozenset(
    {"user", "password", "token", "users", "accounts", "no_auth_user", "auth_callout"}
)


class Clients:
    """All clients of one server."""

    def __init__(
        self,
        reactor: Reactor,
        settings: Settings,
        greeting: Greeting,
        log: Log,
        authenticator: Authenticator,
        accounts: "Accounts",
    ) -> None:
        """The clients of a reactor; settings are read at each use.

        The owner of the event loop sets the hooks: `admit` (Sessions.admit), `kick` (work was done
        outside a turn), `call_at` (call at a time of the reactor's clock), `sweep_by` (sweep not
        later than).
        """
        self.reactor = reactor
        self.settings = settings
        self.greeting = greeting
        self.log = log
        self.open = 0
        self.total = 0
        self.stale = 0
        self._past: dict[str, ClosedTotals] = {}  # by account
        self.system: System | None = None  # gets events about connections
        self.authenticator = authenticator
        self.accounts = accounts
        self.admit: Callable[[Connection, Router], object] = _nothing
        self.recheck: Callable[[Connection], object] = _nothing
        self.kick: Callable[[], object] = _nothing
        self.call_at: Callable[[int, Callable[[], None]], object] = lambda when_ns, call: call()
        self.sweep_by: Callable[[int], object] = _nothing
        self._violations = RateLimitedLog(log, "permissions violations")
        self._refusals = RateLimitedLog(log, "authentication errors")
        self._broken = RateLimitedLog(log, "protocol errors")
        self._surplus = RateLimitedLog(log, "connections above a limit")
        self._slow = RateLimitedLog(log, "slow consumers", level="INF")
        self._wheel = TimerWheel()
        self.departed = ClosedConnections(settings.max_closed_clients)

    def label(self, connection: Connection) -> str:
        """The beginning of a log line about a connection: its address, the client's own
        description, and its user.
        """
        client = connection.session
        return (
            full_label(connection, client) if isinstance(client, Client) else f"cid:{connection.id}"
        )

    def greet(self, connection: Connection, host: str, port: int) -> Client:
        """Greet a new plain connection; refuse it when there are too many connections."""
        client = self.register(connection, host, port)
        self.say_info(connection, client)
        self.arrived(connection, client)
        return client

    def register(
        self, connection: Connection, host: str, port: int, *, websocket: bool = False
    ) -> Client:
        """Register a new connection. The caller calls `arrived` when the connection may send."""
        client = Client(host, port, NEVER_NS)
        if websocket:
            client.kind = WEBSOCKET
            connection.ready = not must_log_in(self.settings, client.kind)
        connection.session = client
        self.open += 1
        self.total += 1
        if self.authenticator.nonce_needed:
            client.nonce = new_nonce()
        if self.log.debug_on:
            self.log.debug(f"{where(connection, client)} - Client connection created")
        return client

    def arrived(self, connection: Connection, client: Client) -> None:
        """Set the client's first deadline: the authentication timeout, or the first ping."""
        now = self.reactor.now_ns
        if connection.ready:
            due = now + self._first_ping(connection.id)
        else:
            due = now + self._auth_timeout_ns(client)
        self._wheel.put(connection, client, due)

    def _auth_timeout_ns(self, client: Client) -> int:
        settings = self.settings
        own = settings.websocket.auth_timeout_ns if client.kind == WEBSOCKET else 0
        return own or settings.auth_timeout_ns

    def say_info(self, connection: Connection, client: Client, *, address: bool = True) -> None:
        """Send INFO; refuse the connection when there are too many.

        Without `address`, INFO does not contain the connection's address, because it is the address
        of a proxy.
        """
        self._write_info(connection, client, address=address)
        if self.open > self.settings.max_connections:
            line = f"{where(connection, client)} - maximum connections exceeded"
            self._surplus.say(self.reactor.clock.now(), line)
            connection.fail(b"maximum connections exceeded", "Maximum Connections Exceeded")

    def say_again(self, connection: Connection, client: Client, *, answer: bool = False) -> bool:
        """Send INFO again to a client that supports it and has connected; return whether it was
        sent.

        `answer`: this INFO tells the account that CONNECT led to.
        """
        if client.protocol < 1 or not connection.ponged:
            return False
        line = self.greeting.later(
            connection.id,
            client.host,
            min(client.max_payload, self.settings.max_payload),
            client.account_name if answer else "",
            system=answer and client.account is self.accounts.system,
            websocket=client.kind == WEBSOCKET,
        )
        connection.write(line)
        return True

    def ponged(self, connection: Connection) -> None:
        """Send the account of the client in an INFO; called when its first PING after CONNECT is
        answered.
        """
        client = connection.session
        if isinstance(client, Client):
            self.say_again(connection, client, answer=True)

    def _write_info(self, connection: Connection, client: Client, *, address: bool = True) -> None:
        host = client.host if address else ""
        websocket = client.kind == WEBSOCKET
        line = self.greeting.line(connection.id, host, client.nonce, websocket=websocket)
        connection.write(line)

    def guest(self, connection: Connection) -> Router | None:
        """The router for a first operation that is not CONNECT; None when the client was refused.

        A client may leave CONNECT out when its listener has a user for clients without credentials;
        the router is that of the user's account. Before CONNECT a client counts in no account,
        because CONNECT may lead to another account.
        """
        client = connection.session
        if not isinstance(client, Client) or not has_guest(self.settings, client.kind):
            return None
        outcome = self.authenticator.check(Credentials(), self.auth_context(connection, client))
        if isinstance(outcome, Admitted) and not outcome.nkey:
            return self._bind(connection, client, outcome)
        return None

    def _first_ping(self, cid: int) -> int:
        """The interval from CONNECT to the first ping: about two seconds, spread over one second
        more so that the pings of thousands of clients do not coincide.
        """
        return min(FIRST_PING_NS + cid * 7919 % 1000 * 1_000_000, self.settings.ping_interval_ns)

    def connect(self, connection: Connection, text: bytes) -> object:
        """Handle CONNECT: set the connection's flags and return its router.

        None: the client was refused, and the error was sent. PENDING: the authentication takes
        time, and `admit` is called later with the router.
        """
        try:
            asked = read_connect(text)
        except ValueError:
            self.broke(connection, "parse error: CONNECT is not the expected JSON")
            self.reactor.disconnect(connection, "Parse Error")
            return None
        client = connection.session
        assert isinstance(client, Client)
        asked = with_cookies(asked, client)
        client.name, client.lang, client.version = asked.name, asked.lang, asked.version
        client.protocol = asked.protocol
        outcome = self.authenticator.check(asked, self.auth_context(connection, client))
        if isinstance(outcome, PendingOutcome):
            if outcome.outcome is None:
                self.look_at(connection, client, NEVER_NS)  # the callout has its own timeout
                outcome.then(lambda decided: self._decided(connection, client, asked, decided))
                return PENDING
            outcome = outcome.outcome
        if isinstance(outcome, Refused):
            return self._refuse(connection, client, asked, outcome)
        return self._enter(connection, client, asked, outcome)

    def auth_context(self, connection: Connection, client: Client) -> AuthContext:
        """The inputs of a client's authentication."""
        return auth_context(self.settings, client, connection.id)

    def _decided(
        self,
        connection: Connection,
        client: Client,
        asked: "Credentials",
        outcome: Admitted | Refused,
    ) -> None:
        """Apply an outcome that took time; the connection may be closed by now."""
        if connection.closed or connection.closing:
            return
        if isinstance(outcome, Refused):
            self._refuse(connection, client, asked, outcome)
        else:
            router = self._enter(connection, client, asked, outcome)
            if router is not None:
                self.admit(connection, router)
        self.kick()

    def _refuse(
        self, connection: Connection, client: Client, asked: "Credentials", refusal: Refused
    ) -> object:
        """Refuse a client: at once, or later when its address has failed often."""
        client.user = asked.user
        self._complain(connection, client, asked, refusal)
        self.authenticator.refused(self.auth_context(connection, client), asked, refusal)
        delay = self.authenticator.failure_delay
        when_ns = delay.failed(client.host, self.reactor.now_ns)
        if not when_ns:
            connection.fail(refusal.error, refusal.reason)
            return None

        def answer() -> None:
            delay.answered(client.host)
            connection.fail(refusal.error, refusal.reason)
            self.kick()

        self.look_at(connection, client, NEVER_NS)
        self.call_at(when_ns, answer)
        return PENDING

    def _complain(
        self, connection: Connection, client: Client, asked: "Credentials", refusal: Refused
    ) -> None:
        """Log a refusal, unless there were many in this second."""
        begin = where(connection, client)
        if self.log.debug_on and refusal.why:
            self.log.debug(f"{begin} - {refusal.why}")
        line = f"{begin} - authentication error - {asked.shown}"
        self._refusals.say(self.reactor.now_ns, line)

    def _enter(
        self, connection: Connection, client: Client, asked: "Credentials", admitted: Admitted
    ) -> Router | None:
        """Authentication succeeded: apply CONNECT and admit the client."""
        if asked.protocol not in (0, 1):
            connection.fail(b"invalid client protocol", "Bad Client Protocol Version")
            return None
        if asked.no_responders and not (asked.headers and self.settings.headers):
            connection.fail(
                b"no responders requires headers support", "No Responders Requires Headers"
            )
            return None
        connection.verbose = asked.verbose
        connection.pedantic = asked.pedantic
        connection.echo = asked.echo
        connection.headers = asked.headers and self.settings.headers
        connection.no_responders = asked.no_responders
        return self._bind(connection, client, admitted)

    def _bind(self, connection: Connection, client: Client, admitted: Admitted) -> Router | None:
        """Bind a connection to its user and account; None when it was refused, for example because
        the account is full.
        """
        permits = self._permits(connection, admitted)
        if isinstance(permits, Refused):
            connection.fail(permits.error, permits.reason)
            return None
        account = self.accounts.get(admitted.account)
        if account is None:
            connection.fail(b"Authorization Violation", "Missing Account")
            return None
        if not self.accounts.join(connection, account):
            self._fail_full(connection)
            return None
        known = client.account is account and client.user == admitted.name
        client.account = account
        client.admitted = admitted
        client.user = admitted.name
        connection.permissions = permits
        self._limit(connection, admitted)
        client.expires_ns = admitted.expires_ns or NEVER_NS
        due_ns = min(self.reactor.now_ns + self._first_ping(connection.id), client.expires_ns)
        self.look_at(connection, client, due_ns)
        connection.ready = True
        if self.system is not None and not known:
            self.system.connected(connection)
        return account.router

    def _permits(
        self, connection: Connection, admitted: Admitted
    ) -> "ConnectionPermissions | Refused | None":
        """The permissions that the core checks; Refused when a JWT has an invalid subject, because
        the core could not enforce a deny on such a subject.
        """
        try:
            return permits_of(admitted.permissions)
        except ValueError as problem:
            self.violated(connection, f"the permissions of the user are not valid: {problem}")
            return Refused("the permissions of the user are not valid")

    def _limit(self, connection: Connection, admitted: Admitted) -> None:
        """Set the connection's limits: the lower ones of the server's and the user's."""
        settings, limits = self.settings, admitted.limits
        payload, subscriptions = settings.max_payload, settings.max_subscriptions or -1
        payloads, counts = [limits.payload], [limits.subscriptions]
        client = connection.session
        if isinstance(client, Client) and client.account is not None:
            of_account = client.account.settings.limits
            payloads.append(of_account.max_payload)
            counts.append(of_account.max_subscriptions)
        payload = min([payload, *(each for each in payloads if each >= 0)])
        counts = [each for each in (subscriptions, *counts) if each >= 0]
        subscriptions = min(counts, default=-1)
        if isinstance(client, Client):
            client.max_payload = payload
        connection.limit(settings.max_control_line, payload)
        connection.max_subscriptions = subscriptions

    def violated(self, connection: Connection, text: str) -> None:
        """Log a permissions violation of a client."""
        self._violations.say(self.reactor.now_ns, f"{self.label(connection)} - {text}")

    def broke(self, connection: Connection, text: str) -> None:
        """Log a protocol error of a client; `text` contains no secret."""
        self._broken.say(self.reactor.now_ns, f"{self.label(connection)} - {text}")

    def closed(self, connection: Connection) -> None:
        """The core has closed a connection: remove and record the client."""
        client = connection.session
        if not isinstance(client, Client):
            return
        self.open -= 1
        self.accounts.leave(connection)
        self._wheel.drop(connection, client)
        if connection.reason == "Stale Connection":
            self.stale += 1
        totals = self.closed_totals(client.account_name)
        totals.in_msgs += connection.in_msgs
        totals.out_msgs += connection.out_msgs
        totals.in_bytes += connection.in_bytes
        totals.out_bytes += connection.out_bytes
        if connection.reason.startswith("Slow Consumer"):
            totals.slow_consumers += 1
            self._tell_slow(connection)
        if self.system is not None:
            self.system.disconnected(connection, client)
        self.remember(connection, client)
        if self.log.debug_on:
            self.log.debug(
                f"{where(connection, client)} - Client connection closed: {connection.reason}"
            )

    def remember(self, connection: Connection, client: Client) -> None:
        """Record the closed connection of a client or a leaf node for monitoring."""
        if self.departed.size:
            self.departed.append(departed(connection, client, self.reactor.now_ns))

    def _tell_slow(self, connection: Connection) -> None:
        settings = self.settings
        if connection.reason.endswith("(Pending Bytes)"):
            what = f"MaxPending of {settings.max_pending} Exceeded"
        else:
            what = f"WriteDeadline of {settings.write_deadline_ns / SECOND_NS:g}s exceeded"
        text = f"{self.label(connection)} - Slow Consumer Detected: {what}"
        self._slow.say(self.reactor.now_ns, text)

    def closed_totals(self, account: str) -> ClosedTotals:
        """The totals of an account's closed connections."""
        return self._past.setdefault(account, ClosedTotals())

    def tell_lame_duck(self) -> None:
        """Send the lame duck INFO to the clients that support it."""
        for connection in self.reactor.all_connections():
            client = connection.session
            if isinstance(client, Client):
                self.say_again(connection, client)

    def reloaded(self, changed: list[str]) -> None:
        """Apply changed settings: close connections of clients that are no longer allowed, and the
        newest ones above the connection limits.
        """
        settings = self.settings
        connections = [c for c in self.reactor.all_connections() if isinstance(c.session, Client)]
        again = bool(AUTHORIZATION & set(changed))
        pins = settings.tls.pinned_certs if settings.tls is not None else frozenset()
        if again:
            self.authenticator.refresh()

        def look(connection: Connection) -> None:
            if pins and not _is_pinned(connection, pins):
                self.reactor.disconnect(connection, "TLS Handshake Failure")
                return
            if again:
                self._check_again(connection)
            client = connection.session
            if isinstance(client, Client) and client.admitted is not None:
                self._limit(connection, client.admitted)
            else:
                connection.limit(self.settings.max_control_line, self.settings.max_payload)

        def close_surplus() -> None:
            for connection in connections[max(settings.max_connections, 0) :]:
                if not connection.closed:
                    connection.fail(b"maximum connections exceeded", "Maximum Connections Exceeded")
            for account in self.accounts.all():
                self._close_surplus(account)

        self._look_at_each(connections, look, close_surplus)

    def _look_at_each(
        self,
        connections: list[Connection],
        look: "Callable[[Connection], None]",
        then: "Callable[[], None]",
    ) -> None:
        """Call `look` with all connections, a few in each turn, and `then` at the end. The first of
        them are done on return.
        """
        each = iter(list(connections))

        def step() -> bool:
            cost = 0
            for connection in each:
                if not connection.closed:
                    look(connection)
                    cost += _cost(connection)
                    if cost >= CHECKED_AT_ONCE:
                        return True
            then()
            self.kick()
            return False

        if step():
            Job(self.reactor, step).soon()
            self.kick()

    def _check_again(self, connection: Connection) -> None:
        """Check a client again: close its connection when it is no longer allowed, else update its
        permissions.
        """
        client = connection.session
        if not isinstance(client, Client) or connection.closing:
            return
        before = client.admitted or Admitted("")
        permissions = before.permissions
        now = self.authenticator.still_valid(before)
        if isinstance(now, Refused):
            self.expel(connection, now)
        elif client.admitted is not None:
            client.admitted = now
            self._limit(connection, now)
            if now.permissions != permissions:
                permits = self._permits(connection, now)
                if isinstance(permits, Refused):
                    self.expel(connection, permits)
                    return
                connection.permissions = permits
                self.recheck(connection)

    def account_changed(self, name: str) -> None:
        """Check an account's clients again; called when its JWT was updated or has expired."""
        account = self.accounts.get(name)
        if account is None:
            return
        self._look_at_each(
            list(account.connections.values()),
            self._check_again,
            lambda: self._close_surplus(account),
        )

    def _close_surplus(self, account: "ServerAccount") -> None:
        """Close the newest connections above the account's limits."""
        for connection in account.surplus():
            self._fail_full(connection)

    def _fail_full(self, connection: Connection) -> None:
        line = f"{self.label(connection)} - maximum account active connections exceeded"
        self._surplus.say(self.reactor.now_ns, line)
        text = "Maximum Account Connections Exceeded"
        connection.fail(b"maximum account active connections exceeded", text)

    def expel(self, connection: Connection, refusal: Refused) -> None:
        """Close the connection of a client that is no longer allowed."""
        if refusal.error:
            connection.fail(refusal.error, refusal.reason)
        else:
            self.reactor.disconnect(connection, refusal.reason)

    def sweep(self, now_ns: int) -> int:
        """Ping the clients that are due, close stale and unauthenticated ones. Returns the time of
        the next sweep (NEVER_NS without clients).
        """
        for connection, client in self._wheel.take(now_ns):
            assert isinstance(client, Client)
            due_ns = NEVER_NS if connection.closing else self._due(connection, client, now_ns)
            if not connection.closed:
                self._wheel.put(connection, client, due_ns)
        next_ns = self._wheel.next_ns()
        return max(next_ns, now_ns + STEP_NS) if next_ns < NEVER_NS else NEVER_NS

    def look_at(self, connection: Connection, client: Client, due_ns: int) -> None:
        """Set the time of a client's next check; it replaces the former one."""
        self._wheel.put(connection, client, due_ns)
        self.sweep_by(due_ns)

    def _due(self, connection: Connection, client: Client, now_ns: int) -> int:
        """Check one client; return the time of its next check."""
        settings = self.settings
        if not connection.ready:
            connection.fail(b"Authentication Timeout", "Authentication Timeout")
            return NEVER_NS
        if client.expires_ns <= now_ns:
            connection.fail(b"User Authentication Expired", "Authentication Expired")
            return NEVER_NS
        interval = settings.ping_interval_ns
        if client.kind == WEBSOCKET and settings.websocket.ping_interval_ns:
            interval = settings.websocket.ping_interval_ns
        begun = connection.partial_ns
        if begun and now_ns - begun > interval * (settings.ping_max + 1):
            # bytes arrive, but their operation does not end
            connection.fail(b"Stale Connection", "Stale Connection")
            return NEVER_NS
        if client.pinged and now_ns - connection.last_ns < interval:
            # recent bytes show that the client is alive
            return min(connection.last_ns + interval, client.expires_ns)
        if connection.pings_out + 1 > settings.ping_max:
            self.log.debug(f"cid:{connection.id} - Stale Client Connection - Closing")
            connection.fail(b"Stale Connection", "Stale Connection")
            return NEVER_NS
        client.pinged = True
        connection.pings_out += 1
        connection.ping_ns = now_ns
        connection.write(b"PING\r\n")
        return min(now_ns + interval, client.expires_ns)


def _cost(connection: Connection) -> int:
    """The work of a look at a connected client: a long JWT and many subscriptions count more."""
    client = connection.session
    jwt = client.admitted.jwt if isinstance(client, Client) and client.admitted else ""
    return 1 + len(jwt) // 8192 + connection.subscription_count() // 500


def _is_pinned(connection: Connection, pins: frozenset[str]) -> bool:
    """Whether a client of the TLS listener shows a pinned certificate; True for others."""
    client = connection.session
    if not isinstance(client, Client) or client.tls is None or client.kind == WEBSOCKET:
        return True
    return client.tls.is_pinned(pins)


def _nothing(*_: object) -> None:
    """The default of a hook: do nothing."""
