"""What the checks work on and what comes of them: plain values, shared by all ways to authenticate.

Knows nothing of connections.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import msgspec

from penstock.server.settings.users import Permissions, User

NO_LIMIT = -1


class Credentials(msgspec.Struct):
    """What CONNECT says; fields that are absent keep the protocol's defaults. Unknown fields are
    ignored.
    """

    verbose: bool = True
    pedantic: bool = True
    echo: bool = True
    headers: bool = False
    no_responders: bool = False
    protocol: int = 0
    name: str = ""
    lang: str = ""
    version: str = ""
    user: str = ""
    password: str = msgspec.field(name="pass", default="")
    auth_token: str = ""
    jwt: str = ""
    nkey: str = ""
    sig: str = ""
    account: str = ""
    new_account: bool = False

    @property
    def shown(self) -> str:
        """How the client names itself, as logs may show it."""
        if self.nkey:
            return f'Nkey "{self.nkey}"'
        if self.user:
            return f'User "{self.user}"'
        if self.jwt:
            return "JWT User"
        return 'Token "[REDACTED]"' if self.auth_token else 'User "N/A"'

    def __repr__(self) -> str:
        """Without the secrets."""
        return f"Credentials({self.shown})"


@dataclass(slots=True)
class Peer:
    """Where a connection comes from."""

    host: str
    cid: int = 0
    kind: str = "STANDARD"  # connection type, of CONNECTION_TYPES
    leaf: bool = False
    nonce: str = ""  # what INFO asked it to sign
    tls_map: bool = False  # its certificate says which user it is
    names: tuple[str, ...] = ()  # of the certificate, in the order in which they are tried
    same_subject: Callable[[str], bool] | None = None  # whether a name is its subject
    # for an auth callout: version, cipher, certs, verified_chains
    tls: dict[str, object] | None = None
    no_auth_user: str | None = None  # the listener's own; None: the server's
    users: list[User] | None = None  # the listener's own; None: the server's
    single: "Single | None" = None  # the listener's own user or token; None: the server's


class Single(Protocol):
    """The only credentials of a listener: a user with its password, or a token."""

    user: str
    password: str
    token: str


@dataclass(slots=True, frozen=True)
class Limits:
    """What one connection may use; NO_LIMIT where there is none of its own."""

    subscriptions: int = NO_LIMIT
    payload: int = NO_LIMIT  # bytes
    data: int = NO_LIMIT  # bytes in a connection's whole life


UNLIMITED = Limits()


@dataclass(slots=True)
class Admitted:
    """Somebody who may come in, and as whom."""

    name: str  # as monitoring shows it
    account: str = ""  # "": the default account
    permissions: Permissions | None = None  # None: everything
    limits: Limits = UNLIMITED
    expires_ns: int = 0  # since the epoch; 0: never
    user: User | None = None  # the entry of a users table
    nkey: str = ""  # public key that proved it
    jwt: str = field(default="", repr=False)  # the user JWT
    issuer: str = ""  # who signed that
    name_tag: str = ""
    tags: list[str] = field(default_factory=list)
    issued_at: int = 0  # of the JWT, seconds since the epoch
    default_permissions: bool = False  # the account's default ones: they follow its updates
    way: str = "open"  # that it came: open, single, token, users, jwt or callout
    stored: str = field(default="", repr=False)  # what the single user or token was checked with


class Refused(NamedTuple):
    """Somebody who may not."""

    why: str = ""  # for the log; never the client
    error: bytes = b"Authorization Violation"
    reason: str = "Authentication Failure"


class Later:
    """An answer that is not there yet. It comes once, on the loop's thread."""

    __slots__ = ("_waiting", "outcome")

    def __init__(self) -> None:
        """Nothing is known yet."""
        self.outcome: Admitted | Refused | None = None
        self._waiting: list[Callable[[Admitted | Refused], None]] = []

    def then(self, call: Callable[[Admitted | Refused], None]) -> None:
        """Call with the answer: when it comes, or now when it is there."""
        if self.outcome is not None:
            call(self.outcome)
        else:
            self._waiting.append(call)

    def settle(self, outcome: Admitted | Refused) -> None:
        """The answer; a second one is not heard."""
        if self.outcome is not None:
            return
        self.outcome = outcome
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call(outcome)


Outcome = Admitted | Refused | Later
