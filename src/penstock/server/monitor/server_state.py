"""The state of a running server for its reports: the parts of the server, and values derived from them.

Nothing here changes the server. Requests over HTTP and over the system account use the same reports.
"""

import os
import resource
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from penstock.core.broker.reactor import Connection, Reactor
from penstock.server.accounts.registry import ServerAccount
from penstock.server.clients.client import WEBSOCKET, Client
from penstock.server.clients.clients import Clients
from penstock.server.fast_dataclass import FastDataclass, field
from penstock.server.leaf.node import LeafNode
from penstock.server.settings import Settings
from penstock.server.settings.accounts import DEFAULT_ACCOUNT, SYSTEM_ACCOUNT

if TYPE_CHECKING:
    from penstock.engine.account import JetStreamAccount
    from penstock.server.jetstream import JetStream

LOOK_AGAIN_SECONDS = 1.0  # CPU use is measured over at least this long


class ServerState(FastDataclass):
    """The parts of one server. `accounts` gives all of them; `jetstream` None when it is off."""

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
    leaf_port: Callable[[], int] = int  # where leaf nodes are taken; 0: nowhere
    system_account: str = SYSTEM_ACCOUNT  # "": there is none
    loop_thread: int = field(
        default_factory=threading.get_ident
    )  # the thread that makes the ServerState
    loaded_ns: int = 0  # when the configuration was read; 0: at the start
    requests: dict[str, int] = field(default_factory=dict)
    _looked: tuple[float, float] = (0.0, 0.0)  # (moment, CPU seconds) of the last look
    _percent: float = 0.0

    @property
    def now_ns(self) -> int:
        """The time now, not that of the turn."""
        return self.reactor.clock.now()

    def account(self, name: str) -> ServerAccount | None:
        """The account of that name."""
        return next((each for each in self.accounts() if each.name == name), None)

    def subscriptions(self) -> int:
        """Of all accounts."""
        return sum(each.router.subscription_count() for each in self.accounts())

    def memory_bytes(self) -> int:
        """Resident memory of this process."""
        try:
            with open("/proc/self/statm", encoding="ascii") as file:
                return int(file.read().split()[1]) * resource.getpagesize()
        except (OSError, IndexError, ValueError):
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def cpu_percent(self) -> float:
        """CPU use in percent of one core since the last look, which is at least a second ago; at
        first since the start.
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
    """Processors of the machine."""
    return os.cpu_count() or 1


def client_of(connection: Connection) -> Client | None:
    """What the server keeps with it."""
    client = connection.session
    return client if isinstance(client, Client) else None


def leaf_of(connection: Connection) -> LeafNode | None:
    """The same of another server, which is a leaf node."""
    peer = connection.session
    return peer if isinstance(peer, LeafNode) else None


def account_of(connection: Connection) -> str:
    """The account of a connection; before CONNECT, the default one."""
    party = client_of(connection) or leaf_of(connection)
    return party.account_name if party is not None else DEFAULT_ACCOUNT


def type_of(client: Client) -> str:
    """How a client talks."""
    return "websocket" if client.kind == WEBSOCKET else "nats"


def tag_of(account: ServerAccount | None) -> str:
    """The name for people of an account: its tag, or its name."""
    return account.settings.name_tag or account.name if account is not None else DEFAULT_ACCOUNT


def engine_account(server_state: ServerState, name: str) -> "JetStreamAccount | None":
    """JetStream of an account; None: it has none."""
    jetstream = server_state.jetstream()
    if jetstream is None:
        return None
    return next((each for each in jetstream.accounts() if each.name == name), None)
