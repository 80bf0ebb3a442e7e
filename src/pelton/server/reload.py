"""Reloads: reads the configuration again, compares the settings, and applies the changes.

A part of the server that can change while it runs has a ReloadHandler: the names of its settings, a
`prepare` before any change, and an `apply` after it. A setting with a handler, or in RELOADABLE
(settings that are looked up at each use), can change; a change of any other setting keeps the whole
old configuration.

    read again -> differences -> refused? -> prepare of each -> settings changed -> apply of each
                                    a StartError up to here leaves everything as it was

The comparison is pure.
"""

from collections.abc import Callable, Iterable

from msgspec import Struct

from pelton.server.errors import StartError
from pelton.server.logs.log import Log
from pelton.server.settings import RELOADABLE, Settings
from pelton.server.units import SECOND_NS, format_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ReadAgain = Callable[[], tuple[Settings, list[str]]]
Read = tuple[Settings, list[str]] | StartError
Prepare = Callable[[Settings, Settings], object]
Apply = Callable[[frozenset[str]], object]

_ASIDE = frozenset({"config_file", "config_digest"})

# nats-server's names of settings that it refuses to change.
_NAMES = {
    "host": "Host",
    "port": "Port",
    "server_name": "ServerName",
    "http_host": "HTTPHost",
    "http_port": "HTTPPort",
    "https_port": "HTTPSPort",
    "http_base_path": "HTTPBasePath",
    "prof_port": "ProfPort",
    "max_pending": "MaxPending",
    "max_closed_clients": "MaxClosedClients",
    "lame_duck_duration_ns": "LameDuckDuration",
    "lame_duck_grace_period_ns": "LameDuckGracePeriod",
    "domain": "JetStreamDomain",
    "headers": "NoHeaderSupport",
    "feature_flags": "FeatureFlags",
    "write_timeout": "WriteTimeout",
    "default_js_domain": "JsAccDefaultDomain",
    "system_account": "SystemAccount",
    "sync_interval_ns": "SyncInterval",
    "strict": "NoJetStreamStrict",
    "cluster_name": "cluster name",
    "cluster_host": "cluster host",
    "cluster_port": "cluster port",
}
_SENTENCES = {
    "operator": "config reload not supported for TrustedOperators",
    "websocket": "config reload not supported for Websocket",
    "store_dir": "config reload not supported for jetstream storage directory",
    "encryption": "config reload not supported for the encryption of the store",
}
# Log texts of changed settings; they have no value when it is a secret or long.
_UNTOLD = {
    "user": "authorization username",
    "password": "authorization password",
    "token": "authorization token",
    "users": "authorization users",
    "server_tags": "tags",
    "server_metadata": "metadata",
    "remotes": "remotes",
}
_TOLD: "dict[str, Callable[[Any], str]]" = {
    "auth_timeout_ns": lambda ns: f"authorization timeout = {ns / SECOND_NS:g}",
    "no_fast_producer_stall": lambda off: f"fast producers will {'not ' if off else ''}be stalled",
    "jetstream": lambda on: "JetStream",
    "jetstream_limits": lambda limits: "JetStream limits",
    "max_memory": lambda size: f"JetStream max_mem_store = {format_size(size)}",
    "max_file": lambda size: f"JetStream max_file_store = {format_size(size)}",
}


class ReloadHandler(Struct):
    """The handler of one part of the server."""

    names: frozenset[str]
    apply: Apply  # called with the changed names among `names`, if any
    prepare: Prepare | None  # called with old and new settings; StartError refuses the reload
    always: bool  # called at every reload: files behind unchanged names may differ


