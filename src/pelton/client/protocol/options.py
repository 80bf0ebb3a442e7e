"""Options of a connection: plain values that can be pickled; ``client/base/addresses.py`` says where the server is.

From TLS options, which are file names, comes an ``ssl.SSLContext``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from pelton.errors import ConnectError

from ..base.addresses import DEFAULT_URL, Server, TlsOptions, parse_servers
from ..base.durations import Duration, to_seconds

if TYPE_CHECKING:
    import ssl

Given: TypeAlias = str | Callable[[], str]
"""A credential: the text, or a function that returns it and is called at every connect."""


def text_of(given: Given) -> str:
    """A credential as text: itself, or what the user's function returns now."""
    if isinstance(given, str):
        return given
    text = given()
    if not isinstance(text, str):
        raise TypeError(f"a function for a credential must return text, not {type(text).__name__}")
    return text


_DURATIONS = ("connect_timeout", "timeout", "ping_interval", "reconnect_wait", "reconnect_wait_max")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """All options of a client; ``connect`` takes the same as single arguments.

    Example::

        options = Options(servers=nc.servers, name="packer")
        pelton.sync.connect(options).close()

    Durations are seconds, a timedelta or text ("30s"), and are stored as seconds.

    servers: the servers to connect to; ``parse_servers`` makes them from URLs.
    name: the name of the connection in the server's list.
    user: name of a user, for servers whose URL has no credentials. This and the following five may
        be functions that return the text: they are called at every connect.
    password: the user's password.
    token: a token, in place of user and password.
    creds: a ``.creds`` file: a user's JWT and the seed that proves it; read at every connect. Or
        the contents of such a file.
    nkey: the seed of an nkey user, or the file with the seed; with ``jwt``, that user's.
    jwt: a user's JWT; without ``nkey`` it has to be a bearer token.
    authenticator: called at every connect with the server's nonce ("" when it sent none); returns
        CONNECT fields: ``nkey``, ``jwt``, ``sig``, ``user``, ``pass``, ``auth_token``.
    tls: None: TLS with the system's certificates when the URL says tls:// or the server asks for it.
    connect_timeout: for one attempt at one server, handshake included.
    timeout: how long to wait for answers when a call has no timeout.
    ping_interval: how often to send a ping to a silent server.
    pings_outstanding_max: unanswered pings after which the connection counts as broken.
    reconnect: connect again when the connection breaks.
    reconnect_attempts_max: failed attempts in a row after which a server is given up; -1 for
        never. A server that refuses the credentials twice in a row is always given up.
    reconnect_wait: before the second round over the servers; doubled every round, with jitter.
    reconnect_wait_max: the longest wait before a round.
    reconnect_jitter: the share of a wait that is drawn at random, from 0 to 1.
    reconnect_delay: called with the number of failures in a row of the server that is next; returns
        the seconds to wait, in place of the three options above.
    retry_first_connect: the first connection is tried again as a lost one is; otherwise ``connect``
        tries each server once.
    shuffle_servers: try the servers in random order, so that many clients spread over them.
    choose_server: called before every attempt with the servers in their order, the next one first;
        returns the one to try, or None for the first.
    learn_servers: also use the servers that a server names in its INFO.
    pending_bytes_max: bytes to keep when published without a connection; more raises OutputFullError.
    control_line_max: the server's ``max_control_line``, which INFO does not have: the bytes of subject,
        reply subject, queue group and sizes in one operation. More raises InvalidSubjectError; a server would
        end the connection.
    inbox_prefix: the beginning of the subjects of answers.
    shared_inbox: all requests share one subscription for their answers; False makes one for each.
    echo: False: a client does not receive its own messages.
    verbose: the server acknowledges every operation, which only helps to find faults.
    websocket_headers: further headers of the request for a WebSocket, for proxies.
    websocket_compression: let the server compress what goes over a WebSocket, if it can.
    pedantic: the server checks subjects more strictly.
    jetstream_domain: the JetStream domain of ``jetstream()`` without a domain and a prefix.
    jetstream_prefix: the prefix of the JetStream API, in place of a domain.
    socks_proxy: a SOCKS 5 proxy to connect through: ``socks5://[user:password@]host[:port]``.
    """

    servers: tuple[Server, ...] = (Server("127.0.0.1"),)
    name: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    creds: Given = field(default="", repr=False)
    nkey: str = field(default="", repr=False)
    jwt: str = field(default="", repr=False)
    authenticator: Callable[[str], dict[str, str]] | None = field(default=None, repr=False)
    tls: TlsOptions | None = None
    connect_timeout: float = 5.0
    timeout: float = 5.0
    # As in nats.go: a server that is silently gone is noticed after three intervals at the latest.
    ping_interval: float = 120.0
    pings_outstanding_max: int = 2
    reconnect: bool = True
    reconnect_attempts_max: int = -1
    reconnect_wait: float = 0.05
    reconnect_wait_max: float = 4.0
    reconnect_jitter: float = 0.5
    reconnect_delay: Callable[[int], float] | None = None
    retry_first_connect: bool = False
    shuffle_servers: bool = False
    choose_server: Callable[[Sequence[Server]], Server | None] | None = None
    learn_servers: bool = True
    # As in nats.go.
    pending_bytes_max: int = 8 * 1024 * 1024
    control_line_max: int = 4096
    inbox_prefix: str = "_INBOX"
    shared_inbox: bool = True
    echo: bool = True
    websocket_headers: Mapping[str, str] | tuple[tuple[str, str], ...] = field(
        default=(), repr=False
    )
    websocket_compression: bool = False
    verbose: bool = False
    pedantic: bool = False
    jetstream_domain: str = ""
    jetstream_prefix: str = ""
    socks_proxy: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        """Refuse options that would only fail later: ValueError, TypeError.

        Durations may have any form, and are stored as seconds.
        """
        for what in _DURATIONS:
            object.__setattr__(self, what, to_seconds(getattr(self, what)))
        if isinstance(self.websocket_headers, Mapping):
            # A tuple can be hashed as the other fields can, and does not change with the caller's mapping.
            headers = tuple(self.websocket_headers.items())
            object.__setattr__(self, "websocket_headers", headers)
        if self.websocket_headers:
            # Loaded only when needed: it imports the library ``websockets``.
            from .websocket import check_headers

            check_headers(dict(self.websocket_headers))
        if not self.servers:
            raise ValueError("no server address given")
        if self.token and self.user:
            raise ValueError("give user and password, or a token, not both")
        if self.password and not self.user:
            raise ValueError("password is given without user")
        if self.authenticator is not None and (self.creds or self.nkey or self.jwt):
            raise ValueError("give an authenticator, or credentials to make one of, not both")
        if self.creds and (self.nkey or self.jwt):
            raise ValueError("give a .creds file, or an nkey and a JWT, not both")
        if self.jetstream_domain and self.jetstream_prefix:
            raise ValueError("give jetstream_domain or jetstream_prefix, not both")
        if self.socks_proxy:
            from .socks import parse_proxy

            parse_proxy(self.socks_proxy)
        if not 0 <= self.reconnect_jitter <= 1:
            raise ValueError(
                f"reconnect_jitter is a share from 0 to 1, got {self.reconnect_jitter}"
            )
        for what in ("connect_timeout", "timeout", "ping_interval"):
            if getattr(self, what) <= 0:
                raise ValueError(f"{what} must be above 0, got {getattr(self, what)}")

    @classmethod
    def from_context(cls, name: str = "", **changed: Any) -> Options:
        """The options of a context of the ``nats`` command, "" for the selected one.

        ``changed`` are single options that replace those of the context. Raises ContextError when the
        context can't be read or used.
        """
        from .contexts import read_context

        return cls(**{**read_context(name), **changed})


