"""The operator mode: a client shows a user JWT that its account signed, and signs a nonce to prove that
the user JWT is its own. An operator that the settings trust has signed the account's JWT.

A resolver gives the JWT of an account when its first client connects. The account is then added to
the server's Accounts like one of the configuration. The caller gives a clock.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field

from pelton.nkeys import ACCOUNT, is_public, read_signature, verify
from pelton.server.auth.claims import (
    AccountClaims,
    ActivationClaims,
    OperatorClaims,
    Template,
    UserClaims,
    UserPart,
)
from pelton.server.auth.connect_options import Credentials
from pelton.server.auth.from_claims import account_settings, permissions
from pelton.server.auth.jwt import JwtError, decode
from pelton.server.auth.result import (
    Admitted,
    AuthContext,
    Limits,
    Outcome,
    PendingOutcome,
    Refused,
)
from pelton.server.auth.scoped_keys import ScopeError, fill
from pelton.server.auth.users_table import PROXY_REQUIRED
from pelton.server.auth.validity import allowed_until_ns, from_allowed_network
from pelton.server.settings import Settings
from pelton.server.settings.accounts import AccountSettings, Export, Import
from pelton.server.settings.operator import Operator
from pelton.server.settings.users import CONNECTION_TYPES, Permissions
from pelton.server.units import SECOND_NS

if TYPE_CHECKING:
    from pelton.server.auth.callout import Callout

Answer = Callable[[str | None], None]

LOADED_AT_ONCE = 100
"""Accounts that are fetched in one turn because others import from them."""


class Resolver(Protocol):
    """The source of account JWTs (``resolvers``)."""

    def fetch(self, account: str, answer: Answer) -> None:
        """Call `answer` with the JWT of an account, or None when there is none; at once, or later
        on the event loop's thread.
        """

    def store(self, account: str, token: str) -> None:
        """Store a newer JWT. Raises OSError or ValueError."""


class Place(Protocol):
    """The destination of accounts (``server.accounts``)."""

    def put(self, settings: AccountSettings) -> object:
        """Add an account, or change it."""


class Record(Struct):
    """An account from a JWT."""

    claims: AccountClaims
    jwt: str
    settings: AccountSettings
    signers: dict[str, Template | None] = field(default_factory=dict)  # key -> users' template
    removed: bool = False

    def expired(self, now_ns: int) -> bool:
        """Whether the account's JWT has expired; its clients are then disconnected."""
        return self.removed or 0 < self.claims.exp * SECOND_NS <= now_ns

    def revoked(self, user: str, issued_at: int) -> bool:
        """Whether the account has revoked this user's JWTs of that issue time."""
        revocations = self.claims.nats.revocations or {}
        return any(revocations.get(key, -1) >= issued_at for key in (user, "*"))


