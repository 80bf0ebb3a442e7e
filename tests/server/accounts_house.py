"""Accounts without sockets: a reactor, accounts from settings, and clients that are fed by hand."""

from collections.abc import Iterable

from pelton.core.broker.reactor import Connection
from pelton.core.broker.router import Router
from pelton.core.protocol.wire import OP_MSG
from pelton.server.accounts.registry import Accounts
from pelton.server.clients.client import Client
from pelton.server.settings.accounts import AccountSettings
from tests.core.wires import Client as Wire
from tests.core.wires import Server

SECOND = 1_000_000_000


class House(Server):
    """A server whose clients say with `user` which account they belong to."""

    def __init__(self, settings: Iterable[AccountSettings], **options: str | bool) -> None:
        super().__init__()
        self.draws = iter(())
        self.due_ns = 0
        self.accounts = Accounts(
            self.reactor, draw=lambda below: next(self.draws) % below, **options
        )
        self.accounts.call_at = self._call_at
        self.accounts.server_name = "S"
        self.accounts.apply(settings)
        self.chosen = ""

    def connect(self, connection: Connection, text: bytes) -> Router | None:
        super().connect(connection, text)
        account = self.accounts.get(self.chosen)
        assert account is not None
        if not self.accounts.join(connection, account):
            connection.fail(b"maximum account active connections exceeded", "full")
            return None
        client = connection.session = Client("127.0.0.1", 4711, 0)
        client.account = account
        return account.router

    def of(self, account: str, **options: object) -> Wire:
        """A client of this account."""
        self.chosen = account
        return self.client(**options)

    def _call_at(self, when_ns: int, call: object) -> None:
        self.due_ns, self.due = when_ns, call

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and what is due happen."""
        end_ns = self.clock.now() + round(seconds * SECOND)
        while self.due_ns and self.due_ns <= end_ns:
            self.clock.set(self.due_ns)
            self.reactor.turn()
            self.due_ns, due = 0, self.due
            due()
        self.clock.set(end_ns)
        self.reactor.turn()


Message = tuple[str, int, str, bytes]  # subject, sid, reply, payload


def messages(client: Wire) -> list[Message]:
    """What a client got, without statuses."""
    return [
        (event[1], event[2], event[3], event[5])
        for event in client.events()
        if event[0] == OP_MSG and not event[4].startswith(b"NATS/1.0 5")
    ]


def statuses(client: Wire) -> list[bytes]:
    """The status lines a client got."""
    return [
        event[4].split(b"\r\n")[0]
        for event in client.events()
        if event[0] == OP_MSG and event[4].startswith(b"NATS/1.0 ")
    ]