class ConnectOptions(TypedDict, total=False):
    """The options of ``connect``; ``help(Options)`` explains them.

    Example::

        options: ConnectOptions = {"name": "packer", "timeout": "2s"}
        pelton.sync.connect(url, **options).close()

    ``context`` is the name of a context of the ``nats`` command, "" for the selected one; URLs and
    options that are given replace those of the context.
    """

    context: str | None
    name: str
    user: Given
    password: Given
    token: Given
    creds: Given
    nkey: Given
    jwt: Given
    authenticator: Callable[[str], dict[str, str]] | None
    connect_timeout: Duration
    timeout: Duration
    ping_interval: Duration
    pings_outstanding_max: int
    reconnect: bool
    reconnect_attempts_max: int
    reconnect_wait: Duration
    reconnect_wait_max: Duration
    reconnect_jitter: float
    reconnect_delay: Callable[[int], float] | None
    retry_first_connect: bool
    shuffle_servers: bool
    choose_server: Callable[[Sequence[Server]], Server | None] | None
    learn_servers: bool
    pending_bytes_max: int
    control_line_max: int
    inbox_prefix: str
    shared_inbox: bool
    echo: bool
    websocket_headers: Mapping[str, str] | tuple[tuple[str, str], ...]
    websocket_compression: bool
    verbose: bool
    pedantic: bool
    jetstream_domain: str
    jetstream_prefix: str
    socks_proxy: str


