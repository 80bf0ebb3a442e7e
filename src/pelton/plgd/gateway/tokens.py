"""Identifies callers: the owner claim of a JSON web token that was signed with one of the given keys."""

from __future__ import annotations

import json
import math
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import jwt

from pelton.errors import PeltonError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

OWNER_CLAIM = "sub"
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "ES512", "EdDSA")
LEEWAY_S = 10.0


class InvalidTokenError(PeltonError):
    """A token that identifies no caller: malformed, expired, of another issuer, or signed by none of the keys."""


class Caller(NamedTuple):
    """Whom a token names: the owner claim, and when the token ends in seconds since 1970 (None: never)."""

    owner: str
    expires_s: float | None

    def seconds_left(self) -> float:
        """How long the token is still valid, by the clock of the machine; infinity if it never ends."""
        return math.inf if self.expires_s is None else self.expires_s - time.time()


class TokenVerifier:
    """Checks tokens with public keys.

    ``keys`` are texts: a JSON web key set (a provider's ``jwks_uri``), or public keys and certificates as PEM. A
    token must be signed with a public-key algorithm by one of them and be valid now; ``audience`` and ``issuer``
    are checked if they are given. ValueError for a text that is no key.
    """

    def __init__(
        self,
        keys: str | bytes | Iterable[str | bytes],
        *,
        owner_claim: str = OWNER_CLAIM,
        audience: str | Sequence[str] | None = None,
        issuer: str | None = None,
        leeway_s: float = LEEWAY_S,
    ) -> None:
        """``owner_claim`` is the hub's ``authorization.ownerClaim``."""
        texts = [keys] if isinstance(keys, str | bytes) else list(keys)
        self.keys = [key for text in texts for key in read_keys(text)]
        if not self.keys:
            raise ValueError("no key to verify tokens with")
        self.owner_claim = owner_claim
        self.audience = audience
        self.issuer = issuer
        self.leeway_s = leeway_s

    def caller(self, token: str) -> Caller:
        """The caller of a token, whose end includes the leeway; raises InvalidTokenError."""
        try:
            kid = jwt.get_unverified_header(token).get("kid")
        except jwt.PyJWTError as error:
            raise InvalidTokenError(f"no token: {error}") from error
        named = [key for name, key in self.keys if kid is not None and name == kid]
        candidates = named or [key for name, key in self.keys if name is None or kid is None]
        problem: Exception | None = None
        for key in candidates:
            try:
                claims = self._claims(token, key)
            except jwt.InvalidSignatureError as error:
                problem = error
            except jwt.PyJWTError as error:
                raise InvalidTokenError(f"the token is not valid: {error}") from error
            except (TypeError, ValueError) as error:  # a key of another algorithm
                problem = error
            else:
                ends = claims.get("exp")
                expires_s = None if ends is None else float(ends) + self.leeway_s
                return Caller(owner_of(claims, self.owner_claim), expires_s)
        if problem is None:
            raise InvalidTokenError(f"no key {kid!r}")
        raise InvalidTokenError("no known key has signed the token") from problem

    def _claims(self, token: str, key: Any) -> dict[str, Any]:
        """The claims of a token that a key has signed."""
        found: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=list(ALGORITHMS),
            audience=self.audience,
            issuer=self.issuer,
            leeway=self.leeway_s,
            options={"verify_aud": self.audience is not None},
        )
        return found


def owner_of(claims: Mapping[str, Any], owner_claim: str) -> str:
    """The owner claim; InvalidTokenError if it is missing or is no text."""
    owner = claims.get(owner_claim)
    if not isinstance(owner, str) or not owner:
        raise InvalidTokenError(f"the token has no claim {owner_claim!r}")
    if owner == "*":
        raise InvalidTokenError("the owner * is everybody")
    return owner


def claimed_owner(token: str, owner_claim: str = OWNER_CLAIM) -> str:
    """The owner that a token names, without a check of its signature; for the holder of the token."""
    try:
        claims = jwt.decode(token, options={"verify_signature": False})
    except jwt.PyJWTError as error:
        raise InvalidTokenError(f"no token: {error}") from error
    return owner_of(claims, owner_claim)


def read_keys(text: str | bytes) -> list[tuple[str | None, Any]]:
    """The keys of a text, each with its name in a key set; ValueError if it has none."""
    data = text.encode() if isinstance(text, str) else text
    try:
        if data.lstrip().startswith(b"{"):
            found = jwt.PyJWKSet.from_json(data.decode())
            return [(key.key_id, key.key) for key in found.keys]
        return [(None, public_key(data))]
    except (jwt.PyJWTError, json.JSONDecodeError, ValueError, KeyError, AttributeError) as error:
        raise ValueError(f"no public key and no key set: {error}") from error


def public_key(data: bytes) -> Any:
    """A public key of PEM, also out of a certificate."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    if b"BEGIN CERTIFICATE" in data:
        return x509.load_pem_x509_certificate(data).public_key()
    return load_pem_public_key(data)
