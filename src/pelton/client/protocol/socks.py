"""A SOCKS 5 proxy in front of the server (RFC 1928, RFC 1929): what is sent and read before the connection stands.

The proxy looks up the server's name. Bytes only; the caller sends and reads them.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from pelton.errors import ConnectError

from ..base.addresses import masked

DEFAULT_PORT = 1080
Talk: TypeAlias = Generator[tuple[bytes, int], bytes, None]
"""Yields bytes to send, and how many to read then at most; gets those that came, b"" at the end."""

_VERSION, _CONNECT = 5, 1
_NO_LOGIN, _PASSWORD, _NONE_OF_THESE = 0, 2, 0xFF
_IPV4, _NAME, _IPV6 = 1, 3, 4
_LONGEST = 255
_REASONS = {
    1: "it failed",
    2: "its rules do not allow that",
    3: "the network is unreachable",
    4: "the host is unreachable",
    5: "connection refused",
    6: "the connection took too long",
    7: "it makes no connections",
    8: "it does not know this kind of address",
}


@dataclass(frozen=True, slots=True)
class Proxy:
    """The address of a proxy, and who connects to it."""

    host: str
    port: int = DEFAULT_PORT
    user: str = ""
    password: str = field(default="", repr=False)

    def __str__(self) -> str:
        """The URL, without user and password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"socks5://{host}:{self.port}"


def parse_proxy(url: str) -> Proxy:
    """``socks5://[user:password@]host[:port]``, ``socks5h://...`` or ``host[:port]``; ValueError."""
    try:
        parts = urlsplit(url if "://" in url else f"socks5://{url}")
    except ValueError:  # its text has the whole address
        raise ValueError(f"bad address of a proxy: {masked(url)!r}") from None
    if parts.scheme not in ("socks5", "socks5h"):
        raise ValueError(f"a proxy is socks5://host:port, got {parts.scheme}://")
    try:
        port = parts.port or DEFAULT_PORT
    except ValueError:
        raise ValueError(f"the proxy {masked(url)!r} has no valid port") from None
    if not parts.hostname:
        raise ValueError(f"no host in the proxy {masked(url)!r}")
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    # RFC 1929 has one byte for each length.
    if max(len(user.encode()), len(password.encode())) > _LONGEST:
        raise ValueError(f"user and password of a proxy have at most {_LONGEST} bytes")
    return Proxy(parts.hostname, port, user, password)


def talk(proxy: Proxy, host: str, port: int) -> Talk:
    """Ask the proxy for a connection to the host; ConnectError when it refuses."""
    ways = bytes([_NO_LOGIN, _PASSWORD] if proxy.user else [_NO_LOGIN])
    version, way = yield from _exchange(bytes([_VERSION, len(ways)]) + ways, 2)
    if version != _VERSION:
        raise ConnectError(f"{proxy} is no SOCKS 5 proxy")
    if way == _PASSWORD and proxy.user:
        user, password = proxy.user.encode(), proxy.password.encode()
        # 1 is the version of the login (RFC 1929); SOCKS itself has 5.
        login = bytes([1, len(user)]) + user + bytes([len(password)]) + password
        _, status = yield from _exchange(login, 2)
        if status:
            raise ConnectError(f"{proxy} refuses the user {proxy.user}")
    elif way != _NO_LOGIN:
        wants = "wants a user" if not proxy.user else "takes no user and password"
        raise ConnectError(f"{proxy} {wants}")
    request = bytes([_VERSION, _CONNECT, 0]) + _address(host) + struct.pack(">H", port)
    head = yield from _exchange(request, 4)
    if head[1]:
        reason = _REASONS.get(head[1], f"reason {head[1]}")
        raise ConnectError(f"{proxy} does not connect to {host}:{port}: {reason}")
    # The proxy's own address has no use here, but it precedes the first byte of the server.
    if head[3] == _NAME:
        (rest,) = yield from _exchange(b"", 1)
    else:
        rest = 16 if head[3] == _IPV6 else 4
    yield from _exchange(b"", rest + 2)


def _exchange(data: bytes, size: int) -> Generator[tuple[bytes, int], bytes, bytes]:
    """Send bytes, and read as many as the proxy has to answer."""
    answer = b""
    while len(answer) < size:
        # Never more than the answer: the next bytes are the server's INFO, which others read.
        piece = yield data, size - len(answer)
        if not piece:
            raise ConnectError("the SOCKS proxy closed the connection")
        data, answer = b"", answer + piece
    return answer


def _address(host: str) -> bytes:
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        # The proxy looks the name up, so it need not be known on this side.
        name = host.encode("idna") if not host.isascii() else host.encode()
        if not 0 < len(name) <= _LONGEST:
            raise ConnectError(f"the proxy can't take the host name {host!r}") from None
        return bytes([_NAME, len(name)]) + name
    return bytes([_IPV4 if found.version == 4 else _IPV6]) + found.packed
