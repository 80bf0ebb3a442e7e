"""The active exports and imports: core objects that follow the settings of the accounts.

One ActiveImports serves all accounts; the first export or import creates it. An import whose exporter
does not exist or does not allow it is ignored, and checked again when that account changes.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pelton.core.broker.job import Job
from pelton.core.broker.service_imports import (
    CHUNKED,
    SINGLETON,
    STREAMED,
    AccountBorder,
    Service,
    ServiceImport,
    Sharing,
)
from pelton.core.broker.stream_imports import StreamImport
from pelton.core.protocol.subjects import literal, valid
from pelton.engine.base.transforms import TransformError
from pelton.server.accounts.client_info import RequestInfo
from pelton.server.accounts.sharing import (
    SYSTEM_EXPORTS,
    Exports,
    exports_of,
    local_pattern,
    may_import,
    service_transform,
    stream_transform,
)
from pelton.server.settings import accounts as settings
from pelton.server.settings.accounts import Export, Import

if TYPE_CHECKING:
    from pelton.server.accounts.latency import Measurements
    from pelton.server.accounts.registry import Accounts, ServerAccount

AT_ONCE = 1000
"""Imports that are linked in one turn, unless one account has more."""

_RESPONSES = {
    settings.SINGLETON: SINGLETON,
    settings.STREAMED: STREAMED,
    settings.CHUNKED: CHUNKED,
}


_Key = tuple[str, bool, str, str, bool]
"""The identity of an import: exporter, whether it is a service, the exporter's subject, the importer's,
whether the identity of the client is shared. A plain tuple: an account may have thousands.
"""


class _Linked:
    """The core's objects of one account."""

    def __init__(self, border: AccountBorder) -> None:
        self.border = border
        self.services: dict[str, Service] = {}
        self.imports: dict[_Key, ServiceImport | StreamImport] = {}
        self.exporters: set[str] = set()  # the accounts that its settings import from


