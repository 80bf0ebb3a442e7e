"""The operator mode: ``operator``, ``trusted_keys``, ``resolver`` and related keys."""

import os
import re
from typing import TYPE_CHECKING

from pelton.server.config.authorization import texts
from pelton.server.config.grammar import Item
from pelton.server.config.reader import Key, Reader
from pelton.server.config.users import need
from pelton.server.config.values import flag, kind, set_to, span, text, whole
from pelton.server.errors import unreadable
from pelton.server.settings import COMPATIBLE_VERSION
from pelton.server.settings.operator import Operator, Resolver

if TYPE_CHECKING:
    from pelton.server.auth.claims import OperatorClaims

_URL = re.compile(r"url\(\s*\"?([^\s\"]*)\"?\s*\)", re.IGNORECASE)
_MEMORY = re.compile(r"mem(ory)?", re.IGNORECASE)


def _of(reader: Reader) -> Operator:
    """The operator settings of the target, created by the first key of operator mode."""
    settings = reader.settings
    if settings.operator is None:
        settings.operator = Operator()
    return settings.operator


def _operators(reader: Reader, name: str, item: Item) -> None:
    """JWTs, or the names of files with JWTs."""
    from pelton.nkeys import read_jwt

    for entry in texts(item):
        if entry.startswith("eyJ"):
            _of(reader).jwts.append(entry)
            continue
        try:
            with open(entry, encoding="utf-8") as file:
                _of(reader).jwts.append(read_jwt(file.read()))
        except (OSError, UnicodeDecodeError) as problem:
            why = unreadable(problem)
            raise ValueError(f"error parsing operator JWT: {entry}: {why}") from None


def _trusted(reader: Reader, name: str, item: Item) -> None:
    _of(reader).trusted_keys = texts(item)


def _resolver(reader: Reader, name: str, item: Item) -> None:
    found = Resolver()
    if isinstance(item.value, dict):
        reader.section(item.value, _RESOLVER, "resolver.", target=found)
        _check_resolver(reader, item, found, {key.lower() for key in item.value})
    elif _MEMORY.fullmatch(text(item).strip()):
        found.kind = "memory"
    elif match := _URL.fullmatch(text(item).strip()):
        found.kind, found.url = "url", match[1]
        if not found.url.startswith(("http://", "https://")):
            raise ValueError(f'expected URL(http://...) or URL(https://...), got "{found.url}"')
    else:
        raise ValueError('expected MEMORY, URL(...) or a map {type: full, dir: "..."}')
    _of(reader).resolver = found


def _check_resolver(reader: Reader, item: Item, found: Resolver, named: set[str]) -> None:
    refused = {
        "cache": {"interval": "sync", "allow_delete": "allow_delete", "hard_delete": "hard_delete"},
        "full": {"ttl": "ttl"},
    }
    for key, shown in refused.get(found.kind, {}).items():
        if key in named:
            reader.problem(item, f"{found.kind.upper()} does not accept {shown}")
    if found.kind == "memory":
        return
    if found.hard_delete and not found.allow_delete:
        reader.problem(item, "hard_delete has no effect without delete")
    if not found.directory:
        reader.problem(item, "dir has no value and needs to point to a directory")
    elif os.path.exists(found.directory) and not (
        os.path.isdir(found.directory) and os.access(found.directory, os.W_OK)
    ):
        reader.problem(item, "dir needs to point to an accessible directory")


def _kind(item: Item) -> str:
    value = text(item).lower()
    found = {"mem": "memory", "memory": "memory", "full": "full", "cache": "cache"}.get(value)
    if found is None:
        raise ValueError(f'expected full, cache or memory, got "{value}"')
    return found


def _preload(reader: Reader, name: str, item: Item) -> None:
    if not isinstance(item.value, dict):
        raise ValueError(f"expected a map of account keys to JWTs, got {kind(item)}")
    from pelton.server.auth.claims import AccountClaims
    from pelton.server.auth.jwt import JwtError, decode

    for key, value in item.value.items():
        token = text(value)
        try:
            decode(token, AccountClaims)
        except JwtError as problem:
            reader.problem(value, f"preload account error for {key}: {problem}")
        _of(reader).preload[key] = token


def _pinned(reader: Reader, name: str, item: Item) -> None:
    _of(reader).pinned_accounts = texts(item)


def _sentinel(reader: Reader, name: str, item: Item) -> None:
    _of(reader).default_sentinel = text(item)


_RESOLVER: dict[str, Key] = {
    "type": set_to("kind", _kind),
    "dir": set_to("directory", text),
    "allow_delete": set_to("allow_delete", flag),
    "hard_delete": set_to("hard_delete", flag),
    "limit": set_to("limit", whole),
    "interval": set_to("interval_ns", span),
    "timeout": set_to("timeout_ns", span),
    "ttl": set_to("ttl_ns", span),
}

