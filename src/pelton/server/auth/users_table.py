"""The users of the configuration: named users with a password, and nkey users with a signature; also the
single user or token. The order of checks is nats-server's. Passwords runs the slow checks.
"""

from collections.abc import Callable, Iterable

from pelton.server.auth.passwords import Passwords, same
from pelton.server.auth.result import Admitted, AuthContext, Outcome, PendingOutcome, Refused
from pelton.server.settings import Settings
from pelton.server.settings.users import User, is_bcrypt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pelton.server.auth.connect_options import Credentials
    from pelton.server.auth.result import Single

TOKEN_NAME = "[REDACTED]"


PROXY_REQUIRED = Refused("the user must connect through a proxy", reason="Proxy Required")


class UsersTable:
    """Users by name and by nkey."""

    def __init__(self, users: Iterable[User], passwords: Passwords) -> None:
        """A later user replaces an earlier one of the same name; the configuration check refuses
        such names.
        """
        self.names: dict[str, User] = {}
        self.nkeys: dict[str, User] = {}
        for user in users:
            if user.nkey:
                self.nkeys[user.nkey] = user
            else:
                self.names[user.name] = user
        self._passwords = passwords
        # The check of an unknown name takes as long as that of a known one, so the time does not
        # reveal names.
        hashes = (u.password for u in self.names.values() if is_bcrypt(u.password))
        self._decoy = next(hashes, "\0 no password")

    def find(self, name: str) -> User | None:
        """The user with this name or nkey."""
        return self.names.get(name) or self.nkeys.get(name)

    def check(self, settings: Settings, asked: "Credentials", context: AuthContext) -> Outcome:
        """Check credentials against the users."""
        no_auth = settings.no_auth_user if context.no_auth_user is None else context.no_auth_user
        bare = not (asked.user or asked.password or asked.auth_token)
        user: User | None = None
        if self.nkeys:
            nkey = asked.nkey or (no_auth if bare and no_auth in self.nkeys else "")
            if nkey:
                user = self.nkeys.get(nkey)
                if user is None or not allowed(user, context):
                    return Refused("the nkey is unknown or not allowed on this type of connection")
                if nkey != no_auth and not signed(nkey, asked.sig, context.nonce):
                    return Refused("the signature is not valid")
                return outcome_of(user)
        if not self.names:
            return Refused("CONNECT has no credentials of a user")
        if context.tls_map:
            return self._mapped(asked, context)
        if bare and no_auth in self.names:
            user = self.names[no_auth]
            return (
                outcome_of(user)
                if allowed(user, context)
                else Refused("the user is not allowed on this listener")
            )
        if not asked.user:
            return Refused("CONNECT names no user")
        user = self.names.get(asked.user)
        if user is not None and not allowed(user, context):
            return Refused("the user is not allowed on this type of connection")
        if user is not None and not user.password and user.name != no_auth and maps(settings, user):
            # This user is named by a certificate: an empty password does not authenticate it.
            return Refused("the user needs a client certificate")
        return check_password(
            self._passwords,
            context,
            self._decoy if user is None else user.password,
            asked.password,
            lambda: Refused() if user is None else outcome_of(user),
        )

    def _mapped(self, asked: "Credentials", context: AuthContext) -> Outcome:
        """The user that the certificate names; the credentials in CONNECT have no effect."""
        for name in context.names:
            user = self.names.get(name)
            if user is not None and allowed(user, context):
                return outcome_of(user)
        if context.same_subject is not None:
            for name, user in self.names.items():
                if allowed(user, context) and context.same_subject(name):
                    return outcome_of(user)
        return Refused("no user has a name of the client certificate")


def check_single(
    settings: "Single", asked: "Credentials", context: AuthContext, passwords: Passwords
) -> Outcome:
    """Check the single user or the token, for settings without a users table."""
    if settings.token:
        return check_password(
            passwords,
            context,
            settings.token,
            asked.auth_token,
            lambda: single(TOKEN_NAME, settings.token, "token"),
        )
    if settings.user:
        known = same(settings.user, asked.user)
        return check_password(
            passwords,
            context,
            settings.password,
            asked.password,
            lambda: (
                single(settings.user, settings.password)
                if known
                else Refused("the user is unknown")
            ),
        )
    return Refused("CONNECT has no credentials of a user")


def single(name: str, stored: str, way: str = "single") -> Admitted:
    """The Admitted of the single user or token. It keeps the stored secret, so that a reload
    notices a change.
    """
    return Admitted(name, way=way, stored=stored)


def check_password(
    passwords: Passwords,
    context: AuthContext,
    stored: str,
    given: str,
    then: Callable[[], Admitted | Refused],
) -> Outcome:
    """The result of then() when the password matches; a PendingOutcome of it when the check takes
    long.
    """
    later = PendingOutcome()
    wrong = Refused("wrong password")
    fits = passwords.check(
        context.host, stored, given, lambda fits: later.settle(then() if fits else wrong)
    )
    if fits is None:
        return later
    return then() if fits else wrong


def signed(nkey: str, signature: str, nonce: str) -> bool:
    """Whether the holder of an nkey signed the nonce of its INFO."""
    from pelton.nkeys import read_signature, verify

    raw = read_signature(signature)
    return bool(raw) and bool(nonce) and verify(nkey, nonce.encode(), raw or b"")


def allowed(user: User, context: AuthContext) -> bool:
    """Whether the user may use this kind of connection."""
    return not user.connection_types or context.kind in user.connection_types


def maps(settings: Settings, user: User) -> bool:
    """Whether a listener that this user may use takes users from certificates."""
    leafs, websocket = settings.leafnodes, settings.websocket.tls
    listeners = (
        ("STANDARD", settings.tls),
        ("WEBSOCKET", websocket),
        ("LEAFNODE", leafs.tls if leafs is not None else None),
        ("LEAFNODE_WS", websocket),
    )
    return any(
        tls is not None and tls.map and kind in (user.connection_types or (kind,))
        for kind, tls in listeners
    )


def outcome_of(user: User) -> Admitted | Refused:
    """The outcome for an authenticated user.

    This server trusts no proxy, so a user that must connect through a proxy is refused.
    """
    return PROXY_REQUIRED if user.proxy_required else admit(user)


def admit(user: User) -> Admitted:
    """The Admitted of an entry in a users table."""
    return Admitted(
        name=user.nkey or user.name,
        account=user.account,
        permissions=user.permissions,
        user=user,
        nkey=user.nkey,
        way="users",
    )
