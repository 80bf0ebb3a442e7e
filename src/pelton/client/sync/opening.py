"""Opening the transport of a blocking client: to memory, through a proxy, over a WebSocket, or straight."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base.addresses import Server, open_socket
from ..protocol.socks import parse_proxy
from .dialing import Patience
from .transport import Transport

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..protocol.options import Options
    from .locks import Bell, Guard


def open_transport(
    server: Server,
    options: Options,
    guard: Guard,
    bell: Bell,
    over: Callable[[], bool],
    deadline: float,
) -> Transport:
    """Connect to the server; raises OSError, and ConnectError as soon as the client is ``over``."""
    if server.memory:
        connected = guard.without(lambda: open_socket(server.host, waits=True))
    elif options.socks_proxy:
        proxy = parse_proxy(options.socks_proxy)
        patience = Patience(guard, bell, over, deadline)
        connected = patience.connect_through(proxy, server.host, server.port)
    else:
        connected = Patience(guard, bell, over, deadline).connect(server.host, server.port)
    if not server.websocket:
        return Transport(connected, guard, bell)
    from .websocket import WebSocketTransport

    return WebSocketTransport(connected, guard, bell, server, options)
