"""JWTs for tests: an operator, accounts, users, made with keys of known seeds."""

from __future__ import annotations

import time
from typing import Any

from pelton import nkeys
from pelton.server.auth.jwt import encode

ISSUED_AT = 1_700_000_000
NO_LIMITS = {"subs": -1, "data": -1, "payload": -1}
ACCOUNT_LIMITS = {
    **NO_LIMITS,
    "imports": -1,
    "exports": -1,
    "wildcards": True,
    "conn": -1,
    "leaf": -1,
}


def pair(kind: int, number: int) -> nkeys.KeyPair:
    """A key of our own; the same for the same number."""
    return nkeys.KeyPair(kind, number.to_bytes(32, "big"))


OPERATOR = pair(nkeys.OPERATOR, 1)
OPERATOR_SIGNER = pair(nkeys.OPERATOR, 2)
SYSTEM = pair(nkeys.ACCOUNT, 3)
ACCOUNT = pair(nkeys.ACCOUNT, 4)
SIGNER = pair(nkeys.ACCOUNT, 5)
SCOPED = pair(nkeys.ACCOUNT, 6)
OTHER = pair(nkeys.ACCOUNT, 7)
USER = pair(nkeys.USER, 8)
STRANGER = pair(nkeys.USER, 9)
SYSTEM_USER = pair(nkeys.USER, 10)


def now() -> int:
    return int(time.time())


def operator_jwt(**nats: Any) -> str:
    fields = {
        "type": "operator",
        "signing_keys": [OPERATOR_SIGNER.public],
        "system_account": SYSTEM.public,
        **nats,
    }
    return encode({"sub": OPERATOR.public, "name": "O", "nats": fields}, OPERATOR, ISSUED_AT)


def account_jwt(
    account: nkeys.KeyPair = ACCOUNT,
    *,
    name: str = "A",
    signer: nkeys.KeyPair = OPERATOR_SIGNER,
    limits: dict[str, Any] | None = None,
    claims: dict[str, Any] | None = None,
    issued_at: int = 0,
    **nats: Any,
) -> str:
    fields = {"type": "account", "limits": {**ACCOUNT_LIMITS, **(limits or {})}, **nats}
    whole = {"sub": account.public, "name": name, "nats": fields, **(claims or {})}
    return encode(whole, signer, issued_at or now())


def user_jwt(
    user: nkeys.KeyPair | str = USER,
    *,
    signer: nkeys.KeyPair = ACCOUNT,
    account: nkeys.KeyPair | None = None,
    name: str = "u",
    claims: dict[str, Any] | None = None,
    issued_at: int = 0,
    limits: bool = True,
    **nats: Any,
) -> str:
    fields = {"type": "user", **(NO_LIMITS if limits else {}), **nats}
    if account is not None:
        fields["issuer_account"] = account.public
    public = user if isinstance(user, str) else user.public
    whole = {"sub": public, "name": name, "nats": fields, **(claims or {})}
    return encode(whole, signer, issued_at or now())


def config(*accounts: str, extra: str = "", resolver: str = "MEMORY") -> str:
    """A configuration of the operator mode."""
    from pelton.server.auth.claims import AccountClaims
    from pelton.server.auth.jwt import decode

    lines = "\n".join(
        f"  {decode(token, AccountClaims).sub}: {token}"
        for token in (*accounts, account_jwt(SYSTEM, name="SYS"))
    )
    return (
        f"operator: {operator_jwt()}\nresolver: {resolver}\n"
        f"resolver_preload: {{\n{lines}\n}}\n{extra}\n"
    )
