"""The settings of a server: plain values with nats-server's defaults.

``pelton.server.config`` fills them from a file, ``pelton.server.options`` from the command line.
Larger parts have a module each beside this one.
"""

from msgspec import field

from pelton.server.settings.accounts import AccountSettings, Mapping
from pelton.server.settings.declared import Declared
from pelton.server.settings.leafnodes import LeafNodes
from pelton.server.settings.operator import AuthCallout, Operator
from pelton.server.settings.redacted import Redacted
from pelton.server.settings.tls import Tls
from pelton.server.settings.users import User
from pelton.server.settings.websocket import Websocket
from pelton.server.units import SECOND_NS

# The nats-server release whose behaviour this server has. Clients derive from it which features
# exist.
COMPATIBLE_VERSION = "2.15.0"

# The feature flags of nats-server and whether each is on by default. Of these only js_ack_fc_v2
# concerns a single server.
FEATURE_FLAGS = {
    "js_ack_fc_v2": False,
    "js_api_reply_v2": False,
    "js_raft_delete_range": True,
    "js_snapshot_sources": False,
}

DEFAULT_PORT = 4222
DEFAULT_HTTP_PORT = 8222


class OriginServer(Redacted):
    """One entry of ``jetstream.remotes``: a server with origins of streams."""

    secrets = ("password", "token")

    name: str
    urls: list[str] = field(default_factory=list)
    user: str = ""
    password: str = ""
    token: str = ""
    tls: Tls | None = None  # client certificate and checks; None: the system's defaults


class Encryption(Redacted):
    """``jetstream.cipher`` and keys: how the store is encrypted."""

    secrets = ("key", "previous")

    cipher: str = "aes"  # or chacha
    key: str = ""  # "": new writes are not encrypted
    previous: str = ""  # opens files that `key` does not open


