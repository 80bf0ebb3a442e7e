"""The client for asyncio.

::

    async with connect("nats://127.0.0.1:4222") as nc:
        await nc.publish("greetings.anna", b"hello")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .aio_client import Client
from .aio_handlers import Handlers
from .options import DEFAULT_URL, Options, TlsOptions, parse_servers

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
    **options: Any,
) -> Connecting:
    """Connect to one of the servers: ``await connect(...)`` or ``async with connect(...) as nc``.

    ``servers``: a URL, several (also separated by commas), or whole ``Options``; the other
    arguments are handlers, and fields of ``Options``. Raises ConnectError, AuthenticationError, and
    ValueError on options that make no sense.
    """
    if isinstance(servers, Options):
        settings = servers
    else:
        given = tls if isinstance(tls, TlsOptions) else None
        tls_options = given or (TlsOptions() if tls is not None else None)
        settings = Options(servers=parse_servers(servers), tls=tls_options, **options)
    context = None if tls is None or isinstance(tls, TlsOptions) else tls
    handlers = Handlers(on_error, on_disconnect, on_reconnect, on_close, on_lame_duck)
    return Connecting(settings, handlers, context)
