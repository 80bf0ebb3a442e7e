"""A server without sockets for tests: a reactor, one account, and clients that are fed and drained by hand."""

import json
from collections.abc import Callable

from pelton.core.base.clock import Clock
from pelton.core.broker.reactor import Connection, Reactor
from pelton.core.broker.router import Router
from pelton.core.broker.session import Sessions
from pelton.core.protocol.wire import ROLE_CLIENT, Parser


class Client:
    """One connection: `send` bytes, `events` gives what the server answered, parsed."""

    def __init__(self, server: "Server", connection: Connection) -> None:
        self.server = server
        self.connection = connection
        self.parser = Parser(ROLE_CLIENT)

    def send(self, data: bytes | str) -> "Client":
        self.server.sessions.feed(self.connection, data.encode() if isinstance(data, str) else data)
        return self

    def raw(self) -> bytes:
        """All bytes that wait for this client, after the server has done what there is to do."""
        self.server.reactor.settle()
        return self.connection.take()

    def events(self) -> list[tuple[object, ...]]:
        return self.parser.feed(self.raw())


class Server:
    """Reactor, Router and Sessions with a clock that stands still."""

    def __init__(
        self,
        now_ns: int = 1_700_000_000_000_000_000,
        *,
        auth: bool = False,
        seed: int = 1,
        clock: Clock | None = None,
    ) -> None:
        self.clock = clock or Clock(now_ns)
        self.reactor = Reactor(self.clock, seed)
        self.errors: list[BaseException] = []
        self.reactor.on_error = self.errors.append
        self.router = Router(self.reactor)
        self.sessions = Sessions(self.reactor, self.connect, self.router, auth)
        self.on_connect: Callable[[Connection, dict[str, object]], object] | None = None

    def connect(self, connection: Connection, text: bytes) -> Router | None:
        try:
            options = json.loads(text)
        except ValueError:
            self.reactor.disconnect(connection, "Parse Error")
            return None
        if self.on_connect is not None and not self.on_connect(connection, options):
            connection.fail(b"Authorization Violation", "Authentication Failure")
            return None
        connection.verbose = options.get("verbose", True)
        connection.pedantic = options.get("pedantic", True)
        connection.echo = options.get("echo", True)
        connection.headers = options.get("headers", False)
        connection.no_responders = options.get("no_responders", False)
        connection.ready = True
        return self.router

    def client(self, **options: object) -> Client:
        """A connected client; options go into its CONNECT (verbose and pedantic are off unless said)."""
        client = self.bare()
        said = {
            "verbose": False,
            "pedantic": False,
            "headers": True,
            "no_responders": True,
            **options,
        }
        client.send(b"CONNECT " + json.dumps(said).encode() + b"\r\n")
        if said["verbose"]:
            assert client.raw() == b"+OK\r\n"
        return client

    def bare(self) -> Client:
        """A client that has not said CONNECT."""
        return Client(self, self.sessions.accept())
