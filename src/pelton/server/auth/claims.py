"""The claims of JWTs as typed values, and their validation.

An absent number is 0, which for a limit means "nothing"; a JWT says -1 for no limit. Only the
template of a scoped signing key starts without limits. The module `jwt` verifies signatures.
"""

import ipaddress
import re
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec

from pelton.nkeys import ACCOUNT, CURVE, OPERATOR, USER, is_public

NO_LIMIT = -1
# The limits of one JWT: a larger one would delay the server's other clients.
SUBJECTS_MAX = 10_000  # of the permissions of a user, of a template, of an account's default
PLACES_MAX = 1_000  # networks, and times of day, of a user
SHARED_MAX = 3_000  # exports, imports and mappings of an account together
KEYS_MAX = 5_000  # signing keys of an account
ANY = "*"
_TIME = re.compile(r"([01]?\d|2[0-3]):[0-5]\d:[0-5]\d")

Texts = list[str] | None
Seconds = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class Permission(msgspec.Struct):
    """Subjects to publish or subscribe to."""

    allow: Texts = None
    deny: Texts = None


class ResponsePermission(msgspec.Struct):
    """Permission to publish to reply subjects; ttl in nanoseconds."""

    max: int = 0
    ttl: int = 0


class TimeRange(msgspec.Struct):
    """A part of the day, as HH:MM:SS."""

    start: str = ""
    end: str = ""


class UserPart(msgspec.Struct, kw_only=True):
    """``nats`` of a user JWT."""

    pub: Permission | None = None
    sub: Permission | None = None
    resp: ResponsePermission | None = None
    src: list[str] | str | None = None
    times: list[TimeRange] | None = None
    times_location: str = ""
    subs: int = 0
    data: int = 0
    payload: int = 0
    bearer_token: bool = False
    proxy_required: bool = False
    allowed_connection_types: Texts = None
    issuer_account: str = ""
    tags: Texts = None

    @property
    def sources(self) -> list[str]:
        """Networks from which the user may connect."""
        if isinstance(self.src, str):
            return [each.strip() for each in self.src.lower().split(",") if each.strip()]
        return self.src or []

    @property
    def empty(self) -> bool:
        """Whether it sets no permission and no limit. A user of a scoped key must be empty."""
        return (
            not any(
                rules is not None and (rules.allow or rules.deny) for rules in (self.pub, self.sub)
            )
            and self.resp is None
            and not (self.src or self.times or self.times_location)
            and not (self.subs or self.data or self.payload)
            and not (self.bearer_token or self.proxy_required or self.allowed_connection_types)
        )


class Template(UserPart, kw_only=True):
    """Permissions and limits that a scoped signing key gives to its users."""

    subs: int = NO_LIMIT
    data: int = NO_LIMIT
    payload: int = NO_LIMIT


class Claims(msgspec.Struct, kw_only=True):
    """Claims that every JWT has; times in seconds since the epoch."""

    sub: str = ""
    iss: str = ""
    name: str = ""
    aud: str = ""
    jti: str = ""
    exp: Seconds = 0
    iat: Seconds = 0
    nbf: Seconds = 0

    def out_of_time(self, now_s: int) -> str:
        """Why the JWT is not valid at this time; "" when it is."""
        if 0 < self.exp < now_s:
            return "claim is expired"
        return "claim is not yet valid" if self.nbf > now_s else ""


AnyClaims = Claims


class GenericClaims(Claims, kw_only=True):
    """Claims of any other kind."""

    nats: dict[str, Any] = {}


class UserClaims(Claims, kw_only=True):
    """The claims of a user."""

    nats: UserPart = msgspec.field(default_factory=UserPart)

    @property
    def account(self) -> str:
        """The account that the user belongs to."""
        return self.nats.issuer_account or self.iss

    def problems(self) -> Iterator[str]:
        """Errors in the claims, apart from their validity in time."""
        nats = self.nats
        yield from _permissions(nats.pub, nats.sub)
        sources = nats.sources
        if max(len(sources), len(nats.times or ())) > PLACES_MAX:
            yield f"more than {PLACES_MAX} networks or times of day"
        for network in sources:
            if parse_network(network) is None:
                yield f'invalid cidr "{network}" in user src limits'
        for each in nats.times or []:
            if not _TIME.fullmatch(each.start) or not _TIME.fullmatch(each.end):
                yield f'start or end in time range is invalid "{each.start}" "{each.end}"'
        if nats.times_location and not _known_zone(nats.times_location):
            yield "could not parse iana time zone by name"
        if nats.issuer_account and not is_public(nats.issuer_account, ACCOUNT):
            yield "account_id is not an account public key"


class SigningKey(msgspec.Struct, kw_only=True):
    """A key that signs for an account, with the template of its users."""

    key: str = ""
    kind: str = ""
    role: str = ""
    description: str = ""
    template: Template = msgspec.field(default_factory=Template)


