"""Builds the operator mode and the auth callout of a server whose settings have one. Other servers do not
load this module.
"""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from pelton.core.base.clock import SteadyClock
from pelton.core.broker.request_queue import RequestQueue
from pelton.core.broker.router import Router
from pelton.server.accounts.registry import Accounts
from pelton.server.auth.authenticator import Authenticator
from pelton.server.auth.callout import Callout, ServerKeys
from pelton.server.auth.claims_services import ClaimsServices
from pelton.server.auth.folder_resolver import FolderResolver
from pelton.server.auth.jwt import JwtError
from pelton.server.auth.operator import OperatorMode, Record
from pelton.server.auth.passwords import RunOnLoop
from pelton.server.auth.resolvers import MemoryResolver, UrlResolver
from pelton.server.errors import StartError
from pelton.server.logs.log import Log
from pelton.server.settings import Settings
from pelton.server.settings.operator import Operator
from pelton.server.settings.operator import Resolver as ResolverSettings

if TYPE_CHECKING:
    from pelton.server.clients.clients import Clients

EVERY_NS = 60 * 1_000_000_000  # how often a cache removes expired JWTs


def make_keys() -> ServerKeys:
    """Generate server keys. StartError when a required package is not installed."""
    try:
        return ServerKeys(os.urandom(32), os.urandom(32))
    except ImportError as problem:
        raise StartError(str(problem)) from None


class Setup:
    """The server's side of the operator mode and the callout."""

    def __init__(
        self,
        settings: Settings,
        accounts: Accounts,
        authenticator: Authenticator,
        clients: "Clients",
        log: Log,
        run_on_loop: RunOnLoop,
    ) -> None:
        """`connect` makes the parts that the settings ask for."""
        self.settings = settings
        self.accounts = accounts
        self.authenticator = authenticator
        self.clients = clients
        self.log = log
        self.run_on_loop = run_on_loop
        self.operator: OperatorMode | None = None

    def connect(
        self, keys: ServerKeys, server_name: str, server: Callable[[], dict[str, object]]
    ) -> None:
        """Make the operator mode and the callout of the settings. StartError when a folder can't be
        used.
        """
        if self.settings.operator is not None:
            self.operator = self.authenticator.operator = self._make_operator(
                self.settings.operator
            )
            self._serve(self.operator, server)
        callout = Callout(self.settings, keys, self, server_name, self.operator)
        if self.operator is not None:
            self.operator.callout = callout
        else:
            self.authenticator.callout = callout

    def reloaded(self) -> None:
        """Apply changed settings: JWTs of `resolver_preload`, pinned accounts."""
        settings, operator = self.settings.operator, self.operator
        if settings is None or operator is None:
            return
        operator.pin(settings.pinned_accounts, self.settings.system_account)
        operator.sentinel = settings.default_sentinel
        if isinstance(operator.resolver, MemoryResolver):
            operator.resolver.tokens.update(settings.preload)
            for account, token in settings.preload.items():
                record = operator.records.get(account)
                if record is not None and record.jwt != token:
                    self._renew(operator, token)

    def _renew(self, operator: OperatorMode, token: str) -> None:
        try:
            operator.take(token)
        except JwtError as problem:
            self.warn(f"Rejected an account JWT: {problem}")

    def _make_operator(self, settings: Operator) -> OperatorMode:
        resolver = self._resolver(settings)
        operator = OperatorMode(self.settings, resolver, self.accounts, self.date_ns)
        operator.call_at = self.call_at
        operator.on_update.append(self._changed)
        self.accounts.token_check = operator.activated
        if isinstance(resolver, FolderResolver):
            for account, token in settings.preload.items():
                if resolver.load(account) is None:
                    resolver.store(account, token)
            resolver.changed = lambda account: self._stored(resolver, operator, account)
            self._expire(resolver)
        return operator

    def _resolver(self, settings: Operator) -> "MemoryResolver | UrlResolver | FolderResolver":
        wanted = settings.resolver or ResolverSettings()
        if wanted.kind == "url":
            return UrlResolver(wanted.url, wanted.timeout_ns, self.run_on_loop, self.warn)
        if wanted.kind == "memory":
            return MemoryResolver(settings.preload)
        try:
            found = FolderResolver(wanted, self.now_ns)
        except OSError as problem:
            raise StartError(
                f"cannot use the resolver directory {wanted.directory}: {problem}"
            ) from None
        kept = "some" if found.cache else "all"
        self.log.info(f"Managing {kept} jwt in exclusive directory {os.path.abspath(found.folder)}")
        return found

    def _serve(self, operator: OperatorMode, server: Callable[[], dict[str, object]]) -> None:
        system = self.accounts.system
        if system is None:
            return
        requests = RequestQueue(
            self.clients.reactor, lambda error: self.warn(f"a claims request failed: {error!r}")
        )
        ClaimsServices(system.router, operator, server, system.name, requests)
        operator.load(system.name, self._system_came)

    def _system_came(self, record: Record | None) -> None:
        if record is None:
            self.warn(
                f"The resolver has no JWT for system account {self.settings.system_account} yet"
            )

    def _stored(self, resolver: FolderResolver, operator: OperatorMode, account: str) -> None:
        """A JWT was stored in the folder: apply it to connected clients."""
        if account in operator.records:
            token = resolver.load(account)
            if token is not None and token != operator.records[account].jwt:
                self._renew(operator, token)

    def _expire(self, resolver: FolderResolver) -> None:
        resolver.expire()
        if resolver.cache:
            self.call_at(self.now_ns() + EVERY_NS, lambda: self._expire(resolver))

    def _changed(self, record: Record) -> None:
        account = self.accounts.get(record.claims.sub)
        if account is not None:
            account.expired = record.expired(self.date_ns())
        self.clients.account_changed(record.claims.sub)

    # -- CalloutServer, for Callout

    def router(self, account: str) -> Router | None:
        """The router of an account."""
        found = self.accounts.get(account)
        return found.router if found is not None else None

    def now_ns(self) -> int:
        """Nanoseconds since the epoch."""
        return self.clients.reactor.clock.now()

    def date_ns(self) -> int:
        """The machine's time, by which JWTs are valid: the server's own clock may be behind it for
        a while.
        """
        clock = self.clients.reactor.clock
        return clock.now() + (clock.offset_ns() if isinstance(clock, SteadyClock) else 0)

    def call_at(self, when_ns: int, call: Callable[[], None]) -> None:
        """Call later, on the event loop's thread."""
        self.clients.call_at(when_ns, call)

    def warn(self, text: str) -> None:
        """Log a warning for the operator."""
        self.log.warn(text)
