"""The client for asyncio.

::

    async with connect("nats://127.0.0.1:4222") as nc:
        await nc.publish("greetings.anna", b"hello")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from ..protocol.options import ConnectOptions, Options, make_options
from .backend import Handlers
from .connection import Client
from .messages import Message

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Generator, Iterable

    from pelton.errors import PeltonError

    from ..base.addresses import TlsOptions
    from ..protocol.events import OnProtocol
    from ..session.status import Status


class Connecting:
    """The result of ``connect``: await it for a client, or use it in ``async with``."""

    def __init__(
        self, options: Options, handlers: Handlers, tls_context: ssl.SSLContext | None
    ) -> None:
        """Connects only when it is awaited."""
        self._settings = options, handlers, tls_context
        self._client: Client | None = None

    async def _open(self) -> Client:
        options, handlers, context = self._settings
        client = Client(options, Message, handlers, context)
        await client._open()
        return client

    def __await__(self) -> Generator[Any, None, Client]:
        """An open client."""
        return self._open().__await__()

    async def __aenter__(self) -> Client:
        """An open client, closed at the end of the block."""
        self._client = await self._open()
        return self._client

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        if self._client is not None:
            await self._client.close()

    if not TYPE_CHECKING:  # checkers say it themselves

        def __enter__(self) -> None:
            """Say that ``async`` or ``sync`` is missing."""
            raise TypeError(
                "pelton.connect() is for asyncio: write `async with connect(...)`, "
                "or `with pelton.sync.connect(...)`"
            )

        def __exit__(self, *_: object) -> None:
            """Python asks for it before it calls ``__enter__``."""

        def __getattr__(self, name: str) -> None:
            """Say that the client comes with the block."""
            raise AttributeError(
                f"no {name!r} before there is a connection: write `async with connect(...) as nc`, "
                "or `nc = await connect(...)`"
            )


def connect(
    servers: str | Iterable[str] | Options | None = None,
    *,
    tls: ssl.SSLContext | TlsOptions | None = None,
    on_error: Callable[[Exception], Any] | None = None,
    on_disconnect: Callable[[PeltonError | None], Any] | None = None,
    on_reconnect: Callable[[], Any] | None = None,
    on_close: Callable[[], Any] | None = None,
    on_lame_duck: Callable[[], Any] | None = None,
    on_status: Callable[[Status], Any] | None = None,
    on_protocol: OnProtocol | None = None,
    **options: Unpack[ConnectOptions],
) -> Connecting:
    """Connect to one of the servers: ``await connect(...)`` or ``async with connect(...) as nc``.

    Example::

        async with connect("nats://127.0.0.1:4222", name="packer") as nc:
            await nc.publish("news", b"sunny")

    ``servers``: a URL, several (also separated by commas), or whole ``Options``; None for
    nats://127.0.0.1:4222, or for those of the ``context``; ``options``: single options, which
    ``help(Options)`` explains; ``tls``: file names, or a context.

    Handlers are functions or coroutine functions. on_error: gets each error that no call can raise:
    CallbackFailedError, SlowConsumerError, ConnectionClosedError of a subscription with a callback, ServerError.
    on_disconnect: gets the reason why the connection broke. on_reconnect: called when there is a
    connection again. on_close: called when the client is closed, by its owner or because no server was
    left. on_lame_duck: called when the server is about to stop. on_status: gets every event of the
    connection, as ``Client.status()``. on_protocol: a plain function; gets each line of the protocol
    with its direction, "in" or "out", without payloads and secrets.

    Raises ConnectError, AuthenticationError, ValueError for invalid values of options, and TypeError for
    unknown options and for options beside whole ``Options``; ContextError for a context that can't be used.
    """
    settings, context = make_options(servers, tls, options)
    handlers = Handlers(on_error, on_disconnect, on_reconnect, on_close, on_lame_duck)
    handlers = handlers._replace(on_status=on_status, on_protocol=on_protocol)
    return Connecting(settings, handlers, context)
