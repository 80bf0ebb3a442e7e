"""The reload handlers of the server's parts; `reload` calls them.

A part needs a handler when a look-up at each use is not enough to apply a changed setting.
"""

from pelton.server.clients.clients import AUTHORIZATION
from pelton.server.errors import StartError
from pelton.server.files import StoreLock, remove_file
from pelton.server.logs.log import Log
from pelton.server.settings import Settings
from pelton.server.transports.acceptors import fresh_contexts

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl

    from pelton.server.app import Server

LOG_TARGET = ("log_file", "log_size_limit", "log_max_num", "syslog", "remote_syslog")
LOG_FORM = ("debug", "trace", "trace_verbose", "logtime", "logtime_utc", "log_format")
LIMITS = (
    "max_payload",
    "max_control_line",
    "max_subscriptions",
    "max_sub_tokens",
    "max_subscription_memory",
    "max_output_memory",
    "no_fast_producer_stall",
    "write_deadline_ns",
    "write_timeout",
)
CLIENTS = ("max_connections", "max_control_line", "max_payload", "max_subscriptions")
GREETED = ("max_payload", "client_advertise", "jetstream")
ACCOUNTS = ("accounts", "mappings")
CERTIFICATES = ("tls", "allow_non_tls", "proxy_protocol")
FILES = ("pid_file", "ports_file_dir")
JETSTREAM = (
    "jetstream",
    "store_dir",
    "sync_interval_ns",
    "max_memory",
    "max_file",
    "jetstream_limits",
    "batch_limits",
    "domain",
    "strict",
    "remotes",
    "declared",
)


def add_rows(server: "Server") -> None:
    """Add the handlers of a server, in the order in which they are applied."""
    add = server.reloads.add
    target = _LogTarget(server)
    files = _Files(server)
    jetstream = _JetStream(server)
    certificates = _Certificates(server)
    add(LOG_TARGET, target.apply, target.prepare)
    add(LOG_FORM, lambda changed: _log_form(server))
    add((*LIMITS, *AUTHORIZATION), lambda changed: server.apply_limits())
    add(CERTIFICATES, certificates.apply, certificates.prepare, always=True)
    add(ACCOUNTS, lambda changed: _accounts(server))
    add(("operator", *ACCOUNTS, *AUTHORIZATION), lambda changed: server.authorities.refresh(server))
    add(JETSTREAM, jetstream.apply, jetstream.prepare)
    add(
        (*GREETED, *CERTIFICATES, *AUTHORIZATION),
        lambda changed: server.greeting.refresh(server.settings),
    )
    add((*CLIENTS, *AUTHORIZATION, "tls"), lambda changed: server.clients.reloaded(sorted(changed)))
    add(FILES, files.apply, files.prepare)


def _accounts(server: "Server") -> None:
    server.apply_accounts()
    if server.jetstream is not None:
        server.jetstream.reloaded()


def _log_form(server: "Server") -> None:
    settings = server.settings
    server.log.configure(
        debug=settings.debug,
        trace=settings.trace,
        stamps=settings.logtime,
        utc=settings.logtime_utc,
        form=settings.log_format,
    )
    server.apply_tracing()


class _LogTarget:
    """The log's target: opened in prepare, used from apply on."""

    def __init__(self, server: "Server") -> None:
        self._server = server
        self._next: Log | None = None

    def prepare(self, old: Settings, new: Settings) -> None:
        if self._next is not None:
            self._next.close()  # left by a reload that failed later
            self._next = None
        self._next = Log(
            new.log_file,
            limit=new.log_size_limit,
            keep=new.log_max_num,
            syslog=new.syslog_address,
        )

    def apply(self, changed: frozenset[str]) -> None:
        if self._next is not None:
            self._server.log.adopt(self._next)
            self._next = None


class _Certificates:
    """Certificates: read again at each reload, because files can change without a change of their
    names.
    """

    def __init__(self, server: "Server") -> None:
        self._server = server
        self._contexts: list[ssl.SSLContext | None] = [None, None]
        self._fresh: Settings | None = None

    def prepare(self, old: Settings, new: Settings) -> None:
        self._contexts = fresh_contexts(new)
        self._fresh = new

    def apply(self, changed: frozenset[str]) -> None:
        self._server.acceptors.use(self._contexts)
        if self._fresh is not None:
            # settings that are equal stay those from before
            now, fresh = self._server.settings, self._fresh
            for used, read in ((now.tls, fresh.tls), (now.websocket.tls, fresh.websocket.tls)):
                if used is not None and read is not None:
                    used.loaded = read.loaded
            self._fresh = None


class _Files:
    """Pid file and ports file: the new ones are written, then the old ones removed."""

    def __init__(self, server: "Server") -> None:
        self._server = server
        self._old: list[str] = []

    def prepare(self, old: Settings, new: Settings) -> None:
        self._old = [each for each in (old.pid_file, self._server.ports_file) if each]

    def apply(self, changed: frozenset[str]) -> None:
        server = self._server
        try:
            server.ports_file = ""
            server.write_files()
        except StartError as problem:
            server.log.error(str(problem))
        for each in self._old:
            if each not in (server.settings.pid_file, server.ports_file):
                remove_file(each)


class _JetStream:
    """JetStream: switched on or off, or given higher limits."""

    def __init__(self, server: "Server") -> None:
        self._server = server

    def prepare(self, old: Settings, new: Settings) -> None:
        if old.jetstream and new.jetstream:
            from pelton.server.reload import check_jetstream

            check_jetstream(old, new)
        elif new.jetstream and self._server.store is None:
            from pelton.server.startup import store_folder

            self._server.store = StoreLock(store_folder(new))

    def apply(self, changed: frozenset[str]) -> None:
        server = self._server
        if not server.settings.jetstream:
            server.close_jetstream()
        elif server.jetstream is not None:
            server.jetstream.raise_limits()
            self._declare()
        elif server.store is not None:
            try:
                server.open_jetstream()
            except StartError as problem:
                server.log.warn(f"Can't start JetStream: {problem}")

    def _declare(self) -> None:
        server = self._server
        assert server.jetstream is not None
        try:
            server.jetstream.declare(server.settings.declared)
        except StartError as problem:
            for line in str(problem).split("\n"):
                server.log.error(f"Cannot apply the declaration: {line}")
