"""The client's side of a WebSocket upgrade: the request, and the check of the response.

Pure: bytes in, bytes out. Only leaf nodes connect to other servers: the path is ``/leafnode`` after the
path of the URL.
"""

import base64
import hashlib
from typing import NamedTuple
from urllib.parse import SplitResult

from pelton.server.http_head import parse_head
from pelton.server.transports.websocket.upgrade import DEFLATE, GUID, NO_CONTEXT

_TAKEOVER = ("server_no_context_takeover", "client_no_context_takeover")


class UpgradeFailed(Exception):
    """The other side refused the upgrade. The text gives the reason."""


class Terms(NamedTuple):
    """The agreement: whether messages are compressed, and whether this side masks its frames."""

    compress: bool
    masked: bool


def ask(url: SplitResult, key: bytes, *, compress: bool, no_masking: bool) -> bytes:
    """The request; `key` has 16 random bytes."""
    path = url.path.strip("/")
    lines = [
        f"GET /{path + '/' if path else ''}leafnode HTTP/1.1",
        f"Host: {url.netloc.rpartition('@')[2]}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {base64.b64encode(key).decode()}",
        "Sec-WebSocket-Version: 13",
    ]
    if compress:
        lines.append(f"Sec-WebSocket-Extensions: {NO_CONTEXT}")
    if no_masking:
        lines.append("Nats-No-Masking: true")
    return "\r\n".join([*lines, "", ""]).encode()


def agreed(head: bytes, key: bytes, *, compress: bool, no_masking: bool) -> Terms:
    """Parse the head of the response to a request with the same arguments. Raises UpgradeFailed."""
    parsed = parse_head(head)
    if parsed.status() != "101":
        raise UpgradeFailed(f"invalid websocket connection: {parsed.line[:80]!r}")
    first = parsed.first
    encoded = base64.b64encode(key)
    digest = base64.b64encode(hashlib.sha1(encoded + GUID, usedforsecurity=False).digest()).decode()
    if (
        first("upgrade").lower() != "websocket"
        or first("connection").lower() != "upgrade"
        or first("sec-websocket-accept") != digest
    ):
        raise UpgradeFailed("invalid websocket connection: the response does not match the request")
    parts = parsed.words("sec-websocket-extensions", ",", ";")
    offered = DEFLATE in parts
    if offered and not compress:
        raise UpgradeFailed("compression negotiation error: the client did not request compression")
    if offered and not all(word in parts for word in _TAKEOVER):
        raise UpgradeFailed("compression negotiation error")
    return Terms(offered, not (no_masking and first("nats-no-masking") == "true"))
