"""The server's side of a WebSocket upgrade: parses the request, checks it, and makes the response.
Pure: bytes in, bytes out. The order of checks and their statuses are nats-server's.
"""

import base64
import binascii
import hashlib
import ipaddress
import time
from typing import NamedTuple

from pelton.server.http_head import Head, parse_head
from pelton.server.settings.websocket import Websocket
from pelton.server.transports.websocket.origins import refusal

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
DEFLATE = "permessage-deflate"
NO_CONTEXT = f"{DEFLATE}; server_no_context_takeover; client_no_context_takeover"

_REASONS = {
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
}


class UpgradeRefused(Exception):
    """The request is refused. The text is for the log, the status for the other side."""

    def __init__(self, status: int, why: str) -> None:
        """An HTTP status and the reason."""
        super().__init__(why)
        self.status = status


class Request(NamedTuple):
    """An HTTP request: its method, the path of its target, and its head."""

    method: str
    path: str
    head: Head


class Upgrade(NamedTuple):
    """The agreement of request and response."""

    key: str
    leaf: bool  # a leaf node, not a client
    compress: bool
    no_masking: bool
    browser: bool
    client_ip: str  # the client's address from a proxy; "" without one
    cookies: dict[str, str]


def parse_request(head: bytes) -> Request:
    """Parse the head of a request; UpgradeRefused when it is not HTTP."""
    parsed = parse_head(head)
    line = parsed.request()
    if line is None or not line[1]:
        raise UpgradeRefused(400, "not an HTTP request")
    if parsed.malformed:
        raise UpgradeRefused(400, "malformed header")
    return Request(line[0], line[1].partition("?")[0], parsed)


def agree(request: Request, settings: Websocket, *, secure: bool) -> Upgrade:
    """Check a request. Returns the agreement or raises UpgradeRefused."""
    head = request.head
    if request.path.endswith("/mqtt"):
        raise UpgradeRefused(404, "mqtt websocket endpoint not enabled")
    if request.method != "GET":
        raise UpgradeRefused(405, "request method must be GET")
    if not head.first("host"):
        raise UpgradeRefused(400, "'Host' missing in request")
    if "websocket" not in head.words("upgrade"):
        raise UpgradeRefused(400, "invalid value for header 'Upgrade'")
    if "upgrade" not in head.words("connection"):
        raise UpgradeRefused(400, "invalid value for header 'Connection'")
    key = head.first("sec-websocket-key")
    if not key:
        raise UpgradeRefused(400, "key missing")
    if not _is_key(key):
        raise UpgradeRefused(400, "invalid websocket key")
    if "13" not in head.words("sec-websocket-version"):
        raise UpgradeRefused(400, "invalid version")
    why = refusal(
        head.first("origin") or head.first("sec-websocket-origin"),
        head.first("host"),
        secure=secure,
        same_origin=settings.same_origin,
        allowed=settings.allowed_origins,
    )
    if why:
        raise UpgradeRefused(403, f"origin not allowed: {why}")
    return Upgrade(
        key=key,
        leaf=request.path.endswith("/leafnode"),
        compress=settings.compression
        and DEFLATE in head.words("sec-websocket-extensions", ",", ";"),
        no_masking=head.first("nats-no-masking") == "true",
        browser=head.first("user-agent").startswith("Mozilla/"),
        client_ip=_address(head.first("x-forwarded-for")),
        cookies=_cookies(head),
    )


def answer(upgrade: Upgrade, more: dict[str, str]) -> bytes:
    """The response that accepts the upgrade; `more` are the configuration's headers."""
    digest = hashlib.sha1(upgrade.key.encode("latin-1") + GUID, usedforsecurity=False).digest()
    lines = [
        "HTTP/1.1 101 Switching Protocols",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Accept: {base64.b64encode(digest).decode()}",
    ]
    if upgrade.compress:
        lines.append(f"Sec-WebSocket-Extensions: {NO_CONTEXT}")
    if upgrade.no_masking:
        lines.append("Nats-No-Masking: true")
    lines += [f"{name}: {value}" for name, value in more.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def refuse(status: int) -> bytes:
    """The response that refuses the upgrade."""
    reason = _REASONS[status]
    body = f"{reason}\n"
    return (
        f"HTTP/1.1 {status} {reason}\r\n"
        "Content-Type: text/plain; charset=utf-8\r\n"
        "Sec-Websocket-Version: 13\r\n"
        "X-Content-Type-Options: nosniff\r\n"
        f"{time.strftime('Date: %a, %d %b %Y %H:%M:%S GMT', time.gmtime())}\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
        f"{body}"
    ).encode()


def _is_key(key: str) -> bool:
    try:
        return len(base64.b64decode(key, validate=True)) == 16
    except (binascii.Error, ValueError):
        return False


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return ""


def _cookies(head: Head) -> dict[str, str]:
    found: dict[str, str] = {}
    for value in head.headers.get("cookie", ()):
        for part in value.split(";"):
            name, equals, text = part.strip(" \t").partition("=")
            if equals and name:
                if len(text) > 1 and text.startswith('"') and text.endswith('"'):
                    text = text[1:-1]
                found.setdefault(name, text)
    return found