class Sampling(msgspec.Struct):
    """How often the latency of a service is measured."""

    sampling: int | str = 0
    results: str = ""


class ExportPart(msgspec.Struct, kw_only=True):
    """Subjects that other accounts may import."""

    name: str = ""
    subject: str = ""
    type: str = ""
    token_req: bool = False
    revocations: dict[str, int] | None = None
    response_type: str = ""
    response_threshold: int = 0  # nanoseconds
    service_latency: Sampling | None = None
    account_token_position: int = 0
    allow_trace: bool = False


class ImportPart(msgspec.Struct, kw_only=True):
    """Subjects of another account."""

    name: str = ""
    subject: str = ""
    account: str = ""
    token: str = ""
    to: str = ""
    local_subject: str = ""
    type: str = ""
    share: bool = False
    allow_trace: bool = False


class StorageLimits(msgspec.Struct, kw_only=True):
    """Limits of an account's use of JetStream."""

    mem_storage: int = 0
    disk_storage: int = 0
    streams: int = 0
    consumer: int = 0
    max_ack_pending: int = 0
    mem_max_stream_bytes: int = 0
    disk_max_stream_bytes: int = 0
    max_bytes_required: bool = False


class LimitsPart(StorageLimits, kw_only=True):
    """Limits that the operator sets for an account."""

    subs: int = 0
    data: int = 0
    payload: int = 0
    imports: int = 0
    exports: int = 0
    wildcards: bool = False
    disallow_bearer: bool = False
    conn: int = 0
    leaf: int = 0
    tiered_limits: dict[str, StorageLimits] | None = None


class DefaultPermissions(msgspec.Struct):
    """Permissions of users that have none of their own."""

    pub: Permission | None = None
    sub: Permission | None = None
    resp: ResponsePermission | None = None


class WeightedMapping(msgspec.Struct):
    """A destination of a subject mapping, and its share of the messages."""

    subject: str = ""
    weight: int = 0  # 0: 100
    cluster: str = ""


class ExternalAuthorization(msgspec.Struct):
    """An auth callout service decides about the account's users."""

    auth_users: Texts = None
    allowed_accounts: Texts = None
    xkey: str = ""


class TracePart(msgspec.Struct):
    """The destination of an account's message traces."""

    dest: str = ""
    sampling: int = 0


class AccountPart(msgspec.Struct, kw_only=True):
    """``nats`` of an account JWT."""

    imports: list[ImportPart] | None = None
    exports: list[ExportPart] | None = None
    limits: LimitsPart = msgspec.field(default_factory=LimitsPart)
    signing_keys: list[str | SigningKey] | None = None
    revocations: dict[str, int] | None = None
    default_permissions: DefaultPermissions | None = None
    mappings: dict[str, list[WeightedMapping]] | None = None
    authorization: ExternalAuthorization | None = None
    trace: TracePart | None = None
    tags: Texts = None


class AccountClaims(Claims, kw_only=True):
    """The claims of an account."""

    nats: AccountPart = msgspec.field(default_factory=AccountPart)

    def problems(self) -> Iterator[str]:
        """Errors in the claims, apart from their validity in time."""
        nats = self.nats
        if nats.default_permissions is not None:
            yield from _permissions(nats.default_permissions.pub, nats.default_permissions.sub)
        yield from _too_many(nats)
        for key in nats.signing_keys or []:
            public = key if isinstance(key, str) else key.key
            if not is_public(public, ACCOUNT):
                yield f"{public} is not an account public key"
        limits = nats.limits
        if limits.imports != NO_LIMIT and len(nats.imports or []) > limits.imports:
            yield "the account contains more imports than allowed by the operator"
        if limits.exports != NO_LIMIT and len(nats.exports or []) > limits.exports:
            yield "the account contains more exports than allowed by the operator"
        yield from _sharing(nats)
        authorization = nats.authorization
        if authorization is not None:
            yield from _authorization(authorization)
        for subject, targets in (nats.mappings or {}).items():
            for cluster in {target.cluster for target in targets}:
                weights = [t.weight or 100 for t in targets if t.cluster == cluster]
                if max(weights) > 100 or sum(weights) > 100:
                    yield f'Mapping "{subject}" exceeds 100% among all of its weighted to mappings'


class OperatorPart(msgspec.Struct, kw_only=True):
    """``nats`` of an operator JWT."""

    signing_keys: Texts = None
    account_server_url: str = ""
    operator_service_urls: Texts = None
    system_account: str = ""
    assert_server_version: str = ""
    strict_signing_key_usage: bool = False