def make_options(
    servers: str | Iterable[str] | Options | None,
    tls: ssl.SSLContext | TlsOptions | None,
    given: Mapping[str, Any],
) -> tuple[Options, ssl.SSLContext | None]:
    """The arguments of ``connect`` as options, and the TLS context if it was one of them.

    Raises TypeError for unknown options, and for single options beside whole ``Options``, which would be
    ignored; ValueError for options with invalid values.
    """
    if unknown := sorted(given.keys() - ConnectOptions.__optional_keys__):
        from difflib import get_close_matches

        near = get_close_matches(unknown[0], ConnectOptions.__optional_keys__, 1)
        hint = f"did you mean {near[0]}?" if near else "see help(pelton.Options)"
        text = f"there is no option {', '.join(unknown)}: {hint}"
        if any(name.startswith("on_") for name in unknown):
            text += "; events of every kind come to on_status, for blocking clients too"
        raise TypeError(text)
    files = tls if isinstance(tls, TlsOptions) else None
    context = None if isinstance(tls, TlsOptions) else tls
    if not isinstance(servers, Options):
        options = _single(servers, files, dict(given))
    elif given or files is not None:
        single = [*given, *(["tls"] if files is not None else [])]
        raise TypeError(
            f"give whole Options or single options, not both: {', '.join(single)}; "
            f"dataclasses.replace(options, ...) changes some of them"
        )
    else:
        options = servers
    if context is None:
        return options, None
    used = options.tls or TlsOptions()
    # A context holds certificates and their checks; the host name and the order of the handshake
    # are not part of it.
    if used != TlsOptions(hostname=used.hostname, first=used.first):
        raise ValueError("give an ssl.SSLContext, or file names and verify, not both")
    return replace(options, tls=used), context


def _single(
    servers: str | Iterable[str] | None, tls: TlsOptions | None, given: dict[str, Any]
) -> Options:
    """Options of single values, over those of the context if one is named."""
    context: str | None = given.pop("context", None)
    if servers is not None:
        given["servers"] = parse_servers(servers)
    if tls is not None:
        given["tls"] = tls
    if context is not None:
        return Options.from_context(context, **given)
    return Options(**{"servers": parse_servers(DEFAULT_URL), **given})


def begins_with_tls(server: Server, options: TlsOptions | None) -> bool:
    """Whether TLS comes before the server's first byte: for ``wss://`` and the option ``first``.

    Raises ConnectError when TLS is wanted and the URL is ``ws://``, which has none.
    """
    if server.websocket:
        if options is not None and not server.tls:
            raise ConnectError(f"TLS is wanted, but {server} has none: use wss://")
        return server.tls
    return options is not None and options.first


def make_context(options: TlsOptions | None) -> ssl.SSLContext:
    """The context for these settings (None: the system's trust).

    Raises ConnectError when a file cannot be used.
    """
    import ssl

    options = options or TlsOptions()
    used = f"the trusted certificates {options.ca_file}"
    try:
        context = ssl.create_default_context(cafile=options.ca_file)
        if options.cert_file:
            key = f" with the key {options.key_file}" if options.key_file else ""
            used = f"the certificate {options.cert_file}{key}"
            context.load_cert_chain(options.cert_file, options.key_file)
    except (OSError, ssl.SSLError) as error:
        reason = (
            error.strerror or error.reason if isinstance(error, ssl.SSLError) else error.strerror
        )
        raise ConnectError(f"cannot use {used}: {reason or error}") from error
    if not options.verify:
        # In this order: ssl refuses CERT_NONE while host names are checked.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