class Settings(Redacted):
    """All settings; durations in nanoseconds, sizes in bytes."""

    secrets = ("password", "token")

    host: str = "0.0.0.0"
    port: int = DEFAULT_PORT  # -1: any free port
    server_name: str = ""  # "": the server id
    config_file: str = ""
    config_digest: str = ""

    client_advertise: str = ""  # host[:port] in INFO in place of the listening address
    server_tags: list[str] = field(default_factory=list)
    server_metadata: dict[str, str] = field(default_factory=dict)
    feature_flags: dict[str, bool] = field(default_factory=dict)

    http_host: str = ""  # "": as host
    http_port: int = 0  # 0: no monitoring; -1: any free port
    https_port: int = 0  # as http_port, with TLS; only one of the two may be set
    http_base_path: str = ""  # prefix of each endpoint's path: "/nats" makes /nats/varz
    prof_port: int = 0  # 0: no profiling endpoint; -1: any free port

    # The description of a member of a cluster. This server serves no routes: see config/cluster.
    cluster_name: str = ""
    cluster_host: str = ""
    cluster_port: int = 0
    cluster_routes: list[str] = field(default_factory=list)

    jetstream: bool = False
    frozen: bool = False  # streams stay as they are stored; no option sets it (embedded/stored)
    store_dir: str = ""  # "": a folder under the system's temporary folder
    encryption: Encryption = field(default_factory=Encryption)
    sync_interval_ns: int = 0  # 0: acks of file streams wait for the fsync
    max_memory: int = -1  # -1: derived from the machine's memory
    max_file: int = -1
    # Named as in the engine's ServerLimits and BatchLimits; an absent name has the default.
    jetstream_limits: dict[str, int] = field(default_factory=dict)
    batch_limits: dict[str, int] = field(default_factory=dict)
    domain: str = ""
    default_js_domain: dict[str, str] = field(default_factory=dict)  # account to domain
    strict: bool = True  # unknown fields in API requests are errors

    remotes: list[OriginServer] = field(default_factory=list)
    declared: list[Declared] = field(default_factory=list)  # streams and consumers to create
    leafnodes: LeafNodes | None = None

    user: str = ""
    password: str = ""
    token: str = ""
    users: list[User] = field(default_factory=list)
    accounts: list[AccountSettings] = field(default_factory=list)
    mappings: list[Mapping] = field(default_factory=list)  # of the default account
    system_account: str = ""  # "": $SYS
    no_system_account: bool = False
    no_auth_user: str = ""  # name or nkey of the user for clients without credentials
    proxy_required: bool = False
    auth_timeout_ns: int = 2 * SECOND_NS
    auth_callout: AuthCallout | None = None
    operator: Operator | None = None

    tls: Tls | None = None  # of the clients' listener
    allow_non_tls: bool = False  # plain clients beside those with TLS
    proxy_protocol: bool = False  # connections begin with a proxy's header
    websocket: Websocket = field(default_factory=Websocket)

    debug: bool = False
    trace: bool = False
    logtime: bool = True
    logtime_utc: bool = False
    log_file: str = ""
    log_format: str = "text"  # or json
    log_size_limit: int = 0  # a larger file is put aside; 0: never
    log_max_num: int = 0  # number of log files, including the active one; 0: all
    syslog: bool = False
    remote_syslog: str = ""  # udp://host:514, tcp://host:601 or a socket's path
    trace_verbose: bool = False  # also the system account's traffic
    trace_headers: bool = False  # trace only headers of messages, not payloads
    max_traced_msg_len: int = 0  # 0: messages are traced in full
    connect_error_reports: int = 3600  # a remote's failed attempts are reported once per this many
    reconnect_error_reports: int = 1
    pid_file: str = ""
    ports_file_dir: str = ""

    headers: bool = True  # messages with headers are served
    max_payload: int = 1024 * 1024
    max_control_line: int = 4096
    max_pending: int = 64 * 1024 * 1024
    max_connections: int = 65536  # 0 or less refuses all clients
    max_subscriptions: int = 0  # of one connection; 0: no limit
    max_subscription_memory: int = 0  # bytes for all connections; 0: a quarter of the machine's
    max_output_memory: int = 0  # bytes waiting for slow connections; 0: a quarter of the machine's
    max_sub_tokens: int = 0  # of a subscription's subject; 0: no limit
    no_fast_producer_stall: bool = False  # slow subscribers miss messages, publishers do not wait
    max_closed_clients: int = 10_000  # number of closed connections that /connz?state=closed shows
    ping_interval_ns: int = 120 * SECOND_NS
    ping_max: int = 2
    write_deadline_ns: int = 10 * SECOND_NS
    write_timeout: str = "default"  # for a client that reads nothing: close (the default) or retry
    lame_duck_duration_ns: int = 120 * SECOND_NS
    lame_duck_grace_period_ns: int = 10 * SECOND_NS

    @property
    def syslog_address(self) -> str | None:
        """The syslog that log lines go to; "" is the machine's own, None: none."""
        if self.remote_syslog:
            return self.remote_syslog
        return "" if self.syslog else None

    @property
    def auth_required(self) -> bool:
        """Whether clients must authenticate."""
        return bool(self.user or self.token or self.operator or self.all_users())

    def all_users(self) -> list[User]:
        """The users of the server and of all its accounts."""
        if not self.accounts:
            return self.users
        return [*self.users, *(user for account in self.accounts for user in account.users)]

    def features(self) -> dict[str, bool]:
        """Return all feature flags, as configured or by default; unknown ones are left out."""
        return {name: self.feature_flags.get(name, on) for name, on in FEATURE_FLAGS.items()}


# Settings that SIGHUP may change on a running server; the others keep their values until a restart.
RELOADABLE = frozenset(
    {
        "debug",
        "trace",
        "logtime",
        "logtime_utc",
        "log_file",
        "log_format",
        "log_size_limit",
        "log_max_num",
        "syslog",
        "remote_syslog",
        "trace_verbose",
        "trace_headers",
        "max_traced_msg_len",
        "connect_error_reports",
        "reconnect_error_reports",
        "client_advertise",
        "server_tags",
        "server_metadata",
        "user",
        "password",
        "token",
        "users",
        "accounts",
        "mappings",
        "no_auth_user",
        "auth_callout",
        "operator",
        "proxy_required",
        "auth_timeout_ns",
        "max_payload",
        "max_control_line",
        "max_connections",
        "max_subscriptions",
        "max_subscription_memory",
        "max_output_memory",
        "max_sub_tokens",
        "no_fast_producer_stall",
        "ping_interval_ns",
        "ping_max",
        "write_deadline_ns",
        "pid_file",
        "ports_file_dir",
    }
)
