"""Where a server is: the forms of its URL, the TLS settings for reaching it, and the servers of this process.

Opens no socket: TLS settings are file names here, which ``client/protocol/options.py`` turns into an
``ssl.SSLContext``. A server in the process registers a function that opens a connection to it
(``pelton.embedded``), without a port: clients reach it by a URL such as ``memory://orders``. They look up the
name when they connect, so a lost connection is opened again as any other.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

from .arguments import refuse

if TYPE_CHECKING:
    import socket

DEFAULT_URL = "nats://127.0.0.1:4222"
DEFAULT_PORT = 4222
MEMORY = "memory"
"""The scheme of URLs of servers of this process."""
HIDDEN = "*****"
"""What is shown in place of a secret."""

_SCHEMES = {
    (False, False): "nats",
    (False, True): "tls",
    (True, False): "ws",
    (True, True): "wss",
}
_IN_A_PATH = "/%:@!$&'()*+,;=~"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_MARK = re.compile("[:?]")
_PLAIN = re.compile(r"(\[[0-9A-Fa-f:.]*\]|[^:/]*)(:[0-9]*)?/?")
_DEFAULT_PORTS = {"ws": 80, "wss": 443}


@dataclass(frozen=True, slots=True)
class Server:
    """One address of a server, with the credentials in its URL.

    Example::

        for server in nc.servers:
            print(server.host, server.port)

    ``memory``: the server runs in this process, and ``host`` is its name there. ``websocket``: behind a
    WebSocket, at the ``path`` (with the query) of its URL.
    """

    host: str
    port: int = DEFAULT_PORT
    tls: bool = False
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    memory: bool = False
    websocket: bool = False
    path: str = field(default="", repr=False)

    def __str__(self) -> str:
        """The URL, without the credentials and the query."""
        if self.memory:
            return f"{MEMORY}://{self.host}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        scheme = _SCHEMES[self.websocket, self.tls]
        return f"{scheme}://{host}:{self.port}{self.path.partition('?')[0]}"


def masked(urls: str) -> str:
    """One URL, or several with commas, to show to a user: ``*****`` in place of passwords, tokens and queries.

    Also masks text that is not a URL, so that an error about a typo shows no password.
    """
    return ",".join(map(_masked, urls.split(",")))


def _masked(url: str) -> str:
    scheme = _SCHEME.match(url)
    begin = scheme[0] if scheme else ""
    # The last one, because a password may contain an @ that nobody has escaped.
    login, at, place = url[len(begin) :].rpartition("@")
    place, query, _ = place.partition("?")
    if at:
        user, *password = _MARK.split(login, 1)
        begin += f"{user}:{HIDDEN}@" if password else f"{HIDDEN}@"
    else:
        host, colon, _ = place.partition(":")
        if colon and not _PLAIN.fullmatch(place):
            place = f"{host}:{HIDDEN}"  # perhaps a password, cut off at its comma
    return f"{begin}{place}{query}{HIDDEN if query else ''}"


def parse_server(url: str) -> Server:
    """Parse a server's URL: ``nats://[user:password@|token@]host[:port]``, ``tls://...`` or ``host[:port]``.

    ``ws://host[:port][/path]`` and ``wss://...`` are WebSockets, without and with TLS. ``memory://name`` is
    a server of this process (``pelton.embedded``). Raises ValueError for another scheme, a missing host
    or a bad port.
    """
    shown = masked(url)
    try:
        parts = urlsplit(url if "://" in url else f"nats://{url}")
    except ValueError:  # its text has the whole address
        raise ValueError(f"bad server address {shown!r}") from None
    if parts.scheme not in (*_SCHEMES.values(), MEMORY):
        raise ValueError(
            f"cannot connect to {parts.scheme}://: expected nats://, tls://, ws:// or wss:// in {shown!r}"
        )
    if not parts.hostname:
        raise ValueError(f"no host in server address {shown!r}")
    try:
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme, DEFAULT_PORT)
    except ValueError:  # its text has what stands for the port, which may be a password
        raise ValueError(f"bad port in server address {shown!r}") from None
    user, password, token = unquote(parts.username or ""), unquote(parts.password or ""), ""
    # A user without a password stands for a token.
    if parts.password is None:
        user, token = "", user
    if parts.scheme == MEMORY:
        # Not parts.hostname, which urlsplit returns in lower case.
        name = parts.netloc.rpartition("@")[2]
        return Server(name, 0, False, user, password, token, memory=True)
    tls, websocket = parts.scheme in ("tls", "wss"), parts.scheme in _DEFAULT_PORTS
    path = _path_of(parts.path, parts.query) if websocket else ""
    return Server(parts.hostname, port, tls, user, password, token, websocket=websocket, path=path)


def _path_of(path: str, query: str) -> str:
    """Path and query as in a request; blanks and letters beyond ASCII are escaped."""
    asked = f"?{quote(query, safe=_IN_A_PATH + '?')}" if query else ""
    return quote(path, safe=_IN_A_PATH) + asked


def parse_servers(urls: str | Iterable[str]) -> tuple[Server, ...]:
    """Parse one URL, several separated by commas, or an iterable of URLs.

    Raises ValueError when there is none.
    """
    if isinstance(urls, str):
        urls = urls.split(",")
    elif not isinstance(urls, Iterable):
        refuse("servers", "a URL, or an iterable of URLs", urls)
    urls = list(urls)
    for url in urls:
        if not isinstance(url, str):
            refuse("the URL of a server", "text", url)
    servers = tuple(dict.fromkeys(parse_server(url.strip()) for url in urls if url.strip()))
    if not servers:
        raise ValueError("no server address given")
    return servers


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """TLS settings as file names, so that a configuration can travel to another process.

    Example::

        tls = TlsOptions(ca_file="ca.pem", hostname="hub.example.com")  # connect("tls://10.0.0.5", tls=tls)

    ca_file: certificates to trust; None for those of the system.
    cert_file: the client's own certificate, for servers that verify it.
    key_file: its key; None when it is in cert_file.
    hostname: the name to verify; None for the host of the URL.
    verify: False accepts any certificate: for tests only.
    first: begin TLS before the server's INFO (the server's ``handshake_first``).
    """

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    hostname: str | None = None
    verify: bool = True
    first: bool = False

    def __post_init__(self) -> None:
        """Refuse settings that would be ignored: ValueError."""
        if self.key_file and not self.cert_file:
            raise ValueError("key_file is given without cert_file")


_lock = threading.Lock()
_doors: dict[str, tuple[int, Callable[[bool], socket.socket]]] = {}  # with the process id


def offer(name: str, door: Callable[[bool], socket.socket]) -> None:
    """Let clients of this process connect by ``memory://name``.

    ``door(waits)`` returns the client's end of a new connection, or raises OSError; ``waits``: a
    blocking client asks, whose thread waits for answers. ValueError: the name is taken.
    """
    with _lock:
        # A forked process inherits the table, but not the threads of the servers in it.
        if name in _doors and _doors[name][0] == os.getpid():
            raise ValueError(f"a server of this process has the name {name!r}; choose another")
        _doors[name] = os.getpid(), door


def withdraw(name: str) -> None:
    """Refuse new connections; nothing happens when the name is not offered."""
    with _lock:
        _doors.pop(name, None)


def open_socket(name: str, *, waits: bool) -> socket.socket:
    """The client's end of a new connection, of a blocking client if it ``waits``; raises OSError."""
    # Without the lock, which a thread of the parent may have held when this process was forked.
    process, door = _doors.get(name, (0, None))
    if door is None or process != os.getpid():
        raise ConnectionRefusedError(
            f"this process has no server {MEMORY}://{name}: it has stopped, or runs in another process"
        )
    return door(waits)