class Reloads:
    """The handlers of the parts, in the order of their calls."""

    def __init__(self, settings: Settings, log: Log, read_again: ReadAgain) -> None:
        """Start without handlers; `server` has the current settings."""
        self._settings = settings
        self._log = log
        self._read_again = read_again
        self._rows: list[ReloadHandler] = []

    def add(
        self,
        names: Iterable[str],
        apply: Apply,
        prepare: Prepare | None = None,
        *,
        always: bool = False,
    ) -> None:
        """Add a handler for settings that can change on a running server.

        prepare(old, new) is called before any change and may raise StartError, which refuses the
        reload. It is called only for changes of these names, and must have no effect when the
        reload fails later. apply(changed) is called after the settings have changed. `always`: both
        are called at every reload.
        """
        self._rows.append(ReloadHandler(frozenset(names), apply, prepare, always))

    def reloadable(self) -> frozenset[str]:
        """All settings that may change at a reload."""
        return RELOADABLE.union(*(row.names for row in self._rows))

    def run(self) -> str:
        """Reload and log the result. Returns the error, with the old configuration kept; "" on
        success.
        """
        return self.finish(self.read())

    def read(self) -> Read:
        """Read the settings again, for `finish`. Changes nothing; may be called in any thread."""
        try:
            return self._read_again()
        except StartError as problem:
            return problem

    def finish(self, found: Read) -> str:
        """Apply what `read` returned, on the event loop's thread. Returns as `run`."""
        try:
            if isinstance(found, StartError):
                raise found
            fresh, warnings = found
            changed, refused = changes(self._settings, fresh, self.reloadable())
            if not refused:
                self._prepare(frozenset(changed), fresh)
        except StartError as problem:
            refused = [str(problem)]
        if refused:
            reason = "; ".join(refused)
            self._log.error(f"Failed to reload server configuration: {reason}")
            return reason
        for warning in warnings:
            self._log.warn(warning)
        for name in changed:
            setattr(self._settings, name, getattr(fresh, name))
            self._log.info(change_line(name, getattr(fresh, name)))
        self._settings.config_digest = fresh.config_digest
        for row in self._rows:
            mine = row.names.intersection(changed)
            if mine or row.always:
                row.apply(mine)
        digest = f" ({fresh.config_digest})" if fresh.config_digest else ""
        self._log.info(f"Reloaded server configuration{digest}")
        return ""

    def _prepare(self, changed: frozenset[str], fresh: Settings) -> None:
        for row in self._rows:
            if row.prepare is not None and (row.always or row.names & changed):
                row.prepare(self._settings, fresh)


def changes(
    old: Settings, new: Settings, reloadable: frozenset[str] = RELOADABLE
) -> tuple[list[str], list[str]]:
    """(names of changed settings, errors for changes that need a restart)."""
    changed: list[str] = []
    refused: list[str] = []
    for name in Settings.__struct_fields__:
        before, after = getattr(old, name), getattr(new, name)
        if before == after or name in _ASIDE:
            continue
        if name in reloadable and not (name == "operator" and _trust_differs(old, new)):
            changed.append(name)
        else:
            refused.append(_refusal(name, before, after))
    return changed, refused


def _refusal(name: str, before: object, after: object) -> str:
    if name in _SENTENCES:
        return _SENTENCES[name]
    shown = _NAMES.get(name, name.removesuffix("_ns"))
    if name in ("headers", "strict"):  # for these settings the configuration has the opposite value
        before, after = not before, not after
    return (
        f"config reload not supported for {shown}: old={_value(name, before)}, "
        f"new={_value(name, after)}"
    )


def check_jetstream(old: Settings, new: Settings) -> None:
    """Check changes of JetStream's settings: limits may grow. StartError for any other change."""
    for name in ("max_memory", "max_file"):
        before, after = getattr(old, name), getattr(new, name)
        if before == after:
            continue
        if before < 0:
            what = "jetstream dynamic max memory and store"
        elif after < 0:
            what = "jetstream max memory and max store"
        elif after < before:
            what = "decreasing jetstream max memory and store"
        else:
            continue
        raise StartError(f"config reload not supported for {what}")
    for name in (
        "store_dir",
        "encryption",
        "sync_interval_ns",
        "batch_limits",
        "domain",
        "strict",
        "remotes",
    ):
        before, after = getattr(old, name), getattr(new, name)
        if before != after:
            raise StartError(_refusal(name, before, after))


def change_line(name: str, value: object) -> str:
    """The log line of a changed setting."""
    if name in _TOLD:
        return f"Reloaded: {_TOLD[name](value)}"
    if name in _UNTOLD:
        return f"Reloaded: {_UNTOLD[name]}"
    shown = name.removesuffix("_ns")
    if isinstance(value, bool | int | str):
        return f"Reloaded: {shown} = {_value(name, value)}"
    return f"Reloaded: {shown}"


def _value(name: str, value: "Any") -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        pairs = (f"{key}:{_value('', value[key])}" for key in sorted(value))
        return f"map[{' '.join(pairs)}]"
    if isinstance(value, list):
        return f"[{' '.join(str(each) for each in value)}]"
    if name.endswith("_ns") and isinstance(value, int):
        from pelton.api.times import format_duration

        return format_duration(value)
    return str(value)


def _trust_differs(old: Settings, new: Settings) -> bool:
    """Whether the trusted keys or the resolver have changed; preloaded JWTs may change."""
    before, after = old.operator, new.operator
    if before is None or after is None:
        return before is not after
    return (before.jwts, before.trusted_keys, before.resolver) != (
        after.jwts,
        after.trusted_keys,
        after.resolver,
    )
