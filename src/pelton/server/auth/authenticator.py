"""The authenticator: asks the methods of authentication in nats-server's order.

    operator mode (JWTs) -> nkey -> users table -> token -> single user;  an auth callout on top

One Authenticator serves all listeners; after a reload it reads the settings again. A check that takes
time returns a PendingOutcome.
"""

from collections.abc import Callable

from pelton.server.auth.failure_delay import FailureDelay
from pelton.server.auth.passwords import Passwords, RunOnLoop
from pelton.server.auth.result import Admitted, AuthContext, Outcome, Refused
from pelton.server.auth.users_table import PROXY_REQUIRED, UsersTable, check_single
from pelton.server.settings import Settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pelton.server.auth.callout import Callout
    from pelton.server.auth.connect_options import Credentials

    # Called with every refusal; system events use it.
    OnError = Callable[[AuthContext, Credentials, Refused], None]
    from pelton.server.auth.operator import OperatorMode

MOVED = Refused("the user was removed or moved to another account", b"", "Client Closed")


class Authenticator:
    """Decides whether a client may connect, and as which user."""

    def __init__(self, settings: Settings, run_on_loop: RunOnLoop | None = None) -> None:
        """`run_on_loop` runs a call on the event loop's thread and may be called from any thread.
        Without it, calls run in place.
        """
        self.settings = settings
        self.passwords = Passwords(run_on_loop or _in_place)
        self.failure_delay = FailureDelay()
        self.on_error: list[OnError] = []
        self.operator: OperatorMode | None = None
        self.callout: Callout | None = None
        self.refresh()

    def refresh(self) -> None:
        """Read the users in the settings again."""
        self.table = UsersTable(self.settings.all_users(), self.passwords)

    @property
    def nonce_needed(self) -> bool:
        """Whether INFO needs a nonce for clients to sign."""
        return bool(self.table.nkeys) or self.settings.operator is not None

    def check(self, asked: "Credentials", context: AuthContext) -> Outcome:
        """Check credentials: Admitted, Refused, or a PendingOutcome that becomes one of them."""
        if self.failure_delay.too_many_waiting(context.host):
            return Refused("too many failed attempts from this address")
        if asked.account or asked.new_account:
            return Refused("CONNECT names an account")
        if self.operator is not None:
            return self.operator.check(asked, context)
        outcome = self._known(asked, context)
        if self.callout is not None:
            return self.callout.review(outcome, asked, context)
        return outcome

    def _known(self, asked: "Credentials", context: AuthContext) -> Outcome:
        settings = self.settings
        table = self.table
        if context.users is not None:
            table = UsersTable(context.users, self.passwords)
        if table.names or table.nkeys:
            return table.check(settings, asked, context)
        single = context.single or settings
        if settings.auth_required or single.user or single.token:
            if settings.proxy_required:
                return PROXY_REQUIRED
            return check_single(single, asked, context, self.passwords)
        return Admitted(asked.user or asked.nkey)

    def refused(self, context: AuthContext, asked: "Credentials", refusal: Refused) -> None:
        """Call the hooks for a refusal."""
        for call in self.on_error:
            call(context, asked, refusal)

    def still_valid(self, admitted: Admitted) -> Admitted | Refused:
        """Check an admitted client again after a reload. Refused with an empty error: the user was
        removed or moved to another account. nats-server closes such a connection without an error,
        and so does this server.
        """
        settings, before = self.settings, admitted.user
        if admitted.way == "jwt" and self.operator is not None:
            return self.operator.still_valid(admitted)
        if before is None:
            stays = {
                "open": not settings.auth_required,
                "token": settings.token == admitted.stored != "",
                "single": (settings.user, settings.password) == (admitted.name, admitted.stored),
                "callout": self.callout is not None,
                "jwt": False,
            }
            return admitted if stays[admitted.way] else Refused()
        now = self.table.find(before.nkey or before.name)
        if now is None or now.account != before.account:
            return MOVED
        if now.password != before.password or now.connection_types != before.connection_types:
            return Refused()
        admitted.user, admitted.permissions = now, now.permissions
        return admitted

    def close(self) -> None:
        """Start no further password checks; the server is stopping."""
        self.passwords.close()


def _in_place(call: Callable[[], None]) -> None:
    call()
