"""Settings of accounts: users, limits, exports and imports. Configuration files and account JWTs are
converted to these values.
"""

from msgspec import Struct, field

from pelton.server.settings.redacted import Redacted
from pelton.server.settings.users import Permissions, User

DEFAULT_ACCOUNT = "$G"
SYSTEM_ACCOUNT = "$SYS"
SINGLETON, STREAMED, CHUNKED = "Singleton", "Streamed", "Chunked"  # as /accountz names them
RESPONSE_THRESHOLD_NS = 120 * 1_000_000_000
NO_LIMIT = -1


class JetStreamLimits(Struct):
    """Limits on an account's use of JetStream: for all of it, or for one tier such as "R1". -1: no
    limit.
    """

    max_memory: int = NO_LIMIT
    max_store: int = NO_LIMIT
    max_streams: int = NO_LIMIT
    max_consumers: int = NO_LIMIT
    max_ack_pending: int = NO_LIMIT
    memory_max_stream_bytes: int = NO_LIMIT
    store_max_stream_bytes: int = NO_LIMIT
    max_bytes_required: bool = False


class Latency(Struct):
    """The measurement of a service's latency: `sampling` percent of the requests (0: requests whose
    trace headers ask for it), published to `subject` in the exporter's account.
    """

    subject: str = ""
    sampling: int = 100


class Export(Struct):
    """Subjects that other accounts may import: a stream of messages (`service` false), or a service
    that answers requests.
    """

    subject: str = ""
    service: bool = False
    accounts: list[str] | None = None  # the accounts that may import; None or []: all
    token_required: bool = False  # an import needs an activation token (JWT accounts)
    account_token_position: int = 0  # this token of an import's subject must be its account
    response: str = SINGLETON
    threshold_ns: int = RESPONSE_THRESHOLD_NS  # how long a response is awaited
    latency: Latency | None = None
    allow_trace: bool = False
    name: str = ""  # name in the JWT
    revoked: dict[str, int] = field(default_factory=dict)  # importer -> activations issued by then


class Import(Struct):
    """An import from another account: `subject` is the exporter's, `to` the importer's ("": the
    same). A stream may have a `prefix` in place of `to`.
    """

    account: str = ""
    subject: str = ""
    service: bool = False
    to: str = ""
    prefix: str = ""
    share: bool = False  # the service gets the identity of the client
    allow_trace: bool = False
    token: str = ""  # activation token
    name: str = ""  # name in the JWT

    @property
    def local(self) -> str:
        """The subjects that the importer's clients use."""
        if self.prefix:
            return f"{self.prefix}{'' if self.prefix.endswith('.') else '.'}{self.subject}"
        return self.to or self.subject


class MappingTarget(Struct):
    """A destination of a mapping, and its share of the messages."""

    subject: str = ""
    weight: int = 100  # percent
    cluster: str = ""  # applies only in a cluster of this name


class Mapping(Struct):
    """Messages that clients of an account publish to `subject` go to one of the targets."""

    subject: str = ""
    targets: list[MappingTarget] = field(default_factory=list)


class AccountLimits(Struct):
    """Limits of an account; -1: no limit."""

    max_connections: int = NO_LIMIT
    max_subscriptions: int = NO_LIMIT
    max_payload: int = NO_LIMIT
    max_leafnodes: int = NO_LIMIT
    max_data: int = NO_LIMIT
    max_imports: int = NO_LIMIT
    max_exports: int = NO_LIMIT
    wildcards: bool = True  # exports may have wildcards


class AccountSettings(Redacted):
    """One account."""

    secrets = ("jwt",)

    name: str = ""
    nkey: str = ""  # public key of the account
    users: list[User] = field(default_factory=list)
    default_permissions: Permissions | None = None
    jetstream: dict[str, JetStreamLimits] | None = None  # by tier, "" is all; None: not enabled
    exports: list[Export] = field(default_factory=list)
    imports: list[Import] = field(default_factory=list)
    mappings: list[Mapping] = field(default_factory=list)
    limits: AccountLimits = field(default_factory=AccountLimits)
    trace_destination: str = ""  # destination of traces of messages with a traceparent header
    trace_sampling: int = 0  # percent
    name_tag: str = ""  # readable name of an account whose name is a key
    jwt: str = ""  # its JWT; "": from the configuration
    issuer_key: str = ""  # the signer of the JWT
    tags: list[str] = field(default_factory=list)  # tags in the JWT
    revoked_users: dict[str, int] = field(default_factory=dict)  # user's key -> JWTs issued by then
    updated_ns: int = 0  # when the JWT arrived