class OperatorMode:
    """Authenticates clients by JWTs."""

    def __init__(
        self, settings: Settings, resolver: Resolver, accounts: Place, clock: Callable[[], int]
    ) -> None:
        """`clock` gives nanoseconds since the epoch. ValueError when an operator's JWT is invalid."""
        operator = settings.operator or Operator()
        self.operators = [decode(token, OperatorClaims) for token in operator.jwts]
        self.trusted = frozenset(
            [*operator.trusted_keys, *(key for each in self.operators for key in each.keys)]
        )
        self.pinned: frozenset[str] = frozenset()
        self.pin(operator.pinned_accounts, settings.system_account)
        self.sentinel = operator.default_sentinel
        self.resolver = resolver
        self.accounts = accounts
        self.clock = clock
        self.records: dict[str, Record] = {}
        self.callout: Callout | None = None  # asks the services of accounts
        self.on_update: list[Callable[[Record], None]] = []  # called when an account has changed
        self.pinned_failures = 0
        self._exporters: dict[str, None] = {}  # accounts that others import from, to be loaded
        self._loading = False
        self.call_at: Callable[[int, Callable[[], None]], object] = _never

    def pin(self, accounts: list[str], system: str) -> None:
        """Admit only users of these accounts and of the system account; an empty list admits all."""
        self.pinned = frozenset([*accounts, system] if accounts else [])

    # -- accounts

    def take(self, token: str) -> Record:
        """Take over the claims of an account's JWT. JwtError when it is not trusted."""
        claims = decode(token, AccountClaims)
        if claims.iss not in self.trusted:
            raise JwtError("account JWT is not signed by a trusted operator")
        problem = next(claims.problems(), "")
        if problem:
            raise JwtError(f"account validation failed: {problem}")
        signers: dict[str, Template | None] = {claims.sub: None}
        for key in claims.nats.signing_keys or []:
            if isinstance(key, str):
                signers[key] = None
            elif key.kind == "user_scope":
                signers[key.key] = key.template
            else:
                raise JwtError(f'unknown signing key scope "{key.kind}"')
        before = self.records.get(claims.sub)
        settings = account_settings(claims)
        settings.jwt, settings.updated_ns = token, self.clock()
        record = Record(claims, token, settings, signers)
        self.records[claims.sub] = record
        self.accounts.put(record.settings)
        if before is not None:
            for call in self.on_update:
                call(record)
        if claims.exp:
            self.call_at(claims.exp * SECOND_NS, lambda: self._over(record))
        for wanted in record.settings.imports:
            if wanted.account not in self.records:
                self._exporters[wanted.account] = None
        if not self._loading:
            self._load_exporters()
        return record

    def _load_exporters(self) -> None:
        """Load accounts that others import from, and those that these import from: some now, and
        when there are many, the rest in later turns.
        """
        self._loading = True
        try:
            for _ in range(LOADED_AT_ONCE):
                if not self._exporters:
                    return
                name = next(iter(self._exporters))
                del self._exporters[name]
                self.load(name, _ignore)
        finally:
            self._loading = False
        if self._exporters:
            self._loading = True  # until the next turn
            self.call_at(0, self._load_exporters)  # in a turn of its own

    def load(self, account: str, then: Callable[[Record | None], None]) -> None:
        """Call `then` with the account; the resolver is asked when it is not loaded or has expired."""
        record = self.records.get(account)
        if record is not None and not record.expired(self.clock()):
            then(record)
            return
        if not is_public(account, ACCOUNT):
            then(None)
            return

        def came(token: str | None) -> None:
            if token is None:
                then(None)
                return
            try:
                claims = decode(token, AccountClaims)
                if claims.sub != account:
                    raise JwtError("the resolver gave another account's JWT")
                found = self.records.get(account)
                if found is None or found.jwt != token:
                    found = self.take(token)
            except JwtError:
                then(None)
            else:
                then(found)

        self.resolver.fetch(account, came)

    def _over(self, record: Record) -> None:
        """An account's JWT has expired, unless a newer one has arrived."""
        if self.records.get(record.claims.sub) is record:
            for call in self.on_update:
                call(record)

    def remove(self, account: str) -> None:
        """Disconnect the clients of a deleted account."""
        record = self.records.get(account)
        if record is not None:
            record.removed = True
            for call in self.on_update:
                call(record)

    def activated(
        self, exporter: AccountSettings, export: Export, wanted: Import, importer: str
    ) -> bool:
        """Whether an import has the exporter's permission."""
        record = self.records.get(exporter.name)
        if record is None or not wanted.token:
            return False
        try:
            found = decode(wanted.token, ActivationClaims)
        except JwtError:
            return False
        nats = found.nats
        signer = nats.issuer_account or found.iss
        return (
            signer == exporter.name
            and (not nats.issuer_account or found.iss in record.signers)
            and found.sub == importer
            and nats.kind == ("service" if wanted.service else "stream")
            and _contained(wanted.subject, nats.subject)
            and not found.out_of_time(self.clock() // SECOND_NS)
            and max(export.revoked.get(importer, -1), export.revoked.get("*", -1)) < found.iat
        )

    # -- users

    def check(self, asked: Credentials, context: AuthContext) -> Outcome:
        """Check the user JWT of a client."""
        token = asked.jwt
        try:
            user = decode(token, UserClaims)
        except JwtError as problem:
            if not self.sentinel:
                why = f"User JWT not valid: {problem}" if token else "requires a user JWT"
                return Refused(why)
            token = self.sentinel
            try:
                user = decode(token, UserClaims)
            except JwtError as inner:
                return Refused(f"default sentinel not valid: {inner}")
        if user.nats.proxy_required:
            return PROXY_REQUIRED
        problem_text = user.out_of_time(self.clock() // SECOND_NS)
        if problem_text:
            return Refused(f"User JWT no longer valid: {problem_text}")
        if self.pinned and user.account not in self.pinned:
            self.pinned_failures += 1
            return Refused("the account is not one of the pinned ones")
        later = PendingOutcome()

        def judge(record: Record | None) -> None:
            outcome: Outcome
            if record is None:
                outcome = Refused("Account JWT lookup error")
            else:
                outcome = self._judge(user, token, record, asked, context)
                if self.callout is not None:
                    outcome = self.callout.review_in(record, outcome, user, token, asked, context)
            if isinstance(outcome, PendingOutcome):
                outcome.then(later.settle)
            else:
                later.settle(outcome)

        self.load(user.account, judge)
        return later.outcome or later

    def _judge(
        self, user: UserClaims, token: str, record: Record, asked: Credentials, context: AuthContext
    ) -> Admitted | Refused:
        now_ns = self.clock()
        try:
            nats = self.scoped(user, record)
        except (JwtError, ScopeError) as problem:
            return Refused(str(problem))
        problem_text = next(user.problems(), "")  # only of a JWT that the account has signed
        if problem_text:
            return Refused(f"User JWT no longer valid: {problem_text}")
        if record.expired(now_ns):
            return Refused("Account JWT has expired")
        if nats.bearer_token and record.claims.nats.limits.disallow_bearer:
            return Refused("Account does not allow bearer tokens")
        if not kind_allowed(nats.allowed_connection_types, context.kind):
            return Refused("Connection type not allowed")
        if not nats.bearer_token:
            raw = read_signature(asked.sig)
            if not raw or not context.nonce or not verify(user.sub, context.nonce.encode(), raw):
                return Refused("Signature not verified")
        if record.revoked(user.sub, user.iat):
            return Refused("User authentication revoked")
        if not from_allowed_network(nats, context.host):
            return Refused(f"Bad src Ip {context.host}")
        until_ns = allowed_until_ns(nats, now_ns)
        if until_ns is None:
            return Refused("Outside connect times")
        return admitted(user, token, nats, record, until_ns)

    def scoped(self, user: UserClaims, record: Record) -> UserPart:
        """The user's permissions and limits: its own, or those of its scoped signing key."""
        if user.iss not in record.signers:
            raise JwtError("User JWT issuer is not known")
        template = record.signers[user.iss]
        if template is None:
            return user.nats
        if not user.nats.empty:
            raise JwtError("scoped users require no permissions or limits set")
        return fill(template, user, record.claims)

    def still_valid(self, before: Admitted) -> Admitted | Refused:
        """Check a connected client again after an update of its account's JWT."""
        record = self.records.get(before.account)
        if record is None:
            return Refused()
        if record.expired(self.clock()):
            return Refused("", b"Account Authentication Expired", "Authentication Expired")
        if record.revoked(before.nkey, before.issued_at):
            return Refused("", b"User Authentication Revoked", "Credentials Revoked")
        if before.jwt:
            try:
                user = decode(before.jwt, UserClaims)
                nats = self.scoped(user, record)
            except (JwtError, ScopeError) as problem:
                return Refused(str(problem))
            if nats.bearer_token and record.claims.nats.limits.disallow_bearer:
                return Refused("Bearer User JWT not allowed")
            return admitted(user, before.jwt, nats, record, before.expires_ns)
        if before.default_permissions:
            before.permissions = record.settings.default_permissions
        return before


def admitted(
    user: UserClaims, token: str, nats: UserPart, record: Record, until_ns: int
) -> Admitted:
    """The Admitted of a user JWT."""
    own = permissions(nats.pub, nats.sub, nats.resp)
    found: Permissions | None = own or record.settings.default_permissions
    expires_ns = min((t for t in (user.exp * SECOND_NS, until_ns) if t), default=0)
    return Admitted(
        name=user.sub,
        account=record.claims.sub,
        permissions=found,
        limits=Limits(nats.subs, nats.payload, nats.data),
        expires_ns=expires_ns,
        nkey=user.sub,
        jwt=token,
        issuer=user.iss,
        name_tag=user.name,
        tags=list(user.nats.tags or []),
        issued_at=user.iat,
        default_permissions=own is None,
        way="jwt",
    )


def kind_allowed(wanted: list[str] | None, kind: str) -> bool:
    """Whether a JWT allows this type of connection. An empty list allows all types; unknown types
    allow none.
    """
    if not wanted:
        return True
    return kind in {each.upper() for each in wanted} & CONNECTION_TYPES


def _contained(subject: str, other: str) -> bool:
    mine, theirs = subject.split("."), other.split(".")
    for place, token in enumerate(theirs):
        if token == ">" and place == len(theirs) - 1:
            return len(mine) > place
        if place >= len(mine) or token not in (mine[place], "*"):
            return False
    return len(mine) == len(theirs)


def _never(when_ns: int, call: Callable[[], None]) -> None:
    """The default timer: without an event loop it never calls."""


def _ignore(record: Record | None) -> None:
    """Ignore the result of loading an account that others import from."""
