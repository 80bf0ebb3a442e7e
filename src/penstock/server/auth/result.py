"""Inputs and outcomes of authentication: plain values, shared by all methods."""

from collections.abc import Callable

from penstock.server.fast_dataclass import FastDataclass, field
from penstock.server.settings.users import Permissions, User

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Single(Protocol):
        """The only credentials of a listener: a user with its password, or a token."""

        user: str
        password: str
        token: str


NO_LIMIT = -1


class AuthContext(FastDataclass):
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


class Limits(FastDataclass):
    """What one connection may use; NO_LIMIT where there is none of its own."""

    subscriptions: int = NO_LIMIT
    payload: int = NO_LIMIT  # bytes
    data: int = NO_LIMIT  # bytes in a connection's whole life


UNLIMITED = Limits()


class Admitted(FastDataclass):
    """A client that may connect, and its user."""

    name: str  # as monitoring shows it
    account: str = ""  # "": the default account
    permissions: Permissions | None = None  # None: everything
    limits: Limits = UNLIMITED
    expires_ns: int = 0  # since the epoch; 0: never
    user: User | None = None  # the entry of a users table
    nkey: str = ""  # public key that proved it
    jwt: str = field(default="", secret=True)  # the user JWT
    issuer: str = ""  # the signer of the JWT
    name_tag: str = ""
    tags: list[str] = field(default_factory=list)
    issued_at: int = 0  # of the JWT, seconds since the epoch
    default_permissions: bool = False  # the account's default ones: they follow its updates
    way: str = "open"  # that it came: open, single, token, users, jwt or callout
    stored: str = field(default="", secret=True)  # what the single user or token was checked with

    @property
    def shown(self) -> str:
        """The user as the log shows it; empty when no authentication is configured."""
        if self.way == "token":
            return "token"
        kind = "jwt" if self.jwt else "nkey" if self.nkey else "user"
        return f"{kind}:{self.name}" if self.name else ""


class Refused(FastDataclass):
    """A client that may not connect."""

    why: str = ""  # for the log; never the client
    error: bytes = b"Authorization Violation"
    reason: str = "Authentication Failure"


class PendingOutcome:
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


Outcome = Admitted | Refused | PendingOutcome
