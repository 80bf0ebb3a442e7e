"""The accounts of a running server: each has its own subjects (a Router over the one Reactor), limits,
exports and imports.

Settings come from a configuration or from JWTs: `put` adds or updates an account, and the imports of
others follow. `$G` and the system account always exist. `server/auth` decides the account of a
connection; `join` binds it.
"""

from collections.abc import Callable, Iterable

from pelton.core.broker.reactor import Connection, Reactor
from pelton.core.broker.router import Router
from pelton.server.settings.accounts import (
    DEFAULT_ACCOUNT,
    SYSTEM_ACCOUNT,
    AccountSettings,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pelton.engine.account.account import JetStreamAccount
    from pelton.server.accounts.active_imports import ActiveImports
    from pelton.server.accounts.sharing import TokenCheck


class ServerAccount:
    """One account: plain values, read by the other parts."""

    def __init__(self, settings: AccountSettings, router: Router) -> None:
        """Start without connections."""
        self.settings = settings
        self.router = router
        self.connections: dict[int, Connection] = {}  # by id: clients and leaf nodes
        self.leafnodes: set[int] = set()  # the ids of leaf nodes among them
        self.total_connections = 0  # ever
        self.jetstream: JetStreamAccount | None = None
        self.slow_consumers = 0
        self.expired = False  # its JWT has expired: no client may connect

    def __repr__(self) -> str:
        """Its name."""
        return f"ServerAccount({self.name!r})"

    @property
    def name(self) -> str:
        """The name in the configuration; for an account from a JWT, its public key."""
        return self.settings.name

    @property
    def full(self) -> bool:
        """Whether the account has reached its connection limit."""
        most = self.settings.limits.max_connections
        return 0 <= most <= len(self.connections) - len(self.leafnodes)

    @property
    def full_of_leafnodes(self) -> bool:
        """Whether the account has reached its leaf node limit."""
        most = self.settings.limits.max_leafnodes
        return 0 <= most <= len(self.leafnodes)

    def surplus(self) -> list[Connection]:
        """The newest clients and leaf nodes above the account's limits, without connections that
        are closing.
        """
        limits = self.settings.limits
        staying = [each for each in self.connections.values() if not each.closing]
        staying.sort(key=lambda each: (each.start_ns, each.id))
        found: list[Connection] = []
        for most, leaf in ((limits.max_connections, False), (limits.max_leafnodes, True)):
            if most >= 0:
                found += [each for each in staying if (each.id in self.leafnodes) is leaf][most:]
        return found


Made = Callable[[ServerAccount], object]


class Accounts:
    """All accounts of one server."""

    def __init__(
        self,
        reactor: Reactor,
        *,
        draw: Callable[[int], int],
        system: str = "",
        no_system: bool = False,
    ) -> None:
        """Make the default and the system account; `system` names the latter. `draw(n)` gives a
        random number below n.
        """
        self.reactor = reactor
        self.draw = draw
        self.server_name = ""
        self.by_name: dict[str, ServerAccount] = {}
        self.on_made: list[Made] = []  # called with every new account, also with existing ones
        self.on_changed: list[Made] = []  # called after put or update and the linking of imports
        self.on_removed: list[Made] = []
        self.resolve: Callable[[str], object] | None = None  # fetches an account that is not loaded
        self.token_check: TokenCheck | None = None
        self.call_at: Callable[[int, Callable[[], None]], object] | None = None
        self.report: Callable[[str], object] = lambda line: None
        self._of: dict[int, ServerAccount] = {}  # connection id -> account
        self._links: ActiveImports | None = None
        self.default = self._make(AccountSettings(DEFAULT_ACCOUNT))
        self.system: ServerAccount | None = None
        if not no_system:
            self.system = self._make(AccountSettings(system or SYSTEM_ACCOUNT))

    # -- lookups

    def get(self, name: str) -> ServerAccount | None:
        """The account of this name ("": the default one)."""
        return self.by_name.get(name) if name else self.default

    def all(self) -> list[ServerAccount]:
        """Every account, in order of creation."""
        return list(self.by_name.values())

    def of(self, connection: Connection) -> ServerAccount:
        """The account of a connection; before CONNECT, the default one."""
        return self._of.get(connection.id, self.default)

    @property
    def only_default(self) -> bool:
        """Whether only the default and the system account exist."""
        return len(self.by_name) == 1 + (self.system is not None)

    # -- connections

    def join(self, connection: Connection, account: ServerAccount, *, leaf: bool = False) -> bool:
        """Move a connection to this account; False when the account is full."""
        before = self._of.get(connection.id)
        if before is account:
            return True
        if account.full_of_leafnodes if leaf else account.full:
            return False
        self.leave(connection)
        account.connections[connection.id] = connection
        if leaf:
            account.leafnodes.add(connection.id)
        account.total_connections += 1
        self._of[connection.id] = account
        return True

    def leave(self, connection: Connection) -> ServerAccount | None:
        """Remove a closed connection from its account; returns that account."""
        account = self._of.pop(connection.id, None)
        if account is not None:
            account.connections.pop(connection.id, None)
            account.leafnodes.discard(connection.id)
        return account

    # -- creation, change, removal

    def put(self, settings: AccountSettings) -> ServerAccount:
        """Create the account of these settings, or update the account of that name, and link its
        exports and imports.
        """
        account = self.by_name.get(settings.name)
        if account is None:
            account = self._make(settings)
        self.update(settings)
        return account

    def update(self, settings: AccountSettings) -> None:
        """Apply new settings to an existing account. KeyError: there is none."""
        account = self.by_name[settings.name]
        account.settings = settings
        self._apply(account)
        self._link(account)
        for call in self.on_changed:
            call(account)

    def apply(self, configured: Iterable[AccountSettings]) -> list[ServerAccount]:
        """Apply the accounts of a configuration: create, update, and remove the others except the
        default and the system account. Returns the removed accounts; the caller handles their
        connections.
        """
        wanted = {settings.name: settings for settings in configured}
        gone = []
        for account in self.all():
            if account.name in wanted:
                continue
            if account in (self.default, self.system):
                kept = AccountSettings(account.name, mappings=account.settings.mappings)
                wanted.setdefault(account.name, kept)
            else:
                self.remove(account.name)
                gone.append(account)
        for settings in wanted.values():
            if settings.name not in self.by_name:
                self._make(settings)
            self.by_name[settings.name].settings = settings
        for name in wanted:
            self._apply(self.by_name[name])
        if self._links is not None or any(
            settings.exports or settings.imports for settings in wanted.values()
        ):
            self._need_links().link_all()
        return gone

    def finish_links(self) -> None:
        """Link all imports that wait for later turns."""
        if self._links is not None:
            self._links.finish()

    def remove(self, name: str) -> None:
        """Remove an account and its exports and imports."""
        account = self.by_name.pop(name, None)
        if account is None:
            return
        if self._links is not None:
            self._links.unlink(account)
        for call in self.on_removed:
            call(account)

    def when_made(self, call: Made) -> None:
        """Call with every account: now with existing ones, later with new ones."""
        self.on_made.append(call)
        for account in self.all():
            call(account)

    def _make(self, settings: AccountSettings) -> ServerAccount:
        account = ServerAccount(settings, Router(self.reactor))
        self.by_name[settings.name] = account
        for call in self.on_made:
            call(account)
        return account

    def _apply(self, account: ServerAccount) -> None:
        """Apply the settings that concern this account alone."""
        settings = account.settings
        if settings.mappings:
            from pelton.server.accounts.mapping import Mappings  # rarely used

            account.router.mapping = Mappings(settings.mappings, self.draw)
        else:
            account.router.mapping = None

    def _link(self, account: ServerAccount) -> None:
        settings = account.settings
        if self._links is not None or settings.exports or settings.imports:
            self._need_links().link(account)

    def _need_links(self) -> "ActiveImports":
        if self._links is None:
            from pelton.server.accounts.active_imports import (
                ActiveImports,  # few servers have exports or imports
            )

            self._links = ActiveImports(self)
        return self._links

    # -- the current request

    def importers(self) -> list[str]:
        """The accounts that the current request came through by imports."""
        return self._links.sharing.importers() if self._links is not None else []

    def shares_who_asks(self) -> bool:
        """Whether the current request may name the client."""
        return self._links is not None and self._links.sharing.shared()

    def pending_responses(self, account: ServerAccount) -> int:
        """Requests to services of the account that are not answered yet."""
        return self._links.pending(account) if self._links is not None else 0
