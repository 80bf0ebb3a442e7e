"""The handlers of an asyncio client's events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from pelton.errors import PeltonError

    from ..protocol.events import OnProtocol
    from ..session.status import Status


class Handlers(NamedTuple):
    """Handlers of the client's events; plain functions or coroutine functions, None for none."""

    on_error: Callable[[Exception], Any] | None = None
    """An error of the server, a slow subscription, an exception in a callback."""
    on_disconnect: Callable[[PeltonError | None], Any] | None = None
    on_reconnect: Callable[[], Any] | None = None
    on_close: Callable[[], Any] | None = None
    on_lame_duck: Callable[[], Any] | None = None
    """The server is about to stop."""
    on_status: Callable[[Status], Any] | None = None
    """Any event of the connection."""
    on_protocol: OnProtocol | None = None
    """A line of the protocol; a plain function."""