OPERATOR: dict[str, Key] = {
    **dict.fromkeys(
        ("operator", "operators", "root", "roots", "root_operator", "root_operators"), _operators
    ),
    **dict.fromkeys(("trusted", "trusted_keys"), _trusted),
    **dict.fromkeys(("resolver", "account_resolver", "accounts_resolver"), _resolver),
    "resolver_preload": _preload,
    "resolver_pinned_accounts": _pinned,
    "default_sentinel": _sentinel,
}


def check_operator(reader: Reader, place: Item) -> None:
    """Checks across several keys; adds the values of an operator's JWT."""
    settings = reader.settings
    operator = settings.operator
    if operator is None:
        return
    if not operator.jwts and not operator.trusted_keys:
        if operator.default_sentinel:
            reader.problem(place, "default sentinel requires operators and accounts")
        settings.operator = None
        return
    need(reader, place, "cryptography", "the operator mode")
    if reader.problems:
        return
    claims = _decoded(reader, place, operator)
    if claims and operator.trusted_keys:
        reader.problem(place, "conflicting options for 'TrustedKeys' and 'TrustedOperators'")
    if len(claims) == 1:
        server = claims[0].nats.account_server_url
        if operator.resolver is None and server:
            operator.resolver = Resolver("url", url=f"{server.rstrip('/')}/accounts")
        settings.system_account = settings.system_account or claims[0].nats.system_account
    for problem in _conflicts(reader, operator, claims):
        reader.problem(place, problem)


def _decoded(reader: Reader, place: Item, operator: Operator) -> "list[OperatorClaims]":
    from pelton.server.auth.claims import OperatorClaims
    from pelton.server.auth.jwt import JwtError, decode

    found = []
    for token in operator.jwts:
        try:
            claims = decode(token, OperatorClaims)
        except JwtError as problem:
            reader.problem(place, f"error parsing operator JWT: {problem}")
            continue
        for line in claims.problems():
            reader.problem(place, f"operator JWT: {line}")
        asserted = claims.nats.assert_server_version
        if _version(asserted) > _version(COMPATIBLE_VERSION):
            reader.problem(
                place, f"operator {claims.sub} expects version {asserted}, not {COMPATIBLE_VERSION}"
            )
        found.append(claims)
    return found


def _version(dotted: str) -> list[int]:
    return [int(part) if part.isdigit() else 0 for part in dotted.split(".")]


def _conflicts(reader: Reader, operator: Operator, claims: "list[OperatorClaims]") -> list[str]:
    from pelton.nkeys import ACCOUNT, is_public
    from pelton.nkeys import OPERATOR as OPERATOR_KEY

    settings = reader.settings
    found = []
    if operator.resolver is None:
        found.append("operators require an account resolver to be configured")
    if settings.accounts:
        found.append("operators do not allow Accounts to be configured directly")
    if settings.users:
        found.append("operators do not allow users to be configured directly")
    if settings.auth_callout is not None:
        found.append("operators do not allow authorization callouts to be configured directly")
    if settings.no_auth_user:
        found.append("no_auth_user not compatible with Trusted Operator")
    systems = {each.nats.system_account for each in claims} - {""}
    if systems and settings.system_account not in systems:
        found.append("system_account in config and operator JWT must be identical")
    if (
        operator.resolver is not None
        and operator.resolver.kind in ("full", "cache")
        and not settings.system_account
    ):
        found.append(
            "using nats based account resolver - the system account needs to be specified in "
            "configuration or the operator jwt"
        )
    strangers = [
        f'trusted Keys "{key}" are required to be a valid public operator nkey'
        for key in operator.trusted_keys
        if not is_public(key, OPERATOR_KEY)
    ]
    others = [
        f'pinned account key "{key}" is not a valid public account nkey'
        for key in operator.pinned_accounts
        if not is_public(key, ACCOUNT)
    ]
    return [*found, *strangers, *others, *_sentinel_problems(operator.default_sentinel)]


def _sentinel_problems(token: str) -> list[str]:
    if not token:
        return []
    from pelton.server.auth.claims import UserClaims
    from pelton.server.auth.jwt import JwtError, decode

    try:
        claims = decode(token, UserClaims)
    except JwtError:
        return ["default sentinel JWT not valid"]
    scoped = bool(claims.nats.issuer_account) and claims.nats.empty
    if not claims.nats.bearer_token and not scoped:
        return ["default sentinel must be a bearer token"]
    return []
