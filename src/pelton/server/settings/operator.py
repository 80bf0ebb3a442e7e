"""Settings of the operator mode (keys, resolver) and of the auth callout. Plain values; JWTs are text."""

from msgspec import Struct, field

from pelton.server.units import SECOND_NS

FETCH_TIMEOUT_NS = 2 * SECOND_NS


class Resolver(Struct):
    """Where account JWTs come from."""

    kind: str = "memory"  # memory, url, full or cache
    url: str = ""
    directory: str = ""
    allow_delete: bool = False
    hard_delete: bool = False
    limit: int = 0  # of files; 0: none
    interval_ns: int = 0
    timeout_ns: int = FETCH_TIMEOUT_NS
    ttl_ns: int = 0


class Operator(Struct):
    """Operator mode: every client shows a JWT whose chain of signatures ends at one of these keys."""

    jwts: list[str] = field(default_factory=list)  # of the operators
    trusted_keys: list[str] = field(default_factory=list)  # the operators' keys, or the file's
    resolver: Resolver | None = None
    preload: dict[str, str] = field(default_factory=dict)  # account key: its JWT
    pinned_accounts: list[str] = field(default_factory=list)  # only these may connect; empty: all
    system_account: str = ""
    default_sentinel: str = ""  # JWT for clients without one


class AuthCallout(Struct):
    """A service that decides whether a client may connect."""

    issuer: str = ""  # public account key that signs its answers
    account: str = ""  # the account that the service subscribes in; "": the default account
    auth_users: list[str] = field(default_factory=list)  # users of the service: checked here
    xkey: str = ""  # public curve key: requests are encrypted for it
    allowed_accounts: list[str] = field(default_factory=list)  # whose users it may decide about
