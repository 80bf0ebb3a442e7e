"""Settings of the operator mode (keys, resolver) and of the auth callout. Plain values; JWTs are text."""

from penstock.server.fast_dataclass import FastDataclass, field
from penstock.server.units import SECOND_NS

FETCH_TIMEOUT_NS = 2 * SECOND_NS


class Resolver(FastDataclass):
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


class Operator(FastDataclass):
    """The operator mode: every client shows a JWT that leads back to one of these keys."""

    jwts: list[str] = field(default_factory=list)  # of the operators
    trusted_keys: list[str] = field(default_factory=list)  # their keys, or those of the file
    resolver: Resolver | None = None
    preload: dict[str, str] = field(default_factory=dict)  # account key: its JWT
    pinned_accounts: list[str] = field(default_factory=list)  # no others may connect; empty: all
    system_account: str = ""
    default_sentinel: str = ""  # JWT for clients that show none


class AuthCallout(FastDataclass):
    """A service that decides whether a client may connect."""

    issuer: str = ""  # public account key that signs its answers
    account: str = ""  # that the service listens in; "": the default account
    auth_users: list[str] = field(default_factory=list)  # the service's own: checked here
    xkey: str = ""  # public curve key: requests are encrypted for it
    allowed_accounts: list[str] = field(default_factory=list)  # whose users are asked about too
