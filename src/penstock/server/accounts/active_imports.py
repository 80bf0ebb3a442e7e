"""The active exports and imports: core objects that follow the settings of the accounts.

One ActiveImports serves all accounts; the first export or import creates it. An import whose exporter
does not exist or does not allow it is ignored, and checked again when that account changes.
"""

from typing import TYPE_CHECKING, NamedTuple

from penstock.core.broker.service_imports import (
    CHUNKED,
    SINGLETON,
    STREAMED,
    AccountBorder,
    Service,
    ServiceImport,
    Sharing,
)
from penstock.core.broker.stream_imports import StreamImport
from penstock.core.protocol.subjects import literal, valid
from penstock.engine.transforms import TransformError
from penstock.server.accounts.client_info import RequestInfo
from penstock.server.accounts.sharing import (
    SYSTEM_EXPORTS,
    Exports,
    exports_of,
    local_pattern,
    may_import,
    service_transform,
    stream_transform,
)
from penstock.server.settings import accounts as settings
from penstock.server.settings.accounts import Export, Import

if TYPE_CHECKING:
    from penstock.server.accounts.latency import Measurements
    from penstock.server.accounts.registry import Accounts, ServerAccount

_RESPONSES = {
    settings.SINGLETON: SINGLETON,
    settings.STREAMED: STREAMED,
    settings.CHUNKED: CHUNKED,
}


class _Key(NamedTuple):
    """The identity of an import: imports with equal keys are the same."""

    exporter: str
    service: bool
    subject: str
    local: str
    share: bool


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
        self.sharing = Sharing(accounts.reactor)
        self.sharing.describe = RequestInfo(accounts.server_name)
        self.sharing.on_due = self._due

    def pending(self, account: "ServerAccount") -> int:
        """Requests to services of the account that are not answered yet."""
        linked = self._linked.get(account.name)
        return linked.border.pending() if linked is not None else 0

    def link_all(self) -> None:
        """Apply the settings of all accounts."""
        accounts = self._accounts.all()
        for account in accounts:
            self._export(account)
        for account in accounts:
            self._import(account)

    def link(self, account: "ServerAccount") -> None:
        """Apply the settings of one account: its own imports, and the imports that others have from
        it.
        """
        self._export(account)
        self._import(account)
        for other in self._accounts.all():
            linked = self._linked.get(other.name)
            if other is not account and linked is not None and account.name in linked.exporters:
                self._import(other)

    def unlink(self, account: "ServerAccount") -> None:
        """Remove the exports and imports of a deleted account."""
        linked = self._linked.pop(account.name, None)
        self._exports.pop(account.name, None)
        if linked is None:
            return
        for each in linked.imports.values():
            each.close()
        for other in self._linked.values():
            for key in [key for key in other.imports if key.exporter == account.name]:
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
            from penstock.server.accounts.latency import Measurements  # few services are measured

            self._measurements = Measurements(self._accounts)
            self.sharing.sample = self._measurements.sample
            self.sharing.measured = self._measurements.measured

    def _import(self, account: "ServerAccount") -> None:
        if not account.settings.imports and account.name not in self._linked:
            return
        linked = self._of(account)
        linked.exporters = {each.account for each in account.settings.imports}
        wanted: dict[_Key, tuple[Import, Export]] = {}
        for each in account.settings.imports:
            export = self._authorized(account, each)
            if export is not None:
                local = local_pattern(each)
                key = _Key(each.account, each.service, each.subject, each.local, each.share)
                if valid(each.subject) and valid(local):
                    wanted[key] = each, export
        for key in list(linked.imports):
            if key not in wanted or self._outdated(linked.imports[key], wanted[key][1]):
                linked.imports.pop(key).close()
        for key, (each, export) in wanted.items():
            if key not in linked.imports:
                try:
                    linked.imports[key] = self._take_in(linked, each, export)
                except TransformError as problem:
                    self._accounts.report(
                        f'Account {account.name} ignores import "{each.subject}": {problem}'
                    )

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
        self, linked: _Linked, wanted: Import, export: Export
    ) -> ServiceImport | StreamImport:
        exporter = self._accounts.by_name[wanted.account]
        home = self._of(exporter)
        local = local_pattern(wanted)
        if not wanted.service:
            made = StreamImport(
                home.border,
                linked.border,
                wanted.subject,
                local,
                transform=stream_transform(wanted),
            )
            made.allow_trace = wanted.allow_trace
            return made
        service = home.services[export.subject]
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
