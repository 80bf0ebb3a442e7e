"""The server's clients as people: greeting, CONNECT, who they are, pings, and what is remembered of
them when they have gone.

Called by the core on CONNECT and on close, by the listener for every new connection, and by a
timer. Nothing here runs per message. Knows nothing of sockets; time comes from the hub.
"""

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from penstock.core.hub import Connection, Hub
from penstock.core.router import Router
from penstock.server.auth import authenticate
from penstock.server.identity import Greeting
from penstock.server.log import Log
from penstock.server.settings import Settings
from penstock.server.units import SECOND_NS

if TYPE_CHECKING:
    from penstock.server.tls import TlsFacts

FIRST_PING_NS = 2 * SECOND_NS
SWEEP_MIN_NS = SECOND_NS // 4  # how often all clients are looked at, at most
NEVER_NS = 1 << 62


class Connect(msgspec.Struct):
    """What CONNECT says; fields that are absent keep the protocol's defaults. Unknown fields are
    ignored.
    """

    verbose: bool = True
    pedantic: bool = True
    echo: bool = True
    headers: bool = False
    no_responders: bool = False
    protocol: int = 0
    name: str = ""
    lang: str = ""
    version: str = ""
    user: str = ""
    password: str = msgspec.field(name="pass", default="")
    auth_token: str = ""
    account: str = ""
    new_account: bool = False


_CONNECT = msgspec.json.Decoder(Connect | None)


class Cookies(NamedTuple):
    """Credentials that came with a WebSocket's request: used where CONNECT says nothing."""

    jwt: str = ""
    user: str = ""
    password: str = ""
    token: str = ""


class Client:
    """What the server keeps with a Connection (its ``session``)."""

    __slots__ = (
        "cookies",
        "due_ns",
        "host",
        "lang",
        "name",
        "pinged",
        "port",
        "protocol",
        "tls",
        "user",
        "version",
        "websocket",
    )

    def __init__(self, host: str, port: int, due_ns: int) -> None:
        """A client at that address, to be looked at again at due_ns."""
        self.host = host
        self.port = port
        self.due_ns = due_ns  # when to look at it again: authentication is late, or a ping is due
        self.pinged = False
        self.name = ""
        self.lang = ""
        self.version = ""
        self.user = ""
        self.protocol = 0
        self.tls: TlsFacts | None = None  # what its handshake has told
        self.websocket = False
        self.cookies: Cookies | None = None  # credentials of a WebSocket's request


class Departed(NamedTuple):
    """A closed connection as /connz?state=closed shows it."""

    cid: int
    client: Client
    start_ns: int
    stop_ns: int
    last_ns: int
    reason: str
    in_msgs: int
    out_msgs: int
    in_bytes: int
    out_bytes: int
    subscriptions: int