class OperatorClaims(Claims, kw_only=True):
    """The claims of an operator."""

    nats: OperatorPart = msgspec.field(default_factory=OperatorPart)

    @property
    def keys(self) -> list[str]:
        """The keys that sign for the operator."""
        own = [] if self.nats.strict_signing_key_usage else [self.sub]
        return [*own, *(self.nats.signing_keys or [])]

    def problems(self) -> Iterator[str]:
        """Errors in the claims, apart from their validity in time."""
        for key in (self.sub, *(self.nats.signing_keys or [])):
            if not is_public(key, OPERATOR):
                yield f"{key} is not an operator public key"
        system = self.nats.system_account
        if system and not is_public(system, ACCOUNT):
            yield f"{system} is not an account public key"


class ActivationPart(msgspec.Struct, kw_only=True):
    """``nats`` of an activation."""

    subject: str = ""
    kind: str = ""
    issuer_account: str = ""


class ActivationClaims(Claims, kw_only=True):
    """An exporter's permission for one account to import."""

    nats: ActivationPart = msgspec.field(default_factory=ActivationPart)


class ResponsePart(msgspec.Struct, kw_only=True):
    """``nats`` of a callout's response."""

    jwt: str = ""
    error: str = ""
    issuer_account: str = ""


class ResponseClaims(Claims, kw_only=True):
    """The response of an auth callout service."""

    nats: ResponsePart = msgspec.field(default_factory=ResponsePart)


# -- soundness


def parse_network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """The network of an address/bits text; None when the text is not a network."""
    if "/" not in text:
        return None
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def _known_zone(name: str) -> bool:
    import zoneinfo

    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def _too_many(nats: AccountPart) -> Iterator[str]:
    shared = len(nats.imports or ()) + len(nats.exports or ()) + len(nats.mappings or ())
    if shared > SHARED_MAX:
        yield f"more than {SHARED_MAX} exports, imports and mappings"
    keys = nats.signing_keys or []
    if len(keys) > KEYS_MAX:
        yield f"more than {KEYS_MAX} signing keys"
    templates = [key.template for key in keys if isinstance(key, SigningKey)]
    if sum(_subjects(each.pub, each.sub) for each in templates) > SUBJECTS_MAX:
        yield f"more than {SUBJECTS_MAX} subjects in the templates of signing keys"


def _subjects(*permissions: Permission | None) -> int:
    return sum(
        len(rules.allow or ()) + len(rules.deny or ()) for rules in permissions if rules is not None
    )


def _permissions(publish: Permission | None, subscribe: Permission | None) -> Iterator[str]:
    if _subjects(publish, subscribe) > SUBJECTS_MAX:
        yield f"more than {SUBJECTS_MAX} subjects in permissions"
    for rules, words_max in ((publish, 1), (subscribe, 2)):
        if rules is None:
            continue
        for subject in (*(rules.allow or []), *(rules.deny or [])):
            words = subject.split(" ")
            if len(words) > words_max or any(_unsound(word) for word in words):
                yield f'Permission Subject "{subject}" is not valid'


def _unsound(subject: str) -> bool:
    return not subject or subject[0] == "." or subject[-1] == "." or ".." in subject


def _sharing(nats: AccountPart) -> Iterator[str]:
    shared: list[ImportPart | ExportPart] = [*(nats.imports or []), *(nats.exports or [])]
    for each in shared:
        if each.type not in ("stream", "service"):
            yield f'invalid import or export type: "{each.type}"'
        if _unsound(each.subject) or " " in each.subject:
            yield f'subject "{each.subject}" is not valid'
    for wanted in nats.imports or []:
        if not wanted.account:
            yield "account to import from is not specified"
        if wanted.local_subject and wanted.to:
            yield "Local Subject replaces To"
    if nats.limits.exports != NO_LIMIT and not nats.limits.wildcards:
        for export in nats.exports or []:
            if {"*", ">"} & set(export.subject.split(".")):
                yield ("the account contains wildcard exports that are not allowed by the operator")


def _authorization(found: ExternalAuthorization) -> Iterator[str]:
    if found.allowed_accounts and not found.auth_users:
        yield "External authorization cannot have accounts without users specified"
    for user in found.auth_users or []:
        if not is_public(user, USER):
            yield f'AuthUser "{user}" is not a valid user public key'
    for account in found.allowed_accounts or []:
        if account != ANY and not is_public(account, ACCOUNT):
            yield f'Account "{account}" is not a valid account public key'
    if found.xkey and not is_public(found.xkey, CURVE):
        yield f'XKey "{found.xkey}" is not a valid public xkey'


def migrate(plain: dict[str, Any], kind: str) -> dict[str, Any]:
    """Claims of version 1 in the form of version 2."""
    nats = dict(plain.get("nats") or {})
    for moved in ("tags", "issuer_account"):
        if plain.get(moved):
            nats[moved] = plain[moved]
    if kind == "user":
        nats = {"subs": NO_LIMIT, "data": NO_LIMIT, "payload": NO_LIMIT, **nats}
    return {**plain, "nats": nats}
