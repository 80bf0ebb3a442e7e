"""Settings of accounts: users, limits, exports and imports. Configuration files and account JWTs are
converted to these values.
"""

from penstock.server.fast_dataclass import FastDataclass, field
from penstock.server.settings.users import Permissions, User

DEFAULT_ACCOUNT = "$G"
SYSTEM_ACCOUNT = "$SYS"
SINGLETON, STREAMED, CHUNKED = "Singleton", "Streamed", "Chunked"  # as /accountz names them
RESPONSE_THRESHOLD_NS = 120 * 1_000_000_000
NO_LIMIT = -1


class JetStreamLimits(FastDataclass):
    """What an account may use of JetStream: all of it, or one tier such as "R1". -1: no limit."""

    max_memory: int = NO_LIMIT
    max_store: int = NO_LIMIT
    max_streams: int = NO_LIMIT
    max_consumers: int = NO_LIMIT
    max_ack_pending: int = NO_LIMIT
    memory_max_stream_bytes: int = NO_LIMIT
    store_max_stream_bytes: int = NO_LIMIT
    max_bytes_required: bool = False


class Latency(FastDataclass):
    """How a service's times are measured: `sampling` percent of the requests (0: those whose trace
    headers ask for it), published under `subject` in the exporter's account.
    """

    subject: str = ""
    sampling: int = 100


class Export(FastDataclass):
    """Subjects that other accounts may import: what is published on them (`service` false), or
    the requests that are answered on them.
    """

    subject: str = ""
    service: bool = False
    accounts: list[str] | None = None  # the accounts that may import; None or []: all
    token_required: bool = False  # an import needs an activation token (JWT accounts)
    account_token_position: int = 0  # this token of an import's subject has to be its account
    response: str = SINGLETON
    threshold_ns: int = RESPONSE_THRESHOLD_NS  # how long answers are waited for
    latency: Latency | None = None
    allow_trace: bool = False
    name: str = ""  # of a JWT
    revoked: dict[str, int] = field(default_factory=dict)  # importer -> activations until then


class Import(FastDataclass):
    """What an account takes from another one: `subject` is the exporter's, `to` the importer's
    ("": the same). A stream may have a `prefix` in place of `to`.
    """

    account: str = ""
    subject: str = ""
    service: bool = False
    to: str = ""
    prefix: str = ""
    share: bool = False  # the service gets the identity of the client
    allow_trace: bool = False
    token: str = ""  # activation token
    name: str = ""  # of a JWT

    @property
    def local(self) -> str:
        """The subjects as the importer's clients see them."""
        if self.prefix:
            return f"{self.prefix}{'' if self.prefix.endswith('.') else '.'}{self.subject}"
        return self.to or self.subject


class MappingTarget(FastDataclass):
    """Where a share of the messages goes."""

    subject: str = ""
    weight: int = 100  # percent
    cluster: str = ""  # only in a cluster of this name


class Mapping(FastDataclass):
    """What clients of an account publish to `subject` goes to one of the targets."""

    subject: str = ""
    targets: list[MappingTarget] = field(default_factory=list)


class AccountLimits(FastDataclass):
    """What an account may do; -1: no limit."""

    max_connections: int = NO_LIMIT
    max_subscriptions: int = NO_LIMIT
    max_payload: int = NO_LIMIT
    max_leafnodes: int = NO_LIMIT
    max_data: int = NO_LIMIT
    max_imports: int = NO_LIMIT
    max_exports: int = NO_LIMIT
    wildcards: bool = True  # exports may have them


class AccountSettings(FastDataclass):
    """One account."""

    name: str = ""
    nkey: str = ""  # public key of the account
    users: list[User] = field(default_factory=list)
    default_permissions: Permissions | None = None
    jetstream: dict[str, JetStreamLimits] | None = None  # by tier, "" is all; None: not enabled
    exports: list[Export] = field(default_factory=list)
    imports: list[Import] = field(default_factory=list)
    mappings: list[Mapping] = field(default_factory=list)
    limits: AccountLimits = field(default_factory=AccountLimits)
    trace_destination: str = ""  # where traces of messages with a traceparent header go
    trace_sampling: int = 0  # percent
    name_tag: str = ""  # a name for people, of an account that is called by its key
    jwt: str = field(default="", secret=True)  # that it came from; "": from the configuration
    issuer_key: str = ""  # the signer of the JWT
    tags: list[str] = field(default_factory=list)  # in it
    revoked_users: dict[str, int] = field(default_factory=dict)  # user's key -> JWTs until then
    updated_ns: int = 0  # when it came