class ActiveImports:
    """The active exports and imports of all accounts."""

    def __init__(self, accounts: "Accounts") -> None:
        """Start without exports and imports."""
        self._accounts = accounts
        self._linked: dict[str, _Linked] = {}
        self._exports: dict[str, Exports] = {}  # by account; made when somebody imports
        self._measurements: Measurements | None = None
        self._waiting: dict[str, None] = {}  # names of accounts whose imports are linked later
        self._job: Job | None = None
        self.sharing = Sharing(accounts.reactor)
        self.sharing.describe = RequestInfo(accounts.server_name)
        self.sharing.on_due = self._due

    def pending(self, account: "ServerAccount") -> int:
        """Requests to services of the account that are not answered yet."""
        linked = self._linked.get(account.name)
        return linked.border.pending() if linked is not None else 0

    def link_all(self) -> None:
        """Apply the settings of all accounts. When there are many imports, some follow in later
        turns.
        """
        accounts = self._accounts.all()
        for account in accounts:
            self._export(account)
        self._import_soon(account.name for account in accounts)

    def link(self, account: "ServerAccount") -> None:
        """Apply the settings of one account: its own imports, and the imports that others have from
        it. When these are many, some of them follow in later turns.
        """
        self._export(account)
        self._waiting.pop(account.name, None)
        self._import(account)
        self._import_soon(
            name
            for name, linked in self._linked.items()
            if name != account.name and account.name in linked.exporters
        )

    def finish(self) -> None:
        """Link the imports that wait for later turns."""
        while self._some():
            pass

    def _import_soon(self, names: Iterable[str]) -> None:
        """Link the imports of these accounts: some now, and when there are many, the rest in later
        turns.
        """
        self._waiting.update(dict.fromkeys(names))
        if self._some():
            if self._job is None:
                self._job = Job(self._accounts.reactor, self._some)
            self._job.soon()

    def _some(self) -> bool:
        """Link the imports of the accounts that are next; whether others wait."""
        left = AT_ONCE
        while self._waiting and left > 0:
            name = next(iter(self._waiting))
            del self._waiting[name]
            account = self._accounts.by_name.get(name)
            if account is not None:
                left -= len(account.settings.imports) + 1
                self._import(account)
        return bool(self._waiting)

    def unlink(self, account: "ServerAccount") -> None:
        """Remove the exports and imports of a deleted account."""
        linked = self._linked.pop(account.name, None)
        self._exports.pop(account.name, None)
        if linked is None:
            return
        for each in linked.imports.values():
            each.close()
        for other in self._linked.values():
            for key in [key for key in other.imports if key[0] == account.name]:
                other.imports.pop(key).close()
        for service in linked.services.values():
            service.close()
        linked.border.close()

    def _of(self, account: "ServerAccount") -> _Linked:
        linked = self._linked.get(account.name)
        if linked is None:
            border = AccountBorder(self.sharing, account.router, account.name)
            border.system = account is self._accounts.system
            linked = self._linked[account.name] = _Linked(border)
        return linked

    def _export(self, account: "ServerAccount") -> None:
        self._exports.pop(account.name, None)
        exports = [each for each in account.settings.exports if each.service]
        if account is self._accounts.system:
            exports += SYSTEM_EXPORTS
        if not exports and account.name not in self._linked:
            return
        linked = self._of(account)
        for subject in linked.services.keys() - {each.subject for each in exports}:
            linked.services.pop(subject).close()
        for each in exports:
            self._serve(linked, each)

    def _serve(self, linked: _Linked, export: Export) -> None:
        service = linked.services.get(export.subject)
        if service is None:
            service = linked.services[export.subject] = Service(
                linked.border,
                export.subject,
                response_type=_RESPONSES[export.response],
                threshold_ns=export.threshold_ns,
            )
        service.response_type = _RESPONSES[export.response]
        service.threshold_ns = export.threshold_ns
        service.latency = export.latency
        service.allow_trace = export.allow_trace
        if export.latency is not None and self._measurements is None:
            from pelton.server.accounts.latency import Measurements  # few services are measured

            self._measurements = Measurements(self._accounts)
            self.sharing.sample = self._measurements.sample
            self.sharing.measured = self._measurements.measured

    def _import(self, account: "ServerAccount") -> None:
        if not account.settings.imports and account.name not in self._linked:
            return
        linked = self._of(account)
        linked.exporters = {each.account for each in account.settings.imports}
        kept, fresh = self._wanted(account, linked)
        for key in [key for key in linked.imports if key not in kept]:
            linked.imports.pop(key).close()
        for key, (each, export, local) in fresh.items():
            try:
                linked.imports[key] = self._take_in(linked, each, export, local)
            except TransformError as problem:
                self._accounts.report(
                    f'Account {account.name} ignores import "{each.subject}": {problem}'
                )

    def _wanted(
        self, account: "ServerAccount", linked: _Linked
    ) -> tuple[set[_Key], dict[_Key, tuple[Import, Export, str]]]:
        """The permitted imports of an account: the keys of those that stay, and those to be made."""
        kept: set[_Key] = set()
        fresh: dict[_Key, tuple[Import, Export, str]] = {}
        for each in account.settings.imports:
            export = self._authorized(account, each)
            if export is None:
                continue
            key = each.account, each.service, each.subject, each.local, each.share
            made = linked.imports.get(key)
            if made is not None and not self._outdated(made, export):
                kept.add(key)
                continue
            local = local_pattern(each)
            if valid(each.subject) and valid(local):
                fresh[key] = each, export, local
        return kept, fresh

    def _authorized(self, account: "ServerAccount", wanted: Import) -> Export | None:
        exporter = self._accounts.get(wanted.account)
        if exporter is None:
            return None
        exported = exporter.settings
        check, exports = self._accounts.token_check, self._index(exported)
        export = may_import(exported, wanted, account.name, check, exports)
        if export is None and exporter is self._accounts.system:
            stand_in = settings.AccountSettings(settings.SYSTEM_ACCOUNT)
            export = may_import(stand_in, wanted, account.name)
        return export

    def _index(self, exporter: settings.AccountSettings) -> Exports:
        """The index of an account's exports, made once until they change."""
        found = self._exports.get(exporter.name)
        if found is None:
            found = self._exports[exporter.name] = exports_of(exporter)
        return found

    def _outdated(self, made: ServiceImport | StreamImport, export: Export) -> bool:
        """Whether a service import belongs to a replaced or removed service."""
        if isinstance(made, StreamImport):
            return False
        linked = self._linked.get(made.service.border.name)
        return linked is None or linked.services.get(export.subject) is not made.service

    def _take_in(
        self, linked: _Linked, wanted: Import, export: Export, local: str
    ) -> ServiceImport | StreamImport:
        exporter = self._of(self._accounts.by_name[wanted.account])
        if not wanted.service:
            made = StreamImport(
                exporter.border,
                linked.border,
                wanted.subject,
                local,
                transform=stream_transform(wanted),
            )
            made.allow_trace = wanted.allow_trace
            return made
        service = exporter.services[export.subject]
        return ServiceImport(
            linked.border,
            service,
            local,
            target=wanted.subject if literal(wanted.subject) else "",
            transform=service_transform(wanted),
            share=wanted.share,
        )

    def _due(self, due_ns: int) -> None:
        if self._accounts.call_at is not None:
            self._accounts.call_at(due_ns, self._tick)

    def _tick(self) -> None:
        due_ns = self.sharing.tick()
        if due_ns:
            self._due(due_ns)
