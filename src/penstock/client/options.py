"""How to reach a server and how to behave on the connection: plain values that can be pickled.

Knows the forms of a server's URL. Knows nothing of sockets: the TLS settings are file names here,
and become an ``ssl.SSLContext`` in ``client/tls.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Duration: TypeAlias = float | timedelta
"""Seconds, or a timedelta, wherever a call takes a duration."""

DEFAULT_URL = "nats://127.0.0.1:4222"
DEFAULT_PORT = 4222


def to_seconds(duration: Duration) -> float:
    """A duration as seconds."""
    return duration.total_seconds() if isinstance(duration, timedelta) else duration


@dataclass(frozen=True, slots=True)
class Server:
    """One address of a server, with the credentials its URL carried."""

    host: str
    port: int = DEFAULT_PORT
    tls: bool = False
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)

    def __str__(self) -> str:
        """The URL, without the credentials."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'tls' if self.tls else 'nats'}://{host}:{self.port}"


def parse_server(url: str) -> Server:
    """The server a URL names: ``nats://[user:password@|token@]host[:port]``, ``tls://...`` or
    ``host[:port]``.

    Raises ValueError on another scheme, a missing host or a bad port.
    """
    parts = urlsplit(url if "://" in url else f"nats://{url}")
    if parts.scheme not in ("nats", "tls"):
        raise ValueError(
            f"cannot connect to {parts.scheme}://: expected nats:// or tls:// in {url!r}"
        )
    if not parts.hostname:
        raise ValueError(f"no host in server address {url!r}")
    try:
        port = parts.port or DEFAULT_PORT
    except ValueError as error:
        raise ValueError(f"bad port in server address {url!r}") from error
    user, password, token = unquote(parts.username or ""), unquote(parts.password or ""), ""
    if parts.password is None:
        user, token = "", user
    return Server(parts.hostname, port, parts.scheme == "tls", user, password, token)


def parse_servers(urls: str | Iterable[str]) -> tuple[Server, ...]:
    """The servers of one URL, of several separated by commas, or of an iterable of URLs; ValueError
    when there is none.
    """
    if isinstance(urls, str):
        urls = urls.split(",")
    servers = tuple(dict.fromkeys(parse_server(url.strip()) for url in urls if url.strip()))
    if not servers:
        raise ValueError("no server address given")
    return servers


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """TLS by file names, so that a configuration can travel to another process."""

    ca_file: str | None = None
    """Certificates to trust; None for those of the system."""
    cert_file: str | None = None
    """The client's own certificate, for servers that verify it."""
    key_file: str | None = None
    hostname: str | None = None
    """Name to verify; None for the host of the URL."""
    verify: bool = True
    """False accepts any certificate: for tests only."""
    first: bool = False
    """Shake hands before the server's INFO (the server's ``handshake_first``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Everything a client is opened with. Durations are in seconds."""

    servers: tuple[Server, ...] = (Server("127.0.0.1"),)
    name: str = ""
    """Shown by the server in its connection list."""
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    creds: str = ""
    """A ``.creds`` file: a user's JWT and the seed that proves it; read at every connect."""
    nkey: str = field(default="", repr=False)
    """The seed of an nkey user, or the file that it is in; with ``jwt``, that user's."""
    jwt: str = field(default="", repr=False)
    """A user's JWT; without ``nkey`` it has to be a bearer's."""
    authenticator: Callable[[str], dict[str, str]] | None = field(default=None, repr=False)
    """Called with the server's nonce ("" when it sent none); returns CONNECT fields: ``nkey``,
    ``jwt``, ``sig``.
    """
    tls: TlsOptions | None = None
    """None: TLS with the system's certificates where the URL says tls:// or the server demands it.
    """
    connect_timeout: float = 5.0
    """For one attempt at one server, handshake included."""
    timeout: float = 5.0
    """For answers where a call does not say otherwise."""
    ping_interval: float = 120.0
    pings_outstanding_max: int = 2
    """Unanswered pings after which the connection counts as broken."""
    reconnect: bool = True
    reconnect_attempts_max: int = 60
    """Failed attempts in a row on one server before it is given up; -1 for never."""
    reconnect_wait: float = 0.05
    """Before the second round over the servers; doubled every round, with jitter."""
    reconnect_wait_max: float = 4.0
    pending_bytes_max: int = 8 * 1024 * 1024
    """Published while there is no connection; more raises OutputFull."""
    inbox_prefix: str = "_INBOX"
    echo: bool = True
    """False: a client does not receive what it published itself."""

    def __post_init__(self) -> None:
        """Refuse what would only fail later: ValueError."""
        if not self.servers:
            raise ValueError("no server address given")
        if self.token and self.user:
            raise ValueError("give user and password, or a token, not both")
        if self.creds and (self.nkey or self.jwt):
            raise ValueError("give a .creds file, or an nkey and a JWT, not both")
        for what in ("connect_timeout", "timeout", "ping_interval"):
            if getattr(self, what) <= 0:
                raise ValueError(f"{what} must be above 0, got {getattr(self, what)}")