class Clients:
    """All clients of one server."""

    def __init__(
        self, hub: Hub, router: Router, settings: Settings, greeting: Greeting, log: Log
    ) -> None:
        """The clients of a hub that all use one router; settings are looked at anew each time."""
        self.hub = hub
        self.router = router
        self.settings = settings
        self.greeting = greeting
        self.log = log
        self.open = 0
        self.total = 0
        self.stale = 0
        self.departed: deque[Departed] = deque(maxlen=settings.max_closed_clients)

    def greet(self, connection: Connection, host: str, port: int) -> None:
        """A new plain connection: say who we are, and refuse it when there are too many."""
        client = self.register(connection, host, port)
        self.arrived(connection, client)
        self.say_info(connection, client)

    def register(
        self, connection: Connection, host: str, port: int, *, websocket: bool = False
    ) -> Client:
        """A new connection; `arrived` follows when it may speak."""
        client = Client(host, port, NEVER_NS)
        client.websocket = websocket
        connection.session = client
        self.open += 1
        self.total += 1
        if self.log.debug_on:
            self.log.debug(f"{host}:{port} - cid:{connection.id} - Client connection created")
        return client

    def arrived(self, connection: Connection, client: Client) -> None:
        """From here on the client is expected to say something."""
        now = self.hub.now_ns
        if connection.ready:
            client.due_ns = now + self._first_ping(connection.id)
        else:
            client.due_ns = now + self._auth_timeout_ns(client)

    def _auth_timeout_ns(self, client: Client) -> int:
        settings = self.settings
        own = settings.websocket.auth_timeout_ns if client.websocket else 0
        return own or settings.auth_timeout_ns

    def say_info(self, connection: Connection, client: Client) -> None:
        """Say who we are; refuse the connection when there are too many."""
        line = self.greeting.line(connection.id, client.host, websocket=client.websocket)
        connection.write(line)
        if self.open > self.settings.max_connections:
            self.log.error(
                f"{client.host}:{client.port} - cid:{connection.id} - maximum connections exceeded"
            )
            connection.fail(b"maximum connections exceeded", "Maximum Connections Exceeded")

    def _first_ping(self, cid: int) -> int:
        """About two seconds after connecting, spread over one more so that thousands don't come at
        once.
        """
        return min(FIRST_PING_NS + cid * 7919 % 1000 * 1_000_000, self.settings.ping_interval_ns)

    def connect(self, connection: Connection, text: bytes) -> Router | None:
        """CONNECT came: set the connection's flags; its router, or None when it was refused (and
        told why).
        """
        try:
            asked = _CONNECT.decode(text) or Connect()
        except (msgspec.DecodeError, UnicodeDecodeError):
            self.log.debug(f"cid:{connection.id} - CONNECT is not the expected JSON")
            self.hub.disconnect(connection, "Parse Error")
            return None
        client = connection.session
        if isinstance(client, Client):
            client.name, client.lang, client.version = asked.name, asked.lang, asked.version
            client.protocol = asked.protocol
        if self.log.trace_on:
            self.log.trace(f"cid:{connection.id} - <<- [CONNECT {_without_secrets(asked)}]")
        return self.router if self._admit(connection, client, asked) else None

    def _admit(self, connection: Connection, client: object, asked: Connect) -> bool:
        settings = self.settings
        if settings.auth_required or asked.account or asked.new_account:
            user = None
            if not (asked.account or asked.new_account):
                user = authenticate(settings, asked.user, asked.password, asked.auth_token)
            if user is None:
                self.log.error(f'cid:{connection.id} - authentication error - User "{asked.user}"')
                connection.fail(b"Authorization Violation", "Authentication Failure")
                return False
            if isinstance(client, Client):
                client.user = user
                client.due_ns = self.hub.now_ns + self._first_ping(connection.id)
        if asked.protocol not in (0, 1):
            connection.fail(b"invalid client protocol", "Bad Client Protocol Version")
            return False
        if asked.no_responders and not asked.headers:
            connection.fail(
                b"no responders requires headers support", "No Responders Requires Headers"
            )
            return False
        connection.verbose = asked.verbose
        connection.pedantic = asked.pedantic
        connection.echo = asked.echo
        connection.headers = asked.headers
        connection.no_responders = asked.no_responders
        connection.ready = True
        return True

    def closed(self, connection: Connection) -> None:
        """The core has closed a connection."""
        client = connection.session
        if not isinstance(client, Client):
            return
        self.open -= 1
        if connection.reason == "Stale Connection":
            self.stale += 1
        if self.departed.maxlen:
            self.departed.append(
                Departed(
                    connection.id,
                    client,
                    connection.start_ns,
                    self.hub.now_ns,
                    connection.last_ns,
                    connection.reason,
                    connection.in_msgs,
                    connection.out_msgs,
                    connection.in_bytes,
                    connection.out_bytes,
                    connection.subscription_count(),
                )
            )
        if self.log.debug_on:
            self.log.debug(
                f"{client.host}:{client.port} - cid:{connection.id} - "
                f"Client connection closed: {connection.reason}"
            )

    def tell_lame_duck(self) -> None:
        """Send the clients that understand it the INFO that says we are about to go."""
        for connection in self.hub.all_connections():
            client = connection.session
            if isinstance(client, Client) and client.protocol >= 1:
                line = self.greeting.line(connection.id, client.host, websocket=client.websocket)
                connection.write(line)

    def reloaded(self, changed: list[str]) -> None:
        """Settings have changed: who is no longer let in has to go, the newest go when there are
        too many.
        """
        settings = self.settings
        connections = self.hub.all_connections()
        if settings.auth_required and {"user", "password", "token", "users"} & set(changed):
            for connection in connections:
                connection.fail(b"Authorization Violation", "Authentication Failure")
            return
        for connection in connections[max(settings.max_connections, 0) :]:
            connection.fail(b"maximum connections exceeded", "Maximum Connections Exceeded")
        for connection in connections:
            connection.limit(settings.max_control_line, settings.max_payload)

    def sweep(self, now_ns: int) -> int:
        """Ping who is due, close who is stale or has not said who it is; when to sweep again
        (NEVER_NS without clients).
        """
        next_ns = NEVER_NS
        for connection in self.hub.all_connections():
            client = connection.session
            if not isinstance(client, Client) or connection.closing:
                continue
            if client.due_ns <= now_ns:
                self._due(connection, client, now_ns)
            next_ns = min(next_ns, client.due_ns)
        return max(next_ns, now_ns + SWEEP_MIN_NS) if next_ns < NEVER_NS else NEVER_NS

    def _due(self, connection: Connection, client: Client, now_ns: int) -> None:
        settings = self.settings
        if not connection.ready:
            connection.fail(b"Authentication Timeout", "Authentication Timeout")
            return
        interval = settings.ping_interval_ns
        if client.websocket and settings.websocket.ping_interval_ns:
            interval = settings.websocket.ping_interval_ns
        if client.pinged and now_ns - connection.last_ns < interval:
            client.due_ns = connection.last_ns + interval  # it talks: no need to ask
            return
        if connection.pings_out + 1 > settings.ping_max:
            self.log.debug(f"cid:{connection.id} - Stale Client Connection - Closing")
            connection.fail(b"Stale Connection", "Stale Connection")
            return
        client.pinged = True
        connection.pings_out += 1
        connection.write(b"PING\r\n")
        client.due_ns = now_ns + interval


def _without_secrets(asked: Connect) -> str:
    fields = {"name": asked.name, "lang": asked.lang, "version": asked.version, "user": asked.user}
    return msgspec.json.encode(fields).decode()
