"""The state of a running server for its reports: its parts, and values derived from them.

This module changes nothing. Requests over HTTP and over the system account use the same reports.
"""

import os
import resource
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from msgspec import Struct, field

from pelton.core.broker.reactor import Connection, Reactor
from pelton.server.accounts.registry import ServerAccount
from pelton.server.clients.client import WEBSOCKET, Client
from pelton.server.clients.clients import Clients
from pelton.server.leaf.node import LeafNode
from pelton.server.settings import Settings
from pelton.server.settings.accounts import DEFAULT_ACCOUNT, SYSTEM_ACCOUNT

if TYPE_CHECKING:
    from pelton.engine.account.account import JetStreamAccount
    from pelton.server.jetstream import JetStream

LOOK_AGAIN_SECONDS = 1.0  # CPU use is measured over at least this time


class ServerState(Struct):
    """The parts of one server. `accounts` returns all accounts; `jetstream` is None when it is off."""

    settings: Settings
    server_id: str
    server_name: str
    host: str
    port: int
    http_port: int
    start_ns: int
    reactor: Reactor
    clients: Clients
    accounts: Callable[[], Iterable[ServerAccount]]
    jetstream: Callable[[], "JetStream | None"]
    warn: Callable[[str], object] = print
    leaf_port: Callable[[], int] = int  # the leaf node listener's port; 0: none
    system_account: str = SYSTEM_ACCOUNT  # "": no system account
    loop_thread: int = field(
        default_factory=threading.get_ident
    )  # the thread that made the ServerState
    loaded_ns: int = 0  # time of the last reload; 0: the start
    requests: dict[str, int] = field(default_factory=dict)
    _looked: tuple[float, float] = (0.0, 0.0)  # (time, CPU seconds) of the last measurement
    _percent: float = 0.0

    @property
    def now_ns(self) -> int:
        """The current time, not that of the turn."""
        return self.reactor.clock.now()

    def account(self, name: str) -> ServerAccount | None:
        """The account with this name."""
        return next((each for each in self.accounts() if each.name == name), None)

    def subscriptions(self) -> int:
        """The number of subscriptions in all accounts."""
        return sum(each.router.subscription_count() for each in self.accounts())

    def memory_bytes(self) -> int:
        """Resident memory of this process."""
        try:
            with open("/proc/self/statm", encoding="ascii") as file:
                return int(file.read().split()[1]) * resource.getpagesize()
        except (OSError, IndexError, ValueError):
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def cpu_percent(self) -> float:
        """CPU use in percent of one core since the last measurement, at least a second ago; the
        first measurement covers the time since the start.
        """
        now, used = time.monotonic(), time.process_time()
        before, used_before = self._looked
        if not before:
            before = now - max((self.now_ns - self.start_ns) / 1e9, LOOK_AGAIN_SECONDS)
        if now - before >= LOOK_AGAIN_SECONDS:
            self._looked = (now, used)
            self._percent = round(100 * (used - used_before) / (now - before), 1)
        return self._percent


def cores() -> int:
    """Number of the machine's processors."""
    return os.cpu_count() or 1


def client_of(connection: Connection) -> Client | None:
    """The Client of a connection."""
    client = connection.session
    return client if isinstance(client, Client) else None


def leaf_of(connection: Connection) -> LeafNode | None:
    """The LeafNode of a connection."""
    peer = connection.session
    return peer if isinstance(peer, LeafNode) else None


def account_of(connection: Connection) -> str:
    """The account of a connection; before CONNECT, the default one."""
    party = client_of(connection) or leaf_of(connection)
    return party.account_name if party is not None else DEFAULT_ACCOUNT


def type_of(client: Client) -> str:
    """The protocol family of a client."""
    return "websocket" if client.kind == WEBSOCKET else "nats"


def tag_of(account: ServerAccount | None) -> str:
    """The readable name of an account: its tag, or its name."""
    return account.settings.name_tag or account.name if account is not None else DEFAULT_ACCOUNT


def engine_account(server_state: ServerState, name: str) -> "JetStreamAccount | None":
    """The account's JetStream; None when it has none."""
    jetstream = server_state.jetstream()
    if jetstream is None:
        return None
    return next((each for each in jetstream.accounts() if each.name == name), None)
