"""Inputs and outcomes of authentication: plain values, shared by all methods."""

from collections.abc import Callable

from msgspec import Struct, field

from pelton.server.settings.redacted import Redacted
from pelton.server.settings.users import Permissions, User

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Single(Protocol):
        """The single credentials of a listener: a user with its password, or a token."""

        user: str
        password: str
        token: str


NO_LIMIT = -1


class AuthContext(Struct):
    """The origin of a connection, for authentication."""

    host: str
    cid: int = 0
    kind: str = "STANDARD"  # connection type, of CONNECTION_TYPES
    leaf: bool = False
    nonce: str = ""  # the nonce that INFO asked it to sign
    tls_map: bool = False  # its certificate names the user
    names: tuple[str, ...] = ()  # names in the certificate, in the order of the checks
    same_subject: Callable[[str], bool] | None = None  # whether a name is its subject
    # for an auth callout: version, cipher, certs, verified_chains
    tls: dict[str, object] | None = None
    no_auth_user: str | None = None  # the listener's own; None: the server's
    users: list[User] | None = None  # the listener's own; None: the server's
    single: "Single | None" = None  # the listener's own user or token; None: the server's


class Limits(Struct, frozen=True):
    """Limits of one connection; NO_LIMIT where it has none of its own."""

    subscriptions: int = NO_LIMIT
    payload: int = NO_LIMIT  # bytes
    data: int = NO_LIMIT  # bytes in a connection's whole life


UNLIMITED = Limits()


class Admitted(Redacted):
    """A client that may connect, and its user."""

    secrets = ("jwt", "stored")

    name: str  # the name that monitoring shows
    account: str = ""  # "": the default account
    permissions: Permissions | None = None  # None: everything
    limits: Limits = UNLIMITED
    expires_ns: int = 0  # since the epoch; 0: never
    user: User | None = None  # the entry of a users table
    nkey: str = ""  # the public key that signed the nonce
    jwt: str = ""  # the user JWT
    issuer: str = ""  # the signer of the JWT
    name_tag: str = ""
    tags: list[str] = field(default_factory=list)
    issued_at: int = 0  # of the JWT, seconds since the epoch
    default_permissions: bool = False  # the account's default ones: they follow its updates
    way: str = "open"  # the method: open, single, token, users, jwt or callout
    stored: str = ""  # the stored secret of the single user or token

    @property
    def shown(self) -> str:
        """The user as the log shows it; empty when no authentication is configured."""
        if self.way == "token":
            return "token"
        kind = "jwt" if self.jwt else "nkey" if self.nkey else "user"
        return f"{kind}:{self.name}" if self.name else ""


class Refused(Struct):
    """A client that may not connect."""

    why: str = ""  # for the log; never sent to the client
    error: bytes = b"Authorization Violation"
    reason: str = "Authentication Failure"


class PendingOutcome:
    """An outcome that is not known yet. It is settled once, on the event loop's thread."""

    __slots__ = ("_waiting", "outcome")

    def __init__(self) -> None:
        """Start without an outcome."""
        self.outcome: Admitted | Refused | None = None
        self._waiting: list[Callable[[Admitted | Refused], None]] = []

    def then(self, call: Callable[[Admitted | Refused], None]) -> None:
        """Call `call` with the outcome: now when it is known, else when it is settled."""
        if self.outcome is not None:
            call(self.outcome)
        else:
            self._waiting.append(call)

    def settle(self, outcome: Admitted | Refused) -> None:
        """Set the outcome; a second call has no effect."""
        if self.outcome is not None:
            return
        self.outcome = outcome
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call(outcome)


Outcome = Admitted | Refused | PendingOutcome
