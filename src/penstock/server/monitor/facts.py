"""What monitoring looks at: the parts of a running server, and small facts worked out of them.

Nothing here changes the server. Knows nothing of HTTP or of the system account's subjects: both ask
the same reports.
"""

import os
import resource
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from penstock.core.hub import Connection, Hub
from penstock.core.router import Router
from penstock.server.clients import Client, Clients, account_name
from penstock.server.settings import Settings

if TYPE_CHECKING:
    from penstock.engine.account import Account as EngineAccount
    from penstock.server.jetstream import JetStream

GLOBAL_ACCOUNT = "$G"
SYSTEM_ACCOUNT = "$SYS"
LOOK_AGAIN_SECONDS = 1.0  # CPU use is measured over at least this long


class AccountFacts(Protocol):
    """What monitoring reads of an account."""

    @property
    def name(self) -> str:
        """Its name; with JWTs its public key."""

    @property
    def router(self) -> Router:
        """Its subjects."""


@dataclass(slots=True)
class OneAccount:
    """An account of which only name and subjects are known."""

    name: str
    router: Router


@dataclass(slots=True)
class Facts:
    """The parts of one server. `accounts` gives all of them; `jetstream` None when it is off."""

    settings: Settings
    server_id: str
    server_name: str
    host: str
    port: int
    http_port: int
    start_ns: int
    hub: Hub
    clients: Clients
    accounts: Callable[[], Iterable[AccountFacts]]
    jetstream: Callable[[], "JetStream | None"]
    warn: Callable[[str], object] = print
    leaf_port: Callable[[], int] = int  # where leaf nodes are taken; 0: nowhere
    system_account: str = SYSTEM_ACCOUNT  # "": there is none
    loop_thread: int = field(default_factory=threading.get_ident)  # who makes the Facts
    loaded_ns: int = 0  # when the configuration was read; 0: at the start
    requests: dict[str, int] = field(default_factory=dict)
    _looked: tuple[float, float] = (0.0, 0.0)  # (moment, CPU seconds) of the last look
    _percent: float = 0.0

    @property
    def now_ns(self) -> int:
        """The time now, not that of the turn."""
        return self.hub.clock.now()

    def account(self, name: str) -> AccountFacts | None:
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


def party_of(connection: Connection) -> object:
    """The same of clients and of other servers, which are leaf nodes; None: it is new."""
    return connection.session


def is_leaf(client: object) -> bool:
    """Whether another server is at the other end."""
    return str(getattr(client, "kind", "")).startswith("LEAFNODE")


def kind_of(client: object) -> str:
    """What is at the other end, as nats-server names it."""
    return "Leafnode" if is_leaf(client) else "Client"


def type_of(client: object) -> str:
    """How a client talks; empty for a leaf node."""
    kind = str(getattr(client, "kind", ""))
    return "" if is_leaf(client) else "websocket" if kind == "WEBSOCKET" else "nats"


def tag_of(account: object) -> str:
    """The name for people of an account: its tag, or its name."""
    settings = getattr(account, "settings", None)
    return getattr(settings, "name_tag", "") or str(getattr(account, "name", GLOBAL_ACCOUNT))


def engine_account(facts: Facts, name: str) -> "EngineAccount | None":
    """JetStream of an account; None: it has none."""
    jetstream = facts.jetstream()
    if jetstream is None:
        return None
    return next((each for each in jetstream.accounts() if each.name == name), None)


__all__ = [
    "GLOBAL_ACCOUNT",
    "SYSTEM_ACCOUNT",
    "AccountFacts",
    "Facts",
    "OneAccount",
    "account_name",
    "client_of",
    "cores",
    "engine_account",
    "is_leaf",
    "kind_of",
    "party_of",
    "tag_of",
    "type_of",
]
