"""The client for asyncio.

::

    async with connect("nats://127.0.0.1:4222") as nc:
        await nc.publish("greetings.anna", b"hello")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from ..options import DEFAULT_URL, ConnectOptions, Options, TlsOptions, make_options
from .connection import Client
from .handlers import Handlers

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Generator, Iterable

    from penstock.errors import PenstockError


class Connecting:
    """What ``connect`` returns: await it for a client, or use it in ``async with``."""

    def __init__(
        self, options: Options, handlers: Handlers, tls_context: ssl.SSLContext | None
    ) -> None:
        """Nothing happens before the await."""
        self._settings = options, handlers, tls_context
        self._client: Client | None = None

    async def _open(self) -> Client:
        client = Client(*self._settings)
        await client.open()
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


def connect(
    servers: str | Iterable[str] | Options = DEFAULT_URL,
    *,
    tls: ssl.SSLContext | TlsOptions | None = None,
    on_error: Callable[[Exception], Any] | None = None,
    on_disconnect: Callable[[PenstockError | None], Any] | None = None,
    on_reconnect: Callable[[], Any] | None = None,
    on_close: Callable[[], Any] | None = None,
    on_lame_duck: Callable[[], Any] | None = None,
    **options: Unpack[ConnectOptions],
) -> Connecting:
    """Connect to one of the servers: ``await connect(...)`` or ``async with connect(...) as nc``.

    ``servers``: a URL, several (also separated by commas), or whole ``Options``; ``options``: single
    ones, which ``help(Options)`` explains; ``tls``: file names, or a context.

    Handlers are functions or coroutine functions. on_error: with each error that no call can raise:
    CallbackFailed, SlowConsumer, ConnectionClosed of a subscription with a callback, ServerError.
    on_disconnect: with why the connection broke. on_reconnect: when there is one again. on_close:
    when the client is closed, by its owner or because no server was left. on_lame_duck: when the
    server is about to stop.

    Raises ConnectError, AuthenticationError, ValueError on options that make no sense, and TypeError
    on options that there are not or that whole ``Options`` stand beside.
    """
    settings, context = make_options(servers, tls, options)
    handlers = Handlers(on_error, on_disconnect, on_reconnect, on_close, on_lame_duck)
    return Connecting(settings, handlers, context)
