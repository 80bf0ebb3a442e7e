"""The claims of a JWT as monitoring shows them: without verification, in the order of nats-server.

The JWT of a running server was verified when the server took it. A JWT that cannot be decoded is
shown as no claims.
"""

import json
from base64 import urlsafe_b64decode
from typing import Any

_OUTSIDE = ("aud", "exp", "jti", "iat", "iss", "name", "nbf", "sub", "nats")
_ACCOUNT = (
    *("imports", "exports", "limits", "signing_keys", "revocations", "default_permissions"),
    *("mappings", "authorization", "trace", "cluster_traffic", "description", "info_url"),
    *("tags", "type", "version"),
)
_OPERATOR = (
    *("signing_keys", "account_server_url", "operator_service_urls", "system_account"),
    *("assert_server_version", "strict_signing_key_usage", "tags", "type", "version"),
)
_LIMITS = (
    *("subs", "data", "payload", "imports", "exports", "wildcards", "disallow_bearer", "conn"),
    *("leaf", "mem_storage", "disk_storage", "streams", "consumer", "max_ack_pending"),
    *("mem_max_stream_bytes", "disk_max_stream_bytes", "max_bytes_required", "tiered_limits"),
)


def account_claims(token: str) -> dict[str, Any]:
    """Return the claims of an account's JWT."""
    claims = _decoded(token)
    nats = claims.get("nats")
    if isinstance(nats, dict):
        whole = {"default_permissions": {"pub": {}, "sub": {}}, "authorization": {}, **nats}
        if isinstance(whole.get("limits"), dict):
            whole["limits"] = _in_order(whole["limits"], _LIMITS)
        claims["nats"] = _in_order(whole, _ACCOUNT)
    return claims


def operator_claims(token: str) -> dict[str, Any]:
    """Return the claims of an operator's JWT."""
    claims = _decoded(token)
    if isinstance(claims.get("nats"), dict):
        claims["nats"] = _in_order(claims["nats"], _OPERATOR)
    return claims


def is_bearer(token: str) -> bool:
    """Return whether a user's JWT is a bearer token, which is as secret as a password; True for one
    that cannot be decoded.
    """
    nats = _decoded(token).get("nats")
    return not isinstance(nats, dict) or bool(nats.get("bearer_token"))


def _decoded(token: str) -> dict[str, Any]:
    try:
        payload = token.split(".")[1]
        claims = json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (IndexError, ValueError, RecursionError):
        return {}
    return _in_order(claims, _OUTSIDE) if isinstance(claims, dict) else {}


def _in_order(found: dict[str, Any], order: tuple[str, ...]) -> dict[str, Any]:
    """The members in this order; others follow."""
    return {name: found[name] for name in order if name in found} | found
